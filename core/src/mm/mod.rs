//! Memory: cached file pages, dirty accounting, throttling of writers and writeback.
//!
//! Knows no file system: where writeback needs one (mapping delayed blocks) it takes a generic parameter that
//! implements [`writeback::WritebackOps`].

pub mod buffer;
mod errseq;
pub mod folio;
mod page_cache;
pub mod page_tree;
pub mod readahead;
mod throttle;
mod vm;
pub mod writeback;

pub use errseq::ErrSeq;
pub use folio::Folio;
pub use page_cache::{dirty, AddressSpace};
pub use page_tree::Tag;
pub use throttle::Bandwidth;
pub use vm::{Sysctls, Vm, VmStat, TICK};
pub use writeback::{WritebackControl, WritebackOps};
