//! Wall-clock figures of the data path: buffered writes through system calls, journal, cache and writeback.
//! `cargo run --release --example bench_write`.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures wall time")]
#![allow(
    clippy::unwrap_used,
    reason = "a benchmark may stop at the first error"
)]

use fsglass::base::rng::SplitMix64;
use fsglass::base::{Lba, WriteSource};
use fsglass::block::{Bio, Device, DeviceConfig, Queue, Role};
use fsglass::fs::ext4::mkfs::{mkfs, MkfsOptions};
use fsglass::fs::ext4::{CostTable, Ext4, MountConfig, MountOptions};
use fsglass::fs::jbd2::JournalCosts;
use fsglass::mm::Vm;
use fsglass::sim::Sim;
use fsglass::vfs::{Fs, OpenFlags, Vfs};
use std::rc::Rc;
use std::time::Instant;

const PAGE: u64 = 4096;

/// CPU time of this thread where the system tells it, else wall time, in nanoseconds.
fn cpu_ns(start: Instant) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = text.split(' ').next().unwrap_or_default();
    first
        .parse()
        .unwrap_or_else(|_| start.elapsed().as_nanos() as u64)
}

fn resident_mib() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = text
        .split(' ')
        .nth(1)
        .and_then(|n| n.parse().ok())
        .unwrap_or(0);
    pages * 4 / 1024
}

/// What one run writes.
#[derive(Clone, Copy)]
struct Job {
    name: &'static str,
    device: &'static str,
    size: u64,
    mount: &'static str,
    file: u64,
    writes: u64,
    random: bool,
    /// Lay the file out first: 1 by fallocate, 2 by writing it.
    prepare: u8,
}

async fn machine(sim: &Sim, job: &Job) -> Rc<Vfs> {
    let config = DeviceConfig::parse(job.device, job.size).unwrap();
    let queue = Queue::new(sim, Device::new(config, sim.rng("device.latency")));
    let image = mkfs(&MkfsOptions::parse("-b 4096").unwrap(), job.size).unwrap();
    for (at, p) in image.blocks {
        let bio = Bio::write(Lba(at * 8), 4096, p, Role::Other);
        queue.run(bio).await.unwrap();
    }
    let fs = Ext4::mount(MountConfig {
        sim: sim.clone(),
        queue,
        vm: Vm::new(sim, 32 << 30),
        opts: MountOptions::parse(job.mount).unwrap(),
        wall_clock_base: 1_700_000_000_000_000_000,
        cost: CostTable::MODELLED,
        journal_costs: JournalCosts::LINUX,
        device: "vda".to_owned(),
        mount_point: "/".to_owned(),
        journal_queue: None,
    })
    .await
    .unwrap();
    Vfs::new(Fs::Ext4(fs))
}

async fn play(sim: Sim, job: Job) {
    let vfs = machine(&sim, &job).await;
    let flags = OpenFlags::RDWR.with(OpenFlags::CREAT);
    let fd = vfs.open(b"f", flags, 0o644).await.unwrap();
    let blocks = job.file / PAGE;
    match job.prepare {
        1 => vfs.fallocate(fd, 0, 0, job.file as i64).await.unwrap(),
        2 => {
            for b in 0..blocks / 256 {
                let src = WriteSource::Content { seed: 1 };
                let n = vfs.pwrite(fd, (b << 20) as i64, 1 << 20, src).await;
                n.unwrap();
            }
        }
        _ => {}
    }
    let mut rng = SplitMix64::new(7);
    let (mib, at) = (resident_mib(), sim.now());
    let start = Instant::now();
    let begin = cpu_ns(start);
    for i in 0..job.writes {
        let block = if job.random {
            rng.below(blocks)
        } else {
            i % blocks
        };
        let src = WriteSource::Content { seed: i & 0xff };
        let n = vfs.pwrite(fd, (block * PAGE) as i64, PAGE, src).await;
        n.unwrap();
    }
    let cpu = cpu_ns(start) - begin;
    let used = resident_mib().saturating_sub(mib);
    let ns = cpu as f64 / job.writes as f64;
    println!(
        "{:<44} {ns:>8.1} ns each, {:>10.0}/s; virtual {:>7.3} s; +{used} MiB",
        job.name,
        1e9 / ns,
        (sim.now() - at).as_secs_f64()
    );
    vfs.fsync(fd).await.unwrap();
    println!(
        "{:<44} {:>8.1} ns each with the final fsync",
        "",
        (cpu_ns(start) - begin) as f64 / job.writes as f64
    );
}

fn main() {
    let base = Job {
        name: "append 4 KiB, delayed allocation",
        device: "optane",
        size: 16 << 30,
        mount: "",
        file: 4 << 30,
        writes: 1 << 20,
        random: false,
        prepare: 0,
    };
    let over = Job {
        name: "overwrite 4 KiB in order",
        file: 1 << 30,
        prepare: 2,
        ..base
    };
    let random = Job {
        name: "overwrite 4 KiB at random",
        random: true,
        ..over
    };
    let s3 = Job {
        name: "S3: 100 GiB, ordered, buffered",
        size: 110 << 30,
        file: 100 << 30,
        writes: 750_000,
        random: true,
        prepare: 1,
        ..base
    };
    let s3j = Job {
        name: "S3: 100 GiB, data=journal",
        mount: "data=journal",
        ..s3
    };
    let only = std::env::args().nth(1);
    for job in [base, over, random, s3, s3j] {
        if only
            .as_ref()
            .is_some_and(|o| !job.name.contains(o.as_str()))
        {
            continue;
        }
        let sim = Sim::new(1, 2);
        let s = sim.clone();
        if let Err(e) = sim.block_on("bench", async move { play(s, job).await }) {
            println!("{}: {e}", job.name);
        }
        sim.shutdown();
    }
}
