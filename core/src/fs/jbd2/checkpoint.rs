//! Checkpointing: bringing logged buffers home so that the log can be reused (kernel fs/jbd2/checkpoint.c).

use super::journal::Journal;
use super::transaction::{TState, Transaction};
use crate::base::{Nanos, Tid};
use crate::fs::common::{FsError, FsResult};
use crate::mm::buffer::{Bh, Buffer};
use crate::sim::sync::LockGuard;
use crate::trace::{Category, Event};
use std::rc::Rc;

/// Buffers written under one plug (kernel `JBD2_NR_BATCH`).
const NR_BATCH: usize = 64;

/// What a look at a buffer of a checkpoint list leads to.
enum Step {
    /// It belongs to a newer transaction: that has to commit first.
    Wait(Tid),
    /// I/O is in flight.
    Locked(Rc<Buffer>),
    /// It is home: taken off; true if that was the last of the transaction.
    Removed(bool),
    /// It has to be written.
    Queue(Rc<Buffer>),
}

impl Journal {
    /// Waits until the log has room for a whole transaction (kernel `__jbd2_log_wait_for_space`): checkpoints the
    /// oldest transaction in the context of the caller, else moves the tail, else waits for the commit in progress.
    /// If nothing helps the journal is aborted.
    pub(super) async fn log_wait_for_space(self: &Rc<Self>) {
        let need = self.max_transaction_buffers() as i32;
        let _frame = self.sim.frame("jbd2_log_wait_for_space");
        self.stats.borrow_mut().log_space_waits += 1;
        while self.log_space_left() < need {
            let mut guard = Some(self.checkpoint_mutex.lock().await);
            if self.is_aborted() {
                return;
            }
            if self.log_space_left() >= need {
                continue;
            }
            let committing = self.committing.borrow().as_ref().map(|t| t.tid);
            let any = !self.checkpoint_transactions.borrow().is_empty();
            if any {
                let _ = self.log_do_checkpoint(&mut guard).await;
            } else if matches!(self.cleanup_journal_tail().await, Ok(false)) {
                drop(guard.take());
                match committing {
                    Some(tid) => {
                        let _ = self.wait_commit(tid).await;
                    }
                    None => self.abort(crate::base::Errno::EIO),
                }
            }
        }
    }

    /// Checkpoints the oldest finished transaction (kernel `jbd2_log_do_checkpoint`). `guard` holds
    /// `j_checkpoint_mutex`; it is given up while waiting for a commit.
    pub(super) async fn log_do_checkpoint(
        self: &Rc<Self>,
        guard: &mut Option<LockGuard>,
    ) -> FsResult<()> {
        let _frame = self.sim.frame("jbd2_log_do_checkpoint");
        if self.cleanup_journal_tail().await? {
            return Ok(());
        }
        let oldest = self.checkpoint_transactions.borrow().front().cloned();
        let Some(t) = oldest else {
            return Ok(());
        };
        if t.chp_start.get().is_none() {
            t.chp_start.set(Some(self.sim.now()));
        }
        let mut batch: Vec<Rc<Buffer>> = Vec::new();
        let mut at = u32::MAX;
        loop {
            let step = self.checkpoint_step(&t, &mut at);
            match step {
                None | Some(Step::Removed(true)) => break,
                Some(Step::Removed(false)) => {}
                Some(Step::Locked(b)) => {
                    self.flush_batch(&t, &mut batch).await;
                    self.buffers.wait_unlocked(&b).await;
                }
                Some(Step::Wait(tid)) => {
                    self.flush_batch(&t, &mut batch).await;
                    self.stats.borrow_mut().checkpoint.forced_to_close += 1;
                    self.start_commit(tid);
                    drop(guard.take());
                    let _ = self.wait_commit(tid).await;
                    *guard = Some(self.checkpoint_mutex.lock().await);
                }
                Some(Step::Queue(b)) => {
                    batch.push(b);
                    let lap = t.checkpoint.borrow().at_or_older(at);
                    let round = lap.is_some_and(|(_, next)| Rc::ptr_eq(&next, &batch[0]));
                    if batch.len() == NR_BATCH || round {
                        self.flush_batch(&t, &mut batch).await;
                    }
                }
            }
            if !self.is_oldest(&t) {
                break;
            }
        }
        self.flush_batch(&t, &mut batch).await;
        self.cleanup_journal_tail().await.map(|_| ())
    }

    fn is_oldest(&self, t: &Rc<Transaction>) -> bool {
        let list = self.checkpoint_transactions.borrow();
        list.front().is_some_and(|o| Rc::ptr_eq(o, t))
    }

    /// Looks at the next buffer of `t`, newest first and around, as the kernel's list goes. `None` at its end.
    fn checkpoint_step(&self, t: &Rc<Transaction>, at: &mut u32) -> Option<Step> {
        let (here, b) = t.checkpoint.borrow().at_or_older(*at)?;
        let owner = b.jh.borrow().transaction;
        if let Some(tid) = owner {
            *at = here;
            return Some(Step::Wait(tid));
        }
        if b.locked() {
            *at = here;
            return Some(Step::Locked(b));
        }
        *at = here.checked_sub(1).unwrap_or(u32::MAX);
        if b.dirty() {
            return Some(Step::Queue(b));
        }
        let last = self.remove_checkpoint(&b) || t.checkpoint.borrow().is_empty();
        Some(Step::Removed(last))
    }

    /// Submits a batch under one plug (kernel `__flush_batch`).
    async fn flush_batch(&self, t: &Transaction, batch: &mut Vec<Rc<Buffer>>) {
        if batch.is_empty() {
            return;
        }
        let tid = t.tid;
        let cost = self.costs.log_block.0 * batch.len() as u64;
        self.sim.charge(Nanos(cost)).await;
        for b in batch.iter() {
            let block = b.blocknr;
            self.sim
                .emit(Category::Checkpoint, || Event::CheckpointPicked {
                    tid,
                    block,
                });
        }
        self.stats.borrow_mut().checkpoint.written += batch.len() as u64;
        self.buffers.write_batch(batch).await;
        batch.clear();
    }

    /// Moves the tail past transactions that need no checkpoint any more (kernel `jbd2_cleanup_journal_tail`):
    /// flushes the file system's device first. `Ok(true)` if it moved. Needs `j_checkpoint_mutex`.
    pub(super) async fn cleanup_journal_tail(self: &Rc<Self>) -> FsResult<bool> {
        if self.is_aborted() {
            return Err(self.aborted_error());
        }
        let (tid, block) = self.log_tail();
        if !tid.gt(self.tail_sequence.get()) {
            return Ok(false);
        }
        if self.barrier.get() {
            // The kernel ignores the result of this flush as well; a failed device fails the next write.
            let _ = self.buffers.flush_device().await;
        }
        self.update_log_tail_locked(tid, block).await?;
        Ok(true)
    }

    /// Drops written-back buffers from the checkpoint lists, oldest transaction first, until one has to stay
    /// (kernel `__jbd2_journal_clean_checkpoint_list`).
    pub(super) fn clean_checkpoint_list(&self) {
        loop {
            let oldest = self.checkpoint_transactions.borrow().front().cloned();
            let Some(t) = oldest else { return };
            if !self.shrink_one(&t, false) {
                return;
            }
        }
    }

    /// Takes clean buffers off one list; true if the transaction is gone. With `destroy` all of them.
    fn shrink_one(&self, t: &Rc<Transaction>, destroy: bool) -> bool {
        loop {
            let top = t.checkpoint.borrow().at_or_older(u32::MAX);
            let Some((_, b)) = top else { return false };
            let busy = b.jh.borrow().transaction.is_some() || b.locked() || b.dirty();
            if busy && !destroy {
                return false;
            }
            if self.remove_checkpoint(&b) {
                return true;
            }
        }
    }

    /// Forgets all checkpoints of an aborted journal (kernel `jbd2_journal_destroy_checkpoint`).
    pub(super) fn destroy_checkpoint(&self) {
        loop {
            let oldest = self.checkpoint_transactions.borrow().front().cloned();
            let Some(t) = oldest else { return };
            if !self.shrink_one(&t, true) {
                return;
            }
        }
    }

    /// Takes `b` off its checkpoint list (kernel `__jbd2_journal_remove_checkpoint`); true if its transaction is
    /// gone from the log with that.
    pub(super) fn remove_checkpoint(&self, b: &Rc<Buffer>) -> bool {
        let (cp, at) = {
            let mut jh = b.jh.borrow_mut();
            (jh.cp_transaction.take(), jh.cp_at)
        };
        let Some(tid) = cp else { return false };
        if b.test(Bh::WRITE_EIO) {
            self.checkpoint_io_error.set(true);
        }
        let Some(t) = self.find_checkpoint(tid) else {
            return false;
        };
        t.checkpoint.borrow_mut().remove(at);
        let block = b.blocknr;
        // Clean and unowned: it reached its home. Else a newer copy in the log replaces it.
        let is_home = b.jh.borrow().transaction.is_none();
        self.sim.emit(Category::Checkpoint, || {
            if is_home {
                Event::CheckpointWritten { tid, block }
            } else {
                Event::CheckpointDropped { tid, block }
            }
        });
        if !t.checkpoint.borrow().is_empty() || t.state.get() != TState::Finished {
            return false;
        }
        let mut stats = self.stats.borrow_mut();
        stats.checkpoint.count += 1;
        if let Some(start) = t.chp_start.get() {
            stats.checkpoint.time += self.sim.now() - start;
        }
        drop(stats);
        self.drop_transaction(&t);
        true
    }

    fn find_checkpoint(&self, tid: Tid) -> Option<Rc<Transaction>> {
        let list = self.checkpoint_transactions.borrow();
        let first = list.front().map_or(tid, |t| t.tid);
        let key = |t: Tid| t.0.wrapping_sub(first.0);
        if let Ok(i) = list.binary_search_by_key(&key(tid), |t| key(t.tid)) {
            return Some(Rc::clone(&list[i]));
        }
        let committing = self.committing.borrow();
        committing.as_ref().filter(|t| t.tid == tid).map(Rc::clone)
    }

    /// The transaction needs the log no longer (kernel `__jbd2_journal_drop_transaction`).
    pub(super) fn drop_transaction(&self, t: &Rc<Transaction>) {
        let mut list = self.checkpoint_transactions.borrow_mut();
        let first = list.front().map_or(t.tid, |t| t.tid);
        let key = |t: Tid| t.0.wrapping_sub(first.0);
        if let Ok(i) = list.binary_search_by_key(&key(t.tid), |t| key(t.tid)) {
            list.remove(i);
        }
    }

    /// Gives up pending checkpoints where a write home failed (kernel `jbd2_check_fs_dev_write_error`).
    pub(super) fn check_checkpoint_error(&self) -> FsResult<()> {
        if self.checkpoint_io_error.get() {
            return Err(FsError::Io(crate::block::IoError::Medium));
        }
        Ok(())
    }
}

/// Remembers that `b` has to reach its home before `t` can leave the log
/// (kernel `__jbd2_journal_insert_checkpoint`).
pub(super) fn insert_checkpoint(b: &Rc<Buffer>, t: &Transaction) {
    let at = t.checkpoint.borrow_mut().push(Rc::clone(b));
    let mut jh = b.jh.borrow_mut();
    jh.cp_transaction = Some(t.tid);
    jh.cp_at = at;
}
