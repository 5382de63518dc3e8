//! `mkfs`: from options and a size to the blocks of an empty file system, as mke2fs 1.47 lays it out.
//!
//! Pure: no device, no time, no randomness but the options' seed. The result lists what mke2fs would write; blocks it
//! would leave alone (lazy inode tables, the inside of a lazy journal) are not in it. Cost follows the number of groups.
//!
//! Invariants:
//! 1. Zero ranges apply before blocks.
//! 2. Free counts come from the used ranges, never from a running sum.

mod files;
mod initialize;
mod map;
mod options;
mod params;
mod space;
mod tables;
#[cfg(test)]
mod tests;
mod write;

pub use options::{Extended, MkfsError, MkfsOptions};

use crate::base::Payload;
use crate::format::ext4::{features, CsumCtx, GroupDesc, SuperBlock};
use space::Space;
use std::collections::{BTreeMap, BTreeSet};

/// An empty file system, as writes to a device.
#[derive(Clone, Debug)]
pub struct MkfsImage {
    /// The primary superblock.
    pub super_block: SuperBlock,
    /// Descriptors of all groups.
    pub descs: Vec<GroupDesc>,
    /// Bytes per block of all numbers here.
    pub block_size: u32,
    /// True if the whole device is to be discarded first.
    pub discard: bool,
    /// Ranges `(first block, blocks)` to zero before `blocks`, ascending, disjoint.
    pub zero: Vec<(u64, u64)>,
    /// Blocks to write, ascending.
    pub blocks: Vec<(u64, Payload)>,
}

impl MkfsImage {
    /// Bytes that mke2fs writes, zeroes included.
    pub fn bytes_written(&self) -> u64 {
        let zeroed: u64 = self.zero.iter().map(|z| z.1).sum();
        (zeroed + self.blocks.len() as u64) * u64::from(self.block_size)
    }
}

/// State while an image is made.
#[derive(Debug)]
struct Mkfs {
    opts: MkfsOptions,
    sb: SuperBlock,
    csum: CsumCtx,
    descs: Vec<GroupDesc>,
    space: Space,
    /// Free blocks right after superblocks and descriptors were placed: the limit of a journal.
    free_after_init: u64,
    journal_goal: Option<u64>,
    orphan_blocks: Option<u64>,
    inodes: BTreeMap<u32, Vec<u8>>,
    used_inodes: BTreeSet<u32>,
    blocks: BTreeMap<u64, Payload>,
    zero: Vec<(u64, u64)>,
}

/// Makes an empty file system on a device of `size_bytes`.
pub fn mkfs(opts: &MkfsOptions, size_bytes: u64) -> Result<MkfsImage, MkfsError> {
    let params = params::resolve(opts, size_bytes)?;
    let sb = initialize::super_block(&params)?;
    let mut m = Mkfs {
        opts: opts.clone(),
        sb,
        csum: CsumCtx::NONE,
        descs: Vec::new(),
        space: Space::default(),
        free_after_init: 0,
        journal_goal: params.journal_goal,
        orphan_blocks: params.orphan_blocks,
        inodes: BTreeMap::new(),
        used_inodes: BTreeSet::new(),
        blocks: BTreeMap::new(),
        zero: Vec::new(),
    };
    m.stamp_super_block();
    m.csum = m.sb.csum_ctx();
    m.reserve_groups();
    let journal = m.journal_size()?;
    m.allocate_tables()?;
    m.space.convert(u64::from(m.sb.cluster_ratio()));
    let ratio = u64::from(m.sb.cluster_ratio());
    let used = m.space.used_in(0, m.sb.s_blocks_count) / ratio;
    let mut overhead = used + u64::from(m.sb.s_first_data_block);
    m.zap_old_signatures();
    m.write_inode_tables();
    m.create_directories()?;
    m.reserve_inodes();
    if m.sb.has(features::RESIZE_INODE) {
        m.create_resize_inode()?;
    }
    if journal.total() > 0 {
        overhead += journal.total().div_ceil(ratio);
        m.create_journal(journal)?;
    } else {
        m.sb.set_feature(features::HAS_JOURNAL, false);
        m.sb.set_feature(features::ORPHAN_FILE, false);
    }
    m.sb.s_overhead_clusters = overhead as u32;
    if m.sb.has(features::ORPHAN_FILE) {
        m.create_orphan_file()?;
    }
    Ok(m.finish())
}

impl Mkfs {
    fn put(&mut self, at: u64, b: Vec<u8>) {
        self.blocks.insert(at, Payload::Bytes(b.into()));
    }

    fn zero(&mut self, at: u64, len: u64) {
        match self.zero.last_mut() {
            Some(last) if last.0 + last.1 == at => last.1 += len,
            _ if len > 0 => self.zero.push((at, len)),
            _ => {}
        }
    }

    /// Zeroes the places where old boot blocks, superblocks and RAID labels could lie.
    fn zap_old_signatures(&mut self) {
        let block_size = u64::from(self.sb.block_size());
        let blocks = self.sb.s_blocks_count;
        self.zero(0, 4096 / block_size);
        let step = 65536 / block_size;
        let mut start = blocks & !(step - 1);
        if start > step {
            start -= step;
        }
        if start > 0 {
            self.zero(start, blocks - start);
        }
    }

    fn finish(mut self) -> MkfsImage {
        self.count_free();
        self.write_inodes();
        self.write_bitmaps();
        self.count_kbytes_written();
        self.write_supers();
        MkfsImage {
            super_block: self.sb,
            descs: self.descs,
            block_size: self.sb.block_size(),
            discard: self.opts.extended.discard,
            zero: merge(self.zero),
            blocks: self.blocks.into_iter().collect(),
        }
    }

    /// Sets the life-time writes as mke2fs counts them: what it wrote before the superblocks, and a guess for those.
    fn count_kbytes_written(&mut self) {
        let counts = [
            features::FLEX_BG,
            features::HUGE_FILE,
            features::GDT_CSUM,
            features::DIR_NLINK,
            features::METADATA_CSUM,
            features::EXTRA_ISIZE,
        ];
        if !counts.into_iter().any(|f| self.sb.has(f)) {
            return;
        }
        let block_size = u64::from(self.sb.block_size());
        let blocks = self.zero.iter().map(|z| z.1).sum::<u64>() + self.blocks.len() as u64;
        let meta = u64::from(self.sb.gdt_blocks()) + 1;
        self.sb.s_kbytes_written = 1 + ((blocks * block_size) >> 10) + meta / (block_size / 1024);
    }
}

fn merge(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut out: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
    for (at, len) in ranges {
        match out.last_mut() {
            Some(last) if at <= last.0 + last.1 => last.1 = last.1.max(at + len - last.0),
            _ => out.push((at, len)),
        }
    }
    out
}
