//! Buffered writes that allocate their blocks at once: `nodelalloc`, a nearly full file system, and journalled
//! data (kernel `fs/ext4/inode.c`, `ext4_write_begin`, `ext4_write_end`, `ext4_journalled_write_end`).

use super::da::Chunk;
use super::extents_status::EsStatus;
use super::{Ext4, Inode, MapFlags, MapRequest, MappingKind};
use crate::base::Lblk;
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::{Handle, HandleType};
use crate::mm::folio::{blocks_touching, BlockMask};
use std::rc::Rc;

impl Ext4 {
    /// One folio's worth under a handle of its own. Returns bytes written.
    pub(super) async fn write_chunk_now(
        &self,
        inode: &Rc<Inode>,
        chunk: &Chunk<'_>,
    ) -> FsResult<u64> {
        let cost = self.write_cost(inode, chunk);
        self.sim.charge(cost).await;
        let mut retries = 0;
        loop {
            match self.write_chunk_once(inode, chunk).await {
                Err(FsError::NoSpace) if self.should_retry_alloc(&mut retries).await => {}
                other => return other,
            }
        }
    }

    async fn write_chunk_once(&self, inode: &Rc<Inode>, chunk: &Chunk<'_>) -> FsResult<u64> {
        let credits = self.write_begin_credits(inode);
        let mut h = self.journal_start(HandleType::WritePage, credits).await?;
        let mut done = 0;
        let mut res = Ok(());
        for (index, from, to) in chunk.pages() {
            res = self
                .write_page_now(&mut h, inode, chunk, (index, from, to))
                .await;
            if res.is_err() {
                break;
            }
            done += (to - from) as u64;
        }
        // A folio behind the end of the file is written whole or not at all.
        if res.is_err() && chunk.pos >= inode.size() {
            done = 0;
        }
        if done > 0 {
            let ended = self.write_end(&mut h, inode, chunk.pos + done).await;
            res = res.and(ended);
        }
        let extends = chunk.pos + chunk.len as u64 > inode.size();
        let orphan = res.is_err() && extends && self.can_truncate(inode);
        if orphan {
            // Blocks past the end are cut off below; the orphan list covers a crash before that.
            self.orphan_add(&mut h, inode).await?;
        }
        let stopped = self.journal_stop(h).await;
        if orphan {
            self.truncate_pagecache(inode, inode.size());
            self.truncate_inode(inode).await?;
        }
        match res.and(stopped) {
            Ok(()) => Ok(done),
            Err(_) if done > 0 => Ok(done),
            Err(e) => Err(e),
        }
    }

    /// Maps, fills and dirties one page.
    async fn write_page_now(
        &self,
        h: &mut Handle,
        inode: &Rc<Inode>,
        chunk: &Chunk<'_>,
        (index, from, to): (u64, usize, usize),
    ) -> FsResult<()> {
        inode.mapping.lock(index).await;
        let res = self
            .write_locked_page(h, inode, chunk, (index, from, to))
            .await;
        inode.mapping.unlock(index);
        res
    }

    async fn write_locked_page(
        &self,
        h: &mut Handle,
        inode: &Rc<Inode>,
        chunk: &Chunk<'_>,
        (index, from, to): (u64, usize, usize),
    ) -> FsResult<()> {
        let bs = self.geo.block_size;
        let touched = blocks_touching(from, to, bs);
        let on_disk = self.get_blocks(h, inode, index, touched).await?;
        self.fill_partial(inode, index, from, to, on_disk).await?;
        let journalled = self.should_journal_data(inode);
        if journalled {
            self.journalled_get_access(h, inode, index, touched).await?;
        }
        inode.mapping.with(index, |f| {
            chunk.copy_to(f, index, from, to);
            f.set_order(chunk.order);
            f.set_uptodate(touched);
        });
        if journalled {
            self.journalled_dirty(h, inode, index, touched)
        } else {
            inode.mapping.set_dirty(index, touched);
            Ok(())
        }
    }

    /// Gives the blocks of a page that are touched a place on disk; returns those that had contents there
    /// (kernel `ext4_get_block`, `ext4_get_block_unwritten`).
    async fn get_blocks(
        &self,
        h: &mut Handle,
        inode: &Rc<Inode>,
        index: u64,
        touched: BlockMask,
    ) -> FsResult<BlockMask> {
        let bs = self.geo.block_size;
        let base = index as u32 * (4096 / bs);
        let known = inode.mapping.with(index, |f| f.known()).unwrap_or(0);
        let unwritten = self.should_dioread_nolock(inode);
        let mut on_disk = 0;
        for b in 0..4096 / bs {
            let mask = 1 << b;
            if touched & mask == 0 {
                continue;
            }
            let status = self.cached_status(inode, base + b);
            let settled = match status {
                Some(EsStatus::Written) => true,
                Some(EsStatus::Unwritten) => unwritten,
                Some(EsStatus::Delayed) => known & mask != 0,
                _ => false,
            };
            if settled {
                if status == Some(EsStatus::Written) {
                    on_disk |= mask;
                }
            } else {
                let flags = if unwritten {
                    MapFlags::IO_CREATE_EXT
                } else {
                    MapFlags::CREATE
                };
                let request = MapRequest {
                    lblk: Lblk(base + b),
                    len: 1,
                    flags,
                };
                let m = self.map_blocks(Some(h), inode, request).await?;
                if m.kind == MappingKind::Mapped && !m.new {
                    on_disk |= mask;
                }
            }
            inode.mapping.with(index, |f| f.set_known(mask));
        }
        Ok(on_disk)
    }

    /// The file grows to `end` (kernel `ext4_write_end`: `ext4_update_inode_size`).
    async fn write_end(&self, h: &mut Handle, inode: &Rc<Inode>, end: u64) -> FsResult<()> {
        if self.should_journal_data(inode) {
            if let Some(tid) = h.tid() {
                inode.datasync_tid.set(tid);
            }
        }
        if self.update_inode_size(inode, end) {
            self.mark_dirty_nojournal(inode);
            self.mark_inode_dirty(h, inode).await?;
        }
        Ok(())
    }

    /// `ext4_update_inode_size`: true if either size changed.
    pub(crate) fn update_inode_size(&self, inode: &Inode, new: u64) -> bool {
        let mut changed = false;
        if new > inode.size() {
            inode.set_size(new);
            changed = true;
        }
        if new > inode.disksize.get() {
            inode.disksize.set(new);
            changed = true;
        }
        changed
    }
}
