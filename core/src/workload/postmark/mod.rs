//! PostMark 1.51: a mail server in miniature. A pool of small files is made, then transactions read or append to
//! one file and create or delete another, then the pool is deleted.
//!
//! The list of operations is the one that the tool makes from the same settings: the recording of its system calls
//! in `tests/kernel-lab/scenarios/postmark-small.ops` is a test of [`pool`].

mod config;
mod pool;
mod report;
mod run;
mod stdio;
mod twister;

pub use config::{parse_postmark, Bias, ConfigError, PostmarkFile, Settings};
pub use pool::{Action, Pool, PoolFile};
pub use report::{json, text};
pub use run::{run_postmark, PostmarkContext, PostmarkResult, FILE_COST, KIB_COST};

/// True if the first meaningful line is a PostMark command, so that a bare file can be told from others.
pub fn looks_like_postmark(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim);
    let first = lines.find(|l| !l.is_empty() && !l.starts_with('#'));
    first.is_some_and(|l| l.starts_with("set ") || l == "run" || l.starts_with("run "))
}
