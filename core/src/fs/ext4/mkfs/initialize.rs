//! Superblock and group descriptors (libext2fs `ext2fs_initialize`): group and inode counts, reserved descriptors,
//! and the blocks that superblocks and descriptors take.

use super::options::MkfsError;
use super::params::Params;
use super::space::Space;
use super::Mkfs;
use crate::format::ext4::features;
use crate::format::ext4::group_desc::{EXT4_BG_BLOCK_UNINIT, EXT4_BG_INODE_UNINIT};
use crate::format::ext4::superblock::{
    EXT2_FLAGS_SIGNED_HASH, EXT2_FLAGS_TEST_FILESYS, EXT4_SUPER_MAGIC, EXT4_VALID_FS,
};
use crate::format::ext4::{GroupDesc, SuperBlock};

/// Bytes of fields past the first 128 that libext2fs 1.47 knows.
const EXTRA_ISIZE: u16 = 32;
/// Most groups laid out: 16 TiB of 1 KiB blocks. Bounds memory on hostile sizes.
const GROUPS_MAX: u32 = 1 << 21;

/// A superblock with all counts, before any table is placed.
pub(super) fn super_block(p: &Params) -> Result<SuperBlock, MkfsError> {
    let mut sb = p.sb;
    sb.s_magic = EXT4_SUPER_MAGIC;
    sb.s_state = EXT4_VALID_FS;
    sb.s_errors = 1;
    sb.s_first_data_block = u32::from(sb.s_log_cluster_size == 0);
    sb.s_first_ino = 11;
    if sb.s_inode_size >= 160 {
        sb.s_min_extra_isize = EXTRA_ISIZE;
        sb.s_want_extra_isize = EXTRA_ISIZE;
    }
    sb.s_flags |= EXT2_FLAGS_SIGNED_HASH;
    group_size(&mut sb)?;
    let mask = u64::from(sb.cluster_ratio()) - 1;
    sb.s_blocks_count = p.blocks & !mask;
    while !settle_counts(&mut sb, p)? {}
    if sb.has(features::SPARSE_SUPER2) {
        place_backups(&mut sb);
    }
    Ok(sb)
}

fn group_size(sb: &mut SuperBlock) -> Result<(), MkfsError> {
    let bits = sb.block_size() * 8;
    if !sb.has(features::BIGALLOC) {
        if sb.s_blocks_per_group == 0 {
            sb.s_blocks_per_group = bits;
        }
        // 65528 is the most that fits a 16-bit free count without 64bit.
        sb.s_blocks_per_group = sb.s_blocks_per_group.min(bits).min((1 << 16) - 8);
        sb.s_clusters_per_group = sb.s_blocks_per_group;
        return Ok(());
    }
    if sb.s_clusters_per_group == 0 {
        sb.s_clusters_per_group = if sb.s_log_cluster_size + 15 < 32 {
            bits
        } else {
            bits - 8
        };
    }
    sb.s_clusters_per_group = sb.s_clusters_per_group.min((1 << 16) - 8);
    let ratio = sb.cluster_ratio();
    sb.s_blocks_per_group = sb
        .s_clusters_per_group
        .checked_mul(ratio)
        .ok_or_else(|| MkfsError::Invalid("cluster size too large".to_string()))?;
    Ok(())
}

/// One round of working out inodes per group and reserved descriptors; false if the last group was dropped or the
/// group size changed and another round is needed.
fn settle_counts(sb: &mut SuperBlock, p: &Params) -> Result<bool, MkfsError> {
    let groups = sb.groups_count();
    if groups == 0 || sb.s_blocks_count == 0 {
        return Err(MkfsError::TooSmall);
    }
    if groups > GROUPS_MAX {
        let what = format!("{groups} block groups (at most {GROUPS_MAX})");
        return Err(MkfsError::Unsupported(what));
    }
    let wanted = match p.inodes {
        0 => sb.s_blocks_count / (4096 / u64::from(sb.block_size())).max(1),
        n => n,
    };
    let wanted = wanted.max(u64::from(sb.s_first_ino) + 1);
    let mut ipg = wanted.div_ceil(u64::from(groups));
    let bits = u64::from(sb.block_size()) * 8;
    if ipg > bits {
        if sb.has(features::BIGALLOC) || sb.s_blocks_per_group < 256 {
            return Err(MkfsError::Invalid("too many inodes".to_string()));
        }
        sb.s_blocks_per_group -= 8;
        sb.s_clusters_per_group = sb.s_blocks_per_group;
        sb.s_blocks_count = p.blocks;
        return Ok(false);
    }
    ipg = ipg.min(65536 - u64::from(sb.inodes_per_block()));
    loop {
        fill_table_blocks(sb, ipg);
        let total = u64::from(sb.s_inodes_per_group) * u64::from(groups);
        if let Ok(count) = u32::try_from(total) {
            sb.s_inodes_count = count;
            break;
        }
        ipg -= 1;
    }
    reserve_descriptors(sb, p);
    let itable = sb.itable_blocks();
    let gdt = if sb.has(features::META_BG) {
        1
    } else {
        sb.gdt_blocks()
    };
    let reserved = u32::from(sb.s_reserved_gdt_blocks);
    if 3 + itable + reserved + gdt > sb.s_blocks_per_group {
        return Err(MkfsError::Invalid("too many inodes".to_string()));
    }
    last_group_fits(sb, p, groups)
}

/// Rounds inodes per group up to whole table blocks and down to a multiple of 8.
fn fill_table_blocks(sb: &mut SuperBlock, ipg: u64) {
    let (block, inode) = (u64::from(sb.block_size()), u64::from(sb.s_inode_size));
    let table = (ipg * inode).div_ceil(block);
    let filled = (table * block / inode).max(8) & !7;
    sb.s_inodes_per_group = filled as u32;
}

/// Descriptor blocks to reserve for growth (libext2fs `calc_reserved_gdt_blocks`), and meta_bg where descriptors
/// would take more than three quarters of a group.
fn reserve_descriptors(sb: &mut SuperBlock, p: &Params) {
    sb.s_reserved_gdt_blocks = 0;
    if sb.has(features::RESIZE_INODE) {
        sb.s_reserved_gdt_blocks = match p.sb.s_reserved_gdt_blocks {
            0 => {
                let max = u64::from(u32::MAX);
                let grown = if sb.s_blocks_count < max / 1024 {
                    sb.s_blocks_count * 1024
                } else {
                    max
                };
                let groups = (grown - u64::from(sb.s_first_data_block))
                    .div_ceil(u64::from(sb.s_blocks_per_group));
                let blocks = groups.div_ceil(u64::from(sb.descs_per_block()));
                let spare = blocks.saturating_sub(u64::from(sb.gdt_blocks()));
                spare.min(u64::from(sb.block_size() / 4)) as u16
            }
            n => n,
        };
    }
    let taken = u32::from(sb.s_reserved_gdt_blocks) + sb.gdt_blocks();
    if taken > sb.s_blocks_per_group / 4 * 3 {
        sb.set_feature(features::META_BG, true);
        sb.set_feature(features::RESIZE_INODE, false);
        sb.s_reserved_gdt_blocks = 0;
    }
}

/// Drops the last group if its own structures and 50 more blocks do not fit; true if it stays.
fn last_group_fits(sb: &mut SuperBlock, p: &Params, groups: u32) -> Result<bool, MkfsError> {
    let mut overhead = 2 + sb.itable_blocks();
    let has_super = if sb.has(features::SPARSE_SUPER2) {
        let which = usize::from(groups != 2);
        p.sb.s_backup_bgs[which] != 0
    } else {
        sb.has_super(groups - 1)
    };
    if has_super {
        overhead += 1 + sb.gdt_blocks() + u32::from(sb.s_reserved_gdt_blocks);
    }
    let in_groups = sb.s_blocks_count - u64::from(sb.s_first_data_block);
    let rest = in_groups % u64::from(sb.s_blocks_per_group);
    if groups == 1 && rest != 0 && rest < u64::from(overhead) {
        return Err(MkfsError::TooSmall);
    }
    if rest != 0 && rest < u64::from(overhead) + 50 {
        if sb.s_blocks_count == rest + u64::from(sb.s_first_data_block) {
            return Err(MkfsError::TooSmall);
        }
        sb.s_blocks_count -= rest;
        let ratio = 100.0 * p.sb.s_r_blocks_count as f64 / p.blocks as f64;
        sb.s_r_blocks_count = (ratio * sb.s_blocks_count as f64 / 100.0) as u64;
        return Ok(false);
    }
    Ok(true)
}

fn place_backups(sb: &mut SuperBlock) {
    let last = sb.groups_count() - 1;
    let [mut a, mut b] = sb.s_backup_bgs.map(|g| g.min(last));
    if a == b {
        b = 0;
    }
    if a > b {
        std::mem::swap(&mut a, &mut b);
    }
    sb.s_backup_bgs = [a, b];
}

impl Mkfs {
    /// Reserves superblocks and descriptors of every group and makes the first descriptors. `bg_free_blocks_count`
    /// is kept as mke2fs keeps it while placing tables; the final counts come from the used ranges.
    pub(super) fn reserve_groups(&mut self) {
        let sb = self.sb;
        let csum = sb.csum_ctx().group_descs();
        let groups = sb.groups_count();
        self.space = Space::new(u64::from(sb.s_first_data_block), sb.s_blocks_count);
        let mut reserved_inodes = sb.s_first_ino;
        let mut descs = Vec::with_capacity(groups as usize);
        for group in 0..groups {
            let used = self.reserve_super_and_bgd(group);
            let mut d = GroupDesc::zeroed();
            if csum {
                if group != groups - 1 {
                    d.bg_flags |= EXT4_BG_BLOCK_UNINIT;
                }
                d.bg_flags |= EXT4_BG_INODE_UNINIT;
                let taken = reserved_inodes.min(sb.s_inodes_per_group);
                reserved_inodes -= taken;
                d.bg_itable_unused = sb.s_inodes_per_group - taken;
            }
            let mut own = used;
            if sb.s_log_groups_per_flex == 0 {
                own += 2 + sb.itable_blocks();
            }
            d.bg_free_blocks_count = sb.blocks_in_group(group).saturating_sub(own);
            d.bg_free_inodes_count = sb.s_inodes_per_group;
            self.free_after_init += u64::from(d.bg_free_blocks_count);
            descs.push(d);
        }
        self.descs = descs;
    }

    /// Marks superblock and descriptor blocks of `group`; the number that counts against its free blocks.
    fn reserve_super_and_bgd(&mut self, group: u32) -> u32 {
        let sb = &self.sb;
        let mut at = sb.group_first_block(group);
        if at == 0 && sb.block_size() == 1024 {
            self.space.mark(0, 1);
            at = 1;
        }
        let used = sb.base_meta_blocks(group);
        let room = sb.s_blocks_count - at;
        if used > 0 {
            self.space.mark(at, u64::from(used).min(room));
        }
        used
    }

    /// Fields of the superblock that do not depend on the layout.
    pub(super) fn stamp_super_block(&mut self) {
        let o = &self.opts;
        let sb = &mut self.sb;
        sb.s_mkfs_time = o.now;
        sb.s_lastcheck = o.now;
        sb.s_wtime = o.now;
        sb.s_max_mnt_count = 0xffff;
        if let Some(e) = o.errors {
            sb.s_errors = e;
        }
        sb.s_uuid = o.uuid_or_random().0;
        if sb.has(features::CSUM_SEED) {
            sb.s_checksum_seed = crate::base::checksum::crc32c(!0, &sb.s_uuid);
        }
        if sb.has(features::METADATA_CSUM) {
            sb.s_checksum_type = 1;
        }
        let seed = o.hash_seed_or_random().0;
        sb.s_hash_seed = std::array::from_fn(|i| crate::base::bytes::le32(&seed, i * 4));
        sb.s_def_hash_version = 1;
        copy_text(&mut sb.s_volume_name, &o.label);
        copy_text(&mut sb.s_last_mounted, &o.last_mounted);
        if o.extended.test_fs {
            sb.s_flags |= EXT2_FLAGS_TEST_FILESYS;
        }
    }
}

fn copy_text(field: &mut [u8], text: &str) {
    for (d, s) in field.iter_mut().zip(text.bytes()) {
        *d = s;
    }
}
