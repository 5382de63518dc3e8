//! Pass 1: inodes, blocks and sizes.

use super::map::MapSum;
use super::{Dir, FindingKind, Fsck, Go, Node};
use crate::base::ReadAt;
use crate::format::ext4::group_desc::EXT4_BG_INODE_UNINIT;
use crate::format::ext4::inode::{
    xattr_area, EXT4_EA_INODE_FL, EXT4_EXTENTS_FL, EXT4_INDEX_FL, EXT4_INLINE_DATA_FL,
};
use crate::format::ext4::superblock::{EXT4_RESIZE_INO, EXT4_ROOT_INO};
use crate::format::ext4::{dirent, features, inline_data, RawInode};
use crate::format::CorruptKind;

const EXT4_BAD_INO: u32 = 1;

impl<R: ReadAt + ?Sized> Fsck<'_, R> {
    pub(super) fn pass1(&mut self) -> Go {
        let size = usize::from(self.sb.inode_size());
        let per_block = self.sb.inodes_per_block();
        let ipg = self.sb.s_inodes_per_group;
        let mut b = vec![0; self.block_size()];
        for group in 0..self.sb.groups_count() {
            let (table, count) = (
                self.descs[group as usize].bg_inode_table,
                self.inodes_to_read(group),
            );
            for first in (0..count).step_by(per_block as usize) {
                self.read(table + u64::from(first / per_block), 0, &mut b);
                for (index, raw) in (first..count).zip(b.chunks_exact(size)) {
                    self.check_inode(group * ipg + index + 1, raw)?;
                }
            }
        }
        self.check_xattr_refcounts()
    }

    /// Inodes of a group that may be in use.
    pub(super) fn inodes_to_read(&self, group: u32) -> u32 {
        let d = &self.descs[group as usize];
        let ipg = self.sb.s_inodes_per_group;
        if !self.csum.group_descs() {
            return ipg;
        }
        if d.has_flag(EXT4_BG_INODE_UNINIT) {
            return 0;
        }
        ipg.saturating_sub(d.bg_itable_unused)
    }

    /// True for inodes that no directory names.
    fn is_special(&self, ino: u32) -> bool {
        let sb = &self.sb;
        let quota = [
            sb.s_usr_quota_inum,
            sb.s_grp_quota_inum,
            sb.s_prj_quota_inum,
        ];
        (ino < sb.first_ino() && ino != EXT4_ROOT_INO)
            || (sb.has(features::ORPHAN_FILE) && ino == sb.s_orphan_file_inum)
            || (ino != 0 && quota.contains(&ino))
    }

    fn check_inode(&mut self, ino: u32, b: &[u8]) -> Go {
        let links = crate::base::bytes::le16(b, 0x1A);
        let mode = crate::base::bytes::le16(b, 0);
        let special = self.is_special(ino);
        let orphan = self.orphans.contains(&ino);
        if links == 0 && !orphan {
            return self.check_unused(ino, mode, b);
        }
        let raw = RawInode::decode_lenient(b);
        if let Err(c) = RawInode::decode(b) {
            if let CorruptKind::InodeExtraSize { extra, .. } = c.kind {
                // e2fsck does not look at the fields of the resize inode past the first 128 bytes.
                let looked_at = ino != EXT4_RESIZE_INO;
                if looked_at {
                    self.find(1, FindingKind::InodeExtraSize { ino, extra })?;
                }
            }
        }
        if RawInode::csum_verify(&self.csum, ino, b).is_err() {
            self.find(1, FindingKind::InodeChecksum { ino })?;
        }
        if raw.i_dtime != 0 && !orphan {
            self.find(1, FindingKind::DtimeSet { ino })?;
        }
        let file_type = dirent::file_type_of_mode(mode);
        if file_type == dirent::EXT4_FT_UNKNOWN {
            return self.find(1, FindingKind::InodeMode { ino, mode });
        }
        if ino == EXT4_ROOT_INO && !raw.is_dir() {
            self.find(1, FindingKind::RootNotDirectory {})?;
        }
        self.nodes.push(Node {
            ino,
            file_type,
            links,
            counted: 0,
            special: special || orphan || raw.has_flag(EXT4_EA_INODE_FL),
        });
        self.check_flags(ino, &raw)?;
        self.check_ibody(ino, xattr_area(b))?;
        if ino == EXT4_RESIZE_INO && self.sb.has(features::RESIZE_INODE) {
            return self.check_resize_inode(&raw);
        }
        self.check_content(ino, &raw, b)
    }

    /// An inode without links: the reserved ones count as used, others should be properly deleted.
    fn check_unused(&mut self, ino: u32, mode: u16, b: &[u8]) -> Go {
        if ino < self.sb.first_ino() {
            if ino == EXT4_ROOT_INO {
                return Some(());
            }
            if mode != 0 {
                self.find(1, FindingKind::ReservedInode { ino })?;
            }
            if RawInode::csum_verify(&self.csum, ino, b).is_err() {
                self.find(1, FindingKind::InodeChecksum { ino })?;
            }
            self.nodes.push(Node {
                ino,
                file_type: dirent::EXT4_FT_UNKNOWN,
                links: 0,
                counted: 0,
                special: true,
            });
            if ino == EXT4_BAD_INO {
                let raw = RawInode::decode_lenient(b);
                self.walk_map(ino, &raw, false)?;
            }
            return Some(());
        }
        let dtime = crate::base::bytes::le32(b, 0x14);
        if mode != 0 && dtime == 0 {
            return self.find(1, FindingKind::ZeroDtime { ino });
        }
        Some(())
    }

    fn check_flags(&mut self, ino: u32, raw: &RawInode) -> Go {
        let mut bad = 0;
        for (flag, feature) in [
            (EXT4_EXTENTS_FL, features::EXTENTS),
            (EXT4_INLINE_DATA_FL, features::INLINE_DATA),
        ] {
            if raw.has_flag(flag) && !self.sb.has(feature) {
                bad |= flag;
            }
        }
        if raw.has_flag(EXT4_INDEX_FL) && !raw.is_dir() {
            bad |= EXT4_INDEX_FL;
        }
        if raw.has_flag(EXT4_EXTENTS_FL) && raw.has_flag(EXT4_INLINE_DATA_FL) {
            bad |= EXT4_INLINE_DATA_FL;
        }
        if bad == 0 {
            return Some(());
        }
        self.find(1, FindingKind::InodeFlags { ino, flags: bad })
    }

    /// Blocks, size and attribute block of an inode in use.
    fn check_content(&mut self, ino: u32, raw: &RawInode, b: &[u8]) -> Go {
        let xattr_clusters = self.check_xattr_block(ino, raw.i_file_acl)?;
        if raw.has_flag(EXT4_INLINE_DATA_FL) {
            self.check_inline(ino, raw, b)?;
            return self.check_blocks(ino, raw, xattr_clusters);
        }
        if raw.is_fast_symlink() {
            self.check_fast_symlink(ino, raw)?;
            return self.check_blocks(ino, raw, xattr_clusters);
        }
        if !(raw.is_reg() || raw.is_dir() || raw.is_symlink()) {
            if raw.i_size != 0 {
                self.find(1, FindingKind::SpecialHasBlocks { ino })?;
            }
            return self.check_blocks(ino, raw, xattr_clusters);
        }
        let sum = self.walk_map(ino, raw, raw.is_dir())?;
        if ino == self.sb.s_journal_inum && self.sb.has(features::HAS_JOURNAL) {
            self.check_journal(sum.first)?;
        }
        if !sum.broken {
            self.check_size(ino, raw, &sum)?;
            self.check_blocks(ino, raw, sum.clusters + xattr_clusters)?;
        }
        if raw.is_dir() {
            let blocks = raw.i_size / u64::from(self.sb.block_size());
            self.dirs.push(Dir {
                ino,
                generation: raw.i_generation,
                indexed: raw.has_flag(EXT4_INDEX_FL),
                blocks: blocks.min(u64::from(sum.last.map_or(0, |l| l + 1))) as u32,
                extents: sum.extents,
                inline: None,
                dot_dot: 0,
                parent: 0,
            });
        }
        Some(())
    }

    fn check_fast_symlink(&mut self, ino: u32, raw: &RawInode) -> Go {
        let target = &raw.i_block[..(raw.i_size as usize).min(60)];
        if target.is_empty() || target.contains(&0) {
            return self.find(1, FindingKind::Symlink { ino });
        }
        Some(())
    }

    fn check_inline(&mut self, ino: u32, raw: &RawInode, b: &[u8]) -> Go {
        let value = match inline_data::system_data(xattr_area(b)) {
            Ok(value) => value.to_vec(),
            Err(corrupt) => return self.find(1, FindingKind::InlineData { ino, corrupt }),
        };
        if inline_data::content(&raw.i_block, &value, raw.i_size).is_err() {
            let size = raw.i_size;
            self.find(1, FindingKind::InlineSize { ino, size })?;
        }
        if raw.is_dir() {
            self.dirs.push(Dir {
                ino,
                generation: raw.i_generation,
                indexed: false,
                blocks: 0,
                extents: Vec::new(),
                inline: Some((raw.i_block, value)),
                dot_dot: inline_data::parent(&raw.i_block),
                parent: 0,
            });
        }
        Some(())
    }

    pub(super) fn check_blocks(&mut self, ino: u32, raw: &RawInode, clusters: u64) -> Go {
        let sectors = u64::from(self.sb.block_size() / 512) * u64::from(self.sb.cluster_ratio());
        let counted = clusters * sectors;
        let stored = raw.blocks_512(self.sb.block_size());
        if stored == counted {
            return Some(());
        }
        let kind = FindingKind::InodeBlocks {
            ino,
            stored,
            counted,
        };
        self.find(1, kind)
    }

    fn check_size(&mut self, ino: u32, raw: &RawInode, sum: &MapSum) -> Go {
        let block = u64::from(self.sb.block_size());
        let stored = raw.i_size;
        let mapped = |last: Option<u32>| last.map_or(0, |l| (u64::from(l) + 1) * block);
        if raw.is_dir() {
            let expected = mapped(sum.last);
            if stored != expected || stored == 0 {
                let kind = FindingKind::InodeSize {
                    ino,
                    stored,
                    expected,
                };
                return self.find(1, kind);
            }
            return Some(());
        }
        if raw.is_symlink() {
            if stored == 0 || stored >= block || sum.first.is_none() {
                return self.find(1, FindingKind::Symlink { ino });
            }
            return Some(());
        }
        let expected = mapped(sum.last_written);
        // Wrong if the last written block begins past the end of the file.
        if stored < expected.saturating_sub(block) {
            let kind = FindingKind::InodeSize {
                ino,
                stored,
                expected,
            };
            return self.find(1, kind);
        }
        Some(())
    }
}
