//! Reaction to damage (kernel `ext4_error`, `ext4_handle_error`): the superblock remembers it, and `errors=`
//! decides whether the file system goes on.

use super::{ErrorsPolicy, Ext4};
use crate::base::{Errno, Ino, Lba};
use crate::block::{Bio, BioFlags, Role};
use crate::format::ext4::superblock::EXT4_ERROR_FS;
use crate::format::{Corrupt, CorruptKind};
use crate::fs::common::{FsError, FsResult};
use crate::mm::buffer::Bh;
use crate::sim::TaskClass;
use crate::trace::{Category, Event};

impl Ext4 {
    /// Notes a failed check of a structure and returns it as an error.
    pub(crate) fn corrupt(&self, c: Corrupt) -> FsError {
        let block = c.block.unwrap_or(0);
        if matches!(
            c.kind,
            CorruptKind::InodeChecksum { .. }
                | CorruptKind::ExtentChecksum { .. }
                | CorruptKind::BlockBitmapChecksum { .. }
                | CorruptKind::InodeBitmapChecksum { .. }
        ) {
            self.sim
                .emit(Category::Structures, || Event::ChecksumFailed {
                    block: crate::base::FsBlock(block),
                    ino: Ino(0),
                });
        }
        self.note_error("ext4_error", block);
        FsError::Corrupt(c)
    }

    /// Blocks that inode `ino` may not own.
    pub(crate) fn corrupt_alloc(&self, ino: Ino, block: u64) -> FsError {
        let kind = CorruptKind::ExtentBounds {
            lblk: 0,
            pblk: block,
            len: 1,
        };
        self.handle_error(("ext4_inode_block_valid", block, ino), false);
        FsError::Corrupt(Corrupt::new(kind, 0).at(block))
    }

    /// True if the inode may own the blocks.
    pub(crate) fn zone_valid(&self, ino: Ino, block: u64, len: u64) -> bool {
        self.zone.borrow().valid(ino, block, len)
    }

    /// Records an error in the superblock and applies `errors=`.
    pub(crate) fn note_error(&self, func: &str, block: u64) {
        self.handle_error((func, block, Ino(0)), false);
    }

    /// The journal was aborted behind our back: whatever `errors=` says, nothing is written any more
    /// (kernel `ext4_abort`).
    pub(crate) fn abort_fs(&self) {
        if !self.emergency_ro.get() {
            self.handle_error(("ext4_journal_check_start", 0, Ino(0)), true);
        }
    }

    /// Fails if an error ended all writing (kernel `ext4_emergency_state`).
    pub(crate) fn emergency_state(&self) -> FsResult<()> {
        if self.is_shutdown() {
            return Err(FsError::Errno(Errno::EIO));
        }
        if self.emergency_ro.get() {
            return Err(FsError::ReadOnly);
        }
        Ok(())
    }

    /// Kernel `ext4_handle_error`: where it was found, and whether to go read-only in any case.
    fn handle_error(&self, (func, block, ino): (&str, u64, Ino), force_ro: bool) {
        let was_writable = self.writable.get();
        self.mount_state.set(self.mount_state.get() | EXT4_ERROR_FS);
        let secs = self.wall_secs();
        let mut name = [0u8; 32];
        let n = func.len().min(31);
        name[..n].copy_from_slice(&func.as_bytes()[..n]);
        {
            let mut sb = self.sb.borrow_mut();
            sb.s_state |= EXT4_ERROR_FS;
            sb.s_error_count = sb.s_error_count.saturating_add(1);
            if sb.s_first_error_time == 0 {
                sb.s_first_error_time = secs as u32;
                sb.s_first_error_func = name;
                sb.s_first_error_block = block;
                sb.s_first_error_ino = ino.0;
            }
            sb.s_last_error_time = secs as u32;
            sb.s_last_error_func = name;
            sb.s_last_error_block = block;
            sb.s_last_error_ino = ino.0;
        }
        match self.errors.get() {
            ErrorsPolicy::Continue if !force_ro => {}
            ErrorsPolicy::Continue | ErrorsPolicy::RemountRo => {
                self.emergency_ro.set(true);
                self.writable.set(false);
                if let Some(j) = self.journal() {
                    j.abort(Errno::EIO);
                }
            }
            ErrorsPolicy::Panic => {
                self.writable.set(false);
                self.shutdown.set(true);
                return;
            }
        }
        if was_writable {
            self.schedule_super_update();
        }
    }

    /// Writes the superblock from a worker (kernel `update_super_work`).
    fn schedule_super_update(&self) {
        if let Some(fs) = self.me.upgrade() {
            self.sim
                .spawn("kworker/ext4-sb", TaskClass::Kworker, async move {
                    // Nobody is there to tell: the error is in memory and goes out with the next write.
                    let _ = fs.commit_super().await;
                });
        }
    }

    /// True if the file system is dead.
    pub(crate) fn is_shutdown(&self) -> bool {
        self.shutdown.get()
    }

    /// Puts the superblock in memory into its buffer.
    pub(crate) fn encode_super(&self) {
        let at = self.sb_offset;
        let sb = self.sb.borrow();
        self.sbh.modify(|b| {
            if let Some(raw) = b.get_mut(at..at + 1024) {
                sb.encode(raw);
            }
        });
    }

    /// Brings counters and write time up to date (kernel `ext4_update_super`).
    pub(crate) fn update_super(&self) {
        let secs = self.wall_secs();
        let written = self.queue_kbytes_written();
        {
            let mut sb = self.sb.borrow_mut();
            if self.writable.get() {
                sb.s_wtime = secs as u32;
                sb.s_wtime_hi = (secs >> 32) as u8;
            }
            sb.s_kbytes_written = self.kbytes_written_base.get() + written;
            let blocks = self.free_clusters.sum().max(0) as u64 * u64::from(self.geo.cluster_ratio);
            sb.s_free_blocks_count = blocks;
            sb.s_free_inodes_count = self.free_inodes.get().clamp(0, i64::from(u32::MAX)) as u32;
        }
        self.encode_super();
    }

    fn queue_kbytes_written(&self) -> u64 {
        let sectors = self.queue.disk_stats().write.sectors;
        sectors.saturating_sub(self.sectors_written_start.get()) / 2
    }

    /// Writes the superblock now, with FUA (kernel `ext4_commit_super`).
    pub(crate) async fn commit_super(&self) -> FsResult<()> {
        self.update_super();
        self.buffers.wait_unlocked(&self.sbh).await;
        self.buffers.clear_dirty(&self.sbh);
        let mut flags = BioFlags::SYNC;
        if self.opts.borrow().barrier {
            flags |= BioFlags::FUA;
        }
        let lba = Lba(self.sbh.blocknr.0 * u64::from(self.geo.block_size / 512));
        let bio =
            Bio::write(lba, self.geo.block_size, self.sbh.payload(), Role::Super).flags(flags);
        if let Err(e) = self.queue.run(bio).await {
            self.buffers.mark_write_error();
            return Err(e.into());
        }
        self.sbh.set(Bh::UPTODATE);
        Ok(())
    }
}
