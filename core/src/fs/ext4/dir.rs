//! Directory entries of one directory: reading blocks, search, adding and deleting (kernel `fs/ext4/namei.c`:
//! `__ext4_read_dirblock`, `__ext4_find_entry`, `ext4_add_entry`, `add_dirent_to_buf`, `ext4_delete_entry`,
//! `ext4_empty_dir`, `ext4_init_new_dir`).
//!
//! Waits: metadata reads, journal access to buffers. The caller holds the directory's `i_rwsem`.

use super::dirblock::{self, entries_end, Dest};
use super::dx_node::{NODE_ENTRIES, ROOT_ENTRIES};
use super::{flag, mode, state, Ext4, Inode};
use crate::base::{Ino, Lblk};
use crate::format::ext4::dirent::{
    self, dir_rec_len, dirent_at, put_dirent, EXT4_FT_DIR, EXT4_NAME_LEN,
};
use crate::format::ext4::{dx, CsumCtx};
use crate::format::{Corrupt, CorruptKind};
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::Handle;
use crate::mm::buffer::{Bh, Buffer, Trigger, TriggerArgs};
use std::rc::Rc;

/// What the caller expects in a directory block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DirBlockKind {
    /// Entries (or, in an indexed directory, anything).
    Entries,
    /// The root or a node of the htree.
    Index,
    /// A leaf of the htree.
    Leaf,
}

/// An entry to add.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewEntry<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// What it names.
    pub ino: Ino,
    /// `EXT4_FT_*`.
    pub file_type: u8,
}

/// Where an entry lies.
#[derive(Clone)]
pub(crate) enum Place {
    /// In this block.
    Block(Rc<Buffer>),
    /// In `i_block` of an inline directory.
    InlineBody,
    /// In the value of `system.data` of an inline directory.
    InlineValue,
}

/// An entry that was found.
#[derive(Clone)]
pub(crate) struct DirSlot {
    /// Where it lies.
    pub place: Place,
    /// Byte offset in its block or area.
    pub at: u32,
    /// Inode number in it.
    pub ino: u32,
    /// `EXT4_FT_*`.
    pub file_type: u8,
}

fn csum_ctx(args: &TriggerArgs) -> CsumCtx {
    CsumCtx {
        seed: args.seed,
        metadata_csum: true,
        ..CsumCtx::NONE
    }
}

fn run_dirblock(args: &TriggerArgs, b: &mut [u8]) {
    dirent::csum_set(&csum_ctx(args), args.ino, args.generation, b);
}

fn run_dx(args: &TriggerArgs, b: &mut [u8]) {
    dx::csum_set(
        &csum_ctx(args),
        args.ino,
        args.generation,
        b,
        args.extra as usize,
    );
}

impl Ext4 {
    pub(crate) fn dir_blocks(&self, dir: &Inode) -> u32 {
        (dir.size() / u64::from(self.geo.block_size)) as u32
    }

    fn dir_trigger(&self, dir: &Inode, run: fn(&TriggerArgs, &mut [u8]), extra: u64) -> Trigger {
        let args = TriggerArgs {
            seed: self.csum.seed,
            ino: dir.ino.0,
            generation: dir.core.borrow().generation,
            extra,
            ..TriggerArgs::default()
        };
        Trigger { run, args }
    }

    /// Joins a block of entries to the handle's transaction; its checksum follows when it is written.
    pub(crate) async fn dirty_dirblock(
        &self,
        h: &mut Handle,
        dir: &Inode,
        bh: &Rc<Buffer>,
    ) -> FsResult<()> {
        if self.csum.metadata_csum {
            bh.set_trigger(self.dir_trigger(dir, run_dirblock, 0));
        }
        bh.set(Bh::VERIFIED);
        self.dirty_metadata(h, Some(dir), bh).await
    }

    /// The same for a root or node of the htree.
    pub(crate) async fn dirty_dx_node(
        &self,
        h: &mut Handle,
        dir: &Inode,
        bh: &Rc<Buffer>,
    ) -> FsResult<()> {
        if self.csum.metadata_csum {
            let size = bh.size() as u32;
            let node = bh.read(|b| {
                let d = dirent_at(b, 0);
                matches!(d, Ok(d) if d.rec_len == size)
            });
            let base = if node { NODE_ENTRIES } else { ROOT_ENTRIES };
            bh.set_trigger(self.dir_trigger(dir, run_dx, base as u64));
        }
        bh.set(Bh::VERIFIED);
        self.dirty_metadata(h, Some(dir), bh).await
    }

    /// Reads a block of a directory and verifies its checksum the first time; `None` where there is a hole.
    pub(crate) async fn read_dirblock(
        &self,
        dir: &Inode,
        lblk: u32,
        kind: DirBlockKind,
    ) -> FsResult<Option<Rc<Buffer>>> {
        let blocks = self.dir_blocks(dir);
        if lblk >= blocks {
            let kind = CorruptKind::DxBlock {
                block: lblk,
                blocks,
            };
            return Err(Corrupt::new(kind, 0).into());
        }
        let Some(bh) = self.bread(None, dir, Lblk(lblk), false).await? else {
            return match kind {
                DirBlockKind::Entries => Ok(None),
                _ => Err(Corrupt::new(CorruptKind::DxNode {}, 0).into()),
            };
        };
        if bh.test(Bh::VERIFIED) && kind != DirBlockKind::Index {
            return Ok(Some(bh));
        }
        let size = bh.size() as u32;
        let index = self.is_dx(dir)
            && (lblk == 0 || bh.read(|b| matches!(dirent_at(b, 0), Ok(d) if d.rec_len == size)));
        let generation = dir.core.borrow().generation;
        if kind == DirBlockKind::Index {
            if !index {
                return Err(Corrupt::new(CorruptKind::DxNode {}, 0)
                    .at(bh.blocknr.0)
                    .into());
            }
            if !bh.test(Bh::VERIFIED) {
                let base = if lblk == 0 {
                    ROOT_ENTRIES
                } else {
                    NODE_ENTRIES
                };
                bh.read(|b| dx::csum_verify(&self.csum, dir.ino.0, generation, b, base))
                    .map_err(|e| e.at(bh.blocknr.0))?;
                bh.set(Bh::VERIFIED);
            }
        } else if !index {
            bh.read(|b| dirent::csum_verify(&self.csum, dir.ino.0, generation, b))
                .map_err(|e| e.at(bh.blocknr.0))?;
            bh.set(Bh::VERIFIED);
        }
        Ok(Some(bh))
    }

    /// [`Ext4::read_dirblock`] where a hole is an error.
    pub(crate) async fn need_dirblock(
        &self,
        dir: &Inode,
        lblk: u32,
        kind: DirBlockKind,
    ) -> FsResult<Rc<Buffer>> {
        self.read_dirblock(dir, lblk, kind)
            .await?
            .ok_or_else(|| Corrupt::new(CorruptKind::DxNode {}, 0).into())
    }

    /// The entry called `name`, if there is one.
    pub(crate) async fn find_entry(&self, dir: &Inode, name: &[u8]) -> FsResult<Option<DirSlot>> {
        if name.len() > EXT4_NAME_LEN {
            return Ok(None);
        }
        if dir.has_flag(flag::INLINE_DATA) {
            return self.find_inline_entry(dir, name);
        }
        let dots = matches!(name, b"." | b"..");
        if !dots && self.is_dx(dir) {
            match self.dx_find_entry(dir, name).await {
                Err(FsError::Corrupt(c)) if is_dx_kind(c.kind) => {}
                other => return other,
            }
        }
        let blocks = if dots { 1 } else { self.dir_blocks(dir) };
        let start = match dir.dir_start_lookup.get() {
            n if n < blocks => n,
            _ => 0,
        };
        for i in 0..blocks {
            let lblk = (start + i) % blocks;
            let Some(bh) = self.read_dirblock(dir, lblk, DirBlockKind::Entries).await? else {
                continue;
            };
            if let Some(slot) = self.search_buffer(&bh, name)? {
                dir.dir_start_lookup.set(lblk);
                return Ok(Some(slot));
            }
        }
        Ok(None)
    }

    /// Adds an entry; the directory gets further blocks and an index as needed.
    pub(crate) async fn add_entry(
        &self,
        h: &mut Handle,
        dir: &Inode,
        new: &NewEntry<'_>,
    ) -> FsResult<()> {
        self.note_new_entry(dir, new.ino);
        if dir.has_flag(flag::INLINE_DATA) && self.try_add_inline_entry(h, dir, new).await? {
            return Ok(());
        }
        let mut dx_fallback = false;
        if self.is_dx(dir) {
            match self.dx_add_entry(h, dir, new).await {
                Err(FsError::Corrupt(c)) if is_dx_kind(c.kind) && !self.csum.metadata_csum => {
                    dir.set_flag(flag::INDEX, false);
                    dx_fallback = true;
                    self.mark_inode_dirty(h, dir).await?;
                }
                other => return other,
            }
        }
        let blocks = self.dir_blocks(dir);
        for lblk in 0..blocks {
            let Some(bh) = self.read_dirblock(dir, lblk, DirBlockKind::Entries).await? else {
                let filled = self.bread(Some(h), dir, Lblk(lblk), true).await?;
                let bh = filled.ok_or(FsError::NoSpace)?;
                self.get_write_access(h, &bh).await?;
                return self.add_to_new_block(h, dir, &bh, new).await;
            };
            if self.add_dirent_to_buf(h, dir, &bh, new).await? {
                return Ok(());
            }
            if blocks == 1 && !dx_fallback && self.geo.dir_index {
                return self.make_indexed_dir(h, dir, bh, new).await;
            }
        }
        let (_, bh) = self.append(h, dir).await?;
        self.add_to_new_block(h, dir, &bh, new).await
    }

    async fn add_to_new_block(
        &self,
        h: &mut Handle,
        dir: &Inode,
        bh: &Rc<Buffer>,
        new: &NewEntry<'_>,
    ) -> FsResult<()> {
        let csum = self.csum.metadata_csum;
        bh.modify(|b| {
            let end = entries_end(b.len(), csum);
            put_dirent(b, 0, 0, end as u32, b"", 0);
            if csum {
                dirent::init_tail(b);
            }
        });
        if self.add_dirent_to_buf(h, dir, bh, new).await? {
            return Ok(());
        }
        Err(FsError::NoSpace)
    }

    /// Adds an entry to one block. False if it does not fit.
    pub(crate) async fn add_dirent_to_buf(
        &self,
        h: &mut Handle,
        dir: &Inode,
        bh: &Rc<Buffer>,
        new: &NewEntry<'_>,
    ) -> FsResult<bool> {
        let end = entries_end(bh.size(), self.csum.metadata_csum);
        let dest = bh
            .read(|b| dirblock::find_dest(b, 0, end, new.name))
            .map_err(|e| e.at(bh.blocknr.0))?;
        let at = match dest {
            Dest::At(at) => at,
            Dest::Full => return Ok(false),
            Dest::Exists => return Err(FsError::Errno(crate::base::Errno::EEXIST)),
        };
        self.get_write_access(h, bh).await?;
        bh.modify(|b| dirblock::insert_at(b, at, new.ino.0, new.file_type, new.name))?;
        self.dir_changed(dir);
        self.inc_iversion(dir);
        self.mark_inode_dirty(h, dir).await?;
        self.dirty_dirblock(h, dir, bh).await?;
        Ok(true)
    }

    /// Removes an entry that was found under the same locks.
    pub(crate) async fn delete_entry(
        &self,
        h: &mut Handle,
        dir: &Inode,
        slot: &DirSlot,
    ) -> FsResult<()> {
        let Place::Block(bh) = &slot.place else {
            return self.delete_inline_entry(h, dir, slot).await;
        };
        self.get_write_access(h, bh).await?;
        let end = entries_end(bh.size(), self.csum.metadata_csum);
        let found = bh
            .modify(|b| dirblock::delete_at(b, 0, end, slot.at))
            .map_err(|e| e.at(bh.blocknr.0))?;
        if !found {
            return Err(FsError::Errno(crate::base::Errno::ENOENT));
        }
        self.inc_iversion(dir);
        self.dirty_dirblock(h, dir, bh).await
    }

    /// Times of a directory whose entries changed, and its index flag where the feature is missing.
    pub(crate) fn dir_changed(&self, dir: &Inode) {
        let now = self.inode_set_ctime_current(dir);
        dir.core.borrow_mut().mtime = now;
        self.update_dx_flag(dir);
    }

    /// Drops the index flag where the file system has no `dir_index` (kernel `ext4_update_dx_flag`).
    pub(crate) fn update_dx_flag(&self, dir: &Inode) {
        if dir.has_flag(flag::INDEX) && !self.geo.dir_index {
            dir.set_flag(flag::INDEX, false);
        }
    }

    /// `EXT4_FT_*` to store for `i_mode`: 0 without the `filetype` feature.
    pub(crate) fn file_type(&self, i_mode: u32) -> u8 {
        if self.geo.filetype {
            dirent::file_type_of_mode((i_mode & mode::S_IFMT) as u16)
        } else {
            0
        }
    }

    /// True if a directory holds nothing but `.` and `..`.
    pub(crate) async fn empty_dir(&self, dir: &Inode) -> FsResult<bool> {
        if dir.has_flag(flag::INLINE_DATA) {
            return self.empty_inline_dir(dir);
        }
        let blocks = self.dir_blocks(dir);
        if blocks == 0 {
            return Err(Corrupt::new(CorruptKind::DxRoot {}, 0).into());
        }
        for lblk in 0..blocks {
            let Some(bh) = self.read_dirblock(dir, lblk, DirBlockKind::Entries).await? else {
                if lblk == 0 {
                    return Err(Corrupt::new(CorruptKind::DxRoot {}, 0).into());
                }
                continue;
            };
            let empty = bh
                .read(|b| -> Result<bool, Corrupt> {
                    let mut at = if lblk == 0 { skip_dots(b)? } else { 0 };
                    while (at as usize) < b.len() {
                        let d = dirent_at(b, at)?;
                        if d.inode != 0 {
                            return Ok(false);
                        }
                        at += d.rec_len;
                    }
                    Ok(true)
                })
                .map_err(|e| e.at(bh.blocknr.0))?;
            if !empty {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// First contents of a new directory: `.` and `..`, in the inode where that is possible.
    pub(crate) async fn init_new_dir(
        &self,
        h: &mut Handle,
        parent: &Inode,
        inode: &Inode,
    ) -> FsResult<()> {
        if inode.has_state(state::MAY_INLINE_DATA)
            && self.try_create_inline_dir(h, parent, inode).await?
        {
            return Ok(());
        }
        inode.core.borrow_mut().nlink = 2;
        let (_, bh) = self.append(h, inode).await?;
        let csum = self.csum.metadata_csum;
        let file_type = self.file_type(mode::S_IFDIR);
        bh.modify(|b| {
            let end = entries_end(b.len(), csum) as u32;
            let dot = dir_rec_len(1);
            put_dirent(b, 0, inode.ino.0, dot, b".", file_type);
            put_dirent(b, dot, parent.ino.0, end - dot, b"..", file_type);
            if csum {
                dirent::init_tail(b);
            }
        });
        self.dirty_dirblock(h, inode, &bh).await
    }

    /// One more link, for a directory with the rule that an indexed one stops counting (kernel `ext4_inc_count`).
    pub(crate) fn inc_count(&self, inode: &Inode) {
        let stops = self.is_dx(inode) && inode.is_dir();
        let mut core = inode.core.borrow_mut();
        core.nlink += 1;
        if stops && (core.nlink > LINK_MAX || core.nlink == 2) {
            core.nlink = 1;
        }
    }

    /// One link less; a directory keeps 2, or 1 where links are not counted (kernel `ext4_dec_count`).
    pub(crate) fn dec_count(&self, inode: &Inode) {
        let dir = inode.is_dir();
        let mut core = inode.core.borrow_mut();
        if !dir || core.nlink > 2 {
            core.nlink = core.nlink.saturating_sub(1);
        }
    }

    /// True if `dir` may not get another subdirectory (`EXT4_DIR_LINK_MAX`).
    pub(crate) fn dir_link_max(&self, dir: &Inode) -> bool {
        dir.core.borrow().nlink >= LINK_MAX && !(self.geo.dir_nlink && self.is_dx(dir))
    }

    /// Inode number that `..` of `dir` names.
    pub async fn dotdot_ino(&self, dir: &Inode) -> FsResult<Ino> {
        Ok(Ino(self.dotdot(dir).await?.ino))
    }

    /// The slot of `..` (or its inline stand-in) of `dir` (kernel `ext4_get_first_dir_block`).
    pub(crate) async fn dotdot(&self, dir: &Inode) -> FsResult<DirSlot> {
        if dir.has_flag(flag::INLINE_DATA) {
            let ino = crate::base::bytes::le32(&dir.core.borrow().i_block, 0);
            return Ok(DirSlot {
                place: Place::InlineBody,
                at: 0,
                ino,
                file_type: EXT4_FT_DIR,
            });
        }
        let bh = self.need_dirblock(dir, 0, DirBlockKind::Entries).await?;
        let (at, ino) = bh
            .read(|b| -> Result<(u32, u32), Corrupt> {
                let dot = dirent_at(b, 0)?;
                let dotdot = dirent_at(b, dot.rec_len)?;
                if dot.name != b"." || dotdot.name != b".." {
                    return Err(Corrupt::new(CorruptKind::DxRoot {}, 0));
                }
                Ok((dotdot.offset, dotdot.inode))
            })
            .map_err(|e| e.at(bh.blocknr.0))?;
        Ok(DirSlot {
            place: Place::Block(bh),
            at,
            ino,
            file_type: EXT4_FT_DIR,
        })
    }
}

/// Most links of an inode (`EXT4_LINK_MAX`).
pub(crate) const LINK_MAX: u32 = 65000;

fn is_dx_kind(kind: CorruptKind) -> bool {
    matches!(
        kind,
        CorruptKind::DxRoot {}
            | CorruptKind::DxHashVersion { .. }
            | CorruptKind::DxUnusedFlags { .. }
            | CorruptKind::DxInfoLength { .. }
            | CorruptKind::DxLevels { .. }
            | CorruptKind::DxLimit { .. }
            | CorruptKind::DxCount { .. }
            | CorruptKind::DxBlock { .. }
    )
}

fn skip_dots(block: &[u8]) -> Result<u32, Corrupt> {
    let dot = dirent_at(block, 0)?;
    let dotdot = dirent_at(block, dot.rec_len)?;
    if dot.name != b"." || dotdot.name != b".." || dot.inode == 0 || dotdot.inode == 0 {
        return Err(Corrupt::new(CorruptKind::DxRoot {}, 0));
    }
    Ok(dotdot.offset + dotdot.rec_len)
}
