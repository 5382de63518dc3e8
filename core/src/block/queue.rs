//! The request queue: plugging, merging, scheduling, flushes, completion.

use super::bio::{Bio, BioFlags, BioId, EndIo, EndIoId, IoError, IoResult, Op};
use super::device::{Carried, Device, Request};
use super::elevator::{Elevator, Queued};
use super::flush::{self, FlushQueue};
use super::request::{BioSlot, PieceSlot, Pieces, ReqSlot, Slab, NONE};
use super::stats::{DiskStats, Phase, Stats};
use crate::base::{Lba, Nanos};
use crate::sim::sync::WaitQueue;
use crate::sim::{Irq, Sim, TaskId, WaitReason};
use crate::trace::{Category, Event};
use std::cell::{Cell, Ref, RefCell, RefMut};
use std::collections::VecDeque;
use std::rc::{Rc, Weak};

/// Requests in a plug before it is flushed (`BLK_MAX_REQUEST_COUNT`).
const PLUG_REQUESTS: usize = 32;
/// Size of the last request from which a plug is flushed (`BLK_PLUG_FLUSH_SIZE`).
const PLUG_BYTES: u64 = 128 * 1024;

/// Wait queues of the tags (`SBQ_WAIT_QUEUES`) and most tags freed before waiters are woken (`SBQ_WAKE_BATCH`).
const TAG_QUEUES: u32 = 8;
const TAG_BATCH: u32 = 8;

type Handler = Rc<dyn Fn(u64, IoResult)>;

/// The request queue of a device.
pub struct Queue {
    pub(super) sim: Sim,
    irq: Irq,
    inner: RefCell<Inner>,
    /// Tasks waiting for a free request.
    room: WaitQueue,
    handlers: RefCell<Vec<Handler>>,
    done: RefCell<Vec<(EndIo, IoResult)>>,
}

struct Limits {
    max_sectors: u32,
    max_segments: u32,
    max_zero: u32,
    max_discard: u32,
    depth: u32,
    nr_requests: u32,
    cache: bool,
    fua: bool,
}

struct PlugList {
    task: TaskId,
    requests: Vec<u32>,
}

struct Inner {
    device: Device,
    limits: Limits,
    bios: Slab<BioSlot>,
    pieces: Slab<PieceSlot>,
    reqs: Slab<ReqSlot>,
    plugs: Vec<PlugList>,
    elevator: Elevator,
    /// Requests that go before the scheduler's: flushes and their writes.
    dispatch: VecDeque<u32>,
    flushes: FlushQueue,
    in_flight: u32,
    allocated: u32,
    /// Requests freed since waiters were last woken.
    freed: u32,
    next_number: u64,
    stats: Stats,
    started: Vec<(u32, Nanos)>,
}

/// Bios that are waited for together. The first error is kept.
pub struct Batch {
    pending: Cell<u32>,
    error: Cell<Option<IoError>>,
    queue: WaitQueue,
}

impl Batch {
    /// An empty batch.
    pub fn new(sim: &Sim) -> Rc<Batch> {
        Rc::new(Batch {
            pending: Cell::new(0),
            error: Cell::new(None),
            queue: WaitQueue::new(sim),
        })
    }

    /// Bios not yet done.
    pub fn pending(&self) -> u32 {
        self.pending.get()
    }

    /// Blocks until all bios submitted so far are done; the first error, which is cleared.
    pub async fn wait(&self, why: WaitReason) -> Result<(), IoError> {
        while self.pending.get() > 0 {
            self.queue.wait(why).await;
        }
        self.error.take().map_or(Ok(()), Err)
    }

    fn end(&self, result: &IoResult) {
        if let Err(e) = result {
            self.error.set(self.error.get().or(Some(*e)));
        }
        self.pending.set(self.pending.get() - 1);
        if self.pending.get() == 0 {
            self.queue.wake_all();
        }
    }
}

/// Collects a task's requests until dropped (kernel `blk_start_plug`, `blk_finish_plug`). Also flushed when the task
/// blocks. A plug inside another one does nothing.
#[must_use = "requests are collected until this is dropped"]
pub struct Plug {
    queue: Option<Rc<Queue>>,
    task: TaskId,
}

impl Plug {
    /// Flushes the plug now.
    pub fn finish(self) {}
}

impl Drop for Plug {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.end_plug(self.task);
        }
    }
}

impl Queue {
    /// The queue of `device`.
    pub fn new(sim: &Sim, device: Device) -> Rc<Queue> {
        let c = device.config();
        let p = &c.params;
        let sectors = |kb: u64| (kb.saturating_mul(2)).min(u64::from(u32::MAX)) as u32;
        let limits = Limits {
            max_sectors: sectors(p.max_sectors_kb.max(4)),
            max_segments: p.max_segments.clamp(1, 65_535) as u32,
            max_zero: sectors(p.write_zeroes_kb),
            max_discard: sectors(p.discard_kb),
            depth: p.queue_depth.clamp(1, 65_535) as u32,
            nr_requests: p.nr_requests.clamp(1, 65_535) as u32,
            cache: c.has_volatile_cache(),
            fua: p.fua != 0,
        };
        let inner = Inner {
            limits,
            elevator: Elevator::new(c.elevator),
            device,
            bios: Slab::new(),
            pieces: Slab::new(),
            reqs: Slab::new(),
            plugs: Vec::new(),
            dispatch: VecDeque::new(),
            flushes: FlushQueue::default(),
            in_flight: 0,
            allocated: 0,
            freed: 0,
            next_number: 1,
            stats: Stats::default(),
            started: Vec::new(),
        };
        Rc::new_cyclic(|me: &Weak<Queue>| {
            let (on_irq, on_block) = (me.clone(), me.clone());
            let irq = sim.register_irq(move |id| {
                if let Some(queue) = on_irq.upgrade() {
                    queue.complete(id as u32);
                }
            });
            sim.register_block_hook(move |task| {
                if let Some(queue) = on_block.upgrade() {
                    queue.flush_plug(task);
                }
            });
            Queue {
                sim: sim.clone(),
                irq,
                inner: RefCell::new(inner),
                room: WaitQueue::new(sim),
                handlers: RefCell::new(Vec::new()),
                done: RefCell::new(Vec::new()),
            }
        })
    }

    /// Submits a bio that some task will [`Queue::wait`] for.
    pub fn submit(&self, bio: Bio) -> BioId {
        self.submit_bio(bio, EndIo::Wait)
    }

    /// Submits a bio nobody waits for. An error is counted and otherwise lost.
    pub fn submit_detached(&self, bio: Bio) {
        let _ = self.submit_bio(bio, EndIo::Detached);
    }

    /// Submits a bio and calls `end_io` in interrupt context when it is done.
    pub fn submit_with(&self, bio: Bio, end_io: impl FnOnce(IoResult) + 'static) {
        let _ = self.submit_bio(bio, EndIo::Call(Box::new(end_io)));
    }

    /// Submits a bio; the registered handler gets `arg` when it is done. No allocation per bio.
    pub fn submit_to(&self, bio: Bio, handler: EndIoId, arg: u64) {
        let _ = self.submit_bio(bio, EndIo::Handler(handler, arg));
    }

    /// Submits a bio as part of a batch. Contents that it reads are dropped.
    pub fn submit_batch(&self, bio: Bio, batch: &Rc<Batch>) {
        batch.pending.set(batch.pending.get() + 1);
        let _ = self.submit_bio(bio, EndIo::Batch(Rc::clone(batch)));
    }

    /// Registers a completion handler, called in interrupt context. It should hold weak references only.
    pub fn register_end_io(&self, handler: impl Fn(u64, IoResult) + 'static) -> EndIoId {
        let mut handlers = self.handlers.borrow_mut();
        handlers.push(Rc::new(handler));
        EndIoId(handlers.len() as u16 - 1)
    }

    /// Blocks until a bio is done; reads give their contents.
    pub async fn wait(&self, id: BioId) -> IoResult {
        loop {
            {
                let mut inner = self.inner.borrow_mut();
                let me = self.sim.current();
                let slot = inner.bios.get_mut(id.slot);
                debug_assert_eq!(slot.number, id.number, "a bio is waited for once");
                if let Some(result) = slot.result.take() {
                    inner.bios.remove(id.slot);
                    return result;
                }
                slot.waiter = Some(me);
            }
            self.sim.block(WaitReason::Bio(id.number), None).await;
        }
    }

    /// True if a bio is done and may be collected without blocking.
    pub fn is_done(&self, id: BioId) -> bool {
        self.inner.borrow().bios.get(id.slot).result.is_some()
    }

    /// Submits a bio and blocks until it is done.
    pub async fn run(&self, bio: Bio) -> IoResult {
        let id = self.submit(bio);
        self.wait(id).await
    }

    /// Empties the device's cache (`blkdev_issue_flush`); nothing to do without one.
    pub async fn flush(&self) -> Result<(), IoError> {
        self.run(Bio::flush()).await.map(|_| ())
    }

    /// Blocks while all requests are in use (`nr_requests`), as a task does that allocates one for `bio`. A bio
    /// that merges needs none.
    pub async fn enter(&self, bio: &Bio) {
        let task = self.sim.current();
        loop {
            {
                let inner = self.inner.borrow();
                if inner.allocated < inner.limits.nr_requests || inner.would_merge(bio, task) {
                    return;
                }
            }
            self.room.wait(WaitReason::Queue).await;
        }
    }

    /// Begins to collect the current task's requests.
    pub fn plug(self: &Rc<Self>) -> Plug {
        let task = self.sim.current();
        let mut inner = self.inner.borrow_mut();
        let nested = task == TaskId::IRQ || inner.plugs.iter().any(|p| p.task == task);
        if !nested {
            inner.plugs.push(PlugList {
                task,
                requests: Vec::new(),
            });
        }
        Plug {
            queue: (!nested).then(|| Rc::clone(self)),
            task,
        }
    }

    /// The device.
    pub fn device(&self) -> Ref<'_, Device> {
        Ref::map(self.inner.borrow(), |i| &i.device)
    }

    /// The device, to be changed.
    pub fn device_mut(&self) -> RefMut<'_, Device> {
        RefMut::map(self.inner.borrow_mut(), |i| &mut i.device)
    }

    /// Counters.
    pub fn stats(&self) -> Ref<'_, Stats> {
        Ref::map(self.inner.borrow(), |i| &i.stats)
    }

    /// The diskstats line now.
    pub fn disk_stats(&self) -> DiskStats {
        self.inner.borrow().stats.disk(self.sim.now())
    }

    /// Which phase the counters count from now on.
    pub fn set_phase(&self, phase: Phase) {
        self.inner.borrow_mut().stats.set_phase(phase);
    }

    /// Size in sectors.
    pub fn sectors(&self) -> u64 {
        self.inner.borrow().device.sectors()
    }

    /// True if the device has write-zeroes.
    pub fn has_write_zeroes(&self) -> bool {
        self.inner.borrow().limits.max_zero > 0
    }

    /// True if the device has discard.
    pub fn has_discard(&self) -> bool {
        self.inner.borrow().limits.max_discard > 0
    }

    /// Requests allocated and not yet done.
    pub fn requests(&self) -> u32 {
        self.inner.borrow().allocated
    }

    /// Writes that the device has now, with the instant it got them: they may or may not reach the medium.
    pub(super) fn writes_in_flight(&self) -> Vec<(Nanos, Bio)> {
        let inner = self.inner.borrow();
        let mut requests: Vec<_> = inner.reqs.iter().filter(|r| r.at_device).collect();
        requests.retain(|r| r.op.is_write());
        requests.sort_by_key(|r| (r.issued, r.lba));
        let mut bios = Vec::new();
        for r in requests {
            let pieces = Pieces {
                bios: &inner.bios,
                slab: &inner.pieces,
                at: r.first,
            };
            bios.extend(pieces.map(|p| (r.issued, p.to_bio())));
        }
        bios
    }

    // ---- submission ----

    fn submit_bio(&self, mut bio: Bio, end_io: EndIo) -> BioId {
        let now = self.sim.now();
        let task = self.sim.current();
        let mut inner = self.inner.borrow_mut();
        let inner = &mut *inner;
        let cached = inner.limits.cache;
        let number = inner.next_number;
        inner.next_number += 1;
        if !cached {
            // As `submit_bio_noacct`: flags that mean nothing to the device are dropped before the bio counts.
            bio.flags = bio.flags.without(BioFlags::PREFLUSH | BioFlags::FUA);
        }
        let nothing = bio.sectors == 0 && !bio.flags.has(BioFlags::PREFLUSH);
        let error = if nothing { None } else { inner.bad(&bio) };
        if !nothing && error.is_none() {
            inner.stats.bio_queued(&bio, task.0);
            self.sim.emit(Category::Device, || Event::BioQueued {
                bio: number as u32,
                lba: bio.lba,
                sectors: bio.sectors,
                flags: bio.flags.0,
                role: (bio.op as u8) << 5 | bio.role as u8,
            });
        }
        let slot = inner.bios.add(BioSlot {
            bio,
            end_io,
            number,
            task,
            pending: 0,
            error,
            result: None,
            waiter: None,
        });
        let id = BioId { number, slot };
        if nothing || error.is_some() {
            let mut done = Vec::new();
            inner.end_bio(slot, &mut done, &self.sim);
            self.call_later(done);
            return id;
        }
        inner.add_bio(now, slot, task, &self.sim);
        inner.run(now, &self.sim, self.irq);
        id
    }

    /// Completions of bios that end while they are submitted run as soon as the task lets go.
    fn call_later(&self, done: Vec<(EndIo, IoResult)>) {
        if done.is_empty() {
            return;
        }
        self.done.borrow_mut().extend(done);
        self.sim.raise_at(self.sim.now(), self.irq, u64::from(NONE));
    }

    fn end_plug(&self, task: TaskId) {
        if self.sim.is_shut_down() {
            return;
        }
        self.flush_plug(task);
        let mut inner = self.inner.borrow_mut();
        inner.plugs.retain(|p| p.task != task);
        self.sim.set_hooked(task, false);
    }

    fn flush_plug(&self, task: TaskId) {
        let now = self.sim.now();
        let mut inner = self.inner.borrow_mut();
        if let Some(i) = inner.plugs.iter().position(|p| p.task == task) {
            inner.flush_plug(now, i);
            inner.run(now, &self.sim, self.irq);
        }
        self.sim.set_hooked(task, false);
    }

    // ---- completion, in interrupt context ----

    fn complete(&self, id: u32) {
        let mut done = std::mem::take(&mut *self.done.borrow_mut());
        if id != NONE {
            let now = self.sim.now();
            let mut inner = self.inner.borrow_mut();
            inner.complete(now, id, &self.sim, &mut done);
            inner.run(now, &self.sim, self.irq);
        }
        for (end_io, result) in done.drain(..) {
            match end_io {
                EndIo::Detached | EndIo::Wait => {}
                EndIo::Call(f) => f(result),
                EndIo::Handler(h, arg) => {
                    let handler = self.handlers.borrow().get(h.0 as usize).map(Rc::clone);
                    if let Some(handler) = handler {
                        handler(arg, result);
                    }
                }
                EndIo::Batch(batch) => batch.end(&result),
            }
        }
        let mut spare = self.done.borrow_mut();
        if spare.is_empty() {
            *spare = done;
        }
        drop(spare);
        self.wake_room();
    }

    /// Who waits for a request is woken when a batch of them is free (kernel `sbitmap_queue_wake_up`).
    fn wake_room(&self) {
        let batch = {
            let mut inner = self.inner.borrow_mut();
            let batch = (inner.limits.nr_requests / TAG_QUEUES).clamp(1, TAG_BATCH);
            if inner.allocated == 0 {
                // Nothing will be freed any more.
                inner.freed = 0;
                u32::MAX
            } else if inner.freed < batch {
                return;
            } else {
                inner.freed -= batch;
                batch
            }
        };
        for _ in 0..batch {
            if !self.room.wake_one() {
                return;
            }
        }
    }
}

impl Inner {
    fn bad(&self, bio: &Bio) -> Option<IoError> {
        let unit = u64::from(bio.unit);
        let units = bio.payloads.len() as u64;
        let misfit = bio.op == Op::Write && units * unit != bio.bytes();
        let odd = !unit.is_power_of_two() || !(512..=4096).contains(&unit);
        if bio.end().0 > self.device.sectors() || misfit || odd {
            return Some(IoError::BadRequest);
        }
        let unsupported = bio.op == Op::WriteZeroes && self.limits.max_zero == 0
            || bio.op == Op::Discard && self.limits.max_discard == 0;
        unsupported.then_some(IoError::NotSupported)
    }

    fn max_sectors(&self, bio: &Bio) -> u32 {
        match bio.op {
            Op::WriteZeroes => self.limits.max_zero,
            Op::Discard => self.limits.max_discard,
            Op::Read | Op::Write | Op::Flush => {
                let segments = u32::from(bio.segments).max(1);
                let per = bio.sectors.div_ceil(segments).max(1);
                let by_segments = per.saturating_mul(self.limits.max_segments);
                // Whole units only, as the kernel splits at logical blocks.
                let unit = (u32::from(bio.unit) / 512).max(1);
                (self.limits.max_sectors.min(by_segments) / unit).max(1) * unit
            }
        }
    }

    /// Splits a bio into pieces that fit and queues them.
    fn add_bio(&mut self, now: Nanos, slot: u32, task: TaskId, sim: &Sim) {
        let bio = &self.bios.get(slot).bio;
        let (total, flags) = (bio.sectors, bio.flags);
        let limit = self.max_sectors(bio);
        let flags_flush = flags.has(BioFlags::PREFLUSH) || flags.has(BioFlags::FUA);
        if flags_flush || total <= limit {
            self.bios.get_mut(slot).pending = 1;
            self.add_piece(now, slot, 0, total, task, sim);
            return;
        }
        self.bios.get_mut(slot).pending = total.div_ceil(limit);
        let mut from = 0;
        while from < total {
            let n = limit.min(total - from);
            self.add_piece(now, slot, from, n, task, sim);
            from += n;
        }
    }

    fn add_piece(&mut self, now: Nanos, slot: u32, from: u32, n: u32, task: TaskId, sim: &Sim) {
        let bio = &self.bios.get(slot).bio;
        let segments = u32::from(bio.segments) * n / bio.sectors.max(1);
        let (op, lba, flags) = (bio.op, bio.lba.0 + u64::from(from), bio.flags);
        let number = self.bios.get(slot).number;
        let piece = self.pieces.add(PieceSlot {
            bio: slot,
            from,
            sectors: n,
            next: NONE,
        });
        let policy = flush::policy(flags, n, self.limits.cache, self.limits.fua);
        let mut req = ReqSlot {
            op: if n == 0 { Op::Flush } else { op },
            lba,
            sectors: n,
            segments: segments.max(1),
            flags,
            fua: self.limits.cache && self.limits.fua && flags.has(BioFlags::FUA),
            first: piece,
            last: piece,
            allocated: now,
            issued: now,
            ..ReqSlot::EMPTY
        };
        let plug = self.plugs.iter().position(|p| p.task == task);
        if req.mergeable() && self.merge(&req, plug) {
            self.stats.merged(op);
            sim.emit(Category::Device, || Event::BioMerged {
                bio: number as u32,
                lba: Lba(lba),
                sectors: n,
            });
            return;
        }
        if policy & (flush::PRE | flush::POST) != 0 {
            req.flush_policy = policy;
        }
        self.allocated += 1;
        self.stats.request_allocated(now);
        let id = self.reqs.add(req);
        if req.flush_policy == 0 {
            match plug {
                Some(i) => self.add_to_plug(now, i, id, sim),
                None => self.insert(now, id),
            }
        } else if req.flush_policy == flush::WRITE | flush::POST {
            // Goes the normal way first; the flush comes at its completion.
            self.flushes.write_begins();
            self.insert(now, id);
        } else {
            self.next_flush_step(now, id);
        }
    }

    /// Whether `piece` can be part of request `id`: at its end (true) or its front (false).
    fn joins(&self, id: u32, piece: &ReqSlot) -> Option<bool> {
        let into = self.reqs.get(id);
        let fits = into.op == piece.op
            && into.mergeable()
            && into.flush_policy == 0
            && into.sectors + piece.sectors <= self.limits.max_sectors
            && into.segments + piece.segments <= self.limits.max_segments;
        match (into.end() == piece.lba, piece.end() == into.lba) {
            (true, _) if fits => Some(true),
            (_, true) if fits => Some(false),
            _ => None,
        }
    }

    /// True if `bio` as a whole would become part of a request of the task's plug or of the scheduler.
    fn would_merge(&self, bio: &Bio, task: TaskId) -> bool {
        let flushes = bio.flags.has(BioFlags::PREFLUSH) || bio.flags.has(BioFlags::FUA);
        if flushes || bio.sectors == 0 || bio.sectors > self.max_sectors(bio) {
            return false;
        }
        let segments = u32::from(bio.segments).max(1);
        let piece = ReqSlot {
            op: bio.op,
            lba: bio.lba.0,
            sectors: bio.sectors,
            segments,
            flags: bio.flags,
            ..ReqSlot::EMPTY
        };
        let plug = self.plugs.iter().find(|p| p.task == task);
        let last = plug.and_then(|p| p.requests.last().copied());
        let queued = self
            .elevator
            .neighbours(bio.op != Op::Read, piece.lba, piece.end());
        let mut all = last.into_iter().chain(queued.into_iter().flatten());
        piece.mergeable() && all.any(|id| self.joins(id, &piece).is_some())
    }

    /// Merges a piece into the last plugged request or one of the scheduler's.
    fn merge(&mut self, piece: &ReqSlot, plug: Option<usize>) -> bool {
        let last = plug.and_then(|i| self.plugs[i].requests.last().copied());
        if last.is_some_and(|id| self.merge_into(id, piece).is_some()) {
            return true;
        }
        let write = piece.op != Op::Read;
        let candidates = self.elevator.neighbours(write, piece.lba, piece.end());
        for id in candidates.into_iter().flatten() {
            if let Some(old_lba) = self.merge_into(id, piece) {
                let r = self.reqs.get(id);
                let q = Queued {
                    id,
                    lba: r.lba,
                    sectors: r.sectors,
                    write,
                };
                self.elevator.grown(old_lba, q);
                return true;
            }
        }
        false
    }

    /// Puts the pieces of `piece` at the end or the front of request `id`; gives back its old first sector.
    fn merge_into(&mut self, id: u32, piece: &ReqSlot) -> Option<u64> {
        let at_end = self.joins(id, piece)?;
        let r = self.reqs.get_mut(id);
        let into = *r;
        if at_end {
            self.pieces.get_mut(into.last).next = piece.first;
            r.last = piece.last;
        } else {
            self.pieces.get_mut(piece.last).next = into.first;
            r.first = piece.first;
            r.lba = piece.lba;
        }
        r.sectors += piece.sectors;
        r.segments += piece.segments;
        Some(into.lba)
    }

    fn add_to_plug(&mut self, now: Nanos, plug: usize, id: u32, sim: &Sim) {
        let list = &self.plugs[plug].requests;
        let last = list.last().map_or(0, |r| self.reqs.get(*r).sectors);
        if list.len() >= PLUG_REQUESTS || u64::from(last) * 512 >= PLUG_BYTES {
            self.flush_plug(now, plug);
        }
        let list = &mut self.plugs[plug];
        if list.requests.is_empty() {
            sim.set_hooked(list.task, true);
        }
        list.requests.push(id);
    }

    fn flush_plug(&mut self, now: Nanos, plug: usize) {
        let mut requests = std::mem::take(&mut self.plugs[plug].requests);
        for id in requests.drain(..) {
            self.insert(now, id);
        }
        self.plugs[plug].requests = requests;
    }

    /// Gives a request to the scheduler, merging it with queued ones.
    fn insert(&mut self, now: Nanos, id: u32) {
        let r = *self.reqs.get(id);
        if r.mergeable() && r.flush_policy == 0 && self.merge(&r, None) {
            self.reqs.remove(id);
            self.allocated -= 1;
            self.freed += 1;
            self.stats.request_merged(now);
            return;
        }
        let q = Queued {
            id,
            lba: r.lba,
            sectors: r.sectors,
            write: r.op != Op::Read,
        };
        self.elevator.insert(now, q);
    }

    // ---- flush sequences ----

    fn next_flush_step(&mut self, now: Nanos, id: u32) {
        let r = *self.reqs.get(id);
        match flush::next_step(r.flush_policy, r.flush_done) {
            Some(flush::WRITE) => {
                self.flushes.write_begins();
                self.dispatch.push_back(id);
            }
            Some(_) => self.flushes.wait(id, now),
            None => {}
        }
    }

    /// A step of a sequence is done; true if it was the last one.
    fn flush_step_done(&mut self, now: Nanos, id: u32, step: u8, error: Option<IoError>) -> bool {
        let r = self.reqs.get_mut(id);
        r.flush_done |= step;
        if let Some(e) = error {
            r.error = r.error.or(Some(e));
            r.flush_done = r.flush_policy;
        }
        let over = flush::next_step(r.flush_policy, r.flush_done).is_none();
        if !over {
            self.next_flush_step(now, id);
        }
        over
    }

    /// Starts a flush if one is due.
    fn kick_flush(&mut self, now: Nanos) {
        if self.flushes.kick(now) {
            let id = self.reqs.add(ReqSlot {
                flags: BioFlags::PREFLUSH,
                allocated: now,
                issued: now,
                ..ReqSlot::EMPTY
            });
            self.stats.request_allocated(now);
            self.dispatch.push_front(id);
        }
    }

    // ---- dispatch and completion ----

    /// Gives requests to the device as long as it takes them.
    fn run(&mut self, now: Nanos, sim: &Sim, irq: Irq) {
        self.kick_flush(now);
        while self.in_flight < self.limits.depth {
            let next = self
                .dispatch
                .pop_front()
                .or_else(|| self.elevator.next(now));
            let Some(id) = next else { break };
            self.issue(now, id, sim);
        }
        for (id, t) in self.started.drain(..) {
            sim.raise_at(t, irq, u64::from(id));
        }
    }

    fn issue(&mut self, now: Nanos, id: u32, sim: &Sim) {
        self.in_flight += 1;
        let r = self.reqs.get_mut(id);
        r.issued = now;
        r.at_device = true;
        let r = *r;
        self.stats.request_issued(r.op);
        sim.emit(Category::Device, || Event::RequestIssued {
            request: id,
            lba: Lba(r.lba),
            sectors: r.sectors,
            op: r.op as u8,
        });
        self.device.submit(now, id, &request(&r), &mut self.started);
    }

    fn complete(&mut self, now: Nanos, id: u32, sim: &Sim, done: &mut Vec<(EndIo, IoResult)>) {
        self.in_flight -= 1;
        self.reqs.get_mut(id).at_device = false;
        let r = *self.reqs.get(id);
        let pieces = Pieces {
            bios: &self.bios,
            slab: &self.pieces,
            at: r.first,
        };
        let result = self
            .device
            .complete(now, id, &request(&r), pieces.clone(), &mut self.started);
        if result.is_ok() {
            for p in pieces {
                self.stats.piece_done(r.op, p.bio.role, p.sectors);
            }
        } else {
            self.stats.request_failed();
        }
        emit_end(sim, id, &r, result);
        let error = result.err();
        if r.first == NONE {
            self.free_request(now, id);
            for waiting in self.flushes.flushed() {
                let w = self.reqs.get(waiting);
                let step = if w.flush_done & flush::PRE == 0 && w.flush_policy & flush::PRE != 0 {
                    flush::PRE
                } else {
                    flush::POST
                };
                if self.flush_step_done(now, waiting, step, error) {
                    self.end_request(now, waiting, done, sim);
                }
            }
        } else if r.flush_policy == 0 {
            self.reqs.get_mut(id).error = error;
            self.end_request(now, id, done, sim);
        } else {
            self.flushes.write_ends();
            if self.flush_step_done(now, id, flush::WRITE, error) {
                self.end_request(now, id, done, sim);
            }
        }
    }

    fn free_request(&mut self, now: Nanos, id: u32) {
        let r = *self.reqs.get(id);
        let took = now.saturating_sub(r.allocated);
        self.stats.request_freed(r.op, r.sectors, took, now);
        self.reqs.remove(id);
    }

    /// Ends the bios of a request whose pieces are all done.
    fn end_request(&mut self, now: Nanos, id: u32, done: &mut Vec<(EndIo, IoResult)>, sim: &Sim) {
        let r = *self.reqs.get(id);
        let mut at = r.first;
        while at != NONE {
            let p = *self.pieces.get(at);
            self.pieces.remove(at);
            at = p.next;
            let b = self.bios.get_mut(p.bio);
            b.error = b.error.or(r.error);
            b.pending -= 1;
            if b.pending == 0 {
                self.end_bio(p.bio, done, sim);
            }
        }
        self.free_request(now, id);
        self.allocated -= 1;
        self.freed += 1;
    }

    fn end_bio(&mut self, slot: u32, done: &mut Vec<(EndIo, IoResult)>, sim: &Sim) {
        let b = self.bios.get_mut(slot);
        b.bio.payloads = super::bio::Payloads::None;
        let end_io = std::mem::replace(&mut b.end_io, EndIo::Detached);
        let error = b.error;
        let result = match error {
            Some(e) => Err(e),
            None if b.bio.op == Op::Read && !matches!(end_io, EndIo::Detached) => {
                Ok(self.device.read(&self.bios.get(slot).bio))
            }
            None => Ok(super::bio::Payloads::None),
        };
        let b = self.bios.get_mut(slot);
        if matches!(end_io, EndIo::Wait) {
            b.result = Some(result);
            if let Some(task) = b.waiter.take() {
                sim.wake(task);
            }
            return;
        }
        self.bios.remove(slot);
        if !matches!(end_io, EndIo::Detached) {
            done.push((end_io, result));
        }
    }
}

/// Notes how a request ended.
fn emit_end(sim: &Sim, id: u32, r: &ReqSlot, result: Result<Carried, IoError>) {
    if !sim.trace().wants(Category::Device) {
        return;
    }
    let (request, lba, sectors, op) = (id, Lba(r.lba), r.sectors, r.op as u8);
    let end = match result {
        Ok(_) => Event::RequestDone {
            request,
            lba,
            sectors,
            op,
        },
        Err(_) => Event::RequestFailed {
            request,
            lba,
            sectors,
            op,
        },
    };
    sim.emit(Category::Device, || end);
    let more = match result {
        Ok(Carried::Cache(record)) => Event::ReachedCache {
            record: record as u32,
            lba,
            sectors,
        },
        Ok(Carried::Medium(record)) => Event::ReachedMedium {
            record: record as u32,
            lba,
            sectors,
        },
        Ok(Carried::Flushed { records, bytes }) => Event::Flushed { records, bytes },
        Ok(Carried::Read) | Err(_) => return,
    };
    sim.emit(Category::Device, || more);
}

fn request(r: &ReqSlot) -> Request {
    Request {
        op: r.op,
        lba: Lba(r.lba),
        sectors: r.sectors,
        fua: r.fua,
        flags: r.flags,
        issued: r.issued,
    }
}
