//! Extent status tree of an inode (kernel `extents_status.c`): what is known of the mapping of a file without
//! reading its extent tree, and the only place that knows delayed blocks.
//!
//! Pure. Invariants:
//! 1. Entries do not overlap; neighbours that could be one entry are one entry.
//! 2. A block that is `Delayed` here is mapped nowhere on disk.
//!
//! SIMPLIFIED: entries are never reclaimed under memory pressure, so a cached mapping stays cached.

use std::collections::BTreeMap;

/// What a range of blocks is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EsStatus {
    /// Mapped and initialised.
    Written,
    /// Mapped, reads as zero.
    Unwritten,
    /// Written to memory only; space is reserved.
    Delayed,
    /// Not mapped.
    Hole,
}

/// One entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EsExtent {
    /// First logical block.
    pub lblk: u32,
    /// Blocks.
    pub len: u32,
    /// First physical block; 0 for delayed blocks and holes.
    pub pblk: u64,
    /// Kind.
    pub status: EsStatus,
}

impl EsExtent {
    /// Block after the last.
    pub fn end(&self) -> u32 {
        self.lblk.saturating_add(self.len)
    }

    fn has_pblk(&self) -> bool {
        matches!(self.status, EsStatus::Written | EsStatus::Unwritten)
    }

    /// The part within `from..to`, which overlaps the entry.
    fn clip(&self, from: u32, to: u32) -> EsExtent {
        let lblk = self.lblk.max(from);
        let end = self.end().min(to);
        EsExtent {
            lblk,
            len: end - lblk,
            pblk: if self.has_pblk() {
                self.pblk + u64::from(lblk - self.lblk)
            } else {
                0
            },
            status: self.status,
        }
    }

    /// True if `next` continues this entry.
    fn joins(&self, next: &EsExtent) -> bool {
        self.end() == next.lblk
            && self.status == next.status
            && u64::from(self.len) + u64::from(next.len) < u64::from(u32::MAX)
            && (!self.has_pblk() || self.pblk + u64::from(self.len) == next.pblk)
    }
}

/// The tree of one inode.
#[derive(Clone, Debug, Default)]
pub struct ExtentStatus {
    map: BTreeMap<u32, EsExtent>,
    delayed: u64,
}

impl ExtentStatus {
    /// An empty tree.
    pub fn new() -> ExtentStatus {
        ExtentStatus::default()
    }

    /// Blocks that are delayed.
    pub fn delayed_blocks(&self) -> u64 {
        self.delayed
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// True if nothing is known.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// The entry that covers `lblk`, whole.
    pub fn lookup(&self, lblk: u32) -> Option<EsExtent> {
        let (_, e) = self.map.range(..=lblk).next_back()?;
        (lblk < e.end()).then_some(*e)
    }

    /// The first entry that ends after `lblk`.
    pub fn next_from(&self, lblk: u32) -> Option<EsExtent> {
        self.lookup(lblk)
            .or_else(|| self.map.range(lblk..).next().map(|(_, e)| *e))
    }

    /// The first delayed entry that ends after `lblk` and starts before `end`, clipped to that range.
    pub fn next_delayed(&self, lblk: u32, end: u32) -> Option<EsExtent> {
        let mut at = lblk;
        loop {
            let e = self.next_from(at)?;
            if e.lblk >= end {
                return None;
            }
            if e.status == EsStatus::Delayed {
                return Some(e.clip(lblk, end));
            }
            at = e.end();
            if at == u32::MAX {
                return None;
            }
        }
    }

    /// True if any block of the range is delayed.
    pub fn any_delayed(&self, lblk: u32, len: u32) -> bool {
        self.next_delayed(lblk, lblk.saturating_add(len)).is_some()
    }

    /// Forgets a range; returns how many of its blocks were delayed (their reservation is the caller's to
    /// release, kernel `ext4_es_remove_extent`).
    pub fn remove(&mut self, lblk: u32, len: u32) -> u32 {
        let end = lblk.saturating_add(len);
        if len == 0 {
            return 0;
        }
        let mut delayed = 0;
        let first = self.lookup(lblk).map_or(lblk, |e| e.lblk);
        let keys: Vec<u32> = self.map.range(first..end).map(|(k, _)| *k).collect();
        for k in keys {
            let Some(e) = self.map.remove(&k) else {
                continue;
            };
            let cut = e.clip(lblk, end);
            if e.status == EsStatus::Delayed {
                delayed += cut.len;
            }
            if e.lblk < lblk {
                self.map.insert(e.lblk, e.clip(e.lblk, lblk));
            }
            if e.end() > end {
                self.map.insert(end, e.clip(end, e.end()));
            }
        }
        self.delayed -= u64::from(delayed);
        delayed
    }

    /// Records a range, replacing what was known; returns how many delayed blocks it replaced.
    pub fn insert(&mut self, lblk: u32, len: u32, pblk: u64, status: EsStatus) -> u32 {
        if len == 0 {
            return 0;
        }
        let replaced = self.remove(lblk, len);
        let mut e = EsExtent {
            lblk,
            len,
            pblk: if matches!(status, EsStatus::Written | EsStatus::Unwritten) {
                pblk
            } else {
                0
            },
            status,
        };
        if status == EsStatus::Delayed {
            self.delayed += u64::from(len);
        }
        if let Some((&k, prev)) = self.map.range(..lblk).next_back() {
            if prev.joins(&e) {
                e = EsExtent {
                    len: prev.len + e.len,
                    ..*prev
                };
                self.map.remove(&k);
            }
        }
        if let Some(next) = self.map.get(&e.end()).copied() {
            if e.joins(&next) {
                self.map.remove(&next.lblk);
                e.len += next.len;
            }
        }
        self.map.insert(e.lblk, e);
        replaced
    }

    /// Caches what the tree on disk says where nothing is known yet (kernel `ext4_es_cache_extent`).
    pub fn cache(&mut self, lblk: u32, len: u32, pblk: u64, status: EsStatus) {
        let known = self
            .next_from(lblk)
            .is_some_and(|e| e.lblk < lblk.saturating_add(len));
        if !known {
            self.insert(lblk, len, pblk, status);
        }
    }

    /// All entries in order.
    pub fn iter(&self) -> impl Iterator<Item = &EsExtent> {
        self.map.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::SplitMix64;

    #[test]
    fn agrees_with_an_array() {
        const N: u32 = 300;
        let mut rng = SplitMix64::new(5);
        let mut es = ExtentStatus::new();
        let mut model: Vec<Option<(EsStatus, u64)>> = vec![None; N as usize];
        for _ in 0..3000 {
            let a = rng.below(u64::from(N)) as u32;
            let len = (1 + rng.below(20) as u32).min(N - a);
            let range = a as usize..(a + len) as usize;
            let was = model[range.clone()]
                .iter()
                .filter(|m| matches!(m, Some((EsStatus::Delayed, _))))
                .count() as u32;
            let status = match rng.below(5) {
                0 => EsStatus::Written,
                1 => EsStatus::Unwritten,
                2 => EsStatus::Delayed,
                3 => EsStatus::Hole,
                _ => {
                    assert_eq!(es.remove(a, len), was);
                    model[range].fill(None);
                    continue;
                }
            };
            let pblk = 1000 + rng.below(4) * 64 + u64::from(a);
            assert_eq!(es.insert(a, len, pblk, status), was);
            for (i, m) in model[range].iter_mut().enumerate() {
                let mapped = matches!(status, EsStatus::Written | EsStatus::Unwritten);
                *m = Some((status, if mapped { pblk + i as u64 } else { 0 }));
            }
            check(&es, &model);
        }
    }

    fn check(es: &ExtentStatus, model: &[Option<(EsStatus, u64)>]) {
        for (i, m) in model.iter().enumerate() {
            let got = es.lookup(i as u32).map(|e| {
                let c = e.clip(i as u32, i as u32 + 1);
                (c.status, c.pblk)
            });
            assert_eq!(got, *m, "block {i}");
        }
        let all: Vec<_> = es.iter().copied().collect();
        for w in all.windows(2) {
            assert!(w[0].end() <= w[1].lblk && !w[0].joins(&w[1]), "invariant 1");
        }
        let delayed = model
            .iter()
            .filter(|m| matches!(m, Some((EsStatus::Delayed, _))))
            .count();
        assert_eq!(es.delayed_blocks(), delayed as u64);
    }
}
