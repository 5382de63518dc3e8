//! The fast-commit area at the end of the log (kernel fs/jbd2/journal.c, `jbd2_fc_*`; scanning as
//! `ext4_fc_replay_scan`, fs/ext4/fast_commit.c).
//!
//! Knows where the blocks go and which records count; what the records say is the file system's business. A fast
//! commit belongs to the running transaction; the commit of that one makes the whole area free.

use super::journal::Journal;
use super::log::LogBatch;
use super::transaction::JInode;
use crate::base::bytes;
use crate::base::checksum::crc32c;
use crate::base::{Payload, Tid};
use crate::block::{BioFlags, IoError, Role};
use crate::format::jbd2::fast_commit::{FcRecord, EXT4_FC_TAG_BASE_LEN};
use crate::fs::common::FsResult;
use crate::sim::WaitReason;
use std::cell::Cell;
use std::rc::Rc;

/// Finds the records of all complete fast commits that follow transaction `tid - 1` in the log.
#[derive(Debug)]
pub struct FcScan {
    tid: Tid,
    crc: u32,
    found: Vec<FcRecord>,
    valid: usize,
}

impl FcScan {
    /// A scan for fast commits of transaction `tid`.
    pub fn new(tid: Tid) -> FcScan {
        FcScan {
            tid,
            crc: 0,
            found: Vec::new(),
            valid: 0,
        }
    }

    /// Looks at the next block of the area; false when the scan is over.
    pub fn block(&mut self, b: &[u8]) -> bool {
        if self.found.is_empty()
            && !matches!(FcRecord::decode(b, 0), Ok((FcRecord::Head { .. }, _)))
        {
            return false;
        }
        let mut at = 0;
        while at + EXT4_FC_TAG_BASE_LEN <= b.len() {
            let Ok((record, next)) = FcRecord::decode(b, at) else {
                return false;
            };
            if !self.record(b, at, next, record) {
                return false;
            }
            at = next;
        }
        true
    }

    fn record(&mut self, b: &[u8], at: usize, next: usize, record: FcRecord) -> bool {
        let covered = match &record {
            // Up to the checksum itself.
            FcRecord::Tail { .. } => at + EXT4_FC_TAG_BASE_LEN + 4,
            _ => next,
        };
        self.crc = crc32c(self.crc, b.get(at..covered).unwrap_or(&[]));
        match &record {
            FcRecord::Head { features, tid } if *features != 0 || *tid != self.tid.0 => {
                return false;
            }
            FcRecord::Tail { tid, crc } => {
                if *tid != self.tid.0 || *crc != self.crc {
                    return false;
                }
                self.crc = 0;
                self.found.push(record);
                self.valid = self.found.len();
                return true;
            }
            _ => {}
        }
        self.found.push(record);
        true
    }

    /// The records to replay, in order.
    pub fn into_records(mut self) -> Vec<FcRecord> {
        self.found.truncate(self.valid);
        self.found
    }
}

/// State of the area while the journal is in use.
#[derive(Default)]
pub(super) struct FcArea {
    /// Blocks used since the last full commit (`j_fc_off`).
    off: Cell<u32>,
    /// `JBD2_FAST_COMMIT_ONGOING`.
    pub(super) fast: Cell<bool>,
    /// `JBD2_FULL_COMMIT_ONGOING`.
    pub(super) full: Cell<bool>,
}

/// Whether a fast commit may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FcBegin {
    /// It may: handles are locked out until [`Journal::fc_end_commit`].
    Go,
    /// Another commit was in progress and has been waited for: look again whether one is needed.
    Already,
    /// A full commit is needed.
    No,
}

/// One fast commit being written.
pub struct FcWriter {
    journal: Rc<Journal>,
    batch: Rc<LogBatch>,
    block: Vec<u8>,
    used: usize,
    crc: u32,
    tid: Tid,
    blocks: u32,
}

impl Journal {
    /// Starts a fast commit of `tid` (kernel `jbd2_fc_begin_commit`).
    pub async fn fc_begin_commit(&self, tid: Tid) -> FcBegin {
        if self.is_aborted() || self.fc_blocks() == 0 || self.stats.borrow().transactions == 0 {
            return FcBegin::No;
        }
        if self.commit_sequence().geq(tid) {
            return FcBegin::Already;
        }
        if self.flushed.get() {
            // An empty log is not looked at by recovery, so nothing in the area would count.
            return FcBegin::No;
        }
        if self.fc.full.get() || self.fc.fast.get() {
            let why = WaitReason::JournalCommit(tid);
            self.wait_fc.wait(why).await;
            return FcBegin::Already;
        }
        self.fc.fast.set(true);
        self.lock_updates().await;
        FcBegin::Go
    }

    /// Ends a fast commit (kernel `jbd2_fc_end_commit`).
    pub fn fc_end_commit(&self) {
        self.unlock_updates();
        self.fc.fast.set(false);
        self.wait_fc.wake_all();
    }

    /// A full commit begins: no fast commit may run beside it, and the area becomes free.
    pub(super) async fn fc_full_commit_begins(&self, tid: Tid) {
        self.fc.full.set(true);
        let why = WaitReason::JournalCommit(tid);
        self.wait_fc.wait_while(|| self.fc.fast.get(), why).await;
        self.fc.off.set(0);
    }

    pub(super) fn fc_full_commit_ended(&self) {
        self.fc.full.set(false);
        self.wait_fc.wake_all();
    }

    /// Writes out and awaits the ordered data of an inode ahead of its records
    /// (kernel `jbd2_submit_inode_data`, `jbd2_wait_inode_data`).
    pub async fn fc_flush_inode_data(&self, j: &Rc<JInode>) -> FsResult<()> {
        let (Some((start, end)), Some(hook)) = (j.dirty.get(), self.data_hook()) else {
            return Ok(());
        };
        if j.must_write() {
            (hook.submit)(j.ino, start, end).await?;
        }
        (hook.wait)(j.ino, start, end).await
    }

    /// True if no fast commit was written since the last full one: the next begins with a HEAD record.
    pub fn fc_area_is_empty(&self) -> bool {
        self.fc.off.get() == 0
    }

    /// Blocks of the area; its first one is never used (`j_fc_first` is `j_last + 1`).
    pub fn fc_blocks(&self) -> u32 {
        self.jsb.borrow().fast_commit_blocks().saturating_sub(1)
    }

    /// Begins to write records of a fast commit of `tid`, after [`FcBegin::Go`].
    pub fn fc_writer(self: &Rc<Self>, tid: Tid) -> FcWriter {
        FcWriter {
            journal: Rc::clone(self),
            batch: LogBatch::new(),
            block: vec![0; self.block_size() as usize],
            used: 0,
            crc: 0,
            tid,
            blocks: 0,
        }
    }
}

impl FcWriter {
    /// Adds a record; false if the area is full (the caller falls back to a full commit).
    pub async fn add(&mut self, record: &FcRecord) -> bool {
        let bytes = record.encode();
        // A block must be able to end in a TAIL.
        let room = self.block.len() - self.used;
        if bytes.len() + EXT4_FC_TAG_BASE_LEN > room && !self.pad().await {
            return false;
        }
        self.put(&bytes);
        true
    }

    fn put(&mut self, bytes: &[u8]) {
        bytes::put_slice(&mut self.block, self.used, bytes);
        self.crc = crc32c(self.crc, bytes);
        self.used += bytes.len();
    }

    /// Fills the block and submits it.
    async fn pad(&mut self) -> bool {
        let room = self.block.len() - self.used;
        if room >= EXT4_FC_TAG_BASE_LEN {
            let at = self.used;
            bytes::put_slice(&mut self.block, at, &FcRecord::Pad.encode());
            bytes::put_le16(
                &mut self.block,
                at + 2,
                (room - EXT4_FC_TAG_BASE_LEN) as u16,
            );
            self.crc = crc32c(self.crc, &self.block[at..]);
        }
        self.submit(BioFlags::NONE).await
    }

    async fn submit(&mut self, flags: BioFlags) -> bool {
        let j = &self.journal;
        let off = j.fc.off.get();
        if off >= j.fc_blocks() {
            return false;
        }
        j.fc.off.set(off + 1);
        let jblock = j.jsb.borrow().log_end() + 1 + off;
        let size = self.block.len();
        let bytes = std::mem::replace(&mut self.block, vec![0; size]);
        self.used = 0;
        self.blocks += 1;
        let payload = Payload::Bytes(bytes.into());
        j.sim.charge(j.costs.log_block).await;
        j.log_write_flags(
            &self.batch,
            jblock,
            payload,
            Role::JournalFast,
            self.tid,
            flags,
        )
        .await;
        true
    }

    /// Ends the fast commit with its TAIL and waits until it is durable. False if the area is full.
    pub async fn finish(mut self) -> FsResult<bool> {
        let need = EXT4_FC_TAG_BASE_LEN + 8;
        if self.block.len() - self.used < need && !self.pad().await {
            return Ok(false);
        }
        let at = self.used;
        let room = self.block.len() - at;
        let tail = FcRecord::Tail {
            tid: self.tid.0,
            crc: 0,
        };
        bytes::put_slice(&mut self.block, at, &tail.encode());
        bytes::put_le16(
            &mut self.block,
            at + 2,
            (room - EXT4_FC_TAG_BASE_LEN) as u16,
        );
        let covered = &self.block[at..at + EXT4_FC_TAG_BASE_LEN + 4];
        let crc = crc32c(self.crc, covered);
        bytes::put_le32(&mut self.block, at + EXT4_FC_TAG_BASE_LEN + 4, crc);
        let flags = if self.journal.barrier.get() {
            BioFlags::PREFLUSH | BioFlags::FUA
        } else {
            BioFlags::NONE
        };
        if !self.submit(flags).await {
            return Ok(false);
        }
        let written: Result<(), IoError> = self.batch.wait(&self.journal.sim).await;
        written?;
        let mut stats = self.journal.stats.borrow_mut();
        stats.fast_commits += 1;
        stats.fast_commit_blocks += u64::from(self.blocks);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(records: &[FcRecord], tid: u32, first: bool) -> Vec<u8> {
        let mut b = vec![0; 4096];
        let mut at = 0;
        let mut crc = 0;
        let head = FcRecord::Head { features: 0, tid };
        for r in first.then_some(&head).into_iter().chain(records) {
            let bytes = r.encode();
            crc = crc32c(crc, &bytes);
            bytes::put_slice(&mut b, at, &bytes);
            at += bytes.len();
        }
        let room = (4096 - at - EXT4_FC_TAG_BASE_LEN) as u16;
        bytes::put_slice(&mut b, at, &FcRecord::Tail { tid, crc: 0 }.encode());
        bytes::put_le16(&mut b, at + 2, room);
        let crc = crc32c(crc, &b[at..at + 8]);
        bytes::put_le32(&mut b, at + 8, crc);
        b
    }

    #[test]
    fn only_complete_fast_commits_of_the_right_transaction_count() {
        let r = |n| FcRecord::DelRange {
            ino: n,
            lblk: 0,
            len: 1,
        };
        let mut scan = FcScan::new(Tid(3));
        assert!(scan.block(&block(&[r(1)], 3, true)));
        assert!(scan.block(&block(&[r(2)], 3, false)));
        let mut torn = block(&[r(4)], 3, false);
        torn[5] ^= 1;
        assert!(!scan.block(&torn));
        let dels = |v: Vec<FcRecord>| {
            let is_del = |r: &FcRecord| matches!(r, FcRecord::DelRange { .. });
            v.iter().filter(|r| is_del(r)).count()
        };
        assert_eq!(dels(scan.into_records()), 2);
        let mut other = FcScan::new(Tid(4));
        assert!(!other.block(&block(&[r(1)], 3, true)));
        assert!(other.into_records().is_empty());
    }
}
