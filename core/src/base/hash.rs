//! Maps with a fixed, fast hash for lookups by number. Never iterate them: order is not part of any result.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

/// Hash map keyed by numbers, same behaviour native and in wasm. For lookups only.
pub type FastMap<K, V> = HashMap<K, V, BuildHasherDefault<MixHasher>>;
/// Hash set of numbers. For membership only.
pub type FastSet<K> = HashSet<K, BuildHasherDefault<MixHasher>>;

/// Multiplicative hasher for integer keys.
#[derive(Default, Clone, Copy, Debug)]
pub struct MixHasher(u64);

impl Hasher for MixHasher {
    fn finish(&self) -> u64 {
        self.0 ^ (self.0 >> 29)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &b in bytes {
            self.write_u64(u64::from(b));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        let x = (self.0.rotate_left(23) ^ n).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0 = x ^ (x >> 32);
    }

    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
}
