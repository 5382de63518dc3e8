//! crc32c of whole pages that exist only as a rule, without making their bytes.
//!
//! crc32c without inversions is linear over GF(2), and a page of the kernel-lab content function is eight sectors, each
//! one 64-bit word repeated, XORed with a fixed pattern. So the checksum is a XOR of table entries: data=journal logs a
//! 100 GiB file without ever producing its contents.

use crate::base::checksum::crc32c;
use crate::base::payload::PAGE_SIZE;
use crate::base::rng::mix64;
use crate::base::Payload;

const SECTORS: usize = 8;
const WORD: usize = 8;

/// Tables for pages of 4096 bytes.
pub(super) struct PageCsum {
    /// Effect of byte value `v` at place `k` of the word of sector `s`: index `(s * 8 + k) * 256 + v`.
    words: Vec<u32>,
    /// Effect of each byte of the start value after a page.
    seeds: Vec<u32>,
    /// Checksum of the fixed pattern, start value 0.
    pattern: u32,
}

/// Fills 256 entries from the eight single-bit ones: XOR over the bits of the index.
fn spread(bits: [u32; 8], out: &mut Vec<u32>) {
    for v in 0..256u32 {
        let x = (0..8)
            .filter(|b| v >> b & 1 == 1)
            .fold(0, |x, b| x ^ bits[b]);
        out.push(x);
    }
}

impl PageCsum {
    pub(super) fn new() -> PageCsum {
        let mut page = vec![0u8; PAGE_SIZE];
        let mut seeds = Vec::with_capacity(4 * 256);
        for byte in 0..4 {
            let bits = std::array::from_fn(|b| crc32c(1 << (byte * 8 + b), &page));
            spread(bits, &mut seeds);
        }
        let mut words = Vec::with_capacity(SECTORS * WORD * 256);
        for s in 0..SECTORS {
            for k in 0..WORD {
                let bits = std::array::from_fn(|b| {
                    let sector = &mut page[s * 512..(s + 1) * 512];
                    sector
                        .iter_mut()
                        .skip(k)
                        .step_by(WORD)
                        .for_each(|x| *x = 1 << b);
                    let crc = crc32c(0, &page);
                    page.fill(0);
                    crc
                });
                spread(bits, &mut words);
            }
        }
        for (o, x) in page.iter_mut().enumerate() {
            *x = ((o >> 3) & 63) as u8;
        }
        let pattern = crc32c(0, &page);
        PageCsum {
            words,
            seeds,
            pattern,
        }
    }

    fn advance(&self, seed: u32) -> u32 {
        let bytes = seed.to_le_bytes();
        (0..4).fold(0, |x, i| x ^ self.seeds[i * 256 + usize::from(bytes[i])])
    }

    /// crc32c of the first `len` bytes of `p`, start value `seed`.
    pub(super) fn crc32c(&self, seed: u32, p: &Payload, len: usize) -> u32 {
        match p {
            Payload::Zero if len == PAGE_SIZE => self.advance(seed),
            Payload::Pattern {
                seed: content,
                page,
            } if len == PAGE_SIZE => {
                let base = mix64(u64::from(*content));
                let first = u64::from(*page) * SECTORS as u64;
                let mut crc = self.advance(seed) ^ self.pattern;
                for s in 0..SECTORS {
                    let word = mix64(base.wrapping_add(first + s as u64)).to_le_bytes();
                    for (k, v) in word.into_iter().enumerate() {
                        crc ^= self.words[(s * WORD + k) * 256 + usize::from(v)];
                    }
                }
                crc
            }
            Payload::Bytes(b) if b.len() == len => crc32c(seed, b),
            _ => crc32c(seed, &p.to_bytes(len)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_give_the_checksum_of_their_bytes() {
        let t = PageCsum::new();
        let payloads = [
            Payload::Zero,
            Payload::Pattern { seed: 0, page: 0 },
            Payload::Pattern { seed: 7, page: 244 },
            Payload::Pattern {
                seed: u32::MAX,
                page: u32::MAX,
            },
            Payload::Garbage { seed: 3, page: 9 },
        ];
        for p in payloads {
            for seed in [0, 1, !0, 0x1234_5678] {
                for len in [PAGE_SIZE, 1024] {
                    let direct = crc32c(seed, &p.to_bytes(len));
                    assert_eq!(t.crc32c(seed, &p, len), direct, "{p:?} {seed:#x} {len}");
                }
            }
        }
    }
}
