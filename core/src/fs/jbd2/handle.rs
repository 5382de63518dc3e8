//! Handles: start, extend, restart, stop, and the credit rules by which transactions close
//! (kernel fs/jbd2/transaction.c).

use super::journal::Journal;
use super::transaction::{TState, Transaction, JIFFY};
use crate::base::{Errno, Nanos, Tid};
use crate::fs::common::{FsError, FsResult};
use crate::sim::WaitReason;
use crate::trace::{Category, Event};
use std::rc::Rc;

/// What a handle is for (kernel `EXT4_HT_*`, fs/ext4/ext4_jbd2.h), as `jbd2_handle_stats` reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
#[allow(missing_docs, reason = "the names are their documentation")]
pub enum HandleType {
    Misc,
    Inode,
    WritePage,
    MapBlocks,
    Dir,
    Truncate,
    Quota,
    Resize,
    Migrate,
    MoveExtents,
    Xattr,
    ExtConvert,
}

impl HandleType {
    /// Number of types.
    pub const COUNT: usize = 12;

    /// All types in order of their numbers.
    pub const ALL: [HandleType; HandleType::COUNT] = [
        HandleType::Misc,
        HandleType::Inode,
        HandleType::WritePage,
        HandleType::MapBlocks,
        HandleType::Dir,
        HandleType::Truncate,
        HandleType::Quota,
        HandleType::Resize,
        HandleType::Migrate,
        HandleType::MoveExtents,
        HandleType::Xattr,
        HandleType::ExtConvert,
    ];

    /// The name, as kernel-lab prints it.
    pub fn name(self) -> &'static str {
        match self {
            HandleType::Misc => "misc",
            HandleType::Inode => "inode",
            HandleType::WritePage => "write_page",
            HandleType::MapBlocks => "map_blocks",
            HandleType::Dir => "dir",
            HandleType::Truncate => "truncate",
            HandleType::Quota => "quota",
            HandleType::Resize => "resize",
            HandleType::Migrate => "migrate",
            HandleType::MoveExtents => "move_extents",
            HandleType::Xattr => "xattr",
            HandleType::ExtConvert => "ext_convert",
        }
    }
}

/// One atomic update (kernel `struct jbd2_journal_handle`, include/linux/jbd2.h). Passed explicitly where the
/// kernel keeps it in `current->journal_info`. Must be given to [`Journal::stop`]; one that is dropped on an error
/// path gives its credits back but never waits.
pub struct Handle {
    journal: Option<Rc<Journal>>,
    transaction: Option<Rc<Transaction>>,
    total_credits: i32,
    requested_credits: i32,
    revoke_credits: i32,
    revoke_credits_requested: i32,
    reserved: bool,
    rsv: Option<Box<Handle>>,
    ty: HandleType,
    started: Nanos,
    aborted: bool,
    /// The task shall wait at stop until the transaction is on disk (`h_sync`).
    pub sync: bool,
}

impl Handle {
    /// A handle of a file system without a journal: everything is allowed and nothing logged.
    pub fn nojournal() -> Handle {
        Handle::new(None, HandleType::Misc, 0)
    }

    fn new(journal: Option<Rc<Journal>>, ty: HandleType, credits: i32) -> Handle {
        Handle {
            journal,
            transaction: None,
            total_credits: credits,
            requested_credits: 0,
            revoke_credits: 0,
            revoke_credits_requested: 0,
            reserved: false,
            rsv: None,
            ty,
            started: Nanos::ZERO,
            aborted: false,
            sync: false,
        }
    }

    /// True if it belongs to a journal (kernel `ext4_handle_valid`).
    pub fn is_journalled(&self) -> bool {
        self.journal.is_some()
    }

    /// Its transaction's number; `None` without a journal.
    pub fn tid(&self) -> Option<Tid> {
        self.transaction.as_ref().map(|t| t.tid)
    }

    /// What it is for.
    pub fn handle_type(&self) -> HandleType {
        self.ty
    }

    /// Credits left for metadata blocks (kernel `jbd2_handle_buffer_credits`).
    pub fn buffer_credits(&self) -> u32 {
        let Some(j) = &self.journal else {
            return u32::MAX;
        };
        let revoke = div_round_up(self.revoke_credits, j.revoke_records_per_block());
        (self.total_credits - revoke).max(0) as u32
    }

    /// Revoke records it may still make.
    pub fn revoke_credits(&self) -> u32 {
        if self.journal.is_none() {
            return u32::MAX;
        }
        self.revoke_credits.max(0) as u32
    }

    /// Makes every later use fail (kernel `jbd2_journal_abort_handle`).
    pub fn abort(&mut self) {
        self.aborted = true;
    }

    /// True if it or its journal was aborted (kernel `is_handle_aborted`).
    pub fn is_aborted(&self) -> bool {
        match &self.journal {
            None => false,
            Some(j) => self.aborted || self.transaction.is_none() || j.is_aborted(),
        }
    }

    /// Takes the reserved handle that was asked for at start, to be started later with
    /// [`Journal::start_reserved`] (for example when I/O has ended).
    pub fn take_reserved(&mut self) -> Option<Handle> {
        self.rsv.take().map(|h| *h)
    }

    pub(super) fn transaction(&self) -> Option<&Rc<Transaction>> {
        self.transaction.as_ref()
    }

    pub(super) fn use_credit(&mut self) -> bool {
        if self.buffer_credits() == 0 {
            return false;
        }
        self.total_credits -= 1;
        true
    }

    pub(super) fn return_credit(&mut self) {
        self.total_credits += 1;
    }

    pub(super) fn use_revoke_credit(&mut self) {
        self.revoke_credits -= 1;
    }

    fn live(&self) -> FsResult<(&Rc<Journal>, &Rc<Transaction>)> {
        match (&self.journal, &self.transaction) {
            (Some(j), Some(t)) if !self.is_aborted() => Ok((j, t)),
            _ => Err(FsError::ReadOnly),
        }
    }

    pub(super) fn live_tid(&self) -> FsResult<Tid> {
        self.live().map(|(_, t)| t.tid)
    }

    /// Gives credits back and leaves the transaction (kernel `stop_this_handle`).
    fn detach(&mut self) {
        if let (true, Some(j)) = (self.reserved, &self.journal) {
            j.sub_reserved_credits(self.total_credits);
            self.reserved = false;
        }
        self.rsv = None;
        let (Some(j), Some(t)) = (&self.journal, self.transaction.take()) else {
            return;
        };
        let revokes = self.revoke_credits_requested - self.revoke_credits;
        if revokes > 0 {
            let per_block = j.revoke_records_per_block();
            let before = t.outstanding_revokes.get() as i32;
            t.outstanding_revokes.set((before + revokes) as u32);
            let blocks =
                div_round_up(before + revokes, per_block) - div_round_up(before, per_block);
            self.total_credits -= blocks;
        }
        t.add_credits(-self.total_credits);
        self.total_credits = 0;
        t.updates.set(t.updates.get() - 1);
        if t.updates.get() == 0 {
            j.wait_updates.wake_all();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.detach();
    }
}

pub(super) fn div_round_up(n: i32, by: u32) -> i32 {
    (n + by as i32 - 1) / by as i32
}

impl Journal {
    /// Starts a handle with `credits` blocks and `revoke_credits` revoke records (kernel `jbd2__journal_start`).
    /// May wait for a locked transaction or for log space. Ends with `ReadOnly` on an aborted journal and with
    /// `NoSpace` if more is asked for than a transaction can hold.
    pub async fn start(
        self: &Rc<Self>,
        ty: HandleType,
        credits: u32,
        revoke_credits: u32,
    ) -> FsResult<Handle> {
        self.start_with_reserve(ty, credits, 0, revoke_credits)
            .await
    }

    /// As [`Journal::start`], with a second handle of `rsv` credits kept back ([`Handle::take_reserved`]).
    pub async fn start_with_reserve(
        self: &Rc<Self>,
        ty: HandleType,
        credits: u32,
        rsv: u32,
        revoke_credits: u32,
    ) -> FsResult<Handle> {
        let revoke = div_round_up(revoke_credits as i32, self.revoke_records_per_block());
        let mut h = Handle::new(Some(Rc::clone(self)), ty, credits as i32 + revoke);
        h.revoke_credits = revoke_credits as i32;
        self.start_this_handle(&mut h, rsv as i32).await?;
        Ok(h)
    }

    /// Starts a reserved handle (kernel `jbd2_journal_start_reserved`): joins even a locked transaction and does
    /// not wait for log space.
    pub async fn start_reserved(self: &Rc<Self>, h: &mut Handle, ty: HandleType) -> FsResult<()> {
        if !h.reserved {
            return Err(FsError::Errno(Errno::EIO));
        }
        h.ty = ty;
        self.start_this_handle(h, 0).await
    }

    /// Tries to add credits (kernel `jbd2_journal_extend`); false if the transaction is full or locked.
    pub fn extend(&self, h: &mut Handle, credits: u32, revoke_credits: u32) -> FsResult<bool> {
        if !h.is_journalled() {
            return Ok(true);
        }
        let t = Rc::clone(h.live()?.1);
        if t.state.get() != TState::Running {
            return Ok(false);
        }
        let per_block = self.revoke_records_per_block();
        let revoke = revoke_credits as i32;
        let blocks = credits as i32 + div_round_up(h.revoke_credits_requested + revoke, per_block)
            - div_round_up(h.revoke_credits_requested, per_block);
        if t.add_credits(blocks) > self.max_transaction_buffers() as i32 {
            t.add_credits(-blocks);
            return Ok(false);
        }
        h.total_credits += blocks;
        h.requested_credits += blocks;
        h.revoke_credits += revoke;
        h.revoke_credits_requested += revoke;
        Ok(true)
    }

    /// Ends the handle's part in its transaction, asks for the commit of that, and starts anew with `credits`
    /// (kernel `jbd2__journal_restart`). Does nothing on an aborted journal. A reserved handle is kept.
    pub async fn restart(
        self: &Rc<Self>,
        h: &mut Handle,
        credits: u32,
        revoke_credits: u32,
    ) -> FsResult<()> {
        if !h.is_journalled() || h.is_aborted() {
            return Ok(());
        }
        let tid = h.live_tid()?;
        let rsv = h.rsv.take();
        h.detach();
        self.start_commit(tid);
        let revoke = div_round_up(revoke_credits as i32, self.revoke_records_per_block());
        h.total_credits = credits as i32 + revoke;
        h.revoke_credits = revoke_credits as i32;
        let res = self.start_this_handle(h, 0).await;
        h.rsv = rsv;
        res
    }

    async fn start_this_handle(self: &Rc<Self>, h: &mut Handle, rsv: i32) -> FsResult<()> {
        let blocks = h.total_credits;
        let max = self.max_user_buffers() as i32;
        if rsv > max / 2 || rsv + blocks > max {
            return Err(FsError::NoSpace);
        }
        self.sim.charge(self.costs.handle_start).await;
        let t = loop {
            if self.is_aborted() {
                h.total_credits = if h.reserved { h.total_credits } else { 0 };
                return Err(FsError::ReadOnly);
            }
            if !h.reserved && self.barrier_count.get() > 0 {
                let why = WaitReason::Other("journal barrier");
                self.wait_transaction_locked.wait(why).await;
                continue;
            }
            let running = self.running.borrow().clone();
            let t = running.unwrap_or_else(|| self.get_transaction());
            if h.reserved {
                if t.state.get() == TState::Switch {
                    let why = WaitReason::JournalCommit(t.tid);
                    self.wait_transaction_locked.wait(why).await;
                    continue;
                }
                self.sub_reserved_credits(blocks);
                h.reserved = false;
                break t;
            }
            if self.add_transaction_credits(&t, blocks, rsv).await {
                break t;
            }
        };
        if rsv > 0 {
            let mut r = Handle::new(Some(Rc::clone(self)), h.ty, rsv);
            r.reserved = true;
            h.rsv = Some(Box::new(r));
        }
        h.requested_credits = blocks;
        h.revoke_credits_requested = h.revoke_credits;
        h.started = self.sim.now();
        t.updates.set(t.updates.get() + 1);
        t.handle_count.set(t.handle_count.get() + 1);
        self.sim.emit(Category::Jbd2, || Event::HandleStart {
            tid: t.tid,
            ty: h.ty as u16,
            credits: blocks as u32,
        });
        h.transaction = Some(t);
        Ok(())
    }

    /// Reserves room in the running transaction (kernel `add_transaction_credits`). False if it had to wait: the
    /// caller starts over, as the transaction may be another one now.
    async fn add_transaction_credits(
        self: &Rc<Self>,
        t: &Rc<Transaction>,
        blocks: i32,
        rsv: i32,
    ) -> bool {
        let total = blocks + rsv;
        let max = self.max_transaction_buffers() as i32;
        let user = self.max_user_buffers() as i32;
        if t.state.get() != TState::Running {
            self.wait_locked(t, 2).await;
            return false;
        }
        if t.add_credits(total) > max {
            t.add_credits(-total);
            if self.reserved_credits.get() + total > user {
                self.wait_reserved(|| self.reserved_credits.get() + total <= user)
                    .await;
            } else {
                self.wait_locked(t, 3).await;
            }
            return false;
        }
        if self.log_space_left() < max {
            t.add_credits(-total);
            let tid = t.tid;
            self.sim
                .emit(Category::Jbd2, || Event::HandleWait { tid, why: 1 });
            self.log_wait_for_space().await;
            return false;
        }
        if rsv > 0 {
            let sum = self.reserved_credits.get() + rsv;
            if sum > user / 2 {
                t.add_credits(-total);
                self.wait_reserved(|| self.reserved_credits.get() + rsv <= user / 2)
                    .await;
                return false;
            }
            self.reserved_credits.set(sum);
        }
        true
    }

    async fn wait_reserved(&self, mut free: impl FnMut() -> bool) {
        let why = WaitReason::Other("reserved journal credits");
        self.wait_reserved
            .wait_until(|| free() || self.is_aborted(), why)
            .await;
    }

    /// Waits until the running transaction has passed its switch, asking for its commit if nobody has
    /// (kernel `wait_transaction_locked`).
    async fn wait_locked(&self, t: &Rc<Transaction>, why: u8) {
        let tid = t.tid;
        self.sim
            .emit(Category::Jbd2, || Event::HandleWait { tid, why });
        if !self.commit_request.get().geq(tid) {
            self.start_commit(tid);
        }
        self.wait_transaction_locked
            .wait(WaitReason::JournalCommit(tid))
            .await;
    }

    pub(super) fn sub_reserved_credits(&self, blocks: i32) {
        self.reserved_credits
            .set(self.reserved_credits.get() - blocks);
        self.wait_reserved.wake_all();
    }

    /// Ends a handle (kernel `jbd2_journal_stop`). With `h.sync` it may first wait a little so that others can
    /// join, then waits until the transaction is durable.
    pub async fn stop(self: &Rc<Self>, mut h: Handle) -> FsResult<()> {
        let Some(t) = h.transaction.clone() else {
            return Ok(());
        };
        let failed = h.is_aborted();
        self.sim.charge(self.costs.handle_stop).await;
        self.count_handle(&h, t.tid);
        if h.sync {
            self.batch_sync_handles(&t).await;
            t.synchronous.set(true);
        }
        let now = self.sim.now();
        let jiffies = Nanos(now.0 - now.0 % JIFFY.0);
        if h.sync || jiffies >= t.expires {
            self.start_commit(t.tid);
        }
        let sync = h.sync;
        h.detach();
        if sync {
            return self.wait_commit(t.tid).await;
        }
        if failed {
            return Err(self.aborted_error());
        }
        Ok(())
    }

    fn count_handle(&self, h: &Handle, tid: Tid) {
        let interval = self.sim.now() - h.started;
        let dirtied = (h.requested_credits - h.total_credits).max(0);
        let requested = h.requested_credits;
        {
            let mut stats = self.stats.borrow_mut();
            let s = &mut stats.handles_by_type[h.ty as usize];
            s.count += 1;
            s.sync += u64::from(h.sync);
            s.requested += requested.max(0) as u64;
            s.dirtied += dirtied as u64;
            s.interval += interval;
        }
        self.sim.emit(Category::Jbd2, || Event::HandleStop {
            tid,
            ty: h.ty as u16,
            requested: requested.min(0xffff) as u16,
            dirtied: dirtied.min(0xffff) as u16,
            interval_us: (interval.0 / 1_000).min(u64::from(u32::MAX)) as u32,
        });
    }

    /// Lets others join before a synchronous commit, for as long as commits take, unless the same task was the
    /// last to do so.
    async fn batch_sync_handles(&self, t: &Rc<Transaction>) {
        let me = self.sim.current();
        let max = self.max_batch.get();
        if self.last_sync_writer.get() == Some(me) || max == Nanos::ZERO {
            return;
        }
        self.last_sync_writer.set(Some(me));
        let average = self.average_commit_time.get();
        let wait = average.max(self.min_batch.get()).min(max);
        if self.sim.now() - t.start < wait {
            let why = WaitReason::Other("others to join the commit");
            self.sim.sleep(wait, why).await;
        }
    }
}
