//! Buffers: one file-system block in memory each (kernel `struct buffer_head`, include/linux/buffer_head.h), for
//! metadata and for file blocks that are journalled.
//!
//! Knows nothing of file systems or journals: [`JournalHead`] is only carried for the journal.
//!
//! Invariants:
//! 1. Contents are immutable payloads shared until modified, so a copy for I/O or for the log costs nothing.
//! 2. A buffer is `locked` exactly while I/O on it is in flight; who wants to write it again waits.
//! 3. `dirty` and `jbddirty` exclude each other: what belongs to a transaction must not reach its home.
//! 4. A stale checksum is computed at the latest when the contents leave memory ([`Buffer::payload`]).

use super::errseq::ErrSeq;
use crate::base::{Errno, FastMap, FsBlock, Lba, Nanos, Payload, Tid};
use crate::block::{Bio, BioFlags, IoError, IoResult, Queue, Role};
use crate::mm::Vm;
use crate::sim::sync::WaitQueue;
use crate::sim::{Sim, TaskId, WaitReason};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

/// State bits of a [`Buffer`] (kernel `enum bh_state_bits` and the `BH_JBD*` bits of include/linux/jbd2.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bh(pub u16);

impl Bh {
    /// Contents are valid.
    pub const UPTODATE: Bh = Bh(1);
    /// Contents differ from the disk and may be written home.
    pub const DIRTY: Bh = Bh(1 << 1);
    /// I/O is in flight.
    pub const LOCKED: Bh = Bh(1 << 2);
    /// Contents differ from the disk but belong to a transaction.
    pub const JBDDIRTY: Bh = Bh(1 << 3);
    /// Allocated by this operation, never on disk.
    pub const NEW: Bh = Bh(1 << 4);
    /// The file system has checked the contents.
    pub const VERIFIED: Bh = Bh(1 << 5);
    /// The last write failed.
    pub const WRITE_EIO: Bh = Bh(1 << 6);
    /// Freed while a transaction still holds it (`BH_Freed`).
    pub const FREED: Bh = Bh(1 << 7);
    /// The log write in flight uses this buffer's own contents (`BH_Shadow`).
    pub const SHADOW: Bh = Bh(1 << 8);
    /// Revoked in the running transaction (`BH_Revoked`; meaningful with `REVOKEVALID`).
    pub const REVOKED: Bh = Bh(1 << 9);
    /// `REVOKED` is meaningful (`BH_RevokeValid`).
    pub const REVOKEVALID: Bh = Bh(1 << 10);
    /// Free for the file system's own use (ext4: bitmap initialised).
    pub const FS1: Bh = Bh(1 << 11);
    /// The last read failed.
    pub const READ_EIO: Bh = Bh(1 << 12);
    /// Contents are file data (a buffer of a folio), not found in the cache by block number.
    pub const FILE: Bh = Bh(1 << 13);
}

/// What a checksum function gets besides the bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TriggerArgs {
    /// Checksum seed of the file system.
    pub seed: u32,
    /// Block number of the buffer.
    pub blocknr: u64,
    /// Inode number, where the structure belongs to one.
    pub ino: u32,
    /// Generation of that inode.
    pub generation: u32,
    /// Which parts changed since the last computation (for example which inodes of a table block).
    pub mask: u64,
    /// Anything else the function needs.
    pub extra: u64,
}

/// Computes the checksum of a structure before it leaves memory (kernel `struct jbd2_buffer_trigger_type`,
/// include/linux/jbd2.h).
#[derive(Clone, Copy, Debug)]
pub struct Trigger {
    /// Stores the checksum into the bytes.
    pub run: fn(&TriggerArgs, &mut [u8]),
    /// Its arguments.
    pub args: TriggerArgs,
}

/// List of a transaction on which a buffer is (kernel `BJ_*`, include/linux/jbd2.h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum JournalList {
    /// On none.
    #[default]
    None,
    /// Write access was taken, nothing modified yet.
    Reserved,
    /// Modified: goes to the log.
    Metadata,
    /// In the log write.
    Shadow,
    /// Logged, or superseded by this transaction.
    Forget,
}

/// The journal's state of a buffer (kernel `struct journal_head`, include/linux/journal-head.h).
#[derive(Clone, Debug, Default)]
pub struct JournalHead {
    /// Transaction that owns the buffer.
    pub transaction: Option<Tid>,
    /// Running transaction that will own it once the committing one is done with it.
    pub next_transaction: Option<Tid>,
    /// Finished transaction that waits for its checkpoint.
    pub cp_transaction: Option<Tid>,
    /// List of `transaction` on which it is.
    pub list: JournalList,
    /// Position on that list.
    pub list_at: u32,
    /// Position on the checkpoint list of `cp_transaction`.
    pub cp_at: u32,
    /// Accounted against the credits of the running transaction.
    pub modified: bool,
    /// Contents as the committing transaction must log them.
    pub frozen: Option<Box<Payload>>,
    /// Contents as last committed, for bitmaps under undo access.
    pub committed: Option<Box<Payload>>,
}

/// One block in memory.
pub struct Buffer {
    /// Home of the block.
    pub blocknr: FsBlock,
    size: u32,
    flags: Cell<u16>,
    role: Cell<Role>,
    stale: Cell<bool>,
    dirtied_at: Cell<Nanos>,
    content: RefCell<Payload>,
    trigger: RefCell<Option<Box<Trigger>>>,
    /// The journal's state.
    pub jh: RefCell<JournalHead>,
    waiters: RefCell<Vec<TaskId>>,
}

impl Buffer {
    fn new(blocknr: FsBlock, size: u32, content: Payload, flags: Bh, role: Role) -> Rc<Buffer> {
        Rc::new(Buffer {
            blocknr,
            size,
            flags: Cell::new(flags.0),
            role: Cell::new(role),
            stale: Cell::new(false),
            dirtied_at: Cell::new(Nanos::ZERO),
            content: RefCell::new(content),
            trigger: RefCell::new(None),
            jh: RefCell::new(JournalHead::default()),
            waiters: RefCell::new(Vec::new()),
        })
    }

    /// A buffer of file contents at home `blocknr`: valid, not found by number, owned by the caller's folio.
    pub fn for_file(blocknr: FsBlock, size: u32, content: Payload) -> Rc<Buffer> {
        let flags = Bh(Bh::UPTODATE.0 | Bh::FILE.0);
        Buffer::new(blocknr, size, content, flags, Role::FileData)
    }

    /// Bytes per block.
    pub fn size(&self) -> usize {
        self.size as usize
    }

    /// True if all bits of `bh` are set.
    pub fn test(&self, bh: Bh) -> bool {
        self.flags.get() & bh.0 == bh.0
    }

    /// Sets bits.
    pub fn set(&self, bh: Bh) {
        self.flags.set(self.flags.get() | bh.0);
    }

    /// Clears bits.
    pub fn clear(&self, bh: Bh) {
        self.flags.set(self.flags.get() & !bh.0);
    }

    /// Clears bits; true if all of them were set.
    pub fn test_clear(&self, bh: Bh) -> bool {
        let was = self.test(bh);
        self.clear(bh);
        was
    }

    /// Contents are valid.
    pub fn uptodate(&self) -> bool {
        self.test(Bh::UPTODATE)
    }

    /// May be written home.
    pub fn dirty(&self) -> bool {
        self.test(Bh::DIRTY)
    }

    /// I/O is in flight.
    pub fn locked(&self) -> bool {
        self.test(Bh::LOCKED)
    }

    /// True if a transaction (running, committing or awaiting its checkpoint) holds the buffer.
    pub fn in_journal(&self) -> bool {
        let jh = self.jh.borrow();
        jh.transaction.is_some() || jh.cp_transaction.is_some()
    }

    /// What the block is, for accounting of I/O.
    pub fn role(&self) -> Role {
        self.role.get()
    }

    /// Sets what the block is.
    pub fn set_role(&self, role: Role) {
        self.role.set(role);
    }

    /// When it became dirty.
    pub fn dirtied_at(&self) -> Nanos {
        self.dirtied_at.get()
    }

    /// Looks at the bytes (a rule becomes bytes here). The checksum in them may be stale.
    pub fn read<R>(&self, f: impl FnOnce(&[u8]) -> R) -> R {
        let bytes = self.bytes();
        f(&bytes)
    }

    /// The bytes, shared; a snapshot that later changes leave alone.
    pub fn bytes(&self) -> Rc<[u8]> {
        let mut content = self.content.borrow_mut();
        let bytes = content.to_bytes(self.size());
        *content = Payload::Bytes(Rc::clone(&bytes));
        bytes
    }

    /// Changes the bytes (copied if shared) and marks the checksum stale if there is a trigger.
    pub fn modify<R>(&self, f: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut bytes = {
            let mut content = self.content.borrow_mut();
            match std::mem::replace(&mut *content, Payload::Zero) {
                Payload::Bytes(b) if b.len() == self.size() => b,
                other => other.to_bytes(self.size()),
            }
        };
        let out = f(Rc::make_mut(&mut bytes));
        *self.content.borrow_mut() = Payload::Bytes(bytes);
        if self.trigger.borrow().is_some() {
            self.stale.set(true);
        }
        out
    }

    /// Replaces the contents.
    pub fn set_payload(&self, p: Payload) {
        *self.content.borrow_mut() = p;
        if self.trigger.borrow().is_some() {
            self.stale.set(true);
        }
    }

    /// The contents as they may leave memory: the checksum is computed now if it is stale.
    pub fn payload(&self) -> Payload {
        if self.stale.replace(false) {
            let trigger = self.trigger.borrow_mut().as_deref_mut().map(|t| {
                let now = *t;
                t.args.mask = 0;
                now
            });
            if let Some(t) = trigger {
                self.modify(|b| (t.run)(&t.args, b));
                self.stale.set(false);
            }
        }
        self.content.borrow().clone()
    }

    /// Installs the checksum function. With the same function again its `mask` is added to the one pending, so
    /// that several parts changed before the contents leave are all covered. Marks the checksum stale.
    pub fn set_trigger(&self, mut t: Trigger) {
        let mut slot = self.trigger.borrow_mut();
        if let Some(old) = slot.as_deref() {
            if std::ptr::fn_addr_eq(old.run, t.run) {
                t.args.mask |= old.args.mask;
            }
        }
        match slot.as_deref_mut() {
            Some(old) => *old = t,
            None => *slot = Some(Box::new(t)),
        }
        self.stale.set(true);
    }

    /// The block gets a new use: what checksummed its old contents must not touch the new ones.
    pub fn clear_trigger(&self) {
        *self.trigger.borrow_mut() = None;
        self.stale.set(false);
    }

    /// Write I/O on the contents begins, as part of a bio of the file layer: locks the buffer and takes `dirty` off.
    pub fn start_io(&self) {
        self.clear(Bh::DIRTY);
        self.set(Bh::LOCKED);
    }

    /// That I/O is done (from interrupt context).
    pub fn end_io(&self, sim: &Sim) {
        self.clear(Bh::LOCKED);
        self.wake(sim);
    }

    fn wake(&self, sim: &Sim) {
        for task in self.waiters.take() {
            sim.wake(task);
        }
    }
}

/// The buffers of one block device, found by block number (kernel: the page cache of the device).
pub struct BufferCache {
    sim: Sim,
    queue: Rc<Queue>,
    block_size: u32,
    map: RefCell<FastMap<u64, Rc<Buffer>>>,
    dirty: RefCell<BTreeMap<u64, Rc<Buffer>>>,
    /// Since when the device's "inode" is dirty (kernel `dirtied_when`).
    dirtied_when: Cell<Option<Nanos>>,
    /// Accounting of dirty memory and the flusher, once there is one.
    vm: RefCell<Option<Rc<Vm>>>,
    /// Newest error of a write of the device's own buffers (`wb_err` of its mapping).
    wb_err: Rc<Cell<ErrSeq>>,
    writes: Rc<Writes>,
}

/// Writes of the device's own buffers in flight.
struct Writes {
    pending: Cell<u64>,
    idle: WaitQueue,
}

impl BufferCache {
    /// An empty cache over `queue` with blocks of `block_size` bytes.
    pub fn new(sim: &Sim, queue: Rc<Queue>, block_size: u32) -> Rc<BufferCache> {
        Rc::new(BufferCache {
            sim: sim.clone(),
            queue,
            block_size,
            map: RefCell::default(),
            dirty: RefCell::default(),
            dirtied_when: Cell::new(None),
            vm: RefCell::new(None),
            wb_err: Rc::default(),
            writes: Rc::new(Writes {
                pending: Cell::new(0),
                idle: WaitQueue::new(sim),
            }),
        })
    }

    /// From now on dirty buffers count as dirty memory of `vm` and are written by its flusher.
    ///
    /// SIMPLIFIED: with blocks smaller than a page each dirty buffer counts as a page.
    pub fn set_vm(&self, vm: Option<Rc<Vm>>) {
        *self.vm.borrow_mut() = vm;
    }

    /// Bytes per block.
    pub fn block_size(&self) -> u32 {
        self.block_size
    }

    /// The device's queue.
    pub fn queue(&self) -> &Rc<Queue> {
        &self.queue
    }

    /// The buffer of a block, without I/O; perhaps not valid (kernel `sb_getblk`).
    pub fn getblk(&self, block: FsBlock) -> Rc<Buffer> {
        let mut map = self.map.borrow_mut();
        let b = map.entry(block.0).or_insert_with(|| {
            Buffer::new(block, self.block_size, Payload::Zero, Bh(0), Role::Other)
        });
        Rc::clone(b)
    }

    /// The buffer of a block if it is in memory (kernel `sb_find_get_block`).
    pub fn find(&self, block: FsBlock) -> Option<Rc<Buffer>> {
        self.map.borrow().get(&block.0).map(Rc::clone)
    }

    /// The buffer of a block with valid contents, read if necessary (kernel `sb_bread`).
    pub async fn bread(&self, block: FsBlock, role: Role) -> Result<Rc<Buffer>, IoError> {
        let b = self.getblk(block);
        if b.uptodate() {
            return Ok(b);
        }
        self.wait_unlocked(&b).await;
        if !b.uptodate() {
            self.start_read(&b, role, BioFlags::META | BioFlags::PRIO | BioFlags::SYNC)
                .await;
            self.wait_unlocked(&b).await;
        }
        if b.uptodate() {
            Ok(b)
        } else {
            Err(IoError::Medium)
        }
    }

    /// Starts reading blocks that are neither valid nor being read, without waiting (kernel `sb_breadahead`).
    pub async fn bread_ahead(&self, blocks: &[FsBlock], role: Role) {
        let plug = self.queue.plug();
        for &block in blocks {
            let b = self.getblk(block);
            if !b.uptodate() && !b.locked() {
                self.start_read(&b, role, BioFlags::META | BioFlags::RAHEAD)
                    .await;
            }
        }
        plug.finish();
    }

    async fn start_read(&self, b: &Rc<Buffer>, role: Role, flags: BioFlags) {
        b.set(Bh::LOCKED);
        b.set_role(role);
        let bio = Bio::read(self.lba(b), 1, self.block_size, role).flags(flags);
        let (sim, done) = (self.sim.clone(), Rc::clone(b));
        let end = move |res: IoResult| {
            match res {
                Ok(p) => {
                    *done.content.borrow_mut() = p.into_one();
                    done.set(Bh::UPTODATE);
                    done.clear(Bh::READ_EIO);
                }
                Err(_) => done.set(Bh::READ_EIO),
            }
            done.clear(Bh::LOCKED);
            done.wake(&sim);
        };
        self.queue.enter(&bio).await;
        self.queue.submit_with(bio, end);
    }

    fn lba(&self, b: &Buffer) -> Lba {
        Lba(b.blocknr.0 * u64::from(self.block_size / 512))
    }

    /// Waits while I/O on the buffer is in flight (kernel `wait_on_buffer`).
    pub async fn wait_unlocked(&self, b: &Buffer) {
        self.wait_bit(b, Bh::LOCKED).await;
    }

    /// Waits while the log write uses the buffer's contents (kernel: `BH_Shadow`).
    pub async fn wait_shadow(&self, b: &Buffer) {
        self.wait_bit(b, Bh::SHADOW).await;
    }

    async fn wait_bit(&self, b: &Buffer, bit: Bh) {
        while b.test(bit) {
            b.waiters.borrow_mut().push(self.sim.current());
            self.sim.block(WaitReason::Buffer(b.blocknr), None).await;
        }
    }

    /// The log write of the buffer's contents is done.
    pub fn end_shadow(&self, b: &Buffer) {
        b.clear(Bh::SHADOW);
        b.wake(&self.sim);
    }

    /// The contents may be written home from now on (kernel `mark_buffer_dirty`).
    pub fn mark_dirty(&self, b: &Rc<Buffer>) {
        if b.dirty() {
            return;
        }
        b.set(Bh::DIRTY);
        b.dirtied_at.set(self.sim.now());
        if !b.test(Bh::FILE) {
            self.dirty.borrow_mut().insert(b.blocknr.0, Rc::clone(b));
            if self.dirtied_when.get().is_none() {
                self.dirtied_when.set(Some(self.sim.now()));
            }
            if let Some(vm) = self.vm.borrow().as_ref() {
                vm.bdev_dirtied();
            }
        }
    }

    /// Clears `dirty`; true if it was set (kernel `test_clear_buffer_dirty`).
    pub fn clear_dirty(&self, b: &Buffer) -> bool {
        if !b.test_clear(Bh::DIRTY) {
            return false;
        }
        if !b.test(Bh::FILE) {
            let mut dirty = self.dirty.borrow_mut();
            dirty.remove(&b.blocknr.0);
            if dirty.is_empty() {
                self.dirtied_when.set(None);
            }
            if let Some(vm) = self.vm.borrow().as_ref() {
                vm.account_cleaned();
            }
        }
        true
    }

    /// Submits a write of the buffer if it is dirty (kernel `write_dirty_buffer`); waits only for earlier I/O on it
    /// and for a free request.
    pub async fn write_buffer(&self, b: &Rc<Buffer>, flags: BioFlags) {
        self.wait_unlocked(b).await;
        if !self.clear_dirty(b) {
            return;
        }
        b.set(Bh::LOCKED);
        let bio = Bio::write(self.lba(b), self.block_size, b.payload(), b.role()).flags(flags);
        let (sim, done) = (self.sim.clone(), Rc::clone(b));
        let writes = (!b.test(Bh::FILE)).then(|| Rc::clone(&self.writes));
        if let Some(w) = &writes {
            w.pending.set(w.pending.get() + 1);
        }
        let failed = self.write_error_marker();
        let end = move |res: IoResult| {
            if res.is_err() {
                done.set(Bh::WRITE_EIO);
                failed();
            } else {
                done.clear(Bh::WRITE_EIO);
            }
            done.end_io(&sim);
            if let Some(w) = &writes {
                w.pending.set(w.pending.get() - 1);
                if w.pending.get() == 0 {
                    w.idle.wake_all();
                }
            }
        };
        self.queue.enter(&bio).await;
        self.queue.submit_with(bio, end);
    }

    /// What a failed write of a buffer leaves besides its own mark (kernel `mark_buffer_write_io_error`).
    fn write_error_marker(&self) -> impl Fn() {
        let (vm, wb_err) = (self.vm.borrow().clone(), Rc::clone(&self.wb_err));
        move || {
            let mut e = wb_err.get();
            e.set(Errno::EIO);
            wb_err.set(e);
            if let Some(vm) = &vm {
                vm.set_wb_err(Errno::EIO);
            }
        }
    }

    /// Notes that a block that is written without a buffer of the cache, as a superblock is, could not be written.
    pub fn mark_write_error(&self) {
        self.write_error_marker()();
    }

    /// Where [`BufferCache::write_error_since`] starts from.
    pub fn sample_write_error(&self) -> ErrSeq {
        let mut e = self.wb_err.get();
        let mut since = e;
        e.check_and_advance(&mut since);
        since
    }

    /// True if a write of a buffer failed since (kernel `errseq_check` of the device's mapping).
    pub fn write_error_since(&self, since: ErrSeq) -> bool {
        self.wb_err.get().check(since).is_some()
    }

    /// Submits writes of several buffers under one plug, in the order given.
    pub async fn write_batch(&self, batch: &[Rc<Buffer>]) {
        let plug = self.queue.plug();
        for b in batch {
            self.write_buffer(b, BioFlags::SYNC).await;
        }
        plug.finish();
    }

    /// Writes the buffer now and waits (kernel `sync_dirty_buffer`).
    pub async fn sync_dirty(&self, b: &Rc<Buffer>, flags: BioFlags) -> Result<(), IoError> {
        self.write_buffer(b, flags | BioFlags::SYNC).await;
        self.wait_unlocked(b).await;
        if b.test(Bh::WRITE_EIO) {
            return Err(IoError::Medium);
        }
        Ok(())
    }

    /// Writes dirty buffers in ascending order under a plug (kernel: writeback of the device's own page cache, and
    /// `sync_blockdev` with `sync`). With `older_than` nothing is done unless the oldest was dirtied before that.
    /// Gives the number of buffers submitted.
    pub async fn write_dirty(&self, older_than: Option<Nanos>, sync: bool) -> Result<u64, IoError> {
        if let Some(limit) = older_than {
            if self.dirtied_when.get().is_none_or(|t| t > limit) {
                return Ok(0);
            }
        }
        let flags = if sync {
            BioFlags::SYNC
        } else {
            BioFlags::BACKGROUND
        };
        let mut written: Vec<Rc<Buffer>> = Vec::new();
        let all: Vec<Rc<Buffer>> = self.dirty.borrow().values().map(Rc::clone).collect();
        let plug = self.queue.plug();
        for b in all {
            // Taken by a transaction or written by a checkpoint meanwhile, or (without `sync`) busy.
            if !b.dirty() || (b.locked() && !sync) {
                continue;
            }
            self.write_buffer(&b, flags).await;
            written.push(b);
        }
        plug.finish();
        if self.dirtied_when.get().is_some() {
            self.dirtied_when.set(Some(self.sim.now()));
        }
        let mut failed = false;
        if sync {
            // What others submitted counts as well (`sync_blockdev` waits for all pages under writeback).
            let idle = || self.writes.pending.get() == 0;
            let why = WaitReason::Other("writes of the block device");
            self.writes.idle.wait_until(idle, why).await;
            failed = written.iter().any(|b| b.test(Bh::WRITE_EIO));
        }
        if failed {
            return Err(IoError::Medium);
        }
        Ok(written.len() as u64)
    }

    /// Empties the device's volatile cache and waits (kernel `blkdev_issue_flush`).
    pub async fn flush_device(&self) -> Result<(), IoError> {
        self.queue.flush().await
    }

    /// Drops changes of a buffer that is not needed any more (kernel `bforget`).
    pub fn bforget(&self, b: &Buffer) {
        self.clear_dirty(b);
        b.clear(Bh::NEW);
    }

    /// Drops the buffer of a block without writing it: the block is freed or becomes file data
    /// (kernel `clean_bdev_aliases`). A buffer that a transaction holds stays, but is clean.
    pub fn forget(&self, block: FsBlock) {
        let Some(b) = self.find(block) else { return };
        self.bforget(&b);
        if !b.in_journal() && !b.locked() {
            self.map.borrow_mut().remove(&block.0);
        }
    }

    /// [`BufferCache::forget`] of a range.
    pub fn forget_range(&self, block: FsBlock, count: u64) {
        if self.map.borrow().is_empty() {
            return;
        }
        for n in block.0..block.0.saturating_add(count) {
            self.forget(FsBlock(n));
        }
    }

    /// Bytes of dirty buffers.
    pub fn dirty_bytes(&self) -> u64 {
        self.dirty.borrow().len() as u64 * u64::from(self.block_size)
    }

    /// Since when there have been dirty buffers without a break.
    pub fn dirtied_when(&self) -> Option<Nanos> {
        self.dirtied_when.get()
    }

    /// Number of buffers in memory.
    pub fn len(&self) -> usize {
        self.map.borrow().len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.map.borrow().is_empty()
    }

    /// Drops buffers that nobody holds and that are on disk (`drop_caches`).
    pub fn drop_clean(&self) {
        self.map
            .borrow_mut()
            .retain(|_, b| Rc::strong_count(b) > 1 || b.dirty() || b.locked() || b.in_journal());
    }
}
