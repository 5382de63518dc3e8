//! Waiting for conditions and locks. All queues are first in, first out; a released lock is handed to the first
//! waiter, so nobody can overtake. Guards own their lock and may be kept anywhere; dropping one releases and wakes,
//! and is inert after shutdown.

mod lock;
mod rwlock;
mod wait_queue;

pub use lock::{Lock, LockGuard, Mutex, MutexGuard};
pub use rwlock::{ReadGuard, RwLock, WriteGuard};
pub use wait_queue::{Completion, Mailbox, WaitQueue};
