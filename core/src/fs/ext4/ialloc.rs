//! Inode allocation (kernel `ialloc.c`): Orlov for directories, the parent's group for files.

use super::geometry::FLEX_SIZE_DIR_ALLOC_SCHEME;
use super::{flag, mode, state, Ext4, Inode, InodeCore, Stats};
use crate::base::{bitmap, Errno, FsBlock, Ino};
use crate::block::Role;
use crate::format::ext4::dirhash;
use crate::format::ext4::group_desc::{
    inode_bitmap_csum, inode_bitmap_csum_verify, EXT4_BG_BLOCK_UNINIT, EXT4_BG_INODE_UNINIT,
};
use crate::format::{Corrupt, CorruptKind};
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::Handle;
use crate::mm::buffer::{Bh, Buffer};
use crate::trace::{Category, Event};
use std::rc::Rc;

use super::balloc::BITMAP_UPTODATE;

/// Numbers of a flex group that Orlov weighs.
#[derive(Clone, Copy, Debug)]
struct OrlovStats {
    free_inodes: i64,
    free_clusters: i64,
    used_dirs: i64,
}

impl Ext4 {
    /// The inode bitmap of a group, initialised and checked (kernel `ext4_read_inode_bitmap`).
    pub(crate) async fn read_inode_bitmap(&self, group: u32) -> FsResult<Rc<Buffer>> {
        let d = self.groups.desc(group);
        let block = FsBlock(d.bg_inode_bitmap);
        let bh = self.buffers.getblk(block);
        bh.set_role(Role::Bitmap);
        if bh.uptodate() && bh.test(BITMAP_UPTODATE) {
            return Ok(bh);
        }
        if self.geo.group_csum && d.has_flag(EXT4_BG_INODE_UNINIT) && !bh.uptodate() {
            if group == 0 {
                let kind = CorruptKind::GroupInodeBitmap {
                    group,
                    block: block.0,
                };
                return Err(self.corrupt(Corrupt::new(kind, 0)));
            }
            let used = self.geo.inodes_per_group;
            bh.modify(|b| {
                b.fill(0);
                let bits = b.len() as u32 * 8;
                bitmap::set_range(b, used, bits);
            });
            bh.set(Bh::UPTODATE);
            bh.set(BITMAP_UPTODATE);
            return Ok(bh);
        }
        if !bh.uptodate() && !bh.locked() {
            Stats::inc(&self.stats.ext4_load_inode_bitmap);
        }
        let bh = self.buffers.bread(block, Role::Bitmap).await?;
        if !bh.test(BITMAP_UPTODATE) {
            let d = self.groups.desc(group);
            let skip = self.geo.group_csum && d.has_flag(EXT4_BG_INODE_UNINIT);
            let ok = bh.read(|b| {
                if skip {
                    Ok(())
                } else {
                    inode_bitmap_csum_verify(&self.csum, &self.sb.borrow(), group, &d, b)
                }
            });
            if let Err(c) = ok {
                self.groups.with(group, |g| g.inode_bitmap_corrupt = true);
                return Err(self.corrupt(c.at(block.0)));
            }
            bh.set(BITMAP_UPTODATE);
        }
        Ok(bh)
    }

    fn inode_bitmap_csum(&self, bh: &Buffer) -> Option<u32> {
        self.geo
            .metadata_csum
            .then(|| bh.read(|b| inode_bitmap_csum(&self.csum, &self.sb.borrow(), b)))
    }

    /// Allocates an inode for a child of `dir` (kernel `__ext4_new_inode`): mode, owner (root), times, flags,
    /// generation; empty extent root. It is in the cache with one reference and `I_NEW` set.
    pub async fn new_inode(
        &self,
        h: &mut Handle,
        dir: &Rc<Inode>,
        i_mode: u32,
        qstr: &[u8],
        goal: Option<Ino>,
    ) -> FsResult<Rc<Inode>> {
        if dir.core.borrow().nlink == 0 {
            return Err(FsError::Errno(Errno::EPERM));
        }
        self.check_writable()?;
        self.sim.charge(self.cost.new_inode).await;
        let (group, bit) = self.claim_inode(h, dir, i_mode, qstr, goal).await?;
        let ino = Ino(bit + group * self.geo.inodes_per_group + 1);
        Stats::inc(&self.stats.ext4_allocate_inode);
        self.sim
            .emit(Category::Structures, || Event::InodeAllocated {
                ino,
                mode: i_mode as u16,
            });
        let inode = self.make_inode(ino, self.new_core(dir, i_mode));
        inode.set_state(state::NEW | state::EXT4_NEW, true);
        inode.set_state(state::MAY_INLINE_DATA, self.geo.inline_data);
        let stale = self.icache.borrow_mut().insert(ino, Rc::clone(&inode));
        if let Some(stale) = stale {
            // The bitmap said free, the cache says in use: the bitmap is damaged (insert_inode_locked).
            self.icache.borrow_mut().insert(ino, stale);
            self.groups.with(group, |g| g.inode_bitmap_corrupt = true);
            let kind = CorruptKind::InodeNumber {
                ino: ino.0,
                max: self.geo.inodes_count,
            };
            return Err(self.corrupt(Corrupt::new(kind, 0)));
        }
        let done = self.init_new_inode(h, &inode).await;
        if let Err(e) = done {
            inode.core.borrow_mut().nlink = 0;
            self.unlock_new_inode(&inode);
            let _ = self.free_inode(h, &inode).await;
            self.icache.borrow_mut().remove(&ino);
            return Err(e);
        }
        Ok(inode)
    }

    async fn init_new_inode(&self, h: &mut Handle, inode: &Inode) -> FsResult<()> {
        let kind = inode.mode() & mode::S_IFMT;
        let mapped = matches!(kind, mode::S_IFDIR | mode::S_IFREG | mode::S_IFLNK);
        if self.geo.extents && mapped {
            inode.set_flag(flag::EXTENTS, true);
            super::extent_node::init_root(&mut inode.core.borrow_mut().i_block);
            self.mark_inode_dirty(h, inode).await?;
        }
        self.update_inode_fsync_trans(h, inode, true);
        self.mark_inode_dirty(h, inode).await
    }

    fn new_core(&self, dir: &Inode, i_mode: u32) -> InodeCore {
        let now = self.coarse_ts();
        let parent = dir.core.borrow();
        let mut flags = parent.flags & flag::INHERITED;
        flags &= match i_mode & mode::S_IFMT {
            mode::S_IFDIR => u32::MAX,
            mode::S_IFREG => flag::REG_MASK,
            _ => flag::OTHER_MASK,
        };
        let mut i_mode = i_mode;
        let mut gid = 0;
        if parent.mode & 0o2000 != 0 || self.opts.borrow().grpid {
            gid = parent.gid;
            if i_mode & mode::S_IFMT == mode::S_IFDIR && parent.mode & 0o2000 != 0 {
                i_mode |= 0o2000;
            }
        }
        let extra_isize = self.geo.want_extra_isize;
        let body = (self.geo.inode_size as usize).saturating_sub(128 + usize::from(extra_isize));
        InodeCore {
            mode: i_mode,
            gid,
            projid: if parent.flags & flag::PROJINHERIT != 0 {
                parent.projid
            } else {
                0
            },
            nlink: 1,
            atime: now,
            ctime: now,
            mtime: now,
            crtime: now,
            flags,
            generation: self.generation.borrow_mut().next_u64() as u32,
            extra_isize,
            ibody: if self.geo.inode_size > 128 {
                vec![0; body]
            } else {
                Vec::new()
            },
            version: 1,
            ..InodeCore::default()
        }
    }

    /// Finds and takes a free inode: group and index in it.
    async fn claim_inode(
        &self,
        h: &mut Handle,
        dir: &Rc<Inode>,
        i_mode: u32,
        qstr: &[u8],
        goal: Option<Ino>,
    ) -> FsResult<(u32, u32)> {
        let n = self.geo.groups_count;
        let goal = goal.filter(|g| g.0 > 0 && g.0 <= self.geo.inodes_count);
        let (mut group, mut from) = match goal {
            Some(g) => (self.geo.group_of_ino(g).0, self.geo.index_of_ino(g)),
            None => (
                self.find_group(dir, i_mode, qstr).ok_or(FsError::NoSpace)?,
                0,
            ),
        };
        dir.last_alloc_group.set(Some(group));
        for _ in 0..=n {
            let corrupt = self.groups.with(group, |g| g.inode_bitmap_corrupt);
            if self.groups.desc(group).bg_free_inodes_count > 0 && !corrupt {
                let bh = self.read_inode_bitmap(group).await;
                if let Ok(bh) = bh {
                    if let Some(bit) = self.take_inode_bit(h, group, &bh, from).await? {
                        let dir = i_mode & mode::S_IFMT == mode::S_IFDIR;
                        self.account_new_inode(h, group, bit, dir, &bh).await?;
                        return Ok((group, bit));
                    }
                }
            }
            group = if group + 1 >= n { 0 } else { group + 1 };
            from = 0;
        }
        Err(FsError::NoSpace)
    }

    async fn take_inode_bit(
        &self,
        h: &mut Handle,
        group: u32,
        bh: &Rc<Buffer>,
        mut from: u32,
    ) -> FsResult<Option<u32>> {
        loop {
            let max = self.geo.inodes_per_group;
            let Some(bit) = bh.read(|b| bitmap::next_zero(b, from, max)) else {
                return Ok(None);
            };
            if group == 0 && bit + 1 < self.geo.first_ino {
                self.groups.with(group, |g| g.inode_bitmap_corrupt = true);
                let kind = CorruptKind::InodeNumber {
                    ino: bit + 1,
                    max: self.geo.inodes_count,
                };
                return Err(self.corrupt(Corrupt::new(kind, bit / 8)));
            }
            self.get_write_access(h, bh).await?;
            if bh.modify(|b| bitmap::set(b, bit)) {
                self.dirty_metadata(h, None, bh).await?;
                return Ok(Some(bit));
            }
            from = bit + 1;
        }
    }

    /// Descriptor and counters for a newly taken inode; materialises an uninitialised group.
    pub(super) async fn account_new_inode(
        &self,
        h: &mut Handle,
        group: u32,
        bit: u32,
        dir: bool,
        bh: &Rc<Buffer>,
    ) -> FsResult<()> {
        let gdp = Rc::clone(self.groups.buffer(group));
        self.get_write_access(h, &gdp).await?;
        if self.geo.group_csum && self.groups.desc(group).has_flag(EXT4_BG_BLOCK_UNINIT) {
            let bb = self.read_block_bitmap(group).await?;
            self.get_write_access(h, &bb).await?;
            self.dirty_metadata(h, None, &bb).await?;
            if self.groups.desc(group).has_flag(EXT4_BG_BLOCK_UNINIT) {
                self.block_bitmap_changed(group, &bb, 0);
            }
            self.dirty_metadata(h, None, &gdp).await?;
        }
        let sem = self.alloc_sem(group);
        let guard = sem.read().await;
        let csum = self.inode_bitmap_csum(bh);
        let per = self.geo.inodes_per_group;
        let group_csum = self.geo.group_csum;
        self.groups.update(group, |d| {
            if group_csum {
                let mut used = per.saturating_sub(d.bg_itable_unused);
                if d.has_flag(EXT4_BG_INODE_UNINIT) {
                    d.bg_flags &= !EXT4_BG_INODE_UNINIT;
                    used = 0;
                }
                if bit + 1 > used {
                    d.bg_itable_unused = per - (bit + 1);
                }
            }
            d.bg_free_inodes_count = d.bg_free_inodes_count.saturating_sub(1);
            d.bg_used_dirs_count += u32::from(dir);
            if let Some(csum) = csum {
                d.bg_inode_bitmap_csum = csum;
            }
        });
        drop(guard);
        self.dirty_metadata(h, None, &gdp).await?;
        self.free_inodes.set(self.free_inodes.get() - 1);
        self.dirs.set(self.dirs.get() + i64::from(dir));
        if let Some(f) = self.flex_of(group) {
            f.free_inodes.set(f.free_inodes.get() - 1);
            f.used_dirs.set(f.used_dirs.get() + i64::from(dir));
        }
        Ok(())
    }

    /// Frees an inode in bitmap and descriptor (kernel `ext4_free_inode`).
    pub async fn free_inode(&self, h: &mut Handle, inode: &Inode) -> FsResult<()> {
        Stats::inc(&self.stats.ext4_free_inode);
        self.fc_del(inode.ino);
        let ino = inode.ino;
        self.sim
            .emit(Category::Structures, || Event::InodeFreed { ino });
        let group = self.geo.group_of_ino(ino).0;
        let bit = self.geo.index_of_ino(ino);
        let bh = self.read_inode_bitmap(group).await?;
        self.get_write_access(h, &bh).await?;
        let gdp = Rc::clone(self.groups.buffer(group));
        self.get_write_access(h, &gdp).await?;
        if !bh.modify(|b| bitmap::clear(b, bit)) {
            self.groups.with(group, |g| g.inode_bitmap_corrupt = true);
            let kind = CorruptKind::InodeNumber {
                ino: ino.0,
                max: self.geo.inodes_count,
            };
            return Err(self.corrupt(Corrupt::new(kind, bit / 8)));
        }
        let dir = inode.is_dir();
        let csum = self.inode_bitmap_csum(&bh);
        self.groups.update(group, |d| {
            d.bg_free_inodes_count += 1;
            d.bg_used_dirs_count -= u32::from(dir).min(d.bg_used_dirs_count);
            if let Some(csum) = csum {
                d.bg_inode_bitmap_csum = csum;
            }
        });
        self.free_inodes.set(self.free_inodes.get() + 1);
        self.dirs.set(self.dirs.get() - i64::from(dir));
        if let Some(f) = self.flex_of(group) {
            f.free_inodes.set(f.free_inodes.get() + 1);
            f.used_dirs.set(f.used_dirs.get() - i64::from(dir));
        }
        self.dirty_metadata(h, None, &gdp).await?;
        self.dirty_metadata(h, None, &bh).await
    }

    fn find_group(&self, dir: &Inode, i_mode: u32, qstr: &[u8]) -> Option<u32> {
        if i_mode & mode::S_IFMT == mode::S_IFDIR {
            self.find_group_orlov(dir, true, Some(qstr))
        } else {
            self.find_group_other(dir)
        }
    }

    fn orlov_stats(&self, g: u32, flex: bool) -> OrlovStats {
        if flex {
            if let Some(f) = self.groups.flex.get(g as usize) {
                return OrlovStats {
                    free_inodes: f.free_inodes.get(),
                    free_clusters: f.free_clusters.get(),
                    used_dirs: f.used_dirs.get(),
                };
            }
        }
        let d = self.groups.desc(g);
        OrlovStats {
            free_inodes: i64::from(d.bg_free_inodes_count),
            free_clusters: i64::from(d.bg_free_blocks_count),
            used_dirs: i64::from(d.bg_used_dirs_count),
        }
    }

    /// Spreads top-level directories, keeps others near their parent (kernel `find_group_orlov`). `is_dir` off:
    /// called for a file whose flex group is full.
    fn find_group_orlov(&self, dir: &Inode, is_dir: bool, qstr: Option<&[u8]>) -> Option<u32> {
        let real = self.geo.groups_count;
        let flex = self.geo.flex_size();
        let ngroups = if flex > 1 { real.div_ceil(flex) } else { real };
        let freei = self.free_inodes.get().max(0);
        let ave_i = freei / i64::from(ngroups);
        let ave_c = self.free_clusters.read_positive() / i64::from(ngroups);
        let top = dir.ino.0 == 2 || dir.has_flag(flag::TOPDIR);
        let chosen = if is_dir && top {
            let start = self.orlov_start(qstr, ngroups);
            let mut best = None;
            let mut best_dirs = i64::from(self.geo.inodes_per_group);
            for i in 0..ngroups {
                let g = (start + i) % ngroups;
                let s = self.orlov_stats(g, flex > 1);
                let good = s.free_inodes > 0
                    && s.used_dirs < best_dirs
                    && s.free_inodes >= ave_i
                    && s.free_clusters >= ave_c;
                if good {
                    best = Some(g);
                    best_dirs = s.used_dirs;
                }
            }
            best
        } else {
            self.orlov_near(dir, ngroups, (ave_i, ave_c))
        };
        chosen
            .and_then(|g| self.first_with_inodes(g * flex, flex))
            .or_else(|| self.orlov_fallback(dir, freei / i64::from(real)))
    }

    fn orlov_start(&self, qstr: Option<&[u8]>, ngroups: u32) -> u32 {
        match qstr {
            Some(name) => {
                let seed = self.geo.hash_seed;
                let hash = dirhash::dirhash(name, dirhash::DX_HASH_HALF_MD4, seed, false);
                hash.unwrap_or_default().hash % ngroups
            }
            None => self.generation.borrow_mut().below(u64::from(ngroups)) as u32,
        }
    }

    fn orlov_near(&self, dir: &Inode, ngroups: u32, (ave_i, ave_c): (i64, i64)) -> Option<u32> {
        let flex = self.geo.flex_size();
        let per_flex = i64::from(self.geo.inodes_per_group) * i64::from(flex);
        let max_dirs = self.dirs.get() / i64::from(ngroups) + per_flex / 16;
        let min_inodes = (ave_i - per_flex / 4).max(1);
        let clusters = i64::from(self.geo.clusters_per_group) * i64::from(flex);
        let min_clusters = (ave_c - clusters / 4).max(0);
        let parent = dir.last_alloc_group.get().unwrap_or(dir.block_group);
        let start = if flex > 1 {
            self.geo.flex_group(parent)
        } else {
            parent
        };
        (0..ngroups).map(|i| (start + i) % ngroups).find(|&g| {
            let s = self.orlov_stats(g, flex > 1);
            s.used_dirs < max_dirs && s.free_inodes >= min_inodes && s.free_clusters >= min_clusters
        })
    }

    /// The first of `count` groups from `first` on that has a free inode.
    fn first_with_inodes(&self, first: u32, count: u32) -> Option<u32> {
        (first..first.saturating_add(count).min(self.geo.groups_count))
            .find(|&g| self.groups.desc(g).bg_free_inodes_count > 0)
    }

    fn orlov_fallback(&self, dir: &Inode, ave: i64) -> Option<u32> {
        let n = self.geo.groups_count;
        for least in [ave.max(1), 1] {
            let found = (0..n)
                .map(|i| (dir.block_group + i) % n)
                .find(|&g| i64::from(self.groups.desc(g).bg_free_inodes_count) >= least);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// The parent's flex group or group, else somewhere else (kernel `find_group_other`).
    fn find_group_other(&self, dir: &Inode) -> Option<u32> {
        let n = self.geo.groups_count;
        let flex = self.geo.flex_size();
        if flex > 1 {
            let tries = [Some(dir.block_group), dir.last_alloc_group.get()];
            for parent in tries.into_iter().flatten() {
                let found = self.first_with_inodes(parent & !(flex - 1), flex);
                if found.is_some() {
                    return found;
                }
            }
            return self.find_group_orlov(dir, false, None);
        }
        debug_assert!(flex < FLEX_SIZE_DIR_ALLOC_SCHEME);
        let usable = |g: u32, space: bool| {
            let d = self.groups.desc(g);
            d.bg_free_inodes_count > 0 && (!space || d.bg_free_blocks_count > 0)
        };
        let parent = dir.block_group;
        if usable(parent, true) {
            return Some(parent);
        }
        let mut g = (parent + dir.ino.0) % n;
        let mut step = 1;
        while step < n {
            g = (g + step) % n;
            if usable(g, true) {
                return Some(g);
            }
            step <<= 1;
        }
        (1..=n)
            .map(|i| (parent + i) % n)
            .find(|&g| usable(g, false))
    }
}
