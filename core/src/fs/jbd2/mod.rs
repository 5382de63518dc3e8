//! JBD2: the journal of ext4 (kernel fs/jbd2).
//!
//! A *handle* is one atomic update; handles join the *running* transaction; `kjournald2` locks it, waits for its
//! handles, and writes it to the log (`commit`) while the next one runs; finished transactions wait until their
//! buffers are home (`checkpoint`). Recovery replays what is in the log.
//!
//! Knows nothing of ext4: ordered file data are written through hooks, checksums by triggers of the buffers.
//!
//! Invariants (referred to by assertions):
//! 1. At most one running and one committing transaction.
//! 2. A handle starts only if the log has room for a whole transaction of maximum size beyond the committing one.
//! 3. The buffers of a transaction never outnumber its credits.
//! 4. A buffer of a transaction is not `dirty`; it becomes so when that transaction is in the log.
//! 5. The tail moves only after the home writes it frees were flushed.
//! 6. tids grow by one; what is committed is in order of tid.
//!
//! Waits: open handles (`HandlesDrain`), a commit (`JournalCommit`), room (`LogSpace`), buffers and bios.
//! Locks: `j_checkpoint_mutex` ([`crate::sim::LockRank::Journal`]); the rest is single-threaded state.

mod access;
mod checkpoint;
mod commit;
mod csum;
pub mod fast_commit;
mod handle;
mod journal;
mod lists;
mod log;
pub mod recovery;
mod revoke;
mod stats;
#[cfg(test)]
mod tests;
mod transaction;

pub use handle::{Handle, HandleType};
pub use journal::{
    DataFn, DataHook, FcReplay, FcReplayFn, Journal, JournalCosts, JournalCsum, JournalMap,
    JournalOptions, Recovered,
};
pub use recovery::{Recovery, RecoveryStep};
pub use stats::{CheckpointStats, HandleStats, JournalStats, RunStats};
pub use transaction::{JInode, TState};
