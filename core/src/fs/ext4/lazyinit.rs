//! The thread `ext4lazyinit` (kernel `super.c`): reads all block bitmaps, then zeroes inode tables that mkfs left
//! as they were, one group at a time.
//!
//! The wait between groups is measured once, after the first group, in ticks; a group after which the wait is
//! not known yet, or is 0, is followed by a flush.

use super::time::TICK_NS;
use super::{Ext4, Stats};
use crate::base::{GroupNo, Lba, Nanos};
use crate::block::{Bio, BioFlags, Role};
use crate::format::ext4::group_desc::{EXT4_BG_INODE_UNINIT, EXT4_BG_INODE_ZEROED};
use crate::fs::common::FsResult;
use crate::fs::jbd2::HandleType;
use crate::sim::sync::WaitQueue;
use crate::sim::{Sim, TaskClass, WaitReason};
use crate::trace::{Category, Event};
use std::cell::Cell;
use std::rc::Rc;

/// Longest start delay in seconds (kernel `EXT4_DEF_LI_MAX_START_DELAY`).
const MAX_START_DELAY: u64 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    PrefetchBitmaps,
    Itable,
}

/// State of the request (kernel `ext4_li_request`).
pub(crate) struct LazyInit {
    running: Cell<bool>,
    stop: Cell<bool>,
    /// Wait in ticks; 0 is "to be measured".
    timeout: Cell<u64>,
    wake: WaitQueue,
}

impl LazyInit {
    pub(crate) fn new(sim: &Sim) -> LazyInit {
        LazyInit {
            running: Cell::new(false),
            stop: Cell::new(false),
            timeout: Cell::new(0),
            wake: WaitQueue::new(sim),
        }
    }
}

impl Ext4 {
    /// A random start delay below 5 s, in whole ticks. Each mount of a file system has its own.
    fn li_start_delay(&self) -> Nanos {
        let mounts = self.sb.borrow().s_mnt_count;
        let mut rng = self.sim.rng(&format!("ext4.lazyinit.{mounts}"));
        Nanos(rng.below(MAX_START_DELAY * 1_000_000_000 / TICK_NS) * TICK_NS)
    }

    fn next_not_zeroed(&self, from: u32) -> Option<u32> {
        if !self.geo.group_csum {
            return None;
        }
        (from..self.geo.groups_count).find(|&g| !self.groups.desc(g).has_flag(EXT4_BG_INODE_ZEROED))
    }

    /// Asks for lazy initialisation if there is anything to do (kernel `ext4_register_li_request`). A second
    /// call (remount) makes a running thread measure its wait again.
    pub(crate) fn register_li_request(&self) {
        let li = &self.lazyinit;
        if li.running.get() {
            li.timeout.set(0);
            return;
        }
        let (init, prefetch) = {
            let o = self.opts.borrow();
            (o.init_itable, o.prefetch_block_bitmaps)
        };
        let todo = self.next_not_zeroed(0).is_some() && init;
        if !self.writable.get() || (!prefetch && !todo) {
            return;
        }
        let Some(fs) = self.me.upgrade() else { return };
        li.running.set(true);
        li.stop.set(false);
        li.timeout.set(0);
        let mode = if prefetch {
            Mode::PrefetchBitmaps
        } else {
            Mode::Itable
        };
        let due = self.sim.now() + self.li_start_delay();
        self.sim
            .spawn("ext4lazyinit", TaskClass::Kthread, async move {
                fs.lazyinit_thread(mode, due).await;
                fs.lazyinit.running.set(false);
                fs.lazyinit.wake.wake_all();
            });
    }

    /// True while the thread still has inode tables to zero.
    pub fn lazy_init_pending(&self) -> bool {
        self.lazyinit.running.get() && self.next_not_zeroed(0).is_some()
    }

    /// Asks the thread to end.
    pub(crate) fn lazyinit_stop(&self) {
        self.lazyinit.stop.set(true);
        self.lazyinit.wake.wake_all();
    }

    /// Ends the thread and waits until it is gone (kernel `ext4_unregister_li_request`).
    pub(crate) async fn unregister_li_request(&self) {
        let li = &self.lazyinit;
        li.stop.set(true);
        while li.running.get() {
            li.wake.wake_all();
            let why = WaitReason::Other("ext4lazyinit");
            li.wake
                .wait_deadline(why, self.sim.now() + Nanos(TICK_NS))
                .await;
        }
    }

    async fn lazyinit_thread(self: &Rc<Self>, mut mode: Mode, mut due: Nanos) {
        let mut next = 0;
        loop {
            while self.sim.now() < due && !self.lazyinit.stop.get() {
                self.lazyinit
                    .wake
                    .wait_deadline(WaitReason::Timer, due)
                    .await;
            }
            if self.lazyinit.stop.get() || !self.writable.get() {
                return;
            }
            match mode {
                Mode::PrefetchBitmaps => match self.prefetch_step(next).await {
                    Some(group) => next = group,
                    None if self.opts.borrow().init_itable => {
                        let Some(first) = self.next_not_zeroed(0) else {
                            return;
                        };
                        (mode, next) = (Mode::Itable, first);
                    }
                    None => return,
                },
                Mode::Itable => match self.itable_step(next).await {
                    Some((group, wait)) => {
                        next = group;
                        due = self.sim.now() + wait;
                    }
                    None => return,
                },
            }
        }
    }

    /// Reads a batch of bitmaps; the next group, `None` after the last.
    async fn prefetch_step(&self, group: u32) -> Option<u32> {
        let nr = self.mb.prefetch.get().max(1);
        let (next, _) = self.mb_prefetch(group, nr).await;
        self.mb_prefetch_fini(next, nr).await;
        (next > group).then_some(next)
    }

    /// Zeroes the next table (kernel `ext4_run_li_request`): the group after it and the wait until then.
    async fn itable_step(&self, from: u32) -> Option<(u32, Nanos)> {
        let group = self.next_not_zeroed(from)?;
        let li = &self.lazyinit;
        self.sim.emit(Category::Lazyinit, || Event::LazyGroupBegin {
            group: GroupNo(group),
        });
        let start = self.sim.now();
        self.init_inode_table(group, li.timeout.get() == 0)
            .await
            .ok()?;
        let took = self.sim.now() - start;
        self.sim.emit(Category::Lazyinit, || Event::LazyGroupEnd {
            group: GroupNo(group),
            took,
        });
        if li.timeout.get() == 0 {
            let mult = u64::from(self.opts.borrow().li_wait_mult);
            li.timeout.set(took.0.saturating_mul(mult) / TICK_NS);
        }
        let wait = Nanos(li.timeout.get() * TICK_NS);
        self.sim.emit(Category::Lazyinit, || Event::LazyWait {
            group: GroupNo(group + 1),
            wait,
        });
        Some((group + 1, wait))
    }

    /// Zeroes what is unused of a group's inode table and then says so in its descriptor (kernel
    /// `ext4_init_inode_table`).
    async fn init_inode_table(&self, group: u32, barrier: bool) -> FsResult<()> {
        if self.groups.desc(group).has_flag(EXT4_BG_INODE_ZEROED) {
            return Ok(());
        }
        let mut h = self.journal_start_sb(HandleType::Misc, 1).await?;
        let sem = self.alloc_sem(group);
        let guard = sem.write().await;
        let d = self.groups.desc(group);
        let used = if d.has_flag(EXT4_BG_INODE_UNINIT) {
            0
        } else {
            let inodes = self.geo.inodes_per_group.saturating_sub(d.bg_itable_unused);
            inodes.div_ceil(self.geo.inodes_per_block)
        };
        let gdp = Rc::clone(self.groups.buffer(group));
        let done = match self.get_write_access(&mut h, &gdp).await {
            Ok(()) => self.zero_table(d.bg_inode_table, used, barrier).await,
            Err(e) => Err(e),
        };
        let done = match done {
            Ok(()) => {
                self.groups
                    .update(group, |d| d.bg_flags |= EXT4_BG_INODE_ZEROED);
                Stats::inc(&self.stats.ext4_lazy_itable_init);
                self.dirty_metadata(&mut h, None, &gdp).await
            }
            Err(e) => Err(e),
        };
        drop(guard);
        self.journal_stop(h).await?;
        done
    }

    async fn zero_table(&self, itable: u64, used: u32, barrier: bool) -> FsResult<()> {
        let num = self.geo.itable_blocks.saturating_sub(used);
        if num == 0 {
            return Ok(());
        }
        let per = u64::from(self.geo.block_size / 512);
        let lba = Lba((itable + u64::from(used)) * per);
        let sectors = u64::from(num) * per;
        let bio = Bio::write_zeroes(lba, sectors as u32, Role::Itable).flags(BioFlags::SYNC);
        self.queue.issue_zeroout(bio).await?;
        if barrier {
            self.buffers.flush_device().await?;
        }
        Ok(())
    }
}
