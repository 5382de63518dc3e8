//! PostMark's own command language, as far as a file needs it.

use crate::workload::size::parse_size;
use std::fmt;

/// Chance in tenths of the first of two choices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bias {
    /// Neither is done (`-1`).
    Off,
    /// 0 to 10 tenths.
    Tenths(u8),
}

/// What one `run` runs with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Files that exist at the same time, at the start.
    pub number: u32,
    /// Transactions.
    pub transactions: u32,
    /// Smallest size of a new file in bytes.
    pub size_low: u32,
    /// Limit of sizes in bytes.
    pub size_high: u32,
    /// Subdirectories `s0`, `s1` ..; one or none leaves the files in the location itself.
    pub subdirectories: u32,
    /// Bytes asked for with each read.
    pub read_block: u32,
    /// Bytes given with each write.
    pub write_block: u32,
    /// Reads rather than appends.
    pub bias_read: Bias,
    /// Creations rather than deletions.
    pub bias_create: Bias,
    /// Through the C library's buffered files rather than plain read and write.
    pub buffering: bool,
    /// Seed of the choices.
    pub seed: u32,
    /// Directory within the file system.
    pub location: String,
    /// One line of numbers instead of the whole report.
    pub terse: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            number: 500,
            transactions: 500,
            size_low: 500,
            size_high: 10_000,
            subdirectories: 0,
            read_block: 512,
            write_block: 512,
            bias_read: Bias::Tenths(5),
            bias_create: Bias::Tenths(5),
            buffering: true,
            seed: 42,
            location: String::new(),
            terse: false,
        }
    }
}

/// A file of commands: the settings of each `run`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostmarkFile {
    /// One entry for each `run`; one with the final settings if the file has none.
    pub runs: Vec<Settings>,
}

/// A line that is not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// Line, from 1.
    pub line: u32,
    /// What is wrong and what would be right.
    pub reason: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.reason)
    }
}

/// Most files; the table of twice as many is kept in memory.
const NUMBER_MAX: u64 = 1 << 22;
const TRANSACTIONS_MAX: u64 = 1_000_000_000;
/// Largest file: the tool makes a text twice as long before it starts.
const SIZE_MAX: u64 = 64 << 20;
const BLOCK_MAX: u64 = 16 << 20;
const SUBDIRECTORIES_MAX: u64 = 1_000_000;

const KNOWN: &str = "set size, number, seed, transactions, location, subdirectories, read, write, \
                     buffering, bias read, bias create, report; run, quit";

/// Reads a file of commands. Empty lines and lines that start with `#` are skipped; nothing after `quit` is read.
pub fn parse_postmark(text: &str) -> Result<PostmarkFile, ConfigError> {
    let mut settings = Settings::default();
    let mut runs = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let fail = |reason: String| ConfigError {
            line: i as u32 + 1,
            reason,
        };
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [] | ["show" | "help" | "?"] => {}
            [first, ..] if first.starts_with('#') => {}
            ["set", rest @ ..] => set(&mut settings, rest).map_err(fail)?,
            ["run"] => runs.push(settings.clone()),
            ["run", ..] => {
                return Err(fail("`run` takes no file here; the report goes out".into()))
            }
            ["quit" | "exit"] => break,
            ["load", ..] => return Err(fail("`load` is not supported; put its lines here".into())),
            _ => return Err(fail(format!("`{}` is no command; {KNOWN}", line.trim()))),
        }
    }
    if runs.is_empty() {
        runs.push(settings);
    }
    Ok(PostmarkFile { runs })
}

fn set(s: &mut Settings, words: &[&str]) -> Result<(), String> {
    match words {
        ["size", low] => {
            s.size_low = number("size", low, 1, SIZE_MAX)?;
            s.size_high = s.size_low;
        }
        ["size", low, high] => {
            let low = number("size", low, 1, SIZE_MAX)?;
            let high = number("size", high, 1, SIZE_MAX)?;
            if high < low {
                return Err(format!("size {low} {high}: the second is the larger one"));
            }
            (s.size_low, s.size_high) = (low, high);
        }
        ["number", n] => s.number = number("number", n, 1, NUMBER_MAX)?,
        ["transactions", n] => {
            s.transactions = number("transactions", n, 1, TRANSACTIONS_MAX)?;
        }
        ["subdirectories", n] => {
            s.subdirectories = number("subdirectories", n, 0, SUBDIRECTORIES_MAX)?;
        }
        ["read", n] => s.read_block = number("read", n, 1, BLOCK_MAX)?,
        ["write", n] => s.write_block = number("write", n, 1, BLOCK_MAX)?,
        ["seed", n] => s.seed = number("seed", n, 0, u64::from(u32::MAX))?,
        ["bias", "read", n] => s.bias_read = bias(n)?,
        ["bias", "create", n] => s.bias_create = bias(n)?,
        ["buffering", "true"] => s.buffering = true,
        ["buffering", "false"] => s.buffering = false,
        ["buffering", other] => return Err(format!("buffering `{other}`: true or false")),
        ["report", "terse"] => s.terse = true,
        ["report", "verbose"] => s.terse = false,
        ["report", other] => return Err(format!("report `{other}`: verbose or terse")),
        ["location", path] => s.location = path.trim_matches('/').to_string(),
        ["location", _, ..] => return Err("location: one path; weights are not supported".into()),
        _ => return Err(format!("`set {}` is unknown; {KNOWN}", words.join(" "))),
    }
    Ok(())
}

fn number(what: &str, text: &str, min: u64, max: u64) -> Result<u32, String> {
    match parse_size(text) {
        Some(n) if (min..=max).contains(&n) => {
            u32::try_from(n).map_err(|_| format!("{what} `{text}` is too large"))
        }
        _ => Err(format!(
            "{what} `{text}` is not a number from {min} to {max}"
        )),
    }
}

fn bias(text: &str) -> Result<Bias, String> {
    match text.parse::<i8>() {
        Ok(-1) => Ok(Bias::Off),
        Ok(n @ 0..=10) => Ok(Bias::Tenths(n as u8)),
        _ => Err(format!("bias `{text}`: 0 to 10, or -1 for neither")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read_and_each_run_keeps_its_own() {
        let f = parse_postmark(
            "# mail\nset number 20\nset size 300 1700\nset bias read -1\nset buffering false\n\
             set location /a/b\nrun\nset size 4k\nset subdirectories 3\nrun\nquit\nnonsense\n",
        );
        let f = f.unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(f.runs.len(), 2);
        let (a, b) = (&f.runs[0], &f.runs[1]);
        assert_eq!((a.number, a.size_low, a.size_high), (20, 300, 1700));
        assert_eq!((a.bias_read, a.bias_create), (Bias::Off, Bias::Tenths(5)));
        assert_eq!((a.location.as_str(), a.subdirectories), ("a/b", 0));
        assert!(!a.buffering);
        assert_eq!((b.size_low, b.size_high, b.subdirectories), (4096, 4096, 3));
    }

    #[test]
    fn a_file_without_run_runs_once() {
        let f = parse_postmark("set seed 7\n").map(|f| (f.runs.len(), f.runs[0].seed));
        assert_eq!(f, Ok((1, 7)));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, line, part) in [
            ("set nummer 3\nrun\n", 1, "`set nummer 3` is unknown"),
            ("\nrun\nwalk\n", 3, "`walk` is no command"),
            ("set number 0\n", 1, "number `0`"),
            ("set size 10 5\n", 1, "the second is the larger"),
            ("set bias read 11\n", 1, "0 to 10"),
            ("set bias write 3\n", 1, "is unknown"),
            ("set buffering maybe\n", 1, "true or false"),
            ("set read 0\n", 1, "from 1"),
            ("set location a 3\n", 1, "one path"),
            ("load f\n", 1, "`load` is not supported"),
        ] {
            let e = parse_postmark(text).expect_err(text);
            assert_eq!(e.line, line, "{text}");
            assert!(e.reason.contains(part), "{text}: {e}");
        }
    }
}
