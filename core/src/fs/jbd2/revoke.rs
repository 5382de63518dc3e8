//! Revoke records of the running and the committing transaction (kernel fs/jbd2/revoke.c).
//!
//! A freed metadata block that is reused for file contents must not be overwritten by an older copy in the log: the
//! freeing transaction revokes it. Logging the block again in the same transaction cancels that.

use super::handle::Handle;
use super::journal::Journal;
use crate::base::FsBlock;
use crate::fs::common::FsResult;
use crate::mm::buffer::Buffer;
use crate::trace::{Category, Event};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

/// The two tables; they switch roles at each commit.
#[derive(Default)]
pub(super) struct RevokeTables {
    running: RefCell<BTreeSet<u64>>,
    committing: RefCell<BTreeSet<u64>>,
}

impl RevokeTables {
    /// The running table becomes the committing one (kernel `jbd2_journal_switch_revoke_table`).
    pub(super) fn switch(&self) {
        let running = self.running.take();
        *self.committing.borrow_mut() = running;
    }

    /// The records of the committing transaction, ascending; the table is empty afterwards.
    pub(super) fn take_committing(&self) -> Vec<u64> {
        self.committing.take().into_iter().collect()
    }
}

impl Journal {
    /// Records that older copies of `block` in the log must not be replayed (kernel `jbd2_journal_revoke`), and
    /// forgets the buffer if one is given. Uses one revoke credit.
    pub fn revoke(&self, h: &mut Handle, block: FsBlock, b: Option<&Rc<Buffer>>) -> FsResult<()> {
        let tid = h.live_tid()?;
        self.need_revoke_feature();
        if let Some(b) = b {
            self.forget(h, b)?;
        }
        h.use_revoke_credit();
        self.revokes.running.borrow_mut().insert(block.0);
        self.sim
            .emit(Category::Jbd2, || Event::BlockRevoked { tid, block });
        Ok(())
    }

    /// The block is logged again by the running transaction (kernel `jbd2_journal_cancel_revoke`).
    pub(super) fn cancel_revoke(&self, block: FsBlock) {
        let mut running = self.revokes.running.borrow_mut();
        if !running.is_empty() {
            running.remove(&block.0);
        }
    }
}
