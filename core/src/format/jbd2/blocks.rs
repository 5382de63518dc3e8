//! Descriptor, commit and revoke blocks: `journal_header_t`, `journal_block_tag3_t`, `journal_block_tag_t`,
//! `struct commit_header`, `jbd2_journal_revoke_header_t` of `include/linux/jbd2.h`, `journal.rst`.
//!
//! Big-endian. With checksums v2/v3, descriptor and revoke blocks end in a 4-byte crc32c(seed; block with it zero),
//! commit blocks hold one in `h_chksum[0]`, and each tag holds crc32c(crc32c(seed; sequence); block as logged).

use super::superblock::{
    JBD2_COMMIT_BLOCK, JBD2_DESCRIPTOR_BLOCK, JBD2_MAGIC_NUMBER, JBD2_REVOKE_BLOCK,
};
use crate::base::bytes;
use crate::base::checksum::crc32c;
use crate::format::cast;
use crate::format::{Corrupt, CorruptKind};

/// Bytes of `journal_header_t`.
pub const JBD2_HEADER_SIZE: usize = 12;
/// Tag flag: the block began with the magic, its first word is stored as 0.
pub const JBD2_FLAG_ESCAPE: u32 = 1;
/// Tag flag: no UUID follows, it is that of the tag before.
pub const JBD2_FLAG_SAME_UUID: u32 = 2;
/// Tag flag: block deleted by this transaction (unused).
pub const JBD2_FLAG_DELETED: u32 = 4;
/// Tag flag: last tag of the descriptor.
pub const JBD2_FLAG_LAST_TAG: u32 = 8;

const UUID_LEN: usize = 16;
const TAIL_LEN: usize = 4;
const COMMIT_CHKSUM_AT: usize = 0x10;
/// `h_chksum_type` of a v1 commit checksum.
pub const JBD2_CRC32_CHKSUM: u8 = 1;

/// Header of every control block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalHeader {
    /// `JBD2_*_BLOCK`.
    pub h_blocktype: u32,
    /// Transaction.
    pub h_sequence: u32,
}

impl JournalHeader {
    /// The header of `b`, or `None` if it has no magic (a logged block, or old contents).
    pub fn decode(b: &[u8]) -> Option<JournalHeader> {
        (bytes::be32(b, 0) == JBD2_MAGIC_NUMBER).then(|| JournalHeader {
            h_blocktype: bytes::be32(b, 4),
            h_sequence: bytes::be32(b, 8),
        })
    }

    /// Writes magic and header.
    pub fn encode(&self, b: &mut [u8]) {
        bytes::put_be32(b, 0, JBD2_MAGIC_NUMBER);
        bytes::put_be32(b, 4, self.h_blocktype);
        bytes::put_be32(b, 8, self.h_sequence);
    }
}

/// How tags of descriptor blocks look; from the journal's features.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TagFormat {
    /// 16-byte tags with a 32-bit checksum.
    pub csum_v3: bool,
    /// 8- or 12-byte tags with a 16-bit checksum.
    pub csum_v2: bool,
    /// Block numbers of 64 bits.
    pub bit64: bool,
}

impl TagFormat {
    /// Bytes of one tag without UUID (kernel `journal_tag_bytes`).
    pub fn tag_bytes(self) -> usize {
        match (self.csum_v3, self.csum_v2, self.bit64) {
            (true, _, _) => 16,
            // With v2 the kernel counts 2 bytes more than it uses: the trap that v3 exists for.
            (false, true, true) => 14,
            (false, true, false) => 10,
            (false, false, true) => 12,
            (false, false, false) => 8,
        }
    }

    /// True if descriptor and revoke blocks end in a checksum.
    pub fn has_tail(self) -> bool {
        self.csum_v2 || self.csum_v3
    }

    /// Bytes at the end of descriptor and revoke blocks that hold no tags.
    pub fn tail_bytes(self) -> usize {
        if self.has_tail() {
            TAIL_LEN
        } else {
            0
        }
    }

    /// Tags the kernel puts in one descriptor block: it closes the block when the space left is below
    /// tag + 16 + tail, so the last slot stays empty.
    pub fn tags_per_descriptor(self, block_size: u32) -> u32 {
        let tag = self.tag_bytes();
        let mut left = cast::size(block_size)
            .saturating_sub(JBD2_HEADER_SIZE)
            .saturating_sub(tag)
            .saturating_sub(UUID_LEN);
        let reserve = tag
            .saturating_add(UUID_LEN)
            .saturating_add(self.tail_bytes());
        let mut n = 1u32;
        while left >= reserve {
            left = left.saturating_sub(tag);
            n = n.saturating_add(1);
        }
        n
    }

    /// Bytes of one block number in a revoke block.
    pub fn revoke_record_bytes(self) -> usize {
        if self.bit64 {
            8
        } else {
            4
        }
    }

    /// Revoke records that fit in one block (kernel `j_revoke_records_per_block`).
    pub fn revokes_per_block(self, block_size: u32) -> u32 {
        let room = cast::size(block_size)
            .saturating_sub(16)
            .saturating_sub(self.tail_bytes());
        cast::len32(room.checked_div(self.revoke_record_bytes()).unwrap_or(0))
    }
}

/// One tag of a descriptor block: one logged block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockTag {
    /// Home block.
    pub t_blocknr: u64,
    /// `JBD2_FLAG_*`.
    pub t_flags: u32,
    /// Checksum of the block as logged (16 bits with v2), 0 without.
    pub t_checksum: u32,
}

impl BlockTag {
    fn decode(b: &[u8], at: usize, f: TagFormat) -> BlockTag {
        let field = |o: usize| at.saturating_add(o);
        let lo = bytes::be32(b, at);
        if f.csum_v3 {
            let hi = if f.bit64 { bytes::be32(b, field(8)) } else { 0 };
            return BlockTag {
                t_blocknr: cast::join32(hi, lo),
                t_flags: bytes::be32(b, field(4)),
                t_checksum: bytes::be32(b, field(12)),
            };
        }
        let hi = if f.bit64 { bytes::be32(b, field(8)) } else { 0 };
        BlockTag {
            t_blocknr: cast::join32(hi, lo),
            t_flags: u32::from(bytes::be16(b, field(6))),
            t_checksum: u32::from(bytes::be16(b, field(4))),
        }
    }

    fn encode(&self, b: &mut [u8], at: usize, f: TagFormat) {
        let field = |o: usize| at.saturating_add(o);
        bytes::put_be32(b, at, cast::lo32(self.t_blocknr));
        if f.csum_v3 {
            bytes::put_be32(b, field(4), self.t_flags);
            bytes::put_be32(b, field(8), cast::hi32(self.t_blocknr));
            bytes::put_be32(b, field(12), self.t_checksum);
            return;
        }
        bytes::put_be16(b, field(4), cast::lo16(self.t_checksum));
        bytes::put_be16(b, field(6), cast::lo16(self.t_flags));
        if f.bit64 {
            bytes::put_be32(b, field(8), cast::hi32(self.t_blocknr));
        }
    }
}

/// Tags of a descriptor block, in order. Ends at the last tag or where no further tag fits.
#[derive(Clone, Debug)]
pub struct BlockTags<'a> {
    block: &'a [u8],
    at: usize,
    format: TagFormat,
    done: bool,
}

impl<'a> BlockTags<'a> {
    /// Tags of `block`, which is a whole descriptor block.
    pub fn new(block: &'a [u8], format: TagFormat) -> BlockTags<'a> {
        BlockTags {
            block,
            at: JBD2_HEADER_SIZE,
            format,
            done: false,
        }
    }
}

impl Iterator for BlockTags<'_> {
    type Item = BlockTag;

    fn next(&mut self) -> Option<BlockTag> {
        let size = self.format.tag_bytes();
        let end = self.block.len().saturating_sub(self.format.tail_bytes());
        let next = self.at.saturating_add(size);
        if self.done || next > end {
            return None;
        }
        let tag = BlockTag::decode(self.block, self.at, self.format);
        self.at = next;
        if tag.t_flags & JBD2_FLAG_SAME_UUID == 0 {
            self.at = self.at.saturating_add(UUID_LEN);
        }
        self.done = tag.t_flags & JBD2_FLAG_LAST_TAG != 0;
        Some(tag)
    }
}

/// Builds a descriptor block.
#[derive(Debug)]
pub struct DescriptorWriter {
    block: Vec<u8>,
    format: TagFormat,
    at: usize,
    last_tag_at: Option<usize>,
}

impl DescriptorWriter {
    /// An empty descriptor block of transaction `sequence`.
    pub fn new(block_size: u32, format: TagFormat, sequence: u32) -> DescriptorWriter {
        let mut block = vec![0; cast::size(block_size)];
        let header = JournalHeader {
            h_blocktype: JBD2_DESCRIPTOR_BLOCK,
            h_sequence: sequence,
        };
        header.encode(&mut block);
        DescriptorWriter {
            block,
            format,
            at: JBD2_HEADER_SIZE,
            last_tag_at: None,
        }
    }

    /// True if the kernel would close the block before another tag.
    pub fn is_full(&self) -> bool {
        let reserve = self
            .format
            .tag_bytes()
            .saturating_add(UUID_LEN)
            .saturating_add(self.format.tail_bytes());
        self.last_tag_at.is_some() && self.block.len().saturating_sub(self.at) < reserve
    }

    /// Adds a tag; `SAME_UUID` is set and the UUID written as needed.
    pub fn push(&mut self, tag: BlockTag, uuid: &[u8; 16]) {
        let first = self.last_tag_at.is_none();
        let mut tag = tag;
        tag.t_flags &= !(JBD2_FLAG_SAME_UUID | JBD2_FLAG_LAST_TAG);
        if !first {
            tag.t_flags |= JBD2_FLAG_SAME_UUID;
        }
        tag.encode(&mut self.block, self.at, self.format);
        self.last_tag_at = Some(self.at);
        self.at = self.at.saturating_add(self.format.tag_bytes());
        if first {
            bytes::put_slice(&mut self.block, self.at, uuid);
            self.at = self.at.saturating_add(UUID_LEN);
        }
    }

    /// Number of the bytes used so far.
    pub fn used(&self) -> usize {
        self.at
    }

    /// Marks the last tag, stores the tail checksum and gives the block.
    pub fn finish(mut self, seed: u32) -> Vec<u8> {
        if let Some(at) = self.last_tag_at {
            let mut tag = BlockTag::decode(&self.block, at, self.format);
            tag.t_flags |= JBD2_FLAG_LAST_TAG;
            tag.encode(&mut self.block, at, self.format);
        }
        block_csum_set(self.format, seed, &mut self.block);
        self.block
    }
}

/// Checksum of a descriptor or revoke block, whose last 4 bytes count as zero.
pub fn block_csum(seed: u32, b: &[u8]) -> u32 {
    let end = b.len().saturating_sub(TAIL_LEN);
    crc32c(crc32c(seed, b.get(..end).unwrap_or(b)), &[0; TAIL_LEN])
}

/// Stores the tail checksum of a descriptor or revoke block (kernel `jbd2_descriptor_block_csum_set`).
pub fn block_csum_set(format: TagFormat, seed: u32, b: &mut [u8]) {
    if format.has_tail() {
        let csum = block_csum(seed, b);
        let at = b.len().saturating_sub(TAIL_LEN);
        bytes::put_be32(b, at, csum);
    }
}

/// Checks the tail checksum of a descriptor or revoke block.
pub fn block_csum_verify(format: TagFormat, seed: u32, b: &[u8]) -> Result<(), Corrupt> {
    let at = b.len().saturating_sub(TAIL_LEN);
    let (stored, computed) = (bytes::be32(b, at), block_csum(seed, b));
    if !format.has_tail() || stored == computed {
        return Ok(());
    }
    let kind = CorruptKind::Jbd2BlockChecksum { stored, computed };
    Err(Corrupt::new(kind, cast::len32(at)))
}

/// Checksum of a logged block for its tag: `b` as written to the log, that is after escaping.
pub fn tag_csum(format: TagFormat, seed: u32, sequence: u32, b: &[u8]) -> u32 {
    let csum = crc32c(crc32c(seed, &sequence.to_be_bytes()), b);
    match (format.csum_v3, format.csum_v2) {
        (true, _) => csum,
        (false, true) => csum & 0xffff,
        (false, false) => 0,
    }
}

/// True if the logged block `b` must be escaped: it begins with the magic.
pub fn needs_escape(b: &[u8]) -> bool {
    bytes::be32(b, 0) == JBD2_MAGIC_NUMBER
}

/// A commit block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CommitBlock {
    /// Transaction.
    pub h_sequence: u32,
    /// 0, or 1 (crc32) with v1 checksums.
    pub h_chksum_type: u8,
    /// 0, or 4 with v1 checksums.
    pub h_chksum_size: u8,
    /// Checksum words; only the first is used.
    pub h_chksum: [u32; 8],
    /// Seconds of the commit's time.
    pub h_commit_sec: u64,
    /// Nanoseconds of the commit's time.
    pub h_commit_nsec: u32,
}

impl CommitBlock {
    /// Decodes a block whose header says commit; `None` for any other block.
    pub fn decode(b: &[u8]) -> Option<CommitBlock> {
        let header = JournalHeader::decode(b)?;
        (header.h_blocktype == JBD2_COMMIT_BLOCK).then(|| CommitBlock {
            h_sequence: header.h_sequence,
            h_chksum_type: bytes::u8_at(b, 0x0C),
            h_chksum_size: bytes::u8_at(b, 0x0D),
            h_chksum: std::array::from_fn(|i| {
                bytes::be32(b, COMMIT_CHKSUM_AT.saturating_add(i.saturating_mul(4)))
            }),
            h_commit_sec: bytes::be64(b, 0x30),
            h_commit_nsec: bytes::be32(b, 0x38),
        })
    }

    /// Writes all fields; with checksums v2/v3 the caller then calls [`CommitBlock::csum_set`].
    pub fn encode(&self, b: &mut [u8]) {
        JournalHeader {
            h_blocktype: JBD2_COMMIT_BLOCK,
            h_sequence: self.h_sequence,
        }
        .encode(b);
        bytes::put_u8(b, 0x0C, self.h_chksum_type);
        bytes::put_u8(b, 0x0D, self.h_chksum_size);
        for (i, w) in self.h_chksum.into_iter().enumerate() {
            bytes::put_be32(b, COMMIT_CHKSUM_AT.saturating_add(i.saturating_mul(4)), w);
        }
        bytes::put_be64(b, 0x30, self.h_commit_sec);
        bytes::put_be32(b, 0x38, self.h_commit_nsec);
    }

    /// v2/v3 checksum of the commit block `b`, its first checksum word counted as zero.
    pub fn csum(seed: u32, b: &[u8]) -> u32 {
        let crc = crc32c(seed, b.get(..COMMIT_CHKSUM_AT).unwrap_or(b));
        let rest = b.get(COMMIT_CHKSUM_AT.saturating_add(4)..).unwrap_or(&[]);
        crc32c(crc32c(crc, &[0; 4]), rest)
    }

    /// Stores the v2/v3 checksum.
    pub fn csum_set(format: TagFormat, seed: u32, b: &mut [u8]) {
        if format.has_tail() {
            let csum = CommitBlock::csum(seed, b);
            bytes::put_be32(b, COMMIT_CHKSUM_AT, csum);
        }
    }

    /// Checks the v2/v3 checksum.
    pub fn csum_verify(format: TagFormat, seed: u32, b: &[u8]) -> Result<(), Corrupt> {
        let (stored, computed) = (bytes::be32(b, COMMIT_CHKSUM_AT), CommitBlock::csum(seed, b));
        if !format.has_tail() || stored == computed {
            return Ok(());
        }
        let kind = CorruptKind::Jbd2CommitChecksum { stored, computed };
        Err(Corrupt::new(kind, cast::len32(COMMIT_CHKSUM_AT)))
    }
}

/// Block numbers of a revoke block (kernel `scan_revoke_records`).
pub fn decode_revokes(b: &[u8], format: TagFormat) -> Result<Vec<u64>, Corrupt> {
    let count = bytes::be32(b, JBD2_HEADER_SIZE);
    let room = cast::len32(b.len().saturating_sub(format.tail_bytes()));
    if count > room {
        return Err(Corrupt::new(CorruptKind::Jbd2RevokeCount { count }, 12));
    }
    let size = format.revoke_record_bytes();
    let records = b.get(16..cast::size(count)).unwrap_or(&[]);
    Ok(records
        .chunks_exact(size)
        .map(|r| match size {
            8 => bytes::be64(r, 0),
            _ => u64::from(bytes::be32(r, 0)),
        })
        .collect())
}

/// A revoke block of transaction `sequence` with `blocks` (at most [`TagFormat::revokes_per_block`]), checksum included.
pub fn encode_revokes(
    block_size: u32,
    format: TagFormat,
    seed: u32,
    sequence: u32,
    blocks: &[u64],
) -> Vec<u8> {
    let mut b = vec![0; cast::size(block_size)];
    JournalHeader {
        h_blocktype: JBD2_REVOKE_BLOCK,
        h_sequence: sequence,
    }
    .encode(&mut b);
    let size = format.revoke_record_bytes();
    let mut at = 16usize;
    let most = cast::size(format.revokes_per_block(block_size));
    for &n in blocks.iter().take(most) {
        if size == 8 {
            bytes::put_be64(&mut b, at, n);
        } else {
            bytes::put_be32(&mut b, at, cast::lo32(n));
        }
        at = at.saturating_add(size);
    }
    bytes::put_be32(&mut b, JBD2_HEADER_SIZE, cast::len32(at));
    block_csum_set(format, seed, &mut b);
    b
}

#[cfg(test)]
mod tests {
    use super::*;

    const V3: TagFormat = TagFormat {
        csum_v3: true,
        csum_v2: false,
        bit64: true,
    };
    const PLAIN: TagFormat = TagFormat {
        csum_v3: false,
        csum_v2: false,
        bit64: false,
    };
    const PLAIN64: TagFormat = TagFormat {
        csum_v3: false,
        csum_v2: false,
        bit64: true,
    };

    #[test]
    fn tags_per_descriptor_are_the_kernels() {
        assert_eq!(V3.tags_per_descriptor(4096), 253);
        assert_eq!(PLAIN64.tags_per_descriptor(4096), 337);
        assert_eq!(PLAIN.tags_per_descriptor(4096), 506);
        assert_eq!(V3.revokes_per_block(4096), 509);
    }

    #[test]
    fn descriptor_round_trip() {
        for f in [
            V3,
            PLAIN,
            PLAIN64,
            TagFormat {
                csum_v3: false,
                csum_v2: true,
                bit64: true,
            },
        ] {
            let mut w = DescriptorWriter::new(4096, f, 9);
            let mut want = Vec::new();
            while !w.is_full() {
                let n = want.len() as u64;
                let hi = if f.bit64 { n << 33 } else { 0 };
                let tag = BlockTag {
                    t_blocknr: hi | (n + 100),
                    t_flags: JBD2_FLAG_ESCAPE * (n as u32 & 1),
                    t_checksum: if f.has_tail() { n as u32 } else { 0 },
                };
                w.push(tag, &[7; 16]);
                want.push(tag);
            }
            assert_eq!(want.len() as u32, f.tags_per_descriptor(4096));
            let block = w.finish(123);
            assert!(block_csum_verify(f, 123, &block).is_ok());
            let got: Vec<_> = BlockTags::new(&block, f)
                .map(|t| BlockTag {
                    t_flags: t.t_flags & JBD2_FLAG_ESCAPE,
                    ..t
                })
                .collect();
            assert_eq!(got, want);
        }
    }

    #[test]
    fn commit_and_revoke_round_trip() {
        let c = CommitBlock {
            h_sequence: 5,
            h_chksum_type: 0,
            h_chksum_size: 0,
            h_chksum: [0; 8],
            h_commit_sec: 1_700_000_000,
            h_commit_nsec: 17,
        };
        let mut b = vec![0; 1024];
        c.encode(&mut b);
        CommitBlock::csum_set(V3, 77, &mut b);
        assert!(CommitBlock::csum_verify(V3, 77, &b).is_ok());
        assert!(CommitBlock::csum_verify(V3, 78, &b).is_err());
        let got = CommitBlock::decode(&b).unwrap();
        assert_eq!(
            CommitBlock {
                h_chksum: [0; 8],
                ..got
            },
            c
        );

        let r = encode_revokes(1024, V3, 77, 6, &[1, 2, 1 << 40]);
        assert_eq!(decode_revokes(&r, V3).unwrap(), [1, 2, 1 << 40]);
        assert!(block_csum_verify(V3, 77, &r).is_ok());
        bytes::put_be32(&mut b, 12, 2000);
        assert!(decode_revokes(&b, V3).is_err());
    }
}
