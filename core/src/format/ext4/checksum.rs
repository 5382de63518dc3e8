//! File-system wide parameters of all metadata checksums.

use crate::base::checksum::crc32c;
use crate::base::Uuid;

/// What every checksum of the file system starts from. Small and copied around; not on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CsumCtx {
    /// `s_checksum_seed`, or crc32c of the UUID (kernel `s_csum_seed`).
    pub seed: u32,
    /// Feature `metadata_csum`.
    pub metadata_csum: bool,
    /// Feature `uninit_bg` (and not `metadata_csum`): crc16 of group descriptors.
    pub gdt_csum: bool,
    /// The UUID, for the crc16 variant.
    pub uuid: Uuid,
}

impl CsumCtx {
    /// Neither kind of checksum: every verification passes, every `set` does nothing.
    pub const NONE: CsumCtx = CsumCtx {
        seed: !0,
        metadata_csum: false,
        gdt_csum: false,
        uuid: Uuid([0; 16]),
    };

    /// Running value after inode number and generation: the start of inode, extent and directory checksums.
    pub fn inode_seed(&self, ino: u32, generation: u32) -> u32 {
        crc32c(
            crc32c(self.seed, &ino.to_le_bytes()),
            &generation.to_le_bytes(),
        )
    }

    /// True if group descriptors carry any checksum, so that groups may be uninitialised.
    pub fn group_descs(&self) -> bool {
        self.metadata_csum || self.gdt_csum
    }
}
