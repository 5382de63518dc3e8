//! Runs whose every line of output must be the same natively and in wasm. `tests/wasm/*.mjs` compares them.

use fsglass::base::rng::SplitMix64;
use fsglass::base::sha256::Sha256;
use fsglass::base::{payload, Nanos};
use fsglass::sim::{Sim, TaskClass, WaitReason};
use fsglass::workload::fio::Clat;
use wasm_bindgen::prelude::wasm_bindgen;

/// All runs, one `name digest` per line.
#[wasm_bindgen]
pub fn digests() -> String {
    [
        ("content", content()),
        ("tasks", tasks()),
        ("percentiles", percentiles()),
    ]
    .map(|(name, digest)| format!("{name} {digest}\n"))
    .concat()
}

/// Content and random streams.
fn content() -> String {
    let mut hash = Sha256::new();
    let mut bytes = vec![0; 8192];
    for seed in 0..50 {
        payload::content(seed, seed * 12_345, &mut bytes);
        hash.update(&bytes);
        for index in SplitMix64::shuffled(1000, seed) {
            hash.update(&index.to_le_bytes());
        }
    }
    hash.finish_hex()
}

/// Tasks that race for two CPUs: the digest covers the order and time of every event.
fn tasks() -> String {
    let sim = Sim::new(7, 2);
    sim.trace().set_hashed(u32::MAX);
    for index in 0..16 {
        let s = sim.clone();
        sim.spawn("racer", TaskClass::User, async move {
            let mut stream = s.rng(&format!("racer.{index}"));
            for _ in 0..200 {
                s.charge(Nanos(stream.below(5_000))).await;
                s.sleep(Nanos(stream.below(3_000)), WaitReason::Timer).await;
            }
        });
    }
    sim.run_until(Nanos::from_secs(10));
    format!("{:016x} {}", sim.trace().digest(), sim.now().0)
}

/// fio's bins and percentiles: the only floating-point numbers of a report.
fn percentiles() -> String {
    let mut latencies = Clat::default();
    let mut stream = SplitMix64::named(3, "latency");
    for _ in 0..100_000 {
        let exponent = stream.below(30);
        latencies.add(stream.below(1 << exponent));
    }
    format!("{latencies:?}")
        .bytes()
        .fold(0u64, |sum, byte| {
            sum.wrapping_mul(0x0100_0000_01b3) ^ u64::from(byte)
        })
        .to_string()
}
