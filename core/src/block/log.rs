//! The device log: every request that the device carried out, in the order in which it acknowledged them, with what
//! each page held before and after; and cursors that show the disk at any instant.

use super::bio::{BioFlags, Op, Role, SECTOR_SIZE};
use super::store::{Change, RangeChange, Store, PAGE_SECTORS};
use super::table::Arena;
use crate::base::payload::PAGE_SIZE;
use crate::base::rng::mix64;
use crate::base::{Ino, Lba, Nanos, Payload, Tid};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

/// Flag of a record: it was never durable on its own before the end of the log.
const NEVER: u64 = u64::MAX;

/// One request in the log.
#[derive(Clone, Copy, Debug)]
pub struct LogRecord {
    /// Given to the device.
    pub issued: Nanos,
    /// Acknowledged by the device.
    pub acked: Nanos,
    /// On the medium; [`Nanos::MAX`] if it is still in the volatile cache.
    pub durable: Nanos,
    /// First sector.
    pub lba: Lba,
    /// Sectors.
    pub sectors: u32,
    /// Where its changes begin (low 32 bits of their number).
    changes: u32,
    /// Inode of the first bio.
    pub ino: Ino,
    /// Transaction of the first bio.
    pub tid: Tid,
    /// Task that submitted the first bio (low 16 bits).
    pub task: u16,
    /// Bios merged into it.
    pub bios: u16,
    /// Operation.
    pub op: Op,
    /// Flags the file system asked for.
    pub flags: BioFlags,
    /// Purpose of the first bio.
    pub role: Role,
    /// True if [`DeviceLog::parts`] has more to say about its bios.
    pub mixed: bool,
}

/// A stretch of a record with its own purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPart {
    /// First sector.
    pub lba: Lba,
    /// Sectors.
    pub sectors: u32,
    /// Purpose.
    pub role: Role,
    /// Inode.
    pub ino: Ino,
    /// Transaction.
    pub tid: Tid,
}

/// The log. Positions count records from the start of the run; position `p` is the disk before record `p`.
#[derive(Debug)]
pub struct DeviceLog {
    records: VecDeque<LogRecord>,
    first: u64,
    changes: VecDeque<Change>,
    first_change: u64,
    ranges: VecDeque<(u64, RangeChange)>,
    parts: VecDeque<(u64, LogPart)>,
    range_bytes: usize,
    budget_bytes: usize,
    longest: Nanos,
    hash: u64,
    arena: Rc<RefCell<Arena>>,
}

impl DeviceLog {
    /// An empty log that may take `budget_bytes` of memory (page contents are shared and not counted).
    pub(super) fn new(budget_bytes: usize, store: &Store) -> DeviceLog {
        DeviceLog {
            records: VecDeque::new(),
            first: 0,
            changes: VecDeque::new(),
            first_change: 0,
            ranges: VecDeque::new(),
            parts: VecDeque::new(),
            range_bytes: 0,
            budget_bytes,
            longest: Nanos::ZERO,
            hash: 0,
            arena: store.arena(),
        }
    }

    /// Position of the oldest record that is still held: the earliest reachable state of the disk.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Position after the newest record.
    pub fn end(&self) -> u64 {
        self.first + self.records.len() as u64
    }

    /// The record at `position`.
    pub fn record(&self, position: u64) -> Option<&LogRecord> {
        self.records.get(position.checked_sub(self.first)? as usize)
    }

    /// All records held, oldest first, with their positions.
    pub fn records(&self) -> impl Iterator<Item = (u64, &LogRecord)> {
        (self.first..).zip(&self.records)
    }

    /// Stretches of a record with their purposes: one, or several if bios of different purposes were merged.
    pub fn parts(&self, position: u64) -> Vec<LogPart> {
        let Some(r) = self.record(position) else {
            return Vec::new();
        };
        if !r.mixed {
            return vec![LogPart {
                lba: r.lba,
                sectors: r.sectors,
                role: r.role,
                ino: r.ino,
                tid: r.tid,
            }];
        }
        let from = self.parts.partition_point(|(p, _)| *p < position);
        let mine = self.parts.range(from..);
        mine.take_while(|(p, _)| *p == position)
            .map(|(_, part)| *part)
            .collect()
    }

    /// Position of the disk at `t`: after all records acknowledged at or before `t`.
    pub fn position_at(&self, t: Nanos) -> u64 {
        self.first + self.records.partition_point(|r| r.acked <= t) as u64
    }

    /// Earliest instant whose disk can be shown.
    pub fn earliest(&self) -> Nanos {
        match self.records.front() {
            Some(r) if self.first > 0 => r.acked.saturating_sub(Nanos(1)),
            _ => Nanos::ZERO,
        }
    }

    /// Hash of the log so far: order, times, places, purposes and contents.
    pub fn digest(&self) -> u64 {
        self.hash
    }

    /// Bytes of memory in use, without shared page contents.
    pub fn memory(&self) -> usize {
        self.records.len() * size_of::<LogRecord>()
            + self.changes.len() * size_of::<Change>()
            + self.parts.len() * size_of::<(u64, LogPart)>()
            + self.range_bytes
    }

    /// Longest time a request took so far.
    pub fn longest(&self) -> Nanos {
        self.longest
    }

    /// Begins a record; its changes follow with [`DeviceLog::note`].
    pub(super) fn push(&mut self, mut record: LogRecord) -> u64 {
        record.changes = (self.first_change + self.changes.len() as u64) as u32;
        self.longest = self.longest.max(record.acked.saturating_sub(record.issued));
        let place = record.lba.0 ^ u64::from(record.sectors) << 40;
        let kind = u64::from(record.op as u8)
            | u64::from(record.flags.0) << 8
            | u64::from(record.role as u8) << 16
            | u64::from(record.ino.0) << 32;
        let times = record.issued.0.rotate_left(32) ^ record.acked.0;
        self.mix(times);
        self.mix(place);
        self.mix(kind ^ u64::from(record.tid.0) << 8);
        self.records.push_back(record);
        self.end() - 1
    }

    pub(super) fn note(&mut self, change: Change, new: &Payload) {
        self.mix(payload_hash(new));
        self.changes.push_back(change);
    }

    pub(super) fn note_range(&mut self, position: u64, change: RangeChange) {
        self.range_bytes += change.memory();
        self.ranges.push_back((position, change));
    }

    pub(super) fn note_part(&mut self, position: u64, part: LogPart) {
        self.parts.push_back((position, part));
    }

    pub(super) fn set_durable(&mut self, position: u64, t: Nanos) {
        let at = position.checked_sub(self.first);
        if let Some(r) = at.and_then(|i| self.records.get_mut(i as usize)) {
            r.durable = r.durable.min(t);
        }
    }

    fn mix(&mut self, x: u64) {
        self.hash = (self.hash.rotate_left(5) ^ x).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    }

    /// Drops the oldest records until the log fits its budget again; `keep_from` and later are never dropped.
    pub(super) fn trim(&mut self, keep_from: u64) {
        while self.memory() > self.budget_bytes && self.first < keep_from && self.records.len() > 1
        {
            self.records.pop_front();
            self.first += 1;
            let next = self.records.front().map(|r| r.changes);
            if let Some(next) = next {
                while self.first_change as u32 != next {
                    if let Some(c) = self.changes.pop_front() {
                        let mut arena = self.arena.borrow_mut();
                        arena.release(c.old);
                        arena.release(c.new);
                    }
                    self.first_change += 1;
                }
            }
            while self.ranges.front().is_some_and(|(p, _)| *p < self.first) {
                if let Some((_, r)) = self.ranges.pop_front() {
                    self.range_bytes -= r.memory();
                    r.forget(&mut self.arena.borrow_mut());
                }
            }
            while self.parts.front().is_some_and(|(p, _)| *p < self.first) {
                self.parts.pop_front();
            }
        }
    }

    /// Pages that a record changed, with their changes (without whole ranges).
    pub(super) fn changes(
        &self,
        position: u64,
    ) -> impl DoubleEndedIterator<Item = (u32, &Change)> + ExactSizeIterator {
        let record = self.record(position);
        let (first, n, last) = record.map_or((0, 0, 0), changed_pages);
        let from = record.map_or(0, |r| r.changes);
        let at = from.wrapping_sub(self.first_change as u32) as usize;
        let changes = self.changes.range(at.min(self.changes.len())..).take(n);
        changes.enumerate().map(move |(i, c)| {
            let page = if i + 1 == n { last } else { first + i as u64 };
            (page as u32, c)
        })
    }

    /// New contents of the pages that a write changed, ascending.
    pub(super) fn new_pages(&self, position: u64) -> Vec<Payload> {
        let arena = self.arena.borrow();
        let changes = self.changes(position);
        changes.map(|(_, c)| arena.payload(c.new)).collect()
    }

    pub(super) fn range_change(&self, position: u64) -> Option<&RangeChange> {
        let i = self
            .ranges
            .binary_search_by_key(&position, |(p, _)| *p)
            .ok()?;
        self.ranges.get(i).map(|(_, r)| r)
    }

    /// Positions of all records held in the order in which the device got them.
    pub fn by_issue(&self) -> Vec<u64> {
        let mut order: Vec<u64> = (self.first..self.end()).collect();
        order.sort_by_key(|p| (self.record(*p).map(|r| r.issued), *p));
        order
    }

    /// The bytes that a write carried; empty for other operations.
    pub fn contents(&self, position: u64) -> Vec<u8> {
        let Some(r) = self.record(position).filter(|r| r.op == Op::Write) else {
            return Vec::new();
        };
        let mut bytes = Vec::new();
        let mut page = [0; PAGE_SIZE];
        for (_, change) in self.changes(position) {
            self.arena.borrow().payload(change.new).fill(&mut page);
            bytes.extend_from_slice(&page);
        }
        let skip = (r.lba.0 % PAGE_SECTORS * SECTOR_SIZE) as usize;
        let n = r.sectors as usize * SECTOR_SIZE as usize;
        bytes.drain(..skip.min(bytes.len()));
        bytes.truncate(n);
        bytes
    }

    /// Applies a record to a table.
    pub(super) fn redo(&self, position: u64, store: &mut Store) {
        for (page, change) in self.changes(position) {
            store.restore(page, change.new);
        }
        if let Some(range) = self.range_change(position) {
            store.redo_range(range);
        }
    }

    /// Takes a record back from a table.
    pub(super) fn undo(&self, position: u64, store: &mut Store) {
        if let Some(range) = self.range_change(position) {
            store.undo_range(range);
        }
        for (page, change) in self.changes(position).rev() {
            store.restore(page, change.old);
        }
    }
}

/// Pages for which a record holds changes, as (first, number, last): all of a write, the partial ones at the ends of a
/// zeroed range.
fn changed_pages(r: &LogRecord) -> (u64, usize, u64) {
    let (start, end) = (r.lba.0, r.lba.0 + u64::from(r.sectors));
    let (first, last) = (start / PAGE_SECTORS, end / PAGE_SECTORS);
    match r.op {
        Op::Write => {
            let n = end.div_ceil(PAGE_SECTORS) - first;
            (first, n as usize, (first + n).saturating_sub(1))
        }
        Op::WriteZeroes | Op::Discard => {
            let head = start % PAGE_SECTORS != 0;
            let tail = end % PAGE_SECTORS != 0 && !(head && first == last);
            let n = usize::from(head) + usize::from(tail);
            (first, n, if tail { last } else { first })
        }
        Op::Read | Op::Flush => (0, 0, 0),
    }
}

/// Hash of contents: of the rule where there is one, else of the bytes.
pub(super) fn payload_hash(payload: &Payload) -> u64 {
    let rule = |tag: u64, seed: u32, page: u32| tag ^ u64::from(seed) << 32 ^ u64::from(page) << 2;
    match payload {
        Payload::Zero => 1,
        Payload::Garbage { seed, page } => rule(2, *seed, *page),
        Payload::Pattern { seed, page } => rule(3, *seed, *page),
        Payload::Bytes(b) => hash_bytes(b),
    }
}

/// A fast hash of page contents, the same on all platforms.
fn hash_bytes(b: &[u8]) -> u64 {
    let mut lanes = [1u64, 2, 3, 4];
    let mut chunks = b.chunks_exact(32);
    for c in &mut chunks {
        for (i, lane) in lanes.iter_mut().enumerate() {
            let x = crate::base::bytes::le64(c, i * 8);
            *lane = (*lane ^ x)
                .wrapping_mul(0x9E37_79B9_7F4A_7C15)
                .rotate_left(29);
        }
    }
    let tail = chunks
        .remainder()
        .iter()
        .fold(0, |h, x| h << 8 ^ u64::from(*x));
    lanes.iter().fold(mix64(tail), |h, x| mix64(h ^ x))
}

impl LogRecord {
    /// A record of a request; its changes are noted by the log.
    pub(super) fn new(op: Op, lba: Lba, sectors: u32, issued: Nanos, acked: Nanos) -> LogRecord {
        LogRecord {
            issued,
            acked,
            durable: Nanos(NEVER),
            lba,
            sectors,
            changes: 0,
            ino: Ino(0),
            tid: Tid(0),
            task: 0,
            bios: 0,
            op,
            flags: BioFlags::NONE,
            role: Role::Other,
            mixed: false,
        }
    }
}

/// The disk at one position of the log; moves without disturbing the running device.
#[derive(Clone, Debug)]
pub struct Cursor {
    store: Store,
    position: u64,
}

impl Cursor {
    /// A cursor at the end of the log; `store` is a copy of the device's table.
    pub(super) fn new(store: Store, position: u64) -> Cursor {
        Cursor { store, position }
    }

    /// Where it stands.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The table there.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Moves to `position`, as far as the log reaches; false if that is not far enough.
    pub fn seek(&mut self, log: &DeviceLog, position: u64) -> bool {
        if self.position < log.first() && position > self.position || position < log.first() {
            return false;
        }
        while self.position < position.min(log.end()) {
            log.redo(self.position, &mut self.store);
            self.position += 1;
        }
        while self.position > position {
            self.position -= 1;
            log.undo(self.position, &mut self.store);
        }
        self.position == position
    }

    /// Moves to the disk at `t`.
    pub fn seek_time(&mut self, log: &DeviceLog, t: Nanos) -> bool {
        self.seek(log, log.position_at(t))
    }

    /// The table, for overlays.
    pub fn into_store(self) -> Rc<Store> {
        Rc::new(self.store)
    }
}
