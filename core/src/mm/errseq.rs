//! Errors of writeback that each open file must see once (kernel `lib/errseq.c`).

use crate::base::Errno;

/// A writeback error with a sequence number. An address space keeps the newest; each open file keeps what it saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrSeq {
    errno: Option<Errno>,
    counter: u32,
    seen: bool,
}

impl ErrSeq {
    /// Records an error. The counter grows only if somebody looked since the last error.
    pub fn set(&mut self, errno: Errno) {
        if self.seen || self.errno.is_none() {
            self.counter = self.counter.wrapping_add(1);
        }
        self.errno = Some(errno);
        self.seen = false;
    }

    /// What a new open file starts from: an error nobody has seen yet is still reported to it.
    #[must_use]
    pub fn sample(&self) -> ErrSeq {
        if self.errno.is_some() && !self.seen {
            ErrSeq::default()
        } else {
            *self
        }
    }

    /// The error recorded since `since`, if any; does not advance.
    pub fn check(&self, since: ErrSeq) -> Option<Errno> {
        if self.counter == since.counter {
            None
        } else {
            self.errno
        }
    }

    /// Reports the error recorded since `since` and moves `since` past it.
    pub fn check_and_advance(&mut self, since: &mut ErrSeq) -> Option<Errno> {
        let found = self.check(*since);
        if found.is_some() {
            self.seen = true;
        }
        if self.counter != since.counter {
            *since = *self;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_sees_an_error_once() {
        let mut e = ErrSeq::default();
        let (mut a, mut b) = (e.sample(), e.sample());
        assert_eq!(e.check_and_advance(&mut a), None);
        e.set(Errno::EIO);
        e.set(Errno::EIO);
        let mut late = e.sample();
        assert_eq!(e.check_and_advance(&mut a), Some(Errno::EIO));
        assert_eq!(e.check_and_advance(&mut a), None);
        assert_eq!(e.check_and_advance(&mut b), Some(Errno::EIO));
        assert_eq!(e.check_and_advance(&mut late), Some(Errno::EIO));
        let mut later = e.sample();
        assert_eq!(e.check_and_advance(&mut later), None);
        e.set(Errno::ENOSPC);
        assert_eq!(e.check_and_advance(&mut a), Some(Errno::ENOSPC));
        assert_eq!(e.check_and_advance(&mut b), Some(Errno::ENOSPC));
    }
}
