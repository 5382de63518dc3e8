//! Schedulers: `none` and `mq-deadline` (`block/mq-deadline.c`).
//!
//! SIMPLIFIED: mq-deadline has one I/O priority and no limit for asynchronous requests (`async_depth`).

use super::params;
use crate::base::Nanos;
use std::collections::{BTreeMap, VecDeque};

/// `read_expire`.
const READ_EXPIRE: Nanos = Nanos::from_ms(500);
/// `write_expire`.
const WRITE_EXPIRE: Nanos = Nanos::from_secs(5);
/// `fifo_batch`.
const FIFO_BATCH: u32 = 16;
/// `writes_starved`.
const WRITES_STARVED: u32 = 2;

/// What the scheduler keeps of a queued request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queued {
    pub(super) id: u32,
    pub(super) lba: u64,
    pub(super) sectors: u32,
    pub(super) write: bool,
}

#[derive(Default)]
struct Direction {
    /// First sector and order of arrival to request.
    sorted: BTreeMap<(u64, u64), Queued>,
    /// (deadline, first sector, order).
    fifo: VecDeque<(Nanos, u64, u64)>,
    /// Where the last batch went on.
    next: u64,
}

/// A scheduler.
pub(super) enum Elevator {
    None(VecDeque<u32>),
    Deadline(Box<Deadline>),
}

#[derive(Default)]
pub(super) struct Deadline {
    dirs: [Direction; 2],
    order: u64,
    batching: u32,
    starved: u32,
    last_write: bool,
}

impl Elevator {
    pub(super) fn new(kind: params::Elevator) -> Elevator {
        match kind {
            params::Elevator::None => Elevator::None(VecDeque::new()),
            params::Elevator::MqDeadline => Elevator::Deadline(Box::default()),
        }
    }

    pub(super) fn insert(&mut self, now: Nanos, q: Queued) {
        match self {
            Elevator::None(fifo) => fifo.push_back(q.id),
            Elevator::Deadline(d) => d.insert(now, q),
        }
    }

    /// The next request for the device.
    pub(super) fn next(&mut self, now: Nanos) -> Option<u32> {
        match self {
            Elevator::None(fifo) => fifo.pop_front(),
            Elevator::Deadline(d) => d.next(now),
        }
    }

    /// Queued requests that a bio at `lba` may be merged with: (ends where it begins, begins where it ends).
    pub(super) fn neighbours(&self, write: bool, lba: u64, end: u64) -> [Option<u32>; 2] {
        let Elevator::Deadline(d) = self else {
            return [None, None];
        };
        let sorted = &d.dirs[usize::from(write)].sorted;
        let before = sorted.range(..(lba, 0)).next_back().map(|(_, q)| q);
        let before = before.filter(|q| q.lba + u64::from(q.sectors) == lba);
        let after = sorted.range((end, 0)..(end + 1, 0)).next().map(|(_, q)| q);
        [before.map(|q| q.id), after.map(|q| q.id)]
    }

    /// A queued request grew by a merge.
    pub(super) fn grown(&mut self, old_lba: u64, q: Queued) {
        let Elevator::Deadline(d) = self else { return };
        let dir = &mut d.dirs[usize::from(q.write)];
        let keys = dir.sorted.range((old_lba, 0)..(old_lba + 1, 0));
        let key = keys.filter(|(_, x)| x.id == q.id).map(|(k, _)| *k).next();
        let Some(key) = key else { return };
        dir.sorted.remove(&key);
        dir.sorted.insert((q.lba, key.1), q);
        if q.lba != old_lba {
            for f in &mut dir.fifo {
                if f.2 == key.1 {
                    f.1 = q.lba;
                }
            }
        }
    }
}

impl Deadline {
    fn insert(&mut self, now: Nanos, q: Queued) {
        let expire = if q.write { WRITE_EXPIRE } else { READ_EXPIRE };
        let dir = &mut self.dirs[usize::from(q.write)];
        dir.sorted.insert((q.lba, self.order), q);
        dir.fifo.push_back((now + expire, q.lba, self.order));
        self.order += 1;
    }

    fn take(&mut self, write: bool, key: (u64, u64)) -> Option<u32> {
        let dir = &mut self.dirs[usize::from(write)];
        let q = dir.sorted.remove(&key)?;
        dir.next = q.lba + u64::from(q.sectors);
        Some(q.id)
    }

    /// Removes the entries of requests that were dispatched in sorted order.
    fn fifo_front(&mut self, write: bool) -> Option<(Nanos, u64, u64)> {
        let dir = &mut self.dirs[usize::from(write)];
        while let Some(&(t, lba, order)) = dir.fifo.front() {
            if dir.sorted.contains_key(&(lba, order)) {
                return Some((t, lba, order));
            }
            dir.fifo.pop_front();
        }
        None
    }

    fn next(&mut self, now: Nanos) -> Option<u32> {
        let write = self.last_write;
        let ahead = self.dirs[usize::from(write)].next;
        let dir = &self.dirs[usize::from(write)];
        let key = dir.sorted.range((ahead, 0)..).next().map(|(k, _)| *k);
        if let Some(key) = key.filter(|_| self.batching > 0 && self.batching < FIFO_BATCH) {
            self.batching += 1;
            return self.take(write, key);
        }
        let (reads, writes) = (
            !self.dirs[0].sorted.is_empty(),
            !self.dirs[1].sorted.is_empty(),
        );
        let write = match (reads, writes) {
            (false, false) => return None,
            (true, false) => false,
            (false, true) => true,
            (true, true) => {
                let starved = self.starved >= WRITES_STARVED;
                self.starved += 1;
                starved
            }
        };
        if write {
            self.starved = 0;
        }
        let oldest = self.fifo_front(write)?;
        let ahead = self.dirs[usize::from(write)].next;
        let dir = &self.dirs[usize::from(write)];
        let next = dir.sorted.range((ahead, 0)..).next().map(|(k, _)| *k);
        let key = match next {
            Some(key) if oldest.0 > now => key,
            _ => (oldest.1, oldest.2),
        };
        self.last_write = write;
        self.batching = 1;
        self.take(write, key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(id: u32, lba: u64, write: bool) -> Queued {
        Queued {
            id,
            lba,
            sectors: 8,
            write,
        }
    }

    #[test]
    fn deadline_sorts_prefers_reads_and_lets_writes_through() {
        let mut e = Elevator::new(params::Elevator::MqDeadline);
        let now = Nanos::ZERO;
        for (i, lba) in [800, 80, 400].into_iter().enumerate() {
            e.insert(now, queued(i as u32, lba, true));
        }
        for (i, lba) in [900, 100].into_iter().enumerate() {
            e.insert(now, queued(10 + i as u32, lba, false));
        }
        let order: Vec<u32> = std::iter::from_fn(|| e.next(now)).collect();
        assert_eq!(order, [11, 10, 1, 2, 0]);
    }

    #[test]
    fn deadline_serves_the_oldest_when_it_expired() {
        let mut e = Elevator::new(params::Elevator::MqDeadline);
        e.insert(Nanos::ZERO, queued(1, 8, true));
        e.insert(Nanos::ZERO, queued(2, 500, true));
        assert_eq!(e.next(Nanos::ZERO), Some(1));
        // The batch goes on ahead; request 3 lies behind and is oldest after 5 s.
        e.insert(Nanos(1), queued(3, 4, true));
        for i in 0..40 {
            e.insert(Nanos(2), queued(10 + i, 600 + u64::from(i) * 16, true));
        }
        let late = Nanos::from_secs(6);
        let order: Vec<u32> = std::iter::from_fn(|| e.next(late)).collect();
        let at = order.iter().position(|i| *i == 3).unwrap();
        assert_eq!(at, 15);
    }

    #[test]
    fn neighbours_and_growth() {
        let mut e = Elevator::new(params::Elevator::MqDeadline);
        e.insert(Nanos::ZERO, queued(1, 8, true));
        assert_eq!(e.neighbours(true, 16, 24), [Some(1), None]);
        assert_eq!(e.neighbours(true, 0, 8), [None, Some(1)]);
        assert_eq!(e.neighbours(false, 16, 24), [None, None]);
        let mut q = queued(1, 0, true);
        q.sectors = 16;
        e.grown(8, q);
        assert_eq!(e.neighbours(true, 16, 24), [Some(1), None]);
        assert_eq!(e.next(Nanos::ZERO), Some(1));
        assert_eq!(e.next(Nanos::ZERO), None);
    }
}
