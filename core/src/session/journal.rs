//! The journal ring: what lies in the log at an instant.

use super::view::{Journal, JournalBlock, JournalKind, Running, Transaction, TxState};
use super::Observer;
use crate::base::Nanos;
use crate::format::jbd2::JBD2_FLAG_ESCAPE;
use crate::observe::journal::{state, LogKind, TxFold};
use crate::observe::layout::role;

/// First block of a journal after its superblock.
const FIRST: u32 = 1;

fn tx_state(t: &TxFold) -> TxState {
    match t.state {
        _ if t.checkpointing => TxState::Checkpointing,
        state::RUNNING => TxState::Running,
        state::LOCKED | state::SWITCH => TxState::Locked,
        state::FLUSH => TxState::Flush,
        state::FINISHED => TxState::Committed,
        _ => TxState::Commit,
    }
}

impl Observer {
    /// The journal.
    pub(super) fn journal_view(&self, commit_interval: Nanos) -> Journal {
        let blocks = self.layout.journal_blocks();
        if blocks == 0 {
            return Journal::default();
        }
        let fold = &self.fold.journal;
        let used = fold.used(FIRST, blocks);
        let running = fold.running().map(|(tid, t)| Running {
            tid,
            credits: t.credits.min(u64::from(u32::MAX)) as u32,
            blocks: t.joined,
            age_ns: self.at.saturating_sub(t.begun).0,
            state: tx_state(t),
        });
        let next_commit_ns = running
            .as_ref()
            .map(|r| commit_interval.0.saturating_sub(r.age_ns));
        let live = fold
            .transactions
            .iter()
            .filter(|(tid, t)| !t.log.is_empty() && **tid >= fold.tail_tid && fold.tail != 0);
        let transactions = live.map(|(tid, t)| self.transaction(*tid, t)).collect();
        Journal {
            present: true,
            blocks,
            first: FIRST,
            head: fold.head.max(FIRST),
            tail: if fold.tail == 0 {
                fold.head.max(FIRST)
            } else {
                fold.tail
            },
            tail_tid: fold.tail_tid,
            free: blocks.saturating_sub(FIRST + used),
            next_commit_ns,
            running,
            transactions,
        }
    }

    fn transaction(&self, tid: u32, t: &TxFold) -> Transaction {
        let mut out = Transaction {
            tid,
            state: tx_state(t),
            start: t.log.first().map_or(0, |b| b.jblock),
            blocks: t.log.len() as u32,
            requested_ns: t.requested.0,
            committed_ns: t.committed.0,
            checkpointed_ns: t.checkpointed.0,
            ..Transaction::default()
        };
        for b in &t.log {
            match b.kind {
                LogKind::Descriptor => out.descriptors += 1,
                LogKind::Revoke => out.revokes += 1,
                LogKind::Copy { home, .. } if self.role_of(home) == role::FILE_DATA => {
                    out.data_blocks += 1;
                }
                LogKind::Copy { .. } => out.metadata += 1,
                LogKind::Commit => {}
            }
        }
        out
    }

    /// Blocks of one transaction in the log.
    pub(super) fn journal_blocks(&self, tid: u32) -> Vec<JournalBlock> {
        let Some(t) = self.fold.journal.transactions.get(&tid) else {
            return Vec::new();
        };
        t.log
            .iter()
            .map(|b| {
                let mut out = JournalBlock {
                    jblock: b.jblock,
                    csum_ok: true,
                    ..JournalBlock::default()
                };
                out.kind = match b.kind {
                    LogKind::Descriptor => JournalKind::Descriptor,
                    LogKind::Revoke => JournalKind::Revoke,
                    LogKind::Commit => JournalKind::Commit,
                    LogKind::Copy { home, flags } => {
                        out.home = Some(home);
                        out.role = self.role_of(home);
                        out.escaped = u32::from(flags) & JBD2_FLAG_ESCAPE != 0;
                        match out.role {
                            role::FILE_DATA => JournalKind::FileData,
                            _ => JournalKind::Metadata,
                        }
                    }
                };
                out
            })
            .collect()
    }
}
