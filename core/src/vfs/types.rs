//! Plain types of the system-call interface: what callers of [`super::Vfs`] pass and get.

use crate::base::{Errno, Ino};

/// Result of a system call.
pub type SysResult<T> = Result<T, Errno>;

/// A file descriptor number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fd(pub u32);

/// A point in time: seconds since 1970 (may be negative) and nanoseconds (0..1e9).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timespec {
    /// Seconds since 1970-01-01 UTC.
    pub secs: i64,
    /// Nanoseconds within the second.
    pub nsec: u32,
}

impl Timespec {
    /// From nanoseconds since 1970.
    pub fn from_ns(ns: i128) -> Timespec {
        Timespec {
            secs: ns.div_euclid(1_000_000_000) as i64,
            nsec: ns.rem_euclid(1_000_000_000) as u32,
        }
    }

    /// Nanoseconds since 1970.
    pub fn as_ns(self) -> i128 {
        i128::from(self.secs) * 1_000_000_000 + i128::from(self.nsec)
    }
}

/// Flags of `open(2)`, numbers of x86-64 Linux (`asm-generic/fcntl.h`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenFlags(pub u32);

impl OpenFlags {
    /// Read only.
    pub const RDONLY: OpenFlags = OpenFlags(0);
    /// Write only.
    pub const WRONLY: OpenFlags = OpenFlags(1);
    /// Read and write.
    pub const RDWR: OpenFlags = OpenFlags(2);
    /// Create if missing.
    pub const CREAT: OpenFlags = OpenFlags(0o100);
    /// With `CREAT`: fail if there.
    pub const EXCL: OpenFlags = OpenFlags(0o200);
    /// Cut to zero length.
    pub const TRUNC: OpenFlags = OpenFlags(0o1000);
    /// Each write goes to the end.
    pub const APPEND: OpenFlags = OpenFlags(0o2000);
    /// Each write is followed by `fdatasync`.
    pub const DSYNC: OpenFlags = OpenFlags(0o10000);
    /// Around the page cache.
    pub const DIRECT: OpenFlags = OpenFlags(0o40000);
    /// Must be a directory.
    pub const DIRECTORY: OpenFlags = OpenFlags(0o200_000);
    /// A final symlink is an error.
    pub const NOFOLLOW: OpenFlags = OpenFlags(0o400_000);
    /// Each write is followed by `fsync` (includes `DSYNC`).
    pub const SYNC: OpenFlags = OpenFlags(0o4_010_000);
    /// Nameless file in the directory given (includes `DIRECTORY`).
    pub const TMPFILE: OpenFlags = OpenFlags(0o20_200_000);

    /// True if all bits of `other` are set.
    pub fn has(self, other: OpenFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets.
    #[must_use]
    pub const fn with(self, other: OpenFlags) -> OpenFlags {
        OpenFlags(self.0 | other.0)
    }

    /// Access mode allows reading.
    pub fn readable(self) -> bool {
        matches!(self.0 & 3, 0 | 2)
    }

    /// Access mode allows writing.
    pub fn writable(self) -> bool {
        matches!(self.0 & 3, 1 | 2)
    }
}

/// Flags of `renameat2(2)`; plain rename has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RenameFlags(pub u32);

impl RenameFlags {
    /// Plain rename: replaces the target.
    pub const NONE: RenameFlags = RenameFlags(0);
    /// Fail with EEXIST if the target exists.
    pub const NOREPLACE: RenameFlags = RenameFlags(1);
    /// Swap the two names.
    pub const EXCHANGE: RenameFlags = RenameFlags(2);
    /// Leave a character device 0:0 at the old name.
    pub const WHITEOUT: RenameFlags = RenameFlags(4);

    /// True if all bits of `other` are set.
    pub fn has(self, other: RenameFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// How `setxattr` treats an attribute that exists already.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XattrMode {
    /// Create or replace.
    #[default]
    Any,
    /// `XATTR_CREATE`: EEXIST if there.
    Create,
    /// `XATTR_REPLACE`: ENODATA if missing.
    Replace,
}

/// What `lstat` and `fstat` return.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stat {
    /// Inode number.
    pub ino: Ino,
    /// Type and permission bits.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Space in 512-byte units, delayed allocation included.
    pub blocks: u64,
    /// Device number of a device node as (major, minor).
    pub rdev: (u32, u32),
    /// Last access.
    pub atime: Timespec,
    /// Last content change.
    pub mtime: Timespec,
    /// Last inode change.
    pub ctime: Timespec,
    /// Birth, where the inode has room for it.
    pub btime: Timespec,
}

/// What `statvfs` returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Block size in bytes.
    pub bsize: u64,
    /// Blocks in the file system, overhead left out.
    pub blocks: u64,
    /// Free blocks.
    pub bfree: u64,
    /// Free blocks for others than root.
    pub bavail: u64,
    /// Inodes.
    pub files: u64,
    /// Free inodes.
    pub ffree: u64,
    /// Longest name in bytes.
    pub namelen: u64,
}

/// `fallocate(2)` mode bits (`linux/falloc.h`).
pub mod falloc {
    /// Do not change the file size.
    pub const KEEP_SIZE: u32 = 1;
    /// Deallocate (with `KEEP_SIZE`).
    pub const PUNCH_HOLE: u32 = 2;
    /// Remove a range and close the gap.
    pub const COLLAPSE_RANGE: u32 = 8;
    /// Make a range read as zero.
    pub const ZERO_RANGE: u32 = 0x10;
    /// Insert a hole and shift the rest up.
    pub const INSERT_RANGE: u32 = 0x20;
    /// Unshare (a no-op that ext4 refuses).
    pub const UNSHARE_RANGE: u32 = 0x40;
}
