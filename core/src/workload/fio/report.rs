//! The report in fio's text layout (fio 3.33 stat.c prints; widths and units follow its output).

use super::options::FioJob;
use super::outcome::{Direction, FioResult, JobResult};
use super::stat::{Clat, Summary};
use std::fmt::Write as _;

/// fio's `num2str`: at most `maxlen` characters of number, prefixes of base 1000 or 1024.
pub fn num2str(num: u64, maxlen: usize, binary: bool, unit: &str) -> String {
    let thousand = if binary { 1024 } else { 1000 };
    let prefixes = ["", "k", "M", "G", "T", "P"];
    let (mut n, mut modulo, mut index) = (num, None, 0);
    while n.to_string().len() > maxlen && index + 1 < prefixes.len() {
        modulo = Some(n % thousand);
        n /= thousand;
        index += 1;
    }
    let prefix = match (prefixes[index], binary) {
        ("", _) => String::new(),
        ("k", true) => "Ki".to_string(),
        (p, true) => format!("{p}i"),
        (p, false) => p.to_string(),
    };
    let digits = n.to_string().len();
    let Some(modulo) = modulo else {
        return format!("{n}{prefix}{unit}");
    };
    if digits + 1 >= maxlen {
        let n = n + u64::from(modulo >= thousand / 2);
        return format!("{n}{prefix}{unit}");
    }
    let places = maxlen - digits - 1;
    let fraction = format!("{:.*}", places, modulo as f64 / thousand as f64);
    let n = n + u64::from(fraction.starts_with('1'));
    format!("{n}.{}{prefix}{unit}", &fraction[2..])
}

/// The job line that fio prints before it starts.
fn head_line(job: &FioJob, group: u32) -> String {
    let bs = |n: u64| num2str(n, 4, true, "B");
    let range = |n: u64| format!("{0}-{0}", bs(n));
    let write = range(job.bs_write);
    format!(
        "{}: (g={group}): rw={}, bs=(R) {}, (W) {write}, (T) {write}, ioengine={}, iodepth={}",
        job.name,
        job.rw.word(),
        range(job.bs_read),
        job.ioengine.word(),
        job.iodepth
    )
}

/// The whole report. `version` names the program, `when` the end of the run.
pub fn text(result: &FioResult, version: &str, when: &str) -> String {
    let mut out = String::new();
    for r in &result.jobs {
        let _ = writeln!(out, "{}", head_line(&r.job, r.groupid));
        if r.jobs > 1 {
            out.push_str("...\n");
        }
    }
    let tasks: u32 = result.jobs.iter().map(|r| r.jobs).sum();
    let plural = if tasks == 1 { "" } else { "es" };
    let _ = writeln!(out, "{version}\nStarting {tasks} process{plural}\n");
    for r in &result.jobs {
        job(&mut out, r, when);
    }
    groups(&mut out, result);
    disk(&mut out, result);
    out
}

fn job(out: &mut String, r: &JobResult, when: &str) {
    let err = r.error.map_or(0, |e| e.0.number());
    let _ = writeln!(
        out,
        "{}: (groupid={}, jobs={}): err={err:2}: pid={}: {when}",
        r.name,
        r.groupid,
        r.jobs,
        r.groupid + 1
    );
    if let Some((errno, op)) = r.error {
        let _ = writeln!(out, "  failed: {op} returned {errno}");
    }
    for (name, d) in [("read", &r.read), ("write", &r.write)] {
        if d.total_ios > 0 || d.runtime.0 > 0 {
            direction(out, name, d, r);
        }
    }
    buckets(out, r);
    if r.sync.summary.samples > 0 {
        out.push_str("  fsync/fdatasync/sync_file_range:\n");
        latency_line(out, "sync", &r.sync.summary);
        percentiles(out, "sync", &r.sync, &r.job.percentile_list);
    }
    let wall = r.job_runtime.0.max(1) as f64 * f64::from(r.jobs.max(1));
    let share = |t: u64| t as f64 * 100.0 / wall;
    let _ = writeln!(
        out,
        "  cpu          : usr={:3.2}%, sys={:3.2}%, ctx={}, majf=0, minf=0",
        share(r.usr.0),
        share(r.sys.0),
        r.ctx
    );
    depths(out, r);
}

fn direction(out: &mut String, name: &str, d: &Direction, r: &JobResult) {
    let bw = d.bw_bytes();
    let zone = if name == "write" {
        "; 0 zone resets"
    } else {
        ""
    };
    let _ = writeln!(
        out,
        "  {name}: IOPS={}, BW={}/s ({}/s)({}/{}msec){zone}",
        num2str(d.iops() as u64, 4, false, ""),
        num2str(bw, 4, true, "B"),
        num2str(bw, 4, false, "B"),
        num2str(d.io_bytes, 4, true, "B"),
        d.runtime.0 / 1_000_000
    );
    if d.slat.summary.samples > 0 {
        latency_line(out, "slat", &d.slat.summary);
    }
    latency_line(out, "clat", &d.clat.summary);
    latency_line(out, " lat", &d.lat.summary);
    percentiles(out, "clat", &d.clat, &r.job.percentile_list);
    let bw = &d.rate.bw_kib;
    if bw.samples > 0 {
        let agg = (d.bw_bytes() as f64 / 1024.0).max(1.0);
        let share = (bw.mean() * 100.0 / agg).min(100.0);
        let (scale, unit) = if bw.mean() > 1_048_576.0 {
            (1024.0, "MiB")
        } else {
            (1.0, "KiB")
        };
        let _ = writeln!(
            out,
            "   bw (  {unit}/s): min={:5}, max={:5}, per={share:3.2}%, avg={:5.2}, stdev={:5.2}, samples={}",
            (bw.min as f64 / scale) as u64,
            (bw.max as f64 / scale) as u64,
            bw.mean() / scale,
            bw.stddev() / scale,
            bw.samples
        );
        let io = &d.rate.iops;
        let _ = writeln!(
            out,
            "   iops        : min={:5}, max={:5}, avg={:5.2}, stdev={:5.2}, samples={}",
            io.min,
            io.max,
            io.mean(),
            io.stddev(),
            io.samples
        );
    }
}

fn latency_line(out: &mut String, name: &str, s: &Summary) {
    let (min, max, mean, dev) = (s.min, s.max, s.mean(), s.stddev());
    let (unit, scale) = if min > 2_000_000 && max > 99_999_999 && dev > 1_000_000.0 {
        ("msec", 1_000_000)
    } else if min > 2_000 && max > 99_999 && dev > 1000.0 {
        ("usec", 1_000)
    } else {
        ("nsec", 1)
    };
    let f = scale as f64;
    let _ = writeln!(
        out,
        "    {name} ({unit}): min={}, max={}, avg={:5.2}, stdev={:5.2}",
        num2str(min / scale, 6, false, ""),
        num2str(max / scale, 6, false, ""),
        mean / f,
        dev / f
    );
}

fn percentiles(out: &mut String, name: &str, c: &Clat, list: &[f64]) {
    if c.histogram.samples() == 0 || list.is_empty() {
        return;
    }
    let mut list = list.to_vec();
    list.sort_by(f64::total_cmp);
    let values = c.histogram.percentiles(&list);
    let (min, max) = (
        values.first().copied().unwrap_or(0),
        values.last().copied().unwrap_or(0),
    );
    let (unit, scale) = if min > 2_000_000 && max > 99_999_999 {
        ("msec", 1_000_000)
    } else if min > 2_000 && max > 99_999 {
        ("usec", 1_000)
    } else {
        ("nsec", 1)
    };
    let _ = writeln!(out, "    {name} percentiles ({unit}):");
    for (i, (p, v)) in list.iter().zip(&values).enumerate() {
        if i % 4 == 0 {
            out.push_str("     |");
        }
        let last = i + 1 == list.len();
        // fio rounds to the nearest unit.
        let v = (v + scale / 2) / scale;
        let _ = write!(out, " {p:5.2}th=[{v:5}]{}", if last { "" } else { "," });
        if last || i % 4 == 3 {
            out.push('\n');
        }
    }
}

const NS_LIMITS: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];

/// Shares of all I/Os in fio's latency buckets: (unit, upper limit, percent), empty ones left out.
pub fn latency_buckets(r: &JobResult) -> Vec<(&'static str, u64, f64)> {
    let mut counts = [0u64; 33];
    let mut total = 0;
    for d in [&r.read, &r.write] {
        for (ns, n) in d.lat.histogram.bins() {
            counts[bucket_of(ns)] += n;
            total += n;
        }
    }
    let mut rows = Vec::new();
    for (i, n) in counts.iter().enumerate() {
        let (unit, limit) = match i {
            0..=9 => ("nsec", NS_LIMITS[i]),
            10..=19 => ("usec", NS_LIMITS[i - 10]),
            20..=29 => ("msec", NS_LIMITS[i - 20]),
            30 => ("msec", 2000),
            _ => ("msec", u64::MAX),
        };
        rows.push((unit, limit, *n as f64 * 100.0 / total.max(1) as f64));
    }
    rows.truncate(32);
    rows
}

fn bucket_of(ns: u64) -> usize {
    let (base, v) = match ns {
        0..1_000 => (0, ns),
        1_000..1_000_000 => (10, ns / 1_000),
        _ => (20, ns / 1_000_000),
    };
    match NS_LIMITS.iter().position(|l| v < *l) {
        Some(i) => base + i,
        None if v < 2000 => 30,
        None => 31,
    }
}

fn buckets(out: &mut String, r: &JobResult) {
    let rows = latency_buckets(r);
    for unit in ["nsec", "usec", "msec"] {
        let mut shown = 0;
        for (u, limit, share) in &rows {
            if *u != unit || *share <= 0.0 {
                continue;
            }
            let lead = match shown % 5 {
                0 if shown == 0 => format!("  lat ({unit})   : "),
                0 => format!("\n  lat ({unit})   : "),
                _ => ", ".to_string(),
            };
            let name = if *limit == u64::MAX {
                ">=2000".to_string()
            } else {
                limit.to_string()
            };
            let _ = write!(out, "{lead}{name}={:3.2}%", share.max(0.01));
            shown += 1;
        }
        if shown > 0 {
            out.push('\n');
        }
    }
}

/// Shares of a depth map in percent; as fio, a share that is not zero is at least 0.1.
pub fn depth_shares(r: &JobResult) -> [f64; 7] {
    let ios = (r.read.total_ios + r.write.total_ios).max(1) as f64;
    r.depth.map(|n| match n {
        0 => 0.0,
        n => (n as f64 * 100.0 / ios).max(0.1),
    })
}

fn depths(out: &mut String, r: &JobResult) {
    let d = depth_shares(r);
    let _ = writeln!(
        out,
        "  IO depths    : 1={:.1}%, 2={:.1}%, 4={:.1}%, 8={:.1}%, 16={:.1}%, 32={:.1}%, >=64={:.1}%",
        d[0], d[1], d[2], d[3], d[4], d[5], d[6]
    );
    for what in ["submit   ", "complete "] {
        let _ = writeln!(
            out,
            "     {what} : 0=0.0%, 4=100.0%, 8=0.0%, 16=0.0%, 32=0.0%, 64=0.0%, >=64=0.0%"
        );
    }
    let _ = writeln!(
        out,
        "     issued rwts: total={},{},0,{} short=0,0,0,0 dropped=0,0,0,0",
        r.read.total_ios, r.write.total_ios, r.sync.summary.samples
    );
    let _ = writeln!(
        out,
        "     latency   : target=0, window=0, percentile=100.00%, depth={}",
        r.job.iodepth
    );
}

fn groups(out: &mut String, result: &FioResult) {
    let mut ids: Vec<u32> = result.jobs.iter().map(|r| r.groupid).collect();
    ids.dedup();
    for id in ids {
        let _ = writeln!(out, "\nRun status group {id} (all jobs):");
        let of: Vec<&JobResult> = result.jobs.iter().filter(|r| r.groupid == id).collect();
        for (name, pick) in [
            (
                "   READ",
                (|r: &JobResult| r.read.clone()) as fn(&JobResult) -> Direction,
            ),
            ("  WRITE", |r: &JobResult| r.write.clone()),
        ] {
            let dirs: Vec<Direction> = of
                .iter()
                .map(|r| pick(r))
                .filter(|d| d.total_ios > 0)
                .collect();
            if !dirs.is_empty() {
                group_line(out, name, &dirs);
            }
        }
    }
}

fn group_line(out: &mut String, name: &str, dirs: &[Direction]) {
    let io: u64 = dirs.iter().map(|d| d.io_bytes).sum();
    let ms = |d: &Direction| d.runtime.0 / 1_000_000;
    let (t_min, t_max) = (
        dirs.iter().map(ms).min().unwrap_or(0),
        dirs.iter().map(ms).max().unwrap_or(0),
    );
    let agg = if t_max > 0 {
        (u128::from(io) * 1000 / u128::from(t_max)) as u64
    } else {
        0
    };
    let (b_min, b_max) = (
        dirs.iter().map(Direction::bw_bytes).min().unwrap_or(0),
        dirs.iter().map(Direction::bw_bytes).max().unwrap_or(0),
    );
    let i = |n: u64| num2str(n, 4, true, "B");
    let p = |n: u64| num2str(n, 4, false, "B");
    let _ = writeln!(
        out,
        "{name}: bw={}/s ({}/s), {}/s-{}/s ({}/s-{}/s), io={} ({}), run={t_min}-{t_max}msec",
        i(agg),
        p(agg),
        i(b_min),
        i(b_max),
        p(b_min),
        p(b_max),
        i(io),
        p(io)
    );
}

fn disk(out: &mut String, result: &FioResult) {
    let d = &result.disk;
    let _ = writeln!(
        out,
        "\nDisk stats (read/write):\n  {}: ios={}/{}, sectors={}/{}, merge={}/{}, ticks={}/{}, in_queue={}, util={:3.2}%",
        d.name,
        d.ios.0,
        d.ios.1,
        d.sectors.0,
        d.sectors.1,
        d.merges.0,
        d.merges.1,
        d.ticks_ms.0,
        d.ticks_ms.1,
        d.in_queue_ms,
        d.util_percent
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_fio_prints_them() {
        // Pairs from fio 3.33 output: bytes or counts and how they were printed.
        assert_eq!(num2str(8_388_608, 4, true, "B"), "8192KiB");
        assert_eq!(num2str(8_388_608, 4, false, "B"), "8389kB");
        assert_eq!(num2str(2_097_152_000, 4, true, "B"), "2000MiB");
        assert_eq!(num2str(512_000, 4, false, ""), "512k");
        assert_eq!(num2str(24_998, 4, false, ""), "25.0k");
        assert_eq!(num2str(5_727_512, 6, false, ""), "5727.5k");
        assert_eq!(num2str(136_452, 6, false, ""), "136452");
        assert_eq!(num2str(4096, 4, true, "B"), "4096B");
        assert_eq!(num2str(1 << 20, 4, true, "B"), "1024KiB");
        assert_eq!(num2str(0, 4, true, "B"), "0B");
    }

    #[test]
    fn buckets_have_fios_limits() {
        assert_eq!(bucket_of(1), 0);
        assert_eq!(bucket_of(999), 9);
        assert_eq!(bucket_of(1000), 10);
        assert_eq!(bucket_of(999_999), 19);
        assert_eq!(bucket_of(250_000_000), 27);
        assert_eq!(bucket_of(1_999_000_000), 30);
        assert_eq!(bucket_of(2_000_000_000), 31);
    }
}
