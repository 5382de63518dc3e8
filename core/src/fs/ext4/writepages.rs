//! Writeback of file pages: finding dirty pages, allocating delayed blocks, sending bios
//! (kernel `fs/ext4/inode.c`, `ext4_do_writepages` and the `mpage_*` functions).
//!
//! Waits: folio locks, journal handles, pages under writeback (integrity sync only), free requests.

use super::extents_status::EsStatus;
use super::page_io::{IoEnd, IoSubmit, WriteBlock};
use super::{Ext4, Inode, MapFlags, MapRequest, MappingKind};
use crate::base::Lblk;
use crate::block::BioFlags;
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::{Handle, HandleType};
use crate::mm::folio::BlockMask;
use crate::mm::{Tag, WritebackControl};
use std::rc::Rc;

/// Most blocks mapped as one extent by writeback (`MAX_WRITEPAGES_EXTENT_LEN`).
const MAX_EXTENT_LEN: u32 = 2048;
/// Commits waited for in the hope of free blocks (the kernel goes on for ever).
const MAX_RETRIES: u32 = 10;

/// What a block in memory needs before it can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    /// Nothing: it is at home at this block, or it is not dirty.
    Ready,
    /// A block (delayed).
    Alloc,
    /// Conversion at the end of I/O (unwritten extent).
    Convert,
}

/// The extent that is being put together (`struct mpage_da_data`, field `map`).
#[derive(Clone, Copy, Debug)]
struct Extent {
    lblk: u32,
    len: u32,
    need: Need,
}

/// State of one call (`struct mpage_da_data`).
pub(super) struct Mpd<'a> {
    pub(super) inode: &'a Rc<Inode>,
    pub(super) wbc: &'a mut WritebackControl,
    /// Blocks may be allocated (false when called by the journal's commit and for journalled data).
    pub(super) can_map: bool,
    /// A handle is open.
    do_map: bool,
    first_page: u64,
    last_page: u64,
    /// Byte after the pages whose I/O was started.
    start_pos: u64,
    next_page: u64,
    extent: Option<Extent>,
    scanned_until_end: bool,
    /// Locked pages that wait for their blocks.
    held: std::ops::Range<u64>,
    pub(super) io: IoSubmit,
}

impl<'a> Mpd<'a> {
    fn new(fs: &Ext4, inode: &'a Rc<Inode>, wbc: &'a mut WritebackControl) -> Mpd<'a> {
        let flags = if wbc.sync_all {
            BioFlags::SYNC
        } else if wbc.range_cyclic {
            BioFlags::BACKGROUND
        } else {
            BioFlags::NONE
        };
        let io = IoSubmit::new(&inode.mapping, fs.geo.block_size, flags);
        Mpd {
            inode,
            wbc,
            can_map: true,
            do_map: false,
            first_page: 0,
            last_page: 0,
            start_pos: 0,
            next_page: 0,
            extent: None,
            scanned_until_end: false,
            held: 0..0,
            io,
        }
    }

    fn tag(&self) -> Tag {
        if self.wbc.sync_all || self.wbc.tagged {
            Tag::ToWrite
        } else {
            Tag::Dirty
        }
    }

    /// `mpage_folio_done`.
    pub(super) fn folio_done(&mut self, index: u64) {
        self.first_page = index + 1;
        self.start_pos = (index + 1) << 12;
        self.wbc.nr_to_write -= 1;
        self.inode.mapping.unlock(index);
        if self.held.start == index {
            self.held.start = index + 1;
        }
    }
}

impl Ext4 {
    /// Writes dirty pages of a file as `wbc` says (kernel `ext4_writepages`).
    pub async fn writepages(&self, inode: &Rc<Inode>, wbc: &mut WritebackControl) -> FsResult<()> {
        let _frame = self.sim.frame("ext4_writepages");
        let guard = self.writepages_rwsem.read().await;
        let mut mpd = Mpd::new(self, inode, wbc);
        let res = self.do_writepages(&mut mpd).await;
        drop(guard);
        res
    }

    /// Writes the mapped dirty pages of a byte range for the journal's commit (kernel
    /// `ext4_normal_submit_inode_data_buffers`); allocates nothing and starts no handle.
    pub async fn submit_ordered(&self, inode: &Rc<Inode>, start: u64, end: u64) -> FsResult<()> {
        let mut wbc = WritebackControl::range(start, end, true);
        wbc.nr_to_write = inode.mapping.nrpages() as i64;
        let mut mpd = Mpd::new(self, inode, &mut wbc);
        mpd.can_map = false;
        self.do_writepages(&mut mpd).await
    }

    async fn do_writepages(&self, mpd: &mut Mpd<'_>) -> FsResult<()> {
        let mapping = mpd.inode.mapping.clone();
        if !mapping.any(Tag::Dirty) {
            return Ok(());
        }
        self.check_writable()?;
        let journalled = self.should_journal_data(mpd.inode);
        if journalled {
            mpd.can_map = false;
            if mpd.wbc.sync_all {
                // What went wrong shows when a handle is started below.
                let _ = self.commit_tid(mpd.inode.datasync_tid.get()).await;
            }
        }
        let mut cycled = true;
        let mut wrap_at = 0;
        if mpd.wbc.range_cyclic {
            wrap_at = mapping.writeback_index();
            cycled = wrap_at == 0;
            mpd.first_page = wrap_at;
            mpd.last_page = u64::MAX;
        } else {
            mpd.first_page = mpd.wbc.range_start >> 12;
            mpd.last_page = mpd.wbc.range_end >> 12;
        }
        let res = loop {
            if mpd.tag() == Tag::ToWrite {
                mapping.tag_for_writeback(mpd.first_page, mpd.last_page);
            }
            let res = self.write_range(mpd).await;
            if res.is_ok() && !cycled && mpd.wbc.nr_to_write > 0 && wrap_at > 0 {
                cycled = true;
                mpd.last_page = wrap_at - 1;
                mpd.first_page = 0;
                continue;
            }
            break res;
        };
        let whole = mpd.wbc.range_start == 0 && mpd.wbc.range_end == u64::MAX;
        if mpd.wbc.range_cyclic || (whole && mpd.wbc.nr_to_write > 0) {
            mapping.set_writeback_index(mpd.first_page);
        }
        res
    }

    /// One pass over `first_page..=last_page`, all its bios under one plug.
    async fn write_range(&self, mpd: &mut Mpd<'_>) -> FsResult<()> {
        let plug = self.queue.plug();
        let res = self.write_range_plugged(mpd).await;
        plug.finish();
        res
    }

    async fn write_range_plugged(&self, mpd: &mut Mpd<'_>) -> FsResult<()> {
        // First what needs no mapping, so that a file of plain overwrites needs no handle.
        mpd.do_map = false;
        mpd.scanned_until_end = false;
        let end = IoEnd::new(mpd.inode);
        mpd.io.io_end = Some(Rc::clone(&end));
        let res = self.prepare_extent(mpd).await;
        self.io_submit(&mut mpd.io).await;
        self.release_unused(mpd, false).await;
        mpd.io.io_end = None;
        self.put_io_end_defer(end);
        res?;
        let mut retries = 0;
        while mpd.can_map && !mpd.scanned_until_end && mpd.wbc.nr_to_write > 0 {
            match self.map_and_write(mpd).await {
                Err(FsError::NoSpace) if self.journal().is_some() && retries < MAX_RETRIES => {
                    retries += 1;
                    // A commit may free blocks; delayed allocation promised that there are some.
                    self.force_commit().await?;
                }
                other => other?,
            }
        }
        Ok(())
    }

    /// Unlocks pages that were not written after all (`mpage_release_unused_pages`). They are looked at again: an
    /// allocation may be shorter than what was asked for, also at the end of the range. With `give_up` they are
    /// lost, and so is their reservation.
    async fn release_unused(&self, mpd: &mut Mpd<'_>, give_up: bool) {
        if mpd.held.is_empty() {
            return;
        }
        mpd.scanned_until_end = false;
        if give_up {
            let per_page = 4096 / self.geo.block_size;
            let first = (mpd.held.start as u32).wrapping_mul(per_page);
            let pages = (mpd.held.end - mpd.held.start) as u32;
            let _sem = mpd.inode.i_data_sem.write().await;
            self.es_remove_range(mpd.inode, first, pages.saturating_mul(per_page));
        }
        for index in mpd.held.clone() {
            if give_up {
                mpd.inode.mapping.cancel_dirty(index);
            }
            mpd.inode.mapping.unlock(index);
        }
        mpd.held = 0..0;
    }

    /// Maps one extent under a handle and sends its pages.
    async fn map_and_write(&self, mpd: &mut Mpd<'_>) -> FsResult<()> {
        let inode = Rc::clone(mpd.inode);
        let end = IoEnd::new(&inode);
        mpd.io.io_end = Some(Rc::clone(&end));
        let credits = self.chunk_trans_blocks(&inode, MAX_EXTENT_LEN);
        let rsv = if self.should_dioread_nolock(&inode) {
            self.conversion_credits(&inode)
        } else {
            0
        };
        let started = self
            .journal_start_with_reserve(HandleType::WritePage, credits, rsv)
            .await;
        let mut handle = match started {
            Ok(h) => h,
            Err(e) => {
                mpd.io.io_end = None;
                self.put_io_end(end).await?;
                return Err(e);
            }
        };
        mpd.do_map = true;
        let mut give_up = false;
        let mut res = self.prepare_extent(mpd).await;
        if res.is_ok() && mpd.extent.is_some() {
            res = self
                .map_and_submit_extent(&mut handle, mpd, &mut give_up)
                .await;
        }
        mpd.do_map = false;
        // A synchronous handle waits for its commit at stop, which may wait for our own pages: submit first.
        let mut handle = Some(handle);
        if handle.as_ref().is_some_and(|h| !h.sync) {
            if let Some(h) = handle.take() {
                let stopped = self.journal_stop(h).await;
                res = res.and(stopped);
            }
        }
        self.release_unused(mpd, give_up).await;
        mpd.extent = None;
        self.io_submit(&mut mpd.io).await;
        mpd.io.io_end = None;
        if let Some(h) = handle {
            self.put_io_end_defer(end);
            let stopped = self.journal_stop(h).await;
            return res.and(stopped);
        }
        let ended = self.put_io_end(end).await;
        res.and(ended)
    }

    /// Collects dirty pages: sends those whose blocks are known, and stops at the end of the first extent that
    /// must be mapped (kernel `mpage_prepare_extent_to_map`).
    async fn prepare_extent(&self, mpd: &mut Mpd<'_>) -> FsResult<()> {
        let mapping = mpd.inode.mapping.clone();
        let journalled = self.should_journal_data(mpd.inode);
        let mut handle = if journalled {
            let credits = self.blocks_per_folio(mpd.inode);
            let ty = HandleType::WritePage;
            Some(self.journal_start(ty, credits).await?)
        } else {
            None
        };
        mpd.extent = None;
        let tag = mpd.tag();
        let per_page = 4096 / self.geo.block_size;
        let mut at = mpd.first_page;
        let mut res = Ok(());
        loop {
            let Some(index) = mapping.next(at, tag).filter(|i| *i <= mpd.last_page) else {
                mpd.scanned_until_end = true;
                break;
            };
            at = index + 1;
            let pending = mpd.extent.map_or(0, |e| e.len);
            if !mpd.wbc.sync_all && mpd.wbc.nr_to_write <= i64::from(pending / per_page) {
                break;
            }
            if pending > 0 && mpd.next_page != index {
                break;
            }
            if !self.lock_for_write(mpd, index).await {
                continue;
            }
            if pending == 0 {
                mpd.start_pos = index << 12;
                mpd.held = index..index;
            }
            mpd.next_page = index + 1;
            mpd.held.end = index + 1;
            let step = if mpd.can_map {
                self.process_page(mpd, index, 0, None).await
            } else {
                self.write_unmapped(mpd, handle.as_mut(), index).await
            };
            match step {
                Ok(true) => {}
                Ok(false) => break,
                Err(e) => {
                    res = Err(e);
                    break;
                }
            }
        }
        if let Some(h) = handle.take() {
            let stopped = self.journal_stop(h).await;
            res = res.and(stopped);
        }
        res
    }

    /// Locks a page and waits for I/O on it; false if it need not (or must not) be written now.
    async fn lock_for_write(&self, mpd: &mut Mpd<'_>, index: u64) -> bool {
        let mapping = &mpd.inode.mapping;
        if mapping.try_lock(index) != Some(true) && !mapping.lock_cached(index).await {
            return false;
        }
        let busy = mapping.is_tagged(index, Tag::Writeback);
        if !mapping.is_tagged(index, Tag::Dirty) || busy && !mpd.wbc.sync_all {
            mapping.clear_to_write(index);
            mapping.unlock(index);
            return false;
        }
        if busy {
            mapping.wait_on_writeback(index).await;
        }
        true
    }

    /// Sends a page whose blocks are mapped, without mapping any (commit of ordered data, journalled data).
    async fn write_unmapped(
        &self,
        mpd: &mut Mpd<'_>,
        handle: Option<&mut Handle>,
        index: u64,
    ) -> FsResult<bool> {
        if let Some(h) = handle {
            self.journalled_page_prepare(h, mpd.inode, index).await?;
            self.submit_journalled_page(mpd, index).await;
        } else {
            self.submit_page(mpd, index).await;
        }
        mpd.folio_done(index);
        Ok(true)
    }

    /// What a block needs before it can go to disk.
    fn block_need(&self, inode: &Inode, lblk: u32, dirty: bool) -> Need {
        if !dirty {
            return Need::Ready;
        }
        match inode.es.borrow().lookup(lblk).map(|e| e.status) {
            Some(EsStatus::Unwritten) => Need::Convert,
            Some(EsStatus::Written) => Need::Ready,
            // Where nothing is cached the mapping call reads the tree and allocates only in a hole.
            Some(EsStatus::Delayed | EsStatus::Hole) | None => Need::Alloc,
        }
    }

    /// Looks at the blocks of a locked page from block `first`: adds those that must be mapped to the extent, or
    /// sends the page if none must. Blocks of the page before `ready` were mapped just now. False when the extent
    /// is complete (kernel `mpage_process_page_bufs`).
    async fn process_page(
        &self,
        mpd: &mut Mpd<'_>,
        index: u64,
        first: u32,
        ready: Option<u32>,
    ) -> FsResult<bool> {
        let per_page = 4096 / self.geo.block_size;
        let end = mpd.inode.end_lblk(self.geo.block_bits).0;
        let base = (index as u32).wrapping_mul(per_page);
        let dirty = mpd.inode.mapping.with(index, |f| f.dirty()).unwrap_or(0);
        let mut past_end = false;
        for b in first..per_page {
            let lblk = base + b;
            past_end = lblk >= end;
            let known = ready.is_some_and(|r| lblk < r);
            let need = if known || past_end {
                Need::Ready
            } else {
                self.block_need(mpd.inode, lblk, dirty & (1 << b) != 0)
            };
            if !past_end && add_block(mpd, lblk, need) {
                continue;
            }
            if mpd.extent.is_some() || !mpd.do_map && !past_end {
                return Ok(false);
            }
            break;
        }
        if mpd.extent.is_none() {
            self.submit_page(mpd, index).await;
            mpd.folio_done(index);
        }
        if past_end {
            mpd.scanned_until_end = true;
            return Ok(false);
        }
        Ok(true)
    }

    /// Maps the collected extent piece by piece and sends the pages it completes
    /// (kernel `mpage_map_and_submit_extent`).
    async fn map_and_submit_extent(
        &self,
        h: &mut Handle,
        mpd: &mut Mpd<'_>,
        give_up: &mut bool,
    ) -> FsResult<()> {
        let inode = Rc::clone(mpd.inode);
        let mut progress = false;
        let mut res = Ok(());
        while let Some(e) = mpd.extent {
            match self.map_one_extent(h, mpd, e).await {
                Ok(len) => {
                    progress = true;
                    self.submit_mapped(mpd, e.lblk, len).await?;
                }
                Err(err) => {
                    let retry = matches!(err, FsError::NoSpace) && self.free_clusters.sum() > 0;
                    if !retry || self.journal().is_none() {
                        *give_up = !retry;
                        if !progress {
                            return Err(err);
                        }
                    }
                    res = Err(err);
                    break;
                }
            }
        }
        self.wb_update_disksize(h, &inode, mpd.start_pos).await?;
        if progress && matches!(res, Err(FsError::NoSpace)) && !*give_up {
            res = Ok(());
        }
        res
    }

    /// `mpage_map_one_extent`: blocks mapped.
    async fn map_one_extent(&self, h: &mut Handle, mpd: &Mpd<'_>, e: Extent) -> FsResult<u32> {
        let nolock = self.should_dioread_nolock(mpd.inode);
        let mut flags = MapFlags::CREATE
            .with(MapFlags::METADATA_NOFAIL)
            .with(MapFlags::IO_SUBMIT);
        if nolock {
            flags = flags.with(MapFlags::IO_CREATE_EXT);
        }
        if e.need == Need::Alloc {
            flags = flags.with(MapFlags::DELALLOC_RESERVE);
        }
        let request = MapRequest {
            lblk: Lblk(e.lblk),
            len: e.len,
            flags,
        };
        let m = self.map_blocks(Some(h), mpd.inode, request).await?;
        if nolock && m.kind == MappingKind::Unwritten {
            if let Some(end) = &mpd.io.io_end {
                let bits = self.geo.block_bits;
                let from = u64::from(e.lblk) << bits;
                end.convert_later(h, from, u64::from(m.len) << bits);
            }
        }
        Ok(m.len)
    }

    /// Sends the pages all of whose blocks are mapped now; the rest of a folio that is not complete becomes the
    /// next extent (kernel `mpage_map_and_submit_buffers`).
    async fn submit_mapped(&self, mpd: &mut Mpd<'_>, lblk: u32, len: u32) -> FsResult<()> {
        let per_page = 4096 / self.geo.block_size;
        let end = lblk + len;
        let last = u64::from((end - 1) / per_page);
        mpd.extent = None;
        for index in u64::from(lblk / per_page)..last {
            if mpd.held.contains(&index) {
                self.submit_page(mpd, index).await;
                mpd.folio_done(index);
            }
        }
        let order = mpd.inode.mapping.with(last, |f| f.order()).unwrap_or(0);
        let folio_end = ((last >> order) + 1) << order;
        for index in last..folio_end.min(mpd.held.end) {
            if !mpd.held.contains(&index) {
                continue;
            }
            let (first, ready) = if index == last {
                // Past its last block nothing is looked at.
                (end - last as u32 * per_page, Some(end))
            } else {
                (0, None)
            };
            if !self.process_page(mpd, index, first, ready).await? {
                break;
            }
        }
        Ok(())
    }

    /// Adds the dirty blocks of a locked page to the bio at hand (kernel `mpage_submit_folio`,
    /// `ext4_bio_write_folio`).
    pub(super) async fn submit_page(&self, mpd: &mut Mpd<'_>, index: u64) {
        let mapping = mpd.inode.mapping.clone();
        let bs = self.geo.block_size;
        let per_page = 4096 / bs;
        let size = mpd.inode.size();
        mapping.clear_dirty_for_io(index);
        let valid = size.saturating_sub(index << 12).min(4096) as usize;
        let limit = (valid as u32).div_ceil(bs);
        let todo = mapping.with(index, |f| {
            if valid < 4096 {
                f.zero_range(valid, 4096);
            }
            let past: BlockMask = if limit >= 8 { 0 } else { 0xff << limit };
            f.clear_dirty(past & 0xf);
            f.dirty()
        });
        let (mut blocks, mut skipped) = (Vec::with_capacity(per_page as usize), 0);
        for b in 0..per_page {
            let mask = 1 << b;
            if todo.unwrap_or(0) & mask == 0 {
                continue;
            }
            let lblk = (index as u32).wrapping_mul(per_page) + b;
            match self.home_of(mpd, lblk) {
                Some(pblk) => blocks.push((b, pblk)),
                None => skipped |= mask,
            }
        }
        if skipped != 0 {
            mapping.set_dirty(index, skipped);
        }
        if blocks.is_empty() {
            if skipped == 0 {
                mapping.clear_to_write(index);
            }
            return;
        }
        let must_return = skipped != 0 && mapping.is_tagged(index, Tag::ToWrite);
        mapping.start_writeback(index);
        if must_return {
            mapping.set_to_write(index);
        }
        self.send_blocks(mpd, index, &blocks).await;
    }

    /// Where a block that is about to be written lies: `None` if it is delayed or a hole.
    fn home_of(&self, mpd: &Mpd<'_>, lblk: u32) -> Option<u64> {
        let e = mpd.inode.es.borrow().lookup(lblk)?;
        let usable = match e.status {
            EsStatus::Written => true,
            // Without a handle an unwritten block could not be converted afterwards.
            EsStatus::Unwritten => mpd.can_map && mpd.do_map,
            EsStatus::Delayed | EsStatus::Hole => false,
        };
        usable.then(|| e.pblk + u64::from(lblk - e.lblk))
    }

    async fn send_blocks(&self, mpd: &mut Mpd<'_>, index: u64, blocks: &[(u32, u64)]) {
        let mapping = mpd.inode.mapping.clone();
        let bs = self.geo.block_size;
        let all: BlockMask = blocks.iter().fold(0, |m, (b, _)| m | 1 << b);
        mapping.with(index, |f| {
            f.clear_dirty(all);
            f.set_in_flight(all);
        });
        for &(block, pblk) in blocks {
            let taken = mapping.with(index, |f| (f.block_payload(block, bs), f.order()));
            let Some((payload, order)) = taken else {
                continue;
            };
            let w = WriteBlock {
                index,
                block,
                pblk,
                payload,
                order,
                buffer: None,
            };
            self.io_add_block(&mut mpd.io, w).await;
        }
    }

    /// `i_disksize` follows the I/O that was started (end of `mpage_map_and_submit_extent`).
    async fn wb_update_disksize(
        &self,
        h: &mut Handle,
        inode: &Rc<Inode>,
        pos: u64,
    ) -> FsResult<()> {
        if pos <= inode.disksize.get() {
            return Ok(());
        }
        {
            let _sem = inode.i_data_sem.write().await;
            let size = pos.min(inode.size());
            if size > inode.disksize.get() {
                inode.disksize.set(size);
            }
        }
        self.mark_dirty_nojournal(inode);
        self.mark_inode_dirty(h, inode).await
    }
}

/// Adds a block to the extent; false if it does not continue it (kernel `mpage_add_bh_to_extent`).
fn add_block(mpd: &mut Mpd<'_>, lblk: u32, need: Need) -> bool {
    if need == Need::Ready {
        return mpd.extent.is_none();
    }
    match &mut mpd.extent {
        None => {
            if mpd.do_map {
                let len = 1;
                mpd.extent = Some(Extent { lblk, len, need });
            }
            mpd.do_map
        }
        Some(e) if e.len < MAX_EXTENT_LEN && lblk == e.lblk + e.len && need == e.need => {
            e.len += 1;
            true
        }
        Some(_) => false,
    }
}
