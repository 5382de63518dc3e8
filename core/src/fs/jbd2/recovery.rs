//! Recovery: scan, revoke and replay passes over the log (kernel fs/jbd2/recovery.c).
//!
//! Pure: a [`Recovery`] is a state machine over blocks that the caller brings. At mount they come through the queue,
//! for `fsglass recover` and crash exploration from an overlay; the rules are the same code. No bytes make it panic
//! or loop: each pass looks at a log block at most once per tag or control block, and ends within the log.

use super::fast_commit::FcScan;
use crate::base::checksum::crc32_be;
use crate::base::Tid;
use crate::format::jbd2::fast_commit::FcRecord;
use crate::format::jbd2::{
    block_csum_verify, decode_revokes, tag_csum, BlockTag, BlockTags, CommitBlock, JournalHeader,
    JournalSuperblock, TagFormat, JBD2_COMMIT_BLOCK, JBD2_CRC32_CHKSUM, JBD2_DESCRIPTOR_BLOCK,
    JBD2_FEATURE_COMPAT_CHECKSUM, JBD2_FEATURE_INCOMPAT_ASYNC_COMMIT, JBD2_FLAG_ESCAPE,
    JBD2_MAGIC_NUMBER, JBD2_REVOKE_BLOCK,
};
use std::collections::BTreeMap;
use std::rc::Rc;

/// The passes, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pass {
    /// Finds the end of the log.
    Scan,
    /// Collects revoke records.
    Revoke,
    /// Copies blocks home.
    Replay,
    /// Collects the fast commits after the last transaction.
    FastCommit,
}

/// Why a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// The block has no magic: never written by the journal, or a log copy.
    NoMagic,
    /// The block belongs to another transaction than expected: left from an earlier lap.
    Sequence {
        /// The number found.
        found: Tid,
    },
    /// A block type that cannot stand here.
    BlockType {
        /// The type found.
        found: u32,
    },
    /// The commit block's checksum is wrong: the transaction was not completely written.
    CommitChecksum,
    /// A checksum is wrong and the commit is older than the one before it: leftovers of an earlier lap.
    Stale,
    /// The pass reached the end that the scan found.
    End,
}

/// One fact of a pass, for the recovery view and `fsglass recover`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryStep {
    /// The pass.
    pub pass: Pass,
    /// Journal block looked at.
    pub jblock: u32,
    /// Transaction expected there.
    pub tid: Tid,
    /// What was found.
    pub found: Found,
}

/// What a [`RecoveryStep`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A descriptor block.
    Descriptor {
        /// Blocks it describes.
        tags: u32,
        /// Its own checksum is right (or the journal has none).
        csum_ok: bool,
    },
    /// A commit block that ends a good transaction.
    Commit {
        /// Commit time in seconds.
        sec: u64,
        /// And nanoseconds.
        nsec: u32,
    },
    /// A revoke block.
    Revoke {
        /// Home blocks it revokes (empty in other passes than [`Pass::Revoke`]).
        blocks: Vec<u64>,
    },
    /// A log copy was written home.
    Replayed {
        /// Home block.
        home: u64,
        /// Its first word had been escaped.
        escaped: bool,
    },
    /// A log copy was skipped as it is revoked.
    Revoked {
        /// Home block.
        home: u64,
        /// Transaction that revoked it.
        by: Tid,
    },
    /// A log copy with a wrong checksum was skipped.
    BadCopy {
        /// Home block.
        home: u64,
    },
    /// A block of complete or incomplete fast commits.
    FastCommit,
    /// The pass ended.
    Stop(StopReason),
}

/// Recovery failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryError {
    /// A checksum is wrong in a transaction that is followed by a newer or equal commit time (`EFSBADCRC`).
    BadChecksum {
        /// Journal block.
        jblock: u32,
        /// Transaction.
        tid: Tid,
    },
    /// Log copies with wrong checksums were skipped; the rest was replayed.
    BadCopies {
        /// How many.
        count: u32,
    },
    /// A revoke block is malformed.
    BadRevoke {
        /// Journal block.
        jblock: u32,
    },
    /// A pass ended at another transaction than the scan.
    PassesDiffer {
        /// End of the scan.
        scan: Tid,
        /// End of the later pass.
        later: Tid,
    },
}

/// What the caller does next.
#[derive(Clone, Debug)]
pub enum Next {
    /// Bring the contents of this journal block and call again.
    Read(u32),
    /// Write these bytes to this home block, then call again.
    Write(u64, Rc<[u8]>),
    /// Done; see [`Recovery::outcome`].
    Done,
}

/// Result of a recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// First transaction in the log.
    pub start: Tid,
    /// First transaction that was not replayed.
    pub end: Tid,
    /// Number for the next transaction: one more than `end`, so that leftovers of it cannot match.
    pub next: Tid,
    /// Log block after the last good commit.
    pub head: u32,
    /// Blocks copied home.
    pub replayed: u32,
    /// Revoke records found.
    pub revokes: u32,
    /// Copies skipped because of them.
    pub revoke_hits: u32,
    /// Time of the last good commit.
    pub commit_sec: u64,
    /// Error that does not undo the replay.
    pub error: Option<RecoveryError>,
    /// Records of complete fast commits, for the file system to apply.
    pub fast_commits: Vec<FcRecord>,
}

/// The state machine. Feed it through [`Recovery::next`].
#[derive(Debug)]
pub struct Recovery {
    // Constant.
    format: TagFormat,
    seed: u32,
    block_size: usize,
    first: u32,
    last: u32,
    v1: bool,
    async_commit: bool,
    start: u32,
    start_tid: Tid,
    // Over all passes.
    pass: Pass,
    end: Option<Tid>,
    head: u32,
    revoked: BTreeMap<u64, Tid>,
    outcome: Outcome,
    /// Blocks of the fast-commit area, which begins after block `last` (the kernel leaves that one out).
    fast_blocks: u32,
    fast: Option<FcScan>,
    done: bool,
    /// All facts in order.
    pub steps: Vec<RecoveryStep>,
    // Of the present pass.
    at: u32,
    tid: Tid,
    budget: u64,
    bad_csum_seen: bool,
    last_commit_sec: u64,
    crc32: u32,
    tags: Vec<BlockTag>,
    next_tag: usize,
}

impl Recovery {
    /// Recovery of the log that `jsb` describes; `None` if the log is empty.
    pub fn new(jsb: &JournalSuperblock) -> Option<Recovery> {
        if jsb.s_start == 0 {
            return None;
        }
        let tid = Tid(jsb.s_sequence);
        Some(Recovery {
            format: jsb.tag_format(),
            seed: jsb.csum_seed(),
            block_size: jsb.s_blocksize as usize,
            first: jsb.s_first,
            last: jsb.log_end(),
            v1: jsb.has_compat(JBD2_FEATURE_COMPAT_CHECKSUM),
            async_commit: jsb.has_incompat(JBD2_FEATURE_INCOMPAT_ASYNC_COMMIT),
            start: jsb.s_start,
            start_tid: tid,
            pass: Pass::Scan,
            end: None,
            head: jsb.s_start,
            revoked: BTreeMap::new(),
            outcome: Outcome {
                start: tid,
                end: tid,
                next: tid.next(),
                head: jsb.s_start,
                replayed: 0,
                revokes: 0,
                revoke_hits: 0,
                commit_sec: 0,
                error: None,
                fast_commits: Vec::new(),
            },
            fast_blocks: jsb.fast_commit_blocks().saturating_sub(1),
            fast: None,
            done: false,
            steps: Vec::new(),
            at: jsb.s_start,
            tid,
            budget: Recovery::budget_of(jsb),
            bad_csum_seen: false,
            last_commit_sec: 0,
            crc32: !0,
            tags: Vec::new(),
            next_tag: 0,
        })
    }

    /// A pass can not look at more blocks than the log has: the second lap ends at a wrong sequence, and hostile
    /// logs end here.
    fn budget_of(jsb: &JournalSuperblock) -> u64 {
        u64::from(jsb.s_maxlen) * 2
    }

    /// The result so far; final after [`Next::Done`].
    pub fn outcome(&self) -> &Outcome {
        &self.outcome
    }

    /// Runs until it needs something. `block` is the answer to the last [`Next::Read`].
    pub fn next(&mut self, mut block: Option<&[u8]>) -> Result<Next, RecoveryError> {
        loop {
            if self.done {
                return Ok(Next::Done);
            }
            if self.pass == Pass::FastCommit {
                let Some(b) = block.take() else {
                    return Ok(Next::Read(self.at));
                };
                self.fast_block(b);
                continue;
            }
            if self.next_tag < self.tags.len() {
                let jblock = self.at;
                let Some(b) = block.take() else {
                    return Ok(Next::Read(jblock));
                };
                if let Some((home, bytes)) = self.one_copy(b) {
                    return Ok(Next::Write(home, bytes));
                }
                continue;
            }
            if self.pass != Pass::Scan && self.end.is_some_and(|end| self.tid.geq(end)) {
                self.stop(StopReason::End)?;
                continue;
            }
            let Some(b) = block.take() else {
                return Ok(Next::Read(self.at));
            };
            self.control_block(b)?;
        }
    }

    fn step(&mut self, jblock: u32, found: Found) {
        let (pass, tid) = (self.pass, self.tid);
        self.steps.push(RecoveryStep {
            pass,
            jblock,
            tid,
            found,
        });
    }

    fn wrap(&self, at: u32) -> u32 {
        if at >= self.last {
            at - self.last + self.first
        } else {
            at
        }
    }

    fn advance(&mut self, n: u32) {
        let n = n.min(self.last - self.first);
        self.at = self.wrap(self.at.saturating_add(n));
    }

    fn control_block(&mut self, b: &[u8]) -> Result<(), RecoveryError> {
        if self.budget == 0 {
            return self.stop(StopReason::End);
        }
        self.budget -= 1;
        let Some(h) = JournalHeader::decode(b) else {
            return self.stop(StopReason::NoMagic);
        };
        let found = Tid(h.h_sequence);
        if found != self.tid {
            return self.stop(StopReason::Sequence { found });
        }
        match h.h_blocktype {
            JBD2_DESCRIPTOR_BLOCK => self.descriptor(b),
            JBD2_COMMIT_BLOCK => self.commit(b),
            JBD2_REVOKE_BLOCK => self.revoke(b),
            found => self.stop(StopReason::BlockType { found }),
        }
    }

    fn descriptor(&mut self, b: &[u8]) -> Result<(), RecoveryError> {
        let jblock = self.at;
        let csum_ok = block_csum_verify(self.format, self.seed, b).is_ok();
        if !csum_ok {
            if self.pass != Pass::Scan {
                let tid = self.tid;
                return Err(RecoveryError::BadChecksum { jblock, tid });
            }
            self.bad_csum_seen = true;
        }
        let tags: Vec<BlockTag> = BlockTags::new(b, self.format).collect();
        let count = tags.len() as u32;
        self.step(
            jblock,
            Found::Descriptor {
                tags: count,
                csum_ok,
            },
        );
        self.advance(1);
        // v1 sums up descriptor and copies; the scan then has to read the copies as well.
        let sum_copies = self.pass == Pass::Scan && self.v1 && self.end.is_none();
        if sum_copies {
            self.crc32 = crc32_be(self.crc32, b);
        }
        if self.pass == Pass::Replay || sum_copies {
            self.tags = tags;
            self.next_tag = 0;
        } else {
            self.advance(count);
        }
        Ok(())
    }

    /// The copy of the next tag has come: checks and prepares it for its home.
    fn one_copy(&mut self, b: &[u8]) -> Option<(u64, Rc<[u8]>)> {
        let jblock = self.at;
        let tag = self.tags[self.next_tag];
        self.next_tag += 1;
        self.advance(1);
        if self.pass == Pass::Scan {
            self.crc32 = crc32_be(self.crc32, b);
            return None;
        }
        let home = tag.t_blocknr;
        if let Some(&by) = self.revoked.get(&home) {
            if !self.tid.gt(by) {
                self.outcome.revoke_hits += 1;
                self.step(jblock, Found::Revoked { home, by });
                return None;
            }
        }
        let csum = tag_csum(self.format, self.seed, self.tid.0, b);
        if self.format.has_tail() && csum != tag.t_checksum {
            let count = match self.outcome.error {
                Some(RecoveryError::BadCopies { count }) => count + 1,
                _ => 1,
            };
            self.outcome.error = Some(RecoveryError::BadCopies { count });
            self.step(jblock, Found::BadCopy { home });
            return None;
        }
        let escaped = tag.t_flags & JBD2_FLAG_ESCAPE != 0;
        let mut bytes: Rc<[u8]> = b.into();
        if escaped {
            let word = JBD2_MAGIC_NUMBER.to_be_bytes();
            if let Some(head) = Rc::make_mut(&mut bytes).first_chunk_mut::<4>() {
                *head = word;
            }
        }
        self.outcome.replayed += 1;
        self.step(jblock, Found::Replayed { home, escaped });
        Some((home, bytes))
    }

    fn commit(&mut self, b: &[u8]) -> Result<(), RecoveryError> {
        let jblock = self.at;
        let Some(c) = CommitBlock::decode(b) else {
            return self.stop(StopReason::NoMagic);
        };
        if self.pass == Pass::Scan {
            let stale = c.h_commit_sec < self.last_commit_sec;
            if self.bad_csum_seen {
                if !stale {
                    let tid = self.tid;
                    return Err(RecoveryError::BadChecksum { jblock, tid });
                }
                return self.stop(StopReason::Stale);
            }
            if !self.commit_csum_ok(&c, b) {
                if stale {
                    return self.stop(StopReason::Stale);
                }
                if self.end.is_none() {
                    self.end = Some(self.tid);
                }
                if !self.async_commit {
                    return self.stop(StopReason::CommitChecksum);
                }
                // With async commits the kernel walks on, but nothing behind this counts.
                self.advance(1);
                self.tid = self.tid.next();
                return Ok(());
            }
            if self.end.is_some() {
                return self.stop(StopReason::CommitChecksum);
            }
        }
        let (sec, nsec) = (c.h_commit_sec, c.h_commit_nsec);
        self.step(jblock, Found::Commit { sec, nsec });
        self.advance(1);
        if self.pass == Pass::Scan {
            self.last_commit_sec = sec;
            self.outcome.commit_sec = sec;
            self.head = self.at;
            self.crc32 = !0;
        }
        self.tid = self.tid.next();
        Ok(())
    }

    fn commit_csum_ok(&self, c: &CommitBlock, b: &[u8]) -> bool {
        if self.v1 {
            let found = c.h_chksum[0];
            let unused = c.h_chksum_type == 0 && c.h_chksum_size == 0 && found == 0;
            let typed = c.h_chksum_type == JBD2_CRC32_CHKSUM && c.h_chksum_size == 4;
            return unused || (typed && found == self.crc32);
        }
        CommitBlock::csum_verify(self.format, self.seed, b).is_ok()
    }

    fn revoke(&mut self, b: &[u8]) -> Result<(), RecoveryError> {
        let jblock = self.at;
        if self.pass == Pass::Scan && block_csum_verify(self.format, self.seed, b).is_err() {
            self.bad_csum_seen = true;
        }
        let mut blocks = Vec::new();
        if self.pass == Pass::Revoke {
            blocks =
                decode_revokes(b, self.format).map_err(|_| RecoveryError::BadRevoke { jblock })?;
            for &n in &blocks {
                let by = self.revoked.entry(n).or_insert(self.tid);
                if self.tid.gt(*by) {
                    *by = self.tid;
                }
            }
            self.outcome.revokes += blocks.len() as u32;
        }
        self.step(jblock, Found::Revoke { blocks });
        self.advance(1);
        Ok(())
    }

    /// Ends the pass and begins the next one.
    fn stop(&mut self, why: StopReason) -> Result<(), RecoveryError> {
        self.step(self.at, Found::Stop(why));
        let end = *self.end.get_or_insert(self.tid);
        if self.pass == Pass::Scan {
            self.outcome.end = end;
            self.outcome.next = end.next();
            self.outcome.head = self.head;
        } else if self.tid != end {
            let later = self.tid;
            let err = RecoveryError::PassesDiffer { scan: end, later };
            if self.pass == Pass::Revoke {
                return Err(err);
            }
            self.outcome.error = self.outcome.error.or(Some(err));
        }
        match self.pass {
            Pass::Scan => self.pass = Pass::Revoke,
            Pass::Revoke => self.pass = Pass::Replay,
            Pass::Replay if self.fast_blocks > 0 => {
                self.pass = Pass::FastCommit;
                self.at = self.last + 1;
                self.tid = end;
                self.fast = Some(FcScan::new(end));
                return Ok(());
            }
            Pass::Replay | Pass::FastCommit => self.done = true,
        }
        self.at = self.start;
        self.tid = self.start_tid;
        self.budget = u64::from(self.last) * 2;
        self.bad_csum_seen = false;
        self.tags.clear();
        self.next_tag = 0;
        Ok(())
    }

    fn fast_block(&mut self, b: &[u8]) {
        let more = self.fast.as_mut().is_some_and(|scan| scan.block(b));
        let found = if more {
            Found::FastCommit
        } else {
            Found::Stop(StopReason::End)
        };
        self.step(self.at, found);
        self.at += 1;
        if !more || self.at - self.last > self.fast_blocks {
            let scan = self.fast.take();
            self.outcome.fast_commits = scan.map_or_else(Vec::new, FcScan::into_records);
            self.done = true;
        }
    }

    /// Bytes of a journal block.
    pub fn block_size(&self) -> usize {
        self.block_size
    }

    /// Log block after `at`, for read-ahead.
    pub fn following(&self, at: u32) -> u32 {
        self.wrap(at.saturating_add(1))
    }
}

/// Replays a log through closures: `read` gives a journal block (`None`: unreadable), `write` takes a home block.
/// Unreadable control blocks end the pass; unreadable copies are skipped and reported.
pub fn replay<E>(
    jsb: &JournalSuperblock,
    mut read: impl FnMut(u32) -> Result<Rc<[u8]>, E>,
    mut write: impl FnMut(u64, Rc<[u8]>) -> Result<(), E>,
) -> Result<Option<(Outcome, Vec<RecoveryStep>)>, ReplayError<E>> {
    let Some(mut r) = Recovery::new(jsb) else {
        return Ok(None);
    };
    let mut block: Option<Rc<[u8]>> = None;
    loop {
        let next = r.next(block.as_deref()).map_err(|error| ReplayError::Log {
            error,
            steps: std::mem::take(&mut r.steps),
        })?;
        block = None;
        match next {
            Next::Read(at) => block = Some(read(at).map_err(ReplayError::Io)?),
            Next::Write(home, bytes) => write(home, bytes).map_err(ReplayError::Io)?,
            Next::Done => return Ok(Some((r.outcome, r.steps))),
        }
    }
}

/// [`replay`] failed.
#[derive(Clone, Debug)]
pub enum ReplayError<E> {
    /// Reading or writing failed.
    Io(E),
    /// The log is damaged; the steps up to there.
    Log {
        /// What is wrong.
        error: RecoveryError,
        /// The facts found before.
        steps: Vec<RecoveryStep>,
    },
}
