//! Sizes and times as people write them.

use crate::base::Nanos;

/// Parses a number in decimal or `0x` hexadecimal.
pub fn parse_number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => text.parse().ok(),
    }
}

/// Parses a size with a binary suffix: `4k`, `64M`, `1g`, `16T`, `512` (bytes); `KiB`, `MB` spellings are accepted
/// and also binary, as in fio with its default `kb_base=1024`.
pub fn parse_size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits_end = match text.strip_prefix("0x") {
        Some(hex) => {
            2 + hex
                .find(|c: char| !c.is_ascii_hexdigit())
                .unwrap_or(hex.len())
        }
        None => text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len()),
    };
    let n = parse_number(&text[..digits_end])?;
    let suffix = text[digits_end..].to_ascii_lowercase();
    let suffix = suffix
        .strip_suffix("ib")
        .or_else(|| suffix.strip_suffix('b'))
        .unwrap_or(&suffix);
    let shift = match suffix {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        _ => return None,
    };
    n.checked_mul(1 << shift)
}

/// Parses a duration: `ns us ms s m h d`; a bare number is in `unit`.
pub fn parse_time(text: &str, unit: Nanos) -> Option<Nanos> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let scale = match text[end..].trim().to_ascii_lowercase().as_str() {
        "" => unit.0,
        "ns" | "nsec" => 1,
        "us" | "usec" => 1_000,
        "ms" | "msec" => 1_000_000,
        "s" | "sec" | "seconds" => 1_000_000_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        _ => return None,
    };
    let (whole, fraction) = text[..end].split_once('.').unwrap_or((&text[..end], ""));
    let mut total = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    let mut place = scale;
    for digit in fraction.bytes() {
        if !digit.is_ascii_digit() {
            return None;
        }
        place /= 10;
        total = total.checked_add(u64::from(digit - b'0') * place)?;
    }
    Some(Nanos(total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_binary() {
        assert_eq!(parse_size("4k"), Some(4096));
        assert_eq!(parse_size("64M"), Some(64 << 20));
        assert_eq!(parse_size("1GiB"), Some(1 << 30));
        assert_eq!(parse_size("16T"), Some(16 << 40));
        assert_eq!(parse_size("0x10"), Some(16));
        assert_eq!(parse_size("4q"), None);
        assert_eq!(parse_size(""), None);
        assert_eq!(parse_size("99999999999T"), None);
    }

    #[test]
    fn times_have_units() {
        let s = Nanos::from_secs(1);
        assert_eq!(parse_time("30", s), Some(Nanos::from_secs(30)));
        assert_eq!(parse_time("1.5s", s), Some(Nanos::from_ms(1500)));
        assert_eq!(parse_time("250us", s), Some(Nanos::from_us(250)));
        assert_eq!(parse_time("2m", s), Some(Nanos::from_secs(120)));
        assert_eq!(parse_time("5x", s), None);
    }
}
