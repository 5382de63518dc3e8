//! Which block a job touches next.

use super::options::{Distribution, FioJob};
use crate::base::math::pow;
use crate::base::rng::{mix64, SplitMix64};

/// Chooser of block numbers `0..blocks` for one job.
#[derive(Clone, Debug)]
pub(super) struct Offsets {
    blocks: u64,
    next: u64,
    mode: Mode,
    rng: SplitMix64,
    /// Passes over the whole file so far.
    pub(super) passes: u64,
}

#[derive(Clone, Debug)]
enum Mode {
    Sequential,
    /// Every block once in each pass (fio's random map), by a keyed permutation instead of a bitmap.
    Permuted(Permutation),
    Uniform,
    Skewed(Skew),
}

/// A choice: the block, and whether it starts a new pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// Block number.
    pub(super) block: u64,
    /// True if the previous pass was complete before it.
    pub(super) wrapped: bool,
}

impl Offsets {
    /// The chooser of `job` over `blocks` blocks.
    pub(super) fn new(job: &FioJob, blocks: u64, seed: u64) -> Offsets {
        let blocks = blocks.max(1);
        let mut rng = SplitMix64::new(seed);
        let mode = match (job.rw.is_random(), job.random_distribution, job.norandommap) {
            (false, _, _) => Mode::Sequential,
            (true, Distribution::Random, false) => {
                Mode::Permuted(Permutation::new(blocks, rng.next_u64()))
            }
            (true, Distribution::Random, true) => Mode::Uniform,
            (true, Distribution::Zipf(theta), _) => Mode::Skewed(Skew::zipf(blocks, theta)),
            (true, Distribution::Pareto(h), _) => Mode::Skewed(Skew::pareto(blocks, h)),
        };
        Offsets {
            blocks,
            next: 0,
            mode,
            rng,
            passes: 0,
        }
    }

    /// The next block.
    pub(super) fn choose(&mut self) -> Choice {
        let wrapped = self.next == self.blocks;
        if wrapped {
            self.next = 0;
            self.passes += 1;
            if let Mode::Permuted(p) = &mut self.mode {
                *p = Permutation::new(self.blocks, self.rng.next_u64());
            }
        }
        let i = self.next;
        self.next += 1;
        let block = match &self.mode {
            Mode::Sequential => i,
            Mode::Permuted(p) => p.at(i),
            Mode::Uniform => self.rng.below(self.blocks),
            Mode::Skewed(s) => s.draw(&mut self.rng),
        };
        Choice { block, wrapped }
    }
}

/// A permutation of `0..n`: a four-round Feistel network on the next even number of bits, walked until it lands
/// inside the range.
#[derive(Clone, Debug)]
struct Permutation {
    n: u64,
    half_bits: u32,
    key: u64,
}

impl Permutation {
    fn new(n: u64, key: u64) -> Permutation {
        let bits = 64 - (n - 1).max(1).leading_zeros();
        Permutation {
            n,
            half_bits: bits.div_ceil(2).max(1),
            key,
        }
    }

    fn at(&self, i: u64) -> u64 {
        let mask = (1u64 << self.half_bits) - 1;
        let mut x = i;
        loop {
            let (mut l, mut r) = (x >> self.half_bits, x & mask);
            for round in 0..4u64 {
                let f = mix64(self.key ^ (round << 56) ^ r) & mask;
                (l, r) = (r, l ^ f);
            }
            x = l << self.half_bits | r;
            if x < self.n {
                return x;
            }
        }
    }
}

/// zipf and pareto as fio defines them (lib/zipf.c): rank by the distribution, spread over the file by a hash.
#[derive(Clone, Debug)]
struct Skew {
    n: u64,
    kind: SkewKind,
}

#[derive(Clone, Debug)]
enum SkewKind {
    Zipf {
        theta: f64,
        zeta_n: f64,
        zeta_2: f64,
    },
    Pareto {
        power: f64,
    },
}

/// Terms of the zeta sum taken one by one; the tail is an integral.
const ZETA_TERMS: u64 = 100_000;

fn zeta(n: u64, theta: f64) -> f64 {
    let head = n.min(ZETA_TERMS);
    let sum: f64 = (1..=head).map(|i| pow(i as f64, -theta)).sum();
    if n <= head {
        return sum;
    }
    let (a, b) = (head as f64 + 0.5, n as f64 + 0.5);
    let tail = if (theta - 1.0).abs() < 1e-9 {
        crate::base::math::ln(b / a)
    } else {
        (pow(b, 1.0 - theta) - pow(a, 1.0 - theta)) / (1.0 - theta)
    };
    sum + tail
}

impl Skew {
    fn zipf(n: u64, theta: f64) -> Skew {
        // The generator is singular at 1, as fio's is.
        let theta = if (theta - 1.0).abs() < 1e-6 {
            1.0 + 1e-6
        } else {
            theta
        };
        let kind = SkewKind::Zipf {
            theta,
            zeta_n: zeta(n, theta),
            zeta_2: zeta(2, theta),
        };
        Skew { n, kind }
    }

    fn pareto(n: u64, h: f64) -> Skew {
        let h = h.clamp(0.001, 0.999);
        let power = crate::base::math::ln(h) / crate::base::math::ln(1.0 - h);
        Skew {
            n,
            kind: SkewKind::Pareto { power },
        }
    }

    fn draw(&self, rng: &mut SplitMix64) -> u64 {
        let u = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let n = self.n as f64;
        let rank = match self.kind {
            SkewKind::Zipf {
                theta,
                zeta_n,
                zeta_2,
            } => {
                let uz = u * zeta_n;
                if uz < 1.0 {
                    0
                } else if uz < 1.0 + pow(0.5, theta) {
                    1
                } else {
                    let alpha = 1.0 / (1.0 - theta);
                    let eta = (1.0 - pow(2.0 / n, 1.0 - theta)) / (1.0 - zeta_2 / zeta_n);
                    (n * pow((eta * u - eta + 1.0).max(1e-300), alpha)) as u64
                }
            }
            SkewKind::Pareto { power } => ((n - 1.0) * pow(u.max(1e-300), power)) as u64,
        };
        mix64(rank) % self.n
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::fio::Pattern;

    fn job(rw: Pattern) -> FioJob {
        FioJob {
            rw,
            ..FioJob::new("t")
        }
    }

    #[test]
    fn the_random_map_hits_each_block_once_in_a_pass() {
        for blocks in [1u64, 2, 3, 7, 64, 1000] {
            let mut o = Offsets::new(&job(Pattern::RandWrite), blocks, 9);
            for pass in 0..3 {
                let mut seen: Vec<u64> = (0..blocks)
                    .map(|i| {
                        let c = o.choose();
                        assert_eq!(c.wrapped, pass > 0 && i == 0);
                        c.block
                    })
                    .collect();
                seen.sort_unstable();
                assert!(seen.iter().copied().eq(0..blocks));
            }
        }
    }

    #[test]
    fn sequential_wraps() {
        let mut o = Offsets::new(&job(Pattern::Write), 2, 1);
        let got: Vec<(u64, bool)> = (0..4)
            .map(|_| o.choose())
            .map(|c| (c.block, c.wrapped))
            .collect();
        assert_eq!(got, [(0, false), (1, false), (0, true), (1, false)]);
    }

    #[test]
    fn skewed_draws_stay_in_range_and_are_skewed() {
        for d in [
            Distribution::Zipf(1.2),
            Distribution::Zipf(0.8),
            Distribution::Pareto(0.2),
        ] {
            let j = FioJob {
                random_distribution: d,
                ..job(Pattern::RandRead)
            };
            let mut o = Offsets::new(&j, 1000, 3);
            let mut hits = vec![0u32; 1000];
            for _ in 0..20_000 {
                hits[o.choose().block as usize] += 1;
            }
            hits.sort_unstable();
            let top: u32 = hits[800..].iter().sum();
            assert!(top > 10_000, "{d:?}: the top fifth has {top} of 20000");
        }
    }
}
