//! Contents of the device: a sparse table of 4 KiB pages.
//!
//! Memory only for what differs from the fill: a page that was never written has no entry, and large zeroed or
//! discarded ranges are one entry of a range map.

use super::bio::SECTOR_SIZE;
use super::table::{Arena, Handle, PageTable};
use crate::base::payload::PAGE_SIZE;
use crate::base::{Lba, Payload};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Sectors per page.
pub(super) const PAGE_SECTORS: u64 = PAGE_SIZE as u64 / SECTOR_SIZE;

/// Contents of pages without an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Zeroes.
    Zero,
    /// Seeded garbage, the same at every read.
    Garbage {
        /// Seed.
        seed: u32,
    },
}

impl Fill {
    fn page(self, page: u32) -> Payload {
        match self {
            Fill::Zero => Payload::Zero,
            Fill::Garbage { seed } => Payload::Garbage { seed, page },
        }
    }
}

/// How one page looked before and after a write. Holds a reference to both.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change {
    pub(super) old: Handle,
    pub(super) new: Handle,
}

/// What a zeroing or discarding request did, so that it can be undone and redone.
#[derive(Clone, Debug)]
pub(super) struct RangeChange {
    start: u64,
    end: u64,
    fill: Fill,
    fills_before: Vec<(u64, u64, Fill)>,
    pages_before: Vec<(u32, Handle)>,
}

impl RangeChange {
    /// Bytes of memory it takes.
    pub(super) fn memory(&self) -> usize {
        size_of::<RangeChange>() + self.fills_before.len() * 24 + self.pages_before.len() * 16
    }

    /// Gives back its references.
    pub(super) fn forget(&self, arena: &mut Arena) {
        for (_, h) in &self.pages_before {
            arena.release(*h);
        }
    }
}

/// A disk's contents.
#[derive(Debug)]
pub struct Store {
    sectors: u64,
    fill: Fill,
    table: PageTable,
    arena: Rc<RefCell<Arena>>,
    /// Overrides of the fill: start page to (end page, fill); never overlapping.
    ranges: BTreeMap<u64, (u64, Fill)>,
}

impl Store {
    /// A device of `sectors` sectors (at most 16 TiB) without contents.
    pub fn new(sectors: u64, fill: Fill) -> Store {
        Store {
            sectors: sectors.min(1 << 35),
            fill,
            table: PageTable::new(),
            arena: Rc::default(),
            ranges: BTreeMap::new(),
        }
    }

    /// Size in sectors.
    pub fn sectors(&self) -> u64 {
        self.sectors
    }

    /// Size in pages; the last one may be partly outside.
    pub fn pages(&self) -> u64 {
        self.sectors.div_ceil(PAGE_SECTORS)
    }

    /// The rule for pages that were never written.
    pub fn fill(&self) -> Fill {
        self.fill
    }

    /// Number of pages with an entry.
    pub fn entries(&self) -> usize {
        self.table.len()
    }

    /// Bytes of memory of the tables, without shared page contents.
    pub fn memory(&self) -> usize {
        self.table.memory() + self.arena.borrow().memory() + self.ranges.len() * 48
    }

    fn fill_at(&self, page: u32) -> Fill {
        if self.ranges.is_empty() {
            return self.fill;
        }
        match self.ranges.range(..=u64::from(page)).next_back() {
            Some((_, (end, fill))) if u64::from(page) < *end => *fill,
            _ => self.fill,
        }
    }

    pub(super) fn arena(&self) -> Rc<RefCell<Arena>> {
        Rc::clone(&self.arena)
    }

    /// Contents of a page.
    pub fn get(&self, page: u32) -> Payload {
        let h = self.table.get(page);
        if h.is_none() {
            self.fill_at(page).page(page)
        } else {
            self.arena.borrow().payload(h)
        }
    }

    /// True if the page was written (and not discarded since).
    pub fn is_written(&self, page: u32) -> bool {
        !self.table.get(page).is_none()
    }

    /// Sets a page to a handle of the same arena, as undoing and redoing do.
    pub(super) fn restore(&mut self, page: u32, h: Handle) {
        let mut arena = self.arena.borrow_mut();
        let h = arena.retain(h);
        arena.release(self.table.swap(page, h));
    }

    /// Writes whole pages from `page` on and tells `note` each page's change in ascending order.
    pub(super) fn write_pages(
        &mut self,
        page: u32,
        pages: &[Payload],
        mut note: impl FnMut(Change, &Payload),
    ) {
        for (page, payload) in (page..).zip(pages) {
            note(self.write_page(page, payload), payload);
        }
    }

    /// Writes bytes that begin at `lba` and tells `note` each page's change in ascending order.
    pub(super) fn write_run(
        &mut self,
        lba: Lba,
        run: &[u8],
        mut note: impl FnMut(Change, &Payload),
    ) {
        let mut done = 0;
        while done < run.len() {
            let at = lba.0 * SECTOR_SIZE + done as u64;
            let page = (at / PAGE_SIZE as u64) as u32;
            let within = (at % PAGE_SIZE as u64) as usize;
            let n = (PAGE_SIZE - within).min(run.len() - done);
            let mut bytes = vec![0; PAGE_SIZE];
            if n < PAGE_SIZE {
                self.get(page).fill(&mut bytes);
            }
            bytes[within..within + n].copy_from_slice(&run[done..done + n]);
            let payload = compact(bytes);
            note(self.write_page(page, &payload), &payload);
            done += n;
        }
    }

    fn write_page(&mut self, page: u32, payload: &Payload) -> Change {
        let zero = matches!(payload, Payload::Zero);
        if zero && self.fill_at(page) == Fill::Zero {
            // Back to the fill: an entry would say the same.
            return Change {
                old: self.table.swap(page, Handle::NONE),
                new: Handle::NONE,
            };
        }
        let mut arena = self.arena.borrow_mut();
        let new = arena.intern(payload);
        let old = self.table.swap(page, new);
        let new = arena.retain(new);
        Change { old, new }
    }

    fn forget(&self, change: Change) {
        let mut arena = self.arena.borrow_mut();
        arena.release(change.old);
        arena.release(change.new);
    }

    /// Reads `count` units of `unit` bytes from `lba` on.
    pub fn read_units(&self, lba: Lba, unit: usize, count: usize) -> Vec<Payload> {
        (0..count as u64)
            .map(|i| self.read_unit(lba.0 * SECTOR_SIZE + i * unit as u64, unit))
            .collect()
    }

    /// Reads `unit` bytes at byte `at`.
    pub fn read_unit(&self, at: u64, unit: usize) -> Payload {
        let within = (at % PAGE_SIZE as u64) as usize;
        let page = self.get((at / PAGE_SIZE as u64) as u32);
        if within == 0 && unit == PAGE_SIZE
            || matches!(page, Payload::Zero) && within + unit <= PAGE_SIZE
        {
            return page;
        }
        let mut bytes = vec![0; unit];
        self.read_bytes(at, &mut bytes);
        compact(bytes)
    }

    /// Copies bytes out; past the end of the device they are zero.
    pub fn read_bytes(&self, offset: u64, out: &mut [u8]) {
        let mut done = 0;
        while done < out.len() {
            let at = offset + done as u64;
            let within = (at % PAGE_SIZE as u64) as usize;
            let n = (PAGE_SIZE - within).min(out.len() - done);
            let dst = &mut out[done..done + n];
            if at / PAGE_SIZE as u64 >= self.pages() {
                dst.fill(0);
            } else {
                copy_page(&self.get((at / PAGE_SIZE as u64) as u32), within, dst);
            }
            done += n;
        }
    }

    /// Copies bytes in, outside of any log; past the end of the device they are dropped.
    pub fn write_bytes(&mut self, offset: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let page = at / PAGE_SIZE as u64;
            if page >= self.pages() {
                return;
            }
            let within = (at % PAGE_SIZE as u64) as usize;
            let n = (PAGE_SIZE - within).min(bytes.len() - done);
            let src = &bytes[done..done + n];
            let mut buf = vec![0; PAGE_SIZE];
            if n < PAGE_SIZE {
                self.get(page as u32).fill(&mut buf);
            }
            buf[within..within + n].copy_from_slice(src);
            let change = self.write_page(page as u32, &compact(buf));
            self.forget(change);
            done += n;
        }
    }

    /// Sets one page outside of any log.
    pub fn set_page(&mut self, page: u32, payload: &Payload) {
        let change = self.write_page(page, payload);
        self.forget(change);
    }

    /// Makes the sectors read as `fill`. Whole pages become a range; parts of pages at the ends are written.
    pub(super) fn fill_range(
        &mut self,
        lba: Lba,
        sectors: u64,
        fill: Fill,
        note: impl FnMut(Change, &Payload),
    ) -> Option<RangeChange> {
        let end_lba = lba.0 + sectors;
        let start = lba.0.div_ceil(PAGE_SECTORS);
        let end = end_lba / PAGE_SECTORS;
        let mut note = note;
        if start > end {
            self.fill_part(lba.0, end_lba, fill, &mut note);
            return None;
        }
        self.fill_part(lba.0, start * PAGE_SECTORS, fill, &mut note);
        self.fill_part(end * PAGE_SECTORS, end_lba, fill, &mut note);
        (start < end).then(|| self.fill_pages(start, end, fill))
    }

    /// Makes the sectors read as `fill` outside of any log.
    pub(super) fn fill_unlogged(&mut self, lba: Lba, sectors: u64, fill: Fill) {
        let mut changes = Vec::new();
        let range = self.fill_range(lba, sectors, fill, |change, _| changes.push(change));
        for change in changes {
            self.forget(change);
        }
        if let Some(range) = range {
            range.forget(&mut self.arena.borrow_mut());
        }
    }

    fn fill_part(
        &mut self,
        from: u64,
        to: u64,
        fill: Fill,
        note: &mut impl FnMut(Change, &Payload),
    ) {
        if from >= to {
            return;
        }
        let page = (from / PAGE_SECTORS) as u32;
        let mut bytes = vec![0; PAGE_SIZE];
        self.get(page).fill(&mut bytes);
        let at = (from % PAGE_SECTORS * SECTOR_SIZE) as usize;
        let n = ((to - from) * SECTOR_SIZE) as usize;
        copy_page(&fill.page(page), at, &mut bytes[at..at + n]);
        let payload = compact(bytes);
        note(self.write_page(page, &payload), &payload);
    }

    fn fill_pages(&mut self, start: u64, end: u64, fill: Fill) -> RangeChange {
        let mut pages_before = Vec::new();
        let inside = |page: u32| (start..end).contains(&u64::from(page));
        let pages: Vec<u32> = if end - start <= self.table.len() as u64 {
            (start..end).map(|p| p as u32).collect()
        } else {
            let mut pages: Vec<u32> = self.table.entries().map(|(p, _)| p).collect();
            pages.retain(|p| inside(*p));
            pages.sort_unstable();
            pages
        };
        for page in pages {
            let old = self.table.swap(page, Handle::NONE);
            if !old.is_none() {
                pages_before.push((page, old));
            }
        }
        let fills_before = self.set_fill(start, end, fill);
        RangeChange {
            start,
            end,
            fill,
            fills_before,
            pages_before,
        }
    }

    /// Overrides the fill of pages `start..end`; gives back what was overridden there.
    fn set_fill(&mut self, start: u64, end: u64, fill: Fill) -> Vec<(u64, u64, Fill)> {
        let before = self.cut_fills(start, end);
        if fill != self.fill {
            let mut from = start;
            let mut to = end;
            if let Some((&s, &(e, f))) = self.ranges.range(..start).next_back() {
                if e == start && f == fill {
                    self.ranges.remove(&s);
                    from = s;
                }
            }
            if let Some(&(e, f)) = self.ranges.get(&end) {
                if f == fill {
                    self.ranges.remove(&end);
                    to = e;
                }
            }
            self.ranges.insert(from, (to, fill));
        }
        before
    }

    /// Removes the overrides within `start..end` and gives them back.
    fn cut_fills(&mut self, start: u64, end: u64) -> Vec<(u64, u64, Fill)> {
        let mut cut = Vec::new();
        let mut keys: Vec<u64> = self.ranges.range(start..end).map(|(s, _)| *s).collect();
        if let Some((&s, &(e, _))) = self.ranges.range(..start).next_back() {
            if e > start {
                keys.insert(0, s);
            }
        }
        for s in keys {
            let Some((e, f)) = self.ranges.remove(&s) else {
                continue;
            };
            if s < start {
                self.ranges.insert(s, (start, f));
            }
            if e > end {
                self.ranges.insert(end, (e, f));
            }
            cut.push((s.max(start), e.min(end), f));
        }
        cut
    }

    /// Takes a range change back.
    pub(super) fn undo_range(&mut self, change: &RangeChange) {
        self.cut_fills(change.start, change.end);
        for &(s, e, f) in &change.fills_before {
            self.set_fill(s, e, f);
        }
        for (page, payload) in &change.pages_before {
            self.restore(*page, *payload);
        }
    }

    /// Makes a range change again.
    pub(super) fn redo_range(&mut self, change: &RangeChange) {
        for (page, _) in &change.pages_before {
            self.restore(*page, Handle::NONE);
        }
        self.set_fill(change.start, change.end, change.fill);
    }

    /// Pages with an entry, ascending.
    pub fn written_pages(&self) -> Vec<u32> {
        let mut pages: Vec<u32> = self.table.entries().map(|(p, _)| p).collect();
        pages.sort_unstable();
        pages
    }
}

impl Clone for Store {
    fn clone(&self) -> Store {
        let mut arena = self.arena.borrow_mut();
        for (_, h) in self.table.entries() {
            arena.retain(h);
        }
        drop(arena);
        Store {
            sectors: self.sectors,
            fill: self.fill,
            table: self.table.clone(),
            arena: Rc::clone(&self.arena),
            ranges: self.ranges.clone(),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if Rc::strong_count(&self.arena) > 1 {
            let mut arena = self.arena.borrow_mut();
            for (_, h) in self.table.entries() {
                arena.release(h);
            }
        }
    }
}

/// Bytes `at..` of a page.
pub(super) fn copy_page(page: &Payload, at: usize, out: &mut [u8]) {
    match page {
        Payload::Zero => out.fill(0),
        Payload::Bytes(b) if at + out.len() <= b.len() => {
            out.copy_from_slice(&b[at..at + out.len()]);
        }
        _ => {
            let mut whole = [0; PAGE_SIZE];
            page.fill(&mut whole);
            out.copy_from_slice(&whole[at..at + out.len()]);
        }
    }
}

fn compact(bytes: Vec<u8>) -> Payload {
    if bytes.iter().all(|b| *b == 0) {
        Payload::Zero
    } else {
        Payload::Bytes(bytes.into())
    }
}
