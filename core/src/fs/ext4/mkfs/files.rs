//! Inodes of a fresh file system and their blocks: root, lost+found, bad blocks, resize, journal, orphan file.

use super::map::{BlockMap, ExtentTree};
use super::options::{invalid, MkfsError};
use super::Mkfs;
use crate::base::bytes;
use crate::format::ext4::group_desc::{EXT4_BG_BLOCK_UNINIT, EXT4_BG_INODE_UNINIT};
use crate::format::ext4::inode::{
    xattr_area_mut, EXT4_DIND_BLOCK, EXT4_EXTENTS_FL, S_IFDIR, S_IFREG,
};
use crate::format::ext4::superblock::{EXT4_JOURNAL_INO, EXT4_RESIZE_INO, EXT4_ROOT_INO};
use crate::format::ext4::xattr::EXT4_XATTR_MAGIC;
use crate::format::ext4::{dirent, features, orphan_file, RawInode};
use crate::format::jbd2::{JournalSuperblock, JBD2_MIN_JOURNAL_BLOCKS};

const EXTRA_ISIZE: u16 = 32;
const EXT4_BAD_INO: u32 = 1;
/// Blocks of the file system per fast commit block (`EXT2_JOURNAL_TO_FC_BLKS_RATIO`).
const JOURNAL_TO_FC_BLOCKS: u64 = 64;

/// Blocks of the log and of its fast commit area.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct JournalSize {
    pub(super) log: u64,
    pub(super) fast_commit: u64,
}

impl JournalSize {
    pub(super) fn total(self) -> u64 {
        self.log + self.fast_commit
    }
}

fn full() -> MkfsError {
    MkfsError::NoSpace("the first files".to_string())
}

impl Mkfs {
    /// A new inode with the times and extra size libext2fs gives it.
    fn new_inode(&self, mode: u16) -> RawInode {
        let now = self.opts.now;
        let mut i = RawInode::zeroed();
        i.i_mode = mode;
        i.i_links_count = 1;
        i.i_atime = now;
        i.i_ctime = now;
        i.i_mtime = now;
        if self.sb.s_inode_size > 128 {
            i.i_extra_isize = EXTRA_ISIZE;
            i.i_crtime = now;
        }
        i
    }

    fn put_inode(&mut self, ino: u32, inode: &RawInode) {
        let mut b = vec![0; usize::from(self.sb.s_inode_size)];
        inode.encode_with_csum(&self.csum, ino, &mut b);
        self.inodes.insert(ino, b);
    }

    fn sectors(&self, clusters: u64) -> u64 {
        clusters * u64::from(self.sb.block_size() / 512) * u64::from(self.sb.cluster_ratio())
    }

    /// Counts an inode as used (libext2fs `ext2fs_inode_alloc_stats2`).
    fn use_inode(&mut self, ino: u32, dir: bool) {
        let Some((group, index)) = self.sb.locate_inode(ino) else {
            return;
        };
        let ipg = self.sb.s_inodes_per_group;
        let has_csum = self.csum.group_descs();
        let d = &mut self.descs[group as usize];
        d.bg_free_inodes_count -= 1;
        d.bg_used_dirs_count += u32::from(dir);
        d.bg_flags &= !EXT4_BG_INODE_UNINIT;
        if has_csum {
            d.bg_itable_unused = d.bg_itable_unused.min(ipg - index - 1);
        }
        self.used_inodes.insert(ino);
    }

    /// First free inode that is not reserved.
    fn find_inode(&mut self) -> Result<u32, MkfsError> {
        let ino = (self.sb.s_first_ino..=self.sb.s_inodes_count)
            .find(|i| !self.used_inodes.contains(i))
            .ok_or_else(full)?;
        if let Some((group, _)) = self.sb.locate_inode(ino) {
            let d = &mut self.descs[group as usize];
            if self.csum.group_descs() && d.bg_flags & EXT4_BG_INODE_UNINIT != 0 {
                d.bg_flags &= !(EXT4_BG_INODE_UNINIT | EXT4_BG_BLOCK_UNINIT);
            }
        }
        Ok(ino)
    }

    /// Takes one block (a whole cluster with bigalloc) at or after `goal`.
    fn alloc_block(&mut self, goal: u64) -> Result<u64, MkfsError> {
        let at = self.space.new_block(goal).ok_or_else(full)?;
        self.claim(at, 1);
        Ok(at)
    }

    /// Marks blocks of files used and keeps the running free counts.
    fn claim(&mut self, at: u64, len: u64) {
        let ratio = u64::from(self.sb.cluster_ratio());
        self.space.mark(at, len);
        let (mut blk, end) = (at, at + len);
        while blk < end {
            let group = self.sb.group_of_block(blk);
            let next = self.sb.group_first_block(group + 1).min(end);
            let d = &mut self.descs[group as usize];
            let n = (next - blk).div_ceil(ratio) as u32;
            d.bg_free_blocks_count = d.bg_free_blocks_count.saturating_sub(n);
            d.bg_flags &= !EXT4_BG_BLOCK_UNINIT;
            blk = next;
        }
    }

    /// First block of the flex group of `ino` (libext2fs `ext2fs_find_inode_goal`).
    fn inode_goal(&self, ino: u32) -> u64 {
        let (group, _) = self.sb.locate_inode(ino).unwrap_or_default();
        let flex = 1u32 << self.sb.s_log_groups_per_flex.min(31);
        self.sb.group_first_block(group / flex * flex)
    }

    fn dir_type(&self) -> u8 {
        if self.sb.has(features::FILETYPE) {
            dirent::EXT4_FT_DIR
        } else {
            0
        }
    }

    /// A directory block: empty, or with "." and "..". Gives the block and the end of its entries.
    fn dir_block(&self, own: Option<(u32, u32)>) -> (Vec<u8>, u32) {
        let size = self.sb.block_size();
        let mut b = vec![0; size as usize];
        let end = if self.csum.metadata_csum {
            dirent::init_tail(&mut b);
            size - 12
        } else {
            size
        };
        match own {
            Some((ino, parent)) => {
                let ft = self.dir_type();
                dirent::put_dirent(&mut b, 0, ino, 12, b".", ft);
                dirent::put_dirent(&mut b, 12, parent, end - 12, b"..", ft);
            }
            None => dirent::put_dirent(&mut b, 0, 0, end, b"", 0),
        }
        (b, end)
    }

    fn put_dir_block(&mut self, at: u64, ino: u32, mut b: Vec<u8>) {
        dirent::csum_set(&self.csum, ino, 0, &mut b);
        self.put(at, b);
    }

    /// Root directory with one entry for lost+found, and lost+found itself.
    pub(super) fn create_directories(&mut self) -> Result<(), MkfsError> {
        let root_at = self.alloc_block(self.inode_goal(EXT4_ROOT_INO))?;
        self.use_inode(EXT4_ROOT_INO, true);
        let lpf = self.find_inode()?;
        let lpf_blocks = self.lost_and_found_blocks(lpf)?;
        self.use_inode(lpf, true);
        let (mut b, end) = self.dir_block(Some((EXT4_ROOT_INO, EXT4_ROOT_INO)));
        let ft = self.dir_type();
        dirent::put_dirent(&mut b, 12, EXT4_ROOT_INO, 12, b"..", ft);
        dirent::put_dirent(&mut b, 24, lpf, end - 24, b"lost+found", ft);
        self.put_dir_block(root_at, EXT4_ROOT_INO, b);
        let perms = self.opts.extended.root_perms.unwrap_or(0o755);
        let mut root = self.new_inode(S_IFDIR | (perms & 0o7777));
        (root.i_uid, root.i_gid) = self.opts.extended.root_owner;
        root.i_links_count = 3;
        self.finish_dir(EXT4_ROOT_INO, root, &[root_at])?;
        let mut dir = self.new_inode(S_IFDIR | 0o700);
        dir.i_links_count = 2;
        self.finish_dir(lpf, dir, &lpf_blocks)
    }

    /// Takes and writes the blocks of lost+found: 16 KiB, at most 12 blocks, at least 2.
    fn lost_and_found_blocks(&mut self, ino: u32) -> Result<Vec<u64>, MkfsError> {
        let size = self.sb.block_size();
        let inline = self.sb.has(features::INLINE_DATA);
        let want = (16 * 1024 / size).clamp(2, 12) as usize - usize::from(inline);
        let ratio = u64::from(self.sb.cluster_ratio());
        let first_goal = if inline { 0 } else { self.inode_goal(ino) };
        let mut blocks: Vec<u64> = Vec::new();
        while blocks.len() < want {
            let at = match blocks.last() {
                None => self.alloc_block(first_goal)?,
                Some(&last) if (last + 1) % ratio != 0 => last + 1,
                Some(&last) => self.alloc_block(last)?,
            };
            let b = match (blocks.is_empty(), inline) {
                (true, false) => self.dir_block(Some((ino, EXT4_ROOT_INO))).0,
                (true, true) => self.dir_block_from_inline(ino),
                _ => self.dir_block(None).0,
            };
            self.put_dir_block(at, ino, b);
            blocks.push(at);
        }
        Ok(blocks)
    }

    /// A block as libext2fs makes it out of an empty inline directory: the unused entry stays an entry of its own.
    fn dir_block_from_inline(&self, ino: u32) -> Vec<u8> {
        let (mut b, end) = self.dir_block(Some((ino, EXT4_ROOT_INO)));
        dirent::put_dirent(&mut b, 12, EXT4_ROOT_INO, 12, b"..", self.dir_type());
        dirent::put_dirent(&mut b, 24, 0, end - 24, b"", 0);
        b
    }

    fn finish_dir(&mut self, ino: u32, mut dir: RawInode, blocks: &[u64]) -> Result<(), MkfsError> {
        dir.i_size = blocks.len() as u64 * u64::from(self.sb.block_size());
        let meta = self.map_blocks(ino, &mut dir, blocks)?;
        let ratio = u64::from(self.sb.cluster_ratio());
        let mut clusters: Vec<u64> = blocks.iter().map(|b| b / ratio).collect();
        clusters.dedup();
        dir.i_blocks = self.sectors(clusters.len() as u64 + meta);
        self.put_inode(ino, &dir);
        if ino != EXT4_ROOT_INO && self.sb.has(features::INLINE_DATA) {
            self.leave_xattr_magic(ino);
        }
        Ok(())
    }

    /// libext2fs removes `system.data` when it gives an inline directory a block; the area's magic stays.
    fn leave_xattr_magic(&mut self, ino: u32) {
        if let Some(b) = self.inodes.get_mut(&ino) {
            bytes::put_le32(xattr_area_mut(b), 0, EXT4_XATTR_MAGIC);
            RawInode::csum_set(&self.csum, ino, b);
        }
    }

    /// Maps `blocks` as the inode's logical blocks 0.. by extents or block map; the metadata blocks that took.
    fn map_blocks(
        &mut self,
        ino: u32,
        inode: &mut RawInode,
        blocks: &[u64],
    ) -> Result<u64, MkfsError> {
        if !self.sb.has(features::EXTENTS) {
            // All callers here stay within the 12 direct blocks.
            for (i, b) in blocks.iter().enumerate() {
                inode.set_block_ptr(i, *b as u32);
            }
            return Ok(0);
        }
        inode.i_flags |= EXT4_EXTENTS_FL;
        let mut tree = ExtentTree::new(self.sb.block_size());
        let mut lblk = 0;
        while let Some(&pblk) = blocks.get(lblk) {
            let run = blocks[lblk..]
                .iter()
                .zip(pblk..)
                .take_while(|(b, want)| **b == *want)
                .count();
            self.insert_extent(&mut tree, lblk as u64, pblk, run as u64)?;
            lblk += run;
        }
        Ok(self.finish_tree(ino, inode, tree))
    }

    fn insert_extent(
        &mut self,
        tree: &mut ExtentTree,
        lblk: u64,
        pblk: u64,
        len: u64,
    ) -> Result<(), MkfsError> {
        if let Some(first) = tree.split_goal() {
            let goal = first - u64::from(self.sb.cluster_ratio());
            let at = self.alloc_block(goal)?;
            tree.split(at)?;
        }
        tree.push(lblk as u32, pblk, len as u16);
        Ok(())
    }

    /// Writes the tree's blocks and root; the blocks it has.
    fn finish_tree(&mut self, ino: u32, inode: &mut RawInode, tree: ExtentTree) -> u64 {
        let (root, leaves) = tree.finish(&self.csum, ino);
        inode.i_block = root;
        let n = leaves.len() as u64;
        for (at, b) in leaves {
            self.put(at, b);
        }
        n
    }

    /// Inodes 3..=10 and the empty bad blocks inode; with checksums the reserved ones get theirs.
    pub(super) fn reserve_inodes(&mut self) {
        if self.csum.metadata_csum {
            for ino in 1..self.sb.s_first_ino {
                if !self.inodes.contains_key(&ino) {
                    self.put_inode(ino, &RawInode::zeroed());
                }
            }
        }
        for ino in EXT4_ROOT_INO + 1..self.sb.s_first_ino {
            self.use_inode(ino, false);
        }
        self.use_inode(EXT4_BAD_INO, false);
        let mut bad = RawInode::zeroed();
        (bad.i_atime, bad.i_mtime, bad.i_ctime) = (self.opts.now, self.opts.now, self.opts.now);
        self.put_inode(EXT4_BAD_INO, &bad);
    }

    /// The inode that owns the reserved descriptor blocks (libext2fs `ext2fs_create_resize_inode`).
    pub(super) fn create_resize_inode(&mut self) -> Result<(), MkfsError> {
        let sb = self.sb;
        let size = sb.block_size();
        let per_block = u64::from(size / 4);
        let sb_block = u64::from(size == 1024);
        let (gdt, reserved) = (
            u64::from(sb.gdt_blocks()),
            u64::from(sb.s_reserved_gdt_blocks),
        );
        let goal = sb_block + gdt + reserved + 2 + u64::from(sb.itable_blocks());
        let dind_at = self.alloc_block(goal)?;
        let backups = self.backup_groups();
        let mut dind = vec![0; size as usize];
        let mut blocks = 1;
        for i in 0..reserved {
            let at = sb_block + 1 + gdt + i;
            let mut ind = vec![0; size as usize];
            for (slot, group) in backups.iter().enumerate() {
                let copy = at + u64::from(*group) * u64::from(sb.s_blocks_per_group);
                bytes::put_le32(&mut ind, slot * 4, copy as u32);
            }
            bytes::put_le32(&mut dind, ((gdt + i) % per_block) as usize * 4, at as u32);
            blocks += 1 + backups.len() as u64;
            self.put(at, ind);
        }
        self.put(dind_at, dind);
        let mut inode = self.new_inode(S_IFREG | 0o600);
        inode.set_block_ptr(EXT4_DIND_BLOCK, dind_at as u32);
        inode.i_size = (per_block * per_block + per_block + 12) * u64::from(size);
        inode.i_blocks = self.sectors(blocks);
        if inode.i_size >= 1 << 31 {
            self.sb.set_feature(features::LARGE_FILE, true);
        }
        self.put_inode(EXT4_RESIZE_INO, &inode);
        Ok(())
    }

    /// Groups other than 0 that hold backups, ascending.
    pub(super) fn backup_groups(&self) -> Vec<u32> {
        let groups = self.sb.groups_count();
        if self.sb.has(features::SPARSE_SUPER2) {
            let mut b: Vec<u32> = self
                .sb
                .s_backup_bgs
                .into_iter()
                .filter(|g| *g != 0)
                .collect();
            b.retain(|g| *g < groups);
            return b;
        }
        if !self.sb.has(features::SPARSE_SUPER) {
            return (1..groups).collect();
        }
        let powers = |p: u64| {
            (0..)
                .map_while(move |e| p.checked_pow(e))
                .take_while(|n| *n < 1 << 32)
        };
        let mut b: Vec<u32> = [3, 5, 7]
            .into_iter()
            .flat_map(powers)
            .map(|n| n as u32)
            .filter(|n| *n < groups)
            .collect();
        b.sort_unstable();
        b.dedup();
        b
    }

    /// Size of the journal, zero if there is none (mke2fs `figure_journal_size`).
    pub(super) fn journal_size(&self) -> Result<JournalSize, MkfsError> {
        if !self.sb.has(features::HAS_JOURNAL) {
            return Ok(JournalSize::default());
        }
        let fast = self.sb.has(features::FAST_COMMIT);
        let mut size = JournalSize::default();
        if let Some(log) = default_journal_blocks(self.sb.s_blocks_count) {
            size.log = log;
            size.fast_commit = if fast { log / JOURNAL_TO_FC_BLOCKS } else { 0 };
        } else {
            return Ok(size);
        }
        let unit = u64::from(self.sb.block_size() / 1024);
        let asked = self.opts.journal_mib.filter(|n| *n > 0);
        let asked_fc = self.opts.fast_commit_kib.filter(|n| *n > 0 && fast);
        if asked.is_none() && asked_fc.is_none() {
            return Ok(size);
        }
        if let Some(mib) = asked {
            size.log = u64::from(mib) * 1024 / unit;
        }
        if let Some(kib) = asked_fc {
            size.fast_commit = u64::from(kib) / unit;
        }
        let total = size.total();
        if !(u64::from(JBD2_MIN_JOURNAL_BLOCKS)..=10_240_000).contains(&total) {
            return Err(invalid(format!(
                "the total requested journal size is {total} blocks; it must be between 1024 and 10240000 blocks"
            )));
        }
        if total > self.free_after_init / 2 {
            return Err(invalid("total journal size too big for filesystem"));
        }
        Ok(size)
    }

    /// The journal inode, its zeroed blocks and its superblock (libext2fs `write_journal_inode`).
    pub(super) fn create_journal(&mut self, size: JournalSize) -> Result<(), MkfsError> {
        let block_size = self.sb.block_size();
        let ino = EXT4_JOURNAL_INO;
        let mut inode = self.new_inode(S_IFREG | 0o600);
        inode.i_size = size.total() * u64::from(block_size);
        if inode.i_size >= 1 << 31 {
            self.sb.set_feature(features::LARGE_FILE, true);
        }
        let e = &self.opts.extended;
        let zero = !(e.lazy_journal_init || e.assume_storage_prezeroed);
        let first = if self.sb.has(features::EXTENTS) {
            self.journal_by_extents(&mut inode, size.total(), zero)?
        } else {
            self.journal_by_block_map(&mut inode, size.total())?
        };
        self.put_inode(ino, &inode);
        let mut jsb = JournalSuperblock::new(block_size, size.total() as u32, self.sb.s_uuid);
        jsb.s_num_fc_blks = size.fast_commit as u32;
        let mut b = vec![0; block_size as usize];
        jsb.encode(&mut b);
        self.put(first, b);
        let sb = &mut self.sb;
        sb.s_journal_inum = ino;
        sb.s_jnl_backup_type = 1;
        for i in 0..15 {
            sb.s_jnl_blocks[i] = inode.block_ptr(i);
        }
        sb.s_jnl_blocks[15] = (inode.i_size >> 32) as u32;
        sb.s_jnl_blocks[16] = inode.i_size as u32;
        Ok(())
    }

    fn journal_by_extents(
        &mut self,
        inode: &mut RawInode,
        blocks: u64,
        zero: bool,
    ) -> Result<u64, MkfsError> {
        let ratio = u64::from(self.sb.cluster_ratio());
        let goal = self.journal_goal.unwrap_or_else(|| self.midpoint_block());
        let count = self.sb.s_blocks_count;
        let mut goal = self.space.next_free(goal, count).unwrap_or(goal);
        inode.i_flags |= EXT4_EXTENTS_FL;
        let mut tree = ExtentTree::new(self.sb.block_size());
        let (mut lblk, mut clusters, mut first) = (0, 0, None);
        let max = 32768 / ratio * ratio;
        while lblk < blocks {
            let want = (blocks - lblk).min(max.max(1));
            let (at, len) = self
                .space
                .new_range(goal / ratio * ratio, want)
                .ok_or_else(|| MkfsError::NoSpace("the journal".to_string()))?;
            let taken = len.div_ceil(ratio);
            self.claim(at, taken * ratio);
            clusters += taken;
            self.insert_extent(&mut tree, lblk, at, len)?;
            if zero {
                self.zero(at, len);
            }
            first.get_or_insert(at);
            lblk += len;
            goal = at + len;
            if goal >= count {
                goal = u64::from(self.sb.s_first_data_block);
            }
        }
        let meta = self.finish_tree(EXT4_JOURNAL_INO, inode, tree);
        inode.i_blocks = self.sectors(clusters + meta);
        first.ok_or_else(full)
    }

    fn journal_by_block_map(
        &mut self,
        inode: &mut RawInode,
        blocks: u64,
    ) -> Result<u64, MkfsError> {
        let mut map = BlockMap::new(self.sb.block_size());
        let mut goal = self.inode_goal(EXT4_JOURNAL_INO);
        let mut first = None;
        for lblk in 0..blocks {
            for slot in map.missing(lblk) {
                goal = self.alloc_block(goal)?;
                map.set_node(slot, goal);
            }
            goal = self.alloc_block(goal)?;
            map.set(lblk, goal);
            self.zero(goal, 1);
            first.get_or_insert(goal);
        }
        inode.i_blocks = self.sectors(blocks + map.nodes());
        for (at, b) in map.finish(inode) {
            self.put(at, b);
        }
        first.ok_or_else(full)
    }

    /// Goal of the journal: the group near the middle with most free blocks (libext2fs `get_midpoint_journal_block`).
    fn midpoint_block(&self) -> u64 {
        let sb = &self.sb;
        let half = (sb.s_blocks_count - u64::from(sb.s_first_data_block)) / 2;
        let groups = sb.groups_count();
        let mut group = sb.group_of_block(half);
        let flex = 1u32 << sb.s_log_groups_per_flex.min(31);
        let free = |g: u32| self.descs[g as usize].bg_free_blocks_count;
        let start = if sb.s_log_groups_per_flex != 0 && group > flex {
            group &= !(flex - 1);
            while group < groups && free(group) == 0 {
                group += 1;
            }
            if group == groups {
                group = 0;
            }
            group
        } else {
            group.saturating_sub(1)
        };
        let end = (group + 1).min(groups - 1);
        let best =
            (start + 1..=end).fold(start, |best, g| if free(g) > free(best) { g } else { best });
        sb.group_first_block(best)
    }

    /// The orphan file (libext2fs `ext2fs_create_orphan_file`).
    pub(super) fn create_orphan_file(&mut self) -> Result<(), MkfsError> {
        let count = self
            .orphan_blocks
            .unwrap_or_else(|| self.default_orphan_blocks());
        let ino = self.find_inode()?;
        self.use_inode(ino, false);
        let ratio = u64::from(self.sb.cluster_ratio());
        let mut inode = self.new_inode(S_IFREG | 0o600);
        inode.i_size = count * u64::from(self.sb.block_size());
        let mut map = BlockMap::new(self.sb.block_size());
        let extents = self.sb.has(features::EXTENTS);
        let (mut blocks, mut last, mut taken) = (Vec::new(), 0, 0);
        for lblk in 0..count {
            let slots = if extents {
                Vec::new()
            } else {
                map.missing(lblk)
            };
            for slot in slots {
                last = self.alloc_block(last)?;
                taken += 1;
                map.set_node(slot, last);
            }
            if lblk > 0 && (last + 1) % ratio != 0 {
                last += 1;
            } else {
                last = self.alloc_block(last)?;
                taken += 1;
            }
            blocks.push(last);
            map.set(lblk, last);
            let mut b = vec![0; self.sb.block_size() as usize];
            orphan_file::init(&mut b);
            orphan_file::csum_set(&self.csum, ino, 0, last, &mut b);
            self.put(last, b);
        }
        if extents {
            self.map_blocks(ino, &mut inode, &blocks)?;
        } else {
            for (at, b) in map.finish(&mut inode) {
                self.put(at, b);
            }
        }
        inode.i_blocks = self.sectors(taken);
        self.put_inode(ino, &inode);
        self.sb.s_orphan_file_inum = ino;
        Ok(())
    }

    fn default_orphan_blocks(&self) -> u64 {
        let n = self.sb.s_blocks_count;
        let blocks = if n < 128 * 1024 {
            32
        } else if n < 2 * 1024 * 1024 {
            n / 4096
        } else {
            512
        };
        blocks.next_multiple_of(u64::from(self.sb.cluster_ratio()))
    }
}

/// Default journal size in blocks; none below 2,048 blocks (libext2fs `ext2fs_default_journal_size`).
pub(super) fn default_journal_blocks(blocks: u64) -> Option<u64> {
    const STEPS: [(u64, u64); 8] = [
        (32768, 1024),
        (256 * 1024, 4096),
        (512 * 1024, 8192),
        (4096 * 1024, 16384),
        (8192 * 1024, 32768),
        (16384 * 1024, 65536),
        (32768 * 1024, 131_072),
        (u64::MAX, 262_144),
    ];
    if blocks < 2048 {
        return None;
    }
    STEPS.iter().find(|s| blocks < s.0).map(|s| s.1)
}
