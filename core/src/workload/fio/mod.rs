//! fio job files: options, statistics with fio's own binning, and reports in fio's layout.
//!
//! Source of behaviour: fio 3.33 HOWTO.rst and the output of the tool.

mod job;
pub mod json;
mod offsets;
mod options;
mod outcome;
pub mod report;
pub mod run;
mod stat;

pub use job::{looks_like_job_file, parse_job_file, JobFile, JobFileError, Notice};
pub use options::{
    Distribution, Engine, Fallocate, FioJob, Pattern, SyncKind, NAMES as OPTION_NAMES, PERCENTILES,
};
pub use outcome::{DepthMap, Direction, DiskStats, FioResult, JobResult};
pub use stat::{Clat, LatencyHistogram, RateSamples, Summary, SAMPLE_WINDOW};
