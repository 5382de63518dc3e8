//! Htrees: every block is referenced once, hashes ascend, and names lie in the range of their leaf.

use super::{FindingKind, Fsck, Go};
use crate::base::ReadAt;
use crate::format::ext4::dirent::live_entries;
use crate::format::ext4::dirhash::dirhash;
use crate::format::ext4::dx::{self, DxEntry, DxRootInfo};
use crate::format::ext4::features;
use crate::format::ext4::superblock::EXT2_FLAGS_UNSIGNED_HASH;
use crate::format::{Corrupt, CorruptKind};

/// A child still to visit: block, hash range `from..=to`, levels below.
type Todo = (u32, u32, u32, u8);

impl<R: ReadAt + ?Sized> Fsck<'_, R> {
    /// Checks the htree of directory `i`, whose logical blocks lie at `blocks`.
    pub(super) fn check_htree(&mut self, i: usize, blocks: &[u64]) -> Go {
        let ino = self.dirs[i].ino;
        let Some(&first) = blocks.first() else {
            return Some(());
        };
        let root = self.block(first);
        let dx_root = match DxRootInfo::decode(&root, self.sb.has(features::LARGEDIR)) {
            Ok(found) => found,
            Err(c) => return self.find_htree(ino, c.at(first)),
        };
        let mut seen = vec![false; blocks.len()];
        seen[0] = true;
        let levels = dx_root.indirect_levels;
        let mut todo: Vec<Todo> = Vec::new();
        self.push_children(ino, &root, first, (0, u32::MAX), levels, &mut todo)?;
        while let Some((lblk, from, to, level)) = todo.pop() {
            let Some(slot) = seen.get_mut(lblk as usize) else {
                let kind = CorruptKind::DxBlock {
                    block: lblk,
                    blocks: blocks.len() as u32,
                };
                self.find_htree(ino, Corrupt::new(kind, 0))?;
                continue;
            };
            if std::mem::replace(slot, true) {
                self.find(2, FindingKind::HtreeTwice { ino, lblk })?;
                continue;
            }
            let pblk = blocks[lblk as usize];
            let b = self.block(pblk);
            if level > 0 {
                self.push_children(ino, &b, pblk, (from, to), level - 1, &mut todo)?;
            } else {
                self.check_leaf(ino, lblk, &b, dx_root.hash_version, (from, to))?;
            }
        }
        for (lblk, _) in (0u32..).zip(&seen).filter(|(_, s)| !**s) {
            // An inner node that lost its last child would be found here too.
            self.find(2, FindingKind::HtreeUnreferenced { ino, lblk })?;
        }
        Some(())
    }

    fn push_children(
        &mut self,
        ino: u32,
        b: &[u8],
        pblk: u64,
        (from, to): (u32, u32),
        level: u8,
        todo: &mut Vec<Todo>,
    ) -> Go {
        let entries = dx::entries_offset(b)
            .and_then(|at| dx::decode_entries(b, at, self.csum.metadata_csum))
            .and_then(|e| in_order(e, from));
        match entries {
            Ok(entries) => {
                for (j, e) in entries.iter().enumerate() {
                    let start = if j == 0 { from } else { e.hash };
                    let end = match entries.get(j + 1) {
                        // Bit 0 says that the run of equal hashes goes on in the next block.
                        Some(next) if next.hash & 1 != 0 => next.hash,
                        Some(next) => next.hash.wrapping_sub(1),
                        None => to,
                    };
                    todo.push((e.block, start, end, level));
                }
                Some(())
            }
            Err(c) => self.find_htree(ino, c.at(pblk)),
        }
    }

    fn check_leaf(
        &mut self,
        ino: u32,
        lblk: u32,
        b: &[u8],
        version: u8,
        (from, to): (u32, u32),
    ) -> Go {
        let unsigned = self.sb.s_flags & EXT2_FLAGS_UNSIGNED_HASH != 0;
        let seed = self.sb.s_hash_seed;
        let outside = live_entries(b)
            .map_while(Result::ok)
            .filter_map(|d| dirhash(d.name, version, seed, unsigned))
            .find(|h| h.hash < from & !1 || h.hash > to);
        match outside {
            Some(h) => {
                let hash = h.hash;
                self.find(2, FindingKind::HtreeHash { ino, lblk, hash })
            }
            None => Some(()),
        }
    }
}

fn in_order(entries: Vec<DxEntry>, from: u32) -> Result<Vec<DxEntry>, Corrupt> {
    let mut before = from;
    for (at, e) in (0u16..).zip(&entries).skip(1) {
        if e.hash < before {
            return Err(Corrupt::new(CorruptKind::DxOrder { at }, 0));
        }
        before = e.hash;
    }
    Ok(entries)
}
