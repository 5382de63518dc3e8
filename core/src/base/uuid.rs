//! UUIDs as 16 bytes.

use std::fmt;
use std::str::FromStr;

/// A UUID in the byte order of its text form (as on disk).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, b) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{b:02x}")?;
        }
        Ok(())
    }
}

impl FromStr for Uuid {
    type Err = String;

    fn from_str(s: &str) -> Result<Uuid, String> {
        let hex: Vec<u8> = s.bytes().filter(|b| *b != b'-').collect();
        let bad =
            || format!("`{s}` is not a UUID; write it as 01234567-89ab-cdef-0123-456789abcdef");
        if hex.len() != 32 {
            return Err(bad());
        }
        let mut out = [0u8; 16];
        for (o, pair) in out.iter_mut().zip(hex.chunks(2)) {
            let digit = |b: u8| (b as char).to_digit(16).ok_or_else(bad);
            *o = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        Ok(Uuid(out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trip() {
        let t = "6b6c6162-0000-4000-8000-000000000001";
        assert_eq!(t.parse::<Uuid>().map(|u| u.to_string()), Ok(t.to_string()));
        assert!("6b6c".parse::<Uuid>().is_err());
    }
}
