//! A read-only look at an ext4 on any disk that can be read at once: crash images, image files, the disk at an
//! instant. Knows no journal: what is only in the log is not seen (replay first).
//!
//! Bounded on hostile bytes: trees end at depth 5, directory and block walks at the file's size and a budget.

use crate::base::{bytes, ReadAt};
use crate::format::ext4::extent::{self, ExtentNode, EXT4_MAX_EXTENT_DEPTH};
use crate::format::ext4::features::{self, FeatureSet};
use crate::format::ext4::inode::{
    xattr_area, EXT4_EXTENTS_FL, EXT4_INDEX_FL, EXT4_INLINE_DATA_FL, I_BLOCK_SIZE,
};
use crate::format::ext4::superblock::{EXT4_JOURNAL_INO, EXT4_ROOT_INO};
use crate::format::ext4::xattr::{self, XattrEntry, XattrHeader};
use crate::format::ext4::{acl, dirent, dx, inline_data, CsumCtx, GroupDesc, RawInode, SuperBlock};
use crate::format::{Corrupt, CorruptKind};
use std::collections::BTreeMap;

/// Why something cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadError {
    /// A structure is damaged.
    Corrupt(Corrupt),
    /// A path component does not exist.
    NotFound,
    /// A path component is not a directory.
    NotDirectory,
    /// Too many symbolic links.
    Loop,
    /// Not a regular file.
    NotFile,
    /// A feature that is not read.
    Unsupported(String),
}

impl From<Corrupt> for ReadError {
    fn from(c: Corrupt) -> ReadError {
        ReadError::Corrupt(c)
    }
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ReadError::Corrupt(c) => write!(f, "{c}"),
            ReadError::NotFound => f.write_str("no such file or directory"),
            ReadError::NotDirectory => f.write_str("not a directory"),
            ReadError::Loop => f.write_str("too many levels of symbolic links"),
            ReadError::NotFile => f.write_str("not a regular file"),
            ReadError::Unsupported(what) => write!(f, "{what} is not supported"),
        }
    }
}

/// A stretch of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// First file block.
    pub lblk: u32,
    /// Blocks.
    pub len: u32,
    /// First block on the disk.
    pub pblk: u64,
    /// Allocated but reads as zero.
    pub unwritten: bool,
}

/// An inode with its raw bytes.
#[derive(Clone, Debug)]
pub struct Inode {
    /// Number.
    pub ino: u32,
    /// Decoded fields.
    pub raw: RawInode,
    /// Bytes as on the disk.
    pub bytes: Vec<u8>,
}

/// One name in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The name.
    pub name: Vec<u8>,
    /// Inode number.
    pub ino: u32,
    /// `EXT4_FT_*`.
    pub file_type: u8,
}

/// Most levels of symbolic links in a path.
const SYMLINK_DEPTH_MAX: u32 = 40;
/// Most blocks of one directory that are read.
const DIR_BLOCKS_MAX: u64 = 1 << 20;

/// Incompatible features that reading copes with.
const READABLE: [features::Feature; 11] = [
    features::FILETYPE,
    features::RECOVER,
    features::META_BG,
    features::EXTENTS,
    features::BIT64,
    features::MMP,
    features::FLEX_BG,
    features::EA_INODE,
    features::CSUM_SEED,
    features::LARGEDIR,
    features::INLINE_DATA,
];

/// A reader over a disk.
pub struct Reader<'a, R: ReadAt + ?Sized> {
    disk: &'a R,
    /// The superblock.
    pub sb: SuperBlock,
    ctx: CsumCtx,
    block_size: u64,
}

impl<'a, R: ReadAt + ?Sized> Reader<'a, R> {
    /// Reads the superblock; features that cannot be read are refused by name.
    pub fn open(disk: &'a R) -> Result<Reader<'a, R>, ReadError> {
        let mut b = vec![0u8; 1024];
        disk.read_at(1024, &mut b);
        let sb = SuperBlock::decode(&b)?;
        let unknown = sb.s_feature_incompat & !READABLE.iter().fold(0, |m, f| m | f.mask);
        if unknown != 0 {
            let names = features::names(FeatureSet::Incompat, unknown).join(",");
            return Err(ReadError::Unsupported(names));
        }
        let ctx = sb.csum_ctx();
        let block_size = u64::from(sb.block_size());
        Ok(Reader {
            disk,
            sb,
            ctx,
            block_size,
        })
    }

    /// Bytes of a block.
    pub fn block(&self, block: u64) -> Vec<u8> {
        let mut b = vec![0u8; self.block_size as usize];
        self.disk
            .read_at(block.saturating_mul(self.block_size), &mut b);
        b
    }

    /// A group descriptor.
    pub fn group_desc(&self, group: u32) -> GroupDesc {
        let size = self.sb.desc_size();
        let per = self.sb.descs_per_block().max(1);
        let block = self.sb.descriptor_block(group / per);
        let at = u64::from(group % per) * u64::from(size);
        let mut b = vec![0u8; usize::from(size)];
        self.disk.read_at(
            block.saturating_mul(self.block_size).saturating_add(at),
            &mut b,
        );
        GroupDesc::decode(&b, size)
    }

    /// All group descriptors.
    pub fn group_descs(&self) -> Vec<GroupDesc> {
        let size = self.sb.desc_size();
        let per = self.sb.descs_per_block().max(1);
        let mut out = Vec::new();
        let mut block = Vec::new();
        for g in 0..self.sb.groups_count() {
            if g % per == 0 {
                block = self.block(self.sb.descriptor_block(g / per));
            }
            let at = (g % per) as usize * usize::from(size);
            let desc = block.get(at..at + usize::from(size)).unwrap_or(&[]);
            out.push(GroupDesc::decode(desc, size));
        }
        out
    }

    /// Block of the inode table that holds an inode, and the byte within it.
    pub fn inode_place(&self, ino: u32) -> Option<(u64, u32)> {
        let (group, index) = self.sb.locate_inode(ino)?;
        let table = self.group_desc(group).bg_inode_table;
        let at = u64::from(index) * u64::from(self.sb.inode_size());
        Some((
            table.saturating_add(at / self.block_size),
            (at % self.block_size) as u32,
        ))
    }

    /// An inode, its checksum verified.
    pub fn inode(&self, ino: u32) -> Result<Inode, ReadError> {
        let inode = self.inode_unverified(ino)?;
        RawInode::csum_verify(&self.ctx, ino, &inode.bytes)?;
        Ok(inode)
    }

    /// An inode as it is.
    pub fn inode_unverified(&self, ino: u32) -> Result<Inode, ReadError> {
        let (block, at) = self.inode_place(ino).ok_or(ReadError::NotFound)?;
        let mut bytes = vec![0u8; usize::from(self.sb.inode_size())];
        self.disk.read_at(
            block
                .saturating_mul(self.block_size)
                .saturating_add(u64::from(at)),
            &mut bytes,
        );
        Ok(Inode {
            ino,
            raw: RawInode::decode(&bytes)?,
            bytes,
        })
    }

    /// Stretches of a file in order, and the blocks of its tree.
    pub fn pieces(&self, inode: &Inode) -> Result<(Vec<Piece>, Vec<u64>), ReadError> {
        let raw = &inode.raw;
        if raw.has_flag(EXT4_INLINE_DATA_FL) || raw.is_fast_symlink() {
            return Ok((Vec::new(), Vec::new()));
        }
        if !(raw.is_reg() || raw.is_dir() || raw.is_symlink()) {
            return Ok((Vec::new(), Vec::new()));
        }
        if raw.has_flag(EXT4_EXTENTS_FL) {
            self.extent_pieces(inode)
        } else {
            self.indirect_pieces(inode)
        }
    }

    fn extent_pieces(&self, inode: &Inode) -> Result<(Vec<Piece>, Vec<u64>), ReadError> {
        let bounds = (self.sb.s_first_data_block, self.sb.s_blocks_count);
        let (mut pieces, mut tree) = (Vec::<Piece>::new(), Vec::new());
        let mut left = self.sb.s_blocks_count;
        // Nodes still to visit, deepest last: (bytes, expected depth).
        let mut todo: Vec<(Option<u64>, Option<u16>)> = vec![(None, None)];
        while let Some((block, depth)) = todo.pop() {
            let bytes = match block {
                None => inode.raw.i_block.to_vec(),
                Some(b) => {
                    let bytes = self.block(b);
                    extent::csum_verify(&self.ctx, inode.ino, inode.raw.i_generation, &bytes)
                        .map_err(|c| c.at(b))?;
                    tree.push(b);
                    bytes
                }
            };
            let (h, node) =
                extent::decode_node(&bytes, depth, bounds).map_err(|c| c.at(block.unwrap_or(0)))?;
            match node {
                ExtentNode::Leaf(list) => {
                    for e in list {
                        let len = u32::from(e.len);
                        let (lblk, pblk) = (e.lblk, e.pblk);
                        let kind = CorruptKind::ExtentBounds { lblk, pblk, len };
                        left = left
                            .checked_sub(u64::from(len))
                            .ok_or(Corrupt::new(kind, 0))?;
                        pieces.push(Piece {
                            lblk,
                            len,
                            pblk,
                            unwritten: e.unwritten,
                        });
                    }
                }
                ExtentNode::Index(list) => {
                    if h.eh_depth > EXT4_MAX_EXTENT_DEPTH || tree.len() > (1 << 20) {
                        let kind = CorruptKind::ExtentDepth {
                            depth: h.eh_depth,
                            expected: 5,
                        };
                        return Err(Corrupt::new(kind, 6).into());
                    }
                    let below = Some(h.eh_depth - 1);
                    todo.extend(list.iter().rev().map(|i| (Some(i.leaf), below)));
                }
            }
        }
        Ok((pieces, tree))
    }

    fn indirect_pieces(&self, inode: &Inode) -> Result<(Vec<Piece>, Vec<u64>), ReadError> {
        let per = self.block_size / 4;
        let blocks = inode.raw.i_size.div_ceil(self.block_size);
        let (mut pieces, mut tree) = (Vec::new(), Vec::new());
        let mut lblk = 0u64;
        for i in 0..12 {
            self.push_piece(&mut pieces, lblk, u64::from(inode.raw.block_ptr(i)))?;
            lblk += 1;
        }
        for (slot, depth) in [(12usize, 1u32), (13, 2), (14, 3)] {
            let span = per.saturating_pow(depth);
            let ptr = u64::from(inode.raw.block_ptr(slot));
            if ptr != 0 && lblk < blocks.max(1) {
                self.indirect(ptr, depth, lblk, blocks, &mut pieces, &mut tree)?;
            }
            lblk = lblk.saturating_add(span);
        }
        Ok((pieces, tree))
    }

    /// Walks one indirect tree; recursion ends at depth 3 of the on-disk format.
    fn indirect(
        &self,
        block: u64,
        depth: u32,
        lblk: u64,
        end: u64,
        pieces: &mut Vec<Piece>,
        tree: &mut Vec<u64>,
    ) -> Result<(), ReadError> {
        // More indirect blocks than the file system has blocks: one is used again and again.
        let too_many = tree.len() as u64 > self.sb.s_blocks_count;
        if too_many || !self.sb.blocks_valid(block, 1) {
            let kind = CorruptKind::ExtentBounds {
                lblk: lblk as u32,
                pblk: block,
                len: 1,
            };
            return Err(Corrupt::new(kind, 0).into());
        }
        tree.push(block);
        let bytes = self.block(block);
        let per = self.block_size / 4;
        let span = per.saturating_pow(depth - 1);
        for i in 0..per {
            let at = lblk.saturating_add(i * span);
            let ptr = u64::from(bytes::le32(&bytes, (i * 4) as usize));
            if ptr == 0 || at >= end {
                continue;
            }
            if depth == 1 {
                self.push_piece(pieces, at, ptr)?;
            } else {
                self.indirect(ptr, depth - 1, at, end, pieces, tree)?;
            }
        }
        Ok(())
    }

    fn push_piece(&self, pieces: &mut Vec<Piece>, lblk: u64, pblk: u64) -> Result<(), ReadError> {
        if pblk == 0 {
            return Ok(());
        }
        if !self.sb.blocks_valid(pblk, 1) {
            let kind = CorruptKind::ExtentBounds {
                lblk: lblk as u32,
                pblk,
                len: 1,
            };
            return Err(Corrupt::new(kind, 0).into());
        }
        match pieces.last_mut() {
            Some(p)
                if u64::from(p.lblk) + u64::from(p.len) == lblk
                    && p.pblk + u64::from(p.len) == pblk =>
            {
                p.len += 1;
            }
            _ => pieces.push(Piece {
                lblk: lblk as u32,
                len: 1,
                pblk,
                unwritten: false,
            }),
        }
        Ok(())
    }

    /// Contents of an inline file or directory.
    fn inline(inode: &Inode) -> Result<Vec<u8>, ReadError> {
        let area = xattr_area(&inode.bytes);
        let value = inline_data::system_data(area)?;
        Ok(inline_data::content(
            &inode.raw.i_block,
            value,
            inode.raw.i_size,
        )?)
    }

    /// Copies the bytes of a file at `offset`; holes, unwritten extents and bytes past the end are zero.
    pub fn read(
        &self,
        inode: &Inode,
        pieces: &[Piece],
        offset: u64,
        out: &mut [u8],
    ) -> Result<(), ReadError> {
        out.fill(0);
        if inode.raw.has_flag(EXT4_INLINE_DATA_FL) {
            let content = Self::inline(inode)?;
            let from = content.get(offset as usize..).unwrap_or(&[]);
            let n = from.len().min(out.len());
            out[..n].copy_from_slice(&from[..n]);
            return Ok(());
        }
        let end = offset
            .saturating_add(out.len() as u64)
            .min(inode.raw.i_size);
        let bs = self.block_size;
        let first =
            pieces.partition_point(|p| (u64::from(p.lblk) + u64::from(p.len)) * bs <= offset);
        for p in &pieces[first..] {
            let (start, stop) = (
                u64::from(p.lblk) * bs,
                (u64::from(p.lblk) + u64::from(p.len)) * bs,
            );
            if start >= end {
                break;
            }
            if p.unwritten {
                continue;
            }
            let (lo, hi) = (start.max(offset), stop.min(end));
            if lo < hi {
                let dst = &mut out[(lo - offset) as usize..(hi - offset) as usize];
                self.disk.read_at(p.pblk * bs + (lo - start), dst);
            }
        }
        Ok(())
    }

    /// Target of a symbolic link.
    pub fn readlink(&self, inode: &Inode) -> Result<Vec<u8>, ReadError> {
        let size = inode.raw.i_size.min(self.block_size) as usize;
        if inode.raw.is_fast_symlink() {
            return Ok(inode.raw.i_block[..size.min(I_BLOCK_SIZE)].to_vec());
        }
        let (pieces, _) = self.pieces(inode)?;
        let mut out = vec![0u8; size];
        self.read(inode, &pieces, 0, &mut out)?;
        Ok(out)
    }

    /// Names in a directory, "." and ".." left out, in the order of the disk.
    pub fn readdir(&self, dir: &Inode) -> Result<Vec<Name>, ReadError> {
        if !dir.raw.is_dir() {
            return Err(ReadError::NotDirectory);
        }
        let mut out = Vec::new();
        let mut push = |d: dirent::Dirent<'_>| {
            if d.inode != 0 && d.name != b"." && d.name != b".." {
                out.push(Name {
                    name: d.name.to_vec(),
                    ino: d.inode,
                    file_type: d.file_type,
                });
            }
        };
        if dir.raw.has_flag(EXT4_INLINE_DATA_FL) {
            let value = inline_data::system_data(xattr_area(&dir.bytes))?;
            for d in inline_data::dir_entries(&dir.raw.i_block, value) {
                push(d?);
            }
            return Ok(out);
        }
        let (pieces, _) = self.pieces(dir)?;
        let blocks = (dir.raw.i_size / self.block_size).min(DIR_BLOCKS_MAX);
        for p in pieces {
            for i in 0..u64::from(p.len) {
                if u64::from(p.lblk) + i >= blocks || p.unwritten {
                    continue;
                }
                let block = self.block(p.pblk + i);
                let lblk = u64::from(p.lblk) + i;
                self.verify_dir_block(dir, lblk, &block)
                    .map_err(|c| c.at(p.pblk + i))?;
                for d in dirent::live_entries(&block) {
                    push(d.map_err(|c| c.at(p.pblk + i))?);
                }
            }
        }
        Ok(out)
    }

    /// Checks the checksum of a directory block: htree nodes keep it after their entries, leaves at the end.
    fn verify_dir_block(&self, dir: &Inode, lblk: u64, b: &[u8]) -> Result<(), Corrupt> {
        let (ino, generation) = (dir.ino, dir.raw.i_generation);
        if dir.raw.has_flag(EXT4_INDEX_FL) && (lblk == 0 || !dirent::has_tail(b)) {
            let at = dx::entries_offset(b)?;
            return dx::csum_verify(&self.ctx, ino, generation, b, at);
        }
        dirent::csum_verify(&self.ctx, ino, generation, b)
    }

    /// The inode that a path leads to; a final symbolic link is followed if `follow`.
    pub fn lookup(&self, path: &[u8], follow: bool) -> Result<Inode, ReadError> {
        let mut trail = vec![self.inode(EXT4_ROOT_INO)?];
        let parts = |p: &[u8]| -> Vec<Vec<u8>> {
            let keep = |c: &&[u8]| !c.is_empty() && *c != b".";
            p.split(|b| *b == b'/')
                .filter(keep)
                .map(<[u8]>::to_vec)
                .rev()
                .collect()
        };
        let mut rest = parts(path);
        let mut links = 0;
        while let Some(name) = rest.pop() {
            if name == b".." {
                if trail.len() > 1 {
                    trail.pop();
                }
                continue;
            }
            let dir = &trail[trail.len() - 1];
            let names = self.readdir(dir)?;
            let found = names
                .iter()
                .find(|n| n.name == name)
                .ok_or(ReadError::NotFound)?;
            let inode = self.inode(found.ino)?;
            if inode.raw.is_symlink() && (follow || !rest.is_empty()) {
                links += 1;
                if links > SYMLINK_DEPTH_MAX {
                    return Err(ReadError::Loop);
                }
                let target = self.readlink(&inode)?;
                if target.first() == Some(&b'/') {
                    trail.truncate(1);
                }
                rest.extend(parts(&target));
            } else {
                trail.push(inode);
            }
        }
        trail.pop().ok_or(ReadError::NotFound)
    }

    /// Extended attributes with full names, as `getxattr` shows them: without `system.data`, ACLs in the form of
    /// their attributes.
    pub fn xattrs(&self, inode: &Inode) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, ReadError> {
        let mut out = BTreeMap::new();
        let mut add = |entries: Vec<XattrEntry<'_>>| -> Result<(), ReadError> {
            for e in entries {
                let index = e.e_name_index;
                if index == xattr::EXT4_XATTR_INDEX_SYSTEM && e.name == b"data" {
                    continue;
                }
                let value = match e.e_value_inum {
                    0 => e.value.to_vec(),
                    ino => self.ea_inode_value(ino, e.e_value_size)?,
                };
                let is_acl = index == xattr::EXT4_XATTR_INDEX_POSIX_ACL_ACCESS
                    || index == xattr::EXT4_XATTR_INDEX_POSIX_ACL_DEFAULT;
                let shown = is_acl.then(|| acl::disk_to_xattr(&value)).flatten();
                out.insert(e.full_name(), shown.unwrap_or(value));
            }
            Ok(())
        };
        let area = xattr_area(&inode.bytes);
        if bytes::le32(area, 0) == xattr::EXT4_XATTR_MAGIC {
            add(xattr::ibody_entries(area)?)?;
        }
        let block = inode.raw.i_file_acl;
        if block != 0 {
            let bytes = self.block(block);
            XattrHeader::decode(&bytes).map_err(|c| c.at(block))?;
            xattr::csum_verify(&self.ctx, block, &bytes)?;
            add(xattr::block_entries(&bytes).map_err(|c| c.at(block))?)?;
        }
        Ok(out)
    }

    fn ea_inode_value(&self, ino: u32, size: u32) -> Result<Vec<u8>, ReadError> {
        let inode = self.inode(ino)?;
        let (pieces, _) = self.pieces(&inode)?;
        let mut out = vec![0u8; (size as usize).min(1 << 20)];
        self.read(&inode, &pieces, 0, &mut out)?;
        Ok(out)
    }

    /// Extents of the internal journal as (first block, blocks), in order of the journal; empty without one.
    pub fn journal_extents(&self) -> Result<Vec<(u64, u32)>, ReadError> {
        match self.sb.s_journal_inum {
            0 => Ok(Vec::new()),
            n if n != EXT4_JOURNAL_INO => {
                Err(ReadError::Unsupported(format!("a journal in inode {n}")))
            }
            n => {
                let (pieces, _) = self.pieces(&self.inode(n)?)?;
                Ok(pieces.iter().map(|p| (p.pblk, p.len)).collect())
            }
        }
    }

    /// Calls `f` for every path below the root, parents first, the root itself as `/`; at most `limit` paths.
    /// Damaged directories and inodes are reported to `damage` and passed over.
    pub fn walk(
        &self,
        limit: usize,
        mut f: impl FnMut(&[u8], &Inode),
        mut damage: impl FnMut(&[u8], ReadError),
    ) {
        let mut todo: Vec<(Vec<u8>, u32)> = vec![(b"/".to_vec(), EXT4_ROOT_INO)];
        let mut seen_dirs = std::collections::BTreeSet::new();
        let mut count = 0;
        while let Some((path, ino)) = todo.pop() {
            count += 1;
            if count > limit {
                return;
            }
            let inode = match self.inode(ino) {
                Ok(i) => i,
                Err(e) => {
                    damage(&path, e);
                    continue;
                }
            };
            f(&path, &inode);
            if !inode.raw.is_dir() || !seen_dirs.insert(ino) {
                continue;
            }
            match self.readdir(&inode) {
                Ok(mut names) => {
                    names.sort_by(|a, b| b.name.cmp(&a.name));
                    for n in names {
                        let mut child = path.clone();
                        if child.len() > 1 {
                            child.push(b'/');
                        }
                        child.extend_from_slice(&n.name);
                        todo.push((child, n.ino));
                    }
                }
                Err(e) => damage(&path, e),
            }
        }
    }

    /// Calls `f` for every block that a path uses: the block, and true if it belongs to a directory or a tree.
    pub fn walk_blocks(&self, limit: usize, mut f: impl FnMut(u64, bool)) {
        self.walk(
            limit,
            |_, inode| {
                let Ok((pieces, tree)) = self.pieces(inode) else {
                    return;
                };
                let dir = !inode.raw.is_reg();
                for p in pieces {
                    for b in p.pblk..p.pblk + u64::from(p.len) {
                        f(b, dir);
                    }
                }
                for b in tree {
                    f(b, true);
                }
                if inode.raw.i_file_acl != 0 {
                    f(inode.raw.i_file_acl, true);
                }
            },
            |_, _| {},
        );
    }
}

#[cfg(test)]
mod tests;
