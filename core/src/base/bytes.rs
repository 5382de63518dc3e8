//! Checked little- and big-endian access to byte slices. Reads past the end give 0 and writes past the end do
//! nothing: callers check lengths once, and no bytes can make decoding panic.

#[inline]
fn take<const N: usize>(b: &[u8], at: usize) -> [u8; N] {
    let mut out = [0u8; N];
    if let Some(src) = at.checked_add(N).and_then(|end| b.get(at..end)) {
        out.copy_from_slice(src);
    }
    out
}

#[inline]
fn put(b: &mut [u8], at: usize, v: &[u8]) {
    if let Some(dst) = at.checked_add(v.len()).and_then(|end| b.get_mut(at..end)) {
        dst.copy_from_slice(v);
    }
}

/// Byte at `at`.
#[inline]
pub fn u8_at(b: &[u8], at: usize) -> u8 {
    b.get(at).copied().unwrap_or(0)
}

/// Little-endian 16-bit number at `at`.
#[inline]
pub fn le16(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(take(b, at))
}

/// Little-endian 32-bit number at `at`.
#[inline]
pub fn le32(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(take(b, at))
}

/// Little-endian 64-bit number at `at`.
#[inline]
pub fn le64(b: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(take(b, at))
}

/// Big-endian 16-bit number at `at`.
#[inline]
pub fn be16(b: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(take(b, at))
}

/// Big-endian 32-bit number at `at`.
#[inline]
pub fn be32(b: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(take(b, at))
}

/// Big-endian 64-bit number at `at`.
#[inline]
pub fn be64(b: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(take(b, at))
}

/// `N` bytes at `at`, zero where the slice ends.
#[inline]
pub fn array<const N: usize>(b: &[u8], at: usize) -> [u8; N] {
    take(b, at)
}

/// Stores a byte.
#[inline]
pub fn put_u8(b: &mut [u8], at: usize, v: u8) {
    put(b, at, &[v]);
}

/// Stores a little-endian 16-bit number.
#[inline]
pub fn put_le16(b: &mut [u8], at: usize, v: u16) {
    put(b, at, &v.to_le_bytes());
}

/// Stores a little-endian 32-bit number.
#[inline]
pub fn put_le32(b: &mut [u8], at: usize, v: u32) {
    put(b, at, &v.to_le_bytes());
}

/// Stores a little-endian 64-bit number.
#[inline]
pub fn put_le64(b: &mut [u8], at: usize, v: u64) {
    put(b, at, &v.to_le_bytes());
}

/// Stores a big-endian 16-bit number.
#[inline]
pub fn put_be16(b: &mut [u8], at: usize, v: u16) {
    put(b, at, &v.to_be_bytes());
}

/// Stores a big-endian 32-bit number.
#[inline]
pub fn put_be32(b: &mut [u8], at: usize, v: u32) {
    put(b, at, &v.to_be_bytes());
}

/// Stores a big-endian 64-bit number.
#[inline]
pub fn put_be64(b: &mut [u8], at: usize, v: u64) {
    put(b, at, &v.to_be_bytes());
}

/// Stores bytes.
#[inline]
pub fn put_slice(b: &mut [u8], at: usize, v: &[u8]) {
    put(b, at, v);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn out_of_range_is_harmless() {
        let mut b = [1u8, 2, 3, 4];
        assert_eq!(le32(&b, 0), 0x0403_0201);
        assert_eq!(be16(&b, 2), 0x0304);
        assert_eq!(le32(&b, 1), 0);
        assert_eq!(le32(&b, usize::MAX), 0);
        put_le32(&mut b, 2, 9);
        assert_eq!(b, [1, 2, 3, 4]);
    }
}
