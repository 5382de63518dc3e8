//! The index of cached pages: a radix tree of 64-way nodes with tags, as the kernel's xarray.
//!
//! Leaves keep only the pages present, by rank, so that a file with one cached page in every 64 costs about 100
//! bytes per page and a dense one about 33. Knows nothing of files, devices or time.

use super::folio::Folio;

const FAN_BITS: u32 = 6;
const FAN: usize = 1 << FAN_BITS;
const MASK: u64 = (FAN - 1) as u64;

/// Marks that can be searched for (kernel `PAGECACHE_TAG_*`, and presence itself).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tag {
    /// A page is cached.
    Present = 0,
    /// The page is dirty.
    Dirty = 1,
    /// The page is under write I/O.
    Writeback = 2,
    /// The page was dirty when an integrity sync began.
    ToWrite = 3,
}

const TAGS: usize = 4;
const ALL_TAGS: [Tag; TAGS] = [Tag::Present, Tag::Dirty, Tag::Writeback, Tag::ToWrite];

#[derive(Debug, Default)]
struct Leaf {
    marks: [u64; TAGS],
    folios: Vec<Folio>,
}

impl Leaf {
    fn rank(&self, slot: u32) -> usize {
        (self.marks[0] & ((1u64 << slot) - 1)).count_ones() as usize
    }

    fn has(&self, slot: u32) -> bool {
        self.marks[0] & (1 << slot) != 0
    }
}

#[derive(Debug)]
struct Branch {
    marks: [u64; TAGS],
    child: [Slot; FAN],
}

#[derive(Debug, Default)]
enum Slot {
    #[default]
    Empty,
    Leaf(Box<Leaf>),
    Branch(Box<Branch>),
}

impl Slot {
    fn marks(&self) -> [u64; TAGS] {
        match self {
            Slot::Empty => [0; TAGS],
            Slot::Leaf(l) => l.marks,
            Slot::Branch(b) => b.marks,
        }
    }
}

fn new_branch() -> Box<Branch> {
    Box::new(Branch {
        marks: [0; TAGS],
        child: [const { Slot::Empty }; FAN],
    })
}

/// Pages by index, with tags.
#[derive(Debug, Default)]
pub struct PageTree {
    root: Slot,
    /// Levels of branches above the leaves; the tree covers indexes below `64^(height + 1)`.
    height: u32,
    count: u64,
}

impl PageTree {
    /// Number of cached pages.
    pub fn len(&self) -> u64 {
        self.count
    }

    /// True if no page is cached.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn covers(&self, index: u64) -> bool {
        let bits = FAN_BITS * (self.height + 1);
        bits >= 64 || index >> bits == 0
    }

    fn leaf(&self, index: u64) -> Option<&Leaf> {
        if !self.covers(index) {
            return None;
        }
        let mut slot = &self.root;
        let mut level = self.height;
        loop {
            match slot {
                Slot::Empty => return None,
                Slot::Leaf(l) => return Some(l),
                Slot::Branch(b) => {
                    slot = &b.child[((index >> (FAN_BITS * level)) & MASK) as usize];
                    level -= 1;
                }
            }
        }
    }

    fn leaf_mut(&mut self, index: u64) -> Option<&mut Leaf> {
        if !self.covers(index) {
            return None;
        }
        let mut slot = &mut self.root;
        let mut level = self.height;
        loop {
            match slot {
                Slot::Empty => return None,
                Slot::Leaf(l) => return Some(l),
                Slot::Branch(b) => {
                    slot = &mut b.child[((index >> (FAN_BITS * level)) & MASK) as usize];
                    level -= 1;
                }
            }
        }
    }

    /// The page at `index`.
    pub fn get(&self, index: u64) -> Option<&Folio> {
        let leaf = self.leaf(index)?;
        let slot = (index & MASK) as u32;
        leaf.has(slot).then(|| &leaf.folios[leaf.rank(slot)])
    }

    /// The page at `index`, to change.
    pub fn get_mut(&mut self, index: u64) -> Option<&mut Folio> {
        let leaf = self.leaf_mut(index)?;
        let slot = (index & MASK) as u32;
        if !leaf.has(slot) {
            return None;
        }
        let at = leaf.rank(slot);
        leaf.folios.get_mut(at)
    }

    /// True if the page is cached and carries `tag`.
    pub fn is_tagged(&self, index: u64, tag: Tag) -> bool {
        self.leaf(index)
            .is_some_and(|l| l.marks[tag as usize] & (1 << (index & MASK)) != 0)
    }

    /// True if any page carries `tag`.
    pub fn any(&self, tag: Tag) -> bool {
        self.root.marks()[tag as usize] != 0
    }

    /// The page at `index`, made if absent; the flag says if it was made.
    pub fn get_or_insert(&mut self, index: u64) -> (&mut Folio, bool) {
        while !self.covers(index) {
            self.grow();
        }
        let mut slot = &mut self.root;
        let mut level = self.height;
        while level > 0 {
            if matches!(slot, Slot::Empty) {
                *slot = Slot::Branch(new_branch());
            }
            let at = ((index >> (FAN_BITS * level)) & MASK) as usize;
            let Slot::Branch(b) = slot else {
                unreachable!("levels above 0 are branches")
            };
            b.marks[0] |= 1 << at;
            slot = &mut b.child[at];
            level -= 1;
        }
        if matches!(slot, Slot::Empty) {
            *slot = Slot::Leaf(Box::default());
        }
        let Slot::Leaf(leaf) = slot else {
            unreachable!("level 0 is a leaf")
        };
        let at = (index & MASK) as u32;
        let rank = leaf.rank(at);
        let made = !leaf.has(at);
        if made {
            leaf.marks[0] |= 1 << at;
            if leaf.folios.is_empty() {
                leaf.folios.reserve_exact(1);
            }
            leaf.folios.insert(rank, Folio::new());
            self.count += 1;
        }
        (&mut leaf.folios[rank], made)
    }

    fn grow(&mut self) {
        let old = std::mem::take(&mut self.root);
        if !matches!(old, Slot::Empty) {
            let mut b = new_branch();
            for (m, o) in b.marks.iter_mut().zip(old.marks()) {
                *m = u64::from(o != 0);
            }
            b.child[0] = old;
            self.root = Slot::Branch(b);
        }
        self.height += 1;
    }

    /// Takes the page at `index` out.
    pub fn remove(&mut self, index: u64) -> Option<Folio> {
        let slot = (index & MASK) as u32;
        let leaf = self.leaf_mut(index)?;
        if !leaf.has(slot) {
            return None;
        }
        let rank = leaf.rank(slot);
        let folio = leaf.folios.remove(rank);
        if leaf.folios.capacity() > 8 && leaf.folios.len() * 4 < leaf.folios.capacity() {
            leaf.folios.shrink_to(leaf.folios.len() * 2);
        }
        for m in &mut leaf.marks {
            *m &= !(1 << slot);
        }
        self.count -= 1;
        let height = self.height;
        prune(&mut self.root, index, height);
        if self.count == 0 {
            self.height = 0;
        }
        Some(folio)
    }

    /// Marks a cached page; true if the mark is new. Absent pages are left alone.
    pub fn set_tag(&mut self, index: u64, tag: Tag) -> bool {
        let bit = 1u64 << (index & MASK);
        let Some(leaf) = self.leaf_mut(index) else {
            return false;
        };
        let had = leaf.marks[tag as usize];
        if leaf.marks[0] & bit == 0 || had & bit != 0 {
            return false;
        }
        leaf.marks[tag as usize] |= bit;
        if had == 0 {
            let (mut slot, mut level) = (&mut self.root, self.height);
            while let Slot::Branch(b) = slot {
                let at = ((index >> (FAN_BITS * level)) & MASK) as usize;
                b.marks[tag as usize] |= 1 << at;
                slot = &mut b.child[at];
                level -= 1;
            }
        }
        true
    }

    /// Removes a mark; true if it was there.
    pub fn clear_tag(&mut self, index: u64, tag: Tag) -> bool {
        let bit = 1u64 << (index & MASK);
        let Some(leaf) = self.leaf_mut(index) else {
            return false;
        };
        let m = &mut leaf.marks[tag as usize];
        if *m & bit == 0 {
            return false;
        }
        *m &= !bit;
        if *m == 0 {
            let height = self.height;
            refresh(&mut self.root, index, height, tag);
        }
        true
    }

    /// First page at or after `from` that carries `tag`.
    pub fn next(&self, from: u64, tag: Tag) -> Option<u64> {
        if !self.covers(from) {
            return None;
        }
        search(&self.root, from, self.height, tag)
    }

    /// Copies the dirty mark to the to-write mark for pages `from..=to` (`tag_pages_for_writeback`).
    pub fn tag_for_writeback(&mut self, from: u64, to: u64) {
        let height = self.height;
        copy_tag(&mut self.root, 0, from, to, height);
    }
}

/// Drops empty nodes on the way to `index` and refreshes all marks of the branches there.
fn prune(slot: &mut Slot, index: u64, level: u32) {
    if let Slot::Branch(b) = slot {
        let at = ((index >> (FAN_BITS * level)) & MASK) as usize;
        prune(&mut b.child[at], index, level - 1);
        let below = b.child[at].marks();
        for (m, c) in b.marks.iter_mut().zip(below) {
            if c == 0 {
                *m &= !(1 << at);
            }
        }
    }
    if slot.marks()[0] == 0 {
        *slot = Slot::Empty;
    }
}

fn refresh(slot: &mut Slot, index: u64, level: u32, tag: Tag) {
    if let Slot::Branch(b) = slot {
        let at = ((index >> (FAN_BITS * level)) & MASK) as usize;
        refresh(&mut b.child[at], index, level - 1, tag);
        if b.child[at].marks()[tag as usize] == 0 {
            b.marks[tag as usize] &= !(1 << at);
        }
    }
}

fn search(slot: &Slot, from: u64, level: u32, tag: Tag) -> Option<u64> {
    let shift = FAN_BITS * level;
    let first = ((from >> shift) & MASK) as u32;
    let base = (from >> shift) & !MASK;
    match slot {
        Slot::Empty => None,
        Slot::Leaf(l) => {
            let m = l.marks[tag as usize] & (!0u64 << first);
            (m != 0).then(|| base | u64::from(m.trailing_zeros()))
        }
        Slot::Branch(b) => {
            let mut m = b.marks[tag as usize] & (!0u64 << first);
            while m != 0 {
                let at = m.trailing_zeros();
                let low = if at == first {
                    from
                } else {
                    (base | u64::from(at)) << shift
                };
                if let Some(i) = search(&b.child[at as usize], low, level - 1, tag) {
                    return Some(i);
                }
                m &= m - 1;
            }
            None
        }
    }
}

fn copy_tag(slot: &mut Slot, base: u64, from: u64, to: u64, level: u32) {
    let width = 1u64 << (FAN_BITS * level);
    match slot {
        Slot::Empty => {}
        Slot::Leaf(l) => {
            let mut m = l.marks[Tag::Dirty as usize];
            if from > base {
                m &= (!0u64).checked_shl((from - base) as u32).unwrap_or(0);
            }
            if to < base + MASK {
                m &= (1u64 << (to - base + 1)) - 1;
            }
            l.marks[Tag::ToWrite as usize] |= m;
        }
        Slot::Branch(b) => {
            let mut m = b.marks[Tag::Dirty as usize];
            while m != 0 {
                let at = u64::from(m.trailing_zeros());
                m &= m - 1;
                let low = base + at * width;
                if low > to || low + width <= from {
                    continue;
                }
                let child = &mut b.child[at as usize];
                copy_tag(child, low, from, to, level - 1);
                if child.marks()[Tag::ToWrite as usize] != 0 {
                    b.marks[Tag::ToWrite as usize] |= 1 << at;
                }
            }
        }
    }
}

/// All tags, for consistency checks.
pub const TAG_LIST: [Tag; TAGS] = ALL_TAGS;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::SplitMix64;
    use std::collections::{BTreeMap, BTreeSet};

    #[test]
    fn agrees_with_maps() {
        for seed in 0..6u64 {
            check(seed);
        }
    }

    fn check(seed: u64) {
        let mut rng = SplitMix64::new(seed);
        let span = [100u64, 5_000, 300_000, 1 << 26, 1 << 32, 70][seed as usize];
        let mut tree = PageTree::default();
        let mut pages: BTreeMap<u64, u32> = BTreeMap::new();
        let mut tags: [BTreeSet<u64>; 4] = Default::default();
        for step in 0..8_000u32 {
            let i = if rng.below(2) == 0 {
                rng.below(span)
            } else {
                pages
                    .keys()
                    .nth(rng.below(pages.len() as u64 + 1) as usize)
                    .copied()
                    .unwrap_or(0)
            };
            match rng.below(12) {
                0..4 => {
                    let (f, made) = tree.get_or_insert(i);
                    f.payload = crate::base::Payload::Pattern {
                        seed: step,
                        page: 0,
                    };
                    assert_eq!(made, pages.insert(i, step).is_none());
                }
                4..6 => {
                    assert_eq!(tree.remove(i).is_some(), pages.remove(&i).is_some());
                    for t in &mut tags {
                        t.remove(&i);
                    }
                }
                6..8 => {
                    let t = TAG_LIST[1 + rng.below(3) as usize];
                    let new = pages.contains_key(&i) && tags[t as usize].insert(i);
                    assert_eq!(tree.set_tag(i, t), new);
                }
                8..10 => {
                    let t = TAG_LIST[1 + rng.below(3) as usize];
                    assert_eq!(tree.clear_tag(i, t), tags[t as usize].remove(&i));
                }
                10 => {
                    let j = i + rng.below(span);
                    tree.tag_for_writeback(i, j);
                    let add: Vec<u64> = tags[1].range(i..=j).copied().collect();
                    tags[3].extend(add);
                }
                _ => {
                    let t = TAG_LIST[1 + rng.below(3) as usize];
                    let expect = tags[t as usize].range(i..).next().copied();
                    assert_eq!(tree.next(i, t), expect);
                    let expect = pages.range(i..).next().map(|p| *p.0);
                    assert_eq!(tree.next(i, Tag::Present), expect);
                }
            }
            assert_eq!(tree.len(), pages.len() as u64);
            for t in [Tag::Dirty, Tag::Writeback, Tag::ToWrite] {
                assert_eq!(tree.any(t), !tags[t as usize].is_empty());
            }
            let same = matches!(
                (tree.get(i).map(|f| f.payload.clone()), pages.get(&i)),
                (None, None)
            ) || matches!((tree.get(i).map(|f| f.payload.clone()), pages.get(&i)),
                (Some(crate::base::Payload::Pattern { seed, .. }), Some(s)) if seed == *s);
            assert!(same);
        }
    }
}
