//! Faults injected on purpose: the only source of I/O errors.

use super::bio::{IoError, Op};
use crate::base::Lba;
use std::str::FromStr;

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

impl FromStr for Fault {
    type Err = String;

    /// `OPERATION@N` fails the N-th such request (from 1, mount included), `OPERATION@N+` that and all later ones;
    /// the operation is read, write, flush, zeroes, discard or any. `:FIRST-LAST` limits it to requests that touch
    /// these sectors.
    fn from_str(text: &str) -> Result<Fault, String> {
        let form = || {
            format!("fault `{text}` is not OPERATION@N, OPERATION@N+ or one of these with :FIRST-LAST sectors")
        };
        let (request, range) = match text.split_once(':') {
            Some((request, range)) => (request, Some(range)),
            None => (text, None),
        };
        let (op, n) = request.split_once('@').ok_or_else(form)?;
        let op = match op {
            "any" => None,
            "read" => Some(Op::Read),
            "write" => Some(Op::Write),
            "flush" => Some(Op::Flush),
            "zeroes" => Some(Op::WriteZeroes),
            "discard" => Some(Op::Discard),
            _ => {
                return Err(format!(
                    "fault `{text}`: `{op}` is not read, write, flush, zeroes, discard or any"
                ))
            }
        };
        let (n, lasting) = match n.strip_suffix('+') {
            Some(n) => (n, true),
            None => (n, false),
        };
        let n: u64 = n.parse().map_err(|_| form())?;
        let after = n.checked_sub(1).ok_or_else(form)?;
        let mut fault = Fault::nth(op, after);
        if lasting {
            fault.times = u64::MAX;
        }
        if let Some((first, last)) = range
            .map(|r| r.split_once('-').ok_or_else(form))
            .transpose()?
        {
            let first: u64 = first.parse().map_err(|_| form())?;
            let last: u64 = last.parse().map_err(|_| form())?;
            if last < first {
                return Err(form());
            }
            (fault.lba, fault.sectors) = (Lba(first), last - first + 1);
        }
        Ok(fault)
    }
}

/// The faults of a device.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    list: Vec<Fault>,
    injected: u64,
}

impl Faults {
    /// These faults, none injected yet.
    pub fn new(list: Vec<Fault>) -> Faults {
        Faults { list, injected: 0 }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_written_as_text() {
        let write = |n| Fault::nth(Some(Op::Write), n);
        assert_eq!("write@7".parse(), Ok(write(6)));
        let lasting = Fault {
            times: u64::MAX,
            lba: Lba(100),
            sectors: 11,
            ..write(0)
        };
        assert_eq!("write@1+:100-110".parse(), Ok(lasting));
        assert_eq!("any@2".parse(), Ok(Fault::nth(None, 1)));
        for bad in [
            "",
            "write",
            "write@0",
            "write@x",
            "@3",
            "seek@3",
            "read@1:9",
            "read@1:9-8",
            "flush@1++",
        ] {
            let reason = bad.parse::<Fault>().unwrap_err();
            assert!(reason.contains(bad), "{reason}");
        }
    }
}
