//! Hashes of names for htrees: `ext4fs_dirhash` of `fs/ext4/hash.c`.

use crate::format::cast;

/// Hash version stored in a directory: legacy.
pub const DX_HASH_LEGACY: u8 = 0;
/// Hash version stored in a directory: half MD4.
pub const DX_HASH_HALF_MD4: u8 = 1;
/// Hash version stored in a directory: TEA.
pub const DX_HASH_TEA: u8 = 2;
/// Hash version stored in a directory: SipHash (encrypted and case-insensitive directories).
pub const DX_HASH_SIPHASH: u8 = 6;
/// The hash that means "end of directory"; names that would hash to it are moved below.
pub const EXT4_HTREE_EOF_32BIT: u32 = 0x7fff_ffff;

const MD4_INIT: [u32; 4] = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
const K2: u32 = 0x5A82_7999;
const K3: u32 = 0x6ED9_EBA1;

/// Hash of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirHash {
    /// Major hash; its lowest bit is always 0.
    pub hash: u32,
    /// Minor hash, to tell equal majors apart in `readdir` cookies.
    pub minor: u32,
}

/// Hashes `name` with the version stored in the directory, the superblock's seed and its signedness
/// (`s_flags` bit 2 means unsigned). `None` for versions that are not implemented.
pub fn dirhash(name: &[u8], version: u8, seed: [u32; 4], unsigned: bool) -> Option<DirHash> {
    let mut buf = if seed == [0; 4] { MD4_INIT } else { seed };
    let (hash, minor) = match version {
        DX_HASH_LEGACY => (legacy(name, unsigned), 0),
        DX_HASH_HALF_MD4 => {
            let mut rest = name;
            while !rest.is_empty() {
                half_md4_transform(&mut buf, words(rest, unsigned));
                rest = rest.get(32..).unwrap_or(&[]);
            }
            (buf[1], buf[2])
        }
        DX_HASH_TEA => {
            let mut rest = name;
            while !rest.is_empty() {
                tea_transform(&mut buf, words(rest, unsigned));
                rest = rest.get(16..).unwrap_or(&[]);
            }
            (buf[0], buf[1])
        }
        _ => return None,
    };
    let mut hash = hash & !1;
    if hash == EXT4_HTREE_EOF_32BIT << 1 {
        hash = (EXT4_HTREE_EOF_32BIT - 1) << 1;
    }
    Some(DirHash { hash, minor })
}

fn char_value(b: u8, unsigned: bool) -> u32 {
    if unsigned {
        u32::from(b)
    } else {
        cast::signed_char(b)
    }
}

fn legacy(name: &[u8], unsigned: bool) -> u32 {
    let (mut hash0, mut hash1) = (0x12a3_fe2du32, 0x37ab_e8f9u32);
    for &b in name {
        let c = char_value(b, unsigned).wrapping_mul(7_152_373);
        let mut hash = hash1.wrapping_add(hash0 ^ c);
        if hash & 0x8000_0000 != 0 {
            hash = hash.wrapping_sub(0x7fff_ffff);
        }
        hash1 = hash0;
        hash0 = hash;
    }
    hash0 << 1
}

/// The first `4 * N` bytes of `rest` as big-endian words; what is missing is filled with its length.
fn words<const N: usize>(rest: &[u8], unsigned: bool) -> [u32; N] {
    let len = cast::len32(rest.len());
    let pad = len | (len << 8);
    let pad = pad | (pad << 16);
    let mut out = [pad; N];
    for (word, chunk) in out.iter_mut().zip(rest.chunks(4)) {
        for &b in chunk {
            *word = char_value(b, unsigned).wrapping_add(*word << 8);
        }
    }
    out
}

fn half_md4_transform(buf: &mut [u32; 4], x: [u32; 8]) {
    fn step(s: &mut [u32; 4], f: fn(u32, u32, u32) -> u32, x: u32, shift: u32) {
        let [a, b, c, d] = *s;
        let a = a
            .wrapping_add(f(b, c, d))
            .wrapping_add(x)
            .rotate_left(shift);
        *s = [d, a, b, c];
    }
    fn pick(x: u32, y: u32, z: u32) -> u32 {
        z ^ (x & (y ^ z))
    }
    fn majority(x: u32, y: u32, z: u32) -> u32 {
        (x & y).wrapping_add((x ^ y) & z)
    }
    fn parity(x: u32, y: u32, z: u32) -> u32 {
        x ^ y ^ z
    }
    let [x0, x1, x2, x3, x4, x5, x6, x7] = x;
    let mut s = *buf;
    let shifts = [3, 7, 11, 19].into_iter().cycle();
    for (w, n) in x.into_iter().zip(shifts) {
        step(&mut s, pick, w, n);
    }
    let shifts = [3, 5, 9, 13].into_iter().cycle();
    for (w, n) in [x1, x3, x5, x7, x0, x2, x4, x6].into_iter().zip(shifts) {
        step(&mut s, majority, w.wrapping_add(K2), n);
    }
    let shifts = [3, 9, 11, 15].into_iter().cycle();
    for (w, n) in [x3, x7, x2, x6, x1, x5, x0, x4].into_iter().zip(shifts) {
        step(&mut s, parity, w.wrapping_add(K3), n);
    }
    for (b, v) in buf.iter_mut().zip(s) {
        *b = b.wrapping_add(v);
    }
}

fn tea_transform(buf: &mut [u32; 4], [a, b, c, d]: [u32; 4]) {
    let [mut b0, mut b1, ..] = *buf;
    let mut sum = 0u32;
    for _ in 0..16 {
        sum = sum.wrapping_add(0x9E37_79B9);
        b0 = b0.wrapping_add(
            (b1 << 4).wrapping_add(a) ^ b1.wrapping_add(sum) ^ (b1 >> 5).wrapping_add(b),
        );
        b1 = b1.wrapping_add(
            (b0 << 4).wrapping_add(c) ^ b0.wrapping_add(sum) ^ (b0 >> 5).wrapping_add(d),
        );
    }
    buf[0] = buf[0].wrapping_add(b0);
    buf[1] = buf[1].wrapping_add(b1);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(version: u8, seed: [u32; 4], name: &str, hash: u32, minor: Option<u32>) {
        let h = dirhash(name.as_bytes(), version, seed, false).unwrap();
        assert_eq!(h.hash, hash, "{name}");
        assert!(minor.is_none_or(|m| m == h.minor), "{name}");
    }

    /// Vectors from debugfs 1.47.0 (`dx_hash`), signed variants.
    #[test]
    fn published_vectors() {
        let zero = [0; 4];
        check(1, zero, "a", 0xd5fa_7d7a, Some(0xacb4_8187));
        check(1, zero, "lost+found", 0x591d_e422, Some(0x6ffc_56e0));
        let long = "file_with_long_name_number_00163";
        check(1, zero, long, 0x2a4c_8c20, Some(0x5904_7dc0));
        check(1, zero, "café", 0xfb9c_5e5c, Some(0x0573_e8b8));
        check(2, zero, "a", 0x6d0e_a4c0, None);
        check(2, zero, "lost+found", 0x2dbf_9e80, None);
        check(2, zero, "café", 0x1058_42ea, None);
        check(0, zero, "a", 0xe74b_53e2, None);
        check(0, zero, "lost+found", 0x5e2a_ba24, None);
        let uuid: crate::base::Uuid = "00112233-4455-6677-8899-aabbccddeeff".parse().unwrap();
        let seed: [u32; 4] = std::array::from_fn(|i| crate::base::bytes::le32(&uuid.0, i * 4));
        check(1, seed, "a", 0x9375_2ee6, Some(0x578c_30ba));
        check(1, seed, "lost+found", 0x1efb_822c, Some(0x2a3b_b222));
    }

    #[test]
    fn signedness_matters_only_beyond_ascii() {
        for v in 0..3 {
            let h = |n: &str, u| dirhash(n.as_bytes(), v, [1; 4], u).unwrap();
            assert_eq!(h("plain", false), h("plain", true));
            assert_ne!(h("café", false), h("café", true));
        }
        assert_eq!(dirhash(b"x", 9, [0; 4], false), None);
    }
}
