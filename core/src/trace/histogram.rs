//! Histogram of durations with fio's binning, so that percentiles look the same.

/// Linear steps per power of two: 2^6 (`FIO_IO_U_PLAT_BITS` of fio's `stat.h`).
const BITS: u32 = 6;
const STEPS: usize = 1 << BITS;
/// Groups of steps (`FIO_IO_U_PLAT_GROUP_NR`).
const GROUPS: usize = 29;

/// Counts of values in bins whose width is at most 1/64 of the value.
#[derive(Clone, Debug)]
pub struct Histogram {
    bins: Vec<u64>,
    count: u64,
    sum: u128,
    min: u64,
    max: u64,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            bins: Vec::new(),
            count: 0,
            sum: 0,
            min: u64::MAX,
            max: 0,
        }
    }
}

impl Histogram {
    /// Bin of a value.
    pub fn bin(value: u64) -> usize {
        let msb = (value | 1).ilog2();
        if msb <= BITS {
            return value as usize;
        }
        let error_bits = msb - BITS;
        let base = (error_bits as usize + 1) << BITS;
        let offset = (value >> error_bits) as usize & (STEPS - 1);
        (base + offset).min(GROUPS * STEPS - 1)
    }

    /// The value fio prints for a bin: its middle.
    pub fn value(bin: usize) -> u64 {
        if bin < 2 * STEPS {
            return bin as u64;
        }
        let error_bits = (bin >> BITS) - 1;
        let base = 1u64 << (error_bits + BITS as usize);
        let step = (bin % STEPS) as u64;
        base + (step << error_bits) + (1 << error_bits) / 2
    }

    /// Counts a value.
    pub fn add(&mut self, value: u64) {
        if self.bins.is_empty() {
            self.bins = vec![0; GROUPS * STEPS];
        }
        self.bins[Histogram::bin(value)] += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum of the values.
    pub fn sum(&self) -> u128 {
        self.sum
    }

    /// Smallest value, 0 if there is none.
    pub fn min(&self) -> u64 {
        if self.count == 0 {
            0
        } else {
            self.min
        }
    }

    /// Largest value, 0 if there is none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Bins that hold something: (middle of the bin, count).
    pub fn filled(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let bins = self.bins.iter().enumerate();
        bins.filter(|(_, n)| **n > 0)
            .map(|(i, n)| (Histogram::value(i), *n))
    }

    /// Value at `per_million` (990,000 is the 99th percentile), as fio picks it: the first bin at which the
    /// running count reaches that share.
    pub fn percentile(&self, per_million: u64) -> u64 {
        let want = (u128::from(self.count) * u128::from(per_million)).div_ceil(1_000_000) as u64;
        let mut seen = 0;
        for (value, n) in self.filled() {
            seen += n;
            if seen >= want.max(1) {
                return value;
            }
        }
        self.max
    }

    /// Adds all values of `other`.
    pub fn merge(&mut self, other: &Histogram) {
        if other.count == 0 {
            return;
        }
        if self.bins.is_empty() {
            self.bins = vec![0; GROUPS * STEPS];
        }
        for (a, b) in self.bins.iter_mut().zip(&other.bins) {
            *a += b;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_are_monotone_and_exact_to_a_128th() {
        let mut last = 0;
        for v in (0..5_000_000u64).step_by(37) {
            let b = Histogram::bin(v);
            assert!(b >= last);
            last = b;
            let mid = Histogram::value(b);
            assert!(mid.abs_diff(v) * 128 <= v.max(128), "{v} {mid}");
        }
    }

    #[test]
    fn percentiles() {
        let mut h = Histogram::default();
        for v in 1..=100 {
            h.add(v);
        }
        assert_eq!(h.percentile(500_000), 50);
        assert_eq!(h.percentile(990_000), 99);
        assert_eq!(h.percentile(1_000_000), 100);
        assert_eq!((h.min(), h.max(), h.sum()), (1, 100, 5050));
        let mut twice = Histogram::default();
        twice.merge(&h);
        twice.merge(&h);
        assert_eq!((twice.count(), twice.percentile(500_000)), (200, 50));
    }
}
