//! The seam between ext4 and its journal (kernel `ext4_jbd2.c`, `ext4_jbd2.h`): handles, access to buffers, and
//! the credits Linux 6.18 reserves. Only this file knows the mode without a journal.

#![allow(
    clippy::unused_self,
    reason = "all operations are methods of the file system"
)]

use super::{flag, DataMode, Ext4, Inode, Stats};
use crate::base::FsBlock;
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::{Handle, HandleType, JInode, Journal};
use crate::mm::buffer::{Bh, Buffer};
use crate::sim::sync::WriteGuard;
use std::rc::Rc;

/// `EXT4_XATTR_TRANS_BLOCKS`: blocks an xattr change may dirty; also the base of metadata estimates.
pub(crate) const XATTR_TRANS_BLOCKS: u32 = 6;
/// `EXT4_INDEX_EXTRA_TRANS_BLOCKS`: blocks a directory index may dirty beside.
pub(crate) const INDEX_EXTRA_TRANS_BLOCKS: u32 = 12;
/// `EXT4_MAX_TRANS_DATA`: most blocks one truncate handle is charged for.
const MAX_TRANS_DATA: u64 = 64;
/// Revoke records every handle may make without asking for more (`ext4_trans_default_revoke_credits`).
const DEFAULT_REVOKE_CREDITS: u32 = 8;
/// `EXT4_MAX_EXTENT_DEPTH`.
const MAX_EXTENT_DEPTH: u32 = 5;

/// How the contents of an inode relate to the journal (kernel `ext4_inode_journal_mode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InodeJournalMode {
    /// Contents are logged.
    Journal,
    /// Contents before metadata.
    Ordered,
    /// No order.
    Writeback,
}

/// Where an inode is noted as an orphan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OrphanSlot {
    /// Nowhere.
    #[default]
    None,
    /// On the list that starts in the superblock.
    List,
    /// In the orphan file: block and entry.
    File(u32, u32),
}

impl Ext4 {
    /// The journal, if there is one.
    pub fn journal(&self) -> Option<Rc<Journal>> {
        self.journal.borrow().clone()
    }

    /// Starts a handle with `credits` blocks (kernel `ext4_journal_start`). May wait for log space.
    pub async fn journal_start(&self, ty: HandleType, credits: u32) -> FsResult<Handle> {
        Stats::inc(&self.stats.ext4_journal_start_inode);
        self.journal_start_with(ty, credits, 0, self.revoke_credits(DEFAULT_REVOKE_CREDITS))
            .await
    }

    /// The same for an update of the file system as a whole (kernel `ext4_journal_start_sb`).
    pub(crate) async fn journal_start_sb(&self, ty: HandleType, credits: u32) -> FsResult<Handle> {
        Stats::inc(&self.stats.ext4_journal_start_sb);
        self.journal_start_with(ty, credits, 0, self.revoke_credits(DEFAULT_REVOKE_CREDITS))
            .await
    }

    /// Starts a handle and keeps `rsv` credits back for a second one (kernel `ext4_journal_start_with_reserve`).
    pub async fn journal_start_with_reserve(
        &self,
        ty: HandleType,
        credits: u32,
        rsv: u32,
    ) -> FsResult<Handle> {
        Stats::inc(&self.stats.ext4_journal_start_inode);
        self.journal_start_with(
            ty,
            credits,
            rsv,
            self.revoke_credits(DEFAULT_REVOKE_CREDITS),
        )
        .await
    }

    /// Starts a handle that may revoke `revoke` blocks (kernel `ext4_journal_start_with_revoke`).
    pub async fn journal_start_with_revoke(
        &self,
        ty: HandleType,
        credits: u32,
        revoke: u32,
    ) -> FsResult<Handle> {
        Stats::inc(&self.stats.ext4_journal_start_inode);
        self.journal_start_with(ty, credits, 0, revoke).await
    }

    async fn journal_start_with(
        &self,
        ty: HandleType,
        credits: u32,
        rsv: u32,
        revoke: u32,
    ) -> FsResult<Handle> {
        self.check_writable()?;
        match self.journal() {
            Some(j) => j.start_with_reserve(ty, credits, rsv, revoke).await,
            None => Ok(Handle::nojournal()),
        }
    }

    /// Starts a handle whose credits were reserved by another (kernel `ext4_journal_start_reserved`).
    pub async fn journal_start_reserved(&self, h: &mut Handle, ty: HandleType) -> FsResult<()> {
        Stats::inc(&self.stats.ext4_journal_start_reserved);
        self.check_writable()?;
        match self.journal() {
            Some(j) => j.start_reserved(h, ty).await,
            None => Ok(()),
        }
    }

    /// Fails if nothing may be changed (kernel `ext4_journal_check_start`).
    pub(crate) fn check_writable(&self) -> FsResult<()> {
        self.emergency_state()?;
        if !self.writable.get() {
            return Err(FsError::ReadOnly);
        }
        if self.journal().is_some_and(|j| j.is_aborted()) {
            self.abort_fs();
            return Err(FsError::ReadOnly);
        }
        Ok(())
    }

    /// Ends a handle; waits for its commit if `h.sync`.
    pub async fn journal_stop(&self, h: Handle) -> FsResult<()> {
        match self.journal() {
            Some(j) if h.is_journalled() => j.stop(h).await,
            _ => Ok(()),
        }
    }

    /// Takes write access to a buffer (kernel `ext4_journal_get_write_access`).
    pub async fn get_write_access(&self, h: &mut Handle, bh: &Rc<Buffer>) -> FsResult<()> {
        match self.journal() {
            Some(j) if h.is_journalled() => j.get_write_access(h, bh).await,
            _ => Ok(()),
        }
    }

    /// Takes access to a new buffer whose old contents do not matter (kernel
    /// `ext4_journal_get_create_access`).
    #[allow(clippy::unused_async, reason = "one shape for all accesses to buffers")]
    pub async fn get_create_access(&self, h: &mut Handle, bh: &Rc<Buffer>) -> FsResult<()> {
        if let Some(j) = self.journal().filter(|_| h.is_journalled()) {
            j.get_create_access(h, bh)?;
        }
        bh.clear_trigger();
        bh.clear(Bh::VERIFIED);
        Ok(())
    }

    /// Puts a changed buffer into the transaction, or on the block device's dirty list without a journal
    /// (kernel `ext4_handle_dirty_metadata`).
    pub async fn dirty_metadata(
        &self,
        h: &mut Handle,
        inode: Option<&Inode>,
        bh: &Rc<Buffer>,
    ) -> FsResult<()> {
        bh.set(Bh::UPTODATE);
        match self.journal() {
            Some(j) if h.is_journalled() => j.dirty_metadata(h, bh),
            _ => {
                self.buffers.mark_dirty(bh);
                if let Some(i) = inode {
                    i.mapping.associate(bh);
                }
                if inode.is_some_and(|i| i.has_flag(flag::SYNC)) {
                    self.buffers
                        .sync_dirty(bh, crate::block::BioFlags::SYNC)
                        .await?;
                }
                Ok(())
            }
        }
    }

    /// A block is freed: forgets its buffer, and revokes it where an old log copy could be replayed over new
    /// contents (kernel `__ext4_forget`).
    #[allow(clippy::unused_async, reason = "one shape for all accesses to buffers")]
    pub async fn forget(
        &self,
        h: &mut Handle,
        is_metadata: bool,
        inode: &Inode,
        bh: Option<Rc<Buffer>>,
        block: FsBlock,
    ) -> FsResult<()> {
        let Some(j) = self.journal().filter(|_| h.is_journalled()) else {
            if let Some(bh) = &bh {
                self.buffers.bforget(bh);
            }
            return Ok(());
        };
        let all_data = self.data_mode() == DataMode::Journal;
        if all_data || (!is_metadata && !self.should_journal_data(inode)) {
            return match &bh {
                Some(bh) => j.forget(h, bh),
                None => Ok(()),
            };
        }
        j.revoke(h, block, bh.as_ref())
    }

    /// How the contents of `inode` relate to the journal.
    pub fn inode_journal_mode(&self, inode: &Inode) -> InodeJournalMode {
        if self.journal.borrow().is_none() {
            return InodeJournalMode::Writeback;
        }
        let per_inode = inode.has_flag(flag::JOURNAL_DATA) && !self.delalloc();
        if !inode.is_reg()
            || inode.has_flag(flag::EA_INODE)
            || self.data_mode() == DataMode::Journal
            || per_inode
        {
            return InodeJournalMode::Journal;
        }
        match self.data_mode() {
            DataMode::Writeback => InodeJournalMode::Writeback,
            _ => InodeJournalMode::Ordered,
        }
    }

    /// Contents are logged.
    pub fn should_journal_data(&self, inode: &Inode) -> bool {
        self.inode_journal_mode(inode) == InodeJournalMode::Journal
    }

    /// Contents go to disk before the commit that exposes them.
    pub fn should_order_data(&self, inode: &Inode) -> bool {
        self.inode_journal_mode(inode) == InodeJournalMode::Ordered
    }

    /// Contents and metadata are not ordered.
    pub fn should_writeback_data(&self, inode: &Inode) -> bool {
        self.inode_journal_mode(inode) == InodeJournalMode::Writeback
    }

    /// Writeback allocates unwritten extents and converts them when the I/O ends.
    pub fn should_dioread_nolock(&self, inode: &Inode) -> bool {
        self.opts.borrow().dioread_nolock
            && inode.is_reg()
            && inode.has_flag(flag::EXTENTS)
            && !self.should_journal_data(inode)
            && self.delalloc()
    }

    /// Notes which transaction an fsync (and fdatasync, if `datasync`) of the inode must wait for.
    pub fn update_inode_fsync_trans(&self, h: &Handle, inode: &Inode, datasync: bool) {
        if let Some(tid) = h.tid() {
            inode.sync_tid.set(tid);
            if datasync {
                inode.datasync_tid.set(tid);
            }
        }
    }

    /// The journal's view of the inode, made on first use.
    pub fn jinode(&self, inode: &Inode) -> Rc<JInode> {
        Rc::clone(
            inode
                .jinode
                .borrow_mut()
                .get_or_insert_with(|| JInode::new(inode.ino)),
        )
    }

    /// Ordered mode: the bytes must be written before the handle's transaction commits
    /// (kernel `ext4_jbd2_inode_add_write`).
    pub fn inode_add_write(&self, h: &Handle, inode: &Inode, start: u64, len: u64) {
        if let Some(j) = self.journal().filter(|_| h.is_journalled() && len > 0) {
            j.inode_add_write(h, &self.jinode(inode), start, start + len - 1);
        }
    }

    /// Ordered mode: the bytes, which are being written, must be down before the commit
    /// (kernel `ext4_jbd2_inode_add_wait`).
    pub fn inode_add_wait(&self, h: &Handle, inode: &Inode, start: u64, len: u64) {
        if let Some(j) = self.journal().filter(|_| h.is_journalled() && len > 0) {
            j.inode_add_wait(h, &self.jinode(inode), start, start + len - 1);
        }
    }

    /// Makes sure that the handle has `credits` and `revoke` left: extends it, or restarts it while `sem`
    /// (`i_data_sem`) is let go. True if it was restarted, so that what the caller read may have changed
    /// (kernel `ext4_datasem_ensure_credits`).
    pub(crate) async fn ensure_credits(
        &self,
        h: &mut Handle,
        inode: &Inode,
        sem: &mut Option<WriteGuard>,
        (check, restart, revoke): (u32, u32, u32),
    ) -> FsResult<bool> {
        let Some(j) = self.journal().filter(|_| h.is_journalled()) else {
            return Ok(false);
        };
        if h.is_aborted() {
            return Err(FsError::ReadOnly);
        }
        if h.buffer_credits() >= check && h.revoke_credits() >= revoke {
            return Ok(false);
        }
        let more = restart.saturating_sub(h.buffer_credits());
        let more_revoke = revoke.saturating_sub(h.revoke_credits());
        if j.extend(h, more, more_revoke)? {
            return Ok(false);
        }
        let held = sem.take().is_some();
        j.restart(h, restart, revoke).await?;
        if held {
            *sem = Some(inode.i_data_sem.write().await);
        }
        Ok(true)
    }

    /// Revoke credits for freeing `blocks` metadata blocks (`ext4_free_metadata_revoke_credits`).
    pub(crate) fn revoke_credits(&self, blocks: u32) -> u32 {
        blocks * self.geo.cluster_ratio
    }

    /// Revoke credits for freeing `blocks` contents blocks of the inode (`ext4_free_data_revoke_credits`).
    pub(crate) fn data_revoke_credits(&self, inode: &Inode, blocks: u32) -> u32 {
        if self.data_mode() == DataMode::Journal || !self.should_journal_data(inode) {
            return 0;
        }
        blocks + 2 * (self.geo.cluster_ratio - 1)
    }

    /// `EXT4_SINGLEDATA_TRANS_BLOCKS`.
    pub(crate) fn singledata_trans_blocks(&self) -> u32 {
        if self.geo.extents {
            20
        } else {
            8
        }
    }

    /// `EXT4_DATA_TRANS_BLOCKS`: blocks that a change of one data block may dirty.
    pub fn data_trans_blocks(&self) -> u32 {
        self.singledata_trans_blocks() + XATTR_TRANS_BLOCKS - 2
    }

    /// Credits that a new inode's security attribute adds to those of its caller
    /// (`ext4_xattr_credits_for_new_inode`).
    pub(crate) fn xattr_credits_for_new_inode(&self) -> u32 {
        7
    }

    /// Index blocks for a change of `extents` extents over `lblocks` blocks (`ext4_index_trans_blocks`).
    pub fn index_trans_blocks(&self, inode: &Inode, lblocks: u32, extents: u32) -> u32 {
        if inode.has_flag(flag::EXTENTS) {
            return self.ext_index_trans_blocks(extents);
        }
        lblocks.div_ceil(self.geo.addr_per_block()) + 4
    }

    /// Index blocks of an extent tree of any depth (`ext4_ext_index_trans_blocks`).
    pub fn ext_index_trans_blocks(&self, extents: u32) -> u32 {
        if extents <= 1 {
            MAX_EXTENT_DEPTH * 2 + extents
        } else {
            let per_block = (self.geo.block_size - 12) / 12;
            MAX_EXTENT_DEPTH * 3 + extents.div_ceil(per_block)
        }
    }

    /// Metadata blocks for mapping `lblocks` blocks in `pextents` pieces (`ext4_meta_trans_blocks`).
    pub fn meta_trans_blocks(&self, inode: &Inode, lblocks: u32, pextents: u32) -> u32 {
        let index = self.index_trans_blocks(inode, lblocks, pextents);
        let groups = (index + pextents).min(self.geo.groups_count);
        let gdt = (index + pextents).min(self.geo.gdt_blocks);
        index + groups + gdt + XATTR_TRANS_BLOCKS
    }

    /// The same for one extent (`ext4_chunk_trans_extent`, before 6.17 `ext4_chunk_trans_blocks`).
    pub fn chunk_trans_blocks(&self, inode: &Inode, lblocks: u32) -> u32 {
        self.meta_trans_blocks(inode, lblocks, 1)
    }

    /// Metadata blocks, and logged contents, for one folio of `blocks` blocks
    /// (`ext4_writepage_trans_blocks`).
    pub fn writepage_trans_blocks(&self, inode: &Inode, blocks: u32) -> u32 {
        let mut n = self.meta_trans_blocks(inode, blocks, blocks);
        if self.should_journal_data(inode) {
            n += blocks;
        }
        n
    }

    /// Credits to begin a truncate with (`ext4_blocks_for_truncate`).
    pub fn blocks_for_truncate(&self, inode: &Inode) -> u32 {
        let blocks = inode.core.borrow().blocks >> (self.geo.block_bits - 9);
        self.data_trans_blocks() + blocks.clamp(2, MAX_TRANS_DATA) as u32
    }
}
