//! Blocks as events tell it: who allocated or freed them, which wait in a transaction, which live only in the log.

use crate::base::{FastMap, Nanos};
use crate::trace::Event;
use std::collections::{BTreeMap, BTreeSet};

/// Allocation since the start of the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "plain states")]
pub enum Owner {
    Freed,
    FileData(u32),
    Tree(u32),
}

/// Group counters as last announced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "fields of the event")]
pub struct GroupCounts {
    pub free_blocks: u32,
    pub free_inodes: u32,
    pub flags: u16,
}

/// Blocks.
#[derive(Clone, Debug, Default)]
pub struct BlockFold {
    /// Newest owner of blocks that were allocated or freed: first block to (one past the last, owner). A file of 100 GiB
    /// is one entry, not 26 million.
    owners: BTreeMap<u64, (u64, Owner)>,
    /// Blocks with a version in a transaction that is not committed: newest such transaction.
    joined: FastMap<u64, u32>,
    by_tid: BTreeMap<u32, Vec<u64>>,
    /// Blocks whose newest committed version is in the log: transaction and time of its commit.
    logged: FastMap<u64, (u32, Nanos)>,
    tree: BTreeSet<u64>,
    /// Groups that changed.
    pub groups: BTreeMap<u32, GroupCounts>,
    /// Blocks waiting to be written home.
    pub debt: u64,
}

impl BlockFold {
    /// Applies one event.
    pub fn apply(&mut self, now: Nanos, event: &Event) {
        match *event {
            Event::BlocksAllocated {
                ino,
                block,
                len,
                meta,
            } => {
                let owner = if meta == 1 {
                    Owner::Tree(ino.0)
                } else {
                    Owner::FileData(ino.0)
                };
                let end = block.0 + u64::from(len);
                self.own(block.0, end, owner);
                self.forget_tree(block.0, end);
                if meta == 1 {
                    self.tree.extend(block.0..end);
                }
            }
            Event::BlocksFreed { block, len, .. } => {
                let end = block.0 + u64::from(len);
                self.own(block.0, end, Owner::Freed);
                self.forget_tree(block.0, end);
                for b in block.0..end {
                    self.unlog(b);
                }
            }
            Event::BlockJoined { tid, block } => {
                self.joined.insert(block.0, tid.0);
                self.by_tid.entry(tid.0).or_default().push(block.0);
            }
            Event::BlockForgotten { block, .. } => {
                self.joined.remove(&block.0);
            }
            Event::LogCommit { tid, .. } => self.commit(now, tid.0),
            Event::CheckpointWritten { tid, block } | Event::CheckpointDropped { tid, block }
                if self.logged.get(&block.0).is_some_and(|l| l.0 <= tid.0) =>
            {
                self.unlog(block.0);
            }
            Event::GroupChanged {
                group,
                free_blocks,
                free_inodes,
                flags,
            } => {
                self.groups.insert(
                    group.0,
                    GroupCounts {
                        free_blocks,
                        free_inodes,
                        flags,
                    },
                );
            }
            _ => {}
        }
    }

    /// Gives `start..end` to an owner; joins neighbours of the same one.
    fn own(&mut self, mut start: u64, mut end: u64, owner: Owner) {
        let mut cut: Vec<(u64, u64, Owner)> = Vec::new();
        let before = self.owners.range(..start).next_back();
        let inside = self.owners.range(start..end);
        for (&s, &(e, o)) in before.into_iter().chain(inside) {
            if e > start || (e == start && o == owner) {
                cut.push((s, e, o));
            }
        }
        if let Some((&s, &(e, o))) = self.owners.range(end..=end).next() {
            if o == owner {
                cut.push((s, e, o));
            }
        }
        for (s, e, o) in cut {
            self.owners.remove(&s);
            if o == owner {
                start = start.min(s);
                end = end.max(e);
                continue;
            }
            if s < start {
                self.owners.insert(s, (start, o));
            }
            if e > end {
                self.owners.insert(end, (e, o));
            }
        }
        self.owners.insert(start, (end, owner));
    }

    fn forget_tree(&mut self, start: u64, end: u64) {
        let gone: Vec<u64> = self.tree.range(start..end).copied().collect();
        for b in gone {
            self.tree.remove(&b);
        }
    }

    fn commit(&mut self, now: Nanos, tid: u32) {
        for b in self.by_tid.remove(&tid).unwrap_or_default() {
            if self.joined.get(&b) == Some(&tid) {
                self.joined.remove(&b);
            }
            if self.logged.insert(b, (tid, now)).is_none() {
                self.debt += 1;
            }
        }
    }

    fn unlog(&mut self, block: u64) {
        if self.logged.remove(&block).is_some() {
            self.debt -= 1;
        }
    }

    /// Blocks of directories and trees that were allocated in the run, ascending.
    pub fn tree_blocks(&self) -> impl Iterator<Item = u64> + '_ {
        self.tree.iter().copied()
    }

    /// Blocks with a version that is not at home, in no order.
    pub fn unsettled(&self) -> Vec<u64> {
        self.joined
            .keys()
            .chain(self.logged.keys())
            .copied()
            .collect()
    }

    /// Who owns a block, if that changed since the start of the record.
    pub fn owner(&self, block: u64) -> Option<Owner> {
        let (_, &(end, owner)) = self.owners.range(..=block).next_back()?;
        (block < end).then_some(owner)
    }

    /// The uncommitted transaction that holds a newer version of the block.
    pub fn in_transaction(&self, block: u64) -> Option<u32> {
        self.joined.get(&block).copied()
    }

    /// Transaction and commit time of a version that lives in the log only, as far as the journal knows.
    pub fn in_log(&self, block: u64) -> Option<(u32, Nanos)> {
        self.logged.get(&block).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{FsBlock, Ino, Tid};

    #[test]
    fn owners_agree_with_a_map_of_single_blocks() {
        let mut rng = crate::base::rng::SplitMix64::new(5);
        let mut fold = BlockFold::default();
        let mut model = BTreeMap::new();
        for _ in 0..2000 {
            let (block, len) = (rng.below(200), 1 + rng.below(30));
            let owner = match rng.below(3) {
                0 => Owner::Freed,
                n => Owner::FileData(n as u32),
            };
            fold.own(block, block + len, owner);
            model.extend((block..block + len).map(|b| (b, owner)));
            assert!((0..240).all(|b| fold.owner(b) == model.get(&b).copied()));
            let mut last: Option<(u64, Owner)> = None;
            for (s, (e, o)) in &fold.owners {
                assert!(
                    s < e && last.is_none_or(|(end, same)| end < *s || end == *s && same != *o)
                );
                last = Some((*e, *o));
            }
        }
    }

    #[test]
    fn a_block_goes_from_memory_to_log_to_home() {
        let mut b = BlockFold::default();
        let (tid, block) = (Tid(3), FsBlock(37));
        let t = Nanos::from_ms(5);
        b.apply(
            t,
            &Event::BlocksAllocated {
                ino: Ino(12),
                block,
                len: 2,
                meta: 0,
            },
        );
        assert_eq!(b.owner(38), Some(Owner::FileData(12)));
        b.apply(t, &Event::BlockJoined { tid, block });
        assert_eq!(b.in_transaction(37), Some(3));
        b.apply(t, &Event::LogCommit { tid, jblock: 4 });
        assert_eq!((b.in_transaction(37), b.in_log(37)), (None, Some((3, t))));
        assert_eq!(b.debt, 1);
        b.apply(t, &Event::CheckpointWritten { tid, block });
        assert_eq!((b.in_log(37), b.debt), (None, 0));
    }
}
