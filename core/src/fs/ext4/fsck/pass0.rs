//! Superblock, descriptors, orphans: what e2fsck looks at before pass 1.

use super::{Finding, FindingKind, Fsck, Go};
use crate::base::{bytes, ReadAt};
use crate::format::ext4::features::{self, FeatureSet};
use crate::format::ext4::inode::EXT4_DIND_BLOCK;
use crate::format::ext4::superblock::{EXT4_ERROR_FS, EXT4_VALID_FS};
use crate::format::ext4::{GroupDesc, RawInode, SuperBlock};
use crate::format::CorruptKind;

/// Incompatible features that can be checked.
const CHECKABLE: [features::Feature; 11] = [
    features::FILETYPE,
    features::RECOVER,
    features::META_BG,
    features::EXTENTS,
    features::BIT64,
    features::MMP,
    features::FLEX_BG,
    features::EA_INODE,
    features::CSUM_SEED,
    features::LARGEDIR,
    features::INLINE_DATA,
];

/// The superblock, or `None` if nothing can be checked with it.
pub(super) fn super_block<R: ReadAt + ?Sized>(
    disk: &R,
    findings: &mut Vec<Finding>,
) -> Option<SuperBlock> {
    let mut b = [0; 1024];
    disk.read_at(1024, &mut b);
    let mut add = |kind| findings.push(Finding { pass: 0, kind });
    let sb = match SuperBlock::decode(&b) {
        Ok(sb) => sb,
        Err(corrupt) => {
            if !matches!(corrupt.kind, CorruptKind::SuperChecksum { .. }) {
                add(FindingKind::SuperBlock { corrupt });
                return None;
            }
            add(FindingKind::SuperBlockChecksum { corrupt });
            SuperBlock::decode_unchecked(&b).ok()?
        }
    };
    let unknown = sb.s_feature_incompat & !CHECKABLE.iter().fold(0, |m, f| m | f.mask);
    if unknown != 0 {
        let names = features::names(FeatureSet::Incompat, unknown).join(",");
        add(FindingKind::UnsupportedFeatures { names });
        return None;
    }
    let device = disk.size() / u64::from(sb.block_size());
    if sb.s_blocks_count > device {
        let blocks = sb.s_blocks_count;
        add(FindingKind::DeviceTooSmall { blocks, device });
        return None;
    }
    if sb.has(features::RECOVER) {
        add(FindingKind::NeedsRecovery {});
    } else if sb.s_state & EXT4_VALID_FS == 0 {
        add(FindingKind::NotClean {});
    }
    if sb.s_state & EXT4_ERROR_FS != 0 {
        let count = sb.s_error_count;
        add(FindingKind::HasErrors { count });
    }
    Some(sb)
}

impl<R: ReadAt + ?Sized> Fsck<'_, R> {
    pub(super) fn pass0(&mut self) -> Go {
        self.read_descs()?;
        self.claim_metadata()?;
        self.read_orphans()
    }

    fn read_descs(&mut self) -> Go {
        let size = self.sb.desc_size();
        let per_block = self.sb.descs_per_block();
        let groups = self.sb.groups_count();
        let mut block = Vec::new();
        for group in 0..groups {
            let (nr, slot) = (group / per_block, group % per_block);
            if slot == 0 {
                block = self.block(self.sb.descriptor_block(nr));
            }
            let at = slot as usize * usize::from(size);
            let b = block.get(at..).unwrap_or(&[]);
            let desc = GroupDesc::decode(b, size);
            if let Err(corrupt) = GroupDesc::csum_verify(&self.csum, group, b, size) {
                self.find(0, FindingKind::GroupChecksum { corrupt })?;
            }
            if let Err(corrupt) = desc.check(&self.sb, group) {
                self.find(0, FindingKind::GroupLocation { corrupt })?;
            }
            self.descs.push(desc);
        }
        Some(())
    }

    /// Marks superblocks, descriptors, bitmaps and inode tables used.
    fn claim_metadata(&mut self) -> Go {
        for group in 0..self.sb.groups_count() {
            let mut at = self.sb.group_first_block(group);
            if at == 0 && self.sb.block_size() == 1024 {
                self.claim(0);
                at = 1;
            }
            for i in 0..u64::from(self.sb.base_meta_blocks(group)) {
                self.claim(at.saturating_add(i));
            }
        }
        let shares_clusters = self.sb.cluster_ratio() > 1;
        for group in 0..self.sb.groups_count() {
            let d = self.descs[group as usize];
            let itable = u64::from(self.sb.itable_blocks());
            for (what, first, len) in [
                ("block bitmap", d.bg_block_bitmap, 1),
                ("inode bitmap", d.bg_inode_bitmap, 1),
                ("inode table", d.bg_inode_table, itable),
            ] {
                for block in first..first.saturating_add(len) {
                    if !self.claim(block) && !shares_clusters {
                        let kind = FindingKind::GroupConflict { group, what, block };
                        self.find(0, kind)?;
                        break;
                    }
                }
            }
        }
        Some(())
    }

    /// The bytes of an inode, `None` for numbers that do not exist.
    pub(super) fn raw_inode(&self, ino: u32) -> Option<Vec<u8>> {
        let (group, index) = self.sb.locate_inode(ino)?;
        let size = self.sb.inode_size();
        let mut b = vec![0; usize::from(size)];
        let table = self.descs.get(group as usize)?.bg_inode_table;
        self.read(table, u64::from(index) * u64::from(size), &mut b);
        Some(b)
    }

    /// Collects the orphan list and the entries of the orphan file.
    fn read_orphans(&mut self) -> Go {
        let mut next = self.sb.s_last_orphan;
        while next != 0 {
            if !self.add_orphan(next)? {
                break;
            }
            let raw = self.raw_inode(next).unwrap_or_default();
            next = RawInode::decode_lenient(&raw).i_dtime;
        }
        if !self.sb.has(features::ORPHAN_PRESENT) {
            return Some(());
        }
        let ino = self.sb.s_orphan_file_inum;
        let raw = RawInode::decode_lenient(&self.raw_inode(ino).unwrap_or_default());
        for e in self.quiet_map(&raw) {
            for i in 0..u64::from(e.len) {
                let b = self.block(e.pblk + i);
                let entries = crate::format::ext4::orphan_file::entries(&b);
                let listed: Vec<u32> = entries.map(|(_, ino)| ino).collect();
                for ino in listed {
                    self.add_orphan(ino)?;
                }
            }
        }
        Some(())
    }

    /// Adds an orphan; `Some(false)` if it is no possible one or was seen before.
    fn add_orphan(&mut self, ino: u32) -> Option<bool> {
        let possible = ino >= self.sb.first_ino() && ino <= self.sb.s_inodes_count;
        if !possible || !self.orphans.insert(ino) {
            self.find(0, FindingKind::OrphanInvalid { ino })?;
            return Some(false);
        }
        self.find(0, FindingKind::OrphanInode { ino })?;
        Some(true)
    }

    /// Checks the journal's superblock, given its first block.
    pub(super) fn check_journal(&mut self, first: Option<u64>) -> Go {
        let ino = self.sb.s_journal_inum;
        let Some(block) = first else {
            return self.find(1, FindingKind::JournalInode { ino });
        };
        let b = self.block(block);
        match crate::format::jbd2::JournalSuperblock::decode(&b) {
            Ok(_) => Some(()),
            Err(c) => {
                let corrupt = c.at(block);
                self.find(1, FindingKind::JournalSuperBlock { corrupt })
            }
        }
    }

    /// Checks that the resize inode lists the reserved descriptor blocks and their copies, and nothing else.
    pub(super) fn check_resize_inode(&mut self, raw: &RawInode) -> Go {
        let per_block = self.sb.block_size() / 4;
        let dind = u64::from(raw.block_ptr(EXT4_DIND_BLOCK));
        let reserved = u32::from(self.sb.s_reserved_gdt_blocks);
        if !self.sb.blocks_valid(dind, 1) {
            return match reserved {
                0 => Some(()),
                _ => self.find(1, FindingKind::ResizeInode {}),
            };
        }
        if !self.claim(dind) {
            let blocks = dind.to_string();
            self.find(1, FindingKind::MultiplyClaimed { ino: 7, blocks })?;
        }
        let gdt = self.sb.gdt_blocks();
        let first = u64::from(self.sb.block_size() == 1024) + 1 + u64::from(gdt);
        let backups: Vec<u32> = (1..self.sb.groups_count())
            .filter(|g| self.sb.has_super(*g))
            .take(per_block as usize)
            .collect();
        let mut want = vec![0; self.block_size()];
        let mut wrong = !raw.is_reg();
        for i in 0..reserved {
            let at = first + u64::from(i);
            let slot = (gdt + i) % per_block;
            bytes::put_le32(&mut want, slot as usize * 4, at as u32);
            let mut copies = vec![0; self.block_size()];
            for (slot, group) in backups.iter().enumerate() {
                let copy = at + u64::from(*group) * u64::from(self.sb.s_blocks_per_group);
                bytes::put_le32(&mut copies, slot * 4, copy as u32);
            }
            wrong |= self.block(at) != copies;
        }
        wrong |= self.block(dind) != want;
        wrong |= (0..15).any(|i| i != EXT4_DIND_BLOCK && raw.block_ptr(i) != 0);
        if wrong {
            self.find(1, FindingKind::ResizeInode {})?;
        }
        let clusters = 1 + u64::from(reserved) * (1 + backups.len() as u64);
        self.check_blocks(7, raw, clusters)
    }
}
