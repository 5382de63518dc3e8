//! Runs of whole experiments: crash campaigns, the durability oracle, reports.

pub mod drive;
pub mod explore;
pub mod lab;
#[cfg(test)]
mod lab_tests;
pub mod model;
pub mod oracle;
pub mod recover;
pub mod scenario;
pub mod setup;
pub mod state;
pub mod truth;
