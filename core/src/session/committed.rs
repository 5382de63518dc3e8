//! The disk as a recovery now would leave its metadata: home blocks, and over them the newest committed copies that
//! are still only in the log. What the tree says of names and inodes is read from it.

use super::observer::Observer;
use crate::base::ReadAt;
use crate::block::Store;
use crate::format::jbd2::{JBD2_FLAG_ESCAPE, JBD2_MAGIC_NUMBER};
use crate::observe::journal::LogKind;
use std::collections::BTreeMap;

/// A disk with the committed part of its log laid over it.
pub(super) struct Committed<'a> {
    home: &'a Store,
    block_size: u64,
    /// Home block to the block of the disk that holds its copy, and whether the copy is escaped.
    copies: BTreeMap<u64, (u64, bool)>,
}

impl<'a> Committed<'a> {
    /// Of the instant at which the observer stands.
    pub(super) fn of(observer: &'a Observer) -> Committed<'a> {
        let mut copies = BTreeMap::new();
        let log = &observer.fold.journal;
        let waiting = log.transactions.values();
        for t in waiting.filter(|t| t.committed.0 > 0 && t.checkpointed.0 == 0) {
            for block in &t.log {
                let LogKind::Copy { home, flags } = block.kind else {
                    continue;
                };
                let place = observer.layout.journal_block(block.jblock);
                if let (Some(place), Some(_)) = (place, observer.fold.blocks.in_log(home)) {
                    let escaped = u32::from(flags) & JBD2_FLAG_ESCAPE != 0;
                    copies.insert(home, (place.0, escaped));
                }
            }
        }
        Committed {
            home: observer.disk.cursor().store(),
            block_size: u64::from(observer.layout.block_size()),
            copies,
        }
    }

    /// True if these bytes of the disk have a committed version that is not home yet.
    pub(super) fn is_newer(&self, offset: u64, len: usize) -> bool {
        if self
            .copies
            .range(offset / self.block_size..)
            .next()
            .is_none()
        {
            return false;
        }
        let (mut here, mut home) = (vec![0; len], vec![0; len]);
        self.read_at(offset, &mut here);
        self.home.read_at(offset, &mut home);
        here != home
    }

    fn lay_over(&self, block: u64, (place, escaped): (u64, bool), offset: u64, out: &mut [u8]) {
        let mut copy = vec![0; self.block_size as usize];
        self.home.read_at(place * self.block_size, &mut copy);
        if escaped {
            copy[..4].copy_from_slice(&JBD2_MAGIC_NUMBER.to_be_bytes());
        }
        let start = block * self.block_size;
        let (from, to) = (
            start.max(offset),
            (start + self.block_size).min(offset + out.len() as u64),
        );
        if from < to {
            let (into, of) = ((from - offset) as usize, (from - start) as usize);
            let len = (to - from) as usize;
            out[into..into + len].copy_from_slice(&copy[of..of + len]);
        }
    }
}

impl ReadAt for Committed<'_> {
    fn size(&self) -> u64 {
        self.home.size()
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) {
        self.home.read_at(offset, out);
        let end = (offset + out.len() as u64).div_ceil(self.block_size);
        for (block, copy) in self.copies.range(offset / self.block_size..end) {
            self.lay_over(*block, *copy, offset, out);
        }
    }
}
