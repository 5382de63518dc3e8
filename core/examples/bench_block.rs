//! Wall-clock figures of the lower layers. `cargo run --release --example bench_block`.
#![allow(clippy::disallowed_methods, reason = "a benchmark measures wall time")]

use fsglass::base::Nanos;
use fsglass::sim::{Sim, TaskClass, WaitReason};
use std::time::Instant;

fn report(what: &str, n: u64, start: Instant) {
    let ns = start.elapsed().as_nanos() as f64 / n as f64;
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
    let start = Instant::now();
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
    let start = Instant::now();
    sim.run_until(Nanos::MAX);
    report("sleep, 16 tasks on 4 CPUs", N, start);
}

fn main() {
    charges();
    suspensions();
}
