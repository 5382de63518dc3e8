//! Doors to the layers that are still being landed (`file`, `namei`); this file goes when they are in.

use super::{Ext4, Inode};
use crate::base::{Errno, Ino};
use crate::fs::common::FsResult;
use crate::fs::jbd2::HandleType;
use crate::mm::{AddressSpace, WritebackControl, WritebackOps};
use std::rc::Rc;

impl Ext4 {
    pub(crate) async fn truncate_inode(&self, inode: &Rc<Inode>) -> FsResult<()> {
        if !self.can_truncate(inode) {
            return Ok(());
        }
        let credits = self.blocks_for_truncate(inode);
        let mut h = self.journal_start(HandleType::Truncate, credits).await?;
        let done = self.truncate_for_delete(&mut h, inode).await;
        if inode.core.borrow().nlink > 0 {
            self.orphan_del(Some(&mut h), inode).await?;
        }
        self.journal_stop(h).await?;
        done
    }

    pub(crate) fn can_truncate(&self, inode: &Inode) -> bool {
        inode.is_reg() || inode.is_dir() || (inode.is_lnk() && !self.is_fast_symlink(inode))
    }

    pub(crate) fn truncate_pagecache(&self, inode: &Inode, size: u64) {
        let mut at = size.div_ceil(4096);
        while let Some(index) = inode.mapping.next(at, crate::mm::Tag::Present) {
            inode.mapping.cancel_dirty(index);
            inode.mapping.delete(index);
            at = index + 1;
        }
    }

    pub(crate) async fn alloc_da_blocks(&self, _i: &Rc<Inode>) -> FsResult<()> {
        Ok(())
    }

    pub(crate) async fn journal_submit_data(&self, _: Ino, _: u64, _: u64) -> FsResult<()> {
        Ok(())
    }

    pub(crate) async fn journal_wait_data(&self, _: Ino, _: u64, _: u64) -> FsResult<()> {
        Ok(())
    }

    pub(crate) async fn sync_filesystem(&self) -> FsResult<()> {
        self.sync_fs(false).await?;
        self.sync_fs(true).await?;
        self.buffers.write_dirty(None, true).await?;
        Ok(())
    }
}

impl WritebackOps for Ext4 {
    async fn writepages(
        &self,
        mapping: &AddressSpace,
        wbc: &mut WritebackControl,
    ) -> Result<(), Errno> {
        if mapping.ino().0 == 0 {
            let n = self.buffers.write_dirty(None, wbc.sync_all).await;
            wbc.nr_to_write -= n.map_err(|_| Errno::EIO)? as i64;
        }
        Ok(())
    }

    async fn write_inode(&self, _: &AddressSpace, _: &WritebackControl) -> Result<(), Errno> {
        Ok(())
    }

    fn bdev_dirty(&self) -> bool {
        self.buffers.dirty_bytes() > 0
    }
}
