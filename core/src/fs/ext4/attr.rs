//! Attributes of inodes: mode, owner, times, flags (kernel `fs/ext4/inode.c`: `ext4_setattr` without the size,
//! `ext4_getattr`, `ext4_dirty_inode`; `fs/inode.c`: `touch_atime`).

use super::namei::decode_dev;
use super::{flag, mode, AtimeMode, Ext4, Inode, Ts};
use crate::base::{Errno, Ino};
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::HandleType;

/// Attributes as `stat` shows them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attr {
    /// Number.
    pub ino: Ino,
    /// Type and permission bits.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Length in bytes.
    pub size: u64,
    /// Space in 512-byte units with what delayed allocation has reserved.
    pub blocks: u64,
    /// (major, minor) of a device node.
    pub rdev: (u32, u32),
    /// Access time.
    pub atime: Ts,
    /// Content change time.
    pub mtime: Ts,
    /// Inode change time.
    pub ctime: Ts,
    /// Birth time; zero where the inode is too small for it.
    pub crtime: Ts,
}

/// Flags that `chattr` may change (`EXT4_FL_USER_MODIFIABLE`, less what needs unsupported features).
const USER_MODIFIABLE: u32 = flag::SECRM
    | 0x2
    | flag::SYNC
    | flag::IMMUTABLE
    | flag::APPEND
    | flag::NODUMP
    | flag::NOATIME
    | flag::JOURNAL_DATA
    | flag::NOTAIL
    | flag::DIRSYNC
    | flag::TOPDIR
    | flag::PROJINHERIT;

impl Inode {
    /// True if the inode may have extended attributes at all.
    pub(crate) fn has_xattrs(&self) -> bool {
        let core = self.core.borrow();
        core.file_acl != 0 || core.ibody.iter().take(4).any(|b| *b != 0)
    }
}

impl Ext4 {
    /// Attributes of `inode`; `query_times` if ctime and mtime are looked at (multigrain timestamps).
    pub fn getattr(&self, inode: &Inode, query_times: bool) -> Attr {
        if query_times {
            self.query_cmtime(inode);
        }
        let core = inode.core.borrow();
        let delalloc = inode.reserved_blocks.get() * u64::from(self.geo.cluster_ratio);
        let mut blocks = core.blocks + delalloc * u64::from(self.geo.block_size / 512);
        if core.flags & flag::INLINE_DATA != 0 {
            blocks += core.size.div_ceil(512);
        }
        let device = matches!(core.mode & mode::S_IFMT, mode::S_IFCHR | mode::S_IFBLK);
        Attr {
            ino: inode.ino,
            mode: core.mode,
            nlink: core.nlink,
            uid: core.uid,
            gid: core.gid,
            size: core.size,
            blocks,
            rdev: if device {
                decode_dev(&core.i_block)
            } else {
                (0, 0)
            },
            atime: core.atime,
            mtime: core.mtime,
            ctime: core.ctime,
            crtime: core.crtime,
        }
    }

    /// True if the inode on disk has room for a birth time.
    pub fn has_crtime(&self, inode: &Inode) -> bool {
        inode.core.borrow().extra_isize >= 24
    }

    /// Sets the permission bits. The caller holds `i_rwsem`.
    pub async fn setattr_mode(&self, inode: &Inode, perm: u32) -> FsResult<()> {
        self.may_setattr(inode)?;
        let i_mode = {
            let mut core = inode.core.borrow_mut();
            core.mode = core.mode & !0o7777 | perm & 0o7777;
            core.mode
        };
        self.inc_iversion(inode);
        self.inode_set_ctime_current(inode);
        self.dirty_inode(inode).await?;
        self.acl_chmod(inode, i_mode).await
    }

    /// Sets the owner, as root; clears set-id bits of what is no directory.
    pub async fn setattr_owner(
        &self,
        inode: &Inode,
        uid: Option<u32>,
        gid: Option<u32>,
    ) -> FsResult<()> {
        self.may_setattr(inode)?;
        let (old_uid, old_gid) = {
            let core = inode.core.borrow();
            (core.uid, core.gid)
        };
        let (new_uid, new_gid) = (uid.unwrap_or(old_uid), gid.unwrap_or(old_gid));
        if (new_uid, new_gid) != (old_uid, old_gid) {
            let mut h = self.journal_start(HandleType::Quota, 3).await?;
            {
                let mut core = inode.core.borrow_mut();
                core.uid = new_uid;
                core.gid = new_gid;
            }
            let done = self.mark_inode_dirty(&mut h, inode).await;
            self.end_handle(h, done).await?;
        }
        if !inode.is_dir() {
            let mut core = inode.core.borrow_mut();
            core.mode &= !0o4000;
            if core.mode & 0o2010 == 0o2010 {
                core.mode &= !0o2000;
            }
        }
        self.inc_iversion(inode);
        self.inode_set_ctime_current(inode);
        self.dirty_inode(inode).await
    }

    /// Sets access and modification time, cut to what the inode can hold.
    pub async fn setattr_times(&self, inode: &Inode, atime: Ts, mtime: Ts) -> FsResult<()> {
        self.may_setattr(inode)?;
        {
            let mut core = inode.core.borrow_mut();
            core.atime = self.timestamp_truncate(atime);
            core.mtime = self.timestamp_truncate(mtime);
        }
        self.inc_iversion(inode);
        self.inode_set_ctime_current(inode);
        self.dirty_inode(inode).await
    }

    fn may_setattr(&self, inode: &Inode) -> FsResult<()> {
        if inode.has_flag(flag::IMMUTABLE) || inode.has_flag(flag::APPEND) {
            return Err(FsError::Errno(Errno::EPERM));
        }
        Ok(())
    }

    /// Clamps to what inodes of this file system hold (kernel `timestamp_truncate`): 128-byte inodes have whole
    /// seconds of 32 bits, larger ones nanoseconds and 34 bits.
    pub fn timestamp_truncate(&self, (secs, nsec): Ts) -> Ts {
        let min = i64::from(i32::MIN);
        let large = self.geo.inode_size > 128;
        let max = if large {
            (1i64 << 34) - 1 + min
        } else {
            i64::from(i32::MAX)
        };
        let secs = secs.clamp(min, max);
        let whole = secs == min || secs == max || !large;
        (secs, if whole { 0 } else { nsec })
    }

    /// Notes a read access, as the mount options say (kernel `touch_atime`).
    pub async fn touch_atime(&self, inode: &Inode) -> FsResult<()> {
        if !self.atime_needs_update(inode) {
            return Ok(());
        }
        let now = self.timestamp_truncate(self.coarse_ts());
        inode.core.borrow_mut().atime = now;
        if self.opts.borrow().lazytime {
            self.mark_dirty_time(inode);
            return Ok(());
        }
        // An aborted journal must not fail a read.
        let _ = self.dirty_inode(inode).await;
        Ok(())
    }

    fn atime_needs_update(&self, inode: &Inode) -> bool {
        let opts = self.opts.borrow();
        if !self.writable.get() || opts.atime == AtimeMode::Never || inode.has_flag(flag::NOATIME) {
            return false;
        }
        if opts.nodiratime && inode.is_dir() {
            return false;
        }
        let now = self.timestamp_truncate(self.coarse_ts());
        let core = inode.core.borrow();
        let stale = core.mtime >= core.atime
            || core.ctime >= core.atime
            || now.0 - core.atime.0 >= 24 * 60 * 60;
        (opts.atime == AtimeMode::Strict || stale) && core.atime != now
    }

    /// Changes inode flags as `chattr` does (kernel `ext4_ioctl_setflags`), except `EXTENTS` and `JOURNAL_DATA`
    /// side effects, which the caller makes.
    pub async fn setattr_flags(&self, inode: &Inode, flags: u32) -> FsResult<()> {
        let mut allowed = USER_MODIFIABLE;
        if !inode.is_dir() {
            allowed &= if inode.is_reg() {
                flag::REG_MASK
            } else {
                flag::OTHER_MASK
            };
        }
        let mut h = self.journal_start(HandleType::Inode, 1).await?;
        {
            let mut core = inode.core.borrow_mut();
            core.flags = core.flags & !USER_MODIFIABLE | flags & allowed;
        }
        self.inode_set_ctime_current(inode);
        self.inc_iversion(inode);
        let done = self.mark_inode_dirty(&mut h, inode).await;
        self.end_handle(h, done).await
    }
}
