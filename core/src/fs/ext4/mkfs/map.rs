//! Extent trees and block maps of fresh files, written once from logical block 0 upwards.

use super::options::MkfsError;
use crate::base::bytes;
use crate::format::ext4::extent::{self, max_entries};
use crate::format::ext4::inode::{
    EXT4_DIND_BLOCK, EXT4_IND_BLOCK, EXT4_NDIR_BLOCKS, EXT4_TIND_BLOCK,
};
use crate::format::ext4::{CsumCtx, Extent, ExtentHeader, ExtentIdx, RawInode};
use std::collections::BTreeMap;

/// An extent tree that only grows at its end, in the shape libext2fs gives it: the root moves to a block when its
/// four entries are full, later leaves are split before their last entry.
#[derive(Debug)]
pub(super) struct ExtentTree {
    root: [u8; 60],
    leaves: Vec<(u64, Vec<u8>)>,
    block_size: usize,
}

fn entries(node: &[u8]) -> u16 {
    bytes::le16(node, 2)
}

fn set_header(node: &mut [u8], eh_entries: u16, eh_depth: u16) {
    let eh_max = max_entries(node.len());
    ExtentHeader {
        eh_entries,
        eh_max,
        eh_depth,
        eh_generation: 0,
    }
    .encode(node);
}

impl ExtentTree {
    pub(super) fn new(block_size: u32) -> ExtentTree {
        let mut root = [0; 60];
        set_header(&mut root, 0, 0);
        ExtentTree {
            root,
            leaves: Vec::new(),
            block_size: block_size as usize,
        }
    }

    fn leaf(&mut self) -> &mut [u8] {
        match self.leaves.last_mut() {
            Some((_, b)) => b,
            None => &mut self.root,
        }
    }

    /// If the last leaf is full: first physical block of that leaf, near which the new node should lie.
    pub(super) fn split_goal(&mut self) -> Option<u64> {
        let leaf = self.leaf();
        (entries(leaf) == max_entries(leaf.len())).then(|| Extent::decode(leaf, 0).pblk)
    }

    /// Makes room at the end with a new node in block `at`.
    pub(super) fn split(&mut self, at: u64) -> Result<(), MkfsError> {
        let mut node = vec![0; self.block_size];
        let last = entries(self.leaf()) - 1;
        if self.leaves.is_empty() {
            set_header(&mut node, last + 1, 0);
            node[12..60].copy_from_slice(&self.root[12..60]);
        } else {
            let moved = Extent::decode(self.leaf(), last);
            set_header(self.leaf(), last, 0);
            set_header(&mut node, 1, 0);
            moved.encode(&mut node, 0);
        }
        let n = self.leaves.len() as u16;
        if n == max_entries(self.root.len()) {
            return Err(MkfsError::NoSpace("a contiguous journal".to_string()));
        }
        let lblk = Extent::decode(&node, 0).lblk;
        set_header(&mut self.root, n + 1, 1);
        ExtentIdx { lblk, leaf: at }.encode(&mut self.root, n);
        self.leaves.push((at, node));
        Ok(())
    }

    /// Adds an extent at the end; [`ExtentTree::split_goal`] must have given `None`.
    pub(super) fn push(&mut self, lblk: u32, pblk: u64, len: u16) {
        let leaf = self.leaf();
        let n = entries(leaf);
        let e = Extent {
            lblk,
            len,
            unwritten: false,
            pblk,
        };
        e.encode(leaf, n);
        set_header(leaf, n + 1, 0);
    }

    /// Root for `i_block`, and the leaves with their blocks and checksums.
    pub(super) fn finish(self, csum: &CsumCtx, ino: u32) -> ([u8; 60], Vec<(u64, Vec<u8>)>) {
        let mut leaves = self.leaves;
        for (_, b) in &mut leaves {
            extent::csum_set(csum, ino, 0, b);
        }
        (self.root, leaves)
    }
}

/// Place of an indirect block: level (1 indirect, 2 double, 3 triple root) and first logical block under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Slot {
    level: u32,
    first: u64,
}

/// A block map that grows from logical block 0.
#[derive(Debug)]
pub(super) struct BlockMap {
    per_block: u64,
    nodes: BTreeMap<Slot, u64>,
    blocks: Vec<u64>,
}

impl BlockMap {
    pub(super) fn new(block_size: u32) -> BlockMap {
        BlockMap {
            per_block: u64::from(block_size / 4),
            nodes: BTreeMap::new(),
            blocks: Vec::new(),
        }
    }

    /// Indirect blocks on the way to `lblk`, topmost first.
    fn path(&self, lblk: u64) -> Vec<Slot> {
        let p = self.per_block;
        let mut base = EXT4_NDIR_BLOCKS as u64;
        if lblk < base {
            return Vec::new();
        }
        for depth in 1..=3u32 {
            let span = p.pow(depth);
            if lblk < base + span || depth == 3 {
                let slot = |level: u32| Slot {
                    level,
                    first: base + (lblk - base) / p.pow(level) * p.pow(level),
                };
                return (1..=depth).rev().map(slot).collect();
            }
            base += span;
        }
        Vec::new()
    }

    /// Indirect blocks that `lblk` needs and that do not exist yet, topmost first.
    pub(super) fn missing(&self, lblk: u64) -> Vec<Slot> {
        let mut path = self.path(lblk);
        path.retain(|s| !self.nodes.contains_key(s));
        path
    }

    /// Gives the indirect block at `slot` its block.
    pub(super) fn set_node(&mut self, slot: Slot, at: u64) {
        self.nodes.insert(slot, at);
    }

    /// Maps the next logical block.
    pub(super) fn set(&mut self, lblk: u64, at: u64) {
        debug_assert_eq!(lblk, self.blocks.len() as u64);
        self.blocks.push(at);
    }

    /// Indirect blocks so far.
    pub(super) fn nodes(&self) -> u64 {
        self.nodes.len() as u64
    }

    /// Writes `i_block` and gives the indirect blocks.
    pub(super) fn finish(self, inode: &mut RawInode) -> Vec<(u64, Vec<u8>)> {
        let mut out: BTreeMap<u64, Vec<u8>> = self
            .nodes
            .values()
            .map(|at| (*at, vec![0; self.per_block as usize * 4]))
            .collect();
        for (lblk, at) in (0u64..).zip(&self.blocks) {
            let path = self.path(lblk);
            let Some(top) = path.first() else {
                inode.set_block_ptr(lblk as usize, *at as u32);
                continue;
            };
            let root = [EXT4_IND_BLOCK, EXT4_DIND_BLOCK, EXT4_TIND_BLOCK][path.len() - 1];
            inode.set_block_ptr(root, self.nodes[top] as u32);
            for (i, slot) in path.iter().enumerate() {
                let child = path.get(i + 1).map_or(*at, |s| self.nodes[s]);
                let index = (lblk - slot.first) / self.per_block.pow(slot.level - 1);
                if let Some(b) = out.get_mut(&self.nodes[slot]) {
                    bytes::put_le32(b, index as usize * 4, child as u32);
                }
            }
        }
        out.into_iter().collect()
    }
}
