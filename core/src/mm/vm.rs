//! Memory as a whole: dirty page accounting, sysctls, the flusher's inode lists and its work queue.
//!
//! One [`Vm`] serves one device (its `bdi_writeback`). Knows no file system.

use super::errseq::ErrSeq;
use super::page_cache::{dirty, AddressSpace};
use super::throttle::{Bandwidth, Dirtier};
use crate::base::{Errno, Ino, Nanos};
use crate::sim::sync::{Completion, WaitQueue};
use crate::sim::Sim;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

/// Length of a scheduler tick at HZ=250.
pub const TICK: Nanos = Nanos(4_000_000);

/// Tunables of `/proc/sys/vm`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sysctls {
    /// Percent of dirtyable memory at which writers are blocked.
    pub dirty_ratio: u32,
    /// Percent of dirtyable memory at which the flusher starts.
    pub dirty_background_ratio: u32,
    /// Bytes instead of `dirty_ratio`, if not 0.
    pub dirty_bytes: u64,
    /// Bytes instead of `dirty_background_ratio`, if not 0.
    pub dirty_background_bytes: u64,
    /// Age at which dirty inodes are written (`dirty_expire_centisecs`).
    pub dirty_expire: Nanos,
    /// Pause between the flusher's looks (`dirty_writeback_centisecs`); 0 turns them off.
    pub dirty_writeback: Nanos,
    /// Age at which lazy timestamps are written (`dirtytime_expire_seconds`).
    pub dirtytime_expire: Nanos,
}

impl Default for Sysctls {
    fn default() -> Sysctls {
        Sysctls {
            dirty_ratio: 20,
            dirty_background_ratio: 10,
            dirty_bytes: 0,
            dirty_background_bytes: 0,
            dirty_expire: Nanos::from_secs(30),
            dirty_writeback: Nanos::from_secs(5),
            dirtytime_expire: Nanos::from_secs(43_200),
        }
    }
}

/// List of the flusher on which an inode is, and its position there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    /// On none.
    #[default]
    None,
    /// `b_dirty`: waits to grow old.
    Dirty(u64),
    /// `b_io`: to be written in this round.
    Io(u64),
    /// `b_more_io`: had more pages than its share in this round.
    MoreIo(u64),
    /// `b_dirty_time`: only timestamps.
    DirtyTime(u64),
}

/// Order of writeback given to the flusher by `sync` and others (`struct wb_writeback_work`).
#[derive(Clone)]
pub(super) struct Work {
    /// Integrity sync: everything dirty now, waiting for pages under I/O.
    pub sync_all: bool,
    /// Called by `sync`: waiting for the pages is the caller's business (`for_sync`).
    pub for_sync: bool,
    /// Pages to write at most.
    pub nr_pages: u64,
    /// Told when it is done.
    pub done: Rc<Completion>,
}

/// Numbers of dirty and written pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VmStat {
    /// Dirty file and block-device pages (`nr_dirty`).
    pub nr_dirty: u64,
    /// Pages under write I/O (`nr_writeback`).
    pub nr_writeback: u64,
    /// Pages of files in the cache.
    pub nr_file_pages: u64,
    /// Pages dirtied since boot (`nr_dirtied`).
    pub nr_dirtied: u64,
    /// Pages written since boot (`nr_written`).
    pub nr_written: u64,
    /// Pauses in `balance_dirty_pages`.
    pub throttled: u64,
    /// Virtual time spent in those pauses.
    pub throttled_ns: u64,
}

#[derive(Default)]
pub(super) struct Lists {
    seq: u64,
    pub(super) dirty: BTreeMap<u64, AddressSpace>,
    pub(super) io: BTreeMap<u64, AddressSpace>,
    pub(super) more_io: BTreeMap<u64, AddressSpace>,
    pub(super) dirty_time: BTreeMap<u64, AddressSpace>,
}

impl Lists {
    /// Takes `m` off its list.
    fn take(&mut self, m: &AddressSpace) {
        match m.place() {
            Place::None => {}
            Place::Dirty(s) => drop(self.dirty.remove(&s)),
            Place::Io(s) => drop(self.io.remove(&s)),
            Place::MoreIo(s) => drop(self.more_io.remove(&s)),
            Place::DirtyTime(s) => drop(self.dirty_time.remove(&s)),
        }
        m.set_place(Place::None);
    }

    /// Moves `m` to the end of the list that `at` names.
    pub(super) fn put(&mut self, m: &AddressSpace, at: fn(u64) -> Place) {
        self.take(m);
        self.seq += 1;
        let place = at(self.seq);
        let list = match place {
            Place::None => return,
            Place::Dirty(_) => &mut self.dirty,
            Place::Io(_) => &mut self.io,
            Place::MoreIo(_) => &mut self.more_io,
            Place::DirtyTime(_) => &mut self.dirty_time,
        };
        list.insert(self.seq, m.clone());
        m.set_place(place);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.dirty.is_empty()
            && self.io.is_empty()
            && self.more_io.is_empty()
            && self.dirty_time.is_empty()
    }
}

/// Page cache accounting and writeback state of the one device.
pub struct Vm {
    sim: Sim,
    ram_pages: u64,
    sysctls: Cell<Sysctls>,
    pub(super) stat: Cell<VmStat>,
    pub(super) lists: RefCell<Lists>,
    pub(super) works: RefCell<VecDeque<Work>>,
    pub(super) wake_flusher: WaitQueue,
    /// When the flusher is due, `MAX` if it sleeps for good.
    pub(super) flusher_due: Cell<Nanos>,
    pub(super) flusher_stop: Cell<bool>,
    pub(super) flusher_idle: WaitQueue,
    pub(super) flusher_runs: Cell<bool>,
    pub(super) writing: Cell<bool>,
    pub(super) last_old_flush: Cell<Nanos>,
    pub(super) bw: RefCell<Bandwidth>,
    pub(super) dirtiers: RefCell<Vec<Dirtier>>,
    /// Newest error of anybody's writeback (`s_wb_err` of the superblock).
    wb_err: Cell<ErrSeq>,
    bdev: RefCell<Option<AddressSpace>>,
}

impl Vm {
    /// Memory of `ram_bytes` with default sysctls.
    pub fn new(sim: &Sim, ram_bytes: u64) -> Rc<Vm> {
        Rc::new(Vm {
            sim: sim.clone(),
            ram_pages: ram_bytes / 4096,
            sysctls: Cell::new(Sysctls::default()),
            stat: Cell::new(VmStat::default()),
            lists: RefCell::new(Lists::default()),
            works: RefCell::new(VecDeque::new()),
            wake_flusher: WaitQueue::new(sim),
            flusher_due: Cell::new(Nanos::MAX),
            flusher_stop: Cell::new(false),
            flusher_idle: WaitQueue::new(sim),
            flusher_runs: Cell::new(false),
            writing: Cell::new(false),
            last_old_flush: Cell::new(Nanos::ZERO),
            bw: RefCell::new(Bandwidth::new()),
            dirtiers: RefCell::new(Vec::new()),
            wb_err: Cell::default(),
            bdev: RefCell::new(None),
        })
    }

    /// The clock and tasks.
    pub fn sim(&self) -> &Sim {
        &self.sim
    }

    /// Tunables in force.
    pub fn sysctls(&self) -> Sysctls {
        self.sysctls.get()
    }

    /// Changes the tunables.
    pub fn set_sysctls(&self, s: Sysctls) {
        self.sysctls.set(s);
    }

    /// Counters.
    pub fn stat(&self) -> VmStat {
        self.stat.get()
    }

    /// Time in ticks since boot (`jiffies`).
    pub fn jiffies(&self) -> u64 {
        self.sim.now().0 / TICK.0
    }

    /// The block device as an inode of the flusher's lists (number 0); its pages are in the buffer cache.
    pub fn bdev(self: &Rc<Self>) -> AddressSpace {
        let mut slot = self.bdev.borrow_mut();
        slot.get_or_insert_with(|| AddressSpace::new(self, Ino(0)))
            .clone()
    }

    /// Drops what refers back to this `Vm`, when the machine is taken down.
    pub fn tear_down(&self) {
        *self.bdev.borrow_mut() = None;
        *self.lists.borrow_mut() = Lists::default();
        self.works.borrow_mut().clear();
    }

    /// Memory that may hold dirty pages, in pages.
    ///
    /// SIMPLIFIED: a fixed 1/16 of memory is taken as kernel and programs; the rest counts as free or file pages.
    pub fn dirtyable(&self) -> u64 {
        self.ram_pages - self.ram_pages / 16
    }

    /// Hard and background dirty limits in pages (`domain_dirty_limits`).
    pub fn dirty_limits(&self) -> (u64, u64) {
        let s = self.sysctls.get();
        let avail = self.dirtyable();
        let pick = |bytes: u64, ratio: u32| {
            if bytes == 0 {
                avail * u64::from(ratio) / 100
            } else {
                bytes.div_ceil(4096)
            }
        };
        let thresh = pick(s.dirty_bytes, s.dirty_ratio);
        let mut bg = pick(s.dirty_background_bytes, s.dirty_background_ratio);
        if bg >= thresh {
            bg = thresh / 2;
        }
        (thresh, bg)
    }

    fn count(&self, f: impl FnOnce(&mut VmStat)) {
        let mut s = self.stat.get();
        f(&mut s);
        self.stat.set(s);
    }

    pub(super) fn add_file_page(&self) {
        self.count(|s| s.nr_file_pages += 1);
    }

    pub(super) fn del_file_page(&self) {
        self.count(|s| s.nr_file_pages -= 1);
    }

    /// A page became dirty (`folio_account_dirtied`); the task that did it is charged.
    pub fn account_dirtied(&self) {
        self.count(|s| {
            s.nr_dirty += 1;
            s.nr_dirtied += 1;
        });
        self.charge_dirtier();
    }

    /// A page is no longer dirty.
    pub fn account_cleaned(&self) {
        self.count(|s| s.nr_dirty = s.nr_dirty.saturating_sub(1));
    }

    /// Write I/O of `n` pages began.
    pub fn account_writeback(&self, n: u64) {
        self.count(|s| s.nr_writeback += n);
    }

    /// Write I/O of `n` pages ended.
    pub fn account_written(&self, n: u64) {
        self.count(|s| {
            s.nr_writeback = s.nr_writeback.saturating_sub(n);
            s.nr_written += n;
        });
    }

    /// A buffer of the block device became dirty: accounted, and the device queued for the flusher.
    pub fn bdev_dirtied(self: &Rc<Self>) {
        self.account_dirtied();
        self.bdev().mark_dirty(dirty::PAGES);
    }

    /// Puts an inode that just became dirty on the flusher's list and arms its timer.
    pub(super) fn queue_dirty(&self, m: &AddressSpace, only_time: bool) {
        if m.state() & dirty::BUSY != 0 {
            return; // The flusher requeues it when it is done with it.
        }
        let mut lists = self.lists.borrow_mut();
        let was_idle = lists.is_empty();
        m.set_dirtied_when(self.sim.now());
        if only_time {
            lists.put(m, Place::DirtyTime);
        } else {
            lists.put(m, Place::Dirty);
        }
        drop(lists);
        if was_idle && !only_time {
            self.wakeup_delayed();
        }
    }

    pub(super) fn unqueue(&self, m: &AddressSpace) {
        self.lists.borrow_mut().take(m);
    }

    /// Inodes that wait for the flusher.
    pub fn dirty_inodes(&self) -> u64 {
        let l = self.lists.borrow();
        (l.dirty.len() + l.io.len() + l.more_io.len()) as u64
    }

    /// Lets the flusher run one interval from now at the latest (`wb_wakeup_delayed`).
    pub(super) fn wakeup_delayed(&self) {
        let interval = self.sysctls.get().dirty_writeback;
        if interval == Nanos::ZERO {
            return;
        }
        let due = self.sim.now() + interval;
        if due < self.flusher_due.get() {
            self.flusher_due.set(due);
            self.wake_flusher.wake_all();
        }
    }

    /// Lets the flusher run now (`wb_wakeup`).
    pub(super) fn wakeup(&self) {
        self.flusher_due.set(self.sim.now());
        self.wake_flusher.wake_all();
    }

    /// Asks for background writeback (`wb_start_background_writeback`).
    pub fn start_background(&self) {
        self.wakeup();
    }

    /// Records that some file could not be written (`errseq_set` of `s_wb_err`).
    pub(super) fn set_wb_err(&self, errno: Errno) {
        let mut e = self.wb_err.get();
        e.set(errno);
        self.wb_err.set(e);
    }

    /// What a file system that is opened now has seen of failed writeback (`f_sb_err`).
    pub fn sample_wb_err(&self) -> ErrSeq {
        self.wb_err.get().sample()
    }

    /// The error of any file's writeback since `seen` (`errseq_check_and_advance` in `syncfs`).
    pub fn check_wb_err(&self, mut seen: ErrSeq) -> Result<(), Errno> {
        let mut e = self.wb_err.get();
        let found = e.check_and_advance(&mut seen);
        self.wb_err.set(e);
        found.map_or(Ok(()), Err)
    }

    /// True while the flusher writes.
    pub fn writeback_in_progress(&self) -> bool {
        self.writing.get()
    }

    /// True if more is dirty than the background limit allows (`wb_over_bg_thresh`).
    pub fn over_background(&self) -> bool {
        self.stat.get().nr_dirty > self.dirty_limits().1
    }
}
