//! Changing the size of a file, and zeroing parts of blocks (kernel `fs/ext4/inode.c`, `ext4_setattr`,
//! `ext4_truncate`, `ext4_block_truncate_page`; `mm/truncate.c`).
//!
//! Waits: journal handles, `i_data_sem`, the invalidate lock, reads of partial blocks.

use super::extents_status::EsStatus;
use super::{flag, mode, state, Ext4, Inode, MapFlags, MapRequest, OrphanSlot};
use crate::base::{Errno, Lblk};
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::{Handle, HandleType};
use crate::mm::folio::blocks_within;
use crate::mm::{dirty, Tag};
use std::rc::Rc;

impl Ext4 {
    /// The size part of `ext4_setattr`: `truncate` and `ftruncate` (with `mtime`, which also sets that time when the
    /// size stays). Updates ctime. The caller holds `i_rwsem`.
    pub async fn setattr_size(&self, inode: &Rc<Inode>, size: u64, mtime: bool) -> FsResult<()> {
        let _frame = self.sim.frame("ext4_setattr");
        self.check_writable()?;
        let extents = inode.has_flag(flag::EXTENTS);
        if size > self.geo.max_bytes(extents) {
            return Err(FsError::Errno(Errno::EFBIG));
        }
        if !inode.is_reg() {
            return Err(FsError::Errno(Errno::EINVAL));
        }
        let old = inode.size();
        if inode.has_flag(flag::INLINE_DATA) {
            self.convert_inline_data(inode).await?;
        }
        let shrink = size < old;
        if shrink && self.should_order_data(inode) {
            self.begin_ordered_truncate(inode, size).await?;
        }
        let lock = inode.mapping.invalidate_lock().write().await;
        let mut orphan = false;
        if size != old {
            self.change_size(inode, old, size, &mut orphan).await?;
            if shrink && self.should_journal_data(inode) {
                self.wait_for_tail_page_commit(inode).await?;
            }
        }
        // `truncate_inode_pages` waits for writeback, and so for the conversion of unwritten extents.
        inode.mapping.wait_range(inode.size() >> 12, u64::MAX).await;
        self.truncate_pagecache(inode, inode.size());
        let res = if size <= old {
            self.truncate_inode(inode).await
        } else {
            Ok(())
        };
        drop(lock);
        if res.is_ok() {
            if size != old {
                self.inc_iversion(inode);
            }
            let now = self.inode_set_ctime_current(inode);
            if mtime {
                inode.core.borrow_mut().mtime = now;
            }
            self.dirty_inode(inode).await?;
            inode.mapping.mark_dirty(dirty::SYNC);
        }
        if orphan && inode.core.borrow().nlink > 0 && is_orphan(inode) {
            self.orphan_del(None, inode).await?;
        }
        res
    }

    /// Both sizes, in one handle.
    async fn change_size(
        &self,
        inode: &Rc<Inode>,
        old: u64,
        size: u64,
        orphan: &mut bool,
    ) -> FsResult<()> {
        let bs = u64::from(self.geo.block_size);
        let mut h = self.journal_start(HandleType::Inode, 3).await?;
        let mut res = Ok(());
        if size < old {
            if h.is_journalled() {
                res = self.orphan_add(&mut h, inode).await;
                *orphan = res.is_ok();
            }
        } else {
            let now = self.inode_set_ctime_current(inode);
            inode.core.borrow_mut().mtime = now;
            if old % bs != 0 {
                res = self.block_truncate_page(&mut h, inode, old).await;
            }
        }
        if res.is_ok() {
            {
                let _sem = inode.i_data_sem.write().await;
                inode.disksize.set(size);
                inode.set_size(size);
            }
            res = self.mark_inode_dirty(&mut h, inode).await;
        }
        let stopped = self.journal_stop(h).await;
        res.and(stopped)
    }

    /// Ordered data past the new end must not be waited for by a commit, and what is left of the tail must be
    /// written first (kernel `jbd2_journal_begin_ordered_truncate`).
    async fn begin_ordered_truncate(&self, inode: &Rc<Inode>, size: u64) -> FsResult<()> {
        let ji = inode.jinode.borrow().clone();
        let Some(ji) = ji else { return Ok(()) };
        let committing = self.journal().is_some_and(|j| j.is_committing(&ji));
        if committing {
            self.write_and_wait(inode, size, u64::MAX).await?;
        }
        Ok(())
    }

    /// The tail page of journalled data must not be logged any more when it is cut (kernel
    /// `ext4_wait_for_tail_page_commit`).
    async fn wait_for_tail_page_commit(&self, inode: &Rc<Inode>) -> FsResult<()> {
        let size = inode.size();
        if size % 4096 == 0 {
            return Ok(());
        }
        let bs = self.geo.block_size;
        let first = (size >> 12) as u32 * (4096 / bs);
        for lblk in first..first + 4096 / bs {
            let tid = inode
                .mapping
                .buffer(lblk)
                .and_then(|b| b.jh.borrow().transaction);
            match (tid, self.journal()) {
                (Some(tid), Some(j)) if Some(tid) != j.running_tid() => {
                    j.wait_commit(tid).await?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Frees the blocks past `i_size` (kernel `ext4_truncate`); also used for files that are deleted and for
    /// orphans at mount.
    pub async fn truncate_inode(&self, inode: &Rc<Inode>) -> FsResult<()> {
        if !self.can_truncate(inode) {
            return Ok(());
        }
        if inode.size() == 0 && self.opts.borrow().auto_da_alloc {
            inode.set_state(state::DA_ALLOC_CLOSE, true);
        }
        if inode.has_flag(flag::INLINE_DATA) {
            return Ok(());
        }
        let credits = self.truncate_credits(inode, 1);
        let mut h = self.journal_start(HandleType::Truncate, credits).await?;
        let mut res = self.truncate_in_handle(&mut h, inode).await;
        if inode.core.borrow().nlink > 0 {
            let del = self.orphan_del(Some(&mut h), inode).await;
            res = res.and(del);
        }
        let now = self.inode_set_ctime_current(inode);
        inode.core.borrow_mut().mtime = now;
        let marked = self.mark_inode_dirty(&mut h, inode).await;
        if inode.has_flag(flag::SYNC) {
            h.sync = true;
        }
        let stopped = self.journal_stop(h).await;
        res.and(marked).and(stopped)
    }

    async fn truncate_in_handle(&self, h: &mut Handle, inode: &Rc<Inode>) -> FsResult<()> {
        let size = inode.size();
        if size % u64::from(self.geo.block_size) != 0 {
            self.block_truncate_page(h, inode, size).await?;
        }
        self.orphan_add(h, inode).await?;
        let sem = inode.i_data_sem.write().await;
        self.discard_preallocations(inode).await?;
        inode.disksize.set(size);
        self.mark_inode_dirty(h, inode).await?;
        let from = inode.end_lblk(self.geo.block_bits);
        self.es_remove_range(inode, from.0, u32::MAX - from.0);
        drop(sem);
        self.truncate_blocks(h, inode).await
    }

    /// True if the inode has blocks that a truncate may free (kernel `ext4_can_truncate`).
    pub(crate) fn can_truncate(&self, inode: &Inode) -> bool {
        match inode.mode() & mode::S_IFMT {
            mode::S_IFREG | mode::S_IFDIR => true,
            mode::S_IFLNK => !self.is_fast_symlink(inode),
            _ => false,
        }
    }

    /// Drops the pages past `size` from the cache and zeroes the tail of the last one
    /// (kernel `truncate_pagecache`). Delayed blocks keep their reservation until their extents are removed.
    pub fn truncate_pagecache(&self, inode: &Inode, size: u64) {
        self.truncate_pagecache_range(inode, size, u64::MAX);
    }

    /// The same for bytes `start..end`: whole pages are dropped, partial ones zeroed
    /// (kernel `truncate_pagecache_range`).
    pub(super) fn truncate_pagecache_range(&self, inode: &Inode, start: u64, end: u64) {
        let m = &inode.mapping;
        if m.nrpages() == 0 {
            return;
        }
        let first = start.div_ceil(4096);
        let last = end >> 12;
        let (from, to) = ((start & 0xfff) as usize, (end & 0xfff) as usize);
        if start >> 12 == last && from != 0 {
            self.zero_cached(inode, start >> 12, from, to);
            return;
        }
        if from != 0 {
            self.zero_cached(inode, start >> 12, from, 4096);
        }
        let mut at = first;
        while let Some(i) = m.next(at, Tag::Present).filter(|i| *i < last) {
            at = i + 1;
            self.invalidate_journalled(inode, i, 0, 4096);
            m.delete(i);
        }
        if to != 0 && last != u64::MAX >> 12 {
            self.zero_cached(inode, last, 0, to);
        }
    }

    /// Zeroes bytes of a cached page; blocks that lie wholly in the range are clean and unmapped afterwards.
    fn zero_cached(&self, inode: &Inode, index: u64, from: usize, to: usize) {
        let whole = blocks_within(from, to, self.geo.block_size);
        self.invalidate_journalled(inode, index, from, to);
        let left = inode.mapping.with(index, |f| {
            f.zero_range(from, to);
            f.clear_dirty(whole);
            f.clear_known(whole);
            f.dirty() | f.journalled()
        });
        if left == Some(0) {
            inode.mapping.clear_dirty_for_io(index);
        }
    }

    /// Journalled blocks of a page that goes away leave the journal (kernel `jbd2_journal_invalidate_folio`).
    fn invalidate_journalled(&self, inode: &Inode, index: u64, from: usize, to: usize) {
        let bs = self.geo.block_size;
        let base = index as u32 * (4096 / bs);
        let journal = self.journal();
        for b in (from as u32).div_ceil(bs)..to as u32 / bs {
            let Some(bh) = inode.mapping.drop_buffer(base + b) else {
                continue;
            };
            match &journal {
                Some(j) => drop(j.invalidate_buffer(&bh, from != 0)),
                None => drop(self.buffers.clear_dirty(&bh)),
            }
            inode.mapping.with(index, |f| f.clear_journalled(1 << b));
        }
    }

    /// Zeroes the part of a block from byte `from` to the block's end (kernel `ext4_block_truncate_page`).
    pub(super) async fn block_truncate_page(
        &self,
        h: &mut Handle,
        inode: &Rc<Inode>,
        from: u64,
    ) -> FsResult<()> {
        let bs = u64::from(self.geo.block_size);
        self.block_zero_page_range(h, inode, from, bs - from % bs)
            .await
    }

    /// Zeroes `len` bytes at `from`, all within one block, in the page cache; the block becomes dirty, or joins the
    /// transaction where contents are journalled. Holes and unwritten blocks are left alone (kernel
    /// `__ext4_block_zero_page_range`).
    pub(super) async fn block_zero_page_range(
        &self,
        h: &mut Handle,
        inode: &Rc<Inode>,
        from: u64,
        len: u64,
    ) -> FsResult<()> {
        let bs = u64::from(self.geo.block_size);
        let len = len.min(bs - from % bs);
        if len == 0 {
            return Ok(());
        }
        let index = from >> 12;
        inode.mapping.lock(index).await;
        let res = self.zero_locked(h, inode, from, len as usize).await;
        inode.mapping.unlock(index);
        res
    }

    async fn zero_locked(
        &self,
        h: &mut Handle,
        inode: &Rc<Inode>,
        from: u64,
        len: usize,
    ) -> FsResult<()> {
        let bs = self.geo.block_size;
        let index = from >> 12;
        let at = (from & 0xfff) as usize;
        let b = at as u32 / bs;
        let mask = 1u8 << b;
        let lblk = (from >> self.geo.block_bits) as u32;
        let (known, uptodate) = inode
            .mapping
            .with(index, |f| (f.known() & mask != 0, f.uptodate() & mask != 0))
            .unwrap_or_default();
        let mut status = self.cached_status(inode, lblk);
        if status.is_none() {
            let request = MapRequest {
                lblk: Lblk(lblk),
                len: 1,
                flags: MapFlags::NONE,
            };
            self.map_blocks(None, inode, request).await?;
            status = self.cached_status(inode, lblk);
        }
        let present = match status {
            Some(EsStatus::Written) => true,
            Some(EsStatus::Delayed | EsStatus::Unwritten) => known,
            Some(EsStatus::Hole) | None => false,
        };
        if !present {
            return Ok(());
        }
        if !uptodate {
            self.read_blocks(inode, index, mask).await?;
        }
        let journalled = self.should_journal_data(inode);
        if journalled {
            self.journalled_get_access(h, inode, index, mask).await?;
        }
        inode.mapping.with(index, |f| {
            f.zero_range(at, at + len);
            f.set_known(mask);
        });
        if journalled {
            return self.journalled_dirty(h, inode, index, mask);
        }
        inode.mapping.set_dirty(index, mask);
        if status == Some(EsStatus::Written) && self.should_order_data(inode) {
            self.inode_add_write(h, inode, from, len as u64);
        }
        Ok(())
    }

    /// Forgets extents of a range; delayed blocks among them give their reservation back
    /// (kernel `ext4_es_remove_extent`).
    pub(super) fn es_remove_range(&self, inode: &Inode, lblk: u32, len: u32) {
        let delayed = inode.es.borrow_mut().remove(lblk, len);
        if delayed > 0 {
            self.da_release(inode, u64::from(delayed));
        }
    }
}

/// True if the inode is on the orphan list or in the orphan file.
pub(super) fn is_orphan(inode: &Inode) -> bool {
    inode.orphan.get() != OrphanSlot::None
}
