//! The superblock: `struct ext4_super_block` of `fs/ext4/ext4.h`, documented in `super.rst`.
//!
//! 1,024 bytes at byte 1,024 of the device and at the start of each backup group. Little-endian. With
//! `metadata_csum`, `s_checksum` is crc32c (seed `!0`) of the 1,020 bytes before it.

use super::checksum::CsumCtx;
use super::features::{self, Feature, FeatureSet};
use crate::base::checksum::crc32c;
use crate::base::{bytes, Uuid};
use crate::format::cast;
use crate::format::layout::on_disk;
use crate::format::{Corrupt, CorruptKind};

/// Byte offset of the primary superblock on the device.
pub const SUPERBLOCK_OFFSET: u64 = 1024;
/// Bytes of a superblock.
pub const SUPERBLOCK_SIZE: usize = 1024;
/// `s_magic`.
pub const EXT4_SUPER_MAGIC: u16 = 0xEF53;
/// `s_state`: cleanly unmounted.
pub const EXT4_VALID_FS: u16 = 0x1;
/// `s_state`: errors detected.
pub const EXT4_ERROR_FS: u16 = 0x2;
/// `s_state`: orphans are being recovered.
pub const EXT4_ORPHAN_FS: u16 = 0x4;
/// `s_state`: fast commit replay in progress.
pub const EXT4_FC_REPLAY: u16 = 0x20;
/// `s_flags`: names are hashed as signed chars.
pub const EXT2_FLAGS_SIGNED_HASH: u32 = 0x1;
/// `s_flags`: names are hashed as unsigned chars.
pub const EXT2_FLAGS_UNSIGNED_HASH: u32 = 0x2;
/// `s_flags`: test file system.
pub const EXT2_FLAGS_TEST_FILESYS: u32 = 0x4;
/// Inode number of the root directory.
pub const EXT4_ROOT_INO: u32 = 2;
/// Inode number that owns the reserved descriptor blocks.
pub const EXT4_RESIZE_INO: u32 = 7;
/// Inode number of the internal journal.
pub const EXT4_JOURNAL_INO: u32 = 8;
/// First inode number for files where the superblock does not say.
pub const EXT4_GOOD_OLD_FIRST_INO: u32 = 11;
/// Inode size of revision 0, and of the classic part of every inode.
pub const EXT4_GOOD_OLD_INODE_SIZE: u16 = 128;
/// Descriptor size without the 64bit feature.
pub const EXT4_MIN_DESC_SIZE: u16 = 32;
/// Descriptor size that has high halves.
pub const EXT4_MIN_DESC_SIZE_64BIT: u16 = 64;

const CHECKSUM_AT: usize = 0x3FC;

on_disk! {
    /// The superblock with high and low halves joined.
    pub struct SuperBlock {
        s_inodes_count: u32 = le32(0x00), "Inodes in the file system.";
        s_blocks_count: u64 = lo32hi32(0x04, 0x150), "Blocks in the file system.";
        s_r_blocks_count: u64 = lo32hi32(0x08, 0x154), "Blocks reserved for the super-user.";
        s_free_blocks_count: u64 = lo32hi32(0x0C, 0x158), "Free blocks.";
        s_free_inodes_count: u32 = le32(0x10), "Free inodes.";
        s_first_data_block: u32 = le32(0x14), "Block that holds the primary superblock.";
        s_log_block_size: u32 = le32(0x18), "Block size is 1024 << this.";
        s_log_cluster_size: u32 = le32(0x1C), "Cluster size is 1024 << this.";
        s_blocks_per_group: u32 = le32(0x20), "Blocks per group.";
        s_clusters_per_group: u32 = le32(0x24), "Clusters per group.";
        s_inodes_per_group: u32 = le32(0x28), "Inodes per group.";
        s_mtime: u32 = le32(0x2C), "Time of last mount, seconds.";
        s_wtime: u32 = le32(0x30), "Time of last write, seconds.";
        s_mnt_count: u16 = le16(0x34), "Mounts since the last check.";
        s_max_mnt_count: u16 = le16(0x36), "Mounts before a check, 0xffff for never.";
        s_magic: u16 = le16(0x38), "0xef53.";
        s_state: u16 = le16(0x3A), "1 clean, 2 errors, 4 orphans being recovered.";
        s_errors: u16 = le16(0x3C), "On errors: 1 continue, 2 remount read-only, 3 panic.";
        s_minor_rev_level: u16 = le16(0x3E), "Minor revision.";
        s_lastcheck: u32 = le32(0x40), "Time of last check, seconds.";
        s_checkinterval: u32 = le32(0x44), "Seconds between checks.";
        s_creator_os: u32 = le32(0x48), "0 Linux.";
        s_rev_level: u32 = le32(0x4C), "0 fixed inode size, 1 dynamic.";
        s_def_resuid: u16 = le16(0x50), "User that may use reserved blocks.";
        s_def_resgid: u16 = le16(0x52), "Group that may use reserved blocks.";
        s_first_ino: u32 = le32(0x54), "First inode number that is not reserved.";
        s_inode_size: u16 = le16(0x58), "Bytes per inode.";
        s_block_group_nr: u16 = le16(0x5A), "Group of this copy of the superblock.";
        s_feature_compat: u32 = le32(0x5C), "Compatible features.";
        s_feature_incompat: u32 = le32(0x60), "Incompatible features.";
        s_feature_ro_compat: u32 = le32(0x64), "Features that forbid writing if unknown.";
        s_uuid: [u8; 16] = bytes_at(0x68), "UUID of the file system.";
        s_volume_name: [u8; 16] = bytes_at(0x78), "Label.";
        s_last_mounted: [u8; 64] = bytes_at(0x88), "Directory of the last mount.";
        s_algorithm_usage_bitmap: u32 = le32(0xC8), "For compression (unused).";
        s_prealloc_blocks: u8 = byte(0xCC), "Blocks to preallocate for files (unused).";
        s_prealloc_dir_blocks: u8 = byte(0xCD), "Blocks to preallocate for directories (unused).";
        s_reserved_gdt_blocks: u16 = le16(0xCE), "Descriptor blocks reserved for growth.";
        s_journal_uuid: [u8; 16] = bytes_at(0xD0), "UUID of the external journal.";
        s_journal_inum: u32 = le32(0xE0), "Inode of the journal.";
        s_journal_dev: u32 = le32(0xE4), "Device number of the external journal.";
        s_last_orphan: u32 = le32(0xE8), "Head of the orphan list.";
        s_hash_seed: [u32; 4] = le32s(0xEC), "Seed of the directory hash.";
        s_def_hash_version: u8 = byte(0xFC), "Default directory hash: 0 legacy, 1 half MD4, 2 TEA.";
        s_jnl_backup_type: u8 = byte(0xFD), "1 if s_jnl_blocks holds the journal inode's i_block.";
        s_desc_size: u16 = le16(0xFE), "Bytes per group descriptor with 64bit.";
        s_default_mount_opts: u32 = le32(0x100), "Default mount options.";
        s_first_meta_bg: u32 = le32(0x104), "First meta block group.";
        s_mkfs_time: u32 = le32(0x108), "Time of creation, seconds.";
        s_jnl_blocks: [u32; 17] = le32s(0x10C), "Backup of i_block and i_size of the journal inode.";
        s_min_extra_isize: u16 = le16(0x15C), "Extra bytes every inode has.";
        s_want_extra_isize: u16 = le16(0x15E), "Extra bytes new inodes get.";
        s_flags: u32 = le32(0x160), "1 signed hash, 2 unsigned hash, 4 test file system.";
        s_raid_stride: u16 = le16(0x164), "RAID stride, blocks.";
        s_mmp_interval: u16 = le16(0x166), "Seconds between MMP checks.";
        s_mmp_block: u64 = le64(0x168), "Block of multiple mount protection.";
        s_raid_stripe_width: u32 = le32(0x170), "Blocks on all data disks.";
        s_log_groups_per_flex: u8 = byte(0x174), "Groups per flex group is 1 << this.";
        s_checksum_type: u8 = byte(0x175), "1 crc32c.";
        s_encryption_level: u8 = byte(0x176), "Version of encryption.";
        s_reserved_pad: u8 = byte(0x177), "Padding.";
        s_kbytes_written: u64 = le64(0x178), "KiB written in the file system's life.";
        s_snapshot_inum: u32 = le32(0x180), "Active snapshot (unused).";
        s_snapshot_id: u32 = le32(0x184), "Sequence of the active snapshot (unused).";
        s_snapshot_r_blocks_count: u64 = le64(0x188), "Blocks reserved for the snapshot (unused).";
        s_snapshot_list: u32 = le32(0x190), "Head of the snapshot list (unused).";
        s_error_count: u32 = le32(0x194), "Errors seen.";
        s_first_error_time: u32 = le32(0x198), "Time of the first error, seconds.";
        s_first_error_ino: u32 = le32(0x19C), "Inode of the first error.";
        s_first_error_block: u64 = le64(0x1A0), "Block of the first error.";
        s_first_error_func: [u8; 32] = bytes_at(0x1A8), "Function of the first error.";
        s_first_error_line: u32 = le32(0x1C8), "Line of the first error.";
        s_last_error_time: u32 = le32(0x1CC), "Time of the last error, seconds.";
        s_last_error_ino: u32 = le32(0x1D0), "Inode of the last error.";
        s_last_error_line: u32 = le32(0x1D4), "Line of the last error.";
        s_last_error_block: u64 = le64(0x1D8), "Block of the last error.";
        s_last_error_func: [u8; 32] = bytes_at(0x1E0), "Function of the last error.";
        s_mount_opts: [u8; 64] = bytes_at(0x200), "Default mount options as text.";
        s_usr_quota_inum: u32 = le32(0x240), "Inode of user quota.";
        s_grp_quota_inum: u32 = le32(0x244), "Inode of group quota.";
        s_overhead_clusters: u32 = le32(0x248), "Clusters of metadata, 0 if not computed.";
        s_backup_bgs: [u32; 2] = le32s(0x24C), "Groups with backups under sparse_super2.";
        s_encrypt_algos: [u8; 4] = bytes_at(0x254), "Encryption algorithms in use.";
        s_encrypt_pw_salt: [u8; 16] = bytes_at(0x258), "Salt of string2key.";
        s_lpf_ino: u32 = le32(0x268), "Inode of lost+found.";
        s_prj_quota_inum: u32 = le32(0x26C), "Inode of project quota.";
        s_checksum_seed: u32 = le32(0x270), "crc32c seed with metadata_csum_seed.";
        s_wtime_hi: u8 = byte(0x274), "Bits 32..39 of s_wtime.";
        s_mtime_hi: u8 = byte(0x275), "Bits 32..39 of s_mtime.";
        s_mkfs_time_hi: u8 = byte(0x276), "Bits 32..39 of s_mkfs_time.";
        s_lastcheck_hi: u8 = byte(0x277), "Bits 32..39 of s_lastcheck.";
        s_first_error_time_hi: u8 = byte(0x278), "Bits 32..39 of s_first_error_time.";
        s_last_error_time_hi: u8 = byte(0x279), "Bits 32..39 of s_last_error_time.";
        s_first_error_errcode: u8 = byte(0x27A), "Code of the first error.";
        s_last_error_errcode: u8 = byte(0x27B), "Code of the last error.";
        s_encoding: u16 = le16(0x27C), "Character encoding of names.";
        s_encoding_flags: u16 = le16(0x27E), "Flags of the encoding.";
        s_orphan_file_inum: u32 = le32(0x280), "Inode of the orphan file.";
        s_checksum: u32 = le32(0x3FC), "crc32c of the bytes before.";
    }
}

impl SuperBlock {
    /// Decodes and checks a superblock, its checksum included. `b` starts at the superblock.
    pub fn decode(b: &[u8]) -> Result<SuperBlock, Corrupt> {
        let sb = SuperBlock::decode_unchecked(b)?;
        sb.check_sizes()?;
        sb.check_counts()?;
        sb.csum_verify(b)?;
        Ok(sb)
    }

    /// Decodes anything that has the magic: for dumps and fsck.
    pub fn decode_unchecked(b: &[u8]) -> Result<SuperBlock, Corrupt> {
        if b.len() < SUPERBLOCK_SIZE {
            let kind = CorruptKind::Truncated {
                structure: "superblock",
                need: cast::len32(SUPERBLOCK_SIZE),
                have: cast::len32(b.len()),
            };
            return Err(Corrupt::new(kind, 0));
        }
        let sb = SuperBlock::read_fields(b);
        if sb.s_magic != EXT4_SUPER_MAGIC {
            return Err(Corrupt::new(
                CorruptKind::SuperMagic { found: sb.s_magic },
                0x38,
            ));
        }
        Ok(sb)
    }

    /// Writes all fields into `b` (at least 1,024 bytes), leaves reserved bytes as they are, and stores the
    /// checksum if the file system has them.
    pub fn encode(&self, b: &mut [u8]) {
        self.write_fields(b);
        if self.has(features::METADATA_CSUM) {
            let csum = SuperBlock::csum(b);
            bytes::put_le32(b, CHECKSUM_AT, csum);
        }
    }

    /// Checksum of the superblock bytes `b`.
    pub fn csum(b: &[u8]) -> u32 {
        crc32c(!0, b.get(..CHECKSUM_AT).unwrap_or(b))
    }

    /// Checks the stored checksum of `b` if the file system has them.
    pub fn csum_verify(&self, b: &[u8]) -> Result<(), Corrupt> {
        if !self.has(features::METADATA_CSUM) {
            return Ok(());
        }
        if self.s_checksum_type != 1 {
            let kind = CorruptKind::SuperChecksumType {
                kind: self.s_checksum_type,
            };
            return Err(Corrupt::new(kind, 0x175));
        }
        let (stored, computed) = (self.s_checksum, SuperBlock::csum(b));
        if stored == computed {
            return Ok(());
        }
        Err(Corrupt::new(
            CorruptKind::SuperChecksum { stored, computed },
            0x3FC,
        ))
    }

    fn check_sizes(&self) -> Result<(), Corrupt> {
        let bad = |kind, at| Err(Corrupt::new(kind, at));
        let (log, cluster) = (self.s_log_block_size, self.s_log_cluster_size);
        if log > 6 {
            return bad(CorruptKind::SuperBlockSize { log }, 0x18);
        }
        let bigalloc = self.has(features::BIGALLOC);
        if cluster > 20 || cluster < log || (!bigalloc && cluster != log) {
            let kind = CorruptKind::SuperClusterSize {
                log: cluster,
                block_log: log,
            };
            return bad(kind, 0x1C);
        }
        let block_size = self.block_size();
        let size = self.inode_size();
        if size < 128 || !size.is_power_of_two() || u32::from(size) > block_size {
            return bad(CorruptKind::SuperInodeSize { size }, 0x58);
        }
        if self.first_ino() < EXT4_GOOD_OLD_FIRST_INO {
            return bad(
                CorruptKind::SuperFirstIno {
                    ino: self.first_ino(),
                },
                0x54,
            );
        }
        let size = self.s_desc_size;
        let desc_ok = (64..=1024).contains(&size) && size.is_power_of_two();
        if self.has(features::BIT64) && !desc_ok {
            return bad(CorruptKind::SuperDescSize { size }, 0xFE);
        }
        let log = self.s_log_groups_per_flex;
        if self.has(features::FLEX_BG) && log > 31 {
            return bad(CorruptKind::SuperFlex { log }, 0x174);
        }
        Ok(())
    }

    fn check_counts(&self) -> Result<(), Corrupt> {
        let bad = |kind, at| Err(Corrupt::new(kind, at));
        let block_size = self.block_size();
        let bits = block_size.saturating_mul(8);
        let ratio = self.cluster_ratio();
        let (blocks, clusters) = (self.s_blocks_per_group, self.s_clusters_per_group);
        let max = bits.saturating_mul(ratio);
        if blocks == 0 || blocks > max {
            return bad(CorruptKind::SuperBlocksPerGroup { blocks, max }, 0x20);
        }
        if self.has(features::BIGALLOC) && clusters.saturating_mul(ratio) != blocks {
            return bad(
                CorruptKind::SuperClustersPerGroup { clusters, blocks },
                0x24,
            );
        }
        let inodes = self.s_inodes_per_group;
        if inodes == 0 || inodes > bits || inodes.checked_rem(self.inodes_per_block()) != Some(0) {
            return bad(CorruptKind::SuperInodesPerGroup { inodes, max: bits }, 0x28);
        }
        let found = self.s_first_data_block;
        if found > 1 || (found == 0 && block_size == 1024 && ratio == 1) {
            return bad(CorruptKind::SuperFirstDataBlock { found }, 0x14);
        }
        let blocks = self.s_blocks_count;
        let groups = self.groups_count_u64();
        if blocks <= u64::from(found) || groups > u64::from(u32::MAX) || blocks >> 48 != 0 {
            return bad(CorruptKind::SuperBlocksCount { blocks }, 0x04);
        }
        let expected = groups.saturating_mul(u64::from(inodes));
        if u64::from(self.s_inodes_count) != expected {
            let kind = CorruptKind::SuperInodesCount {
                inodes: self.s_inodes_count,
                expected,
            };
            return bad(kind, 0x00);
        }
        let reserved = self.s_reserved_gdt_blocks;
        if u32::from(reserved) > block_size / 4 {
            return bad(CorruptKind::SuperGdtBlocks { reserved }, 0xCE);
        }
        Ok(())
    }

    /// True if the feature bit is set.
    pub fn has(&self, f: Feature) -> bool {
        self.feature_word(f.set) & f.mask != 0
    }

    /// Sets or clears a feature bit.
    pub fn set_feature(&mut self, f: Feature, on: bool) {
        let word = match f.set {
            FeatureSet::Compat => &mut self.s_feature_compat,
            FeatureSet::Incompat => &mut self.s_feature_incompat,
            FeatureSet::RoCompat => &mut self.s_feature_ro_compat,
        };
        if on {
            *word |= f.mask;
        } else {
            *word &= !f.mask;
        }
    }

    /// One of the three feature words.
    pub fn feature_word(&self, set: FeatureSet) -> u32 {
        match set {
            FeatureSet::Compat => self.s_feature_compat,
            FeatureSet::Incompat => self.s_feature_incompat,
            FeatureSet::RoCompat => self.s_feature_ro_compat,
        }
    }

    /// Names of all set features in `dumpe2fs` order.
    pub fn feature_names(&self) -> Vec<String> {
        [
            FeatureSet::Compat,
            FeatureSet::Incompat,
            FeatureSet::RoCompat,
        ]
        .into_iter()
        .flat_map(|set| features::names(set, self.feature_word(set)))
        .collect()
    }

    /// Parameters of all metadata checksums.
    pub fn csum_ctx(&self) -> CsumCtx {
        let metadata_csum = self.has(features::METADATA_CSUM);
        CsumCtx {
            seed: if self.has(features::CSUM_SEED) {
                self.s_checksum_seed
            } else {
                crc32c(!0, &self.s_uuid)
            },
            metadata_csum,
            gdt_csum: !metadata_csum && self.has(features::GDT_CSUM),
            uuid: Uuid(self.s_uuid),
        }
    }
}
