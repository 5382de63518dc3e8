//! ext4: the mounted file system and its inodes.
//!
//! This file holds the central types; one file per concern beside it carries the kernel's names. It knows the
//! journal, the buffer cache and the page cache below, and neither system calls nor path names above.
//!
//! Invariants:
//! 1. Metadata changes happen under a handle, after `get_write_access` and before `dirty_metadata`.
//! 2. `Inode::core` is the truth of an inode in memory; its itable buffer is written by `mark_inode_dirty` only.
//! 3. No `RefCell` borrow is held across an `.await`.
//! 4. A block is free in the buddy of its group only if no committed or running transaction still needs it.

mod acl;
mod attr;
pub mod balloc;
pub mod cost;
mod credits;
mod da;
mod dir;
mod dirblock;
mod direct;
mod dx;
mod dx_node;
mod errors;
mod ext4_jbd2;
mod extent_node;
mod extents;
mod extents_remove;
mod extents_shift;
mod extents_split;
pub mod extents_status;
mod fallocate;
mod fast_commit;
mod fc_replay;
pub mod file;
pub mod fsck;
mod fsync;
pub mod geometry;
mod groups;
mod ialloc;
mod indirect;
mod inline;
mod inline_dir;
mod inode;
mod jdata;
pub mod lazyinit;
mod map_blocks;
mod mballoc;
mod mballoc_buddy;
mod mballoc_free;
mod mballoc_pa;
mod mballoc_scan;
pub mod mkfs;
mod mount_checks;
mod mount_ops;
mod namei;
pub mod options;
mod orphan;
mod page_io;
mod percpu_counter;
mod readdir;
pub mod reader;
mod readpage;
mod rename;
pub mod stats;
mod super_block;
mod symlink;
mod system_zone;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_fc;
#[cfg(test)]
mod tests_file;
mod time;
mod truncate;
mod truncate_blocks;
mod write_begin;
mod writepages;
mod xattr;
mod xattr_area;
mod xattr_block;

use self::percpu_counter::PercpuCounter;
use crate::base::rng::SplitMix64;
use crate::base::{Ino, Lblk, Nanos, Tid};
use crate::block::Queue;
use crate::format::ext4::{CsumCtx, SuperBlock};
use crate::fs::jbd2::{JInode, Journal};
use crate::mm::buffer::{Buffer, BufferCache};
use crate::mm::{AddressSpace, Vm};
use crate::sim::sync::{RwLock, WaitQueue};
use crate::sim::Sim;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak};

pub use crate::format::ext4::xattr as xattr_names;
pub use acl::{Acl, AclType};
pub use attr::Attr;
pub use balloc::FreeFlags;
pub use cost::CostTable;
pub use ext4_jbd2::{InodeJournalMode, OrphanSlot};
pub use extents_status::{EsStatus, ExtentStatus};
pub use geometry::Geometry;
pub use map_blocks::{MapFlags, MapRequest, Mapping, MappingKind};
pub use options::{AtimeMode, DataMode, ErrorsPolicy, IVersionMode, MountOptions};
pub use readdir::{DirBatch, DirItem, DirPos};
pub use rename::{RenameKind, RenameSide};
pub use stats::Stats;
pub use super_block::{MountConfig, StatFs};
pub use xattr::{XattrFlag, XATTR_SIZE_MAX};

/// A point in time: seconds since 1970 and nanoseconds in the second.
pub type Ts = (i64, u32);

/// A mounted ext4 (kernel `ext4_sb_info` with its `super_block`).
pub struct Ext4 {
    /// Clock, tasks, random streams.
    pub sim: Sim,
    /// The device's request queue.
    pub queue: Rc<Queue>,
    /// Buffer cache of the device.
    pub buffers: Rc<BufferCache>,
    /// Page cache accounting and flusher.
    pub vm: Rc<Vm>,
    /// Mount options in force.
    pub opts: RefCell<MountOptions>,
    /// The superblock as it will be written next (kernel `s_es`).
    pub sb: RefCell<SuperBlock>,
    /// Numbers that never change while mounted.
    pub geo: Geometry,
    /// Parameters of all metadata checksums.
    pub csum: CsumCtx,
    /// What operations cost in CPU time (modelled).
    pub cost: CostTable,
    /// What happened so far.
    pub stats: Stats,
    pub(crate) me: Weak<Ext4>,
    pub(crate) journal: RefCell<Option<Rc<Journal>>>,
    pub(crate) sbh: Rc<Buffer>,
    pub(crate) sb_offset: usize,
    pub(crate) ea_block_cache: xattr_block::BlockCache,
    pub(crate) sampled: Cell<bool>,
    pub(crate) mount_point: String,
    pub(crate) groups: groups::Groups,
    pub(crate) mb: mballoc::MbState,
    pub(crate) fc: fast_commit::FcState,
    pub(crate) icache: RefCell<BTreeMap<Ino, Rc<Inode>>>,
    pub(crate) orphans: orphan::OrphanState,
    pub(crate) lazyinit: lazyinit::LazyInit,
    pub(crate) zone: RefCell<system_zone::SystemZone>,
    pub(crate) clock: time::Clock,
    pub(crate) generation: RefCell<SplitMix64>,
    /// Free clusters (kernel `s_freeclusters_counter`).
    pub(crate) free_clusters: PercpuCounter,
    /// Clusters promised to delayed allocation (kernel `s_dirtyclusters_counter`).
    pub(crate) dirty_clusters: PercpuCounter,
    pub(crate) free_inodes: Cell<i64>,
    pub(crate) dirs: Cell<i64>,
    pub(crate) resv_clusters: Cell<u64>,
    /// Overhead in clusters that statfs subtracts.
    pub(crate) overhead: Cell<u64>,
    pub(crate) icache_wait: WaitQueue,
    pub(crate) journal_inode: RefCell<Option<Rc<Inode>>>,
    /// Data mode in force.
    pub(crate) data_mode: Cell<DataMode>,
    pub(crate) errors: Cell<ErrorsPolicy>,
    /// Dead after `errors=panic`.
    pub(crate) shutdown: Cell<bool>,
    /// An error made the file system read-only (`EXT4_FLAGS_EMERGENCY_RO`).
    pub(crate) emergency_ro: Cell<bool>,
    /// `s_state` to restore at umount (kernel `s_mount_state`).
    pub(crate) mount_state: Cell<u16>,
    pub(crate) kbytes_written_base: Cell<u64>,
    pub(crate) sectors_written_start: Cell<u64>,
    /// Mounted for writing (not `SB_RDONLY`).
    pub(crate) writable: Cell<bool>,
    pub(crate) file: page_io::FileLayer,
    /// Kernel `s_writepages_rwsem`.
    pub writepages_rwsem: RwLock,
}

/// An inode in memory (kernel `ext4_inode_info` with its `inode`).
pub struct Inode {
    /// Its number.
    pub ino: Ino,
    /// `i_rwsem`.
    pub rwsem: RwLock,
    /// `i_data_sem`: mapping of the file.
    pub i_data_sem: RwLock,
    /// `xattr_sem`.
    pub xattr_sem: RwLock,
    /// What the on-disk inode holds.
    pub core: RefCell<InodeCore>,
    /// Extent status tree.
    pub es: RefCell<ExtentStatus>,
    /// Page cache of the file.
    pub mapping: AddressSpace,
    /// `i_disksize`: the size that is (to be) on disk.
    pub disksize: Cell<u64>,
    /// Last transaction that an fsync must wait for.
    pub sync_tid: Cell<Tid>,
    /// Last transaction that an fdatasync must wait for.
    pub datasync_tid: Cell<Tid>,
    /// `I_*` and `EXT4_STATE_*` bits, see [`state`].
    pub state: Cell<u32>,
    /// Clusters reserved for delayed allocation (`i_reserved_data_blocks`).
    pub reserved_blocks: Cell<u64>,
    /// References (`i_count`).
    pub refs: Cell<u32>,
    /// Open writers (`i_writecount`).
    pub writers: Cell<u32>,
    /// The journal's view of the inode, once it had ordered data.
    pub jinode: RefCell<Option<Rc<JInode>>>,
    /// Group the inode lies in.
    pub block_group: u32,
    /// Flex group last used for a directory's children (`i_last_alloc_group`).
    pub last_alloc_group: Cell<Option<u32>>,
    /// Someone read ctime or mtime since the last change (multigrain timestamps).
    pub ctime_queried: Cell<bool>,
    /// Someone read the change counter since the last increase.
    pub iversion_queried: Cell<bool>,
    /// Where lookup in a directory left off (`i_dir_start_lookup`).
    pub dir_start_lookup: Cell<u32>,
    pub(crate) pas: RefCell<Vec<Rc<mballoc_pa::Prealloc>>>,
    pub(crate) orphan: Cell<OrphanSlot>,
    /// First time the inode became dirty only by its timestamps (`dirtied_time_when`).
    pub(crate) dirtied_time_when: Cell<Nanos>,
}

/// Fields of an on-disk inode, decoded, without checksum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InodeCore {
    /// Type and permission bits.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Project.
    pub projid: u32,
    /// Hard links.
    pub nlink: u32,
    /// `i_size`.
    pub size: u64,
    /// Access time.
    pub atime: Ts,
    /// Inode change time.
    pub ctime: Ts,
    /// Content change time.
    pub mtime: Ts,
    /// Birth time.
    pub crtime: Ts,
    /// Deletion time, or next orphan.
    pub dtime: u32,
    /// `EXT4_*_FL`, see [`flag`].
    pub flags: u32,
    /// Generation number.
    pub generation: u32,
    /// Space in units of 512 bytes.
    pub blocks: u64,
    /// Block of extended attributes, or 0.
    pub file_acl: u64,
    /// Change counter.
    pub version: u64,
    /// Block map, extent root, fast symlink or device number.
    pub i_block: [u8; 60],
    /// Bytes of the fields past the first 128 (`i_extra_isize`).
    pub extra_isize: u16,
    /// Rest of the inode: in-inode extended attributes.
    pub ibody: Vec<u8>,
}

impl Default for InodeCore {
    fn default() -> InodeCore {
        InodeCore {
            mode: 0,
            uid: 0,
            gid: 0,
            projid: 0,
            nlink: 0,
            size: 0,
            atime: (0, 0),
            ctime: (0, 0),
            mtime: (0, 0),
            crtime: (0, 0),
            dtime: 0,
            flags: 0,
            generation: 0,
            blocks: 0,
            file_acl: 0,
            version: 0,
            i_block: [0; 60],
            extra_isize: 0,
            ibody: Vec::new(),
        }
    }
}

/// Bits of [`Inode::state`].
pub mod state {
    /// Metadata must be written (`I_DIRTY_SYNC`).
    pub const DIRTY_SYNC: u32 = 1;
    /// Metadata that fdatasync needs must be written (`I_DIRTY_DATASYNC`).
    pub const DIRTY_DATASYNC: u32 = 1 << 1;
    /// Pages are dirty (`I_DIRTY_PAGES`).
    pub const DIRTY_PAGES: u32 = 1 << 2;
    /// Only timestamps are dirty (`I_DIRTY_TIME`).
    pub const DIRTY_TIME: u32 = 1 << 3;
    /// Not yet usable (`I_NEW`).
    pub const NEW: u32 = 1 << 4;
    /// Being evicted (`I_FREEING`).
    pub const FREEING: u32 = 1 << 5;
    /// Created in this mount (`EXT4_STATE_NEW`).
    pub const EXT4_NEW: u32 = 1 << 8;
    /// The inode body holds extended attributes (`EXT4_STATE_XATTR`).
    pub const XATTR: u32 = 1 << 9;
    /// No room to expand the extra fields (`EXT4_STATE_NO_EXPAND`).
    pub const NO_EXPAND: u32 = 1 << 10;
    /// Allocate delayed blocks when closed (`EXT4_STATE_DA_ALLOC_CLOSE`).
    pub const DA_ALLOC_CLOSE: u32 = 1 << 11;
    /// Extents are being migrated.
    pub const EXT_MIGRATE: u32 = 1 << 12;
    /// The last block was precached (`EXT4_STATE_EXT_PRECACHED`).
    pub const EXT_PRECACHED: u32 = 1 << 13;
    /// The inode body may hold inline contents (`EXT4_STATE_MAY_INLINE_DATA`).
    pub const MAY_INLINE_DATA: u32 = 1 << 14;
    /// On the orphan file's list.
    pub const ORPHAN_FILE: u32 = 1 << 15;
    /// A fast commit cannot cover this inode's changes.
    pub const FC_INELIGIBLE: u32 = 1 << 16;
    /// The last directory lookup found nothing: next create may skip.
    pub const NEWENTRY: u32 = 1 << 17;
}

/// On-disk inode flags (`EXT4_*_FL`).
pub mod flag {
    /// Secure deletion.
    pub const SECRM: u32 = 0x1;
    /// Synchronous updates.
    pub const SYNC: u32 = 0x8;
    /// May not change.
    pub const IMMUTABLE: u32 = 0x10;
    /// May only grow.
    pub const APPEND: u32 = 0x20;
    /// Not dumped.
    pub const NODUMP: u32 = 0x40;
    /// Access time is not kept.
    pub const NOATIME: u32 = 0x80;
    /// Directory with an htree.
    pub const INDEX: u32 = 0x1000;
    /// Contents are journalled.
    pub const JOURNAL_DATA: u32 = 0x4000;
    /// Tail merging off.
    pub const NOTAIL: u32 = 0x8000;
    /// Directory changes are synchronous.
    pub const DIRSYNC: u32 = 0x10000;
    /// Top of a hierarchy (Orlov).
    pub const TOPDIR: u32 = 0x20000;
    /// `i_blocks` counts file system blocks.
    pub const HUGE_FILE: u32 = 0x40000;
    /// Mapped by extents.
    pub const EXTENTS: u32 = 0x80000;
    /// Holds an xattr value.
    pub const EA_INODE: u32 = 0x200000;
    /// Contents in the inode.
    pub const INLINE_DATA: u32 = 0x1000_0000;
    /// Children get the same project.
    pub const PROJINHERIT: u32 = 0x2000_0000;
    /// Flags a regular file inherits (`EXT4_FL_INHERITED`).
    pub const INHERITED: u32 = 0x1
        | 0x2
        | 0x4
        | SYNC
        | NODUMP
        | NOATIME
        | 0x400
        | JOURNAL_DATA
        | NOTAIL
        | DIRSYNC
        | PROJINHERIT
        | 0x4000_0000
        | 0x0200_0000;
    /// Of those, what regular files may have.
    pub const REG_MASK: u32 = !(DIRSYNC | TOPDIR | 0x4000_0000 | PROJINHERIT);
    /// Of those, what others may have.
    pub const OTHER_MASK: u32 = NODUMP | NOATIME;
}

/// File type bits of `i_mode`.
pub mod mode {
    /// Mask.
    pub const S_IFMT: u32 = 0o170_000;
    /// Regular file.
    pub const S_IFREG: u32 = 0o100_000;
    /// Directory.
    pub const S_IFDIR: u32 = 0o040_000;
    /// Symbolic link.
    pub const S_IFLNK: u32 = 0o120_000;
    /// Character device.
    pub const S_IFCHR: u32 = 0o020_000;
    /// Block device.
    pub const S_IFBLK: u32 = 0o060_000;
    /// Pipe.
    pub const S_IFIFO: u32 = 0o010_000;
    /// Socket.
    pub const S_IFSOCK: u32 = 0o140_000;
}

impl Inode {
    /// `i_size`.
    pub fn size(&self) -> u64 {
        self.core.borrow().size
    }

    /// Sets `i_size` (not `i_disksize`).
    pub fn set_size(&self, size: u64) {
        self.core.borrow_mut().size = size;
    }

    /// `i_mode`.
    pub fn mode(&self) -> u32 {
        self.core.borrow().mode
    }

    /// Regular file.
    pub fn is_reg(&self) -> bool {
        self.mode() & mode::S_IFMT == mode::S_IFREG
    }

    /// Directory.
    pub fn is_dir(&self) -> bool {
        self.mode() & mode::S_IFMT == mode::S_IFDIR
    }

    /// Symbolic link.
    pub fn is_lnk(&self) -> bool {
        self.mode() & mode::S_IFMT == mode::S_IFLNK
    }

    /// True if all bits of `f` are set in `i_flags`.
    pub fn has_flag(&self, f: u32) -> bool {
        self.core.borrow().flags & f == f
    }

    /// Sets or clears bits of `i_flags`.
    pub fn set_flag(&self, f: u32, on: bool) {
        let mut core = self.core.borrow_mut();
        if on {
            core.flags |= f;
        } else {
            core.flags &= !f;
        }
    }

    /// True if any bit of `s` is set in the state.
    pub fn has_state(&self, s: u32) -> bool {
        self.state.get() & s != 0
    }

    /// Sets or clears state bits.
    pub fn set_state(&self, s: u32, on: bool) {
        let old = self.state.get();
        self.state.set(if on { old | s } else { old & !s });
    }

    /// First logical block past `i_size` for blocks of `1 << bits` bytes.
    pub fn end_lblk(&self, bits: u32) -> Lblk {
        let blocks = self.size().div_ceil(1 << bits);
        Lblk(u32::try_from(blocks).unwrap_or(u32::MAX))
    }
}
