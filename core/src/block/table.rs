//! Page contents as handles of 8 bytes, and the table from page to handle.
//!
//! Rules (zero, pattern, garbage) are in the handle itself; bytes are in an arena with reference counts that the device,
//! its log and all cursors share. The table is open addressing with neighbours kept together: one cache miss per
//! random page, and one per 16 pages in a row.

use crate::base::{FastMap, Payload};

/// Contents of one page; zero is "no entry".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Handle(u64);

const TAG_ZERO: u64 = 1;
const TAG_PATTERN: u64 = 2;
const TAG_GARBAGE: u64 = 3;
const TAG_SLOT: u64 = 4;
const TAG_BITS: u32 = 3;
/// Most seeds that fit in a handle; rules with others take an arena slot.
const SEEDS_MAX: usize = 1 << 16;

impl Handle {
    /// No entry: the page reads as its fill.
    pub(super) const NONE: Handle = Handle(0);
    /// Zeroes.
    pub(super) const ZERO: Handle = Handle(TAG_ZERO);

    pub(super) fn is_none(self) -> bool {
        self.0 == 0
    }

    fn rule(tag: u64, seed: u16, page: u32) -> Handle {
        Handle(tag | u64::from(seed) << TAG_BITS | u64::from(page) << 32)
    }

    fn slot(self) -> Option<usize> {
        (self.0 & 7 == TAG_SLOT).then_some((self.0 >> TAG_BITS) as usize)
    }
}

/// Contents that do not fit in a handle, with reference counts.
#[derive(Debug, Default)]
pub(super) struct Arena {
    slots: Vec<(Payload, u32)>,
    free: Vec<u32>,
    seeds: Vec<u32>,
    seed_index: FastMap<u32, u16>,
    last_seed: Option<(u32, u16)>,
}

impl Arena {
    /// A handle with one reference.
    pub(super) fn intern(&mut self, payload: &Payload) -> Handle {
        match payload {
            Payload::Zero => Handle::ZERO,
            Payload::Pattern { seed, page } => self.rule(TAG_PATTERN, *seed, *page, payload),
            Payload::Garbage { seed, page } => self.rule(TAG_GARBAGE, *seed, *page, payload),
            Payload::Bytes(_) => self.add(payload),
        }
    }

    fn rule(&mut self, tag: u64, seed: u32, page: u32, payload: &Payload) -> Handle {
        if let Some((s, i)) = self.last_seed {
            if s == seed {
                return Handle::rule(tag, i, page);
            }
        }
        let index = match self.seed_index.get(&seed) {
            Some(i) => *i,
            None if self.seeds.len() < SEEDS_MAX => {
                let i = self.seeds.len() as u16;
                self.seeds.push(seed);
                self.seed_index.insert(seed, i);
                i
            }
            None => return self.add(payload),
        };
        self.last_seed = Some((seed, index));
        Handle::rule(tag, index, page)
    }

    fn add(&mut self, payload: &Payload) -> Handle {
        let slot = if let Some(i) = self.free.pop() {
            self.slots[i as usize] = (payload.clone(), 1);
            u64::from(i)
        } else {
            self.slots.push((payload.clone(), 1));
            self.slots.len() as u64 - 1
        };
        Handle(TAG_SLOT | slot << TAG_BITS)
    }

    /// The contents of a handle; zero for [`Handle::NONE`].
    pub(super) fn payload(&self, h: Handle) -> Payload {
        let seed = |h: Handle| self.seeds[(h.0 >> TAG_BITS) as usize & (SEEDS_MAX - 1)];
        let page = (h.0 >> 32) as u32;
        match h.0 & 7 {
            TAG_PATTERN => Payload::Pattern {
                seed: seed(h),
                page,
            },
            TAG_GARBAGE => Payload::Garbage {
                seed: seed(h),
                page,
            },
            TAG_SLOT => self.slots[(h.0 >> TAG_BITS) as usize].0.clone(),
            _ => Payload::Zero,
        }
    }

    /// One more reference.
    pub(super) fn retain(&mut self, h: Handle) -> Handle {
        if let Some(i) = h.slot() {
            self.slots[i].1 += 1;
        }
        h
    }

    /// One reference less.
    pub(super) fn release(&mut self, h: Handle) {
        if let Some(i) = h.slot() {
            let slot = &mut self.slots[i];
            slot.1 -= 1;
            if slot.1 == 0 {
                slot.0 = Payload::Zero;
                self.free.push(i as u32);
            }
        }
    }

    /// Arena slots in use.
    #[cfg(test)]
    pub(super) fn in_use(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Bytes of memory of the tables, without contents.
    pub(super) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<(Payload, u32)>()
            + self.free.capacity() * 4
            + self.seeds.len() * 12
    }
}

/// Pages in a row that are kept together.
const GROUP_BITS: u32 = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    page: u32,
    /// The handle in two halves, so that a slot has 12 bytes.
    lo: u32,
    hi: u32,
}

impl Slot {
    fn new(page: u32, h: Handle) -> Slot {
        Slot {
            page,
            lo: h.0 as u32,
            hi: (h.0 >> 32) as u32,
        }
    }

    fn handle(self) -> Handle {
        Handle(u64::from(self.lo) | u64::from(self.hi) << 32)
    }

    fn is_empty(self) -> bool {
        self.lo == 0
    }
}

/// Page number to handle.
#[derive(Clone, Debug)]
pub(super) struct PageTable {
    slots: Vec<Slot>,
    len: usize,
}

impl PageTable {
    pub(super) fn new() -> PageTable {
        PageTable {
            slots: vec![Slot::default(); 64],
            len: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
    }

    fn home(&self, page: u32) -> usize {
        let group = u64::from(page >> GROUP_BITS).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
        let within = page as usize & ((1 << GROUP_BITS) - 1);
        ((group as usize) << GROUP_BITS | within) & (self.slots.len() - 1)
    }

    fn find(&self, page: u32) -> (usize, bool) {
        let mask = self.slots.len() - 1;
        let mut i = self.home(page);
        loop {
            let s = self.slots[i];
            if s.is_empty() {
                return (i, false);
            }
            if s.page == page {
                return (i, true);
            }
            i = (i + 1) & mask;
        }
    }

    pub(super) fn get(&self, page: u32) -> Handle {
        let (i, found) = self.find(page);
        if found {
            self.slots[i].handle()
        } else {
            Handle::NONE
        }
    }

    /// Sets a page's handle (or removes its entry); gives back the old one. References move along.
    pub(super) fn swap(&mut self, page: u32, new: Handle) -> Handle {
        let (i, found) = self.find(page);
        let old = if found {
            self.slots[i].handle()
        } else {
            Handle::NONE
        };
        if new.is_none() {
            if found {
                self.remove(i);
            }
        } else {
            self.slots[i] = Slot::new(page, new);
            if !found {
                self.len += 1;
                if self.len * 8 > self.slots.len() * 5 {
                    self.grow();
                }
            }
        }
        old
    }

    fn remove(&mut self, at: usize) {
        let mask = self.slots.len() - 1;
        let mut hole = at;
        let mut i = at;
        loop {
            i = (i + 1) & mask;
            if self.slots[i].is_empty() {
                break;
            }
            // An entry may fill the hole if its home is not between the hole and itself.
            let home = self.home(self.slots[i].page);
            if (i.wrapping_sub(home) & mask) >= (i.wrapping_sub(hole) & mask) {
                self.slots[hole] = self.slots[i];
                hole = i;
            }
        }
        self.slots[hole] = Slot::default();
        self.len -= 1;
    }

    fn grow(&mut self) {
        let size = self.slots.len() * 2;
        let old = std::mem::replace(&mut self.slots, vec![Slot::default(); size]);
        for s in old {
            if !s.is_empty() {
                let (i, _) = self.find(s.page);
                self.slots[i] = s;
            }
        }
    }

    /// All entries, in no useful order.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u32, Handle)> + '_ {
        let full = self.slots.iter().filter(|s| !s.is_empty());
        full.map(|s| (s.page, s.handle()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::SplitMix64;
    use std::collections::BTreeMap;

    #[test]
    fn table_agrees_with_a_map() {
        let mut rng = SplitMix64::new(1);
        for span in [40, 5_000, 1 << 32] {
            let mut table = PageTable::new();
            let mut map = BTreeMap::new();
            for i in 0..20_000u32 {
                let page = rng.below(span) as u32;
                let old = map.get(&page).copied().unwrap_or(Handle::NONE);
                let new = if rng.below(3) == 0 {
                    map.remove(&page);
                    Handle::NONE
                } else {
                    let h = Handle::rule(TAG_PATTERN, 7, i);
                    map.insert(page, h);
                    h
                };
                assert_eq!(table.swap(page, new), old);
                assert_eq!(table.len(), map.len());
            }
            let mut all: Vec<_> = table.entries().collect();
            all.sort_by_key(|e| e.0);
            assert!(all.into_iter().eq(map.iter().map(|(p, h)| (*p, *h))));
            assert!(map.iter().all(|(p, h)| table.get(*p) == *h));
        }
    }

    #[test]
    fn handles_give_back_what_went_in() {
        let mut arena = Arena::default();
        let mut all = vec![Payload::Zero, Payload::Bytes(vec![1, 2].into())];
        for seed in 0..70_000 {
            all.push(Payload::Pattern { seed, page: !seed });
            all.push(Payload::Garbage {
                seed: 3,
                page: seed,
            });
        }
        let handles: Vec<Handle> = all.iter().map(|p| arena.intern(p)).collect();
        assert!(all
            .iter()
            .zip(&handles)
            .all(|(p, h)| !h.is_none() && arena.payload(*h).same(p)));
        arena.retain(handles[1]);
        for h in &handles {
            arena.release(*h);
        }
        assert_eq!(arena.in_use(), 1);
        arena.release(handles[1]);
        assert_eq!(arena.in_use(), 0);
    }
}
