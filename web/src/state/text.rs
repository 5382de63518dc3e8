//! Numbers as they are printed: thin-space thousands, real minus and times signs, binary bytes.

/// Thin space between thousands.
pub const THIN: char = '\u{2009}';

/// `12345` as `12 345` with thin spaces.
pub fn thousands(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            out.push(THIN);
        }
        out.push(c);
    }
    out
}

/// Bytes in binary units with three significant digits.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 6] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut unit = 0;
    let mut scaled = value as f64;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    format!("{}{THIN}{}", significant(scaled), UNITS[unit])
}

/// Three significant digits, without an exponent.
pub fn significant(value: f64) -> String {
    if (value - value.round()).abs() < 1e-9 && value.abs() < 10_000.0 {
        return format!("{value:.0}");
    }
    let magnitude = value.abs();
    if magnitude > 0.0 && magnitude < 0.1 {
        // Leading zeroes are no digits of the value.
        let places = (2.0 - magnitude.log10().floor()).min(12.0) as usize;
        let text = format!("{value:.places$}");
        return text.trim_end_matches('0').to_string();
    }
    if magnitude >= 100.0 {
        format!("{value:.0}")
    } else if magnitude >= 10.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.2}")
    }
}

/// An instant as seconds with the digits grouped: `3.201 440 s`.
pub fn instant(ns: u64) -> String {
    let micros = ns / 1_000;
    format!(
        "{}.{:03}{THIN}{:03}{THIN}s",
        thousands(micros / 1_000_000),
        micros / 1_000 % 1_000,
        micros % 1_000
    )
}

/// An instant with milliseconds only, `6.000 s`.
pub fn instant_short(ns: u64) -> String {
    format!(
        "{}.{:03}{THIN}s",
        thousands(ns / 1_000_000_000),
        ns / 1_000_000 % 1_000
    )
}

/// A duration in the unit that suits it.
pub fn duration(ns: u64) -> String {
    let value = ns as f64;
    let (scaled, unit) = if ns < 1_000 {
        (value, "ns")
    } else if ns < 1_000_000 {
        (value / 1e3, "µs")
    } else if ns < 1_000_000_000 {
        (value / 1e6, "ms")
    } else if ns < 120_000_000_000 {
        (value / 1e9, "s")
    } else {
        (value / 60e9, "min")
    };
    format!("{}{THIN}{unit}", significant(scaled))
}

/// `1 file`, `2 files`.
pub fn count(n: u64, one: &str, many: &str) -> String {
    if n == 1 {
        format!("1 {one}")
    } else {
        format!("{} {many}", thousands(n))
    }
}

/// Reads `6s`, `250ms`, `1.5`, `12 345 678ns` (no unit: seconds) as nanoseconds.
pub fn parse_instant(text: &str) -> Option<u64> {
    let cleaned: String = text
        .chars()
        .filter(|c| !c.is_whitespace() && *c != '_')
        .collect();
    let split = cleaned
        .find(|c: char| c.is_alphabetic() || c == 'µ')
        .unwrap_or(cleaned.len());
    let (number, unit) = cleaned.split_at(split);
    let scale: f64 = match unit {
        "" | "s" => 1e9,
        "ms" => 1e6,
        "us" | "µs" => 1e3,
        "ns" => 1.0,
        "min" | "m" => 60e9,
        _ => return None,
    };
    let value: f64 = number.parse().ok()?;
    (value.is_finite() && value >= 0.0).then_some((value * scale).round() as u64)
}

/// A speed as the sentence beside the slider.
pub fn speed_sentence(speed: f64) -> String {
    if speed <= 0.0 {
        return "as fast as the engine goes".into();
    }
    let ns = (speed * 1e9).round() as u64;
    format!("1 s here is {} on the disk", duration(ns))
}

/// `0.001×`, `30×`.
pub fn speed(value: f64) -> String {
    if value <= 0.0 {
        "max".into()
    } else if value < 0.01 {
        format!("{value:.3}×")
    } else if value < 1.0 {
        format!("{value:.2}×")
    } else {
        format!("{}×", significant(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped() {
        assert_eq!(thousands(0), "0");
        assert_eq!(thousands(999), "999");
        assert_eq!(thousands(1_234_567), "1\u{2009}234\u{2009}567");
        assert_eq!(instant(3_201_440_123), "3.201\u{2009}440\u{2009}s");
    }

    #[test]
    fn units_follow_size() {
        assert_eq!(bytes(4096), "4\u{2009}KiB");
        assert_eq!(bytes(160_000_000_000), "149\u{2009}GiB");
        assert_eq!(significant(0.0037), "0.0037");
        assert_eq!(duration(1_500_000), "1.50\u{2009}ms");
        assert_eq!(duration(28_000_000), "28\u{2009}ms");
    }

    #[test]
    fn instants_are_read_back() {
        assert_eq!(parse_instant("6s"), Some(6_000_000_000));
        assert_eq!(parse_instant("250ms"), Some(250_000_000));
        assert_eq!(parse_instant("1.5"), Some(1_500_000_000));
        assert_eq!(parse_instant("6\u{2009}000ms"), Some(6_000_000_000));
        assert_eq!(parse_instant("6 parsecs"), None);
        assert_eq!(parse_instant("-1s"), None);
        assert_eq!(parse_instant("nans"), None);
    }
}
