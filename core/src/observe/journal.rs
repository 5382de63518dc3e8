//! The journal as events tell it: transactions, their places in the log, head and tail.

use crate::base::{Nanos, Tid};
use crate::trace::Event;
use std::collections::BTreeMap;

/// Numbers of transaction states in events (kernel `enum` in `transaction_s`).
pub mod state {
    #![allow(missing_docs, reason = "kernel names without their prefix")]
    pub const RUNNING: u8 = 0;
    pub const LOCKED: u8 = 1;
    pub const SWITCH: u8 = 2;
    pub const FLUSH: u8 = 3;
    pub const COMMIT: u8 = 4;
    pub const FINISHED: u8 = 8;
}

/// What a block of the log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "plain kinds")]
pub enum LogKind {
    Descriptor,
    Copy { home: u64, flags: u16 },
    Revoke,
    Commit,
}

/// A block of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogBlock {
    /// Number in the journal.
    pub jblock: u32,
    /// What it is.
    pub kind: LogKind,
}

/// One transaction.
#[derive(Clone, Debug, Default)]
pub struct TxFold {
    /// State number.
    pub state: u8,
    /// When the state was entered first (running).
    pub begun: Nanos,
    /// Blocks that joined.
    pub joined: u32,
    /// Credits of handles that are open now.
    pub credits: u64,
    /// When its commit was asked for (locked), zero if not.
    pub requested: Nanos,
    /// When the commit block was written, zero if not.
    pub committed: Nanos,
    /// When its last block was home, zero if not.
    pub checkpointed: Nanos,
    /// True while its blocks are being written home.
    pub checkpointing: bool,
    /// Its blocks in the log, in order.
    pub log: Vec<LogBlock>,
    /// Copies that are still needed.
    pub pending: u32,
}

/// The journal.
#[derive(Clone, Debug, Default)]
pub struct JournalFold {
    /// Transactions by id (wrap-around is far away in any run).
    pub transactions: BTreeMap<u32, TxFold>,
    /// Next free block of the log.
    pub head: u32,
    /// Oldest block that recovery needs; 0 if the log is empty.
    pub tail: u32,
    /// Transaction at the tail.
    pub tail_tid: u32,
}

/// Finished transactions whose places in the log are kept for display.
const FINISHED_MAX: usize = 512;

impl JournalFold {
    fn tx(&mut self, tid: Tid) -> &mut TxFold {
        self.transactions.entry(tid.0).or_default()
    }

    /// Applies one event.
    pub fn apply(&mut self, now: Nanos, event: &Event) {
        match *event {
            Event::HandleStart { tid, credits, .. } => {
                self.tx(tid).credits += u64::from(credits);
            }
            Event::HandleStop { tid, requested, .. } => {
                let t = self.tx(tid);
                t.credits = t.credits.saturating_sub(u64::from(requested));
            }
            Event::BlockJoined { tid, .. } => self.tx(tid).joined += 1,
            Event::TransactionState { tid, state, .. } => self.state(now, tid, state),
            Event::LogDescriptor { tid, jblock, .. } => {
                self.log(tid, jblock, LogKind::Descriptor);
            }
            Event::LogCopy {
                tid,
                jblock,
                home,
                flags,
            } => {
                self.log(
                    tid,
                    jblock,
                    LogKind::Copy {
                        home: home.0,
                        flags,
                    },
                );
                self.tx(tid).pending += 1;
            }
            Event::LogRevoke { tid, jblock, .. } => self.log(tid, jblock, LogKind::Revoke),
            Event::LogCommit { tid, jblock } => {
                self.log(tid, jblock, LogKind::Commit);
                self.tx(tid).committed = now;
            }
            Event::CheckpointPicked { tid, .. } => self.tx(tid).checkpointing = true,
            Event::CheckpointWritten { tid, .. } | Event::CheckpointDropped { tid, .. } => {
                let t = self.tx(tid);
                t.pending = t.pending.saturating_sub(1);
                if t.pending == 0 {
                    (t.checkpointed, t.checkpointing) = (now, false);
                }
            }
            Event::LogSuperblock { tid, start } => {
                (self.tail_tid, self.tail) = (tid.0, start);
            }
            Event::TailAdvanced { tid, start, .. } => self.advance_tail(now, tid, start),
            _ => {}
        }
    }

    fn state(&mut self, now: Nanos, tid: Tid, new: u8) {
        let t = self.tx(tid);
        t.state = new;
        match new {
            state::RUNNING => t.begun = now,
            state::LOCKED => t.requested = now,
            state::FINISHED if t.committed == Nanos::ZERO => t.committed = now,
            _ => {}
        }
    }

    fn log(&mut self, tid: Tid, jblock: u32, kind: LogKind) {
        if self.tail == 0 {
            (self.tail, self.tail_tid) = (jblock, tid.0);
        }
        self.head = jblock + 1;
        self.tx(tid).log.push(LogBlock { jblock, kind });
    }

    fn advance_tail(&mut self, now: Nanos, tid: Tid, start: u32) {
        (self.tail_tid, self.tail) = (tid.0, start);
        let older: Vec<u32> = self.transactions.range(..tid.0).map(|(t, _)| *t).collect();
        for id in &older {
            let t = self.tx(Tid(*id));
            if t.checkpointed == Nanos::ZERO && t.committed > Nanos::ZERO {
                t.checkpointed = now;
            }
            t.checkpointing = false;
        }
        let excess = older.len().saturating_sub(FINISHED_MAX);
        for id in older.iter().take(excess) {
            self.transactions.remove(id);
        }
    }

    /// The running transaction.
    pub fn running(&self) -> Option<(u32, &TxFold)> {
        let last = self.transactions.iter().next_back()?;
        (last.1.state < state::FLUSH && last.1.committed == Nanos::ZERO)
            .then_some((*last.0, last.1))
    }

    /// Blocks of the ring between tail and head, with `first..end` as the ring.
    pub fn used(&self, first: u32, end: u32) -> u32 {
        if self.tail == 0 {
            return 0;
        }
        let ring = end.saturating_sub(first).max(1);
        let head = if self.head >= end { first } else { self.head };
        (head + ring - self.tail) % ring
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::FsBlock;

    #[test]
    fn a_commit_runs_through_its_states() {
        let mut j = JournalFold::default();
        let tid = Tid(7);
        let at = Nanos::from_ms;
        let turn = |state, blocks| Event::TransactionState { tid, state, blocks };
        j.apply(at(1), &turn(state::RUNNING, 0));
        j.apply(
            at(2),
            &Event::HandleStart {
                tid,
                ty: 0,
                credits: 8,
            },
        );
        assert_eq!(j.running().map(|r| (r.0, r.1.credits)), Some((7, 8)));
        j.apply(
            at(3),
            &Event::HandleStop {
                tid,
                ty: 0,
                requested: 8,
                dirtied: 1,
                interval_us: 0,
            },
        );
        j.apply(at(4), &turn(state::LOCKED, 1));
        j.apply(
            at(5),
            &Event::LogDescriptor {
                tid,
                jblock: 1,
                tags: 1,
            },
        );
        j.apply(
            at(5),
            &Event::LogCopy {
                tid,
                jblock: 2,
                home: FsBlock(37),
                flags: 0,
            },
        );
        j.apply(at(6), &Event::LogCommit { tid, jblock: 3 });
        j.apply(at(6), &turn(state::FINISHED, 1));
        assert!(j.running().is_none());
        assert_eq!((j.tail, j.head, j.used(1, 1024)), (1, 4, 3));
        let t = &j.transactions[&7];
        assert_eq!((t.requested, t.committed, t.pending), (at(4), at(6), 1));
        j.apply(
            at(9),
            &Event::CheckpointWritten {
                tid,
                block: FsBlock(37),
            },
        );
        assert_eq!(j.transactions[&7].checkpointed, at(9));
        j.apply(
            at(9),
            &Event::TailAdvanced {
                tid: Tid(8),
                start: 4,
                freed: 3,
            },
        );
        assert_eq!(j.used(1, 1024), 0);
    }
}
