//! Data journalling of single files (kernel `ext4_change_inode_journal_flag`), dropping caches, mount state queries.

use super::{flag, Ext4, Inode};
use crate::fs::common::FsResult;
use crate::fs::jbd2::HandleType;
use std::rc::Rc;

impl Ext4 {
    /// True while the file system takes changes.
    pub fn is_writable(&self) -> bool {
        self.writable.get()
    }

    /// `user.*` attributes are in use (mount option `user_xattr`, the default).
    pub fn user_xattr(&self) -> bool {
        self.opts.borrow().user_xattr.unwrap_or(true)
    }

    /// Drops clean pages, unused inodes and clean metadata buffers (`echo 3 > drop_caches`).
    pub async fn drop_caches(&self) -> FsResult<()> {
        self.drop_pagecache();
        self.prune_icache().await?;
        self.ea_block_cache.clear();
        self.buffers.drop_clean();
        Ok(())
    }

    /// Switches journalling of a file's contents on or off: what is cached is written and dropped first.
    pub async fn change_inode_journal_flag(&self, inode: &Rc<Inode>, on: bool) -> FsResult<()> {
        if self.journal().is_none() {
            return Ok(());
        }
        let lock = inode.mapping.invalidate_lock().write().await;
        self.write_and_wait(inode, 0, u64::MAX).await?;
        if let Some(j) = self.journal() {
            j.flush().await?;
        }
        inode.mapping.invalidate(0, u64::MAX);
        inode.set_flag(flag::JOURNAL_DATA, on);
        drop(lock);
        let mut h = self.journal_start(HandleType::Inode, 1).await?;
        let done = self.mark_inode_dirty(&mut h, inode).await;
        h.sync = true;
        self.end_handle(h, done).await
    }
}
