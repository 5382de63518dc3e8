//! Names already looked up (kernel `fs/dcache.c`, without the tree): (directory, name) to an inode or to nothing.
//!
//! Invariants:
//! 1. A positive entry owns one reference to its inode; whoever takes the entry out gives it back.
//! 2. A lookup allocates nothing.
//! 3. The parent of every directory that a positive entry names is known.

use crate::base::{FastMap, Ino};
use crate::fs::ext4::Inode;
use std::cell::RefCell;
use std::rc::Rc;

const NONE: u32 = u32::MAX;

struct Dentry {
    dir: Ino,
    name: Box<[u8]>,
    inode: Option<Rc<Inode>>,
    next: u32,
}

#[derive(Default)]
struct Table {
    heads: FastMap<u64, u32>,
    slab: Vec<Dentry>,
    free: Vec<u32>,
    parents: FastMap<u32, Ino>,
}

/// What is known of a name.
pub(super) enum Known {
    /// Never looked up.
    Unknown,
    /// There is no such name.
    Negative,
    /// It names this inode.
    Positive(Rc<Inode>),
}

/// The cache.
#[derive(Default)]
pub(super) struct Dcache(RefCell<Table>);

fn hash(dir: Ino, name: &[u8]) -> u64 {
    let mut h = u64::from(dir.0) ^ (name.len() as u64) << 32;
    for chunk in name.chunks(8) {
        let mut word = [0u8; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        h = (h.rotate_left(25) ^ u64::from_le_bytes(word)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }
    h ^ h >> 32
}

impl Table {
    fn find(&self, key: u64, dir: Ino, name: &[u8]) -> Option<u32> {
        let mut at = *self.heads.get(&key)?;
        while at != NONE {
            let d = &self.slab[at as usize];
            if d.dir == dir && *d.name == *name {
                return Some(at);
            }
            at = d.next;
        }
        None
    }

    fn add(&mut self, key: u64, dir: Ino, name: &[u8], inode: Option<Rc<Inode>>) {
        let next = self.heads.get(&key).copied().unwrap_or(NONE);
        let dentry = Dentry {
            dir,
            name: name.into(),
            inode,
            next,
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.slab[at as usize] = dentry;
                at
            }
            None => {
                self.slab.push(dentry);
                self.slab.len() as u32 - 1
            }
        };
        self.heads.insert(key, at);
    }
}

impl Dcache {
    /// Looks a name up.
    pub(super) fn lookup(&self, dir: Ino, name: &[u8]) -> Known {
        let t = self.0.borrow();
        match t.find(hash(dir, name), dir, name) {
            None => Known::Unknown,
            Some(at) => match &t.slab[at as usize].inode {
                Some(inode) => Known::Positive(Rc::clone(inode)),
                None => Known::Negative,
            },
        }
    }

    /// Sets what a name stands for; the inode's reference becomes the cache's. What it stood for before is returned
    /// with its reference.
    pub(super) fn set(&self, dir: Ino, name: &[u8], inode: Option<Rc<Inode>>) -> Option<Rc<Inode>> {
        let key = hash(dir, name);
        let mut t = self.0.borrow_mut();
        if let Some(i) = inode.as_ref().filter(|i| i.is_dir()) {
            t.parents.insert(i.ino.0, dir);
        }
        match t.find(key, dir, name) {
            Some(at) => std::mem::replace(&mut t.slab[at as usize].inode, inode),
            None => {
                t.add(key, dir, name, inode);
                None
            }
        }
    }

    /// Parent of a directory that was looked up.
    pub(super) fn parent(&self, dir: Ino) -> Option<Ino> {
        self.0.borrow().parents.get(&dir.0).copied()
    }

    /// Forgets all names; the inodes that were named come with their references.
    pub(super) fn clear(&self) -> Vec<Rc<Inode>> {
        let t = std::mem::take(&mut *self.0.borrow_mut());
        t.slab.into_iter().filter_map(|d| d.inode).collect()
    }

    /// Number of names known.
    pub(super) fn len(&self) -> usize {
        let t = self.0.borrow();
        t.slab.len() - t.free.len()
    }

    /// Forgets a name that names nothing, so that it is looked up again.
    pub(super) fn forget(&self, dir: Ino, name: &[u8]) {
        let key = hash(dir, name);
        let mut t = self.0.borrow_mut();
        let Some(at) = t.find(key, dir, name) else {
            return;
        };
        let next = t.slab[at as usize].next;
        let head = t.heads.get(&key).copied().unwrap_or(NONE);
        if head == at && next == NONE {
            t.heads.remove(&key);
        } else if head == at {
            t.heads.insert(key, next);
        } else {
            let mut before = head;
            while t.slab[before as usize].next != at {
                before = t.slab[before as usize].next;
            }
            t.slab[before as usize].next = next;
        }
        t.slab[at as usize].inode = None;
        t.free.push(at);
    }

    /// Forgets the names in a directory that is gone; none of them names an inode.
    pub(super) fn forget_parent(&self, dir: Ino) {
        self.0.borrow_mut().parents.remove(&dir.0);
    }
}
