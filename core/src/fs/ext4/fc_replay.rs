//! Replay of fast commits at mount (kernel fs/ext4/fast_commit.c, `ext4_fc_replay`).
//!
//! Runs after the blocks of full commits are home and before the log is marked empty, without a journal. Each record is
//! idempotent, so a replay that is cut off is done again from its beginning.
//!
//! The bitmaps are not in fast commits: blocks that records name are marked used before anything is applied, so that
//! new tree and directory blocks stay clear of them, and those that nobody owns in the end are freed again.

use super::dir::NewEntry;
use super::extents::ExCache;
use super::{extent_node as node, flag, Ext4, Inode};
use crate::base::{bitmap, bytes, Ino};
use crate::format::ext4::extent::{Extent, ExtentIdx};
use crate::format::ext4::RawInode;
use crate::format::jbd2::fast_commit::{FcDentry, FcRecord};
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::Handle;
use crate::mm::buffer::Bh;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Offset of `i_block` and of `i_generation` in the inode: the block map between is not taken from the record.
const I_BLOCK: usize = 0x28;
const I_GENERATION: usize = 0x64;
/// `ee_len` above this means an unwritten extent.
const INIT_MAX_LEN: u16 = 32_768;

/// Progress of a replay.
struct Replay {
    records: Vec<FcRecord>,
    /// Inodes whose block counts and blocks are settled at the end.
    touched: BTreeSet<Ino>,
}

impl Ext4 {
    /// Applies the records of all complete fast commits, in order.
    pub(crate) async fn fc_replay(&self, records: Vec<FcRecord>) -> FsResult<()> {
        self.reload_super()?;
        self.mb.init(self);
        let (clusters, inodes, dirs) = self.count_groups();
        self.free_clusters.set(clusters);
        self.free_inodes.set(inodes);
        self.dirs.set(dirs);
        let was = self.writable.replace(true);
        let mut replay = Replay {
            records,
            touched: BTreeSet::new(),
        };
        let done = self.fc_replay_all(&mut replay).await;
        self.writable.set(was);
        self.icache.borrow_mut().clear();
        for group in 0..self.geo.groups_count {
            self.groups.with(group, |g| g.buddy = None);
        }
        done
    }

    async fn fc_replay_all(&self, replay: &mut Replay) -> FsResult<()> {
        let mut h = Handle::nojournal();
        self.fc_reserve(&mut h, replay, 0).await?;
        for at in 0..replay.records.len() {
            let record = replay.records[at].clone();
            match record {
                FcRecord::Inode { ino, raw } => {
                    self.fc_replay_inode(&mut h, Ino(ino), &raw).await?;
                }
                FcRecord::AddRange {
                    ino,
                    lblk,
                    raw_len,
                    pblk,
                } => {
                    let unwritten = raw_len > INIT_MAX_LEN;
                    let len = if unwritten {
                        raw_len - INIT_MAX_LEN
                    } else {
                        raw_len
                    };
                    let e = Extent {
                        lblk,
                        len,
                        unwritten,
                        pblk,
                    };
                    self.fc_replay_add_range(&mut h, Ino(ino), e).await?;
                    replay.touched.insert(Ino(ino));
                }
                FcRecord::DelRange { ino, lblk, len } => {
                    let inode = self.iget(Ino(ino)).await?;
                    let last = lblk.saturating_add(len.max(1) - 1);
                    self.remove_space(&mut h, &inode, lblk, last).await?;
                    inode.es.borrow_mut().remove(lblk, len);
                    self.iput(inode).await?;
                    replay.touched.insert(Ino(ino));
                    self.fc_reserve(&mut h, replay, at + 1).await?;
                }
                FcRecord::Creat(d) => self.fc_replay_create(&mut h, &d).await?,
                FcRecord::Link(d) => self.fc_replay_link(&mut h, &d).await?,
                FcRecord::Unlink(d) => self.fc_replay_unlink(&mut h, &d).await?,
                FcRecord::Pad | FcRecord::Tail { .. } | FcRecord::Head { .. } => {}
            }
        }
        self.fc_settle(&mut h, replay).await
    }

    /// Marks the blocks used that records from `from` on name.
    async fn fc_reserve(&self, h: &mut Handle, replay: &Replay, from: usize) -> FsResult<()> {
        for r in &replay.records[from..] {
            if let FcRecord::AddRange { raw_len, pblk, .. } = r {
                let len = if *raw_len > INIT_MAX_LEN {
                    raw_len - INIT_MAX_LEN
                } else {
                    *raw_len
                };
                if !self.zone_valid(Ino(0), *pblk, u64::from(len)) {
                    return Err(self.corrupt_alloc(Ino(0), *pblk));
                }
                self.fc_mark(h, *pblk, u64::from(len), true).await?;
            }
        }
        Ok(())
    }

    /// Sets or clears bits of the block bitmaps; those that have the value already stay uncounted
    /// (kernel `ext4_mb_mark_bb`).
    async fn fc_mark(
        &self,
        h: &mut Handle,
        mut block: u64,
        mut len: u64,
        used: bool,
    ) -> FsResult<()> {
        let ratio = u64::from(self.geo.cluster_ratio);
        while len > 0 {
            let (group, bit) = self.geo.group_and_offset(block);
            let clusters =
                len.div_ceil(ratio)
                    .min(u64::from(self.geo.clusters_per_group - bit)) as u32;
            let bh = self.read_block_bitmap(group).await?;
            let wrong = |b: &[u8]| {
                (bit..bit + clusters)
                    .filter(|&i| bitmap::test(b, i) != used)
                    .count()
            };
            let changed = bh.read(wrong) as i64;
            if changed > 0 {
                bh.modify(|b| {
                    if used {
                        bitmap::set_range(b, bit, bit + clusters);
                    } else {
                        bitmap::clear_range(b, bit, bit + clusters);
                    }
                });
                let delta = if used { -changed } else { changed };
                self.block_bitmap_changed(group, &bh, delta);
                self.free_clusters.add(delta);
                self.groups.with(group, |g| g.buddy = None);
                let gdp = Rc::clone(self.groups.buffer(group));
                self.dirty_metadata(h, None, &bh).await?;
                self.dirty_metadata(h, None, &gdp).await?;
            }
            let step = u64::from(clusters) * ratio;
            block += step;
            len = len.saturating_sub(step);
        }
        Ok(())
    }

    /// The inode as logged, with the block map it has on disk (kernel `ext4_fc_replay_inode`).
    async fn fc_replay_inode(&self, h: &mut Handle, ino: Ino, raw: &[u8]) -> FsResult<()> {
        if !self.geo.valid_ino(ino) && ino.0 != 2 {
            return Err(FsError::Errno(crate::base::Errno::EUCLEAN));
        }
        self.icache.borrow_mut().remove(&ino);
        let (bh, offset) = self.get_inode_loc(ino, false).await?;
        let size = (self.geo.inode_size as usize).min(raw.len());
        let csum = self.geo.metadata_csum;
        bh.modify(|b| {
            let Some(disk) = b.get_mut(offset..offset + self.geo.inode_size as usize) else {
                return;
            };
            bytes::put_slice(disk, 0, &raw[..I_BLOCK.min(raw.len())]);
            bytes::put_slice(
                disk,
                I_GENERATION,
                raw.get(I_GENERATION..size).unwrap_or(&[]),
            );
            let flags = bytes::le32(disk, 0x20);
            if flags & flag::EXTENTS != 0 {
                if bytes::le16(disk, I_BLOCK) != 0xF30A {
                    disk[I_BLOCK..I_GENERATION].fill(0);
                    bytes::put_le16(disk, I_BLOCK, 0xF30A);
                    bytes::put_le16(disk, I_BLOCK + 4, 4);
                }
            } else {
                // Inline contents, a fast symlink or a device number.
                bytes::put_slice(disk, I_BLOCK, raw.get(I_BLOCK..I_GENERATION).unwrap_or(&[]));
            }
            if csum {
                RawInode::csum_set(&self.csum, ino.0, disk);
            }
        });
        bh.set(Bh::UPTODATE);
        self.dirty_metadata(h, None, &bh).await?;
        let is_dir = bytes::le16(raw, 0) & 0xF000 == 0x4000;
        self.fc_mark_inode_used(h, ino, is_dir).await
    }

    /// Kernel `ext4_fc_replay_add_range`: the range maps to these blocks now, whatever it mapped to before.
    async fn fc_replay_add_range(&self, h: &mut Handle, ino: Ino, e: Extent) -> FsResult<()> {
        if e.len == 0 {
            return Err(FsError::Errno(crate::base::Errno::EUCLEAN));
        }
        let inode = self.iget(ino).await?;
        // Old blocks of the range are freed; should they be the same, they are marked used again below.
        self.remove_space(h, &inode, e.lblk, e.lblk + u32::from(e.len) - 1)
            .await?;
        inode.es.borrow_mut().remove(e.lblk, u32::from(e.len));
        self.fc_mark(h, e.pblk, u64::from(e.len), true).await?;
        let path = self.find_extent(&inode, e.lblk).await?;
        let mb = super::mballoc::MbFlags::default();
        self.insert_extent(h, &inode, path, e, (false, mb)).await?;
        self.iput(inode).await
    }

    /// Kernel `ext4_fc_replay_create`. The record of the inode itself came before.
    async fn fc_replay_create(&self, h: &mut Handle, d: &FcDentry) -> FsResult<()> {
        let dir = self.iget(Ino(d.parent_ino)).await?;
        if self.find_entry(&dir, &d.name).await?.is_some() {
            return self.iput(dir).await;
        }
        let inode = self.iget(Ino(d.ino)).await?;
        if inode.is_dir() {
            {
                // Size and blocks count a first block that is not in the record.
                let mut core = inode.core.borrow_mut();
                core.size = 0;
                core.blocks = 0;
            }
            inode.disksize.set(0);
            inode.es.borrow_mut().remove(0, u32::MAX);
            self.init_new_dir(h, &dir, &inode).await?;
            self.inc_count(&dir);
        } else {
            inode.core.borrow_mut().nlink = 1;
        }
        self.fc_add_entry(h, &dir, &inode, &d.name).await?;
        self.mark_inode_dirty(h, &inode).await?;
        self.mark_inode_dirty(h, &dir).await?;
        self.iput(inode).await?;
        self.iput(dir).await
    }

    async fn fc_add_entry(
        &self,
        h: &mut Handle,
        dir: &Rc<Inode>,
        inode: &Rc<Inode>,
        name: &[u8],
    ) -> FsResult<()> {
        let new = NewEntry {
            name,
            ino: inode.ino,
            file_type: self.file_type(inode.mode()),
        };
        self.add_entry(h, dir, &new).await
    }

    /// Kernel `ext4_fc_replay_link`.
    async fn fc_replay_link(&self, h: &mut Handle, d: &FcDentry) -> FsResult<()> {
        let dir = self.iget(Ino(d.parent_ino)).await?;
        if self.find_entry(&dir, &d.name).await?.is_none() {
            let inode = self.iget(Ino(d.ino)).await?;
            self.fc_add_entry(h, &dir, &inode, &d.name).await?;
            inode.core.borrow_mut().nlink += 1;
            self.mark_inode_dirty(h, &inode).await?;
            self.iput(inode).await?;
        }
        self.iput(dir).await
    }

    /// Kernel `ext4_fc_replay_unlink`. The last link takes the inode with it.
    async fn fc_replay_unlink(&self, h: &mut Handle, d: &FcDentry) -> FsResult<()> {
        let dir = self.iget(Ino(d.parent_ino)).await?;
        let slot = self.find_entry(&dir, &d.name).await?;
        if let Some(slot) = slot.filter(|s| s.ino == d.ino) {
            let inode = self.iget(Ino(d.ino)).await?;
            self.delete_entry(h, &dir, &slot).await?;
            self.mark_inode_dirty(h, &dir).await?;
            let mut nlink = inode.core.borrow().nlink.saturating_sub(1);
            if inode.is_dir() {
                nlink = 0;
                self.dec_count(&dir);
                self.mark_inode_dirty(h, &dir).await?;
            }
            inode.core.borrow_mut().nlink = nlink;
            self.mark_inode_dirty(h, &inode).await?;
            self.iput(inode).await?;
        }
        self.iput(dir).await
    }

    /// Block counts of the inodes that got or lost ranges, and blocks that were named but belong to nobody
    /// (kernel `ext4_fc_set_bitmaps_and_counters`).
    async fn fc_settle(&self, h: &mut Handle, replay: &Replay) -> FsResult<()> {
        let mut owned: BTreeMap<u64, u64> = BTreeMap::new();
        for &ino in &replay.touched {
            let inode = match self.iget(ino).await {
                Ok(inode) => inode,
                // Deleted by a later record.
                Err(FsError::Errno(_)) => continue,
                Err(e) => return Err(e),
            };
            let mut blocks = u64::from(inode.core.borrow().file_acl != 0);
            if inode.has_flag(flag::EXTENTS) {
                let (extents, nodes) = self.fc_walk(&inode).await?;
                blocks += nodes.len() as u64 * u64::from(self.geo.cluster_ratio);
                for e in extents {
                    blocks += u64::from(e.len);
                    owned.insert(e.pblk, u64::from(e.len));
                    self.fc_mark(h, e.pblk, u64::from(e.len), true).await?;
                }
                for n in nodes {
                    self.fc_mark(h, n, 1, true).await?;
                }
            }
            inode.core.borrow_mut().blocks = blocks * u64::from(self.geo.block_size / 512);
            self.mark_inode_dirty(h, &inode).await?;
            self.iput(inode).await?;
        }
        let owns = |b: u64| {
            owned
                .range(..=b)
                .next_back()
                .is_some_and(|(s, n)| b < s + n)
        };
        let ratio = u64::from(self.geo.cluster_ratio);
        for r in &replay.records {
            let FcRecord::AddRange { raw_len, pblk, .. } = r else {
                continue;
            };
            let len = if *raw_len > INIT_MAX_LEN {
                raw_len - INIT_MAX_LEN
            } else {
                *raw_len
            };
            for b in *pblk..*pblk + u64::from(len) {
                let cluster = b - b % ratio;
                if !(cluster..cluster + ratio).any(owns) {
                    self.fc_mark(h, b, 1, false).await?;
                }
            }
        }
        Ok(())
    }

    /// All extents of a file and the blocks of its tree.
    async fn fc_walk(&self, inode: &Rc<Inode>) -> FsResult<(Vec<Extent>, Vec<u64>)> {
        let (mut extents, mut nodes) = (Vec::new(), Vec::new());
        let depth = self.ext_depth(inode)?;
        let root = inode.core.borrow().i_block;
        let mut todo: Vec<(u64, u16)> = Vec::new();
        let mut list = |b: &[u8], depth: u16, todo: &mut Vec<(u64, u16)>| {
            for i in 0..node::entries(b) {
                if depth == 0 {
                    extents.push(Extent::decode(b, i));
                } else {
                    todo.push((ExtentIdx::decode(b, i).leaf, depth - 1));
                }
            }
        };
        list(&root, depth, &mut todo);
        while let Some((block, depth)) = todo.pop() {
            nodes.push(block);
            let bh = self
                .read_extent_block(inode, block, depth, ExCache::Nothing)
                .await?;
            let bytes = bh.bytes();
            list(&bytes, depth, &mut todo);
        }
        Ok((extents, nodes))
    }

    /// Marks an inode used in its group (kernel `ext4_mark_inode_used`).
    async fn fc_mark_inode_used(&self, h: &mut Handle, ino: Ino, is_dir: bool) -> FsResult<()> {
        let group = self.geo.group_of_ino(ino).0;
        let bit = self.geo.index_of_ino(ino);
        let bh = self.read_inode_bitmap(group).await?;
        if !bh.modify(|b| bitmap::set(b, bit)) {
            return Ok(());
        }
        self.dirty_metadata(h, None, &bh).await?;
        self.account_new_inode(h, group, bit, is_dir, &bh).await
    }
}
