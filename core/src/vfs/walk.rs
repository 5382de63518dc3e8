//! Path walk (kernel `fs/namei.c`: `link_path_walk`, `path_lookupat`, `filename_parentat`).
//!
//! Rules kept: 40 symbolic links in all (ELOOP), 4,095 bytes of path and 255 of a name (ENAMETOOLONG), a trailing slash
//! asks for a directory and follows a final link, `..` of the root is the root.

use super::{fail, Vfs};
use crate::base::Errno;
use crate::fs::common::{FsError, FsResult};
use crate::fs::ext4::Inode;
use std::rc::Rc;

const MAXSYMLINKS: u32 = 40;
const PATH_MAX: usize = 4096;

/// Kind of a last component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastType {
    /// A name.
    Norm,
    /// `.`
    Dot,
    /// `..`
    DotDot,
    /// Nothing but slashes.
    Root,
}

/// A walk under way (kernel `struct nameidata`).
pub(super) struct Walk<'a> {
    path: &'a [u8],
    at: usize,
    /// Bodies of links being followed, innermost last, each with the position in it.
    links: Vec<(Vec<u8>, usize)>,
    count: u32,
    /// Where the walk is.
    pub dir: Rc<Inode>,
    /// Kind of the last component.
    pub last: LastType,
    name: (usize, usize),
    /// The last component is followed by a slash.
    pub slash: bool,
}

impl Walk<'_> {
    fn string(&self) -> (&[u8], usize) {
        match self.links.last() {
            Some((body, at)) => (body, *at),
            None => (self.path, self.at),
        }
    }

    fn set_at(&mut self, to: usize) {
        match self.links.last_mut() {
            Some((_, at)) => *at = to,
            None => self.at = to,
        }
    }

    fn at_end(&self) -> bool {
        let (s, at) = self.string();
        at >= s.len()
    }

    /// The last component.
    pub(super) fn name(&self) -> &[u8] {
        let (s, _) = self.string();
        &s[self.name.0..self.name.1]
    }

    /// Takes the next component of the innermost string, with the slashes after it. False at its end.
    fn take(&mut self) -> bool {
        let (s, at) = self.string();
        let skip = |mut i: usize| {
            while s.get(i) == Some(&b'/') {
                i += 1;
            }
            i
        };
        let start = skip(at);
        let mut end = start;
        while end < s.len() && s[end] != b'/' {
            end += 1;
        }
        let next = skip(end);
        let last = match &s[start..end] {
            b"" => LastType::Root,
            b"." => LastType::Dot,
            b".." => LastType::DotDot,
            _ => LastType::Norm,
        };
        let slash = next > end;
        self.set_at(next);
        self.name = (start, end);
        self.last = last;
        self.slash = slash && last != LastType::Root;
        last != LastType::Root
    }

    /// True if nothing follows the component just taken, in its string or in those below.
    fn is_final(&self) -> bool {
        let outer = self.links.len().saturating_sub(1);
        self.at_end()
            && self.links[..outer].iter().all(|(s, at)| *at >= s.len())
            && (self.links.is_empty() || self.at >= self.path.len())
    }
}

/// Result of following a final link.
pub(super) enum Step {
    /// The walk goes on in the link's body.
    Link,
    /// The inode; no link, or not to be followed.
    Inode(Rc<Inode>),
}

impl Vfs {
    /// Starts a walk at the root. Paths are relative to it; the empty path is the root itself.
    pub(super) async fn walk<'a>(&self, path: &'a [u8]) -> FsResult<Walk<'a>> {
        if path.len() >= PATH_MAX {
            return fail(Errno::ENAMETOOLONG);
        }
        Ok(Walk {
            path,
            at: 0,
            links: Vec::new(),
            count: 0,
            dir: self.root().await?,
            last: LastType::Root,
            name: (0, 0),
            slash: false,
        })
    }

    /// Walks up to the last component: `dir` is its directory.
    pub(super) async fn walk_parent(&self, w: &mut Walk<'_>) -> FsResult<()> {
        loop {
            while !w.links.is_empty() && w.at_end() {
                w.links.pop();
            }
            if !w.take() {
                if w.links.pop().is_some() {
                    continue;
                }
                return Ok(());
            }
            self.sim.charge(self.fs.cost.path_component).await;
            if !w.dir.is_dir() {
                return fail(Errno::ENOTDIR);
            }
            if w.is_final() {
                return Ok(());
            }
            let next = match w.last {
                LastType::Dot | LastType::Root => Rc::clone(&w.dir),
                LastType::DotDot => self.parent_of(&w.dir).await?,
                LastType::Norm => {
                    let found = self.lookup_unlocked(&w.dir, w.name()).await?;
                    let inode = found.ok_or(FsError::Errno(Errno::ENOENT))?;
                    if inode.is_lnk() {
                        self.enter_link(w, &inode).await?;
                        continue;
                    }
                    inode
                }
            };
            if !next.is_dir() {
                return fail(Errno::ENOTDIR);
            }
            w.dir = next;
        }
    }

    async fn enter_link(&self, w: &mut Walk<'_>, link: &Rc<Inode>) -> FsResult<()> {
        w.count += 1;
        if w.count > MAXSYMLINKS {
            return fail(Errno::ELOOP);
        }
        self.fs.touch_atime(link).await?;
        let body = self.fs.get_link(link).await?;
        if body.is_empty() {
            return fail(Errno::ENOENT);
        }
        if body[0] == b'/' {
            w.dir = self.root().await?;
        }
        w.links.push((body, 0));
        Ok(())
    }

    pub(super) async fn parent_of(&self, dir: &Rc<Inode>) -> FsResult<Rc<Inode>> {
        let root = self.root().await?;
        if dir.ino == root.ino {
            return Ok(root);
        }
        let ino = match self.dcache.parent(dir.ino) {
            Some(ino) => ino,
            None => self.fs.dotdot_ino(dir).await?,
        };
        if ino == root.ino {
            return Ok(root);
        }
        // The parent is kept by the cache entry that led to `dir`; the reference taken here is not needed longer.
        let inode = self.fs.iget(ino).await?;
        self.fs.iput(Rc::clone(&inode)).await?;
        Ok(inode)
    }

    /// Looks the last component up; a final link is entered if `follow` or a slash follows.
    pub(super) async fn step_last(
        &self,
        w: &mut Walk<'_>,
        found: Rc<Inode>,
        follow: bool,
    ) -> FsResult<Step> {
        if found.is_lnk() && (follow || w.slash) {
            self.enter_link(w, &found).await?;
            return Ok(Step::Link);
        }
        Ok(Step::Inode(found))
    }

    /// The inode a path names.
    pub(super) async fn lookup_path(&self, path: &[u8], follow: bool) -> FsResult<Rc<Inode>> {
        let mut w = self.walk(path).await?;
        let mut must_be_dir = false;
        loop {
            self.walk_parent(&mut w).await?;
            must_be_dir |= w.slash;
            let found = match w.last {
                LastType::Root | LastType::Dot => Rc::clone(&w.dir),
                LastType::DotDot => self.parent_of(&w.dir).await?,
                LastType::Norm => {
                    let found = self.lookup_unlocked(&w.dir, w.name()).await?;
                    found.ok_or(FsError::Errno(Errno::ENOENT))?
                }
            };
            let follow = follow || must_be_dir;
            match self.step_last(&mut w, found, follow).await? {
                Step::Link => {}
                Step::Inode(inode) if must_be_dir && !inode.is_dir() => {
                    return fail(Errno::ENOTDIR);
                }
                Step::Inode(inode) => return Ok(inode),
            }
        }
    }

    /// Walks to the directory of the last component of a path, which is to be made, removed or renamed.
    pub(super) async fn lookup_parent<'a>(&self, path: &'a [u8]) -> FsResult<Walk<'a>> {
        let mut w = self.walk(path).await?;
        self.walk_parent(&mut w).await?;
        Ok(w)
    }
}
