//! Memory: cached file pages, dirty accounting, throttling of writers and writeback.
//!
//! Knows no file system: where writeback needs one (mapping delayed blocks) it takes a generic parameter that
//! implements [`writeback::WritebackOps`].

pub mod folio;
pub mod page_tree;
