//! Writing a transaction to the log (kernel fs/jbd2/commit.c).

use super::checkpoint::insert_checkpoint;
use super::journal::Journal;
use super::log::LogBatch;
use super::transaction::{TState, Transaction};
use crate::base::checksum::crc32_be;
use crate::base::{Errno, FsBlock, Nanos, Payload, Tid};
use crate::block::{BioFlags, Role};
use crate::format::jbd2::{
    encode_revokes, BlockTag, CommitBlock, DescriptorWriter, TagFormat, JBD2_CRC32_CHKSUM,
    JBD2_FEATURE_COMPAT_CHECKSUM, JBD2_FEATURE_INCOMPAT_ASYNC_COMMIT, JBD2_FLAG_ESCAPE,
    JBD2_MAGIC_NUMBER,
};
use crate::fs::common::FsResult;
use crate::mm::buffer::{Bh, Buffer, JournalList};
use crate::sim::WaitReason;
use crate::trace::{Category, Event};
use std::rc::Rc;

/// A commit in progress.
struct Commit {
    t: Rc<Transaction>,
    format: TagFormat,
    seed: u32,
    v1: bool,
    is_async: bool,
    /// Log writes of this transaction.
    batch: Rc<LogBatch>,
    /// Running v1 checksum over descriptors and copies.
    crc32: u32,
    /// Buffers in the log write, in order.
    logged: Vec<Rc<Buffer>>,
    blocks_logged: u64,
    /// Instants of the phases.
    locked: Nanos,
    flushing: Nanos,
    logging: Nanos,
}

/// One log copy on its way.
struct Copy {
    jblock: u32,
    payload: Payload,
    shadow: Rc<Buffer>,
}

impl Journal {
    /// Commits the running transaction (kernel `jbd2_journal_commit_transaction`). Runs in `kjournald2` only.
    pub(super) async fn commit_transaction(self: &Rc<Self>) {
        let _frame = self.sim.frame("jbd2_journal_commit_transaction");
        if self.flushed.get() {
            let guard = self.checkpoint_mutex.lock().await;
            let (tid, block) = (self.tail_sequence.get(), self.tail.get());
            // A failure has aborted the journal; the rest of the commit then only gives back buffers.
            let _ = self.update_sb_log_tail(tid, block, BioFlags::SYNC).await;
            drop(guard);
        }
        let running = self.running.borrow().clone();
        let Some(t) = running else { return };
        self.fc_full_commit_begins(t.tid).await;
        let mut c = self.begin_commit(t).await;
        let start = c.flushing;
        if let Err(e) = self.submit_inode_data(&c.t).await {
            self.abort(e.errno());
        }
        let tail = self.write_log(&mut c).await;
        self.wait_log(&mut c).await;
        self.set_state(&c.t, TState::CommitJflush);
        if !c.is_async {
            self.submit_commit_record(&mut c).await;
            if c.batch.wait(&self.sim).await.is_err() {
                self.abort(Errno::EIO);
            }
        } else if self.barrier.get() && !self.is_aborted() {
            let _ = self.log.flush().await;
        }
        c.blocks_logged += 1;
        if let Some((tid, block)) = tail {
            self.update_log_tail(tid, block).await;
        }
        self.process_forget_list(&c.t);
        self.finish_commit(&c, start);
    }

    /// Locks the transaction, waits for its handles, and makes room for a new one.
    async fn begin_commit(self: &Rc<Self>, t: Rc<Transaction>) -> Commit {
        let locked = self.sim.now();
        self.set_state(&t, TState::Locked);
        let why = WaitReason::HandlesDrain(t.tid);
        self.wait_updates
            .wait_until(|| t.updates.get() == 0, why)
            .await;
        self.set_state(&t, TState::Switch);
        assert!(
            t.outstanding_credits.get() <= self.max_transaction_buffers() as i32
                || self.is_aborted(),
            "invariant 3: {} credits in transaction {}",
            t.outstanding_credits.get(),
            t.tid
        );
        loop {
            let unused = t.reserved.borrow_mut().front();
            let Some(b) = unused else { break };
            b.jh.borrow_mut().committed = None;
            self.refile_buffer(&b);
        }
        self.clean_checkpoint_list();
        self.revokes.switch();
        t.add_credits(-self.reserved_credits.get());
        let flushing = self.sim.now();
        self.set_state(&t, TState::Flush);
        *self.committing.borrow_mut() = Some(Rc::clone(&t));
        *self.running.borrow_mut() = None;
        t.log_start.set(self.head.get());
        self.wait_transaction_locked.wake_all();
        let jsb = self.jsb.borrow();
        Commit {
            format: jsb.tag_format(),
            seed: jsb.csum_seed(),
            v1: jsb.has_compat(JBD2_FEATURE_COMPAT_CHECKSUM),
            is_async: jsb.has_incompat(JBD2_FEATURE_INCOMPAT_ASYNC_COMMIT),
            batch: LogBatch::new(),
            crc32: !0,
            logged: Vec::new(),
            blocks_logged: 0,
            locked,
            flushing,
            logging: flushing,
            t,
        }
    }

    /// Ordered data first: the ranges recorded, of inodes marked for writing.
    async fn submit_inode_data(&self, t: &Rc<Transaction>) -> FsResult<()> {
        let inodes: Vec<_> = t.inodes.borrow().clone();
        let mut res = Ok(());
        for j in inodes.iter().filter(|j| j.must_write()) {
            let (Some((start, end)), Some(hook)) = (j.dirty.get(), self.data_hook()) else {
                continue;
            };
            let r = (hook.submit)(j.ino, start, end).await;
            res = res.and(r);
        }
        res
    }

    /// Waits for ordered data and hands the inodes on to the running transaction if that wants them.
    async fn finish_inode_data(&self, t: &Rc<Transaction>) -> FsResult<()> {
        let mut res = Ok(());
        let inodes: Vec<_> = t.inodes.borrow().clone();
        for j in inodes.iter().filter(|j| j.must_wait()) {
            let (Some((start, end)), Some(hook)) = (j.dirty.get(), self.data_hook()) else {
                continue;
            };
            let r = (hook.wait)(j.ino, start, end).await;
            res = res.and(r);
        }
        for j in t.inodes.take() {
            let next = j.next_transaction.take();
            j.transaction.set(next);
            if let Some(n) = next.and_then(|tid| self.live_transaction(tid)) {
                n.inodes.borrow_mut().push(j);
            } else {
                j.transaction.set(None);
                j.dirty.set(None);
                j.flags.set(0);
            }
        }
        res
    }

    /// Phase 2: revoke blocks, descriptors and copies under one plug; waits for ordered data. Gives the new tail
    /// if moving it is worth a superblock write.
    async fn write_log(self: &Rc<Self>, c: &mut Commit) -> Option<(Tid, u32)> {
        let plug = self.log.plug();
        self.write_revoke_records(c).await;
        self.set_state(&c.t, TState::Commit);
        c.logging = self.sim.now();
        let credits = c.t.outstanding_credits.get();
        self.stats.borrow_mut().run.blocks += u64::from(c.t.metadata.borrow().len());
        assert!(
            c.t.metadata.borrow().len() as i32 <= credits || self.is_aborted(),
            "invariant 3: {} buffers, {credits} credits in transaction {}",
            c.t.metadata.borrow().len(),
            c.t.tid
        );
        self.write_metadata(c).await;
        if let Err(e) = self.finish_inode_data(&c.t).await {
            if self.data_err_abort.get() {
                self.abort(e.errno());
            }
        }
        let (tid, block) = self.log_tail();
        let mut tail = tid.gt(self.tail_sequence.get()).then_some((tid, block));
        // Less room than a whole transaction may need isn't worth the write.
        if self.log_distance(self.tail.get(), block) < self.max_transaction_buffers() {
            tail = None;
        }
        if tail.is_some() {
            c.t.need_data_flush.set(true);
        }
        self.set_state(&c.t, TState::CommitDflush);
        if c.t.need_data_flush.get() && self.log.is_external() && self.barrier.get() {
            let _ = self.buffers.flush_device().await;
        }
        if c.is_async {
            self.submit_commit_record(c).await;
        }
        plug.finish();
        tail
    }

    async fn write_revoke_records(&self, c: &mut Commit) {
        let records = self.revokes.take_committing();
        if records.is_empty() || self.is_aborted() {
            return;
        }
        self.stats.borrow_mut().revoke_records += records.len() as u64;
        let size = self.block_size();
        let most = c.format.revokes_per_block(size) as usize;
        let tid = c.t.tid;
        for part in records.chunks(most.max(1)) {
            let jblock = self.next_log_block();
            c.t.add_credits(-1);
            let bytes = encode_revokes(size, c.format, c.seed, tid.0, part);
            self.sim.charge(self.costs.log_block).await;
            self.sim.emit(Category::Journal, || Event::LogRevoke {
                tid,
                jblock,
                records: part.len() as u32,
            });
            let payload = Payload::Bytes(bytes.into());
            self.log_write(&c.batch, jblock, payload, Role::JournalRevoke, tid)
                .await;
            c.blocks_logged += 1;
        }
    }

    /// All metadata buffers: descriptors full of tags, each followed by its copies.
    async fn write_metadata(self: &Rc<Self>, c: &mut Commit) {
        let uuid = self.jsb.borrow().s_uuid;
        let mut open: Option<(u32, DescriptorWriter)> = None;
        let mut copies: Vec<Copy> = Vec::new();
        loop {
            let first = c.t.metadata.borrow_mut().front();
            let Some(b) = first else { break };
            if self.is_aborted() {
                b.clear(Bh::JBDDIRTY);
                self.refile_buffer(&b);
                continue;
            }
            self.sim.charge(self.costs.log_block).await;
            if open.is_none() {
                let jblock = self.next_log_block();
                c.t.add_credits(-1);
                let w = DescriptorWriter::new(self.block_size(), c.format, c.t.tid.0);
                open = Some((jblock, w));
            }
            let (tag, copy) = self.copy_to_log(c, &b);
            let Some((_, w)) = open.as_mut() else { break };
            w.push(tag, &uuid);
            copies.push(copy);
            let done = w.is_full() || c.t.metadata.borrow().is_empty();
            if done {
                self.submit_descriptor(c, &mut open, &mut copies).await;
            }
        }
        self.submit_descriptor(c, &mut open, &mut copies).await;
    }

    /// Takes the image of `b` for the log (kernel `jbd2_journal_write_metadata_buffer`): the frozen copy if there
    /// is one, else the contents as they are, which nobody may change until the write is done.
    fn copy_to_log(&self, c: &mut Commit, b: &Rc<Buffer>) -> (BlockTag, Copy) {
        let jblock = self.next_log_block();
        c.t.add_credits(-1);
        let frozen = b.jh.borrow().frozen.as_deref().cloned();
        let mut payload = frozen.unwrap_or_else(|| b.payload());
        let mut head = [0u8; 4];
        payload.fill(&mut head);
        let mut flags = 0;
        if u32::from_be_bytes(head) == JBD2_MAGIC_NUMBER {
            flags = JBD2_FLAG_ESCAPE;
            let mut bytes = payload.to_bytes(b.size());
            if let Some(word) = Rc::make_mut(&mut bytes).first_chunk_mut::<4>() {
                *word = [0; 4];
            }
            payload = Payload::Bytes(bytes);
        }
        let tid = c.t.tid;
        let t_checksum = self.payload_tag_csum(c.format, c.seed, tid.0, &payload, b.size());
        b.set(Bh::SHADOW);
        self.file_buffer(b, &c.t, JournalList::Shadow);
        c.logged.push(Rc::clone(b));
        let tag = BlockTag {
            t_blocknr: b.blocknr.0,
            t_flags: flags,
            t_checksum,
        };
        let home: FsBlock = b.blocknr;
        self.sim.emit(Category::Journal, || Event::LogCopy {
            tid,
            jblock,
            home,
            flags: flags as u16,
        });
        let shadow = Rc::clone(b);
        (
            tag,
            Copy {
                jblock,
                payload,
                shadow,
            },
        )
    }

    /// Closes a descriptor and submits it with its copies.
    async fn submit_descriptor(
        self: &Rc<Self>,
        c: &mut Commit,
        open: &mut Option<(u32, DescriptorWriter)>,
        copies: &mut Vec<Copy>,
    ) {
        let Some((jblock, w)) = open.take() else {
            return;
        };
        let tid = c.t.tid;
        let tags = copies.len() as u32;
        let bytes = w.finish(c.seed);
        if c.v1 {
            c.crc32 = crc32_be(c.crc32, &bytes);
        }
        self.sim.emit(Category::Journal, || Event::LogDescriptor {
            tid,
            jblock,
            tags,
        });
        let payload = Payload::Bytes(bytes.into());
        self.log_write(&c.batch, jblock, payload, Role::JournalDescriptor, tid)
            .await;
        c.blocks_logged += 1 + u64::from(tags);
        for copy in copies.drain(..) {
            if c.v1 {
                c.crc32 = crc32_be(c.crc32, &copy.payload.to_bytes(copy.shadow.size()));
            }
            self.log_write_shadow(&c.batch, copy.jblock, copy.payload, copy.shadow, tid)
                .await;
        }
    }

    /// Waits for the log writes; the logged buffers wait for their checkpoint then.
    async fn wait_log(self: &Rc<Self>, c: &mut Commit) {
        if c.batch.wait(&self.sim).await.is_err() {
            self.abort(Errno::EIO);
        }
        // From the last to the first, as the kernel does: the checkpoint list then has the order of the log.
        for b in c.logged.drain(..).rev() {
            self.file_buffer(&b, &c.t, JournalList::Forget);
        }
    }

    async fn submit_commit_record(&self, c: &mut Commit) {
        if self.is_aborted() {
            return;
        }
        let jblock = self.next_log_block();
        c.t.add_credits(-1);
        self.sim.charge(self.costs.log_block).await;
        let (sec, nsec) = self.commit_time();
        let mut record = CommitBlock {
            h_sequence: c.t.tid.0,
            h_chksum_type: 0,
            h_chksum_size: 0,
            h_chksum: [0; 8],
            h_commit_sec: sec,
            h_commit_nsec: nsec,
        };
        if c.v1 {
            record.h_chksum_type = JBD2_CRC32_CHKSUM;
            record.h_chksum_size = 4;
            record.h_chksum[0] = c.crc32;
        }
        let mut bytes = vec![0; self.block_size() as usize];
        record.encode(&mut bytes);
        CommitBlock::csum_set(c.format, c.seed, &mut bytes);
        let tid = c.t.tid;
        self.sim
            .emit(Category::Journal, || Event::LogCommit { tid, jblock });
        let mut flags = BioFlags::NONE;
        if self.barrier.get() && !c.is_async {
            flags = BioFlags::PREFLUSH | BioFlags::FUA;
        }
        let payload = Payload::Bytes(bytes.into());
        self.log_write_flags(&c.batch, jblock, payload, Role::JournalCommit, tid, flags)
            .await;
    }

    /// Phase 6: buffers that are in the log now leave older checkpoint lists and join this one
    /// (or the running transaction, or nobody).
    fn process_forget_list(&self, t: &Rc<Transaction>) {
        loop {
            let first = t.forget.borrow_mut().front();
            let Some(b) = first else { return };
            let (cp, next) = {
                let mut jh = b.jh.borrow_mut();
                let frozen = jh.frozen.take();
                if jh.committed.is_some() {
                    jh.committed = frozen;
                }
                (jh.cp_transaction.is_some(), jh.next_transaction.is_some())
            };
            if cp {
                self.stats.borrow_mut().checkpoint.dropped += 1;
                self.remove_checkpoint(&b);
            }
            if b.test(Bh::FREED) {
                b.jh.borrow_mut().modified = false;
                if !next {
                    b.clear(Bh::FREED);
                    b.clear(Bh::JBDDIRTY);
                    b.clear(Bh::NEW);
                }
            }
            if b.test(Bh::JBDDIRTY) {
                if self.is_aborted() {
                    b.clear(Bh::JBDDIRTY);
                }
                insert_checkpoint(&b, t);
            }
            self.refile_buffer(&b);
        }
    }

    /// The transaction is in the log: wakes who waits for it.
    fn finish_commit(self: &Rc<Self>, c: &Commit, start: Nanos) {
        let t = &c.t;
        self.set_state(t, TState::CommitCallback);
        self.checkpoint_transactions
            .borrow_mut()
            .push_back(Rc::clone(t));
        self.commit_sequence.set(t.tid);
        *self.committing.borrow_mut() = None;
        let now = self.sim.now();
        let took = now - start;
        let average = self.average_commit_time.get();
        self.average_commit_time.set(if average == Nanos::ZERO {
            took
        } else {
            Nanos((took.0 + average.0 * 3) / 4)
        });
        for f in t.callbacks.take() {
            f();
        }
        if let Some(f) = self.commit_callback() {
            f(t.tid);
        }
        self.count_run(c, now);
        self.set_state(t, TState::Finished);
        if t.checkpoint.borrow().is_empty() {
            self.drop_transaction(t);
        }
        self.fc_full_commit_ended();
        self.wait_done_commit.wake_all();
    }

    fn count_run(&self, c: &Commit, now: Nanos) {
        let t = &c.t;
        let mut stats = self.stats.borrow_mut();
        stats.transactions += 1;
        let run = &mut stats.run;
        if let Some(requested) = t.requested.get() {
            run.request_delay += c.locked - requested;
        }
        run.running += c.locked - t.start;
        run.locked += c.flushing - c.locked;
        run.flushing += c.logging - c.flushing;
        run.logging += now - c.logging;
        run.handle_count += u64::from(t.handle_count.get());
        run.blocks_logged += c.blocks_logged;
    }
}
