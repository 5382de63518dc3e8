//! Block maps of ext2 and ext3 files (kernel `indirect.c`): 12 direct pointers, then single, double and triple
//! indirect blocks of 32-bit pointers.
//!
//! Locks: the caller holds `i_data_sem`, for writing where the map changes.

#![allow(
    clippy::unused_self,
    reason = "all operations are methods of the file system"
)]

use super::balloc::FreeFlags;
use super::mballoc::{AllocRequest, MbFlags, MAX_BLOCK_FILE_PHYS};
use super::{flag, Ext4, Inode, MapFlags, Mapping, MappingKind};
use crate::base::bytes::{le32, put_le32};
use crate::base::{Errno, FsBlock};
use crate::block::Role;
use crate::format::{Corrupt, CorruptKind};
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::Handle;
use crate::mm::buffer::{Bh, Buffer};
use crate::sim::sync::WriteGuard;
use std::rc::Rc;

/// Direct pointers (kernel `EXT4_NDIR_BLOCKS`).
const NDIR: u32 = 12;

/// A pointer and where it is: in the inode or in an indirect block.
#[derive(Clone)]
struct Slot {
    bh: Option<Rc<Buffer>>,
    index: u32,
    ptr: u32,
}

impl Ext4 {
    /// Indexes on the way to `lblk`: in the inode, then in each indirect block (kernel `ext4_block_to_path`).
    fn ind_path(&self, lblk: u32) -> FsResult<Vec<u32>> {
        let per = u64::from(self.geo.addr_per_block());
        let mut n = u64::from(lblk);
        if n < u64::from(NDIR) {
            return Ok(vec![lblk]);
        }
        n -= u64::from(NDIR);
        let at = |n: u64, level: u32| ((n / per.pow(level)) % per) as u32;
        for (level, root) in [(1u32, NDIR), (2, NDIR + 1), (3, NDIR + 2)] {
            let span = per.pow(level);
            if n < span {
                let mut path = vec![root];
                path.extend((0..level).rev().map(|l| at(n, l)));
                return Ok(path);
            }
            n -= span;
        }
        Err(FsError::Errno(Errno::EFBIG))
    }

    fn ptr_at(&self, inode: &Inode, bh: Option<&Rc<Buffer>>, index: u32) -> u32 {
        let at = index as usize * 4;
        match bh {
            Some(bh) => bh.read(|b| le32(b, at)),
            None => le32(&inode.core.borrow().i_block, at),
        }
    }

    async fn read_indirect(&self, inode: &Inode, block: u32) -> FsResult<Rc<Buffer>> {
        if !self.zone_valid(inode.ino, u64::from(block), 1) {
            return Err(self.corrupt_alloc(inode.ino, u64::from(block)));
        }
        let bh = self
            .buffers
            .bread(FsBlock(u64::from(block)), Role::Extent)
            .await?;
        Ok(bh)
    }

    /// Follows the path until its end or the first pointer that is 0 (kernel `ext4_get_branch`).
    async fn ind_branch(&self, inode: &Inode, path: &[u32]) -> FsResult<Vec<Slot>> {
        let mut out: Vec<Slot> = Vec::with_capacity(path.len());
        for &index in path {
            let bh = match out.last() {
                None => None,
                Some(s) if s.ptr == 0 => break,
                Some(s) => Some(self.read_indirect(inode, s.ptr).await?),
            };
            let ptr = self.ptr_at(inode, bh.as_ref(), index);
            out.push(Slot { bh, index, ptr });
        }
        Ok(out)
    }

    /// Blocks from `lblk` to the end of the subtree that is missing below a pointer at depth `found` of a path of
    /// `depth` pointers.
    fn missing_span(&self, path: &[u32], found: usize) -> u64 {
        let per = u64::from(self.geo.addr_per_block());
        let below = path.len() - found;
        let span = per.pow(below as u32);
        let inside = path[found..]
            .iter()
            .fold(0u64, |n, &i| n * per + u64::from(i));
        span - inside
    }

    /// Looks a range up (kernel `ext4_ind_map_blocks` without CREATE).
    pub(crate) async fn ind_query(&self, inode: &Inode, lblk: u32, len: u32) -> FsResult<Mapping> {
        let path = self.ind_path(lblk)?;
        let branch = self.ind_branch(inode, &path).await?;
        let last = &branch[branch.len() - 1];
        if branch.len() < path.len() {
            let span = self.missing_span(&path, branch.len());
            return Ok(Mapping::hole(span.min(u64::from(len)) as u32));
        }
        let (n, ptr) = self.run_length(inode, last, len);
        if ptr == 0 {
            return Ok(Mapping::hole(n));
        }
        Ok(Mapping::at(MappingKind::Mapped, u64::from(ptr), n, false))
    }

    /// How many pointers from the slot on are holes, or consecutive blocks.
    fn run_length(&self, inode: &Inode, s: &Slot, len: u32) -> (u32, u32) {
        let end = if s.bh.is_some() {
            self.geo.addr_per_block()
        } else {
            NDIR
        };
        let max = len.min(end.saturating_sub(s.index)).max(1);
        let mut n = 1;
        while n < max {
            let p = self.ptr_at(inode, s.bh.as_ref(), s.index + n);
            let want = if s.ptr == 0 { 0 } else { s.ptr + n };
            if p != want {
                break;
            }
            n += 1;
        }
        (n, s.ptr)
    }

    /// Maps and allocates (kernel `ext4_ind_map_blocks`).
    pub(crate) async fn ind_map(
        &self,
        h: &mut Handle,
        inode: &Inode,
        lblk: u32,
        len: u32,
        flags: MapFlags,
    ) -> FsResult<Mapping> {
        let path = self.ind_path(lblk)?;
        let branch = self.ind_branch(inode, &path).await?;
        let Some(last) = branch.last().cloned() else {
            return Err(FsError::Errno(Errno::EFBIG));
        };
        if branch.len() == path.len() && last.ptr != 0 {
            let (n, ptr) = self.run_length(inode, &last, len);
            return Ok(Mapping::at(MappingKind::Mapped, u64::from(ptr), n, false));
        }
        if flags.has(MapFlags::UNWRIT_EXT) && !flags.has(MapFlags::PRE_IO) {
            return Err(FsError::Errno(Errno::EOPNOTSUPP));
        }
        // How many data blocks at once: to the end of the table, and only into a hole.
        let missing = path.len() - branch.len();
        let want = if missing > 0 {
            let first = path[path.len() - 1];
            len.min(self.geo.addr_per_block() - first)
        } else {
            self.run_length(inode, &last, len).0
        };
        self.alloc_branch(h, inode, (lblk, want), &path, branch, flags)
            .await
    }

    /// Goal near the pointers before the slot (kernel `ext4_find_near`).
    fn ind_goal(&self, inode: &Inode, s: &Slot) -> u64 {
        for i in (0..s.index).rev() {
            let p = self.ptr_at(inode, s.bh.as_ref(), i);
            if p != 0 {
                return u64::from(p);
            }
        }
        match &s.bh {
            Some(bh) => bh.blocknr.0,
            None => self.inode_to_goal_block(inode).0,
        }
    }

    /// Allocates the missing indirect blocks and then the data (kernel `ext4_alloc_branch`).
    async fn alloc_branch(
        &self,
        h: &mut Handle,
        inode: &Inode,
        (lblk, want): (u32, u32),
        path: &[u32],
        mut branch: Vec<Slot>,
        flags: MapFlags,
    ) -> FsResult<Mapping> {
        let known = branch.len();
        let mut goal = branch.last().map_or(0, |s| self.ind_goal(inode, s)) & MAX_BLOCK_FILE_PHYS;
        let mut mb = self.alloc_flags(inode, flags);
        // Space for indirect blocks is claimed apart from the reservation of the data.
        mb.set(MbFlags::DELALLOC_RESERVED, false);
        let mut metas: Vec<Rc<Buffer>> = Vec::new();
        let mut res = Ok(());
        for _ in known..path.len() {
            match self.ind_new_meta(h, inode, goal).await {
                Ok(bh) => {
                    goal = bh.blocknr.0;
                    metas.push(bh);
                }
                Err(e) => {
                    res = Err(e);
                    break;
                }
            }
        }
        let mut ar = AllocRequest {
            logical: lblk,
            len: want,
            goal,
            flags: self.alloc_flags(inode, flags),
            ..AllocRequest::default()
        };
        let block = match res {
            Ok(()) => self.mb_new_blocks(h, inode, &mut ar).await,
            Err(e) => Err(e),
        };
        let block = match block {
            Ok(b) => b,
            Err(e) => return Err(self.undo_metas(h, inode, metas, e).await),
        };
        let n = ar.len.min(want);
        self.fill_branch(h, inode, path, &mut branch, (&metas, block, n))
            .await?;
        self.update_inode_fsync_trans(h, inode, true);
        Ok(Mapping::at(MappingKind::Mapped, block.0, n, true))
    }

    async fn undo_metas(
        &self,
        h: &mut Handle,
        inode: &Inode,
        metas: Vec<Rc<Buffer>>,
        e: FsError,
    ) -> FsError {
        for bh in metas {
            let nr = bh.blocknr;
            let freed = self
                .free_buffer_blocks(h, inode, Some(bh), nr, 1, FreeFlags::METADATA)
                .await;
            if let Err(e) = freed {
                return e;
            }
        }
        e
    }

    async fn ind_new_meta(&self, h: &mut Handle, inode: &Inode, goal: u64) -> FsResult<Rc<Buffer>> {
        let nr = self.new_meta_blocks(h, inode, FsBlock(goal)).await?;
        let bh = self.buffers.getblk(nr);
        bh.set_role(Role::Extent);
        self.get_create_access(h, &bh).await?;
        bh.modify(|b| b.fill(0));
        bh.set(Bh::UPTODATE);
        Ok(bh)
    }

    /// Writes the pointers, the topmost last, so that the branch appears whole.
    async fn fill_branch(
        &self,
        h: &mut Handle,
        inode: &Inode,
        path: &[u32],
        branch: &mut [Slot],
        (metas, block, n): (&[Rc<Buffer>], FsBlock, u32),
    ) -> FsResult<()> {
        let known = branch.len();
        for (i, bh) in metas.iter().enumerate() {
            let index = path[known + i];
            let lowest = i + 1 == metas.len();
            bh.modify(|b| {
                if lowest {
                    for k in 0..n {
                        let v = (block.0 + u64::from(k)) as u32;
                        put_le32(b, (index + k) as usize * 4, v);
                    }
                } else {
                    put_le32(b, index as usize * 4, metas[i + 1].blocknr.0 as u32);
                }
            });
            self.dirty_metadata(h, Some(inode), bh).await?;
        }
        let Some(top) = branch.last() else {
            return Ok(());
        };
        let (first, count) = match metas.first() {
            Some(bh) => (bh.blocknr.0, 1),
            None => (block.0, n),
        };
        let top = top.clone();
        self.set_ptrs(h, inode, &top, |k| (first + u64::from(k)) as u32, count)
            .await
    }

    /// Stores `count` pointers from the slot on.
    async fn set_ptrs(
        &self,
        h: &mut Handle,
        inode: &Inode,
        s: &Slot,
        value: impl Fn(u32) -> u32,
        count: u32,
    ) -> FsResult<()> {
        let put = |b: &mut [u8]| {
            for k in 0..count {
                put_le32(b, (s.index + k) as usize * 4, value(k));
            }
        };
        match &s.bh {
            Some(bh) => {
                self.get_write_access(h, bh).await?;
                bh.modify(put);
                self.dirty_metadata(h, Some(inode), bh).await
            }
            None => {
                put(&mut inode.core.borrow_mut().i_block);
                self.mark_inode_dirty(h, inode).await
            }
        }
    }

    /// Frees the blocks of `from..=to` (kernel `ext4_ind_truncate`, `ext4_ind_remove_space`), table by table from
    /// the right; indirect blocks that become empty are freed too.
    pub(crate) async fn ind_remove_space(
        &self,
        h: &mut Handle,
        inode: &Inode,
        sem: &mut Option<WriteGuard>,
        from: u32,
        to: u32,
    ) -> FsResult<()> {
        let mut upto = to.min(self.ind_last_block(inode));
        loop {
            if upto < from {
                return Ok(());
            }
            self.ensure_credits(h, inode, sem, (12, 40, 40)).await?;
            let path = self.ind_path(upto)?;
            let branch = self.ind_branch(inode, &path).await?;
            let depth = path.len();
            let first = if branch.len() < depth {
                // Nothing below this pointer: step over the whole missing subtree.
                let per = u64::from(self.geo.addr_per_block());
                let inside = path[branch.len()..]
                    .iter()
                    .fold(0u64, |n, &i| n * per + u64::from(i));
                u64::from(upto).saturating_sub(inside) as u32
            } else {
                let index = path[depth - 1];
                let first = upto - index.min(upto);
                let low = from.saturating_sub(first).min(index);
                self.free_table(h, inode, &branch, (low, index)).await?;
                first
            };
            if first == 0 {
                return Ok(());
            }
            upto = first - 1;
        }
    }

    fn ind_last_block(&self, inode: &Inode) -> u32 {
        let core = inode.core.borrow();
        let top = (NDIR..NDIR + 3)
            .rev()
            .find(|&i| le32(&core.i_block, i as usize * 4) != 0);
        let per = u64::from(self.geo.addr_per_block());
        let n = u64::from(NDIR);
        let last = match top {
            None => n,
            Some(12) => n + per,
            Some(13) => n + per + per * per,
            _ => n + per + per * per + per * per * per,
        };
        (last - 1).min(u64::from(u32::MAX - 1)) as u32
    }

    /// Frees pointers `low..=high` of the branch's last table, then empty tables up the branch.
    async fn free_table(
        &self,
        h: &mut Handle,
        inode: &Inode,
        branch: &[Slot],
        (low, high): (u32, u32),
    ) -> FsResult<()> {
        let last = &branch[branch.len() - 1];
        let flags = if inode.is_dir() || inode.is_lnk() || inode.has_flag(flag::EA_INODE) {
            FreeFlags::METADATA.with(FreeFlags::FORGET)
        } else if self.should_journal_data(inode) {
            FreeFlags::FORGET
        } else {
            FreeFlags::NONE
        };
        let mut runs: Vec<(u32, u32, u32)> = Vec::new();
        for i in low..=high {
            let p = self.ptr_at(inode, last.bh.as_ref(), i);
            match runs.last_mut() {
                Some((_, start, n)) if p != 0 && *start + *n == p => *n += 1,
                _ if p != 0 => runs.push((i, p, 1)),
                _ => {}
            }
        }
        if !runs.is_empty() {
            let slot = Slot {
                bh: last.bh.clone(),
                index: low,
                ptr: 0,
            };
            self.set_ptrs(h, inode, &slot, |_| 0, high - low + 1)
                .await?;
        }
        for (_, start, n) in runs {
            self.free_blocks(h, inode, FsBlock(u64::from(start)), n, flags)
                .await?;
        }
        for k in (1..branch.len()).rev() {
            let Some(bh) = branch[k].bh.clone() else {
                break;
            };
            if !bh.read(|b| b.iter().all(|&x| x == 0)) {
                break;
            }
            let parent = &branch[k - 1];
            self.set_ptrs(h, inode, parent, |_| 0, 1).await?;
            let nr = bh.blocknr;
            let meta = FreeFlags::METADATA.with(FreeFlags::FORGET);
            self.free_buffer_blocks(h, inode, Some(bh), nr, 1, meta)
                .await?;
        }
        Ok(())
    }

    /// Checks the pointers of a block-mapped inode (kernel `ext4_ind_check_inode`).
    pub(crate) fn ind_check_inode(&self, inode: &Inode) -> FsResult<()> {
        let core = inode.core.borrow();
        for i in 0..15usize {
            let p = le32(&core.i_block, i * 4);
            if p != 0 && !self.zone_valid(inode.ino, u64::from(p), 1) {
                let kind = CorruptKind::ExtentBounds {
                    lblk: i as u32,
                    pblk: u64::from(p),
                    len: 1,
                };
                drop(core);
                return Err(self.corrupt(Corrupt::new(kind, 0x28)));
            }
        }
        Ok(())
    }
}
