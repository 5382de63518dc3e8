//! The few number conversions of this layer, each total, so that no other file of it needs `as`.

#![allow(
    clippy::as_conversions,
    reason = "every conversion is widening or states that it keeps the low bits"
)]

/// Widening to an index. All targets have at least 32-bit addresses.
pub(crate) const fn size(n: u32) -> usize {
    n as usize
}

/// Widening of a length; lengths here are below 2^32 and saturate otherwise.
pub(crate) const fn len32(n: usize) -> u32 {
    if n > u32::MAX as usize {
        u32::MAX
    } else {
        n as u32
    }
}

/// Low 32 bits.
pub(crate) const fn lo32(n: u64) -> u32 {
    n as u32
}

/// High 32 bits.
pub(crate) const fn hi32(n: u64) -> u32 {
    (n >> 32) as u32
}

/// Low 16 bits.
pub(crate) const fn lo16(n: u32) -> u16 {
    n as u16
}

/// High 16 bits.
pub(crate) const fn hi16(n: u32) -> u16 {
    (n >> 16) as u16
}

/// Low 8 bits.
pub(crate) const fn lo8(n: u32) -> u8 {
    n as u8
}

/// `hi` and `lo` as one number.
pub(crate) const fn join32(hi: u32, lo: u32) -> u64 {
    (hi as u64) << 32 | lo as u64
}

/// `hi` and `lo` as one number.
pub(crate) const fn join16(hi: u16, lo: u16) -> u32 {
    (hi as u32) << 16 | lo as u32
}

/// The same 32 bits as a signed number.
pub(crate) const fn signed(n: u32) -> i32 {
    n as i32
}

/// Low 32 bits of a signed number.
pub(crate) const fn lo32_signed(n: i64) -> u32 {
    n as u32
}

/// A byte as C's `signed char` sees it, sign-extended.
pub(crate) const fn signed_char(b: u8) -> u32 {
    b as i8 as i32 as u32
}
