//! The closed set of events, packed in records of 32 bytes.

use crate::base::{FsBlock, GroupNo, Ino, Lba, Nanos, Tid};

/// One event as stored: 32 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Record {
    /// Virtual time in nanoseconds.
    pub time: u64,
    /// What caused it: number of the application operation the task works for, 0 if none.
    pub cause: u32,
    /// Task (low 16 bits of its number; 0 is interrupt context).
    pub task: u16,
    /// Kind of event; see [`Event::kind`].
    pub kind: u16,
    /// Packed arguments, low half.
    pub lo: u64,
    /// Packed arguments, high half.
    pub hi: u64,
}

const _: () = assert!(size_of::<Record>() == 32, "records are 32 bytes");

impl Record {
    /// The event, if the kind is known.
    pub fn event(&self) -> Option<Event> {
        Event::unpack(self.kind, u128::from(self.lo) | u128::from(self.hi) << 64)
    }

    /// Virtual time.
    pub fn at(&self) -> Nanos {
        Nanos(self.time)
    }
}

/// An argument of an event, packed in [`Arg::BITS`] bits.
pub trait Arg: Copy {
    /// Width in the record.
    const BITS: u32;
    /// As a number; higher bits are cut off.
    fn pack(self) -> u64;
    /// From a number.
    fn unpack(x: u64) -> Self;
}

macro_rules! args {
    ($($t:ty, $bits:literal, $x:ident, $pack:expr, $unpack:expr;)*) => { $(
        impl Arg for $t {
            const BITS: u32 = $bits;
            #[inline]
            fn pack(self) -> u64 { let $x = self; $pack }
            #[inline]
            fn unpack($x: u64) -> Self { $unpack }
        }
    )* };
}

args! {
    bool, 1, x, u64::from(x), x != 0;
    u8, 8, x, u64::from(x), x as u8;
    u16, 16, x, u64::from(x), x as u16;
    u32, 32, x, u64::from(x), x as u32;
    u64, 64, x, x, x;
    Ino, 32, x, u64::from(x.0), Ino(x as u32);
    Tid, 32, x, u64::from(x.0), Tid(x as u32);
    GroupNo, 32, x, u64::from(x.0), GroupNo(x as u32);
    FsBlock, 48, x, x.0, FsBlock(x);
    Lba, 48, x, x.0, Lba(x);
    Nanos, 64, x, x.0, Nanos(x);
    Call, 8, x, u64::from(x as u8), Call::from_number(x as u8);
}

macro_rules! calls {
    ($($name:ident = $text:literal,)*) => {
        /// System calls and other operations of a program.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "the names are their documentation")]
        #[repr(u8)]
        pub enum Call { $($name,)* }

        impl Call {
            const ALL: &'static [Call] = &[$(Call::$name,)*];

            /// The name, as in `strace`.
            pub fn name(self) -> &'static str {
                match self { $(Call::$name => $text,)* }
            }
        }
    };
}

calls! {
    Other = "other", Open = "open", Close = "close", Read = "pread", Write = "pwrite", Fsync = "fsync",
    Fdatasync = "fdatasync", Syncfs = "syncfs", Truncate = "truncate", Fallocate = "fallocate", Mkdir = "mkdir",
    Rmdir = "rmdir", Create = "creat", Unlink = "unlink", Rename = "rename", Link = "link",
    Symlink = "symlink", Readlink = "readlink", Mknod = "mknod", Chmod = "chmod", Chown = "chown",
    Utimens = "utimensat", Setxattr = "setxattr", Getxattr = "getxattr", Removexattr = "removexattr",
    Listxattr = "listxattr", Stat = "stat", Statx = "statx", Readdir = "readdir", Statfs = "statfs",
    Fadvise = "fadvise", DropCaches = "drop_caches", Chattr = "chattr", Mount = "mount", Umount = "umount",
    Remount = "remount", Mkfs = "mkfs", Sleep = "sleep",
}

impl Call {
    /// From its number; unknown numbers give `Other`.
    pub fn from_number(n: u8) -> Call {
        Call::ALL.get(n as usize).copied().unwrap_or(Call::Other)
    }
}

macro_rules! categories {
    ($($(#[$m:meta])* $name:ident,)*) => {
        /// Family of events; one bit of the masks.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Category { $($(#[$m])* $name,)* }

        impl Category {
            /// All categories.
            pub const ALL: &'static [Category] = &[$(Category::$name,)*];

            /// The name.
            pub fn name(self) -> &'static str {
                match self { $(Category::$name => stringify!($name),)* }
            }
        }
    };
}

categories! {
    /// System calls and promises.
    App,
    /// Folios.
    PageCache,
    /// Handles and transactions.
    Jbd2,
    /// Blocks written to the log.
    Journal,
    /// Checkpointing and the tail.
    Checkpoint,
    /// The lazy inode-table thread.
    Lazyinit,
    /// Bios and requests.
    Device,
    /// Inodes, trees, bitmaps, descriptors.
    Structures,
    /// Replay and mount.
    Recovery,
    /// Power cuts, edits, injected errors.
    Fault,
    /// Tasks and CPUs.
    Sched,
}

impl Category {
    /// Its bit in a mask.
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

macro_rules! events {
    ($($(#[$m:meta])* $cat:ident $name:ident { $($(#[$fm:meta])* $f:ident: $t:ty,)* })*) => {
        /// What happened. Arguments are ids and numbers, never references.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Event { $($(#[$m])* $name { $($(#[$fm])* $f: $t,)* },)* }

        #[repr(u16)]
        enum Kind { $($name,)* }

        $(const _: () = assert!(0 $(+ <$t as Arg>::BITS)* <= 128, "arguments must fit in 16 bytes");)*

        impl Event {
            /// Number of the kind.
            #[inline]
            pub fn kind(&self) -> u16 {
                match self { $(Event::$name { .. } => Kind::$name as u16,)* }
            }

            /// The family it belongs to.
            pub fn category(&self) -> Category {
                match self { $(Event::$name { .. } => Category::$cat,)* }
            }

            /// Name of the kind.
            pub fn name(&self) -> &'static str {
                match self { $(Event::$name { .. } => stringify!($name),)* }
            }

            /// The arguments in 16 bytes.
            #[inline]
            pub fn pack(&self) -> u128 {
                match *self { $(Event::$name { $($f,)* } => {
                    #[allow(unused_mut, reason = "events may have no arguments")]
                    let mut acc = Packer { bits: 0, at: 0 };
                    $(acc.put($f);)*
                    acc.bits
                })* }
            }

            /// The event of a kind and its packed arguments.
            #[allow(unused_mut, unused_variables, reason = "events may have no arguments")]
            pub fn unpack(kind: u16, bits: u128) -> Option<Event> {
                let mut at = Packer { bits, at: 0 };
                $(if kind == Kind::$name as u16 {
                    return Some(Event::$name { $($f: at.take(),)* });
                })*
                None
            }
        }
    };
}

struct Packer {
    bits: u128,
    at: u32,
}

impl Packer {
    #[inline]
    fn put<T: Arg>(&mut self, x: T) {
        let mask = u64::MAX >> (64 - T::BITS);
        self.bits |= u128::from(x.pack() & mask) << self.at;
        self.at += T::BITS;
    }

    fn take<T: Arg>(&mut self) -> T {
        let mask = u64::MAX >> (64 - T::BITS);
        let x = (self.bits >> self.at) as u64 & mask;
        self.at += T::BITS;
        T::unpack(x)
    }
}

events! {
    /// Records were dropped before the next one.
    Fault Gap {
        /// How many.
        records: u64,
    }
    /// A system call begins.
    App OpBegin {
        /// Which.
        call: Call,
        /// Number of the operation.
        op: u32,
        /// Inode, 0 if none.
        ino: Ino,
        /// Offset in 512-byte units.
        sector: Lba,
    }
    /// A system call returns.
    App OpEnd {
        /// Which.
        call: Call,
        /// Linux error number, 0 is success.
        errno: u16,
        /// Number of the operation.
        op: u32,
        /// Inode.
        ino: Ino,
        /// Bytes done.
        bytes: u32,
    }
    /// A call returned that promises durability.
    App Promise {
        /// Which.
        call: Call,
        /// Number of the operation.
        op: u32,
        /// Inode, 0 for the whole file system.
        ino: Ino,
    }
    /// A folio became dirty.
    PageCache FolioDirtied {
        /// Inode.
        ino: Ino,
        /// First page.
        index: u32,
        /// Pages.
        pages: u32,
    }
    /// Delayed allocation got its blocks.
    PageCache DelallocMapped {
        /// Inode.
        ino: Ino,
        /// First file block.
        lblk: u32,
        /// First block.
        pblk: FsBlock,
        /// Blocks.
        len: u16,
    }
    /// Writeback of folios begins.
    PageCache WritebackBegin {
        /// Inode.
        ino: Ino,
        /// First page.
        index: u32,
        /// Pages.
        pages: u32,
    }
    /// Writeback of folios ended.
    PageCache WritebackEnd {
        /// Inode.
        ino: Ino,
        /// First page.
        index: u32,
        /// Pages.
        pages: u32,
        /// Error number.
        errno: u16,
    }
    /// Folios left the cache.
    PageCache FolioDropped {
        /// Inode.
        ino: Ino,
        /// First page.
        index: u32,
        /// Pages.
        pages: u32,
    }
    /// A writer was slowed down.
    PageCache Throttled {
        /// Pause in microseconds.
        pause_us: u32,
        /// Dirty pages.
        dirty: u32,
        /// Hard limit in pages.
        limit: u32,
    }
    /// A handle was started (`jbd2_handle_start`).
    Jbd2 HandleStart {
        /// Transaction.
        tid: Tid,
        /// Type.
        ty: u16,
        /// Credits.
        credits: u32,
    }
    /// A handle was stopped (`jbd2_handle_stats`).
    Jbd2 HandleStop {
        /// Transaction.
        tid: Tid,
        /// Type.
        ty: u16,
        /// Credits asked for.
        requested: u16,
        /// Blocks dirtied.
        dirtied: u16,
        /// Duration in microseconds.
        interval_us: u32,
    }
    /// A task waits to start a handle.
    Jbd2 HandleWait {
        /// Transaction in the way.
        tid: Tid,
        /// 1 log space, 2 locked transaction, 3 full transaction.
        why: u8,
    }
    /// A transaction changed its state.
    Jbd2 TransactionState {
        /// Transaction.
        tid: Tid,
        /// State as in `enum` of jbd2.h: 0 running .. 8 finished.
        state: u8,
        /// Blocks in it.
        blocks: u32,
    }
    /// A block joined a transaction.
    Jbd2 BlockJoined {
        /// Transaction.
        tid: Tid,
        /// Block.
        block: FsBlock,
    }
    /// A block was forgotten by a transaction.
    Jbd2 BlockForgotten {
        /// Transaction.
        tid: Tid,
        /// Block.
        block: FsBlock,
    }
    /// A block was revoked.
    Jbd2 BlockRevoked {
        /// Transaction.
        tid: Tid,
        /// Block.
        block: FsBlock,
    }
    /// A task waits for a commit.
    Jbd2 CommitWait {
        /// Transaction.
        tid: Tid,
    }
    /// A descriptor block was written.
    Journal LogDescriptor {
        /// Transaction.
        tid: Tid,
        /// Journal block.
        jblock: u32,
        /// Tags.
        tags: u32,
    }
    /// A copy of a block was written to the log.
    Journal LogCopy {
        /// Transaction.
        tid: Tid,
        /// Journal block.
        jblock: u32,
        /// Home block.
        home: FsBlock,
        /// Tag flags (1 escaped).
        flags: u16,
    }
    /// A revoke block was written.
    Journal LogRevoke {
        /// Transaction.
        tid: Tid,
        /// Journal block.
        jblock: u32,
        /// Records.
        records: u32,
    }
    /// A commit block was written.
    Journal LogCommit {
        /// Transaction.
        tid: Tid,
        /// Journal block.
        jblock: u32,
    }
    /// The journal superblock was written.
    Journal LogSuperblock {
        /// Tail transaction.
        tid: Tid,
        /// Tail block, 0 if empty.
        start: u32,
    }
    /// A block was picked for checkpointing.
    Checkpoint CheckpointPicked {
        /// Transaction.
        tid: Tid,
        /// Block.
        block: FsBlock,
    }
    /// A block reached its home.
    Checkpoint CheckpointWritten {
        /// Transaction.
        tid: Tid,
        /// Block.
        block: FsBlock,
    }
    /// A block left a checkpoint list.
    Checkpoint CheckpointDropped {
        /// Transaction.
        tid: Tid,
        /// Block.
        block: FsBlock,
    }
    /// The tail of the log moved.
    Checkpoint TailAdvanced {
        /// New tail transaction.
        tid: Tid,
        /// New tail block.
        start: u32,
        /// Blocks freed.
        freed: u32,
    }
    /// Zeroing of a group's inode table begins.
    Lazyinit LazyGroupBegin {
        /// Group.
        group: GroupNo,
    }
    /// Zeroing of a group's inode table ended.
    Lazyinit LazyGroupEnd {
        /// Group.
        group: GroupNo,
        /// Duration.
        took: Nanos,
    }
    /// The thread waits.
    Lazyinit LazyWait {
        /// Next group.
        group: GroupNo,
        /// Duration.
        wait: Nanos,
    }
    /// A bio was submitted.
    Device BioQueued {
        /// Number of the bio.
        bio: u32,
        /// First sector.
        lba: Lba,
        /// Sectors.
        sectors: u32,
        /// Flag bits.
        flags: u8,
        /// Operation and role.
        role: u8,
    }
    /// A bio was merged into a request.
    Device BioMerged {
        /// Number of the bio.
        bio: u32,
        /// First sector.
        lba: Lba,
        /// Sectors.
        sectors: u32,
    }
    /// A request was given to the device.
    Device RequestIssued {
        /// Number of the request.
        request: u32,
        /// First sector.
        lba: Lba,
        /// Sectors.
        sectors: u32,
        /// Operation.
        op: u8,
    }
    /// A request was completed.
    Device RequestDone {
        /// Number of the request.
        request: u32,
        /// First sector.
        lba: Lba,
        /// Sectors.
        sectors: u32,
        /// Operation.
        op: u8,
    }
    /// A write reached the device's volatile cache.
    Device ReachedCache {
        /// Record of the device log.
        record: u32,
        /// First sector.
        lba: Lba,
        /// Sectors.
        sectors: u32,
    }
    /// Writes up to a record of the log reached the medium.
    Device ReachedMedium {
        /// Record of the device log.
        record: u32,
        /// First sector.
        lba: Lba,
        /// Sectors.
        sectors: u32,
    }
    /// The device emptied its cache.
    Device Flushed {
        /// Records made durable.
        records: u32,
        /// Bytes made durable.
        bytes: u64,
    }
    /// A request failed.
    Device RequestFailed {
        /// Number of the request.
        request: u32,
        /// First sector.
        lba: Lba,
        /// Sectors.
        sectors: u32,
        /// Operation.
        op: u8,
    }
    /// An inode's fields changed.
    Structures InodeChanged {
        /// Inode.
        ino: Ino,
        /// Transaction.
        tid: Tid,
        /// Block of the inode table.
        block: FsBlock,
    }
    /// An inode was allocated.
    Structures InodeAllocated {
        /// Inode.
        ino: Ino,
        /// Mode.
        mode: u16,
    }
    /// An inode was freed.
    Structures InodeFreed {
        /// Inode.
        ino: Ino,
    }
    /// Blocks were allocated.
    Structures BlocksAllocated {
        /// Inode.
        ino: Ino,
        /// First block.
        block: FsBlock,
        /// Blocks.
        len: u32,
        /// 1 if metadata.
        meta: u8,
    }
    /// Blocks were freed.
    Structures BlocksFreed {
        /// Inode.
        ino: Ino,
        /// First block.
        block: FsBlock,
        /// Blocks.
        len: u32,
    }
    /// A node of an extent tree was split or the tree grew.
    Structures ExtentSplit {
        /// Inode.
        ino: Ino,
        /// New depth.
        depth: u8,
        /// New block.
        block: FsBlock,
    }
    /// A leaf of a directory index was split.
    Structures HtreeSplit {
        /// Inode.
        ino: Ino,
        /// New file block.
        lblk: u32,
        /// Levels.
        levels: u8,
    }
    /// A bitmap or group descriptor changed.
    Structures GroupChanged {
        /// Group.
        group: GroupNo,
        /// Free blocks.
        free_blocks: u32,
        /// Free inodes.
        free_inodes: u32,
        /// Flags.
        flags: u16,
    }
    /// A checksum did not match.
    Structures ChecksumFailed {
        /// Block.
        block: FsBlock,
        /// Inode, 0 if none.
        ino: Ino,
    }
    /// The scan of the log passed a block.
    Recovery ScanStep {
        /// Transaction.
        tid: Tid,
        /// Journal block.
        jblock: u32,
        /// Block type.
        ty: u8,
    }
    /// A revoke record was found.
    Recovery RevokeFound {
        /// Transaction.
        tid: Tid,
        /// Block.
        block: FsBlock,
    }
    /// A block was copied home.
    Recovery Replayed {
        /// Transaction.
        tid: Tid,
        /// Journal block.
        jblock: u32,
        /// Home block.
        home: FsBlock,
    }
    /// The scan ended.
    Recovery ScanStopped {
        /// First transaction not replayed.
        tid: Tid,
        /// Journal block.
        jblock: u32,
        /// 0 magic, 1 sequence, 2 checksum, 3 end of log.
        why: u8,
    }
    /// An orphan was cleaned up.
    Recovery OrphanProcessed {
        /// Inode.
        ino: Ino,
        /// 1 truncated, 0 deleted.
        truncated: u8,
    }
    /// A mount ended.
    Recovery MountDone {
        /// Linux error number, 0 is success.
        errno: u16,
        /// Transactions replayed.
        replayed: u32,
    }
    /// The power was cut.
    Fault PowerCut {
        /// Loss model: 0 none, 1 all, 2 seeded, 3 chosen, 4 prefix.
        model: u8,
        /// Writes lost.
        lost: u32,
    }
    /// A block was edited from outside.
    Fault Edited {
        /// First sector.
        lba: Lba,
        /// Sectors.
        sectors: u32,
    }
    /// An I/O error was injected.
    Fault ErrorInjected {
        /// First sector.
        lba: Lba,
        /// Sectors.
        sectors: u32,
        /// Operation.
        op: u8,
    }
    /// A task got a CPU.
    Sched TaskOnCpu {
        /// Task.
        id: u32,
        /// CPU.
        cpu: u8,
    }
    /// A task lost its CPU to another.
    Sched TaskPreempted {
        /// Task.
        id: u32,
        /// CPU.
        cpu: u8,
    }
    /// A task blocked; `why` and `what` as packed by `sim`.
    Sched TaskBlocked {
        /// Task.
        id: u32,
        /// Wait reason.
        why: u8,
        /// Its number.
        what: u64,
    }
    /// A task became runnable.
    Sched TaskWoken {
        /// Task.
        id: u32,
    }
    /// A task started.
    Sched TaskStarted {
        /// Task.
        id: u32,
    }
    /// A task ended.
    Sched TaskEnded {
        /// Task.
        id: u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_round_trips_with_random_arguments() {
        let mut rng = crate::base::rng::SplitMix64::new(1);
        let mut kinds = 0;
        for kind in 0..u16::MAX {
            let bits = u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
            let Some(e) = Event::unpack(kind, bits) else {
                break;
            };
            kinds += 1;
            assert_eq!(e.kind(), kind);
            assert_eq!(Event::unpack(kind, e.pack()), Some(e));
        }
        assert!(kinds > 50);
    }
}
