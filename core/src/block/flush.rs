//! The flush machinery (`block/blk-flush.c`): PREFLUSH and FUA become flush - write - flush, and flushes of
//! several requests are one.

use super::bio::BioFlags;
use crate::base::Nanos;
use std::collections::VecDeque;

/// Step: flush before the write.
pub(super) const PRE: u8 = 1;
/// Step: the write.
pub(super) const WRITE: u8 = 2;
/// Step: flush after the write.
pub(super) const POST: u8 = 4;

/// Longest time a flush waits for writes of other sequences (`FLUSH_PENDING_TIMEOUT`).
const PENDING_TIMEOUT: Nanos = Nanos::from_secs(5);

/// Steps needed for a bio's flags.
pub(super) fn policy(flags: BioFlags, sectors: u32, cache: bool, fua: bool) -> u8 {
    let mut policy = 0;
    if sectors > 0 {
        policy |= WRITE;
    }
    if cache {
        if flags.has(BioFlags::PREFLUSH) {
            policy |= PRE;
        }
        if flags.has(BioFlags::FUA) && !fua && sectors > 0 {
            policy |= POST;
        }
    }
    policy
}

/// The next step of a sequence.
pub(super) fn next_step(policy: u8, done: u8) -> Option<u8> {
    [PRE, WRITE, POST]
        .into_iter()
        .find(|step| policy & step != 0 && done & step == 0)
}

/// Requests waiting for flushes: one flush runs, the next collects.
#[derive(Default)]
pub(super) struct FlushQueue {
    waiting: VecDeque<u32>,
    running: Option<VecDeque<u32>>,
    pending_since: Nanos,
    writes_in_flight: u32,
}

impl FlushQueue {
    /// A request needs a flush.
    pub(super) fn wait(&mut self, request: u32, now: Nanos) {
        if self.waiting.is_empty() {
            self.pending_since = now;
        }
        self.waiting.push_back(request);
    }

    pub(super) fn write_begins(&mut self) {
        self.writes_in_flight += 1;
    }

    pub(super) fn write_ends(&mut self) {
        self.writes_in_flight = self.writes_in_flight.saturating_sub(1);
    }

    /// True if a flush should be issued now (`blk_kick_flush`); the waiting requests share it.
    pub(super) fn kick(&mut self, now: Nanos) -> bool {
        if self.running.is_some() || self.waiting.is_empty() {
            return false;
        }
        if self.writes_in_flight > 0 && now < self.pending_since + PENDING_TIMEOUT {
            return false;
        }
        self.running = Some(std::mem::take(&mut self.waiting));
        true
    }

    /// The flush is done: the requests that shared it.
    pub(super) fn flushed(&mut self) -> VecDeque<u32> {
        self.running.take().unwrap_or_default()
    }
}
