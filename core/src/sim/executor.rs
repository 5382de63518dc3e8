//! Clock, event heap, run queue and task table.

use super::future::{Block, Charge};
use super::task::{LockRank, TaskClass, TaskId, WaitReason};
use crate::base::rng::{mix64, SplitMix64};
use crate::base::Nanos;
use crate::trace::{Category, Event, Tracer};
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Longest time a target of [`Sim::block_on`] may stay blocked while only timers of others fire.
const HUNG_LIMIT: Nanos = Nanos::from_secs(30 * 86_400);

/// What the scheduler itself costs. All zero by default; [`Costs::LINUX`] has modelled figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// From one task to the next on the same CPU.
    pub switch: Nanos,
    /// Waking a task on an idle CPU (idle-state exit and wake-up).
    pub wake_idle: Nanos,
    /// Time after which a running task yields to one that waits for a CPU.
    pub slice: Nanos,
    /// Time after which a running program yields to a waiting kernel thread.
    pub wakeup_granularity: Nanos,
}

impl Costs {
    /// Nothing costs time; slices as in Linux.
    pub const FREE: Costs = Costs {
        switch: Nanos::ZERO,
        wake_idle: Nanos::ZERO,
        slice: Nanos::from_ms(3),
        wakeup_granularity: Nanos::from_ms(1),
    };
    /// Modelled: warm context switch 1.5 us, wake-up from C1 2.5 us (mechanisms F5: 1-2 us, 2-5 us).
    pub const LINUX: Costs = Costs {
        switch: Nanos(1_500),
        wake_idle: Nanos(2_500),
        slice: Nanos::from_ms(3),
        wakeup_granularity: Nanos::from_ms(1),
    };
}

/// Why a run returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunState {
    /// No event is left and no task can run.
    Idle,
    /// The instant asked for is reached; later events are pending.
    Reached,
    /// The budget is used up.
    Budget,
    /// [`Sim::stop`] was called.
    Stopped,
}

/// The target of [`Sim::block_on`] can not finish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// True if the run was stopped rather than stuck.
    pub stopped: bool,
    /// All tasks with state, wait reason, frames and locks held.
    pub text: String,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A registered interrupt line; see [`Sim::register_irq`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Irq(u16);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum DueKind {
    Task { id: u32, wait: u32 },
    Call { slot: u32 },
    Irq { line: u16, arg: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    time: u64,
    tie: u64,
    kind: DueKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Polling,
    OnCpu,
    Queued,
    Blocked(WaitReason),
    Done,
}

// Tasks and callbacks of all layers share the executor, so their types are erased here and nowhere else.
type TaskFuture = Pin<Box<dyn Future<Output = ()>>>;
type Call = Box<dyn FnOnce()>;
type IrqHandler = Rc<dyn Fn(u64)>;
type BlockHook = Rc<dyn Fn(TaskId)>;

pub(super) struct Slot {
    pub(super) future: Option<TaskFuture>,
    pub(super) name: Rc<str>,
    pub(super) class: TaskClass,
    pub(super) state: State,
    /// Number of the present suspension; events of earlier ones are stale.
    pub(super) wait: u32,
    pub(super) since: u64,
    pub(super) cpu: u32,
    pub(super) on_cpu_since: u64,
    pub(super) cpu_time: u64,
    pub(super) nvcsw: u64,
    pub(super) nivcsw: u64,
    pub(super) frames: Vec<&'static str>,
    pub(super) held: Vec<(LockRank, WaitReason)>,
    pub(super) joiners: Vec<TaskId>,
    /// Call the block hooks when it blocks.
    pub(super) hooked: bool,
}

pub(super) struct Inner {
    seed: u64,
    trace: Tracer,
    pub(super) now: Cell<u64>,
    /// Latest instant to which a charge may advance in place.
    horizon: Cell<u64>,
    limit: Cell<u64>,
    budget: Cell<u64>,
    slice_end: Cell<u64>,
    seq: Cell<u64>,
    fuzz: Cell<Option<u64>>,
    current: Cell<TaskId>,
    stopped: Cell<bool>,
    dead: Cell<bool>,
    running: Cell<bool>,
    idle_cpus: Cell<u64>,
    costs: Cell<Costs>,
    events: RefCell<BinaryHeap<Reverse<Due>>>,
    pub(super) tasks: RefCell<Vec<Slot>>,
    run_queue: RefCell<VecDeque<TaskId>>,
    calls: RefCell<Vec<Option<Call>>>,
    free_calls: RefCell<Vec<u32>>,
    irqs: RefCell<Vec<IrqHandler>>,
    block_hooks: RefCell<Vec<BlockHook>>,
}

/// Handle to the simulation; cheap to clone.
#[derive(Clone)]
pub struct Sim(pub(super) Rc<Inner>);

impl Sim {
    /// A simulation at time 0 with `cpus` virtual CPUs (1 to 64) and the random streams of `seed`.
    pub fn new(seed: u64, cpus: u32) -> Sim {
        let cpus = cpus.clamp(1, 64);
        let irq = new_slot("irq", TaskClass::Kthread, State::Blocked(WaitReason::Timer));
        Sim(Rc::new(Inner {
            seed,
            trace: Tracer::default(),
            now: Cell::new(0),
            horizon: Cell::new(0),
            limit: Cell::new(0),
            budget: Cell::new(0),
            slice_end: Cell::new(u64::MAX),
            seq: Cell::new(0),
            fuzz: Cell::new(None),
            current: Cell::new(TaskId::IRQ),
            stopped: Cell::new(false),
            dead: Cell::new(false),
            running: Cell::new(false),
            idle_cpus: Cell::new(if cpus == 64 {
                u64::MAX
            } else {
                (1 << cpus) - 1
            }),
            costs: Cell::new(Costs::FREE),
            events: RefCell::new(BinaryHeap::new()),
            tasks: RefCell::new(vec![irq]),
            run_queue: RefCell::new(VecDeque::new()),
            calls: RefCell::new(Vec::new()),
            free_calls: RefCell::new(Vec::new()),
            irqs: RefCell::new(Vec::new()),
            block_hooks: RefCell::new(Vec::new()),
        }))
    }

    /// Virtual time.
    #[inline]
    pub fn now(&self) -> Nanos {
        Nanos(self.0.now.get())
    }

    /// Seed of the run.
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// The stream `name` of the run's seed, from its start.
    pub fn rng(&self, name: &str) -> SplitMix64 {
        SplitMix64::named(self.0.seed, name)
    }

    /// The run's events.
    pub fn trace(&self) -> &Tracer {
        &self.0.trace
    }

    /// Notes an event of `category`: one load and one branch if nobody wants it.
    #[inline]
    pub fn emit(&self, category: Category, event: impl FnOnce() -> Event) {
        if self.0.trace.wants(category) {
            let event = event();
            debug_assert_eq!(event.category(), category);
            self.0.trace.note(self.now(), self.current().0, &event);
        }
    }

    fn emit_sched(&self, task: TaskId, event: impl FnOnce() -> Event) {
        if self.0.trace.wants(Category::Sched) {
            self.0.trace.note(self.now(), task.0, &event());
        }
    }

    /// Sets what the scheduler costs.
    pub fn set_costs(&self, costs: Costs) {
        self.0.costs.set(costs);
    }

    /// Permutes events that are due at the same instant, by `seed`: for tests of schedules.
    pub fn set_schedule_fuzz(&self, seed: Option<u64>) {
        self.0.fuzz.set(seed);
    }

    /// Starts a task; it runs when a CPU is free, not before the caller suspends.
    pub fn spawn(
        &self,
        name: &str,
        class: TaskClass,
        fut: impl Future<Output = ()> + 'static,
    ) -> TaskId {
        let mut slot = new_slot(name, class, State::Blocked(WaitReason::RunQueue));
        slot.future = Some(Box::pin(fut));
        slot.since = self.0.now.get();
        let id = {
            let mut tasks = self.0.tasks.borrow_mut();
            tasks.push(slot);
            TaskId(tasks.len() as u32 - 1)
        };
        self.emit_sched(id, || Event::TaskStarted { id: id.0 });
        self.make_runnable(id);
        id
    }

    /// Spends CPU time: moves the clock in place if nothing else is due until then, else suspends while holding
    /// the CPU. The task may lose the CPU here when its slice is over.
    #[inline]
    pub fn charge(&self, cost: Nanos) -> Charge<'_> {
        Charge {
            sim: self,
            cost,
            armed: false,
        }
    }

    /// Blocks until `t`; returns at once if that has passed.
    pub async fn sleep_until(&self, t: Nanos, why: WaitReason) {
        while self.now() < t {
            self.block(why, Some(t)).await;
        }
    }

    /// Blocks for `d`.
    pub async fn sleep(&self, d: Nanos, why: WaitReason) {
        self.sleep_until(self.now() + d, why).await;
    }

    /// Blocks the current task until [`Sim::wake`] or the deadline. The building block of `sync`.
    pub fn block(&self, why: WaitReason, deadline: Option<Nanos>) -> Block<'_> {
        Block {
            sim: self,
            why,
            deadline,
            armed: false,
        }
    }

    /// Blocks until `task` has ended.
    pub async fn join(&self, task: TaskId) {
        loop {
            {
                let mut tasks = self.0.tasks.borrow_mut();
                let me = self.current();
                match tasks.get_mut(task.0 as usize) {
                    Some(slot) if slot.state != State::Done => slot.joiners.push(me),
                    _ => return,
                }
            }
            self.block(WaitReason::Other("end of a task"), None).await;
        }
    }

    /// The task that runs, or [`TaskId::IRQ`].
    #[inline]
    pub fn current(&self) -> TaskId {
        self.0.current.get()
    }

    /// The virtual CPU that the current task runs on (`smp_processor_id`).
    pub fn cpu(&self) -> u32 {
        self.0.tasks.borrow()[self.current().0 as usize].cpu
    }

    /// Name of a task, empty if there is none of that number.
    pub fn task_name(&self, id: TaskId) -> Rc<str> {
        let tasks = self.0.tasks.borrow();
        tasks
            .get(id.0 as usize)
            .map_or_else(|| "".into(), |t| Rc::clone(&t.name))
    }

    /// Class of a task.
    pub fn task_class(&self, id: TaskId) -> TaskClass {
        let tasks = self.0.tasks.borrow();
        tasks
            .get(id.0 as usize)
            .map_or(TaskClass::Kthread, |t| t.class)
    }

    /// True if the task has ended (or never was).
    pub fn is_done(&self, id: TaskId) -> bool {
        let tasks = self.0.tasks.borrow();
        tasks
            .get(id.0 as usize)
            .is_none_or(|t| t.state == State::Done)
    }

    /// Makes a blocked task runnable; nothing happens if it is not blocked.
    pub fn wake(&self, task: TaskId) {
        let blocked = {
            let tasks = self.0.tasks.borrow();
            let slot = tasks.get(task.0 as usize);
            slot.is_some_and(|t| t.future.is_some() && matches!(t.state, State::Blocked(_)))
        };
        if blocked {
            self.make_runnable(task);
        }
    }

    /// Calls `f` at `t` (not before now) in interrupt context.
    pub fn call_at(&self, t: Nanos, f: impl FnOnce() + 'static) {
        if self.0.dead.get() {
            return;
        }
        let boxed: Call = Box::new(f);
        let free = self.0.free_calls.borrow_mut().pop();
        let mut calls = self.0.calls.borrow_mut();
        let slot = if let Some(i) = free {
            calls[i as usize] = Some(boxed);
            i
        } else {
            calls.push(Some(boxed));
            calls.len() as u32 - 1
        };
        self.push(t.0.max(self.0.now.get()), DueKind::Call { slot });
    }

    /// Registers an interrupt handler for [`Sim::raise_at`]: like [`Sim::call_at`] without an allocation per event.
    /// The handler should hold weak references only.
    pub fn register_irq(&self, handler: impl Fn(u64) + 'static) -> Irq {
        let mut irqs = self.0.irqs.borrow_mut();
        irqs.push(Rc::new(handler));
        Irq(irqs.len() as u16 - 1)
    }

    /// Registers a function that is called when a task marked by [`Sim::set_hooked`] is about to block
    /// (as `sched_submit_work` flushes the plug). It should hold weak references only and must not suspend.
    pub fn register_block_hook(&self, hook: impl Fn(TaskId) + 'static) {
        self.0.block_hooks.borrow_mut().push(Rc::new(hook));
    }

    /// Marks a task for the block hooks.
    pub fn set_hooked(&self, task: TaskId, hooked: bool) {
        if let Some(t) = self.0.tasks.borrow_mut().get_mut(task.0 as usize) {
            t.hooked = hooked;
        }
    }

    /// Raises an interrupt with `arg` at `t` (not before now).
    pub fn raise_at(&self, t: Nanos, irq: Irq, arg: u64) {
        let kind = DueKind::Irq { line: irq.0, arg };
        self.push(t.0.max(self.0.now.get()), kind);
    }

    /// Runs all events up to and including `t` and sets the clock to `t`.
    pub fn run_until(&self, t: Nanos) -> RunState {
        self.run(t.0, u64::MAX, None)
    }

    /// Runs at most `max` events or charges: the same effects in the same order as [`Sim::run_until`].
    pub fn run_events(&self, max: u64) -> RunState {
        self.run(u64::MAX, max, None)
    }

    /// [`Sim::run_until`] with a budget of events and charges.
    pub fn run_budget(&self, t: Nanos, max: u64) -> RunState {
        self.run(t.0, max, None)
    }

    /// Runs until `fut` is done; other tasks go on meanwhile.
    pub fn block_on<T: 'static>(
        &self,
        name: &str,
        fut: impl Future<Output = T> + 'static,
    ) -> Result<T, Deadlock> {
        let out: Rc<RefCell<Option<T>>> = Rc::new(RefCell::new(None));
        let put = Rc::clone(&out);
        let id = self.spawn(name, TaskClass::User, async move {
            let value = fut.await;
            *put.borrow_mut() = Some(value);
        });
        let state = self.run(u64::MAX, u64::MAX, Some(id));
        let value = out.borrow_mut().take();
        value.ok_or_else(|| Deadlock {
            stopped: state == RunState::Stopped,
            text: self.wait_graph(id),
        })
    }

    /// Ends the present run after the event in progress.
    pub fn stop(&self) {
        self.0.stopped.set(true);
        self.0.horizon.set(0);
    }

    /// Drops all tasks and callbacks. Inert: nothing is submitted or woken. The clock can still be read.
    pub fn shutdown(&self) {
        self.0.dead.set(true);
        self.stop();
        let futures: Vec<_> = {
            let mut tasks = self.0.tasks.borrow_mut();
            tasks.iter_mut().map(|t| t.future.take()).collect()
        };
        drop(futures);
        let calls = std::mem::take(&mut *self.0.calls.borrow_mut());
        drop(calls);
        let irqs = std::mem::take(&mut *self.0.irqs.borrow_mut());
        drop(irqs);
        let hooks = std::mem::take(&mut *self.0.block_hooks.borrow_mut());
        drop(hooks);
        self.0.events.borrow_mut().clear();
        self.0.run_queue.borrow_mut().clear();
    }

    /// True once [`Sim::shutdown`] was called.
    pub fn is_shut_down(&self) -> bool {
        self.0.dead.get()
    }

    /// Number of events pending.
    pub fn events_pending(&self) -> usize {
        self.0.events.borrow().len()
    }

    // ---- suspension, called by the futures of this module ----

    #[inline]
    pub(super) fn charge_in_place(&self, cost: Nanos) -> bool {
        let inner = &*self.0;
        let t = inner.now.get().saturating_add(cost.0);
        let budget = inner.budget.get();
        if t <= inner.horizon.get() && budget > 0 {
            inner.now.set(t);
            inner.budget.set(budget - 1);
            return true;
        }
        cost == Nanos::ZERO
    }

    pub(super) fn charge_suspended(&self, cost: Nanos) {
        let id = self.current();
        assert!(id != TaskId::IRQ, "CPU time is charged by tasks only");
        let wait = self.suspend(id, State::OnCpu);
        let t = self.0.now.get().saturating_add(cost.0);
        self.push(t, DueKind::Task { id: id.0, wait });
    }

    pub(super) fn block_current(&self, why: WaitReason, deadline: Option<Nanos>) {
        let id = self.current();
        assert!(
            id != TaskId::IRQ,
            "interrupt context can not wait for {why}"
        );
        if self.0.tasks.borrow()[id.0 as usize].hooked {
            let hooks = self.0.block_hooks.borrow().clone();
            for hook in hooks {
                hook(id);
            }
        }
        self.emit_sched(id, || {
            let (why, what) = why.numbers();
            Event::TaskBlocked {
                id: id.0,
                why,
                what,
            }
        });
        let wait = self.suspend(id, State::Blocked(why));
        if let Some(t) = deadline {
            self.push(t.0.max(self.0.now.get()), DueKind::Task { id: id.0, wait });
        }
        let cpu = {
            let mut tasks = self.0.tasks.borrow_mut();
            let slot = &mut tasks[id.0 as usize];
            slot.nvcsw += 1;
            slot.cpu_time += self.0.now.get() - slot.on_cpu_since;
            slot.cpu
        };
        self.release_cpu(cpu);
    }

    fn suspend(&self, id: TaskId, state: State) -> u32 {
        let mut tasks = self.0.tasks.borrow_mut();
        let slot = &mut tasks[id.0 as usize];
        slot.state = state;
        slot.wait = slot.wait.wrapping_add(1);
        if state != State::OnCpu {
            slot.since = self.0.now.get();
        }
        slot.wait
    }

    // ---- scheduler ----

    fn push(&self, time: u64, kind: DueKind) {
        if self.0.dead.get() {
            return;
        }
        let seq = self.0.seq.get();
        self.0.seq.set(seq + 1);
        let tie = self.0.fuzz.get().map_or(seq, |s| mix64(s ^ mix64(seq)));
        let event = Due { time, tie, kind };
        self.0.events.borrow_mut().push(Reverse(event));
        if time <= self.0.horizon.get() {
            self.0.horizon.set(time.saturating_sub(1));
        }
    }

    fn update_horizon(&self) {
        let inner = &*self.0;
        let next = inner.events.borrow().peek().map_or(u64::MAX, |e| e.0.time);
        let mut horizon = next.saturating_sub(1).min(inner.limit.get());
        if !inner.run_queue.borrow().is_empty() {
            horizon = horizon.min(inner.slice_end.get());
        }
        inner.horizon.set(horizon);
    }

    fn make_runnable(&self, id: TaskId) {
        if self.0.dead.get() {
            return;
        }
        self.emit_sched(id, || Event::TaskWoken { id: id.0 });
        let idle = self.0.idle_cpus.get();
        if idle == 0 {
            let mut tasks = self.0.tasks.borrow_mut();
            let slot = &mut tasks[id.0 as usize];
            slot.state = State::Queued;
            slot.since = self.0.now.get();
            slot.wait = slot.wait.wrapping_add(1);
            drop(tasks);
            self.0.run_queue.borrow_mut().push_back(id);
            let end = self.0.slice_end.get();
            self.0.horizon.set(self.0.horizon.get().min(end));
            return;
        }
        let last = self.0.tasks.borrow()[id.0 as usize].cpu;
        let cpu = if idle & (1 << last) != 0 {
            last
        } else {
            idle.trailing_zeros()
        };
        self.0.idle_cpus.set(idle & !(1 << cpu));
        self.give_cpu(id, cpu, self.0.costs.get().wake_idle);
    }

    fn give_cpu(&self, id: TaskId, cpu: u32, delay: Nanos) {
        let now = self.0.now.get();
        let wait = {
            let mut tasks = self.0.tasks.borrow_mut();
            let slot = &mut tasks[id.0 as usize];
            slot.state = State::OnCpu;
            slot.since = now;
            slot.cpu = cpu;
            slot.on_cpu_since = now;
            slot.wait = slot.wait.wrapping_add(1);
            slot.wait
        };
        self.emit_sched(id, || Event::TaskOnCpu {
            id: id.0,
            cpu: cpu as u8,
        });
        self.push(now + delay.0, DueKind::Task { id: id.0, wait });
    }

    fn release_cpu(&self, cpu: u32) {
        let next = self.0.run_queue.borrow_mut().pop_front();
        if let Some(id) = next {
            self.give_cpu(id, cpu, self.0.costs.get().switch);
        } else {
            self.0.idle_cpus.set(self.0.idle_cpus.get() | (1 << cpu));
        }
    }

    fn run(&self, limit: u64, budget: u64, target: Option<TaskId>) -> RunState {
        assert!(!self.0.running.replace(true), "runs do not nest");
        self.0.stopped.set(self.0.dead.get());
        self.0.limit.set(limit);
        self.0.budget.set(budget);
        let state = self.run_loop(limit, target);
        self.0.running.set(false);
        self.0.horizon.set(0);
        self.0.budget.set(0);
        state
    }

    fn run_loop(&self, limit: u64, target: Option<TaskId>) -> RunState {
        loop {
            if let Some(id) = target {
                if self.target_is_over(id) {
                    return RunState::Idle;
                }
            }
            if self.0.stopped.get() {
                return RunState::Stopped;
            }
            if self.0.budget.get() == 0 {
                return RunState::Budget;
            }
            let next = self.0.events.borrow().peek().map(|e| e.0.time);
            match next {
                Some(t) if t <= limit => {
                    debug_assert!(t >= self.0.now.get(), "invariant 1");
                    let event = self.0.events.borrow_mut().pop();
                    self.0.now.set(t);
                    self.0.budget.set(self.0.budget.get() - 1);
                    if let Some(Reverse(e)) = event {
                        self.dispatch(e.kind);
                    }
                }
                other => {
                    if limit != u64::MAX {
                        self.0.now.set(self.0.now.get().max(limit));
                    }
                    return if other.is_some() {
                        RunState::Reached
                    } else {
                        RunState::Idle
                    };
                }
            }
        }
    }

    /// True if the target has ended, or is blocked for so long that only daemons' timers keep the clock going.
    fn target_is_over(&self, id: TaskId) -> bool {
        let tasks = self.0.tasks.borrow();
        let slot = &tasks[id.0 as usize];
        match slot.state {
            State::Done => true,
            State::Blocked(WaitReason::Timer) => false,
            State::Blocked(_) => self.0.now.get() > slot.since.saturating_add(HUNG_LIMIT.0),
            _ => false,
        }
    }

    fn dispatch(&self, kind: DueKind) {
        match kind {
            DueKind::Task { id, wait } => self.dispatch_task(TaskId(id), wait),
            DueKind::Call { slot } => {
                let f = self.0.calls.borrow_mut()[slot as usize].take();
                self.0.free_calls.borrow_mut().push(slot);
                if let Some(f) = f {
                    f();
                }
            }
            DueKind::Irq { line, arg } => {
                let f = self.0.irqs.borrow().get(line as usize).map(Rc::clone);
                if let Some(f) = f {
                    f(arg);
                }
            }
        }
    }

    fn dispatch_task(&self, id: TaskId, wait: u32) {
        let (state, slot_wait, on_cpu_since) = {
            let tasks = self.0.tasks.borrow();
            let slot = &tasks[id.0 as usize];
            (slot.state, slot.wait, slot.on_cpu_since)
        };
        if slot_wait != wait {
            return;
        }
        match state {
            State::Blocked(_) => self.make_runnable(id),
            State::OnCpu => {
                let end = self.slice_end(id, on_cpu_since);
                if self.0.now.get() >= end && !self.0.run_queue.borrow().is_empty() {
                    self.preempt(id);
                } else {
                    self.poll_task(id, end);
                }
            }
            State::Polling | State::Queued | State::Done => {}
        }
    }

    /// When the slice that began at `since` is over, if somebody waits.
    fn slice_end(&self, id: TaskId, since: u64) -> u64 {
        let costs = self.0.costs.get();
        let tasks = self.0.tasks.borrow();
        let front = self.0.run_queue.borrow().front().copied();
        let kernel_waits = front.is_some_and(|t| tasks[t.0 as usize].class != TaskClass::User);
        let user_runs = tasks[id.0 as usize].class == TaskClass::User;
        let slice = if kernel_waits && user_runs {
            costs.wakeup_granularity.min(costs.slice)
        } else {
            costs.slice
        };
        since.saturating_add(slice.0)
    }

    fn preempt(&self, id: TaskId) {
        let now = self.0.now.get();
        let cpu = {
            let mut tasks = self.0.tasks.borrow_mut();
            let slot = &mut tasks[id.0 as usize];
            slot.state = State::Queued;
            slot.since = now;
            slot.cpu_time += now - slot.on_cpu_since;
            slot.nivcsw += 1;
            slot.wait = slot.wait.wrapping_add(1);
            slot.cpu
        };
        self.emit_sched(id, || Event::TaskPreempted {
            id: id.0,
            cpu: cpu as u8,
        });
        self.0.run_queue.borrow_mut().push_back(id);
        self.release_cpu(cpu);
    }

    fn poll_task(&self, id: TaskId, slice_end: u64) {
        let future = {
            let mut tasks = self.0.tasks.borrow_mut();
            let slot = &mut tasks[id.0 as usize];
            slot.state = State::Polling;
            slot.future.take()
        };
        let Some(mut future) = future else { return };
        self.0.current.set(id);
        self.0.slice_end.set(slice_end);
        self.update_horizon();
        let mut cx = Context::from_waker(Waker::noop());
        let done = future.as_mut().poll(&mut cx) == Poll::Ready(());
        if done {
            drop(future);
            self.finish(id);
        } else if !self.0.dead.get() {
            let mut tasks = self.0.tasks.borrow_mut();
            let slot = &mut tasks[id.0 as usize];
            assert!(
                slot.state != State::Polling,
                "{} waits for something that is not of `sim`",
                slot.name
            );
            slot.future = Some(future);
        }
        self.0.current.set(TaskId::IRQ);
        self.0.slice_end.set(u64::MAX);
        self.0.horizon.set(0);
    }

    fn finish(&self, id: TaskId) {
        let (cpu, joiners) = {
            let mut tasks = self.0.tasks.borrow_mut();
            let slot = &mut tasks[id.0 as usize];
            slot.state = State::Done;
            slot.since = self.0.now.get();
            slot.cpu_time += self.0.now.get() - slot.on_cpu_since;
            debug_assert!(slot.held.is_empty(), "{} ended with locks held", slot.name);
            (slot.cpu, std::mem::take(&mut slot.joiners))
        };
        self.emit_sched(id, || Event::TaskEnded { id: id.0 });
        self.release_cpu(cpu);
        for j in joiners {
            self.wake(j);
        }
    }
}

fn new_slot(name: &str, class: TaskClass, state: State) -> Slot {
    Slot {
        future: None,
        name: name.into(),
        class,
        state,
        wait: 0,
        since: 0,
        cpu: 0,
        on_cpu_since: 0,
        cpu_time: 0,
        nvcsw: 0,
        nivcsw: 0,
        frames: Vec::new(),
        held: Vec::new(),
        joiners: Vec::new(),
        hooked: false,
    }
}
