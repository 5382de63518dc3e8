//! Wait queues, completions and mailboxes.

use crate::base::Nanos;
use crate::sim::{Sim, TaskId, WaitReason};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Waiters in order of arrival, each with a ticket that grows. Shared by all primitives of this module.
#[derive(Default)]
pub(super) struct Waiters<T> {
    queue: VecDeque<(u64, TaskId, T)>,
    next: u64,
}

impl<T> Waiters<T> {
    pub(super) const fn new() -> Waiters<T> {
        Waiters {
            queue: VecDeque::new(),
            next: 0,
        }
    }

    pub(super) fn push(&mut self, task: TaskId, what: T) -> u64 {
        let ticket = self.next;
        self.next += 1;
        self.queue.push_back((ticket, task, what));
        ticket
    }

    pub(super) fn front(&self) -> Option<&T> {
        self.queue.front().map(|(_, _, what)| what)
    }

    pub(super) fn pop(&mut self) -> Option<TaskId> {
        self.queue.pop_front().map(|(_, task, _)| task)
    }

    pub(super) fn contains(&self, ticket: u64) -> bool {
        self.queue.front().is_some_and(|(t, _, _)| *t <= ticket)
            && self.queue.iter().any(|(t, _, _)| *t == ticket)
    }

    pub(super) fn remove(&mut self, ticket: u64) -> bool {
        let at = self.queue.iter().position(|(t, _, _)| *t == ticket);
        at.and_then(|i| self.queue.remove(i)).is_some()
    }

    pub(super) fn len(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

/// Tasks waiting for a condition that others change (kernel `wait_queue_head_t`).
pub struct WaitQueue {
    sim: Sim,
    waiters: RefCell<Waiters<()>>,
}

impl WaitQueue {
    /// An empty queue.
    pub fn new(sim: &Sim) -> WaitQueue {
        WaitQueue {
            sim: sim.clone(),
            waiters: RefCell::new(Waiters::new()),
        }
    }

    /// Blocks until woken through this queue.
    pub fn wait(&self, why: WaitReason) -> Wait<'_> {
        Wait {
            queue: self,
            why,
            deadline: None,
            ticket: None,
        }
    }

    /// Blocks until woken (true) or until `deadline` (false).
    pub async fn wait_deadline(&self, why: WaitReason, deadline: Nanos) -> bool {
        let wait = Wait {
            queue: self,
            why,
            deadline: Some(deadline),
            ticket: None,
        };
        wait.await
    }

    /// Blocks as long as `cond` holds; looked at now and after each wake.
    pub async fn wait_while(&self, mut cond: impl FnMut() -> bool, why: WaitReason) {
        while cond() {
            self.wait(why).await;
        }
    }

    /// Blocks until `cond` holds; looked at now and after each wake.
    pub async fn wait_until(&self, mut cond: impl FnMut() -> bool, why: WaitReason) {
        while !cond() {
            self.wait(why).await;
        }
    }

    /// Wakes the first waiter; false if there is none.
    pub fn wake_one(&self) -> bool {
        let task = self.waiters.borrow_mut().pop();
        if let Some(task) = task {
            self.sim.wake(task);
        }
        task.is_some()
    }

    /// Wakes all waiters in order of arrival.
    pub fn wake_all(&self) {
        while self.wake_one() {}
    }

    /// Number of waiters.
    pub fn len(&self) -> usize {
        self.waiters.borrow().len()
    }

    /// True if nobody waits.
    pub fn is_empty(&self) -> bool {
        self.waiters.borrow().is_empty()
    }
}

/// Future of [`WaitQueue::wait`]: true if woken, false at the deadline.
#[must_use = "a task waits only when this is awaited"]
pub struct Wait<'a> {
    queue: &'a WaitQueue,
    why: WaitReason,
    deadline: Option<Nanos>,
    ticket: Option<u64>,
}

impl Future for Wait<'_> {
    type Output = bool;

    fn poll(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<bool> {
        let this = self.get_mut();
        let sim = &this.queue.sim;
        let mut waiters = this.queue.waiters.borrow_mut();
        if let Some(ticket) = this.ticket {
            if !waiters.contains(ticket) {
                return Poll::Ready(true);
            }
            if this.deadline.is_some_and(|t| t <= sim.now()) {
                waiters.remove(ticket);
                return Poll::Ready(false);
            }
        } else {
            if this.deadline.is_some_and(|t| t <= sim.now()) {
                return Poll::Ready(false);
            }
            this.ticket = Some(waiters.push(sim.current(), ()));
        }
        drop(waiters);
        sim.block_current(this.why, this.deadline);
        Poll::Pending
    }
}

/// An event that happens once (kernel `struct completion`, with `complete_all`).
pub struct Completion {
    done: Cell<bool>,
    queue: WaitQueue,
}

impl Completion {
    /// Not yet complete.
    pub fn new(sim: &Sim) -> Completion {
        Completion {
            done: Cell::new(false),
            queue: WaitQueue::new(sim),
        }
    }

    /// Marks it complete and wakes everybody.
    pub fn complete(&self) {
        self.done.set(true);
        self.queue.wake_all();
    }

    /// True once complete.
    pub fn is_done(&self) -> bool {
        self.done.get()
    }

    /// Makes it incomplete again (kernel `reinit_completion`).
    pub fn reinit(&self) {
        self.done.set(false);
    }

    /// Blocks until it is complete.
    pub async fn wait(&self, why: WaitReason) {
        while !self.done.get() {
            self.queue.wait(why).await;
        }
    }
}

/// A queue of work for one or more tasks.
pub struct Mailbox<T> {
    items: RefCell<VecDeque<T>>,
    queue: WaitQueue,
}

impl<T> Mailbox<T> {
    /// Empty.
    pub fn new(sim: &Sim) -> Mailbox<T> {
        Mailbox {
            items: RefCell::new(VecDeque::new()),
            queue: WaitQueue::new(sim),
        }
    }

    /// Adds an item and wakes one receiver.
    pub fn push(&self, item: T) {
        self.items.borrow_mut().push_back(item);
        self.queue.wake_one();
    }

    /// Takes the first item if there is one.
    pub fn try_recv(&self) -> Option<T> {
        self.items.borrow_mut().pop_front()
    }

    /// Takes the first item, waiting for one.
    pub async fn recv(&self, why: WaitReason) -> T {
        loop {
            if let Some(item) = self.try_recv() {
                return item;
            }
            self.queue.wait(why).await;
        }
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.items.borrow().len()
    }

    /// True if there is no item.
    pub fn is_empty(&self) -> bool {
        self.items.borrow().is_empty()
    }
}
