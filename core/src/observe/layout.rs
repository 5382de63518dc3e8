//! Where the fixed structures of a file system lie, read once from its disk.

use crate::base::FsBlock;
use crate::format::ext4::{GroupDesc, SuperBlock};

/// Role codes of the map, in the order of the legend.
pub mod role {
    #![allow(missing_docs, reason = "the legend's own words")]
    pub const FREE: u8 = 0;
    pub const FIXED: u8 = 1;
    pub const BITMAP: u8 = 2;
    pub const ITABLE: u8 = 3;
    pub const TREE: u8 = 4;
    pub const JOURNAL: u8 = 5;
    pub const FILE_DATA: u8 = 6;
}

/// A stretch of blocks with one role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stretch {
    start: u64,
    end: u64,
    role: u8,
}

/// Fixed structures and geometry.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The superblock.
    pub sb: SuperBlock,
    /// Group descriptors as they were then.
    pub groups: Vec<GroupDesc>,
    /// Pieces of the journal inode: first block and blocks.
    pub journal: Vec<(u64, u32)>,
    stretches: Vec<Stretch>,
}

impl Layout {
    /// From a superblock, its descriptors and the journal's extents in order.
    pub fn new(sb: SuperBlock, groups: Vec<GroupDesc>, journal: Vec<(u64, u32)>) -> Layout {
        let mut layout = Layout {
            sb,
            groups,
            journal,
            stretches: Vec::new(),
        };
        layout.collect();
        layout
    }

    fn collect(&mut self) {
        let sb = &self.sb;
        let mut list = Vec::new();
        let mut add = |start: u64, len: u64, role: u8| {
            if len > 0 {
                list.push(Stretch {
                    start,
                    end: start + len,
                    role,
                });
            }
        };
        add(0, u64::from(sb.s_first_data_block) + 1, role::FIXED);
        for (g, desc) in self.groups.iter().enumerate() {
            let base = u64::from(sb.base_meta_blocks(g as u32));
            add(sb.group_first_block(g as u32), base, role::FIXED);
            add(desc.bg_block_bitmap, 1, role::BITMAP);
            add(desc.bg_inode_bitmap, 1, role::BITMAP);
            add(
                desc.bg_inode_table,
                u64::from(sb.itable_blocks()),
                role::ITABLE,
            );
        }
        for (start, len) in &self.journal {
            add(*start, u64::from(*len), role::JOURNAL);
        }
        list.sort_by_key(|s| (s.start, s.end));
        // Neighbours of one role become one stretch; overlaps (damaged descriptors) keep the earlier one.
        for s in list {
            match self.stretches.last_mut() {
                Some(last) if last.role == s.role && s.start <= last.end => {
                    last.end = last.end.max(s.end);
                }
                _ => self.stretches.push(s),
            }
        }
    }

    /// Bytes per block.
    pub fn block_size(&self) -> u32 {
        self.sb.block_size()
    }

    /// Sectors per block.
    pub fn sectors_per_block(&self) -> u64 {
        u64::from(self.block_size()) / 512
    }

    /// Role of a fixed block; `None` for blocks that files and directories share out.
    pub fn fixed_role(&self, block: u64) -> Option<u8> {
        let i = self.stretches.partition_point(|s| s.start <= block);
        let s = self.stretches[..i].last()?;
        (block < s.end).then_some(s.role)
    }

    /// Fixed stretches that touch `from..to`, cut to it: start, end, role.
    pub fn fixed_in(&self, from: u64, to: u64) -> impl Iterator<Item = (u64, u64, u8)> + '_ {
        let i = self.stretches.partition_point(|s| s.end <= from);
        self.stretches[i..]
            .iter()
            .take_while(move |s| s.start < to)
            .map(move |s| (s.start.max(from), s.end.min(to), s.role))
    }

    /// Block of the disk that holds block `n` of the journal.
    pub fn journal_block(&self, n: u32) -> Option<FsBlock> {
        let mut left = n;
        for (start, len) in &self.journal {
            if left < *len {
                return Some(FsBlock(start + u64::from(left)));
            }
            left -= len;
        }
        None
    }

    /// Number within the journal of a block of the disk.
    pub fn journal_index(&self, block: u64) -> Option<u32> {
        let mut before = 0;
        for (start, len) in &self.journal {
            if (*start..start + u64::from(*len)).contains(&block) {
                return Some(before + (block - start) as u32);
            }
            before += len;
        }
        None
    }

    /// Blocks of the journal.
    pub fn journal_blocks(&self) -> u32 {
        self.journal.iter().map(|j| j.1).sum()
    }
}
