//! Calls on attributes: stat, statx, chmod, chown, utimensat, readlink, chattr (kernel `fs/stat.c`, `fs/open.c`,
//! `fs/utimes.c`).

use super::{fail, Fd, Op, Stat, SysResult, Timespec, Vfs};
use crate::base::{Errno, Ino};
use crate::fs::common::FsResult;
use crate::fs::ext4::{flag, Inode};
use crate::trace::Call;
use std::rc::Rc;

/// Bits of `statx(2)` masks (`linux/stat.h`).
mod statx {
    pub(super) const MTIME: u32 = 0x40;
    pub(super) const CTIME: u32 = 0x80;
    pub(super) const BASIC_STATS: u32 = 0x7ff;
    pub(super) const BTIME: u32 = 0x800;
    pub(super) const MNT_ID: u32 = 0x1000;
    pub(super) const DIOALIGN: u32 = 0x2000;
    pub(super) const MNT_ID_UNIQUE: u32 = 0x4000;
    pub(super) const WRITE_ATOMIC: u32 = 0x1_0000;
    pub(super) const RESERVED: u32 = 0x8000_0000;
}

impl Vfs {
    fn stat_inode(&self, inode: &Inode) -> Stat {
        let a = self.fs.getattr(inode, true);
        let time = |(secs, nsec)| Timespec { secs, nsec };
        Stat {
            ino: a.ino,
            mode: a.mode,
            nlink: a.nlink,
            uid: a.uid,
            gid: a.gid,
            size: a.size,
            blocks: a.blocks,
            rdev: a.rdev,
            atime: time(a.atime),
            mtime: time(a.mtime),
            ctime: time(a.ctime),
            btime: time(a.crtime),
        }
    }

    /// `lstat(2)`.
    pub async fn lstat(&self, path: &[u8]) -> SysResult<Stat> {
        let op = self.begin(Call::Stat, Ino(0), 0).await;
        let done = self.lookup_path(path, false).await.map(|inode| {
            op.ino.set(inode.ino);
            self.stat_inode(&inode)
        });
        self.end(&op, done)
    }

    /// `fstat(2)`.
    pub async fn fstat(&self, fd: Fd) -> SysResult<Stat> {
        let op = self.begin(Call::Stat, Ino(0), 0).await;
        let done = self.files.get(fd).map(|file| {
            op.ino.set(file.inode.ino);
            self.stat_inode(&file.inode)
        });
        self.end(&op, done)
    }

    fn statx_inode(&self, inode: &Inode, mask: u32) -> u32 {
        let times = mask & (statx::CTIME | statx::MTIME) != 0;
        self.fs.getattr(inode, times);
        let mut result = statx::BASIC_STATS;
        if !times {
            result &= !(statx::CTIME | statx::MTIME);
        }
        if mask & statx::BTIME != 0 && self.fs.has_crtime(inode) {
            result |= statx::BTIME;
        }
        if inode.is_reg() {
            result |= mask & (statx::DIOALIGN | statx::WRITE_ATOMIC);
        }
        result
            | if mask & statx::MNT_ID_UNIQUE == 0 {
                statx::MNT_ID
            } else {
                statx::MNT_ID_UNIQUE
            }
    }

    /// `statx(2)` with `AT_SYMLINK_NOFOLLOW`: the mask that comes back.
    pub async fn statx(&self, path: &[u8], mask: u32) -> SysResult<u32> {
        let op = self.begin(Call::Statx, Ino(0), 0).await;
        let done = if mask & statx::RESERVED == 0 {
            self.lookup_path(path, false).await.map(|inode| {
                op.ino.set(inode.ino);
                self.statx_inode(&inode, mask)
            })
        } else {
            fail(Errno::EINVAL)
        };
        self.end(&op, done)
    }

    /// `statx(2)` of an open file.
    pub async fn statx_fd(&self, fd: Fd, mask: u32) -> SysResult<u32> {
        let op = self.begin(Call::Statx, Ino(0), 0).await;
        let done = if mask & statx::RESERVED == 0 {
            self.files.get(fd).map(|file| {
                op.ino.set(file.inode.ino);
                self.statx_inode(&file.inode, mask)
            })
        } else {
            fail(Errno::EINVAL)
        };
        self.end(&op, done)
    }

    /// The inode of a path for a change of its attributes, referenced.
    async fn attr_target(&self, op: &Op, path: &[u8], follow: bool) -> FsResult<Rc<Inode>> {
        let inode = self.lookup_path(path, follow).await?;
        op.ino.set(inode.ino);
        self.want_write()?;
        self.fs.igrab(&inode);
        Ok(inode)
    }

    /// `chmod(2)`: links are followed.
    pub async fn chmod(&self, path: &[u8], perm: u32) -> SysResult<()> {
        let op = self.begin(Call::Chmod, Ino(0), 0).await;
        let done = match self.attr_target(&op, path, true).await {
            Ok(inode) => {
                let lock = inode.rwsem.write().await;
                let done = self.fs.setattr_mode(&inode, perm).await;
                drop(lock);
                self.put_after(inode, done).await
            }
            Err(e) => Err(e),
        };
        self.end(&op, done)
    }

    async fn put_after<T>(&self, inode: Rc<Inode>, done: FsResult<T>) -> FsResult<T> {
        let put = self.fs.iput(inode).await;
        let value = done?;
        put?;
        Ok(value)
    }

    /// `lchown(2)`: links are not followed; `u32::MAX` leaves an id alone.
    pub async fn lchown(&self, path: &[u8], uid: u32, gid: u32) -> SysResult<()> {
        let op = self.begin(Call::Chown, Ino(0), 0).await;
        let id = |n: u32| Some(n).filter(|n| *n != u32::MAX);
        let done = match self.attr_target(&op, path, false).await {
            Ok(inode) => {
                let lock = inode.rwsem.write().await;
                let done = self.fs.setattr_owner(&inode, id(uid), id(gid)).await;
                drop(lock);
                self.put_after(inode, done).await
            }
            Err(e) => Err(e),
        };
        self.end(&op, done)
    }

    /// `utimensat(2)` with `AT_SYMLINK_NOFOLLOW`.
    pub async fn utimensat(&self, path: &[u8], atime: Timespec, mtime: Timespec) -> SysResult<()> {
        let op = self.begin(Call::Utimens, Ino(0), 0).await;
        let ts = |t: Timespec| (t.secs, t.nsec);
        let done = match self.attr_target(&op, path, false).await {
            Ok(inode) => {
                let lock = inode.rwsem.write().await;
                let done = self.fs.setattr_times(&inode, ts(atime), ts(mtime)).await;
                drop(lock);
                self.put_after(inode, done).await
            }
            Err(e) => Err(e),
        };
        self.end(&op, done)
    }

    /// `readlink(2)`.
    pub async fn readlink(&self, path: &[u8]) -> SysResult<Vec<u8>> {
        let op = self.begin(Call::Readlink, Ino(0), 0).await;
        let done = self.do_readlink(&op, path).await;
        self.end(&op, done)
    }

    async fn do_readlink(&self, op: &Op, path: &[u8]) -> FsResult<Vec<u8>> {
        let inode = self.lookup_path(path, false).await?;
        op.ino.set(inode.ino);
        if !inode.is_lnk() {
            return fail(Errno::EINVAL);
        }
        self.fs.igrab(&inode);
        let touched = self.fs.touch_atime(&inode).await;
        debug_assert!(touched.is_ok(), "errors of access times are swallowed");
        let done = self.fs.get_link(&inode).await;
        self.put_after(inode, done).await
    }

    /// `FS_IOC_SETFLAGS`: inode flags as `chattr(1)` sets them.
    pub async fn chattr(&self, path: &[u8], flags: u32) -> SysResult<()> {
        let op = self.begin(Call::Chattr, Ino(0), 0).await;
        let done = match self.attr_target(&op, path, true).await {
            Ok(inode) => {
                let lock = inode.rwsem.write().await;
                let done = self.do_chattr(&inode, flags).await;
                drop(lock);
                self.put_after(inode, done).await
            }
            Err(e) => Err(e),
        };
        self.end(&op, done)
    }

    async fn do_chattr(&self, inode: &Rc<Inode>, flags: u32) -> FsResult<()> {
        let journal = flags & flag::JOURNAL_DATA;
        if inode.is_reg() && journal != inode.core.borrow().flags & flag::JOURNAL_DATA {
            self.fs
                .change_inode_journal_flag(inode, journal != 0)
                .await?;
        }
        self.fs.setattr_flags(inode, flags).await
    }
}
