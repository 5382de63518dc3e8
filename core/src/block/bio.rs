//! Bios: what the layers above ask of the device.

use super::queue::Batch;
use crate::base::payload::PAGE_SIZE;
use crate::base::{Ino, Lba, Payload, Tid};
use std::fmt;
use std::ops::{BitOr, BitOrAssign};
use std::rc::Rc;

/// Bytes per sector.
pub const SECTOR_SIZE: u64 = 512;

/// Operation of a bio (kernel `REQ_OP_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Op {
    /// Read.
    Read,
    /// Write.
    Write,
    /// Empty the volatile cache; no sectors.
    Flush,
    /// Write zeroes without moving data.
    WriteZeroes,
    /// The contents are not needed any more.
    Discard,
}

impl Op {
    /// True if it changes the device.
    pub fn is_write(self) -> bool {
        matches!(self, Op::Write | Op::WriteZeroes | Op::Discard)
    }
}

/// Flags of a bio (kernel `REQ_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct BioFlags(pub u8);

impl BioFlags {
    /// None.
    pub const NONE: BioFlags = BioFlags(0);
    /// `REQ_PREFLUSH`: empty the volatile cache first.
    pub const PREFLUSH: BioFlags = BioFlags(1);
    /// `REQ_FUA`: durable when it is done.
    pub const FUA: BioFlags = BioFlags(2);
    /// `REQ_META`.
    pub const META: BioFlags = BioFlags(4);
    /// `REQ_SYNC`: somebody waits for it.
    pub const SYNC: BioFlags = BioFlags(8);
    /// `REQ_RAHEAD`: read-ahead.
    pub const RAHEAD: BioFlags = BioFlags(16);
    /// `REQ_PRIO`.
    pub const PRIO: BioFlags = BioFlags(32);
    /// `REQ_BACKGROUND`: writeback nobody waits for.
    pub const BACKGROUND: BioFlags = BioFlags(64);
    /// `REQ_NOUNMAP`: write-zeroes must leave the blocks allocated on the medium.
    pub const NOUNMAP: BioFlags = BioFlags(128);

    /// True if all flags of `other` are set.
    pub const fn has(self, other: BioFlags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Without the flags of `other`.
    #[must_use]
    pub const fn without(self, other: BioFlags) -> BioFlags {
        BioFlags(self.0 & !other.0)
    }
}

impl BitOr for BioFlags {
    type Output = BioFlags;
    fn bitor(self, rhs: BioFlags) -> BioFlags {
        BioFlags(self.0 | rhs.0)
    }
}

impl BitOrAssign for BioFlags {
    fn bitor_assign(&mut self, rhs: BioFlags) {
        self.0 |= rhs.0;
    }
}

macro_rules! roles {
    ($($(#[$m:meta])* $name:ident = $text:literal, $class:ident;)*) => {
        /// What a block is for: the ledger's and the map's colours.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Role { $($(#[$m])* $name,)* }

        impl Role {
            /// All roles.
            pub const ALL: &'static [Role] = &[$(Role::$name,)*];

            /// Name in reports.
            pub fn name(self) -> &'static str {
                match self { $(Role::$name => $text,)* }
            }

            /// Class in the kernel-lab results.
            pub fn class(self) -> Class {
                match self { $(Role::$name => Class::$class,)* }
            }
        }
    };
}

roles! {
    /// Unknown.
    #[default]
    Other = "other", Other;
    /// Superblock or one of its copies.
    Super = "superblock", SbGdt;
    /// Group descriptors, also reserved ones.
    Gdt = "group descriptors", SbGdt;
    /// Block or inode bitmap.
    Bitmap = "bitmaps", Bitmap;
    /// Inode table.
    Itable = "inode tables", Itable;
    /// Directory.
    Dir = "directories", Dirext;
    /// Extent tree or indirect block.
    Extent = "extent trees", Dirext;
    /// Extended attributes.
    Xattr = "extended attributes", Dirext;
    /// Symbolic link block.
    Symlink = "symbolic links", Dirext;
    /// Journal superblock.
    JournalSuper = "journal superblock", Journal;
    /// Journal descriptor block.
    JournalDescriptor = "journal descriptors", Journal;
    /// Copy of a metadata block in the log.
    JournalMeta = "journal metadata copies", Journal;
    /// Copy of a file block in the log.
    JournalFileData = "journal data copies", Journal;
    /// Revoke block.
    JournalRevoke = "journal revokes", Journal;
    /// Commit block.
    JournalCommit = "journal commits", Journal;
    /// Fast-commit block.
    JournalFast = "fast commits", Journal;
    /// Any other block of the journal (zeroing, reading the log).
    JournalOther = "journal, other", Journal;
    /// File contents.
    FileData = "file data", Data;
    /// Orphan file.
    Orphan = "orphan file", Data;
}

/// Classes of kernel-lab's `io_by_class`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Class {
    /// The journal inode.
    Journal,
    /// Superblocks and group descriptors.
    SbGdt,
    /// Bitmaps.
    Bitmap,
    /// Inode tables.
    Itable,
    /// Directories, extent trees, xattrs, symlinks.
    Dirext,
    /// File contents.
    Data,
    /// The rest.
    Other,
}

impl Class {
    /// All classes.
    pub const ALL: [Class; 7] = [
        Class::Journal,
        Class::SbGdt,
        Class::Bitmap,
        Class::Itable,
        Class::Dirext,
        Class::Data,
        Class::Other,
    ];

    /// Name in kernel-lab results.
    pub fn name(self) -> &'static str {
        match self {
            Class::Journal => "journal",
            Class::SbGdt => "sb_gdt",
            Class::Bitmap => "bitmap",
            Class::Itable => "itable",
            Class::Dirext => "dirext",
            Class::Data => "data",
            Class::Other => "other",
        }
    }
}

/// Contents of a bio: one payload per unit.
#[derive(Clone, Debug, Default)]
pub enum Payloads {
    /// No contents (reads, flushes, zeroing).
    #[default]
    None,
    /// One unit.
    One(Payload),
    /// Many units.
    Many(Vec<Payload>),
}

impl Payloads {
    /// Number of units.
    pub fn len(&self) -> usize {
        match self {
            Payloads::None => 0,
            Payloads::One(_) => 1,
            Payloads::Many(v) => v.len(),
        }
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The units.
    pub fn as_slice(&self) -> &[Payload] {
        match self {
            Payloads::None => &[],
            Payloads::One(p) => std::slice::from_ref(p),
            Payloads::Many(v) => v,
        }
    }

    /// The first unit, zero if there is none.
    pub fn into_one(self) -> Payload {
        match self {
            Payloads::None => Payload::Zero,
            Payloads::One(p) => p,
            Payloads::Many(v) => v.into_iter().next().unwrap_or(Payload::Zero),
        }
    }

    /// The units as a vector.
    pub fn into_vec(self) -> Vec<Payload> {
        match self {
            Payloads::None => Vec::new(),
            Payloads::One(p) => vec![p],
            Payloads::Many(v) => v,
        }
    }
}

impl From<Payload> for Payloads {
    fn from(p: Payload) -> Payloads {
        Payloads::One(p)
    }
}

impl From<Vec<Payload>> for Payloads {
    fn from(v: Vec<Payload>) -> Payloads {
        Payloads::Many(v)
    }
}

/// Why a request failed. Made by `fault` and by requests that do not fit the device only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoError {
    /// The medium failed (`BLK_STS_MEDIUM`).
    Medium,
    /// The device did not answer (`BLK_STS_TIMEOUT`).
    Timeout,
    /// The device is gone (`BLK_STS_OFFLINE`).
    Removed,
    /// Outside of the device or misaligned (`BLK_STS_INVAL`).
    BadRequest,
    /// The device does not have that operation (`BLK_STS_NOTSUPP`).
    NotSupported,
}

impl fmt::Display for IoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            IoError::Medium => "medium error",
            IoError::Timeout => "timeout",
            IoError::Removed => "device removed",
            IoError::BadRequest => "request outside of the device",
            IoError::NotSupported => "operation not supported by the device",
        })
    }
}

/// Result of a bio; reads give payloads.
pub type IoResult = Result<Payloads, IoError>;

/// A request to the device as the layers above make it (kernel `struct bio`).
#[derive(Clone, Debug)]
pub struct Bio {
    /// Operation.
    pub op: Op,
    /// First sector.
    pub lba: Lba,
    /// Number of sectors; 0 for an empty flush.
    pub sectors: u32,
    /// Bytes per payload: 512 to 4096, a power of two.
    pub unit: u16,
    /// Physical segments, for the device's limit; one per payload unless the pages are contiguous in memory.
    pub segments: u16,
    /// Contents of a write.
    pub payloads: Payloads,
    /// Flags.
    pub flags: BioFlags,
    /// Purpose.
    pub role: Role,
    /// Inode it belongs to, 0 if none.
    pub ino: Ino,
    /// Transaction it belongs to, 0 if none.
    pub tid: Tid,
}

impl Bio {
    fn new(op: Op, lba: Lba, sectors: u32, unit: u16, role: Role) -> Bio {
        Bio {
            op,
            lba,
            sectors,
            unit,
            segments: 1,
            payloads: Payloads::None,
            flags: BioFlags::NONE,
            role,
            ino: Ino(0),
            tid: Tid(0),
        }
    }

    /// Reads `count` units of `unit` bytes.
    pub fn read(lba: Lba, count: u32, unit: u32, role: Role) -> Bio {
        let sectors = (u64::from(count) * u64::from(unit) / SECTOR_SIZE) as u32;
        let mut bio = Bio::new(Op::Read, lba, sectors, unit as u16, role);
        bio.segments = count.clamp(1, u32::from(u16::MAX)) as u16;
        bio
    }

    /// Writes payloads of `unit` bytes each.
    pub fn write(lba: Lba, unit: u32, payloads: impl Into<Payloads>, role: Role) -> Bio {
        let payloads = payloads.into();
        let count = payloads.len() as u64;
        let sectors = (count * u64::from(unit) / SECTOR_SIZE) as u32;
        let mut bio = Bio::new(Op::Write, lba, sectors, unit as u16, role);
        bio.segments = count.clamp(1, u64::from(u16::MAX)) as u16;
        bio.payloads = payloads;
        bio
    }

    /// An empty flush (`blkdev_issue_flush`): carries PREFLUSH, as in the kernel.
    pub fn flush() -> Bio {
        let mut bio = Bio::new(Op::Flush, Lba(0), 0, PAGE_SIZE as u16, Role::Other);
        bio.flags = BioFlags::PREFLUSH | BioFlags::SYNC;
        bio
    }

    /// Zeroes sectors.
    pub fn write_zeroes(lba: Lba, sectors: u32, role: Role) -> Bio {
        Bio::new(Op::WriteZeroes, lba, sectors, PAGE_SIZE as u16, role)
    }

    /// Discards sectors.
    pub fn discard(lba: Lba, sectors: u32) -> Bio {
        Bio::new(Op::Discard, lba, sectors, PAGE_SIZE as u16, Role::Other)
    }

    /// With flags added.
    #[must_use]
    pub fn flags(mut self, flags: BioFlags) -> Bio {
        self.flags |= flags;
        self
    }

    /// With the inode it belongs to.
    #[must_use]
    pub fn ino(mut self, ino: Ino) -> Bio {
        self.ino = ino;
        self
    }

    /// With the transaction it belongs to.
    #[must_use]
    pub fn tid(mut self, tid: Tid) -> Bio {
        self.tid = tid;
        self
    }

    /// With the number of physical segments (pages that are contiguous in memory count once).
    #[must_use]
    pub fn segments(mut self, segments: u16) -> Bio {
        self.segments = segments.max(1);
        self
    }

    /// Bytes moved or zeroed.
    pub fn bytes(&self) -> u64 {
        u64::from(self.sectors) * SECTOR_SIZE
    }

    /// One past the last sector.
    pub fn end(&self) -> Lba {
        Lba(self.lba.0.saturating_add(u64::from(self.sectors)))
    }
}

/// A bio that was submitted and may be waited for once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the result must be collected with `wait`, or the bio submitted with `submit_detached`"]
pub struct BioId {
    /// Number of the bio within the run, as in events.
    pub number: u64,
    pub(super) slot: u32,
}

/// A handler registered with [`super::Queue::register_end_io`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EndIoId(pub(super) u16);

/// Who is told when a bio is done (kernel `bi_end_io`); called in interrupt context.
pub(super) enum EndIo {
    /// Nobody.
    Detached,
    /// A task calls [`super::Queue::wait`].
    Wait,
    /// A closure.
    Call(Box<dyn FnOnce(IoResult)>),
    /// A registered handler with an argument: no allocation per bio.
    Handler(EndIoId, u64),
    /// One of many that are waited for together.
    Batch(Rc<Batch>),
}
