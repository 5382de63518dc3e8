//! The metadata half of truncate and punch: what happens under `i_data_sem` (kernel `ext4_truncate`,
//! `ext4_punch_hole`). Page cache, partial blocks and locks of the inode are the callers'.

use super::extents_status::EsStatus;
use super::{flag, Ext4, Inode};
use crate::format::ext4::extent::EXT_MAX_BLOCKS;
use crate::fs::common::FsResult;
use crate::fs::jbd2::Handle;
use std::rc::Rc;

impl Ext4 {
    /// Frees all blocks past `i_size` under the caller's handle, which may be restarted: the inode goes on the
    /// orphan list first and leaves it at the end if it still has links (kernel `ext4_truncate` from its
    /// `ext4_orphan_add` on).
    pub async fn truncate_blocks(&self, h: &mut Handle, inode: &Rc<Inode>) -> FsResult<()> {
        if !self.can_truncate(inode) {
            return Ok(());
        }
        self.orphan_add(h, inode).await?;
        let done = self.truncate_locked(h, inode).await;
        // An inode being deleted keeps its place: it leaves the list when it is freed.
        if inode.core.borrow().nlink > 0 {
            self.orphan_del(Some(h), inode).await?;
        }
        let now = self.inode_set_ctime_current(inode);
        inode.core.borrow_mut().mtime = now;
        let marked = self.mark_inode_dirty(h, inode).await;
        done.and(marked)
    }

    async fn truncate_locked(&self, h: &mut Handle, inode: &Inode) -> FsResult<()> {
        let from = inode.end_lblk(self.geo.block_bits).0;
        let mut sem = Some(inode.i_data_sem.write().await);
        self.discard_preallocations(inode).await?;
        inode.disksize.set(inode.size());
        self.mark_inode_dirty(h, inode).await?;
        let delayed = inode.es.borrow_mut().remove(from, EXT_MAX_BLOCKS - from);
        self.da_release(inode, u64::from(delayed));
        self.remove_space(h, inode, &mut sem, from, EXT_MAX_BLOCKS - 1).await
    }

    /// True for inodes with blocks that size decides (kernel `ext4_can_truncate`).
    pub fn can_truncate(&self, inode: &Inode) -> bool {
        inode.is_reg()
            || inode.is_dir()
            || (inode.is_lnk() && !self.is_fast_symlink(inode))
    }

    /// Frees the blocks of `from..to` and marks them a hole (the part of `ext4_punch_hole` under `i_data_sem`).
    pub async fn punch_blocks(
        &self,
        h: &mut Handle,
        inode: &Inode,
        from: u32,
        to: u32,
    ) -> FsResult<()> {
        if from >= to {
            return Ok(());
        }
        let mut sem = Some(inode.i_data_sem.write().await);
        self.discard_preallocations(inode).await?;
        let delayed = inode.es.borrow_mut().remove(from, to - from);
        self.da_release(inode, u64::from(delayed));
        self.remove_space(h, inode, &mut sem, from, to - 1).await?;
        inode.es.borrow_mut().insert(from, to - from, 0, EsStatus::Hole);
        Ok(())
    }

    /// Frees the blocks of `from..=to` by extents or block map; takes `i_data_sem`.
    pub async fn ext_remove_space(
        &self,
        h: &mut Handle,
        inode: &Inode,
        from: u32,
        to: u32,
    ) -> FsResult<()> {
        let mut sem = Some(inode.i_data_sem.write().await);
        let delayed = inode.es.borrow_mut().remove(from, (to - from).saturating_add(1));
        self.da_release(inode, u64::from(delayed));
        self.remove_space(h, inode, &mut sem, from, to).await
    }

    async fn remove_space(
        &self,
        h: &mut Handle,
        inode: &Inode,
        sem: &mut Option<crate::sim::sync::WriteGuard>,
        from: u32,
        to: u32,
    ) -> FsResult<()> {
        if inode.has_flag(flag::INLINE_DATA) {
            return Ok(());
        }
        if inode.has_flag(flag::EXTENTS) {
            self.ext_remove_space_locked(h, inode, sem, from, to).await
        } else {
            self.ind_remove_space(h, inode, sem, from, to).await
        }
    }
}
