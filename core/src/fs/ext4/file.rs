//! Reading and writing of regular files as system calls see it (kernel `fs/ext4/file.c`, `mm/filemap.c`).
//!
//! Waits: `i_rwsem` of the file, and whatever the paths below wait for.

use super::{flag, state, Ext4, Inode};
use crate::base::payload::PAGE_SIZE;
use crate::base::{Errno, Nanos, WriteSource};
use crate::fs::common::{FsError, FsResult};
use crate::mm::readahead::FileRa;
use crate::mm::{ErrSeq, Tag, WritebackControl};
use std::cell::Cell;
use std::rc::Rc;

/// Pages that readahead takes by default (`read_ahead_kb` 128).
const RA_PAGES: u64 = 32;

/// How an open file does I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoFlags {
    /// `O_DIRECT`.
    pub direct: bool,
    /// `O_SYNC` (then `dsync` is set, too).
    pub sync: bool,
    /// `O_DSYNC`.
    pub dsync: bool,
    /// `O_APPEND`.
    pub append: bool,
}

/// What the file layer keeps for each open file (parts of `struct file`).
#[derive(Debug)]
pub struct FileState {
    /// Readahead window.
    pub ra: Cell<FileRa>,
    /// Writeback errors seen so far.
    pub wb_err: Cell<ErrSeq>,
    /// How it was opened.
    pub flags: IoFlags,
}

impl FileState {
    /// State of a file that is opened now.
    pub fn new(inode: &Inode, flags: IoFlags) -> FileState {
        FileState {
            ra: Cell::new(FileRa::new(RA_PAGES)),
            wb_err: Cell::new(inode.mapping.sample_error()),
            flags,
        }
    }
}

impl Ext4 {
    /// Writes `len` bytes of `src` at `*pos` (at the end with `O_APPEND`) and moves `*pos` past them (kernel
    /// `ext4_file_write_iter`). With `O_SYNC`/`O_DSYNC` they are durable on return. Returns the bytes written.
    pub async fn file_write_iter(
        &self,
        inode: &Rc<Inode>,
        f: &FileState,
        pos: &mut u64,
        len: u64,
        src: WriteSource<'_>,
    ) -> FsResult<u64> {
        let _frame = self.sim.frame("ext4_file_write_iter");
        self.check_writable()?;
        let len = match src {
            WriteSource::Bytes(b) => len.min(b.len() as u64),
            WriteSource::Content { .. } => len,
        };
        if f.flags.direct && self.should_use_dio(inode) {
            return self.dio_write_iter(inode, f, pos, len, src).await;
        }
        self.buffered_write_iter(inode, f, pos, len, src).await
    }

    /// Kernel `ext4_buffered_write_iter`.
    pub(super) async fn buffered_write_iter(
        &self,
        inode: &Rc<Inode>,
        f: &FileState,
        pos: &mut u64,
        len: u64,
        src: WriteSource<'_>,
    ) -> FsResult<u64> {
        let guard = inode.rwsem.write().await;
        let n = self.write_checks(inode, f, pos, len).await?;
        if n == 0 {
            return Ok(0);
        }
        let res = self.perform_write(inode, *pos, n, src).await;
        drop(guard);
        let done = res?;
        *pos += done;
        if done > 0 {
            self.generic_write_sync(inode, f, *pos - done, done).await?;
        }
        Ok(done)
    }

    /// Position, size limits and timestamps before a write (kernel `ext4_write_checks`). Returns how many bytes may
    /// be written; 0 ends the call.
    pub(super) async fn write_checks(
        &self,
        inode: &Rc<Inode>,
        f: &FileState,
        pos: &mut u64,
        len: u64,
    ) -> FsResult<u64> {
        if inode.has_flag(flag::IMMUTABLE) {
            return Err(FsError::Errno(Errno::EPERM));
        }
        if len == 0 {
            return Ok(0);
        }
        if f.flags.append {
            *pos = inode.size();
        }
        let max = self.geo.max_bytes(inode.has_flag(flag::EXTENTS));
        if *pos >= max {
            return Err(FsError::Errno(Errno::EFBIG));
        }
        let n = len.min(max - *pos);
        self.file_update_time(inode).await?;
        if inode.has_flag(flag::INLINE_DATA) {
            self.convert_inline_data(inode).await?;
        }
        Ok(n)
    }

    /// `O_SYNC` and `O_DSYNC` (kernel `generic_write_sync`).
    pub(super) async fn generic_write_sync(
        &self,
        inode: &Rc<Inode>,
        f: &FileState,
        pos: u64,
        len: u64,
    ) -> FsResult<()> {
        if !f.flags.dsync && !inode.has_flag(flag::SYNC) {
            return Ok(());
        }
        let datasync = !f.flags.sync && !inode.has_flag(flag::SYNC);
        self.sync_file_range(inode, &f.wb_err, pos, pos + len - 1, datasync)
            .await
    }

    /// Reads up to `len` bytes at `pos` into `out`, or through the cache only if `out` is `None`
    /// (kernel `ext4_file_read_iter`). Returns the bytes read, 0 at the end of the file.
    pub async fn file_read_iter(
        &self,
        inode: &Rc<Inode>,
        f: &FileState,
        pos: u64,
        len: u64,
        out: Option<&mut Vec<u8>>,
    ) -> FsResult<u64> {
        let _frame = self.sim.frame("ext4_file_read_iter");
        if len == 0 {
            return Ok(0);
        }
        if f.flags.direct && self.should_use_dio(inode) {
            return self.dio_read_iter(inode, f, pos, len, out).await;
        }
        let n = self.filemap_read(inode, f, pos, len, out).await?;
        self.touch_atime(inode).await?;
        Ok(n)
    }

    /// Kernel `filemap_read`.
    pub(super) async fn filemap_read(
        &self,
        inode: &Rc<Inode>,
        f: &FileState,
        pos: u64,
        len: u64,
        mut out: Option<&mut Vec<u8>>,
    ) -> FsResult<u64> {
        if inode.has_flag(flag::INLINE_DATA) {
            return Ok(self.read_inline(inode, pos, len, out));
        }
        let mut done = 0;
        while done < len {
            let at = pos + done;
            // The size is looked at again for each page: a writer may have moved it.
            let size = inode.size();
            if at >= size {
                break;
            }
            let index = at >> 12;
            let from = (at & 0xfff) as usize;
            let n = (len - done).min(size - at).min((PAGE_SIZE - from) as u64) as usize;
            let req = (pos + len).div_ceil(4096) - index;
            let cost = Nanos(self.cost.copy_page.0 * n.max(256) as u64 / PAGE_SIZE as u64);
            self.sim.charge(cost).await;
            if let Err(e) = self.get_page(inode, f, index, req).await {
                if done > 0 {
                    break;
                }
                return Err(e);
            }
            if let Some(v) = out.as_deref_mut() {
                let start = v.len();
                v.resize(start + n, 0);
                inode
                    .mapping
                    .with(index, |p| copy_out(p, from, &mut v[start..]));
            }
            done += n as u64;
        }
        Ok(done)
    }

    /// Makes page `index` valid, reading ahead as the file's history suggests.
    async fn get_page(
        &self,
        inode: &Rc<Inode>,
        f: &FileState,
        index: u64,
        req: u64,
    ) -> FsResult<()> {
        let seen = inode.mapping.with(index, |p| {
            let marker = p.readahead();
            p.set_readahead(false);
            marker
        });
        let mut ra = f.ra.get();
        match seen {
            None => {
                let before = self.cached_before(inode, index);
                let window = ra.on_miss(index, req, before);
                f.ra.set(ra);
                self.readahead(inode, window, false).await?;
            }
            Some(true) => {
                let window = ra.on_marker(index, req);
                f.ra.set(ra);
                self.readahead(inode, window, true).await?;
            }
            Some(false) => {}
        }
        let mut ra = f.ra.get();
        ra.note_read(index);
        f.ra.set(ra);
        self.read_page(inode, index).await
    }

    /// Cached pages in a row that end before `index`, at most one window.
    fn cached_before(&self, inode: &Inode, index: u64) -> u64 {
        let mut n = 0;
        while n < RA_PAGES && n < index && inode.mapping.with(index - 1 - n, |_| ()).is_some() {
            n += 1;
        }
        n
    }

    /// An open file that was writable (`wrote`) is closed (kernel `ext4_release_file`): the last writer gives back
    /// preallocated space, and a file that had been cut to zero gets its blocks now (`auto_da_alloc`).
    pub async fn release_file(&self, inode: &Rc<Inode>, wrote: bool) -> FsResult<()> {
        if inode.has_state(state::DA_ALLOC_CLOSE) {
            // Errors are kept in the mapping for a later fsync, as close does not report them.
            let _ = self.alloc_da_blocks(inode).await;
            inode.set_state(state::DA_ALLOC_CLOSE, false);
        }
        if wrote && inode.writers.get() == 1 && inode.reserved_blocks.get() == 0 {
            let _sem = inode.i_data_sem.write().await;
            self.discard_preallocations(inode).await?;
        }
        Ok(())
    }

    /// Starts writeback of a file with delayed blocks, so that the next commit has its contents
    /// (kernel `ext4_alloc_da_blocks`). Does not wait for the I/O.
    pub async fn alloc_da_blocks(&self, inode: &Rc<Inode>) -> FsResult<()> {
        if inode.reserved_blocks.get() == 0 {
            return Ok(());
        }
        let mut wbc = WritebackControl::range(0, u64::MAX, false);
        self.writepages(inode, &mut wbc).await
    }

    /// `posix_fadvise(POSIX_FADV_DONTNEED)`: starts writeback of the file and drops the clean pages of the range; a
    /// length of 0 means to the end (kernel `generic_fadvise`).
    pub async fn fadvise_dontneed(&self, inode: &Rc<Inode>, off: u64, len: u64) -> FsResult<()> {
        let end = if len == 0 {
            u64::MAX
        } else {
            off.saturating_add(len - 1)
        };
        if inode.mapping.any(Tag::Dirty) {
            let mut wbc = WritebackControl::range(off, end, false);
            self.writepages(inode, &mut wbc).await?;
        }
        let first = off.div_ceil(4096);
        let last = if end == u64::MAX {
            u64::MAX
        } else if end & 0xfff == 0xfff || end >= inode.size().saturating_sub(1) {
            end >> 12
        } else {
            match (end >> 12).checked_sub(1) {
                Some(l) => l,
                None => return Ok(()),
            }
        };
        self.invalidate_pages(inode, first, last);
        Ok(())
    }

    /// Drops all clean file pages (`drop_caches` 1, the page cache part).
    pub fn drop_pagecache(&self) {
        let all: Vec<Rc<Inode>> = self.icache.borrow().values().map(Rc::clone).collect();
        for inode in all {
            self.invalidate_pages(&inode, 0, u64::MAX);
        }
    }
}

/// Copies bytes of a page from `from` on.
fn copy_out(p: &mut crate::mm::Folio, from: usize, out: &mut [u8]) {
    if from == 0 {
        p.payload.fill(out);
    } else {
        let bytes = p.payload.to_bytes(PAGE_SIZE);
        out.copy_from_slice(&bytes[from..from + out.len()]);
    }
}
