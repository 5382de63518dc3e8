//! Pass 2: directory structure.

use super::{Dir, FindingKind, Fsck, Go};
use crate::base::ReadAt;
use crate::format::ext4::features;
use crate::format::ext4::{dirent, dx, inline_data, Dirent, Dirents};
use crate::format::{Corrupt, CorruptKind};

/// A name as findings show it.
fn text(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

/// Names of one directory and what "." and ".." were.
#[derive(Default)]
struct Names {
    dot_seen: bool,
    all: Vec<Vec<u8>>,
}

impl<R: ReadAt + ?Sized> Fsck<'_, R> {
    pub(super) fn pass2(&mut self) -> Go {
        for i in 0..self.dirs.len() {
            let mut names = Names::default();
            if let Some((i_block, value)) = self.dirs[i].inline.take() {
                self.check_inline_dir(i, &i_block, &value, &mut names)?;
            } else {
                self.check_dir_blocks(i, &mut names)?;
            }
            self.check_duplicates(self.dirs[i].ino, names.all)?;
        }
        Some(())
    }

    fn check_dir_blocks(&mut self, i: usize, names: &mut Names) -> Go {
        let extents = std::mem::take(&mut self.dirs[i].extents);
        let (ino, blocks, indexed) = {
            let d = &self.dirs[i];
            (d.ino, d.blocks, d.indexed)
        };
        let mut next = 0;
        let mut leaves = Vec::new();
        for e in &extents {
            for (lblk, pblk) in (e.lblk..blocks).zip(e.pblk..e.pblk + u64::from(e.len)) {
                if lblk != next || e.unwritten {
                    self.find(2, FindingKind::DirHole { ino, lblk: next })?;
                }
                next = lblk + 1;
                let b = self.block(pblk);
                self.check_dir_block(i, lblk, pblk, &b, names)?;
                if indexed {
                    leaves.push(pblk);
                }
            }
        }
        if indexed && next == blocks {
            self.check_htree(i, &leaves)?;
        }
        if !names.dot_seen {
            self.find(2, FindingKind::MissingDot { ino })?;
        }
        if self.dirs[i].dot_dot == 0 {
            self.find(2, FindingKind::MissingDotDot { ino })?;
        }
        Some(())
    }

    fn check_dir_block(
        &mut self,
        i: usize,
        lblk: u32,
        pblk: u64,
        b: &[u8],
        names: &mut Names,
    ) -> Go {
        let (ino, generation, indexed) = {
            let d: &Dir = &self.dirs[i];
            (d.ino, d.generation, d.indexed)
        };
        let index_block = indexed && is_index_block(b, lblk);
        let mut at = 0;
        for d in Dirents::new(b) {
            match d {
                Ok(d) => {
                    at += 1;
                    self.check_entry(i, lblk, at, &d, names)?;
                }
                Err(c) => {
                    let corrupt = c.at(pblk);
                    return self.find(2, FindingKind::DirBlock { ino, lblk, corrupt });
                }
            }
        }
        let verified = if index_block {
            dx::entries_offset(b).and_then(|at| dx::csum_verify(&self.csum, ino, generation, b, at))
        } else {
            dirent::csum_verify(&self.csum, ino, generation, b)
        };
        match verified.map_err(|c| c.kind) {
            Ok(()) => Some(()),
            Err(CorruptKind::DirTail {}) => self.find(2, FindingKind::DirNoTail { ino, lblk }),
            Err(_) => self.find(2, FindingKind::DirChecksum { ino, lblk }),
        }
    }

    fn check_inline_dir(
        &mut self,
        i: usize,
        i_block: &[u8; 60],
        value: &[u8],
        names: &mut Names,
    ) -> Go {
        let ino = self.dirs[i].ino;
        // An inline directory has its "." and ".." without entries.
        self.count_name(ino);
        self.count_name(self.dirs[i].dot_dot);
        let mut at = 2;
        for d in inline_data::dir_entries(i_block, value) {
            at += 1;
            match d {
                Ok(d) => self.check_entry(i, 0, at, &d, names)?,
                Err(corrupt) => {
                    let kind = FindingKind::DirBlock {
                        ino,
                        lblk: 0,
                        corrupt,
                    };
                    return self.find(2, kind);
                }
            }
        }
        Some(())
    }

    fn count_name(&mut self, ino: u32) {
        if let Some(n) = self.node_index(ino) {
            self.nodes[n].counted += 1;
        }
    }

    /// Entry number `at` (from 1) of block `lblk` of directory `i`.
    fn check_entry(
        &mut self,
        i: usize,
        lblk: u32,
        at: u32,
        d: &Dirent<'_>,
        names: &mut Names,
    ) -> Go {
        let dir = self.dirs[i].ino;
        if lblk == 0 && at == 1 {
            if d.name != b"." {
                return Some(());
            }
            names.dot_seen = true;
            if d.inode != dir {
                let found = d.inode;
                self.find(2, FindingKind::BadDot { ino: dir, found })?;
            }
            self.count_name(d.inode);
            return self.check_type(dir, d, dirent::EXT4_FT_DIR);
        }
        if lblk == 0 && at == 2 && d.name == b".." {
            self.dirs[i].dot_dot = d.inode;
            self.count_name(d.inode);
            return Some(());
        }
        if d.inode == 0 {
            return Some(());
        }
        self.check_target(dir, d)?;
        names.all.push(d.name.to_vec());
        Some(())
    }

    /// A name other than "." and "..": its inode, type and characters.
    fn check_target(&mut self, dir: u32, d: &Dirent<'_>) -> Go {
        let (name, ino) = (text(d.name), d.inode);
        let plain = !d.name.is_empty() && !d.name.contains(&b'/') && !d.name.contains(&0);
        if !plain || d.name == b"." || d.name == b".." {
            return self.find(2, FindingKind::EntryName { name, dir });
        }
        let Some((group, index)) = self.sb.locate_inode(ino) else {
            return self.find(2, FindingKind::EntryBadInode { name, dir, ino });
        };
        if ino < self.sb.first_ino() && ino != 2 {
            return self.find(2, FindingKind::EntryBadInode { name, dir, ino });
        }
        let Some(n) = self.node_index(ino) else {
            let kind = if index >= self.inodes_to_read(group) {
                FindingKind::EntryUninit { name, dir, ino }
            } else {
                FindingKind::EntryUnused { name, dir, ino }
            };
            return self.find(2, kind);
        };
        self.nodes[n].counted += 1;
        let expected = self.nodes[n].file_type;
        self.check_type(dir, d, expected)?;
        if let Some(child) = self.dir_index(ino) {
            if ino == 2 || self.dirs[child].parent != 0 {
                return self.find(2, FindingKind::EntryDirLink { name, dir, ino });
            }
            self.dirs[child].parent = dir;
        }
        Some(())
    }

    fn check_type(&mut self, dir: u32, d: &Dirent<'_>, expected: u8) -> Go {
        let expected = if self.sb.has(features::FILETYPE) {
            expected
        } else {
            0
        };
        let stored = d.file_type;
        if stored == expected {
            return Some(());
        }
        let kind = FindingKind::EntryType {
            name: text(d.name),
            dir,
            stored,
            expected,
        };
        self.find(2, kind)
    }

    fn check_duplicates(&mut self, dir: u32, mut names: Vec<Vec<u8>>) -> Go {
        names.sort_unstable();
        for pair in names.windows(2) {
            if pair[0] == pair[1] {
                let name = text(&pair[0]);
                self.find(2, FindingKind::EntryDuplicate { name, dir })?;
            }
        }
        Some(())
    }

    /// Adds a finding about an htree.
    pub(super) fn find_htree(&mut self, ino: u32, corrupt: Corrupt) -> Go {
        self.find(2, FindingKind::Htree { ino, corrupt })
    }
}

/// True if the block of an indexed directory is its root or an inner node: one unused entry over the whole block.
fn is_index_block(b: &[u8], lblk: u32) -> bool {
    if lblk == 0 {
        return true;
    }
    let len = b.len() as u32;
    let whole = crate::base::bytes::le32(b, 0) == 0
        && dirent::rec_len_from_disk(crate::base::bytes::le16(b, 4), len) == len;
    // Without checksum tails an empty leaf looks the same, but has no limit.
    whole && dx::dx_limit(b, dx::DX_NODE_ENTRIES) != 0
}
