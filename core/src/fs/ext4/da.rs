//! Buffered writes with delayed allocation: space is reserved now, blocks are chosen at writeback
//! (kernel `fs/ext4/inode.c`, `ext4_da_write_begin` .. `ext4_da_write_end`).
//!
//! Invariants:
//! 1. A dirty block is known: mapped, unwritten or delayed; a delayed one has its reservation.
//! 2. `i_disksize` moves only past blocks that are written extents, or with the I/O that makes them so.

use super::extents_status::EsStatus;
use super::mballoc::MbFlags;
use super::{Ext4, Inode, MapFlags, MapRequest};
use crate::base::payload::{content, PAGE_SIZE};
use crate::base::{Lblk, Nanos, Payload, WriteSource};
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::HandleType;
use crate::mm::folio::{blocks_touching, blocks_within, BlockMask, Folio};
use crate::mm::{AddressSpace, Tag};
use std::rc::Rc;

/// Free clusters below which writes allocate at once (`EXT4_FREECLUSTERS_WATERMARK` on two CPUs).
const FREECLUSTERS_WATERMARK: i64 = 256;

/// A piece of a write within one folio.
#[derive(Clone, Copy)]
pub(super) struct Chunk<'a> {
    /// File offset.
    pub(super) pos: u64,
    /// Bytes; at most the rest of the folio.
    pub(super) len: usize,
    /// log2 of the folio's pages.
    pub(super) order: u32,
    src: WriteSource<'a>,
    /// File offset of the first byte of `src`.
    src_pos: u64,
}

impl<'a> Chunk<'a> {
    /// The next piece of a write of `src` (which starts at `start`) from `pos` on, with `left` bytes to go, on a
    /// file whose folios have at most `1 << max` pages (`write_begin_get_folio`, `fgf_set_order`). `settle` turns the
    /// largest possible order of the folio of a page into the one that it has or gets.
    pub(super) fn next(
        start: u64,
        pos: u64,
        left: u64,
        src: WriteSource<'a>,
        max: u32,
        settle: impl FnOnce(u64, u32) -> u32,
    ) -> Chunk<'a> {
        let window = (PAGE_SIZE as u64) << max;
        let want = left.min(window - pos % window);
        let index = pos >> 12;
        let mut order = (want >> 12).checked_ilog2().unwrap_or(0).min(max);
        if index != 0 {
            order = order.min(index.trailing_zeros());
        }
        if max > 0 {
            order = settle(index, order);
        }
        let size = (PAGE_SIZE as u64) << order;
        Chunk {
            pos,
            len: want.min(size - pos % size) as usize,
            order,
            src,
            src_pos: start,
        }
    }

    /// Pages with the byte range of the chunk in each.
    pub(super) fn pages(&self) -> impl Iterator<Item = (u64, usize, usize)> {
        let (pos, end) = (self.pos, self.pos + self.len as u64);
        (pos >> 12..=(end - 1) >> 12).map(move |index| {
            let base = index << 12;
            let from = pos.saturating_sub(base) as usize;
            (index, from, (end - base).min(4096) as usize)
        })
    }

    /// Makes the folio of a chunk that fails, as `write_begin_get_folio` did before its blocks were looked at: the next
    /// write finds it.
    pub(super) fn make_folio(&self, mapping: &AddressSpace) {
        for (index, _, _) in self.pages() {
            mapping.with_new(index, |f, _| f.set_order(self.order));
        }
    }

    /// Puts the chunk's bytes for page `index` into `folio` at `from..to`.
    pub(super) fn copy_to(&self, folio: &mut Folio, index: u64, from: usize, to: usize) {
        let at = (index << 12) + from as u64;
        match self.src {
            WriteSource::Content { seed } => {
                let whole = from == 0 && to == PAGE_SIZE;
                match (u32::try_from(seed), u32::try_from(index)) {
                    (Ok(seed), Ok(page)) if whole => {
                        folio.payload = Payload::Pattern { seed, page };
                    }
                    _ => {
                        let mut bytes = [0; PAGE_SIZE];
                        content(seed, at, &mut bytes[from..to]);
                        folio.write_bytes(from, &bytes[from..to]);
                    }
                }
            }
            WriteSource::Bytes(all) => {
                let skip = (at - self.src_pos) as usize;
                let bytes = &all[skip..skip + (to - from)];
                if bytes.len() == PAGE_SIZE && bytes.iter().all(|b| *b == 0) {
                    folio.payload = Payload::Zero;
                } else {
                    folio.write_bytes(from, bytes);
                }
            }
        }
    }
}

/// The order of the folio that is cached at `index`, or else of a new one, which must not cover a cached page
/// (kernel `__filemap_get_folio`).
fn folio_order(mapping: &AddressSpace, index: u64, largest: u32) -> u32 {
    match mapping.next(index, Tag::Present) {
        Some(at) if at == index => mapping.with(index, |f| f.order()).unwrap_or(0),
        Some(at) => largest.min((at - index).ilog2()),
        None => largest,
    }
}

impl Ext4 {
    /// Copies a write into the page cache piece by piece (kernel `generic_perform_write` with ext4's operations).
    /// Returns bytes written; an error only if there are none. The caller holds `i_rwsem`.
    pub(super) async fn perform_write(
        &self,
        inode: &Rc<Inode>,
        pos: u64,
        len: u64,
        src: WriteSource<'_>,
    ) -> FsResult<u64> {
        let max = self.folio_order_max(inode);
        let mut done = 0;
        while done < len {
            self.vm.balance_dirty(&inode.mapping).await;
            let settle = |index, order| folio_order(&inode.mapping, index, order);
            let chunk = Chunk::next(pos, pos + done, len - done, src, max, settle);
            let res = if self.nonda_switch(inode).await {
                self.write_chunk_now(inode, &chunk).await
            } else {
                self.da_write_chunk(inode, &chunk).await
            };
            match res {
                Ok(n) => done += n,
                Err(e) if done == 0 => return Err(e),
                Err(_) => break,
            }
        }
        Ok(done)
    }

    /// True if this write must allocate its blocks now (kernel `ext4_nonda_switch`, and files without delalloc).
    async fn nonda_switch(&self, inode: &Inode) -> bool {
        if !self.delalloc() || self.should_journal_data(inode) {
            return true;
        }
        let free = self.free_clusters.read_positive();
        let dirty = self.dirty_clusters.read_positive();
        if dirty > 0 && free < 2 * dirty {
            self.vm.try_to_writeback_inodes().await;
        }
        2 * free < 3 * dirty || free < dirty + FREECLUSTERS_WATERMARK
    }

    /// One folio's worth with delayed allocation: all of it or nothing.
    async fn da_write_chunk(&self, inode: &Rc<Inode>, chunk: &Chunk<'_>) -> FsResult<u64> {
        let cost = self.write_cost(inode, chunk);
        self.sim.charge(cost).await;
        let mut retries = 0;
        loop {
            if self.da_chunk_fits(inode, chunk).await? {
                break;
            }
            self.da_reserve_zeroes(inode, chunk).await?;
            if !self.should_retry_alloc(&mut retries).await {
                return Err(FsError::NoSpace);
            }
        }
        let bs = self.geo.block_size;
        for (index, from, to) in chunk.pages() {
            if let Err(e) = self.da_write_begin(inode, index, from, to).await {
                chunk.make_folio(&inode.mapping);
                if chunk.pos + chunk.len as u64 > inode.size() {
                    self.truncate_failed_write(inode).await?;
                }
                return Err(e);
            }
            let touched = blocks_touching(from, to, bs);
            inode.mapping.with(index, |f| {
                chunk.copy_to(f, index, from, to);
                f.set_order(chunk.order);
                f.set_uptodate(touched);
            });
            inode.mapping.set_dirty(index, touched);
        }
        let n = chunk.len as u64;
        self.da_write_end(inode, chunk.pos, n).await?;
        Ok(n)
    }

    /// True if all holes that a chunk fills can be reserved. Nearly always there is room for all of its blocks and
    /// nothing is looked up.
    async fn da_chunk_fits(&self, inode: &Rc<Inode>, chunk: &Chunk<'_>) -> FsResult<bool> {
        let bits = self.geo.block_bits;
        let first = chunk.pos >> bits;
        let last = (chunk.pos + chunk.len as u64 - 1) >> bits;
        if self.has_free_clusters(last - first + 1, MbFlags::NONE) {
            return Ok(true);
        }
        let mut holes = 0;
        for lblk in first as u32..=last as u32 {
            if self.hole_status(inode, lblk).await? == Some(EsStatus::Hole) {
                holes += 1;
            }
        }
        Ok(holes == 0 || self.has_free_clusters(holes, MbFlags::NONE))
    }

    /// The folio does not fit: its first holes, as many as there is space for, become dirty zeroes (kernel
    /// `ext4_block_write_begin` that fails half way, `folio_zero_new_buffers`); what is past the end of the file is
    /// taken back.
    async fn da_reserve_zeroes(&self, inode: &Rc<Inode>, chunk: &Chunk<'_>) -> FsResult<()> {
        let bs = self.geo.block_size;
        chunk.make_folio(&inode.mapping);
        'folio: for (index, from, to) in chunk.pages() {
            let touched = blocks_touching(from, to, bs);
            let base = index as u32 * (4096 / bs);
            inode.mapping.lock(index).await;
            for b in (0..4096 / bs).filter(|b| touched & (1 << b) != 0) {
                if self.hole_status(inode, base + b).await? != Some(EsStatus::Hole) {
                    continue;
                }
                if self.da_reserve(inode, base + b).is_err() {
                    inode.mapping.unlock(index);
                    break 'folio;
                }
                self.zero_blocks(inode, index, 1 << b);
                inode.mapping.with(index, |f| f.set_known(1 << b));
                inode.mapping.set_dirty(index, 1 << b);
            }
            inode.mapping.unlock(index);
        }
        if chunk.pos + chunk.len as u64 > inode.size() {
            self.truncate_failed_write(inode).await?;
        }
        Ok(())
    }

    /// CPU time of copying the chunk and of the pages it adds to the cache.
    pub(super) fn write_cost(&self, inode: &Inode, chunk: &Chunk<'_>) -> Nanos {
        let c = &self.cost;
        let mut ns = c.map_cached.0;
        for (index, from, to) in chunk.pages() {
            ns += c.copy_page.0 * (to - from).max(256) as u64 / PAGE_SIZE as u64;
            if inode.mapping.with(index, |_| ()).is_none() {
                ns += c.page_cache_add.0;
            }
        }
        Nanos(ns)
    }

    /// Makes page `index` ready for a write to its bytes `from..to` (kernel `ext4_da_write_begin`).
    async fn da_write_begin(
        &self,
        inode: &Rc<Inode>,
        index: u64,
        from: usize,
        to: usize,
    ) -> FsResult<()> {
        let bs = self.geo.block_size;
        let touched = blocks_touching(from, to, bs);
        let whole = blocks_within(from, to, bs);
        let ready = inode.mapping.with_new(index, |f, _| {
            let known = f.known() & touched == touched;
            !f.locked() && known && (f.uptodate() | whole) & touched == touched
        });
        if ready {
            return Ok(());
        }
        inode.mapping.lock(index).await;
        let res = self.block_write_begin(inode, index, from, to).await;
        inode.mapping.unlock(index);
        res
    }

    /// Reserves what is a hole and makes partly written blocks valid (kernel `ext4_block_write_begin` with
    /// `ext4_da_get_block_prep`). The page is locked.
    async fn block_write_begin(
        &self,
        inode: &Rc<Inode>,
        index: u64,
        from: usize,
        to: usize,
    ) -> FsResult<()> {
        let bs = self.geo.block_size;
        let touched = blocks_touching(from, to, bs);
        let known = inode.mapping.with(index, |f| f.known()).unwrap_or(0);
        let base = index as u32 * (4096 / bs);
        let mut on_disk: BlockMask = 0;
        for b in 0..4096 / bs {
            let mask = 1 << b;
            if touched & mask == 0 {
                continue;
            }
            let status = if known & mask != 0 {
                self.cached_status(inode, base + b)
            } else {
                self.da_get_block_prep(inode, base + b).await?
            };
            if status == Some(EsStatus::Written) {
                on_disk |= mask;
            }
            inode.mapping.with(index, |f| f.set_known(mask));
        }
        self.fill_partial(inode, index, from, to, on_disk).await
    }

    /// Makes the blocks of a locked page that a write of `from..to` touches only partly valid: those in
    /// `on_disk` are read, others are zero.
    pub(super) async fn fill_partial(
        &self,
        inode: &Rc<Inode>,
        index: u64,
        from: usize,
        to: usize,
        on_disk: BlockMask,
    ) -> FsResult<()> {
        let bs = self.geo.block_size;
        let partial = blocks_touching(from, to, bs) & !blocks_within(from, to, bs);
        let uptodate = inode.mapping.with(index, |f| f.uptodate()).unwrap_or(0);
        let missing = partial & !uptodate;
        if missing & on_disk != 0 {
            self.read_blocks(inode, index, missing & on_disk).await?;
        }
        let fresh = missing & !on_disk;
        inode.mapping.with(index, |f| {
            for b in 0..4096 / bs {
                if fresh & (1 << b) != 0 {
                    let at = (b * bs) as usize;
                    f.zero_range(at, at + bs as usize);
                }
            }
            f.set_uptodate(fresh);
        });
        Ok(())
    }

    /// What the extent status cache says of a block.
    pub(super) fn cached_status(&self, inode: &Inode, lblk: u32) -> Option<EsStatus> {
        inode.es.borrow().lookup(lblk).map(|e| e.status)
    }

    /// Status of a block for a write; a hole is reserved and becomes delayed (kernel `ext4_da_map_blocks`).
    async fn da_get_block_prep(&self, inode: &Rc<Inode>, lblk: u32) -> FsResult<Option<EsStatus>> {
        let mut status = self.hole_status(inode, lblk).await?;
        if status == Some(EsStatus::Hole) {
            self.da_reserve(inode, lblk)?;
            status = Some(EsStatus::Delayed);
        }
        Ok(status)
    }

    /// Status of a block, from the extent tree if the cache does not know it.
    async fn hole_status(&self, inode: &Rc<Inode>, lblk: u32) -> FsResult<Option<EsStatus>> {
        let status = self.cached_status(inode, lblk);
        if status.is_some() {
            return Ok(status);
        }
        let request = MapRequest {
            lblk: Lblk(lblk),
            len: 1,
            flags: MapFlags::NONE,
        };
        self.map_blocks(None, inode, request).await?;
        Ok(self.cached_status(inode, lblk).or(Some(EsStatus::Hole)))
    }

    /// Sizes and the page's own bookkeeping after the copy (kernel `ext4_da_do_write_end`).
    async fn da_write_end(&self, inode: &Rc<Inode>, pos: u64, copied: u64) -> FsResult<()> {
        let end = pos + copied;
        if copied == 0 || end <= inode.size() {
            return Ok(());
        }
        inode.set_size(end);
        let last = ((end - 1) >> self.geo.block_bits) as u32;
        if self.cached_status(inode, last) != Some(EsStatus::Written) {
            return Ok(());
        }
        if end > inode.disksize.get() {
            inode.disksize.set(end);
        }
        self.mark_dirty_nojournal(inode);
        let mut h = self.journal_start(HandleType::Inode, 1).await?;
        let res = self.mark_inode_dirty(&mut h, inode).await;
        let stopped = self.journal_stop(h).await;
        res.and(stopped)
    }

    /// Takes back what a failed write brought in past the end of the file (`ext4_truncate_failed_write`).
    pub(super) async fn truncate_failed_write(&self, inode: &Rc<Inode>) -> FsResult<()> {
        self.truncate_pagecache(inode, inode.size());
        self.truncate_inode(inode).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(mut pos: u64, len: u64, max: u32) -> Vec<(u64, usize, u32)> {
        let (start, end) = (pos, pos + len);
        let mut out = Vec::new();
        while pos < end {
            let src = WriteSource::Content { seed: 1 };
            let c = Chunk::next(start, pos, end - pos, src, max, |_, order| order);
            out.push((c.pos, c.len, c.order));
            pos += c.len as u64;
        }
        out
    }

    #[test]
    fn folios_are_as_large_as_alignment_allows() {
        assert_eq!(orders(0, 1 << 20, 9), [(0, 1 << 20, 8)]);
        assert_eq!(orders(0, 4096, 9), [(0, 4096, 0)]);
        assert_eq!(orders(100, 5000, 9), [(100, 3996, 0), (4096, 1004, 0)]);
        assert_eq!(
            orders(4096, 4 * 4096, 9),
            [(4096, 4096, 0), (8192, 8192, 1), (16384, 4096, 0)]
        );
        assert_eq!(
            orders(0, 4 << 20, 9),
            [(0, 2 << 20, 9), (2 << 20, 2 << 20, 9)]
        );
        assert_eq!(orders(0, 8192, 0), [(0, 4096, 0), (4096, 4096, 0)]);
    }

    #[test]
    fn rules_survive_whole_pages_only() {
        let src = WriteSource::Content { seed: 9 };
        let c = Chunk::next(0, 0, 8192, src, 1, |_, order| order);
        let mut f = Folio::new();
        c.copy_to(&mut f, 1, 0, 4096);
        assert!(f.payload.same(&Payload::Pattern { seed: 9, page: 1 }));
        let mut g = Folio::new();
        c.copy_to(&mut g, 1, 10, 4096);
        let (mut want, got) = (vec![0; 4096], g.payload.to_bytes(4096));
        content(9, 4096, &mut want);
        want[..10].fill(0);
        assert_eq!(&got[..], &want[..]);
    }
}
