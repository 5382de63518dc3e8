//! What a fio run measured.

use super::options::FioJob;
use super::stat::{Clat, RateSamples};
use crate::base::Nanos;

/// Counters of one direction (read or write).
#[derive(Clone, Debug, Default)]
pub struct Direction {
    /// Completed I/Os in the measured time.
    pub total_ios: u64,
    /// Bytes moved by them.
    pub io_bytes: u64,
    /// Measured time of this direction.
    pub runtime: Nanos,
    /// Submission latency (asynchronous engines only).
    pub slat: Clat,
    /// Completion latency.
    pub clat: Clat,
    /// Their sum.
    pub lat: Clat,
    /// Half-second samples.
    pub rate: RateSamples,
}

impl Direction {
    /// Bytes per second.
    pub fn bw_bytes(&self) -> u64 {
        per_second(self.io_bytes, self.runtime) as u64
    }

    /// I/Os per second.
    pub fn iops(&self) -> f64 {
        per_second(self.total_ios, self.runtime)
    }

    /// Adds a job of the same group.
    pub fn merge(&mut self, other: &Direction) {
        self.total_ios += other.total_ios;
        self.io_bytes += other.io_bytes;
        self.runtime = self.runtime.max(other.runtime);
        self.slat.merge(&other.slat);
        self.clat.merge(&other.clat);
        self.lat.merge(&other.lat);
        self.rate.bw_kib.merge(&other.rate.bw_kib);
        self.rate.iops.merge(&other.rate.iops);
    }
}

fn per_second(n: u64, time: Nanos) -> f64 {
    // fio measures run time in whole milliseconds.
    let ms = time.0 / 1_000_000;
    if ms == 0 {
        return 0.0;
    }
    n as f64 * 1000.0 / ms as f64
}

/// Occupancy of the queue in fio's classes 1, 2, 4, 8, 16, 32, >=64.
pub type DepthMap = [u64; 7];

/// Result of one job (or of a group with `group_reporting`).
#[derive(Clone, Debug)]
pub struct JobResult {
    /// The options.
    pub job: FioJob,
    /// Name with the clone number left out.
    pub name: String,
    /// Group number (stonewall starts a new one).
    pub groupid: u32,
    /// Number of clones in this result.
    pub jobs: u32,
    /// First errno, if the job failed, with the operation that failed.
    pub error: Option<(crate::base::Errno, &'static str)>,
    /// Reads.
    pub read: Direction,
    /// Writes.
    pub write: Direction,
    /// Latency of fsync and fdatasync.
    pub sync: Clat,
    /// Start to end.
    pub job_runtime: Nanos,
    /// CPU time charged to fio itself.
    pub usr: Nanos,
    /// CPU time charged to the kernel for this job.
    pub sys: Nanos,
    /// Context switches of the job's task.
    pub ctx: u64,
    /// Queue occupancy at submission.
    pub depth: DepthMap,
}

impl JobResult {
    /// An empty result for `job`.
    pub fn new(job: FioJob, groupid: u32) -> JobResult {
        JobResult {
            name: job.name.clone(),
            job,
            groupid,
            jobs: 1,
            error: None,
            read: Direction::default(),
            write: Direction::default(),
            sync: Clat::default(),
            job_runtime: Nanos::ZERO,
            usr: Nanos::ZERO,
            sys: Nanos::ZERO,
            ctx: 0,
            depth: [0; 7],
        }
    }

    /// Counts the queue occupancy `depth` (fio `io_u_mark_depth`).
    pub fn mark_depth(&mut self, depth: u32) {
        let class = match depth {
            0 | 1 => 0,
            2..=3 => 1,
            4..=7 => 2,
            8..=15 => 3,
            16..=31 => 4,
            32..=63 => 5,
            _ => 6,
        };
        self.depth[class] += 1;
    }

    /// Adds a clone of the same group.
    pub fn merge(&mut self, other: &JobResult) {
        self.jobs += other.jobs;
        self.error = self.error.or(other.error);
        self.read.merge(&other.read);
        self.write.merge(&other.write);
        self.sync.merge(&other.sync);
        self.job_runtime = self.job_runtime.max(other.job_runtime);
        self.usr += other.usr;
        self.sys += other.sys;
        self.ctx += other.ctx;
        for (a, b) in self.depth.iter_mut().zip(other.depth) {
            *a += b;
        }
    }
}

/// Counters of the device in the words of `/proc/diskstats`, for the report's last lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DiskStats {
    /// Device name.
    pub name: String,
    /// Completed requests, after merging (read, write).
    pub ios: (u64, u64),
    /// Bios merged into others (read, write).
    pub merges: (u64, u64),
    /// Sectors of 512 bytes moved (read, write).
    pub sectors: (u64, u64),
    /// Sum of request times in ms (read, write).
    pub ticks_ms: (u64, u64),
    /// Weighted time in queue in ms.
    pub in_queue_ms: u64,
    /// Share of the time with at least one request in flight, in percent.
    pub util_percent: f64,
}

/// Result of a whole job file.
#[derive(Clone, Debug, Default)]
pub struct FioResult {
    /// One result for each job or group.
    pub jobs: Vec<JobResult>,
    /// The device.
    pub disk: DiskStats,
    /// Options of `[global]`.
    pub global: Vec<(String, String)>,
}
