//! Where bitmaps and inode tables go (libext2fs `ext2fs_allocate_tables`, mke2fs `packed_allocate_tables`).

use super::options::MkfsError;
use super::Mkfs;
use crate::format::ext4::features;
use crate::format::ext4::group_desc::{EXT4_BG_BLOCK_UNINIT, EXT4_BG_INODE_ZEROED};

fn no_space() -> MkfsError {
    MkfsError::NoSpace("bitmaps and inode tables".to_string())
}

impl Mkfs {
    /// Places bitmaps and inode table of every group.
    pub(super) fn allocate_tables(&mut self) -> Result<(), MkfsError> {
        if self.sb.has(features::FLEX_BG) && self.opts.extended.packed_meta_blocks {
            return self.packed_allocate_tables();
        }
        let flex = self.sb.has(features::FLEX_BG) && self.sb.s_log_groups_per_flex != 0;
        for group in 0..self.sb.groups_count() {
            if flex {
                self.allocate_in_flex_group(group)?;
            } else {
                self.allocate_in_group(group)?;
            }
        }
        Ok(())
    }

    fn group_last_block(&self, group: u32) -> u64 {
        let sb = &self.sb;
        sb.group_first_block(group) + u64::from(sb.blocks_in_group(group)) - 1
    }

    fn allocate_in_group(&mut self, group: u32) -> Result<(), MkfsError> {
        let (first, last) = (
            self.sb.group_first_block(group),
            self.group_last_block(group),
        );
        let itable = u64::from(self.sb.itable_blocks());
        let stride = u64::from(self.sb.s_raid_stride);
        let mut start = first;
        if stride != 0 {
            start = self.get_free(first, last, 1)? + itable;
            if start <= last {
                start += stride * u64::from(group) % (last - start + 1);
            }
            if start >= last {
                start = first;
            }
        }
        let find = |m: &Mkfs| {
            m.get_free(start, last, 1)
                .or_else(|_| m.get_free(first, last, 1))
        };
        let at = find(self)?;
        self.space.mark(at, 1);
        self.descs[group as usize].bg_block_bitmap = at;
        let at = find(self)?;
        self.space.mark(at, 1);
        self.descs[group as usize].bg_inode_bitmap = at;
        let at = self.get_free(first, last, itable)?;
        self.space.mark(at, itable);
        self.descs[group as usize].bg_inode_table = at;
        Ok(())
    }

    fn get_free(&self, start: u64, finish: u64, num: u64) -> Result<u64, MkfsError> {
        self.space
            .get_free_blocks(start, finish, num)
            .ok_or_else(no_space)
    }

    fn allocate_in_flex_group(&mut self, group: u32) -> Result<(), MkfsError> {
        let flex_size = self.sb.groups_per_flex();
        let last_group = (group | (flex_size - 1)).min(self.sb.groups_count() - 1);
        let rest = u64::from(last_group - group + 1);
        let last = self.group_last_block(last_group);
        let itable = u64::from(self.sb.itable_blocks());
        let (g, in_flex) = (group as usize, group % flex_size);
        let before = (in_flex != 0).then(|| self.descs[g - 1]);
        // In the last, short flex group bitmaps and tables stay next to each other.
        let gap = match last_group & (flex_size - 1) {
            n if n != 0 && last_group == self.sb.groups_count() - 1 && in_flex == 0 => n + 1,
            _ => flex_size,
        };
        let gap = u64::from(gap);

        let hint = before.map_or(0, |d| d.bg_block_bitmap + 1);
        let at = self.flexbg_offset(group, hint, rest, 1);
        let at = self.find_one(at, group, last)?;
        self.take_meta(at, 1);
        self.descs[g].bg_block_bitmap = at;

        let hint = before.map_or(at + gap, |d| d.bg_inode_bitmap + 1);
        let at = self.flexbg_offset(group, hint, rest, 1);
        let at = self.find_one(at, group, last)?;
        self.take_meta(at, 1);
        self.descs[g].bg_inode_bitmap = at;

        let hint = before.map_or(at + gap, |d| d.bg_inode_table + itable);
        let at = self.flexbg_offset(group, hint, rest, itable);
        let at = self.get_free(at, last, itable)?;
        self.take_meta(at, itable);
        self.descs[g].bg_inode_table = at;
        Ok(())
    }

    fn find_one(&self, at: u64, group: u32, last: u64) -> Result<u64, MkfsError> {
        self.get_free(at, last, 1)
            .or_else(|_| self.get_free(self.sb.group_first_block(group), last, 1))
    }

    /// Where the rest of a flex group's bitmaps or tables could lie in one run (libext2fs `flexbg_offset`).
    fn flexbg_offset(&self, group: u32, hint: u64, groups: u64, each: u64) -> u64 {
        let size = (groups * each).min(u64::from(self.sb.s_blocks_per_group / 4));
        if hint != 0 && hint < self.sb.s_blocks_count {
            if let Some(at) = self.space.get_free_blocks(hint, hint + size, each) {
                return at;
            }
        }
        let flex_size = self.sb.groups_per_flex();
        let first = self.sb.group_first_block(group / flex_size * flex_size);
        let last_group = (group | (flex_size - 1)).min(self.sb.groups_count() - 1);
        let last = self.group_last_block(last_group);
        let find = |start, num| self.space.get_free_blocks(start, last, num);
        find(first, size)
            .or_else(|| find(first, each))
            .or_else(|| find(0, each))
            .unwrap_or(0)
    }

    /// Marks metadata of a flex group used and keeps the running free counts.
    pub(super) fn take_meta(&mut self, at: u64, len: u64) {
        self.space.mark(at, len);
        let ratio = u64::from(self.sb.cluster_ratio());
        let (mut blk, mut left) = (at, len);
        while left > 0 {
            let group = self.sb.group_of_block(blk);
            let n = left.min(self.group_last_block(group) + 1 - blk);
            let d = &mut self.descs[group as usize];
            let taken = if len == 1 { 1 } else { n / ratio };
            d.bg_free_blocks_count = d.bg_free_blocks_count.saturating_sub(taken as u32);
            d.bg_flags &= !EXT4_BG_BLOCK_UNINIT;
            blk += n;
            left -= n;
        }
    }

    fn packed_allocate_tables(&mut self) -> Result<(), MkfsError> {
        let groups = self.sb.groups_count() as usize;
        let itable = u64::from(self.sb.itable_blocks());
        let mut goal = 0;
        for g in 0..groups {
            goal = self.space.new_block(goal).ok_or_else(no_space)?;
            self.take_meta(goal, 1);
            self.descs[g].bg_block_bitmap = goal;
        }
        for g in 0..groups {
            goal = self.space.new_block(goal).ok_or_else(no_space)?;
            self.take_meta(goal, 1);
            self.descs[g].bg_inode_bitmap = goal;
        }
        for g in 0..groups {
            goal = self.get_free(goal, self.sb.s_blocks_count - 1, itable)?;
            self.take_meta(goal, itable);
            self.descs[g].bg_inode_table = goal;
        }
        Ok(())
    }

    /// Zeroes the inode tables, or with lazy initialisation only what is in use (mke2fs `write_inode_tables`).
    pub(super) fn write_inode_tables(&mut self) {
        let e = &self.opts.extended;
        let prezeroed = e.assume_storage_prezeroed || (e.discard && self.opts.discard_zeroes);
        let lazy = prezeroed || e.lazy_itable_init.unwrap_or(true);
        let ipg = self.sb.s_inodes_per_group;
        for g in 0..self.descs.len() {
            let d = &mut self.descs[g];
            let (at, used) = (d.bg_inode_table, ipg - d.bg_itable_unused);
            if !lazy || prezeroed {
                d.bg_flags |= EXT4_BG_INODE_ZEROED;
            }
            let len = if lazy {
                used.div_ceil(self.sb.inodes_per_block())
            } else {
                self.sb.itable_blocks()
            };
            if !prezeroed {
                self.zero(at, u64::from(len));
            }
        }
    }
}
