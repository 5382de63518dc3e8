//! Rename (kernel `fs/ext4/namei.c`: `ext4_rename`, `ext4_cross_rename`).
//!
//! The caller holds `i_rwsem` of both directories and of the inodes involved, and has made the checks of `vfs_rename`.

use super::dir::{DirSlot, NewEntry, Place};
use super::dirblock;
use super::namei::{INDEX_EXTRA_TRANS_BLOCKS, XATTR_TRANS_BLOCKS};
use super::{flag, mode, Ext4, Inode};
use crate::base::Errno;
use crate::format::ext4::dirent::{dirent_at, EXT4_FT_CHRDEV};
use crate::format::{Corrupt, CorruptKind};
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::{Handle, HandleType};
use std::rc::Rc;

/// One side of a rename (kernel `struct ext4_renament`).
pub struct RenameSide<'a> {
    /// Directory.
    pub dir: &'a Rc<Inode>,
    /// Name in it.
    pub name: &'a [u8],
}

/// What to do with the old name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameKind {
    /// It goes away.
    Plain,
    /// A character device 0:0 takes its place.
    Whiteout,
}

struct Ent<'a> {
    dir: &'a Rc<Inode>,
    name: &'a [u8],
    inode: &'a Rc<Inode>,
    slot: DirSlot,
    is_dir: bool,
    dotdot: Option<DirSlot>,
}

fn stale() -> FsError {
    FsError::Errno(Errno::ENOENT)
}

impl Ext4 {
    async fn renament<'a>(&self, side: &RenameSide<'a>, inode: &'a Rc<Inode>) -> FsResult<Ent<'a>> {
        let slot = self.find_entry(side.dir, side.name).await?;
        let slot = slot.filter(|s| s.ino == inode.ino.0).ok_or_else(stale)?;
        Ok(Ent {
            dir: side.dir,
            name: side.name,
            inode,
            slot,
            is_dir: inode.is_dir(),
            dotdot: None,
        })
    }

    /// Gives `inode` the name `new` instead of `old`; `target` is what `new` named so far.
    pub async fn rename(
        &self,
        old: RenameSide<'_>,
        inode: &Rc<Inode>,
        new: RenameSide<'_>,
        target: Option<&Rc<Inode>>,
        kind: RenameKind,
    ) -> FsResult<()> {
        if target.is_some_and(|t| t.core.borrow().nlink == 0) {
            let kind = CorruptKind::DirentInode {
                ino: inode.ino.0,
                max: self.geo.inodes_count,
            };
            return Err(Corrupt::new(kind, 0).into());
        }
        if self.other_project(new.dir, inode) {
            return Err(FsError::Errno(Errno::EXDEV));
        }
        let mut old = self.renament(&old, inode).await?;
        let new_slot = match target {
            Some(_) => self.find_entry(new.dir, new.name).await?,
            None => None,
        };
        if target.is_some() && self.opts.borrow().auto_da_alloc {
            self.alloc_da_blocks(inode).await?;
        }
        let credits = 2 * self.data_trans_blocks() + INDEX_EXTRA_TRANS_BLOCKS + 2;
        let (mut h, whiteout) = self.rename_start(&old, credits, kind).await?;
        self.dirsync(&mut h, old.dir, new.dir);
        let done = self
            .rename_locked(
                &mut h,
                &mut old,
                &new,
                (target, new_slot),
                whiteout.as_ref(),
            )
            .await;
        if done.is_err() {
            self.undo_whiteout(&mut h, &old, whiteout.as_ref()).await;
        }
        if let Some(w) = &whiteout {
            self.unlock_new_inode(w);
        }
        let done = self.end_handle(h, done).await;
        if let Some(w) = whiteout {
            self.iput(w).await?;
        }
        done
    }

    fn other_project(&self, dir: &Inode, inode: &Inode) -> bool {
        dir.has_flag(flag::PROJINHERIT) && dir.core.borrow().projid != inode.core.borrow().projid
    }

    fn dirsync(&self, h: &mut Handle, a: &Inode, b: &Inode) {
        let sync = |d: &Inode| d.has_flag(flag::DIRSYNC) || d.has_flag(flag::SYNC);
        if sync(a) || sync(b) {
            h.sync = true;
        }
    }

    async fn rename_start(
        &self,
        old: &Ent<'_>,
        credits: u32,
        kind: RenameKind,
    ) -> FsResult<(Handle, Option<Rc<Inode>>)> {
        if kind == RenameKind::Plain {
            return Ok((self.journal_start(HandleType::Dir, credits).await?, None));
        }
        let mut retries = 0;
        loop {
            let credits = credits + XATTR_TRANS_BLOCKS + 4;
            let mut h = self.journal_start(HandleType::Dir, credits).await?;
            let made = self
                .new_inode(&mut h, old.dir, mode::S_IFCHR, old.name, None)
                .await;
            match made {
                Ok(inode) => return Ok((h, Some(inode))),
                Err(e) => {
                    let done = self.end_handle::<()>(h, Err(e.clone())).await;
                    let again =
                        e == FsError::NoSpace && self.should_retry_alloc(&mut retries).await;
                    if !again {
                        done?;
                        return Err(e);
                    }
                }
            }
        }
    }

    async fn undo_whiteout(&self, h: &mut Handle, old: &Ent<'_>, whiteout: Option<&Rc<Inode>>) {
        let Some(w) = whiteout else { return };
        // Best effort on an error path, as in the kernel's `ext4_resetent`.
        if let Ok(Some(slot)) = self.find_entry(old.dir, old.name).await {
            if slot.ino == w.ino.0 {
                let file_type = Some(old.slot.file_type).filter(|_| self.geo.filetype);
                let _ = self
                    .set_entry(h, old.dir, &slot, old.inode.ino.0, file_type)
                    .await;
            }
        }
        w.core.borrow_mut().nlink = 0;
        let _ = self.mark_inode_dirty(h, w).await;
        let _ = self.orphan_add(h, w).await;
    }

    async fn rename_locked(
        &self,
        h: &mut Handle,
        old: &mut Ent<'_>,
        new: &RenameSide<'_>,
        (target, new_slot): (Option<&Rc<Inode>>, Option<DirSlot>),
        whiteout: Option<&Rc<Inode>>,
    ) -> FsResult<()> {
        self.fc_mark_ineligible(h);
        let cross = !Rc::ptr_eq(old.dir, new.dir);
        if old.is_dir {
            match target {
                Some(t) if !self.empty_dir(t).await? => {
                    return Err(FsError::Errno(Errno::ENOTEMPTY));
                }
                None if cross && self.dir_link_max(new.dir) => {
                    return Err(FsError::Errno(Errno::EMLINK));
                }
                _ => {}
            }
            if cross {
                self.rename_dir_prepare(h, old).await?;
            }
        }
        let reread = !cross && new.dir.has_flag(flag::INLINE_DATA);
        let file_type = old.slot.file_type;
        let typed = |t: u8| Some(t).filter(|_| self.geo.filetype);
        if let Some(w) = whiteout {
            let chr = typed(EXT4_FT_CHRDEV);
            self.set_entry(h, old.dir, &old.slot, w.ino.0, chr).await?;
            self.mark_inode_dirty(h, w).await?;
        }
        match &new_slot {
            Some(slot) => {
                self.set_entry(h, new.dir, slot, old.inode.ino.0, typed(file_type))
                    .await?;
            }
            None => {
                let entry = NewEntry {
                    name: new.name,
                    ino: old.inode.ino,
                    file_type,
                };
                self.add_entry(h, new.dir, &entry).await?;
            }
        }
        let reread = reread && !new.dir.has_flag(flag::INLINE_DATA);
        self.inode_set_ctime_current(old.inode);
        self.mark_inode_dirty(h, old.inode).await?;
        if whiteout.is_none() {
            self.rename_delete(h, old, reread).await?;
        }
        self.rename_finish(h, old, new.dir, target).await
    }

    /// Counts, times and the orphan list after the entries were changed.
    async fn rename_finish(
        &self,
        h: &mut Handle,
        old: &mut Ent<'_>,
        new_dir: &Rc<Inode>,
        target: Option<&Rc<Inode>>,
    ) -> FsResult<()> {
        if let Some(t) = target {
            self.dec_count(t);
            self.inode_set_ctime_current(t);
        }
        self.dir_changed(old.dir);
        if old.is_dir {
            self.rename_dir_finish(h, old, new_dir.ino.0).await?;
            self.dec_count(old.dir);
            match target {
                Some(t) => t.core.borrow_mut().nlink = 0,
                None => {
                    self.inc_count(new_dir);
                    self.update_dx_flag(new_dir);
                    self.mark_inode_dirty(h, new_dir).await?;
                }
            }
        }
        self.mark_inode_dirty(h, old.dir).await?;
        if let Some(t) = target {
            self.mark_inode_dirty(h, t).await?;
            if t.core.borrow().nlink == 0 {
                self.orphan_add(h, t).await?;
            }
        }
        Ok(())
    }

    /// Swaps what two names stand for.
    pub async fn cross_rename(
        &self,
        old: RenameSide<'_>,
        old_inode: &Rc<Inode>,
        new: RenameSide<'_>,
        new_inode: &Rc<Inode>,
    ) -> FsResult<()> {
        if self.other_project(new.dir, old_inode) || self.other_project(old.dir, new_inode) {
            return Err(FsError::Errno(Errno::EXDEV));
        }
        let mut old = self.renament(&old, old_inode).await?;
        let mut new = self.renament(&new, new_inode).await?;
        let credits = 2 * self.data_trans_blocks() + 2 * INDEX_EXTRA_TRANS_BLOCKS + 2;
        let mut h = self.journal_start(HandleType::Dir, credits).await?;
        self.dirsync(&mut h, old.dir, new.dir);
        let done = self.cross_rename_locked(&mut h, &mut old, &mut new).await;
        self.end_handle(h, done).await
    }

    async fn cross_rename_locked(
        &self,
        h: &mut Handle,
        old: &mut Ent<'_>,
        new: &mut Ent<'_>,
    ) -> FsResult<()> {
        self.fc_mark_ineligible(h);
        let cross = !Rc::ptr_eq(old.dir, new.dir);
        if cross && old.is_dir {
            self.rename_dir_prepare(h, old).await?;
        }
        if cross && new.is_dir {
            self.rename_dir_prepare(h, new).await?;
        }
        // A directory that changes its parent takes a link with it, unless another one comes back.
        let moved = cross && old.is_dir != new.is_dir;
        if moved {
            let gains = if old.is_dir { new.dir } else { old.dir };
            if self.dir_link_max(gains) {
                return Err(FsError::Errno(Errno::EMLINK));
            }
        }
        let typed = |t: u8| Some(t).filter(|_| self.geo.filetype);
        let (old_type, new_type) = (old.slot.file_type, new.slot.file_type);
        self.set_entry(h, new.dir, &new.slot, old.inode.ino.0, typed(old_type))
            .await?;
        self.set_entry(h, old.dir, &old.slot, new.inode.ino.0, typed(new_type))
            .await?;
        self.inode_set_ctime_current(old.inode);
        self.inode_set_ctime_current(new.inode);
        self.mark_inode_dirty(h, old.inode).await?;
        self.mark_inode_dirty(h, new.inode).await?;
        self.rename_dir_finish(h, old, new.dir.ino.0).await?;
        self.rename_dir_finish(h, new, old.dir.ino.0).await?;
        if moved {
            let (loses, gains) = if old.is_dir {
                (old.dir, new.dir)
            } else {
                (new.dir, old.dir)
            };
            self.dec_count(loses);
            self.inc_count(gains);
            self.mark_inode_dirty(h, old.dir).await?;
            self.mark_inode_dirty(h, new.dir).await?;
        }
        Ok(())
    }

    async fn rename_dir_prepare(&self, h: &mut Handle, ent: &mut Ent<'_>) -> FsResult<()> {
        let slot = self.dotdot(ent.inode).await?;
        if slot.ino != ent.dir.ino.0 {
            let kind = CorruptKind::DirentInode {
                ino: slot.ino,
                max: self.geo.inodes_count,
            };
            return Err(Corrupt::new(kind, slot.at).into());
        }
        if let Place::Block(bh) = &slot.place {
            self.get_write_access(h, bh).await?;
        }
        ent.dotdot = Some(slot);
        Ok(())
    }

    /// Points `..` at the new parent, where it changed.
    async fn rename_dir_finish(
        &self,
        h: &mut Handle,
        ent: &mut Ent<'_>,
        parent: u32,
    ) -> FsResult<()> {
        let Some(slot) = ent.dotdot.take() else {
            return Ok(());
        };
        match &slot.place {
            Place::Block(bh) => {
                bh.modify(|b| dirblock::set_target(b, slot.at, parent, None));
                if self.is_dx(ent.inode) {
                    self.dirty_dx_node(h, ent.inode, bh).await
                } else {
                    self.dirty_dirblock(h, ent.inode, bh).await
                }
            }
            _ => {
                ent.inode.core.borrow_mut().i_block[..4].copy_from_slice(&parent.to_le_bytes());
                self.mark_inode_dirty(h, ent.inode).await
            }
        }
    }

    /// Makes an entry name another inode (kernel `ext4_setent`).
    async fn set_entry(
        &self,
        h: &mut Handle,
        dir: &Rc<Inode>,
        slot: &DirSlot,
        ino: u32,
        file_type: Option<u8>,
    ) -> FsResult<()> {
        if let Place::Block(bh) = &slot.place {
            self.get_write_access(h, bh).await?;
            bh.modify(|b| dirblock::set_target(b, slot.at, ino, file_type));
        } else {
            self.set_inline_target(dir, slot, ino, file_type);
        }
        self.inc_iversion(dir);
        let now = self.inode_set_ctime_current(dir);
        dir.core.borrow_mut().mtime = now;
        self.mark_inode_dirty(h, dir).await?;
        if let Place::Block(bh) = &slot.place {
            self.dirty_dirblock(h, dir, bh).await?;
        }
        Ok(())
    }

    /// Removes the old name; it may have moved when the new one was added (kernel `ext4_rename_delete`).
    async fn rename_delete(&self, h: &mut Handle, old: &Ent<'_>, reread: bool) -> FsResult<()> {
        let same = !reread
            && match &old.slot.place {
                Place::Block(bh) => bh.read(|b| {
                    matches!(dirent_at(b, old.slot.at),
                        Ok(d) if d.inode == old.inode.ino.0 && d.name == old.name)
                }),
                _ => true,
            };
        if same {
            match self.delete_entry(h, old.dir, &old.slot).await {
                Err(FsError::Errno(Errno::ENOENT)) => {}
                other => return other,
            }
        }
        match self.find_entry(old.dir, old.name).await? {
            Some(slot) => self.delete_entry(h, old.dir, &slot).await,
            None => Err(stale()),
        }
    }
}
