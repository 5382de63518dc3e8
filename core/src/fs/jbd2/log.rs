//! The log as a ring of blocks on a device: mapping, space, reads and writes, the journal superblock
//! (kernel fs/jbd2/journal.c).

use super::journal::{Journal, JournalMap, Recovered};
use super::recovery::{Found, Next, Recovery, RecoveryStep, StopReason};
use crate::base::checksum::crc32c;
use crate::base::{Errno, FsBlock, Lba, Payload, Tid};
use crate::block::{Bio, BioFlags, IoError, Plug, Queue, Role};
use crate::format::jbd2::{
    JournalSuperblock, TagFormat, JBD2_COMMIT_BLOCK, JBD2_DESCRIPTOR_BLOCK,
    JBD2_FEATURE_INCOMPAT_FAST_COMMIT, JBD2_REVOKE_BLOCK,
};
use crate::fs::common::{FsError, FsResult};
use crate::mm::buffer::{Bh, Buffer, BufferCache};
use crate::sim::{Sim, TaskId, WaitReason};
use crate::trace::{Category, Event};
use std::cell::Cell;
use std::rc::Rc;

/// Flags of all log writes (kernel `JBD2_JOURNAL_REQ_FLAGS`).
const LOG_FLAGS: BioFlags = BioFlags(BioFlags::META.0 | BioFlags::SYNC.0);
/// Blocks read ahead of the scan at recovery (128 KiB of 4 KiB blocks, kernel `do_readahead`).
const READAHEAD: u32 = 32;

/// Incompatible journal features understood here.
const KNOWN_INCOMPAT: u32 = 0x3f;

/// The device and place of the log.
pub(super) struct Log {
    queue: Rc<Queue>,
    map: JournalMap,
    block_size: u32,
}

/// Log writes waited for together.
pub(super) struct LogBatch {
    pending: Cell<u32>,
    failed: Cell<Option<IoError>>,
    waiter: Cell<Option<TaskId>>,
}

impl LogBatch {
    pub(super) fn new() -> Rc<LogBatch> {
        Rc::new(LogBatch {
            pending: Cell::new(0),
            failed: Cell::new(None),
            waiter: Cell::new(None),
        })
    }

    fn done(&self, sim: &Sim, failed: Option<IoError>) {
        if failed.is_some() {
            self.failed.set(failed);
        }
        self.pending.set(self.pending.get() - 1);
        if self.pending.get() == 0 {
            if let Some(task) = self.waiter.take() {
                sim.wake(task);
            }
        }
    }

    /// Waits for all writes submitted so far; the first error that came.
    pub(super) async fn wait(&self, sim: &Sim) -> Result<(), IoError> {
        while self.pending.get() > 0 {
            self.waiter.set(Some(sim.current()));
            sim.block(WaitReason::Other("log writes"), None).await;
        }
        self.failed.take().map_or(Ok(()), Err)
    }
}

impl Log {
    pub(super) fn new(_sim: &Sim, buffers: &Rc<BufferCache>, map: JournalMap) -> Log {
        let queue = match &map {
            JournalMap::Inode(_) => Rc::clone(buffers.queue()),
            JournalMap::External { queue, .. } => Rc::clone(queue),
        };
        Log {
            queue,
            map,
            block_size: buffers.block_size(),
        }
    }

    pub(super) fn is_external(&self) -> bool {
        matches!(self.map, JournalMap::External { .. })
    }

    pub(super) fn plug(&self) -> Plug {
        self.queue.plug()
    }

    pub(super) async fn flush(&self) -> Result<(), IoError> {
        self.queue.flush().await
    }

    fn lba(&self, block: u64) -> Lba {
        Lba(block * u64::from(self.block_size / 512))
    }

    /// Device block of a journal block (kernel `jbd2_journal_bmap`).
    fn map(&self, jblock: u32) -> Option<u64> {
        match &self.map {
            JournalMap::External { .. } => Some(u64::from(jblock)),
            JournalMap::Inode(extents) => {
                let i = extents.partition_point(|e| e.0 <= jblock).checked_sub(1)?;
                let (first, len, block) = *extents.get(i)?;
                let off = jblock - first;
                (off < len).then(|| block.0 + u64::from(off))
            }
        }
    }

    fn superblock_lba(&self) -> Option<Lba> {
        let block = match &self.map {
            JournalMap::External { superblock, .. } => u64::from(*superblock),
            JournalMap::Inode(_) => self.map(0)?,
        };
        Some(self.lba(block))
    }

    async fn read(&self, lba: Lba, count: u32) -> Result<Vec<Payload>, IoError> {
        let bio = Bio::read(lba, count, self.block_size, Role::JournalOther).flags(BioFlags::META);
        Ok(self.queue.run(bio).await?.into_vec())
    }

    pub(super) async fn read_superblock(&self) -> FsResult<Vec<u8>> {
        let lba = self.superblock_lba().ok_or(FsError::Errno(Errno::EINVAL))?;
        let p = self.read(lba, 1).await?.into_iter().next();
        let bytes = p
            .unwrap_or(Payload::Zero)
            .to_bytes(self.block_size as usize);
        Ok(bytes.to_vec())
    }

    /// What the kernel checks before it uses a journal (`journal_check_superblock`, `jbd2_journal_load`).
    pub(super) fn check_superblock(
        &self,
        b: &[u8],
        block_size: u32,
    ) -> FsResult<JournalSuperblock> {
        let jsb = JournalSuperblock::decode(b)?;
        if jsb.s_blocksize != block_size {
            return Err(FsError::Errno(Errno::EINVAL));
        }
        if self.map(jsb.s_maxlen - 1).is_none() {
            return Err(FsError::Errno(Errno::EINVAL));
        }
        let unknown = jsb.s_feature_incompat & !KNOWN_INCOMPAT;
        if unknown != 0 {
            let text = format!("journal feature incompat {unknown:#x}");
            return Err(FsError::Unsupported(text));
        }
        Ok(jsb)
    }

    /// Replays the log into the buffer cache; the caller writes that out.
    pub(super) async fn recover(
        &self,
        sim: &Sim,
        jsb: &JournalSuperblock,
        buffers: &Rc<BufferCache>,
    ) -> FsResult<Recovered> {
        let broken = FsError::Errno(Errno::EIO);
        let mut r = Recovery::new(jsb).ok_or(broken)?;
        let mut ahead: Vec<(u32, Rc<[u8]>)> = Vec::new();
        let mut block: Option<Rc<[u8]>> = None;
        let mut told = 0;
        loop {
            let next = r.next(block.as_deref());
            for step in &r.steps[told..] {
                emit_step(sim, step);
            }
            told = r.steps.len();
            let next = next.map_err(|_| FsError::Errno(Errno::EBADMSG))?;
            block = None;
            match next {
                Next::Done => break,
                Next::Read(at) => {
                    if !ahead.iter().any(|(n, _)| *n == at) {
                        ahead = self.read_run(at, jsb.s_maxlen).await?;
                    }
                    let hit = ahead.iter().find(|(n, _)| *n == at);
                    block = hit.map(|(_, b)| Rc::clone(b));
                }
                Next::Write(home, bytes) => {
                    let b = buffers.getblk(FsBlock(home));
                    b.set_payload(Payload::Bytes(bytes));
                    b.set(Bh::UPTODATE);
                    buffers.mark_dirty(&b);
                }
            }
        }
        Ok(Recovered {
            outcome: r.outcome().clone(),
            steps: r.steps,
        })
    }

    /// Reads the blocks from `at` on that are contiguous on the device, a bounded number.
    async fn read_run(&self, at: u32, end: u32) -> Result<Vec<(u32, Rc<[u8]>)>, IoError> {
        let first = self.map(at).ok_or(IoError::BadRequest)?;
        let more = (1..READAHEAD.min(end.saturating_sub(at)))
            .take_while(|&i| self.map(at + i) == Some(first + u64::from(i)))
            .count() as u32;
        let payloads = self.read(self.lba(first), 1 + more).await?;
        let size = self.block_size as usize;
        let blocks = payloads.iter().map(|p| p.to_bytes(size));
        Ok((at..).zip(blocks).collect())
    }
}

fn emit_step(sim: &Sim, step: &RecoveryStep) {
    let (tid, jblock) = (step.tid, step.jblock);
    let scan = |ty: u32| Event::ScanStep {
        tid,
        jblock,
        ty: ty as u8,
    };
    sim.emit(Category::Recovery, || match &step.found {
        Found::FastCommit => scan(0),
        Found::Descriptor { .. } => scan(JBD2_DESCRIPTOR_BLOCK),
        Found::Commit { .. } => scan(JBD2_COMMIT_BLOCK),
        Found::Revoke { .. } => scan(JBD2_REVOKE_BLOCK),
        Found::Replayed { home, .. } => Event::Replayed {
            tid,
            jblock,
            home: FsBlock(*home),
        },
        Found::Revoked { home, .. } | Found::BadCopy { home } => Event::RevokeFound {
            tid,
            block: FsBlock(*home),
        },
        Found::Stop(why) => Event::ScanStopped {
            tid,
            jblock,
            why: match why {
                StopReason::NoMagic => 0,
                StopReason::Sequence { .. } | StopReason::BlockType { .. } => 1,
                StopReason::CommitChecksum | StopReason::Stale => 2,
                StopReason::End => 3,
            },
        },
    });
}

impl Journal {
    /// The next log block (kernel `jbd2_journal_next_log_block`).
    pub(super) fn next_log_block(&self) -> u32 {
        let jblock = self.head.get();
        let jsb = self.jsb.borrow();
        assert!(self.free.get() > 1, "invariant 2: the log is full");
        self.free.set(self.free.get() - 1);
        let next = jblock + 1;
        self.head.set(if next == jsb.log_end() {
            jsb.s_first
        } else {
            next
        });
        jblock
    }

    /// Blocks from `from` to `to` around the ring.
    pub(super) fn log_distance(&self, from: u32, to: u32) -> u32 {
        let jsb = self.jsb.borrow();
        if to >= from {
            to - from
        } else {
            to + (jsb.log_end() - jsb.s_first) - from
        }
    }

    /// Oldest transaction that still needs the log, and where it begins (kernel `jbd2_journal_get_log_tail`).
    pub(super) fn log_tail(&self) -> (Tid, u32) {
        if let Some(t) = self.checkpoint_transactions.borrow().front() {
            return (t.tid, t.log_start.get());
        }
        if let Some(t) = &*self.committing.borrow() {
            return (t.tid, t.log_start.get());
        }
        let running = self.running.borrow().as_ref().map(|t| t.tid);
        let tid = running.unwrap_or(self.transaction_sequence.get());
        (tid, self.head.get())
    }

    pub(super) async fn log_write(
        &self,
        batch: &Rc<LogBatch>,
        jblock: u32,
        payload: Payload,
        role: Role,
        tid: Tid,
    ) {
        self.log_write_flags(batch, jblock, payload, role, tid, BioFlags::NONE)
            .await;
    }

    pub(super) async fn log_write_flags(
        &self,
        batch: &Rc<LogBatch>,
        jblock: u32,
        payload: Payload,
        role: Role,
        tid: Tid,
        flags: BioFlags,
    ) {
        let Some(bio) = self.log_bio(jblock, payload, role, tid) else {
            batch.failed.set(Some(IoError::BadRequest));
            return;
        };
        batch.pending.set(batch.pending.get() + 1);
        let (batch, sim) = (Rc::clone(batch), self.sim.clone());
        let end = move |res: Result<_, IoError>| batch.done(&sim, res.err());
        let bio = bio.flags(flags);
        self.log.queue.enter(&bio).await;
        self.log.queue.submit_with(bio, end);
    }

    /// Writes a copy of `shadow` to the log; who waits to modify that buffer goes on when it is done.
    pub(super) async fn log_write_shadow(
        &self,
        batch: &Rc<LogBatch>,
        jblock: u32,
        payload: Payload,
        shadow: Rc<Buffer>,
        tid: Tid,
    ) {
        let role = if shadow.test(Bh::FILE) {
            Role::JournalFileData
        } else {
            Role::JournalMeta
        };
        let Some(bio) = self.log_bio(jblock, payload, role, tid) else {
            batch.failed.set(Some(IoError::BadRequest));
            self.buffers.end_shadow(&shadow);
            return;
        };
        batch.pending.set(batch.pending.get() + 1);
        let (batch, buffers, sim) = (Rc::clone(batch), Rc::clone(&self.buffers), self.sim.clone());
        let end = move |res: Result<_, IoError>| {
            buffers.end_shadow(&shadow);
            batch.done(&sim, res.err());
        };
        self.log.queue.enter(&bio).await;
        self.log.queue.submit_with(bio, end);
    }

    fn log_bio(&self, jblock: u32, payload: Payload, role: Role, tid: Tid) -> Option<Bio> {
        let lba = self.log.lba(self.log.map(jblock)?);
        let bio = Bio::write(lba, self.block_size(), payload, role);
        Some(bio.flags(LOG_FLAGS).tid(tid))
    }

    /// Checksum of a log copy for its tag (kernel `jbd2_block_tag_csum_set`).
    pub(super) fn payload_tag_csum(
        &self,
        format: TagFormat,
        seed: u32,
        sequence: u32,
        payload: &Payload,
        size: usize,
    ) -> u32 {
        let csum = self
            .page_csum
            .crc32c(crc32c(seed, &sequence.to_be_bytes()), payload, size);
        match (format.csum_v3, format.csum_v2) {
            (true, _) => csum,
            (false, true) => csum & 0xffff,
            (false, false) => 0,
        }
    }

    /// Writes the journal superblock and waits (kernel `jbd2_write_superblock`). A failure aborts the journal.
    async fn write_superblock(self: &Rc<Self>, flags: BioFlags) -> FsResult<()> {
        let (tid, start) = {
            let jsb = self.jsb.borrow();
            (Tid(jsb.s_sequence), jsb.s_start)
        };
        self.stats.borrow_mut().journal_sb_writes += 1;
        self.sim
            .emit(Category::Journal, || Event::LogSuperblock { tid, start });
        let flags = if self.barrier.get() {
            flags
        } else {
            flags.without(BioFlags(BioFlags::FUA.0 | BioFlags::PREFLUSH.0))
        };
        let payload = {
            let mut block = self.sb_block.borrow_mut();
            self.jsb.borrow().encode(&mut block);
            Payload::Bytes(block.as_slice().into())
        };
        let lba = self
            .log
            .superblock_lba()
            .ok_or(FsError::Errno(Errno::EIO))?;
        let bio = Bio::write(lba, self.block_size(), payload, Role::JournalSuper);
        let res = self.log.queue.run(bio.flags(LOG_FLAGS | flags)).await;
        if let Err(e) = res {
            self.buffers.mark_write_error();
            self.abort(Errno::EIO);
            return Err(FsError::Io(e));
        }
        Ok(())
    }

    /// Records the tail on disk (kernel `jbd2_journal_update_sb_log_tail`).
    pub(super) async fn update_sb_log_tail(
        self: &Rc<Self>,
        tid: Tid,
        block: u32,
        flags: BioFlags,
    ) -> FsResult<()> {
        if self.is_aborted() {
            return Err(self.aborted_error());
        }
        if let Err(e) = self.check_checkpoint_error() {
            self.abort(Errno::EIO);
            return Err(e);
        }
        {
            let mut jsb = self.jsb.borrow_mut();
            jsb.s_sequence = tid.0;
            jsb.s_start = block;
        }
        self.write_superblock(flags).await?;
        self.flushed.set(false);
        Ok(())
    }

    /// Moves the tail, on disk first (kernel `__jbd2_update_log_tail`). Needs `j_checkpoint_mutex`.
    pub(super) async fn update_log_tail_locked(
        self: &Rc<Self>,
        tid: Tid,
        block: u32,
    ) -> FsResult<()> {
        // Durable before the freed blocks can be written again: a lost update would replay what is overwritten.
        let flags = BioFlags::SYNC | BioFlags::FUA;
        self.update_sb_log_tail(tid, block, flags).await?;
        let freed = self.log_distance(self.tail.get(), block);
        self.sim.emit(Category::Checkpoint, || Event::TailAdvanced {
            tid,
            start: block,
            freed,
        });
        self.free.set(self.free.get() + freed);
        self.tail_sequence.set(tid);
        self.tail.set(block);
        Ok(())
    }

    /// Moves the tail if that is still ahead (kernel `jbd2_update_log_tail`).
    pub(super) async fn update_log_tail(self: &Rc<Self>, tid: Tid, block: u32) {
        let guard = self.checkpoint_mutex.lock().await;
        if tid.gt(self.tail_sequence.get()) {
            // A failure has aborted the journal.
            let _ = self.update_log_tail_locked(tid, block).await;
        }
        drop(guard);
    }

    /// Marks the log empty on disk (kernel `jbd2_mark_journal_empty`). Needs `j_checkpoint_mutex`.
    pub(super) async fn mark_journal_empty(self: &Rc<Self>, flags: BioFlags) -> FsResult<()> {
        {
            let mut jsb = self.jsb.borrow_mut();
            if jsb.s_start == 0 {
                return Ok(());
            }
            jsb.s_sequence = self.tail_sequence.get().0;
            jsb.s_start = 0;
            jsb.s_head = self.head.get();
        }
        // An empty log needs nobody who understands fast commits.
        let fast = JBD2_FEATURE_INCOMPAT_FAST_COMMIT;
        let had = self.jsb.borrow().s_feature_incompat & fast;
        self.jsb.borrow_mut().s_feature_incompat &= !fast;
        let written = self.write_superblock(BioFlags::SYNC | flags).await;
        self.jsb.borrow_mut().s_feature_incompat |= had;
        written?;
        self.flushed.set(true);
        Ok(())
    }

    /// Records the cause of an abort on disk (kernel `jbd2_journal_update_sb_errno`).
    pub(super) async fn write_sb_errno(self: &Rc<Self>, cause: Errno) -> FsResult<()> {
        self.jsb.borrow_mut().s_errno = (-cause.number()) as u32;
        self.write_superblock(BioFlags::SYNC | BioFlags::FUA).await
    }
}
