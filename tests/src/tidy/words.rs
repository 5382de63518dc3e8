//! Names and texts that have no place here.

use super::mask::{identifiers, is_word};
use super::{complaint, File};

/// Names that say nothing. `log_data` or `FileInfo` are fine: the rule is about the bare word.
const BANNED: [&str; 10] = [
    "data", "info", "manager", "helper", "helpers", "util", "utils", "process", "misc", "stuff",
];

/// Marks of unfinished work; split, so that this file does not contain them.
const MARKERS: [(&str, &str); 7] = [
    ("TO", "DO"),
    ("FIX", "ME"),
    ("XX", "X"),
    ("HA", "CK:"),
    ("db", "g!("),
    ("to", "do!("),
    ("unimple", "mented!("),
];

/// Places that exist on one machine only, and hosts of package registries (ordinary clients know theirs).
const PLACES: [(&str, &str); 9] = [
    ("/wo", "rk/"),
    ("/ro", "ot/"),
    ("/ho", "me/"),
    ("/Us", "ers/"),
    ("index.cra", "tes.io"),
    ("static.cra", "tes.io"),
    ("registry.np", "mjs.org"),
    ("deb.debian", ".org"),
    ("py", "pi.org"),
];

/// Complaints about identifiers.
pub fn names(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let stem = file
            .path
            .rsplit('/')
            .next()
            .unwrap_or("")
            .trim_end_matches(".rs");
        if BANNED.contains(&stem) {
            complaints.push(complaint(&file.path, 1, "a file name that says nothing"));
        }
        for (number, line) in file.code.lines().enumerate() {
            let chars: Vec<char> = line.chars().collect();
            for (column, word) in identifiers(line) {
                if is_banned(&chars, column, &word, &file.path) {
                    let what = format!("the name `{word}` is banned: say what it is");
                    complaints.push(complaint(&file.path, number + 1, &what));
                }
            }
        }
    }
    complaints
}

/// Fields and methods of others (`event.data()`) and paths (`std::process::exit`) are not ours to name.
fn is_banned(line: &[char], column: usize, word: &str, path: &str) -> bool {
    let before: String = line[..column].iter().collect();
    let after: String = line[column + word.chars().count()..].iter().collect();
    if BANNED.contains(&word) {
        // `data-act` is an attribute in HTML.
        let foreign = before.ends_with('.')
            || before.ends_with("::")
            || after.starts_with("::")
            || after.starts_with('-');
        return !foreign;
    }
    // In the file systems a handle is JBD2's, and its functions may say so.
    let of_a_journal = path.starts_with("core/src/fs/");
    !of_a_journal && word.starts_with("handle_") && before.trim_end().ends_with("fn")
}

/// Complaints about left-over marks, machine paths and registry hosts in any text file.
pub fn texts(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    let join = |(a, b): &(&str, &str)| format!("{a}{b}");
    for file in files.iter().filter(|file| file.path != "Cargo.lock") {
        for (number, line) in file.text.lines().enumerate() {
            for marker in MARKERS
                .iter()
                .map(join)
                .filter(|marker| has_word(line, marker))
            {
                let what = format!("left-over `{marker}`");
                complaints.push(complaint(&file.path, number + 1, &what));
            }
            for place in PLACES
                .iter()
                .map(join)
                .filter(|place| has_place(line, place))
            {
                let what = format!("`{place}` exists on some machines only");
                complaints.push(complaint(&file.path, number + 1, &what));
            }
        }
    }
    complaints
}

fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back().unwrap_or(' ');
        let after = line[at + word.len()..].chars().next().unwrap_or(' ');
        !is_word(before) && (!is_word(after) || word.ends_with('('))
    })
}

/// An absolute path starts after something that is no path itself.
fn has_place(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(at, _)| {
        let before = line[..at].chars().next_back().unwrap_or(' ');
        !place.starts_with('/') || !(is_word(before) || ['.', '/', '~', '}', ')'].contains(&before))
    })
}

/// Complaints about colours that are not tokens.
pub fn colours(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| wears_colour(&file.path)) {
        for (number, line) in file.text.lines().enumerate() {
            if has_colour(line) {
                let what = "a colour outside of the tokens";
                complaints.push(complaint(&file.path, number + 1, what));
            }
        }
    }
    complaints
}

fn wears_colour(path: &str) -> bool {
    let styled = path.starts_with("web/src/") || path.starts_with("static/");
    let kind = [".rs", ".css", ".html", ".js"]
        .iter()
        .any(|end| path.ends_with(end));
    styled && kind && !path.contains("token")
}

/// `#1b2631`, `#fff`, `rgb(1`, `hsl(2`: a quote, a blank or a colon before it and digits after.
fn has_colour(line: &str) -> bool {
    let called = ["rgb(", "rgba(", "hsl(", "hsla("].iter().any(|call| {
        line.match_indices(call).any(|(at, _)| {
            let before = line[..at].chars().next_back().unwrap_or(' ');
            let after = line[at + call.len()..].chars().next().unwrap_or(' ');
            !is_word(before) && after.is_ascii_digit()
        })
    });
    called
        || line.match_indices('#').any(|(at, _)| {
            let before = line[..at].chars().next_back().unwrap_or(' ');
            let digits = line[at + 1..]
                .chars()
                .take_while(char::is_ascii_hexdigit)
                .count();
            let after = line[at + 1..].chars().nth(digits).unwrap_or(' ');
            ['"', '\'', ' ', ':', ','].contains(&before)
                && [3, 4, 6, 8].contains(&digits)
                && !is_word(after)
                && after != '-'
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn banned(code: &str) -> usize {
        names(&[File::new("core/src/a.rs", code)]).len()
    }

    #[test]
    fn bare_names_are_banned() {
        for code in [
            "let data = 1;",
            "fn f(info: u8) {}",
            "struct S { data: u8 }",
            "mod util { }",
            "fn handle_write() {}",
            "let f = |data| data;",
        ] {
            assert!(banned(code) > 0, "{code}");
        }
        assert_eq!(names(&[File::new("core/src/util.rs", "")]).len(), 1);
    }

    #[test]
    fn names_that_say_something_pass() {
        for code in [
            "let file_data = event.data();",
            "std::process::exit(2);",
            "use std::process::Command; enum E { Data }",
            "// data",
            "let x = \"data\";",
            "self.handle_credits();",
            "let handle_count = 1;",
        ] {
            assert_eq!(banned(code), 0, "{code}");
        }
    }

    #[test]
    fn marks_and_places_are_found() {
        let join = |(a, b): &(&str, &str)| format!("{a}{b}");
        for text in MARKERS.iter().chain(&PLACES).map(join) {
            let line = format!("x = {text} y");
            assert_eq!(texts(&[File::new("a.md", &line)]).len(), 1, "{line}");
        }
        let fine = "tests/framework/ and ~/work/ and ../work/ and TODOS and a/home/b";
        assert_eq!(texts(&[File::new("a.md", fine)]), Vec::<String>::new());
    }

    #[test]
    fn colours_are_found() {
        for line in [
            "color: #1B2631;",
            "let c = \"#fff\";",
            "fill: rgb(1, 2, 3)",
            "hsla(10,1%,1%,1)",
        ] {
            assert_eq!(
                colours(&[File::new("web/src/draw/a.rs", line)]).len(),
                1,
                "{line}"
            );
        }
        for line in [
            "<a href=\"#deed-x\">",
            "#[derive(Clone)]",
            "let c = rgb(ink)",
            "#add-row {",
            "url(#f)",
        ] {
            assert_eq!(
                colours(&[File::new("static/a.css", line)]).len(),
                0,
                "{line}"
            );
        }
        assert_eq!(
            colours(&[File::new("static/tokens.css", "--ink: #1B2631;")]).len(),
            0
        );
    }
}
