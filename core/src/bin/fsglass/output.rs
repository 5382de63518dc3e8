//! Reading and writing files and streams with errors that name the file.

use std::fs;
use std::io::{self, Read, Write};

/// Prints to standard output; a closed pipe is not an error.
pub(crate) fn say(text: &str) {
    let mut out = io::stdout().lock();
    let end = if text.ends_with('\n') { "" } else { "\n" };
    // The reader may have gone away (`| head`).
    let _ = write!(out, "{text}{end}");
}

/// Prints one line to standard error.
pub(crate) fn complain(reason: &str) {
    let one_line = reason.split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = writeln!(io::stderr(), "fsglass: {one_line}");
}

/// Text of a file, or of standard input for `-`.
pub(crate) fn read_text(name: &str) -> Result<String, String> {
    let bytes = read_bytes(name)?;
    String::from_utf8(bytes).map_err(|e| {
        let at = e.utf8_error().valid_up_to();
        format!("{name}: not text: byte {at} is not UTF-8")
    })
}

/// Bytes of a file, or of standard input for `-`.
pub(crate) fn read_bytes(name: &str) -> Result<Vec<u8>, String> {
    if name == "-" {
        let mut v = Vec::new();
        return match io::stdin().read_to_end(&mut v) {
            Ok(_) => Ok(v),
            Err(e) => Err(format!("standard input: {e}")),
        };
    }
    fs::read(name).map_err(|e| format!("{name}: {e}"))
}

/// Writes text to a file, or to standard output for `-`.
pub(crate) fn write_text(name: &str, text: &str) -> Result<(), String> {
    if name == "-" {
        say(text);
        return Ok(());
    }
    let end = if text.ends_with('\n') { "" } else { "\n" };
    fs::write(name, format!("{text}{end}")).map_err(|e| format!("{name}: {e}"))
}

/// Pretty JSON.
pub(crate) fn json_text(value: &serde_json::Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}
