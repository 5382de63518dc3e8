//! Faults injected on purpose: the only source of I/O errors.

use super::bio::{IoError, Op};
use crate::base::Lba;

/// One fault to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Operations it applies to; `None` is all.
    pub op: Option<Op>,
    /// First sector of the range it applies to.
    pub lba: Lba,
    /// Sectors of the range; `u64::MAX` is the whole device (flushes have no sectors and match any range).
    pub sectors: u64,
    /// Matching requests that still succeed.
    pub after: u64,
    /// Requests that fail then; `u64::MAX` is all.
    pub times: u64,
    /// The error.
    pub error: IoError,
}

impl Fault {
    /// The `n`-th request (from 0) of that operation fails once with a medium error.
    pub fn nth(op: Option<Op>, n: u64) -> Fault {
        Fault {
            op,
            lba: Lba(0),
            sectors: u64::MAX,
            after: n,
            times: 1,
            error: IoError::Medium,
        }
    }

    /// All requests of that operation that touch the range fail.
    pub fn range(op: Option<Op>, lba: Lba, sectors: u64) -> Fault {
        Fault {
            op,
            lba,
            sectors,
            after: 0,
            times: u64::MAX,
            error: IoError::Medium,
        }
    }
}

/// The faults of a device.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    list: Vec<Fault>,
    injected: u64,
}

impl Faults {
    /// Adds a fault.
    pub fn add(&mut self, fault: Fault) {
        self.list.push(fault);
    }

    /// Removes all faults.
    pub fn clear(&mut self) {
        self.list.clear();
    }

    /// Errors injected so far.
    pub fn injected(&self) -> u64 {
        self.injected
    }

    pub(super) fn check(&mut self, op: Op, lba: Lba, sectors: u32) -> Option<IoError> {
        let mut error = None;
        for f in &mut self.list {
            let end = f.lba.0.saturating_add(f.sectors);
            let touches = op == Op::Flush
                || (lba.0 < end && f.lba.0 < lba.0.saturating_add(u64::from(sectors)));
            if f.op.is_some_and(|o| o != op) || !touches || f.times == 0 {
                continue;
            }
            if f.after > 0 {
                f.after -= 1;
            } else {
                f.times = f.times.saturating_sub(u64::from(f.times != u64::MAX));
                error = error.or(Some(f.error));
            }
        }
        self.injected += u64::from(error.is_some());
        error
    }
}
