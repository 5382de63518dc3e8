//! The executor: virtual clock, event queue, tasks, virtual CPUs, typed waits and fair locks.
//!
//! Knows nothing of files or blocks. Kernel code above is plain `async fn`; only the futures of this module
//! ever return `Pending`, and each suspension carries a [`WaitReason`].
//!
//! Invariants (referred to by assertions):
//! 1. One thread. The clock never goes back and moves only here.
//! 2. Events are ordered by (time, sequence number): ties are first in, first out.
//! 3. A task that is polled holds a virtual CPU; it gives it up when it blocks, ends or loses its slice.
//! 4. No borrow of the tables is held while a task or an interrupt callback runs.
//! 5. Stepping in small budgets gives the same order of effects as running through.
//!
//! Futures kept by the executor usually hold a [`Sim`] themselves, a reference cycle: whoever owns the machine calls
//! [`Sim::shutdown`] when it is dropped.

mod executor;
mod future;
mod report;
pub mod sync;
mod task;
#[cfg(test)]
mod tests;

pub use executor::{Costs, Deadlock, Irq, RunState, Sim};
pub use future::{Block, Charge};
pub use task::{Frame, LockRank, TaskClass, TaskId, TaskState, TaskView, WaitReason};
