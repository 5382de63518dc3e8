//! Orphan file blocks: `struct ext4_orphan_block_tail` of `fs/ext4/ext4.h`, documented in `orphan.rst`.
//!
//! A block of le32 inode numbers (0: free), then 8 bytes: magic and crc32c(seed; inode and generation of the orphan
//! file; le64 block number; the entries).

use super::checksum::CsumCtx;
use crate::base::bytes;
use crate::base::checksum::crc32c;
use crate::format::cast;
use crate::format::{Corrupt, CorruptKind};

/// `ob_magic`.
pub const EXT4_ORPHAN_BLOCK_MAGIC: u32 = 0x0B10_CA04;
const TAIL: usize = 8;

/// Inode numbers that fit in one block.
pub fn inodes_per_orphan_block(block_size: u32) -> u32 {
    block_size.saturating_sub(8) / 4
}

fn tail_at(b: &[u8]) -> usize {
    b.len().saturating_sub(TAIL)
}

/// Writes the magic of an otherwise empty block.
pub fn init(b: &mut [u8]) {
    let at = tail_at(b);
    bytes::put_le32(b, at, EXT4_ORPHAN_BLOCK_MAGIC);
}

/// Checks magic and checksum; `block` is the block's physical number.
pub fn verify(
    ctx: &CsumCtx,
    ino: u32,
    generation: u32,
    block: u64,
    b: &[u8],
) -> Result<(), Corrupt> {
    let at = tail_at(b);
    let found = bytes::le32(b, at);
    if found != EXT4_ORPHAN_BLOCK_MAGIC {
        let kind = CorruptKind::OrphanMagic { found };
        return Err(Corrupt::new(kind, cast::len32(at)).at(block));
    }
    let stored = bytes::le32(b, at.saturating_add(4));
    let computed = csum(ctx, ino, generation, block, b);
    if !ctx.metadata_csum || stored == computed {
        return Ok(());
    }
    let kind = CorruptKind::OrphanChecksum { stored, computed };
    Err(Corrupt::new(kind, cast::len32(at.saturating_add(4))).at(block))
}

/// Checksum of an orphan file block at physical block `block`.
pub fn csum(ctx: &CsumCtx, ino: u32, generation: u32, block: u64, b: &[u8]) -> u32 {
    let crc = crc32c(ctx.inode_seed(ino, generation), &block.to_le_bytes());
    crc32c(crc, b.get(..tail_at(b)).unwrap_or(b))
}

/// Stores the checksum, if the file system has them.
pub fn csum_set(ctx: &CsumCtx, ino: u32, generation: u32, block: u64, b: &mut [u8]) {
    if ctx.metadata_csum {
        let csum = csum(ctx, ino, generation, block, b);
        let at = tail_at(b).saturating_add(4);
        bytes::put_le32(b, at, csum);
    }
}

/// Inode numbers in use, with their slots.
pub fn entries(b: &[u8]) -> impl Iterator<Item = (u32, u32)> + '_ {
    let n = inodes_per_orphan_block(cast::len32(b.len()));
    (0..n)
        .map(|i| (i, bytes::le32(b, cast::size(i).saturating_mul(4))))
        .filter(|(_, ino)| *ino != 0)
}
