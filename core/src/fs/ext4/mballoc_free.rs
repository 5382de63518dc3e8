//! Freeing blocks: at once in the bitmap, in the buddy only when the transaction that freed them has committed.

use super::mballoc::FreeEntry;
use super::{Ext4, FreeFlags, Inode, Stats};
use crate::base::{bitmap, FsBlock, Lba, Tid};
use crate::block::Bio;
use crate::fs::common::FsResult;
use crate::fs::jbd2::Handle;
use crate::mm::buffer::Buffer;
use crate::trace::{Category, Event};
use std::rc::Rc;

impl Ext4 {
    /// Frees `count` blocks (kernel `ext4_free_blocks`).
    pub async fn free_blocks(
        &self,
        h: &mut Handle,
        inode: &Inode,
        block: FsBlock,
        count: u32,
        flags: FreeFlags,
    ) -> FsResult<()> {
        self.free_buffer_blocks(h, inode, None, block, count, flags)
            .await
    }

    /// The same for one block whose buffer the caller has.
    pub(crate) async fn free_buffer_blocks(
        &self,
        h: &mut Handle,
        inode: &Inode,
        bh: Option<Rc<Buffer>>,
        block: FsBlock,
        count: u32,
        flags: FreeFlags,
    ) -> FsResult<()> {
        if !self.zone_valid(inode.ino, block.0, u64::from(count)) {
            return Err(self.corrupt_alloc(inode.ino, block.0));
        }
        self.sim.charge(self.cost.free_extent).await;
        Stats::inc(&self.stats.free_calls);
        Stats::add(&self.stats.free_blocks, u64::from(count));
        if flags.has(FreeFlags::FORGET) {
            let metadata = flags.has(FreeFlags::METADATA);
            for i in 0..u64::from(count) {
                let b = FsBlock(block.0 + i);
                let known = match &bh {
                    Some(bh) if bh.blocknr == b => Some(Rc::clone(bh)),
                    _ => self.buffers.find(b),
                };
                self.forget(h, metadata, inode, known, b).await?;
            }
        }
        let (ino, len) = (inode.ino, count);
        self.sim.emit(Category::Structures, || Event::BlocksFreed {
            ino,
            block,
            len,
        });
        let ratio = self.geo.cluster_ratio;
        let mut block = block.0;
        let mut left = count;
        if ratio > 1 {
            let over = (block % u64::from(ratio)) as u32;
            block -= u64::from(over);
            left = (left + over).next_multiple_of(ratio);
        }
        while left > 0 {
            let (group, bit) = self.geo.group_and_offset(block);
            let room = self.geo.blocks_per_group - bit * ratio;
            let n = left.min(room);
            self.clear_bitmap(h, inode, (group, bit), n.div_ceil(ratio), flags)
                .await?;
            block += u64::from(n);
            left -= n;
        }
        Ok(())
    }

    /// Frees clusters of one group (kernel `ext4_mb_clear_bb`).
    async fn clear_bitmap(
        &self,
        h: &mut Handle,
        inode: &Inode,
        (group, bit): (u32, u32),
        clusters: u32,
        flags: FreeFlags,
    ) -> FsResult<()> {
        if self.groups.with(group, |g| g.block_bitmap_corrupt) {
            return Ok(());
        }
        let bh = self.read_block_bitmap(group).await?;
        self.get_write_access(h, &bh).await?;
        let gdp = Rc::clone(self.groups.buffer(group));
        self.get_write_access(h, &gdp).await?;
        self.load_buddy(group).await?;
        let clear = bh.read(|m| bitmap::next_zero(m, bit, bit + clusters));
        if clear.is_some() {
            self.groups.with(group, |g| g.block_bitmap_corrupt = true);
            let first = self.geo.cluster_block(group, bit);
            return Err(self.corrupt_alloc(inode.ino, first));
        }
        let hold = h.is_journalled()
            && (flags.has(FreeFlags::METADATA) || !self.should_writeback_data(inode));
        bh.modify(|m| bitmap::clear_range(m, bit, bit + clusters));
        if hold {
            self.hold_until_commit(h, group, bit, clusters);
        } else {
            if self.opts.borrow().discard {
                self.issue_discard(group, bit, clusters);
            }
            self.buddy_free(group, bit, clusters);
        }
        self.block_bitmap_changed(group, &bh, i64::from(clusters));
        self.flex_add_clusters(group, i64::from(clusters));
        if !flags.has(FreeFlags::NO_QUOT_UPDATE) {
            let n = i64::from(clusters) * i64::from(self.geo.cluster_ratio);
            self.add_blocks(h, inode, -n).await?;
        }
        self.free_clusters.add(i64::from(clusters));
        self.dirty_metadata(h, None, &bh).await?;
        self.dirty_metadata(h, None, &gdp).await
    }

    /// Keeps an extent out of the buddy until the handle's transaction has committed (kernel
    /// `ext4_mb_free_metadata`), merged with what that transaction freed beside it.
    fn hold_until_commit(&self, h: &mut Handle, group: u32, start: u32, count: u32) {
        let Some(tid) = h.tid() else { return };
        let mut new = FreeEntry {
            tid,
            group,
            start,
            count,
        };
        let merged = self.groups.with(group, |g| {
            let mut gone = Vec::new();
            let left = g.freed.range(..start).next_back().map(|(s, c)| (*s, *c));
            if let Some((s, (c, t))) = left {
                if t == tid && s + c == start {
                    gone.push(s);
                    new.start = s;
                    new.count += c;
                }
            }
            if let Some(&(c, t)) = g.freed.get(&(start + count)) {
                if t == tid {
                    gone.push(start + count);
                    new.count += c;
                }
            }
            for s in &gone {
                g.freed.remove(s);
            }
            g.freed.insert(new.start, (new.count, tid));
            gone
        });
        let mut freed = self.mb.freed.borrow_mut();
        freed.retain(|e| !(e.group == group && e.tid == tid && merged.contains(&e.start)));
        freed.push(new);
        self.mb
            .free_pending
            .set(self.mb.free_pending.get() + u64::from(count));
    }

    /// Makes what transaction `tid` freed allocatable (kernel `ext4_process_freed_data`).
    pub(crate) fn mb_process_freed(&self, tid: Tid) {
        let mine: Vec<FreeEntry> = {
            let mut freed = self.mb.freed.borrow_mut();
            let (mine, rest) = freed.drain(..).partition(|e| e.tid == tid);
            *freed = rest;
            mine
        };
        for e in mine {
            self.groups.with(e.group, |g| g.freed.remove(&e.start));
            if self.opts.borrow().discard {
                self.issue_discard(e.group, e.start, e.count);
            }
            self.buddy_free(e.group, e.start, e.count);
            let pending = self.mb.free_pending.get();
            self.mb
                .free_pending
                .set(pending.saturating_sub(u64::from(e.count)));
        }
    }

    /// Tells the device that clusters are not needed any more; nobody waits.
    /// SIMPLIFIED: the extent is allocatable at once and not only when the discard is done.
    fn issue_discard(&self, group: u32, start: u32, clusters: u32) {
        let per = u64::from(self.geo.block_size) / 512;
        let lba = Lba(self.geo.cluster_block(group, start) * per);
        let sectors = u64::from(clusters) * u64::from(self.geo.cluster_ratio) * per;
        self.queue
            .submit_detached(Bio::discard(lba, sectors as u32));
    }
}
