//! Walks the maps of inodes, claims their blocks and says what is wrong with them.

use super::finding::Differences;
use super::{FindingKind, Fsck, Go};
use crate::base::{bytes, ReadAt};
use crate::format::ext4::extent::{self, decode_node};
use crate::format::ext4::inode::{EXT4_EXTENTS_FL, EXT4_IND_BLOCK, EXT4_NDIR_BLOCKS};
use crate::format::ext4::{Extent, ExtentNode, RawInode};
use std::collections::BTreeSet;

/// Sum of one inode's map.
#[derive(Debug, Default)]
pub(super) struct MapSum {
    /// Clusters that the inode holds, tree and indirect blocks included.
    pub(super) clusters: u64,
    /// Last logical block mapped.
    pub(super) last: Option<u32>,
    /// Last logical block mapped and written.
    pub(super) last_written: Option<u32>,
    /// Runs in order (kept only when asked for).
    pub(super) extents: Vec<Extent>,
    /// First physical block of logical block 0.
    pub(super) first: Option<u64>,
    /// A damaged part was left out: counts mean nothing.
    pub(super) broken: bool,
}

/// State of one walk.
struct Walk {
    ino: u32,
    generation: u32,
    keep: bool,
    sum: MapSum,
    next_lblk: u64,
    twice: BTreeSet<u64>,
    /// Clusters of this inode, for bigalloc.
    own: BTreeSet<u64>,
}

impl<R: ReadAt + ?Sized> Fsck<'_, R> {
    /// Walks the map of an inode that has one; `keep` collects the runs.
    pub(super) fn walk_map(&mut self, ino: u32, raw: &RawInode, keep: bool) -> Option<MapSum> {
        let mut w = Walk {
            ino,
            generation: raw.i_generation,
            keep,
            sum: MapSum::default(),
            next_lblk: 0,
            twice: BTreeSet::new(),
            own: BTreeSet::new(),
        };
        if raw.has_flag(EXT4_EXTENTS_FL) {
            self.walk_extents(&mut w, raw)?;
        } else {
            self.walk_block_map(&mut w, raw)?;
        }
        if !w.twice.is_empty() {
            let mut text = Differences::default();
            w.twice.iter().for_each(|b| text.push(' ', *b));
            let blocks = text.finish().unwrap_or_default().trim().to_string();
            self.find(1, FindingKind::MultiplyClaimed { ino, blocks })?;
        }
        Some(w.sum)
    }

    /// Runs of an inode without claims and findings, empty if damaged: for the orphan file before pass 1.
    pub(super) fn quiet_map(&self, raw: &RawInode) -> Vec<Extent> {
        let bounds = (self.sb.s_first_data_block, self.sb.s_blocks_count);
        match decode_node(&raw.i_block, Some(0), bounds) {
            Ok((_, ExtentNode::Leaf(e))) if raw.has_flag(EXT4_EXTENTS_FL) => e,
            _ => Vec::new(),
        }
    }

    fn walk_extents(&mut self, w: &mut Walk, raw: &RawInode) -> Go {
        let bounds = (self.sb.s_first_data_block, self.sb.s_blocks_count);
        let ino = w.ino;
        let root = match decode_node(&raw.i_block, None, bounds) {
            Ok((h, node)) => (h.eh_depth, node),
            Err(corrupt) => {
                w.sum.broken = true;
                return self.find(1, FindingKind::ExtentNode { ino, corrupt });
            }
        };
        // Nodes still to read, last first; depth falls with every step down.
        let mut todo: Vec<(u64, u16)> = Vec::new();
        let mut node = Some(root);
        loop {
            match node.take() {
                Some((_, ExtentNode::Leaf(extents))) => {
                    for e in extents {
                        self.take_extent(w, e)?;
                    }
                }
                Some((depth, ExtentNode::Index(children))) => {
                    let below = depth.saturating_sub(1);
                    todo.extend(children.iter().rev().map(|c| (c.leaf, below)));
                }
                None => {}
            }
            let Some((block, depth)) = todo.pop() else {
                return Some(());
            };
            self.take_block(w, block, None)?;
            let b = self.block(block);
            let decoded = extent::csum_verify(&self.csum, ino, w.generation, &b)
                .and_then(|()| decode_node(&b, Some(depth), bounds));
            match decoded {
                Ok((h, n)) => node = Some((h.eh_depth, n)),
                Err(c) => {
                    w.sum.broken = true;
                    let corrupt = c.at(block);
                    self.find(1, FindingKind::ExtentNode { ino, corrupt })?;
                }
            }
        }
    }

    fn take_extent(&mut self, w: &mut Walk, e: Extent) -> Go {
        if u64::from(e.lblk) < w.next_lblk {
            w.sum.broken = true;
            let (ino, lblk) = (w.ino, e.lblk);
            return self.find(1, FindingKind::ExtentOrder { ino, lblk });
        }
        w.next_lblk = e.end();
        let last = (e.end() - 1) as u32;
        w.sum.last = Some(last);
        if !e.unwritten {
            w.sum.last_written = Some(last);
        }
        if e.lblk == 0 {
            w.sum.first = Some(e.pblk);
        }
        if w.keep {
            w.sum.extents.push(e);
        }
        self.spend(u64::from(e.len))?;
        for i in 0..u64::from(e.len) {
            self.claim_for(w, e.pblk + i);
        }
        Some(())
    }

    fn spend(&mut self, blocks: u64) -> Go {
        match self.budget.checked_sub(blocks) {
            Some(left) => self.budget = left,
            None => self.find(1, FindingKind::TooDamaged { what: "Inodes" })?,
        }
        Some(())
    }

    /// One block of a tree (`lblk` none) or of a block map.
    fn take_block(&mut self, w: &mut Walk, block: u64, lblk: Option<u64>) -> Go {
        self.spend(1)?;
        self.claim_for(w, block);
        let Some(lblk) = lblk else { return Some(()) };
        w.sum.last = Some(lblk as u32);
        w.sum.last_written = Some(lblk as u32);
        if lblk == 0 {
            w.sum.first = Some(block);
        }
        if !w.keep {
            return Some(());
        }
        match w.sum.extents.last_mut() {
            Some(e) if e.end() == lblk && e.pblk + u64::from(e.len) == block && e.len < 32768 => {
                e.len += 1;
            }
            _ => w.sum.extents.push(Extent {
                lblk: lblk as u32,
                len: 1,
                unwritten: false,
                pblk: block,
            }),
        }
        Some(())
    }

    fn claim_for(&mut self, w: &mut Walk, block: u64) {
        let ratio = u64::from(self.sb.cluster_ratio());
        if ratio > 1 && !w.own.insert(block / ratio) {
            return;
        }
        w.sum.clusters += 1;
        if !self.claim(block) {
            w.twice.insert(block);
        }
    }

    fn walk_block_map(&mut self, w: &mut Walk, raw: &RawInode) -> Go {
        for i in 0..EXT4_NDIR_BLOCKS {
            self.take_pointer(w, raw.block_ptr(i), 0, i as u64)?;
        }
        let per_block = u64::from(self.sb.block_size() / 4);
        let mut first = EXT4_NDIR_BLOCKS as u64;
        for level in 1..=3u32 {
            let block = raw.block_ptr(EXT4_IND_BLOCK + level as usize - 1);
            self.take_pointer(w, block, level, first)?;
            first += per_block.pow(level);
        }
        Some(())
    }

    /// A pointer of a block map and what lies under it (at most three levels deep).
    fn take_pointer(&mut self, w: &mut Walk, block: u32, level: u32, first: u64) -> Go {
        if block == 0 {
            return Some(());
        }
        let block = u64::from(block);
        if !self.sb.blocks_valid(block, 1) || first > u64::from(u32::MAX) {
            w.sum.broken = true;
            let ino = w.ino;
            return self.find(1, FindingKind::IllegalBlock { ino, block });
        }
        if level == 0 {
            return self.take_block(w, block, Some(first));
        }
        self.take_block(w, block, None)?;
        let b = self.block(block);
        let span = u64::from(self.sb.block_size() / 4).pow(level - 1);
        for (i, entry) in (0u64..).zip(b.chunks_exact(4)) {
            self.take_pointer(w, bytes::le32(entry, 0), level - 1, first + i * span)?;
        }
        Some(())
    }
}
