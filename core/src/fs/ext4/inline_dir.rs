//! Directories in the inode (kernel `fs/ext4/inline.c`): the parent's number and entries in `i_block`, more entries
//! in the in-inode attribute `system.data`; turned into a block when both are full.

use super::dir::{DirSlot, NewEntry, Place};
use super::dirblock::{self, entries_end, Dest};
use super::xattr::INLINE_BODY;
use super::{flag, state, Ext4, Inode};
use crate::base::bytes::{le32, put_le32};
use crate::base::{Errno, Lblk};
use crate::format::ext4::dirent::{dir_rec_len, dirent_at, init_tail, put_dirent, EXT4_FT_DIR};
use crate::format::{Corrupt, CorruptKind};
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::Handle;

const DOTDOT: u32 = 4;

impl Ext4 {
    /// The entry called `name` of an inline directory.
    pub(crate) fn find_inline_entry(&self, dir: &Inode, name: &[u8]) -> FsResult<Option<DirSlot>> {
        let core = dir.core.borrow();
        let slot = |place, at, ino, file_type| DirSlot {
            place,
            at,
            ino,
            file_type,
        };
        if let Some(d) = dirblock::search(&core.i_block, DOTDOT, INLINE_BODY, name)? {
            return Ok(Some(slot(
                Place::InlineBody,
                d.offset,
                d.inode,
                d.file_type,
            )));
        }
        let value = &core.ibody[core.inline_value()?];
        let found = dirblock::search(value, 0, value.len(), name)?;
        Ok(found.map(|d| slot(Place::InlineValue, d.offset, d.inode, d.file_type)))
    }

    /// Makes a new directory inline. False if the inode has no room for it.
    pub(crate) async fn try_create_inline_dir(
        &self,
        h: &mut Handle,
        parent: &Inode,
        inode: &Inode,
    ) -> FsResult<bool> {
        match inode.core.borrow_mut().set_inline_value(Some(&[])) {
            Ok(()) => {}
            Err(FsError::NoSpace) => {
                inode.set_state(state::MAY_INLINE_DATA, false);
                return Ok(false);
            }
            Err(e) => return Err(e),
        }
        inode.set_state(state::XATTR, true);
        {
            let mut core = inode.core.borrow_mut();
            core.flags &= !flag::EXTENTS;
            core.flags |= flag::INLINE_DATA;
            core.i_block = [0; 60];
            put_le32(&mut core.i_block, 0, parent.ino.0);
            let len = INLINE_BODY as u32 - DOTDOT;
            put_dirent(&mut core.i_block, DOTDOT, 0, len, b"", 0);
            core.nlink = 2;
            core.size = INLINE_BODY as u64;
        }
        inode.disksize.set(INLINE_BODY as u64);
        self.mark_inode_dirty(h, inode).await?;
        Ok(true)
    }

    /// Adds an entry to an inline directory. False if it was turned into a block, where the entry must go now.
    pub(crate) async fn try_add_inline_entry(
        &self,
        h: &mut Handle,
        dir: &Inode,
        new: &NewEntry<'_>,
    ) -> FsResult<bool> {
        if self.add_inline(dir, new)? {
            self.dir_changed(dir);
            self.inc_iversion(dir);
            self.mark_inode_dirty(h, dir).await?;
            return Ok(true);
        }
        self.convert_inline_dir(h, dir).await?;
        self.mark_inode_dirty(h, dir).await?;
        Ok(false)
    }

    fn add_inline(&self, dir: &Inode, new: &NewEntry<'_>) -> FsResult<bool> {
        let mut core = dir.core.borrow_mut();
        let core = &mut *core;
        if insert(&mut core.i_block, DOTDOT, new)? {
            return Ok(true);
        }
        let mut value = core.inline_value()?;
        if value.is_empty() {
            let room = core.max_inline_value_size()?;
            if room <= dir_rec_len(1) as usize {
                return Ok(false);
            }
            let mut wider = vec![0u8; room];
            put_dirent(&mut wider, 0, 0, room as u32, b"", 0);
            match core.set_inline_value(Some(&wider)) {
                Ok(()) => {}
                Err(FsError::NoSpace) => return Ok(false),
                Err(e) => return Err(e),
            }
            core.size = (INLINE_BODY + room) as u64;
            dir.disksize.set(core.size);
            value = core.inline_value()?;
        }
        insert(&mut core.ibody[value], 0, new)
    }

    /// Moves all entries to a first block.
    async fn convert_inline_dir(&self, h: &mut Handle, dir: &Inode) -> FsResult<()> {
        let (parent, entries) = {
            let core = dir.core.borrow();
            let value = &core.ibody[core.inline_value()?];
            check_all(&core.i_block, DOTDOT)?;
            check_all(value, 0)?;
            let mut all = core.i_block[DOTDOT as usize..].to_vec();
            all.extend_from_slice(value);
            (le32(&core.i_block, 0), all)
        };
        self.destroy_inline_data(h, dir).await?;
        let bh = self.bread(Some(h), dir, Lblk(0), true).await?;
        let bh = bh.ok_or(FsError::NoSpace)?;
        self.get_write_access(h, &bh).await?;
        let csum = self.csum.metadata_csum;
        let file_type = if self.geo.filetype { EXT4_FT_DIR } else { 0 };
        bh.modify(|b| -> Result<(), Corrupt> {
            b.fill(0);
            let end = entries_end(b.len(), csum);
            put_dirent(b, 0, dir.ino.0, dir_rec_len(1), b".", file_type);
            put_dirent(b, 12, parent, dir_rec_len(2), b"..", file_type);
            b[24..24 + entries.len()].copy_from_slice(&entries);
            let (mut at, mut last) = (24, 12);
            while (at as usize) < 24 + entries.len() {
                last = at;
                at += dirent_at(&b[..24 + entries.len()], at)?.rec_len;
            }
            dirblock::stretch_last(b, last, end);
            if csum {
                init_tail(b);
            }
            Ok(())
        })?;
        dir.set_size(u64::from(self.geo.block_size));
        dir.disksize.set(u64::from(self.geo.block_size));
        self.dirty_dirblock(h, dir, &bh).await
    }

    /// Takes `system.data` and `i_block` from an inline inode, which then is an empty one of blocks
    /// (kernel `ext4_destroy_inline_data_nolock`).
    pub(crate) async fn destroy_inline_data(&self, h: &mut Handle, inode: &Inode) -> FsResult<()> {
        {
            let mut core = inode.core.borrow_mut();
            core.set_inline_value(None)?;
            core.i_block = [0; 60];
            if self.geo.extents {
                core.flags |= flag::EXTENTS;
                super::extent_node::init_root(&mut core.i_block);
            }
            core.flags &= !flag::INLINE_DATA;
        }
        inode.set_state(state::MAY_INLINE_DATA, false);
        self.mark_inode_dirty(h, inode).await
    }

    /// Removes an entry of an inline directory.
    pub(crate) async fn delete_inline_entry(
        &self,
        h: &mut Handle,
        dir: &Inode,
        slot: &DirSlot,
    ) -> FsResult<()> {
        let found = {
            let mut core = dir.core.borrow_mut();
            if matches!(slot.place, Place::InlineBody) {
                dirblock::delete_at(&mut core.i_block, DOTDOT, INLINE_BODY, slot.at)?
            } else {
                let value = core.inline_value()?;
                let len = value.len();
                dirblock::delete_at(&mut core.ibody[value], 0, len, slot.at)?
            }
        };
        if !found {
            return Err(FsError::Errno(Errno::ENOENT));
        }
        self.inc_iversion(dir);
        self.mark_inode_dirty(h, dir).await
    }

    /// Makes an inline entry name another inode.
    pub(crate) fn set_inline_target(
        &self,
        dir: &Inode,
        slot: &DirSlot,
        ino: u32,
        file_type: Option<u8>,
    ) {
        let mut core = dir.core.borrow_mut();
        if matches!(slot.place, Place::InlineBody) {
            dirblock::set_target(&mut core.i_block, slot.at, ino, file_type);
        } else if let Ok(value) = core.inline_value() {
            dirblock::set_target(&mut core.ibody[value], slot.at, ino, file_type);
        }
    }

    /// True if an inline directory has no entries.
    pub(crate) fn empty_inline_dir(&self, dir: &Inode) -> FsResult<bool> {
        let core = dir.core.borrow();
        let value = &core.ibody[core.inline_value()?];
        Ok(unused(&core.i_block, DOTDOT)? && unused(value, 0)?)
    }
}

fn insert(area: &mut [u8], start: u32, new: &NewEntry<'_>) -> FsResult<bool> {
    match dirblock::find_dest(area, start, area.len(), new.name)? {
        Dest::At(at) => {
            dirblock::insert_at(area, at, new.ino.0, new.file_type, new.name)?;
            Ok(true)
        }
        Dest::Full => Ok(false),
        Dest::Exists => Err(FsError::Errno(Errno::EEXIST)),
    }
}

fn check_all(area: &[u8], start: u32) -> Result<(), Corrupt> {
    let mut at = start;
    while (at as usize) < area.len() {
        at += dirent_at(area, at)?.rec_len;
    }
    if at as usize == area.len() {
        Ok(())
    } else {
        Err(Corrupt::new(CorruptKind::InlineData {}, at))
    }
}

fn unused(area: &[u8], start: u32) -> Result<bool, Corrupt> {
    let mut at = start;
    while (at as usize) < area.len() {
        let d = dirent_at(area, at)?;
        if d.inode != 0 {
            return Ok(false);
        }
        at += d.rec_len;
    }
    Ok(true)
}
