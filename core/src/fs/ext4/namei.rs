//! Operations on names in directories (kernel `fs/ext4/namei.c`): lookup, create, mknod, mkdir, rmdir, unlink, link.
//!
//! The caller (vfs) holds `i_rwsem` of the directories (and of a victim), has checked types and permissions, and owns
//! a reference to each inode it passes. A returned inode carries a reference for the caller.
//!
//! Invariants:
//! 1. Entry, link count and orphan list change under one handle.
//! 2. The order in which metadata is dirtied is the kernel's.

use super::dir::{DirSlot, NewEntry, LINK_MAX};
use super::{flag, mode, Ext4, Inode};
use crate::base::{Errno, Ino};
use crate::format::ext4::dirent::EXT4_NAME_LEN;
use crate::format::{Corrupt, CorruptKind};
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::{Handle, HandleType};
use std::rc::Rc;

pub(crate) use super::ext4_jbd2::INDEX_EXTRA_TRANS_BLOCKS;
/// `EXT4_XATTR_TRANS_BLOCKS`.
pub(crate) const XATTR_TRANS_BLOCKS: u32 = 6;

impl Ext4 {
    pub(crate) fn create_credits(&self) -> u32 {
        let own = self.data_trans_blocks() + INDEX_EXTRA_TRANS_BLOCKS + 3;
        own + self.xattr_credits_for_new_inode()
    }

    /// Starts a handle for a change of `dir`; synchronous where the directory is.
    pub(crate) async fn dir_handle(&self, dir: &Inode, credits: u32) -> FsResult<Handle> {
        let mut h = self.journal_start(HandleType::Dir, credits).await?;
        if dir.has_flag(flag::DIRSYNC) || dir.has_flag(flag::SYNC) {
            h.sync = true;
        }
        Ok(h)
    }

    /// Starts a handle that makes an inode in `dir` (kernel `ext4_new_inode_start_handle`, which counts it for the
    /// file system, not for an inode).
    pub(crate) async fn create_handle(&self, dir: &Inode, credits: u32) -> FsResult<Handle> {
        let mut h = self.journal_start_sb(HandleType::Dir, credits).await?;
        h.sync = dir.has_flag(flag::DIRSYNC) || dir.has_flag(flag::SYNC);
        Ok(h)
    }

    /// Ends the handle; an error of the operation wins over one of the journal.
    pub(crate) async fn end_handle<T>(&self, h: Handle, done: FsResult<T>) -> FsResult<T> {
        let stopped = self.journal_stop(h).await;
        let value = done?;
        stopped?;
        Ok(value)
    }

    /// Inode number of `name` in `dir`; `None` if there is no such entry.
    pub async fn lookup(&self, dir: &Inode, name: &[u8]) -> FsResult<Option<Ino>> {
        if name.len() > EXT4_NAME_LEN {
            return Err(FsError::Errno(Errno::ENAMETOOLONG));
        }
        let Some(slot) = self.find_entry(dir, name).await? else {
            return Ok(None);
        };
        let max = self.geo.inodes_count;
        let first_ok = slot.ino == 2 || slot.ino >= self.geo.first_ino;
        if !first_ok || slot.ino > max || slot.ino == dir.ino.0 {
            let kind = CorruptKind::DirentInode { ino: slot.ino, max };
            return Err(Corrupt::new(kind, slot.at).into());
        }
        Ok(Some(Ino(slot.ino)))
    }

    /// Makes a regular file.
    pub async fn create(&self, dir: &Rc<Inode>, name: &[u8], perm: u32) -> FsResult<Rc<Inode>> {
        let i_mode = mode::S_IFREG | perm & !mode::S_IFMT;
        self.mknod(dir, name, i_mode, (0, 0)).await
    }

    /// Makes a file of any type but directory and symlink; `rdev` is (major, minor) of a device node.
    pub async fn mknod(
        &self,
        dir: &Rc<Inode>,
        name: &[u8],
        i_mode: u32,
        rdev: (u32, u32),
    ) -> FsResult<Rc<Inode>> {
        let mut retries = 0;
        loop {
            let mut h = self.create_handle(dir, self.create_credits()).await?;
            let done = self.mknod_locked(&mut h, dir, name, i_mode, rdev).await;
            match self.end_create(h, done).await {
                Err(FsError::NoSpace) if self.should_retry_alloc(&mut retries).await => {}
                other => return other,
            }
        }
    }

    async fn mknod_locked(
        &self,
        h: &mut Handle,
        dir: &Rc<Inode>,
        name: &[u8],
        i_mode: u32,
        rdev: (u32, u32),
    ) -> Created {
        let inode = match self.new_inode(h, dir, i_mode, name, None).await {
            Ok(inode) => inode,
            Err(e) => return Created::Nothing(e),
        };
        if matches!(i_mode & mode::S_IFMT, mode::S_IFCHR | mode::S_IFBLK) {
            inode.core.borrow_mut().i_block = encode_dev(rdev);
        }
        if let Err(e) = self.init_acl(h, &inode, dir).await {
            self.drop_new(h, &inode).await;
            self.unlock_new_inode(&inode);
            return Created::Orphan(inode, e);
        }
        self.add_nondir(h, dir, name, inode).await
    }

    /// Enters a new inode that is no directory; on failure it becomes an orphan (kernel `ext4_add_nondir`).
    pub(crate) async fn add_nondir(
        &self,
        h: &mut Handle,
        dir: &Rc<Inode>,
        name: &[u8],
        inode: Rc<Inode>,
    ) -> Created {
        let new = NewEntry {
            name,
            ino: inode.ino,
            file_type: self.file_type(inode.mode()),
        };
        let added = match self.add_entry(h, dir, &new).await {
            Ok(()) => self.mark_inode_dirty(h, &inode).await,
            Err(e) => {
                self.drop_new(h, &inode).await;
                Err(e)
            }
        };
        self.unlock_new_inode(&inode);
        match added {
            Ok(()) => {
                self.fc_track_name(h, FcName::Creat, dir.ino, inode.ino, name);
                Created::Inode(inode)
            }
            Err(e) => Created::Orphan(inode, e),
        }
    }

    /// Takes the links of an inode that got no name; it goes with its last reference.
    async fn drop_new(&self, h: &mut Handle, inode: &Rc<Inode>) {
        inode.core.borrow_mut().nlink = 0;
        // The journal may be aborted: the first error is the one that counts.
        let _ = self.mark_inode_dirty(h, inode).await;
        let _ = self.orphan_add(h, inode).await;
    }

    pub(crate) async fn end_create(&self, h: Handle, done: Created) -> FsResult<Rc<Inode>> {
        let stopped = self.journal_stop(h).await;
        match done {
            Created::Inode(inode) => match stopped {
                Ok(()) => Ok(inode),
                Err(e) => {
                    self.iput(inode).await?;
                    Err(e)
                }
            },
            Created::Orphan(inode, e) => {
                self.iput(inode).await?;
                Err(e)
            }
            Created::Nothing(e) => Err(e),
        }
    }

    /// Makes a directory.
    pub async fn mkdir(&self, dir: &Rc<Inode>, name: &[u8], perm: u32) -> FsResult<Rc<Inode>> {
        if self.dir_link_max(dir) {
            return Err(FsError::Errno(Errno::EMLINK));
        }
        let i_mode = mode::S_IFDIR | perm & !mode::S_IFMT;
        let mut retries = 0;
        loop {
            let mut h = self.create_handle(dir, self.create_credits()).await?;
            let done = self.mkdir_locked(&mut h, dir, name, i_mode).await;
            match self.end_create(h, done).await {
                Err(FsError::NoSpace) if self.should_retry_alloc(&mut retries).await => {}
                other => return other,
            }
        }
    }

    async fn mkdir_locked(
        &self,
        h: &mut Handle,
        dir: &Rc<Inode>,
        name: &[u8],
        i_mode: u32,
    ) -> Created {
        let inode = match self.new_inode(h, dir, i_mode, name, None).await {
            Ok(inode) => inode,
            Err(e) => return Created::Nothing(e),
        };
        let entered = self.enter_dir(h, dir, name, &inode).await;
        if entered.is_err() {
            self.drop_new_dir(h, &inode).await;
        }
        self.unlock_new_inode(&inode);
        match entered {
            Ok(()) => {
                self.inc_count(dir);
                self.update_dx_flag(dir);
                self.fc_track_name(h, FcName::Creat, dir.ino, inode.ino, name);
                match self.mark_inode_dirty(h, dir).await {
                    Ok(()) => Created::Inode(inode),
                    Err(e) => Created::Orphan(inode, e),
                }
            }
            Err(e) => Created::Orphan(inode, e),
        }
    }

    async fn enter_dir(
        &self,
        h: &mut Handle,
        dir: &Rc<Inode>,
        name: &[u8],
        inode: &Rc<Inode>,
    ) -> FsResult<()> {
        self.init_acl(h, inode, dir).await?;
        self.init_new_dir(h, dir, inode).await?;
        self.mark_inode_dirty(h, inode).await?;
        let new = NewEntry {
            name,
            ino: inode.ino,
            file_type: self.file_type(mode::S_IFDIR),
        };
        self.add_entry(h, dir, &new).await
    }

    async fn drop_new_dir(&self, h: &mut Handle, inode: &Rc<Inode>) {
        inode.core.borrow_mut().nlink = 0;
        let _ = self.orphan_add(h, inode).await;
        let _ = self.mark_inode_dirty(h, inode).await;
    }

    /// Nameless regular file in the group of `dir`, on the orphan list until it is linked or closed.
    pub async fn tmpfile(&self, dir: &Rc<Inode>, perm: u32) -> FsResult<Rc<Inode>> {
        let i_mode = mode::S_IFREG | perm & !mode::S_IFMT;
        let mut h = self.create_handle(dir, self.create_credits() + 1).await?;
        let inode = match self.new_inode(&mut h, dir, i_mode, b"", None).await {
            Ok(inode) => inode,
            Err(e) => return self.end_handle(h, Err(e)).await,
        };
        inode.core.borrow_mut().nlink = 0;
        let done = match self.orphan_add(&mut h, &inode).await {
            Ok(()) => self.mark_inode_dirty(&mut h, &inode).await,
            Err(e) => Err(e),
        };
        self.unlock_new_inode(&inode);
        let done = match done {
            Ok(()) => Created::Inode(inode),
            Err(e) => Created::Orphan(inode, e),
        };
        self.end_create(h, done).await
    }

    async fn checked_entry(&self, dir: &Inode, name: &[u8], inode: &Inode) -> FsResult<DirSlot> {
        let slot = self.find_entry(dir, name).await?;
        let slot = slot.ok_or(FsError::Errno(Errno::ENOENT))?;
        if slot.ino != inode.ino.0 {
            let max = self.geo.inodes_count;
            let kind = CorruptKind::DirentInode { ino: slot.ino, max };
            return Err(Corrupt::new(kind, slot.at).into());
        }
        Ok(slot)
    }

    /// Removes the empty directory `inode`, called `name` in `dir`.
    pub async fn rmdir(&self, dir: &Rc<Inode>, name: &[u8], inode: &Rc<Inode>) -> FsResult<()> {
        let slot = self.checked_entry(dir, name, inode).await?;
        if !self.empty_dir(inode).await? {
            return Err(FsError::Errno(Errno::ENOTEMPTY));
        }
        let mut h = self.dir_handle(dir, self.data_trans_blocks()).await?;
        let done = self.rmdir_locked(&mut h, dir, inode, &slot).await;
        if done.is_ok() {
            self.fc_track_name(&h, FcName::Unlink, dir.ino, inode.ino, name);
        }
        self.end_handle(h, done).await
    }

    async fn rmdir_locked(
        &self,
        h: &mut Handle,
        dir: &Rc<Inode>,
        inode: &Rc<Inode>,
        slot: &DirSlot,
    ) -> FsResult<()> {
        self.delete_entry(h, dir, slot).await?;
        self.inc_iversion(inode);
        {
            let mut core = inode.core.borrow_mut();
            core.nlink = 0;
            core.size = 0;
        }
        self.orphan_add(h, inode).await?;
        self.inode_set_ctime_current(inode);
        let now = self.inode_set_ctime_current(dir);
        dir.core.borrow_mut().mtime = now;
        self.mark_inode_dirty(h, inode).await?;
        self.dec_count(dir);
        self.update_dx_flag(dir);
        self.mark_inode_dirty(h, dir).await
    }

    /// Removes the name `name` of `inode`, which is no directory.
    pub async fn unlink(&self, dir: &Rc<Inode>, name: &[u8], inode: &Rc<Inode>) -> FsResult<()> {
        let slot = self.checked_entry(dir, name, inode).await?;
        let mut h = self.dir_handle(dir, self.data_trans_blocks()).await?;
        let done = self.unlink_locked(&mut h, dir, inode, &slot).await;
        if done.is_ok() {
            self.fc_track_name(&h, FcName::Unlink, dir.ino, inode.ino, name);
        }
        self.end_handle(h, done).await
    }

    async fn unlink_locked(
        &self,
        h: &mut Handle,
        dir: &Rc<Inode>,
        inode: &Rc<Inode>,
        slot: &DirSlot,
    ) -> FsResult<()> {
        self.delete_entry(h, dir, slot).await?;
        self.dir_changed(dir);
        self.mark_inode_dirty(h, dir).await?;
        let nlink = {
            let mut core = inode.core.borrow_mut();
            core.nlink = core.nlink.saturating_sub(1);
            core.nlink
        };
        if nlink == 0 {
            self.orphan_add(h, inode).await?;
        }
        self.inode_set_ctime_current(inode);
        self.mark_inode_dirty(h, inode).await
    }

    /// Gives `inode`, which is no directory, the further name `name` in `dir`.
    pub async fn link(&self, inode: &Rc<Inode>, dir: &Rc<Inode>, name: &[u8]) -> FsResult<()> {
        if inode.core.borrow().nlink >= LINK_MAX {
            return Err(FsError::Errno(Errno::EMLINK));
        }
        let other_project = inode.core.borrow().projid != dir.core.borrow().projid;
        if dir.has_flag(flag::PROJINHERIT) && other_project {
            return Err(FsError::Errno(Errno::EXDEV));
        }
        let credits = self.data_trans_blocks() + INDEX_EXTRA_TRANS_BLOCKS + 1;
        let mut retries = 0;
        loop {
            let mut h = self.dir_handle(dir, credits).await?;
            let done = self.link_locked(&mut h, inode, dir, name).await;
            match self.end_handle(h, done).await {
                Err(FsError::NoSpace) if self.should_retry_alloc(&mut retries).await => {}
                other => return other,
            }
        }
    }

    async fn link_locked(
        &self,
        h: &mut Handle,
        inode: &Rc<Inode>,
        dir: &Rc<Inode>,
        name: &[u8],
    ) -> FsResult<()> {
        self.inode_set_ctime_current(inode);
        inode.core.borrow_mut().nlink += 1;
        let new = NewEntry {
            name,
            ino: inode.ino,
            file_type: self.file_type(inode.mode()),
        };
        if let Err(e) = self.add_entry(h, dir, &new).await {
            inode.core.borrow_mut().nlink -= 1;
            return Err(e);
        }
        self.mark_inode_dirty(h, inode).await?;
        self.fc_track_name(h, FcName::Link, dir.ino, inode.ino, name);
        if inode.core.borrow().nlink == 1 {
            self.orphan_del(Some(h), inode).await?;
        }
        Ok(())
    }
}

/// What happened to a name, for fast commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FcName {
    /// Of a new inode.
    Creat,
    /// A further one.
    Link,
    /// Removed.
    Unlink,
}

/// How far the making of a file came.
pub(crate) enum Created {
    /// Done.
    Inode(Rc<Inode>),
    /// The inode was made but has no name: drop it once the handle is closed.
    Orphan(Rc<Inode>, FsError),
    /// No inode.
    Nothing(FsError),
}

/// Device number in `i_block`: the old 16-bit form where it fits, else the new one (kernel `ext4_do_update_inode`).
pub(crate) fn encode_dev((major, minor): (u32, u32)) -> [u8; 60] {
    let mut raw = [0u8; 60];
    if major < 256 && minor < 256 {
        raw[..4].copy_from_slice(&(major << 8 | minor).to_le_bytes());
    } else {
        let dev = minor & 0xff | major << 8 | (minor & !0xff) << 12;
        raw[4..8].copy_from_slice(&dev.to_le_bytes());
    }
    raw
}

/// (major, minor) stored in `i_block` of a device node.
pub(crate) fn decode_dev(i_block: &[u8; 60]) -> (u32, u32) {
    let old = crate::base::bytes::le32(i_block, 0);
    if old != 0 {
        return (old >> 8 & 0xff, old & 0xff);
    }
    let dev = crate::base::bytes::le32(i_block, 4);
    (dev >> 8 & 0xfff, dev & 0xff | dev >> 12 & 0xfff00)
}
