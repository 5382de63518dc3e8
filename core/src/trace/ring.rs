//! The ring of records, the masks and the digest.

use super::event::{Category, Event, Record};
use crate::base::rng::mix64;
use crate::base::Nanos;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

/// Records per chunk (2 MiB).
const CHUNK: usize = 64 * 1024;

#[derive(Default)]
struct Ring {
    chunks: VecDeque<Vec<Record>>,
    /// Index of the first record still held.
    first: u64,
    budget_bytes: usize,
}

/// Collects events. Costs one load and one branch per event that nobody wants.
pub struct Tracer {
    wanted: Cell<u32>,
    recorded: Cell<u32>,
    hashed: Cell<u32>,
    hash: Cell<u64>,
    counts: RefCell<Vec<u64>>,
    causes: RefCell<Vec<u32>>,
    ring: RefCell<Ring>,
}

impl Default for Tracer {
    fn default() -> Tracer {
        Tracer {
            wanted: Cell::new(0),
            recorded: Cell::new(0),
            hashed: Cell::new(0),
            hash: Cell::new(0),
            counts: RefCell::new(Vec::new()),
            causes: RefCell::new(Vec::new()),
            ring: RefCell::new(Ring {
                budget_bytes: 64 << 20,
                ..Ring::default()
            }),
        }
    }
}

impl Tracer {
    /// Which categories are kept in the ring (bits of [`Category::bit`]).
    pub fn set_recorded(&self, mask: u32) {
        self.recorded.set(mask);
        self.wanted.set(mask | self.hashed.get());
    }

    /// Which categories go into the digest and the counts, whether or not they are recorded.
    pub fn set_hashed(&self, mask: u32) {
        self.hashed.set(mask);
        self.wanted.set(mask | self.recorded.get());
    }

    /// Most bytes the ring may hold; at least one chunk of 2 MiB is kept.
    pub fn set_budget(&self, bytes: usize) {
        self.ring.borrow_mut().budget_bytes = bytes;
    }

    /// True if somebody wants events of `category`.
    #[inline]
    pub fn wants(&self, category: Category) -> bool {
        self.wanted.get() & category.bit() != 0
    }

    /// Notes an event; the caller has asked [`Tracer::wants`].
    pub fn note(&self, now: Nanos, task: u32, event: &Event) {
        let bit = event.category().bit();
        let bits = event.pack();
        let record = Record {
            time: now.0,
            cause: self.cause(task),
            task: task as u16,
            kind: event.kind(),
            lo: bits as u64,
            hi: (bits >> 64) as u64,
        };
        if self.hashed.get() & bit != 0 {
            let head = u64::from(record.kind) << 32 | u64::from(task);
            let h = mix64(self.hash.get() ^ record.time);
            self.hash
                .set(mix64(mix64(h ^ head ^ record.lo) ^ record.hi));
            let mut counts = self.counts.borrow_mut();
            let kind = record.kind as usize;
            if counts.len() <= kind {
                counts.resize(kind + 1, 0);
            }
            counts[kind] += 1;
        }
        if self.recorded.get() & bit != 0 {
            self.ring.borrow_mut().push(record);
        }
    }

    /// Hash of all events of the hashed categories so far.
    pub fn digest(&self) -> u64 {
        self.hash.get()
    }

    /// How often an event of this kind was noted in a hashed category.
    pub fn count(&self, kind: u16) -> u64 {
        let counts = self.counts.borrow();
        counts.get(kind as usize).copied().unwrap_or(0)
    }

    /// Sets the application operation that `task` works for from now on (0 none).
    pub fn set_cause(&self, task: u32, cause: u32) {
        let mut causes = self.causes.borrow_mut();
        let at = task as usize;
        if causes.len() <= at {
            causes.resize(at + 1, 0);
        }
        causes[at] = cause;
    }

    /// The application operation that `task` works for.
    pub fn cause(&self, task: u32) -> u32 {
        let causes = self.causes.borrow();
        causes.get(task as usize).copied().unwrap_or(0)
    }

    /// Index of the oldest record still held; earlier ones are gone.
    pub fn first_index(&self) -> u64 {
        self.ring.borrow().first
    }

    /// One past the index of the newest record.
    pub fn end_index(&self) -> u64 {
        let ring = self.ring.borrow();
        ring.first + ring.len()
    }

    /// The record with that index.
    pub fn get(&self, index: u64) -> Option<Record> {
        self.ring.borrow().get(index)
    }

    /// Calls `f` with the records from `from` on until it returns false. If records before the first one held are
    /// asked for, a [`Event::Gap`] record comes first.
    pub fn scan(&self, from: u64, mut f: impl FnMut(u64, &Record) -> bool) {
        let ring = self.ring.borrow();
        let mut index = from;
        if from < ring.first {
            let time = ring.get(ring.first).map_or(0, |r| r.time);
            let records = ring.first - from;
            let gap = Event::Gap { records };
            let record = Record {
                time,
                kind: gap.kind(),
                lo: records,
                ..Record::default()
            };
            if !f(ring.first, &record) {
                return;
            }
            index = ring.first;
        }
        while let Some(record) = ring.get(index) {
            if !f(index, &record) {
                return;
            }
            index += 1;
        }
    }

    /// Index of the first record at or after `t` (or one past the end).
    pub fn seek(&self, t: Nanos) -> u64 {
        let ring = self.ring.borrow();
        let (mut lo, mut hi) = (ring.first, ring.first + ring.len());
        while lo < hi {
            let mid = lo + (hi - lo) / 2;
            if ring.get(mid).is_some_and(|r| r.time < t.0) {
                lo = mid + 1;
            } else {
                hi = mid;
            }
        }
        lo
    }
}

impl Ring {
    fn push(&mut self, record: Record) {
        if self.chunks.back().is_none_or(|c| c.len() == CHUNK) {
            let bytes = CHUNK * size_of::<Record>();
            while self.chunks.len() > 1 && (self.chunks.len() + 1) * bytes > self.budget_bytes {
                self.chunks.pop_front();
                self.first += CHUNK as u64;
            }
            self.chunks.push_back(Vec::with_capacity(CHUNK));
        }
        if let Some(chunk) = self.chunks.back_mut() {
            chunk.push(record);
        }
    }

    fn len(&self) -> u64 {
        let last = self.chunks.back().map_or(0, Vec::len);
        (self.chunks.len().saturating_sub(1) * CHUNK + last) as u64
    }

    fn get(&self, index: u64) -> Option<Record> {
        let at = index.checked_sub(self.first)? as usize;
        self.chunks.get(at / CHUNK)?.get(at % CHUNK).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Tid;

    fn event(n: u32) -> Event {
        Event::CommitWait { tid: Tid(n) }
    }

    #[test]
    fn ring_drops_old_chunks_visibly_and_seeks_by_time() {
        let t = Tracer::default();
        t.set_recorded(Category::Jbd2.bit());
        t.set_budget(3 * CHUNK * 32);
        let n = CHUNK as u64 * 4 + 100;
        for i in 0..n {
            t.note(Nanos(i * 10), 3, &event(i as u32));
        }
        assert_eq!(t.first_index(), 2 * CHUNK as u64);
        assert_eq!(t.end_index(), n);
        assert_eq!(t.seek(Nanos((n - 7) * 10 - 3)), n - 7);
        let mut seen = Vec::new();
        t.scan(5, |i, r| {
            seen.push((i, r.event()));
            seen.len() < 2
        });
        let records = 2 * CHUNK as u64 - 5;
        assert_eq!(seen[0].1, Some(Event::Gap { records }));
        assert_eq!(seen[1].1, Some(event(2 * CHUNK as u32)));
    }

    #[test]
    fn digest_depends_on_hashed_categories_only() {
        let run = |recorded: u32| {
            let t = Tracer::default();
            t.set_hashed(Category::Jbd2.bit());
            t.set_recorded(recorded);
            for (i, c) in [Category::Jbd2, Category::Fault].into_iter().enumerate() {
                if t.wants(c) {
                    let e = if i == 0 {
                        event(1)
                    } else {
                        Event::Gap { records: 1 }
                    };
                    t.note(Nanos(i as u64), 0, &e);
                }
            }
            (t.digest(), t.count(event(0).kind()))
        };
        assert_eq!(run(0), run(u32::MAX));
        assert_eq!(run(0).1, 1);
    }
}
