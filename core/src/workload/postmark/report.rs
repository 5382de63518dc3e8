//! PostMark's report, with its rounding: whole seconds, at least one for each phase.

use super::config::{Bias, Settings};
use super::run::PostmarkResult;
use crate::base::Nanos;
use serde_json::{json, Value};
use std::fmt::Write as _;

/// Seconds as the tool counts them: whole ones, and never none.
fn seconds(t: Nanos) -> u64 {
    (t.0 / 1_000_000_000).max(1)
}

/// A number of bytes in the tool's words.
fn scaled(bytes: f64) -> String {
    let units = [
        (1024.0 * 1024.0 * 1024.0, "gigabytes"),
        (1024.0 * 1024.0, "megabytes"),
        (1024.0, "kilobytes"),
    ];
    match units.iter().find(|(n, _)| bytes >= *n) {
        Some((n, word)) => format!("{:.2} {word}", bytes / n),
        None => format!("{bytes:.2} bytes"),
    }
}

/// The report of one run.
pub fn text(r: &PostmarkResult) -> String {
    let mut out = if r.settings.terse {
        terse(r)
    } else {
        verbose(r)
    };
    let secs = |t: Nanos| t.as_secs_f64();
    let _ = writeln!(
        out,
        "Exact: {:.6} s = creation {:.6}, transactions {:.6}, deletion {:.6}",
        secs(r.total()),
        secs(r.phases[0]),
        secs(r.phases[1]),
        secs(r.phases[2])
    );
    if let Some((e, what)) = &r.error {
        let _ = writeln!(out, "Error: {what}: {e}");
    }
    out
}

fn verbose(r: &PostmarkResult) -> String {
    let (total, mixed) = (seconds(r.total()), seconds(r.phases[1]));
    let (first, last) = (seconds(r.phases[0]), seconds(r.phases[2]));
    let mut out = String::new();
    let _ = writeln!(out, "Time:\n\t{total} seconds total");
    let per = r.transactions / mixed;
    let _ = writeln!(out, "\t{mixed} seconds of transactions ({per} per second)");
    let _ = writeln!(out, "\nFiles:");
    let mut lines = |word: &str, alone_word: &str, n: [u64; 2], alone: u64| {
        let all = n[0] + n[1];
        let _ = writeln!(out, "\t{all} {word} ({} per second)", all / total);
        let rate = n[0] / alone;
        let _ = writeln!(
            out,
            "\t\t{alone_word} alone: {} files ({rate} per second)",
            n[0]
        );
        let rate = n[1] / mixed;
        let with = "Mixed with transactions";
        let _ = writeln!(out, "\t\t{with}: {} files ({rate} per second)", n[1]);
        if word == "created" {
            for (n, word) in [(r.read, "read"), (r.appended, "appended")] {
                let _ = writeln!(out, "\t{n} {word} ({} per second)", n / mixed);
            }
        }
    };
    lines("created", "Creation", r.created, first);
    lines("deleted", "Deletion", r.deleted, last);
    let _ = writeln!(out, "\nData:");
    for (bytes, word) in [(r.bytes_read, "read"), (r.bytes_written, "written")] {
        let (all, rate) = (scaled(bytes as f64), scaled(bytes as f64 / total as f64));
        let _ = writeln!(out, "\t{all} {word} ({rate} per second)");
    }
    out
}

/// One line: total and transaction seconds, then the rates in the order of the long report.
fn terse(r: &PostmarkResult) -> String {
    let (total, mixed) = (seconds(r.total()), seconds(r.phases[1]));
    let (first, last) = (seconds(r.phases[0]), seconds(r.phases[2]));
    let rates = [
        (r.transactions, mixed),
        (r.created[0] + r.created[1], total),
        (r.created[0], first),
        (r.created[1], mixed),
        (r.read, mixed),
        (r.appended, mixed),
        (r.deleted[0] + r.deleted[1], total),
        (r.deleted[0], last),
        (r.deleted[1], mixed),
        (r.bytes_read, total),
        (r.bytes_written, total),
    ];
    let rates = rates.map(|(n, secs)| format!("{:.2}", n as f64 / secs as f64));
    format!("{total} {mixed} {}\n", rates.join(" "))
}

/// All runs, with exact times.
pub fn json(runs: &[PostmarkResult]) -> Value {
    json!({ "runs": runs.iter().map(one).collect::<Vec<_>>() })
}

fn one(r: &PostmarkResult) -> Value {
    let per = |n: u64, t: Nanos| match t.0 {
        0 => 0.0,
        ns => n as f64 * 1e9 / ns as f64,
    };
    json!({
        "settings": settings(&r.settings),
        "total_ns": r.total().0,
        "creation_ns": r.phases[0].0,
        "transactions_ns": r.phases[1].0,
        "deletion_ns": r.phases[2].0,
        "transactions": r.transactions,
        "transactions_per_second": per(r.transactions, r.phases[1]),
        "created": { "alone": r.created[0], "mixed": r.created[1] },
        "deleted": { "alone": r.deleted[0], "mixed": r.deleted[1] },
        "read": r.read,
        "appended": r.appended,
        "bytes_read": r.bytes_read,
        "bytes_written": r.bytes_written,
        "read_bytes_per_second": per(r.bytes_read, r.total()),
        "write_bytes_per_second": per(r.bytes_written, r.total()),
        "error": r.error.as_ref().map(|(e, what)| format!("{what}: {e}")),
    })
}

fn settings(s: &Settings) -> Value {
    let bias = |b: Bias| match b {
        Bias::Off => -1,
        Bias::Tenths(n) => i32::from(n),
    };
    json!({
        "number": s.number, "transactions": s.transactions, "size": [s.size_low, s.size_high],
        "subdirectories": s.subdirectories, "read": s.read_block, "write": s.write_block,
        "bias_read": bias(s.bias_read), "bias_create": bias(s.bias_create),
        "buffering": s.buffering, "seed": s.seed, "location": s.location,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result() -> PostmarkResult {
        PostmarkResult {
            settings: Settings::default(),
            phases: [
                Nanos::from_ms(400),
                Nanos::from_ms(2500),
                Nanos::from_ms(200),
            ],
            created: [10, 10],
            deleted: [10, 10],
            read: 9,
            appended: 11,
            transactions: 20,
            bytes_read: 75_566,
            bytes_written: 116_295,
            error: None,
        }
    }

    #[test]
    fn the_long_report_has_the_rows_and_the_rounding_of_the_tool() {
        let t = text(&result());
        for line in [
            "\t3 seconds total",
            "\t2 seconds of transactions (10 per second)",
            "\t20 created (6 per second)",
            "\t\tCreation alone: 10 files (10 per second)",
            "\t\tMixed with transactions: 10 files (5 per second)",
            "\t9 read (4 per second)",
            "\t11 appended (5 per second)",
            "\t\tDeletion alone: 10 files (10 per second)",
            "\t73.79 kilobytes read (24.60 kilobytes per second)",
            "\t113.57 kilobytes written (37.86 kilobytes per second)",
        ] {
            assert!(t.lines().any(|l| l == line), "{line:?} in\n{t}");
        }
    }

    #[test]
    fn the_short_report_is_one_line_of_rates() {
        let mut r = result();
        r.settings.terse = true;
        r.phases = [Nanos::from_ms(1); 3];
        let t = text(&r);
        let first = t.lines().next();
        let want = "1 1 20.00 20.00 10.00 10.00 9.00 11.00 20.00 10.00 10.00 75566.00 116295.00";
        assert_eq!(first, Some(want));
    }
}
