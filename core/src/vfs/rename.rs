//! `renameat2(2)` (kernel `fs/namei.c`: `do_renameat2`, `vfs_rename`, `lock_rename`).

use super::walk::{LastType, Walk};
use super::{fail, Op, RenameFlags, SysResult, Vfs};
use crate::base::{Errno, Ino};
use crate::fs::common::{FsError, FsResult};
use crate::fs::ext4::{Inode, RenameKind, RenameSide};
use crate::sim::sync::WriteGuard;
use crate::trace::Call;
use std::rc::Rc;

impl Vfs {
    /// `rename(2)` or, with flags, `renameat2(2)`.
    pub async fn rename(&self, old: &[u8], new: &[u8], flags: RenameFlags) -> SysResult<()> {
        let op = self.begin(Call::Rename, Ino(0), 0).await;
        let done = self.do_rename(&op, old, new, flags).await;
        self.end(&op, done)
    }

    async fn do_rename(&self, op: &Op, old: &[u8], new: &[u8], flags: RenameFlags) -> FsResult<()> {
        let exchange = flags.has(RenameFlags::EXCHANGE);
        if flags.0 & !7 != 0 || exchange && flags.0 & 5 != 0 {
            return fail(Errno::EINVAL);
        }
        let from = self.lookup_parent(old).await?;
        let to = self.lookup_parent(new).await?;
        // The root is where the file system is mounted: its name is outside.
        match (from.last == LastType::Root, to.last == LastType::Root) {
            (true, true) => return Ok(()),
            (false, false) => {}
            _ => return fail(Errno::EXDEV),
        }
        if from.last != LastType::Norm {
            return fail(Errno::EBUSY);
        }
        if to.last != LastType::Norm {
            return fail(if flags.has(RenameFlags::NOREPLACE) {
                Errno::EEXIST
            } else {
                Errno::EBUSY
            });
        }
        self.want_write()?;
        let locks = self.lock_rename(&from.dir, &to.dir).await?;
        let source = self.lookup_in(&from.dir, from.name()).await?;
        let source = source.ok_or(FsError::Errno(Errno::ENOENT))?;
        op.ino.set(source.ino);
        let target = self.lookup_in(&to.dir, to.name()).await?;
        self.may_rename(&from, &to, &source, target.as_ref(), flags)
            .await?;
        if target.as_ref().is_some_and(|t| Rc::ptr_eq(t, &source)) {
            return Ok(());
        }
        self.rename_checks(&from, &to, &source, target.as_ref(), exchange)?;
        let kids = self.lock_two(&source, target.as_ref()).await;
        self.rename_inodes(&from, &to, &source, target.as_ref(), flags)
            .await?;
        let gone = self.rename_names(&from, &to, &source, target.as_ref(), flags);
        drop(kids);
        drop(locks);
        for inode in gone.into_iter().flatten() {
            self.fs.iput(inode).await?;
        }
        Ok(())
    }

    /// Locks both directories, ancestors first.
    async fn lock_rename(
        &self,
        a: &Rc<Inode>,
        b: &Rc<Inode>,
    ) -> FsResult<(WriteGuard, Option<WriteGuard>)> {
        if Rc::ptr_eq(a, b) {
            return Ok((a.rwsem.write().await, None));
        }
        let b_first = self.is_ancestor(b, a).await?;
        let (first, second) = if b_first { (b, a) } else { (a, b) };
        let guard = first.rwsem.write().await;
        Ok((guard, Some(second.rwsem.write().await)))
    }

    /// True if `above` is `below` or one of the directories it lies in.
    async fn is_ancestor(&self, above: &Rc<Inode>, below: &Rc<Inode>) -> FsResult<bool> {
        let mut at = Rc::clone(below);
        loop {
            if at.ino == above.ino {
                return Ok(true);
            }
            if at.ino == Ino(2) {
                return Ok(false);
            }
            at = self.parent_of(&at).await?;
        }
    }

    /// The checks of `do_renameat2`, in its order.
    async fn may_rename(
        &self,
        from: &Walk<'_>,
        to: &Walk<'_>,
        source: &Rc<Inode>,
        target: Option<&Rc<Inode>>,
        flags: RenameFlags,
    ) -> FsResult<()> {
        let exchange = flags.has(RenameFlags::EXCHANGE);
        if flags.has(RenameFlags::NOREPLACE) && target.is_some() {
            return fail(Errno::EEXIST);
        }
        if exchange {
            let target = target.ok_or(FsError::Errno(Errno::ENOENT))?;
            if !target.is_dir() && to.slash {
                return fail(Errno::ENOTDIR);
            }
        }
        if !source.is_dir() && (from.slash || !exchange && to.slash) {
            return fail(Errno::ENOTDIR);
        }
        if source.is_dir() && self.is_ancestor(source, &to.dir).await? {
            return fail(Errno::EINVAL);
        }
        if let Some(target) = target.filter(|t| t.is_dir()) {
            if self.is_ancestor(target, &from.dir).await? {
                return fail(if exchange {
                    Errno::EINVAL
                } else {
                    Errno::ENOTEMPTY
                });
            }
        }
        Ok(())
    }

    /// The checks of `vfs_rename`.
    fn rename_checks(
        &self,
        from: &Walk<'_>,
        to: &Walk<'_>,
        source: &Rc<Inode>,
        target: Option<&Rc<Inode>>,
        exchange: bool,
    ) -> FsResult<()> {
        self.may_delete(&from.dir, source, source.is_dir())?;
        match target {
            Some(t) if exchange => self.may_delete(&to.dir, t, t.is_dir()),
            Some(t) => self.may_delete(&to.dir, t, source.is_dir()),
            None if to.dir.core.borrow().nlink == 0 => fail(Errno::ENOENT),
            None => Ok(()),
        }
    }

    async fn lock_two(
        &self,
        source: &Rc<Inode>,
        target: Option<&Rc<Inode>>,
    ) -> (WriteGuard, Option<WriteGuard>) {
        // Directories before files, lower numbers first.
        let rank = |i: &Rc<Inode>| (!i.is_dir(), i.ino);
        match target {
            Some(t) if rank(t) < rank(source) => {
                let guard = t.rwsem.write().await;
                (source.rwsem.write().await, Some(guard))
            }
            Some(t) => {
                let guard = source.rwsem.write().await;
                (guard, Some(t.rwsem.write().await))
            }
            None => (source.rwsem.write().await, None),
        }
    }

    async fn rename_inodes(
        &self,
        from: &Walk<'_>,
        to: &Walk<'_>,
        source: &Rc<Inode>,
        target: Option<&Rc<Inode>>,
        flags: RenameFlags,
    ) -> FsResult<()> {
        let old = RenameSide {
            dir: &from.dir,
            name: from.name(),
        };
        let new = RenameSide {
            dir: &to.dir,
            name: to.name(),
        };
        match target {
            Some(t) if flags.has(RenameFlags::EXCHANGE) => {
                self.fs.cross_rename(old, source, new, t).await
            }
            _ => {
                let kind = if flags.has(RenameFlags::WHITEOUT) {
                    RenameKind::Whiteout
                } else {
                    RenameKind::Plain
                };
                self.fs.rename(old, source, new, target, kind).await
            }
        }
    }

    /// Lets the cache of names follow. References of names that are gone are returned.
    fn rename_names(
        &self,
        from: &Walk<'_>,
        to: &Walk<'_>,
        source: &Rc<Inode>,
        target: Option<&Rc<Inode>>,
        flags: RenameFlags,
    ) -> [Option<Rc<Inode>>; 2] {
        let set = |w: &Walk<'_>, inode| self.dcache.set(w.dir.ino, w.name(), inode);
        if flags.has(RenameFlags::EXCHANGE) {
            // The two references change places.
            drop(set(from, target.cloned()));
            drop(set(to, Some(Rc::clone(source))));
            return [None, None];
        }
        let kept = set(from, None);
        if flags.has(RenameFlags::WHITEOUT) {
            self.dcache.forget(from.dir.ino, from.name());
        }
        if let Some(t) = target.filter(|t| t.is_dir()) {
            self.dcache.forget_parent(t.ino);
        }
        [set(to, kept), None]
    }
}
