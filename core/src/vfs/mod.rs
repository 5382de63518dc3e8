//! System calls over one mounted file system: path walk, descriptors, the kernel's order of checks.
//!
//! The caller is root with umask 0. Knows nothing of workloads or experiments.

mod types;

pub use types::{falloc, Fd, OpenFlags, RenameFlags, Stat, StatFs, SysResult, Timespec, XattrMode};
