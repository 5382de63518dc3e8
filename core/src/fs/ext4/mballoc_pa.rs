//! Preallocations: space in the buddy that belongs to an inode or to a CPU's locality group and is free on disk.

use super::mballoc::{AllocContext, MbState};
use super::mballoc_buddy::FreeExtent;
use super::{Ext4, Inode, Stats};
use crate::base::bitmap;
use crate::fs::common::FsResult;
use std::cell::Cell;
use std::rc::Rc;

/// Buckets of locality-group preallocations, by log2 of the free length (kernel `PREALLOC_TB_SIZE`).
pub(crate) const PREALLOC_TB_SIZE: usize = 10;

/// A preallocation (kernel `ext4_prealloc_space`).
#[derive(Debug)]
pub(crate) struct Prealloc {
    /// First logical block (for a locality group: the physical block).
    pub(crate) lstart: Cell<u64>,
    /// First physical block.
    pub(crate) pstart: Cell<u64>,
    /// Clusters.
    pub(crate) len: Cell<u32>,
    /// Clusters not used yet.
    pub(crate) free: Cell<u32>,
    /// Belongs to a locality group, not to an inode.
    pub(crate) group_pa: bool,
    /// Group it lies in.
    pub(crate) group: u32,
    /// Gone from all lists.
    pub(crate) deleted: Cell<bool>,
    /// An allocation is using it now (`pa_count` above 1).
    pub(crate) busy: Cell<u32>,
}

impl Prealloc {
    /// Logical block after the last.
    pub(crate) fn logical_end(&self, ratio: u32) -> u64 {
        self.lstart.get() + u64::from(self.len.get()) * u64::from(ratio)
    }
}

/// Preallocations of one CPU (kernel `ext4_locality_group`).
#[derive(Default)]
pub(crate) struct LocalityGroup {
    pub(crate) lists: [Vec<Rc<Prealloc>>; PREALLOC_TB_SIZE],
}

fn bucket(len: u32) -> usize {
    (len.max(1).ilog2() as usize).min(PREALLOC_TB_SIZE - 1)
}

impl LocalityGroup {
    /// The preallocation with room for `len` that is nearest to `goal`.
    pub(crate) fn nearest(&self, len: u32, goal: u64) -> Option<Rc<Prealloc>> {
        let mut best: Option<&Rc<Prealloc>> = None;
        for pa in self.lists.iter().skip(bucket(len)).flatten() {
            if pa.deleted.get() || pa.free.get() < len {
                continue;
            }
            let closer =
                best.is_none_or(|b| goal.abs_diff(b.pstart.get()) > goal.abs_diff(pa.pstart.get()));
            if closer {
                best = Some(pa);
            }
        }
        best.map(Rc::clone)
    }

    fn remove(&mut self, pa: &Rc<Prealloc>) {
        for l in &mut self.lists {
            l.retain(|p| !Rc::ptr_eq(p, pa));
        }
    }

    /// Files `pa` by its free length; returns what must be discarded because the list grew past 8.
    fn add_n_trim(&mut self, pa: &Rc<Prealloc>) -> Vec<Rc<Prealloc>> {
        let list = &mut self.lists[bucket(pa.free.get())];
        let at = list
            .iter()
            .position(|p| pa.free.get() < p.free.get())
            .unwrap_or(list.len());
        list.insert(at, Rc::clone(pa));
        let mut total = list.len();
        if total <= 8 {
            return Vec::new();
        }
        let mut out = Vec::new();
        for p in list
            .iter()
            .filter(|p| p.busy.get() == 0 && !p.deleted.get())
        {
            p.deleted.set(true);
            out.push(Rc::clone(p));
            total -= 1;
            if total <= 5 {
                break;
            }
        }
        list.retain(|p| !p.deleted.get());
        out
    }
}

impl Ext4 {
    /// Serves the request from a preallocation if one fits (kernel `ext4_mb_use_preallocated`).
    pub(crate) fn mb_use_preallocated(&self, ac: &mut AllocContext, inode: &Inode) -> bool {
        if !ac.hint_data() {
            return false;
        }
        let ratio = self.geo.cluster_ratio;
        let want = u64::from(ac.o_logical);
        let extents = inode.has_flag(super::flag::EXTENTS);
        let found = inode.pas.borrow().iter().find_map(|pa| {
            let end = pa.pstart.get() + u64::from(pa.len.get()) * u64::from(ratio);
            let fits = want >= pa.lstart.get()
                && want < pa.logical_end(ratio)
                && (extents || u32::try_from(end).is_ok());
            (fits && !pa.deleted.get() && pa.free.get() > 0).then(|| Rc::clone(pa))
        });
        if let Some(pa) = found {
            pa.busy.set(pa.busy.get() + 1);
            self.use_inode_pa(ac, pa);
            return true;
        }
        if !ac.group_alloc() {
            return false;
        }
        let goal = self.geo.cluster_block(ac.g_group, ac.g_start);
        let found = self.mb.with_lg(self.cpu(), |lg| lg.nearest(ac.o_len, goal));
        let Some(pa) = found else { return false };
        pa.busy.set(pa.busy.get() + 1);
        self.use_group_pa(ac, pa);
        true
    }

    fn use_inode_pa(&self, ac: &mut AllocContext, pa: Rc<Prealloc>) {
        let ratio = u64::from(self.geo.cluster_ratio);
        let start = pa.pstart.get() + (u64::from(ac.o_logical) - pa.lstart.get());
        let end = (pa.pstart.get() + u64::from(pa.len.get()) * ratio)
            .min(start + u64::from(ac.o_len) * ratio);
        let (group, bit) = self.geo.group_and_offset(start);
        let len = (end - start).div_ceil(ratio) as u32;
        ac.set_found(group, FreeExtent { start: bit, len });
        pa.free.set(pa.free.get().saturating_sub(len));
        ac.pa = Some(pa);
    }

    fn use_group_pa(&self, ac: &mut AllocContext, pa: Rc<Prealloc>) {
        let (group, bit) = self.geo.group_and_offset(pa.pstart.get());
        ac.set_found(
            group,
            FreeExtent {
                start: bit,
                len: ac.o_len,
            },
        );
        ac.pa = Some(pa);
    }

    /// Keeps the surplus of an allocation as a preallocation (kernel `ext4_mb_new_preallocation`).
    pub(crate) fn mb_new_preallocation(&self, ac: &mut AllocContext, inode: &Inode) {
        let ratio = self.geo.cluster_ratio;
        let group_pa = ac.group_alloc();
        if !group_pa && ac.b.len < ac.g_len {
            ac.b_logical = adjust_best(ac, ratio);
        }
        let pstart = self.geo.cluster_block(ac.b_group, ac.b.start);
        let pa = Rc::new(Prealloc {
            lstart: Cell::new(if group_pa {
                pstart
            } else {
                u64::from(ac.b_logical)
            }),
            pstart: Cell::new(pstart),
            len: Cell::new(ac.b.len),
            free: Cell::new(ac.b.len),
            group_pa,
            group: ac.b_group,
            deleted: Cell::new(false),
            busy: Cell::new(1),
        });
        self.groups
            .with(ac.b_group, |g| g.pas.insert(0, Rc::clone(&pa)));
        if group_pa {
            Stats::inc(&self.stats.ext4_mb_new_group_pa);
            self.use_group_pa(ac, pa);
        } else {
            Stats::inc(&self.stats.ext4_mb_new_inode_pa);
            inode.pas.borrow_mut().insert(0, Rc::clone(&pa));
            self.use_inode_pa(ac, pa);
        }
    }

    /// Ends the use of a preallocation by an allocation of `used` clusters (kernel
    /// `ext4_mb_release_context`).
    pub(crate) fn mb_release_pa(&self, pa: &Rc<Prealloc>, used: u32, inode: &Inode) {
        let mut trimmed = Vec::new();
        if pa.group_pa {
            let blocks = u64::from(used) * u64::from(self.geo.cluster_ratio);
            pa.pstart.set(pa.pstart.get() + blocks);
            pa.lstart.set(pa.lstart.get() + blocks);
            pa.free.set(pa.free.get() - used);
            pa.len.set(pa.len.get() - used);
            trimmed = self.mb.with_lg(self.cpu(), |lg| {
                lg.remove(pa);
                if pa.free.get() > 0 {
                    lg.add_n_trim(pa)
                } else {
                    Vec::new()
                }
            });
        } else {
            let mut pas = inode.pas.borrow_mut();
            if let Some(i) = pas.iter().position(|p| Rc::ptr_eq(p, pa)) {
                let pa = pas.remove(i);
                pas.insert(0, pa);
            }
        }
        pa.busy.set(pa.busy.get().saturating_sub(1));
        if pa.busy.get() == 0 && pa.free.get() == 0 && !pa.deleted.get() {
            self.drop_pa(pa, inode);
        }
        for p in trimmed {
            self.unlink_group_pa(&p);
            self.release_group_pa(&p);
        }
    }

    /// Removes a used-up preallocation from every list (kernel `ext4_mb_put_pa`).
    fn drop_pa(&self, pa: &Rc<Prealloc>, inode: &Inode) {
        pa.deleted.set(true);
        self.unlink_group_pa(pa);
        if !pa.group_pa {
            inode.pas.borrow_mut().retain(|p| !Rc::ptr_eq(p, pa));
        }
    }

    fn unlink_group_pa(&self, pa: &Rc<Prealloc>) {
        self.groups
            .with(pa.group, |g| g.pas.retain(|p| !Rc::ptr_eq(p, pa)));
    }

    fn release_group_pa(&self, pa: &Rc<Prealloc>) {
        if pa.len.get() == 0 {
            return;
        }
        let (group, bit) = self.geo.group_and_offset(pa.pstart.get());
        self.buddy_free(group, bit, pa.len.get());
    }

    /// Gives back what is unused of an inode's preallocation (kernel `ext4_mb_release_inode_pa`).
    async fn release_inode_pa(&self, pa: &Prealloc) -> FsResult<()> {
        self.load_buddy(pa.group).await?;
        let bh = self.read_block_bitmap(pa.group).await?;
        let (_, first) = self.geo.group_and_offset(pa.pstart.get());
        let end = first + pa.len.get();
        let free = bh.read(|b| {
            let mut runs = Vec::new();
            let mut at = first;
            while let Some(z) = bitmap::next_zero(b, at, end) {
                let one = bitmap::next_one(b, z, end).unwrap_or(end);
                runs.push((z, one - z));
                at = one;
            }
            runs
        });
        for (bit, len) in free {
            self.buddy_free(pa.group, bit, len);
        }
        Ok(())
    }

    /// Gives back all preallocations of an inode (kernel `ext4_discard_preallocations`). The caller holds
    /// `i_data_sem` for writing.
    pub async fn discard_preallocations(&self, inode: &Inode) -> FsResult<()> {
        if !inode.is_reg() {
            return Ok(());
        }
        Stats::inc(&self.stats.ext4_discard_preallocations);
        loop {
            let pa = {
                let mut pas = inode.pas.borrow_mut();
                match pas.iter().rposition(|p| p.busy.get() == 0) {
                    Some(i) => pas.remove(i),
                    None => return Ok(()),
                }
            };
            if pa.deleted.replace(true) {
                continue;
            }
            self.unlink_group_pa(&pa);
            self.release_inode_pa(&pa).await?;
        }
    }

    /// Gives back every preallocation in a group that nobody is using; returns the clusters won (kernel
    /// `ext4_mb_discard_group_preallocations`).
    pub(crate) async fn discard_group_preallocations(&self, group: u32) -> FsResult<u32> {
        let pas: Vec<_> = self.groups.with(group, |g| {
            let (take, keep) = g
                .pas
                .drain(..)
                .partition(|p: &Rc<Prealloc>| p.busy.get() == 0 && !p.deleted.get());
            g.pas = keep;
            take
        });
        let mut won = 0;
        for pa in pas.iter().rev() {
            pa.deleted.set(true);
            won += pa.free.get();
            if pa.group_pa {
                self.load_buddy(group).await?;
                self.release_group_pa(pa);
                self.mb.forget_group_pa(pa);
            } else {
                self.release_inode_pa(pa).await?;
            }
        }
        Ok(won)
    }
}

impl MbState {
    fn forget_group_pa(&self, pa: &Rc<Prealloc>) {
        for lg in self.locality.borrow_mut().values_mut() {
            lg.remove(pa);
        }
    }
}

/// Where the best extent goes within the goal when it is shorter than the goal (kernel `ext4_mb_new_inode_pa`):
/// at the goal's end if that covers the request's start, else at its start if that covers the request, else at
/// the request.
fn adjust_best(ac: &AllocContext, ratio: u32) -> u32 {
    let blocks = |n: u32| u64::from(n) * u64::from(ratio);
    let goal_end = u64::from(ac.g_logical) + blocks(ac.g_len);
    let o_start = u64::from(ac.o_logical);
    let o_end = o_start + blocks(ac.o_len);
    let at_end = goal_end - blocks(ac.b.len);
    if o_start >= at_end {
        return at_end as u32;
    }
    if o_end <= u64::from(ac.g_logical) + blocks(ac.b.len) {
        return ac.g_logical;
    }
    ac.o_logical
}
