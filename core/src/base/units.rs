//! Newtypes for the numbers that cross module borders.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

macro_rules! id {
    ($(#[$m:meta])* $name:ident($t:ty)) => {
        $(#[$m])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(pub $t);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

id!(
    /// Physical file-system block number (unit: the file system's block size).
    FsBlock(u64)
);
id!(
    /// Logical block number within a file (unit: the file system's block size).
    Lblk(u32)
);
id!(
    /// Block group number.
    GroupNo(u32)
);
id!(
    /// Inode number; 0 means "none" on disk.
    Ino(u32)
);
id!(
    /// Device address in sectors of 512 bytes.
    Lba(u64)
);
id!(
    /// JBD2 transaction id. Wraps; compare with [`Tid::gt`] and [`Tid::geq`].
    Tid(u32)
);
id!(
    /// Virtual time or duration in nanoseconds.
    Nanos(u64)
);

impl Tid {
    /// True if `self` is newer than `other`, wrap-safe (kernel `tid_gt`).
    pub fn gt(self, other: Tid) -> bool {
        (self.0.wrapping_sub(other.0) as i32) > 0
    }

    /// True if `self` is newer than or equal to `other`, wrap-safe (kernel `tid_geq`).
    pub fn geq(self, other: Tid) -> bool {
        (self.0.wrapping_sub(other.0) as i32) >= 0
    }

    /// The next transaction id.
    #[must_use]
    pub fn next(self) -> Tid {
        Tid(self.0.wrapping_add(1))
    }
}

impl Nanos {
    /// Start of virtual time.
    pub const ZERO: Nanos = Nanos(0);
    /// Later than every reachable instant.
    pub const MAX: Nanos = Nanos(u64::MAX);

    /// `n` microseconds.
    pub const fn from_us(n: u64) -> Nanos {
        Nanos(n * 1_000)
    }

    /// `n` milliseconds.
    pub const fn from_ms(n: u64) -> Nanos {
        Nanos(n * 1_000_000)
    }

    /// `n` seconds.
    pub const fn from_secs(n: u64) -> Nanos {
        Nanos(n * 1_000_000_000)
    }

    /// This time as seconds, for display only.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// Difference, zero if `earlier` is later.
    #[must_use]
    pub fn saturating_sub(self, earlier: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add for Nanos {
    type Output = Nanos;
    fn add(self, rhs: Nanos) -> Nanos {
        Nanos(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign for Nanos {
    fn add_assign(&mut self, rhs: Nanos) {
        *self = *self + rhs;
    }
}

impl Sub for Nanos {
    type Output = Nanos;
    fn sub(self, rhs: Nanos) -> Nanos {
        Nanos(self.0.saturating_sub(rhs.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tids_compare_across_the_wrap() {
        assert!(Tid(1).gt(Tid(u32::MAX)));
        assert!(!Tid(u32::MAX).gt(Tid(1)));
        assert!(Tid(7).geq(Tid(7)));
        assert_eq!(Tid(u32::MAX).next(), Tid(0));
    }
}
