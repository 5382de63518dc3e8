//! The result with fio's own JSON keys (fio 3.33), so that fio's readers accept it.

use super::outcome::{Direction, DiskStats, FioResult, JobResult};
use super::report::{depth_shares, latency_buckets};
use super::stat::{Clat, Summary};
use serde_json::{json, Map, Value};

/// The `fio` object of a result. `version` names the program; `time_ms` is the virtual end of the run since 1970.
pub fn json(result: &FioResult, version: &str, time_ms: u64) -> Value {
    let options = |list: &[(String, String)]| {
        Value::Object(
            list.iter()
                .map(|(k, v)| (k.clone(), json!(v)))
                .collect::<Map<_, _>>(),
        )
    };
    json!({
        "fio version": version,
        "timestamp": time_ms / 1000,
        "timestamp_ms": time_ms,
        "time": calendar(time_ms / 1000),
        "global options": options(&result.global),
        "jobs": result.jobs.iter().map(|r| job(r, &options(&r.job.written))).collect::<Vec<_>>(),
        "disk_util": [disk(&result.disk)],
    })
}

/// `Thu Jan  1 00:00:30 1970`, from seconds since 1970 (UTC), as `ctime` prints it.
pub fn calendar(secs: u64) -> String {
    let days = secs / 86_400;
    let (h, m, s) = (secs / 3600 % 24, secs / 60 % 60, secs % 60);
    // Civil date from days, after the proleptic Gregorian calendar in 400-year eras from March.
    let z = days + 719_468;
    let (era, doe) = (z / 146_097, z % 146_097);
    let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
    let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
    let mp = (5 * doy + 2) / 153;
    let day = doy - (153 * mp + 2) / 5 + 1;
    let month = if mp < 10 { mp + 3 } else { mp - 9 };
    let year = yoe + era * 400 + u64::from(month <= 2);
    let months = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let week = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    format!(
        "{} {} {day:2} {h:02}:{m:02}:{s:02} {year}",
        week[(days % 7) as usize],
        months[month as usize - 1]
    )
}

fn job(r: &JobResult, options: &Value) -> Value {
    let wall = r.job_runtime.0.max(1) as f64 * f64::from(r.jobs.max(1));
    let share = |t: u64| t as f64 * 100.0 / wall;
    let fixed = |zero: &str| {
        let keys = [zero, "4", "8", "16", "32", "64", ">=64"];
        Value::Object(
            keys.iter()
                .map(|k| ((*k).to_string(), json!(if *k == "4" { 100.0 } else { 0.0 })))
                .collect::<Map<_, _>>(),
        )
    };
    let depth_keys = ["1", "2", "4", "8", "16", "32", ">=64"];
    let depth: Map<String, Value> = depth_keys
        .iter()
        .zip(depth_shares(r))
        .map(|(k, v)| ((*k).to_string(), json!(v)))
        .collect();
    let mut o = json!({
        "jobname": r.name,
        "groupid": r.groupid,
        "error": r.error.map_or(0, |e| e.0.number()),
        "eta": 0,
        "elapsed": r.job_runtime.0.div_ceil(1_000_000_000),
        "job options": options,
        "read": direction(&r.read, r),
        "write": direction(&r.write, r),
        "trim": direction(&Direction::default(), r),
        "sync": sync(r),
        "job_runtime": r.job_runtime.0 / 1_000_000,
        "usr_cpu": share(r.usr.0),
        "sys_cpu": share(r.sys.0),
        "ctx": r.ctx,
        "majf": 0,
        "minf": 0,
        "iodepth_level": depth,
        "iodepth_submit": fixed("0"),
        "iodepth_complete": fixed("0"),
        "latency_depth": r.job.iodepth,
        "latency_target": 0,
        "latency_percentile": 100.0,
        "latency_window": 0,
    });
    for (unit, key) in [
        ("nsec", "latency_ns"),
        ("usec", "latency_us"),
        ("msec", "latency_ms"),
    ] {
        let rows: Map<String, Value> = latency_buckets(r)
            .into_iter()
            .filter(|b| b.0 == unit)
            .map(|(_, limit, share)| {
                let name = if limit == u64::MAX {
                    ">=2000".into()
                } else {
                    limit.to_string()
                };
                (name, json!(share))
            })
            .collect();
        o[key] = Value::Object(rows);
    }
    o
}

fn direction(d: &Direction, r: &JobResult) -> Value {
    let (bw, iops) = (&d.rate.bw_kib, &d.rate.iops);
    let agg = (d.bw_bytes() as f64 / 1024.0).max(1.0);
    json!({
        "io_bytes": d.io_bytes,
        "io_kbytes": d.io_bytes / 1024,
        "bw_bytes": d.bw_bytes(),
        "bw": d.bw_bytes() / 1024,
        "iops": d.iops(),
        "runtime": d.runtime.0 / 1_000_000,
        "total_ios": d.total_ios,
        "short_ios": 0,
        "drop_ios": 0,
        "slat_ns": latency(&d.slat, None),
        "clat_ns": latency(&d.clat, Some(&r.job.percentile_list)),
        "lat_ns": latency(&d.lat, None),
        "bw_min": bw.min,
        "bw_max": bw.max,
        "bw_agg": if bw.samples > 0 { (bw.mean() * 100.0 / agg).min(100.0) } else { 0.0 },
        "bw_mean": bw.mean(),
        "bw_dev": bw.stddev(),
        "bw_samples": bw.samples,
        "iops_min": iops.min,
        "iops_max": iops.max,
        "iops_mean": iops.mean(),
        "iops_stddev": iops.stddev(),
        "iops_samples": iops.samples,
    })
}

fn sync(r: &JobResult) -> Value {
    let n = r.sync.summary.samples;
    json!({ "total_ios": n, "lat_ns": latency(&r.sync, Some(&r.job.percentile_list)) })
}

fn latency(c: &Clat, percentiles: Option<&[f64]>) -> Value {
    let s: &Summary = &c.summary;
    let mut o = json!({
        "min": s.min, "max": s.max, "mean": s.mean(), "stddev": s.stddev(), "N": s.samples,
    });
    if let (Some(list), true) = (percentiles, s.samples > 0) {
        let mut list = list.to_vec();
        list.sort_by(f64::total_cmp);
        let values = c.histogram.percentiles(&list);
        let map: Map<String, Value> = list
            .iter()
            .zip(values)
            .map(|(p, v)| (format!("{p:.6}"), json!(v)))
            .collect();
        o["percentile"] = Value::Object(map);
    }
    o
}

fn disk(d: &DiskStats) -> Value {
    json!({
        "name": d.name,
        "read_ios": d.ios.0,
        "write_ios": d.ios.1,
        "read_sectors": d.sectors.0,
        "write_sectors": d.sectors.1,
        "read_merges": d.merges.0,
        "write_merges": d.merges.1,
        "read_ticks": d.ticks_ms.0,
        "write_ticks": d.ticks_ms.1,
        "in_queue": d.in_queue_ms,
        "util": d.util_percent,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_civil() {
        assert_eq!(calendar(0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(calendar(1_796_077_127), "Mon Nov 30 22:18:47 2026");
        assert_eq!(calendar(951_782_400), "Tue Feb 29 00:00:00 2000");
    }
}
