//! File systems and their journals.

pub mod common;
pub mod jbd2;
