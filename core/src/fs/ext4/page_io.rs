//! Bios of file pages and what happens when they end (kernel `fs/ext4/page-io.c`).
//!
//! A write of delayed or unwritten blocks carries an [`IoEnd`]; when the last of its bios is done a kworker
//! converts the extents with the handle reserved before, and only then do the pages leave writeback.
//!
//! Invariants:
//! 1. A page leaves writeback when the last of its blocks in flight is done.
//! 2. Nothing in interrupt context waits; conversion happens in the worker.

use super::{Ext4, Inode};
use crate::base::{Errno, FastMap, Ino, Lba, Payload};
use crate::block::{Bio, BioFlags, IoResult, Role};
use crate::fs::common::FsResult;
use crate::fs::jbd2::{Handle, HandleType};
use crate::mm::buffer::{Bh, Buffer};
use crate::mm::folio::BlockMask;
use crate::mm::AddressSpace;
use crate::sim::sync::{Mailbox, WaitQueue};
use crate::sim::{Sim, TaskClass, WaitReason};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// Most memory segments of one bio (`BIO_MAX_VECS`).
const BIO_MAX_VECS: u32 = 256;

/// State of the file layer of one mounted file system.
pub(crate) struct FileLayer {
    work: Rc<Mailbox<Rc<IoEnd>>>,
    worker_started: Cell<bool>,
    /// The worker has an item in hand.
    converting: Cell<bool>,
    idle: WaitQueue,
    /// Directory in which a file got its newest name, for fsync without a journal. Never iterated.
    parents: RefCell<FastMap<u32, Ino>>,
}

impl FileLayer {
    /// No worker yet; it starts with the first conversion.
    pub(crate) fn new(sim: &Sim) -> FileLayer {
        FileLayer {
            work: Rc::new(Mailbox::new(sim)),
            worker_started: Cell::new(false),
            converting: Cell::new(false),
            idle: WaitQueue::new(sim),
            parents: RefCell::default(),
        }
    }

    /// Waits until ended writes are converted (kernel `flush_workqueue(rsv_conversion_wq)`), so that a commit that
    /// starts now has the conversions in it.
    pub(crate) async fn flush_conversions(&self) {
        let idle = || self.work.is_empty() && !self.converting.get();
        let why = WaitReason::Other("conversion of written extents");
        self.idle.wait_until(idle, why).await;
    }

    /// The inode got a name in `dir` (`EXT4_STATE_NEWENTRY` is set by the caller).
    pub(crate) fn note_parent(&self, ino: Ino, dir: Ino) {
        self.parents.borrow_mut().insert(ino.0, dir);
    }

    pub(super) fn parent_of(&self, ino: Ino) -> Option<Ino> {
        self.parents.borrow_mut().remove(&ino.0)
    }
}

/// Pages of one bio.
struct BioPages {
    mapping: AddressSpace,
    pages: Vec<(u64, BlockMask)>,
    buffers: Vec<Rc<Buffer>>,
}

impl BioPages {
    /// `ext4_finish_bio`.
    fn finish(&self, sim: &Sim, failed: bool) {
        for b in &self.buffers {
            if failed {
                b.set(Bh::WRITE_EIO);
            }
            b.end_io(sim);
        }
        if failed {
            self.mapping.set_error(Errno::EIO);
        }
        for &(index, mask) in &self.pages {
            let last = self.mapping.with(index, |f| f.end_in_flight(mask));
            if last != Some(false) {
                self.mapping.end_writeback(index);
            }
        }
    }
}

/// Writes that end together (kernel `ext4_io_end_t`).
pub(crate) struct IoEnd {
    inode: Rc<Inode>,
    /// Byte ranges to convert to written extents.
    ranges: RefCell<Vec<(u64, u64)>>,
    handle: RefCell<Option<Handle>>,
    unwritten: Cell<bool>,
    failed: Cell<bool>,
    refs: Cell<u32>,
    bios: RefCell<Vec<BioPages>>,
}

impl IoEnd {
    pub(crate) fn new(inode: &Rc<Inode>) -> Rc<IoEnd> {
        Rc::new(IoEnd {
            inode: Rc::clone(inode),
            ranges: RefCell::default(),
            handle: RefCell::new(None),
            unwritten: Cell::new(false),
            failed: Cell::new(false),
            refs: Cell::new(1),
            bios: RefCell::default(),
        })
    }

    /// The blocks of this range become written when the I/O is done, under the handle reserved in `h`.
    pub(crate) fn convert_later(&self, h: &mut Handle, from: u64, len: u64) {
        if self.handle.borrow().is_none() {
            *self.handle.borrow_mut() = h.take_reserved();
        }
        self.unwritten.set(true);
        let mut ranges = self.ranges.borrow_mut();
        match ranges.last_mut() {
            Some((f, l)) if *f + *l == from => *l += len,
            _ => ranges.push((from, len)),
        }
    }

    fn put(&self) -> bool {
        self.refs.set(self.refs.get() - 1);
        self.refs.get() == 0
    }
}

/// Bios being put together (kernel `struct ext4_io_submit`).
pub(crate) struct IoSubmit {
    mapping: AddressSpace,
    role: Role,
    flags: BioFlags,
    unit: u32,
    pub(crate) io_end: Option<Rc<IoEnd>>,
    start: u64,
    next: u64,
    segments: u32,
    last_index: u64,
    payloads: Vec<Payload>,
    pages: Vec<(u64, BlockMask)>,
    buffers: Vec<Rc<Buffer>>,
}

impl IoSubmit {
    pub(crate) fn new(mapping: &AddressSpace, unit: u32, flags: BioFlags) -> IoSubmit {
        IoSubmit {
            mapping: mapping.clone(),
            role: Role::FileData,
            flags,
            unit,
            io_end: None,
            start: 0,
            next: 0,
            segments: 0,
            last_index: u64::MAX,
            payloads: Vec::new(),
            pages: Vec::new(),
            buffers: Vec::new(),
        }
    }

    /// True if block `pblk` of page `index` can go into the bio at hand.
    fn fits(&self, pblk: u64, index: u64, order: u32) -> bool {
        if self.payloads.is_empty() {
            return true;
        }
        pblk == self.next && (self.segments < BIO_MAX_VECS || self.same_segment(index, order))
    }

    /// Pages of one folio and blocks of one page are contiguous in memory.
    fn same_segment(&self, index: u64, order: u32) -> bool {
        index == self.last_index
            || index == self.last_index.wrapping_add(1)
                && index >> order == self.last_index >> order
    }

    fn push(&mut self, pblk: u64, index: u64, order: u32, mask: BlockMask, payload: Payload) {
        if self.payloads.is_empty() {
            self.start = pblk;
            self.segments = 1;
        } else if !self.same_segment(index, order) {
            self.segments += 1;
        }
        self.next = pblk + 1;
        self.last_index = index;
        self.payloads.push(payload);
        match self.pages.last_mut() {
            Some((i, m)) if *i == index => *m |= mask,
            _ => self.pages.push((index, mask)),
        }
    }
}

/// One block to write.
pub(crate) struct WriteBlock {
    /// Page.
    pub(crate) index: u64,
    /// Block within the page.
    pub(crate) block: u32,
    /// Where it goes.
    pub(crate) pblk: u64,
    /// Its contents.
    pub(crate) payload: Payload,
    /// Order of the page's folio.
    pub(crate) order: u32,
    /// Its journal buffer, with data journalling.
    pub(crate) buffer: Option<Rc<Buffer>>,
}

impl Ext4 {
    /// Adds a block to the bio at hand, sending that off first if the block does not fit
    /// (kernel `io_submit_add_bh`).
    pub(crate) async fn io_add_block(&self, io: &mut IoSubmit, b: WriteBlock) {
        if !io.fits(b.pblk, b.index, b.order) {
            self.io_submit(io).await;
        }
        io.push(b.pblk, b.index, b.order, 1 << b.block, b.payload);
        io.buffers.extend(b.buffer);
    }

    /// Sends off the bio at hand (kernel `ext4_io_submit`). May wait for a free request.
    pub(crate) async fn io_submit(&self, io: &mut IoSubmit) {
        if io.payloads.is_empty() {
            return;
        }
        let pages = BioPages {
            mapping: io.mapping.clone(),
            pages: std::mem::take(&mut io.pages),
            buffers: std::mem::take(&mut io.buffers),
        };
        let per_block = u64::from(self.geo.block_size) / 512;
        let payloads = std::mem::take(&mut io.payloads);
        let bio = Bio::write(Lba(io.start * per_block), io.unit, payloads, io.role)
            .flags(io.flags)
            .ino(pages.mapping.ino())
            .segments(io.segments as u16);
        let sim = self.sim.clone();
        let io_end = io.io_end.clone();
        if let Some(e) = &io_end {
            e.refs.set(e.refs.get() + 1);
        }
        let work = Rc::clone(&self.file.work);
        let done = move |res: IoResult| end_bio(&sim, &work, io_end, pages, &res);
        self.queue.enter(&bio).await;
        self.queue.submit_with(bio, done);
    }

    /// Gives up a reference from the submitting side; ends the I/O here and now if it was the last
    /// (kernel `ext4_put_io_end`).
    pub(crate) async fn put_io_end(&self, e: Rc<IoEnd>) -> FsResult<()> {
        if e.put() {
            return self.end_io_end(&e).await;
        }
        self.start_worker();
        Ok(())
    }

    /// The same, leaving the end of the I/O to the worker (kernel `ext4_put_io_end_defer`).
    pub(crate) fn put_io_end_defer(&self, e: Rc<IoEnd>) {
        if e.put() {
            self.file.work.push(e);
        }
        self.start_worker();
    }

    fn start_worker(&self) {
        if self.file.worker_started.replace(true) {
            return;
        }
        let (work, me) = (Rc::clone(&self.file.work), Weak::clone(&self.me));
        let name = "kworker/u8:1+ext4-rsv-conversion";
        self.sim.spawn(name, TaskClass::Kworker, async move {
            loop {
                let e = work.recv(WaitReason::Other("conversion work")).await;
                let Some(fs) = me.upgrade() else { return };
                fs.file.converting.set(true);
                // Errors are recorded in the mapping by `end_io_end`.
                let _ = fs.end_io_end(&e).await;
                fs.file.converting.set(false);
                fs.file.idle.wake_all();
            }
        });
    }

    /// Converts what was written to unwritten extents, then ends the pages' writeback (kernel `ext4_end_io_end`).
    async fn end_io_end(&self, e: &IoEnd) -> FsResult<()> {
        let handle = e.handle.borrow_mut().take();
        let mut res = Ok(());
        if e.failed.get() {
            drop(handle);
            self.data_io_failed();
        } else if e.unwritten.get() {
            res = self.convert_unwritten_io_end_vec(handle, e).await;
            if let Err(err) = &res {
                e.inode.mapping.set_error(err.errno());
            }
        }
        for b in e.bios.take() {
            b.finish(&self.sim, e.failed.get());
        }
        res
    }

    /// `data_err=abort`: a failed data write aborts the journal.
    fn data_io_failed(&self) {
        if !self.opts.borrow().data_err_abort {
            return;
        }
        if let Some(j) = self.journal.borrow().as_ref() {
            j.abort(Errno::EIO);
        }
    }

    async fn convert_unwritten_io_end_vec(
        &self,
        handle: Option<Handle>,
        e: &IoEnd,
    ) -> FsResult<()> {
        let ranges = e.ranges.take();
        let mut handle = handle;
        if let Some(h) = &mut handle {
            self.journal_start_reserved(h, HandleType::ExtConvert)
                .await?;
        }
        let mut res = Ok(());
        for (from, len) in ranges {
            res = self
                .convert_unwritten(handle.as_mut(), &e.inode, from, len)
                .await;
            if res.is_err() {
                break;
            }
        }
        if let Some(h) = handle {
            let stopped = self.journal_stop(h).await;
            res = res.and(stopped);
        }
        res
    }
}

/// A bio is done, in interrupt context (kernel `ext4_end_bio`).
fn end_bio(
    sim: &Sim,
    work: &Mailbox<Rc<IoEnd>>,
    io_end: Option<Rc<IoEnd>>,
    pages: BioPages,
    res: &IoResult,
) {
    let failed = res.is_err();
    let Some(e) = io_end else {
        pages.finish(sim, failed);
        return;
    };
    if failed {
        e.failed.set(true);
        pages.mapping.set_error(Errno::EIO);
    }
    if e.unwritten.get() || failed {
        e.bios.borrow_mut().push(pages);
    } else {
        pages.finish(sim, failed);
    }
    if e.put() {
        let needs_work = e.unwritten.get() || !e.bios.borrow().is_empty();
        if needs_work {
            work.push(e);
        }
    }
}
