//! Throughput and latency over a window, in columns.

use crate::base::Nanos;
use crate::workload::app_log::{AppLog, AppOp, AppRecord};
use crate::workload::fio::LatencyHistogram;
use crate::workload::ops::Op;

/// Rows of the heat map for each decade.
pub const ROWS_PER_DECADE: usize = 10;
/// Rows of the heat map: seven decades from 1 us to 10 s.
pub const ROWS: usize = 70;

/// A window of time cut in columns.
#[derive(Clone, Copy, Debug)]
pub struct Columns {
    /// First instant.
    pub from: Nanos,
    /// End, not included.
    pub to: Nanos,
    /// How many.
    pub columns: usize,
}

impl Columns {
    /// Width of one column, at least a nanosecond.
    pub fn width(&self) -> u64 {
        self.to
            .saturating_sub(self.from)
            .0
            .div_ceil(self.columns.max(1) as u64)
            .max(1)
    }

    /// Column of an instant, if it is inside.
    pub fn of(&self, t: Nanos) -> Option<usize> {
        if t < self.from || t >= self.to {
            return None;
        }
        let c = (t.0 - self.from.0) / self.width();
        Some((c as usize).min(self.columns.saturating_sub(1)))
    }
}

/// What applications got done in each column.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AppMetrics {
    /// Bytes read and written.
    pub bytes: Vec<u64>,
    /// Calls that ended.
    pub ops: Vec<u64>,
    /// `columns * ROWS` counts, column by column, fastest row first.
    pub heat: Vec<u32>,
    /// Indices of the slowest calls, slowest first.
    pub slowest: Vec<usize>,
}

/// Row of a latency: one tenth of a decade from 1 us on.
pub fn row(latency: Nanos) -> usize {
    // Upper limits of the tenths of a decade, times 100.
    const TENTHS: [u64; 10] = [126, 158, 200, 251, 316, 398, 501, 631, 794, 1000];
    let mut decade = 0;
    let mut unit = 1_000u64;
    while latency.0 >= unit * 10 && decade < ROWS / ROWS_PER_DECADE - 1 {
        unit *= 10;
        decade += 1;
    }
    let scaled = latency.0.saturating_mul(100) / unit;
    let tenth = TENTHS.iter().position(|l| scaled < *l).unwrap_or(9);
    let tenth = if latency.0 < 1_000 { 0 } else { tenth };
    decade * ROWS_PER_DECADE + tenth
}

/// True for calls that a latency picture should show (not open, close and the like).
fn counts(r: &AppRecord) -> bool {
    let is_call = match &r.op {
        AppOp::Close { .. } => false,
        // A pause of the script is no call to the file system.
        AppOp::Other(op) => !matches!(**op, Op::Sleep { .. }),
        _ => true,
    };
    is_call && r.end != Nanos::MAX
}

/// Slowest calls listed.
const SLOWEST_MAX: usize = 20;

/// Folds the calls that ended inside the window.
pub fn app_metrics(log: &AppLog, c: Columns) -> (AppMetrics, LatencyHistogram) {
    let mut m = AppMetrics {
        bytes: vec![0; c.columns],
        ops: vec![0; c.columns],
        heat: vec![0; c.columns * ROWS],
        slowest: Vec::new(),
    };
    let mut histogram = LatencyHistogram::default();
    let mut slow: Vec<(Nanos, usize)> = Vec::new();
    for (i, r) in log.records().iter().enumerate() {
        if r.start >= c.to {
            break;
        }
        let Some(col) = counts(r).then(|| c.of(r.end)).flatten() else {
            continue;
        };
        let latency = r.end.saturating_sub(r.start);
        m.bytes[col] += u64::from(r.bytes);
        m.ops[col] += 1;
        m.heat[col * ROWS + row(latency)] += 1;
        histogram.add(latency.0);
        let floor = slow.last().map_or(Nanos::ZERO, |s| s.0);
        if slow.len() < SLOWEST_MAX || latency > floor {
            let at = slow.partition_point(|s| s.0 >= latency);
            slow.insert(at, (latency, i));
            slow.truncate(SLOWEST_MAX);
        }
    }
    m.slowest = slow.into_iter().map(|s| s.1).collect();
    (m, histogram)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_tenths_of_decades() {
        assert_eq!(row(Nanos(10)), 0);
        assert_eq!(row(Nanos(1_000)), 0);
        assert_eq!(row(Nanos(9_999)), 9);
        assert_eq!(row(Nanos(10_000)), 10);
        assert_eq!(row(Nanos::from_ms(284)), 54);
        assert_eq!(row(Nanos::from_secs(9)), 69);
        assert_eq!(row(Nanos::from_secs(900)), 69);
    }

    #[test]
    fn one_slow_call_among_many_is_seen() {
        let mut log = AppLog::new(100_000);
        for i in 0..10_000u64 {
            let start = Nanos::from_us(i * 10);
            let t = log.begin(
                start,
                AppOp::Write {
                    fd: 0,
                    offset: 0,
                    len: 4096,
                    seed: 1,
                },
            );
            let took = if i == 5_000 {
                Nanos::from_ms(50)
            } else {
                Nanos::from_us(8)
            };
            log.end(t, start + took, None, 4096);
        }
        let c = Columns {
            from: Nanos::ZERO,
            to: Nanos::from_ms(200),
            columns: 20,
        };
        let (m, h) = app_metrics(&log, c);
        assert_eq!(m.ops.iter().sum::<u64>(), 10_000);
        assert_eq!(m.slowest[0], 5_000);
        assert_eq!(
            m.heat
                .chunks(ROWS)
                .map(|col| col[row(Nanos::from_ms(50))])
                .sum::<u32>(),
            1
        );
        assert_eq!(h.samples(), 10_000);
    }
}
