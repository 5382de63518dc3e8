//! Bitmaps, descriptors and superblocks: what libext2fs writes when it closes the file system.

use super::Mkfs;
use crate::base::{bitmap, Payload};
use crate::format::ext4::group_desc::{
    block_bitmap_csum, inode_bitmap_csum, EXT4_BG_BLOCK_UNINIT, EXT4_BG_INODE_UNINIT,
};
use crate::format::ext4::superblock::EXT4_VALID_FS;
use crate::format::ext4::{features, GroupDesc};
use std::collections::BTreeMap;
use std::rc::Rc;

/// A bitmap shared by all groups with the same used runs.
type Shared<K> = BTreeMap<K, (Rc<[u8]>, u32)>;

impl Mkfs {
    /// Final free counts of groups and superblock from the used ranges.
    pub(super) fn count_free(&mut self) {
        let sb = self.sb;
        let ratio = u64::from(sb.cluster_ratio());
        let mut free_blocks = 0;
        for group in 0..sb.groups_count() {
            let first = sb.group_first_block(group);
            let blocks = u64::from(sb.blocks_in_group(group));
            let used = self.space.used_in(first, first + blocks);
            let d = &mut self.descs[group as usize];
            d.bg_free_blocks_count = ((blocks - used) / ratio) as u32;
            free_blocks += blocks - used;
        }
        self.sb.s_free_blocks_count = free_blocks;
        self.sb.s_free_inodes_count = sb.s_inodes_count - self.used_inodes.len() as u32;
    }

    /// Blocks of the inode table that hold inodes.
    pub(super) fn write_inodes(&mut self) {
        let size = u32::from(self.sb.s_inode_size);
        let per_block = self.sb.inodes_per_block();
        let mut blocks: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        for (ino, raw) in std::mem::take(&mut self.inodes) {
            let Some((group, index)) = self.sb.locate_inode(ino) else {
                continue;
            };
            let table = self.descs[group as usize].bg_inode_table;
            let at = table + u64::from(index / per_block);
            let offset = (index % per_block * size) as usize;
            let b = blocks
                .entry(at)
                .or_insert_with(|| vec![0; self.sb.block_size() as usize]);
            b[offset..offset + raw.len()].copy_from_slice(&raw);
        }
        for (at, b) in blocks {
            self.put(at, b);
        }
    }

    /// Bitmaps of every group that is not uninitialised, with their checksums.
    pub(super) fn write_bitmaps(&mut self) {
        let csum = self.csum.group_descs();
        let mut block_maps: Shared<Vec<(u32, u32)>> = BTreeMap::new();
        let mut inode_maps: Shared<Vec<u32>> = BTreeMap::new();
        for g in 0..self.descs.len() {
            let flags = self.descs[g].bg_flags;
            if !(csum && flags & EXT4_BG_BLOCK_UNINIT != 0) {
                let (map, sum) = self.block_bitmap(g as u32, &mut block_maps);
                self.descs[g].bg_block_bitmap_csum = sum;
                self.share(self.descs[g].bg_block_bitmap, map);
            }
            if !(csum && flags & EXT4_BG_INODE_UNINIT != 0) {
                let (map, sum) = self.inode_bitmap(g as u32, &mut inode_maps);
                self.descs[g].bg_inode_bitmap_csum = sum;
                self.share(self.descs[g].bg_inode_bitmap, map);
            }
        }
    }

    fn block_bitmap(&self, group: u32, seen: &mut Shared<Vec<(u32, u32)>>) -> (Rc<[u8]>, u32) {
        let sb = &self.sb;
        let ratio = u64::from(sb.cluster_ratio());
        let first = sb.group_first_block(group);
        let clusters = sb.clusters_in_group(group);
        let end = first + u64::from(sb.blocks_in_group(group));
        let bit = |b: u64| ((b - first) / ratio) as u32;
        let mut runs: Vec<(u32, u32)> = self
            .space
            .ranges_in(first, end)
            .map(|(s, e)| (bit(s), bit(e - 1) + 1))
            .collect();
        runs.push((clusters, sb.block_size() * 8));
        let make = || {
            let mut map = vec![0; sb.block_size() as usize];
            for (from, to) in &runs {
                bitmap::set_range(&mut map, *from, *to);
            }
            let sum = self.csum_of(block_bitmap_csum(&self.csum, sb, &map));
            (Rc::from(map), sum)
        };
        seen.get(&runs).cloned().unwrap_or_else(|| {
            let made = make();
            seen.insert(runs.clone(), made.clone());
            made
        })
    }

    fn inode_bitmap(&self, group: u32, seen: &mut Shared<Vec<u32>>) -> (Rc<[u8]>, u32) {
        let sb = &self.sb;
        let ipg = sb.s_inodes_per_group;
        let first = group * ipg + 1;
        let used: Vec<u32> = self
            .used_inodes
            .range(first..first.saturating_add(ipg))
            .map(|i| i - first)
            .collect();
        if let Some(made) = seen.get(&used) {
            return made.clone();
        }
        let mut map = vec![0; sb.block_size() as usize];
        for i in &used {
            bitmap::set(&mut map, *i);
        }
        bitmap::set_range(&mut map, ipg, sb.block_size() * 8);
        let sum = self.csum_of(inode_bitmap_csum(&self.csum, sb, &map));
        let made: (Rc<[u8]>, u32) = (map.into(), sum);
        seen.insert(used, made.clone());
        made
    }

    fn csum_of(&self, sum: u32) -> u32 {
        if self.csum.metadata_csum {
            sum
        } else {
            0
        }
    }

    fn share(&mut self, at: u64, b: Rc<[u8]>) {
        self.blocks.insert(at, Payload::Bytes(b));
    }

    /// Descriptor table, its backups, backup superblocks and the primary one.
    pub(super) fn write_supers(&mut self) {
        let gdt = self.encode_gdt();
        let sb = self.sb;
        let per_block = sb.descs_per_block();
        let meta_bg = sb.has(features::META_BG);
        let old_blocks = if meta_bg {
            sb.s_first_meta_bg
        } else {
            u32::MAX
        };
        let mut holders = vec![0];
        holders.extend(self.backup_groups());
        for group in holders {
            let at = self.super_at(group);
            if group != 0 {
                let mut b = self.encode_super(group);
                b.resize(sb.block_size() as usize, 0);
                self.put(at, b);
            }
            if group / per_block < old_blocks {
                for (i, b) in gdt.iter().take(old_blocks as usize).enumerate() {
                    self.share(at + 1 + i as u64, Rc::clone(b));
                }
            }
        }
        if meta_bg {
            self.write_meta_bg(&gdt);
        }
        let primary = self.encode_super(0);
        self.sb.s_checksum = crate::base::bytes::le32(&primary, 0x3FC);
        if sb.block_size() == 1024 {
            self.put(1, primary);
        } else {
            // The boot block before the superblock is zeroed too.
            let mut b = vec![0; 1024];
            b.extend(primary);
            b.resize(sb.block_size() as usize, 0);
            self.put(0, b);
        }
    }

    fn super_at(&self, group: u32) -> u64 {
        let at = self.sb.group_first_block(group);
        if at == 0 && self.sb.block_size() == 1024 {
            1
        } else {
            at
        }
    }

    fn write_meta_bg(&mut self, gdt: &[Rc<[u8]>]) {
        let sb = self.sb;
        let per_block = sb.descs_per_block();
        for (meta, b) in (0u32..).zip(gdt).skip(sb.s_first_meta_bg as usize) {
            for in_meta in [0, 1, per_block - 1] {
                let group = meta * per_block + in_meta;
                if group < sb.groups_count() {
                    let at = self.super_at(group) + u64::from(sb.has_super(group));
                    self.share(at, Rc::clone(b));
                }
            }
        }
    }

    fn encode_gdt(&mut self) -> Vec<Rc<[u8]>> {
        let (size, block_size) = (self.sb.desc_size(), self.sb.block_size() as usize);
        let per_block = self.sb.descs_per_block() as usize;
        let csum = self.csum;
        let encode_block = |(i, descs): (usize, &mut [GroupDesc])| {
            let mut b = vec![0; block_size];
            for (j, d) in descs.iter_mut().enumerate() {
                let slot = &mut b[j * usize::from(size)..][..usize::from(size)];
                d.encode_with_csum(&csum, (i * per_block + j) as u32, slot, size);
                *d = GroupDesc::decode(slot, size);
            }
            Rc::from(b)
        };
        self.descs
            .chunks_mut(per_block)
            .enumerate()
            .map(encode_block)
            .collect()
    }

    /// The superblock as group `group` holds it: backups are never marked clean.
    fn encode_super(&self, group: u32) -> Vec<u8> {
        let mut sb = self.sb;
        sb.s_block_group_nr = group.min(0xffff) as u16;
        if group != 0 {
            sb.s_state &= !EXT4_VALID_FS;
        }
        let mut b = vec![0; 1024];
        sb.encode(&mut b);
        b
    }
}
