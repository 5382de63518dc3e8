//! The only door for the page and the command line.

pub mod view;
