//! Runs of whole experiments: crash campaigns, the durability oracle, reports.

pub mod model;
pub mod oracle;
pub mod scenario;
