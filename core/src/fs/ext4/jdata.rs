//! Journalled file data (`data=journal`, `chattr +j`): pages whose blocks are buffers of a transaction
//! (kernel `fs/ext4/inode.c`, `ext4_journalled_*`, `mpage_journal_page_buffers`).
//!
//! A page is dirty from the moment of the write (since 6.4), but its blocks may go home only after their commit:
//! until then the buffer is `jbddirty`, afterwards `dirty`.

use super::page_io::WriteBlock;
use super::writepages::Mpd;
use super::{Ext4, Inode};
use crate::base::{FsBlock, Tid};
use crate::block::Role;
use crate::fs::common::FsResult;
use crate::fs::jbd2::Handle;
use crate::mm::buffer::{Bh, Buffer};
use crate::mm::folio::BlockMask;
use crate::mm::Tag;
use std::rc::Rc;

impl Ext4 {
    /// The journal buffer of a block of a page, made if there is none.
    fn journal_buffer(&self, inode: &Inode, index: u64, b: u32) -> Option<Rc<Buffer>> {
        let bs = self.geo.block_size;
        let lblk = index as u32 * (4096 / bs) + b;
        if let Some(bh) = inode.mapping.buffer(lblk) {
            return Some(bh);
        }
        let e = inode.es.borrow().lookup(lblk)?;
        let home = FsBlock(e.pblk + u64::from(lblk - e.lblk));
        let payload = inode.mapping.with(index, |f| f.block_payload(b, bs))?;
        let bh = Buffer::for_file(home, bs, payload);
        bh.set_role(Role::FileData);
        inode.mapping.set_buffer(lblk, &bh);
        Some(bh)
    }

    /// Write access for the blocks of a locked page (`do_journal_get_write_access`).
    pub(super) async fn journalled_get_access(
        &self,
        h: &mut Handle,
        inode: &Rc<Inode>,
        index: u64,
        mask: BlockMask,
    ) -> FsResult<()> {
        for b in 0..4096 / self.geo.block_size {
            if mask & (1 << b) == 0 {
                continue;
            }
            if let Some(bh) = self.journal_buffer(inode, index, b) {
                self.get_write_access(h, &bh).await?;
            }
        }
        Ok(())
    }

    /// The new contents of the blocks belong to the handle's transaction (`write_end_fn`).
    pub(super) fn journalled_dirty(
        &self,
        h: &mut Handle,
        inode: &Rc<Inode>,
        index: u64,
        mask: BlockMask,
    ) -> FsResult<()> {
        let bs = self.geo.block_size;
        let Some(journal) = self.journal() else {
            inode.mapping.set_dirty(index, mask);
            return Ok(());
        };
        for b in 0..4096 / bs {
            if mask & (1 << b) == 0 {
                continue;
            }
            if let Some(bh) = self.journal_buffer(inode, index, b) {
                if let Some(p) = inode.mapping.with(index, |f| f.block_payload(b, bs)) {
                    bh.set_payload(p);
                }
                journal.dirty_metadata(h, &bh)?;
            }
        }
        inode.mapping.with(index, |f| f.set_journalled(mask));
        inode.mapping.set_dirty(index, 0);
        Ok(())
    }

    /// A page dirtied outside of a transaction joins one before it is written
    /// (`mpage_journal_page_buffers`; only pages with the checked mark).
    pub(super) async fn journalled_page_prepare(
        &self,
        h: &mut Handle,
        inode: &Rc<Inode>,
        index: u64,
    ) -> FsResult<()> {
        let pending = inode.mapping.with(index, |f| {
            let pending = f.checked();
            f.set_checked(false);
            if pending {
                f.uptodate()
            } else {
                0
            }
        });
        let mask = pending.unwrap_or(0);
        if mask != 0 {
            self.journalled_get_access(h, inode, index, mask).await?;
            self.journalled_dirty(h, inode, index, mask)?;
        }
        Ok(())
    }

    /// Writes those blocks of a locked page home that are committed; the page stays dirty if some are not
    /// (`ext4_bio_write_folio` on journalled buffers).
    pub(super) async fn submit_journalled_page(&self, mpd: &mut Mpd<'_>, index: u64) {
        let mapping = mpd.inode.mapping.clone();
        let bs = self.geo.block_size;
        let per_page = 4096 / bs;
        mapping.clear_dirty_for_io(index);
        let mut ready = Vec::new();
        let mut waiting = false;
        for b in 0..per_page {
            let lblk = index as u32 * per_page + b;
            let Some(bh) = mapping.buffer(lblk) else {
                continue;
            };
            // A checkpoint may be writing it; who asks for the page's I/O waits for that as well.
            self.buffers.wait_unlocked(&bh).await;
            if bh.dirty() && !bh.locked() {
                ready.push((b, bh));
            } else if bh.test(Bh::JBDDIRTY) || bh.dirty() || bh.jh.borrow().transaction.is_some() {
                waiting = true;
            } else if !bh.locked() {
                self.retire_buffer(mpd.inode, index, b, &bh);
            }
        }
        if waiting {
            mapping.set_dirty(index, 0);
        }
        if ready.is_empty() {
            if !waiting {
                mapping.clear_to_write(index);
            }
            return;
        }
        let must_return = waiting && mapping.is_tagged(index, Tag::ToWrite);
        mapping.start_writeback(index);
        if must_return {
            mapping.set_to_write(index);
        }
        let mask = ready.iter().fold(0, |m, (b, _)| m | 1 << b);
        mapping.with(index, |f| f.set_in_flight(mask));
        for (block, bh) in ready {
            bh.start_io();
            let w = WriteBlock {
                index,
                block,
                pblk: bh.blocknr.0,
                payload: bh.payload(),
                order: 0,
                buffer: Some(bh),
            };
            self.io_add_block(&mut mpd.io, w).await;
        }
    }

    /// Forgets a clean buffer that no transaction needs, so that memory is bounded by the journal.
    fn retire_buffer(&self, inode: &Inode, index: u64, b: u32, bh: &Rc<Buffer>) {
        if bh.in_journal() {
            return;
        }
        let lblk = index as u32 * (4096 / self.geo.block_size) + b;
        inode.mapping.drop_buffer(lblk);
        inode.mapping.with(index, |f| f.clear_journalled(1 << b));
    }

    /// Drops clean pages of a range, journalled ones included whose blocks are home and settled.
    pub(super) fn invalidate_pages(&self, inode: &Inode, first: u64, last: u64) {
        let m = &inode.mapping;
        if self.should_journal_data(inode) {
            let mut at = first;
            while let Some(i) = m.next(at, Tag::Present).filter(|i| *i <= last) {
                at = i + 1;
                self.release_buffers(inode, i);
            }
        }
        m.invalidate(first, last);
    }

    /// Lets go of the settled journal buffers of a page (kernel `jbd2_journal_try_to_free_buffers`).
    fn release_buffers(&self, inode: &Inode, index: u64) {
        let per_page = 4096 / self.geo.block_size;
        let held = inode.mapping.with(index, |f| f.journalled()).unwrap_or(0);
        for b in (0..per_page).filter(|b| held & (1 << b) != 0) {
            let lblk = index as u32 * per_page + b;
            match inode.mapping.buffer(lblk) {
                Some(bh) => {
                    let owned = bh.jh.borrow().transaction.is_some();
                    if !owned && !bh.dirty() && !bh.locked() && !bh.test(Bh::JBDDIRTY) {
                        inode.mapping.drop_buffer(lblk);
                        inode.mapping.with(index, |f| f.clear_journalled(1 << b));
                    }
                }
                None => drop(inode.mapping.with(index, |f| f.clear_journalled(1 << b))),
            }
        }
    }

    /// Commits transaction `tid` if it is not on disk yet, and waits (`ext4_fc_commit` without fast commit).
    pub(crate) async fn commit_tid(&self, tid: Tid) -> FsResult<()> {
        match self.journal() {
            Some(j) => self.fc_commit(&j, tid).await,
            None => Ok(()),
        }
    }
}
