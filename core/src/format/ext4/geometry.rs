//! Numbers that follow from the superblock: sizes, groups, where descriptors lie.

use super::features;
use super::superblock::{
    SuperBlock, EXT4_GOOD_OLD_FIRST_INO, EXT4_GOOD_OLD_INODE_SIZE, EXT4_MIN_DESC_SIZE,
};
use crate::format::cast;

impl SuperBlock {
    /// Bytes per block.
    pub fn block_size(&self) -> u32 {
        1024u32
            .checked_shl(self.s_log_block_size.min(6))
            .unwrap_or(1024)
    }

    /// Log2 of the block size (kernel `s_blocksize_bits`).
    pub fn block_size_bits(&self) -> u32 {
        self.s_log_block_size.min(6).saturating_add(10)
    }

    /// Blocks per cluster: 1 without bigalloc.
    pub fn cluster_ratio(&self) -> u32 {
        let bits = self
            .s_log_cluster_size
            .saturating_sub(self.s_log_block_size);
        if self.has(features::BIGALLOC) {
            1u32.checked_shl(bits).unwrap_or(1)
        } else {
            1
        }
    }

    /// Bytes per inode (128 in revision 0).
    pub fn inode_size(&self) -> u16 {
        if self.s_rev_level == 0 {
            EXT4_GOOD_OLD_INODE_SIZE
        } else {
            self.s_inode_size
        }
    }

    /// First inode number that is not reserved (11 in revision 0).
    pub fn first_ino(&self) -> u32 {
        if self.s_rev_level == 0 {
            EXT4_GOOD_OLD_FIRST_INO
        } else {
            self.s_first_ino
        }
    }

    /// Bytes per group descriptor.
    pub fn desc_size(&self) -> u16 {
        if self.has(features::BIT64) {
            self.s_desc_size
        } else {
            EXT4_MIN_DESC_SIZE
        }
    }

    /// Inodes per block of the inode table, at least 1.
    pub fn inodes_per_block(&self) -> u32 {
        self.block_size()
            .checked_div(u32::from(self.inode_size()))
            .unwrap_or(1)
            .max(1)
    }

    /// Blocks of one group's inode table.
    pub fn itable_blocks(&self) -> u32 {
        self.s_inodes_per_group.div_ceil(self.inodes_per_block())
    }

    /// Descriptors per block, at least 1.
    pub fn descs_per_block(&self) -> u32 {
        self.block_size()
            .checked_div(u32::from(self.desc_size()))
            .unwrap_or(1)
            .max(1)
    }

    pub(super) fn groups_count_u64(&self) -> u64 {
        self.s_blocks_count
            .saturating_sub(u64::from(self.s_first_data_block))
            .div_ceil(u64::from(self.s_blocks_per_group.max(1)))
    }

    /// Number of block groups.
    pub fn groups_count(&self) -> u32 {
        u32::try_from(self.groups_count_u64()).unwrap_or(u32::MAX)
    }

    /// Blocks of the whole descriptor table.
    pub fn gdt_blocks(&self) -> u32 {
        self.groups_count().div_ceil(self.descs_per_block())
    }

    /// First block of `group`.
    pub fn group_first_block(&self, group: u32) -> u64 {
        u64::from(group)
            .saturating_mul(u64::from(self.s_blocks_per_group))
            .saturating_add(u64::from(self.s_first_data_block))
    }

    /// Blocks in `group`: fewer in the last one, 0 past it.
    pub fn blocks_in_group(&self, group: u32) -> u32 {
        let left = self
            .s_blocks_count
            .saturating_sub(self.group_first_block(group));
        cast::lo32(left.min(u64::from(self.s_blocks_per_group)))
    }

    /// Clusters in `group`.
    pub fn clusters_in_group(&self, group: u32) -> u32 {
        self.blocks_in_group(group).div_ceil(self.cluster_ratio())
    }

    /// Group that holds `block`.
    pub fn group_of_block(&self, block: u64) -> u32 {
        let rel = block.saturating_sub(u64::from(self.s_first_data_block));
        let group = rel
            .checked_div(u64::from(self.s_blocks_per_group))
            .unwrap_or(0);
        u32::try_from(group).unwrap_or(u32::MAX)
    }

    /// Cluster bit of `block` within its group's bitmap.
    pub fn cluster_in_group(&self, block: u64) -> u32 {
        let rel = block.saturating_sub(u64::from(self.s_first_data_block));
        let bit = rel
            .checked_rem(u64::from(self.s_blocks_per_group))
            .unwrap_or(0);
        cast::lo32(bit)
            .checked_div(self.cluster_ratio())
            .unwrap_or(0)
    }

    /// Group of inode `ino` and its index in the group; `None` for numbers outside `1..=s_inodes_count`.
    pub fn locate_inode(&self, ino: u32) -> Option<(u32, u32)> {
        if ino == 0 || ino > self.s_inodes_count {
            return None;
        }
        let n = ino.saturating_sub(1);
        Some((
            n.checked_div(self.s_inodes_per_group)?,
            n.checked_rem(self.s_inodes_per_group)?,
        ))
    }

    /// True if `group` holds a copy of the superblock (kernel `ext4_bg_has_super`).
    pub fn has_super(&self, group: u32) -> bool {
        if group == 0 {
            return true;
        }
        if self.has(features::SPARSE_SUPER2) {
            return self.s_backup_bgs.contains(&group);
        }
        if group == 1 || !self.has(features::SPARSE_SUPER) {
            return true;
        }
        [3, 5, 7].into_iter().any(|p| is_power_of(group, p))
    }

    /// Groups whose descriptors share one block under `meta_bg`.
    fn first_meta_bg(&self) -> u32 {
        if self.has(features::META_BG) {
            self.s_first_meta_bg
        } else {
            u32::MAX
        }
    }

    /// Descriptor blocks that lie in `group`, without reserved ones (kernel `ext4_bg_num_gdb`).
    pub fn gdt_blocks_in_group(&self, group: u32) -> u32 {
        let per = self.descs_per_block();
        let meta = group.checked_div(per).unwrap_or(0);
        if meta < self.first_meta_bg() {
            return if self.has_super(group) {
                self.gdt_blocks().min(self.first_meta_bg())
            } else {
                0
            };
        }
        let in_meta = group.checked_rem(per).unwrap_or(0);
        u32::from(in_meta == 0 || in_meta == 1 || in_meta == per.saturating_sub(1))
    }

    /// Reserved descriptor blocks that lie in `group`.
    pub fn reserved_gdt_blocks_in_group(&self, group: u32) -> u32 {
        let meta = group.checked_div(self.descs_per_block()).unwrap_or(0);
        if meta < self.first_meta_bg() && self.has_super(group) {
            u32::from(self.s_reserved_gdt_blocks)
        } else {
            0
        }
    }

    /// Blocks at the start of `group` for superblock, descriptors and reserved descriptors
    /// (kernel `ext4_num_base_meta_clusters`, in blocks).
    pub fn base_meta_blocks(&self, group: u32) -> u32 {
        u32::from(self.has_super(group))
            .saturating_add(self.gdt_blocks_in_group(group))
            .saturating_add(self.reserved_gdt_blocks_in_group(group))
    }

    /// Block that holds descriptor block number `nr` (kernel `descriptor_loc`), as the primary copy.
    pub fn descriptor_block(&self, nr: u32) -> u64 {
        if nr < self.first_meta_bg() {
            // With 1 KiB blocks the superblock is block 1; with bigalloc and 1 KiB blocks it is in block 1 of group 0
            // although the group starts at 0.
            let sb_block = u64::from(self.block_size() == 1024);
            return sb_block.saturating_add(1).saturating_add(u64::from(nr));
        }
        let group = nr.saturating_mul(self.descs_per_block());
        self.group_first_block(group)
            .saturating_add(u64::from(self.has_super(group)))
    }

    /// Groups per flex group, 1 without flex_bg.
    pub fn groups_per_flex(&self) -> u32 {
        if !self.has(features::FLEX_BG) {
            return 1;
        }
        1u32.checked_shl(u32::from(self.s_log_groups_per_flex))
            .unwrap_or(1)
    }

    /// True if blocks `pblk .. pblk + len` lie inside the file system and after its first block.
    pub fn blocks_valid(&self, pblk: u64, len: u32) -> bool {
        pblk > u64::from(self.s_first_data_block)
            && pblk
                .checked_add(u64::from(len))
                .is_some_and(|end| end <= self.s_blocks_count)
    }
}

fn is_power_of(n: u32, base: u32) -> bool {
    let mut p = base;
    while p < n {
        match p.checked_mul(base) {
            Some(next) => p = next,
            None => return false,
        }
    }
    p == n
}
