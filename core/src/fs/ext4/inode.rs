//! Inodes between disk and memory (kernel `inode.c`): reading, writing to the table block, dropping.

use super::ext4_jbd2::OrphanSlot;
use super::{flag, mode, state, Ext4, IVersionMode, Inode, InodeCore, Stats, Ts};
use crate::base::{bitmap, bytes, Errno, FsBlock, Ino, Lblk, Nanos, Tid};
use crate::block::Role;
use crate::format::ext4::{features, CsumCtx, RawInode, Timestamp};
use crate::format::{Corrupt, CorruptKind};
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::{Handle, HandleType};
use crate::mm::buffer::{Bh, Buffer, Trigger, TriggerArgs};
use crate::mm::{dirty, AddressSpace};
use crate::sim::sync::RwLock;
use crate::sim::{LockRank, WaitReason};
use crate::trace::{Category, Event};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Bytes before the extra fields.
const GOOD_OLD: usize = 128;

impl InodeCore {
    /// Decodes the bytes of an inode (kernel `__ext4_iget`, the part without side effects).
    pub fn decode(b: &[u8], block_size: u32) -> Result<InodeCore, Corrupt> {
        let raw = RawInode::decode(b)?;
        let ts = |t: Timestamp| (t.secs, t.nanos);
        let has_extra = b.len() > GOOD_OLD;
        let body = GOOD_OLD + usize::from(raw.i_extra_isize);
        Ok(InodeCore {
            mode: u32::from(raw.i_mode),
            uid: raw.i_uid,
            gid: raw.i_gid,
            projid: raw.i_projid,
            nlink: u32::from(raw.i_links_count),
            size: raw.i_size,
            atime: ts(raw.atime()),
            ctime: ts(raw.ctime()),
            mtime: ts(raw.mtime()),
            crtime: ts(raw.crtime()),
            dtime: raw.i_dtime,
            flags: raw.i_flags,
            generation: raw.i_generation,
            blocks: raw.blocks_512(block_size),
            file_acl: raw.i_file_acl,
            version: raw.i_version,
            i_block: raw.i_block,
            extra_isize: raw.i_extra_isize,
            ibody: if has_extra {
                b.get(body..).unwrap_or(&[]).to_vec()
            } else {
                Vec::new()
            },
        })
    }

    /// Writes all fields into the bytes of an inode; the checksum is left alone (kernel
    /// `ext4_fill_raw_inode`). `disksize` is the size to store.
    pub fn encode(&self, b: &mut [u8], disksize: u64, block_size: u32) {
        let mut raw = RawInode::decode_lenient(b);
        let ts = |(secs, nanos): Ts| Timestamp { secs, nanos };
        raw.i_mode = self.mode as u16;
        raw.i_uid = self.uid;
        raw.i_gid = self.gid;
        raw.i_projid = self.projid;
        raw.i_links_count = self.nlink as u16;
        raw.i_size = disksize;
        raw.i_extra_isize = self.extra_isize;
        raw.set_atime(ts(self.atime));
        raw.set_ctime(ts(self.ctime));
        raw.set_mtime(ts(self.mtime));
        raw.set_crtime(ts(self.crtime));
        raw.i_dtime = self.dtime;
        raw.i_generation = self.generation;
        raw.i_file_acl = self.file_acl;
        raw.i_version = self.version;
        raw.i_block = self.i_block;
        raw.i_flags = self.flags & !flag::HUGE_FILE;
        raw.i_blocks = self.blocks;
        if self.blocks >> 48 != 0 {
            raw.i_flags |= flag::HUGE_FILE;
            raw.i_blocks = self.blocks / u64::from(block_size / 512);
        }
        raw.encode(b);
        if b.len() > GOOD_OLD {
            let body = GOOD_OLD + usize::from(self.extra_isize);
            bytes::put_slice(b, body, &self.ibody);
        }
    }
}

/// Checksums of the inodes of a table block whose mask bit is set. `extra`: first inode number, inode size << 32.
fn itable_csum(args: &TriggerArgs, b: &mut [u8]) {
    let ctx = CsumCtx {
        seed: args.seed,
        metadata_csum: true,
        ..CsumCtx::NONE
    };
    let size = (args.extra >> 32) as usize;
    for (i, raw) in b.chunks_exact_mut(size.max(GOOD_OLD)).enumerate() {
        if args.mask & (1u64 << (i % 64)) != 0 {
            RawInode::csum_set(&ctx, args.extra as u32 + i as u32, raw);
        }
    }
}

impl Ext4 {
    /// An inode in memory with the given contents, one reference, not in the cache.
    pub(crate) fn make_inode(&self, ino: Ino, core: InodeCore) -> Rc<Inode> {
        let lock = |rank, why| RwLock::new(&self.sim, rank, why);
        let dir = core.mode & mode::S_IFMT == mode::S_IFDIR;
        let rank = if dir {
            LockRank::DirInode
        } else {
            LockRank::Inode
        };
        Rc::new(Inode {
            ino,
            rwsem: lock(rank, WaitReason::InodeLock(ino)),
            i_data_sem: lock(LockRank::DataSem, WaitReason::Other("i_data_sem")),
            xattr_sem: lock(LockRank::XattrSem, WaitReason::Other("xattr_sem")),
            disksize: Cell::new(core.size),
            core: RefCell::new(core),
            es: RefCell::default(),
            mapping: AddressSpace::new(&self.vm, ino),
            sync_tid: Cell::new(Tid(0)),
            datasync_tid: Cell::new(Tid(0)),
            state: Cell::new(0),
            reserved_blocks: Cell::new(0),
            refs: Cell::new(1),
            writers: Cell::new(0),
            jinode: RefCell::new(None),
            block_group: self.geo.group_of_ino(ino).0,
            last_alloc_group: Cell::new(None),
            ctime_queried: Cell::new(false),
            iversion_queried: Cell::new(false),
            dir_start_lookup: Cell::new(0),
            pas: RefCell::default(),
            orphan: Cell::new(OrphanSlot::None),
            dirtied_time_when: Cell::new(Nanos::ZERO),
        })
    }

    /// Table block of an inode, and the inode's offset in it.
    pub(crate) fn inode_block(&self, ino: Ino) -> FsResult<(FsBlock, usize)> {
        let group = self.geo.group_of_ino(ino).0;
        if ino.0 == 0 || ino.0 > self.geo.inodes_count || group >= self.geo.groups_count {
            let kind = CorruptKind::InodeNumber {
                ino: ino.0,
                max: self.geo.inodes_count,
            };
            return Err(self.corrupt(Corrupt::new(kind, 0)));
        }
        let itable = self.groups.desc(group).bg_inode_table;
        Ok(self.geo.inode_location(FsBlock(itable), ino))
    }

    /// Reads the table block of an inode (kernel `__ext4_get_inode_loc`). With `in_mem`, all of the inode is in
    /// memory, and a block without any other used inode need not be read.
    pub(crate) async fn get_inode_loc(
        &self,
        ino: Ino,
        in_mem: bool,
    ) -> FsResult<(Rc<Buffer>, usize)> {
        let (block, offset) = self.inode_block(ino)?;
        let bh = self.buffers.getblk(block);
        if bh.uptodate() {
            return Ok((bh, offset));
        }
        bh.set_role(Role::Itable);
        if in_mem && self.only_inode_of_block(ino) {
            bh.modify(|b| b.fill(0));
            bh.set(Bh::UPTODATE);
            return Ok((bh, offset));
        }
        self.itable_readahead(ino, block).await;
        Stats::inc(&self.stats.ext4_load_inode);
        let bh = self.buffers.bread(block, Role::Itable).await?;
        Ok((bh, offset))
    }

    /// True if the inode bitmap is in memory and shows no other used inode in the table block of `ino`.
    fn only_inode_of_block(&self, ino: Ino) -> bool {
        let group = self.geo.group_of_ino(ino).0;
        let block = FsBlock(self.groups.desc(group).bg_inode_bitmap);
        let Some(bm) = self.buffers.find(block).filter(|b| b.uptodate()) else {
            return false;
        };
        let index = self.geo.index_of_ino(ino);
        let first = index - index % self.geo.inodes_per_block;
        bm.read(|m| {
            (first..first + self.geo.inodes_per_block).all(|i| i == index || !bitmap::test(m, i))
        })
    }

    async fn itable_readahead(&self, ino: Ino, block: FsBlock) {
        let ra = u64::from(self.opts.borrow().inode_readahead_blks);
        if ra == 0 {
            return;
        }
        let d = self.groups.desc(self.geo.group_of_ino(ino).0);
        let table = d.bg_inode_table;
        let mut used = self.geo.inodes_per_group;
        if self.geo.group_csum {
            used = used.saturating_sub(d.bg_itable_unused);
        }
        let start = (block.0 & !(ra - 1)).max(table);
        let end = (start + ra).min(table + u64::from(used / self.geo.inodes_per_block));
        let blocks: Vec<FsBlock> = (start..=end)
            .map(FsBlock)
            .filter(|&b| !self.buffers.find(b).is_some_and(|b| b.uptodate()))
            .collect();
        self.buffers.bread_ahead(&blocks, Role::Itable).await;
    }

    /// Gets an inode with a reference (kernel `ext4_iget`). `Errno(ESTALE-like ENOENT)` for a free one.
    pub async fn iget(&self, ino: Ino) -> FsResult<Rc<Inode>> {
        if !self.geo.valid_ino(ino) {
            let kind = CorruptKind::InodeNumber {
                ino: ino.0,
                max: self.geo.inodes_count,
            };
            return Err(self.corrupt(Corrupt::new(kind, 0)));
        }
        self.iget_special(ino).await
    }

    /// The same for reserved inodes as well (kernel `EXT4_IGET_SPECIAL`).
    pub(crate) async fn iget_special(&self, ino: Ino) -> FsResult<Rc<Inode>> {
        loop {
            let cached = self.icache.borrow().get(&ino).map(Rc::clone);
            match cached {
                Some(inode) if inode.has_state(state::FREEING) => {
                    self.icache_wait.wait(WaitReason::InodeLock(ino)).await;
                }
                Some(inode) => {
                    inode.refs.set(inode.refs.get() + 1);
                    while inode.has_state(state::NEW) {
                        self.icache_wait.wait(WaitReason::InodeLock(ino)).await;
                    }
                    return Ok(inode);
                }
                None => break,
            }
        }
        let (bh, offset) = self.get_inode_loc(ino, false).await?;
        // Somebody else may have read it while this task waited.
        if let Some(inode) = self.icache.borrow().get(&ino) {
            inode.refs.set(inode.refs.get() + 1);
            return Ok(Rc::clone(inode));
        }
        let end = offset + self.geo.inode_size as usize;
        let decoded = bh.read(|b| {
            let raw = b.get(offset..end).unwrap_or(&[]);
            RawInode::csum_verify(&self.csum, ino.0, raw)?;
            let core = InodeCore::decode(raw, self.geo.block_size)?;
            check_inode(ino, &core, self.geo.huge_file, bytes::u8_at(raw, 0x1A))?;
            Ok::<_, Corrupt>(core)
        });
        let core = decoded.map_err(|c| self.corrupt(c.at(bh.blocknr.0)))?;
        self.check_deleted(ino, &core)?;
        let mapped =
            core.mode & mode::S_IFMT == mode::S_IFREG || core.mode & mode::S_IFMT == mode::S_IFDIR;
        let kind = core.flags & (flag::EXTENTS | flag::INLINE_DATA);
        let inode = self.make_inode(ino, core);
        if kind & flag::INLINE_DATA == 0 && kind & flag::EXTENTS != 0 {
            self.ext_check_inode(&inode)?;
        }
        if mapped && kind == 0 {
            self.ind_check_inode(&inode)?;
        }
        self.init_inode_state(&inode);
        self.icache.borrow_mut().insert(ino, Rc::clone(&inode));
        Ok(inode)
    }

    /// A free inode, unless it is an orphan being cleaned up or a reserved one.
    fn check_deleted(&self, ino: Ino, core: &InodeCore) -> FsResult<()> {
        let orphans = self.in_orphan_cleanup();
        if core.nlink == 0 && (core.mode == 0 || !orphans) && ino.0 >= self.geo.first_ino {
            return Err(FsError::Errno(Errno::ENOENT));
        }
        if core.file_acl != 0 && !self.zone_valid(ino, core.file_acl, 1) {
            return Err(self.corrupt_alloc(ino, core.file_acl));
        }
        Ok(())
    }

    fn init_inode_state(&self, inode: &Inode) {
        let core = inode.core.borrow();
        let xattr = bytes::le32(&core.ibody, 0) == 0xEA02_0000;
        let tid = self
            .journal()
            .map(|j| j.running_tid().unwrap_or(j.commit_sequence()));
        if let Some(tid) = tid {
            inode.sync_tid.set(tid);
            inode.datasync_tid.set(tid);
        }
        let inline = core.flags & flag::INLINE_DATA != 0;
        drop(core);
        inode.set_state(state::XATTR, xattr);
        inode.set_state(state::MAY_INLINE_DATA, inline);
    }

    /// Takes a second reference.
    pub fn igrab(&self, inode: &Rc<Inode>) -> Rc<Inode> {
        inode.refs.set(inode.refs.get() + 1);
        Rc::clone(inode)
    }

    /// An inode that is in memory, without a reference.
    pub fn cached_inode(&self, ino: Ino) -> Option<Rc<Inode>> {
        self.icache.borrow().get(&ino).map(Rc::clone)
    }

    /// Drops a reference; the last one of an unlinked inode frees it. Others stay cached.
    pub async fn iput(&self, inode: Rc<Inode>) -> FsResult<()> {
        let refs = inode.refs.get();
        if refs == 1 && inode.core.borrow().nlink > 0 && inode.has_state(state::DIRTY_TIME) {
            // The last user of an inode with lazy timestamps writes them (`iput`).
            let written = self.dirty_inode(&inode).await;
            inode.set_state(state::DIRTY_TIME, false);
            written?;
        }
        let refs = inode.refs.get();
        inode.refs.set(refs.saturating_sub(1));
        if refs > 1 || inode.core.borrow().nlink > 0 {
            return Ok(());
        }
        self.evict_inode(&inode).await
    }

    /// Ends `I_NEW` of a new inode (kernel `unlock_new_inode`).
    pub fn unlock_new_inode(&self, inode: &Inode) {
        inode.set_state(state::NEW, false);
        self.icache_wait.wake_all();
    }

    /// Drops an inode from memory, and from disk if it has no links (kernel `ext4_evict_inode`).
    pub(crate) async fn evict_inode(&self, inode: &Rc<Inode>) -> FsResult<()> {
        inode.set_state(state::FREEING, true);
        Stats::inc(&self.stats.ext4_evict_inode);
        inode.mapping.wait_busy().await;
        // Pages stay under writeback until their unwritten extents are converted (`truncate_inode_pages_final`).
        inode.mapping.wait_range(0, u64::MAX).await;
        let freed = if inode.core.borrow().nlink == 0 && self.writable.get() {
            self.truncate_pagecache(inode, 0);
            self.delete_inode(inode).await
        } else {
            self.truncate_pagecache(inode, 0);
            Ok(())
        };
        let cleared = self.clear_inode(inode).await;
        self.icache.borrow_mut().remove(&inode.ino);
        self.icache_wait.wake_all();
        freed.and(cleared)
    }

    /// Forgets what is kept beside an inode (kernel `ext4_clear_inode`).
    async fn clear_inode(&self, inode: &Rc<Inode>) -> FsResult<()> {
        inode.mapping.forget_dirty();
        let discarded = self.discard_preallocations(inode).await;
        let delayed = inode.es.borrow_mut().remove(0, u32::MAX);
        if delayed > 0 {
            self.da_release(inode, u64::from(delayed));
        }
        if let Some(j) = inode.jinode.borrow_mut().take() {
            j.release();
        }
        discarded
    }

    async fn delete_inode(&self, inode: &Rc<Inode>) -> FsResult<()> {
        let credits = self.blocks_for_truncate(inode) + 6 - 3;
        let mut h = match self.journal_start(HandleType::Truncate, credits).await {
            Ok(h) => h,
            Err(e) => {
                self.orphan_del(None, inode).await?;
                return Err(e);
            }
        };
        h.sync = inode.has_flag(flag::SYNC);
        let done = self.delete_inode_locked(&mut h, inode).await;
        let stopped = self.journal_stop(h).await;
        done.and(stopped)
    }

    async fn delete_inode_locked(&self, h: &mut Handle, inode: &Rc<Inode>) -> FsResult<()> {
        if self.is_fast_symlink(inode) {
            inode.core.borrow_mut().i_block = [0; 60];
        }
        inode.core.borrow_mut().size = 0;
        let marked = self.mark_inode_dirty(h, inode).await;
        let mut cut = marked;
        if cut.is_ok() && inode.core.borrow().blocks > 0 {
            cut = self.truncate_for_delete(h, inode).await;
        }
        if cut.is_ok() {
            cut = self.xattr_delete_inode(h, inode).await;
        }
        if cut.is_err() {
            self.orphan_del(None, inode).await?;
            return cut;
        }
        self.orphan_del(Some(h), inode).await?;
        inode.core.borrow_mut().dtime = self.wall_secs() as u32;
        self.mark_inode_dirty(h, inode).await?;
        self.free_inode(h, inode).await
    }

    /// A symbolic link whose target lies in `i_block` (kernel `ext4_inode_is_fast_symlink`).
    pub fn is_fast_symlink(&self, inode: &Inode) -> bool {
        let core = inode.core.borrow();
        core.mode & mode::S_IFMT == mode::S_IFLNK
            && core.size > 0
            && core.size < 60
            && core.flags & (flag::EXTENTS | flag::INLINE_DATA | flag::EA_INODE) == 0
    }

    /// Evicts clean inodes nobody refers to (`drop_caches` 2).
    pub async fn prune_icache(&self) -> FsResult<()> {
        let idle: Vec<Rc<Inode>> = self
            .icache
            .borrow()
            .values()
            .filter(|i| i.refs.get() == 0 && i.mapping.state() == 0 && i.mapping.nrpages() == 0)
            .map(Rc::clone)
            .collect();
        for inode in idle {
            self.evict_inode(&inode).await?;
        }
        Ok(())
    }

    /// Copies the inode to its table block under the handle (kernel `ext4_mark_inode_dirty`).
    pub async fn mark_inode_dirty(&self, h: &mut Handle, inode: &Inode) -> FsResult<()> {
        Stats::inc(&self.stats.ext4_mark_inode_dirty);
        self.sim.charge(self.cost.mark_inode_dirty).await;
        let (bh, offset) = self.reserve_inode_write(h, inode).await?;
        self.mark_iloc_dirty(h, inode, &bh, offset).await
    }

    /// Write access to the table block of the inode (kernel `ext4_reserve_inode_write`).
    pub(crate) async fn reserve_inode_write(
        &self,
        h: &mut Handle,
        inode: &Inode,
    ) -> FsResult<(Rc<Buffer>, usize)> {
        let in_mem = !inode.has_state(state::XATTR);
        let (bh, offset) = self.get_inode_loc(inode.ino, in_mem).await?;
        self.get_write_access(h, &bh).await?;
        Ok((bh, offset))
    }

    /// Copies the inode into the buffer and dirties that (kernel `ext4_mark_iloc_dirty`).
    pub(crate) async fn mark_iloc_dirty(
        &self,
        h: &mut Handle,
        inode: &Inode,
        bh: &Rc<Buffer>,
        offset: usize,
    ) -> FsResult<()> {
        self.maybe_inc_iversion_on_write(inode);
        let size = self.geo.inode_size as usize;
        let need_datasync = bh.modify(|b| {
            let Some(raw) = b.get_mut(offset..offset + size) else {
                return false;
            };
            if inode.has_state(state::EXT4_NEW) {
                raw.fill(0);
            }
            let old = RawInode::decode_lenient(raw);
            let core = inode.core.borrow();
            let disksize = inode.disksize.get();
            core.encode(raw, disksize, self.geo.block_size);
            old.i_size != disksize
        });
        inode.set_state(state::EXT4_NEW, false);
        if self.geo.metadata_csum {
            let index = self.geo.index_of_ino(inode.ino) % self.geo.inodes_per_block;
            bh.set_trigger(Trigger {
                run: itable_csum,
                args: TriggerArgs {
                    seed: self.csum.seed,
                    blocknr: bh.blocknr.0,
                    mask: 1u64 << (index % 64),
                    extra: u64::from(inode.ino.0 - index) | (size as u64) << 32,
                    ..TriggerArgs::default()
                },
            });
        }
        self.dirty_metadata(h, None, bh).await?;
        self.update_inode_fsync_trans(h, inode, need_datasync);
        self.fc_track_inode(h, inode);
        let (ino, block) = (inode.ino, bh.blocknr);
        self.sim.emit(Category::Structures, || Event::InodeChanged {
            ino,
            tid: h.tid().unwrap_or(Tid(0)),
            block,
        });
        if need_datasync && inode.disksize.get() > 0x7fff_ffff {
            self.set_large_file(h).await?;
        }
        Ok(())
    }

    /// The first file above 2 GiB sets the feature in the superblock.
    async fn set_large_file(&self, h: &mut Handle) -> FsResult<()> {
        if self.sb.borrow().has(features::LARGE_FILE) {
            return Ok(());
        }
        let sbh = Rc::clone(&self.sbh);
        self.get_write_access(h, &sbh).await?;
        self.sb.borrow_mut().set_feature(features::LARGE_FILE, true);
        self.encode_super();
        h.sync = true;
        self.dirty_metadata(h, None, &sbh).await
    }

    /// Writes the inode in a handle of its own (kernel `ext4_dirty_inode`).
    pub async fn dirty_inode(&self, inode: &Inode) -> FsResult<()> {
        let mut h = self.journal_start(HandleType::Inode, 2).await?;
        let marked = self.mark_inode_dirty(&mut h, inode).await;
        let stopped = self.journal_stop(h).await;
        inode.set_state(state::DIRTY_TIME, false);
        // `__mark_inode_dirty`: the flusher and a journal-less fsync look at these.
        inode.mapping.mark_dirty(dirty::SYNC | dirty::DATASYNC);
        marked.and(stopped)
    }

    /// Changes `i_blocks` by `n` file system blocks and writes the inode, as the quota code does on allocation
    /// and freeing (kernel `dquot_alloc_block`, `dquot_free_block`).
    pub(crate) async fn add_blocks(&self, h: &mut Handle, inode: &Inode, n: i64) -> FsResult<()> {
        {
            let mut core = inode.core.borrow_mut();
            let units = n * i64::from(self.geo.block_size / 512);
            core.blocks = core.blocks.saturating_add_signed(units);
        }
        Stats::inc(&self.stats.ext4_journal_start_inode);
        // `mark_inode_dirty`: fsync without a journal and the flusher look at these.
        inode.mapping.mark_dirty(dirty::SYNC | dirty::DATASYNC);
        self.mark_inode_dirty(h, inode).await
    }

    /// Without a journal an inode's changes are written by fsync and the flusher, which look at its state.
    pub(crate) fn mark_dirty_nojournal(&self, inode: &Inode) {
        if self.journal.borrow().is_none() {
            inode.mapping.mark_dirty(dirty::SYNC | dirty::DATASYNC);
        }
    }

    /// Counts a change in `i_version`, always (kernel `inode_inc_iversion`).
    pub fn inc_iversion(&self, inode: &Inode) {
        if self.opts.borrow().iversion == IVersionMode::Off {
            return;
        }
        let mut core = inode.core.borrow_mut();
        core.version = core.version.wrapping_add(1);
        inode.iversion_queried.set(false);
    }

    /// Counts a change if somebody looked since the last one; true if it did
    /// (kernel `inode_maybe_inc_iversion`).
    pub fn maybe_inc_iversion(&self, inode: &Inode, force: bool) -> bool {
        let always = match self.opts.borrow().iversion {
            IVersionMode::Off => return false,
            IVersionMode::Unconditional => true,
            IVersionMode::Lazy => force || inode.iversion_queried.get(),
        };
        if always {
            self.inc_iversion(inode);
        }
        always
    }

    /// `ext4_mark_iloc_dirty` counts a change that somebody could have seen.
    fn maybe_inc_iversion_on_write(&self, inode: &Inode) {
        if self.opts.borrow().iversion == IVersionMode::Lazy {
            self.maybe_inc_iversion(inode, false);
        }
    }

    /// The change counter as a query sees it; the next change will count (kernel `inode_query_iversion`).
    pub fn query_iversion(&self, inode: &Inode) -> u64 {
        inode.iversion_queried.set(true);
        inode.core.borrow().version
    }

    /// Sets mtime and ctime for a write, and dirties the inode if that changed anything; false if not
    /// (kernel `file_update_time`, `generic_update_time`).
    pub async fn file_update_time(&self, inode: &Inode) -> FsResult<bool> {
        let now = self.current_time(inode);
        let (mtime, ctime) = {
            let core = inode.core.borrow();
            (core.mtime, core.ctime)
        };
        let unconditional = self.opts.borrow().iversion == IVersionMode::Unconditional;
        let version = unconditional
            || (self.opts.borrow().iversion == IVersionMode::Lazy && inode.iversion_queried.get());
        if mtime == now && ctime == now && !version {
            return Ok(false);
        }
        let now = self.inode_set_ctime_current(inode);
        inode.core.borrow_mut().mtime = now;
        let counted = version && self.maybe_inc_iversion(inode, false);
        if self.opts.borrow().lazytime && !counted {
            self.mark_dirty_time(inode);
            return Ok(true);
        }
        self.dirty_inode(inode).await?;
        Ok(true)
    }

    /// Notes that only timestamps changed (`I_DIRTY_TIME`).
    pub fn mark_dirty_time(&self, inode: &Inode) {
        if !inode.has_state(state::DIRTY_TIME) {
            inode.dirtied_time_when.set(self.sim.now());
            inode.set_state(state::DIRTY_TIME, true);
            inode.mapping.mark_dirty(dirty::TIME);
        }
    }

    /// A block of a directory or another file whose contents are metadata (kernel `ext4_bread`). `None` for a
    /// hole that is not to be filled. A new block is zeroed, and dirtied under the handle.
    pub async fn bread(
        &self,
        h: Option<&mut Handle>,
        inode: &Inode,
        lblk: Lblk,
        create: bool,
    ) -> FsResult<Option<Rc<Buffer>>> {
        use super::{MapFlags, MapRequest};
        let role = if inode.is_dir() {
            Role::Dir
        } else if inode.is_lnk() {
            Role::Symlink
        } else {
            Role::FileData
        };
        let flags = if create {
            MapFlags::CREATE
        } else {
            MapFlags::NONE
        };
        let req = MapRequest {
            lblk,
            len: 1,
            flags,
        };
        let mut h = h;
        let m = self.map_blocks(h.as_deref_mut(), inode, req).await?;
        let Some(block) = m.mapped_block() else {
            return Ok(None);
        };
        if !m.new {
            let bh = self.buffers.bread(block, role).await?;
            return Ok(Some(bh));
        }
        let bh = self.buffers.getblk(block);
        bh.set_role(role);
        if let Some(h) = h {
            self.get_create_access(h, &bh).await?;
            bh.modify(|b| b.fill(0));
            bh.set(Bh::UPTODATE);
            self.dirty_metadata(h, Some(inode), &bh).await?;
        }
        Ok(Some(bh))
    }

    /// Adds a block at the end of a directory, with write access (kernel `ext4_append`).
    pub async fn append(&self, h: &mut Handle, dir: &Inode) -> FsResult<(Lblk, Rc<Buffer>)> {
        let size = dir.size();
        let max = u64::from(self.opts.borrow().max_dir_size_kb) * 1024;
        if max > 0 && size >= max {
            return Err(FsError::NoSpace);
        }
        let lblk =
            u32::try_from(size >> self.geo.block_bits).map_err(|_| FsError::Errno(Errno::EFBIG))?;
        let bh = self.bread(Some(h), dir, Lblk(lblk), true).await?;
        let bh = bh.ok_or(FsError::NoSpace)?;
        dir.set_size(size + u64::from(self.geo.block_size));
        dir.disksize.set(dir.size());
        self.mark_inode_dirty(h, dir).await?;
        self.get_write_access(h, &bh).await?;
        Ok((Lblk(lblk), bh))
    }
}

/// Checks of `__ext4_iget` that need only the inode itself.
fn check_inode(ino: Ino, core: &InodeCore, huge_file: bool, _links: u8) -> Result<(), Corrupt> {
    let kind = core.mode & mode::S_IFMT;
    let known = matches!(
        kind,
        mode::S_IFREG
            | mode::S_IFDIR
            | mode::S_IFLNK
            | mode::S_IFCHR
            | mode::S_IFBLK
            | mode::S_IFIFO
            | mode::S_IFSOCK
    );
    if core.nlink > 0 && !known && !(ino.0 < 11 && core.mode == 0) {
        let kind = CorruptKind::InodeMode {
            ino: ino.0,
            mode: core.mode as u16,
        };
        return Err(Corrupt::new(kind, 0));
    }
    if core.size > i64::MAX as u64 {
        let kind = CorruptKind::InodeSize {
            ino: ino.0,
            size: core.size,
        };
        return Err(Corrupt::new(kind, 4));
    }
    if !huge_file && core.flags & flag::HUGE_FILE != 0 {
        let kind = CorruptKind::InodeSize {
            ino: ino.0,
            size: core.size,
        };
        return Err(Corrupt::new(kind, 0x20));
    }
    Ok(())
}
