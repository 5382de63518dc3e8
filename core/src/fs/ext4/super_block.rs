//! Mount, remount, unmount, sync and statfs (kernel `super.c`).
//!
//! The order of reads and writes is the kernel's: superblock twice (first as 1 KiB), descriptors, journal inode,
//! journal superblock, root; then one write of the superblock with FUA.

use super::mount_checks::{check_features, resolve_options, Resolved};
use super::percpu_counter::PercpuCounter;
use super::{
    cost::CostTable, groups, lazyinit::LazyInit, mballoc, orphan, time, DataMode, Ext4, Geometry,
    Inode, MapFlags, MapRequest, MappingKind, MountOptions, Stats,
};
use crate::base::{Errno, FsBlock, Ino, Lblk, Nanos};
use crate::block::{Queue, Role};
use crate::format::ext4::superblock::{
    EXT4_ERROR_FS, EXT4_JOURNAL_INO, EXT4_ROOT_INO, EXT4_VALID_FS, SUPERBLOCK_SIZE,
};
use crate::format::ext4::{features, SuperBlock};
use crate::format::{Corrupt, CorruptKind};
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::{
    DataHook, FcReplay, Journal, JournalCosts, JournalCsum, JournalMap, JournalOptions,
};
use crate::mm::buffer::{Buffer, BufferCache};
use crate::mm::{writeback, Vm};
use crate::sim::sync::{RwLock, WaitQueue};
use crate::sim::{LockRank, Sim, WaitReason};
use crate::trace::{Category, Event};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Users, groups and projects (kernel `EXT4_MAXQUOTAS`).
const QUOTA_TYPES: u32 = 3;

/// What a mount needs.
pub struct MountConfig {
    /// The simulation.
    pub sim: Sim,
    /// Queue of the device.
    pub queue: Rc<Queue>,
    /// Memory of the machine.
    pub vm: Rc<Vm>,
    /// Options.
    pub opts: MountOptions,
    /// Wall clock at virtual time 0, nanoseconds since 1970.
    pub wall_clock_base: u64,
    /// CPU time of ext4's operations.
    pub cost: CostTable,
    /// CPU time of the journal's operations.
    pub journal_costs: JournalCosts,
    /// Name of the device in thread names, for example `vda`.
    pub device: String,
    /// Path of the mount point, stored in the superblock at the first open.
    pub mount_point: String,
    /// Device of an external journal.
    pub journal_queue: Option<Rc<Queue>>,
}

/// What `statfs` reports (blocks are file system blocks).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StatFs {
    /// Block size in bytes.
    pub bsize: u64,
    /// Blocks, overhead left out.
    pub blocks: u64,
    /// Free blocks.
    pub bfree: u64,
    /// Free blocks for ordinary users.
    pub bavail: u64,
    /// Inodes.
    pub files: u64,
    /// Free inodes.
    pub ffree: u64,
    /// Longest name.
    pub namelen: u64,
}

struct SuperRead {
    buffers: Rc<BufferCache>,
    sbh: Rc<Buffer>,
    sb: SuperBlock,
    offset: usize,
}

/// Reads the superblock as the kernel does: 1 KiB first, then its block (kernel `ext4_load_super`).
async fn load_super(cfg: &MountConfig) -> FsResult<SuperRead> {
    let read_at = |buffers: Rc<BufferCache>, byte: u64| async move {
        let size = u64::from(buffers.block_size());
        let bh = buffers.bread(FsBlock(byte / size), Role::Super).await?;
        let offset = (byte % size) as usize;
        Ok::<_, FsError>((bh, offset))
    };
    let byte = if cfg.opts.sb_block == 1 {
        1024
    } else {
        cfg.opts.sb_block * 1024
    };
    let small = BufferCache::new(&cfg.sim, Rc::clone(&cfg.queue), 1024);
    let (bh, offset) = read_at(Rc::clone(&small), byte).await?;
    let peek = bh.read(|b| SuperBlock::decode_unchecked(b.get(offset..).unwrap_or(&[])))?;
    check_features(&peek, true)?;
    if peek.s_log_block_size > 6 {
        let kind = CorruptKind::SuperBlockSize {
            log: peek.s_log_block_size,
        };
        return Err(Corrupt::new(kind, 0x18).into());
    }
    if peek.block_size() > 4096 {
        return Err(FsError::Unsupported(format!(
            "block size {} is larger than a page",
            peek.block_size()
        )));
    }
    let (buffers, bh, offset) = if peek.block_size() == 1024 {
        (small, bh, offset)
    } else {
        let buffers = BufferCache::new(&cfg.sim, Rc::clone(&cfg.queue), peek.block_size());
        let (bh, offset) = read_at(Rc::clone(&buffers), byte).await?;
        (buffers, bh, offset)
    };
    let sb =
        bh.read(|b| SuperBlock::decode(b.get(offset..offset + SUPERBLOCK_SIZE).unwrap_or(&[])))?;
    let fixed = u64::from(sb.itable_blocks()) + 2;
    if u64::from(sb.groups_count()).saturating_mul(fixed) > sb.s_blocks_count {
        let blocks = sb.s_blocks_per_group;
        let kind = CorruptKind::SuperBlocksPerGroup {
            blocks,
            max: sb.block_size() * 8,
        };
        return Err(Corrupt::new(kind, 0x20).into());
    }
    let sectors = sb
        .s_blocks_count
        .saturating_mul(u64::from(sb.block_size()) / 512);
    if sectors > cfg.queue.sectors() {
        let kind = CorruptKind::SuperBlocksCount {
            blocks: sb.s_blocks_count,
        };
        return Err(Corrupt::new(kind, 4).into());
    }
    Ok(SuperRead {
        buffers,
        sbh: bh,
        sb,
        offset,
    })
}

impl Ext4 {
    /// Mounts the file system on the device (kernel `ext4_fill_super`).
    pub async fn mount(cfg: MountConfig) -> FsResult<Rc<Ext4>> {
        let _frame = cfg.sim.frame("ext4_fill_super");
        let read = load_super(&cfg).await?;
        check_features(&read.sb, cfg.opts.read_only)?;
        let resolved = resolve_options(&read.sb, &cfg.opts)?;
        let geo = Geometry::new(&read.sb);
        let csum = read.sb.csum_ctx();
        let groups = groups::Groups::load(&read.buffers, &read.sb, &geo, csum).await?;
        groups.check(&read.sb, geo.groups_count)?;
        let fs = Ext4::assemble(&cfg, read, geo, groups, resolved);
        let mounted = fs.bring_up(&cfg, resolved.journal).await;
        let errno = mounted
            .as_ref()
            .err()
            .map_or(0, |e| e.errno().number() as u16);
        let replayed = fs
            .journal()
            .and_then(|j| j.recovered())
            .map_or(0, |r| r.outcome.end.0.wrapping_sub(r.outcome.start.0));
        cfg.sim
            .emit(Category::Recovery, || Event::MountDone { errno, replayed });
        if let Err(e) = mounted {
            fs.abandon().await;
            return Err(e);
        }
        Ok(fs)
    }

    fn assemble(
        cfg: &MountConfig,
        read: SuperRead,
        geo: Geometry,
        groups: groups::Groups,
        resolved: Resolved,
    ) -> Rc<Ext4> {
        let sim = cfg.sim.clone();
        let lock = |rank, why| RwLock::new(&sim, rank, WaitReason::Other(why));
        Rc::new_cyclic(|me| Ext4 {
            queue: Rc::clone(&cfg.queue),
            buffers: read.buffers,
            vm: Rc::clone(&cfg.vm),
            opts: RefCell::new(cfg.opts.clone()),
            csum: read.sb.csum_ctx(),
            cost: cfg.cost,
            stats: Stats::default(),
            me: me.clone(),
            journal: RefCell::new(None),
            fc: super::fast_commit::FcState::default(),
            sbh: read.sbh,
            sb_offset: read.offset,
            groups,
            mb: mballoc::MbState::default(),
            icache: RefCell::new(BTreeMap::new()),
            orphans: orphan::OrphanState::new(&sim),
            lazyinit: LazyInit::new(&sim),
            zone: RefCell::default(),
            clock: time::Clock::new(cfg.wall_clock_base),
            generation: RefCell::new(sim.rng("ext4.generation")),
            free_clusters: PercpuCounter::new(&sim),
            dirty_clusters: PercpuCounter::new(&sim),
            free_inodes: Cell::new(0),
            dirs: Cell::new(0),
            resv_clusters: Cell::new(0),
            overhead: Cell::new(u64::from(read.sb.s_overhead_clusters)),
            icache_wait: WaitQueue::new(&sim),
            journal_inode: RefCell::new(None),
            data_mode: Cell::new(resolved.data_mode),
            errors: Cell::new(resolved.errors),
            shutdown: Cell::new(false),
            emergency_ro: Cell::new(false),
            mount_state: Cell::new(read.sb.s_state),
            kbytes_written_base: Cell::new(read.sb.s_kbytes_written),
            sectors_written_start: Cell::new(cfg.queue.disk_stats().write.sectors),
            writable: Cell::new(!cfg.opts.read_only),
            ea_block_cache: super::xattr_block::BlockCache::default(),
            sampled: Cell::new(false),
            mount_point: cfg.mount_point.clone(),
            file: super::page_io::FileLayer::new(&sim),
            writepages_rwsem: lock(LockRank::Writepages, "s_writepages_rwsem"),
            sb: RefCell::new(read.sb),
            geo,
            sim: sim.clone(),
        })
    }

    /// The part of the mount that needs the object: journal, counters, root, orphans, threads.
    async fn bring_up(self: &Rc<Self>, cfg: &MountConfig, journal: bool) -> FsResult<()> {
        let needs_recovery = self.sb.borrow().has(features::RECOVER);
        self.build_zone();
        if journal {
            self.load_journal(cfg).await?;
            let recovered = self.journal().is_some_and(|j| j.recovered().is_some());
            if recovered {
                self.reload_super()?;
            }
        }
        self.mb.init(self);
        let (clusters, inodes, dirs) = self.count_groups();
        self.free_clusters.set(clusters);
        self.free_inodes.set(inodes);
        self.dirs.set(dirs);
        self.set_overhead();
        let root = self.iget_special(Ino(EXT4_ROOT_INO)).await?;
        let bad_root = !root.is_dir() || root.size() == 0 || root.core.borrow().nlink == 0;
        self.iput(root).await?;
        if bad_root {
            let kind = CorruptKind::InodeMode {
                ino: EXT4_ROOT_INO,
                mode: 0,
            };
            return Err(Corrupt::new(kind, 0).into());
        }
        if self.geo.extents {
            let resv = (self.geo.blocks_count / u64::from(self.geo.cluster_ratio)) / 50;
            self.resv_clusters.set(resv.min(4096));
        }
        self.init_orphan_file().await?;
        if self.writable.get() {
            self.setup_super().await?;
        }
        self.clean_orphans().await?;
        if needs_recovery && self.journal().is_some() {
            self.mark_recovery_complete().await?;
        }
        if self.writable.get() {
            self.buffers.set_vm(Some(Rc::clone(&self.vm)));
            writeback::start_flusher(&self.vm, Rc::clone(self), "kworker/u4:flush");
            self.register_li_request();
        }
        Ok(())
    }

    /// Orphans are cleaned up even on a read-only mount, unless the device cannot be written.
    async fn clean_orphans(self: &Rc<Self>) -> FsResult<()> {
        let bits = features::ORPHAN_PRESENT;
        let pending = self.sb.borrow().s_last_orphan != 0 || !self.orphan_file_empty();
        if !pending || self.opts.borrow().noload {
            return Ok(());
        }
        if check_features(&self.sb.borrow(), false).is_err() {
            return Ok(());
        }
        let was = self.writable.replace(true);
        let done = self.orphan_cleanup().await;
        self.writable.set(was);
        if !was {
            self.sb.borrow_mut().set_feature(bits, false);
        }
        done.map(|_| ())
    }

    fn build_zone(&self) {
        let zone = super::system_zone::SystemZone::build(&self.sb.borrow(), &self.geo, |g| {
            let d = self.groups.desc(g);
            (d.bg_block_bitmap, d.bg_inode_bitmap, d.bg_inode_table)
        });
        *self.zone.borrow_mut() = zone;
    }

    /// The superblock was replayed from the log: take it anew.
    pub(super) fn reload_super(&self) -> FsResult<()> {
        let at = self.sb_offset;
        let sb = self
            .sbh
            .read(|b| SuperBlock::decode(b.get(at..at + SUPERBLOCK_SIZE).unwrap_or(&[])))?;
        let mut now = self.sb.borrow_mut();
        let recover = now.has(features::RECOVER);
        *now = sb;
        // The copy in the log may be older than the one that says "needs recovery".
        if recover {
            now.set_feature(features::RECOVER, true);
        }
        self.mount_state.set(now.s_state);
        drop(now);
        self.groups.check(&self.sb.borrow(), self.geo.groups_count)
    }

    fn set_overhead(&self) {
        let known = self.overhead.get();
        if known != 0 && known < self.geo.blocks_count {
            return;
        }
        let sb = self.sb.borrow();
        let mut blocks = u64::from(self.geo.first_data_block);
        for g in 0..self.geo.groups_count {
            let own = u64::from(sb.base_meta_blocks(g)) + 2 + u64::from(self.geo.itable_blocks);
            blocks += own;
        }
        drop(sb);
        if let Some(j) = &*self.journal_inode.borrow() {
            blocks += j.size() >> self.geo.block_bits;
        }
        self.overhead
            .set(blocks / u64::from(self.geo.cluster_ratio));
    }

    // ---- journal ----

    async fn load_journal(self: &Rc<Self>, cfg: &MountConfig) -> FsResult<()> {
        let inum = self.sb.borrow().s_journal_inum;
        let map = if inum == 0 {
            let Some(queue) = &cfg.journal_queue else {
                let what = "external journal (no journal device given)";
                return Err(FsError::Unsupported(what.to_owned()));
            };
            let superblock = if self.geo.block_size == 1024 { 2 } else { 1 };
            JournalMap::External {
                queue: Rc::clone(queue),
                superblock,
            }
        } else {
            JournalMap::Inode(self.journal_extents(Ino(inum)).await?)
        };
        let opts = self.journal_options(cfg);
        let journal = Journal::load(&self.sim, Rc::clone(&self.buffers), map, opts).await?;
        self.install_hooks(&journal);
        *self.journal.borrow_mut() = Some(journal);
        self.fc_enable(self.uses_fast_commit());
        Ok(())
    }

    async fn journal_extents(&self, ino: Ino) -> FsResult<Vec<(u32, u32, FsBlock)>> {
        if ino.0 != EXT4_JOURNAL_INO && ino.0 < self.geo.first_ino {
            let kind = CorruptKind::InodeNumber {
                ino: ino.0,
                max: self.geo.inodes_count,
            };
            return Err(Corrupt::new(kind, 0xE0).into());
        }
        let inode = self.iget_special(ino).await?;
        if !inode.is_reg() || inode.core.borrow().nlink == 0 {
            let kind = CorruptKind::InodeMode {
                ino: ino.0,
                mode: inode.mode() as u16,
            };
            return Err(Corrupt::new(kind, 0).into());
        }
        let end = inode.end_lblk(self.geo.block_bits).0;
        let mut out: Vec<(u32, u32, FsBlock)> = Vec::new();
        let mut lblk = 0;
        while lblk < end {
            let req = MapRequest {
                lblk: Lblk(lblk),
                len: end - lblk,
                flags: MapFlags::NONE,
            };
            let m = self.map_blocks(None, &inode, req).await?;
            if m.kind == MappingKind::Hole || m.len == 0 {
                let kind = CorruptKind::ExtentLength { lblk };
                return Err(Corrupt::new(kind, 0).into());
            }
            match out.last_mut() {
                Some((l, n, p)) if *l + *n == lblk && p.0 + u64::from(*n) == m.pblk.0 => {
                    *n += m.len;
                }
                _ => out.push((lblk, m.len, m.pblk)),
            }
            lblk += m.len;
        }
        let blocks: Vec<(u64, u64)> = out.iter().map(|e| (e.2 .0, u64::from(e.1))).collect();
        self.zone.borrow_mut().protect(ino, &blocks);
        *self.journal_inode.borrow_mut() = Some(inode);
        Ok(out)
    }

    fn journal_options(&self, cfg: &MountConfig) -> JournalOptions {
        let o = self.opts.borrow();
        let csum = if self.geo.metadata_csum {
            JournalCsum::V3
        } else if o.journal_checksum || o.journal_async_commit {
            JournalCsum::V1
        } else {
            JournalCsum::None
        };
        JournalOptions {
            commit_interval: o.commit_interval,
            barrier: o.barrier,
            max_transaction_divisor: o.max_transaction_divisor,
            csum,
            bit64: self.geo.bit64,
            fast_commit: self.uses_fast_commit(),
            async_commit: o.journal_async_commit,
            data_err_abort: o.data_err_abort,
            min_batch: Nanos::from_us(u64::from(o.min_batch_time_us)),
            max_batch: Nanos::from_us(u64::from(o.max_batch_time_us)),
            wall_clock_base: cfg.wall_clock_base,
            costs: cfg.journal_costs,
            thread: format!("jbd2/{}-8", cfg.device),
            no_recovery: o.noload,
            fc_replay: Some(self.fc_replay_hook()),
        }
    }

    /// With the feature, unless file contents are journalled.
    fn uses_fast_commit(&self) -> bool {
        self.sb.borrow().has(features::FAST_COMMIT) && self.data_mode() != DataMode::Journal
    }

    fn fc_replay_hook(&self) -> FcReplay {
        let me = self.me.clone();
        FcReplay(Rc::new(move |records| {
            let me = me.clone();
            Box::pin(async move {
                match me.upgrade() {
                    Some(fs) => fs.fc_replay(records).await,
                    None => Ok(()),
                }
            })
        }))
    }

    fn install_hooks(self: &Rc<Self>, journal: &Rc<Journal>) {
        let me = self.me.clone();
        journal.set_commit_callback(Rc::new(move |tid| {
            if let Some(fs) = me.upgrade() {
                fs.mb_process_freed(tid);
                fs.fc_cleanup(true, tid);
            }
        }));
        let submit = self.me.clone();
        let wait = self.me.clone();
        journal.set_data_hook(DataHook {
            submit: Rc::new(move |ino, start, end| {
                let fs = submit.upgrade();
                Box::pin(async move {
                    match fs {
                        Some(fs) => fs.journal_submit_data(ino, start, end).await,
                        None => Ok(()),
                    }
                })
            }),
            wait: Rc::new(move |ino, start, end| {
                let fs = wait.upgrade();
                Box::pin(async move {
                    match fs {
                        Some(fs) => fs.journal_wait_data(ino, start, end).await,
                        None => Ok(()),
                    }
                })
            }),
        });
    }

    // ---- superblock states ----

    /// Marks the file system mounted for writing (kernel `ext4_setup_super`): one write with FUA.
    async fn setup_super(&self) -> FsResult<()> {
        let journalled = self.journal.borrow().is_some();
        let secs = self.wall_secs();
        {
            let mut sb = self.sb.borrow_mut();
            if !journalled {
                sb.s_state &= !EXT4_VALID_FS;
            }
            if sb.s_max_mnt_count == 0 {
                sb.s_max_mnt_count = 20;
            }
            sb.s_mnt_count = sb.s_mnt_count.wrapping_add(1);
            sb.s_mtime = secs as u32;
            sb.s_mtime_hi = (secs >> 32) as u8;
            if journalled {
                sb.set_feature(features::RECOVER, true);
            }
        }
        if journalled {
            self.set_orphan_present(true);
        }
        self.commit_super().await
    }

    /// The log is empty and orphans are gone: says so on a read-only mount (kernel
    /// `ext4_mark_recovery_complete`).
    async fn mark_recovery_complete(&self) -> FsResult<()> {
        let Some(j) = self.journal() else {
            return Ok(());
        };
        j.lock_updates().await;
        let flushed = j.flush().await;
        j.unlock_updates();
        flushed?;
        let present = self.sb.borrow().has(features::ORPHAN_PRESENT);
        let recover = self.sb.borrow().has(features::RECOVER);
        if recover && (present || !self.writable.get()) {
            if present && self.orphan_file_empty() && !self.writable.get() {
                self.set_orphan_present(false);
            }
            if !self.writable.get() {
                self.sb.borrow_mut().set_feature(features::RECOVER, false);
            }
            self.commit_super().await?;
        }
        Ok(())
    }

    /// At the first open of a file the mount point goes into the superblock (kernel
    /// `ext4_sample_last_mounted`).
    pub async fn sample_last_mounted(&self) -> FsResult<()> {
        if self.sampled.replace(true) || !self.writable.get() {
            return Ok(());
        }
        let mut h = self
            .journal_start_sb(crate::fs::jbd2::HandleType::Misc, 1)
            .await?;
        let sbh = Rc::clone(&self.sbh);
        let res = match self.get_write_access(&mut h, &sbh).await {
            Ok(()) => {
                {
                    let mut sb = self.sb.borrow_mut();
                    let mut path = [0u8; 64];
                    let n = self.mount_point.len().min(63);
                    path[..n].copy_from_slice(&self.mount_point.as_bytes()[..n]);
                    sb.s_last_mounted = path;
                }
                self.encode_super();
                self.dirty_metadata(&mut h, None, &sbh).await
            }
            Err(e) => Err(e),
        };
        let stopped = self.journal_stop(h).await;
        res.and(stopped)
    }

    /// Commits the journal (kernel `ext4_sync_fs`), waiting if `wait`; flushes the device where the commit did
    /// not.
    pub async fn sync_fs(&self, wait: bool) -> FsResult<()> {
        Stats::inc(&self.stats.ext4_sync_fs);
        self.emergency_state()?;
        self.file.flush_conversions().await;
        let barrier = self.opts.borrow().barrier;
        let mut flush = false;
        let mut res = Ok(());
        if let Some(j) = self.journal() {
            flush = wait && barrier && !j.trans_will_send_barrier(j.latest_tid());
            if let Some(tid) = j.start_running_commit() {
                if wait {
                    res = j.wait_commit(tid).await;
                }
            }
        } else if wait && barrier {
            flush = true;
        }
        if flush {
            self.buffers.flush_device().await?;
        }
        res
    }

    /// Unmounts (kernel `generic_shutdown_super`, `ext4_put_super`, `kill_block_super`).
    pub async fn umount(self: &Rc<Self>) -> FsResult<()> {
        let _frame = self.sim.frame("ext4_put_super");
        let was_writable = self.writable.get();
        let mut res = Ok(());
        if was_writable {
            res = self.sync_filesystem().await;
        }
        let evicted = self.evict_inodes().await;
        res = res.and(evicted);
        self.unregister_li_request().await;
        if was_writable {
            let off = self.quotas_off().await;
            res = res.and(off);
        }
        self.vm.stop_flusher().await;
        self.release_orphans();
        let aborted = self.journal().is_some_and(|j| j.is_aborted());
        let had_journal = self.journal().is_some();
        if let Some(j) = self.journal() {
            let destroyed = j.destroy().await;
            res = res.and(destroyed);
        }
        *self.journal.borrow_mut() = None;
        // The buddy cache is an inode of its own in the kernel.
        Stats::inc(&self.stats.ext4_evict_inode);
        if let Some(inode) = self.journal_inode.borrow_mut().take() {
            Stats::inc(&self.stats.ext4_evict_inode);
            Stats::inc(&self.stats.ext4_discard_preallocations);
            self.icache.borrow_mut().remove(&inode.ino);
        }
        if was_writable && !aborted && !self.is_shutdown() {
            self.finish_super(had_journal);
            let written = self.commit_super().await;
            res = res.and(written);
        }
        let synced = self.buffers.write_dirty(None, true).await;
        self.writable.set(false);
        res.and(synced.map(|_| ()).map_err(FsError::from))
    }

    /// Ends the quotas of every type (kernel `ext4_quotas_off`). There are none here, but where delayed allocation
    /// may owe blocks the kernel syncs the file system for each type first.
    async fn quotas_off(&self) -> FsResult<()> {
        let mut res = Ok(());
        if self.delalloc() {
            for _ in 0..QUOTA_TYPES {
                let synced = self.sync_filesystem().await;
                res = res.and(synced);
            }
        }
        res
    }

    fn finish_super(&self, journalled: bool) {
        let mut sb = self.sb.borrow_mut();
        if journalled {
            sb.set_feature(features::RECOVER, false);
        }
        if self.geo.orphan_file {
            sb.set_feature(features::ORPHAN_PRESENT, false);
        }
        sb.s_state = self.mount_state.get();
    }

    /// Drops every inode from memory; unlinked ones nobody refers to are freed.
    async fn evict_inodes(&self) -> FsResult<()> {
        let journal = self.journal_inode.borrow().as_ref().map(|i| i.ino);
        let all: Vec<Rc<Inode>> = self
            .icache
            .borrow()
            .values()
            .filter(|i| Some(i.ino) != journal)
            .map(Rc::clone)
            .collect();
        let mut res = Ok(());
        for inode in all {
            let done = self.evict_inode(&inode).await;
            res = res.and(done);
        }
        res
    }

    /// A mount that failed half-way: stops what was started, writes nothing.
    async fn abandon(self: &Rc<Self>) {
        self.lazyinit_stop();
        self.vm.stop_flusher().await;
        if let Some(j) = self.journal() {
            // The log stays as it is: recovery may be tried again.
            j.abort(Errno::EIO);
            let _ = j.destroy().await;
        }
        *self.journal.borrow_mut() = None;
        self.icache.borrow_mut().clear();
    }

    /// Changes options of a mounted file system (kernel `__ext4_remount`).
    pub async fn remount(self: &Rc<Self>, text: &str) -> FsResult<()> {
        let mut new = self.opts.borrow().clone();
        new.apply(text).map_err(FsError::Unsupported)?;
        let resolved = resolve_options(&self.sb.borrow(), &new)?;
        if resolved.data_mode != self.data_mode.get() {
            return Err(FsError::Unsupported(
                "change of data= on remount".to_owned(),
            ));
        }
        let old_ro = !self.writable.get();
        if self.journal().is_some_and(|j| j.is_aborted()) && !new.read_only {
            return Err(FsError::ReadOnly);
        }
        if old_ro && !new.read_only {
            check_features(&self.sb.borrow(), false)?;
            if self.sb.borrow().s_last_orphan != 0 {
                return Err(FsError::Errno(Errno::EINVAL));
            }
        }
        if !old_ro && new.read_only {
            self.remount_ro().await?;
        }
        self.errors.set(resolved.errors);
        *self.opts.borrow_mut() = new.clone();
        if let Some(j) = self.journal() {
            j.set_options(&JournalOptions {
                commit_interval: new.commit_interval,
                barrier: new.barrier,
                data_err_abort: new.data_err_abort,
                min_batch: Nanos::from_us(u64::from(new.min_batch_time_us)),
                max_batch: Nanos::from_us(u64::from(new.max_batch_time_us)),
                ..JournalOptions::default()
            });
        }
        if old_ro && !new.read_only {
            self.writable.set(true);
            self.mount_state.set(self.sb.borrow().s_state);
            self.setup_super().await?;
            writeback::start_flusher(&self.vm, Rc::clone(self), "kworker/u4:flush");
        }
        if self.writable.get() {
            self.register_li_request();
        }
        Ok(())
    }

    async fn remount_ro(self: &Rc<Self>) -> FsResult<()> {
        self.unregister_li_request().await;
        self.sync_filesystem().await?;
        self.vm.stop_flusher().await;
        self.writable.set(false);
        {
            let mut sb = self.sb.borrow_mut();
            let state = self.mount_state.get();
            if sb.s_state & EXT4_VALID_FS == 0 && state & EXT4_VALID_FS != 0 {
                sb.s_state = state;
            }
        }
        if self.journal().is_some() {
            self.mark_recovery_complete().await
        } else {
            self.commit_super().await
        }
    }

    /// Numbers for `statfs(2)` (kernel `ext4_statfs`).
    pub fn statfs(&self) -> StatFs {
        let ratio = u64::from(self.geo.cluster_ratio);
        let sb = self.sb.borrow();
        let overhead = if self.opts.borrow().minixdf {
            0
        } else {
            self.overhead.get()
        };
        let free = (self.free_clusters.sum() - self.dirty_clusters.sum()).max(0) as u64;
        let bfree = free * ratio;
        let kept = sb.s_r_blocks_count + self.resv_clusters.get() * ratio;
        StatFs {
            bsize: u64::from(self.geo.block_size),
            blocks: sb.s_blocks_count.saturating_sub(overhead * ratio),
            bfree,
            bavail: bfree.saturating_sub(kept),
            files: u64::from(sb.s_inodes_count),
            ffree: self.free_inodes.get().max(0) as u64,
            namelen: 255,
        }
    }

    /// Data mode in force.
    pub fn data_mode(&self) -> DataMode {
        self.data_mode.get()
    }

    /// Delayed allocation in force.
    pub fn delalloc(&self) -> bool {
        self.data_mode.get() != DataMode::Journal && self.opts.borrow().delalloc.unwrap_or(true)
    }

    /// `stripe=`, or what the superblock says (kernel `ext4_get_stripe_size`).
    pub(crate) fn stripe(&self) -> u32 {
        let sb = self.sb.borrow();
        let stride = u32::from(sb.s_raid_stride);
        let width = sb.s_raid_stripe_width;
        let max = self.geo.blocks_per_group;
        let asked = self.opts.borrow().stripe.unwrap_or(0);
        let chosen = [asked, width, stride]
            .into_iter()
            .find(|&s| s > 0 && s <= max);
        match chosen {
            Some(s) if s > 1 => s,
            _ => 0,
        }
    }

    /// True if the error flag is set on disk.
    pub fn has_errors(&self) -> bool {
        self.sb.borrow().s_state & EXT4_ERROR_FS != 0
    }
}
