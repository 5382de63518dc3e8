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

/// What [`Ext4::write_begin`] has done so far.
#[derive(Default)]
struct Begun {
    /// Pages it holds locked.
    locked: Vec<u64>,
    /// Pages with the blocks that were mapped just now (`BH_New`).
    fresh: Vec<(u64, BlockMask)>,
}

impl Begun {
    fn note_fresh(&mut self, index: u64, mask: BlockMask) {
        match self.fresh.last_mut() {
            Some((i, m)) if *i == index => *m |= mask,
            _ => self.fresh.push((index, mask)),
        }
    }
}

impl Ext4 {
    /// One folio's worth under a handle of its own: all of it or nothing. Returns bytes written.
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
        let mut begun = Begun::default();
        let mut res = self.write_begin(&mut h, inode, chunk, &mut begun).await;
        res = match res {
            Ok(()) => self.copy_chunk(&mut h, inode, chunk),
            Err(e) => {
                chunk.make_folio(&inode.mapping);
                let zeroed = self.zero_new_buffers(&mut h, inode, &begun).await;
                zeroed.and(Err(e))
            }
        };
        for index in begun.locked {
            inode.mapping.unlock(index);
        }
        let end = chunk.pos + chunk.len as u64;
        if res.is_ok() {
            res = self.write_end(&mut h, inode, end).await;
        }
        let orphan = res.is_err() && end > inode.size() && self.can_truncate(inode);
        if orphan {
            // Blocks past the end are cut off below; the orphan list covers a crash before that.
            self.orphan_add(&mut h, inode).await?;
        }
        let stopped = self.journal_stop(h).await;
        if orphan {
            self.truncate_failed_write(inode).await?;
        }
        res.and(stopped)?;
        Ok(chunk.len as u64)
    }

    /// Locks the pages of a folio, maps what the write touches and makes partly written blocks valid
    /// (kernel `ext4_block_write_begin`, and for journalled data `do_journal_get_write_access`).
    async fn write_begin(
        &self,
        h: &mut Handle,
        inode: &Rc<Inode>,
        chunk: &Chunk<'_>,
        begun: &mut Begun,
    ) -> FsResult<()> {
        let bs = self.geo.block_size;
        for (index, from, to) in chunk.pages() {
            inode.mapping.lock(index).await;
            begun.locked.push(index);
            let touched = blocks_touching(from, to, bs);
            let on_disk = self.get_blocks(h, inode, index, touched, begun).await?;
            self.fill_partial(inode, index, from, to, on_disk).await?;
        }
        if self.should_journal_data(inode) {
            for (index, from, to) in chunk.pages() {
                let touched = blocks_touching(from, to, bs);
                self.journalled_get_access(h, inode, index, touched).await?;
            }
        }
        Ok(())
    }

    /// Copies the bytes into the locked pages and dirties these.
    fn copy_chunk(&self, h: &mut Handle, inode: &Rc<Inode>, chunk: &Chunk<'_>) -> FsResult<()> {
        let journalled = self.should_journal_data(inode);
        for (index, from, to) in chunk.pages() {
            let touched = blocks_touching(from, to, self.geo.block_size);
            inode.mapping.with(index, |f| {
                chunk.copy_to(f, index, from, to);
                f.set_order(chunk.order);
                f.set_uptodate(touched);
            });
            if journalled {
                self.journalled_dirty(h, inode, index, touched)?;
            } else {
                inode.mapping.set_dirty(index, touched);
            }
        }
        Ok(())
    }

    /// A folio could not be mapped as a whole: the blocks it got become dirty zeroes, so that nothing old is seen in
    /// them (kernel `folio_zero_new_buffers`, `ext4_journalled_zero_new_buffers`).
    async fn zero_new_buffers(
        &self,
        h: &mut Handle,
        inode: &Rc<Inode>,
        begun: &Begun,
    ) -> FsResult<()> {
        for &(index, mask) in &begun.fresh {
            self.zero_blocks(inode, index, mask);
            if self.should_journal_data(inode) {
                self.journalled_get_access(h, inode, index, mask).await?;
                self.journalled_dirty(h, inode, index, mask)?;
            } else {
                inode.mapping.set_dirty(index, mask);
            }
        }
        Ok(())
    }

    /// Makes the blocks of `mask` that are not valid yet read as zero.
    pub(super) fn zero_blocks(&self, inode: &Inode, index: u64, mask: BlockMask) {
        let bs = self.geo.block_size as usize;
        inode.mapping.with(index, |f| {
            let invalid = mask & !f.uptodate();
            for b in (0..4096 / bs).filter(|b| invalid & (1 << b) != 0) {
                f.zero_range(b * bs, (b + 1) * bs);
            }
            f.set_uptodate(mask);
        });
    }

    /// Gives the blocks of a page that are touched a place on disk; returns those that had contents there
    /// (kernel `ext4_get_block`, `ext4_get_block_unwritten`).
    async fn get_blocks(
        &self,
        h: &mut Handle,
        inode: &Rc<Inode>,
        index: u64,
        touched: BlockMask,
        begun: &mut Begun,
    ) -> FsResult<BlockMask> {
        let bs = self.geo.block_size;
        let base = index as u32 * (4096 / bs);
        let known = inode.mapping.with(index, |f| f.known()).unwrap_or(0);
        let unwritten = self.should_dioread_nolock(inode);
        let flags = if unwritten {
            MapFlags::CREATE.with(MapFlags::UNWRIT_EXT)
        } else {
            MapFlags::CREATE
        };
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
                let request = MapRequest {
                    lblk: Lblk(base + b),
                    len: 1,
                    flags,
                };
                let m = self.map_blocks(Some(h), inode, request).await?;
                if m.kind == MappingKind::Mapped && !m.new {
                    on_disk |= mask;
                } else {
                    begun.note_fresh(index, mask);
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
