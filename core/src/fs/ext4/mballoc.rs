//! The multi-block allocator (kernel `mballoc.c`): requests, their normalisation, and taking what was found.
//! The search over groups is in `mballoc_scan`, the buddy in `mballoc_buddy`, preallocations in `mballoc_pa`,
//! freeing in `mballoc_free`.
//!
//! Invariants:
//! 1. What is clear in a group's buddy is clear in its block bitmap; the difference is preallocated, or freed by
//!    a transaction that has not committed.
//! 2. Clusters are claimed (`dirty_clusters`) before they are searched for, so a search ends with enough space.

#![allow(
    clippy::unused_self,
    reason = "all operations are methods of the file system"
)]

use super::mballoc_buddy::FreeExtent;
use super::mballoc_pa::{LocalityGroup, Prealloc};
use super::{flag, Ext4, Inode, Stats};
use crate::base::{bitmap, FsBlock, Tid};
use crate::block::ModelKind;
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::Handle;
use crate::trace::{Category, Event};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Last block a block-mapped file can address (kernel `EXT4_MAX_BLOCK_FILE_PHYS`).
pub(crate) const MAX_BLOCK_FILE_PHYS: u64 = 0xffff_ffff;

/// Files of up to this many blocks are packed together (kernel `MB_DEFAULT_STREAM_THRESHOLD`).
const STREAM_REQUEST: u64 = 16;
/// Clusters of a locality group's preallocation (kernel `MB_DEFAULT_GROUP_PREALLOC`).
const GROUP_PREALLOC: u32 = 512;

/// Groups tried in a row on a disk before the lists are asked (kernel `MB_DEFAULT_LINEAR_LIMIT`).
const MAX_LINEAR_GROUPS: u32 = 4;

/// Flags of a request (kernel `EXT4_MB_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MbFlags(pub(crate) u32);

impl MbFlags {
    pub(crate) const NONE: MbFlags = MbFlags(0);
    /// Take even a few blocks at the goal.
    pub(crate) const HINT_MERGE: MbFlags = MbFlags(0x1);
    /// First extent that comes.
    pub(crate) const HINT_FIRST: MbFlags = MbFlags(0x8);
    /// File contents.
    pub(crate) const HINT_DATA: MbFlags = MbFlags(0x20);
    /// No surplus.
    pub(crate) const HINT_NOPREALLOC: MbFlags = MbFlags(0x40);
    /// From the locality group.
    pub(crate) const HINT_GROUP_ALLOC: MbFlags = MbFlags(0x80);
    /// Nowhere but at the goal.
    pub(crate) const HINT_GOAL_ONLY: MbFlags = MbFlags(0x100);
    /// First at the goal.
    pub(crate) const HINT_TRY_GOAL: MbFlags = MbFlags(0x200);
    /// The clusters were reserved when written.
    pub(crate) const DELALLOC_RESERVED: MbFlags = MbFlags(0x400);
    /// Large file: start where the last one went.
    pub(crate) const STREAM_ALLOC: MbFlags = MbFlags(0x800);
    /// May use the pool kept for writeback.
    pub(crate) const USE_RESERVED: MbFlags = MbFlags(0x2000);

    pub(crate) fn has(self, other: MbFlags) -> bool {
        self.0 & other.0 == other.0
    }

    #[must_use]
    pub(crate) const fn with(self, other: MbFlags) -> MbFlags {
        MbFlags(self.0 | other.0)
    }

    pub(crate) fn set(&mut self, other: MbFlags, on: bool) {
        if on {
            self.0 |= other.0;
        } else {
            self.0 &= !other.0;
        }
    }
}

/// What a caller asks for (kernel `ext4_allocation_request`).
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AllocRequest {
    /// Logical block wanted.
    pub(crate) logical: u32,
    /// Clusters wanted; what was got on return.
    pub(crate) len: u32,
    /// Physical block to search from.
    pub(crate) goal: u64,
    /// Closest allocated logical block to the left and its physical block (0: none).
    pub(crate) lleft: u32,
    pub(crate) pleft: u64,
    /// Closest allocated logical block to the right and its physical block (0: none).
    pub(crate) lright: u32,
    pub(crate) pright: u64,
    pub(crate) flags: MbFlags,
}

/// Whether the search goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum AcStatus {
    #[default]
    Continue,
    Found,
    Break,
}

/// State of one allocation (kernel `ext4_allocation_context`): original, goal and best extent.
#[derive(Debug, Default)]
pub(crate) struct AllocContext {
    pub(crate) o_logical: u32,
    pub(crate) o_len: u32,
    pub(crate) g_logical: u32,
    pub(crate) g_group: u32,
    pub(crate) g_start: u32,
    pub(crate) g_len: u32,
    pub(crate) orig_goal_len: u32,
    pub(crate) b_logical: u32,
    pub(crate) b_group: u32,
    pub(crate) b: FreeExtent,
    /// What was really taken from the buddy.
    pub(crate) f_group: u32,
    pub(crate) f: FreeExtent,
    pub(crate) status: AcStatus,
    pub(crate) flags: MbFlags,
    pub(crate) criteria: u32,
    pub(crate) order2: u32,
    pub(crate) found: u32,
    pub(crate) prefetch_group: u32,
    pub(crate) prefetch_nr: u32,
    pub(crate) prefetch_ios: u32,
    pub(crate) pa: Option<Rc<Prealloc>>,
    /// Why the first group that could not be looked at could not (`ac_first_err`).
    pub(crate) first_err: Option<FsError>,
    /// Inode number, for the global goal of large files.
    pub(crate) ino: u32,
    pub(crate) extents: bool,
}

impl AllocContext {
    pub(crate) fn hint_data(&self) -> bool {
        self.flags.has(MbFlags::HINT_DATA)
    }

    pub(crate) fn group_alloc(&self) -> bool {
        self.flags.has(MbFlags::HINT_GROUP_ALLOC)
    }

    /// Records a chunk of a preallocation as the answer.
    pub(crate) fn set_found(&mut self, group: u32, ex: FreeExtent) {
        self.b_group = group;
        self.b = ex;
        self.status = AcStatus::Found;
    }
}

/// An extent freed by a transaction that has not committed (kernel `ext4_free_data`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FreeEntry {
    pub(crate) tid: Tid,
    pub(crate) group: u32,
    pub(crate) start: u32,
    pub(crate) count: u32,
}

/// Allocator state of the file system.
#[derive(Default)]
pub(crate) struct MbState {
    /// Group of the last allocation for large files, by inode number modulo their count.
    pub(crate) last_groups: RefCell<Vec<u32>>,
    /// Locality groups by CPU.
    pub(crate) locality: RefCell<BTreeMap<u32, LocalityGroup>>,
    /// Groups by order of their average free fragment.
    pub(crate) avg_lists: RefCell<Vec<BTreeSet<u32>>>,
    /// Groups by order of their largest free chunk.
    pub(crate) largest_lists: RefCell<Vec<BTreeSet<u32>>>,
    /// Search by these lists instead of group after group.
    pub(crate) optimize_scan: Cell<bool>,
    /// Groups tried in a row before the lists are asked.
    pub(crate) max_linear_groups: Cell<u32>,
    /// Bitmaps read ahead at a time, and in one search.
    pub(crate) prefetch: Cell<u32>,
    pub(crate) prefetch_limit: Cell<u32>,
    /// Freed, not committed.
    pub(crate) freed: RefCell<Vec<FreeEntry>>,
    pub(crate) free_pending: Cell<u64>,
    pub(crate) group_prealloc: Cell<u32>,
    pub(crate) stripe: Cell<u32>,
}

impl MbState {
    /// State at mount (kernel `ext4_mb_init`).
    pub(crate) fn init(&self, fs: &Ext4) {
        let geo = &fs.geo;
        let orders = geo.block_bits as usize + 2;
        self.avg_lists.borrow_mut().resize(orders, BTreeSet::new());
        self.largest_lists
            .borrow_mut()
            .resize(orders, BTreeSet::new());
        let goals = 2u32.min(geo.groups_count.div_ceil(4)).max(1);
        self.last_groups.borrow_mut().resize(goals as usize, 0);
        let opts = fs.opts.borrow();
        let optimize = opts.mb_optimize_scan.unwrap_or(geo.groups_count >= 16);
        self.optimize_scan.set(optimize);
        let rotates = fs.queue.device().config().model == ModelKind::Hdd;
        self.max_linear_groups
            .set(if rotates { MAX_LINEAR_GROUPS } else { 0 });
        let flex = geo.flex_size();
        let prefetch = if geo.flex_bg && flex > 1 {
            flex.min((65_536 * 512) >> geo.block_bits).saturating_mul(8)
        } else {
            32
        };
        let prefetch = prefetch.min(geo.groups_count);
        self.prefetch.set(prefetch);
        self.prefetch_limit
            .set((prefetch * 4).min(geo.groups_count));
        let stripe = fs.stripe();
        self.stripe.set(stripe);
        let clusters = (GROUP_PREALLOC / geo.cluster_ratio).max(32);
        let stripe_clusters = stripe / geo.cluster_ratio;
        self.group_prealloc.set(if stripe_clusters > 1 {
            clusters.next_multiple_of(stripe_clusters)
        } else {
            clusters
        });
    }

    pub(crate) fn with_lg<R>(&self, cpu: u32, f: impl FnOnce(&mut LocalityGroup) -> R) -> R {
        f(self.locality.borrow_mut().entry(cpu).or_default())
    }
}

impl Ext4 {
    /// CPU of the caller, for its locality group.
    /// SIMPLIFIED: all tasks share one locality group.
    pub(crate) fn cpu(&self) -> u32 {
        0
    }

    /// Allocates blocks (kernel `ext4_mb_new_blocks`): marks them used in bitmap and descriptor under the handle
    /// and counts them in `i_blocks`, unless they were reserved by delayed allocation (then the caller does).
    pub(crate) async fn mb_new_blocks(
        &self,
        h: &mut Handle,
        inode: &Inode,
        ar: &mut AllocRequest,
    ) -> FsResult<FsBlock> {
        self.sim.charge(self.cost.mballoc).await;
        let reserved = ar.flags.has(MbFlags::DELALLOC_RESERVED);
        if !reserved {
            while ar.len > 0
                && self
                    .claim_free_clusters(u64::from(ar.len), ar.flags)
                    .is_err()
            {
                ar.len >>= 1;
            }
            if ar.len == 0 {
                return Err(FsError::NoSpace);
            }
        }
        let claimed = if reserved { 0 } else { i64::from(ar.len) };
        let res = self.mb_allocate(h, inode, ar, claimed).await;
        let block = match res {
            Ok(block) => block,
            Err(e) => {
                ar.len = 0;
                self.dirty_clusters.add(-claimed);
                return Err(e);
            }
        };
        self.count_allocation(inode, block, ar);
        if !reserved {
            let n = i64::from(ar.len) * i64::from(self.geo.cluster_ratio);
            self.add_blocks(h, inode, n).await?;
        }
        Ok(block)
    }

    fn count_allocation(&self, inode: &Inode, block: FsBlock, ar: &AllocRequest) {
        let for_data = ar.flags.has(MbFlags::HINT_DATA);
        let (calls, blocks) = if for_data {
            (&self.stats.alloc_data_calls, &self.stats.alloc_data_blocks)
        } else {
            (&self.stats.alloc_meta_calls, &self.stats.alloc_meta_blocks)
        };
        Stats::inc(calls);
        Stats::add(blocks, u64::from(ar.len));
        let (ino, len) = (inode.ino, ar.len);
        self.sim
            .emit(Category::Structures, || Event::BlocksAllocated {
                ino,
                block,
                len,
                meta: u8::from(!for_data),
            });
    }

    async fn mb_allocate(
        &self,
        h: &mut Handle,
        inode: &Inode,
        ar: &mut AllocRequest,
        claimed: i64,
    ) -> FsResult<FsBlock> {
        let mut ac = self.mb_initialize_context(inode, ar);
        if self.mb_use_preallocated(&mut ac, inode) {
            Stats::inc(&self.stats.ext4_mballoc_prealloc);
        } else {
            Stats::inc(&self.stats.ext4_mballoc_alloc);
            self.mb_normalize_request(&mut ac, inode, ar);
            ac.orig_goal_len = ac.g_len;
            let mut retries = 0;
            loop {
                self.mb_regular_allocator(&mut ac, inode).await?;
                if ac.status == AcStatus::Found {
                    break;
                }
                retries += 1;
                if retries >= 3 || !self.mb_discard_preallocations(ac.o_len).await? {
                    return Err(FsError::NoSpace);
                }
                ac.status = AcStatus::Continue;
            }
        }
        let pa = ac.pa.take();
        let marked = self.mb_mark_diskspace_used(&ac, h, inode, claimed).await;
        match marked {
            Ok(()) => {
                if let Some(pa) = &pa {
                    self.mb_release_pa(pa, ac.b.len, inode);
                }
                ar.len = ac.b.len;
                Ok(FsBlock(self.geo.cluster_block(ac.b_group, ac.b.start)))
            }
            Err(e) => {
                match &pa {
                    Some(pa) if !pa.group_pa => pa.free.set(pa.free.get() + ac.b.len),
                    Some(_) => {}
                    None => self.buddy_free(ac.f_group, ac.f.start, ac.f.len),
                }
                if let Some(pa) = &pa {
                    self.mb_release_pa(pa, 0, inode);
                }
                Err(e)
            }
        }
    }

    /// Gives back preallocations everywhere until `needed` clusters were won; true if a retry is worthwhile.
    async fn mb_discard_preallocations(&self, needed: u32) -> FsResult<bool> {
        let mut won = 0;
        for group in 0..self.geo.groups_count {
            if won >= needed {
                break;
            }
            if self.groups.with(group, |g| g.pas.is_empty()) {
                continue;
            }
            won += self.discard_group_preallocations(group).await?;
        }
        Ok(won > 0)
    }

    fn mb_initialize_context(&self, inode: &Inode, ar: &AllocRequest) -> AllocContext {
        let len = ar.len.min(self.geo.clusters_per_group);
        let first = u64::from(self.geo.first_data_block);
        let goal = if ar.goal < first || ar.goal >= self.geo.blocks_count {
            first
        } else {
            ar.goal
        };
        let (group, start) = self.geo.group_and_offset(goal);
        let logical = ar.logical & !(self.geo.cluster_ratio - 1);
        let mut ac = AllocContext {
            o_logical: logical,
            o_len: len,
            g_logical: logical,
            g_group: group,
            g_start: start,
            g_len: len,
            b_logical: logical,
            flags: ar.flags,
            ino: inode.ino.0,
            extents: inode.has_flag(flag::EXTENTS),
            ..AllocContext::default()
        };
        self.mb_group_or_file(&mut ac, inode);
        ac
    }

    /// Small files go to the locality group, large ones get a preallocation of their own (kernel
    /// `ext4_mb_group_or_file`).
    fn mb_group_or_file(&self, ac: &mut AllocContext, inode: &Inode) {
        if !ac.hint_data() || ac.flags.has(MbFlags::HINT_GOAL_ONLY) {
            return;
        }
        let ratio = u64::from(self.geo.cluster_ratio);
        let end = u64::from(ac.o_logical) + u64::from(ac.o_len) * ratio;
        let isize = inode.size().div_ceil(u64::from(self.geo.block_size));
        let inode_pa = end != isize || inode.writers.get() > 0;
        if end.max(isize) > STREAM_REQUEST {
            let flag = if inode_pa {
                MbFlags::STREAM_ALLOC
            } else {
                MbFlags::HINT_NOPREALLOC
            };
            ac.flags.set(flag, true);
            return;
        }
        ac.flags.set(MbFlags::HINT_GROUP_ALLOC, true);
    }

    /// Rounds the request up to what the file will probably need (kernel `ext4_mb_normalize_request`).
    fn mb_normalize_request(&self, ac: &mut AllocContext, inode: &Inode, ar: &AllocRequest) {
        let skip = MbFlags::HINT_GOAL_ONLY.0 | MbFlags::HINT_NOPREALLOC.0;
        if !ac.hint_data() || ac.flags.0 & skip != 0 {
            return;
        }
        if ac.group_alloc() {
            ac.g_len = self.mb.group_prealloc.get();
            return;
        }
        let (mut start, mut size) = predicted_range(
            self.geo.block_bits,
            ac.o_logical,
            ac.o_len * self.geo.cluster_ratio,
            inode.size(),
        );
        let per_group = u64::from(self.geo.blocks_per_group);
        start = start.max(u64::from(ac.o_logical) / per_group * per_group);
        size = size.min(u64::from(u32::MAX) - start);
        if ar.pleft != 0 && start <= u64::from(ar.lleft) {
            let skip = u64::from(ar.lleft) + 1 - start;
            size = size.saturating_sub(skip);
            start += skip;
        }
        if ar.pright != 0 && start + size > u64::from(ar.lright) {
            size = u64::from(ar.lright).saturating_sub(start);
        }
        size = size.min(per_group);
        let (start, end) = self.avoid_preallocated(ac.o_logical, inode, start, start + size);
        let size = end.saturating_sub(start);
        if start + size <= u64::from(ac.o_logical) || start > u64::from(ac.o_logical) {
            return; // nothing sensible left: keep the request as it is
        }
        ac.g_logical = start as u32;
        ac.g_len = (size as u32).div_ceil(self.geo.cluster_ratio);
        let first = u64::from(self.geo.first_data_block);
        if ar.pright != 0
            && u64::from(ar.lright) == start + size
            && ar.pright >= size
            && ar.pright - size >= first
        {
            (ac.g_group, ac.g_start) = self.geo.group_and_offset(ar.pright - size);
            ac.flags.set(MbFlags::HINT_TRY_GOAL, true);
        }
        if ar.pleft != 0 && u64::from(ar.lleft) + 1 == start && ar.pleft + 1 < self.geo.blocks_count
        {
            (ac.g_group, ac.g_start) = self.geo.group_and_offset(ar.pleft + 1);
            ac.flags.set(MbFlags::HINT_TRY_GOAL, true);
        }
    }

    /// Shrinks the range so that it overlaps no preallocation of the inode.
    fn avoid_preallocated(
        &self,
        logical: u32,
        inode: &Inode,
        mut start: u64,
        mut end: u64,
    ) -> (u64, u64) {
        for pa in inode.pas.borrow().iter().filter(|p| !p.deleted.get()) {
            let pa_end = pa.logical_end(self.geo.cluster_ratio);
            if pa.lstart.get() >= end || pa_end <= start {
                continue;
            }
            if pa_end <= u64::from(logical) {
                start = pa_end;
            } else if pa.lstart.get() > u64::from(logical) {
                end = pa.lstart.get();
            }
        }
        (start, end)
    }

    /// Takes the best extent found out of the buddy (kernel `ext4_mb_use_best_found`).
    pub(crate) fn mb_use_best_found(&self, ac: &mut AllocContext, inode: &Inode) {
        ac.b.len = ac.b.len.min(ac.g_len);
        ac.b_logical = ac.g_logical;
        let ex = ac.b;
        self.groups.with_buddy(ac.b_group, |b| b.mark_used(ex));
        self.mb_update_lists(ac.b_group);
        (ac.f_group, ac.f) = (ac.b_group, ac.b);
        ac.status = AcStatus::Found;
        if ac.flags.has(MbFlags::STREAM_ALLOC) {
            let mut last = self.mb.last_groups.borrow_mut();
            let at = ac.ino as usize % last.len().max(1);
            last[at] = ac.f_group;
        }
        if ac.o_len < ac.b.len {
            self.mb_new_preallocation(ac, inode);
        }
    }

    /// Marks what was found used on disk (kernel `ext4_mb_mark_diskspace_used`).
    async fn mb_mark_diskspace_used(
        &self,
        ac: &AllocContext,
        h: &mut Handle,
        inode: &Inode,
        claimed: i64,
    ) -> FsResult<()> {
        let group = ac.b_group;
        let bh = self.read_block_bitmap(group).await?;
        self.get_write_access(h, &bh).await?;
        let gdp = Rc::clone(self.groups.buffer(group));
        self.get_write_access(h, &gdp).await?;
        let block = self.geo.cluster_block(group, ac.b.start);
        let len = u64::from(ac.b.len) * u64::from(self.geo.cluster_ratio);
        if !self.zone_valid(inode.ino, block, len) {
            bh.modify(|m| bitmap::set_range(m, ac.b.start, ac.b.start + ac.b.len));
            self.dirty_metadata(h, None, &bh).await?;
            return Err(self.corrupt_alloc(inode.ino, block));
        }
        bh.modify(|m| bitmap::set_range(m, ac.b.start, ac.b.start + ac.b.len));
        self.block_bitmap_changed(group, &bh, -i64::from(ac.b.len));
        self.free_clusters.add(-i64::from(ac.b.len));
        if !ac.flags.has(MbFlags::DELALLOC_RESERVED) {
            self.dirty_clusters.add(-claimed);
        }
        self.flex_add_clusters(group, -i64::from(ac.b.len));
        self.dirty_metadata(h, None, &bh).await?;
        self.dirty_metadata(h, None, &gdp).await
    }
}

/// First block and length, in blocks, of the range that the file will probably need, by its size after the
/// request.
fn predicted_range(bits: u32, logical: u32, len: u32, i_size: u64) -> (u64, u64) {
    const KIB: u64 = 1024;
    const MIB: u64 = 1024 * KIB;
    let logical = u64::from(logical);
    let len = u64::from(len);
    let size = ((logical + len) << bits).max(i_size);
    let max = 2u64 << bits;
    let aligned = |shift: u32| ((logical >> (shift - bits)) << shift) >> bits;
    for kib in [16, 32, 64, 128, 256, 512, 1024] {
        if size <= kib * KIB {
            return (0, (kib * KIB) >> bits);
        }
    }
    if size <= 4 * MIB || max <= 2 * KIB {
        (aligned(21), (2 * MIB) >> bits)
    } else if size <= 8 * MIB || max <= 4 * KIB {
        (aligned(22), (4 * MIB) >> bits)
    } else if len <= (8 * MIB) >> bits || max <= 8 * KIB {
        (aligned(23), (8 * MIB) >> bits)
    } else {
        (logical, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_predicted_as_the_kernel_does() {
        // (logical, len, i_size) -> (start, size), 4 KiB blocks.
        for (ask, want) in [
            ((0, 1, 0), (0, 4)),
            ((3, 2, 0), (0, 8)),
            ((100, 1, 0), (0, 128)),
            ((300, 1, 0), (0, 512)),
            ((600, 1, 0), (512, 512)),
            ((1500, 1, 0), (1024, 1024)),
            ((5000, 1, 64 << 20), (4096, 2048)),
            ((5000, 4000, 64 << 20), (4096, 2048)),
        ] {
            let (l, n, s) = ask;
            assert_eq!(predicted_range(12, l, n, s), want, "{ask:?}");
        }
    }
}
