//! Extent trees (kernel `extents.c`): finding, inserting, growing. Splitting of unwritten extents is in
//! `extents_split`, removing in `extents_remove`, shifting in `extents_shift`.
//!
//! Locks: the caller holds `i_data_sem`, for writing where the tree changes.
//! Invariant: in each index node, entry i begins at or before the first extent of its child.

#![allow(
    clippy::unused_self,
    reason = "all operations are methods of the file system"
)]

use super::balloc::FreeFlags;
use super::mballoc::MbFlags;
use super::{extent_node as node, Ext4, Inode, Stats};
use crate::base::{Errno, FsBlock};
use crate::block::Role;
use crate::format::ext4::extent::{
    self, decode_node, max_entries, Extent, ExtentIdx, EXT4_MAX_EXTENT_DEPTH, EXT_MAX_BLOCKS,
};
use crate::format::ext4::{CsumCtx, ExtentNode};
use crate::format::{Corrupt, CorruptKind};
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::Handle;
use crate::mm::buffer::{Bh, Buffer, Trigger, TriggerArgs};
use crate::trace::{Category, Event};
use std::rc::Rc;

use super::extents_status::EsStatus;

/// One level of a path: a node and the entry chosen in it. `bh` is `None` for the root.
#[derive(Clone)]
pub(crate) struct Level {
    pub(crate) bh: Option<Rc<Buffer>>,
    pub(crate) pos: u16,
}

/// The way from the root to a leaf (kernel `struct ext4_ext_path`).
#[derive(Clone)]
pub(crate) struct ExtPath {
    pub(crate) levels: Vec<Level>,
}

impl ExtPath {
    /// Depth of the leaf.
    pub(crate) fn depth(&self) -> usize {
        self.levels.len() - 1
    }

    /// The leaf.
    pub(crate) fn leaf(&self) -> &Level {
        &self.levels[self.levels.len() - 1]
    }
}

/// What the extent status tree learns when a leaf is read for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExCache {
    /// All extents of the leaf: for lookups.
    Leaves,
    /// Nothing (kernel `EXT4_EX_NOCACHE`): for changes. Truncation, for one, forgets a range first and then reads
    /// the leaves that still map it.
    Nothing,
}

fn extent_csum(args: &TriggerArgs, b: &mut [u8]) {
    let ctx = CsumCtx {
        seed: args.seed,
        metadata_csum: true,
        ..CsumCtx::NONE
    };
    extent::csum_set(&ctx, args.ino, args.generation, b);
}

impl Ext4 {
    /// Looks at the bytes of a node.
    pub(crate) fn node<R>(&self, inode: &Inode, l: &Level, f: impl FnOnce(&[u8]) -> R) -> R {
        match &l.bh {
            Some(bh) => bh.read(f),
            None => f(&inode.core.borrow().i_block),
        }
    }

    /// Changes the bytes of a node; the caller has write access and dirties it afterwards.
    pub(crate) fn node_mut<R>(
        &self,
        inode: &Inode,
        l: &Level,
        f: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        match &l.bh {
            Some(bh) => bh.modify(f),
            None => f(&mut inode.core.borrow_mut().i_block),
        }
    }

    /// Write access to a node (kernel `ext4_ext_get_access`).
    pub(crate) async fn ext_get_access(&self, h: &mut Handle, l: &Level) -> FsResult<()> {
        match &l.bh {
            Some(bh) => self.get_write_access(h, bh).await,
            None => Ok(()),
        }
    }

    /// Puts a changed node into the transaction (kernel `ext4_ext_dirty`).
    pub(crate) async fn ext_dirty(&self, h: &mut Handle, inode: &Inode, l: &Level) -> FsResult<()> {
        match &l.bh {
            Some(bh) => self.ext_dirty_block(h, inode, bh).await,
            None => self.mark_inode_dirty(h, inode).await,
        }
    }

    async fn ext_dirty_block(
        &self,
        h: &mut Handle,
        inode: &Inode,
        bh: &Rc<Buffer>,
    ) -> FsResult<()> {
        if self.geo.metadata_csum {
            bh.set_trigger(Trigger {
                run: extent_csum,
                args: TriggerArgs {
                    seed: self.csum.seed,
                    blocknr: bh.blocknr.0,
                    ino: inode.ino.0,
                    generation: inode.core.borrow().generation,
                    ..TriggerArgs::default()
                },
            });
        }
        self.dirty_metadata(h, Some(inode), bh).await
    }

    /// Checks the root of the tree when the inode is read (kernel `ext4_ext_check_inode`).
    pub(crate) fn ext_check_inode(&self, inode: &Inode) -> FsResult<()> {
        let bounds = (self.geo.first_data_block, self.geo.blocks_count);
        let checked = decode_node(&inode.core.borrow().i_block, None, bounds).map(|_| ());
        checked.map_err(|c| self.corrupt(c))
    }

    /// Depth of the tree.
    pub(crate) fn ext_depth(&self, inode: &Inode) -> FsResult<u16> {
        let header = extent::ExtentHeader::decode(&inode.core.borrow().i_block);
        header.map(|h| h.eh_depth).map_err(|c| self.corrupt(c))
    }

    /// Reads and checks a node below the root (kernel `read_extent_tree_block`).
    pub(crate) async fn read_extent_block(
        &self,
        inode: &Inode,
        block: u64,
        depth: u16,
        cache: ExCache,
    ) -> FsResult<Rc<Buffer>> {
        let bh = self.buffers.bread(FsBlock(block), Role::Extent).await?;
        let known = bh.test(Bh::VERIFIED) && bh.read(node::depth) == depth;
        if known {
            return Ok(bh);
        }
        let generation = inode.core.borrow().generation;
        let bounds = (self.geo.first_data_block, self.geo.blocks_count);
        let decoded = bh.read(|b| {
            extent::csum_verify(&self.csum, inode.ino.0, generation, b)?;
            decode_node(b, Some(depth), bounds)
        });
        let (_, decoded) = decoded.map_err(|c| self.corrupt(c.at(block)))?;
        if let (ExtentNode::Leaf(extents), ExCache::Leaves) = (&decoded, cache) {
            self.cache_extents(inode, extents);
        }
        bh.set(Bh::VERIFIED);
        Ok(bh)
    }

    fn cache_extents(&self, inode: &Inode, extents: &[Extent]) {
        let mut es = inode.es.borrow_mut();
        let mut prev = 0;
        for e in extents {
            if prev != 0 && prev != e.lblk {
                es.cache(prev, e.lblk - prev, 0, EsStatus::Hole);
            }
            let status = if e.unwritten {
                EsStatus::Unwritten
            } else {
                EsStatus::Written
            };
            es.cache(e.lblk, u32::from(e.len), e.pblk, status);
            prev = e.lblk + u32::from(e.len);
        }
    }

    /// The way to the leaf that holds or would hold `lblk` (kernel `ext4_find_extent`), for a change of the tree.
    pub(crate) async fn find_extent(&self, inode: &Inode, lblk: u32) -> FsResult<ExtPath> {
        self.ext_path(inode, lblk, ExCache::Nothing).await
    }

    /// The way to the leaf that holds or would hold `lblk`, with what the extent status tree shall learn from it.
    pub(crate) async fn ext_path(
        &self,
        inode: &Inode,
        lblk: u32,
        cache: ExCache,
    ) -> FsResult<ExtPath> {
        let mut depth = self.ext_depth(inode)?;
        let pos = node::search(&inode.core.borrow().i_block, lblk);
        let mut path = ExtPath {
            levels: vec![Level { bh: None, pos }],
        };
        while depth > 0 {
            let leaf = {
                let l = path.leaf();
                self.node(inode, l, |b| ExtentIdx::decode(b, l.pos).leaf)
            };
            depth -= 1;
            let bh = self.read_extent_block(inode, leaf, depth, cache).await?;
            let pos = bh.read(|b| node::search(b, lblk));
            path.levels.push(Level { bh: Some(bh), pos });
        }
        self.sim
            .charge(crate::base::Nanos(
                self.cost.map_level.0 * path.levels.len() as u64,
            ))
            .await;
        Ok(path)
    }

    /// The extent that the path points at.
    pub(crate) fn path_extent(&self, inode: &Inode, path: &ExtPath) -> Option<Extent> {
        let l = path.leaf();
        self.node(inode, l, |b| {
            (l.pos < node::entries(b)).then(|| Extent::decode(b, l.pos))
        })
    }

    /// First block of the next leaf, `EXT_MAX_BLOCKS` if there is none (kernel `ext4_ext_next_leaf_block`).
    pub(crate) fn next_leaf_block(&self, inode: &Inode, path: &ExtPath) -> u32 {
        for l in path.levels[..path.depth()].iter().rev() {
            let next = self.node(inode, l, |b| {
                (l.pos + 1 < node::entries(b)).then(|| node::lblk(b, l.pos + 1))
            });
            if let Some(next) = next {
                return next;
            }
        }
        EXT_MAX_BLOCKS
    }

    /// First allocated block after the path's extent (kernel `ext4_ext_next_allocated_block`).
    pub(crate) fn next_allocated_block(&self, inode: &Inode, path: &ExtPath) -> u32 {
        let l = path.leaf();
        let next = self.node(inode, l, |b| {
            (l.pos + 1 < node::entries(b)).then(|| node::lblk(b, l.pos + 1))
        });
        next.unwrap_or_else(|| self.next_leaf_block(inode, path))
    }

    /// Closest allocated logical block to the left of `lblk` and its physical block.
    pub(crate) fn search_left(
        &self,
        inode: &Inode,
        path: &ExtPath,
        lblk: u32,
    ) -> Option<(u32, u64)> {
        let e = self.path_extent(inode, path)?;
        if lblk < e.lblk {
            return None;
        }
        let last = u32::from(e.len) - 1;
        Some((e.lblk + last, e.pblk + u64::from(last)))
    }

    /// Closest allocated extent to the right of `lblk`; may read the next leaf.
    pub(crate) async fn search_right(
        &self,
        inode: &Inode,
        path: &ExtPath,
        lblk: u32,
    ) -> FsResult<Option<Extent>> {
        let l = path.leaf();
        let Some(e) = self.path_extent(inode, path) else {
            return Ok(None);
        };
        if lblk < e.lblk {
            return Ok(Some(e));
        }
        let next = self.node(inode, l, |b| {
            (l.pos + 1 < node::entries(b)).then(|| Extent::decode(b, l.pos + 1))
        });
        if next.is_some() {
            return Ok(next);
        }
        let start = self.next_leaf_block(inode, path);
        if start == EXT_MAX_BLOCKS {
            return Ok(None);
        }
        let right = self.find_extent(inode, start).await?;
        Ok(self.path_extent(inode, &right))
    }

    /// Where to search for space for `lblk` (kernel `ext4_ext_find_goal`).
    pub(crate) fn ext_find_goal(&self, inode: &Inode, path: &ExtPath, lblk: u32) -> u64 {
        if let Some(e) = self.path_extent(inode, path) {
            return if lblk > e.lblk {
                e.pblk + u64::from(lblk - e.lblk)
            } else {
                e.pblk.saturating_sub(u64::from(e.lblk - lblk))
            };
        }
        match &path.leaf().bh {
            Some(bh) => bh.blocknr.0,
            None => self.inode_to_goal_block(inode).0,
        }
    }

    /// A block for a new node near what the path maps (kernel `ext4_ext_new_meta_block`).
    async fn ext_new_meta_block(
        &self,
        h: &mut Handle,
        inode: &Inode,
        path: &ExtPath,
        newex: &Extent,
        flags: MbFlags,
    ) -> FsResult<Rc<Buffer>> {
        let goal = self.ext_find_goal(inode, path, newex.lblk);
        let (block, _) = self
            .new_meta_blocks_n(h, inode, FsBlock(goal), 1, flags)
            .await?;
        self.ext_new_node(h, block).await
    }

    async fn ext_new_node(&self, h: &mut Handle, block: FsBlock) -> FsResult<Rc<Buffer>> {
        let bh = self.buffers.getblk(block);
        bh.set_role(Role::Extent);
        self.get_create_access(h, &bh).await?;
        bh.modify(|b| b.fill(0));
        bh.set(Bh::UPTODATE);
        bh.set(Bh::VERIFIED);
        Ok(bh)
    }

    /// Inserts an extent, joining it with a neighbour where that is possible (kernel `ext4_ext_insert_extent`).
    /// `nomerge`: keep it apart (it will be converted soon).
    pub(crate) async fn insert_extent(
        &self,
        h: &mut Handle,
        inode: &Inode,
        path: ExtPath,
        newex: Extent,
        (nomerge, mb): (bool, MbFlags),
    ) -> FsResult<()> {
        if newex.len == 0 {
            return Err(self.corrupt(Corrupt::new(
                CorruptKind::ExtentLength { lblk: newex.lblk },
                0,
            )));
        }
        let mut path = path;
        if !nomerge {
            if let Some(at) = self.try_extend(h, inode, &path, &newex).await? {
                return self.finish_insert(h, inode, path, Some(at)).await;
            }
        }
        if self.leaf_full(inode, &path) {
            path = self.find_room(h, inode, path, &newex, mb).await?;
        }
        self.ext_get_access(h, path.leaf()).await?;
        let l = path.leaf().clone();
        let pos = self.node_mut(inode, &l, |b| {
            let n = node::entries(b);
            let at = if n == 0 || newex.lblk < node::lblk(b, l.pos) {
                l.pos.min(n)
            } else {
                l.pos + 1
            };
            node::open_gap(b, at);
            newex.encode(b, at);
            at
        });
        let depth = path.depth();
        path.levels[depth].pos = pos;
        let merge = (!nomerge).then_some(pos);
        self.finish_insert(h, inode, path, merge).await
    }

    fn leaf_full(&self, inode: &Inode, path: &ExtPath) -> bool {
        self.node(inode, path.leaf(), |b| node::entries(b) >= node::max(b))
    }

    /// Tries to grow the path's extent, or the one after it, by `newex`: which one grew. The path stays where it
    /// is, as in the kernel, where the indexes are corrected by it afterwards.
    async fn try_extend(
        &self,
        h: &mut Handle,
        inode: &Inode,
        path: &ExtPath,
        newex: &Extent,
    ) -> FsResult<Option<u16>> {
        let Some(ex) = self.path_extent(inode, path) else {
            return Ok(None);
        };
        // The neighbour that is nearer to the new extent is the one to try (as the kernel steps the path).
        let mut at = path.leaf().pos;
        let (prev, next) = self.node(inode, path.leaf(), |b| {
            let prev = (at > 0).then(|| Extent::decode(b, at - 1));
            let next = (at + 1 < node::entries(b)).then(|| Extent::decode(b, at + 1));
            (prev, next)
        });
        let mut ex = ex;
        if let Some(next) = next.filter(|n| {
            newex.lblk > ex.lblk
                && newex.end() == u64::from(n.lblk)
                && ex.end() < u64::from(newex.lblk)
        }) {
            at += 1;
            ex = next;
        } else if let Some(prev) = prev.filter(|p| {
            newex.lblk < ex.lblk
                && p.end() == u64::from(newex.lblk)
                && newex.end() < u64::from(ex.lblk)
        }) {
            at -= 1;
            ex = prev;
        }
        let grown = if can_merge(&ex, newex) {
            Extent {
                len: ex.len + newex.len,
                ..ex
            }
        } else if can_merge(newex, &ex) {
            Extent {
                len: ex.len + newex.len,
                ..*newex
            }
        } else {
            return Ok(None);
        };
        self.ext_get_access(h, path.leaf()).await?;
        self.node_mut(inode, path.leaf(), |b| grown.encode(b, at));
        Ok(Some(at))
    }

    /// Joins the neighbours of extent `merge`, corrects the indexes, and dirties the leaf: the end of each insertion.
    async fn finish_insert(
        &self,
        h: &mut Handle,
        inode: &Inode,
        mut path: ExtPath,
        merge: Option<u16>,
    ) -> FsResult<()> {
        if let Some(at) = merge {
            self.try_to_merge(h, inode, &mut path, at).await?;
        }
        self.correct_indexes(h, inode, &path).await?;
        let l = path.leaf().clone();
        self.ext_dirty(h, inode, &l).await
    }

    /// Joins extent `at` of the path's leaf with its neighbours there, and the only leaf with the root if it fits
    /// there (kernel `ext4_ext_try_to_merge`).
    pub(crate) async fn try_to_merge(
        &self,
        h: &mut Handle,
        inode: &Inode,
        path: &mut ExtPath,
        at: u16,
    ) -> FsResult<()> {
        self.node_mut(inode, path.leaf(), |b| {
            let mut at = at;
            if at > 0 && merge_right(b, at - 1) {
                at -= 1;
            }
            while merge_right(b, at) {}
        });
        self.try_to_merge_up(h, inode, path).await
    }

    async fn try_to_merge_up(
        &self,
        h: &mut Handle,
        inode: &Inode,
        path: &mut ExtPath,
    ) -> FsResult<()> {
        if path.depth() != 1 {
            return Ok(());
        }
        let Some(bh) = path.leaf().bh.clone() else {
            return Ok(());
        };
        let root_entries = self.node(inode, &path.levels[0], node::entries);
        let n = bh.read(node::entries);
        let room = max_entries(60);
        if root_entries != 1 || n > room {
            return Ok(());
        }
        // Bitmap and descriptor, and a revoke: given up where the transaction has no room.
        if let Some(j) = self.journal().filter(|_| h.is_journalled()) {
            if !j.extend(h, 2, 1)? {
                return Ok(());
            }
        }
        let tail = bh.read(|b| b[12..12 + usize::from(n) * 12].to_vec());
        {
            let mut core = inode.core.borrow_mut();
            node::init(&mut core.i_block, 0);
            core.i_block[12..].fill(0);
            node::append(&mut core.i_block, &tail);
        }
        let pos = path.leaf().pos;
        let block = bh.blocknr;
        path.levels = vec![Level { bh: None, pos }];
        let flags = FreeFlags::METADATA.with(FreeFlags::FORGET);
        self.free_buffer_blocks(h, inode, Some(bh), block, 1, flags)
            .await
    }

    /// Makes the indexes above a leaf begin where it begins (kernel `ext4_ext_correct_indexes`).
    pub(crate) async fn correct_indexes(
        &self,
        h: &mut Handle,
        inode: &Inode,
        path: &ExtPath,
    ) -> FsResult<()> {
        let depth = path.depth();
        if depth == 0 || path.leaf().pos != 0 {
            return Ok(());
        }
        let (n, border) = self.node(inode, path.leaf(), |b| (node::entries(b), node::lblk(b, 0)));
        if n == 0 {
            return Ok(());
        }
        for k in (0..depth).rev() {
            let l = &path.levels[k];
            if k != depth - 1 && path.levels[k + 1].pos != 0 {
                break;
            }
            self.ext_get_access(h, l).await?;
            self.node_mut(inode, l, |b| {
                let mut ix = ExtentIdx::decode(b, l.pos);
                ix.lblk = border;
                ix.encode(b, l.pos);
            });
            self.ext_dirty(h, inode, l).await?;
        }
        Ok(())
    }

    /// A leaf with room for `newex`: the next one, or a new one.
    async fn find_room(
        &self,
        h: &mut Handle,
        inode: &Inode,
        path: ExtPath,
        newex: &Extent,
        mb: MbFlags,
    ) -> FsResult<ExtPath> {
        let after = self
            .path_extent(inode, &path)
            .is_some_and(|e| newex.lblk > e.lblk);
        // The next leaf serves only what lies past the last entry of this one.
        let last = self.node(inode, path.leaf(), |b| {
            path.leaf().pos + 1 >= node::entries(b)
        });
        let next = if after && last {
            self.next_leaf_block(inode, &path)
        } else {
            EXT_MAX_BLOCKS
        };
        if next != EXT_MAX_BLOCKS {
            let npath = self.find_extent(inode, next).await?;
            if !self.leaf_full(inode, &npath) {
                return Ok(npath);
            }
        }
        self.create_new_leaf(h, inode, path, newex, mb).await
    }

    /// Splits the path or grows the tree until the leaf for `newex` has room (kernel
    /// `ext4_ext_create_new_leaf`).
    async fn create_new_leaf(
        &self,
        h: &mut Handle,
        inode: &Inode,
        mut path: ExtPath,
        newex: &Extent,
        mb: MbFlags,
    ) -> FsResult<ExtPath> {
        loop {
            let depth = path.depth();
            let room = (0..depth)
                .rev()
                .find(|&i| self.node(inode, &path.levels[i], |b| node::entries(b) < node::max(b)));
            if let Some(at) = room {
                self.ext_split(h, inode, &path, newex, (at, mb)).await?;
                return self.find_extent(inode, newex.lblk).await;
            }
            if depth >= usize::from(EXT4_MAX_EXTENT_DEPTH) {
                return Err(FsError::Errno(Errno::EFBIG));
            }
            self.grow_indepth(h, inode, mb).await?;
            path = self.find_extent(inode, newex.lblk).await?;
            if !self.leaf_full(inode, &path) {
                return Ok(path);
            }
        }
    }

    /// Adds a level: the root's entries move to a new block (kernel `ext4_ext_grow_indepth`).
    async fn grow_indepth(&self, h: &mut Handle, inode: &Inode, mb: MbFlags) -> FsResult<()> {
        let root = Level { bh: None, pos: 0 };
        let (depth, first_leaf) = self.node(inode, &root, |b| {
            (node::depth(b), ExtentIdx::decode(b, 0).leaf)
        });
        let mut mb = mb;
        let goal = if depth > 0 && first_leaf > u64::from(self.geo.first_data_block) {
            mb = mb.with(MbFlags::HINT_TRY_GOAL);
            first_leaf - 1
        } else {
            self.inode_to_goal_block(inode).0
        };
        let (block, _) = self
            .new_meta_blocks_n(h, inode, FsBlock(goal), 1, mb)
            .await?;
        let bh = self.ext_new_node(h, block).await?;
        let (n, tail) = self.node(inode, &root, |b| {
            let n = node::entries(b);
            (n, b[12..12 + usize::from(n) * 12].to_vec())
        });
        bh.modify(|b| {
            node::init(b, depth);
            node::append(b, &tail);
        });
        self.ext_dirty_block(h, inode, &bh).await?;
        {
            let mut core = inode.core.borrow_mut();
            let first = if n > 0 {
                node::lblk(&core.i_block, 0)
            } else {
                0
            };
            node::init(&mut core.i_block, depth + 1);
            core.i_block[12..].fill(0);
            node::set_entries(&mut core.i_block, 1);
            ExtentIdx {
                lblk: first,
                leaf: block.0,
            }
            .encode(&mut core.i_block, 0);
        }
        let ino = inode.ino;
        self.sim.emit(Category::Structures, || Event::ExtentSplit {
            ino,
            depth: depth as u8 + 1,
            block,
        });
        self.mark_inode_dirty(h, inode).await
    }

    /// Splits the nodes of the path below level `at` behind the chosen entries: what follows moves to new nodes
    /// (kernel `ext4_ext_split`).
    async fn ext_split(
        &self,
        h: &mut Handle,
        inode: &Inode,
        path: &ExtPath,
        newex: &Extent,
        (at, mb): (usize, MbFlags),
    ) -> FsResult<()> {
        let depth = path.depth();
        let leaf = path.leaf();
        let border = self.node(inode, leaf, |b| {
            if leaf.pos + 1 < node::entries(b) {
                node::lblk(b, leaf.pos + 1)
            } else {
                newex.lblk
            }
        });
        let mut blocks: Vec<Rc<Buffer>> = Vec::with_capacity(depth - at);
        for _ in 0..depth - at {
            match self.ext_new_meta_block(h, inode, path, newex, mb).await {
                Ok(bh) => blocks.push(bh),
                Err(e) => {
                    for bh in blocks {
                        let block = bh.blocknr;
                        let flags = FreeFlags::METADATA;
                        self.free_buffer_blocks(h, inode, Some(bh), block, 1, flags)
                            .await?;
                    }
                    return Err(e);
                }
            }
        }
        let mut child: Option<FsBlock> = None;
        for (k, level) in (at + 1..=depth).rev().enumerate() {
            let Some(bh) = blocks.pop() else { break };
            let old = &path.levels[level];
            self.ext_get_access(h, old).await?;
            let (node_depth, tail) = self.node_mut(inode, old, |b| {
                (
                    node::depth(b),
                    node::cut_tail(b, (old.pos + 1).min(node::entries(b))),
                )
            });
            bh.modify(|b| {
                node::init(b, node_depth);
                if let Some(leaf) = child {
                    node::open_gap(b, 0);
                    ExtentIdx {
                        lblk: border,
                        leaf: leaf.0,
                    }
                    .encode(b, 0);
                }
                node::append(b, &tail);
            });
            debug_assert!(k > 0 || child.is_none());
            self.ext_dirty_block(h, inode, &bh).await?;
            self.ext_dirty(h, inode, old).await?;
            child = Some(bh.blocknr);
        }
        let Some(block) = child else { return Ok(()) };
        let ino = inode.ino;
        self.sim.emit(Category::Structures, || Event::ExtentSplit {
            ino,
            depth: depth as u8,
            block,
        });
        self.insert_index(h, inode, &path.levels[at], border, block)
            .await
    }

    /// Enters a child in an index node (kernel `ext4_ext_insert_index`).
    async fn insert_index(
        &self,
        h: &mut Handle,
        inode: &Inode,
        l: &Level,
        lblk: u32,
        leaf: FsBlock,
    ) -> FsResult<()> {
        self.ext_get_access(h, l).await?;
        let done = self.node_mut(inode, l, |b| {
            if node::entries(b) >= node::max(b) || lblk == node::lblk(b, l.pos) {
                return false;
            }
            let at = if lblk > node::lblk(b, l.pos) {
                l.pos + 1
            } else {
                l.pos
            };
            node::open_gap(b, at);
            ExtentIdx { lblk, leaf: leaf.0 }.encode(b, at);
            true
        });
        if !done {
            let kind = CorruptKind::ExtentOrder {
                lblk,
                previous_end: u64::from(lblk),
            };
            return Err(self.corrupt(Corrupt::new(kind, 0)));
        }
        self.ext_dirty(h, inode, l).await
    }

    /// Counts a lookup for the statistics.
    pub(crate) fn count_ext_map(&self) {
        Stats::inc(&self.stats.ext4_ext_map_blocks);
    }
}

/// True if `b` continues `a` and both fit in one extent (kernel `ext4_can_extents_be_merged`).
pub(crate) fn can_merge(a: &Extent, b: &Extent) -> bool {
    a.unwritten == b.unwritten
        && a.end() == u64::from(b.lblk)
        && a.pblk + u64::from(a.len) == b.pblk
        && u32::from(a.len) + u32::from(b.len) <= u32::from(Extent::max_len(a.unwritten))
}

/// Joins entry `i` with the next if possible.
fn merge_right(b: &mut [u8], i: u16) -> bool {
    if i + 1 >= node::entries(b) {
        return false;
    }
    let (a, c) = (Extent::decode(b, i), Extent::decode(b, i + 1));
    if !can_merge(&a, &c) {
        return false;
    }
    Extent {
        len: a.len + c.len,
        ..a
    }
    .encode(b, i);
    node::remove(b, i + 1);
    true
}
