//! Write access to buffers, dirtying and forgetting them (kernel fs/jbd2/transaction.c).

use super::handle::Handle;
use super::journal::Journal;
use crate::base::{Errno, Tid};
use crate::fs::common::{FsError, FsResult};
use crate::mm::buffer::{Bh, Buffer, JournalList};
use crate::trace::{Category, Event};
use std::rc::Rc;

impl Journal {
    /// Asks to modify a buffer within a handle (kernel `jbd2_journal_get_write_access`). May wait for I/O on the
    /// buffer. If the committing transaction still has to log it, that transaction keeps a frozen copy.
    pub async fn get_write_access(self: &Rc<Self>, h: &mut Handle, b: &Rc<Buffer>) -> FsResult<()> {
        let tid = h.live_tid()?;
        if self.buffers.write_error_since(self.fs_dev_wb_err) {
            // What could not be written home may be read old and logged again (`jbd2_check_fs_dev_write_error`).
            self.abort(Errno::EIO);
            return Err(FsError::Errno(Errno::EIO));
        }
        if write_access_granted(b, tid) {
            return Ok(());
        }
        self.do_get_write_access(h, b, false).await
    }

    /// Asks to fill a new buffer (kernel `jbd2_journal_get_create_access`): it need not be valid.
    pub fn get_create_access(&self, h: &mut Handle, b: &Rc<Buffer>) -> FsResult<()> {
        let tid = h.live_tid()?;
        let owner = b.jh.borrow().transaction;
        match owner {
            None => {
                self.buffers.clear_dirty(b);
                b.jh.borrow_mut().modified = false;
                let t = self.live_transaction(tid).ok_or(FsError::ReadOnly)?;
                self.file_buffer(b, &t, JournalList::Reserved);
            }
            Some(o) if o != tid => {
                let mut jh = b.jh.borrow_mut();
                jh.modified = false;
                jh.next_transaction = Some(tid);
            }
            Some(_) => {}
        }
        self.cancel_revoke(b.blocknr);
        Ok(())
    }

    /// Write access to a bitmap whose committed contents must stay readable
    /// (kernel `jbd2_journal_get_undo_access`).
    pub async fn get_undo_access(&self, h: &mut Handle, b: &Rc<Buffer>) -> FsResult<()> {
        let tid = h.live_tid()?;
        let kept = b.jh.borrow().committed.is_some();
        if kept && write_access_granted(b, tid) {
            return Ok(());
        }
        self.do_get_write_access(h, b, true).await?;
        let missing = b.jh.borrow().committed.is_none();
        if missing {
            let copy = Box::new(b.payload());
            b.jh.borrow_mut().committed = Some(copy);
        }
        Ok(())
    }

    async fn do_get_write_access(
        &self,
        h: &mut Handle,
        b: &Rc<Buffer>,
        force_copy: bool,
    ) -> FsResult<()> {
        self.sim.charge(self.costs.access).await;
        loop {
            self.buffers.wait_unlocked(b).await;
            let tid = h.live_tid()?;
            if self.buffers.clear_dirty(b) {
                b.set(Bh::JBDDIRTY);
            }
            let (owner, next, frozen, list) = {
                let jh = b.jh.borrow();
                (
                    jh.transaction,
                    jh.next_transaction,
                    jh.frozen.is_some(),
                    jh.list,
                )
            };
            if owner == Some(tid) || next == Some(tid) {
                break;
            }
            if owner.is_some() && !frozen && b.test(Bh::SHADOW) {
                self.buffers.wait_shadow(b).await;
                continue;
            }
            b.jh.borrow_mut().modified = false;
            if owner.is_none() {
                let t = self.live_transaction(tid).ok_or(FsError::ReadOnly)?;
                self.file_buffer(b, &t, JournalList::Reserved);
                break;
            }
            if !frozen && (list == JournalList::Metadata || force_copy) {
                // The copy is a shared payload; what the kernel's memcpy costs is charged below.
                let copy = Box::new(b.payload());
                b.jh.borrow_mut().frozen = Some(copy);
                b.jh.borrow_mut().next_transaction = Some(tid);
                self.cancel_revoke(b.blocknr);
                self.sim.charge(self.costs.copy_block).await;
                return Ok(());
            }
            b.jh.borrow_mut().next_transaction = Some(tid);
            break;
        }
        self.cancel_revoke(b.blocknr);
        Ok(())
    }

    /// The buffer was modified and is part of the handle's update (kernel `jbd2_journal_dirty_metadata`). Uses one
    /// credit the first time in a transaction. The file system must have write access.
    pub fn dirty_metadata(&self, h: &mut Handle, b: &Rc<Buffer>) -> FsResult<()> {
        let tid = h.live_tid()?;
        let (owner, next, modified, list) = {
            let jh = b.jh.borrow();
            (jh.transaction, jh.next_transaction, jh.modified, jh.list)
        };
        if owner != Some(tid) && next != Some(tid) {
            return Err(FsError::Errno(Errno::EUCLEAN));
        }
        if !modified {
            if !h.use_credit() {
                return Err(FsError::NoSpace);
            }
            b.jh.borrow_mut().modified = true;
            let block = b.blocknr;
            self.sim
                .emit(Category::Jbd2, || Event::BlockJoined { tid, block });
        }
        if owner == Some(tid) && list == JournalList::Metadata {
            return Ok(());
        }
        b.set(Bh::JBDDIRTY);
        if owner != Some(tid) {
            // The committing transaction is not done with it: refiled when that has ended.
            return Ok(());
        }
        let t = self.live_transaction(tid).ok_or(FsError::ReadOnly)?;
        self.file_buffer(b, &t, JournalList::Metadata);
        Ok(())
    }

    /// The block was freed: its contents need neither be logged nor written home
    /// (kernel `jbd2_journal_forget`). Gives back the credit if this transaction had used one.
    pub fn forget(&self, h: &mut Handle, b: &Rc<Buffer>) -> FsResult<()> {
        let tid = h.live_tid()?;
        let (owner, next, cp, was_modified) = {
            let mut jh = b.jh.borrow_mut();
            if jh.committed.is_some() {
                // A bitmap: the kernel refuses to delete one.
                return Err(FsError::Errno(Errno::EIO));
            }
            let was = std::mem::take(&mut jh.modified);
            (jh.transaction, jh.next_transaction, jh.cp_transaction, was)
        };
        let block = b.blocknr;
        self.sim
            .emit(Category::Jbd2, || Event::BlockForgotten { tid, block });
        match owner {
            Some(o) if o == tid => {
                self.buffers.clear_dirty(b);
                b.clear(Bh::JBDDIRTY);
                if was_modified {
                    h.return_credit();
                }
                if cp.is_some() {
                    // An older copy in the log needs this commit before its checkpoint is settled.
                    self.refile_forget(b, tid);
                } else {
                    self.unfile_buffer(b);
                    self.buffers.bforget(b);
                }
            }
            Some(_) => {
                b.set(Bh::FREED);
                if next.is_none() {
                    b.jh.borrow_mut().next_transaction = Some(tid);
                } else if was_modified {
                    h.return_credit();
                }
            }
            None if cp.is_none() => self.buffers.bforget(b),
            None if !b.dirty() && !b.locked() => {
                self.remove_checkpoint(b);
                self.buffers.bforget(b);
            }
            None => {
                self.buffers.clear_dirty(b);
                self.refile_forget(b, tid);
            }
        }
        Ok(())
    }

    /// A journalled file block was truncated away (kernel `journal_unmap_buffer`): it must neither be logged by the
    /// running transaction nor reach its home later than the truncation commits. True if nobody holds the buffer
    /// any more. With `partial` the folio stays in use: false means that the caller has to wait for the commit.
    pub fn invalidate_buffer(&self, b: &Rc<Buffer>, partial: bool) -> bool {
        let (owner, cp) = {
            let jh = b.jh.borrow();
            (jh.transaction, jh.cp_transaction.is_some())
        };
        let running = self.running_tid();
        match owner {
            None if !cp => {}
            None if !b.dirty() && !b.locked() => {
                self.remove_checkpoint(b);
            }
            None => {
                // Not home yet: the checkpoint may be dropped only when the truncation has committed.
                let committing = self.committing.borrow().as_ref().map(|t| t.tid);
                let Some(tid) = running.or(committing) else {
                    self.remove_checkpoint(b);
                    self.buffers.bforget(b);
                    return true;
                };
                self.buffers.clear_dirty(b);
                self.refile_forget(b, tid);
                return false;
            }
            Some(o) if Some(o) != running => {
                if partial {
                    return false;
                }
                b.set(Bh::FREED);
                if let (Some(tid), true) = (running, b.test(Bh::JBDDIRTY)) {
                    b.jh.borrow_mut().next_transaction = Some(tid);
                }
                b.jh.borrow_mut().modified = false;
                return false;
            }
            Some(o) => {
                b.jh.borrow_mut().modified = false;
                self.buffers.clear_dirty(b);
                b.clear(Bh::JBDDIRTY);
                if cp {
                    self.refile_forget(b, o);
                    return false;
                }
                self.unfile_buffer(b);
            }
        }
        self.buffers.bforget(b);
        true
    }

    fn refile_forget(&self, b: &Rc<Buffer>, tid: Tid) {
        if let Some(t) = self.live_transaction(tid) {
            self.file_buffer(b, &t, JournalList::Forget);
        }
    }
}

/// True if `b` is attached to transaction `tid` already (kernel `jbd2_write_access_granted`).
fn write_access_granted(b: &Rc<Buffer>, tid: Tid) -> bool {
    let jh = b.jh.borrow();
    !b.dirty() && (jh.transaction == Some(tid) || jh.next_transaction == Some(tid))
}
