//! Deterministic random numbers: SplitMix64, split into named streams so that changing one component
//! leaves the draws of the others alone.

/// One SplitMix64 output step, also the mixing function of the content rule (kernel-lab README).
pub const fn mix64(x: u64) -> u64 {
    let mut x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// A stream of random numbers.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// A stream that starts at `seed`.
    pub const fn new(seed: u64) -> SplitMix64 {
        SplitMix64(seed)
    }

    /// The stream `name` of the run with `seed`, for example `device.latency`.
    pub fn named(seed: u64, name: &str) -> SplitMix64 {
        let h = name
            .bytes()
            .fold(mix64(seed), |h, b| mix64(h ^ u64::from(b)));
        SplitMix64(h)
    }

    /// The next 64 random bits.
    pub fn next_u64(&mut self) -> u64 {
        let out = mix64(self.0);
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        out
    }

    /// A number in `0..n` by remainder (the rule of kernel-lab); 0 if `n` is 0.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 {
            0
        } else {
            self.next_u64() % n
        }
    }

    /// The list `0..n` in a random order: Fisher-Yates from the end, as in kernel-lab.
    pub fn shuffled(n: u32, seed: u64) -> Vec<u32> {
        let mut rng = SplitMix64::new(seed);
        let mut v: Vec<u32> = (0..n).collect();
        for i in (1..v.len()).rev() {
            let j = rng.below(i as u64 + 1) as usize;
            v.swap(i, j);
        }
        v
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_values_of_kernel_lab() {
        assert_eq!(mix64(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(mix64(1), 0x910a_2dec_8902_5cc1);
        let mut r = SplitMix64::new(7);
        assert_eq!(r.next_u64(), 0x63cb_e1e4_5932_0dd7);
        assert_eq!(r.next_u64(), 0x044c_3cd7_f43c_661c);
        assert_eq!(r.next_u64(), 0xe698_4080_bab1_2a02);
        let s = SplitMix64::shuffled(16, 7);
        assert_eq!(s, [14, 6, 4, 2, 5, 11, 13, 1, 3, 12, 15, 10, 8, 0, 9, 7]);
    }

    #[test]
    fn named_streams_differ() {
        let a = SplitMix64::named(1, "a").next_u64();
        let b = SplitMix64::named(1, "b").next_u64();
        assert_ne!(a, b);
    }
}
