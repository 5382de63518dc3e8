//! What applications asked for and were told: the record that crash verdicts are measured against.

use super::ops::{Op, OpenFlags};
use crate::base::{Errno, Nanos};
use std::rc::Rc;

/// One system call as the application saw it.
#[derive(Clone, Debug, PartialEq)]
pub enum AppOp {
    /// `pwrite` through a descriptor, content `content(seed, offset)`.
    #[allow(missing_docs, reason = "arguments of the call")]
    Write {
        fd: u32,
        offset: u64,
        len: u32,
        seed: u32,
    },
    /// `pread` through a descriptor.
    #[allow(missing_docs, reason = "arguments of the call")]
    Read { fd: u32, offset: u64, len: u32 },
    /// `fsync` or `fdatasync` through a descriptor.
    #[allow(missing_docs, reason = "arguments of the call")]
    Fsync { fd: u32, datasync: bool },
    /// `open`.
    #[allow(missing_docs, reason = "arguments of the call")]
    Open {
        fd: u32,
        path: Rc<[u8]>,
        flags: OpenFlags,
    },
    /// `close`.
    #[allow(missing_docs, reason = "arguments of the call")]
    Close { fd: u32 },
    /// Everything else, in the grammar of operation scripts; descriptors in it are descriptor numbers.
    Other(Rc<Op>),
}

/// A call with its times and outcome.
#[derive(Clone, Debug, PartialEq)]
pub struct AppRecord {
    /// Start of the call.
    pub start: Nanos,
    /// Return of the call; [`Nanos::MAX`] while it runs.
    pub end: Nanos,
    /// What it returned, if it failed.
    pub err: Option<Errno>,
    /// Bytes moved.
    pub bytes: u32,
    /// The call.
    pub op: AppOp,
}

/// Calls in order of their start, with a limit on memory.
#[derive(Clone, Debug)]
pub struct AppLog {
    records: Vec<AppRecord>,
    records_max: usize,
    dropped: u64,
}

impl AppLog {
    /// A log that keeps the first `records_max` calls.
    pub fn new(records_max: usize) -> AppLog {
        AppLog {
            records: Vec::new(),
            records_max,
            dropped: 0,
        }
    }

    /// Notes the start of a call; the token goes to [`AppLog::end`]. `None` once the log is full.
    pub fn begin(&mut self, start: Nanos, op: AppOp) -> Option<usize> {
        if self.records.len() >= self.records_max {
            self.dropped += 1;
            return None;
        }
        self.records.push(AppRecord {
            start,
            end: Nanos::MAX,
            err: None,
            bytes: 0,
            op,
        });
        Some(self.records.len() - 1)
    }

    /// Notes the return of a call.
    pub fn end(&mut self, token: Option<usize>, end: Nanos, err: Option<Errno>, bytes: u32) {
        if let Some(r) = token.and_then(|t| self.records.get_mut(t)) {
            (r.end, r.err, r.bytes) = (end, err, bytes);
        }
    }

    /// The calls that were kept.
    pub fn records(&self) -> &[AppRecord] {
        &self.records
    }

    /// Calls that did not fit; verdicts about times after the last kept call are not complete.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }
}

impl Default for AppLog {
    fn default() -> AppLog {
        AppLog::new(1 << 20)
    }
}
