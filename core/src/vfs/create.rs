//! Calls that make names: mkdir, mknod, symlink, link (kernel `fs/namei.c`: `filename_create` and what uses it).

use super::walk::{LastType, Walk};
use super::{fail, Op, SysResult, Vfs};
use crate::base::{Errno, Ino};
use crate::fs::common::{FsError, FsResult};
use crate::fs::ext4::{flag, mode, Inode};
use crate::trace::Call;
use std::rc::Rc;

impl Vfs {
    /// `filename_create` after the walk, with the directory's lock held: the name must be new. Errors in the kernel's
    /// order: EEXIST, ENOENT for a trailing slash, EROFS.
    async fn may_make(&self, w: &Walk<'_>, want_dir: bool) -> FsResult<()> {
        if self.lookup_in(&w.dir, w.name()).await?.is_some() {
            return fail(Errno::EEXIST);
        }
        if w.slash && !want_dir {
            return fail(Errno::ENOENT);
        }
        self.want_write()?;
        if w.dir.core.borrow().nlink == 0 {
            return fail(Errno::ENOENT);
        }
        if w.dir.has_flag(flag::IMMUTABLE) {
            return fail(Errno::EPERM);
        }
        Ok(())
    }

    /// Enters what was made in the cache of names, which takes over its reference.
    async fn instantiate(&self, dir: &Rc<Inode>, name: &[u8], inode: Rc<Inode>) -> FsResult<()> {
        if let Some(old) = self.dcache.set(dir.ino, name, Some(inode)) {
            self.fs.iput(old).await?;
        }
        Ok(())
    }

    /// `mkdir(2)`; `perm` loses all but the permission and sticky bits.
    pub async fn mkdir(&self, path: &[u8], perm: u32) -> SysResult<()> {
        let op = self.begin(Call::Mkdir, Ino(0), 0).await;
        let done = self.do_mkdir(&op, path, perm).await;
        self.end(&op, done)
    }

    async fn do_mkdir(&self, op: &Op, path: &[u8], perm: u32) -> FsResult<()> {
        let w = self.lookup_parent(path).await?;
        if w.last != LastType::Norm {
            return fail(Errno::EEXIST);
        }
        let _lock = w.dir.rwsem.write().await;
        self.may_make(&w, true).await?;
        let inode = self.fs.mkdir(&w.dir, w.name(), perm & 0o1777).await?;
        op.ino.set(inode.ino);
        self.instantiate(&w.dir, w.name(), inode).await
    }

    /// `mknod(2)`: `i_mode` has type and permissions; type 0 is a regular file.
    pub async fn mknod(&self, path: &[u8], i_mode: u32, rdev: (u32, u32)) -> SysResult<()> {
        let op = self.begin(Call::Mknod, Ino(0), 0).await;
        let done = self.do_mknod(&op, path, i_mode, rdev).await;
        self.end(&op, done)
    }

    async fn do_mknod(&self, op: &Op, path: &[u8], i_mode: u32, rdev: (u32, u32)) -> FsResult<()> {
        let i_mode = match i_mode & mode::S_IFMT {
            0 => i_mode | mode::S_IFREG,
            mode::S_IFREG | mode::S_IFCHR | mode::S_IFBLK | mode::S_IFIFO | mode::S_IFSOCK => {
                i_mode
            }
            mode::S_IFDIR => return fail(Errno::EPERM),
            _ => return fail(Errno::EINVAL),
        };
        let w = self.lookup_parent(path).await?;
        if w.last != LastType::Norm {
            return fail(Errno::EEXIST);
        }
        let _lock = w.dir.rwsem.write().await;
        self.may_make(&w, false).await?;
        let inode = self.fs.mknod(&w.dir, w.name(), i_mode, rdev).await?;
        op.ino.set(inode.ino);
        self.instantiate(&w.dir, w.name(), inode).await
    }

    /// `symlink(2)`.
    pub async fn symlink(&self, target: &[u8], path: &[u8]) -> SysResult<()> {
        let op = self.begin(Call::Symlink, Ino(0), 0).await;
        let done = self.do_symlink(&op, target, path).await;
        self.end(&op, done)
    }

    async fn do_symlink(&self, op: &Op, target: &[u8], path: &[u8]) -> FsResult<()> {
        match target.len() {
            0 => return fail(Errno::ENOENT),
            4096.. => return fail(Errno::ENAMETOOLONG),
            _ => {}
        }
        let w = self.lookup_parent(path).await?;
        if w.last != LastType::Norm {
            return fail(Errno::EEXIST);
        }
        let _lock = w.dir.rwsem.write().await;
        self.may_make(&w, false).await?;
        let inode = self.fs.symlink(&w.dir, w.name(), target).await?;
        op.ino.set(inode.ino);
        self.instantiate(&w.dir, w.name(), inode).await
    }

    /// `link(2)`: a final symbolic link of `old` is not followed.
    pub async fn link(&self, old: &[u8], new: &[u8]) -> SysResult<()> {
        let op = self.begin(Call::Link, Ino(0), 0).await;
        let done = self.do_link(&op, old, new).await;
        self.end(&op, done)
    }

    async fn do_link(&self, op: &Op, old: &[u8], new: &[u8]) -> FsResult<()> {
        let inode = self.lookup_path(old, false).await?;
        op.ino.set(inode.ino);
        self.fs.igrab(&inode);
        let done = self.link_inode(&inode, new).await;
        if done.is_err() {
            self.fs.iput(inode).await?;
        }
        done
    }

    async fn link_inode(&self, inode: &Rc<Inode>, new: &[u8]) -> FsResult<()> {
        let w = self.lookup_parent(new).await?;
        if w.last != LastType::Norm {
            return fail(Errno::EEXIST);
        }
        let _lock = w.dir.rwsem.write().await;
        self.may_make(&w, false).await?;
        if inode.has_flag(flag::IMMUTABLE) || inode.has_flag(flag::APPEND) || inode.is_dir() {
            return fail(Errno::EPERM);
        }
        let _file_lock = inode.rwsem.write().await;
        if inode.core.borrow().nlink == 0 {
            return Err(FsError::Errno(Errno::ENOENT));
        }
        self.fs.link(inode, &w.dir, w.name()).await?;
        self.instantiate(&w.dir, w.name(), Rc::clone(inode)).await
    }

    /// Makes a regular file in a directory whose lock is held, as `open` with `O_CREAT` does.
    pub(super) async fn create_in(
        &self,
        dir: &Rc<Inode>,
        name: &[u8],
        perm: u32,
    ) -> FsResult<Rc<Inode>> {
        if dir.core.borrow().nlink == 0 {
            return fail(Errno::ENOENT);
        }
        if dir.has_flag(flag::IMMUTABLE) {
            return fail(Errno::EPERM);
        }
        let inode = self.fs.create(dir, name, perm & 0o7777).await?;
        self.instantiate(dir, name, Rc::clone(&inode)).await?;
        Ok(inode)
    }
}
