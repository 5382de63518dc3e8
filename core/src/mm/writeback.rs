//! The flusher thread of the device: periodic, background and integrity writeback (kernel `fs/fs-writeback.c`).

use super::page_cache::{dirty, AddressSpace};
use super::page_tree::Tag;
use super::vm::{Lists, Place, Vm, Work};
use crate::base::{Errno, Nanos};
use crate::block::Plug;
use crate::sim::sync::Completion;
use crate::sim::{TaskClass, TaskId, WaitReason};
use std::future::Future;
use std::rc::Rc;

/// Smallest number of pages written of one inode before the next has its turn (`MIN_WRITEBACK_PAGES`).
const MIN_WRITEBACK_PAGES: u64 = 1024;

/// Orders for one call of [`WritebackOps::writepages`] (`struct writeback_control`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WritebackControl {
    /// Wait for pages under I/O and write everything (`WB_SYNC_ALL`).
    pub sync_all: bool,
    /// Write only pages dirty at the start (`tagged_writepages`).
    pub tagged: bool,
    /// Called for `sync(2)`, which waits for the pages itself.
    pub for_sync: bool,
    /// Go round from `writeback_index` instead of over `range_start..=range_end`.
    pub range_cyclic: bool,
    /// First byte.
    pub range_start: u64,
    /// Last byte.
    pub range_end: u64,
    /// Pages left to write; counted down.
    pub nr_to_write: i64,
    /// Pages that could not be written now.
    pub pages_skipped: i64,
}

impl WritebackControl {
    /// Writes and later waits for all pages of a byte range (`__filemap_fdatawrite_range`).
    pub fn range(start: u64, end: u64, sync_all: bool) -> WritebackControl {
        WritebackControl {
            sync_all,
            tagged: false,
            for_sync: false,
            range_cyclic: false,
            range_start: start,
            range_end: end,
            nr_to_write: i64::MAX,
            pages_skipped: 0,
        }
    }
}

/// What writeback needs of the file system above (`address_space_operations`, `super_operations`).
pub trait WritebackOps: 'static {
    /// Writes dirty pages of the file, or dirty buffers of the block device if the inode number is 0.
    fn writepages(
        &self,
        mapping: &AddressSpace,
        wbc: &mut WritebackControl,
    ) -> impl Future<Output = Result<(), Errno>>;

    /// Writes the inode itself, waiting for it if `sync_all`.
    fn write_inode(
        &self,
        mapping: &AddressSpace,
        wbc: &WritebackControl,
    ) -> impl Future<Output = Result<(), Errno>>;

    /// True if the block device has dirty buffers.
    fn bdev_dirty(&self) -> bool;

    /// Begins to collect the flusher's requests, so that the pages of many files merge.
    fn plug(&self) -> Option<Plug>;
}

/// One round of the flusher (`struct wb_writeback_work` of the kernel's own rounds as well).
#[derive(Clone, Copy)]
struct Round {
    sync_all: bool,
    for_sync: bool,
    tagged: bool,
    kupdate: bool,
    background: bool,
    range_cyclic: bool,
    /// Only inodes of the file system, not the block device.
    fs_only: bool,
    nr_pages: i64,
}

/// Starts the flusher of `vm` for the file system `ops`; stop it with [`Vm::stop_flusher`].
pub fn start_flusher<O: WritebackOps>(vm: &Rc<Vm>, ops: Rc<O>, name: &str) -> TaskId {
    vm.flusher_stop.set(false);
    vm.flusher_runs.set(true);
    vm.last_old_flush.set(vm.sim().now());
    let mine = Rc::clone(vm);
    vm.sim().spawn(name, TaskClass::Kworker, async move {
        mine.flusher(&*ops).await;
    })
}

impl Vm {
    /// Ends the flusher and waits until it is gone.
    pub async fn stop_flusher(&self) {
        self.flusher_stop.set(true);
        self.wakeup();
        while self.flusher_runs.get() {
            self.flusher_idle.wait(WaitReason::Other("flusher")).await;
        }
    }

    async fn flusher<O: WritebackOps>(self: &Rc<Self>, ops: &O) {
        loop {
            while self.flusher_due.get() > self.sim().now() && !self.flusher_stop.get() {
                let due = self.flusher_due.get();
                let why = WaitReason::Other("flusher idle");
                if due == Nanos::MAX {
                    self.wake_flusher.wait(why).await;
                } else {
                    self.wake_flusher.wait_deadline(why, due).await;
                }
            }
            self.flusher_due.set(Nanos::MAX);
            self.wb_do_writeback(ops).await;
            if self.flusher_stop.get() {
                break;
            }
            if !self.works.borrow().is_empty() {
                self.wakeup();
            } else if !self.lists.borrow().is_empty() {
                self.wakeup_delayed();
            }
        }
        self.flusher_runs.set(false);
        self.flusher_idle.wake_all();
    }

    /// `wb_do_writeback`: orders first, then old data, then background.
    async fn wb_do_writeback<O: WritebackOps>(self: &Rc<Self>, ops: &O) {
        let _frame = self.sim().frame("wb_do_writeback");
        self.writing.set(true);
        loop {
            let work = self.works.borrow_mut().pop_front();
            let Some(work) = work else { break };
            let round = Round {
                sync_all: work.sync_all,
                for_sync: work.for_sync,
                tagged: !work.sync_all,
                kupdate: false,
                background: false,
                range_cyclic: false,
                fs_only: true,
                nr_pages: work.nr_pages.min(i64::MAX as u64) as i64,
            };
            self.wb_writeback(ops, round).await;
            work.done.complete();
        }
        self.check_old_data(ops).await;
        self.check_background(ops).await;
        self.writing.set(false);
    }

    async fn check_old_data<O: WritebackOps>(self: &Rc<Self>, ops: &O) {
        let interval = self.sysctls().dirty_writeback;
        let now = self.sim().now();
        if interval == Nanos::ZERO || now < self.last_old_flush.get() + interval {
            return;
        }
        self.last_old_flush.set(now);
        let nr_pages = (self.stat().nr_dirty + self.dirty_inodes()) as i64;
        if nr_pages > 0 || !self.lists.borrow().dirty_time.is_empty() {
            let round = Round {
                kupdate: true,
                range_cyclic: true,
                nr_pages: nr_pages.max(1),
                ..Round::AUTO
            };
            self.wb_writeback(ops, round).await;
        }
    }

    async fn check_background<O: WritebackOps>(self: &Rc<Self>, ops: &O) {
        if self.over_background() {
            let round = Round {
                background: true,
                range_cyclic: true,
                ..Round::AUTO
            };
            self.wb_writeback(ops, round).await;
        }
    }

    /// `wb_writeback`.
    async fn wb_writeback<O: WritebackOps>(self: &Rc<Self>, ops: &O, mut round: Round) {
        let _plug = ops.plug();
        loop {
            if round.nr_pages <= 0 {
                return;
            }
            let yields = round.background || round.kupdate;
            if yields && (!self.works.borrow().is_empty() || self.flusher_stop.get()) {
                return;
            }
            if round.background && !self.over_background() {
                return;
            }
            let now = self.sim().now();
            let before = if round.kupdate {
                now.saturating_sub(self.sysctls().dirty_expire)
            } else {
                now
            };
            let queued = self.queue_io(before, &round);
            let progress = self.write_inodes(ops, &mut round, before).await;
            // Inodes come in batches: without progress on a fresh batch there is nothing more to do.
            if progress || !queued {
                continue;
            }
            let more = self.lists.borrow().more_io.values().next().cloned();
            match more {
                None => return,
                Some(m) => m.wait_busy().await,
            }
        }
    }

    /// Moves inodes dirtied at or before `before` to the list of this round (`queue_io`); false if the last batch is
    /// not done yet.
    fn queue_io(&self, before: Nanos, round: &Round) -> bool {
        let mut lists = self.lists.borrow_mut();
        if !lists.io.is_empty() {
            return false;
        }
        let mut picked: Vec<AddressSpace> = lists.more_io.values().cloned().collect();
        picked.extend(expired(&lists.dirty, before));
        let time_before = if round.kupdate {
            let age = self.sysctls().dirtytime_expire;
            self.sim().now().0.checked_sub(age.0).map(Nanos)
        } else {
            Some(before)
        };
        if let Some(t) = time_before {
            let old = expired(&lists.dirty_time, t);
            for m in &old {
                m.set_state(dirty::SYNC);
                m.clear_state(dirty::TIME);
            }
            picked.extend(old);
        }
        for m in &picked {
            lists.put(m, Place::Io);
        }
        true
    }

    /// `writeback_sb_inodes`: true if anything was written or became clean.
    async fn write_inodes<O: WritebackOps>(
        self: &Rc<Self>,
        ops: &O,
        round: &mut Round,
        before: Nanos,
    ) -> bool {
        let start = self.jiffies();
        let mut progress = false;
        loop {
            let next = self.lists.borrow().io.values().next().cloned();
            let Some(m) = next else { return progress };
            if m.ino().0 == 0 && round.fs_only {
                redirty_tail(&mut self.lists.borrow_mut(), &m, self.sim().now());
                continue;
            }
            if m.state() & dirty::BUSY != 0 {
                if round.sync_all {
                    m.wait_busy().await;
                } else {
                    self.lists.borrow_mut().put(&m, Place::MoreIo);
                }
                continue;
            }
            let chunk = self.chunk_size(round);
            let mut wbc = WritebackControl {
                sync_all: round.sync_all,
                tagged: round.tagged,
                for_sync: round.for_sync,
                range_cyclic: round.range_cyclic,
                range_start: 0,
                range_end: u64::MAX,
                nr_to_write: chunk,
                pages_skipped: 0,
            };
            self.restart_bandwidth();
            self.write_single_inode(ops, &m, &mut wbc).await;
            let wrote = (chunk - wbc.nr_to_write - wbc.pages_skipped).max(0);
            round.nr_pages = round.nr_pages.saturating_sub(chunk - wbc.nr_to_write);
            self.requeue(&m, &wbc, before);
            progress |= wrote > 0 || m.state() & dirty::ANY == 0;
            self.update_bandwidth(false);
            let long = self.jiffies() - start > 25;
            if wrote > 0 && (long || round.nr_pages <= 0) {
                return progress;
            }
        }
    }

    /// `writeback_chunk_size`.
    fn chunk_size(&self, round: &Round) -> i64 {
        if round.sync_all || round.tagged {
            return i64::MAX;
        }
        let bw = self.bandwidth().avg_write / 2;
        let pages = bw.min(self.dirty_limits().0 / 8).min(round.nr_pages as u64);
        ((pages + MIN_WRITEBACK_PAGES) / MIN_WRITEBACK_PAGES * MIN_WRITEBACK_PAGES) as i64
    }

    /// Writes pages, then the inode if it needs it (`__writeback_single_inode`).
    pub async fn write_single_inode<O: WritebackOps>(
        &self,
        ops: &O,
        m: &AddressSpace,
        wbc: &mut WritebackControl,
    ) {
        m.set_state(dirty::BUSY);
        // Errors reach callers of fsync through the error sequence of the mapping.
        let _ = ops.writepages(m, wbc).await;
        if wbc.sync_all && !wbc.for_sync {
            m.wait_range(0, u64::MAX).await;
        }
        let time_too = wbc.sync_all && m.state() & dirty::TIME != 0;
        let was = m.state() & dirty::ALL;
        m.clear_state(dirty::ALL | if time_too { dirty::TIME } else { 0 });
        let still = if m.ino().0 == 0 {
            ops.bdev_dirty()
        } else {
            m.any(Tag::Dirty)
        };
        if still {
            m.set_state(dirty::PAGES);
        }
        if was & !dirty::PAGES != 0 || time_too {
            let _ = ops.write_inode(m, wbc).await;
        }
        m.clear_state(dirty::BUSY);
    }

    /// Writes one inode on behalf of a caller and settles its place on the flusher's lists (kernel
    /// `writeback_single_inode`, as used by `sync_inode_metadata`).
    pub async fn write_inode_now<O: WritebackOps>(
        &self,
        ops: &O,
        m: &AddressSpace,
        wbc: &mut WritebackControl,
    ) -> Result<(), Errno> {
        m.wait_busy().await;
        let seen = m.sample_error();
        self.write_single_inode(ops, m, wbc).await;
        let state = m.state();
        let mut lists = self.lists.borrow_mut();
        if state & dirty::ANY == 0 {
            lists.put(m, |_| Place::None);
        } else if m.place() == Place::None {
            lists.put(m, Place::Dirty);
        }
        m.peek_error(seen).map_or(Ok(()), Err)
    }

    /// `requeue_inode`.
    fn requeue(&self, m: &AddressSpace, wbc: &WritebackControl, before: Nanos) {
        let state = m.state();
        let now = self.sim().now();
        let mut lists = self.lists.borrow_mut();
        if state & dirty::ALL != 0 && (wbc.sync_all || wbc.tagged) {
            m.set_dirtied_when(now);
        }
        let pages_left = state & dirty::PAGES != 0;
        if wbc.pages_skipped > 0 && state & dirty::ALL != 0 {
            redirty_tail(&mut lists, m, now);
        } else if pages_left && wbc.nr_to_write <= 0 && m.dirtied_when() <= before {
            lists.put(m, Place::MoreIo);
        } else if state & dirty::ALL != 0 {
            redirty_tail(&mut lists, m, now);
        } else if state & dirty::TIME != 0 {
            m.set_dirtied_when(now);
            lists.put(m, Place::DirtyTime);
        } else {
            lists.put(m, |_| Place::None);
        }
    }

    /// Has the flusher write all dirty inodes of the file system and waits for that; with `sync_all` all pages
    /// are submitted, else only those dirty now (`writeback_inodes_sb`, `sync_inodes_sb`).
    pub async fn writeback_inodes(&self, sync_all: bool) {
        let done = Rc::new(Completion::new(self.sim()));
        let s = self.stat();
        self.works.borrow_mut().push_back(Work {
            sync_all,
            for_sync: sync_all,
            nr_pages: if sync_all {
                i64::MAX as u64
            } else {
                s.nr_dirty + self.dirty_inodes()
            },
            done: Rc::clone(&done),
        });
        self.wakeup();
        done.wait(WaitReason::Other("writeback by the flusher"))
            .await;
    }

    /// As [`Vm::writeback_inodes`] without `sync_all`, and nothing if the flusher is at work already
    /// (`try_to_writeback_inodes_sb`).
    pub async fn try_to_writeback_inodes(&self) {
        if !self.writeback_in_progress() {
            self.writeback_inodes(false).await;
        }
    }
}

impl Round {
    const AUTO: Round = Round {
        sync_all: false,
        for_sync: false,
        tagged: false,
        kupdate: false,
        background: false,
        range_cyclic: false,
        fs_only: false,
        nr_pages: i64::MAX,
    };
}

fn expired(
    list: &std::collections::BTreeMap<u64, AddressSpace>,
    before: Nanos,
) -> Vec<AddressSpace> {
    list.values()
        .take_while(|m| m.dirtied_when() <= before)
        .cloned()
        .collect()
}

/// To the young end of the dirty list; never older than what is there already (`redirty_tail_locked`).
fn redirty_tail(lists: &mut Lists, m: &AddressSpace, now: Nanos) {
    let youngest = lists
        .dirty
        .values()
        .next_back()
        .map(AddressSpace::dirtied_when);
    if youngest.is_some_and(|t| m.dirtied_when() < t) {
        m.set_dirtied_when(now);
    }
    lists.put(m, Place::Dirty);
}
