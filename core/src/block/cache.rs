//! The device's volatile write cache: what is acknowledged but not yet durable.

use super::bio::SECTOR_SIZE;
use super::log::DeviceLog;
use super::model::Model;
use super::params::{DeviceConfig, ModelKind};
use crate::base::{Lba, Nanos};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Cached writes among which a disk picks the one nearest to its head.
const CANDIDATES: usize = 16;

#[derive(Clone, Copy, Debug)]
struct Entry {
    position: u64,
    bytes: u64,
    acked: Nanos,
}

/// The cache. Flash empties it in order, a disk in the order of its head.
pub(super) struct WriteCache {
    capacity: u64,
    bytes: u64,
    destage_after: Option<Nanos>,
    destage_mbps: u64,
    fifo: VecDeque<Entry>,
    drain_free: Nanos,
    /// Disk: (first sector, position) to entry with sector count.
    sorted: BTreeMap<(u64, u64), (u32, Entry)>,
    /// Disk: positions of all entries.
    positions: BTreeSet<u64>,
    batch_start: Nanos,
    /// Position up to which the flush in progress empties the cache.
    flushing: VecDeque<u64>,
    sorted_order: bool,
}

impl WriteCache {
    pub(super) fn new(config: &DeviceConfig) -> WriteCache {
        let after = config.params.destage_after_us;
        WriteCache {
            capacity: config.params.cache_kb * 1024,
            bytes: 0,
            destage_after: (after > 0).then(|| Nanos::from_us(after)),
            destage_mbps: config.params.destage_mbps,
            fifo: VecDeque::new(),
            drain_free: Nanos::ZERO,
            sorted: BTreeMap::new(),
            positions: BTreeSet::new(),
            batch_start: Nanos::ZERO,
            flushing: VecDeque::new(),
            sorted_order: config.model == ModelKind::Hdd,
        }
    }

    pub(super) fn enabled(&self) -> bool {
        self.capacity > 0
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Position of the oldest cached write.
    pub(super) fn oldest(&self) -> Option<u64> {
        if self.sorted_order {
            self.positions.first().copied()
        } else {
            self.fifo.front().map(|e| e.position)
        }
    }

    /// An acknowledged write enters the cache.
    pub(super) fn add(&mut self, position: u64, lba: Lba, sectors: u32, now: Nanos) {
        let bytes = u64::from(sectors) * SECTOR_SIZE;
        let entry = Entry {
            position,
            bytes,
            acked: now,
        };
        self.bytes += bytes;
        if self.sorted_order {
            if self.sorted.is_empty() {
                self.batch_start = now + self.destage_after.unwrap_or(Nanos::ZERO);
            }
            self.sorted.insert((lba.0, position), (sectors, entry));
            self.positions.insert(position);
        } else {
            self.fifo.push_back(entry);
        }
    }

    /// Background work up to `now`.
    pub(super) fn settle(&mut self, now: Nanos, model: &mut Model, log: &mut DeviceLog) {
        let Some(after) = self.destage_after else {
            return;
        };
        if self.sorted_order {
            while !self.sorted.is_empty() && self.batch_start.max(model.arm_free()) < now {
                let start = self.batch_start.max(model.arm_free());
                self.destage_one(start, model, log);
            }
            return;
        }
        while let Some(e) = self.fifo.front().copied() {
            let start = self.drain_free.max(e.acked + after);
            let done = start + Nanos(Model::transfer(e.bytes, self.destage_mbps));
            if done > now {
                return;
            }
            self.drain_free = done;
            log.set_durable(e.position, done);
            self.bytes -= e.bytes;
            self.fifo.pop_front();
        }
    }

    /// Writes the best candidate to the medium; gives back when it is there.
    fn destage_one(&mut self, start: Nanos, model: &mut Model, log: &mut DeviceLog) -> Nanos {
        let head = model.arm_lba();
        let ahead = self.sorted.range((head, 0)..).take(CANDIDATES);
        let best = ahead
            .map(|(k, (sectors, _))| (model.media_cost(start, Lba(k.0), *sectors, false), *k))
            .min();
        let key = best
            .map(|(_, k)| k)
            .or_else(|| self.sorted.keys().next().copied());
        let Some((key, (sectors, entry))) = key.and_then(|k| self.sorted.remove_entry(&k)) else {
            return start;
        };
        let done = model.media(start, Lba(key.0), sectors, false);
        log.set_durable(entry.position, done);
        self.positions.remove(&entry.position);
        self.bytes -= entry.bytes;
        done
    }

    /// Makes room for `bytes`; gives back when there is.
    pub(super) fn make_room(
        &mut self,
        now: Nanos,
        bytes: u64,
        model: &mut Model,
        log: &mut DeviceLog,
    ) -> Nanos {
        let mut ready = now;
        while self.bytes > 0 && self.bytes + bytes > self.capacity {
            if self.sorted_order {
                let start = now.max(model.arm_free());
                ready = ready.max(self.destage_one(start, model, log));
            } else if let Some(e) = self.fifo.pop_front() {
                let start = self.drain_free.max(now);
                let done = start + Nanos(Model::transfer(e.bytes, self.destage_mbps));
                self.drain_free = done;
                log.set_durable(e.position, done);
                self.bytes -= e.bytes;
                ready = ready.max(done);
            }
        }
        ready
    }

    /// A flush begins: when it is done.
    pub(super) fn flush(&mut self, now: Nanos, model: &mut Model, log: &mut DeviceLog) -> Nanos {
        if !self.sorted_order {
            let upto = self.fifo.back().map_or(0, |e| e.position + 1);
            self.flushing.push_back(upto);
            return now + Nanos(model.flash_flush(self.bytes));
        }
        self.flushing.push_back(0);
        let mut done = now + Nanos(model.flash_flush(0));
        while !self.sorted.is_empty() {
            let start = now.max(model.arm_free());
            done = done.max(self.destage_one(start, model, log));
        }
        done.max(model.arm_free())
    }

    /// The flush that began first has failed: nothing became durable because of it.
    pub(super) fn flush_failed(&mut self) {
        self.flushing.pop_front();
    }

    /// The flush that began first is done: number of writes that it made durable now.
    pub(super) fn flushed(&mut self, now: Nanos, log: &mut DeviceLog) -> u32 {
        let mut records = 0;
        let upto = self.flushing.pop_front().unwrap_or(0);
        while let Some(e) = self.fifo.front().copied() {
            if e.position >= upto {
                break;
            }
            log.set_durable(e.position, now);
            self.bytes -= e.bytes;
            self.fifo.pop_front();
            records += 1;
        }
        records
    }
}
