//! Transactions and the inodes whose data they order.

use super::journal::Journal;
use super::lists::BufferList;
use crate::base::{Ino, Nanos, Tid};
use crate::mm::buffer::JournalList;
use crate::sim::Sim;
use crate::trace::{Category, Event};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A tick of the modelled kernel (HZ=250).
pub(super) const JIFFY: Nanos = Nanos::from_ms(4);

/// State of a transaction (kernel `t_state`, include/linux/jbd2.h), in order of its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum TState {
    /// Handles may join.
    Running,
    /// Only reserved handles may join; open ones drain.
    Locked,
    /// Nobody may join; the revoke table is switched.
    Switch,
    /// Ordered data are submitted; a new transaction may run.
    Flush,
    /// The log copies are written.
    Commit,
    /// They are waited for.
    CommitDflush,
    /// The commit block is written.
    CommitJflush,
    /// It is durable; callbacks run.
    CommitCallback,
    /// On the checkpoint list.
    Finished,
}

/// One compound update (kernel `struct transaction_s`, include/linux/jbd2.h).
pub(super) struct Transaction {
    pub(super) tid: Tid,
    pub(super) state: Cell<TState>,
    /// First log block (`t_log_start`).
    pub(super) log_start: Cell<u32>,
    /// Open handles (`t_updates`).
    pub(super) updates: Cell<u32>,
    pub(super) outstanding_credits: Cell<i32>,
    pub(super) outstanding_revokes: Cell<u32>,
    pub(super) handle_count: Cell<u32>,
    pub(super) reserved: RefCell<BufferList>,
    pub(super) metadata: RefCell<BufferList>,
    pub(super) shadow: RefCell<BufferList>,
    pub(super) forget: RefCell<BufferList>,
    pub(super) checkpoint: RefCell<BufferList>,
    pub(super) inodes: RefCell<Vec<Rc<JInode>>>,
    pub(super) callbacks: RefCell<Vec<Box<dyn FnOnce()>>>,
    pub(super) start: Nanos,
    /// From when on it is too old (`t_expires`).
    pub(super) expires: Nanos,
    pub(super) requested: Cell<Option<Nanos>>,
    pub(super) synchronous: Cell<bool>,
    pub(super) need_data_flush: Cell<bool>,
    /// When its checkpoint began (`cs_chp_time`).
    pub(super) chp_start: Cell<Option<Nanos>>,
}

impl Transaction {
    fn new(sim: &Sim, tid: Tid, credits: i32, commit_interval: Nanos) -> Transaction {
        let now = sim.now();
        let jiffies = Nanos(now.0 - now.0 % JIFFY.0);
        Transaction {
            tid,
            state: Cell::new(TState::Running),
            log_start: Cell::new(0),
            updates: Cell::new(0),
            outstanding_credits: Cell::new(credits),
            outstanding_revokes: Cell::new(0),
            handle_count: Cell::new(0),
            reserved: RefCell::default(),
            metadata: RefCell::default(),
            shadow: RefCell::default(),
            forget: RefCell::default(),
            checkpoint: RefCell::default(),
            inodes: RefCell::default(),
            callbacks: RefCell::default(),
            start: now,
            expires: jiffies + commit_interval,
            requested: Cell::new(None),
            synchronous: Cell::new(false),
            need_data_flush: Cell::new(false),
            chp_start: Cell::new(None),
        }
    }

    pub(super) fn list(&self, list: JournalList) -> Option<&RefCell<BufferList>> {
        match list {
            JournalList::None => None,
            JournalList::Reserved => Some(&self.reserved),
            JournalList::Metadata => Some(&self.metadata),
            JournalList::Shadow => Some(&self.shadow),
            JournalList::Forget => Some(&self.forget),
        }
    }

    pub(super) fn add_credits(&self, n: i32) -> i32 {
        let sum = self.outstanding_credits.get() + n;
        self.outstanding_credits.set(sum);
        sum
    }

    /// When the commit timer fires: the next whole second after `expires` (kernel `round_jiffies_up`).
    pub(super) fn timer(&self) -> Nanos {
        let second = 1_000_000_000;
        Nanos(self.expires.0 - self.expires.0 % second + second)
    }
}

impl Journal {
    /// A new running transaction (kernel `jbd2_get_transaction`).
    pub(super) fn get_transaction(self: &Rc<Self>) -> Rc<Transaction> {
        assert!(self.running.borrow().is_none(), "invariant 1");
        let tid = self.transaction_sequence.get();
        self.transaction_sequence.set(tid.next());
        let credits = self.transaction_overhead() as i32 + self.reserved_credits.get();
        let t = Rc::new(Transaction::new(
            &self.sim,
            tid,
            credits,
            self.commit_interval.get(),
        ));
        *self.running.borrow_mut() = Some(Rc::clone(&t));
        self.emit_state(&t);
        self.arm_commit_timer(t.timer());
        t
    }

    pub(super) fn set_state(&self, t: &Transaction, state: TState) {
        assert!(
            t.state.get() < state,
            "states of a transaction only go forward"
        );
        t.state.set(state);
        self.emit_state(t);
    }

    fn emit_state(&self, t: &Transaction) {
        self.sim.emit(Category::Jbd2, || Event::TransactionState {
            tid: t.tid,
            state: t.state.get() as u8,
            blocks: t.metadata.borrow().len() + t.shadow.borrow().len(),
        });
    }
}

const JI_WRITE_DATA: u8 = 1;
const JI_WAIT_DATA: u8 = 2;

/// The journal's view of an inode whose data must be on disk before a transaction commits
/// (kernel `struct jbd2_inode`, include/linux/jbd2.h).
#[derive(Debug)]
pub struct JInode {
    /// The inode.
    pub ino: Ino,
    pub(super) transaction: Cell<Option<Tid>>,
    pub(super) next_transaction: Cell<Option<Tid>>,
    pub(super) flags: Cell<u8>,
    pub(super) dirty: Cell<Option<(u64, u64)>>,
}

impl JInode {
    /// Belongs to no transaction.
    pub fn new(ino: Ino) -> Rc<JInode> {
        Rc::new(JInode {
            ino,
            transaction: Cell::new(None),
            next_transaction: Cell::new(None),
            flags: Cell::new(0),
            dirty: Cell::new(None),
        })
    }

    /// True if a running or committing transaction orders its data.
    pub fn is_filed(&self) -> bool {
        self.transaction.get().is_some()
    }

    pub(super) fn must_write(&self) -> bool {
        self.flags.get() & JI_WRITE_DATA != 0
    }

    pub(super) fn must_wait(&self) -> bool {
        self.flags.get() & JI_WAIT_DATA != 0
    }

    /// Forgets the ranges, when the inode is evicted (kernel `jbd2_journal_release_jbd_inode`); the commit in
    /// progress skips it.
    pub fn release(&self) {
        self.flags.set(0);
        self.dirty.set(None);
    }
}

impl Journal {
    /// The commit of the handle's transaction shall write and await bytes `start..=end` of the inode's mapped
    /// dirty data (kernel `jbd2_journal_inode_ranged_write`).
    pub fn inode_add_write(&self, h: &super::Handle, j: &Rc<JInode>, start: u64, end: u64) {
        self.file_inode(h, j, JI_WRITE_DATA | JI_WAIT_DATA, start, end);
    }

    /// The commit shall await writes already submitted (kernel `jbd2_journal_inode_ranged_wait`).
    pub fn inode_add_wait(&self, h: &super::Handle, j: &Rc<JInode>, start: u64, end: u64) {
        self.file_inode(h, j, JI_WAIT_DATA, start, end);
    }

    /// True if the committing transaction orders the inode's data (first check of
    /// `jbd2_journal_begin_ordered_truncate`).
    pub fn is_committing(&self, j: &JInode) -> bool {
        let committing = self.committing.borrow().as_ref().map(|t| t.tid);
        committing.is_some() && j.transaction.get() == committing
    }

    fn file_inode(&self, h: &super::Handle, j: &Rc<JInode>, flags: u8, start: u64, end: u64) {
        let Some(t) = h.transaction() else { return };
        if self.is_aborted() {
            return;
        }
        j.flags.set(j.flags.get() | flags);
        j.dirty.set(match j.dirty.get() {
            Some((a, b)) => Some((a.min(start), b.max(end))),
            None => Some((start, end)),
        });
        let tid = Some(t.tid);
        if j.transaction.get() == tid || j.next_transaction.get() == tid {
            return;
        }
        t.need_data_flush.set(true);
        if j.transaction.get().is_some() {
            j.next_transaction.set(tid);
        } else {
            j.transaction.set(tid);
            t.inodes.borrow_mut().push(Rc::clone(j));
        }
    }
}
