//! Statistics with fio's own binning (fio 3.33 stat.h: 64 linear steps for each power of two, 29 groups).

use crate::base::Nanos;

const BITS: u32 = 6;
const STEPS: usize = 1 << BITS;
const GROUPS: usize = 29;

/// Latency histogram in fio's bins. Values in nanoseconds.
#[derive(Clone, Debug)]
pub struct LatencyHistogram {
    bins: Vec<u64>,
    samples: u64,
}

impl Default for LatencyHistogram {
    fn default() -> LatencyHistogram {
        LatencyHistogram {
            bins: vec![0; STEPS * GROUPS],
            samples: 0,
        }
    }
}

impl LatencyHistogram {
    /// Bin of a value (fio `plat_val_to_idx`).
    pub fn bin(ns: u64) -> usize {
        let msb = ns.max(1).ilog2();
        if msb <= BITS {
            return ns as usize;
        }
        let error_bits = msb - BITS;
        let base = (error_bits as usize + 1) << BITS;
        let offset = (STEPS - 1) & (ns >> error_bits) as usize;
        (base + offset).min(STEPS * GROUPS - 1)
    }

    /// Middle of a bin (fio `plat_idx_to_val`).
    pub fn bin_middle(bin: usize) -> u64 {
        if bin < STEPS << 1 {
            return bin as u64;
        }
        let error_bits = (bin >> BITS) as u32 - 1;
        let base = 1u64 << (error_bits + BITS);
        let k = (bin % STEPS) as u64;
        // fio: base + ((k + 0.5) * (1 << error_bits))
        base + (k << error_bits) + (1u64 << error_bits) / 2
    }

    /// Adds one sample.
    pub fn add(&mut self, ns: u64) {
        self.bins[LatencyHistogram::bin(ns)] += 1;
        self.samples += 1;
    }

    /// Adds all samples of another histogram.
    pub fn merge(&mut self, other: &LatencyHistogram) {
        for (a, b) in self.bins.iter_mut().zip(&other.bins) {
            *a += b;
        }
        self.samples += other.samples;
    }

    /// Number of samples.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Values at the percentiles, which must ascend (fio `calc_clat_percentiles`).
    pub fn percentiles(&self, list: &[f64]) -> Vec<u64> {
        let mut out = Vec::with_capacity(list.len());
        let mut sum = 0u64;
        let mut bin = 0;
        for &p in list {
            let target = p / 100.0 * self.samples as f64;
            while bin < self.bins.len() && (sum as f64) < target {
                sum += self.bins[bin];
                bin += 1;
            }
            out.push(LatencyHistogram::bin_middle(bin.saturating_sub(1)));
        }
        out
    }

    /// Non-empty bins as (middle in ns, samples).
    pub fn bins(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let filled = self.bins.iter().enumerate().filter(|(_, n)| **n > 0);
        filled.map(|(i, n)| (LatencyHistogram::bin_middle(i), *n))
    }
}

/// Minimum, maximum, mean and deviation of a series, by Welford's recurrence as in fio's `add_stat_sample`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Smallest sample.
    pub min: u64,
    /// Largest sample.
    pub max: u64,
    /// Number of samples.
    pub samples: u64,
    mean: f64,
    squares: f64,
}

impl Summary {
    /// Adds one sample.
    pub fn add(&mut self, v: u64) {
        if self.samples == 0 || v < self.min {
            self.min = v;
        }
        self.max = self.max.max(v);
        self.samples += 1;
        let delta = v as f64 - self.mean;
        self.mean += delta / self.samples as f64;
        self.squares += delta * (v as f64 - self.mean);
    }

    /// Mean; 0 without samples.
    pub fn mean(&self) -> f64 {
        self.mean
    }

    /// Sample standard deviation as fio prints it.
    pub fn stddev(&self) -> f64 {
        if self.samples < 2 {
            return 0.0;
        }
        (self.squares / (self.samples - 1) as f64).sqrt()
    }

    /// Adds all samples of another series.
    pub fn merge(&mut self, other: &Summary) {
        if other.samples == 0 {
            return;
        }
        if self.samples == 0 {
            *self = other.clone();
            return;
        }
        let (a, b) = (self.samples as f64, other.samples as f64);
        let delta = other.mean - self.mean;
        self.squares += other.squares + delta * delta * a * b / (a + b);
        self.mean += delta * b / (a + b);
        self.samples += other.samples;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }
}

/// Bandwidth and IOPS sampled each 500 ms; a window without completions gives no sample, as in fio.
#[derive(Clone, Debug, Default)]
pub struct RateSamples {
    window_start: Nanos,
    bytes: u64,
    ios: u64,
    started: bool,
    /// KiB/s samples.
    pub bw_kib: Summary,
    /// I/Os per second samples.
    pub iops: Summary,
}

/// fio's sampling interval (`bwavgtime`, `iopsavgtime`).
pub const SAMPLE_WINDOW: Nanos = Nanos::from_ms(500);

impl RateSamples {
    /// Starts the first window.
    pub fn start(&mut self, now: Nanos) {
        *self = RateSamples {
            window_start: now,
            started: true,
            ..RateSamples::default()
        };
    }

    /// Counts one completion of `bytes` at `now`.
    pub fn add(&mut self, now: Nanos, bytes: u64) {
        let spent = now.saturating_sub(self.window_start);
        if self.started && spent.0 >= SAMPLE_WINDOW.0 {
            if self.ios > 0 {
                let per_second = |n: u64| n as f64 * 1e9 / spent.0 as f64;
                self.bw_kib.add((per_second(self.bytes) / 1024.0) as u64);
                self.iops.add(per_second(self.ios) as u64);
            }
            self.window_start = now;
            (self.bytes, self.ios) = (0, 0);
        }
        self.bytes += bytes;
        self.ios += 1;
    }
}

/// One latency kind (slat, clat or lat): summary and histogram.
#[derive(Clone, Debug, Default)]
pub struct Clat {
    /// Summary in nanoseconds.
    pub summary: Summary,
    /// Histogram in nanoseconds.
    pub histogram: LatencyHistogram,
}

impl Clat {
    /// Adds one latency.
    pub fn add(&mut self, ns: u64) {
        self.summary.add(ns);
        self.histogram.add(ns);
    }

    /// Adds all latencies of another.
    pub fn merge(&mut self, other: &Clat) {
        self.summary.merge(&other.summary);
        self.histogram.merge(&other.histogram);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_fios() {
        // Below 128 ns each value has its own bin; above, the error is at most 1/128.
        for v in [0u64, 1, 63, 64, 127] {
            assert_eq!(LatencyHistogram::bin_middle(LatencyHistogram::bin(v)), v);
        }
        for v in [
            128u64,
            1000,
            16_630,
            283_709_000,
            2_146_500_000,
            9_999_999_999,
        ] {
            let m = LatencyHistogram::bin_middle(LatencyHistogram::bin(v));
            assert!(v.abs_diff(m) <= v / 128 + 1, "{v} {m}");
        }
        assert_eq!(LatencyHistogram::bin(u64::MAX), STEPS * GROUPS - 1);
        // Values that fio 3.x prints often: 16 us shows as 16064 or 16192.
        assert_eq!(
            LatencyHistogram::bin_middle(LatencyHistogram::bin(16_000)),
            16_064
        );
    }

    #[test]
    fn percentiles_of_a_known_series() {
        let mut h = LatencyHistogram::default();
        for v in 1..=100 {
            h.add(v);
        }
        assert_eq!(h.percentiles(&[1.0, 50.0, 99.0, 100.0]), [1, 50, 99, 100]);
    }

    #[test]
    fn summaries_merge_like_one_series() {
        let (mut a, mut b, mut all) = (Summary::default(), Summary::default(), Summary::default());
        for v in [5u64, 9, 100, 3, 3, 77] {
            if v % 2 == 0 {
                a.add(v);
            } else {
                b.add(v);
            }
            all.add(v);
        }
        a.merge(&b);
        assert_eq!((a.min, a.max, a.samples), (all.min, all.max, all.samples));
        assert!((a.mean() - all.mean()).abs() < 1e-9);
        assert!((a.stddev() - all.stddev()).abs() < 1e-9);
    }

    #[test]
    fn windows_without_completions_give_no_sample() {
        let mut r = RateSamples::default();
        r.start(Nanos::ZERO);
        r.add(Nanos::from_ms(100), 4096);
        r.add(Nanos::from_ms(2600), 4096);
        r.add(Nanos::from_ms(3200), 4096);
        assert_eq!(r.iops.samples, 2);
    }
}
