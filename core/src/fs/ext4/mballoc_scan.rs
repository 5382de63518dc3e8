//! The search of the allocator over block groups, in the order of Linux 6.18: at the goal, then by five criteria
//! of falling ambition (kernel `ext4_mb_regular_allocator`, `ext4_mb_scan_groups`).

use super::geometry::FLEX_SIZE_DIR_ALLOC_SCHEME;
use super::mballoc::{AcStatus, AllocContext, MbFlags, MAX_BLOCK_FILE_PHYS};
use super::mballoc_buddy::FreeExtent;
use super::{Ext4, Inode, Stats};
use crate::base::{bitmap, FsBlock};
use crate::block::Role;
use crate::format::ext4::group_desc::EXT4_BG_BLOCK_UNINIT;
use crate::fs::common::FsResult;

/// Power-of-two requests by the buddy alone.
const CR_POWER2_ALIGNED: u32 = 0;
/// Groups whose average fragment fits the goal.
const CR_GOAL_LEN_FAST: u32 = 1;
/// The same for a goal that is cut down.
const CR_BEST_AVAIL_LEN: u32 = 2;
/// Groups with enough space in all.
const CR_GOAL_LEN_SLOW: u32 = 3;
/// Anything.
const CR_ANY_FREE: u32 = 4;
const NUM_CRS: u32 = 5;

/// Extents measured before the best so far is taken (kernel `MB_DEFAULT_MAX_TO_SCAN`, `_MIN_TO_SCAN`).
const MAX_TO_SCAN: u32 = 200;
const MIN_TO_SCAN: u32 = 10;
/// Smallest request the buddy search serves (kernel `MB_DEFAULT_ORDER2_REQS`).
const ORDER2_REQS: u32 = 2;
/// How far a goal may be cut down (kernel `MB_DEFAULT_BEST_AVAIL_TRIM_ORDER`).
const BEST_AVAIL_TRIM_ORDER: u32 = 3;

impl Ext4 {
    /// Reads a group's bitmap and builds its buddy unless that was done (kernel `ext4_mb_load_buddy`).
    pub(crate) async fn load_buddy(&self, group: u32) -> FsResult<()> {
        if self.groups.with_buddy(group, |_| ()).is_some() {
            return Ok(());
        }
        let bh = self.read_block_bitmap(group).await?;
        if self.groups.with_buddy(group, |_| ()).is_some() {
            return Ok(());
        }
        self.sim.charge(self.cost.buddy_generate).await;
        if self.groups.with_buddy(group, |_| ()).is_some() {
            return Ok(());
        }
        Stats::inc(&self.stats.ext4_mb_bitmap_load);
        Stats::inc(&self.stats.ext4_mb_buddy_bitmap_load);
        let mut map = bh.bytes().to_vec();
        let (geo, clusters) = (&self.geo, self.geo.clusters_per_group);
        self.groups.with(group, |g| {
            for (&start, &(count, _)) in &g.freed {
                bitmap::set_range(&mut map, start, start + count);
            }
            for pa in &g.pas {
                let (pg, bit) = geo.group_and_offset(pa.pstart.get());
                if pg == group {
                    bitmap::set_range(&mut map, bit, bit + pa.len.get());
                }
            }
            let buddy = super::mballoc_buddy::Buddy::generate(&map, clusters, geo.block_bits);
            g.buddy = Some(Box::new(buddy));
        });
        self.mb_update_lists(group);
        Ok(())
    }

    /// Gives clusters back to the buddy if it is loaded. A cluster that is free already means that the bitmap is
    /// damaged: the group is not used any more.
    pub(crate) fn buddy_free(&self, group: u32, start: u32, len: u32) {
        let bad = self
            .groups
            .with_buddy(group, |b| b.free_blocks(start, len).is_err())
            .unwrap_or(false);
        if bad {
            self.groups.with(group, |g| g.block_bitmap_corrupt = true);
            self.note_error("mb_free_blocks", 0);
        } else {
            self.mb_update_lists(group);
        }
    }

    /// Files the group by its average fragment and its largest chunk.
    pub(crate) fn mb_update_lists(&self, group: u32) {
        if !self.mb.optimize_scan.get() {
            return;
        }
        self.groups.with(group, |g| {
            let Some(b) = g.buddy.as_deref() else { return };
            let orders = b.orders();
            let avg = b
                .free
                .checked_div(b.fragments)
                .map(|a| avg_order(a, orders));
            let avg = if b.fragments == 0 { g.avg_order } else { avg };
            let largest = u32::try_from(b.largest_order()).ok();
            if avg != g.avg_order {
                let mut lists = self.mb.avg_lists.borrow_mut();
                if let Some(o) = g.avg_order {
                    lists[o as usize].remove(&group);
                }
                if let Some(o) = avg {
                    lists[o as usize].insert(group);
                }
                g.avg_order = avg;
            }
            if largest != g.largest_order {
                let mut lists = self.mb.largest_lists.borrow_mut();
                if let Some(o) = g.largest_order {
                    lists[o as usize].remove(&group);
                }
                if let Some(o) = largest {
                    lists[o as usize].insert(group);
                }
                g.largest_order = largest;
            }
        });
    }

    /// Searches until something is found or nothing is left.
    pub(crate) async fn mb_regular_allocator(
        &self,
        ac: &mut AllocContext,
        inode: &Inode,
    ) -> FsResult<()> {
        self.find_by_goal(ac, inode).await?;
        if ac.status == AcStatus::Found || ac.flags.has(MbFlags::HINT_GOAL_ONLY) {
            return Ok(());
        }
        let i = 32 - ac.g_len.leading_zeros();
        let orders = self.geo.block_bits + 2;
        ac.order2 = 0;
        if i >= ORDER2_REQS && i <= orders && ac.g_len.is_power_of_two() {
            ac.order2 = i - 1;
        }
        if ac.flags.has(MbFlags::STREAM_ALLOC) {
            let last = self.mb.last_groups.borrow();
            ac.g_group = last[ac.ino as usize % last.len().max(1)];
            ac.g_start = u32::MAX;
            ac.flags.set(MbFlags::HINT_TRY_GOAL, false);
        }
        ac.criteria = if ac.order2 > 0 {
            CR_POWER2_ALIGNED
        } else {
            CR_GOAL_LEN_FAST
        };
        loop {
            while ac.criteria < NUM_CRS && ac.status == AcStatus::Continue {
                self.scan_groups(ac, inode).await?;
            }
            if ac.b.len == 0 || ac.status == AcStatus::Found || ac.flags.has(MbFlags::HINT_FIRST) {
                break;
            }
            self.try_best_found(ac, inode).await?;
            if ac.status == AcStatus::Found {
                break;
            }
            ac.b = FreeExtent::default();
            ac.b_group = 0;
            ac.status = AcStatus::Continue;
            ac.flags.set(MbFlags::HINT_FIRST, true);
            ac.criteria = CR_ANY_FREE;
        }
        if ac.prefetch_nr > 0 {
            self.mb_prefetch_fini(ac.prefetch_group, ac.prefetch_nr)
                .await;
        }
        match ac.first_err.take() {
            Some(e) if ac.status != AcStatus::Found => Err(e),
            _ => Ok(()),
        }
    }

    async fn find_by_goal(&self, ac: &mut AllocContext, inode: &Inode) -> FsResult<()> {
        let wants = MbFlags::HINT_TRY_GOAL.0 | MbFlags::HINT_GOAL_ONLY.0;
        if ac.flags.0 & wants == 0 || self.group_free(ac.g_group) == 0 {
            return Ok(());
        }
        self.load_buddy(ac.g_group).await?;
        if self.groups.with(ac.g_group, |g| g.block_bitmap_corrupt) {
            return Ok(());
        }
        let (start, len) = (ac.g_start, ac.g_len);
        let ex = self
            .groups
            .with_buddy(ac.g_group, |b| b.find_extent(start, len))
            .unwrap_or_default();
        let stripe = self.mb.stripe.get() / self.geo.cluster_ratio;
        let take = if ex.len >= len && stripe > 1 && len == stripe {
            self.geo.cluster_block(ac.g_group, ex.start) % u64::from(self.mb.stripe.get()) == 0
        } else {
            ex.len >= len || (ex.len > 0 && ac.flags.has(MbFlags::HINT_MERGE))
        };
        if take {
            ac.found += 1;
            ac.b = ex;
            ac.b_group = ac.g_group;
            self.mb_use_best_found(ac, inode);
        }
        Ok(())
    }

    async fn try_best_found(&self, ac: &mut AllocContext, inode: &Inode) -> FsResult<()> {
        self.load_buddy(ac.b_group).await?;
        let want = ac.b;
        let ex = self
            .groups
            .with_buddy(ac.b_group, |b| b.find_extent(want.start, want.len))
            .unwrap_or_default();
        if ex.len > 0 {
            ac.b = ex;
            self.mb_use_best_found(ac, inode);
        }
        Ok(())
    }

    fn scan_limit(&self, ac: &AllocContext) -> u32 {
        let n = self.geo.groups_count;
        if ac.extents {
            return n;
        }
        let limit = MAX_BLOCK_FILE_PHYS / u64::from(self.geo.blocks_per_group) + 1;
        n.min(u32::try_from(limit).unwrap_or(u32::MAX))
    }

    fn optimized(&self, ac: &AllocContext) -> bool {
        self.mb.optimize_scan.get() && ac.criteria < CR_GOAL_LEN_SLOW && ac.extents
    }

    async fn scan_groups(&self, ac: &mut AllocContext, inode: &Inode) -> FsResult<()> {
        let n = self.scan_limit(ac);
        let mut start = if ac.g_group >= n { 0 } else { ac.g_group };
        ac.prefetch_group = start;
        ac.prefetch_nr = 0;
        if !self.optimized(ac) {
            return self.scan_linear(ac, inode, &mut start, n, n).await;
        }
        let linear = self.mb.max_linear_groups.get().min(n);
        if linear > 0 {
            self.scan_linear(ac, inode, &mut start, linear, n).await?;
            if ac.status != AcStatus::Continue {
                return Ok(());
            }
        }
        match ac.criteria {
            CR_POWER2_ALIGNED => self.scan_p2_aligned(ac, inode, start, n).await,
            CR_GOAL_LEN_FAST => self.scan_goal_fast(ac, inode, start, n).await,
            _ => self.scan_best_avail(ac, inode, start, n).await,
        }
    }

    async fn scan_linear(
        &self,
        ac: &mut AllocContext,
        inode: &Inode,
        start: &mut u32,
        count: u32,
        n: u32,
    ) -> FsResult<()> {
        let mut group = *start;
        for _ in 0..count {
            self.scan_group(ac, inode, group).await?;
            if ac.status != AcStatus::Continue {
                return Ok(());
            }
            group = if group + 1 >= n { 0 } else { group + 1 };
        }
        *start = group;
        if count == n {
            ac.criteria += 1;
        }
        Ok(())
    }

    /// Groups of one list from `start` on, then from 0.
    async fn scan_list(
        &self,
        ac: &mut AllocContext,
        inode: &Inode,
        (largest, order): (bool, u32),
        start: u32,
        n: u32,
    ) -> FsResult<()> {
        let lists = if largest {
            &self.mb.largest_lists
        } else {
            &self.mb.avg_lists
        };
        let listed: Vec<u32> = {
            let lists = lists.borrow();
            let Some(list) = lists.get(order as usize) else {
                return Ok(());
            };
            list.range(start..n)
                .chain(list.range(..start.min(n)))
                .copied()
                .collect()
        };
        for group in listed {
            self.scan_group(ac, inode, group).await?;
            if ac.status != AcStatus::Continue {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn scan_p2_aligned(
        &self,
        ac: &mut AllocContext,
        inode: &Inode,
        start: u32,
        n: u32,
    ) -> FsResult<()> {
        for order in ac.order2..self.geo.block_bits + 2 {
            self.scan_list(ac, inode, (true, order), start, n).await?;
            if ac.status != AcStatus::Continue {
                return Ok(());
            }
        }
        ac.criteria = CR_GOAL_LEN_FAST;
        Ok(())
    }

    async fn scan_goal_fast(
        &self,
        ac: &mut AllocContext,
        inode: &Inode,
        start: u32,
        n: u32,
    ) -> FsResult<()> {
        let orders = self.geo.block_bits + 2;
        for order in avg_order(ac.g_len, orders)..orders {
            self.scan_list(ac, inode, (false, order), start, n).await?;
            if ac.status != AcStatus::Continue {
                return Ok(());
            }
        }
        ac.criteria = if ac.hint_data() {
            CR_BEST_AVAIL_LEN
        } else {
            CR_GOAL_LEN_SLOW
        };
        Ok(())
    }

    async fn scan_best_avail(
        &self,
        ac: &mut AllocContext,
        inode: &Inode,
        start: u32,
        n: u32,
    ) -> FsResult<()> {
        let orders = self.geo.block_bits + 2;
        let order = ac.g_len.max(1).ilog2().min(orders);
        let mut min_order = order.saturating_sub(BEST_AVAIL_TRIM_ORDER);
        let stripe = self.mb.stripe.get() / self.geo.cluster_ratio;
        if stripe > 0 && 1 << min_order < stripe {
            min_order = stripe.ilog2();
        }
        if 1 << min_order < ac.o_len {
            min_order = 32 - ac.o_len.leading_zeros();
        }
        let mut i = order;
        while i >= min_order {
            ac.g_len = 1 << i;
            if stripe > 0 {
                ac.g_len = ac.g_len.next_multiple_of(stripe);
            }
            let frag = avg_order(ac.g_len, orders);
            self.scan_list(ac, inode, (false, frag), start, n).await?;
            if ac.status != AcStatus::Continue {
                return Ok(());
            }
            if i == 0 {
                break;
            }
            i -= 1;
        }
        ac.g_len = ac.orig_goal_len;
        ac.criteria = CR_GOAL_LEN_SLOW;
        Ok(())
    }

    /// Free clusters of a group: of the buddy, or of the descriptor while that is not loaded (`bb_free`).
    fn group_free(&self, group: u32) -> u32 {
        if let Some(free) = self.groups.with_buddy(group, |b| b.free) {
            return free;
        }
        let d = self.groups.desc(group);
        if self.geo.group_csum && d.has_flag(EXT4_BG_BLOCK_UNINIT) {
            self.free_clusters_after_init(group)
        } else {
            d.bg_free_blocks_count
        }
    }

    async fn scan_group(&self, ac: &mut AllocContext, inode: &Inode, group: u32) -> FsResult<()> {
        self.sim.charge(self.cost.mballoc_group).await;
        if ac.prefetch_group == group {
            self.might_prefetch(ac, group).await;
        }
        match self.good_group_nolock(ac, group).await {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(e) => {
                ac.first_err.get_or_insert(e);
                return Ok(());
            }
        }
        self.load_buddy(group).await?;
        if !self.good_group(ac, group) {
            return Ok(());
        }
        if ac.criteria == CR_POWER2_ALIGNED {
            self.simple_scan_group(ac, inode, group);
            return Ok(());
        }
        let stripe = self.mb.stripe.get() / self.geo.cluster_ratio;
        if ac.criteria < CR_GOAL_LEN_SLOW && stripe > 1 && ac.g_len % stripe == 0 {
            self.scan_aligned(ac, inode, group);
        }
        if ac.status == AcStatus::Continue {
            self.complex_scan_group(ac, inode, group);
        }
        Ok(())
    }

    async fn good_group_nolock(&self, ac: &AllocContext, group: u32) -> FsResult<bool> {
        let free = self.group_free(group);
        if free == 0 || (ac.criteria < CR_ANY_FREE && free < ac.g_len) {
            return Ok(false);
        }
        if self.groups.with(group, |g| g.block_bitmap_corrupt) {
            return Ok(false);
        }
        if self.groups.with_buddy(group, |_| ()).is_none() {
            let flex = self.geo.flex_size();
            let inside = self.geo.log_groups_per_flex == 0 || group % flex != 0;
            let uninit =
                self.geo.group_csum && self.groups.desc(group).has_flag(EXT4_BG_BLOCK_UNINIT);
            if ac.criteria < CR_GOAL_LEN_SLOW && inside && !uninit {
                return Ok(false);
            }
            self.load_buddy(group).await?;
        }
        Ok(self.good_group(ac, group))
    }

    fn good_group(&self, ac: &AllocContext, group: u32) -> bool {
        if self.groups.with(group, |g| g.block_bitmap_corrupt) {
            return false;
        }
        let looked = self.groups.with_buddy(group, |b| {
            (b.free, b.fragments, b.largest_order(), b.orders())
        });
        let Some((free, fragments, largest, orders)) = looked else {
            return false;
        };
        if free == 0 || fragments == 0 {
            return false;
        }
        match ac.criteria {
            CR_POWER2_ALIGNED => {
                let flex = self.geo.flex_size();
                if ac.hint_data() && flex >= FLEX_SIZE_DIR_ALLOC_SCHEME && group % flex == 0 {
                    return false;
                }
                free >= ac.g_len && (ac.order2 >= orders || largest >= ac.order2 as i32)
            }
            CR_GOAL_LEN_FAST | CR_BEST_AVAIL_LEN => free / fragments >= ac.g_len,
            CR_GOAL_LEN_SLOW => free >= ac.g_len,
            _ => true,
        }
    }

    fn simple_scan_group(&self, ac: &mut AllocContext, inode: &Inode, group: u32) {
        let order2 = ac.order2;
        let chunk = self.groups.with_buddy(group, |b| {
            (order2..b.orders())
                .find(|&o| b.counters[o as usize] > 0)
                .and_then(|o| b.first_chunk(o))
        });
        if let Some(ex) = chunk.flatten() {
            ac.found += 1;
            ac.b = ex;
            ac.b_group = group;
            self.mb_use_best_found(ac, inode);
        }
    }

    fn scan_aligned(&self, ac: &mut AllocContext, inode: &Inode, group: u32) {
        let stripe = u64::from(self.mb.stripe.get());
        let first = self.geo.group_first_block(group);
        let clusters = self.geo.clusters_per_group;
        let ratio = u64::from(self.geo.cluster_ratio);
        let mut i = ((first.div_ceil(stripe) * stripe - first) / ratio) as u32;
        let step = (stripe / ratio) as u32;
        while i < clusters {
            let ex = self
                .groups
                .with_buddy(group, |b| b.find_extent(i, step))
                .unwrap_or_default();
            if ex.len >= step {
                ac.found += 1;
                ac.b = ex;
                ac.b_group = group;
                self.mb_use_best_found(ac, inode);
                return;
            }
            i += step;
        }
    }

    fn complex_scan_group(&self, ac: &mut AllocContext, inode: &Inode, group: u32) {
        let Some((mut free, mut i)) = self.groups.with_buddy(group, |b| (b.free, b.first_free))
        else {
            return;
        };
        while free > 0 && ac.status == AcStatus::Continue {
            let at = self.groups.with_buddy(group, |b| b.next_free(i)).flatten();
            let Some(at) = at else { break };
            i = at;
            if ac.criteria < CR_GOAL_LEN_SLOW {
                // The average fits, so a long enough extent exists: step over shorter ones.
                let end = self
                    .groups
                    .with_buddy(group, |b| b.next_used(i))
                    .unwrap_or(i);
                if end - i < ac.g_len {
                    free -= (end - i).min(free);
                    i = end;
                    continue;
                }
            }
            let want = ac.g_len;
            let ex = self
                .groups
                .with_buddy(group, |b| b.find_extent(i, want))
                .unwrap_or_default();
            if ex.len == 0 || free < ex.len {
                break;
            }
            self.measure_extent(ac, inode, group, ex);
            i += ex.len;
            free -= ex.len;
        }
        self.check_limits(ac, inode, group, true);
    }

    fn measure_extent(&self, ac: &mut AllocContext, inode: &Inode, group: u32, ex: FreeExtent) {
        ac.found += 1;
        if ac.flags.has(MbFlags::HINT_FIRST) || ex.len == ac.g_len {
            ac.b = ex;
            ac.b_group = group;
            self.mb_use_best_found(ac, inode);
            return;
        }
        let better = if ac.b.len == 0 {
            ac.b = ex;
            ac.b_group = group;
            return;
        } else if ac.b.len < ac.g_len {
            ex.len > ac.b.len
        } else {
            ex.len > ac.g_len && ex.len < ac.b.len
        };
        if better {
            ac.b = ex;
            ac.b_group = group;
        }
        self.check_limits(ac, inode, group, false);
    }

    fn check_limits(&self, ac: &mut AllocContext, inode: &Inode, group: u32, finish: bool) {
        if ac.status == AcStatus::Found {
            return;
        }
        if ac.found > MAX_TO_SCAN && !ac.flags.has(MbFlags::HINT_FIRST) {
            ac.status = AcStatus::Break;
            return;
        }
        if ac.b.len < ac.g_len || ac.b_group != group {
            return;
        }
        if finish || ac.found > MIN_TO_SCAN {
            self.mb_use_best_found(ac, inode);
        }
    }

    async fn might_prefetch(&self, ac: &mut AllocContext, group: u32) {
        if ac.criteria < CR_GOAL_LEN_SLOW && ac.prefetch_ios >= self.mb.prefetch_limit.get() {
            return;
        }
        let mut nr = self.mb.prefetch.get();
        if self.geo.flex_bg {
            let flex = self.geo.flex_size();
            nr = nr.min(flex - group % flex);
        }
        let (next, ios) = self.mb_prefetch(group, nr).await;
        ac.prefetch_group = next;
        ac.prefetch_ios += ios;
        // Even without a read: the groups' buddies are built when the search is over.
        ac.prefetch_nr = nr;
    }

    /// Reads ahead the bitmaps of `nr` groups; returns the group after them and the reads begun (kernel
    /// `ext4_mb_prefetch`).
    pub(crate) async fn mb_prefetch(&self, mut group: u32, nr: u32) -> (u32, u32) {
        let mut blocks = Vec::new();
        for _ in 0..nr {
            let seen = self.groups.with(group, |g| {
                let seen = g.prefetched || g.buddy.is_some();
                g.prefetched = true;
                seen
            });
            let d = self.groups.desc(group);
            let uninit = self.geo.group_csum && d.has_flag(EXT4_BG_BLOCK_UNINIT);
            if !seen && d.bg_free_blocks_count > 0 && !uninit {
                let block = FsBlock(d.bg_block_bitmap);
                if !self.buffers.getblk(block).uptodate() {
                    Stats::inc(&self.stats.ext4_read_block_bitmap_load);
                    blocks.push(block);
                }
            }
            group = if group + 1 >= self.geo.groups_count {
                0
            } else {
                group + 1
            };
        }
        let ios = blocks.len() as u32;
        if ios > 0 {
            self.buffers.bread_ahead(&blocks, Role::Bitmap).await;
        }
        (group, ios)
    }

    /// Builds the buddies of the `nr` groups before `group` (kernel `ext4_mb_prefetch_fini`).
    pub(crate) async fn mb_prefetch_fini(&self, mut group: u32, nr: u32) {
        for _ in 0..nr {
            if group == 0 {
                group = self.geo.groups_count;
            }
            group -= 1;
            let loaded = self.groups.with_buddy(group, |_| ()).is_some();
            if !loaded && self.groups.desc(group).bg_free_blocks_count > 0 {
                // A bad bitmap is marked as such when it is read; the others matter too.
                let _ = self.load_buddy(group).await;
            }
        }
    }
}

/// Order of the list for an average fragment of `len` clusters (kernel `mb_avg_fragment_size_order`).
fn avg_order(len: u32, orders: u32) -> u32 {
    if len < 2 {
        return 0;
    }
    (len.ilog2() - 1).min(orders - 1)
}
