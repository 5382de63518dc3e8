//! System calls over one mounted file system: path walk, descriptors, the kernel's order of checks.
//!
//! The caller is root with umask 0. Knows nothing of workloads or experiments.
//!
//! Invariants:
//! 1. Locks are taken parents before children, directories before files.
//! 2. Every inode that a call still needs after a wait is referenced, by the cache of names, by a descriptor or by
//!    the call itself.
//! 3. Each call charges its fixed cost first and emits its begin and end.

mod attrs;
mod create;
mod dcache;
mod files;
mod io;
mod remove;
mod rename;
mod types;
mod walk;
mod xattrs;

use crate::base::{Errno, Ino, Lba};
use crate::fs::common::{FsError, FsResult};
use crate::fs::ext4::{Ext4, Inode};
use crate::sim::Sim;
use crate::trace::{Call, Category, Event};
use dcache::{Dcache, Known};
use files::Files;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

pub use types::{falloc, Fd, OpenFlags, RenameFlags, Stat, StatFs, SysResult, Timespec, XattrMode};

/// The mounted file system.
#[derive(Clone)]
pub enum Fs {
    /// ext4.
    Ext4(Rc<Ext4>),
}

/// System calls of one machine.
pub struct Vfs {
    fs: Rc<Ext4>,
    sim: Sim,
    dcache: Dcache,
    files: Files,
    root: RefCell<Option<Rc<Inode>>>,
    ops: Cell<u32>,
    counts: RefCell<[OpCount; 256]>,
}

/// How often a call was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCount {
    /// All calls.
    pub calls: u64,
    /// Of those, how many failed.
    pub failed: u64,
    /// Bytes read or written.
    pub bytes: u64,
}

/// A system call under way.
struct Op {
    call: Call,
    number: u32,
    ino: Cell<Ino>,
    bytes: Cell<u64>,
}

impl Vfs {
    /// System calls on `fs`.
    pub fn new(fs: Fs) -> Rc<Vfs> {
        let Fs::Ext4(fs) = fs;
        Rc::new(Vfs {
            sim: fs.sim.clone(),
            fs,
            dcache: Dcache::default(),
            files: Files::default(),
            root: RefCell::new(None),
            ops: Cell::new(0),
            counts: RefCell::new([OpCount::default(); 256]),
        })
    }

    /// The file system below.
    pub fn fs(&self) -> Fs {
        Fs::Ext4(Rc::clone(&self.fs))
    }

    /// Calls made so far of one kind (`app.ops.*`).
    pub fn op_count(&self, call: Call) -> OpCount {
        self.counts.borrow()[usize::from(call as u8)]
    }

    /// Names in the cache.
    pub fn cached_names(&self) -> usize {
        self.dcache.len()
    }

    async fn begin(&self, call: Call, ino: Ino, offset: u64) -> Op {
        let number = self.ops.get() + 1;
        self.ops.set(number);
        self.sim.trace().set_cause(self.sim.current().0, number);
        self.sim.emit(Category::App, || Event::OpBegin {
            call,
            op: number,
            ino,
            sector: Lba(offset / 512),
        });
        self.sim.charge(self.fs.cost.syscall).await;
        Op {
            call,
            number,
            ino: Cell::new(ino),
            bytes: Cell::new(0),
        }
    }

    fn end<T>(&self, op: &Op, done: FsResult<T>) -> SysResult<T> {
        let done = done.map_err(|e| e.errno());
        {
            let mut counts = self.counts.borrow_mut();
            let count = &mut counts[usize::from(op.call as u8)];
            count.calls += 1;
            count.failed += u64::from(done.is_err());
            count.bytes += op.bytes.get();
        }
        self.sim.emit(Category::App, || Event::OpEnd {
            call: op.call,
            errno: done.as_ref().err().map_or(0, |e| e.number() as u16),
            op: op.number,
            ino: op.ino.get(),
            bytes: u32::try_from(op.bytes.get()).unwrap_or(u32::MAX),
        });
        self.sim.trace().set_cause(self.sim.current().0, 0);
        done
    }

    fn promise(&self, op: &Op, ino: Ino) {
        self.sim.emit(Category::App, || Event::Promise {
            call: op.call,
            op: op.number,
            ino,
        });
    }

    /// `mnt_want_write`: fails on a file system mounted (or turned) read-only.
    fn want_write(&self) -> FsResult<()> {
        if self.fs.is_writable() {
            Ok(())
        } else {
            Err(FsError::ReadOnly)
        }
    }

    async fn root(&self) -> FsResult<Rc<Inode>> {
        if let Some(root) = self.root.borrow().as_ref() {
            return Ok(Rc::clone(root));
        }
        let root = self.fs.iget(Ino(2)).await?;
        *self.root.borrow_mut() = Some(Rc::clone(&root));
        Ok(root)
    }

    /// Inode called `name` in `dir`, from the cache or the directory, whose lock the caller holds (or does not need:
    /// a concurrent change is seen before or after).
    async fn lookup_in(&self, dir: &Rc<Inode>, name: &[u8]) -> FsResult<Option<Rc<Inode>>> {
        match self.dcache.lookup(dir.ino, name) {
            Known::Positive(inode) => return Ok(Some(inode)),
            Known::Negative => return Ok(None),
            Known::Unknown => {}
        }
        let found = match self.fs.lookup(dir, name).await? {
            Some(ino) => Some(self.fs.iget(ino).await?),
            None => None,
        };
        let known = found.clone();
        if let Some(old) = self.dcache.set(dir.ino, name, found) {
            self.fs.iput(old).await?;
        }
        Ok(known)
    }

    /// The same for a caller without the directory's lock.
    async fn lookup_unlocked(&self, dir: &Rc<Inode>, name: &[u8]) -> FsResult<Option<Rc<Inode>>> {
        match self.dcache.lookup(dir.ino, name) {
            Known::Positive(inode) => Ok(Some(inode)),
            Known::Negative => Ok(None),
            Known::Unknown => {
                let _lock = dir.rwsem.read().await;
                self.lookup_in(dir, name).await
            }
        }
    }

    /// Gives the names up and writes back, then drops what is clean (`sync`, `echo 3 > drop_caches`).
    pub async fn drop_caches(&self) -> SysResult<()> {
        let op = self.begin(Call::DropCaches, Ino(0), 0).await;
        let done = self.drop_all_caches().await;
        self.end(&op, done)
    }

    async fn drop_all_caches(&self) -> FsResult<()> {
        self.fs.sync_filesystem().await?;
        self.forget_names().await?;
        self.fs.drop_caches().await
    }

    async fn forget_names(&self) -> FsResult<()> {
        for inode in self.dcache.clear() {
            self.fs.iput(inode).await?;
        }
        Ok(())
    }

    /// Closes every descriptor and lets go of all inodes, before the file system is unmounted.
    pub async fn release_all(&self) -> SysResult<()> {
        self.close_all().await?;
        self.forget_names().await.map_err(|e| e.errno())?;
        let root = self.root.borrow_mut().take();
        if let Some(root) = root {
            self.fs.iput(root).await.map_err(|e| e.errno())?;
        }
        Ok(())
    }
}

fn fail<T>(e: Errno) -> FsResult<T> {
    Err(FsError::from(e))
}
