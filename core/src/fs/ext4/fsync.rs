//! fsync, fdatasync, syncfs and what the flusher asks of ext4 (kernel `fs/ext4/fsync.c`, `fs/sync.c`,
//! `fs/ext4/inode.c`, `ext4_write_inode`).

use super::file::FileState;
use super::{state, Ext4, Inode};
use crate::base::{Errno, Ino};
use crate::fs::common::{FsError, FsResult};
use crate::mm::{dirty, AddressSpace, ErrSeq, Tag, WritebackControl, WritebackOps};
use std::cell::Cell;
use std::rc::Rc;

impl Ext4 {
    /// `fsync(2)` or, with `datasync`, `fdatasync(2)`: contents and the metadata needed are durable on return
    /// (kernel `ext4_sync_file`). A writeback error since the last call is reported once per open file.
    pub async fn sync_file(
        &self,
        inode: &Rc<Inode>,
        f: &FileState,
        datasync: bool,
    ) -> FsResult<()> {
        self.sync_file_range(inode, &f.wb_err, 0, u64::MAX, datasync)
            .await
    }

    /// The same for bytes `start..=end`, as `O_SYNC` writes need it (kernel `vfs_fsync_range`).
    pub(super) async fn sync_file_range(
        &self,
        inode: &Rc<Inode>,
        wb_err: &Cell<ErrSeq>,
        start: u64,
        end: u64,
        datasync: bool,
    ) -> FsResult<()> {
        let _frame = self.sim.frame("ext4_sync_file");
        if !datasync && inode.mapping.state() & dirty::TIME != 0 {
            // Lazy timestamps are written by fsync (`vfs_fsync_range`, `mark_inode_dirty_sync`).
            self.dirty_inode(inode).await?;
            inode.mapping.clear_state(dirty::TIME);
        }
        self.emergency_state()?;
        if !self.writable.get() {
            return inode.mapping.check_error(wb_err).map_err(FsError::from);
        }
        let res = self
            .sync_file_inner(inode, wb_err, (start, end), datasync)
            .await;
        let seen = inode.mapping.check_error(wb_err).map_err(FsError::from);
        res.and(seen)
    }

    async fn sync_file_inner(
        &self,
        inode: &Rc<Inode>,
        wb_err: &Cell<ErrSeq>,
        (start, end): (u64, u64),
        datasync: bool,
    ) -> FsResult<()> {
        self.write_and_wait(inode, start, end).await?;
        // Where data could not be written nothing is committed.
        inode.mapping.check_error(wb_err)?;
        let Some(journal) = self.journal() else {
            self.sync_inode_nojournal(inode, datasync).await?;
            if self.opts.borrow().barrier {
                self.queue.flush().await?;
            }
            return Ok(());
        };
        if !inode.is_reg() {
            return self.force_commit().await;
        }
        let tid = if datasync {
            inode.datasync_tid.get()
        } else {
            inode.sync_tid.get()
        };
        let barrier = self.opts.borrow().barrier && !journal.trans_will_send_barrier(tid);
        self.commit_tid(tid).await?;
        if barrier {
            self.queue.flush().await?;
        }
        Ok(())
    }

    /// Writes dirty pages of a byte range and waits for them (kernel `file_write_and_wait_range`).
    pub(crate) async fn write_and_wait(
        &self,
        inode: &Rc<Inode>,
        start: u64,
        end: u64,
    ) -> FsResult<()> {
        let m = &inode.mapping;
        if m.any(Tag::Dirty) {
            let mut wbc = WritebackControl::range(start, end, true);
            let res = self.writepages(inode, &mut wbc).await;
            if matches!(res, Err(FsError::Io(_) | FsError::Aborted(_))) {
                return res;
            }
            m.wait_range(start >> 12, end >> 12).await;
            return res;
        }
        m.wait_range(start >> 12, end >> 12).await;
        Ok(())
    }

    /// Without a journal: writes the file's own metadata buffers and its inode
    /// (kernel `ext4_fsync_nojournal`).
    async fn sync_inode_nojournal(&self, inode: &Rc<Inode>, datasync: bool) -> FsResult<()> {
        self.sync_mapping_buffers(inode).await?;
        let state = inode.mapping.state();
        let needed = if datasync {
            state & dirty::DATASYNC
        } else {
            state & dirty::ANY
        };
        if needed != 0 {
            let mut wbc = WritebackControl::range(0, u64::MAX, true);
            wbc.nr_to_write = 0;
            let written = self.vm.write_inode_now(self, &inode.mapping, &mut wbc);
            written.await?;
        }
        self.sync_parent(inode).await
    }

    /// Writes the dirty metadata buffers that belong to the inode (kernel `sync_mapping_buffers`).
    pub(super) async fn sync_mapping_buffers(&self, inode: &Inode) -> FsResult<()> {
        let mine = inode.mapping.take_associated();
        self.buffers.write_batch(&mine).await;
        for b in &mine {
            self.buffers.wait_unlocked(b).await;
            if b.test(crate::mm::buffer::Bh::WRITE_EIO) {
                return Err(FsError::Errno(Errno::EIO));
            }
        }
        Ok(())
    }

    /// The inode got a name in `dir`; fsync without a journal will write the directory, too.
    pub(crate) fn note_new_entry(&self, dir: &Inode, ino: Ino) {
        if self.journal.borrow().is_some() {
            return;
        }
        if let Some(child) = self.cached_inode(ino) {
            child.set_state(state::NEWENTRY, true);
            self.file.note_parent(ino, dir.ino);
        }
    }

    /// A new file's name is durable with its first fsync, even without a journal (kernel `ext4_sync_parent`).
    async fn sync_parent(&self, inode: &Rc<Inode>) -> FsResult<()> {
        let mut child = Rc::clone(inode);
        while child.has_state(state::NEWENTRY) {
            child.set_state(state::NEWENTRY, false);
            let Some(parent) = self.file.parent_of(child.ino) else {
                return Ok(());
            };
            let Some(dir) = self.cached_inode(parent) else {
                return Ok(());
            };
            self.sync_mapping_buffers(&dir).await?;
            let mut wbc = WritebackControl::range(0, u64::MAX, true);
            wbc.nr_to_write = 0;
            self.vm
                .write_inode_now(self, &dir.mapping, &mut wbc)
                .await?;
            child = dir;
        }
        Ok(())
    }

    /// Commits what is running and waits (kernel `ext4_force_commit`).
    pub(crate) async fn force_commit(&self) -> FsResult<()> {
        match self.journal() {
            Some(j) => j.force_commit().await,
            None => Ok(()),
        }
    }

    /// `syncfs(2)`: everything dirty now is durable on return (kernel `sync_filesystem`).
    pub async fn sync_filesystem(&self) -> FsResult<()> {
        let _frame = self.sim.frame("sync_filesystem");
        self.emergency_state()?;
        if !self.writable.get() {
            return Ok(());
        }
        self.vm.writeback_inodes(false).await;
        self.sync_fs(false).await?;
        self.buffers.write_dirty(None, false).await?;
        self.vm.writeback_inodes(true).await;
        self.wait_sb_inodes().await;
        self.sync_fs(true).await?;
        self.buffers.write_dirty(None, true).await?;
        Ok(())
    }

    /// Waits for writeback of all files (kernel `wait_sb_inodes`).
    async fn wait_sb_inodes(&self) {
        let busy: Vec<Rc<Inode>> = self
            .icache
            .borrow()
            .values()
            .filter(|i| i.mapping.any(Tag::Writeback))
            .map(Rc::clone)
            .collect();
        for inode in busy {
            inode.mapping.wait_range(0, u64::MAX).await;
        }
    }

    /// The journal's commit wants the ordered data of an inode on its way (kernel
    /// `ext4_journal_submit_inode_data_buffers`).
    pub(crate) async fn journal_submit_data(&self, ino: Ino, start: u64, end: u64) -> FsResult<()> {
        match self.cached_inode(ino) {
            Some(inode) => self.submit_ordered(&inode, start, end).await,
            None => Ok(()),
        }
    }

    /// ... and down (kernel `ext4_journal_finish_inode_data_buffers`).
    pub(crate) async fn journal_wait_data(&self, ino: Ino, start: u64, end: u64) -> FsResult<()> {
        let Some(inode) = self.cached_inode(ino) else {
            return Ok(());
        };
        let seen = Cell::new(inode.mapping.sample_error());
        inode.mapping.wait_range(start >> 12, end >> 12).await;
        // The error stays for fsync; the commit only learns of it.
        match inode.mapping.peek_error(seen.get()) {
            Some(e) => Err(FsError::Errno(e)),
            None => Ok(()),
        }
    }
}

impl WritebackOps for Ext4 {
    async fn writepages(
        &self,
        mapping: &AddressSpace,
        wbc: &mut WritebackControl,
    ) -> Result<(), Errno> {
        if mapping.ino().0 == 0 {
            let written = self.buffers.write_dirty(None, wbc.sync_all).await;
            let n = written.map_err(|_| Errno::EIO)?;
            wbc.nr_to_write = wbc.nr_to_write.saturating_sub(n as i64);
            return Ok(());
        }
        let Some(inode) = self.cached_inode(mapping.ino()) else {
            return Ok(());
        };
        Ext4::writepages(self, &inode, wbc)
            .await
            .map_err(|e| e.errno())
    }

    async fn write_inode(
        &self,
        mapping: &AddressSpace,
        wbc: &WritebackControl,
    ) -> Result<(), Errno> {
        let Some(inode) = self.cached_inode(mapping.ino()) else {
            return Ok(());
        };
        let res = self.write_inode_to_disk(&inode, wbc).await;
        res.map_err(|e| e.errno())
    }

    fn bdev_dirty(&self) -> bool {
        self.buffers.dirty_bytes() > 0
    }

    fn plug(&self) -> Option<crate::block::Plug> {
        Some(self.queue.plug())
    }
}

impl Ext4 {
    /// Kernel `ext4_write_inode`: with a journal only an integrity sync has work to do, as the inode is in a
    /// transaction already; without one the table block is written and waited for.
    async fn write_inode_to_disk(&self, inode: &Rc<Inode>, wbc: &WritebackControl) -> FsResult<()> {
        if let Some(_journal) = self.journal() {
            if !wbc.sync_all || wbc.for_sync {
                return Ok(());
            }
            return self.commit_tid(inode.sync_tid.get()).await;
        }
        if !wbc.sync_all || wbc.for_sync {
            return Ok(());
        }
        let (bh, _) = self.get_inode_loc(inode.ino, true).await?;
        if bh.dirty() {
            self.buffers
                .sync_dirty(&bh, crate::block::BioFlags::NONE)
                .await?;
        }
        Ok(())
    }
}
