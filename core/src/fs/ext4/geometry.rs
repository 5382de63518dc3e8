//! Numbers of the file system that never change while it is mounted, taken from the superblock once.

use crate::base::{FsBlock, GroupNo, Ino};
use crate::format::ext4::{features, SuperBlock};

/// Flex groups of at least this many groups keep their first group for directories and metadata
/// (kernel `EXT4_FLEX_SIZE_DIR_ALLOC_SCHEME`).
pub(crate) const FLEX_SIZE_DIR_ALLOC_SCHEME: u32 = 4;

/// Sizes, counts and features.
#[derive(Clone, Debug)]
pub struct Geometry {
    /// Bytes per block.
    pub block_size: u32,
    /// Log2 of it.
    pub block_bits: u32,
    /// Bytes per inode.
    pub inode_size: u32,
    /// Inodes per block of the inode table.
    pub inodes_per_block: u32,
    /// Inodes per group.
    pub inodes_per_group: u32,
    /// Inodes in all.
    pub inodes_count: u32,
    /// First inode number that is not reserved.
    pub first_ino: u32,
    /// Blocks of a group's inode table.
    pub itable_blocks: u32,
    /// Blocks per group.
    pub blocks_per_group: u32,
    /// Clusters per group.
    pub clusters_per_group: u32,
    /// Blocks per cluster (1 without bigalloc).
    pub cluster_ratio: u32,
    /// First block of group 0.
    pub first_data_block: u32,
    /// Blocks in all.
    pub blocks_count: u64,
    /// Groups.
    pub groups_count: u32,
    /// Bytes per group descriptor.
    pub desc_size: u16,
    /// Descriptors per block.
    pub descs_per_block: u32,
    /// Blocks of descriptors.
    pub gdt_blocks: u32,
    /// Log2 of the groups per flex group, 0 without flex_bg.
    pub log_groups_per_flex: u32,
    /// Bytes past the first 128 that new inodes get.
    pub want_extra_isize: u16,
    /// Feature `extent`.
    pub extents: bool,
    /// Feature `flex_bg`.
    pub flex_bg: bool,
    /// Feature `metadata_csum`.
    pub metadata_csum: bool,
    /// Groups may be uninitialised (`metadata_csum` or `uninit_bg`).
    pub group_csum: bool,
    /// Feature `huge_file`.
    pub huge_file: bool,
    /// Feature `dir_nlink`.
    pub dir_nlink: bool,
    /// Feature `dir_index`.
    pub dir_index: bool,
    /// Feature `filetype`.
    pub filetype: bool,
    /// Feature `large_dir`.
    pub large_dir: bool,
    /// Feature `inline_data`.
    pub inline_data: bool,
    /// Feature `ea_inode`.
    pub ea_inode: bool,
    /// Feature `64bit`.
    pub bit64: bool,
    /// Feature `meta_bg`.
    pub meta_bg: bool,
    /// Feature `orphan_file`.
    pub orphan_file: bool,
    /// Feature `project`.
    pub project: bool,
    /// Seed of the directory hash.
    pub hash_seed: [u32; 4],
    /// Default directory hash, signedness not yet applied.
    pub def_hash_version: u8,
    /// Names are hashed as unsigned chars (kernel `s_hash_unsigned` = 3).
    pub hash_unsigned: bool,
}

impl Geometry {
    /// Takes the numbers from a checked superblock.
    pub fn new(sb: &SuperBlock) -> Geometry {
        let metadata_csum = sb.has(features::METADATA_CSUM);
        Geometry {
            block_size: sb.block_size(),
            block_bits: sb.block_size_bits(),
            inode_size: u32::from(sb.inode_size()),
            inodes_per_block: sb.inodes_per_block(),
            inodes_per_group: sb.s_inodes_per_group,
            inodes_count: sb.s_inodes_count,
            first_ino: sb.first_ino(),
            itable_blocks: sb.itable_blocks(),
            blocks_per_group: sb.s_blocks_per_group,
            clusters_per_group: if sb.has(features::BIGALLOC) {
                sb.s_clusters_per_group
            } else {
                sb.s_blocks_per_group
            },
            cluster_ratio: sb.cluster_ratio(),
            first_data_block: sb.s_first_data_block,
            blocks_count: sb.s_blocks_count,
            groups_count: sb.groups_count(),
            desc_size: sb.desc_size(),
            descs_per_block: sb.descs_per_block(),
            gdt_blocks: sb.gdt_blocks(),
            log_groups_per_flex: if sb.has(features::FLEX_BG) {
                u32::from(sb.s_log_groups_per_flex)
            } else {
                0
            },
            want_extra_isize: want_extra_isize(sb),
            extents: sb.has(features::EXTENTS),
            flex_bg: sb.has(features::FLEX_BG),
            metadata_csum,
            group_csum: metadata_csum || sb.has(features::GDT_CSUM),
            huge_file: sb.has(features::HUGE_FILE),
            dir_nlink: sb.has(features::DIR_NLINK),
            dir_index: sb.has(features::DIR_INDEX),
            filetype: sb.has(features::FILETYPE),
            large_dir: sb.has(features::LARGEDIR),
            inline_data: sb.has(features::INLINE_DATA),
            ea_inode: sb.has(features::EA_INODE),
            bit64: sb.has(features::BIT64),
            meta_bg: sb.has(features::META_BG),
            orphan_file: sb.has(features::ORPHAN_FILE),
            project: sb.has(features::PROJECT),
            hash_seed: sb.s_hash_seed,
            def_hash_version: sb.s_def_hash_version,
            hash_unsigned: sb.s_flags & crate::format::ext4::superblock::EXT2_FLAGS_UNSIGNED_HASH
                != 0,
        }
    }

    /// Groups per flex group, 1 without flex_bg.
    pub fn flex_size(&self) -> u32 {
        1u32.checked_shl(self.log_groups_per_flex).unwrap_or(1)
    }

    /// Flex group of a group.
    pub fn flex_group(&self, group: u32) -> u32 {
        group.checked_shr(self.log_groups_per_flex).unwrap_or(0)
    }

    /// First block of a group.
    pub fn group_first_block(&self, group: u32) -> u64 {
        u64::from(group) * u64::from(self.blocks_per_group) + u64::from(self.first_data_block)
    }

    /// Blocks in a group.
    pub fn blocks_in_group(&self, group: u32) -> u32 {
        let left = self
            .blocks_count
            .saturating_sub(self.group_first_block(group));
        left.min(u64::from(self.blocks_per_group)) as u32
    }

    /// Clusters in a group.
    pub fn clusters_in_group(&self, group: u32) -> u32 {
        self.blocks_in_group(group).div_ceil(self.cluster_ratio)
    }

    /// Group of a block and its cluster in the group (kernel `ext4_get_group_no_and_offset`).
    pub fn group_and_offset(&self, block: u64) -> (u32, u32) {
        let rel = block.saturating_sub(u64::from(self.first_data_block));
        let per = u64::from(self.blocks_per_group);
        ((rel / per) as u32, (rel % per) as u32 / self.cluster_ratio)
    }

    /// Block of a cluster of a group.
    pub fn cluster_block(&self, group: u32, cluster: u32) -> u64 {
        self.group_first_block(group) + u64::from(cluster) * u64::from(self.cluster_ratio)
    }

    /// Group of an inode.
    pub fn group_of_ino(&self, ino: Ino) -> GroupNo {
        GroupNo(ino.0.saturating_sub(1) / self.inodes_per_group)
    }

    /// Index of an inode in its group.
    pub fn index_of_ino(&self, ino: Ino) -> u32 {
        ino.0.saturating_sub(1) % self.inodes_per_group
    }

    /// True if the number is one an ordinary user of inodes may ask for (kernel `ext4_valid_inum`).
    pub fn valid_ino(&self, ino: Ino) -> bool {
        ino.0 == 2 || (ino.0 >= self.first_ino && ino.0 <= self.inodes_count)
    }

    /// Block and byte offset of an inode, given the table's first block.
    pub fn inode_location(&self, itable: FsBlock, ino: Ino) -> (FsBlock, usize) {
        let index = self.index_of_ino(ino);
        let block = itable.0 + u64::from(index / self.inodes_per_block);
        let offset = (index % self.inodes_per_block) * self.inode_size;
        (FsBlock(block), offset as usize)
    }

    /// Block pointers per block.
    pub fn addr_per_block(&self) -> u32 {
        self.block_size / 4
    }

    /// Largest file: by extents (2^32 - 1 blocks), or by block map.
    pub fn max_bytes(&self, extents: bool) -> u64 {
        if extents {
            let tree = u64::from(u32::MAX) << self.block_bits;
            // Without huge_file, i_blocks counts 512-byte units in 32 bits.
            let counted = (u64::from(u32::MAX) >> (self.block_bits - 9)) << self.block_bits;
            return if self.huge_file {
                tree
            } else {
                tree.min(counted)
            };
        }
        let a = u64::from(self.addr_per_block());
        let map = (12 + a + a * a + a * a * a) << self.block_bits;
        // Without huge_file, i_blocks of 32 bits limits data and meta blocks.
        let by_blocks = ((1u64 << 32) - 1) << 9;
        let meta = (1 + (a + 1) + (a * a + a + 1)) << self.block_bits;
        let limit = if self.huge_file {
            ((1u64 << 48) - 1) << 9
        } else {
            by_blocks
        };
        map.min(limit.saturating_sub(meta))
    }
}

fn want_extra_isize(sb: &SuperBlock) -> u16 {
    let size = sb.inode_size();
    if size <= 128 {
        return 0;
    }
    let room = size - 128;
    let mut want = 32.min(room);
    if sb.has(features::EXTRA_ISIZE) {
        want = want.max(sb.s_want_extra_isize).max(sb.s_min_extra_isize);
    }
    if want > room || want % 4 != 0 {
        32.min(room)
    } else {
        want
    }
}
