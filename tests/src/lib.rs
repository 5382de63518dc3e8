//! Shared code of the test package.

pub mod tidy;
