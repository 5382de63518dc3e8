//! Pass 5: bitmaps and counts.

use super::finding::Differences;
use super::{FindingKind, Fsck, Go};
use crate::base::{bitmap, ReadAt};
use crate::format::ext4::dirent::EXT4_FT_DIR;
use crate::format::ext4::group_desc::{
    block_bitmap_csum_verify, inode_bitmap_csum_verify, EXT4_BG_BLOCK_UNINIT, EXT4_BG_INODE_UNINIT,
};

impl<R: ReadAt + ?Sized> Fsck<'_, R> {
    pub(super) fn pass5(&mut self) -> Go {
        self.check_block_bitmaps()?;
        self.check_inode_bitmaps()
    }

    fn check_block_bitmaps(&mut self) -> Go {
        let mut differences = Differences::default();
        let ratio = u64::from(self.sb.cluster_ratio());
        let mut free = 0;
        let mut counts = Vec::new();
        for group in 0..self.sb.groups_count() {
            let clusters = self.sb.clusters_in_group(group);
            let counted = clusters - self.used.count(group, clusters);
            free += u64::from(counted);
            let desc = self.descs[group as usize];
            let uninit = self.csum.group_descs() && desc.has_flag(EXT4_BG_BLOCK_UNINIT);
            if !uninit {
                let map = self.block(desc.bg_block_bitmap);
                self.compare_blocks(group, clusters, &map, &mut differences);
                if block_bitmap_csum_verify(&self.csum, &self.sb, group, &desc, &map).is_err() {
                    self.find(5, FindingKind::BlockBitmapChecksum { group })?;
                }
                if bitmap::next_zero(&map, clusters, self.sb.block_size() * 8).is_some() {
                    self.find(5, FindingKind::BlockBitmapPadding { group })?;
                }
            }
            let stored = desc.bg_free_blocks_count;
            if stored != counted {
                counts.push(FindingKind::GroupFreeBlocks {
                    group,
                    stored,
                    counted,
                });
            }
        }
        if let Some(differences) = differences.finish() {
            self.find(5, FindingKind::BlockBitmap { differences })?;
        }
        for kind in counts {
            self.find(5, kind)?;
        }
        let (stored, counted) = (self.sb.s_free_blocks_count, free * ratio);
        if stored != counted {
            self.find(5, FindingKind::FreeBlocks { stored, counted })?;
        }
        Some(())
    }

    fn compare_blocks(&self, group: u32, clusters: u32, map: &[u8], out: &mut Differences) {
        let first = self.sb.group_first_block(group);
        let ratio = u64::from(self.sb.cluster_ratio());
        let used = self.used.group(group);
        let whole = (clusters / 8) as usize;
        let same = match used {
            Some(u) => u.get(..whole) == map.get(..whole),
            None => map.iter().take(whole).all(|b| *b == 0),
        };
        let from = if same { whole as u32 * 8 } else { 0 };
        for i in from..clusters {
            let (want, have) = (
                used.is_some_and(|u| bitmap::test(u, i)),
                bitmap::test(map, i),
            );
            let block = first + u64::from(i) * ratio;
            match (want, have) {
                (true, false) => out.push('+', block),
                (false, true) => out.push('-', block),
                _ => {}
            }
        }
    }

    fn check_inode_bitmaps(&mut self) -> Go {
        let ipg = self.sb.s_inodes_per_group;
        let mut differences = Differences::default();
        let mut counts = Vec::new();
        let mut used_inodes = 0;
        for group in 0..self.sb.groups_count() {
            let from = self.nodes.partition_point(|n| n.ino <= group * ipg);
            let to = self
                .nodes
                .partition_point(|n| u64::from(n.ino) <= (u64::from(group) + 1) * u64::from(ipg));
            let mut want = vec![0; (ipg / 8) as usize + 1];
            let mut dirs = 0;
            for n in &self.nodes[from..to] {
                bitmap::set(&mut want, n.ino - group * ipg - 1);
                dirs += u32::from(n.file_type == EXT4_FT_DIR);
            }
            let used = (to - from) as u32;
            used_inodes += used;
            let desc = self.descs[group as usize];
            if !(self.csum.group_descs() && desc.has_flag(EXT4_BG_INODE_UNINIT)) {
                self.compare_inodes(group, &want, &mut differences)?;
            }
            let (stored, counted) = (desc.bg_free_inodes_count, ipg - used);
            if stored != counted {
                counts.push(FindingKind::GroupFreeInodes {
                    group,
                    stored,
                    counted,
                });
            }
            let (stored, counted) = (desc.bg_used_dirs_count, dirs);
            if stored != counted {
                counts.push(FindingKind::GroupDirs {
                    group,
                    stored,
                    counted,
                });
            }
        }
        if let Some(differences) = differences.finish() {
            self.find(5, FindingKind::InodeBitmap { differences })?;
        }
        for kind in counts {
            self.find(5, kind)?;
        }
        let (stored, counted) = (
            self.sb.s_free_inodes_count,
            self.sb.s_inodes_count - used_inodes,
        );
        if stored != counted {
            self.find(5, FindingKind::FreeInodes { stored, counted })?;
        }
        Some(())
    }

    fn compare_inodes(&mut self, group: u32, want: &[u8], out: &mut Differences) -> Go {
        let ipg = self.sb.s_inodes_per_group;
        let desc = self.descs[group as usize];
        let map = self.block(desc.bg_inode_bitmap);
        let whole = (ipg / 8) as usize;
        if want.get(..whole) != map.get(..whole) {
            for i in 0..ipg {
                let ino = u64::from(group) * u64::from(ipg) + u64::from(i) + 1;
                match (bitmap::test(want, i), bitmap::test(&map, i)) {
                    (true, false) => out.push('+', ino),
                    (false, true) => out.push('-', ino),
                    _ => {}
                }
            }
        }
        if inode_bitmap_csum_verify(&self.csum, &self.sb, group, &desc, &map).is_err() {
            self.find(5, FindingKind::InodeBitmapChecksum { group })?;
        }
        if bitmap::next_zero(&map, ipg, self.sb.block_size() * 8).is_some() {
            self.find(5, FindingKind::InodeBitmapPadding { group })?;
        }
        Some(())
    }
}
