//! Without arguments: prints what the wasm module has to print too. `stepped`: the same in small steps.
//! `time FILE`: runs one experiment; milliseconds, peak memory in MiB and its result line.

#![allow(
    clippy::disallowed_methods,
    reason = "measures real time from outside of the simulated machine"
)]

use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => print!("{}", fsglass_wasm_tests::digests()),
        ["stepped"] => print!("{}", fsglass_wasm_tests::stepped()),
        ["time", path] => return time(path),
        _ => {
            eprintln!("usage: fsglass-digests [stepped | time FILE]");
            return ExitCode::from(2);
        }
    }
    ExitCode::SUCCESS
}

fn time(path: &str) -> ExitCode {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("{path}: {error}");
            return ExitCode::from(2);
        }
    };
    let start = Instant::now();
    let line = fsglass_wasm_tests::run_text(&text);
    println!("{} {} {line}", start.elapsed().as_millis(), peak_mib());
    ExitCode::SUCCESS
}

/// Linux only; 0 elsewhere.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kib.unwrap_or(0) / 1024
}
