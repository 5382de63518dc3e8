//! Block contents by reference or by rule, so that 100 GiB of written payload cost memory only where bytes are
//! really different, and the content function of kernel-lab.

use super::rng::mix64;
use std::rc::Rc;

/// Bytes per page of the device store and the page cache.
pub const PAGE_SIZE: usize = 4096;

/// The contents of one page or block, without its length (the owner knows it; at most [`PAGE_SIZE`]).
/// Cloning is cheap. Rules describe a whole page and may be shortened from its front only by materialising.
#[derive(Clone, Debug)]
pub enum Payload {
    /// All zero bytes.
    Zero,
    /// Never written: seeded, stable garbage of device page `page`.
    Garbage {
        /// Seed of the device.
        seed: u32,
        /// Page number on the device (modulo 2^32).
        page: u32,
    },
    /// `content(seed, page * 4096 ..)` of the kernel-lab content function.
    Pattern {
        /// Seed of the write.
        seed: u32,
        /// Page number within the file.
        page: u32,
    },
    /// Bytes in memory, shared until modified.
    Bytes(Rc<[u8]>),
}

impl Payload {
    /// Writes the first `out.len()` bytes of this payload to `out`.
    pub fn fill(&self, out: &mut [u8]) {
        match self {
            Payload::Zero => out.fill(0),
            Payload::Garbage { seed, page } => {
                content(
                    garbage_seed(*seed),
                    u64::from(*page) * PAGE_SIZE as u64,
                    out,
                );
            }
            Payload::Pattern { seed, page } => {
                content(u64::from(*seed), u64::from(*page) * PAGE_SIZE as u64, out);
            }
            Payload::Bytes(b) => {
                let n = b.len().min(out.len());
                out[..n].copy_from_slice(&b[..n]);
                out[n..].fill(0);
            }
        }
    }

    /// The first `len` bytes in memory; shares the buffer if there already is one of that length.
    pub fn to_bytes(&self, len: usize) -> Rc<[u8]> {
        match self {
            Payload::Bytes(b) if b.len() == len => Rc::clone(b),
            _ => {
                let mut v = vec![0u8; len];
                self.fill(&mut v);
                v.into()
            }
        }
    }

    /// True if both surely hold the same bytes without comparing them (same rule or same buffer).
    pub fn same(&self, other: &Payload) -> bool {
        match (self, other) {
            (Payload::Zero, Payload::Zero) => true,
            (Payload::Garbage { seed: a, page: b }, Payload::Garbage { seed: c, page: d })
            | (Payload::Pattern { seed: a, page: b }, Payload::Pattern { seed: c, page: d }) => {
                a == c && b == d
            }
            (Payload::Bytes(a), Payload::Bytes(b)) => Rc::ptr_eq(a, b),
            _ => false,
        }
    }
}

/// What a write stores: bytes of the caller, or kernel-lab content by rule.
#[derive(Clone, Copy, Debug)]
pub enum WriteSource<'a> {
    /// These bytes; the length of the write is theirs.
    Bytes(&'a [u8]),
    /// `content(seed, o)` at each absolute file offset `o`.
    Content {
        /// Seed of the content function.
        seed: u64,
    },
}

const fn garbage_seed(seed: u32) -> u64 {
    mix64(0xDEAD_0000_0000_0000 | seed as u64)
}

/// Fills `out` with the bytes at `offset..` of the file content with `seed` (kernel-lab README, "Content function").
pub fn content(seed: u64, offset: u64, out: &mut [u8]) {
    let base = mix64(seed);
    let mut done = 0;
    while done < out.len() {
        let o = offset + done as u64;
        let h = mix64(base.wrapping_add(o >> 9));
        let n = (512 - (o & 511) as usize).min(out.len() - done);
        fill_sector(h, (o & 511) as usize, &mut out[done..done + n]);
        done += n;
    }
}

/// The bytes at `at..` of a sector whose hash is `h`: eight bytes at a time where they are aligned.
fn fill_sector(h: u64, at: usize, out: &mut [u8]) {
    let lead = ((8 - at % 8) % 8).min(out.len());
    let (head, body) = out.split_at_mut(lead);
    let bytes = h.to_le_bytes();
    let byte = |o: usize| bytes[o & 7] ^ ((o >> 3) & 63) as u8;
    for (i, b) in head.iter_mut().enumerate() {
        *b = byte(at + i);
    }
    let mut o = at + lead;
    let mut words = body.chunks_exact_mut(8);
    for word in &mut words {
        let counter = ((o >> 3) & 63) as u64 * 0x0101_0101_0101_0101;
        word.copy_from_slice(&(h ^ counter).to_le_bytes());
        o += 8;
    }
    for (i, b) in words.into_remainder().iter_mut().enumerate() {
        *b = byte(o + i);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    fn hex(seed: u64, offset: u64, n: usize) -> String {
        let mut v = vec![0; n];
        content(seed, offset, &mut v);
        v.iter().fold(String::new(), |mut s, b| {
            let _ = write!(s, "{b:02x}");
            s
        })
    }

    #[test]
    fn check_values_of_kernel_lab() {
        assert_eq!(hex(1, 0, 16), "1e61397408ab415e1f60387509aa405f");
        assert_eq!(hex(1, 504, 16), "215e064b37947e6103ae173295fdd686");
        assert_eq!(hex(7, 4096, 8), "9444a81d5d0ba93a");
        assert_eq!(hex(7, 1_000_003, 5), "24607cc285");
    }

    #[test]
    fn any_piece_equals_the_definition() {
        let mut rng = crate::base::rng::SplitMix64::new(1);
        for _ in 0..300 {
            let (seed, offset) = (rng.below(9), rng.below(10_000));
            let mut v = vec![0; rng.below(1500) as usize];
            content(seed, offset, &mut v);
            for (o, b) in (offset..).zip(v) {
                let h = mix64(mix64(seed).wrapping_add(o >> 9)).to_le_bytes();
                assert_eq!(b, h[(o & 7) as usize] ^ ((o >> 3) & 63) as u8);
            }
        }
    }

    #[test]
    fn pattern_is_the_content_of_its_page() {
        let p = Payload::Pattern { seed: 7, page: 1 };
        assert_eq!(
            &p.to_bytes(8)[..],
            &[0x94, 0x44, 0xa8, 0x1d, 0x5d, 0x0b, 0xa9, 0x3a]
        );
    }

    #[test]
    fn payload_stays_small() {
        assert!(size_of::<Payload>() <= 24);
    }
}
