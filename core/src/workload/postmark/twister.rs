//! The Mersenne Twister MT19937 (Matsumoto, Nishimura 1998) with the seeding of 1999, which PostMark uses.

const N: usize = 624;
const M: usize = 397;

/// A generator; equal seeds give the draws of the tool.
#[derive(Clone, Debug)]
pub(super) struct Twister {
    state: Vec<u32>,
    at: usize,
}

impl Twister {
    /// A generator that starts at `seed`.
    pub(super) fn new(seed: u32) -> Twister {
        let mut x = seed;
        let mut half = || {
            let high = x >> 16;
            x = x.wrapping_mul(69_069).wrapping_add(1);
            high
        };
        let state = (0..N).map(|_| half() << 16 | half()).collect();
        Twister { state, at: N }
    }

    /// The next 32 bits.
    pub(super) fn draw(&mut self) -> u32 {
        if self.at == N {
            self.refill();
        }
        let mut y = self.state[self.at];
        self.at += 1;
        y ^= y >> 11;
        y ^= (y << 7) & 0x9D2C_5680;
        y ^= (y << 15) & 0xEFC6_0000;
        y ^ (y >> 18)
    }

    /// A number in `0..n` by remainder; nothing is drawn for `n` = 0.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        match n {
            0 => 0,
            n => u64::from(self.draw()) % n,
        }
    }

    fn refill(&mut self) {
        for k in 0..N {
            let y = self.state[k] & 0x8000_0000 | self.state[(k + 1) % N] & 0x7FFF_FFFF;
            let odd = if y & 1 == 1 { 0x9908_B0DF } else { 0 };
            self.state[k] = self.state[(k + M) % N] ^ (y >> 1) ^ odd;
        }
        self.at = 0;
    }
}
