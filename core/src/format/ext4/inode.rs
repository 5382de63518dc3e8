//! Inodes: `struct ext4_inode` of `fs/ext4/ext4.h`, documented in `inodes.rst`.
//!
//! 128 bytes, then `i_extra_isize` bytes of further fields if `s_inode_size` is larger, then the in-inode xattr area.
//! Little-endian. With `metadata_csum` the checksum is crc32c(seed; number; generation; the whole inode with its two
//! checksum halves zero); the high half exists only if `i_extra_isize` covers it.

use super::checksum::CsumCtx;
use crate::base::bytes;
use crate::base::checksum::crc32c;
use crate::format::cast;
use crate::format::layout::on_disk;
use crate::format::{Corrupt, CorruptKind};

/// Mask of the file type in `i_mode`.
pub const S_IFMT: u16 = 0o170_000;
/// Socket.
pub const S_IFSOCK: u16 = 0o140_000;
/// Symbolic link.
pub const S_IFLNK: u16 = 0o120_000;
/// Regular file.
pub const S_IFREG: u16 = 0o100_000;
/// Block device.
pub const S_IFBLK: u16 = 0o060_000;
/// Directory.
pub const S_IFDIR: u16 = 0o040_000;
/// Character device.
pub const S_IFCHR: u16 = 0o020_000;
/// FIFO.
pub const S_IFIFO: u16 = 0o010_000;

/// `i_flags`: secure deletion.
pub const EXT4_SECRM_FL: u32 = 0x1;
/// `i_flags`: undelete.
pub const EXT4_UNRM_FL: u32 = 0x2;
/// `i_flags`: compressed.
pub const EXT4_COMPR_FL: u32 = 0x4;
/// `i_flags`: synchronous updates.
pub const EXT4_SYNC_FL: u32 = 0x8;
/// `i_flags`: immutable.
pub const EXT4_IMMUTABLE_FL: u32 = 0x10;
/// `i_flags`: append only.
pub const EXT4_APPEND_FL: u32 = 0x20;
/// `i_flags`: no dump.
pub const EXT4_NODUMP_FL: u32 = 0x40;
/// `i_flags`: no access time.
pub const EXT4_NOATIME_FL: u32 = 0x80;
/// `i_flags`: encrypted.
pub const EXT4_ENCRYPT_FL: u32 = 0x800;
/// `i_flags`: the directory has an htree.
pub const EXT4_INDEX_FL: u32 = 0x1000;
/// `i_flags`: AFS magic directory.
pub const EXT4_IMAGIC_FL: u32 = 0x2000;
/// `i_flags`: file content goes through the journal.
pub const EXT4_JOURNAL_DATA_FL: u32 = 0x4000;
/// `i_flags`: no tail merging.
pub const EXT4_NOTAIL_FL: u32 = 0x8000;
/// `i_flags`: synchronous directory updates.
pub const EXT4_DIRSYNC_FL: u32 = 0x10000;
/// `i_flags`: top of a directory hierarchy for the Orlov allocator.
pub const EXT4_TOPDIR_FL: u32 = 0x20000;
/// `i_flags`: `i_blocks` counts file-system blocks.
pub const EXT4_HUGE_FILE_FL: u32 = 0x40000;
/// `i_flags`: `i_block` holds an extent tree.
pub const EXT4_EXTENTS_FL: u32 = 0x80000;
/// `i_flags`: verity.
pub const EXT4_VERITY_FL: u32 = 0x0010_0000;
/// `i_flags`: holds an xattr value.
pub const EXT4_EA_INODE_FL: u32 = 0x0020_0000;
/// `i_flags`: content in the inode.
pub const EXT4_INLINE_DATA_FL: u32 = 0x1000_0000;
/// `i_flags`: new inodes inherit the project id.
pub const EXT4_PROJINHERIT_FL: u32 = 0x2000_0000;
/// `i_flags`: case-insensitive directory.
pub const EXT4_CASEFOLD_FL: u32 = 0x4000_0000;

/// Bytes before `i_extra_isize`.
pub const EXT4_GOOD_OLD_INODE: usize = 128;
/// Bytes of `i_block`.
pub const I_BLOCK_SIZE: usize = 60;
/// Direct block pointers in `i_block`.
pub const EXT4_NDIR_BLOCKS: usize = 12;
/// Index of the indirect block pointer.
pub const EXT4_IND_BLOCK: usize = 12;
/// Index of the double indirect block pointer.
pub const EXT4_DIND_BLOCK: usize = 13;
/// Index of the triple indirect block pointer.
pub const EXT4_TIND_BLOCK: usize = 14;
/// Links at which a directory's count stops with `dir_nlink` (kernel `EXT4_LINK_MAX`).
pub const EXT4_LINK_MAX: u16 = 65000;

const CSUM_LO_AT: usize = 0x7C;
const CSUM_HI_AT: usize = 0x82;

on_disk! {
    /// An inode with halves joined. Fields that `i_extra_isize` does not cover decode as 0 and are not written.
    pub struct RawInode {
        i_mode: u16 = le16(0x00), "File type and permissions.";
        i_uid: u32 = lo16hi16(0x02, 0x78), "Owner.";
        i_size: u64 = lo32hi32(0x04, 0x6C), "Size in bytes.";
        i_atime: u32 = le32(0x08), "Access time, low 32 bits of seconds.";
        i_ctime: u32 = le32(0x0C), "Inode change time, low 32 bits of seconds.";
        i_mtime: u32 = le32(0x10), "Modification time, low 32 bits of seconds.";
        i_dtime: u32 = le32(0x14), "Deletion time in seconds, or next orphan.";
        i_gid: u32 = lo16hi16(0x18, 0x7A), "Group.";
        i_links_count: u16 = le16(0x1A), "Links.";
        i_blocks: u64 = lo32hi16(0x1C, 0x74), "Blocks in 512-byte units, or in blocks with HUGE_FILE_FL.";
        i_flags: u32 = le32(0x20), "Flags.";
        i_version: u64 = lo32hi32(0x24, 0x98), "Change counter.";
        i_block: [u8; 60] = bytes_at(0x28), "Extent root, block map, inline content or symlink target.";
        i_generation: u32 = le32(0x64), "Generation of this inode number.";
        i_file_acl: u64 = lo32hi16(0x68, 0x76), "Block of extended attributes.";
        i_obso_faddr: u32 = le32(0x70), "Obsolete fragment address.";
        i_checksum: u32 = lo16hi16(0x7C, 0x82), "crc32c of the inode.";
        l_i_reserved: u16 = le16(0x7E), "Unused.";
        i_extra_isize: u16 = le16(0x80), "Bytes of fields past the first 128.";
        i_ctime_extra: u32 = le32(0x84), "ctime: 2 epoch bits, 30 bits of nanoseconds.";
        i_mtime_extra: u32 = le32(0x88), "mtime: 2 epoch bits, 30 bits of nanoseconds.";
        i_atime_extra: u32 = le32(0x8C), "atime: 2 epoch bits, 30 bits of nanoseconds.";
        i_crtime: u32 = le32(0x90), "Creation time, low 32 bits of seconds.";
        i_crtime_extra: u32 = le32(0x94), "crtime: 2 epoch bits, 30 bits of nanoseconds.";
        i_projid: u32 = le32(0x9C), "Project id.";
    }
}

/// A time stamp: seconds since 1970 and nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp {
    /// Seconds since 1970, -2^31 .. 2^34 - 2^31 on disk.
    pub secs: i64,
    /// Nanoseconds below 10^9.
    pub nanos: u32,
}

impl Timestamp {
    /// Seconds and nanoseconds since 1970 from total nanoseconds.
    pub fn from_nanos(ns: i64) -> Timestamp {
        Timestamp {
            secs: ns.div_euclid(1_000_000_000),
            nanos: u32::try_from(ns.rem_euclid(1_000_000_000)).unwrap_or(0),
        }
    }

    /// Total nanoseconds since 1970 (saturating).
    pub fn as_nanos(self) -> i64 {
        self.secs
            .saturating_mul(1_000_000_000)
            .saturating_add(i64::from(self.nanos))
    }

    /// From the low word and the extra word (kernel `ext4_decode_extra_time`).
    pub fn from_words(secs: u32, extra: u32) -> Timestamp {
        let epoch = i64::from(extra & 3).saturating_mul(1 << 32);
        Timestamp {
            secs: i64::from(cast::signed(secs)).saturating_add(epoch),
            nanos: extra >> 2,
        }
    }

    /// Low word and extra word (kernel `ext4_encode_extra_time`).
    pub fn to_words(self) -> (u32, u32) {
        let low = cast::lo32_signed(self.secs);
        let above = self.secs.saturating_sub(i64::from(cast::signed(low)));
        let epoch = cast::lo32_signed(above.div_euclid(1 << 32)) & 3;
        (low, (self.nanos << 2) | epoch)
    }
}

macro_rules! times {
    ($($get:ident, $set:ident, $word:ident, $extra:ident, $what:literal;)*) => {$(
        #[doc = concat!("The ", $what, " time.")]
        pub fn $get(&self) -> Timestamp {
            Timestamp::from_words(self.$word, self.$extra)
        }

        #[doc = concat!("Stores the ", $what, " time; without room for the extra word only 32 bits of seconds last.")]
        pub fn $set(&mut self, t: Timestamp) {
            (self.$word, self.$extra) = t.to_words();
        }
    )*};
}

impl RawInode {
    /// Decodes the inode in `b`, whose length is `s_inode_size`.
    pub fn decode(b: &[u8]) -> Result<RawInode, Corrupt> {
        if b.len() < EXT4_GOOD_OLD_INODE {
            let kind = CorruptKind::Truncated {
                structure: "inode",
                need: 128,
                have: cast::len32(b.len()),
            };
            return Err(Corrupt::new(kind, 0));
        }
        let extra = bytes::le16(b, 0x80);
        let room = b.len().saturating_sub(EXT4_GOOD_OLD_INODE);
        if room > 0 && (usize::from(extra) > room || extra % 4 != 0) {
            let kind = CorruptKind::InodeExtraSize {
                extra,
                inode_size: cast::lo16(cast::len32(b.len())),
            };
            return Err(Corrupt::new(kind, 0x80));
        }
        Ok(RawInode::decode_lenient(b))
    }

    /// Decodes whatever is there, for dumps and fsck: a bad `i_extra_isize` counts as far as the inode reaches.
    pub fn decode_lenient(b: &[u8]) -> RawInode {
        let end = fields_end(b.len(), bytes::le16(b, 0x80));
        let mut inode = RawInode::read_fields(b.get(..end).unwrap_or(b));
        inode.i_extra_isize = bytes::le16(b, 0x80);
        if b.len() <= EXT4_GOOD_OLD_INODE {
            inode.i_extra_isize = 0;
        }
        inode
    }

    /// Writes all fields into `b` (length `s_inode_size`); xattr area and unknown bytes stay.
    pub fn encode(&self, b: &mut [u8]) {
        let len = b.len();
        let end = fields_end(len, self.i_extra_isize);
        if let Some(b) = b.get_mut(..end) {
            self.write_fields(b);
        }
        if len > EXT4_GOOD_OLD_INODE {
            bytes::put_le16(b, 0x80, self.i_extra_isize);
        }
    }

    /// As [`RawInode::encode`], then computes and stores the checksum.
    pub fn encode_with_csum(&self, ctx: &CsumCtx, ino: u32, b: &mut [u8]) {
        self.encode(b);
        RawInode::csum_set(ctx, ino, b);
    }

    /// Checksum of the inode bytes `b`: 32 bits, or 16 where there is no room for the high half.
    pub fn csum(ctx: &CsumCtx, ino: u32, b: &[u8]) -> u32 {
        let crc = ctx.inode_seed(ino, bytes::le32(b, 0x64));
        let crc = crc32c(crc, b.get(..CSUM_LO_AT).unwrap_or(b));
        let crc = crc32c(crc, &[0, 0]);
        if !has_csum_hi(b) {
            let rest = b.get(CSUM_LO_AT.saturating_add(2)..).unwrap_or(&[]);
            return crc32c(crc, rest) & 0xffff;
        }
        let mid = b
            .get(CSUM_LO_AT.saturating_add(2)..CSUM_HI_AT)
            .unwrap_or(&[]);
        let rest = b.get(CSUM_HI_AT.saturating_add(2)..).unwrap_or(&[]);
        crc32c(crc32c(crc32c(crc, mid), &[0, 0]), rest)
    }

    /// Stores the checksum in the inode bytes `b` if the file system has them.
    pub fn csum_set(ctx: &CsumCtx, ino: u32, b: &mut [u8]) {
        if !ctx.metadata_csum {
            return;
        }
        let csum = RawInode::csum(ctx, ino, b);
        bytes::put_le16(b, CSUM_LO_AT, cast::lo16(csum));
        if has_csum_hi(b) {
            bytes::put_le16(b, CSUM_HI_AT, cast::hi16(csum));
        }
    }

    /// Checks the stored checksum of the inode bytes `b`. An all-zero inode passes.
    pub fn csum_verify(ctx: &CsumCtx, ino: u32, b: &[u8]) -> Result<(), Corrupt> {
        if !ctx.metadata_csum {
            return Ok(());
        }
        let mut stored = u32::from(bytes::le16(b, CSUM_LO_AT));
        if has_csum_hi(b) {
            stored |= cast::join16(bytes::le16(b, CSUM_HI_AT), 0);
        }
        let computed = RawInode::csum(ctx, ino, b);
        if stored == computed || b.iter().all(|&x| x == 0) {
            return Ok(());
        }
        let kind = CorruptKind::InodeChecksum {
            ino,
            stored,
            computed,
        };
        Err(Corrupt::new(kind, cast::len32(CSUM_LO_AT)))
    }

    times! {
        atime, set_atime, i_atime, i_atime_extra, "access";
        ctime, set_ctime, i_ctime, i_ctime_extra, "inode change";
        mtime, set_mtime, i_mtime, i_mtime_extra, "modification";
        crtime, set_crtime, i_crtime, i_crtime_extra, "creation";
    }

    /// File type bits of `i_mode`.
    pub fn file_type(&self) -> u16 {
        self.i_mode & S_IFMT
    }

    /// True if `i_flags` has `flag`.
    pub fn has_flag(&self, flag: u32) -> bool {
        self.i_flags & flag != 0
    }

    /// True for a directory.
    pub fn is_dir(&self) -> bool {
        self.file_type() == S_IFDIR
    }

    /// True for a regular file.
    pub fn is_reg(&self) -> bool {
        self.file_type() == S_IFREG
    }

    /// True for a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.file_type() == S_IFLNK
    }

    /// `i_blocks` in 512-byte units whatever unit the inode uses.
    pub fn blocks_512(&self, block_size: u32) -> u64 {
        if self.has_flag(EXT4_HUGE_FILE_FL) {
            self.i_blocks.saturating_mul(u64::from(block_size / 512))
        } else {
            self.i_blocks
        }
    }

    /// Symbolic link whose target lies in `i_block` (kernel `ext4_inode_is_fast_symlink`).
    pub fn is_fast_symlink(&self) -> bool {
        self.is_symlink()
            && self.i_size < 60
            && !self.has_flag(EXT4_EXTENTS_FL | EXT4_INLINE_DATA_FL)
    }

    /// Word `i` of the block map in `i_block`.
    pub fn block_ptr(&self, i: usize) -> u32 {
        bytes::le32(&self.i_block, i.saturating_mul(4))
    }

    /// Stores word `i` of the block map in `i_block`.
    pub fn set_block_ptr(&mut self, i: usize, block: u32) {
        bytes::put_le32(&mut self.i_block, i.saturating_mul(4), block);
    }

    /// Device number of a character or block device (kernel `new_decode_dev` / `old_decode_dev`): major, minor.
    pub fn rdev(&self) -> (u32, u32) {
        let old = self.block_ptr(0);
        if old != 0 {
            return ((old >> 8) & 0xff, old & 0xff);
        }
        let new = self.block_ptr(1);
        ((new & 0xfff00) >> 8, (new & 0xff) | ((new >> 12) & 0xfff00))
    }

    /// Stores a device number the way the kernel does: the old form where it fits.
    pub fn set_rdev(&mut self, major: u32, minor: u32) {
        if major < 256 && minor < 256 {
            self.set_block_ptr(0, (major << 8) | minor);
            self.set_block_ptr(1, 0);
        } else {
            self.set_block_ptr(0, 0);
            let word = (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12);
            self.set_block_ptr(1, word);
        }
    }
}

/// The in-inode xattr area of the inode bytes `b`: what follows the `i_extra_isize` bytes.
pub fn xattr_area(b: &[u8]) -> &[u8] {
    let at = EXT4_GOOD_OLD_INODE.saturating_add(usize::from(bytes::le16(b, 0x80)));
    if b.len() <= EXT4_GOOD_OLD_INODE || bytes::le16(b, 0x80) == 0 {
        return &[];
    }
    b.get(at..).unwrap_or(&[])
}

/// The in-inode xattr area of the inode bytes `b`, to change it.
pub fn xattr_area_mut(b: &mut [u8]) -> &mut [u8] {
    let at = EXT4_GOOD_OLD_INODE.saturating_add(usize::from(bytes::le16(b, 0x80)));
    if b.len() <= EXT4_GOOD_OLD_INODE || bytes::le16(b, 0x80) == 0 {
        return &mut [];
    }
    b.get_mut(at..).unwrap_or_default()
}

fn fields_end(len: usize, extra: u16) -> usize {
    if len <= EXT4_GOOD_OLD_INODE {
        return len;
    }
    EXT4_GOOD_OLD_INODE
        .saturating_add(usize::from(extra))
        .min(len)
}

fn has_csum_hi(b: &[u8]) -> bool {
    b.len() > EXT4_GOOD_OLD_INODE && bytes::le16(b, 0x80) >= 4
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_reach_2446() {
        // Documented corners of the encoding (inodes.rst, "Inode Timestamps").
        for (secs, low, epoch) in [
            (-0x8000_0000i64, 0x8000_0000u32, 0u32),
            (-1, 0xffff_ffff, 0),
            (0, 0, 0),
            (0x7fff_ffff, 0x7fff_ffff, 0),
            (0x8000_0000, 0x8000_0000, 1),
            (0x1_0000_0000, 0, 1),
            (0x3_7fff_ffff, 0x7fff_ffff, 3),
        ] {
            let t = Timestamp {
                secs,
                nanos: 999_999_999,
            };
            assert_eq!(t.to_words(), (low, 999_999_999 << 2 | epoch));
            assert_eq!(Timestamp::from_words(low, 999_999_999 << 2 | epoch), t);
        }
        assert_eq!(Timestamp::from_nanos(-1).as_nanos(), -1);
    }

    #[test]
    fn device_numbers() {
        let mut i = RawInode::zeroed();
        for (major, minor) in [(1, 3), (255, 255), (259, 70000), (4095, 0xfffff)] {
            i.set_rdev(major, minor);
            assert_eq!(i.rdev(), (major, minor));
        }
    }

    #[test]
    fn only_covered_fields_are_written() {
        let mut b = [0xaau8; 256];
        bytes::put_le16(&mut b, 0x80, 4);
        let before = b;
        let i = RawInode::decode(&b).unwrap();
        assert_eq!((i.i_extra_isize, i.i_mtime_extra), (4, 0));
        i.encode(&mut b);
        assert_eq!(b, before);
        bytes::put_le16(&mut b, 0x80, 130);
        assert!(RawInode::decode(&b).is_err());
    }
}
