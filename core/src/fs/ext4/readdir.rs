//! Reading directories (kernel `fs/ext4/dir.c`: `ext4_readdir`, `ext4_dx_readdir`; `namei.c`:
//! `ext4_htree_fill_tree`, `htree_dirblock_to_tree`).
//!
//! With `dir_index`, directories that are indexed, inline or one block long come in order of hash, and the position is
//! the hash: it stays good while entries come and go and leaves are split. Others come in order of their offsets.

use super::dir::DirBlockKind;
use super::{flag, Ext4, Inode};
use crate::base::Ino;
use crate::format::ext4::dirent::Dirents;
use crate::format::ext4::inline_data;
use crate::format::Corrupt;
use crate::fs::common::FsResult;

/// An entry as `getdents` shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirItem {
    /// Position of this entry: (major hash, minor hash), or (0, offset).
    pub pos: DirPos,
    /// Inode number.
    pub ino: Ino,
    /// `EXT4_FT_*`.
    pub file_type: u8,
    /// Name.
    pub name: Vec<u8>,
}

/// Position in a directory; opaque but for its order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirPos {
    /// Major hash, or 0.
    pub major: u32,
    /// Minor hash, or offset.
    pub minor: u32,
}

/// Some entries, in order, and where to go on.
#[derive(Clone, Debug, Default)]
pub struct DirBatch {
    /// The entries, `.` and `..` included.
    pub items: Vec<DirItem>,
    /// Position of the next batch; `None` at the end.
    pub next: Option<DirPos>,
}

impl Ext4 {
    fn is_dx_dir(&self, dir: &Inode) -> bool {
        self.geo.dir_index
            && (dir.has_flag(flag::INDEX)
                || dir.has_flag(flag::INLINE_DATA)
                || self.dir_blocks(dir) == 1)
    }

    /// Entries at and after `from`. The caller holds `i_rwsem`.
    pub async fn readdir(&self, dir: &Inode, from: DirPos) -> FsResult<DirBatch> {
        if !self.is_dx_dir(dir) {
            if dir.has_flag(flag::INLINE_DATA) {
                return self.readdir_one(dir, from).await;
            }
            return self.readdir_linear(dir, from.minor).await;
        }
        if dir.has_flag(flag::INDEX) && !dir.has_flag(flag::INLINE_DATA) {
            return self.readdir_htree(dir, from).await;
        }
        self.readdir_one(dir, from).await
    }

    /// A directory in the inode or of one block, in order of hash.
    async fn readdir_one(&self, dir: &Inode, from: DirPos) -> FsResult<DirBatch> {
        let version = self.sb.borrow().s_def_hash_version;
        let mut items = Vec::new();
        if dir.has_flag(flag::INLINE_DATA) {
            let parent = inline_data::parent(&dir.core.borrow().i_block);
            for (name, ino) in [(&b"."[..], dir.ino.0), (&b".."[..], parent)] {
                self.push_hashed(&mut items, version, from, (name, ino, 2));
            }
            let core = dir.core.borrow();
            let value = inline_data::system_data(&core.ibody)?;
            for d in inline_data::dir_entries(&core.i_block, value) {
                let d = d?;
                self.push_hashed(&mut items, version, from, (d.name, d.inode, d.file_type));
            }
        } else {
            self.push_leaf(dir, 0, version, from, &mut items).await?;
        }
        items.sort_by_key(|i| i.pos);
        Ok(DirBatch { items, next: None })
    }

    fn push_hashed(
        &self,
        items: &mut Vec<DirItem>,
        version: u8,
        from: DirPos,
        (name, ino, file_type): (&[u8], u32, u8),
    ) {
        if ino == 0 || name.is_empty() {
            return;
        }
        let hash = self.hash_name(version, name);
        let pos = DirPos {
            major: hash.hash,
            minor: hash.minor,
        };
        if pos >= from {
            items.push(DirItem {
                pos,
                ino: Ino(ino),
                file_type,
                name: name.to_vec(),
            });
        }
    }

    async fn push_leaf(
        &self,
        dir: &Inode,
        lblk: u32,
        version: u8,
        from: DirPos,
        items: &mut Vec<DirItem>,
    ) -> FsResult<()> {
        let bh = self.need_dirblock(dir, lblk, DirBlockKind::Leaf).await?;
        bh.read(|b| -> Result<(), Corrupt> {
            for d in Dirents::new(b) {
                let d = d?;
                self.push_hashed(items, version, from, (d.name, d.inode, d.file_type));
            }
            Ok(())
        })
        .map_err(|e| e.at(bh.blocknr.0))?;
        Ok(())
    }

    async fn readdir_htree(&self, dir: &Inode, from: DirPos) -> FsResult<DirBatch> {
        let mut items = Vec::new();
        let start = crate::format::ext4::dirhash::DirHash {
            hash: from.major,
            minor: 0,
        };
        let mut path = self.dx_probe_for(dir, |_| start).await?;
        let dotdot = self.dotdot(dir).await?;
        for (name, ino, major) in [(&b"."[..], dir.ino.0, 0), (&b".."[..], dotdot.ino, 2)] {
            let pos = DirPos { major, minor: 0 };
            if pos >= from {
                items.push(DirItem {
                    pos,
                    ino: Ino(ino),
                    file_type: 2,
                    name: name.to_vec(),
                });
            }
        }
        let dots = items.len();
        loop {
            let block = path.leaf();
            self.push_leaf(dir, block, path.version, from, &mut items)
                .await?;
            let next = self.dx_next_block(dir, &mut path, None).await?;
            items[dots..].sort_by_key(|i| i.pos);
            match next {
                Some(hash) if items.is_empty() || hash & 1 != 0 => {}
                Some(hash) => {
                    let major = hash & !1;
                    let next = Some(DirPos { major, minor: 0 });
                    return Ok(DirBatch { items, next });
                }
                None => return Ok(DirBatch { items, next: None }),
            }
        }
    }

    async fn readdir_linear(&self, dir: &Inode, from: u32) -> FsResult<DirBatch> {
        let size = self.geo.block_size;
        let lblk = from / size;
        let mut batch = DirBatch::default();
        if lblk >= self.dir_blocks(dir) {
            return Ok(batch);
        }
        batch.next = Some(DirPos {
            major: 0,
            minor: (lblk + 1) * size,
        })
        .filter(|_| lblk + 1 < self.dir_blocks(dir));
        let Some(bh) = self.read_dirblock(dir, lblk, DirBlockKind::Entries).await? else {
            return Ok(batch);
        };
        bh.read(|b| -> Result<(), Corrupt> {
            for d in Dirents::new(b) {
                let d = d?;
                let pos = DirPos {
                    major: 0,
                    minor: lblk * size + d.offset,
                };
                if d.inode != 0 && pos.minor >= from {
                    batch.items.push(DirItem {
                        pos,
                        ino: Ino(d.inode),
                        file_type: d.file_type,
                        name: d.name.to_vec(),
                    });
                }
            }
            Ok(())
        })
        .map_err(|e| e.at(bh.blocknr.0))?;
        Ok(batch)
    }
}
