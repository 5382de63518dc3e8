//! Removing ranges from extent trees, for truncate and punch (kernel `ext4_ext_remove_space`,
//! `ext4_ext_rm_leaf`): from right to left, in as many handles as it takes.

#![allow(
    clippy::unused_self,
    reason = "all operations are methods of the file system"
)]

use super::balloc::FreeFlags;
use super::extents::ExtPath;
use super::extents_split::SplitFlags;
use super::{extent_node as node, flag, Ext4, Inode};
use crate::base::FsBlock;
use crate::format::ext4::extent::{Extent, ExtentIdx, EXT_MAX_BLOCKS};
use crate::fs::common::FsResult;
use crate::fs::jbd2::Handle;
use crate::sim::sync::WriteGuard;

impl Ext4 {
    /// Frees the blocks of `from..=to` (kernel `ext4_ext_remove_space`). `sem` is the caller's `i_data_sem`, let go
    /// while the handle is restarted.
    pub(crate) async fn ext_remove_space_locked(
        &self,
        h: &mut Handle,
        inode: &Inode,
        sem: &mut Option<WriteGuard>,
        from: u32,
        to: u32,
    ) -> FsResult<()> {
        if to < EXT_MAX_BLOCKS - 1 {
            self.split_at_end(h, inode, to).await?;
        }
        // Where the next leaf to look at ends; falls with each leaf done.
        let mut upto = to;
        loop {
            let path = self.find_extent(inode, upto).await?;
            let Some(first) = self.leaf_first(inode, &path) else {
                break;
            };
            let restarted = self.rm_leaf(h, inode, sem, path, from, to).await?;
            if restarted {
                continue;
            }
            if first <= from || first == 0 {
                break;
            }
            upto = first - 1;
            if !self.any_mapped(inode, from, upto).await? {
                break;
            }
        }
        self.reset_empty_root(h, inode).await
    }

    fn leaf_first(&self, inode: &Inode, path: &ExtPath) -> Option<u32> {
        let l = path.leaf();
        self.node(inode, l, |b| {
            (node::entries(b) > 0).then(|| node::lblk(b, 0))
        })
    }

    async fn any_mapped(&self, inode: &Inode, from: u32, upto: u32) -> FsResult<bool> {
        let path = self.find_extent(inode, upto).await?;
        let e = self.path_extent(inode, &path);
        Ok(e.is_some_and(|e| e.lblk <= upto && e.end() > u64::from(from)))
    }

    /// An extent that reaches past the range is cut in two, so that its tail stays.
    async fn split_at_end(&self, h: &mut Handle, inode: &Inode, to: u32) -> FsResult<()> {
        let path = self.find_extent(inode, to).await?;
        let Some(e) = self.path_extent(inode, &path) else {
            return Ok(());
        };
        if to >= e.lblk && u64::from(to) + 1 < e.end() {
            let flags = SplitFlags {
                unwrit1: e.unwritten,
                unwrit2: e.unwritten,
                ..SplitFlags::default()
            };
            self.split_extent_at(h, inode, path, to + 1, flags, true)
                .await?;
        }
        Ok(())
    }

    fn free_flags(&self, inode: &Inode) -> FreeFlags {
        if inode.is_dir() || inode.is_lnk() || inode.has_flag(flag::EA_INODE) {
            FreeFlags::METADATA.with(FreeFlags::FORGET)
        } else if self.should_journal_data(inode) {
            FreeFlags::FORGET
        } else {
            FreeFlags::NONE
        }
    }

    /// Removes what lies in `from..=to` from the path's leaf, last extent first. True if the handle was restarted
    /// before the leaf was done: the caller looks again.
    async fn rm_leaf(
        &self,
        h: &mut Handle,
        inode: &Inode,
        sem: &mut Option<WriteGuard>,
        path: ExtPath,
        from: u32,
        to: u32,
    ) -> FsResult<bool> {
        let l = path.leaf().clone();
        let mut correct_index = false;
        loop {
            let last = self.node(inode, &l, |b| {
                (0..node::entries(b))
                    .rev()
                    .map(|i| (i, Extent::decode(b, i)))
                    .find(|(_, e)| e.lblk <= to)
            });
            let Some((i, e)) = last.filter(|(_, e)| e.end() > u64::from(from)) else {
                break;
            };
            let a = e.lblk.max(from);
            let b_end = (e.end() - 1).min(u64::from(to)) as u32;
            let mut credits = 7 + 2 * (u32::from(e.len) / self.geo.blocks_per_group);
            if i == 0 {
                credits += path.depth() as u32 + 1;
            }
            let revoke = self.revoke_credits(path.depth() as u32)
                + self.data_revoke_credits(inode, b_end - a + 1);
            if self
                .ensure_credits(h, inode, sem, (credits, credits, revoke))
                .await?
            {
                return Ok(true);
            }
            self.ext_get_access(h, &l).await?;
            correct_index |= i == 0;
            self.remove_blocks(h, inode, &e, (a, b_end)).await?;
            self.node_mut(inode, &l, |b| {
                if a == e.lblk {
                    node::remove(b, i);
                } else {
                    Extent {
                        len: (a - e.lblk) as u16,
                        ..e
                    }
                    .encode(b, i);
                }
            });
            self.ext_dirty(h, inode, &l).await?;
            if a != e.lblk {
                break;
            }
        }
        let n = self.node(inode, &l, node::entries);
        if correct_index && n > 0 {
            let mut p = path.clone();
            let depth = p.depth();
            p.levels[depth].pos = 0;
            self.correct_indexes(h, inode, &p).await?;
        }
        if n == 0 && path.depth() > 0 {
            self.rm_idx(h, inode, sem, &path).await?;
        }
        Ok(false)
    }

    /// Frees blocks `a..=b` of extent `e` (kernel `ext4_remove_blocks`).
    async fn remove_blocks(
        &self,
        h: &mut Handle,
        inode: &Inode,
        e: &Extent,
        (a, b): (u32, u32),
    ) -> FsResult<()> {
        let pblk = FsBlock(e.pblk + u64::from(a - e.lblk));
        let flags = self.free_flags(inode);
        self.free_blocks(h, inode, pblk, b - a + 1, flags).await
    }

    /// Frees an empty leaf, and each index node that becomes empty with it (kernel `ext4_ext_rm_idx`).
    async fn rm_idx(
        &self,
        h: &mut Handle,
        inode: &Inode,
        _sem: &mut Option<WriteGuard>,
        path: &ExtPath,
    ) -> FsResult<()> {
        let flags = FreeFlags::METADATA.with(FreeFlags::FORGET);
        for k in (0..path.depth()).rev() {
            let l = &path.levels[k];
            self.ext_get_access(h, l).await?;
            let (leaf, left, first) = self.node_mut(inode, l, |b| {
                let leaf = ExtentIdx::decode(b, l.pos).leaf;
                node::remove(b, l.pos);
                let n = node::entries(b);
                if k == 0 && n == 0 {
                    // An index without entries is no legal node: the root is an empty leaf from here on.
                    node::set_depth(b, 0);
                }
                (leaf, n, if n > 0 { node::lblk(b, 0) } else { 0 })
            });
            self.ext_dirty(h, inode, l).await?;
            let bh = path.levels[k + 1].bh.clone();
            self.free_buffer_blocks(h, inode, bh, FsBlock(leaf), 1, flags)
                .await?;
            if left > 0 {
                if l.pos == 0 {
                    self.correct_upper(h, inode, path, k, first).await?;
                }
                break;
            }
        }
        Ok(())
    }

    /// The first entry of index node `k` went away: the indexes above begin where its new first does.
    async fn correct_upper(
        &self,
        h: &mut Handle,
        inode: &Inode,
        path: &ExtPath,
        k: usize,
        border: u32,
    ) -> FsResult<()> {
        for j in (0..k).rev() {
            let l = &path.levels[j];
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

    /// A tree without entries is an empty leaf in the inode again.
    async fn reset_empty_root(&self, h: &mut Handle, inode: &Inode) -> FsResult<()> {
        let empty = {
            let mut core = inode.core.borrow_mut();
            let empty = node::entries(&core.i_block) == 0;
            if empty {
                node::init(&mut core.i_block, 0);
                node::set_depth(&mut core.i_block, 0);
            }
            empty
        };
        if empty {
            self.mark_inode_dirty(h, inode).await?;
        }
        Ok(())
    }
}
