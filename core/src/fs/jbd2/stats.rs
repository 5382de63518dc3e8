//! Counters named as the tracepoint sums of kernel-lab (`jbd2.*`).

use super::handle::HandleType;
use crate::base::Nanos;

/// Sums over `jbd2_handle_stats` of one handle type.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandleStats {
    /// Handles stopped.
    pub count: u64,
    /// Of these, synchronous ones.
    pub sync: u64,
    /// Credits asked for (`requested_blocks`).
    pub requested: u64,
    /// Credits used (`dirtied_blocks`).
    pub dirtied: u64,
    /// Time from start to stop.
    pub interval: Nanos,
}

/// Sums over `jbd2_checkpoint_stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointStats {
    /// Transactions whose checkpoint is done.
    pub count: u64,
    /// Buffers that belonged to a newer transaction, which was forced to commit.
    pub forced_to_close: u64,
    /// Buffers written home by checkpointing.
    pub written: u64,
    /// Buffers that were logged again and left the old list.
    pub dropped: u64,
    /// Time spent (`chp_time`).
    pub time: Nanos,
}

/// Sums over `jbd2_run_stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunStats {
    /// Time from the request to the lock.
    pub request_delay: Nanos,
    /// Time running.
    pub running: Nanos,
    /// Time locked, waiting for handles.
    pub locked: Nanos,
    /// Time writing ordered data.
    pub flushing: Nanos,
    /// Time writing the log.
    pub logging: Nanos,
    /// Handles.
    pub handle_count: u64,
    /// Metadata buffers when logging began.
    pub blocks: u64,
    /// Descriptor, metadata, revoke and commit blocks written.
    pub blocks_logged: u64,
}

/// Counters of one journal since it was loaded.
#[derive(Clone, Debug, Default)]
pub struct JournalStats {
    /// Transactions committed.
    pub transactions: u64,
    /// Sums over them.
    pub run: RunStats,
    /// By handle type.
    pub handles_by_type: [HandleStats; HandleType::COUNT],
    /// Checkpointing.
    pub checkpoint: CheckpointStats,
    /// Writes of the journal superblock.
    pub journal_sb_writes: u64,
    /// Fast commits done.
    pub fast_commits: u64,
    /// Blocks they wrote.
    pub fast_commit_blocks: u64,
    /// Times a handle had to wait for log space.
    pub log_space_waits: u64,
    /// Revoke records written.
    pub revoke_records: u64,
}

impl JournalStats {
    /// Sum over all handle types.
    pub fn handles(&self) -> HandleStats {
        let mut sum = HandleStats::default();
        for h in &self.handles_by_type {
            sum.count += h.count;
            sum.sync += h.sync;
            sum.requested += h.requested;
            sum.dirtied += h.dirtied;
            sum.interval += h.interval;
        }
        sum
    }
}
