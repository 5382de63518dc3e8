//! Workloads to start from, and PostMark's settings as fields: each edits the line of its command.

use super::store::State;

/// Name, kind, text.
pub const PRESETS: [(&str, &str, &str); 5] = [
    (
        "fsync after each write (fio)",
        "fio",
        include_str!("../../../static/presets/fsync-loop.fio"),
    ),
    (
        "four writers, group commit (fio)",
        "fio",
        include_str!("../../../static/presets/four-writers.fio"),
    ),
    (
        "reads and writes, queued (fio)",
        "fio",
        include_str!("../../../static/presets/mixed.fio"),
    ),
    (
        "a small mail server (PostMark)",
        "postmark",
        include_str!("../../../static/presets/mail.pm"),
    ),
    (
        "replace a file by rename",
        "ops",
        include_str!("../../../static/presets/replace.ops"),
    ),
];

/// PostMark's settings that have a field: name of the command, and what PostMark takes without it.
pub const POSTMARK: [(&str, &str); 6] = [
    ("number", "500"),
    ("transactions", "500"),
    ("size", "500 10000"),
    ("subdirectories", "0"),
    ("bias read", "5"),
    ("bias create", "5"),
];

/// What stands after `set NAME` on a line, if it is such a line.
fn setting<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let mut rest = line.trim();
    for word in std::iter::once("set").chain(name.split(' ')) {
        rest = rest.strip_prefix(word)?;
        if !rest.starts_with(char::is_whitespace) {
            return None;
        }
        rest = rest.trim_start();
    }
    Some(rest)
}

/// The value of a setting in PostMark's commands; the last one counts.
pub fn postmark(text: &str, name: &str) -> Option<String> {
    let found = text.lines().rev().find_map(|line| setting(line, name));
    found.map(|value| value.trim().to_string())
}

/// The commands with another value of a setting; an empty value takes the line out.
pub fn with_postmark(text: &str, name: &str, value: &str) -> String {
    let line = format!("set {name} {}", value.trim());
    let given = !value.trim().is_empty();
    let mut out: Vec<&str> = Vec::new();
    let mut placed = false;
    for old in text.lines() {
        if setting(old, name).is_none() {
            if given && !placed && old.trim() == "run" {
                out.push(&line);
                placed = true;
            }
            out.push(old);
        } else if given && !placed {
            out.push(&line);
            placed = true;
        }
    }
    if given && !placed {
        out.push(&line);
    }
    out.join("\n") + "\n"
}

impl State {
    /// Puts a preset into the editor.
    pub(super) fn preset(&mut self, i: usize) {
        if let Some((_, kind, text)) = PRESETS.get(i) {
            self.draft.kind = (*kind).into();
            self.draft.workload = (*text).into();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_found_and_changed() {
        let text = "set number 20\nset bias read 7\nrun\n";
        assert_eq!(postmark(text, "number").as_deref(), Some("20"));
        assert_eq!(postmark(text, "bias read").as_deref(), Some("7"));
        assert_eq!(postmark(text, "bias create"), None);
        assert_eq!(postmark("setnumber 3\nset numbers 4\n", "number"), None);
        assert_eq!(
            with_postmark(text, "number", " 30 "),
            "set number 30\nset bias read 7\nrun\n"
        );
        assert_eq!(
            with_postmark(text, "size", "1 2"),
            "set number 20\nset bias read 7\nset size 1 2\nrun\n"
        );
        assert_eq!(with_postmark(text, "bias read", ""), "set number 20\nrun\n");
        assert_eq!(with_postmark("", "number", "5"), "set number 5\n");
    }

    #[test]
    fn presets_say_what_they_are() {
        for (name, kind, text) in PRESETS {
            assert!(
                matches!(kind, "fio" | "ops" | "postmark") && text.ends_with('\n'),
                "{name}"
            );
        }
    }
}
