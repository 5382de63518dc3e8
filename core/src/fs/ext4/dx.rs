//! Indexed directories (kernel `fs/ext4/namei.c`: `dx_probe`, `ext4_dx_find_entry`, `ext4_htree_next_block`,
//! `ext4_dx_add_entry`, `do_split`, `make_indexed_dir`).
//!
//! Invariants:
//! 1. A lookup allocates nothing: the path is a fixed array of frames.
//! 2. An entry is inserted only into the leaf that the path found for its hash leads to; after an index block was
//!    split the path is searched again.
//! 3. Splits change only blocks for which the handle has write access, and never lose the entry being inserted:
//!    it is added after the split, into the half its hash belongs to.

use super::dir::{DirBlockKind, DirSlot, NewEntry, Place};
use super::dirblock::{self, entries_end};
use super::dx_node::{self, NODE_ENTRIES, ROOT_ENTRIES};
use super::{flag, Ext4, Inode};
use crate::format::ext4::dirent::{dirent_at, init_tail};
use crate::format::ext4::dirhash::{dirhash, DirHash};
use crate::format::ext4::superblock::EXT2_FLAGS_UNSIGNED_HASH;
use crate::format::{Corrupt, CorruptKind};
use crate::fs::common::{FsError, FsResult};
use crate::fs::jbd2::Handle;
use crate::mm::buffer::Buffer;
use std::rc::Rc;

/// Deepest path: root and two levels (`EXT4_HTREE_LEVEL`).
const LEVELS_MAX: usize = 3;

/// One index block on the way down.
#[derive(Clone)]
pub(crate) struct DxFrame {
    /// The block.
    pub bh: Rc<Buffer>,
    /// Offset of its entries.
    pub base: usize,
    /// The entry taken.
    pub at: u16,
}

impl DxFrame {
    fn count(&self) -> u16 {
        self.bh.read(|b| dx_node::count(b, self.base))
    }

    fn full(&self) -> bool {
        self.bh
            .read(|b| dx_node::count(b, self.base) == dx_node::limit(b, self.base))
    }

    fn block(&self) -> u32 {
        self.bh.read(|b| dx_node::block(b, self.base, self.at))
    }
}

/// Way from the root to the index entry of a leaf.
pub(crate) struct DxPath {
    frames: [Option<DxFrame>; LEVELS_MAX],
    /// Index of the lowest frame.
    pub last: usize,
    /// Hash that was looked for.
    pub hash: DirHash,
    /// Hash version of the directory as stored.
    pub version: u8,
}

impl DxPath {
    fn frame(&self, i: usize) -> &DxFrame {
        self.frames[i]
            .as_ref()
            .expect("frames up to `last` are set")
    }

    fn frame_mut(&mut self, i: usize) -> &mut DxFrame {
        self.frames[i]
            .as_mut()
            .expect("frames up to `last` are set")
    }

    /// Block of the leaf the path leads to.
    pub(crate) fn leaf(&self) -> u32 {
        self.frame(self.last).block()
    }
}

impl Ext4 {
    /// True if `dir` has an index that is in use.
    pub(crate) fn is_dx(&self, dir: &Inode) -> bool {
        self.geo.dir_index && dir.has_flag(flag::INDEX)
    }

    fn htree_levels(&self) -> u8 {
        if self.geo.large_dir {
            3
        } else {
            2
        }
    }

    /// Hash of `name` by stored version `version`, signed or unsigned as the superblock says.
    pub(crate) fn hash_name(&self, version: u8, name: &[u8]) -> DirHash {
        let sb = self.sb.borrow();
        let unsigned = sb.s_flags & EXT2_FLAGS_UNSIGNED_HASH != 0;
        // Versions that are not implemented were refused with the root.
        dirhash(name, version, sb.s_hash_seed, unsigned).unwrap_or_default()
    }

    /// Way to the leaf for the name's hash. A malformed index is `FsError::Corrupt`.
    pub(crate) async fn dx_probe(&self, dir: &Inode, name: &[u8]) -> FsResult<DxPath> {
        self.dx_probe_for(dir, |version| self.hash_name(version, name))
            .await
    }

    /// Way to the leaf for the hash that `hash` gives for the directory's hash version.
    pub(crate) async fn dx_probe_for(
        &self,
        dir: &Inode,
        hash: impl FnOnce(u8) -> DirHash,
    ) -> FsResult<DxPath> {
        let csum = self.csum.metadata_csum;
        let mut bh = self.need_dirblock(dir, 0, DirBlockKind::Index).await?;
        let top = bh.read(|b| -> Result<_, Corrupt> {
            let top = dx_node::root_info(b, self.htree_levels())?;
            dx_node::check(b, ROOT_ENTRIES, csum)?;
            Ok(top)
        })?;
        let mut path = DxPath {
            frames: [const { None }; LEVELS_MAX],
            last: 0,
            hash: hash(top.hash_version),
            version: top.hash_version,
        };
        let mut base = ROOT_ENTRIES;
        let mut seen = [0u32; LEVELS_MAX + 1];
        for level in 0..=usize::from(top.indirect_levels) {
            let (at, block) = bh.read(|b| {
                let at = dx_node::find(b, base, path.hash.hash);
                (at, dx_node::block(b, base, at))
            });
            path.frames[level] = Some(DxFrame { bh, base, at });
            path.last = level;
            if seen[..=level].contains(&block) {
                let kind = CorruptKind::DxBlock {
                    block,
                    blocks: self.dir_blocks(dir),
                };
                return Err(Corrupt::new(kind, 0).into());
            }
            if level == usize::from(top.indirect_levels) {
                break;
            }
            seen[level + 1] = block;
            bh = self.need_dirblock(dir, block, DirBlockKind::Index).await?;
            base = NODE_ENTRIES;
            bh.read(|b| dx_node::check(b, base, csum))?;
        }
        Ok(path)
    }

    /// Moves the path to the next leaf; its start hash. Where `hash` is given, only if that leaf continues a run of
    /// names with that hash (kernel `ext4_htree_next_block`).
    pub(crate) async fn dx_next_block(
        &self,
        dir: &Inode,
        path: &mut DxPath,
        hash: Option<u32>,
    ) -> FsResult<Option<u32>> {
        let mut level = path.last;
        loop {
            let frame = path.frame_mut(level);
            frame.at += 1;
            if frame.at < frame.count() {
                break;
            }
            if level == 0 {
                return Ok(None);
            }
            level -= 1;
        }
        let frame = path.frame(level);
        let start = frame.bh.read(|b| dx_node::hash(b, frame.base, frame.at));
        if let Some(hash) = hash {
            if hash & 1 == 0 && start & !1 != hash {
                return Ok(None);
            }
        }
        while level < path.last {
            let block = path.frame(level).block();
            let bh = self.need_dirblock(dir, block, DirBlockKind::Index).await?;
            bh.read(|b| dx_node::check(b, NODE_ENTRIES, self.csum.metadata_csum))?;
            level += 1;
            path.frames[level] = Some(DxFrame {
                bh,
                base: NODE_ENTRIES,
                at: 0,
            });
        }
        Ok(Some(start))
    }

    /// Looks `name` up through the index.
    pub(crate) async fn dx_find_entry(
        &self,
        dir: &Inode,
        name: &[u8],
    ) -> FsResult<Option<DirSlot>> {
        let mut path = self.dx_probe(dir, name).await?;
        let hash = path.hash.hash;
        loop {
            let block = path.leaf();
            let bh = self.need_dirblock(dir, block, DirBlockKind::Leaf).await?;
            if let Some(slot) = self.search_buffer(&bh, name)? {
                return Ok(Some(slot));
            }
            if self
                .dx_next_block(dir, &mut path, Some(hash))
                .await?
                .is_none()
            {
                return Ok(None);
            }
        }
    }

    /// Adds an entry to an indexed directory, splitting leaf and index blocks where they are full.
    pub(crate) async fn dx_add_entry(
        &self,
        h: &mut Handle,
        dir: &Inode,
        new: &NewEntry<'_>,
    ) -> FsResult<()> {
        loop {
            let mut path = self.dx_probe(dir, new.name).await?;
            let block = path.leaf();
            let bh = self.need_dirblock(dir, block, DirBlockKind::Leaf).await?;
            self.get_write_access(h, &bh).await?;
            if self.add_dirent_to_buf(h, dir, &bh, new).await? {
                return Ok(());
            }
            if path.frame(path.last).full() && self.split_index(h, dir, &mut path).await? {
                continue;
            }
            let hash = path.hash.hash;
            let version = path.version;
            let last = path.last;
            let frame = path.frame_mut(last);
            let bh = self.do_split(h, dir, bh, frame, hash, version).await?;
            if self.add_dirent_to_buf(h, dir, &bh, new).await? {
                return Ok(());
            }
            return Err(FsError::NoSpace);
        }
    }

    /// Makes room in the lowest index block of the path. True if the path must be searched again.
    async fn split_index(&self, h: &mut Handle, dir: &Inode, path: &mut DxPath) -> FsResult<bool> {
        let mut level = path.last;
        let mut restart = false;
        let mut add_level = true;
        while level > 0 {
            if !path.frame(level - 1).full() {
                add_level = false;
                break;
            }
            level -= 1;
            restart = true;
        }
        if add_level && path.last + 1 == usize::from(self.htree_levels()) {
            return Err(FsError::NoSpace);
        }
        let csum = self.csum.metadata_csum;
        let (lblk, bh2) = self.append(h, dir).await?;
        let frame = path.frame(level).clone();
        self.get_write_access(h, &frame.bh).await?;
        bh2.modify(|b| dx_node::init_node(b, csum));
        let count = frame.count();
        if add_level {
            frame.bh.modify(|root| {
                bh2.modify(|b| dx_node::copy_entries(root, frame.base, 0, count, b, NODE_ENTRIES));
                dx_node::set_count(root, frame.base, 1);
                dx_node::set_block(root, frame.base, 0, lblk.0);
                dx_node::add_level(root);
            });
            self.dirty_dx_node(h, dir, &frame.bh).await?;
            self.dirty_dx_node(h, dir, &bh2).await?;
            return Ok(true);
        }
        let first_half = count / 2;
        let parent = path.frame(level - 1).clone();
        self.get_write_access(h, &parent.bh).await?;
        let hash2 = frame.bh.modify(|b| {
            let hash2 = dx_node::hash(b, frame.base, first_half);
            bh2.modify(|to| {
                let n = count - first_half;
                dx_node::copy_entries(b, frame.base, first_half, n, to, NODE_ENTRIES);
            });
            dx_node::set_count(b, frame.base, first_half);
            hash2
        });
        parent
            .bh
            .modify(|b| dx_node::insert_after(b, parent.base, parent.at, hash2, lblk.0));
        if frame.at >= first_half {
            let moved = path.frame_mut(level);
            moved.at = frame.at - first_half;
            moved.bh = Rc::clone(&bh2);
            moved.base = NODE_ENTRIES;
        }
        self.dirty_dx_node(h, dir, &bh2).await?;
        self.dirty_dx_node(h, dir, &parent.bh).await?;
        self.dirty_dx_node(h, dir, &frame.bh).await?;
        Ok(restart)
    }

    /// Splits the leaf `bh` by hash and puts the new half into the index. The half that `hash` belongs to.
    async fn do_split(
        &self,
        h: &mut Handle,
        dir: &Inode,
        bh: Rc<Buffer>,
        frame: &mut DxFrame,
        hash: u32,
        version: u8,
    ) -> FsResult<Rc<Buffer>> {
        let csum = self.csum.metadata_csum;
        let size = bh.size();
        let end = entries_end(size, csum);
        let (lblk, bh2) = self.append(h, dir).await?;
        self.get_write_access(h, &bh).await?;
        self.get_write_access(h, &frame.bh).await?;
        let map =
            bh.read(|b| dirblock::make_map(b, end, |name| self.hash_name(version, name).hash))?;
        let split = dirblock::split_point(&map, size as u32);
        if split == 0 {
            let kind = CorruptKind::DirentOverrun {
                rec_len: 0,
                room: end as u32,
            };
            return Err(Corrupt::new(kind, 0).at(bh.blocknr.0).into());
        }
        let hash2 = map[split].hash;
        let continued = u32::from(hash2 == map[split - 1].hash);
        bh.modify(|from| {
            bh2.modify(|to| -> Result<(), Corrupt> {
                let last2 = dirblock::move_dirents(from, to, &map[split..]);
                let last = dirblock::pack_dirents(from, end)?;
                dirblock::stretch_last(from, last, end);
                dirblock::stretch_last(to, last2, end);
                if csum {
                    init_tail(from);
                    init_tail(to);
                }
                Ok(())
            })
        })?;
        frame.bh.modify(|b| {
            dx_node::insert_after(
                b,
                frame.base,
                frame.at,
                hash2.wrapping_add(continued),
                lblk.0,
            );
        });
        let (target, other) = if hash >= hash2 { (bh2, bh) } else { (bh, bh2) };
        self.dirty_dirblock(h, dir, &other).await?;
        self.dirty_dx_node(h, dir, &frame.bh).await?;
        Ok(target)
    }

    /// Turns a directory of one full block into an indexed one and adds the entry.
    pub(crate) async fn make_indexed_dir(
        &self,
        h: &mut Handle,
        dir: &Inode,
        bh: Rc<Buffer>,
        new: &NewEntry<'_>,
    ) -> FsResult<()> {
        let csum = self.csum.metadata_csum;
        let size = bh.size();
        let end = entries_end(size, csum);
        self.get_write_access(h, &bh).await?;
        let start = bh.read(|b| -> Result<u32, Corrupt> {
            let dotdot = dirent_at(&b[..end], 12)?;
            Ok(12 + dotdot.rec_len)
        })?;
        if start as usize >= end {
            let kind = CorruptKind::DxRoot {};
            return Err(Corrupt::new(kind, 12).at(bh.blocknr.0).into());
        }
        let (_, bh2) = self.append(h, dir).await?;
        dir.set_flag(flag::INDEX, true);
        let moved = bh.read(|b| b[start as usize..end].to_vec());
        bh2.modify(|to| -> Result<(), Corrupt> {
            to[..moved.len()].copy_from_slice(&moved);
            let mut last = 0;
            let mut at = 0u32;
            while (at as usize) < moved.len() {
                last = at;
                at += dirent_at(&moved, at)?.rec_len;
            }
            dirblock::stretch_last(to, last, end);
            if csum {
                init_tail(to);
            }
            Ok(())
        })?;
        let version = self.sb.borrow().s_def_hash_version;
        bh.modify(|root| dx_node::init_root(root, version, csum));
        let hash = self.hash_name(version, new.name).hash;
        let mut frame = DxFrame {
            bh,
            base: ROOT_ENTRIES,
            at: 0,
        };
        self.dirty_dx_node(h, dir, &frame.bh).await?;
        self.dirty_dirblock(h, dir, &bh2).await?;
        let done = self.do_split(h, dir, bh2, &mut frame, hash, version).await;
        let added = match done {
            Ok(bh) => self.add_dirent_to_buf(h, dir, &bh, new).await,
            Err(e) => Err(e),
        };
        match added {
            Ok(true) => Ok(()),
            Ok(false) => Err(FsError::NoSpace),
            Err(e) => {
                // What was changed so far is consistent and must not be lost with the inode's new flag and size.
                self.mark_inode_dirty(h, dir).await?;
                Err(e)
            }
        }
    }

    /// Looks for `name` in one leaf buffer.
    pub(crate) fn search_buffer(&self, bh: &Rc<Buffer>, name: &[u8]) -> FsResult<Option<DirSlot>> {
        let found = bh
            .read(|b| {
                dirblock::search(b, 0, b.len(), name)
                    .map(|d| d.map(|d| (d.offset, d.inode, d.file_type)))
            })
            .map_err(|e| e.at(bh.blocknr.0))?;
        Ok(found.map(|(at, ino, file_type)| DirSlot {
            place: Place::Block(Rc::clone(bh)),
            at,
            ino,
            file_type,
        }))
    }
}
