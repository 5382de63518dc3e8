//! Readers or one writer (kernel `rw_semaphore`): first come, first served, readers in a row together.

use super::wait_queue::Waiters;
use crate::sim::{LockRank, Sim, TaskId, WaitReason};
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Read,
    Write,
}

struct Inner {
    sim: Sim,
    rank: LockRank,
    why: WaitReason,
    readers: Cell<u32>,
    writer: Cell<bool>,
    waiters: RefCell<Waiters<Mode>>,
}

/// A readers-writer lock without a value. Clones are the same lock.
#[derive(Clone)]
pub struct RwLock(Rc<Inner>);

impl RwLock {
    /// A free lock of `rank`; waiters show `why`.
    pub fn new(sim: &Sim, rank: LockRank, why: WaitReason) -> RwLock {
        RwLock(Rc::new(Inner {
            sim: sim.clone(),
            rank,
            why,
            readers: Cell::new(0),
            writer: Cell::new(false),
            waiters: RefCell::new(Waiters::new()),
        }))
    }

    /// Takes the lock for reading, after everybody who came before.
    pub async fn read(&self) -> ReadGuard {
        self.acquire(Mode::Read).await;
        ReadGuard(self.hold())
    }

    /// Takes the lock for writing, after everybody who came before.
    pub async fn write(&self) -> WriteGuard {
        self.acquire(Mode::Write).await;
        WriteGuard(self.hold())
    }

    /// Takes the lock for reading if no writer holds or awaits it.
    pub fn try_read(&self) -> Option<ReadGuard> {
        self.grant_now(Mode::Read).then(|| ReadGuard(self.hold()))
    }

    /// Takes the lock for writing if it is free.
    pub fn try_write(&self) -> Option<WriteGuard> {
        self.grant_now(Mode::Write).then(|| WriteGuard(self.hold()))
    }

    /// True if a writer holds it.
    pub fn is_write_locked(&self) -> bool {
        self.0.writer.get()
    }

    fn acquire(&self, mode: Mode) -> Acquire<'_> {
        Acquire {
            lock: self,
            mode,
            ticket: None,
        }
    }

    fn free_for(&self, mode: Mode) -> bool {
        match mode {
            Mode::Read => !self.0.writer.get(),
            Mode::Write => !self.0.writer.get() && self.0.readers.get() == 0,
        }
    }

    fn grant(&self, mode: Mode) {
        match mode {
            Mode::Read => self.0.readers.set(self.0.readers.get() + 1),
            Mode::Write => self.0.writer.set(true),
        }
    }

    fn grant_now(&self, mode: Mode) -> bool {
        let free = self.free_for(mode) && self.0.waiters.borrow().is_empty();
        if free {
            self.grant(mode);
        }
        free
    }

    fn hold(&self) -> Hold {
        let task = self.0.sim.current();
        self.0.sim.note_lock(task, self.0.rank, self.0.why);
        Hold {
            lock: self.clone(),
            task,
        }
    }

    /// Gives the lock to the waiters at the front as far as it goes.
    fn pass_on(&self) {
        loop {
            let mode = self.0.waiters.borrow().front().copied();
            match mode {
                Some(mode) if self.free_for(mode) => {
                    self.grant(mode);
                    let task = self.0.waiters.borrow_mut().pop();
                    if let Some(task) = task {
                        self.0.sim.wake(task);
                    }
                }
                _ => return,
            }
        }
    }
}

struct Acquire<'a> {
    lock: &'a RwLock,
    mode: Mode,
    ticket: Option<u64>,
}

impl Future for Acquire<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let inner = &this.lock.0;
        if let Some(ticket) = this.ticket {
            if !inner.waiters.borrow().contains(ticket) {
                return Poll::Ready(());
            }
        } else {
            inner.sim.check_rank(inner.rank, inner.why);
            if this.lock.grant_now(this.mode) {
                return Poll::Ready(());
            }
            let me = inner.sim.current();
            this.ticket = Some(inner.waiters.borrow_mut().push(me, this.mode));
        }
        inner.sim.block_current(inner.why, None);
        Poll::Pending
    }
}

struct Hold {
    lock: RwLock,
    task: TaskId,
}

impl Hold {
    fn release(&self) {
        let inner = &self.lock.0;
        inner.sim.note_unlock(self.task, inner.rank, inner.why);
        self.lock.pass_on();
    }
}

/// Holds an [`RwLock`] for reading until dropped.
#[must_use = "the lock is released when this is dropped"]
pub struct ReadGuard(Hold);

impl Drop for ReadGuard {
    fn drop(&mut self) {
        let inner = &self.0.lock.0;
        inner.readers.set(inner.readers.get() - 1);
        self.0.release();
    }
}

/// Holds an [`RwLock`] for writing until dropped.
#[must_use = "the lock is released when this is dropped"]
pub struct WriteGuard(Hold);

impl Drop for WriteGuard {
    fn drop(&mut self) {
        self.0.lock.0.writer.set(false);
        self.0.release();
    }
}
