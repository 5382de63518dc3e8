//! What the person at the terminal sees.

use std::io::Write;
use std::time::Duration;

/// A line of progress.
pub(crate) fn note(text: &str) {
    println!("[fsglass] {text}");
    // A closed pipe is no reason to stop the work.
    let _ = std::io::stdout().flush();
}

/// `12.3 s` or `4 min 05 s`.
pub(crate) fn seconds(time: Duration) -> String {
    let whole = time.as_secs();
    if whole < 60 {
        format!("{:.1} s", time.as_secs_f64())
    } else {
        format!("{} min {:02} s", whole / 60, whole % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_well() {
        assert_eq!(seconds(Duration::from_millis(1250)), "1.2 s");
        assert_eq!(seconds(Duration::from_secs(245)), "4 min 05 s");
    }
}
