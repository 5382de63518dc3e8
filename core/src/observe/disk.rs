//! The device at an instant: the newest write of each block, and what is on its way.

use super::layout::{role, Layout};
use super::Fold;
use crate::base::{FastMap, Nanos};
use crate::block::{Class, Cursor, DeviceLog, LogRecord, Op, Role};

/// Durability codes of the map, in the order of the legend.
pub mod durability {
    #![allow(missing_docs, reason = "the legend's own words")]
    pub const DURABLE: u8 = 0;
    pub const PAGE_CACHE: u8 = 1;
    pub const IN_FLIGHT: u8 = 2;
    pub const DEVICE_CACHE: u8 = 3;
    pub const JOURNAL_ONLY: u8 = 4;
    pub const NEVER_WRITTEN: u8 = 5;
}

/// Newest write of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Last {
    position: u64,
    role: u8,
}

/// The device at an instant.
#[derive(Debug)]
pub struct DiskFold {
    cursor: Cursor,
    position: u64,
    last: FastMap<u64, Last>,
    in_flight: FastMap<u64, u8>,
    at: Nanos,
}

/// Records looked back over for blocks that are only in the device's cache.
const CACHED_RECORDS_MAX: u64 = 65_536;

/// Map role of a device role.
pub fn role_code(r: Role) -> u8 {
    match r.class() {
        Class::Journal => role::JOURNAL,
        Class::SbGdt => role::FIXED,
        Class::Bitmap => role::BITMAP,
        Class::Itable => role::ITABLE,
        Class::Dirext => role::TREE,
        Class::Data | Class::Other => role::FILE_DATA,
    }
}

impl DiskFold {
    /// A fold at the start of the log; `cursor` comes from the device.
    pub fn new(cursor: Cursor) -> DiskFold {
        DiskFold {
            cursor,
            position: 0,
            last: FastMap::default(),
            in_flight: FastMap::default(),
            at: Nanos::ZERO,
        }
    }

    /// The disk at the instant last sought.
    pub fn cursor(&self) -> &Cursor {
        &self.cursor
    }

    /// Moves to `at`.
    pub fn seek(&mut self, log: &DeviceLog, spb: u64, at: Nanos) {
        let target = log.position_at(at);
        self.cursor.seek(log, target);
        if target < self.position {
            self.position = 0;
            self.last.clear();
        }
        let from = self.position.max(log.first());
        for position in from..target {
            if let Some(r) = log.record(position) {
                self.take(log, position, r, spb);
            }
        }
        self.position = target;
        self.at = at;
        self.in_flight.clear();
        let mut position = target;
        // Requests are logged in order of their acknowledgement; those in flight now follow.
        while let Some(r) = log.record(position) {
            if r.issued > at && r.acked.saturating_sub(at) > log.longest() {
                break;
            }
            if r.issued <= at && r.op.is_write() {
                for b in blocks_of(r, spb) {
                    self.in_flight.insert(b, role_code(r.role));
                }
            }
            position += 1;
        }
    }

    fn take(&mut self, log: &DeviceLog, position: u64, r: &LogRecord, spb: u64) {
        if !r.op.is_write() {
            return;
        }
        for part in log.parts(position) {
            let role = role_code(part.role);
            let first = part.lba.0 / spb;
            let end = (part.lba.0 + u64::from(part.sectors)).div_ceil(spb);
            for b in first..end {
                if r.op == Op::Discard {
                    self.last.remove(&b);
                } else {
                    self.last.insert(b, Last { position, role });
                }
            }
        }
    }

    /// True if the fold stands at `at` and no newer record belongs to it.
    pub fn is_at(&self, log: &DeviceLog, at: Nanos) -> bool {
        self.at == at && self.position == log.position_at(at)
    }

    /// Blocks in flight or in the device's cache, in no order. Looks back over [`CACHED_RECORDS_MAX`] records.
    pub fn unsettled(&self, log: &DeviceLog, spb: u64) -> Vec<u64> {
        let mut out: Vec<u64> = self.in_flight.keys().copied().collect();
        let from = self
            .position
            .saturating_sub(CACHED_RECORDS_MAX)
            .max(log.first());
        for position in from..self.position {
            let cached = log
                .record(position)
                .filter(|r| r.op.is_write() && r.durable > self.at);
            out.extend(cached.into_iter().flat_map(|r| blocks_of(r, spb)));
        }
        out
    }

    /// Role that the newest write gave a block.
    pub fn written_role(&self, block: u64) -> Option<u8> {
        self.last.get(&block).map(|l| l.role)
    }

    /// When the newest write of a block was acknowledged.
    pub fn last_write(&self, log: &DeviceLog, block: u64) -> Option<Nanos> {
        let l = self.last.get(&block)?;
        log.record(l.position).map(|r| r.acked)
    }

    /// Durability code of a block.
    pub fn durability(&self, log: &DeviceLog, layout: &Layout, fold: &Fold, block: u64) -> u8 {
        if fold.blocks.in_transaction(block).is_some() {
            return durability::PAGE_CACHE;
        }
        if self.in_flight.contains_key(&block) {
            return durability::IN_FLIGHT;
        }
        let record = self.last.get(&block).and_then(|l| log.record(l.position));
        if let Some((_, committed)) = fold.blocks.in_log(block) {
            if record.is_none_or(|r| r.issued < committed) {
                return durability::JOURNAL_ONLY;
            }
        }
        match record {
            Some(r) if r.durable > self.at => durability::DEVICE_CACHE,
            Some(_) => durability::DURABLE,
            None => {
                let page = block * u64::from(layout.block_size()) / 4096;
                match self.cursor.store().is_written(page as u32) {
                    true => durability::DURABLE,
                    false => durability::NEVER_WRITTEN,
                }
            }
        }
    }
}

/// Blocks that a record touches.
pub fn blocks_of(r: &LogRecord, spb: u64) -> std::ops::Range<u64> {
    r.lba.0 / spb..(r.lba.0 + u64::from(r.sectors)).div_ceil(spb)
}
