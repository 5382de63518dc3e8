//! Mutual exclusion across suspensions.

use super::wait_queue::Waiters;
use crate::sim::{LockRank, Sim, TaskId, WaitReason};
use std::cell::{Cell, RefCell, RefMut};
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

/// Value of `owner` when nobody holds the lock (no task has this number).
const FREE: TaskId = TaskId(u32::MAX);

struct Inner {
    sim: Sim,
    rank: LockRank,
    why: WaitReason,
    owner: Cell<TaskId>,
    waiters: RefCell<Waiters<()>>,
}

/// A lock without a value. Clones are the same lock.
#[derive(Clone)]
pub struct Lock(Rc<Inner>);

impl Lock {
    /// A free lock of `rank`; waiters show `why`.
    pub fn new(sim: &Sim, rank: LockRank, why: WaitReason) -> Lock {
        Lock(Rc::new(Inner {
            sim: sim.clone(),
            rank,
            why,
            owner: Cell::new(FREE),
            waiters: RefCell::new(Waiters::new()),
        }))
    }

    /// Takes the lock, waiting for it. Asserts in debug builds that the rank is not below that of a lock held.
    pub fn lock(&self) -> Acquire<'_> {
        Acquire {
            lock: self,
            ticket: None,
        }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<LockGuard> {
        if self.0.owner.get() == FREE {
            Some(self.take())
        } else {
            None
        }
    }

    /// True if somebody holds it.
    pub fn is_locked(&self) -> bool {
        self.0.owner.get() != FREE
    }

    /// Number of tasks waiting.
    pub fn waiters(&self) -> usize {
        self.0.waiters.borrow().len()
    }

    fn take(&self) -> LockGuard {
        let me = self.0.sim.current();
        self.0.owner.set(me);
        self.0.sim.note_lock(me, self.0.rank, self.0.why);
        LockGuard {
            lock: self.clone(),
            task: me,
        }
    }
}

/// Future of [`Lock::lock`].
#[must_use = "the lock is taken only when this is awaited"]
pub struct Acquire<'a> {
    lock: &'a Lock,
    ticket: Option<u64>,
}

impl Future for Acquire<'_> {
    type Output = LockGuard;

    fn poll(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<LockGuard> {
        let this = self.get_mut();
        let inner = &this.lock.0;
        if let Some(ticket) = this.ticket {
            if !inner.waiters.borrow().contains(ticket) {
                return Poll::Ready(this.lock.take());
            }
        } else {
            inner.sim.check_rank(inner.rank, inner.why);
            if inner.owner.get() == FREE {
                return Poll::Ready(this.lock.take());
            }
            let me = inner.sim.current();
            assert!(
                inner.owner.get() != me,
                "{} taken twice by one task",
                inner.why
            );
            this.ticket = Some(inner.waiters.borrow_mut().push(me, ()));
        }
        inner.sim.block_current(inner.why, None);
        Poll::Pending
    }
}

/// Holds a [`Lock`] until dropped.
#[must_use = "the lock is released when this is dropped"]
pub struct LockGuard {
    lock: Lock,
    task: TaskId,
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        let inner = &self.lock.0;
        inner.sim.note_unlock(self.task, inner.rank, inner.why);
        let next = inner.waiters.borrow_mut().pop();
        inner.owner.set(next.unwrap_or(FREE));
        if let Some(task) = next {
            inner.sim.wake(task);
        }
    }
}

/// A lock around a value.
pub struct Mutex<T> {
    lock: Lock,
    value: RefCell<T>,
}

impl<T> Mutex<T> {
    /// A free lock of `rank` around `value`.
    pub fn new(sim: &Sim, rank: LockRank, why: WaitReason, value: T) -> Mutex<T> {
        Mutex {
            lock: Lock::new(sim, rank, why),
            value: RefCell::new(value),
        }
    }

    /// Takes the lock, waiting for it.
    pub async fn lock(&self) -> MutexGuard<'_, T> {
        let guard = self.lock.lock().await;
        MutexGuard {
            value: self.value.borrow_mut(),
            _guard: guard,
        }
    }

    /// Takes the lock if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let guard = self.lock.try_lock()?;
        Some(MutexGuard {
            value: self.value.borrow_mut(),
            _guard: guard,
        })
    }
}

/// Access to the value of a [`Mutex`] until dropped.
#[must_use = "the lock is released when this is dropped"]
pub struct MutexGuard<'a, T> {
    // Dropped before the lock is released.
    value: RefMut<'a, T>,
    _guard: LockGuard,
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}
