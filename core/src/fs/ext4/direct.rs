//! O_DIRECT (kernel `fs/ext4/file.c`, `ext4_dio_write_iter`; `fs/iomap/direct-io.c`).
//!
//! Waits: `i_rwsem`, page-cache writeback of the range, journal handles, the device.

use super::file::FileState;
use super::truncate::is_orphan;
use super::{flag, Ext4, Inode, MapFlags, MapRequest, Mapping, MappingKind};
use crate::base::payload::{content, PAGE_SIZE};
use crate::base::{Errno, Lba, Lblk, Payload, WriteSource};
use crate::block::{Batch, Bio, BioFlags, Role, SECTOR_SIZE};
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::HandleType;
use crate::mm::Tag;
use crate::sim::WaitReason;
use std::rc::Rc;

/// Most blocks mapped at once (`EXT4_DIO_MAX_BLOCKS`).
const DIO_MAX_BLOCKS: u64 = 4096;
/// Most pages of one bio.
const BIO_MAX_VECS: u64 = 256;

/// A direct write under way.
struct Dio<'a> {
    pos: u64,
    src: WriteSource<'a>,
    src_pos: u64,
    /// Every byte so far went to written blocks with FUA, so that no flush is needed afterwards.
    write_through: bool,
}

impl Ext4 {
    /// True if the file can do direct I/O at all; else it is buffered in silence (kernel `ext4_should_use_dio`).
    pub(super) fn should_use_dio(&self, inode: &Inode) -> bool {
        !self.should_journal_data(inode) && !inode.has_flag(flag::INLINE_DATA)
    }

    /// Kernel `ext4_dio_write_iter`.
    pub(super) async fn dio_write_iter(
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
        let start = *pos;
        let extend = start + n > inode.size() || start + n > inode.disksize.get();
        if extend {
            let mut h = self.journal_start(HandleType::Inode, 2).await?;
            let added = self.orphan_add(&mut h, inode).await;
            self.journal_stop(h).await?;
            added?;
        }
        let mut dio = Dio {
            pos: start,
            src,
            src_pos: start,
            write_through: f.flags.dsync
                && !f.flags.sync
                && self.queue.device().config().params.fua != 0,
        };
        let res = self.iomap_dio_write(inode, &mut dio, start + n).await;
        let done = dio.pos - start;
        if extend {
            self.inode_extension_cleanup(inode, failed(&res)).await?;
        }
        drop(guard);
        *pos = dio.pos;
        match res {
            // Holes of a file without extents can only be filled through the page cache.
            Err(FsError::Errno(Errno::EAGAIN)) => {
                return self
                    .dio_fall_back(inode, f, pos, (done, n - done), src)
                    .await;
            }
            // An error of any part is the result of the whole, whatever was written before it.
            Err(e) => return Err(e),
            Ok(()) => {}
        }
        if done > 0 && !dio.write_through {
            self.generic_write_sync(inode, f, start, done).await?;
        }
        Ok(done)
    }

    /// The rest of a direct write through the page cache, written out and dropped from it afterwards.
    async fn dio_fall_back(
        &self,
        inode: &Rc<Inode>,
        f: &FileState,
        pos: &mut u64,
        (done, left): (u64, u64),
        src: WriteSource<'_>,
    ) -> FsResult<u64> {
        let from = *pos;
        let rest = match src {
            WriteSource::Bytes(b) => WriteSource::Bytes(&b[done as usize..]),
            content @ WriteSource::Content { .. } => content,
        };
        let plain = FileState::new(
            inode,
            super::file::IoFlags {
                append: false,
                direct: false,
                ..f.flags
            },
        );
        let n = self
            .buffered_write_iter(inode, &plain, pos, left, rest)
            .await?;
        if n > 0 {
            self.write_and_wait(inode, from, from + n - 1).await?;
            self.invalidate_pages(inode, from >> 12, (from + n - 1) >> 12);
        }
        Ok(done + n)
    }

    /// Writes up to byte `end`, mapping by mapping (kernel `iomap_dio_rw`).
    async fn iomap_dio_write(
        &self,
        inode: &Rc<Inode>,
        dio: &mut Dio<'_>,
        end: u64,
    ) -> FsResult<()> {
        let (first, last) = (dio.pos >> 12, (end - 1) >> 12);
        if inode.mapping.nrpages() > 0 {
            self.write_and_wait(inode, dio.pos, end - 1).await?;
            self.invalidate_range(inode, first, last).await;
        }
        let bits = self.geo.block_bits;
        let start = dio.pos;
        let mut unwritten = false;
        let batch = Batch::new(&self.sim);
        let mut res = Ok(());
        let plug = self.queue.plug();
        while dio.pos < end {
            let lblk = (dio.pos >> bits) as u32;
            let blocks = ((end - 1) >> bits) - u64::from(lblk) + 1;
            let len = blocks.min(DIO_MAX_BLOCKS) as u32;
            match self.iomap_begin_write(inode, end, lblk, len).await {
                Ok(m) if self.misaligned(&m, dio.pos, start, end) => {
                    res = Err(FsError::Errno(Errno::EINVAL));
                    break;
                }
                Ok(m) => {
                    unwritten |= m.kind == MappingKind::Unwritten;
                    dio.write_through &= m.kind == MappingKind::Mapped && !m.new;
                    self.dio_send(inode, dio, end, &m, &batch).await;
                }
                Err(e) => {
                    res = Err(e);
                    break;
                }
            }
        }
        plug.finish();
        let io = batch.wait(WaitReason::Other("direct I/O")).await;
        let done = dio.pos - start;
        if let Err(e) = io {
            dio.pos = start;
            return Err(e.into());
        }
        if done > 0 && !failed(&res) {
            self.dio_end_io(inode, start, done, unwritten).await?;
        }
        if inode.mapping.nrpages() > 0 {
            self.invalidate_range(inode, first, last).await;
        }
        res
    }

    /// True if the part of the request `start..end` from `pos` on that lies in this mapping does not begin and end at
    /// sectors, on the device and in the buffer (the check of kernel `iomap_dio_bio_iter`: only mapped parts are
    /// looked at, a hole can be read at any byte).
    ///
    /// SIMPLIFIED: every device wants buffers aligned to sectors; NVMe would take multiples of 4 bytes.
    fn misaligned(&self, m: &Mapping, pos: u64, start: u64, end: u64) -> bool {
        let bits = self.geo.block_bits;
        let stop = ((pos >> bits) + u64::from(m.len)) << bits;
        (pos | (pos - start) | end.min(stop)) % SECTOR_SIZE != 0
    }

    /// Where the next blocks go (kernel `ext4_iomap_begin`, `ext4_iomap_alloc`).
    async fn iomap_begin_write(
        &self,
        inode: &Rc<Inode>,
        end: u64,
        lblk: u32,
        len: u32,
    ) -> FsResult<Mapping> {
        let mut request = MapRequest {
            lblk: Lblk(lblk),
            len,
            flags: MapFlags::NONE,
        };
        if end <= inode.size() {
            let m = self.map_blocks(None, inode, request).await?;
            if m.kind == MappingKind::Mapped {
                return Ok(m);
            }
        }
        let extents = inode.has_flag(flag::EXTENTS);
        let mut retries = 0;
        loop {
            let past_end = u64::from(lblk) << self.geo.block_bits >= inode.size();
            request.flags = if past_end {
                MapFlags::CREATE
            } else if extents {
                MapFlags::IO_CREATE_EXT
            } else {
                MapFlags::NONE
            };
            let credits = self.chunk_trans_blocks(inode, len);
            let mut h = self.journal_start(HandleType::MapBlocks, credits).await?;
            let res = self.map_blocks(Some(&mut h), inode, request).await;
            self.journal_stop(h).await?;
            match res {
                Ok(m) if m.mapped_block().is_some() => return Ok(m),
                Ok(_) => return Err(FsError::Errno(Errno::EAGAIN)),
                Err(FsError::NoSpace) if self.should_retry_alloc(&mut retries).await => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Sends the bios of one mapping and moves `dio.pos` past them.
    async fn dio_send(
        &self,
        inode: &Rc<Inode>,
        dio: &mut Dio<'_>,
        end: u64,
        m: &Mapping,
        batch: &Rc<Batch>,
    ) {
        let bs = u64::from(self.geo.block_size);
        let offset = dio.pos % bs;
        let mapped = (u64::from(m.len) * bs - offset).min(end - dio.pos);
        let base = m.pblk.0 * bs + offset;
        let fresh = m.new || m.kind == MappingKind::Unwritten;
        let stop = dio.pos + mapped;
        if fresh && offset != 0 {
            self.dio_zero(inode, base - offset, offset, batch).await;
        }
        let mut flags = BioFlags::SYNC;
        if dio.write_through {
            flags |= BioFlags::FUA;
        }
        let mut at = base;
        while dio.pos < stop {
            let unit = dio_unit(dio.pos, stop, bs);
            let count = ((stop - dio.pos) / unit).min(BIO_MAX_VECS);
            let payloads: Vec<Payload> = (0..count)
                .map(|i| dio.payload(dio.pos + i * unit, unit))
                .collect();
            let bio = Bio::write(Lba(at / SECTOR_SIZE), unit as u32, payloads, Role::FileData)
                .flags(flags)
                .ino(inode.ino);
            self.queue.enter(&bio).await;
            self.queue.submit_batch(bio, batch);
            dio.pos += count * unit;
            at += count * unit;
        }
        let tail = stop % bs;
        if tail != 0 && (fresh || stop >= inode.size()) {
            self.dio_zero(inode, at, bs - tail, batch).await;
        }
    }

    /// Zeroes the part of a new block that the write does not cover (kernel `iomap_dio_zero`).
    async fn dio_zero(&self, inode: &Rc<Inode>, at: u64, len: u64, batch: &Rc<Batch>) {
        let payloads = vec![Payload::Zero; (len / SECTOR_SIZE) as usize];
        let lba = Lba(at / SECTOR_SIZE);
        let bio = Bio::write(lba, SECTOR_SIZE as u32, payloads, Role::FileData)
            .flags(BioFlags::SYNC)
            .segments(1)
            .ino(inode.ino);
        self.queue.enter(&bio).await;
        self.queue.submit_batch(bio, batch);
    }

    /// All bios of a direct write are done (kernel `ext4_dio_write_end_io`).
    async fn dio_end_io(
        &self,
        inode: &Rc<Inode>,
        pos: u64,
        len: u64,
        unwritten: bool,
    ) -> FsResult<()> {
        if unwritten {
            self.convert_unwritten(None, inode, pos, len).await?;
        }
        let end = pos + len;
        if end <= inode.size() && end <= inode.disksize.get() {
            return Ok(());
        }
        let mut h = self.journal_start(HandleType::Inode, 2).await?;
        let mut res = Ok(());
        if self.update_inode_size(inode, end) {
            res = self.mark_inode_dirty(&mut h, inode).await;
        }
        if inode.core.borrow().nlink > 0 {
            let del = self.orphan_del(Some(&mut h), inode).await;
            res = res.and(del);
        }
        let stopped = self.journal_stop(h).await;
        res.and(stopped)
    }

    /// After an extending direct write: if it failed, cuts the blocks past the end off; leaves the orphan list if that
    /// has not happened yet (kernel `ext4_inode_extension_cleanup`).
    async fn inode_extension_cleanup(&self, inode: &Rc<Inode>, failed: bool) -> FsResult<()> {
        if failed {
            self.truncate_pagecache(inode, inode.size());
            self.truncate_inode(inode).await?;
        }
        if inode.core.borrow().nlink > 0 && is_orphan(inode) {
            let mut h = self.journal_start(HandleType::Inode, 2).await?;
            let res = self.orphan_del(Some(&mut h), inode).await;
            self.journal_stop(h).await?;
            res?;
        }
        Ok(())
    }

    /// Drops pages of a range that direct I/O goes around, waiting for their I/O.
    async fn invalidate_range(&self, inode: &Rc<Inode>, first: u64, last: u64) {
        inode.mapping.wait_range(first, last).await;
        self.invalidate_pages(inode, first, last);
    }

    /// Kernel `ext4_dio_read_iter`.
    pub(super) async fn dio_read_iter(
        &self,
        inode: &Rc<Inode>,
        _f: &FileState,
        pos: u64,
        len: u64,
        mut out: Option<&mut Vec<u8>>,
    ) -> FsResult<u64> {
        let guard = inode.rwsem.read().await;
        let size = inode.size();
        if pos >= size {
            return Ok(0);
        }
        if inode.mapping.any(Tag::Dirty) || inode.mapping.any(Tag::Writeback) {
            self.write_and_wait(inode, pos, pos + len - 1).await?;
        }
        let bs = u64::from(self.geo.block_size);
        let end = (pos + len).min(size);
        let mut at = pos;
        while at < end {
            let lblk = (at / bs) as u32;
            let want = (pos + len - 1) / bs - u64::from(lblk) + 1;
            let request = MapRequest {
                lblk: Lblk(lblk),
                len: want.min(BIO_MAX_VECS) as u32,
                flags: MapFlags::NONE,
            };
            let m = self.map_blocks(None, inode, request).await?;
            let stop = ((u64::from(lblk) + u64::from(m.len.max(1))) * bs).min(end);
            let from = at % bs;
            let n = (stop - at) as usize;
            if m.kind == MappingKind::Mapped {
                if self.misaligned(&m, at, pos, pos + len) {
                    return Err(FsError::Errno(Errno::EINVAL));
                }
                let blocks = (from + n as u64).div_ceil(bs) as u32;
                let lba = Lba(m.pblk.0 * bs / SECTOR_SIZE);
                let bio = Bio::read(lba, blocks, bs as u32, Role::FileData)
                    .flags(BioFlags::SYNC)
                    .ino(inode.ino);
                let got = self.queue.run(bio).await?;
                if let Some(v) = out.as_deref_mut() {
                    let all: Vec<u8> = got
                        .as_slice()
                        .iter()
                        .flat_map(|p| p.to_bytes(bs as usize).to_vec())
                        .collect();
                    v.extend_from_slice(&all[from as usize..from as usize + n]);
                }
            } else if let Some(v) = out.as_deref_mut() {
                v.resize(v.len() + n, 0);
            }
            at = stop;
        }
        drop(guard);
        self.touch_atime(inode).await?;
        Ok(end - pos)
    }
}

impl Dio<'_> {
    /// The bytes for `unit` bytes at file offset `at`.
    fn payload(&self, at: u64, unit: u64) -> Payload {
        match self.src {
            WriteSource::Content { seed } => {
                let rule = (u32::try_from(seed), u32::try_from(at >> 12));
                if let (true, (Ok(seed), Ok(page))) = (unit == PAGE_SIZE as u64, rule) {
                    return Payload::Pattern { seed, page };
                }
                let mut bytes = vec![0; unit as usize];
                content(seed, at, &mut bytes);
                Payload::Bytes(bytes.into())
            }
            WriteSource::Bytes(b) => {
                let from = (at - self.src_pos) as usize;
                Payload::Bytes(b[from..from + unit as usize].into())
            }
        }
    }
}

/// True if a direct write ends with its error: all but `EAGAIN`, which sends the rest through the page cache.
fn failed(res: &FsResult<()>) -> bool {
    matches!(res, Err(e) if *e != FsError::Errno(Errno::EAGAIN))
}

/// Unit in which `pos..stop` is cut: whole blocks where possible, else sectors.
fn dio_unit(pos: u64, stop: u64, block_size: u64) -> u64 {
    if pos % block_size == 0 && stop - pos >= block_size {
        block_size
    } else {
        SECTOR_SIZE
    }
}
