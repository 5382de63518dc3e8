//! Latency models: how long the medium takes. Integer arithmetic only, so native and wasm agree.
//!
//! Flash: parallel channels, then one shared bus; a table of quantiles spreads the latencies.
//! Disk: seek curve, rotational position at arrival, zoned transfer, track buffer (Ruemmler & Wilkes 1994).

use super::bio::{Op, SECTOR_SIZE};
use super::params::{ModelKind, Params};
use crate::base::rng::SplitMix64;
use crate::base::{Lba, Nanos};

/// Number of recording zones of a disk.
const ZONES: u64 = 16;
/// A target that passed the head this recently still counts as under it (rounding).
const ANGLE_SLACK_NS: u64 = 20_000;

/// Quantiles of latency: (upper end of the quantile in 1/2^16, offset from the median in 1/1000).
/// A log-normal shape with sigma near 0.16; `jitter_permille` scales it.
const QUANTILES: [(u32, i64); 10] = [
    (0, -250),
    (6_554, -170),
    (16_384, -100),
    (32_768, 0),
    (49_152, 110),
    (58_982, 210),
    (64_881, 420),
    (65_470, 680),
    (65_530, 1_000),
    (65_536, 1_500),
];

/// The medium.
pub(super) struct Model {
    kind: ModelKind,
    p: Params,
    rng: SplitMix64,
    sectors: u64,
    channels: Vec<u64>,
    bus_free: u64,
    arm: Arm,
}

/// The head of a disk.
struct Arm {
    /// One past the last sector transferred.
    lba: u64,
    free: u64,
    /// The last transfer was a read, so the track buffer goes on filling.
    reading: bool,
}

impl Model {
    pub(super) fn new(kind: ModelKind, p: &Params, sectors: u64, rng: SplitMix64) -> Model {
        Model {
            kind,
            p: p.clone(),
            rng,
            sectors: sectors.max(1),
            channels: vec![0; p.channels.clamp(1, 1024) as usize],
            bus_free: 0,
            arm: Arm {
                lba: 0,
                free: 0,
                reading: false,
            },
        }
    }

    pub(super) fn kind(&self) -> ModelKind {
        self.kind
    }

    /// When the head is free.
    pub(super) fn arm_free(&self) -> Nanos {
        Nanos(self.arm.free)
    }

    /// Where the head is.
    pub(super) fn arm_lba(&self) -> u64 {
        self.arm.lba
    }

    /// Time to move `bytes` at `mbps`; 0 is infinitely fast.
    pub(super) fn transfer(bytes: u64, mbps: u64) -> u64 {
        (bytes * 1_000).checked_div(mbps).unwrap_or(0)
    }

    fn jitter(&mut self, base: u64) -> u64 {
        let mut out = base;
        if self.p.jitter_permille > 0 {
            let u = (self.rng.next_u64() >> 48) as u32;
            let i = QUANTILES.partition_point(|q| q.0 <= u).max(1);
            let (lo, hi) = (QUANTILES[i - 1], QUANTILES[i.min(QUANTILES.len() - 1)]);
            let width = i64::from(hi.0 - lo.0).max(1);
            let offset = lo.1 + (hi.1 - lo.1) * i64::from(u - lo.0) / width;
            let scaled = offset * self.p.jitter_permille as i64 / 1000;
            out = (base as i64 + base as i64 * scaled / 1000).max(0) as u64;
        }
        if self.p.tail_per_million > 0 && self.rng.below(1_000_000) < self.p.tail_per_million {
            out += self.p.tail_ns;
        }
        out
    }

    /// Serves a request on flash: when it is done.
    pub(super) fn flash(&mut self, now: Nanos, op: Op, sectors: u32, fua: bool) -> Nanos {
        let bytes = u64::from(sectors) * SECTOR_SIZE;
        let (latency, rate) = match op {
            Op::Read => (self.p.read_ns, self.p.read_mbps),
            Op::Write if fua => (self.p.fua_ns, self.p.write_mbps),
            Op::Write => (self.p.write_ns, self.p.write_mbps),
            Op::WriteZeroes | Op::Discard | Op::Flush => (self.p.zero_ns, self.p.zero_mbps),
        };
        let latency = self.jitter(latency);
        let mut best = 0;
        for (i, free) in self.channels.iter().enumerate() {
            if *free < self.channels[best] {
                best = i;
            }
        }
        let ready = now.0.max(self.channels[best]) + latency;
        let done = ready.max(self.bus_free) + Model::transfer(bytes, rate);
        self.bus_free = done;
        self.channels[best] = done;
        Nanos(done)
    }

    /// Time a flash device needs to empty its cache of `bytes`.
    pub(super) fn flash_flush(&mut self, bytes: u64) -> u64 {
        if bytes == 0 {
            self.jitter(self.p.flush_idle_ns)
        } else {
            self.jitter(self.p.flush_ns) + Model::transfer(bytes, self.p.destage_mbps)
        }
    }

    /// (sectors per track, nanoseconds per rotation, first sector of the zone) at `lba`.
    fn zone(&self, lba: u64) -> (u64, u64, u64) {
        let zone = (lba * ZONES / self.sectors).min(ZONES - 1);
        let (outer, inner) = (self.p.outer_kbps, self.p.inner_kbps);
        let kbps = outer - (outer - inner.min(outer)) * zone / (ZONES - 1);
        let rotation = 60_000_000_000 / self.p.rpm.max(1);
        // kB/s * ns / 10^6 is bytes per rotation.
        let track = (kbps * (rotation / 1_000) / 1_000 / SECTOR_SIZE).max(1);
        (track, rotation, self.sectors * zone / ZONES)
    }

    fn cylinder(&self, lba: u64) -> u64 {
        // Both factors are bounded (2^35 sectors, 2^28 cylinders): the product fits.
        lba * self.p.cylinders.min(1 << 28) / self.sectors
    }

    fn seek(&self, from: u64, to: u64) -> u64 {
        let d = self.cylinder(from).abs_diff(self.cylinder(to));
        if d == 0 {
            0
        } else if d <= self.p.seek_knee {
            self.p.seek_base_ns
                + (self.p.seek_sqrt_ns * 1_000 * (d * 1_000_000).isqrt() / 1_000_000)
        } else {
            self.p.seek_long_ns + self.p.seek_per_cylinder_ns * d
        }
    }

    /// When the head would be done with a transfer that it may begin at `start`.
    pub(super) fn media_cost(&self, start: Nanos, lba: Lba, sectors: u32, read: bool) -> Nanos {
        let (track, rotation, zone_start) = self.zone(lba.0);
        let length = u64::from(sectors) * rotation / track;
        let gap = lba.0.wrapping_sub(self.arm.lba);
        let buffer = self.p.readahead_kb * 1024 / SECTOR_SIZE;
        if read && self.arm.reading && gap.saturating_add(u64::from(sectors)) <= buffer {
            // The track buffer has gone on reading since the last transfer.
            let filled = self.arm.free + (gap + u64::from(sectors)) * rotation / track;
            let bytes = u64::from(sectors) * SECTOR_SIZE;
            let moved = start.0 + Model::transfer(bytes, self.p.interface_mbps);
            return Nanos(filled.max(moved) + self.p.overhead_ns);
        }
        let begin = start.0.max(self.arm.free) + self.p.overhead_ns;
        let mut arrive = begin + self.seek(self.arm.lba, lba.0);
        if gap != 0 && arrive == begin {
            arrive += self.p.head_switch_ns.min(rotation / 8);
        }
        let target = (lba.0 - zone_start) % track * rotation / track;
        let late = (arrive + rotation - target) % rotation;
        let slack = ANGLE_SLACK_NS + self.p.overhead_ns;
        let streaming = gap == 0 && start.0.saturating_sub(self.arm.free) < slack;
        let wait = if late < ANGLE_SLACK_NS || streaming {
            0
        } else {
            rotation - late
        };
        Nanos(arrive + wait + length)
    }

    /// Moves the head: when the transfer is done.
    pub(super) fn media(&mut self, start: Nanos, lba: Lba, sectors: u32, read: bool) -> Nanos {
        let done = self.media_cost(start, lba, sectors, read);
        self.arm.free = done.0;
        self.arm.lba = lba.0 + u64::from(sectors);
        self.arm.reading = read;
        done
    }

    /// A write that goes to a disk's cache: when it is acknowledged.
    pub(super) fn cached_write(&mut self, now: Nanos, sectors: u32) -> Nanos {
        let bytes = u64::from(sectors) * SECTOR_SIZE;
        let begin = now.0.max(self.bus_free);
        let transfer = Model::transfer(bytes, self.p.interface_mbps);
        self.bus_free = begin + transfer;
        Nanos(begin + transfer + self.p.overhead_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::super::params::DeviceConfig;
    use super::*;

    fn model(name: &str, gib: u64) -> Model {
        let c = DeviceConfig::preset(name, gib << 30).unwrap();
        Model::new(c.model, &c.params, c.size / 512, SplitMix64::new(1))
    }

    #[test]
    fn disk_random_reads_take_seek_plus_half_a_rotation() {
        let mut m = model("hdd", 1000);
        let mut rng = SplitMix64::new(5);
        let mut now = Nanos::ZERO;
        for _ in 0..2000 {
            let lba = Lba(rng.below(m.sectors / 8 - 8) * 8);
            now = m.media(now, lba, 8, true);
        }
        let mean_us = now.0 / 2000 / 1000;
        assert!((11_500..14_000).contains(&mean_us), "{mean_us}");
    }

    #[test]
    fn disk_streams_at_the_zone_rate() {
        for (at, mbps) in [(0, 200), (999, 100)] {
            let mut m = model("hdd", 1000);
            let mut lba = at << 21;
            let begin = m.media(Nanos::ZERO, Lba(lba), 2048, true);
            let mut now = begin;
            for _ in 0..200 {
                lba += 2048;
                now = m.media(now, Lba(lba), 2048, true);
            }
            let rate = (200 << 20) * 1000 / (now.0 - begin.0);
            assert!(rate.abs_diff(mbps) * 20 < mbps, "{rate} {mbps}");
        }
    }

    #[test]
    fn optane_meets_its_published_figures() {
        let mut m = model("optane", 375);
        let mut h = crate::trace::Histogram::default();
        let mut now = Nanos::ZERO;
        for _ in 0..200_000 {
            let done = m.flash(now, Op::Read, 8, false);
            h.add((done - now).0);
            now = done;
        }
        let mean = (h.sum() / u128::from(h.count())) as u64;
        assert!(mean.abs_diff(8_900) < 300, "{mean}");
        assert!(h.percentile(990_000).abs_diff(10_000) < 500);
        // 16 in flight: 585,000 per second.
        let start = now;
        let mut flight = [now; 16];
        for i in 0..160_000 {
            let slot = i % 16;
            flight[slot] = m.flash(flight[slot], Op::Read, 8, false);
        }
        let iops = 160_000 * 1_000_000_000 / (flight[15] - start).0;
        assert!(iops.abs_diff(585_000) < 30_000, "{iops}");
    }

    #[test]
    fn sata_flash_reads_are_where_the_table_says() {
        let mut m = model("sata-ssd", 100);
        let mut now = Nanos::ZERO;
        for _ in 0..100_000 {
            now = m.flash(now, Op::Read, 8, false);
        }
        assert!(
            (80_000..105_000).contains(&(now.0 / 100_000)),
            "{}",
            now.0 / 100_000
        );
    }
}
