//! Calls that take names away: unlink, rmdir (kernel `fs/namei.c`: `do_unlinkat`, `do_rmdir`, `may_delete`).

use super::walk::LastType;
use super::{fail, Op, SysResult, Vfs};
use crate::base::{Errno, Ino};
use crate::fs::common::{FsError, FsResult};
use crate::fs::ext4::{flag, Inode};
use crate::trace::Call;
use std::rc::Rc;

impl Vfs {
    /// The checks of `may_delete` for root.
    pub(super) fn may_delete(&self, dir: &Inode, victim: &Inode, as_dir: bool) -> FsResult<()> {
        if dir.has_flag(flag::IMMUTABLE) || dir.has_flag(flag::APPEND) {
            return fail(Errno::EPERM);
        }
        if victim.has_flag(flag::IMMUTABLE) || victim.has_flag(flag::APPEND) {
            return fail(Errno::EPERM);
        }
        match (as_dir, victim.is_dir()) {
            (true, false) => fail(Errno::ENOTDIR),
            (false, true) => fail(Errno::EISDIR),
            _ if victim.ino == Ino(2) => fail(Errno::EBUSY),
            _ => Ok(()),
        }
    }

    /// `unlink(2)`.
    pub async fn unlink(&self, path: &[u8]) -> SysResult<()> {
        let op = self.begin(Call::Unlink, Ino(0), 0).await;
        let done = self.do_unlink(&op, path).await;
        self.end(&op, done)
    }

    async fn do_unlink(&self, op: &Op, path: &[u8]) -> FsResult<()> {
        let w = self.lookup_parent(path).await?;
        if w.last != LastType::Norm {
            return fail(Errno::EISDIR);
        }
        self.want_write()?;
        let lock = w.dir.rwsem.write().await;
        let found = self.lookup_in(&w.dir, w.name()).await?;
        let inode = found.ok_or(FsError::Errno(Errno::ENOENT))?;
        op.ino.set(inode.ino);
        if w.slash {
            return fail(if inode.is_dir() {
                Errno::EISDIR
            } else {
                Errno::ENOTDIR
            });
        }
        self.may_delete(&w.dir, &inode, false)?;
        {
            let _file_lock = inode.rwsem.write().await;
            self.fs.unlink(&w.dir, w.name(), &inode).await?;
        }
        let old = self.dcache.set(w.dir.ino, w.name(), None);
        drop(lock);
        self.put_name(old).await
    }

    /// Gives back the reference of a name that is gone; the last one removes the file.
    pub(super) async fn put_name(&self, old: Option<Rc<Inode>>) -> FsResult<()> {
        match old {
            Some(inode) => self.fs.iput(inode).await,
            None => Ok(()),
        }
    }

    /// `rmdir(2)`.
    pub async fn rmdir(&self, path: &[u8]) -> SysResult<()> {
        let op = self.begin(Call::Rmdir, Ino(0), 0).await;
        let done = self.do_rmdir(&op, path).await;
        self.end(&op, done)
    }

    async fn do_rmdir(&self, op: &Op, path: &[u8]) -> FsResult<()> {
        let w = self.lookup_parent(path).await?;
        match w.last {
            LastType::DotDot => return fail(Errno::ENOTEMPTY),
            LastType::Dot => return fail(Errno::EINVAL),
            LastType::Root => return fail(Errno::EBUSY),
            LastType::Norm => {}
        }
        self.want_write()?;
        let lock = w.dir.rwsem.write().await;
        let found = self.lookup_in(&w.dir, w.name()).await?;
        let inode = found.ok_or(FsError::Errno(Errno::ENOENT))?;
        op.ino.set(inode.ino);
        self.may_delete(&w.dir, &inode, true)?;
        {
            let _dir_lock = inode.rwsem.write().await;
            self.fs.rmdir(&w.dir, w.name(), &inode).await?;
        }
        let old = self.dcache.set(w.dir.ino, w.name(), None);
        self.dcache.forget_parent(inode.ino);
        drop(lock);
        self.put_name(old).await
    }
}
