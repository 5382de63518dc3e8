//! The metadata half of truncate and punch: what happens under `i_data_sem` (kernel `ext4_truncate`). Page cache, partial blocks and locks of the inode are the callers'.

use super::{flag, Ext4, Inode};
use crate::format::ext4::extent::EXT_MAX_BLOCKS;
use crate::fs::common::FsResult;
use crate::fs::jbd2::Handle;
use std::rc::Rc;

impl Ext4 {
    /// Frees all blocks past `i_size` of an inode that is being deleted, under the caller's handle, which may be
    /// restarted; the inode goes on the orphan list first (kernel `ext4_truncate` as `ext4_evict_inode` calls it).
    pub(crate) async fn truncate_for_delete(
        &self,
        h: &mut Handle,
        inode: &Rc<Inode>,
    ) -> FsResult<()> {
        if !self.can_truncate(inode) {
            return Ok(());
        }
        self.orphan_add(h, inode).await?;
        {
            let _sem = inode.i_data_sem.write().await;
            self.discard_preallocations(inode).await?;
            inode.disksize.set(inode.size());
            self.mark_inode_dirty(h, inode).await?;
        }
        let done = self.truncate_blocks(h, inode).await;
        let now = self.inode_set_ctime_current(inode);
        inode.core.borrow_mut().mtime = now;
        let marked = self.mark_inode_dirty(h, inode).await;
        done.and(marked)
    }

    /// Frees all blocks past `i_size`; takes `i_data_sem`, lets it go while the handle is restarted (kernel
    /// `ext4_ext_truncate`, `ext4_ind_truncate`).
    pub async fn truncate_blocks(&self, h: &mut Handle, inode: &Inode) -> FsResult<()> {
        let from = inode.end_lblk(self.geo.block_bits).0;
        let mut sem = Some(inode.i_data_sem.write().await);
        let delayed = inode.es.borrow_mut().remove(from, EXT_MAX_BLOCKS - from);
        self.da_release(inode, u64::from(delayed));
        self.remove_space_locked(h, inode, &mut sem, from, EXT_MAX_BLOCKS - 1)
            .await
    }

    /// Frees the blocks of `from..=to` by extents or block map; takes `i_data_sem`. Cached mappings of the range
    /// are the caller's to drop.
    pub async fn remove_space(
        &self,
        h: &mut Handle,
        inode: &Inode,
        from: u32,
        to: u32,
    ) -> FsResult<()> {
        let mut sem = Some(inode.i_data_sem.write().await);
        self.remove_space_locked(h, inode, &mut sem, from, to).await
    }

    async fn remove_space_locked(
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
        self.fc_track_range(h, inode, from, to);
        if inode.has_flag(flag::EXTENTS) {
            self.ext_remove_space_locked(h, inode, sem, from, to).await
        } else {
            self.ind_remove_space(h, inode, sem, from, to).await
        }
    }
}
