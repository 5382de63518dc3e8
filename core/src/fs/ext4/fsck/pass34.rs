//! Pass 3, connectivity of directories, and pass 4, reference counts.

use super::{FindingKind, Fsck, Go};
use crate::base::ReadAt;
use crate::format::ext4::dirent::EXT4_FT_DIR;
use crate::format::ext4::features;
use crate::format::ext4::inode::EXT4_LINK_MAX;
use crate::format::ext4::superblock::EXT4_ROOT_INO;

/// What is known of a directory's way to the root.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Unknown,
    Open,
    Connected,
    Lost,
}

impl<R: ReadAt + ?Sized> Fsck<'_, R> {
    pub(super) fn pass3(&mut self) -> Go {
        let Some(root) = self.dir_index(EXT4_ROOT_INO) else {
            return self.find(3, FindingKind::RootMissing {});
        };
        self.dirs[root].parent = EXT4_ROOT_INO;
        let mut ways = vec![Way::Unknown; self.dirs.len()];
        ways[root] = Way::Connected;
        for i in 0..self.dirs.len() {
            self.trace_to_root(i, &mut ways)?;
        }
        for i in 0..self.dirs.len() {
            let d = &self.dirs[i];
            let (ino, found, expected) = (d.ino, d.dot_dot, d.parent);
            if expected != 0 && found != 0 && found != expected {
                let kind = FindingKind::BadDotDot {
                    ino,
                    found,
                    expected,
                };
                self.find(3, kind)?;
            }
        }
        Some(())
    }

    /// Follows parents until the answer is known, then marks the whole way with it.
    fn trace_to_root(&mut self, start: usize, ways: &mut [Way]) -> Go {
        let mut way = Vec::new();
        let mut at = start;
        let answer = loop {
            match ways[at] {
                Way::Unknown => {}
                Way::Open => break Way::Lost,
                known => break known,
            }
            ways[at] = Way::Open;
            way.push(at);
            match self.dir_index(self.dirs[at].parent) {
                Some(parent) => at = parent,
                None => break Way::Lost,
            }
        };
        for i in &way {
            ways[*i] = answer;
        }
        // One finding for the topmost directory of a lost tree; those below are lost with it.
        let Some(&top) = way.last().filter(|_| answer == Way::Lost) else {
            return Some(());
        };
        let orphan = self.orphans.contains(&self.dirs[top].ino);
        if self.dirs[top].parent != 0 && self.dir_index(self.dirs[top].parent) != Some(top) {
            let parent = self.dir_index(self.dirs[top].parent);
            if parent.is_some_and(|p| !way.contains(&p)) {
                return Some(());
            }
        }
        if orphan {
            return Some(());
        }
        let (ino, parent) = (self.dirs[top].ino, self.dirs[top].dot_dot);
        self.find(3, FindingKind::Unconnected { ino, parent })
    }

    pub(super) fn pass4(&mut self) -> Go {
        let many = self.sb.has(features::DIR_NLINK);
        for i in 0..self.nodes.len() {
            let n = self.nodes[i];
            if n.special {
                continue;
            }
            let (ino, stored, counted) = (n.ino, n.links, n.counted);
            let own = u32::from(n.file_type == EXT4_FT_DIR);
            if counted <= own && ino != EXT4_ROOT_INO {
                // Directories were reported in pass 3.
                if own == 0 {
                    self.find(4, FindingKind::Unattached { ino })?;
                }
                continue;
            }
            let capped = many && own == 1 && stored == 1 && counted > u32::from(EXT4_LINK_MAX);
            if u32::from(stored) != counted && !capped {
                let kind = FindingKind::RefCount {
                    ino,
                    stored,
                    counted,
                };
                self.find(4, kind)?;
            }
        }
        Some(())
    }
}
