//! Group descriptors and bitmap checksums: `struct ext4_group_desc` of `fs/ext4/ext4.h`, `group_descr.rst`.
//!
//! 32 bytes, or `s_desc_size` (64) with the 64bit feature. Little-endian. `bg_checksum` is the low half of
//! crc32c(seed; group number; descriptor with the field zero) with `metadata_csum`, or crc16 over UUID, group number
//! and descriptor without the field with `uninit_bg`.

use super::checksum::CsumCtx;
use super::superblock::{SuperBlock, EXT4_MIN_DESC_SIZE_64BIT};
use crate::base::bytes;
use crate::base::checksum::{crc16, crc32c};
use crate::format::cast;
use crate::format::layout::on_disk;
use crate::format::{Corrupt, CorruptKind};

/// `bg_flags`: inode bitmap and table never initialised.
pub const EXT4_BG_INODE_UNINIT: u16 = 0x1;
/// `bg_flags`: block bitmap never initialised.
pub const EXT4_BG_BLOCK_UNINIT: u16 = 0x2;
/// `bg_flags`: the inode table is zeroed.
pub const EXT4_BG_INODE_ZEROED: u16 = 0x4;

const CHECKSUM_AT: usize = 0x1E;

on_disk! {
    /// A group descriptor with halves joined.
    pub struct GroupDesc {
        bg_block_bitmap: u64 = lo32hi32(0x00, 0x20), "Block of the block bitmap.";
        bg_inode_bitmap: u64 = lo32hi32(0x04, 0x24), "Block of the inode bitmap.";
        bg_inode_table: u64 = lo32hi32(0x08, 0x28), "First block of the inode table.";
        bg_free_blocks_count: u32 = lo16hi16(0x0C, 0x2C), "Free clusters.";
        bg_free_inodes_count: u32 = lo16hi16(0x0E, 0x2E), "Free inodes.";
        bg_used_dirs_count: u32 = lo16hi16(0x10, 0x30), "Directories.";
        bg_flags: u16 = le16(0x12), "1 INODE_UNINIT, 2 BLOCK_UNINIT, 4 INODE_ZEROED.";
        bg_exclude_bitmap: u64 = lo32hi32(0x14, 0x34), "Snapshot exclusion bitmap (unused).";
        bg_block_bitmap_csum: u32 = lo16hi16(0x18, 0x38), "crc32c of the block bitmap.";
        bg_inode_bitmap_csum: u32 = lo16hi16(0x1A, 0x3A), "crc32c of the inode bitmap.";
        bg_itable_unused: u32 = lo16hi16(0x1C, 0x32), "Never used inodes at the end of the table.";
        bg_checksum: u16 = le16(0x1E), "Checksum of this descriptor.";
    }
}

impl GroupDesc {
    /// Decodes a descriptor of `desc_size` bytes at the start of `b`; high halves are 0 below 64 bytes.
    pub fn decode(b: &[u8], desc_size: u16) -> GroupDesc {
        GroupDesc::read_fields(b.get(..usize::from(desc_size)).unwrap_or(b))
    }

    /// Writes all fields into the first `desc_size` bytes of `b`; other bytes stay.
    pub fn encode(&self, b: &mut [u8], desc_size: u16) {
        let len = usize::from(desc_size).min(b.len());
        if let Some(b) = b.get_mut(..len) {
            self.write_fields(b);
        }
    }

    /// As [`GroupDesc::encode`], with the checksum that `ctx` asks for.
    pub fn encode_with_csum(&self, ctx: &CsumCtx, group: u32, b: &mut [u8], desc_size: u16) {
        self.encode(b, desc_size);
        GroupDesc::csum_set(ctx, group, b, desc_size);
    }

    /// Checksum of the descriptor bytes `b` of `group`, 0 if the file system has none.
    pub fn csum(ctx: &CsumCtx, group: u32, b: &[u8], desc_size: u16) -> u16 {
        let b = b.get(..usize::from(desc_size)).unwrap_or(b);
        let head = b.get(..CHECKSUM_AT).unwrap_or(b);
        let tail = b.get(0x20..).unwrap_or(&[]);
        if ctx.metadata_csum {
            let crc = crc32c(ctx.seed, &group.to_le_bytes());
            let crc = crc32c(crc32c(crc, head), &[0, 0]);
            cast::lo16(crc32c(crc, tail))
        } else if ctx.gdt_csum {
            let crc = crc16(crc16(!0, &ctx.uuid.0), &group.to_le_bytes());
            crc16(crc16(crc, head), tail)
        } else {
            0
        }
    }

    /// Stores the checksum in the descriptor bytes `b`, if the file system has one.
    pub fn csum_set(ctx: &CsumCtx, group: u32, b: &mut [u8], desc_size: u16) {
        if ctx.group_descs() {
            let csum = GroupDesc::csum(ctx, group, b, desc_size);
            bytes::put_le16(b, CHECKSUM_AT, csum);
        }
    }

    /// Checks the stored checksum of the descriptor bytes `b`.
    pub fn csum_verify(ctx: &CsumCtx, group: u32, b: &[u8], desc_size: u16) -> Result<(), Corrupt> {
        if !ctx.group_descs() {
            return Ok(());
        }
        let stored = bytes::le16(b, CHECKSUM_AT);
        let computed = GroupDesc::csum(ctx, group, b, desc_size);
        if stored == computed {
            return Ok(());
        }
        let kind = CorruptKind::GroupChecksum {
            group,
            stored,
            computed,
        };
        Err(Corrupt::new(kind, cast::len32(CHECKSUM_AT)))
    }

    /// Checks that bitmaps and table lie in the file system, and inside the group itself without flex_bg
    /// (kernel `ext4_check_descriptors`).
    pub fn check(&self, sb: &SuperBlock, group: u32) -> Result<(), Corrupt> {
        let (first, last) = if sb.has(super::features::FLEX_BG) {
            (
                u64::from(sb.s_first_data_block),
                sb.s_blocks_count.saturating_sub(1),
            )
        } else {
            let first = sb.group_first_block(group);
            let len = u64::from(sb.blocks_in_group(group));
            (first, first.saturating_add(len).saturating_sub(1))
        };
        let outside = |block: u64, len: u32| {
            let end = block.saturating_add(u64::from(len)).saturating_sub(1);
            block < first || end > last || block <= u64::from(sb.s_first_data_block)
        };
        let block = self.bg_block_bitmap;
        if outside(block, 1) {
            let kind = CorruptKind::GroupBlockBitmap { group, block };
            return Err(Corrupt::new(kind, 0x00));
        }
        let block = self.bg_inode_bitmap;
        if outside(block, 1) {
            let kind = CorruptKind::GroupInodeBitmap { group, block };
            return Err(Corrupt::new(kind, 0x04));
        }
        let block = self.bg_inode_table;
        if outside(block, sb.itable_blocks()) {
            let kind = CorruptKind::GroupInodeTable { group, block };
            return Err(Corrupt::new(kind, 0x08));
        }
        Ok(())
    }

    /// True if `bg_flags` has `flag`.
    pub fn has_flag(&self, flag: u16) -> bool {
        self.bg_flags & flag != 0
    }
}

fn bitmap_csum(ctx: &CsumCtx, map: &[u8], bits: u32, desc_size: u16) -> u32 {
    let len = cast::size(bits / 8).min(map.len());
    let csum = crc32c(ctx.seed, map.get(..len).unwrap_or(map));
    if desc_size >= EXT4_MIN_DESC_SIZE_64BIT {
        csum
    } else {
        csum & 0xffff
    }
}

/// Checksum of a block bitmap, over `s_clusters_per_group` bits; 16 bits wide with 32-byte descriptors.
pub fn block_bitmap_csum(ctx: &CsumCtx, sb: &SuperBlock, map: &[u8]) -> u32 {
    bitmap_csum(ctx, map, sb.s_clusters_per_group, sb.desc_size())
}

/// Checksum of an inode bitmap, over `s_inodes_per_group` bits; 16 bits wide with 32-byte descriptors.
pub fn inode_bitmap_csum(ctx: &CsumCtx, sb: &SuperBlock, map: &[u8]) -> u32 {
    bitmap_csum(ctx, map, sb.s_inodes_per_group, sb.desc_size())
}

/// Checks a block bitmap against its descriptor.
pub fn block_bitmap_csum_verify(
    ctx: &CsumCtx,
    sb: &SuperBlock,
    group: u32,
    desc: &GroupDesc,
    map: &[u8],
) -> Result<(), Corrupt> {
    let (stored, computed) = (desc.bg_block_bitmap_csum, block_bitmap_csum(ctx, sb, map));
    if !ctx.metadata_csum || stored == computed {
        return Ok(());
    }
    let kind = CorruptKind::BlockBitmapChecksum {
        group,
        stored,
        computed,
    };
    Err(Corrupt::new(kind, 0).at(desc.bg_block_bitmap))
}

/// Checks an inode bitmap against its descriptor.
pub fn inode_bitmap_csum_verify(
    ctx: &CsumCtx,
    sb: &SuperBlock,
    group: u32,
    desc: &GroupDesc,
    map: &[u8],
) -> Result<(), Corrupt> {
    let (stored, computed) = (desc.bg_inode_bitmap_csum, inode_bitmap_csum(ctx, sb, map));
    if !ctx.metadata_csum || stored == computed {
        return Ok(());
    }
    let kind = CorruptKind::InodeBitmapChecksum {
        group,
        stored,
        computed,
    };
    Err(Corrupt::new(kind, 0).at(desc.bg_inode_bitmap))
}
