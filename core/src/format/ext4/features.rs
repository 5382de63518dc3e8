//! Feature bits and their names as e2fsprogs spells them (`lib/e2p/feature.c`; bits from `ext2_fs.h`).

/// Which of the three feature words of the superblock a feature lives in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FeatureSet {
    /// Unknown bits are harmless.
    Compat,
    /// Unknown bits forbid mounting.
    Incompat,
    /// Unknown bits forbid mounting for writing.
    RoCompat,
}

/// One feature bit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Feature {
    /// Word it lives in.
    pub set: FeatureSet,
    /// Its bit.
    pub mask: u32,
    /// Name that `dumpe2fs` prints.
    pub name: &'static str,
}

macro_rules! features {
    ($($id:ident = $set:ident $mask:literal $name:literal, $doc:literal;)*) => {
        $(
            #[doc = $doc]
            pub const $id: Feature = Feature { set: FeatureSet::$set, mask: $mask, name: $name };
        )*
        /// Every named feature: compat, incompat, ro_compat, each by ascending bit (`dumpe2fs` order).
        pub const ALL: &[Feature] = &[$($id,)*];
    };
}

features! {
    DIR_PREALLOC = Compat 0x1 "dir_prealloc", "Directory block preallocation (never implemented).";
    IMAGIC_INODES = Compat 0x2 "imagic_inodes", "AFS magic inodes.";
    HAS_JOURNAL = Compat 0x4 "has_journal", "A journal exists.";
    EXT_ATTR = Compat 0x8 "ext_attr", "Extended attributes may exist.";
    RESIZE_INODE = Compat 0x10 "resize_inode", "Inode 7 owns reserved descriptor blocks.";
    DIR_INDEX = Compat 0x20 "dir_index", "Directories may have htrees.";
    LAZY_BG = Compat 0x40 "lazy_bg", "Old name of uninitialised groups.";
    SPARSE_SUPER2 = Compat 0x200 "sparse_super2", "At most two backup superblocks, in s_backup_bgs.";
    FAST_COMMIT = Compat 0x400 "fast_commit", "The journal has a fast commit area.";
    STABLE_INODES = Compat 0x800 "stable_inodes", "Inode numbers and UUID never change.";
    ORPHAN_FILE = Compat 0x1000 "orphan_file", "Orphans are kept in a file.";

    COMPRESSION = Incompat 0x1 "compression", "File compression (never merged).";
    FILETYPE = Incompat 0x2 "filetype", "Directory entries hold the file type.";
    RECOVER = Incompat 0x4 "needs_recovery", "The journal must be replayed.";
    JOURNAL_DEV = Incompat 0x8 "journal_dev", "This device is an external journal.";
    META_BG = Incompat 0x10 "meta_bg", "Descriptors lie in their own meta groups.";
    EXTENTS = Incompat 0x40 "extent", "Files may use extents.";
    BIT64 = Incompat 0x80 "64bit", "Block numbers of 64 bits, descriptors of s_desc_size.";
    MMP = Incompat 0x100 "mmp", "Multiple mount protection.";
    FLEX_BG = Incompat 0x200 "flex_bg", "Bitmaps and tables may lie in other groups.";
    EA_INODE = Incompat 0x400 "ea_inode", "Large xattr values in inodes.";
    DIRDATA = Incompat 0x1000 "dirdata", "Extra bytes in directory entries.";
    CSUM_SEED = Incompat 0x2000 "metadata_csum_seed", "s_checksum_seed holds the checksum seed.";
    LARGEDIR = Incompat 0x4000 "large_dir", "Directories above 2 GiB, htrees of 3 levels.";
    INLINE_DATA = Incompat 0x8000 "inline_data", "Small files live in the inode.";
    ENCRYPT = Incompat 0x10000 "encrypt", "Encrypted inodes.";
    CASEFOLD = Incompat 0x20000 "casefold", "Case-insensitive directories.";

    SPARSE_SUPER = RoCompat 0x1 "sparse_super", "Backups only in groups 0, 1 and powers of 3, 5, 7.";
    LARGE_FILE = RoCompat 0x2 "large_file", "A file above 2 GiB has existed.";
    HUGE_FILE = RoCompat 0x8 "huge_file", "i_blocks of 48 bits, may count in blocks.";
    GDT_CSUM = RoCompat 0x10 "uninit_bg", "Descriptors have a crc16 and may be uninitialised.";
    DIR_NLINK = RoCompat 0x20 "dir_nlink", "Directory link counts stop at 65,000.";
    EXTRA_ISIZE = RoCompat 0x40 "extra_isize", "Inodes have at least s_min_extra_isize extra bytes.";
    SNAPSHOT = RoCompat 0x80 "snapshot", "Next3 snapshots.";
    QUOTA = RoCompat 0x100 "quota", "Quota inodes.";
    BIGALLOC = RoCompat 0x200 "bigalloc", "Allocation in clusters.";
    METADATA_CSUM = RoCompat 0x400 "metadata_csum", "crc32c on all metadata.";
    REPLICA = RoCompat 0x800 "replica", "Replicas (never merged).";
    READONLY = RoCompat 0x1000 "read-only", "May never be mounted for writing.";
    PROJECT = RoCompat 0x2000 "project", "Project ids in inodes.";
    SHARED_BLOCKS = RoCompat 0x4000 "shared_blocks", "Blocks shared between files (Android).";
    VERITY = RoCompat 0x8000 "verity", "Files with verity.";
    ORPHAN_PRESENT = RoCompat 0x10000 "orphan_present", "The orphan file may hold entries.";
}

/// The feature e2fsprogs calls `name` (case-insensitive), older spellings included.
pub fn by_name(name: &str) -> Option<Feature> {
    let name = match name.to_ascii_lowercase().as_str() {
        "extents" => "extent".to_string(),
        "uninit_groups" => "uninit_bg".to_string(),
        other => other.to_string(),
    };
    ALL.iter().find(|f| f.name == name).copied()
}

/// Names of all bits set in `mask` of `set`; unnamed bits as e2fsprogs prints them (`FEATURE_C6`, `FEATURE_I20`..).
pub fn names(set: FeatureSet, mask: u32) -> Vec<String> {
    let letter = match set {
        FeatureSet::Compat => 'C',
        FeatureSet::Incompat => 'I',
        FeatureSet::RoCompat => 'R',
    };
    (0..32u32)
        .filter_map(|i| 1u32.checked_shl(i).map(|bit| (i, bit)))
        .filter(|(_, bit)| mask & bit != 0)
        .map(
            |(i, bit)| match ALL.iter().find(|f| f.set == set && f.mask == bit) {
                Some(f) => f.name.to_string(),
                None => format!("FEATURE_{letter}{i}"),
            },
        )
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_and_are_unique() {
        for f in ALL {
            assert_eq!(by_name(f.name), Some(*f));
            assert_eq!(names(f.set, f.mask), [f.name]);
            assert_eq!(f.mask.count_ones(), 1);
        }
        assert_eq!(by_name("extents"), Some(EXTENTS));
        assert_eq!(by_name("nonsense"), None);
        assert_eq!(names(FeatureSet::RoCompat, 1 << 30), ["FEATURE_R30"]);
    }
}
