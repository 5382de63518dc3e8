//! The journal superblock: `struct journal_superblock_s` of `include/linux/jbd2.h`, `journal.rst`.
//!
//! 1,024 bytes in journal block 0 (after the ext4-style superblock on an external journal). Big-endian. With checksum
//! v2 or v3, `s_checksum` is crc32c (seed `!0`) of the 1,024 bytes with the field zero.

use crate::base::bytes;
use crate::base::checksum::crc32c;
use crate::format::cast;
use crate::format::layout::on_disk;
use crate::format::{Corrupt, CorruptKind};

/// Magic of every control block.
pub const JBD2_MAGIC_NUMBER: u32 = 0xC03B_3998;
/// Block type: descriptor.
pub const JBD2_DESCRIPTOR_BLOCK: u32 = 1;
/// Block type: commit.
pub const JBD2_COMMIT_BLOCK: u32 = 2;
/// Block type: superblock, version 1.
pub const JBD2_SUPERBLOCK_V1: u32 = 3;
/// Block type: superblock, version 2.
pub const JBD2_SUPERBLOCK_V2: u32 = 4;
/// Block type: revoke.
pub const JBD2_REVOKE_BLOCK: u32 = 5;

/// Compat: v1 commit checksums.
pub const JBD2_FEATURE_COMPAT_CHECKSUM: u32 = 0x1;
/// Incompat: revoke blocks exist.
pub const JBD2_FEATURE_INCOMPAT_REVOKE: u32 = 0x1;
/// Incompat: block numbers of 64 bits.
pub const JBD2_FEATURE_INCOMPAT_64BIT: u32 = 0x2;
/// Incompat: commit blocks may precede their transaction on the medium.
pub const JBD2_FEATURE_INCOMPAT_ASYNC_COMMIT: u32 = 0x4;
/// Incompat: checksums v2 (16-bit tag checksums).
pub const JBD2_FEATURE_INCOMPAT_CSUM_V2: u32 = 0x8;
/// Incompat: checksums v3 (16-byte tags).
pub const JBD2_FEATURE_INCOMPAT_CSUM_V3: u32 = 0x10;
/// Incompat: fast commit area at the end of the log.
pub const JBD2_FEATURE_INCOMPAT_FAST_COMMIT: u32 = 0x20;
/// Fast commit blocks if `s_num_fc_blks` is 0.
pub const JBD2_DEFAULT_FAST_COMMIT_BLOCKS: u32 = 256;
/// Fewest blocks of a journal.
pub const JBD2_MIN_JOURNAL_BLOCKS: u32 = 1024;

const CHECKSUM_AT: usize = 0xFC;
const SIZE: usize = 1024;

on_disk! {
    /// The journal superblock.
    pub struct JournalSuperblock {
        h_magic: u32 = be32(0x00), "0xc03b3998.";
        h_blocktype: u32 = be32(0x04), "3 (v1) or 4 (v2).";
        h_sequence: u32 = be32(0x08), "Unused in superblocks.";
        s_blocksize: u32 = be32(0x0C), "Bytes per journal block.";
        s_maxlen: u32 = be32(0x10), "Blocks in the journal.";
        s_first: u32 = be32(0x14), "First block of log information.";
        s_sequence: u32 = be32(0x18), "First transaction expected in the log.";
        s_start: u32 = be32(0x1C), "Block of the start of the log, 0 if empty.";
        s_errno: u32 = be32(0x20), "Error of an aborted journal (negative errno).";
        s_feature_compat: u32 = be32(0x24), "Compatible features.";
        s_feature_incompat: u32 = be32(0x28), "Incompatible features.";
        s_feature_ro_compat: u32 = be32(0x2C), "Read-only compatible features.";
        s_uuid: [u8; 16] = bytes_at(0x30), "UUID of the journal.";
        s_nr_users: u32 = be32(0x40), "File systems that use this journal.";
        s_dynsuper: u32 = be32(0x44), "Block of a dynamic superblock copy (unused).";
        s_max_transaction: u32 = be32(0x48), "Blocks per transaction (unused).";
        s_max_trans_data: u32 = be32(0x4C), "File blocks per transaction (unused).";
        s_checksum_type: u8 = byte(0x50), "4 crc32c.";
        s_num_fc_blks: u32 = be32(0x54), "Fast commit blocks at the end of the log.";
        s_head: u32 = be32(0x58), "Head of the log at the last clean unmount.";
        s_checksum: u32 = be32(0xFC), "crc32c of the superblock.";
    }
}

impl JournalSuperblock {
    /// What `mke2fs` writes: an empty log without features, for a file system with `uuid`.
    pub fn new(block_size: u32, blocks: u32, uuid: [u8; 16]) -> JournalSuperblock {
        JournalSuperblock {
            h_magic: JBD2_MAGIC_NUMBER,
            h_blocktype: JBD2_SUPERBLOCK_V2,
            s_blocksize: block_size,
            s_maxlen: blocks,
            s_first: 1,
            s_sequence: 1,
            s_nr_users: 1,
            s_uuid: uuid,
            ..JournalSuperblock::zeroed()
        }
    }

    /// Decodes and checks the journal superblock at the start of `b`.
    pub fn decode(b: &[u8]) -> Result<JournalSuperblock, Corrupt> {
        let jsb = JournalSuperblock::decode_unchecked(b)?;
        jsb.check()?;
        jsb.csum_verify(b)?;
        Ok(jsb)
    }

    /// Decodes anything with magic and a superblock's type: for dumps and fsck.
    pub fn decode_unchecked(b: &[u8]) -> Result<JournalSuperblock, Corrupt> {
        if b.len() < SIZE {
            let kind = CorruptKind::Truncated {
                structure: "journal superblock",
                need: cast::len32(SIZE),
                have: cast::len32(b.len()),
            };
            return Err(Corrupt::new(kind, 0));
        }
        let jsb = JournalSuperblock::read_fields(b);
        let found = jsb.h_magic;
        if found != JBD2_MAGIC_NUMBER {
            return Err(Corrupt::new(CorruptKind::Jbd2Magic { found }, 0));
        }
        let found = jsb.h_blocktype;
        if found != JBD2_SUPERBLOCK_V1 && found != JBD2_SUPERBLOCK_V2 {
            return Err(Corrupt::new(CorruptKind::Jbd2BlockType { found }, 4));
        }
        Ok(jsb)
    }

    fn check(&self) -> Result<(), Corrupt> {
        let bad = |kind, at| Err(Corrupt::new(kind, at));
        let found = self.s_blocksize;
        if !(1024..=65536).contains(&found) || !found.is_power_of_two() {
            return bad(CorruptKind::Jbd2BlockSize { found }, 0x0C);
        }
        let (maxlen, first) = (self.s_maxlen, self.s_first);
        if maxlen < 2 {
            return bad(CorruptKind::Jbd2Maxlen { maxlen }, 0x10);
        }
        if first == 0 || first >= maxlen {
            return bad(CorruptKind::Jbd2First { first, maxlen }, 0x14);
        }
        let blocks = self.fast_commit_blocks();
        if blocks >= maxlen.saturating_sub(first) {
            return bad(CorruptKind::Jbd2FastCommitBlocks { blocks, maxlen }, 0x54);
        }
        let start = self.s_start;
        if start != 0 && (start < first || start >= self.log_end()) {
            return bad(CorruptKind::Jbd2Start { start, maxlen }, 0x1C);
        }
        let v2 = self.has_incompat(JBD2_FEATURE_INCOMPAT_CSUM_V2);
        let v3 = self.has_incompat(JBD2_FEATURE_INCOMPAT_CSUM_V3);
        let v1 = self.has_compat(JBD2_FEATURE_COMPAT_CHECKSUM);
        if (v2 && v3) || (v1 && (v2 || v3)) {
            let incompat = self.s_feature_incompat;
            return bad(CorruptKind::Jbd2Features { incompat }, 0x28);
        }
        let kind = self.s_checksum_type;
        if (v2 || v3) && kind != 4 {
            return bad(CorruptKind::Jbd2ChecksumType { kind }, 0x50);
        }
        Ok(())
    }

    /// Writes all fields into `b` (at least 1,024 bytes), leaves other bytes, and stores the checksum if the journal
    /// has checksums v2 or v3.
    pub fn encode(&self, b: &mut [u8]) {
        self.write_fields(b);
        if self.csum_v2or3() {
            let csum = JournalSuperblock::csum(b);
            bytes::put_be32(b, CHECKSUM_AT, csum);
        }
    }

    /// Checksum of the superblock bytes `b`.
    pub fn csum(b: &[u8]) -> u32 {
        let crc = crc32c(!0, b.get(..CHECKSUM_AT).unwrap_or(b));
        let rest = b.get(CHECKSUM_AT.saturating_add(4)..SIZE).unwrap_or(&[]);
        crc32c(crc32c(crc, &[0; 4]), rest)
    }

    fn csum_verify(&self, b: &[u8]) -> Result<(), Corrupt> {
        let (stored, computed) = (self.s_checksum, JournalSuperblock::csum(b));
        if !self.csum_v2or3() || stored == computed {
            return Ok(());
        }
        let kind = CorruptKind::Jbd2SuperChecksum { stored, computed };
        Err(Corrupt::new(kind, cast::len32(CHECKSUM_AT)))
    }

    /// True if the v2 superblock has the compat bit.
    pub fn has_compat(&self, mask: u32) -> bool {
        self.h_blocktype == JBD2_SUPERBLOCK_V2 && self.s_feature_compat & mask != 0
    }

    /// True if the v2 superblock has the incompat bit.
    pub fn has_incompat(&self, mask: u32) -> bool {
        self.h_blocktype == JBD2_SUPERBLOCK_V2 && self.s_feature_incompat & mask != 0
    }

    /// True with checksums v2 or v3 (kernel `jbd2_journal_has_csum_v2or3`).
    pub fn csum_v2or3(&self) -> bool {
        self.has_incompat(JBD2_FEATURE_INCOMPAT_CSUM_V2 | JBD2_FEATURE_INCOMPAT_CSUM_V3)
    }

    /// Seed of descriptor, revoke, commit and tag checksums (kernel `j_csum_seed`).
    pub fn csum_seed(&self) -> u32 {
        crc32c(!0, &self.s_uuid)
    }

    /// Fast commit blocks at the end of the log, 0 without the feature.
    pub fn fast_commit_blocks(&self) -> u32 {
        if !self.has_incompat(JBD2_FEATURE_INCOMPAT_FAST_COMMIT) {
            return 0;
        }
        match self.s_num_fc_blks {
            0 => JBD2_DEFAULT_FAST_COMMIT_BLOCKS,
            n => n,
        }
    }

    /// First journal block after the circular log (kernel `j_last`).
    pub fn log_end(&self) -> u32 {
        self.s_maxlen.saturating_sub(self.fast_commit_blocks())
    }

    /// How tags of descriptor blocks look.
    pub fn tag_format(&self) -> super::TagFormat {
        super::TagFormat {
            csum_v3: self.has_incompat(JBD2_FEATURE_INCOMPAT_CSUM_V3),
            csum_v2: self.has_incompat(JBD2_FEATURE_INCOMPAT_CSUM_V2),
            bit64: self.has_incompat(JBD2_FEATURE_INCOMPAT_64BIT),
        }
    }
}
