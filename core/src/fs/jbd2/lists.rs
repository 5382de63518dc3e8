//! Lists of buffers with removal at any place, and the filing of buffers on the lists of transactions.

use super::journal::Journal;
use super::transaction::Transaction;
use crate::base::Tid;
use crate::mm::buffer::{Bh, Buffer, JournalList};
use std::rc::Rc;

/// Buffers in order of insertion. A removed place stays empty as long as a newer one is taken.
#[derive(Default)]
pub(super) struct BufferList {
    slots: Vec<Option<Rc<Buffer>>>,
    first: usize,
    live: u32,
}

impl BufferList {
    pub(super) fn len(&self) -> u32 {
        self.live
    }

    pub(super) fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// Appends; the place is for [`BufferList::remove`].
    pub(super) fn push(&mut self, b: Rc<Buffer>) -> u32 {
        self.slots.push(Some(b));
        self.live += 1;
        self.slots.len() as u32 - 1
    }

    pub(super) fn remove(&mut self, at: u32) {
        let slot = self.slots.get_mut(at as usize).and_then(Option::take);
        if slot.is_some() {
            self.live -= 1;
        }
        // The newest place is always taken, so that walks from there are short.
        while self.slots.last().is_some_and(Option::is_none) {
            self.slots.pop();
        }
        self.first = self.first.min(self.slots.len());
    }

    /// The oldest buffer.
    pub(super) fn front(&mut self) -> Option<Rc<Buffer>> {
        while self.first < self.slots.len() {
            if let Some(b) = &self.slots[self.first] {
                return Some(Rc::clone(b));
            }
            self.first += 1;
        }
        None
    }

    /// The buffer at `at` or the next older one, else (at the oldest end) the newest, with its place.
    pub(super) fn at_or_older(&self, at: u32) -> Option<(u32, Rc<Buffer>)> {
        let top = self.slots.len();
        let start = (at as usize).saturating_add(1).min(top);
        let below = (self.first..start).rev();
        let rest = (start..top).rev();
        below
            .chain(rest)
            .find_map(|i| self.slots[i].as_ref().map(|b| (i as u32, Rc::clone(b))))
    }
}

impl Journal {
    /// Puts `b` on `list` of `t` (kernel `__jbd2_journal_file_buffer`). A dirty buffer becomes `jbddirty`.
    pub(super) fn file_buffer(&self, b: &Rc<Buffer>, t: &Transaction, list: JournalList) {
        let (owner, on) = {
            let jh = b.jh.borrow();
            (jh.transaction, jh.list)
        };
        if owner.is_some() && on == list {
            return;
        }
        let was_dirty = self.buffers.clear_dirty(b) | b.test_clear(Bh::JBDDIRTY);
        if owner.is_some() {
            self.temp_unlink(b);
        }
        let at = t
            .list(list)
            .map_or(0, |l| l.borrow_mut().push(Rc::clone(b)));
        let mut jh = b.jh.borrow_mut();
        jh.transaction = Some(t.tid);
        jh.list = list;
        jh.list_at = at;
        drop(jh);
        if was_dirty {
            b.set(Bh::JBDDIRTY);
        }
    }

    /// Takes `b` off its list but leaves its owner (kernel `__jbd2_journal_temp_unlink_buffer`): what was
    /// `jbddirty` may be written home now.
    pub(super) fn temp_unlink(&self, b: &Rc<Buffer>) {
        let (owner, list, at) = {
            let mut jh = b.jh.borrow_mut();
            let list = std::mem::take(&mut jh.list);
            (jh.transaction, list, jh.list_at)
        };
        let t = owner.and_then(|tid| self.live_transaction(tid));
        if let Some(l) = t.as_ref().and_then(|t| t.list(list)) {
            l.borrow_mut().remove(at);
        }
        if b.test_clear(Bh::JBDDIRTY) && !self.is_aborted() {
            self.buffers.mark_dirty(b);
        }
    }

    /// Takes `b` from its transaction (kernel `__jbd2_journal_unfile_buffer`).
    pub(super) fn unfile_buffer(&self, b: &Rc<Buffer>) {
        self.temp_unlink(b);
        b.jh.borrow_mut().transaction = None;
    }

    /// The owner is done with `b`: hands it to the running transaction if that wants it
    /// (kernel `__jbd2_journal_refile_buffer`).
    pub(super) fn refile_buffer(&self, b: &Rc<Buffer>) {
        let (next, modified) = {
            let jh = b.jh.borrow();
            (jh.next_transaction, jh.modified)
        };
        let Some(next) = next.and_then(|tid| self.live_transaction(tid)) else {
            b.jh.borrow_mut().next_transaction = None;
            self.unfile_buffer(b);
            return;
        };
        let was_dirty = b.test_clear(Bh::JBDDIRTY);
        self.temp_unlink(b);
        {
            let mut jh = b.jh.borrow_mut();
            jh.transaction = None;
            jh.next_transaction = None;
        }
        let list = if b.test(Bh::FREED) {
            JournalList::Forget
        } else if modified {
            JournalList::Metadata
        } else {
            JournalList::Reserved
        };
        self.file_buffer(b, &next, list);
        if was_dirty {
            b.set(Bh::JBDDIRTY);
        }
    }

    /// The running or committing transaction of number `tid`.
    pub(super) fn live_transaction(&self, tid: Tid) -> Option<Rc<Transaction>> {
        let running = self.running.borrow();
        if let Some(t) = running.as_ref().filter(|t| t.tid == tid) {
            return Some(Rc::clone(t));
        }
        let committing = self.committing.borrow();
        committing.as_ref().filter(|t| t.tid == tid).map(Rc::clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{FsBlock, Payload};

    #[test]
    fn order_and_places_survive_removals() {
        let mut list = BufferList::default();
        let buffers: Vec<_> = (0..6)
            .map(|n| Buffer::for_file(FsBlock(n), 4096, Payload::Zero))
            .collect();
        let at: Vec<u32> = buffers.iter().map(|b| list.push(Rc::clone(b))).collect();
        list.remove(at[0]);
        list.remove(at[5]);
        list.remove(at[3]);
        assert_eq!(list.front().map(|b| b.blocknr.0), Some(1));
        let from = |at| list.at_or_older(at).map(|(_, b)| b.blocknr.0);
        assert_eq!(
            (from(u32::MAX), from(3), from(0)),
            (Some(4), Some(2), Some(4))
        );
        for i in [1, 2, 4] {
            list.remove(at[i]);
        }
        assert!(list.is_empty() && list.front().is_none());
        list.push(Rc::clone(&buffers[5]));
        assert_eq!(list.front().map(|b| b.blocknr.0), Some(5));
    }
}
