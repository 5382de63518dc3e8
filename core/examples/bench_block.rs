//! Figures of the lower layers: `cargo run --release --example bench_block [sim|store|lone|DEVICE] [WRITES]`.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures wall time")]
#![allow(
    clippy::unwrap_used,
    reason = "a benchmark may stop at the first error"
)]

use fsglass::base::rng::SplitMix64;
use fsglass::base::{Lba, Nanos, Payload};
use fsglass::block::{
    Batch, Bio, BioFlags, CrashPoint, Device, DeviceConfig, Fill, Queue, Role, Store,
};
use fsglass::sim::{Sim, TaskClass, WaitReason};
use std::time::Instant;

/// CPU time of this thread where the system tells it (other work on the machine does not count), else wall time.
#[derive(Clone, Copy)]
struct Start(Instant, Option<u64>);

fn cpu_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split(' ').next()?.parse().ok()
}

impl Start {
    fn now() -> Start {
        Start(Instant::now(), cpu_ns())
    }
}

fn report(what: &str, n: u64, start: Start) {
    let wall = start.0.elapsed().as_nanos() as u64;
    let cpu = cpu_ns().zip(start.1).map(|(now, then)| now - then);
    let ns = cpu.unwrap_or(wall) as f64 / n as f64;
    println!("{what:<44} {ns:>9.1} ns each, {:>12.0}/s", 1e9 / ns);
}

fn charges() {
    const N: u64 = 50_000_000;
    let sim = Sim::new(1, 2);
    let s = sim.clone();
    sim.spawn("t", TaskClass::User, async move {
        for _ in 0..N {
            s.charge(Nanos(7)).await;
        }
    });
    let start = Start::now();
    sim.run_until(Nanos::MAX);
    report("charge, lone task", N, start);
}

fn suspensions() {
    const N: u64 = 2_000_000;
    let sim = Sim::new(1, 4);
    for _ in 0..16 {
        let s = sim.clone();
        sim.spawn("t", TaskClass::User, async move {
            for _ in 0..N / 16 {
                s.sleep(Nanos(7), WaitReason::Timer).await;
            }
        });
    }
    let start = Start::now();
    sim.run_until(Nanos::MAX);
    report("sleep, 16 tasks on 4 CPUs", N, start);
}

fn resident_mib() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm
        .split(' ')
        .nth(1)
        .and_then(|s| s.parse().ok())
        .unwrap_or(0);
    (pages * 4096) >> 20
}

fn store_writes() {
    const N: u64 = 1_000_000;
    let mut store = Store::new(200 << 21, Fill::Zero);
    let mut rng = SplitMix64::new(1);
    let start = Start::now();
    for i in 0..N {
        let page = rng.below(26_214_400) as u32;
        store.set_page(
            page,
            &Payload::Pattern {
                seed: 1,
                page: i as u32,
            },
        );
    }
    report("store: random page", N, start);
    println!(
        "    {} entries, {} MiB of tables",
        store.entries(),
        store.memory() >> 20
    );
}

/// The S3 shape: each block goes to the journal in order, then home in batches of 64.
fn journal_then_home(device: &str, writes: u64) {
    let before = resident_mib();
    let sim = Sim::new(1, 2);
    let config = DeviceConfig::parse(device, 149 << 30).unwrap();
    let queue = Queue::new(&sim, Device::new(config, sim.rng("device.latency")));
    let (q, s) = (queue.clone(), sim.clone());
    let start = Start::now();
    let end = sim.block_on("writer", async move {
        let batch = Batch::new(&s);
        let mut rng = SplitMix64::new(2);
        for round in 0..writes / 1000 {
            let mut homes = Vec::with_capacity(1000);
            let plug = q.plug();
            for i in 0..1000 {
                let n = round * 1000 + i;
                let page = rng.below(26_214_400);
                homes.push((page, n));
                let payload = Payload::Pattern {
                    seed: 1,
                    page: n as u32,
                };
                let lba = Lba((n % 262_144) * 8);
                let bio = Bio::write(lba, 4096, payload, Role::JournalFileData);
                let bio = bio.flags(BioFlags::META);
                q.enter(&bio).await;
                q.submit_batch(bio, &batch);
            }
            plug.finish();
            batch.wait(WaitReason::LogSpace).await.unwrap();
            q.flush().await.unwrap();
            for chunk in homes.chunks(64) {
                let plug = q.plug();
                for (page, n) in chunk {
                    let payload = Payload::Pattern {
                        seed: 1,
                        page: *n as u32,
                    };
                    let bio = Bio::write(Lba((262_144 + page) * 8), 4096, payload, Role::FileData);
                    q.enter(&bio).await;
                    q.submit_batch(bio, &batch);
                }
                plug.finish();
                batch.wait(WaitReason::LogSpace).await.unwrap();
            }
        }
        s.now()
    });
    report(
        &format!("write bio, journal then home ({device})"),
        2 * writes,
        start,
    );
    let d = queue.device();
    println!(
        "    {} s virtual; store {} MiB, log {} MiB ({} records from {}), process grew {} MiB",
        end.unwrap().as_secs_f64(),
        d.store().memory() >> 20,
        d.log().memory() >> 20,
        d.log().end(),
        d.log().first(),
        resident_mib() - before,
    );
    drop(d);
    look_back(&sim, &queue);
}

/// Crash images and cursors over the log.
fn look_back(sim: &Sim, queue: &Queue) {
    let start = Start::now();
    let point = CrashPoint::at_time(queue, sim.now(), sim.now()).unwrap();
    report("crash point at the end", 1, start);
    let start = Start::now();
    let (images, _) = point.states(64, 1);
    report("crash image", images.len().max(1) as u64, start);
    let d = queue.device();
    let mut cursor = d.cursor();
    let n = d.log().end() - d.log().first();
    let start = Start::now();
    cursor.seek(d.log(), d.log().first());
    report("cursor: record back", n, start);
    let start = Start::now();
    cursor.seek(d.log(), d.log().end());
    report("cursor: record forward", n, start);
}

fn lone_writes() {
    const N: u64 = 500_000;
    let sim = Sim::new(1, 2);
    let config = DeviceConfig::parse("optane", 149 << 30).unwrap();
    let queue = Queue::new(&sim, Device::new(config, sim.rng("device.latency")));
    let q = queue.clone();
    let start = Start::now();
    let done = sim.block_on("writer", async move {
        let mut rng = SplitMix64::new(2);
        for n in 0..N {
            let payload = Payload::Pattern {
                seed: 1,
                page: n as u32,
            };
            let page = rng.below(26_214_400);
            q.run(Bio::write(Lba(page * 8), 4096, payload, Role::FileData))
                .await
                .unwrap();
        }
    });
    done.unwrap();
    report("write and wait, one by one", N, start);
}

fn main() {
    let only = std::env::args().nth(1);
    let writes = std::env::args().nth(2).and_then(|n| n.parse().ok());
    let writes = writes.unwrap_or(750_000);
    let wanted = |name: &str| only.as_deref().is_none_or(|o| o == name);
    if wanted("sim") {
        charges();
        suspensions();
    }
    if wanted("store") {
        store_writes();
    }
    if wanted("lone") {
        lone_writes();
    }
    for device in ["optane", "sata-ssd", "hdd", "loop"] {
        if wanted(device) {
            journal_then_home(device, writes);
        }
    }
}
