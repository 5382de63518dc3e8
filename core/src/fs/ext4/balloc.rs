//! Block bitmaps, free-space accounting and the small doors to the allocator (kernel `balloc.c`).

use super::mballoc::{AllocRequest, MbFlags};
use super::{Ext4, Inode, Stats};
use crate::base::{bitmap, FsBlock};
use crate::block::Role;
use crate::format::ext4::group_desc::{
    block_bitmap_csum, block_bitmap_csum_verify, EXT4_BG_BLOCK_UNINIT,
};
use crate::format::{Corrupt, CorruptKind};
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::Handle;
use crate::mm::buffer::{Bh, Buffer};
use std::rc::Rc;

/// The bitmap in the buffer is initialised and checked (kernel `BH_BITMAP_UPTODATE`).
pub(crate) const BITMAP_UPTODATE: Bh = Bh::FS1;

/// Flags of [`Ext4::free_blocks`] (kernel `EXT4_FREE_BLOCKS_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FreeFlags(pub u32);

impl FreeFlags {
    /// None.
    pub const NONE: FreeFlags = FreeFlags(0);
    /// The blocks hold metadata.
    pub const METADATA: FreeFlags = FreeFlags(1);
    /// Buffers of the blocks are forgotten and, for journalled ones, revoked.
    pub const FORGET: FreeFlags = FreeFlags(2);
    /// `i_blocks` is left alone.
    pub const NO_QUOT_UPDATE: FreeFlags = FreeFlags(8);

    /// True if all flags of `other` are set.
    pub fn has(self, other: FreeFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets.
    #[must_use]
    pub const fn with(self, other: FreeFlags) -> FreeFlags {
        FreeFlags(self.0 | other.0)
    }
}

impl Ext4 {
    /// Fills `map` with what an uninitialised group's bitmap means (kernel `ext4_init_block_bitmap`).
    pub(crate) fn init_block_bitmap(&self, group: u32, map: &mut [u8]) {
        map.fill(0);
        let base = self.sb.borrow().base_meta_blocks(group);
        let ratio = self.geo.cluster_ratio;
        bitmap::set_range(map, 0, base.div_ceil(ratio));
        for (block, len) in self.meta_of_group(group) {
            for b in block..block + u64::from(len) {
                let (g, bit) = self.geo.group_and_offset(b);
                if g == group {
                    bitmap::set(map, bit);
                }
            }
        }
        let bits = map.len() as u32 * 8;
        bitmap::set_range(map, self.geo.clusters_in_group(group), bits);
    }

    fn meta_of_group(&self, group: u32) -> [(u64, u32); 3] {
        let d = self.groups.desc(group);
        [
            (d.bg_block_bitmap, 1),
            (d.bg_inode_bitmap, 1),
            (d.bg_inode_table, self.geo.itable_blocks),
        ]
    }

    /// Free clusters of a group whose bitmap is not initialised yet (kernel `ext4_free_clusters_after_init`).
    pub(crate) fn free_clusters_after_init(&self, group: u32) -> u32 {
        let base = self.sb.borrow().base_meta_blocks(group);
        let ratio = self.geo.cluster_ratio;
        let mut used = base.div_ceil(ratio);
        let mut last = None;
        for (block, len) in self.meta_of_group(group) {
            for b in block..block + u64::from(len) {
                let (g, bit) = self.geo.group_and_offset(b);
                if g == group && bit >= base.div_ceil(ratio) && last != Some(bit) {
                    used += 1;
                    last = Some(bit);
                }
            }
        }
        self.geo.clusters_in_group(group).saturating_sub(used)
    }

    /// The block bitmap of a group, initialised and checked (kernel `ext4_read_block_bitmap`).
    pub(crate) async fn read_block_bitmap(&self, group: u32) -> FsResult<Rc<Buffer>> {
        let desc = self.groups.desc(group);
        let block = FsBlock(desc.bg_block_bitmap);
        let bh = self.buffers.getblk(block);
        bh.set_role(Role::Bitmap);
        if bh.uptodate() && bh.test(BITMAP_UPTODATE) {
            return Ok(bh);
        }
        if self.geo.group_csum && desc.has_flag(EXT4_BG_BLOCK_UNINIT) && !bh.uptodate() {
            if group == 0 {
                let kind = CorruptKind::GroupBlockBitmap {
                    group,
                    block: block.0,
                };
                return Err(self.corrupt(Corrupt::new(kind, 0)));
            }
            bh.modify(|b| self.init_block_bitmap(group, b));
            bh.set(Bh::UPTODATE);
            bh.set(BITMAP_UPTODATE);
            return Ok(bh);
        }
        if !bh.uptodate() && !bh.locked() {
            Stats::inc(&self.stats.ext4_read_block_bitmap_load);
        }
        let bh = self.buffers.bread(block, Role::Bitmap).await?;
        if !bh.test(BITMAP_UPTODATE) {
            self.validate_block_bitmap(group, &bh)?;
            bh.set(BITMAP_UPTODATE);
        }
        Ok(bh)
    }

    /// Checksum, and the group's own metadata marked used (kernel `ext4_validate_block_bitmap`).
    fn validate_block_bitmap(&self, group: u32, bh: &Rc<Buffer>) -> FsResult<()> {
        let desc = self.groups.desc(group);
        if desc.has_flag(EXT4_BG_BLOCK_UNINIT) && self.geo.group_csum {
            return Ok(());
        }
        let checked = bh.read(|b| {
            block_bitmap_csum_verify(&self.csum, &self.sb.borrow(), group, &desc, b)?;
            if self.geo.flex_bg {
                return Ok(());
            }
            for (block, len) in self.meta_of_group(group) {
                let (g, bit) = self.geo.group_and_offset(block);
                let clear = bitmap::next_zero(b, bit, bit + len.div_ceil(self.geo.cluster_ratio));
                if g != group || clear.is_some() {
                    let kind = CorruptKind::GroupBlockBitmap { group, block };
                    return Err(Corrupt::new(kind, bit / 8));
                }
            }
            Ok(())
        });
        checked.map_err(|c| {
            self.groups.with(group, |g| g.block_bitmap_corrupt = true);
            self.corrupt(c.at(bh.blocknr.0))
        })
    }

    /// Stores the checksum of the block bitmap in the descriptor of `group` and the counts that go with it.
    pub(crate) fn block_bitmap_changed(&self, group: u32, bh: &Buffer, free_delta: i64) {
        let csum = self
            .geo
            .metadata_csum
            .then(|| bh.read(|b| block_bitmap_csum(&self.csum, &self.sb.borrow(), b)));
        let uninit = self.groups.desc(group).has_flag(EXT4_BG_BLOCK_UNINIT) && self.geo.group_csum;
        let fresh = if uninit {
            Some(self.free_clusters_after_init(group))
        } else {
            None
        };
        self.groups.update(group, |d| {
            if let Some(free) = fresh {
                d.bg_flags &= !EXT4_BG_BLOCK_UNINIT;
                d.bg_free_blocks_count = free;
            }
            let free = i64::from(d.bg_free_blocks_count) + free_delta;
            d.bg_free_blocks_count = free.clamp(0, i64::from(u32::MAX)) as u32;
            if let Some(csum) = csum {
                d.bg_block_bitmap_csum = csum;
            }
        });
    }

    /// True if `n` more clusters may be taken (kernel `ext4_has_free_clusters`). The caller is root, who may use
    /// the blocks kept for root but not the few kept for metadata at writeback.
    pub(crate) fn has_free_clusters(&self, n: u64, flags: MbFlags) -> bool {
        let free = self.free_clusters.sum();
        let dirty = self.dirty_clusters.sum();
        let resv = self.resv_clusters.get() as i64;
        let n = n as i64;
        // Root (uid 0 with CAP_SYS_RESOURCE) passes the root reserve in the kernel's second test.
        if free >= n + resv + dirty {
            return true;
        }
        flags.has(MbFlags::USE_RESERVED) && free >= n + dirty
    }

    /// Promises `n` clusters (kernel `ext4_claim_free_clusters`).
    pub(crate) fn claim_free_clusters(&self, n: u64, flags: MbFlags) -> FsResult<()> {
        if !self.has_free_clusters(n, flags) {
            return Err(FsError::NoSpace);
        }
        self.dirty_clusters.add(n as i64);
        Ok(())
    }

    /// True if a failed allocation is worth a retry: a commit of the running transaction may free blocks (kernel
    /// `ext4_should_retry_alloc`). Waits for that commit.
    pub async fn should_retry_alloc(&self, retries: &mut u32) -> bool {
        let Some(journal) = self.journal() else {
            return false;
        };
        *retries += 1;
        if *retries > 3 {
            return false;
        }
        if self.mb.free_pending.get() == 0 {
            return self.has_free_clusters(1, MbFlags::NONE);
        }
        journal.force_commit().await.is_ok()
    }

    /// Allocates up to `count` blocks for metadata near `goal` (kernel `ext4_new_meta_blocks`).
    pub(crate) async fn new_meta_blocks_n(
        &self,
        h: &mut Handle,
        inode: &Inode,
        goal: FsBlock,
        count: u32,
        flags: MbFlags,
    ) -> FsResult<(FsBlock, u32)> {
        let mut ar = AllocRequest {
            logical: 0,
            goal: goal.0,
            len: count,
            flags,
            ..AllocRequest::default()
        };
        let block = self.mb_new_blocks(h, inode, &mut ar).await?;
        if !flags.has(MbFlags::DELALLOC_RESERVED) {
            return Ok((block, ar.len));
        }
        self.add_blocks(h, inode, i64::from(ar.len)).await?;
        Ok((block, ar.len))
    }

    /// Allocates one block for metadata near `goal`.
    pub async fn new_meta_blocks(
        &self,
        h: &mut Handle,
        inode: &Inode,
        goal: FsBlock,
    ) -> FsResult<FsBlock> {
        let (block, _) = self
            .new_meta_blocks_n(h, inode, goal, 1, MbFlags::NONE)
            .await?;
        Ok(block)
    }

    /// Where the first blocks of an inode should go (kernel `ext4_inode_to_goal_block`).
    pub fn inode_to_goal_block(&self, inode: &Inode) -> FsBlock {
        let mut group = inode.block_group;
        let flex = self.geo.flex_size();
        if flex >= super::geometry::FLEX_SIZE_DIR_ALLOC_SCHEME {
            group &= !(flex - 1);
            if inode.is_reg() {
                group += 1;
            }
        }
        let start = self.geo.group_first_block(group);
        if self.delalloc() {
            return FsBlock(start);
        }
        let last = self.geo.blocks_count.saturating_sub(1);
        let colour = u64::from(self.sim.current().0 % 16);
        let room = if start + u64::from(self.geo.blocks_per_group) <= last {
            u64::from(self.geo.blocks_per_group)
        } else {
            last.saturating_sub(start)
        };
        FsBlock(start + colour * (room / 16))
    }
}
