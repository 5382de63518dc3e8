//! What is wrong with bytes: one kind per check.

use std::fmt;

/// A failed check of an on-disk structure; itself not on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt {
    /// The check that failed, with the numbers needed to understand it.
    pub kind: CorruptKind,
    /// Block number (file-system blocks; journal blocks for `Jbd2*` kinds) where the caller knows it.
    pub block: Option<u64>,
    /// Byte offset within the structure or block.
    pub offset: u32,
}

impl Corrupt {
    /// A failed check at `offset` of a structure whose block is not known here.
    pub const fn new(kind: CorruptKind, offset: u32) -> Corrupt {
        Corrupt {
            kind,
            block: None,
            offset,
        }
    }

    /// The same finding with its block number, if it has none yet.
    #[must_use]
    pub fn at(self, block: u64) -> Corrupt {
        Corrupt {
            block: self.block.or(Some(block)),
            ..self
        }
    }
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        match self.block {
            Some(b) => write!(f, " (block {b}, offset {:#x})", self.offset),
            None => write!(f, " (offset {:#x})", self.offset),
        }
    }
}

impl std::error::Error for Corrupt {}

macro_rules! kinds {
    ($($(#[$m:meta])* $name:ident { $($(#[$fm:meta])* $f:ident: $t:ty),* } => $text:literal;)*) => {
        /// One kind per check; the text names structure and check.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum CorruptKind {
            $(
                #[doc = $text]
                $(#[$m])*
                #[allow(missing_docs, reason = "the text above names every field")]
                $name { $($(#[$fm])* $f: $t),* },
            )*
        }

        impl fmt::Display for CorruptKind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(CorruptKind::$name { $($f),* } => write!(f, $text),)*
                }
            }
        }
    };
}

kinds! {
    Truncated { structure: &'static str, need: u32, have: u32 }
        => "{structure}: {have} bytes where {need} are needed";

    SuperMagic { found: u16 } => "superblock: magic {found:#06x}, expected 0xef53";
    SuperChecksum { stored: u32, computed: u32 }
        => "superblock: checksum {stored:#010x}, computed {computed:#010x}";
    SuperBlockSize { log: u32 } => "superblock: s_log_block_size {log} is above 6";
    SuperClusterSize { log: u32, block_log: u32 }
        => "superblock: s_log_cluster_size {log} does not fit s_log_block_size {block_log}";
    SuperInodeSize { size: u16 } => "superblock: s_inode_size {size} is not a power of two in range";
    SuperDescSize { size: u16 } => "superblock: s_desc_size {size} is not a power of two in 64..=block size";
    SuperBlocksPerGroup { blocks: u32, max: u32 }
        => "superblock: s_blocks_per_group {blocks} is not in 1..={max}";
    SuperClustersPerGroup { clusters: u32, blocks: u32 }
        => "superblock: s_clusters_per_group {clusters} does not match s_blocks_per_group {blocks}";
    SuperInodesPerGroup { inodes: u32, max: u32 }
        => "superblock: s_inodes_per_group {inodes} is not in 1..={max} or fills no whole block";
    SuperFirstDataBlock { found: u32 } => "superblock: s_first_data_block is {found}";
    SuperBlocksCount { blocks: u64 } => "superblock: s_blocks_count {blocks} is impossible";
    SuperInodesCount { inodes: u32, expected: u64 }
        => "superblock: s_inodes_count {inodes}, groups hold {expected}";
    SuperFirstIno { ino: u32 } => "superblock: s_first_ino {ino} is below 11";
    SuperGdtBlocks { reserved: u16 } => "superblock: s_reserved_gdt_blocks {reserved} is above a block's entries";
    SuperFlex { log: u8 } => "superblock: s_log_groups_per_flex {log} is above 31";
    SuperChecksumType { kind: u8 } => "superblock: s_checksum_type {kind} is not 1 (crc32c)";

    GroupChecksum { group: u32, stored: u16, computed: u16 }
        => "group descriptor {group}: checksum {stored:#06x}, computed {computed:#06x}";
    GroupBlockBitmap { group: u32, block: u64 }
        => "group descriptor {group}: block bitmap at {block} is outside of the file system";
    GroupInodeBitmap { group: u32, block: u64 }
        => "group descriptor {group}: inode bitmap at {block} is outside of the file system";
    GroupInodeTable { group: u32, block: u64 }
        => "group descriptor {group}: inode table at {block} is outside of the file system";
    BlockBitmapChecksum { group: u32, stored: u32, computed: u32 }
        => "block bitmap of group {group}: checksum {stored:#x}, computed {computed:#x}";
    InodeBitmapChecksum { group: u32, stored: u32, computed: u32 }
        => "inode bitmap of group {group}: checksum {stored:#x}, computed {computed:#x}";

    InodeNumber { ino: u32, max: u32 } => "inode number {ino} is not in 1..={max}";
    InodeChecksum { ino: u32, stored: u32, computed: u32 }
        => "inode {ino}: checksum {stored:#x}, computed {computed:#x}";
    InodeExtraSize { extra: u16, inode_size: u16 }
        => "inode: i_extra_isize {extra} is not a multiple of 4 that fits an inode of {inode_size} bytes";
    InodeMode { ino: u32, mode: u16 } => "inode {ino}: i_mode {mode:#o} is no known file type";
    InodeSize { ino: u32, size: u64 } => "inode {ino}: i_size {size} is impossible";

    ExtentMagic { found: u16 } => "extent header: magic {found:#06x}, expected 0xf30a";
    ExtentEntries { entries: u16, max: u16 } => "extent header: eh_entries {entries} above eh_max {max}";
    ExtentMax { max: u16, room: u32 } => "extent header: eh_max {max} where {room} entries fit";
    ExtentDepth { depth: u16, expected: u16 } => "extent header: eh_depth {depth}, expected {expected}";
    ExtentEmptyIndex {} => "extent index node: no entries";
    ExtentLength { lblk: u32 } => "extent at logical block {lblk}: length 0 or past the last logical block";
    ExtentOrder { lblk: u32, previous_end: u64 }
        => "extent at logical block {lblk}: previous entry ends at {previous_end}";
    ExtentBounds { lblk: u32, pblk: u64, len: u32 }
        => "extent at logical block {lblk}: blocks {pblk}+{len} are outside of the file system";
    ExtentFirst { lblk: u32, parent: u32 }
        => "extent node: starts at logical block {lblk}, its index says {parent}";
    ExtentChecksum { ino: u32, stored: u32, computed: u32 }
        => "extent node of inode {ino}: checksum {stored:#010x}, computed {computed:#010x}";

    IndirectBounds { block: u32 } => "indirect block: entry {block} is outside of the file system";

    DirentRecLen { rec_len: u32 } => "directory entry: rec_len {rec_len} is below 12 or no multiple of 4";
    DirentNameLen { rec_len: u32, name_len: u8 }
        => "directory entry: rec_len {rec_len} is too small for name_len {name_len}";
    DirentOverrun { rec_len: u32, room: u32 }
        => "directory entry: rec_len {rec_len} overruns its block, {room} bytes are left";
    DirentInode { ino: u32, max: u32 } => "directory entry: inode {ino} is above {max}";
    DirentName {} => "directory entry: name is empty or holds '/' or NUL";
    DirTail {} => "directory block: no checksum tail";
    DirChecksum { ino: u32, stored: u32, computed: u32 }
        => "directory block of inode {ino}: checksum {stored:#010x}, computed {computed:#010x}";
    DxRoot {} => "htree root: entries of \".\" and \"..\" or dx_root_info malformed";
    DxHashVersion { version: u8 } => "htree root: hash version {version} is unknown";
    DxUnusedFlags { flags: u8 } => "htree root: unused_flags {flags:#x} set";
    DxInfoLength { len: u8 } => "htree root: info_length {len} is not 8";
    DxLevels { levels: u8, max: u8 } => "htree root: indirect_levels {levels} above {max}";
    DxLimit { limit: u16, expected: u16 } => "htree node: limit {limit}, expected {expected}";
    DxCount { count: u16, limit: u16 } => "htree node: count {count} is not in 1..={limit}";
    DxNode {} => "htree node: its fake directory entry is malformed";
    DxOrder { at: u16 } => "htree node: hash of entry {at} is below the one before it";
    DxBlock { block: u32, blocks: u32 } => "htree node: entry points to block {block} of {blocks}";
    DxChecksum { ino: u32, stored: u32, computed: u32 }
        => "htree node of inode {ino}: checksum {stored:#010x}, computed {computed:#010x}";

    XattrMagic { found: u32 } => "xattr: magic {found:#010x}, expected 0xea020000";
    XattrBlocks { blocks: u32 } => "xattr block: h_blocks {blocks}, expected 1";
    XattrRefcount { refcount: u32 } => "xattr block: h_refcount {refcount} is not in 1..=1024";
    XattrEntryOverrun {} => "xattr entry: runs past the end of its area";
    XattrName {} => "xattr entry: name is empty, or index unknown";
    XattrValue { offset: u16, size: u32 } => "xattr entry: value {offset}+{size} is outside of its area";
    XattrHash { stored: u32, computed: u32 }
        => "xattr entry: hash {stored:#010x}, computed {computed:#010x}";
    XattrChecksum { stored: u32, computed: u32 }
        => "xattr block: checksum {stored:#010x}, computed {computed:#010x}";
    InlineData {} => "inline data: no system.data attribute or size does not fit";

    OrphanMagic { found: u32 } => "orphan file block: magic {found:#010x}, expected 0x0b10ca04";
    OrphanChecksum { stored: u32, computed: u32 }
        => "orphan file block: checksum {stored:#010x}, computed {computed:#010x}";

    SymlinkLength { ino: u32, len: u64 } => "symlink {ino}: length {len} is impossible";

    Jbd2Magic { found: u32 } => "journal block: magic {found:#010x}, expected 0xc03b3998";
    Jbd2BlockType { found: u32 } => "journal superblock: block type {found}, expected 3 or 4";
    Jbd2BlockSize { found: u32 } => "journal superblock: s_blocksize {found} is not a power of two in 1024..=65536";
    Jbd2Maxlen { maxlen: u32 } => "journal superblock: s_maxlen {maxlen} is impossible";
    Jbd2First { first: u32, maxlen: u32 }
        => "journal superblock: s_first {first} is not in 1..{maxlen}";
    Jbd2Start { start: u32, maxlen: u32 }
        => "journal superblock: s_start {start} is not in the log of {maxlen} blocks";
    Jbd2Features { incompat: u32 }
        => "journal superblock: checksum features {incompat:#x} exclude each other";
    Jbd2ChecksumType { kind: u8 } => "journal superblock: s_checksum_type {kind} is not 4 (crc32c)";
    Jbd2SuperChecksum { stored: u32, computed: u32 }
        => "journal superblock: checksum {stored:#010x}, computed {computed:#010x}";
    Jbd2FastCommitBlocks { blocks: u32, maxlen: u32 }
        => "journal superblock: s_num_fc_blocks {blocks} leaves no log in {maxlen} blocks";
    Jbd2BlockChecksum { stored: u32, computed: u32 }
        => "journal descriptor or revoke block: checksum {stored:#010x}, computed {computed:#010x}";
    Jbd2CommitChecksum { stored: u32, computed: u32 }
        => "journal commit block: checksum {stored:#010x}, computed {computed:#010x}";
    Jbd2RevokeCount { count: u32 } => "journal revoke block: r_count {count} is impossible";
    FastCommitTag { tag: u16, len: u16 } => "fast commit: tag {tag} with length {len} is malformed";
}
