//! Symbolic links (kernel `fs/ext4/symlink.c`, `ext4_symlink` of `namei.c`): up to 59 bytes in `i_block`, longer
//! targets in one block.

use super::namei::Created;
use super::{flag, mode, Ext4, Inode};
use crate::base::{Errno, Lblk};
use crate::format::ext4::inline_data;
use crate::format::{Corrupt, CorruptKind};
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::Handle;
use std::rc::Rc;

/// Longest target in the inode, terminating NUL included.
const FAST_MAX: usize = 60;

impl Ext4 {
    /// Makes a symbolic link to `target`.
    pub async fn symlink(
        &self,
        dir: &Rc<Inode>,
        name: &[u8],
        target: &[u8],
    ) -> FsResult<Rc<Inode>> {
        if target.len() + 1 > self.geo.block_size as usize {
            return Err(FsError::Errno(Errno::ENAMETOOLONG));
        }
        let mut retries = 0;
        loop {
            let mut h = self.create_handle(dir, self.create_credits()).await?;
            let done = self.symlink_locked(&mut h, dir, name, target).await;
            match self.end_create(h, done).await {
                Err(FsError::NoSpace) if self.should_retry_alloc(&mut retries).await => {}
                other => return other,
            }
        }
    }

    async fn symlink_locked(
        &self,
        h: &mut Handle,
        dir: &Rc<Inode>,
        name: &[u8],
        target: &[u8],
    ) -> Created {
        let i_mode = mode::S_IFLNK | 0o777;
        let inode = match self.new_inode(h, dir, i_mode, name, None).await {
            Ok(inode) => inode,
            Err(e) => return Created::Nothing(e),
        };
        if target.len() < FAST_MAX {
            let mut core = inode.core.borrow_mut();
            core.flags &= !flag::EXTENTS;
            core.i_block = [0; 60];
            core.i_block[..target.len()].copy_from_slice(target);
            core.size = target.len() as u64;
            inode.disksize.set(target.len() as u64);
        } else if let Err(e) = self.init_symlink_block(h, &inode, target).await {
            inode.core.borrow_mut().nlink = 0;
            let _ = self.mark_inode_dirty(h, &inode).await;
            let _ = self.orphan_add(h, &inode).await;
            self.unlock_new_inode(&inode);
            return Created::Orphan(inode, e);
        }
        self.add_nondir(h, dir, name, inode).await
    }

    async fn init_symlink_block(
        &self,
        h: &mut Handle,
        inode: &Inode,
        target: &[u8],
    ) -> FsResult<()> {
        let bh = self.bread(Some(h), inode, Lblk(0), true).await?;
        let bh = bh.ok_or(FsError::NoSpace)?;
        self.get_write_access(h, &bh).await?;
        bh.modify(|b| {
            b[..target.len()].copy_from_slice(target);
            b[target.len()..].fill(0);
        });
        self.dirty_metadata(h, Some(inode), &bh).await?;
        inode.set_size(target.len() as u64);
        inode.disksize.set(target.len() as u64);
        Ok(())
    }

    /// The target of a symbolic link.
    pub async fn get_link(&self, inode: &Inode) -> FsResult<Vec<u8>> {
        let size = inode.size();
        let bad = || {
            let kind = CorruptKind::SymlinkLength {
                ino: inode.ino.0,
                len: size,
            };
            FsError::from(Corrupt::new(kind, 4))
        };
        if inode.has_flag(flag::INLINE_DATA) {
            let core = inode.core.borrow();
            let value = inline_data::system_data(&core.ibody)?;
            return Ok(inline_data::content(&core.i_block, value, size)?);
        }
        if self.is_fast_symlink(inode) {
            let core = inode.core.borrow();
            return Ok(core.i_block[..size as usize].to_vec());
        }
        let len = usize::try_from(size)
            .ok()
            .filter(|n| *n < self.geo.block_size as usize)
            .ok_or_else(bad)?;
        let bh = self.bread(None, inode, Lblk(0), false).await?;
        let bh = bh.ok_or_else(bad)?;
        Ok(bh.read(|b| b[..len].to_vec()))
    }
}
