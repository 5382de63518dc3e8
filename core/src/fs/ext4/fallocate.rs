//! fallocate in all its modes (kernel `fs/ext4/extents.c`, `ext4_fallocate` and below; `inode.c`,
//! `ext4_punch_hole`), with the kernel's order of checks.
//!
//! Waits: `i_rwsem`, the invalidate lock, journal handles, `i_data_sem`, writeback of the range.

use super::extents_status::EsStatus;
use super::{flag, Ext4, Inode, MapFlags, MapRequest};
use crate::base::{Errno, Lblk};
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::{Handle, HandleType};
use std::rc::Rc;

/// Mode bits (`linux/falloc.h`).
mod bits {
    pub(super) const KEEP_SIZE: u32 = 1;
    pub(super) const PUNCH_HOLE: u32 = 2;
    pub(super) const COLLAPSE_RANGE: u32 = 8;
    pub(super) const ZERO_RANGE: u32 = 0x10;
    pub(super) const INSERT_RANGE: u32 = 0x20;
    pub(super) const SUPPORTED: u32 =
        KEEP_SIZE | PUNCH_HOLE | COLLAPSE_RANGE | ZERO_RANGE | INSERT_RANGE;
}

/// Allocates unwritten extents (`EXT4_GET_BLOCKS_CREATE_UNWRIT_EXT`).
const CREATE_UNWRIT_EXT: MapFlags = MapFlags::CREATE.with(MapFlags::UNWRIT_EXT);
/// Longest unwritten extent (`EXT_UNWRITTEN_MAX_LEN`).
const EXT_UNWRITTEN_MAX_LEN: u32 = 32767;

impl Ext4 {
    /// `fallocate(2)` on a regular file. What only needs the descriptor or the plain numbers is checked by the
    /// caller (`vfs_fallocate`). Errors: `EOPNOTSUPP` for modes or files that cannot, `EINVAL` for ranges not
    /// aligned or past the end, `EFBIG`, `ENOSPC`.
    pub async fn fallocate(
        &self,
        inode: &Rc<Inode>,
        mode: u32,
        offset: u64,
        len: u64,
    ) -> FsResult<()> {
        let _frame = self.sim.frame("ext4_fallocate");
        if mode & !bits::SUPPORTED != 0 {
            return Err(FsError::Errno(Errno::EOPNOTSUPP));
        }
        self.check_writable()?;
        let _guard = inode.rwsem.write().await;
        if inode.has_flag(flag::INLINE_DATA) {
            self.convert_inline_data(inode).await?;
        }
        self.file_update_time(inode).await?;
        if mode & !bits::KEEP_SIZE == 0 {
            return self.do_fallocate(inode, mode, offset, len).await;
        }
        let _lock = inode.mapping.invalidate_lock().write().await;
        match mode & !bits::KEEP_SIZE {
            bits::PUNCH_HOLE => self.punch_hole(inode, offset, len).await,
            bits::COLLAPSE_RANGE => self.collapse_range(inode, offset, len).await,
            bits::INSERT_RANGE => self.insert_range(inode, offset, len).await,
            bits::ZERO_RANGE => self.zero_range(inode, mode, offset, len).await,
            _ => Err(FsError::Errno(Errno::EOPNOTSUPP)),
        }
    }

    /// The size after the call, if it grows (first checks of `ext4_do_fallocate`, `ext4_zero_range`).
    fn new_size(&self, inode: &Inode, mode: u32, end: u64) -> FsResult<u64> {
        if !inode.has_flag(flag::EXTENTS) {
            return Err(FsError::Errno(Errno::EOPNOTSUPP));
        }
        let grows = end > inode.size() || end > inode.disksize.get();
        if mode & bits::KEEP_SIZE != 0 || !grows {
            return Ok(0);
        }
        if end > self.geo.max_bytes(true) {
            return Err(FsError::Errno(Errno::EFBIG));
        }
        Ok(end)
    }

    /// First block and number of blocks that overlap a byte range (`EXT4_MAX_BLOCKS`).
    fn block_span(&self, offset: u64, len: u64) -> (u32, u32) {
        let b = self.geo.block_bits;
        let first = offset >> b;
        let last = (offset + len - 1) >> b;
        (
            first as u32,
            (last - first + 1).min(u64::from(u32::MAX)) as u32,
        )
    }

    async fn do_fallocate(
        &self,
        inode: &Rc<Inode>,
        mode: u32,
        offset: u64,
        len: u64,
    ) -> FsResult<()> {
        let new_size = self.new_size(inode, mode, offset + len)?;
        let (lblk, n) = self.block_span(offset, len);
        self.alloc_file_blocks(inode, lblk, n, new_size, CREATE_UNWRIT_EXT)
            .await
    }

    /// Allocates unwritten blocks, one handle per extent (kernel `ext4_alloc_file_blocks`).
    async fn alloc_file_blocks(
        &self,
        inode: &Rc<Inode>,
        lblk: u32,
        len: u32,
        new_size: u64,
        flags: MapFlags,
    ) -> FsResult<()> {
        let mut flags = flags;
        if len <= EXT_UNWRITTEN_MAX_LEN {
            flags = flags.with(MapFlags::NO_NORMALIZE);
        }
        let credits = self.chunk_trans_blocks(inode, len);
        let (mut at, mut left) = (lblk, len);
        let mut retries = 0;
        while left > 0 {
            let mut h = self.journal_start(HandleType::MapBlocks, credits).await?;
            let request = MapRequest {
                lblk: Lblk(at),
                len: left,
                flags,
            };
            let mapped = self.map_blocks(Some(&mut h), inode, request).await;
            let res = match &mapped {
                Ok(m) => {
                    at += m.len;
                    left -= m.len.min(left);
                    self.note_allocated(&mut h, inode, at, new_size).await
                }
                Err(_) => self.mark_inode_dirty(&mut h, inode).await,
            };
            self.journal_stop(h).await?;
            match mapped {
                Ok(m) if m.len == 0 => return Err(FsError::Errno(Errno::EIO)),
                Ok(_) => {
                    retries = 0;
                    res?;
                }
                Err(FsError::NoSpace) if self.should_retry_alloc(&mut retries).await => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Times and sizes after blocks up to `next` were allocated.
    async fn note_allocated(
        &self,
        h: &mut Handle,
        inode: &Rc<Inode>,
        next: u32,
        new_size: u64,
    ) -> FsResult<()> {
        let ctime = self.inode_set_ctime_current(inode);
        if new_size > 0 {
            let old = inode.size();
            let end = (u64::from(next) << self.geo.block_bits).min(new_size);
            if self.update_inode_size(inode, end) && inode.size() > old {
                inode.core.borrow_mut().mtime = ctime;
            }
        }
        self.mark_inode_dirty(h, inode).await?;
        self.update_inode_fsync_trans(h, inode, true);
        Ok(())
    }

    /// `i_disksize` catches up with `i_size` before blocks up to the end go away, so that a crash does not cut off
    /// what was written there (kernel `ext4_update_disksize_before_punch`).
    async fn update_disksize_before_punch(
        &self,
        inode: &Rc<Inode>,
        offset: u64,
        len: u64,
    ) -> FsResult<()> {
        let size = inode.size();
        if offset > size || offset + len < size || inode.disksize.get() >= size {
            return Ok(());
        }
        let mut h = self.journal_start(HandleType::Misc, 1).await?;
        inode.disksize.set(size);
        let res = self.mark_inode_dirty(&mut h, inode).await;
        let stopped = self.journal_stop(h).await;
        res.and(stopped)
    }

    /// Drops the whole blocks of a range from the page cache (kernel `ext4_truncate_page_cache_block_range`).
    async fn drop_cached_range(&self, inode: &Rc<Inode>, start: u64, end: u64) -> FsResult<()> {
        if self.should_journal_data(inode) {
            self.write_and_wait(inode, start, end - 1).await?;
        } else {
            inode.mapping.wait_range(start >> 12, (end - 1) >> 12).await;
        }
        let bs = u64::from(self.geo.block_size);
        let (a, b) = (start.next_multiple_of(bs), end - end % bs);
        if a < b {
            self.truncate_pagecache_range(inode, a, b);
        }
        Ok(())
    }

    /// Zeroes the partial blocks at both ends of a range (kernel `ext4_zero_partial_blocks`).
    async fn zero_partial_blocks(
        &self,
        h: &mut Handle,
        inode: &Rc<Inode>,
        start: u64,
        len: u64,
    ) -> FsResult<()> {
        let bs = u64::from(self.geo.block_size);
        let last = start + len - 1;
        let (head, tail) = (start % bs, last % bs);
        if start / bs == last / bs && (head != 0 || tail != bs - 1) {
            return self.block_zero_page_range(h, inode, start, len).await;
        }
        if head != 0 {
            self.block_zero_page_range(h, inode, start, bs).await?;
        }
        if tail != bs - 1 {
            self.block_zero_page_range(h, inode, last - tail, tail + 1)
                .await?;
        }
        Ok(())
    }

    async fn punch_hole(&self, inode: &Rc<Inode>, offset: u64, len: u64) -> FsResult<()> {
        let bs = u64::from(self.geo.block_size);
        let size = inode.size();
        if offset >= size {
            return Ok(());
        }
        let mut end = offset + len;
        if end > size {
            end = size.next_multiple_of(4096);
        }
        let max = self.geo.max_bytes(inode.has_flag(flag::EXTENTS)) - bs;
        end = end.min(max);
        if end <= offset {
            return Ok(());
        }
        let len = end - offset;
        self.update_disksize_before_punch(inode, offset, len)
            .await?;
        self.drop_cached_range(inode, offset, end).await?;
        let credits = self.truncate_credits(inode, 2);
        let mut h = self.journal_start(HandleType::Truncate, credits).await?;
        let mut res = self.zero_partial_blocks(&mut h, inode, offset, len).await;
        if res.is_ok() {
            let (first, next) = (offset.div_ceil(bs) as u32, (end / bs) as u32);
            if next > first {
                res = self.punch_blocks(&mut h, inode, first, next).await;
            }
        }
        self.touch_and_stop(h, inode, res).await
    }

    /// Frees blocks `first..next`, which become a hole.
    async fn punch_blocks(
        &self,
        h: &mut Handle,
        inode: &Rc<Inode>,
        first: u32,
        next: u32,
    ) -> FsResult<()> {
        {
            let _sem = inode.i_data_sem.write().await;
            self.discard_preallocations(inode).await?;
            self.es_remove_range(inode, first, next - first);
        }
        self.remove_space(h, inode, first, next - 1).await?;
        let mut es = inode.es.borrow_mut();
        es.insert(first, next - first, 0, EsStatus::Hole);
        Ok(())
    }

    /// Common end of the modes: times, inode, fsync's transaction, handle.
    async fn touch_and_stop(
        &self,
        mut h: Handle,
        inode: &Rc<Inode>,
        res: FsResult<()>,
    ) -> FsResult<()> {
        let mut res = res;
        if res.is_ok() {
            let now = self.inode_set_ctime_current(inode);
            inode.core.borrow_mut().mtime = now;
            res = self.mark_inode_dirty(&mut h, inode).await;
            self.update_inode_fsync_trans(&h, inode, true);
            if inode.has_flag(flag::SYNC) {
                h.sync = true;
            }
        }
        let stopped = self.journal_stop(h).await;
        res.and(stopped)
    }

    async fn zero_range(
        &self,
        inode: &Rc<Inode>,
        mode: u32,
        offset: u64,
        len: u64,
    ) -> FsResult<()> {
        let bs = u64::from(self.geo.block_size);
        let end = offset + len;
        let new_size = self.new_size(inode, mode, end)?;
        let aligned = offset % bs == 0 && end % bs == 0;
        let flags = CREATE_UNWRIT_EXT;
        if !aligned {
            let (lblk, n) = self.block_span(offset, len);
            self.alloc_file_blocks(inode, lblk, n, new_size, flags)
                .await?;
        }
        self.update_disksize_before_punch(inode, offset, len)
            .await?;
        self.drop_cached_range(inode, offset, end).await?;
        let (first, next) = (offset.div_ceil(bs) as u32, (end / bs) as u32);
        if next > first {
            let flags = flags.with(MapFlags::CONVERT_UNWRITTEN);
            self.alloc_file_blocks(inode, first, next - first, new_size, flags)
                .await?;
        }
        if aligned {
            return Ok(());
        }
        let mut credits = 2 * self.ext_index_trans_blocks(2) + 1;
        if self.should_journal_data(inode) {
            credits += 2;
        }
        let mut h = self.journal_start(HandleType::Misc, credits).await?;
        let mut res = self.zero_partial_blocks(&mut h, inode, offset, len).await;
        if res.is_ok() {
            if new_size > 0 {
                self.update_inode_size(inode, new_size);
            }
            res = self.mark_inode_dirty(&mut h, inode).await;
            self.update_inode_fsync_trans(&h, inode, true);
        }
        let stopped = self.journal_stop(h).await;
        res.and(stopped)
    }

    /// Checks shared by collapse and insert.
    fn shift_checks(&self, inode: &Inode, offset: u64, len: u64) -> FsResult<()> {
        if !inode.has_flag(flag::EXTENTS) {
            return Err(FsError::Errno(Errno::EOPNOTSUPP));
        }
        let cluster = u64::from(self.geo.block_size) * u64::from(self.geo.cluster_ratio);
        if offset % cluster != 0 || len % cluster != 0 {
            return Err(FsError::Errno(Errno::EINVAL));
        }
        Ok(())
    }

    async fn collapse_range(&self, inode: &Rc<Inode>, offset: u64, len: u64) -> FsResult<()> {
        self.shift_checks(inode, offset, len)?;
        let end = offset + len;
        if end >= inode.size() {
            return Err(FsError::Errno(Errno::EINVAL));
        }
        let start = offset & !0xfff;
        if offset > start {
            self.write_and_wait(inode, start, offset - 1).await?;
        }
        self.write_and_wait(inode, end, u64::MAX).await?;
        inode.mapping.wait_range(start >> 12, u64::MAX).await;
        self.truncate_pagecache(inode, start);
        let credits = self.truncate_credits(inode, 1);
        let mut h = self.journal_start(HandleType::Truncate, credits).await?;
        let bits = self.geo.block_bits;
        let (first, next) = ((offset >> bits) as u32, (end >> bits) as u32);
        let mut res = self.collapse_blocks(&mut h, inode, first, next).await;
        if res.is_ok() {
            let size = inode.size() - len;
            inode.set_size(size);
            inode.disksize.set(size);
            res = Ok(());
        }
        self.touch_and_stop(h, inode, res).await
    }

    async fn collapse_blocks(
        &self,
        h: &mut Handle,
        inode: &Rc<Inode>,
        first: u32,
        next: u32,
    ) -> FsResult<()> {
        {
            let _sem = inode.i_data_sem.write().await;
            self.discard_preallocations(inode).await?;
            self.es_remove_range(inode, first, u32::MAX - first);
        }
        self.remove_space(h, inode, first, next - 1).await?;
        self.discard_preallocations(inode).await?;
        let _sem = inode.i_data_sem.write().await;
        self.ext_shift(h, inode, next, next - first, false).await
    }

    async fn insert_range(&self, inode: &Rc<Inode>, offset: u64, len: u64) -> FsResult<()> {
        self.shift_checks(inode, offset, len)?;
        let size = inode.size();
        if len > self.geo.max_bytes(true) - size {
            return Err(FsError::Errno(Errno::EFBIG));
        }
        if offset >= size {
            return Err(FsError::Errno(Errno::EINVAL));
        }
        let start = offset & !0xfff;
        self.write_and_wait(inode, start, u64::MAX).await?;
        self.truncate_pagecache(inode, start);
        let credits = self.truncate_credits(inode, 1);
        let mut h = self.journal_start(HandleType::Truncate, credits).await?;
        inode.set_size(size + len);
        inode.disksize.set(inode.disksize.get() + len);
        let now = self.inode_set_ctime_current(inode);
        inode.core.borrow_mut().mtime = now;
        let mut res = self.mark_inode_dirty(&mut h, inode).await;
        if res.is_ok() {
            let bits = self.geo.block_bits;
            let (first, n) = ((offset >> bits) as u32, (len >> bits) as u32);
            res = self.insert_blocks(&mut h, inode, first, n).await;
            self.update_inode_fsync_trans(&h, inode, true);
        }
        let stopped = self.journal_stop(h).await;
        res.and(stopped)
    }

    async fn insert_blocks(
        &self,
        h: &mut Handle,
        inode: &Rc<Inode>,
        first: u32,
        n: u32,
    ) -> FsResult<()> {
        {
            let _sem = inode.i_data_sem.write().await;
            self.discard_preallocations(inode).await?;
            self.es_remove_range(inode, first, u32::MAX - first);
        }
        let _sem = inode.i_data_sem.write().await;
        self.split_before(h, inode, first).await?;
        self.ext_shift(h, inode, first, n, true).await
    }
}
