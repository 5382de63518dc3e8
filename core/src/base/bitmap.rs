//! Little-endian bitmaps as ext4 stores them: bit `i` is bit `i % 8` of byte `i / 8`.
//! Bits past the end of the slice read as set, so that a search never runs off it.

/// True if bit `i` is set (or out of range).
pub fn test(map: &[u8], i: u32) -> bool {
    map.get((i / 8) as usize)
        .is_none_or(|b| b & (1 << (i % 8)) != 0)
}

/// Sets bit `i`; true if it was clear before.
pub fn set(map: &mut [u8], i: u32) -> bool {
    match map.get_mut((i / 8) as usize) {
        Some(b) if *b & (1 << (i % 8)) == 0 => {
            *b |= 1 << (i % 8);
            true
        }
        _ => false,
    }
}

/// Clears bit `i`; true if it was set before.
pub fn clear(map: &mut [u8], i: u32) -> bool {
    match map.get_mut((i / 8) as usize) {
        Some(b) if *b & (1 << (i % 8)) != 0 => {
            *b &= !(1 << (i % 8));
            true
        }
        _ => false,
    }
}

/// Sets bits `from..to`.
pub fn set_range(map: &mut [u8], from: u32, to: u32) {
    let mut i = from;
    while i < to {
        if i % 8 == 0 && to - i >= 8 {
            if let Some(b) = map.get_mut((i / 8) as usize) {
                *b = 0xff;
            }
            i += 8;
        } else {
            set(map, i);
            i += 1;
        }
    }
}

/// Clears bits `from..to`.
pub fn clear_range(map: &mut [u8], from: u32, to: u32) {
    let mut i = from;
    while i < to {
        if i % 8 == 0 && to - i >= 8 {
            if let Some(b) = map.get_mut((i / 8) as usize) {
                *b = 0;
            }
            i += 8;
        } else {
            clear(map, i);
            i += 1;
        }
    }
}

/// First clear bit in `from..to`.
pub fn next_zero(map: &[u8], from: u32, to: u32) -> Option<u32> {
    let mut i = from;
    while i < to {
        match map.get((i / 8) as usize) {
            None => return None,
            Some(0xff) => i = (i / 8 + 1) * 8,
            Some(b) if i % 8 == 0 => {
                let z = i + b.trailing_ones();
                return (z < to).then_some(z);
            }
            Some(b) if b & (1 << (i % 8)) == 0 => return Some(i),
            Some(_) => i += 1,
        }
    }
    None
}

/// First set bit in `from..to`.
pub fn next_one(map: &[u8], from: u32, to: u32) -> Option<u32> {
    let mut i = from;
    while i < to {
        match map.get((i / 8) as usize) {
            None => return Some(i),
            Some(0) => i = (i / 8 + 1) * 8,
            Some(b) if i % 8 == 0 => {
                let z = i + b.trailing_zeros();
                return (z < to).then_some(z);
            }
            Some(b) if b & (1 << (i % 8)) != 0 => return Some(i),
            Some(_) => i += 1,
        }
    }
    None
}

/// Number of clear bits in `0..len`.
pub fn count_zeros(map: &[u8], len: u32) -> u32 {
    let whole = (len / 8) as usize;
    let ones: u32 = map.iter().take(whole).map(|b| b.count_ones()).sum();
    let tail = (whole as u32 * 8..len).filter(|&i| test(map, i)).count() as u32;
    len - ones - tail
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::rng::SplitMix64;

    #[test]
    fn agrees_with_a_vector_of_bools() {
        let mut rng = SplitMix64::new(3);
        let mut map = [0u8; 32];
        let mut model = [false; 256];
        for _ in 0..2000 {
            let a = rng.below(257) as u32;
            let b = rng.below(257) as u32;
            let (lo, hi) = (a.min(b), a.max(b));
            if rng.below(2) == 0 {
                set_range(&mut map, lo, hi);
                model[lo as usize..hi as usize].fill(true);
            } else {
                clear_range(&mut map, lo, hi);
                model[lo as usize..hi as usize].fill(false);
            }
            let zero = (lo..hi).find(|&i| !model[i as usize]);
            let one = (lo..hi).find(|&i| model[i as usize]);
            assert_eq!(next_zero(&map, lo, hi), zero);
            assert_eq!(next_one(&map, lo, hi), one);
            let clear = model[..hi as usize].iter().filter(|b| !**b).count();
            assert_eq!(count_zeros(&map, hi), clear as u32);
        }
    }
}
