//! Instants to step to and to mark under the scrubber, and the progress of the lazy inode-table thread.

use crate::base::Nanos;
use crate::trace::{Event, Tracer};
use std::collections::BTreeMap;

/// Instants of the whole run so far.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    next: u64,
    /// Commit blocks: when and which transaction.
    pub commits: Vec<(Nanos, u32)>,
    /// Flushes of the device.
    pub flushes: Vec<Nanos>,
    /// Checkpoints: from the first block picked to the tail's move.
    pub checkpoints: Vec<(Nanos, Nanos)>,
    open: Option<Nanos>,
    /// Records that were dropped.
    pub gap: u64,
}

impl Timeline {
    /// Takes in all events since the last call.
    pub fn update(&mut self, tracer: &Tracer) {
        let mut next = self.next;
        tracer.scan(self.next, |index, record| {
            next = index + 1;
            let now = record.at();
            match record.event() {
                Some(Event::LogCommit { tid, .. }) => self.commits.push((now, tid.0)),
                Some(Event::Flushed { .. }) => self.flushes.push(now),
                Some(Event::CheckpointPicked { .. }) => {
                    self.open.get_or_insert(now);
                }
                Some(Event::TailAdvanced { .. }) => {
                    let from = self.open.take().unwrap_or(now);
                    self.checkpoints.push((from, now));
                }
                Some(Event::Gap { records }) => self.gap += records,
                _ => {}
            }
            true
        });
        self.next = next;
    }
}

/// First or last element of a sorted list strictly after or before `at`.
pub fn neighbour(sorted: impl Iterator<Item = Nanos>, at: Nanos, forward: bool) -> Option<Nanos> {
    let mut before = None;
    for t in sorted {
        match forward {
            true if t > at => return Some(t),
            false if t >= at => return before,
            _ => before = Some(t),
        }
    }
    before.filter(|_| !forward)
}

/// Progress of `ext4lazyinit`.
#[derive(Clone, Debug, Default)]
pub struct LazyFold {
    /// Groups that were zeroed: when and how long it took.
    pub done: BTreeMap<u32, (Nanos, Nanos)>,
    /// Group being zeroed now.
    pub busy: Option<u32>,
    /// Next group and how long the thread waits before it.
    pub wait: Option<(u32, Nanos)>,
}

impl LazyFold {
    /// Applies one event.
    pub fn apply(&mut self, now: Nanos, event: &Event) {
        match *event {
            Event::LazyGroupBegin { group } => self.busy = Some(group.0),
            Event::LazyGroupEnd { group, took } => {
                self.busy = None;
                self.done.insert(group.0, (now, took));
            }
            Event::LazyWait { group, wait } => self.wait = Some((group.0, wait)),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_strict() {
        let list = || [1u64, 5, 9].into_iter().map(Nanos);
        assert_eq!(neighbour(list(), Nanos(5), true), Some(Nanos(9)));
        assert_eq!(neighbour(list(), Nanos(5), false), Some(Nanos(1)));
        assert_eq!(neighbour(list(), Nanos(9), true), None);
        assert_eq!(neighbour(list(), Nanos(1), false), None);
        assert_eq!(neighbour(list(), Nanos(100), false), Some(Nanos(9)));
    }
}
