//! Things that the text promises: a source for each on-disk structure, an entry in COMPAT.md for each simplification.

use super::mask::identifiers;
use super::{complaint, File};

/// The mark of a simplification against Linux; split, so that this file has none.
fn mark() -> String {
    ["SIMPLI", "FIED:"].concat()
}

/// Every public struct of `core/src/format` names the header file it comes from, in its documentation or in the head of
/// its module, or says that it is not on disk.
pub fn sources(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files
        .iter()
        .filter(|file| file.path.starts_with("core/src/format/"))
    {
        let text: Vec<&str> = file.text.lines().collect();
        let head: Vec<&str> = text
            .iter()
            .copied()
            .filter(|line| line.starts_with("//!"))
            .collect();
        if names_a_source(&head.join("\n")) {
            continue;
        }
        for (number, line) in file.code.lines().enumerate() {
            let words: Vec<String> = identifiers(line)
                .into_iter()
                .map(|(_, word)| word)
                .collect();
            let [first, second, name, ..] = words.as_slice() else {
                continue;
            };
            // `$name` in a macro is no structure yet.
            if first != "pub" || second != "struct" || line.contains('$') {
                continue;
            }
            let documentation = documentation_before(&text[..number]);
            if !names_a_source(&documentation) {
                let what = format!(
                    "{name} names neither its kernel file (`.h`, `.c`) nor \"not on disk\""
                );
                complaints.push(complaint(&file.path, number + 1, &what));
            }
        }
    }
    complaints
}

fn documentation_before(lines: &[&str]) -> String {
    let above = lines.iter().rev().map(|line| line.trim());
    let block: Vec<&str> = above
        .take_while(|line| {
            line.starts_with("///") || line.starts_with("#[") || line.ends_with(")]")
        })
        .collect();
    block.join("\n")
}

fn names_a_source(documentation: &str) -> bool {
    let lower = documentation.to_lowercase();
    let header = lower
        .split(|c: char| !(c.is_alphanumeric() || "._/-".contains(c)))
        .any(|word| {
            [".h", ".c"]
                .iter()
                .any(|end| word.trim_end_matches('.').ends_with(end))
        });
    header || lower.contains("not on disk")
}

/// COMPAT.md has one line per simplification, with the path of its file from `core/src`; no more and no fewer.
pub fn simplifications(files: &[File]) -> Vec<String> {
    let mark = mark();
    let Some(compat) = files.iter().find(|file| file.path == "COMPAT.md") else {
        return vec![complaint("COMPAT.md", 1, "is missing")];
    };
    let mut complaints = Vec::new();
    for file in files
        .iter()
        .filter(|file| file.path.starts_with("core/src/") && file.is_rust())
    {
        let inside = file.path.trim_start_matches("core/src/");
        let marked = file
            .text
            .lines()
            .filter(|line| line.contains(&mark))
            .count();
        let quoted = format!("`{inside}`");
        let listed = compat
            .text
            .lines()
            .filter(|line| line.contains(&quoted))
            .count();
        if marked != listed {
            let what =
                format!("{marked} simplifications, but COMPAT.md has {listed} lines with {quoted}");
            complaints.push(complaint(&file.path, 1, &what));
        }
    }
    for (number, line) in compat.text.lines().enumerate() {
        for inside in line
            .split('`')
            .filter(|part| part.strip_suffix(".rs").is_some() && part.contains('/'))
        {
            let path = format!("core/src/{inside}");
            if !files.iter().any(|file| file.path == path) {
                let what = format!("{inside} does not exist");
                complaints.push(complaint("COMPAT.md", number + 1, &what));
            }
        }
    }
    complaints
}

/// The top level holds what ARCHITECTURE.md says and nothing else.
pub fn top_level(files: &[File]) -> Vec<String> {
    const KNOWN: [&str; 20] = [
        ".cargo",
        ".ci",
        ".gitignore",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "COMPAT.md",
        "Cargo.lock",
        "Cargo.toml",
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "README.md",
        "Trunk.toml",
        "clippy.toml",
        "core",
        "run",
        "rustfmt.toml",
        "static",
        "tests",
        "web",
        "rust-toolchain.toml",
    ];
    let mut unknown: Vec<&str> = files
        .iter()
        .filter_map(|file| file.path.split('/').next())
        .filter(|top| !KNOWN.contains(top))
        .collect();
    unknown.sort_unstable();
    unknown.dedup();
    unknown
        .iter()
        .map(|top| complaint(top, 1, "is not part of the top level (ARCHITECTURE.md)"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn structures_name_their_source() {
        let with =
            "/// `struct ext4_inode`, fs/ext4/ext4.h.\n#[derive(Clone)]\npub struct Inode {\n}\n";
        let memory = "/// A reader. Not on disk.\npub struct Reader<'a>(&'a [u8]);\n";
        let without = "/// An inode.\npub struct Inode {\n}\n";
        let check = |text: &str| sources(&[File::new("core/src/format/ext4/inode.rs", text)]).len();
        let under_a_head = format!("//! `struct ext4_inode`, fs/ext4/ext4.h.\n{without}");
        assert_eq!(
            (
                check(with),
                check(memory),
                check(without),
                check(&under_a_head)
            ),
            (0, 0, 1, 0)
        );
    }

    #[test]
    fn simplifications_are_listed_one_by_one() {
        let source = File::new(
            "core/src/fs/a.rs",
            &format!("// {} x\n// {} y\n", mark(), mark()),
        );
        let check =
            |compat: &str| simplifications(&[source.clone(), File::new("COMPAT.md", compat)]).len();
        assert_eq!(check("- x (`fs/a.rs`)\n- y (`fs/a.rs`)\n"), 0);
        assert_eq!(check("- x (`fs/a.rs`)\n"), 1);
        assert_eq!(
            check("- x (`fs/a.rs`)\n- y (`fs/a.rs`)\n- z (`fs/gone.rs`)\n"),
            1
        );
        assert_eq!(simplifications(&[source]).len(), 1);
    }

    #[test]
    fn strangers_at_the_top_are_named() {
        let files = [
            File::new("core/src/lib.rs", ""),
            File::new("notes/a.md", ""),
        ];
        assert_eq!(
            top_level(&files),
            ["notes:1: is not part of the top level (ARCHITECTURE.md)"]
        );
    }
}
