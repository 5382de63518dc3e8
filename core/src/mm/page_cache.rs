//! The page cache of one file (kernel `struct address_space` with the writeback fields of `struct inode`).
//!
//! Invariants:
//! 1. The dirty tag of a page is set exactly while [`Vm`]'s count of dirty pages contains it.
//! 2. A page under writeback keeps the bytes of its bio (payloads are copied on write), so it may be rewritten
//!    meanwhile; it then is dirty again.
//! 3. A locked page is neither removed nor written by others.

use super::buffer::Buffer;
use super::errseq::ErrSeq;
use super::folio::{BlockMask, Folio};
use super::page_tree::{PageTree, Tag};
use super::vm::{Place, Vm};
use crate::base::{Errno, FastMap, Ino, Nanos};
use crate::sim::sync::{RwLock, WaitQueue};
use crate::sim::{LockRank, WaitReason};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Bits of `i_state` that concern writeback (kernel `include/linux/fs.h`).
pub mod dirty {
    /// Inode must be written, but fdatasync does not need it.
    pub const SYNC: u32 = 1;
    /// Inode must be written for fdatasync as well.
    pub const DATASYNC: u32 = 2;
    /// The file has dirty pages.
    pub const PAGES: u32 = 4;
    /// Only timestamps changed (lazytime).
    pub const TIME: u32 = 8;
    /// All that makes `write_inode` or `writepages` necessary (`I_DIRTY`).
    pub const ALL: u32 = SYNC | DATASYNC | PAGES;
    /// Everything, timestamps included (`I_DIRTY_ALL`).
    pub const ANY: u32 = ALL | TIME;
    /// Writeback of the inode is under way (`I_SYNC`).
    pub const BUSY: u32 = 16;
}

struct Mapping {
    ino: Ino,
    vm: Rc<Vm>,
    tree: RefCell<PageTree>,
    invalidate_lock: RwLock,
    waiters: WaitQueue,
    writeback_index: Cell<u64>,
    wb_err: Cell<ErrSeq>,
    i_state: Cell<u32>,
    dirtied_when: Cell<Nanos>,
    place: Cell<Place>,
    nr_writeback: Cell<u64>,
    /// Journal buffers of file blocks, by logical block. Never iterated.
    buffers: RefCell<FastMap<u32, Rc<Buffer>>>,
    /// Metadata buffers dirtied for the file without a journal (`i_private_list`).
    associated: RefCell<Vec<Rc<Buffer>>>,
}

/// The cached pages of a file. Clones are the same object.
#[derive(Clone)]
pub struct AddressSpace(Rc<Mapping>);

impl AddressSpace {
    /// An empty cache for inode `ino` (0 is the block device itself).
    pub fn new(vm: &Rc<Vm>, ino: Ino) -> AddressSpace {
        AddressSpace(Rc::new(Mapping {
            ino,
            vm: Rc::clone(vm),
            tree: RefCell::new(PageTree::default()),
            invalidate_lock: RwLock::new(
                vm.sim(),
                LockRank::InvalidateLock,
                WaitReason::Other("invalidate_lock"),
            ),
            waiters: WaitQueue::new(vm.sim()),
            writeback_index: Cell::new(0),
            wb_err: Cell::new(ErrSeq::default()),
            i_state: Cell::new(0),
            dirtied_when: Cell::new(Nanos::ZERO),
            place: Cell::new(Place::None),
            nr_writeback: Cell::new(0),
            buffers: RefCell::default(),
            associated: RefCell::default(),
        }))
    }

    /// Inode of these pages.
    pub fn ino(&self) -> Ino {
        self.0.ino
    }

    /// Accounting these pages belong to.
    pub fn vm(&self) -> &Rc<Vm> {
        &self.0.vm
    }

    /// Held shared while pages are brought in, exclusively while blocks go away (`invalidate_lock`).
    pub fn invalidate_lock(&self) -> &RwLock {
        &self.0.invalidate_lock
    }

    /// Number of cached pages.
    pub fn nrpages(&self) -> u64 {
        self.0.tree.borrow().len()
    }

    /// Pages under writeback.
    pub fn nr_writeback(&self) -> u64 {
        self.0.nr_writeback.get()
    }

    /// True if any page carries `tag`.
    pub fn any(&self, tag: Tag) -> bool {
        self.0.tree.borrow().any(tag)
    }

    /// First page at or after `from` that carries `tag`.
    pub fn next(&self, from: u64, tag: Tag) -> Option<u64> {
        self.0.tree.borrow().next(from, tag)
    }

    /// True if page `index` is cached and carries `tag`.
    pub fn is_tagged(&self, index: u64, tag: Tag) -> bool {
        self.0.tree.borrow().is_tagged(index, tag)
    }

    /// Marks all dirty pages of `from..=to` as to be written by the sync that begins.
    pub fn tag_for_writeback(&self, from: u64, to: u64) {
        self.0.tree.borrow_mut().tag_for_writeback(from, to);
    }

    /// Sets the to-write mark of a page that a sync must not miss although it could not be written now.
    pub fn set_to_write(&self, index: u64) {
        self.0.tree.borrow_mut().set_tag(index, Tag::ToWrite);
    }

    /// Removes the to-write mark of a page.
    pub fn clear_to_write(&self, index: u64) {
        self.0.tree.borrow_mut().clear_tag(index, Tag::ToWrite);
    }

    /// Where the next cyclic writeback starts.
    pub fn writeback_index(&self) -> u64 {
        self.0.writeback_index.get()
    }

    /// Sets where the next cyclic writeback starts.
    pub fn set_writeback_index(&self, index: u64) {
        self.0.writeback_index.set(index);
    }

    /// Looks at or changes a cached page.
    pub fn with<R>(&self, index: u64, f: impl FnOnce(&mut Folio) -> R) -> Option<R> {
        self.0.tree.borrow_mut().get_mut(index).map(f)
    }

    /// Looks at or changes page `index`, which is made if absent; `f` also gets whether it was made.
    pub fn with_new<R>(&self, index: u64, f: impl FnOnce(&mut Folio, bool) -> R) -> R {
        let mut tree = self.0.tree.borrow_mut();
        let (folio, made) = tree.get_or_insert(index);
        if made {
            self.0.vm.add_file_page();
        }
        f(folio, made)
    }

    /// Takes the lock of page `index`, made if absent. True if it was made now.
    pub async fn lock(&self, index: u64) -> bool {
        let mut made = false;
        loop {
            let got = self.with_new(index, |f, new| {
                made |= new;
                let free = !f.locked();
                f.set_locked(true);
                free
            });
            if got {
                return made;
            }
            self.0.waiters.wait(WaitReason::FolioLock).await;
        }
    }

    /// Takes the lock of a cached page; false if the page is not (or no longer) cached.
    pub async fn lock_cached(&self, index: u64) -> bool {
        loop {
            match self.try_lock(index) {
                Some(got) if !got => self.0.waiters.wait(WaitReason::FolioLock).await,
                found => return found.is_some(),
            };
        }
    }

    /// Takes the lock of a cached page if it is free: `None` if there is no such page.
    pub fn try_lock(&self, index: u64) -> Option<bool> {
        self.with(index, |f| {
            let free = !f.locked();
            f.set_locked(true);
            free
        })
    }

    /// Releases the lock of a page.
    pub fn unlock(&self, index: u64) {
        self.with(index, |f| f.set_locked(false));
        if !self.0.waiters.is_empty() {
            self.0.waiters.wake_all();
        }
    }

    /// Waits while somebody holds the lock of a page (`folio_wait_locked`).
    pub async fn wait_locked(&self, index: u64) {
        while self.with(index, |f| f.locked()) == Some(true) {
            self.0.waiters.wait(WaitReason::FolioLock).await;
        }
    }

    /// Marks blocks of a cached page dirty; with `mask` 0 only the page itself. True if the page was clean.
    pub fn set_dirty(&self, index: u64, mask: BlockMask) -> bool {
        let newly = {
            let mut tree = self.0.tree.borrow_mut();
            let Some(folio) = tree.get_mut(index) else {
                return false;
            };
            folio.set_dirty(mask);
            tree.set_tag(index, Tag::Dirty)
        };
        if newly {
            self.0.vm.account_dirtied();
            self.mark_dirty(dirty::PAGES);
        }
        newly
    }

    /// Takes the dirty mark off a page that is about to be written; true if it was set. Block bits stay.
    pub fn clear_dirty_for_io(&self, index: u64) -> bool {
        let had = self.0.tree.borrow_mut().clear_tag(index, Tag::Dirty);
        if had {
            self.0.vm.account_cleaned();
        }
        had
    }

    /// Takes the dirty mark and what is known of its blocks off a page whose contents are lost: a later read asks
    /// the device (`block_invalidate_folio` and `folio_clear_uptodate`).
    pub fn cancel_dirty(&self, index: u64) {
        self.with(index, Folio::discard);
        self.clear_dirty_for_io(index);
    }

    /// Marks a page as under write I/O.
    pub fn start_writeback(&self, index: u64) {
        let mut tree = self.0.tree.borrow_mut();
        tree.clear_tag(index, Tag::ToWrite);
        if tree.set_tag(index, Tag::Writeback) {
            self.0.nr_writeback.set(self.0.nr_writeback.get() + 1);
            self.0.vm.account_writeback(1);
        }
    }

    /// Ends the write I/O of a page (`folio_end_writeback`), from interrupt context or a worker.
    pub fn end_writeback(&self, index: u64) {
        if self.0.tree.borrow_mut().clear_tag(index, Tag::Writeback) {
            self.0.nr_writeback.set(self.0.nr_writeback.get() - 1);
            self.0.vm.account_written(1);
        }
        if !self.0.waiters.is_empty() {
            self.0.waiters.wake_all();
        }
    }

    /// Waits until a page is not under writeback.
    pub async fn wait_on_writeback(&self, index: u64) {
        while self.is_tagged(index, Tag::Writeback) {
            let why = WaitReason::Writeback(self.0.ino);
            self.0.waiters.wait(why).await;
        }
    }

    /// Waits for the write I/O of all pages of `from..=to` (`filemap_fdatawait_range`, without the error).
    pub async fn wait_range(&self, from: u64, to: u64) {
        let mut at = from;
        loop {
            match self.next(at, Tag::Writeback) {
                Some(i) if i <= to => {
                    self.wait_on_writeback(i).await;
                    at = i + 1;
                }
                _ => return,
            }
        }
    }

    /// Takes a page out of the cache, dirty or not. Its write I/O, if any, goes on without it.
    pub fn delete(&self, index: u64) -> Option<Folio> {
        self.clear_dirty_for_io(index);
        if self.is_tagged(index, Tag::Writeback) {
            self.end_writeback(index);
        }
        let gone = self.0.tree.borrow_mut().remove(index);
        if gone.is_some() {
            self.0.vm.del_file_page();
        }
        gone
    }

    /// Drops clean, idle pages of `from..=to`; returns how many stayed (`invalidate_mapping_pages`).
    pub fn invalidate(&self, from: u64, to: u64) -> u64 {
        let mut kept = 0;
        let mut at = from;
        while let Some(i) = self.next(at, Tag::Present).filter(|i| *i <= to) {
            at = i + 1;
            let busy = self.is_tagged(i, Tag::Dirty) || self.is_tagged(i, Tag::Writeback);
            if busy || self.with(i, |f| f.is_clean()) == Some(false) {
                kept += 1;
            } else {
                self.delete(i);
            }
        }
        kept
    }

    /// Records an error of writeback for all who have the file open.
    pub fn set_error(&self, errno: Errno) {
        let mut e = self.0.wb_err.get();
        e.set(errno);
        self.0.wb_err.set(e);
        self.0.vm.set_wb_err(errno);
    }

    /// What a file that is opened now has seen (`filemap_sample_wb_err`).
    pub fn sample_error(&self) -> ErrSeq {
        self.0.wb_err.get().sample()
    }

    /// The error since `seen`, which is moved past it (`file_check_and_advance_wb_err`).
    pub fn check_error(&self, seen: &Cell<ErrSeq>) -> Result<(), Errno> {
        let (mut e, mut s) = (self.0.wb_err.get(), seen.get());
        let found = e.check_and_advance(&mut s);
        self.0.wb_err.set(e);
        seen.set(s);
        found.map_or(Ok(()), Err)
    }

    /// The error recorded since `seen`, which stays to be reported.
    pub fn peek_error(&self, seen: ErrSeq) -> Option<Errno> {
        self.0.wb_err.get().check(seen)
    }

    /// The journal buffer of a file block (kernel: the buffer head of the folio, with its journal head).
    pub fn buffer(&self, lblk: u32) -> Option<Rc<Buffer>> {
        self.0.buffers.borrow().get(&lblk).map(Rc::clone)
    }

    /// Keeps the journal buffer of a file block.
    pub fn set_buffer(&self, lblk: u32, b: &Rc<Buffer>) {
        self.0.buffers.borrow_mut().insert(lblk, Rc::clone(b));
    }

    /// Lets go of the journal buffer of a file block.
    pub fn drop_buffer(&self, lblk: u32) -> Option<Rc<Buffer>> {
        self.0.buffers.borrow_mut().remove(&lblk)
    }

    /// A metadata buffer of the file became dirty: fsync writes it (kernel `mark_buffer_dirty_inode`).
    pub fn associate(&self, b: &Rc<Buffer>) {
        let mut list = self.0.associated.borrow_mut();
        if !list.iter().any(|o| Rc::ptr_eq(o, b)) {
            list.push(Rc::clone(b));
        }
    }

    /// Takes the list of such buffers.
    pub fn take_associated(&self) -> Vec<Rc<Buffer>> {
        self.0.associated.take()
    }

    /// Bits of [`dirty`] set for the inode.
    pub fn state(&self) -> u32 {
        self.0.i_state.get()
    }

    /// Clears bits of the inode's writeback state.
    pub fn clear_state(&self, bits: u32) {
        self.0.i_state.set(self.0.i_state.get() & !bits);
        if bits & dirty::BUSY != 0 {
            self.0.waiters.wake_all();
        }
    }

    pub(super) fn set_state(&self, bits: u32) {
        self.0.i_state.set(self.0.i_state.get() | bits);
    }

    /// Waits while writeback of the inode is under way (`inode_wait_for_writeback`).
    pub async fn wait_busy(&self) {
        while self.state() & dirty::BUSY != 0 {
            let why = WaitReason::Writeback(self.0.ino);
            self.0.waiters.wait(why).await;
        }
    }

    /// When the inode became dirty.
    pub fn dirtied_when(&self) -> Nanos {
        self.0.dirtied_when.get()
    }

    pub(super) fn set_dirtied_when(&self, t: Nanos) {
        self.0.dirtied_when.set(t);
    }

    pub(super) fn place(&self) -> Place {
        self.0.place.get()
    }

    pub(super) fn set_place(&self, p: Place) {
        self.0.place.set(p);
    }

    /// Marks the inode dirty for the flusher (the list part of `__mark_inode_dirty`).
    pub fn mark_dirty(&self, bits: u32) {
        let old = self.0.i_state.get();
        if old & bits == bits {
            return;
        }
        let mut new = old | bits;
        if bits & (dirty::SYNC | dirty::DATASYNC) != 0 {
            new &= !dirty::TIME;
        }
        self.0.i_state.set(new);
        if old & dirty::ALL == 0 || matches!(self.place(), Place::None) {
            self.0.vm.queue_dirty(self, bits & dirty::ALL == 0);
        }
    }

    /// Takes the inode off the flusher's lists (it is clean, or being evicted).
    pub fn forget_dirty(&self) {
        self.clear_state(dirty::ANY);
        self.0.vm.unqueue(self);
    }
}
