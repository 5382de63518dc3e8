//! The journal object: loading, its thread, log space, requests for commits, shutdown
//! (kernel fs/jbd2/journal.c).

use super::csum::PageCsum;
use super::fast_commit::FcArea;
use super::log::Log;
use super::recovery::{Outcome, RecoveryStep};
use super::revoke::RevokeTables;
use super::stats::JournalStats;
use super::transaction::{TState, Transaction, JIFFY};
use crate::base::{Errno, FsBlock, Ino, Nanos, Tid};
use crate::block::{BioFlags, Queue};
use crate::format::jbd2::fast_commit::FcRecord;
use crate::format::jbd2::{
    JournalSuperblock, JBD2_FEATURE_COMPAT_CHECKSUM, JBD2_FEATURE_INCOMPAT_64BIT,
    JBD2_FEATURE_INCOMPAT_ASYNC_COMMIT, JBD2_FEATURE_INCOMPAT_CSUM_V2,
    JBD2_FEATURE_INCOMPAT_CSUM_V3, JBD2_FEATURE_INCOMPAT_FAST_COMMIT, JBD2_FEATURE_INCOMPAT_REVOKE,
    JBD2_MIN_JOURNAL_BLOCKS,
};
use crate::fs::common::{FsError, FsResult};
use crate::mm::buffer::BufferCache;
use crate::mm::ErrSeq;
use crate::sim::sync::{Lock, WaitQueue};
use crate::sim::{LockRank, Sim, TaskClass, TaskId, WaitReason};
use crate::trace::{Category, Event};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;

/// Where the journal is.
pub enum JournalMap {
    /// Extents of the journal inode: (first journal block, blocks, first block of the device), ascending.
    Inode(Vec<(u32, u32, FsBlock)>),
    /// A device of its own; `superblock` is the block of the journal superblock there.
    External {
        /// The device.
        queue: Rc<Queue>,
        /// Block of the journal superblock.
        superblock: u32,
    },
}

/// Checksums of the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JournalCsum {
    /// None.
    #[default]
    None,
    /// Of whole transactions (`journal_checksum` without `metadata_csum`).
    V1,
    /// Of every block (with `metadata_csum`).
    V3,
}

/// Modelled CPU time of the journal's operations (mechanisms F5: 0.5-1 us for a handle, 0.3-0.5 us to copy 4 KiB).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalCosts {
    /// Starting a handle.
    pub handle_start: Nanos,
    /// Stopping a handle.
    pub handle_stop: Nanos,
    /// Taking write access the first time in a transaction.
    pub access: Nanos,
    /// Copying a block so that a committing transaction keeps its contents.
    pub copy_block: Nanos,
    /// Preparing one block for the log or a checkpoint (checksum, bio).
    pub log_block: Nanos,
}

impl JournalCosts {
    /// Nothing costs time.
    pub const FREE: JournalCosts = JournalCosts {
        handle_start: Nanos::ZERO,
        handle_stop: Nanos::ZERO,
        access: Nanos::ZERO,
        copy_block: Nanos::ZERO,
        log_block: Nanos::ZERO,
    };
    /// Modelled figures.
    pub const LINUX: JournalCosts = JournalCosts {
        handle_start: Nanos(350),
        handle_stop: Nanos(250),
        access: Nanos(150),
        copy_block: Nanos(400),
        log_block: Nanos(900),
    };
}

/// How the journal is used; from the mount options.
#[derive(Clone, Debug)]
pub struct JournalOptions {
    /// `commit=`; default 5 s.
    pub commit_interval: Nanos,
    /// `barrier`.
    pub barrier: bool,
    /// A transaction has at most journal / this: 3 since Linux 6.11, 4 before (with a larger reserve).
    pub max_transaction_divisor: u32,
    /// Checksums to use from now on.
    pub csum: JournalCsum,
    /// The file system has the 64bit feature.
    pub bit64: bool,
    /// The file system has the fast_commit feature: keep an area for it at the end of the log.
    pub fast_commit: bool,
    /// `journal_async_commit`.
    pub async_commit: bool,
    /// `data_err=abort`.
    pub data_err_abort: bool,
    /// `min_batch_time`.
    pub min_batch: Nanos,
    /// `max_batch_time`; default 15 ms.
    pub max_batch: Nanos,
    /// Wall clock at virtual time 0, nanoseconds since 1970: commit blocks carry it.
    pub wall_clock_base: u64,
    /// CPU time.
    pub costs: JournalCosts,
    /// Name of the thread, for example `jbd2/vda-8`.
    pub thread: String,
    /// The device is mounted read-only and must not be written, not even by a replay (`norecovery`).
    pub no_recovery: bool,
    /// Applies fast commits found by recovery.
    pub fc_replay: Option<FcReplay>,
}

/// How the file system applies fast commits (kernel `j_fc_replay_callback`), after the blocks of full commits are
/// replayed and before the log is marked empty; all it changes has to be in the buffer cache when it returns.
#[derive(Clone)]
pub struct FcReplay(pub Rc<FcReplayFn>);

/// See [`FcReplay`].
pub type FcReplayFn = dyn Fn(Vec<FcRecord>) -> Pin<Box<dyn Future<Output = FsResult<()>>>>;

impl std::fmt::Debug for FcReplay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FcReplay")
    }
}

impl Default for JournalOptions {
    fn default() -> JournalOptions {
        JournalOptions {
            commit_interval: Nanos::from_secs(5),
            barrier: true,
            max_transaction_divisor: 3,
            csum: JournalCsum::V3,
            bit64: true,
            fast_commit: false,
            async_commit: false,
            data_err_abort: false,
            min_batch: Nanos::ZERO,
            max_batch: Nanos::from_ms(15),
            wall_clock_base: 0,
            costs: JournalCosts::FREE,
            thread: "jbd2/vda-8".to_owned(),
            no_recovery: false,
            fc_replay: None,
        }
    }
}

/// Writes out or waits for the mapped dirty bytes `start..=end` of an inode. One of the few `dyn`s: the journal calls
/// up into the file system here, once per inode and commit.
pub type DataFn = dyn Fn(Ino, u64, u64) -> Pin<Box<dyn Future<Output = FsResult<()>>>>;

/// How the journal gets at file data in ordered mode (kernel `j_submit_inode_data_buffers`,
/// `j_finish_inode_data_buffers`).
#[derive(Clone)]
pub struct DataHook {
    /// Submits the writes; must not allocate blocks nor start a handle.
    pub submit: Rc<DataFn>,
    /// Waits for writes in flight.
    pub wait: Rc<DataFn>,
}

type CommitCallback = Rc<dyn Fn(Tid)>;

/// What recovery did when the journal was loaded.
#[derive(Clone, Debug)]
pub struct Recovered {
    /// Its result.
    pub outcome: Outcome,
    /// All facts in order.
    pub steps: Vec<RecoveryStep>,
}

/// A journal in use (kernel `struct journal_s`, include/linux/jbd2.h).
pub struct Journal {
    pub(super) sim: Sim,
    pub(super) buffers: Rc<BufferCache>,
    /// Errors of metadata writes seen when the journal was loaded (`j_fs_dev_wb_err`).
    pub(super) fs_dev_wb_err: ErrSeq,
    pub(super) log: Log,
    pub(super) costs: JournalCosts,
    pub(super) jsb: RefCell<JournalSuperblock>,
    pub(super) sb_block: RefCell<Vec<u8>>,
    pub(super) page_csum: PageCsum,
    divisor: Cell<u32>,
    wall_clock_base: u64,
    last_commit_time: Cell<u64>,

    pub(super) running: RefCell<Option<Rc<Transaction>>>,
    pub(super) committing: RefCell<Option<Rc<Transaction>>>,
    pub(super) checkpoint_transactions: RefCell<VecDeque<Rc<Transaction>>>,
    pub(super) revokes: RevokeTables,

    pub(super) head: Cell<u32>,
    pub(super) tail: Cell<u32>,
    pub(super) free: Cell<u32>,
    pub(super) tail_sequence: Cell<Tid>,
    pub(super) transaction_sequence: Cell<Tid>,
    pub(super) commit_sequence: Cell<Tid>,
    pub(super) commit_request: Cell<Tid>,
    pub(super) reserved_credits: Cell<i32>,
    pub(super) barrier_count: Cell<u32>,

    pub(super) flushed: Cell<bool>,
    pub(super) barrier: Cell<bool>,
    pub(super) data_err_abort: Cell<bool>,
    pub(super) checkpoint_io_error: Cell<bool>,
    aborted: Cell<Option<Errno>>,
    unmount: Cell<bool>,
    thread_ended: Cell<bool>,
    timer_armed: Cell<bool>,

    pub(super) commit_interval: Cell<Nanos>,
    pub(super) average_commit_time: Cell<Nanos>,
    pub(super) min_batch: Cell<Nanos>,
    pub(super) max_batch: Cell<Nanos>,
    pub(super) last_sync_writer: Cell<Option<TaskId>>,

    pub(super) checkpoint_mutex: Lock,
    pub(super) wait_transaction_locked: WaitQueue,
    pub(super) wait_updates: WaitQueue,
    pub(super) wait_done_commit: WaitQueue,
    pub(super) wait_reserved: WaitQueue,
    wait_commit: WaitQueue,
    pub(super) wait_fc: WaitQueue,
    pub(super) fc: FcArea,

    data_hook: RefCell<Option<DataHook>>,
    commit_callback: RefCell<Option<CommitCallback>>,
    recovered: RefCell<Option<Recovered>>,
    pub(super) stats: RefCell<JournalStats>,
}

impl Journal {
    /// Reads the journal superblock, replays the log if it is not empty, sets the features asked for, and starts
    /// the thread (kernel `jbd2_journal_load`). The file system may then read its metadata.
    pub async fn load(
        sim: &Sim,
        buffers: Rc<BufferCache>,
        map: JournalMap,
        opts: JournalOptions,
    ) -> FsResult<Rc<Journal>> {
        let log = Log::new(sim, &buffers, map);
        let sb_block = log.read_superblock().await?;
        let jsb = log.check_superblock(&sb_block, buffers.block_size())?;
        let j = Rc::new(Journal::new(sim, buffers, log, jsb, sb_block, &opts));
        if jsb.s_start != 0 && !opts.no_recovery {
            j.recover(opts.fc_replay.as_ref()).await?;
        }
        j.set_features(&opts)?;
        if !opts.no_recovery {
            j.reset().await?;
        }
        let thread = Rc::clone(&j);
        j.sim.spawn(&opts.thread, TaskClass::Kthread, async move {
            thread.kjournald2().await;
        });
        Ok(j)
    }

    fn new(
        sim: &Sim,
        buffers: Rc<BufferCache>,
        log: Log,
        jsb: JournalSuperblock,
        sb_block: Vec<u8>,
        opts: &JournalOptions,
    ) -> Journal {
        // The number in an empty log is that of the last transaction, as recovery reads it.
        let tid = match jsb.s_start {
            0 => Tid(jsb.s_sequence).next(),
            _ => Tid(jsb.s_sequence),
        };
        let why = WaitReason::Other("j_checkpoint_mutex");
        Journal {
            sim: sim.clone(),
            fs_dev_wb_err: buffers.sample_write_error(),
            buffers,
            log,
            costs: opts.costs,
            jsb: RefCell::new(jsb),
            sb_block: RefCell::new(sb_block),
            page_csum: PageCsum::new(),
            divisor: Cell::new(opts.max_transaction_divisor.clamp(3, 4)),
            wall_clock_base: opts.wall_clock_base,
            last_commit_time: Cell::new(0),
            running: RefCell::new(None),
            committing: RefCell::new(None),
            checkpoint_transactions: RefCell::default(),
            revokes: RevokeTables::default(),
            head: Cell::new(jsb.s_first),
            tail: Cell::new(jsb.s_first),
            free: Cell::new(0),
            tail_sequence: Cell::new(tid),
            transaction_sequence: Cell::new(tid),
            commit_sequence: Cell::new(tid),
            commit_request: Cell::new(tid),
            reserved_credits: Cell::new(0),
            barrier_count: Cell::new(0),
            flushed: Cell::new(true),
            barrier: Cell::new(opts.barrier),
            data_err_abort: Cell::new(opts.data_err_abort),
            checkpoint_io_error: Cell::new(false),
            aborted: Cell::new(None),
            unmount: Cell::new(false),
            thread_ended: Cell::new(false),
            timer_armed: Cell::new(false),
            commit_interval: Cell::new(opts.commit_interval),
            average_commit_time: Cell::new(Nanos::ZERO),
            min_batch: Cell::new(opts.min_batch),
            max_batch: Cell::new(opts.max_batch),
            last_sync_writer: Cell::new(None),
            checkpoint_mutex: Lock::new(sim, LockRank::Journal, why),
            wait_transaction_locked: WaitQueue::new(sim),
            wait_updates: WaitQueue::new(sim),
            wait_done_commit: WaitQueue::new(sim),
            wait_reserved: WaitQueue::new(sim),
            wait_commit: WaitQueue::new(sim),
            wait_fc: WaitQueue::new(sim),
            fc: FcArea::default(),
            data_hook: RefCell::new(None),
            commit_callback: RefCell::new(None),
            recovered: RefCell::new(None),
            stats: RefCell::default(),
        }
    }

    async fn recover(self: &Rc<Self>, fc_replay: Option<&FcReplay>) -> FsResult<()> {
        let jsb = *self.jsb.borrow();
        let done = self.log.recover(&self.sim, &jsb, &self.buffers).await?;
        self.transaction_sequence.set(done.outcome.next);
        self.head.set(done.outcome.head);
        self.last_commit_time
            .set(done.outcome.commit_sec.saturating_mul(1_000_000_000));
        let fast = done.outcome.fast_commits.clone();
        if !fast.is_empty() {
            let Some(apply) = fc_replay else {
                let what = "fast commits to replay";
                return Err(FsError::Unsupported(what.to_owned()));
            };
            (apply.0)(fast).await?;
        }
        self.buffers.write_dirty(None, true).await?;
        if self.barrier.get() {
            self.buffers.flush_device().await?;
        }
        let failed = done.outcome.error;
        *self.recovered.borrow_mut() = Some(done);
        match failed {
            Some(_) => Err(FsError::Errno(Errno::EIO)),
            None => Ok(()),
        }
    }

    /// Log pointers for a log without transactions (kernel `journal_reset`).
    async fn reset(self: &Rc<Self>) -> FsResult<()> {
        let jsb = *self.jsb.borrow();
        let (first, last) = (jsb.s_first, jsb.log_end());
        // The kernel's ext4 always cycles: an empty log goes on where the last mount stopped (`JBD2_CYCLE_RECORD`).
        let mut head = if jsb.s_start == 0 {
            jsb.s_head
        } else {
            self.head.get()
        };
        if head < first || head >= last {
            head = first;
        }
        self.head.set(head);
        self.tail.set(head);
        self.free.set(last - first);
        let tid = self.transaction_sequence.get();
        self.tail_sequence.set(tid);
        self.commit_sequence.set(Tid(tid.0.wrapping_sub(1)));
        self.commit_request.set(self.commit_sequence.get());
        if jsb.s_start == 0 {
            self.flushed.set(true);
            return Ok(());
        }
        self.flushed.set(false);
        let guard = self.checkpoint_mutex.lock().await;
        let flags = BioFlags::SYNC | BioFlags::FUA;
        let res = self.update_sb_log_tail(tid, head, flags).await;
        drop(guard);
        res
    }

    /// Features as ext4 sets them at mount (kernel `set_journal_csum_feature_set`); on disk with the next write of
    /// the journal superblock.
    fn set_features(&self, opts: &JournalOptions) -> FsResult<()> {
        let mut jsb = self.jsb.borrow_mut();
        jsb.s_feature_compat &= !JBD2_FEATURE_COMPAT_CHECKSUM;
        jsb.s_feature_incompat &= !(JBD2_FEATURE_INCOMPAT_CSUM_V2
            | JBD2_FEATURE_INCOMPAT_CSUM_V3
            | JBD2_FEATURE_INCOMPAT_ASYNC_COMMIT);
        match opts.csum {
            JournalCsum::None => {}
            JournalCsum::V1 => jsb.s_feature_compat |= JBD2_FEATURE_COMPAT_CHECKSUM,
            JournalCsum::V3 => {
                jsb.s_feature_incompat |= JBD2_FEATURE_INCOMPAT_CSUM_V3;
                jsb.s_checksum_type = 4;
            }
        }
        if opts.fast_commit {
            jsb.s_feature_incompat |= JBD2_FEATURE_INCOMPAT_FAST_COMMIT;
            if jsb.log_end() < JBD2_MIN_JOURNAL_BLOCKS {
                return Err(FsError::NoSpace);
            }
        }
        if opts.bit64 {
            jsb.s_feature_incompat |= JBD2_FEATURE_INCOMPAT_64BIT;
        }
        if opts.async_commit {
            jsb.s_feature_incompat |= JBD2_FEATURE_INCOMPAT_ASYNC_COMMIT;
        }
        Ok(())
    }

    pub(super) fn need_revoke_feature(&self) {
        self.jsb.borrow_mut().s_feature_incompat |= JBD2_FEATURE_INCOMPAT_REVOKE;
    }

    /// The thread (kernel `kjournald2`): commits what is asked for or too old.
    async fn kjournald2(self: Rc<Self>) {
        loop {
            if self.unmount.get() {
                break;
            }
            if self.commit_sequence.get() != self.commit_request.get() {
                self.commit_transaction().await;
                continue;
            }
            self.wait_done_commit.wake_all();
            if !self.running_is_old() {
                let why = WaitReason::Other("work for the journal");
                self.wait_commit.wait(why).await;
            }
            if self.running_is_old() {
                let tid = self.running.borrow().as_ref().map(|t| t.tid);
                if let Some(tid) = tid {
                    self.commit_request.set(tid);
                }
            }
        }
        self.thread_ended.set(true);
        self.wait_done_commit.wake_all();
    }

    fn running_is_old(&self) -> bool {
        let now = self.sim.now();
        let jiffies = Nanos(now.0 - now.0 % JIFFY.0);
        let running = self.running.borrow();
        running.as_ref().is_some_and(|t| jiffies >= t.expires)
    }

    /// One timer at a time: when it fires early for a younger transaction it is set again.
    pub(super) fn arm_commit_timer(self: &Rc<Self>, at: Nanos) {
        if self.timer_armed.replace(true) {
            return;
        }
        let weak = Rc::downgrade(self);
        self.sim.call_at(at, move || {
            let Some(j) = weak.upgrade() else { return };
            j.timer_armed.set(false);
            let due = j.running.borrow().as_ref().map(|t| t.timer());
            match due {
                Some(due) if due > j.sim.now() => j.arm_commit_timer(due),
                Some(_) => j.wait_commit.wake_all(),
                None => {}
            }
        });
    }

    /// Asks for the commit of `tid` if it is running (kernel `jbd2_log_start_commit`); true if this was news.
    pub fn start_commit(&self, tid: Tid) -> bool {
        let running = self.running.borrow().clone();
        match running {
            Some(t) if t.tid == tid => {
                if self.commit_request.get() == tid {
                    return false;
                }
                self.commit_request.set(tid);
                t.requested.set(Some(self.sim.now()));
                self.wait_commit.wake_all();
                true
            }
            _ => false,
        }
    }

    /// Asks for the commit of the running transaction, else names the one in progress
    /// (kernel `jbd2_journal_start_commit`).
    pub fn start_running_commit(&self) -> Option<Tid> {
        let running = self.running.borrow().as_ref().map(|t| t.tid);
        if let Some(tid) = running {
            self.start_commit(tid);
            return Some(tid);
        }
        self.committing.borrow().as_ref().map(|t| t.tid)
    }

    /// Waits until `tid` is committed (kernel `jbd2_log_wait_commit`). `Aborted` if the journal is.
    pub async fn wait_commit(&self, tid: Tid) -> FsResult<()> {
        let _frame = self.sim.frame("jbd2_log_wait_commit");
        if tid.gt(self.commit_sequence.get()) {
            self.sim.emit(Category::Jbd2, || Event::CommitWait { tid });
        }
        while tid.gt(self.commit_sequence.get()) && !self.thread_ended.get() {
            self.wait_commit.wake_all();
            let why = WaitReason::JournalCommit(tid);
            self.wait_done_commit.wait(why).await;
        }
        if self.is_aborted() {
            return Err(self.aborted_error());
        }
        Ok(())
    }

    /// Commits `tid` if that has not happened (kernel `jbd2_complete_transaction`): what fsync calls.
    pub async fn complete_transaction(&self, tid: Tid) -> FsResult<()> {
        let is = |t: &RefCell<Option<Rc<Transaction>>>| {
            t.borrow().as_ref().is_some_and(|t| t.tid == tid)
        };
        if is(&self.running) {
            self.start_commit(tid);
        } else if !is(&self.committing) {
            return Ok(());
        }
        self.wait_commit(tid).await
    }

    /// Commits the running transaction and waits, or waits for the one in progress
    /// (kernel `jbd2_journal_force_commit`).
    pub async fn force_commit(&self) -> FsResult<()> {
        match self.start_running_commit() {
            Some(tid) => self.wait_commit(tid).await,
            None if self.is_aborted() => Err(self.aborted_error()),
            None => Ok(()),
        }
    }

    /// True if a commit of `tid` will still flush the file system's device, so that fsync need not
    /// (kernel `jbd2_trans_will_send_data_barrier`).
    pub fn trans_will_send_barrier(&self, tid: Tid) -> bool {
        if !self.barrier.get() || self.commit_sequence.get().geq(tid) {
            return false;
        }
        let committing = self.committing.borrow().clone();
        match committing.filter(|t| t.tid == tid) {
            None => true,
            Some(t) if self.log.is_external() => {
                t.need_data_flush.get() && t.state.get() < TState::CommitDflush
            }
            Some(t) => t.state.get() < TState::CommitJflush,
        }
    }

    /// Number of the running transaction.
    pub fn running_tid(&self) -> Option<Tid> {
        self.running.borrow().as_ref().map(|t| t.tid)
    }

    /// The running transaction, else the last one whose commit was asked for
    /// (kernel `jbd2_get_latest_transaction`).
    pub fn latest_tid(&self) -> Tid {
        self.running_tid().unwrap_or(self.commit_request.get())
    }

    /// Newest committed transaction.
    pub fn commit_sequence(&self) -> Tid {
        self.commit_sequence.get()
    }

    /// True if the running or committing transaction is `tid` (kernel checks of `i_sync_tid`).
    pub fn is_live(&self, tid: Tid) -> bool {
        self.live_transaction(tid).is_some()
    }

    /// Most blocks of one transaction (kernel `j_max_transaction_buffers`).
    pub fn max_transaction_buffers(&self) -> u32 {
        let jsb = self.jsb.borrow();
        (jsb.s_maxlen - jsb.fast_commit_blocks()) / self.divisor.get()
    }

    /// Blocks of it kept for descriptors and the commit block (kernel `j_transaction_overhead_buffers`).
    pub(super) fn transaction_overhead(&self) -> u32 {
        let max = self.max_transaction_buffers();
        if self.divisor.get() == 4 {
            return max >> 5;
        }
        let format = self.jsb.borrow().tag_format();
        let head = 12 + 16 + 16 + format.tail_bytes() as u32;
        let tags = (self.block_size() - head) / format.tag_bytes() as u32;
        1 + max.div_ceil(tags)
    }

    /// Most credits handles can have together (kernel `jbd2_max_user_trans_buffers`).
    pub fn max_user_buffers(&self) -> u32 {
        self.max_transaction_buffers()
            .saturating_sub(self.transaction_overhead())
    }

    /// Revoke records per block (kernel `j_revoke_records_per_block`).
    pub fn revoke_records_per_block(&self) -> u32 {
        let format = self.jsb.borrow().tag_format();
        format.revokes_per_block(self.block_size()).max(1)
    }

    /// Free log blocks beyond what the committing transaction may still need
    /// (kernel `jbd2_log_space_left`).
    pub(super) fn log_space_left(&self) -> i32 {
        let mut left = self.free.get() as i32 - 32;
        if let Some(t) = &*self.committing.borrow() {
            left -= t.outstanding_credits.get();
        }
        left.max(0)
    }

    pub(super) fn block_size(&self) -> u32 {
        self.buffers.block_size()
    }

    pub(super) fn data_hook(&self) -> Option<DataHook> {
        self.data_hook.borrow().clone()
    }

    pub(super) fn commit_callback(&self) -> Option<CommitCallback> {
        self.commit_callback.borrow().clone()
    }

    /// Seconds and nanoseconds of a commit made now: the coarse wall clock, never going back within this log.
    pub(super) fn commit_time(&self) -> (u64, u32) {
        let now = self.sim.now();
        let wall = self.wall_clock_base + (now.0 - now.0 % JIFFY.0);
        let t = wall.max(self.last_commit_time.get());
        self.last_commit_time.set(t);
        (t / 1_000_000_000, (t % 1_000_000_000) as u32)
    }

    /// Installs the functions that write ordered file data.
    pub fn set_data_hook(&self, hook: DataHook) {
        *self.data_hook.borrow_mut() = Some(hook);
    }

    /// Calls `f` with each transaction that became durable (kernel `j_commit_callback`): freed blocks may be
    /// allocated again.
    pub fn set_commit_callback(&self, f: Rc<dyn Fn(Tid)>) {
        *self.commit_callback.borrow_mut() = Some(f);
    }

    /// Calls `f` when the handle's transaction is durable. Not called if the journal aborts before.
    pub fn add_commit_callback(&self, h: &super::Handle, f: Box<dyn FnOnce()>) {
        if let Some(t) = h.transaction() {
            t.callbacks.borrow_mut().push(f);
        }
    }

    /// True after an abort.
    pub fn is_aborted(&self) -> bool {
        self.aborted.get().is_some()
    }

    pub(super) fn aborted_error(&self) -> FsError {
        FsError::Aborted(self.aborted.get().unwrap_or(Errno::EIO))
    }

    /// Stops the journal (kernel `jbd2_journal_abort`): nothing more is written to the log except the error in its
    /// superblock; waiters are woken; the first cause is kept.
    pub fn abort(self: &Rc<Self>, cause: Errno) {
        if self.is_aborted() {
            return;
        }
        self.aborted.set(Some(cause));
        if let Some(tid) = self.running_tid() {
            self.start_commit(tid);
        }
        self.wait_transaction_locked.wake_all();
        self.wait_reserved.wake_all();
        self.wait_done_commit.wake_all();
        let j = Rc::clone(self);
        self.sim
            .spawn("jbd2-abort", TaskClass::Kworker, async move {
                // A device that is gone cannot take this either; the abort stands without it.
                let _ = j.write_sb_errno(cause).await;
            });
    }

    /// Brings everything home and marks the log empty (kernel `jbd2_journal_flush`).
    pub async fn flush(self: &Rc<Self>) -> FsResult<()> {
        if let Some(tid) = self.start_running_commit() {
            self.wait_commit(tid).await?;
        }
        self.checkpoint_all().await?;
        if self.is_aborted() {
            return Err(self.aborted_error());
        }
        let guard = self.checkpoint_mutex.lock().await;
        let res = match self.cleanup_journal_tail().await {
            Ok(_) => self.mark_journal_empty(BioFlags::FUA).await,
            Err(e) => Err(e),
        };
        drop(guard);
        res
    }

    async fn checkpoint_all(self: &Rc<Self>) -> FsResult<()> {
        loop {
            let any = !self.checkpoint_transactions.borrow().is_empty();
            if !any {
                return Ok(());
            }
            let mut guard = Some(self.checkpoint_mutex.lock().await);
            self.log_do_checkpoint(&mut guard).await?;
            drop(guard);
        }
    }

    /// Ends the use of the journal (kernel `jbd2_journal_destroy`): stops the thread, commits and checkpoints what
    /// there is, and marks the log empty. The log stays as it is if the journal was aborted.
    pub async fn destroy(self: &Rc<Self>) -> FsResult<()> {
        self.unmount.set(true);
        self.wait_commit.wake_all();
        let why = WaitReason::Other("end of the journal thread");
        self.wait_done_commit
            .wait_until(|| self.thread_ended.get(), why)
            .await;
        if self.running_tid().is_some() {
            self.commit_transaction().await;
        }
        let res = self.checkpoint_all().await;
        if res.is_err() {
            self.destroy_checkpoint();
        }
        if self.is_aborted() {
            return Err(self.aborted_error());
        }
        let guard = self.checkpoint_mutex.lock().await;
        let tid = self.transaction_sequence.get().next();
        self.transaction_sequence.set(tid);
        self.tail_sequence.set(tid);
        let flags = BioFlags::PREFLUSH | BioFlags::FUA;
        let empty = self.mark_journal_empty(flags).await;
        drop(guard);
        res.and(empty)
    }

    /// Lets no new handle start and waits for those open (kernel `jbd2_journal_lock_updates`).
    pub async fn lock_updates(&self) {
        self.barrier_count.set(self.barrier_count.get() + 1);
        let why = WaitReason::Other("journal barrier");
        self.wait_reserved
            .wait_until(|| self.reserved_credits.get() <= 0, why)
            .await;
        let open = || {
            self.running
                .borrow()
                .as_ref()
                .is_some_and(|t| t.updates.get() > 0)
        };
        self.wait_updates.wait_while(open, why).await;
    }

    /// Ends [`Journal::lock_updates`].
    pub fn unlock_updates(&self) {
        self.barrier_count
            .set(self.barrier_count.get().saturating_sub(1));
        self.wait_transaction_locked.wake_all();
    }

    /// Changes `commit=`, `barrier`, `data_err` and the batch times at a remount.
    pub fn set_options(&self, opts: &JournalOptions) {
        self.commit_interval.set(opts.commit_interval);
        self.barrier.set(opts.barrier);
        self.data_err_abort.set(opts.data_err_abort);
        self.min_batch.set(opts.min_batch);
        self.max_batch.set(opts.max_batch);
    }

    /// Counters.
    pub fn stats(&self) -> JournalStats {
        self.stats.borrow().clone()
    }

    /// What recovery did at load, if the log was not empty.
    pub fn recovered(&self) -> Option<Recovered> {
        self.recovered.borrow().clone()
    }

    /// The journal superblock as in memory.
    pub fn superblock(&self) -> JournalSuperblock {
        *self.jsb.borrow()
    }
}
