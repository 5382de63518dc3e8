//! One door to the mapping of a file, by extents or block map (kernel `ext4_map_blocks`).

#![allow(
    clippy::unused_self,
    reason = "all operations are methods of the file system"
)]

use super::extents::ExCache;
use super::extents_status::EsStatus;
use super::mballoc::{AllocRequest, MbFlags};
use super::{flag, Ext4, Inode, Stats};
use crate::base::{FsBlock, Lblk};
use crate::format::ext4::extent::{Extent, EXT_MAX_BLOCKS, EXT_UNWRITTEN_MAX_LEN};
use crate::format::{Corrupt, CorruptKind};
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::Handle;

/// What a mapping call may do (kernel `EXT4_GET_BLOCKS_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapFlags(pub u32);

impl MapFlags {
    /// Only look.
    pub const NONE: MapFlags = MapFlags(0);
    /// Allocate where there is a hole.
    pub const CREATE: MapFlags = MapFlags(1);
    /// New extents are unwritten.
    pub const UNWRIT_EXT: MapFlags = MapFlags(2);
    /// The blocks were reserved by delayed allocation.
    pub const DELALLOC_RESERVE: MapFlags = MapFlags(4);
    /// I/O is about to be submitted: split unwritten extents now, keep new ones apart (`PRE_IO`).
    pub const PRE_IO: MapFlags = MapFlags(8);
    /// Unwritten becomes written: I/O has ended.
    pub const CONVERT: MapFlags = MapFlags(0x10);
    /// May use the pool kept for writeback.
    pub const METADATA_NOFAIL: MapFlags = MapFlags(0x20);
    /// No surplus is allocated (fallocate).
    pub const NO_NORMALIZE: MapFlags = MapFlags(0x40);
    /// Written becomes unwritten (zero range).
    pub const CONVERT_UNWRITTEN: MapFlags = MapFlags(0x100);
    /// New blocks are zeroed on disk before they are mapped.
    pub const ZERO: MapFlags = MapFlags(0x200);
    /// The caller submits the I/O itself (writepages): ordered mode waits only.
    pub const IO_SUBMIT: MapFlags = MapFlags(0x400);
    /// Answer from memory only.
    pub const CACHED_NOWAIT: MapFlags = MapFlags(0x800);
    /// `CREATE | UNWRIT_EXT | PRE_IO` (kernel `IO_CREATE_EXT`).
    pub const IO_CREATE_EXT: MapFlags = MapFlags(1 | 2 | 8);
    /// `CREATE | UNWRIT_EXT | CONVERT` (kernel `IO_CONVERT_EXT`).
    pub const IO_CONVERT_EXT: MapFlags = MapFlags(1 | 2 | 0x10);

    /// True if all flags of `other` are set.
    pub const fn has(self, other: MapFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets.
    #[must_use]
    pub const fn with(self, other: MapFlags) -> MapFlags {
        MapFlags(self.0 | other.0)
    }
}

/// What to map.
#[derive(Clone, Copy, Debug)]
pub struct MapRequest {
    /// First logical block.
    pub lblk: Lblk,
    /// Blocks, at least 1.
    pub len: u32,
    /// What may be done.
    pub flags: MapFlags,
}

/// What a range is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MappingKind {
    /// Nothing is mapped.
    Hole,
    /// Mapped and written.
    Mapped,
    /// Mapped, reads as zero.
    Unwritten,
    /// In memory only.
    Delayed,
}

/// The answer: what the first `len` blocks of the request are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Kind.
    pub kind: MappingKind,
    /// First physical block, if mapped.
    pub pblk: FsBlock,
    /// Blocks the answer is for.
    pub len: u32,
    /// Freshly allocated.
    pub new: bool,
}

impl Mapping {
    /// First physical block of a mapped or unwritten range.
    pub fn mapped_block(&self) -> Option<FsBlock> {
        matches!(self.kind, MappingKind::Mapped | MappingKind::Unwritten).then_some(self.pblk)
    }

    pub(crate) fn hole(len: u32) -> Mapping {
        Mapping {
            kind: MappingKind::Hole,
            pblk: FsBlock(0),
            len,
            new: false,
        }
    }

    pub(crate) fn at(kind: MappingKind, pblk: u64, len: u32, new: bool) -> Mapping {
        Mapping {
            kind,
            pblk: FsBlock(pblk),
            len,
            new,
        }
    }
}

impl Ext4 {
    /// Maps a range (kernel `ext4_map_blocks`). A handle is needed with `CREATE`. The answer may be for fewer
    /// blocks. Takes `i_data_sem`; may read tree blocks and bitmaps.
    pub async fn map_blocks(
        &self,
        h: Option<&mut Handle>,
        inode: &Inode,
        req: MapRequest,
    ) -> FsResult<Mapping> {
        let (lblk, len) = (req.lblk.0, req.len);
        let flags = req.flags;
        if lblk == EXT_MAX_BLOCKS {
            return Err(self.corrupt(Corrupt::new(CorruptKind::ExtentLength { lblk }, 0)));
        }
        let found = match self.es_mapping(inode, lblk, len) {
            Some(m) => {
                self.sim.charge(self.cost.map_cached).await;
                m
            }
            None if flags.has(MapFlags::CACHED_NOWAIT) => return Ok(Mapping::hole(0)),
            None => {
                let _sem = inode.i_data_sem.read().await;
                self.query_blocks(inode, lblk, len).await?
            }
        };
        if let Some(pblk) = found.mapped_block() {
            self.check_block_validity(inode, lblk, pblk, found.len)?;
        }
        if !flags.has(MapFlags::CREATE) {
            return Ok(found);
        }
        let keep = found.kind == MappingKind::Mapped && !flags.has(MapFlags::CONVERT_UNWRITTEN);
        if keep {
            return Ok(found);
        }
        let Some(h) = h else {
            return Err(FsError::Unsupported(
                "allocation without a handle".to_owned(),
            ));
        };
        let m = {
            let _sem = inode.i_data_sem.write().await;
            self.create_blocks(h, inode, lblk, found.len, flags).await?
        };
        if m.mapped_block().is_some() && m.len > 0 {
            self.fc_track_range(h, inode, lblk, lblk + m.len - 1);
        }
        if let Some(pblk) = m.mapped_block() {
            self.check_block_validity(inode, lblk, pblk, m.len)?;
        }
        let order = m.new
            && m.kind == MappingKind::Mapped
            && !flags.has(MapFlags::ZERO)
            && self.should_order_data(inode);
        if order {
            let start = u64::from(lblk) << self.geo.block_bits;
            let bytes = u64::from(m.len) << self.geo.block_bits;
            if flags.has(MapFlags::IO_SUBMIT) {
                self.inode_add_wait(h, inode, start, bytes);
            } else {
                self.inode_add_write(h, inode, start, bytes);
            }
        }
        Ok(m)
    }

    fn check_block_validity(
        &self,
        inode: &Inode,
        _lblk: u32,
        pblk: FsBlock,
        len: u32,
    ) -> FsResult<()> {
        if self.zone_valid(inode.ino, pblk.0, u64::from(len)) {
            return Ok(());
        }
        Err(self.corrupt_alloc(inode.ino, pblk.0))
    }

    /// What the extent status tree knows.
    pub fn es_mapping(&self, inode: &Inode, lblk: u32, len: u32) -> Option<Mapping> {
        let e = inode.es.borrow().lookup(lblk)?;
        let off = lblk - e.lblk;
        let n = (e.len - off).min(len);
        let kind = match e.status {
            EsStatus::Written => MappingKind::Mapped,
            EsStatus::Unwritten => MappingKind::Unwritten,
            EsStatus::Delayed => MappingKind::Delayed,
            EsStatus::Hole => MappingKind::Hole,
        };
        let pblk = if e.pblk == 0 {
            0
        } else {
            e.pblk + u64::from(off)
        };
        Some(Mapping::at(kind, pblk, n, false))
    }

    /// Looks in the tree on disk and caches what it says (kernel `ext4_map_query_blocks`).
    async fn query_blocks(&self, inode: &Inode, lblk: u32, len: u32) -> FsResult<Mapping> {
        self.count_ext_map();
        if !inode.has_flag(flag::EXTENTS) {
            let m = self.ind_query(inode, lblk, len).await?;
            let status = match m.kind {
                MappingKind::Mapped => EsStatus::Written,
                _ => EsStatus::Hole,
            };
            inode.es.borrow_mut().cache(lblk, m.len, m.pblk.0, status);
            return Ok(m);
        }
        let path = self.ext_path(inode, lblk, ExCache::Leaves).await?;
        if let Some(e) = self.path_extent(inode, &path).filter(|e| covers(e, lblk)) {
            let (status, kind) = if e.unwritten {
                (EsStatus::Unwritten, MappingKind::Unwritten)
            } else {
                (EsStatus::Written, MappingKind::Mapped)
            };
            let (pblk, n) = at_block(&e, lblk);
            let n = n.min(len);
            inode.es.borrow_mut().insert(lblk, n, pblk, status);
            return Ok(Mapping::at(kind, pblk, n, false));
        }
        let (start, hole_len) = self.hole_around(inode, &path, lblk);
        let n = determine_insert_hole(inode, lblk, start, hole_len);
        Ok(Mapping::hole(n.min(len)))
    }

    /// The hole that holds `lblk`: start and length.
    fn hole_around(&self, inode: &Inode, path: &super::extents::ExtPath, lblk: u32) -> (u32, u32) {
        let Some(e) = self.path_extent(inode, path) else {
            return (0, EXT_MAX_BLOCKS);
        };
        if lblk < e.lblk {
            return (lblk, e.lblk - lblk);
        }
        let start = u32::try_from(e.end()).unwrap_or(EXT_MAX_BLOCKS);
        let next = self.next_allocated_block(inode, path);
        (start, next.saturating_sub(start).max(1))
    }

    /// Allocates or converts (kernel `ext4_map_create_blocks`). The caller holds `i_data_sem` for writing.
    async fn create_blocks(
        &self,
        h: &mut Handle,
        inode: &Inode,
        lblk: u32,
        len: u32,
        flags: MapFlags,
    ) -> FsResult<Mapping> {
        self.count_ext_map();
        let m = if inode.has_flag(flag::EXTENTS) {
            self.ext_create(h, inode, lblk, len, flags).await?
        } else {
            self.ind_map(h, inode, lblk, len, flags).await?
        };
        if m.mapped_block().is_none() || m.len == 0 {
            return Ok(m);
        }
        if m.new && flags.has(MapFlags::ZERO) && m.kind == MappingKind::Mapped {
            self.issue_zeroout(inode, lblk, m.pblk, m.len).await?;
        }
        let status = if m.kind == MappingKind::Unwritten {
            EsStatus::Unwritten
        } else {
            EsStatus::Written
        };
        let keep = flags.has(MapFlags::PRE_IO)
            && inode
                .es
                .borrow()
                .lookup(lblk)
                .is_some_and(|e| e.status == EsStatus::Written);
        if keep {
            return Ok(m);
        }
        let replaced = inode.es.borrow_mut().insert(lblk, m.len, m.pblk.0, status);
        if replaced > 0 {
            let claimed = flags.has(MapFlags::DELALLOC_RESERVE);
            self.da_update_reserve(h, inode, u64::from(replaced), claimed)
                .await?;
        }
        Ok(m)
    }

    /// The creating half of `ext4_ext_map_blocks`.
    async fn ext_create(
        &self,
        h: &mut Handle,
        inode: &Inode,
        lblk: u32,
        len: u32,
        flags: MapFlags,
    ) -> FsResult<Mapping> {
        let path = self.ext_path(inode, lblk, ExCache::Leaves).await?;
        let Some(e) = self.path_extent(inode, &path).filter(|e| covers(e, lblk)) else {
            return self.ext_allocate(h, inode, path, lblk, len, flags).await;
        };
        let (pblk, n) = at_block(&e, lblk);
        let n = n.min(len);
        if !e.unwritten {
            if flags.has(MapFlags::CONVERT_UNWRITTEN) {
                let n = self.convert_to_unwritten(h, inode, e, (lblk, n)).await?;
                self.update_inode_fsync_trans(h, inode, true);
                return Ok(Mapping::at(MappingKind::Unwritten, pblk, n, false));
            }
            return Ok(Mapping::at(MappingKind::Mapped, pblk, n, false));
        }
        Stats::inc(&self.stats.ext4_ext_handle_unwritten_extents);
        if flags.has(MapFlags::PRE_IO) {
            self.split_for_io(h, inode, e, (lblk, n), false).await?;
            return Ok(Mapping::at(MappingKind::Unwritten, pblk, n, false));
        }
        if flags.has(MapFlags::CONVERT) {
            self.convert_endio(h, inode, e, (lblk, n)).await?;
            self.update_inode_fsync_trans(h, inode, true);
            return Ok(Mapping::at(MappingKind::Mapped, pblk, n, false));
        }
        if flags.has(MapFlags::UNWRIT_EXT) {
            return Ok(Mapping::at(MappingKind::Unwritten, pblk, n, false));
        }
        let n = self
            .convert_to_initialized(h, inode, e, (lblk, n), false)
            .await?;
        self.update_inode_fsync_trans(h, inode, true);
        Ok(Mapping::at(MappingKind::Mapped, pblk, n, true))
    }

    /// Allocates for a hole and inserts the extent.
    async fn ext_allocate(
        &self,
        h: &mut Handle,
        inode: &Inode,
        path: super::extents::ExtPath,
        lblk: u32,
        len: u32,
        flags: MapFlags,
    ) -> FsResult<Mapping> {
        let unwritten = flags.has(MapFlags::UNWRIT_EXT);
        let mut len = len.min(u32::from(Extent::max_len(unwritten)));
        let left = self.search_left(inode, &path, lblk);
        let right = self.search_right(inode, &path, lblk).await?;
        let next = self.next_for_overlap(inode, &path, lblk);
        len = len.min(next.saturating_sub(lblk).max(1));
        let mut ar = AllocRequest {
            logical: lblk,
            len,
            goal: self.ext_find_goal(inode, &path, lblk),
            flags: self.alloc_flags(inode, flags),
            ..AllocRequest::default()
        };
        if let Some((l, p)) = left {
            (ar.lleft, ar.pleft) = (l, p);
        }
        if let Some(e) = right {
            (ar.lright, ar.pright) = (e.lblk, e.pblk);
        }
        let pblk = self.mb_new_blocks(h, inode, &mut ar).await?;
        let got = ar.len.min(len);
        let newex = Extent {
            lblk,
            len: got as u16,
            unwritten,
            pblk: pblk.0,
        };
        let nomerge = flags.has(MapFlags::PRE_IO);
        let mut mb = MbFlags::NONE;
        mb.set(MbFlags::USE_RESERVED, flags.has(MapFlags::METADATA_NOFAIL));
        mb.set(
            MbFlags::DELALLOC_RESERVED,
            flags.has(MapFlags::DELALLOC_RESERVE),
        );
        if let Err(e) = self
            .insert_extent(h, inode, path, newex, (nomerge, mb))
            .await
        {
            self.discard_preallocations(inode).await?;
            let fb = super::FreeFlags::NO_QUOT_UPDATE;
            let reserved = ar.flags.has(MbFlags::DELALLOC_RESERVED);
            self.free_blocks(h, inode, pblk, got, fb).await?;
            if !reserved {
                self.add_blocks(h, inode, -i64::from(got)).await?;
            }
            return Err(e);
        }
        self.update_inode_fsync_trans(h, inode, !unwritten);
        let kind = if unwritten {
            MappingKind::Unwritten
        } else {
            MappingKind::Mapped
        };
        Ok(Mapping::at(kind, pblk.0, got, true))
    }

    pub(crate) fn alloc_flags(&self, inode: &Inode, flags: MapFlags) -> MbFlags {
        let mut mb = MbFlags::NONE;
        mb.set(MbFlags::HINT_DATA, inode.is_reg());
        mb.set(MbFlags::HINT_NOPREALLOC, flags.has(MapFlags::NO_NORMALIZE));
        mb.set(
            MbFlags::DELALLOC_RESERVED,
            flags.has(MapFlags::DELALLOC_RESERVE),
        );
        mb.set(MbFlags::USE_RESERVED, flags.has(MapFlags::METADATA_NOFAIL));
        mb
    }

    /// First allocated block after `lblk`, which is in a hole (kernel `ext4_ext_check_overlap`).
    fn next_for_overlap(&self, inode: &Inode, path: &super::extents::ExtPath, lblk: u32) -> u32 {
        match self.path_extent(inode, path) {
            Some(e) if e.lblk > lblk => e.lblk,
            Some(_) => self.next_allocated_block(inode, path),
            None => EXT_MAX_BLOCKS,
        }
    }

    /// Reserves space for a block that is written to memory only, and notes it as delayed (kernel
    /// `ext4_insert_delayed_blocks`, `ext4_da_reserve_space`).
    pub fn da_reserve(&self, inode: &Inode, lblk: u32) -> FsResult<()> {
        self.claim_free_clusters(1, MbFlags::NONE)?;
        Stats::inc(&self.stats.ext4_da_reserve_space);
        inode.reserved_blocks.set(inode.reserved_blocks.get() + 1);
        inode.es.borrow_mut().insert(lblk, 1, 0, EsStatus::Delayed);
        Ok(())
    }

    /// Gives reservations back (kernel `ext4_da_release_space`).
    pub fn da_release(&self, inode: &Inode, n: u64) {
        if n == 0 {
            return;
        }
        Stats::inc(&self.stats.ext4_da_release_space);
        let n = n.min(inode.reserved_blocks.get());
        inode.reserved_blocks.set(inode.reserved_blocks.get() - n);
        self.dirty_clusters.add(-(n as i64));
    }

    /// Reserved blocks became allocated ones (kernel `ext4_da_update_reserve_space`): if the allocation used the
    /// reservation it is counted in `i_blocks` here.
    async fn da_update_reserve(
        &self,
        h: &mut Handle,
        inode: &Inode,
        used: u64,
        claimed: bool,
    ) -> FsResult<()> {
        let n = used.min(inode.reserved_blocks.get());
        inode.reserved_blocks.set(inode.reserved_blocks.get() - n);
        self.dirty_clusters.add(-(n as i64));
        if claimed {
            self.add_blocks(h, inode, used as i64).await?;
        }
        if inode.reserved_blocks.get() == 0 && inode.writers.get() == 0 {
            self.discard_preallocations(inode).await?;
        }
        Ok(())
    }

    /// Converts unwritten blocks of a byte range when its I/O has ended (kernel
    /// `ext4_convert_unwritten_extents`). Without a handle, starts one for each piece.
    pub async fn convert_unwritten(
        &self,
        mut h: Option<&mut Handle>,
        inode: &Inode,
        offset: u64,
        len: u64,
    ) -> FsResult<()> {
        let bits = self.geo.block_bits;
        let mut lblk = (offset >> bits) as u32;
        let end = ((offset + len).div_ceil(1 << bits)) as u32;
        while lblk < end {
            let req = MapRequest {
                lblk: Lblk(lblk),
                len: end - lblk,
                flags: MapFlags::IO_CONVERT_EXT,
            };
            let n = match h.as_deref_mut() {
                Some(h) => {
                    let n = self.map_blocks(Some(h), inode, req).await?.len;
                    self.mark_inode_dirty(h, inode).await?;
                    n
                }
                None => self.convert_piece(inode, req).await?,
            };
            if n == 0 {
                return Err(self.corrupt(Corrupt::new(CorruptKind::ExtentLength { lblk }, 0)));
            }
            lblk += n;
        }
        Ok(())
    }

    async fn convert_piece(&self, inode: &Inode, req: MapRequest) -> FsResult<u32> {
        use crate::fs::jbd2::HandleType;
        let credits = self.chunk_trans_blocks(inode, req.len);
        let mut h = self.journal_start(HandleType::MapBlocks, credits).await?;
        let done = self.map_blocks(Some(&mut h), inode, req).await;
        let marked = self.mark_inode_dirty(&mut h, inode).await;
        self.journal_stop(h).await?;
        marked?;
        Ok(done?.len)
    }
}

/// Notes the gap `start..start + len` around `lblk` as a hole as far as no block in it is delayed; returns the blocks
/// from `lblk` on (kernel `ext4_ext_determine_insert_hole`).
fn determine_insert_hole(inode: &Inode, lblk: u32, start: u32, len: u32) -> u32 {
    let end = start.saturating_add(len);
    let mut es = inode.es.borrow_mut();
    let mut from = start;
    let mut to = end;
    while let Some(e) = es.next_delayed(from, end) {
        if e.end() <= lblk {
            from = lblk;
        } else if e.lblk <= lblk {
            return e.end() - lblk;
        } else {
            to = e.lblk;
            break;
        }
    }
    es.insert(from, to - from, 0, EsStatus::Hole);
    to - lblk
}

fn covers(e: &Extent, lblk: u32) -> bool {
    lblk >= e.lblk && u64::from(lblk) < e.end()
}

/// Physical block of `lblk` in the extent, and the blocks from there to its end.
fn at_block(e: &Extent, lblk: u32) -> (u64, u32) {
    let off = lblk - e.lblk;
    (e.pblk + u64::from(off), u32::from(e.len) - off)
}

const _: () = assert!(EXT_UNWRITTEN_MAX_LEN == 32767);
