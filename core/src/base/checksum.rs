//! Checksums in the conventions that ext4 and JBD2 store.

/// crc32c as ext4 and JBD2 use it: reflected Castagnoli, running value in and out, no final inversion.
/// Start with `!0`. Source: mechanisms of `fs/ext4/ext4.h` (`ext4_chksum`).
pub fn crc32c(seed: u32, bytes: &[u8]) -> u32 {
    !::crc32c::crc32c_append(!seed, bytes)
}

const CRC16_TABLE: [u16; 256] = crc16_table();

const fn crc16_table() -> [u16; 256] {
    let mut table = [0u16; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = i as u16;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 {
                (crc >> 1) ^ 0xA001
            } else {
                crc >> 1
            };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
}

/// crc16 (polynomial 0x8005 reflected) for group descriptors of `uninit_bg`. Start with `!0`.
pub fn crc16(seed: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(seed, |crc, &b| {
        (crc >> 8) ^ CRC16_TABLE[usize::from((crc ^ u16::from(b)) & 0xff)]
    })
}

const CRC32_BE_TABLE: [u32; 256] = crc32_be_table();

const fn crc32_be_table() -> [u32; 256] {
    let mut table = [0u32; 256];
    let mut i = 0;
    while i < 256 {
        let mut crc = (i as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000_0000 == 0 {
                crc << 1
            } else {
                (crc << 1) ^ 0x04C1_1DB7
            };
            bit += 1;
        }
        table[i] = crc;
        i += 1;
    }
    table
}

/// Big-endian crc32 of the JBD2 v1 commit checksum (`crc32_be`). Start with `!0`.
pub fn crc32_be(seed: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(seed, |crc, &b| {
        (crc << 8) ^ CRC32_BE_TABLE[((crc >> 24) as u8 ^ b) as usize]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_vectors() {
        assert_eq!(crc32c(!0, b"123456789"), 0x1cf9_6d7c);
        assert_eq!(crc16(0, b"123456789"), 0xBB3D);
        assert_eq!(crc16(!0, b"123456789"), 0x4B37);
        assert_eq!(!crc32_be(!0, b"123456789"), 0xFC89_1918);
    }
}
