//! Device parameters: presets by name, every value overridable by name and printed with its source.

use super::fault::Fault;
use super::store::Fill;

/// Scheduler of the request queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elevator {
    /// `none`: first in, first out.
    None,
    /// `mq-deadline`.
    MqDeadline,
}

/// Kind of latency model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModelKind {
    /// One arm over rotating platters.
    Hdd,
    /// Parallel channels behind one bus.
    Flash,
}

macro_rules! params {
    ($($(#[$m:meta])* $name:ident, $unit:literal, $doc:literal;)*) => {
        /// Numbers of a device model. The unit is part of the name.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Params { $(#[doc = $doc] pub $name: u64,)* }

        impl Params {
            const NAMES: &'static [(&'static str, &'static str, &'static str)] =
                &[$((stringify!($name), $unit, $doc),)*];

            fn field(&mut self, name: &str) -> Option<&mut u64> {
                match name { $(stringify!($name) => Some(&mut self.$name),)* _ => None }
            }

            fn value(&self, name: &str) -> u64 {
                match name { $(stringify!($name) => self.$name,)* _ => 0 }
            }
        }
    };
}

params! {
    queue_depth, "", "requests the device works on at once";
    nr_requests, "", "requests the queue may hold";
    max_sectors_kb, "KiB", "largest request";
    max_segments, "", "physical segments of a request";
    cache_kb, "KiB", "volatile write cache; 0 is none";
    destage_after_us, "us", "age at which cached writes start to go to the medium; 0 is never on its own";
    destage_mbps, "MB/s", "rate at which flash empties its cache";
    fua, "0/1", "FUA writes supported";
    write_zeroes_kb, "KiB", "largest write-zeroes request; 0 is unsupported";
    discard_kb, "KiB", "largest discard request; 0 is unsupported";
    discard_zeroes, "0/1", "discarded sectors read as zero";
    read_ns, "ns", "latency of a 4 KiB read at depth 1, without transfer";
    write_ns, "ns", "latency until a 4 KiB write is acknowledged at depth 1, without transfer";
    read_mbps, "MB/s", "sequential read rate";
    write_mbps, "MB/s", "sequential write rate";
    channels, "", "requests served in parallel";
    flush_ns, "ns", "least cost of a flush with something in the cache";
    flush_idle_ns, "ns", "cost of a flush with an empty cache";
    fua_ns, "ns", "latency of a FUA write";
    zero_ns, "ns", "latency of a write-zeroes or discard request";
    zero_mbps, "MB/s", "rate of write-zeroes; 0 is at once";
    jitter_permille, "1/1000", "scale of the latency spread; 0 is constant latency";
    tail_per_million, "1/1000000", "share of requests hit by garbage collection";
    tail_ns, "ns", "delay of such a request";
    rpm, "1/min", "rotation";
    cylinders, "", "cylinders of the arm's range";
    seek_knee, "cylinders", "distance up to which the seek curve is a square root";
    seek_base_ns, "ns", "seek a: short seeks cost a + b sqrt(d)";
    seek_sqrt_ns, "ns", "seek b";
    seek_long_ns, "ns", "seek c: long seeks cost c + e d";
    seek_per_cylinder_ns, "ns", "seek e";
    head_switch_ns, "ns", "head or track switch, hidden by skew in sequential transfers";
    outer_kbps, "kB/s", "media rate of the outermost zone";
    inner_kbps, "kB/s", "media rate of the innermost zone";
    overhead_ns, "ns", "controller overhead";
    interface_mbps, "MB/s", "rate between host and cache";
    readahead_kb, "KiB", "track buffer for sequential reads";
}

/// Everything a device is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceConfig {
    /// Name of the preset.
    pub preset: String,
    /// Size in bytes, a multiple of 512, at most 16 TiB.
    pub size: u64,
    /// Contents before the first write.
    pub fill: Fill,
    /// Scheduler.
    pub elevator: Elevator,
    /// Kind of model.
    pub model: ModelKind,
    /// Its numbers.
    pub params: Params,
    /// Requests that fail.
    pub faults: Vec<Fault>,
    /// Memory for the device log in bytes.
    pub log_budget: usize,
}

/// One parameter for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParamView {
    /// Name for `device.NAME=`.
    pub name: &'static str,
    /// Unit.
    pub unit: &'static str,
    /// What it is.
    pub doc: &'static str,
    /// Value.
    pub value: u64,
    /// Value of the preset.
    pub preset: u64,
}

/// Names of the presets with where their numbers come from. All latencies are modelled, not measured here.
pub const PRESETS: &[(&str, &str)] = &[
    (
        "hdd",
        "7200 rpm SATA disk: seek curve a+b*sqrt(d) / c+e*d after Ruemmler & Wilkes 1994 scaled to track-to-track \
         0.8 ms, average 8.5 ms, full stroke 17 ms; rotation 8.33 ms; 200 MB/s outer, 100 inner; 64 MiB cache",
    ),
    (
        "hdd-2010",
        "the disk of 2010: average access 12-13 ms, 110 MB/s outer, 55 inner, 16 MiB cache, no FUA",
    ),
    (
        "sata-ssd",
        "consumer SATA SSD: read 90 us, write 40 us to its cache, 550/500 MB/s, flush 1.5 ms, no FUA",
    ),
    (
        "sata-ssd-plp",
        "SATA SSD with power-loss protection: as sata-ssd, writes are durable when acknowledged",
    ),
    (
        "nvme",
        "consumer NVMe NAND: read 75 us (AnandTech: P3700 77.9 us), write 15 us, 3500/3000 MB/s, flush 1 ms, FUA",
    ),
    (
        "nvme-plp",
        "enterprise NVMe NAND: read 90 us, write 15 us, 5000/3000 MB/s, no volatile cache",
    ),
    (
        "optane",
        "Intel P4800X (AnandTech review): 8.9 us mean, 9/10/37 us at p50/p99/p99.999, 585 k IOPS at QD16, no cache",
    ),
    (
        "emmc",
        "eMMC 5.1: read 200 us, write 600 us, 250/125 MB/s, flush 3 ms",
    ),
    (
        "loop",
        "kernel-lab's loop device on tmpfs: write cache with flush, no FUA, write-zeroes and discard, none, 128 requests",
    ),
];

fn flash(read_us: u64, write_us: u64, read_mbps: u64, write_mbps: u64, channels: u64) -> Params {
    Params {
        queue_depth: 32,
        nr_requests: 64,
        max_sectors_kb: 1280,
        max_segments: 128,
        cache_kb: 0,
        destage_after_us: 0,
        destage_mbps: write_mbps,
        fua: 1,
        write_zeroes_kb: 1 << 21,
        discard_kb: 1 << 21,
        discard_zeroes: 1,
        read_ns: read_us * 1000,
        write_ns: write_us * 1000,
        read_mbps,
        write_mbps,
        channels,
        flush_ns: 0,
        flush_idle_ns: write_us * 1000,
        fua_ns: write_us * 1000,
        zero_ns: 50_000,
        zero_mbps: 20_000,
        jitter_permille: 1000,
        tail_per_million: 100,
        tail_ns: 2_000_000,
        rpm: 0,
        cylinders: 1,
        seek_knee: 0,
        seek_base_ns: 0,
        seek_sqrt_ns: 0,
        seek_long_ns: 0,
        seek_per_cylinder_ns: 0,
        head_switch_ns: 0,
        outer_kbps: 0,
        inner_kbps: 0,
        overhead_ns: 0,
        interface_mbps: read_mbps,
        readahead_kb: 0,
    }
}

fn hdd() -> Params {
    Params {
        cache_kb: 64 * 1024,
        destage_after_us: 100_000,
        destage_mbps: 0,
        write_zeroes_kb: 0,
        discard_kb: 0,
        discard_zeroes: 0,
        channels: 1,
        flush_ns: 500_000,
        flush_idle_ns: 100_000,
        jitter_permille: 0,
        tail_per_million: 0,
        rpm: 7200,
        cylinders: 100_000,
        seek_knee: 20_000,
        seek_base_ns: 800_000,
        seek_sqrt_ns: 37_000,
        seek_long_ns: 3_700_000,
        seek_per_cylinder_ns: 133,
        head_switch_ns: 1_000_000,
        outer_kbps: 200_000,
        inner_kbps: 100_000,
        overhead_ns: 100_000,
        interface_mbps: 550,
        readahead_kb: 256,
        ..flash(0, 0, 200, 200, 1)
    }
}

fn hdd_2010() -> Params {
    Params {
        cache_kb: 16 * 1024,
        fua: 0,
        seek_base_ns: 1_000_000,
        seek_sqrt_ns: 40_000,
        seek_long_ns: 4_000_000,
        seek_per_cylinder_ns: 140,
        outer_kbps: 110_000,
        inner_kbps: 55_000,
        interface_mbps: 280,
        max_sectors_kb: 512,
        ..hdd()
    }
}

fn sata_ssd() -> Params {
    Params {
        cache_kb: 32 * 1024,
        destage_after_us: 500_000,
        fua: 0,
        flush_ns: 1_500_000,
        flush_idle_ns: 100_000,
        ..flash(83, 32, 550, 500, 16)
    }
}

fn nvme() -> Params {
    Params {
        queue_depth: 64,
        nr_requests: 1023,
        cache_kb: 64 * 1024,
        destage_after_us: 500_000,
        flush_ns: 1_000_000,
        flush_idle_ns: 50_000,
        fua_ns: 1_000_000,
        ..flash(74, 14, 3500, 3000, 64)
    }
}

fn nvme_plp() -> Params {
    Params {
        queue_depth: 128,
        nr_requests: 1023,
        ..flash(89, 14, 5000, 3000, 128)
    }
}

fn optane() -> Params {
    Params {
        queue_depth: 64,
        nr_requests: 1023,
        read_ns: 7_150,
        write_ns: 7_900,
        jitter_permille: 260,
        tail_per_million: 10,
        tail_ns: 28_000,
        ..flash(7, 8, 2400, 2000, 7)
    }
}

fn emmc() -> Params {
    Params {
        queue_depth: 1,
        nr_requests: 64,
        cache_kb: 512,
        destage_after_us: 100_000,
        flush_ns: 3_000_000,
        flush_idle_ns: 300_000,
        fua_ns: 1_200_000,
        max_sectors_kb: 512,
        ..flash(184, 567, 250, 125, 1)
    }
}

fn loop_device() -> Params {
    Params {
        queue_depth: 128,
        nr_requests: 128,
        cache_kb: 1 << 31,
        fua: 0,
        write_zeroes_kb: 4_194_303,
        discard_kb: 4_194_303,
        flush_ns: 20_000,
        flush_idle_ns: 20_000,
        zero_ns: 60_000,
        jitter_permille: 0,
        tail_per_million: 0,
        ..flash(18, 18, 3000, 3000, 1)
    }
}

fn preset(name: &str) -> Option<(ModelKind, Elevator, Params)> {
    use Elevator::{MqDeadline, None as Fifo};
    use ModelKind::{Flash, Hdd};
    Some(match name {
        "hdd" => (Hdd, MqDeadline, hdd()),
        "hdd-2010" => (Hdd, MqDeadline, hdd_2010()),
        "sata-ssd" => (Flash, MqDeadline, sata_ssd()),
        "sata-ssd-plp" => (Flash, MqDeadline, flash(83, 32, 550, 500, 16)),
        "nvme" => (Flash, Fifo, nvme()),
        "nvme-plp" => (Flash, Fifo, nvme_plp()),
        "optane" => (Flash, Fifo, optane()),
        "emmc" => (Flash, MqDeadline, emmc()),
        "loop" => (Flash, Fifo, loop_device()),
        _ => return None,
    })
}

impl DeviceConfig {
    /// The preset `name` with `size` bytes. The error lists the presets.
    pub fn preset(name: &str, size: u64) -> Result<DeviceConfig, String> {
        let Some((model, elevator, params)) = preset(name) else {
            let names: Vec<&str> = PRESETS.iter().map(|(n, _)| *n).collect();
            let names = names.join(", ");
            return Err(format!("there is no device `{name}`; one of {names}"));
        };
        Ok(DeviceConfig {
            preset: name.to_owned(),
            size,
            fill: Fill::Zero,
            elevator,
            model,
            params,
            faults: Vec::new(),
            log_budget: 96 << 20,
        })
    }

    /// A preset with changes: `sata-ssd,cache=32M,flush_ns=2ms`.
    pub fn parse(text: &str, size: u64) -> Result<DeviceConfig, String> {
        let mut items = text.split(',').map(str::trim);
        let mut config = DeviceConfig::preset(items.next().unwrap_or(""), size)?;
        for item in items.filter(|i| !i.is_empty()) {
            let Some((name, value)) = item.split_once('=') else {
                return Err(format!("device option `{item}` has no value"));
            };
            config.set(name, value)?;
        }
        Ok(config)
    }

    /// Sets a parameter by name. Sizes (`_kb`, and `cache`) take K, M, G; times (`_ns`, `_us`) take ns, us, ms, s;
    /// `fault` a list of [`Fault`]s with blanks between.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        match name {
            "cache" => self.params.cache_kb = size_bytes(value)? / 1024,
            "fault" => {
                let faults = value.split_whitespace().map(str::parse);
                self.faults = faults.collect::<Result<_, _>>()?;
            }
            "log_budget" => self.log_budget = size_bytes(value)? as usize,
            "scheduler" => {
                self.elevator = match value {
                    "none" => Elevator::None,
                    "mq-deadline" => Elevator::MqDeadline,
                    _ => return Err(format!("scheduler `{value}` is not none or mq-deadline")),
                }
            }
            "fill" => {
                self.fill = match value.split_once(':') {
                    None if value == "zero" => Fill::Zero,
                    None if value == "garbage" => Fill::Garbage { seed: 1 },
                    Some(("garbage", seed)) => {
                        let seed = number(seed)? as u32;
                        Fill::Garbage { seed }
                    }
                    _ => return Err(format!("fill `{value}` is not zero or garbage[:SEED]")),
                }
            }
            _ => {
                let parsed = parse_value(name, value)?;
                let Some(field) = self.params.field(name) else {
                    return Err(format!("there is no device parameter `{name}`"));
                };
                *field = parsed;
            }
        }
        Ok(())
    }

    /// All parameters with their preset values, for printing.
    pub fn views(&self) -> Vec<ParamView> {
        let base = preset(&self.preset).map_or_else(|| self.params.clone(), |(_, _, p)| p);
        let names = Params::NAMES.iter();
        names
            .map(|&(name, unit, doc)| ParamView {
                name,
                unit,
                doc,
                value: self.params.value(name),
                preset: base.value(name),
            })
            .collect()
    }

    /// Where the preset's numbers come from.
    pub fn source(&self) -> &'static str {
        let found = PRESETS.iter().find(|(n, _)| *n == self.preset);
        found.map_or("", |(_, source)| source)
    }

    /// True if acknowledged writes can be lost.
    pub fn has_volatile_cache(&self) -> bool {
        self.params.cache_kb > 0
    }
}

fn number(text: &str) -> Result<u64, String> {
    text.trim()
        .parse()
        .map_err(|_| format!("`{text}` is not a number"))
}

fn scaled(text: &str, units: &[(&str, u64)]) -> Result<u64, String> {
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let n = number(&text[..digits])?;
    let unit = text[digits..].trim();
    let found = units.iter().find(|(u, _)| u.eq_ignore_ascii_case(unit));
    let Some((_, scale)) = found else {
        return Err(format!("`{unit}` is not a unit in `{text}`"));
    };
    n.checked_mul(*scale)
        .ok_or_else(|| format!("`{text}` is too large"))
}

/// Bytes from `4k`, `64M`, `1G`, `16T` (binary); a plain number is bytes.
pub fn size_bytes(text: &str) -> Result<u64, String> {
    const UNITS: &[(&str, u64)] = &[
        ("", 1),
        ("b", 1),
        ("k", 1 << 10),
        ("kib", 1 << 10),
        ("m", 1 << 20),
        ("mib", 1 << 20),
        ("g", 1 << 30),
        ("gib", 1 << 30),
        ("t", 1 << 40),
        ("tib", 1 << 40),
    ];
    scaled(text, UNITS)
}

fn parse_value(name: &str, value: &str) -> Result<u64, String> {
    let plain = value.trim().bytes().all(|b| b.is_ascii_digit());
    if plain {
        return number(value);
    }
    let time = |unit: u64| {
        let units = [
            ("ns", 1),
            ("us", 1_000),
            ("ms", 1_000_000),
            ("s", 1_000_000_000),
        ];
        scaled(value, &units).map(|ns| ns / unit)
    };
    if name.ends_with("_kb") {
        Ok(size_bytes(value)? / 1024)
    } else if name.ends_with("_ns") {
        time(1)
    } else if name.ends_with("_us") {
        time(1_000)
    } else {
        Err(format!("`{value}` is not a number for `{name}`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_parses_and_every_parameter_can_be_set() {
        for (name, source) in PRESETS {
            let mut c = DeviceConfig::preset(name, 1 << 30).unwrap();
            assert!(!source.is_empty());
            for v in c.views() {
                assert_eq!(v.value, v.preset);
                c.set(v.name, "7").unwrap();
            }
            assert!(c.views().iter().all(|v| v.value == 7));
        }
    }

    #[test]
    fn texts() {
        let text =
            "sata-ssd,cache=32M,flush_ns=2ms,scheduler=none,fill=garbage:9,destage_after_us=1s";
        let c = DeviceConfig::parse(text, 1 << 30).unwrap();
        assert_eq!(c.params.cache_kb, 32 * 1024);
        assert_eq!(c.params.flush_ns, 2_000_000);
        assert_eq!(c.params.destage_after_us, 1_000_000);
        assert_eq!(c.fill, Fill::Garbage { seed: 9 });
        assert_eq!(c.elevator, Elevator::None);
        for bad in [
            "ssd",
            "nvme,x=1",
            "nvme,rpm",
            "nvme,rpm=a",
            "nvme,cache=3Q",
            "nvme,fill=x",
        ] {
            assert!(DeviceConfig::parse(bad, 1).is_err(), "{bad}");
        }
    }
}
