//! Folios of the page cache as events tell it.

use crate::base::{FastMap, Ino};
use crate::trace::Event;
use std::collections::BTreeMap;

/// State of one page that is not clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "plain states")]
pub enum PageState {
    Dirty,
    Writeback,
}

/// Pages of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCounts {
    /// Dirty pages.
    pub dirty: u32,
    /// Pages under writeback.
    pub writeback: u32,
}

/// The page cache.
#[derive(Clone, Debug, Default)]
pub struct PageFold {
    pages: FastMap<u64, PageState>,
    /// Counts by inode; clean files are left out.
    pub files: BTreeMap<u32, PageCounts>,
    /// Dirty pages of all files.
    pub dirty: u64,
}

fn key(ino: Ino, index: u32) -> u64 {
    u64::from(ino.0) << 32 | u64::from(index)
}

impl PageFold {
    /// Applies one event.
    pub fn apply(&mut self, event: &Event) {
        let (ino, index, pages, new) = match *event {
            Event::FolioDirtied { ino, index, pages } => {
                (ino, index, pages, Some(PageState::Dirty))
            }
            Event::WritebackBegin { ino, index, pages } => {
                (ino, index, pages, Some(PageState::Writeback))
            }
            Event::WritebackEnd {
                ino, index, pages, ..
            } => {
                return self.end_writeback(ino, index, pages);
            }
            Event::FolioDropped { ino, index, pages } => (ino, index, pages, None),
            _ => return,
        };
        for i in 0..pages {
            self.set(ino, index.wrapping_add(i), new);
        }
    }

    /// A page that was dirtied again while under writeback stays dirty.
    fn end_writeback(&mut self, ino: Ino, index: u32, pages: u32) {
        for i in 0..pages {
            let index = index.wrapping_add(i);
            if self.state(ino, index) == Some(PageState::Writeback) {
                self.set(ino, index, None);
            }
        }
    }

    fn set(&mut self, ino: Ino, index: u32, new: Option<PageState>) {
        let old = match new {
            Some(s) => self.pages.insert(key(ino, index), s),
            None => self.pages.remove(&key(ino, index)),
        };
        if old == new {
            return;
        }
        let counts = self.files.entry(ino.0).or_default();
        match old {
            Some(PageState::Dirty) => {
                counts.dirty -= 1;
                self.dirty -= 1;
            }
            Some(PageState::Writeback) => counts.writeback -= 1,
            None => {}
        }
        match new {
            Some(PageState::Dirty) => {
                counts.dirty += 1;
                self.dirty += 1;
            }
            Some(PageState::Writeback) => counts.writeback += 1,
            None => {}
        }
        if *counts == PageCounts::default() {
            self.files.remove(&ino.0);
        }
    }

    /// State of one page; `None` is clean or not cached.
    pub fn state(&self, ino: Ino, index: u32) -> Option<PageState> {
        self.pages.get(&key(ino, index)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_follow_the_pages() {
        let mut p = PageFold::default();
        let ino = Ino(12);
        p.apply(&Event::FolioDirtied {
            ino,
            index: 0,
            pages: 4,
        });
        p.apply(&Event::WritebackBegin {
            ino,
            index: 0,
            pages: 2,
        });
        p.apply(&Event::FolioDirtied {
            ino,
            index: 1,
            pages: 1,
        });
        assert_eq!(
            p.files[&12],
            PageCounts {
                dirty: 3,
                writeback: 1
            }
        );
        p.apply(&Event::WritebackEnd {
            ino,
            index: 0,
            pages: 2,
            errno: 0,
        });
        assert_eq!(
            p.files[&12],
            PageCounts {
                dirty: 3,
                writeback: 0
            }
        );
        p.apply(&Event::FolioDropped {
            ino,
            index: 0,
            pages: 4,
        });
        assert!(p.files.is_empty());
        assert_eq!(p.dirty, 0);
    }
}
