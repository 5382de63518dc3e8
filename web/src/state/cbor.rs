//! The few kinds of CBOR (RFC 8949) that a link needs: a map with small integer keys to unsigned numbers or text.

/// A value in a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Unsigned number.
    Uint(u64),
    /// Text.
    Text(String),
}

fn head(out: &mut Vec<u8>, major: u8, value: u64) {
    let major = major << 5;
    if value < 24 {
        out.push(major | value as u8);
    } else if let Ok(byte) = u8::try_from(value) {
        out.extend([major | 0x18, byte]);
    } else if let Ok(short) = u16::try_from(value) {
        out.push(major | 0x19);
        out.extend(short.to_be_bytes());
    } else if let Ok(word) = u32::try_from(value) {
        out.push(major | 0x1a);
        out.extend(word.to_be_bytes());
    } else {
        out.push(major | 0x1b);
        out.extend(value.to_be_bytes());
    }
}

/// Encodes pairs as one map.
pub fn encode(pairs: &[(u64, Value)]) -> Vec<u8> {
    let mut out = Vec::new();
    head(&mut out, 5, pairs.len() as u64);
    for (key, value) in pairs {
        head(&mut out, 0, *key);
        match value {
            Value::Uint(n) => head(&mut out, 0, *n),
            Value::Text(text) => {
                head(&mut out, 3, text.len() as u64);
                out.extend(text.as_bytes());
            }
        }
    }
    out
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take(&mut self, n: usize) -> Option<&[u8]> {
        if self.0.len() < n {
            return None;
        }
        let (front, rest) = self.0.split_at(n);
        self.0 = rest;
        Some(front)
    }

    fn head(&mut self) -> Option<(u8, u64)> {
        let first = self.take(1)?[0];
        let width = match first & 31 {
            small @ 0..=23 => return Some((first >> 5, u64::from(small))),
            24 => 1,
            25 => 2,
            26 => 4,
            27 => 8,
            _ => return None,
        };
        let value = self
            .take(width)?
            .iter()
            .fold(0, |acc, b| acc << 8 | u64::from(*b));
        Some((first >> 5, value))
    }
}

/// Decodes one map. Anything else, or anything left over, is `None`.
pub fn decode(bytes: &[u8]) -> Option<Vec<(u64, Value)>> {
    let mut reader = Reader(bytes);
    let (5, pairs) = reader.head()? else {
        return None;
    };
    let mut out = Vec::new();
    for _ in 0..pairs {
        let (0, key) = reader.head()? else {
            return None;
        };
        let value = match reader.head()? {
            (0, n) => Value::Uint(n),
            (3, len) => {
                let text = reader.take(usize::try_from(len).ok()?)?;
                Value::Text(String::from_utf8(text.to_vec()).ok()?)
            }
            _ => return None,
        };
        out.push((key, value));
    }
    reader.0.is_empty().then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trip_and_rfc_vector() {
        let pairs = vec![
            (1, Value::Uint(1_000_000_000_000)),
            (24, Value::Text("fsync".into())),
            (300, Value::Uint(23)),
        ];
        assert_eq!(decode(&encode(&pairs)), Some(pairs));
        // RFC 8949 appendix A: 1000000000000.
        assert_eq!(
            &encode(&[(0, Value::Uint(1_000_000_000_000))])[2..],
            &[0x1b, 0, 0, 0, 0xe8, 0xd4, 0xa5, 0x10, 0]
        );
    }

    #[test]
    fn broken_bytes_are_refused() {
        for bytes in [
            &[][..],
            &[0xbf],
            &[0xa1, 0],
            &[0xa0, 0],
            &[0xbb, 255, 255, 255, 255, 255, 255, 255, 255],
        ] {
            assert_eq!(decode(bytes), None);
        }
    }
}
