//! The error of a file-system operation and its one mapping to an errno.

use crate::base::Errno;
use crate::block::IoError;
use crate::format::Corrupt;
use std::fmt;

/// Why an operation of a file system failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FsError {
    /// A structure on disk failed a check.
    Corrupt(Corrupt),
    /// The device failed a request.
    Io(IoError),
    /// No free block or inode, or more journal credits asked for than a transaction can have.
    NoSpace,
    /// The file system (or its journal, after an abort) takes no more changes.
    ReadOnly,
    /// A feature or option that is not supported, by name.
    Unsupported(String),
    /// The journal was aborted; the cause is kept.
    Aborted(Errno),
    /// Any other refusal, as the kernel reports it.
    Errno(Errno),
}

/// Result of a file-system operation.
pub type FsResult<T> = Result<T, FsError>;

impl FsError {
    /// What a program sees. Checksum and structure errors are `EUCLEAN` (`EFSCORRUPTED`); an aborted journal shows
    /// `EIO` to the first waiters and makes the file system read-only, which then is `EROFS`.
    pub fn errno(&self) -> Errno {
        match self {
            FsError::Corrupt(_) => Errno::EUCLEAN,
            FsError::Io(_) | FsError::Aborted(_) => Errno::EIO,
            FsError::NoSpace => Errno::ENOSPC,
            FsError::ReadOnly => Errno::EROFS,
            FsError::Unsupported(_) => Errno::EOPNOTSUPP,
            FsError::Errno(e) => *e,
        }
    }
}

impl From<Corrupt> for FsError {
    fn from(c: Corrupt) -> FsError {
        FsError::Corrupt(c)
    }
}

impl From<IoError> for FsError {
    fn from(e: IoError) -> FsError {
        FsError::Io(e)
    }
}

impl From<Errno> for FsError {
    fn from(e: Errno) -> FsError {
        match e {
            Errno::ENOSPC => FsError::NoSpace,
            Errno::EROFS => FsError::ReadOnly,
            e => FsError::Errno(e),
        }
    }
}

impl fmt::Display for FsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FsError::Corrupt(c) => c.fmt(f),
            FsError::Io(e) => write!(f, "I/O error: {e:?}"),
            FsError::NoSpace => f.write_str("no space left on device"),
            FsError::ReadOnly => f.write_str("read-only file system"),
            FsError::Unsupported(what) => write!(f, "not supported: {what}"),
            FsError::Aborted(e) => write!(f, "journal aborted ({e})"),
            FsError::Errno(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for FsError {}
