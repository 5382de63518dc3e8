//! Moving extents to other logical blocks, for collapse and insert range (kernel `ext4_ext_shift_extents`).

#![allow(
    clippy::unused_self,
    reason = "all operations are methods of the file system"
)]

use super::extents::{can_merge, ExtPath};
use super::extents_split::SplitFlags;
use super::{extent_node as node, Ext4, Inode};
use crate::base::Errno;
use crate::format::ext4::extent::{Extent, ExtentIdx, EXT_MAX_BLOCKS};
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::Handle;

impl Ext4 {
    /// Moves all extents that begin at or after `start` by `shift` blocks to the left (collapse) or right
    /// (insert). The range they move over holds no blocks. The caller holds `i_data_sem` for writing and has
    /// dropped cached mappings.
    pub async fn ext_shift(
        &self,
        h: &mut Handle,
        inode: &Inode,
        start: u32,
        shift: u32,
        right: bool,
    ) -> FsResult<()> {
        self.fc_mark_ineligible(h);
        let path = self.find_extent(inode, EXT_MAX_BLOCKS - 1).await?;
        let Some(last) = self.path_extent(inode, &path) else {
            return Ok(());
        };
        let stop = last.end();
        if right {
            if stop + u64::from(shift) > u64::from(EXT_MAX_BLOCKS) {
                return Err(FsError::Errno(Errno::EINVAL));
            }
        } else if shift > start {
            return Err(FsError::Errno(Errno::EINVAL));
        }
        // Only what moves is forgotten: blocks before it may still be delayed and hold reservations.
        let from = if right { start } else { start - shift };
        self.es_remove_range(inode, from, u32::MAX - from);
        if right {
            self.shift_right(h, inode, start, shift).await
        } else {
            self.shift_left(h, inode, start, shift).await
        }
    }

    /// Splits the extent that covers `at` so that one begins there (insert range).
    pub async fn split_before(&self, h: &mut Handle, inode: &Inode, at: u32) -> FsResult<()> {
        let path = self.find_extent(inode, at).await?;
        let Some(e) = self.path_extent(inode, &path) else {
            return Ok(());
        };
        if at <= e.lblk || u64::from(at) >= e.end() {
            return Ok(());
        }
        let flags = SplitFlags {
            unwrit1: e.unwritten,
            unwrit2: e.unwritten,
            ..SplitFlags::default()
        };
        self.split_extent_at(h, inode, path, at, flags, true).await
    }

    async fn shift_left(
        &self,
        h: &mut Handle,
        inode: &Inode,
        start: u32,
        shift: u32,
    ) -> FsResult<()> {
        let mut at = start;
        loop {
            let mut path = self.find_extent(inode, at).await?;
            let Some(e) = self.path_extent(inode, &path) else {
                return Ok(());
            };
            if e.lblk < at {
                let next = self.next_allocated_block(inode, &path);
                if next == EXT_MAX_BLOCKS {
                    return Ok(());
                }
                path = self.find_extent(inode, next).await?;
            }
            let next = self.shift_leaf(h, inode, &path, shift, false).await?;
            match next {
                Some(n) => at = n,
                None => return Ok(()),
            }
        }
    }

    async fn shift_right(
        &self,
        h: &mut Handle,
        inode: &Inode,
        start: u32,
        shift: u32,
    ) -> FsResult<()> {
        let mut upto = EXT_MAX_BLOCKS - 1;
        loop {
            let path = self.find_extent(inode, upto).await?;
            let l = path.leaf().clone();
            let first = self.node(inode, &l, |b| {
                (0..node::entries(b)).find(|&i| node::lblk(b, i) >= start)
            });
            let Some(first) = first else { return Ok(()) };
            let before = self.node(inode, &l, |b| node::lblk(b, 0));
            let mut p = path.clone();
            let depth = p.depth();
            p.levels[depth].pos = first;
            self.shift_leaf(h, inode, &p, shift, true).await?;
            let leftmost = path.levels[..depth].iter().all(|l| l.pos == 0);
            if first > 0 || before <= start || leftmost {
                return Ok(());
            }
            upto = before - 1;
        }
    }

    /// Moves the entries of one leaf from the path's on. For the left direction: the first block of the next leaf.
    async fn shift_leaf(
        &self,
        h: &mut Handle,
        inode: &Inode,
        path: &ExtPath,
        shift: u32,
        right: bool,
    ) -> FsResult<Option<u32>> {
        let l = path.leaf().clone();
        let from = l.pos;
        self.need_credits(h, path).await?;
        self.ext_get_access(h, &l).await?;
        let next = self.next_leaf_block(inode, path);
        self.node_mut(inode, &l, |b| {
            for i in from..node::entries(b) {
                let mut e = Extent::decode(b, i);
                e.lblk = if right {
                    e.lblk + shift
                } else {
                    e.lblk - shift
                };
                e.encode(b, i);
            }
            if !right && from > 0 {
                let (a, c) = (Extent::decode(b, from - 1), Extent::decode(b, from));
                if can_merge(&a, &c) {
                    Extent {
                        len: a.len + c.len,
                        ..a
                    }
                    .encode(b, from - 1);
                    node::remove(b, from);
                }
            }
        });
        self.ext_dirty(h, inode, &l).await?;
        if from == 0 {
            self.shift_indexes(h, inode, path).await?;
        }
        Ok((next != EXT_MAX_BLOCKS).then_some(next))
    }

    async fn need_credits(&self, h: &mut Handle, path: &ExtPath) -> FsResult<()> {
        let depth = path.depth() as u32 + 1;
        if let Some(j) = self.journal().filter(|_| h.is_journalled()) {
            if h.buffer_credits() < depth && !j.extend(h, depth, 0)? {
                j.restart(h, depth, 0).await?;
            }
        }
        Ok(())
    }

    async fn shift_indexes(&self, h: &mut Handle, inode: &Inode, path: &ExtPath) -> FsResult<()> {
        let border = self.node(inode, path.leaf(), |b| node::lblk(b, 0));
        for k in (0..path.depth()).rev() {
            let l = &path.levels[k];
            self.ext_get_access(h, l).await?;
            self.node_mut(inode, l, |b| {
                let mut ix = ExtentIdx::decode(b, l.pos);
                ix.lblk = border;
                ix.encode(b, l.pos);
            });
            self.ext_dirty(h, inode, l).await?;
            if l.pos != 0 {
                break;
            }
        }
        Ok(())
    }
}
