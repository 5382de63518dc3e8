//! Runs whose every line of output must be the same natively and in wasm. `tests/wasm/*.mjs` compares them.

use fsglass::base::rng::SplitMix64;
use fsglass::base::sha256::Sha256;
use fsglass::base::{payload, Nanos};
use fsglass::config::parse_experiment;
use fsglass::session::Session;
use fsglass::sim::{Sim, TaskClass, WaitReason};
use fsglass::workload::fio::Clat;
use std::fmt::Write as _;
use wasm_bindgen::prelude::wasm_bindgen;

/// The experiments: every data mode and several devices, with crossing tasks, syncs and names.
const EXPERIMENTS: [(&str, &str); 6] = [
    (
        "script-ordered",
        include_str!("../experiments/script-ordered.toml"),
    ),
    (
        "script-journal",
        include_str!("../experiments/script-journal.toml"),
    ),
    (
        "script-nojournal",
        include_str!("../experiments/script-nojournal.toml"),
    ),
    ("fio-fsync", include_str!("../experiments/fio-fsync.toml")),
    ("fio-jobs", include_str!("../experiments/fio-jobs.toml")),
    ("lazyinit", include_str!("../experiments/lazyinit.toml")),
];

/// Events between looks at the end.
const SLICE: u64 = 1 << 16;
/// No experiment of this list lasts longer.
const END: Nanos = Nanos(600_000_000_000);

/// All runs, one `name digest` per line.
#[wasm_bindgen]
pub fn digests() -> String {
    let mut out = [
        ("content", content()),
        ("tasks", tasks()),
        ("percentiles", percentiles()),
    ]
    .map(|(name, digest)| format!("{name} {digest}\n"))
    .concat();
    for (name, text) in EXPERIMENTS {
        // Writing into a string cannot fail.
        let _ = writeln!(out, "{name} {}", through(text, SLICE));
    }
    out
}

/// The same experiments in steps of three events; the digests must not differ.
#[wasm_bindgen]
pub fn stepped() -> String {
    let mut out = String::new();
    for (name, text) in EXPERIMENTS {
        let _ = writeln!(out, "{name} {}", through(text, 3));
    }
    out
}

/// Runs an experiment to its end and unmounts: digest, virtual time, bytes written.
fn through(text: &str, slice: u64) -> String {
    match run(text, slice) {
        Ok(line) => line,
        Err(problem) => format!("problem: {problem}"),
    }
}

fn run(text: &str, slice: u64) -> Result<String, String> {
    let join = |list: Vec<_>| {
        list.iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("; ")
    };
    let experiment = parse_experiment(text).map_err(join)?;
    let (mut session, _) = Session::load(&experiment).map_err(join)?;
    // To the same instant whatever the slice: a run that only looked for `done` would unmount at the slice's end.
    while session.run(END.0, slice).running {}
    if let Some(failure) = session.failure() {
        return Err(failure);
    }
    session.unmount()?;
    let progress = session.run(END.0, 0);
    Ok(format!("{} {}", session.digest(), progress.reachable_ns))
}

/// Runs one experiment; returns `events virtual-nanoseconds digest`. The caller measures the time.
#[wasm_bindgen]
pub fn run_text(text: &str) -> String {
    through(text, 1 << 20)
}

/// Bytes of memory that the module has taken; 0 natively.
#[wasm_bindgen]
pub fn memory_bytes() -> f64 {
    #[cfg(target_arch = "wasm32")]
    return (core::arch::wasm32::memory_size(0) * 65_536) as f64;
    #[cfg(not(target_arch = "wasm32"))]
    0.0
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
