//! Files of at most 1,000 lines, functions of at most 70 code lines.

use super::mask::{identifiers, is_word};
use super::{complaint, File};

/// Longest file.
pub const FILE_LINES_MAX: usize = 1000;
/// Longest function, counted from its `fn` to its last brace without blank lines and comments.
pub const FUNCTION_LINES_MAX: usize = 70;

/// A function with a body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Function {
    /// As written.
    pub name: String,
    /// Of its `fn`, from 1.
    pub line: usize,
    /// Code lines.
    pub length: usize,
}

/// Complaints about what is too long.
pub fn check(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| is_source(&file.path)) {
        let lines = file.text.lines().count();
        if lines > FILE_LINES_MAX {
            let what = format!("{lines} lines, at most {FILE_LINES_MAX}");
            complaints.push(complaint(&file.path, lines, &what));
        }
        if file.is_rust() {
            for function in functions(&file.code) {
                if function.length > FUNCTION_LINES_MAX {
                    let what = format!(
                        "function {} has {} code lines, at most {FUNCTION_LINES_MAX}",
                        function.name, function.length
                    );
                    complaints.push(complaint(&file.path, function.line, &what));
                }
            }
        }
    }
    complaints
}

fn is_source(path: &str) -> bool {
    [".rs", ".mjs", ".js", ".css", ".html", ".py", ".sh"]
        .iter()
        .any(|end| path.ends_with(end))
}

/// Every function with a body in masked code, nested ones too.
pub fn functions(code: &str) -> Vec<Function> {
    let lines: Vec<&str> = code.lines().collect();
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        for pair in identifiers(line).windows(2) {
            let (column, word) = &pair[0];
            let (name_column, name) = &pair[1];
            let adjacent = line
                .chars()
                .take(*name_column)
                .skip(column + 2)
                .all(char::is_whitespace);
            if word != "fn" || !adjacent {
                continue;
            }
            if let Some(length) = body_length(&lines[number..], *column) {
                found.push(Function {
                    name: name.clone(),
                    line: number + 1,
                    length,
                });
            }
        }
    }
    found
}

/// Code lines from the first line to the brace that closes the body; `None` for a declaration.
fn body_length(lines: &[&str], start_column: usize) -> Option<usize> {
    let (mut braces, mut brackets) = (0usize, 0usize);
    let mut length = 0;
    for (number, line) in lines.iter().enumerate() {
        if line.chars().any(|c| !c.is_whitespace()) {
            length += 1;
        }
        let skip = if number == 0 { start_column } else { 0 };
        for c in line.chars().skip(skip) {
            match c {
                '(' | '[' => brackets += 1,
                ')' | ']' => brackets = brackets.saturating_sub(1),
                ';' if braces == 0 && brackets == 0 => return None,
                '{' => braces += 1,
                '}' => {
                    braces = braces.saturating_sub(1);
                    if braces == 0 {
                        return Some(length);
                    }
                }
                _ => {}
            }
        }
    }
    None
}

/// Modules that no `mod` line names: files that the compiler never sees.
pub fn orphans(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let Some((package, inside)) = file.path.split_once("/src/") else {
            continue;
        };
        let stem = inside.trim_end_matches(".rs");
        let stem = stem.strip_suffix("/mod").unwrap_or(stem);
        if ["lib", "main", "app", "worker"].contains(&stem) || stem.starts_with("bin/") {
            continue;
        }
        let (folder, name) = stem.rsplit_once('/').unwrap_or(("", stem));
        let parents = if folder.is_empty() {
            ["lib.rs", "main.rs", "app.rs", "worker.rs"]
                .map(|root| format!("{package}/src/{root}"))
                .to_vec()
        } else {
            vec![
                format!("{package}/src/{folder}/mod.rs"),
                format!("{package}/src/{folder}.rs"),
            ]
        };
        let declared = files
            .iter()
            .filter(|other| parents.contains(&other.path))
            .any(|other| declares(&other.code, name));
        if !declared {
            complaints.push(complaint(&file.path, 1, "no `mod` line names this file"));
        }
    }
    complaints
}

fn declares(code: &str, name: &str) -> bool {
    let wanted = format!("mod {name}");
    code.match_indices(&wanted).any(|(at, _)| {
        let after = code[at + wanted.len()..].chars().next().unwrap_or(';');
        !is_word(after)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_measured() {
        let code = "trait T { fn declared(&self) -> [u8; 4]; }\n\
                    pub async fn long<T>(\n    x: T,\n)\nwhere\n    T: Copy,\n{\n\n    if x { y }\n}\n\
                    fn short() {}\n";
        let found: Vec<(String, usize, usize)> = functions(code)
            .into_iter()
            .map(|f| (f.name, f.line, f.length))
            .collect();
        assert_eq!(
            found,
            [("long".to_owned(), 2, 8), ("short".to_owned(), 11, 1)]
        );
    }

    #[test]
    fn what_is_too_long_is_named() {
        let body = "    x();\n".repeat(FUNCTION_LINES_MAX);
        let text = format!("fn f() {{\n{body}}}\n");
        assert_eq!(check(&[File::new("core/src/a.rs", &text)]).len(), 1);
        let body = "    x();\n    // why\n\n".repeat(FUNCTION_LINES_MAX - 2);
        let text = format!("fn f() {{\n{body}}}\n");
        assert_eq!(
            check(&[File::new("core/src/a.rs", &text)]),
            Vec::<String>::new()
        );
        let text = "\n".repeat(FILE_LINES_MAX + 1);
        assert_eq!(check(&[File::new("static/style.css", &text)]).len(), 1);
    }

    #[test]
    fn orphans_are_found() {
        let files = [
            File::new("core/src/lib.rs", "pub mod base;"),
            File::new("core/src/base/mod.rs", "mod units; // mod gone;"),
            File::new("core/src/base/units.rs", ""),
            File::new("core/src/base/gone.rs", ""),
        ];
        assert_eq!(
            orphans(&files),
            ["core/src/base/gone.rs:1: no `mod` line names this file"]
        );
    }
}
