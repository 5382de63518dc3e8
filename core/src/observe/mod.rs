//! Folds of events and of the device log into what was true at an instant. Holds no live object: everything shown of
//! an instant comes from records.

pub mod blocks;
pub mod disk;
pub mod journal;
pub mod layout;
pub mod metrics;
pub mod pages;
pub mod timeline;

use crate::base::Nanos;
use crate::trace::{Record, Tracer};

/// State folded from events up to an instant. Moving back starts over; moving on is incremental.
#[derive(Debug, Default)]
pub struct Fold {
    next: u64,
    at: Nanos,
    /// The journal.
    pub journal: journal::JournalFold,
    /// Folios of the page cache.
    pub pages: pages::PageFold,
    /// Blocks in memory: joined, committed, allocated, freed.
    pub blocks: blocks::BlockFold,
    /// The lazy inode-table thread.
    pub lazy: timeline::LazyFold,
}

impl Fold {
    /// Moves to the state after all events at or before `at`.
    pub fn seek(&mut self, tracer: &Tracer, at: Nanos) {
        if at < self.at {
            *self = Fold::default();
        }
        self.at = at;
        let mut next = self.next;
        tracer.scan(self.next, |index, record| {
            if record.at() > at {
                return false;
            }
            next = index + 1;
            self.apply(record);
            true
        });
        self.next = next;
    }

    fn apply(&mut self, record: &Record) {
        let Some(event) = record.event() else {
            return;
        };
        let now = record.at();
        self.journal.apply(now, &event);
        self.pages.apply(&event);
        self.blocks.apply(now, &event);
        self.lazy.apply(now, &event);
    }
}
