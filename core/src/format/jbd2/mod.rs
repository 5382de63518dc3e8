//! JBD2 log structures. All big-endian except fast commit; source `include/linux/jbd2.h`, `journal.rst`.

mod blocks;
pub mod fast_commit;
mod superblock;

pub use blocks::*;
pub use superblock::*;
