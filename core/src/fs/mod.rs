//! File systems and their journals.

pub mod common;
pub mod ext4;
pub mod jbd2;
