//! What fsck finds: one kind per check, worded after the subject of e2fsck's message.

use crate::format::Corrupt;
use std::fmt;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Expected after a power cut or while mounted; e2fsck puts it right without asking.
    Note,
    /// Suspicious, but e2fsck accepts it.
    Warning,
    /// The file system is inconsistent.
    Error,
    /// The check could not go on.
    Fatal,
}

impl Severity {
    /// `note`, `warning`, `error` or `fatal`.
    pub fn name(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
            Severity::Fatal => "fatal",
        }
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Pass of e2fsck that reports it, 0 to 5.
    pub pass: u8,
    /// What it is.
    pub kind: FindingKind,
}

impl Finding {
    /// How bad it is.
    pub fn severity(&self) -> Severity {
        self.kind.severity()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

macro_rules! findings {
    ($($severity:ident $name:ident { $($f:ident: $t:ty),* } => $text:literal;)*) => {
        /// Kinds of findings.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum FindingKind {
            $(
                #[doc = $text]
                #[allow(missing_docs, reason = "the text above names every field")]
                $name { $($f: $t),* },
            )*
        }

        impl FindingKind {
            /// How bad it is.
            pub fn severity(&self) -> Severity {
                match self { $(FindingKind::$name { .. } => Severity::$severity,)* }
            }
        }

        impl fmt::Display for FindingKind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $(FindingKind::$name { $($f),* } => write!(f, $text),)* }
            }
        }
    };
}

findings! {
    Fatal SuperBlock { corrupt: Corrupt } => "{corrupt}";
    Error SuperBlockChecksum { corrupt: Corrupt } => "{corrupt}";
    Fatal UnsupportedFeatures { names: String } => "Filesystem has unsupported feature(s): {names}";
    Fatal DeviceTooSmall { blocks: u64, device: u64 }
        => "The filesystem size (according to the superblock) is {blocks} blocks. The physical size of the device is {device} blocks";
    Fatal TooManyFindings { count: u32 } => "More than {count} findings; giving up";
    Fatal TooDamaged { what: &'static str } => "{what} use blocks again and again; giving up";
    Note NotClean {} => "The filesystem was not cleanly unmounted";
    Warning HasErrors { count: u32 } => "The filesystem contains errors noted by the kernel ({count})";
    Note NeedsRecovery {} => "The journal needs recovery";
    Error JournalSuperBlock { corrupt: Corrupt } => "Superblock has an invalid journal: {corrupt}";
    Error JournalInode { ino: u32 } => "Superblock has an invalid journal (inode {ino})";
    Note OrphanInode { ino: u32 } => "Clearing orphaned inode {ino}";
    Error OrphanInvalid { ino: u32 } => "Illegal inode {ino} in orphaned inode list";
    Error OrphanBlock { corrupt: Corrupt } => "Orphan file (inode {corrupt}) is not clean";
    Error GroupChecksum { corrupt: Corrupt } => "{corrupt}";
    Fatal GroupLocation { corrupt: Corrupt } => "{corrupt}";
    Error GroupConflict { group: u32, what: &'static str, block: u64 }
        => "Group {group}'s {what} at {block} conflicts with some other fs block";

    Error RootNotDirectory {} => "Root inode is not a directory";
    Error ReservedInode { ino: u32 } => "Reserved inode {ino} has invalid mode";
    Error ZeroDtime { ino: u32 } => "Deleted inode {ino} has zero dtime";
    Error DtimeSet { ino: u32 } => "Inode {ino} is in use, but has dtime set";
    Error InodeChecksum { ino: u32 } => "Inode {ino} checksum does not match inode";
    Error InodeExtraSize { ino: u32, extra: u16 } => "Inode {ino} has a extra size ({extra}) which is invalid";
    Error InodeMode { ino: u32, mode: u16 } => "Inode {ino} has a bad mode ({mode:o})";
    Error InodeFlags { ino: u32, flags: u32 } => "Inode {ino} has flags ({flags:#x}) that the filesystem does not support";
    Error InodeBlocks { ino: u32, stored: u64, counted: u64 } => "Inode {ino}, i_blocks is {stored}, should be {counted}";
    Error InodeSize { ino: u32, stored: u64, expected: u64 } => "Inode {ino}, i_size is {stored}, should be {expected}";
    Error ExtentNode { ino: u32, corrupt: Corrupt } => "Inode {ino} has an invalid extent node: {corrupt}";
    Error ExtentOrder { ino: u32, lblk: u32 }
        => "Inode {ino}: out of order extents (logical block {lblk})";
    Error IllegalBlock { ino: u32, block: u64 } => "Inode {ino} has illegal block(s) ({block})";
    Error MultiplyClaimed { ino: u32, blocks: String } => "Multiply-claimed block(s) in inode {ino}: {blocks}";
    Error SpecialHasBlocks { ino: u32 } => "Special (device/socket/fifo) inode {ino} has blocks or a size";
    Error Symlink { ino: u32 } => "Symlink inode {ino} is invalid";
    Error InlineData { ino: u32, corrupt: Corrupt } => "Inode {ino} has inline data, but {corrupt}";
    Warning InlineSize { ino: u32, size: u64 } => "Inode {ino} has inline data, but i_size {size} is more than its room";
    Error InodeXattr { ino: u32, corrupt: Corrupt } => "Extended attribute in inode {ino}: {corrupt}";
    Error XattrBlock { ino: u32, corrupt: Corrupt } => "Extended attribute block of inode {ino}: {corrupt}";
    Error XattrBlockLocation { ino: u32, block: u64 } => "Inode {ino} has a bad extended attribute block {block}";
    Error XattrRefcount { block: u64, stored: u32, counted: u32 }
        => "Extended attribute block {block} has reference count {stored}, should be {counted}";
    Error ResizeInode {} => "Resize inode not valid";

    Error DirHole { ino: u32, lblk: u32 } => "Directory inode {ino} has an unallocated block #{lblk}";
    Error DirBlock { ino: u32, lblk: u32, corrupt: Corrupt } => "Directory inode {ino}, block #{lblk}: directory corrupted: {corrupt}";
    Error DirChecksum { ino: u32, lblk: u32 }
        => "Directory inode {ino}, block #{lblk}: directory passes checks but fails checksum";
    Error DirNoTail { ino: u32, lblk: u32 } => "Directory inode {ino}, block #{lblk}: no checksum at end of directory block";
    Error MissingDot { ino: u32 } => "Missing '.' in directory inode {ino}";
    Error BadDot { ino: u32, found: u32 } => "Invalid inode number for '.' in directory inode {ino} ({found})";
    Error MissingDotDot { ino: u32 } => "Missing '..' in directory inode {ino}";
    Error EntryUnused { name: String, dir: u32, ino: u32 }
        => "Entry '{name}' in directory inode {dir} has deleted/unused inode {ino}";
    Error EntryUninit { name: String, dir: u32, ino: u32 }
        => "Entry '{name}' in directory inode {dir} references inode {ino} found in its group's unused inodes area";
    Error EntryBadInode { name: String, dir: u32, ino: u32 }
        => "Entry '{name}' in directory inode {dir} has invalid inode #: {ino}";
    Error EntryType { name: String, dir: u32, stored: u8, expected: u8 }
        => "Entry '{name}' in directory inode {dir} has an incorrect filetype (was {stored}, should be {expected})";
    Error EntryName { name: String, dir: u32 } => "Entry '{name}' in directory inode {dir} has illegal characters in its name";
    Error EntryDirLink { name: String, dir: u32, ino: u32 }
        => "Entry '{name}' in directory inode {dir} is a link to directory inode {ino}";
    Error EntryDuplicate { name: String, dir: u32 } => "Duplicate entry '{name}' in directory inode {dir} found";
    Error Htree { ino: u32, corrupt: Corrupt } => "HTREE directory inode {ino}: {corrupt}";
    Error HtreeHash { ino: u32, lblk: u32, hash: u32 }
        => "HTREE directory inode {ino}: node ({lblk}) has bad min/max hash (entry with {hash:#010x})";
    Error HtreeUnreferenced { ino: u32, lblk: u32 } => "HTREE directory inode {ino}: node ({lblk}) is not referenced";
    Error HtreeTwice { ino: u32, lblk: u32 } => "HTREE directory inode {ino}: node ({lblk}) is referenced twice";

    Error RootMissing {} => "Root inode not allocated";
    Error Unconnected { ino: u32, parent: u32 } => "Unconnected directory inode {ino} (was in inode {parent})";
    Error BadDotDot { ino: u32, found: u32, expected: u32 }
        => "'..' in directory inode {ino} is {found}, should be {expected}";

    Error Unattached { ino: u32 } => "Unattached inode {ino}";
    Error RefCount { ino: u32, stored: u16, counted: u32 } => "Inode {ino} ref count is {stored}, should be {counted}";

    Error BlockBitmap { differences: String } => "Block bitmap differences: {differences}";
    Error InodeBitmap { differences: String } => "Inode bitmap differences: {differences}";
    Error BlockBitmapChecksum { group: u32 } => "Group {group} block bitmap does not match checksum";
    Error InodeBitmapChecksum { group: u32 } => "Group {group} inode bitmap does not match checksum";
    Error BlockBitmapPadding { group: u32 } => "Padding at end of block bitmap is not set (group {group})";
    Error InodeBitmapPadding { group: u32 } => "Padding at end of inode bitmap is not set (group {group})";
    Error GroupFreeBlocks { group: u32, stored: u32, counted: u32 }
        => "Free blocks count wrong for group #{group} ({stored}, counted={counted})";
    Error GroupFreeInodes { group: u32, stored: u32, counted: u32 }
        => "Free inodes count wrong for group #{group} ({stored}, counted={counted})";
    Error GroupDirs { group: u32, stored: u32, counted: u32 }
        => "Directories count wrong for group #{group} ({stored}, counted={counted})";
    Note FreeBlocks { stored: u64, counted: u64 } => "Free blocks count wrong ({stored}, counted={counted})";
    Note FreeInodes { stored: u32, counted: u32 } => "Free inodes count wrong ({stored}, counted={counted})";
}

/// Numbers as e2fsck prints bitmap differences: `+5 -(7--9)`.
#[derive(Debug, Default)]
pub(super) struct Differences {
    text: String,
    run: Option<(char, u64, u64)>,
    count: u32,
}

/// Runs of differences that are spelled out.
const RUNS_MAX: u32 = 100;

impl Differences {
    /// Adds a number: `+` used but not marked, `-` marked but not used.
    pub(super) fn push(&mut self, sign: char, n: u64) {
        match &mut self.run {
            Some((s, _, last)) if *s == sign && *last + 1 == n => *last = n,
            _ => {
                self.flush();
                self.run = Some((sign, n, n));
            }
        }
    }

    fn flush(&mut self) {
        let Some((sign, first, last)) = self.run.take() else {
            return;
        };
        self.count += 1;
        if self.count > RUNS_MAX {
            return;
        }
        if !self.text.is_empty() {
            self.text.push(' ');
        }
        let run = if first == last {
            format!("{sign}{first}")
        } else {
            format!("{sign}({first}--{last})")
        };
        self.text.push_str(&run);
    }

    /// The text, or `None` if there were no differences.
    pub(super) fn finish(mut self) -> Option<String> {
        self.flush();
        if self.count > RUNS_MAX {
            self.text.push_str(" ..");
        }
        (!self.text.is_empty()).then_some(self.text)
    }
}
