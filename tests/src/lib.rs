//! Shared code of the test package.
