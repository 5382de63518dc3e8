//! What the file systems of Linux share below the VFS: the error type of their operations.
//!
//! Knows nothing of ext4, JBD2 or system calls.

mod error;

pub use error::{FsError, FsResult};
