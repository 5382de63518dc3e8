//! Counters of the queue, by phase, class and role; `/proc/diskstats`; the ledger.

use super::bio::{Bio, BioFlags, Class, Op, Role, SECTOR_SIZE};
use crate::base::Nanos;

/// Part of a run, as kernel-lab's `io_by_phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Phase {
    /// Mounting.
    Mount,
    /// The workload.
    Work,
    /// Unmounting.
    Umount,
}

impl Phase {
    /// All phases.
    pub const ALL: [Phase; 3] = [Phase::Mount, Phase::Work, Phase::Umount];

    /// Name in kernel-lab results.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Mount => "mount",
            Phase::Work => "work",
            Phase::Umount => "umount",
        }
    }
}

/// Counts of bios of one class. `sectors_*` / 8 are kernel-lab's `blocks_*` (fractions from small I/O).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BioCounts {
    /// Write bios (writes, zeroing; not empty flushes).
    pub bios_w: u64,
    /// Sectors of them.
    pub sectors_w: u64,
    /// Read bios.
    pub bios_r: u64,
    /// Sectors of them.
    pub sectors_r: u64,
    /// Bios that carry PREFLUSH, empty flushes included.
    pub preflush: u64,
    /// Bios that carry FUA.
    pub fua: u64,
    /// Empty flush bios.
    pub flush_only: u64,
    /// Write-zeroes bios.
    pub zero_bios: u64,
    /// Discard bios.
    pub discard_bios: u64,
}

impl BioCounts {
    fn count(&mut self, bio: &Bio) {
        let sectors = u64::from(bio.sectors);
        self.preflush += u64::from(bio.flags.has(BioFlags::PREFLUSH));
        self.fua += u64::from(bio.flags.has(BioFlags::FUA));
        match bio.op {
            Op::Read => {
                self.bios_r += 1;
                self.sectors_r += sectors;
            }
            Op::Write | Op::WriteZeroes if sectors > 0 => {
                self.bios_w += 1;
                self.sectors_w += sectors;
                self.zero_bios += u64::from(bio.op == Op::WriteZeroes);
            }
            Op::Discard => self.discard_bios += 1,
            Op::Flush | Op::Write | Op::WriteZeroes => self.flush_only += 1,
        }
    }

    /// Adds other counts.
    pub fn add(&mut self, o: &BioCounts) {
        self.bios_w += o.bios_w;
        self.sectors_w += o.sectors_w;
        self.bios_r += o.bios_r;
        self.sectors_r += o.sectors_r;
        self.preflush += o.preflush;
        self.fua += o.fua;
        self.flush_only += o.flush_only;
        self.zero_bios += o.zero_bios;
        self.discard_bios += o.discard_bios;
    }
}

/// Counts of requests, after merging and after the flush machinery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCounts {
    /// Writes given to the device (zeroing and discards included).
    pub rq_w: u64,
    /// Reads given to the device.
    pub rq_r: u64,
    /// Flushes given to the device.
    pub rq_flush: u64,
    /// Bios merged into requests.
    pub merges: u64,
    /// Sectors written, from completions.
    pub done_sectors_w: u64,
    /// Requests that failed.
    pub failed: u64,
}

/// Bytes moved for one role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoleBytes {
    /// Written.
    pub written: u64,
    /// Of them by write-zeroes (no data moved).
    pub zeroed: u64,
    /// Read.
    pub read: u64,
}

/// One group of `/proc/diskstats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskGroup {
    /// Requests completed.
    pub ios: u64,
    /// Bios merged.
    pub merges: u64,
    /// Sectors.
    pub sectors: u64,
    /// Sum of the requests' times.
    pub time: Nanos,
}

/// `/proc/diskstats` of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskStats {
    /// Reads.
    pub read: DiskGroup,
    /// Writes.
    pub write: DiskGroup,
    /// Discards.
    pub discard: DiskGroup,
    /// Flushes.
    pub flush: DiskGroup,
    /// Requests in flight now.
    pub in_flight: u64,
    /// Time with at least one in flight (`io_ticks`): utilisation.
    pub busy: Nanos,
    /// Sum over time of the number in flight (`time_in_queue`).
    pub in_queue: Nanos,
}

/// All counters of a queue.
#[derive(Clone, Debug)]
pub struct Stats {
    phase: Phase,
    bios: [[BioCounts; 7]; 3],
    /// Empty flushes: of no class.
    flush_only: [u64; 3],
    requests: [RequestCounts; 3],
    roles: Vec<RoleBytes>,
    device_written: u64,
    device_read: u64,
    /// By task number.
    writers: Vec<BioCounts>,
    disk: DiskStats,
    last_change: Nanos,
}

impl Default for Stats {
    fn default() -> Stats {
        Stats {
            phase: Phase::Mount,
            bios: Default::default(),
            flush_only: [0; 3],
            requests: Default::default(),
            roles: vec![RoleBytes::default(); Role::ALL.len()],
            device_written: 0,
            device_read: 0,
            writers: Vec::new(),
            disk: DiskStats::default(),
            last_change: Nanos::ZERO,
        }
    }
}

impl Stats {
    /// Which phase is being counted.
    pub fn phase(&self) -> Phase {
        self.phase
    }

    pub(super) fn set_phase(&mut self, phase: Phase) {
        self.phase = phase;
    }

    /// Counts of a class in a phase; empty flushes belong to no class.
    pub fn bios(&self, phase: Phase, class: Class) -> &BioCounts {
        &self.bios[phase as usize][class as usize]
    }

    /// Counts of all classes in a phase.
    pub fn bios_total(&self, phase: Phase) -> BioCounts {
        let flushes = self.flush_only[phase as usize];
        let mut sum = BioCounts {
            preflush: flushes,
            flush_only: flushes,
            ..BioCounts::default()
        };
        for c in &self.bios[phase as usize] {
            sum.add(c);
        }
        sum
    }

    /// Counts of requests in a phase.
    pub fn requests(&self, phase: Phase) -> &RequestCounts {
        &self.requests[phase as usize]
    }

    /// Bytes by role, from completions: the ledger. Sums to [`Stats::device_written`] and [`Stats::device_read`].
    pub fn ledger(&self) -> impl Iterator<Item = (Role, RoleBytes)> + '_ {
        Role::ALL.iter().map(|r| (*r, self.roles[*r as usize]))
    }

    /// Bytes that the device wrote (zeroing included, discards not).
    pub fn device_written(&self) -> u64 {
        self.device_written
    }

    /// Bytes that the device read.
    pub fn device_read(&self) -> u64 {
        self.device_read
    }

    /// Counts by the task that submitted, by task number.
    pub fn writers(&self) -> impl Iterator<Item = (u32, &BioCounts)> + '_ {
        let all = (0..).zip(&self.writers);
        all.filter(|(_, c)| **c != BioCounts::default())
    }

    /// The diskstats line at `now`.
    pub fn disk(&self, now: Nanos) -> DiskStats {
        let mut d = self.disk;
        let span = now.saturating_sub(self.last_change);
        if d.in_flight > 0 {
            d.busy += span;
            d.in_queue += Nanos(span.0 * d.in_flight);
        }
        d
    }

    pub(super) fn bio_queued(&mut self, bio: &Bio, task: u32) {
        let phase = self.phase as usize;
        if bio.sectors == 0 {
            self.flush_only[phase] += 1;
        } else {
            self.bios[phase][bio.role.class() as usize].count(bio);
        }
        let task = task as usize;
        if self.writers.len() <= task {
            self.writers.resize(task + 1, BioCounts::default());
        }
        self.writers[task].count(bio);
    }

    fn group(&mut self, op: Op) -> &mut DiskGroup {
        match op {
            Op::Read => &mut self.disk.read,
            Op::Write | Op::WriteZeroes => &mut self.disk.write,
            Op::Discard => &mut self.disk.discard,
            Op::Flush => &mut self.disk.flush,
        }
    }

    pub(super) fn merged(&mut self, op: Op) {
        self.requests[self.phase as usize].merges += 1;
        self.group(op).merges += 1;
    }

    fn advance(&mut self, now: Nanos) {
        self.disk = self.disk(now);
        self.last_change = now;
    }

    pub(super) fn request_allocated(&mut self, now: Nanos) {
        self.advance(now);
        self.disk.in_flight += 1;
    }

    pub(super) fn request_issued(&mut self, op: Op) {
        let r = &mut self.requests[self.phase as usize];
        match op {
            Op::Read => r.rq_r += 1,
            Op::Flush => r.rq_flush += 1,
            Op::Write | Op::WriteZeroes | Op::Discard => r.rq_w += 1,
        }
    }

    /// The device carried out a piece of a bio.
    pub(super) fn piece_done(&mut self, op: Op, role: Role, sectors: u32) {
        let bytes = u64::from(sectors) * SECTOR_SIZE;
        let r = &mut self.roles[role as usize];
        match op {
            Op::Read => {
                r.read += bytes;
                self.device_read += bytes;
            }
            Op::Write | Op::WriteZeroes => {
                r.written += bytes;
                self.device_written += bytes;
                if op == Op::WriteZeroes {
                    r.zeroed += bytes;
                }
                self.requests[self.phase as usize].done_sectors_w += u64::from(sectors);
            }
            Op::Discard | Op::Flush => {}
        }
    }

    pub(super) fn request_failed(&mut self) {
        self.requests[self.phase as usize].failed += 1;
    }

    /// A plugged request was merged into a queued one.
    pub(super) fn request_merged(&mut self, now: Nanos) {
        self.advance(now);
        self.disk.in_flight -= 1;
    }

    pub(super) fn request_freed(&mut self, op: Op, sectors: u32, took: Nanos, now: Nanos) {
        self.advance(now);
        self.disk.in_flight -= 1;
        let g = self.group(op);
        g.ios += 1;
        g.sectors += u64::from(sectors);
        g.time += took;
    }
}
