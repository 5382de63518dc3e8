//! Who may import whom. ARCHITECTURE.md prints the same table.

use super::mask::is_word;
use super::{complaint, File};

/// A layer of the core with what it may import besides itself.
pub struct Layer {
    /// Module path.
    pub name: &'static str,
    /// Module paths, each with everything below it.
    pub may: &'static [&'static str],
    /// Exceptions from `may`.
    pub but_not: &'static [&'static str],
}

const fn layer(
    name: &'static str,
    may: &'static [&'static str],
    but_not: &'static [&'static str],
) -> Layer {
    Layer { name, may, but_not }
}

/// Bottom to top.
pub const LAYERS: [Layer; 18] = [
    layer("base", &[], &[]),
    layer("format", &["base"], &[]),
    layer("trace", &["base"], &[]),
    layer("sim", &["base", "trace"], &[]),
    layer("block", &["base", "trace", "sim"], &[]),
    layer("mm", &["base", "trace", "sim", "block", "fs::common"], &[]),
    layer("fs::common", &["base", "format", "mm", "block"], &[]),
    layer(
        "fs::jbd2",
        &[
            "base",
            "format",
            "trace",
            "sim",
            "block",
            "mm",
            "fs::common",
        ],
        &["format::ext4", "format::xfs"],
    ),
    layer(
        "fs::ext4",
        &[
            "base",
            "format",
            "trace",
            "sim",
            "block",
            "mm",
            "fs::common",
            "fs::jbd2",
        ],
        &["format::xfs"],
    ),
    layer(
        "fs::xfs",
        &[
            "base",
            "format",
            "trace",
            "sim",
            "block",
            "mm",
            "fs::common",
        ],
        &["format::ext4", "format::jbd2", "mm::buffer"],
    ),
    layer("vfs", &["base", "trace", "sim", "mm", "fs"], &[]),
    layer(
        "kernel",
        &["base", "format", "trace", "sim", "block", "mm", "fs", "vfs"],
        &[],
    ),
    layer("workload", &["base", "trace", "sim", "vfs", "kernel"], &[]),
    layer(
        "config",
        &["base", "block", "mm", "fs", "vfs", "kernel", "workload"],
        &[],
    ),
    layer(
        "experiment",
        &[
            "base", "format", "trace", "sim", "block", "mm", "fs", "vfs", "kernel", "workload",
            "config",
        ],
        &[],
    ),
    layer(
        "observe",
        &[
            "base",
            "format",
            "trace",
            "block",
            "workload::app_log",
            "workload::ops",
            "workload::fio",
        ],
        &[],
    ),
    layer(
        "session",
        &[
            "base",
            "format",
            "trace",
            "sim",
            "block",
            "fs::ext4",
            "kernel",
            "workload",
            "config",
            "experiment",
            "observe",
        ],
        &[],
    ),
    layer(
        "testing",
        &[
            "base", "format", "trace", "sim", "block", "mm", "fs", "vfs", "kernel", "workload",
            "config",
        ],
        &[],
    ),
];

/// A path found in source: its segments from the crate's root, and its line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Import {
    /// From the root of the crate.
    pub path: Vec<String>,
    /// From 1.
    pub line: usize,
}

/// The parts of the page that know the core: the messages' types, and the worker, which is the engine's own half.
fn near_core(path: &str) -> bool {
    path.starts_with("web/src/link/") || path == "web/src/worker.rs"
}

/// Complaints about imports of the core and the page that go the wrong way.
pub fn check(files: &[File]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        if let Some(inside) = file.path.strip_prefix("core/src/") {
            check_core(file, inside, &mut complaints);
        } else if file.path.starts_with("web/src/") && !near_core(&file.path) {
            for import in imports(&file.code, "fsglass", &[]) {
                let what = "only web/src/link and the worker may import the core";
                complaints.push(complaint(&file.path, import.line, what));
            }
        }
    }
    complaints
}

fn check_core(file: &File, inside: &str, complaints: &mut Vec<String>) {
    let module = module_of(inside);
    let Some(own) = layer_of(&module) else { return };
    for import in imports(&file.code, "crate", &module) {
        let Some(first) = import.path.first() else {
            continue;
        };
        let known = LAYERS
            .iter()
            .any(|layer| layer.name.split("::").next() == Some(first));
        if known && !allowed(own, &import.path) {
            let what = format!("{} must not import {}", own.name, import.path.join("::"));
            complaints.push(complaint(&file.path, import.line, &what));
        }
    }
}

/// `fs/ext4/inode.rs` is the module `fs::ext4::inode`.
fn module_of(inside: &str) -> Vec<String> {
    let stem = inside.trim_end_matches(".rs");
    let mut parts: Vec<String> = stem.split('/').map(str::to_owned).collect();
    if parts
        .last()
        .is_some_and(|last| last == "mod" || last == "lib")
    {
        parts.pop();
    }
    parts
}

fn layer_of(module: &[String]) -> Option<&'static Layer> {
    LAYERS.iter().find(|layer| starts_with(module, layer.name))
}

fn starts_with(path: &[String], prefix: &str) -> bool {
    let mut segments = path.iter();
    prefix
        .split("::")
        .all(|part| segments.next().is_some_and(|segment| segment == part))
}

fn allowed(own: &Layer, path: &[String]) -> bool {
    if starts_with(path, own.name) {
        return true;
    }
    let may = own.may.iter().any(|prefix| starts_with(path, prefix));
    may && !own.but_not.iter().any(|prefix| starts_with(path, prefix))
}

/// Paths that start with `root::`, and `super::` chains resolved against `module`; groups in braces are expanded.
pub fn imports(code: &str, root: &str, module: &[String]) -> Vec<Import> {
    let chars: Vec<char> = code.chars().collect();
    let mut found = Vec::new();
    let mut line = 1;
    let mut at = 0;
    while at < chars.len() {
        if chars[at] == '\n' {
            line += 1;
        }
        let starts_word = is_word(chars[at]) && (at == 0 || !is_word(chars[at - 1]));
        let continues_path = at >= 2 && chars[at - 1] == ':' && chars[at - 2] == ':';
        if !starts_word || continues_path {
            at += 1;
            continue;
        }
        let mut reader = Reader {
            chars: &chars,
            at,
            line,
            found: Vec::new(),
        };
        let word = reader.word();
        if reader.skip_separator() && (word == root || (word == "super" && !module.is_empty())) {
            let base = if word == root {
                Vec::new()
            } else {
                parent(module)
            };
            reader.tree(&base);
            found.append(&mut reader.found);
            line = reader.line;
            at = reader.at;
        } else {
            at += word.chars().count();
        }
    }
    found
}

fn parent(module: &[String]) -> Vec<String> {
    module[..module.len().saturating_sub(1)].to_vec()
}

/// Reads one import tree.
struct Reader<'a> {
    chars: &'a [char],
    at: usize,
    line: usize,
    found: Vec<Import>,
}

impl Reader<'_> {
    fn peek(&self) -> char {
        self.chars.get(self.at).copied().unwrap_or('\0')
    }

    fn blanks(&mut self) {
        while self.peek().is_whitespace() {
            if self.peek() == '\n' {
                self.line += 1;
            }
            self.at += 1;
        }
    }

    fn word(&mut self) -> String {
        let start = self.at;
        while is_word(self.peek()) {
            self.at += 1;
        }
        self.chars[start..self.at].iter().collect()
    }

    fn skip_separator(&mut self) -> bool {
        let found = self.peek() == ':' && self.chars.get(self.at + 1) == Some(&':');
        if found {
            self.at += 2;
        }
        found
    }

    /// What follows a `::`. Nesting in source is shallow, and so is the recursion.
    fn tree(&mut self, base: &[String]) {
        self.blanks();
        if self.peek() == '{' {
            self.at += 1;
            loop {
                self.tree(base);
                self.blanks();
                if self.peek() != ',' {
                    break;
                }
                self.at += 1;
            }
            self.blanks();
            if self.peek() == '}' {
                self.at += 1;
            }
            return;
        }
        let line = self.line;
        let word = self.word();
        let mut path = base.to_vec();
        match word.as_str() {
            "super" => {
                path.pop();
            }
            "" | "self" => {}
            _ => path.push(word),
        }
        if self.skip_separator() {
            self.tree(&path);
        } else {
            self.skip_alias();
            self.found.push(Import { path, line });
        }
    }

    /// ` as name` and `*` end a path.
    fn skip_alias(&mut self) {
        if self.peek() == '*' {
            self.at += 1;
        }
        let rest: String = self.chars[self.at..].iter().take(4).collect();
        if rest == " as " {
            self.at += 4;
            self.word();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> Vec<String> {
        check(&[File::new(path, text)])
    }

    #[test]
    fn paths_are_expanded() {
        let code = "use crate::{base::{Nanos, units as u}, sim::*};\nfn f() { crate::vfs::open() }";
        let found: Vec<(String, usize)> = imports(code, "crate", &[])
            .into_iter()
            .map(|import| (import.path.join("::"), import.line))
            .collect();
        let expect = [
            ("base::Nanos", 1),
            ("base::units", 1),
            ("sim", 1),
            ("vfs::open", 2),
        ];
        assert_eq!(found, expect.map(|(path, line)| (path.to_owned(), line)));
    }

    #[test]
    fn downward_imports_pass() {
        let text = "use crate::base::Nanos;\nuse crate::fs::{common::FsError, jbd2::Handle};\n\
                    use super::inode::Inode;\n// use crate::vfs::Fs;\n";
        assert_eq!(
            complaints("core/src/fs/ext4/file.rs", text),
            Vec::<String>::new()
        );
        let text = "#[cfg(test)]\nmod tests {\n    use super::*;\n}\n";
        assert_eq!(
            complaints("core/src/base/mod.rs", text),
            Vec::<String>::new()
        );
    }

    #[test]
    fn upward_imports_are_named() {
        for (path, text) in [
            ("core/src/base/units.rs", "use crate::sim::Sim;"),
            (
                "core/src/fs/jbd2/commit.rs",
                "fn f(x: crate::fs::ext4::Inode) {}",
            ),
            (
                "core/src/fs/jbd2/commit.rs",
                "use super::super::ext4::Inode;",
            ),
            (
                "core/src/fs/jbd2/commit.rs",
                "use crate::format::ext4::Superblock;",
            ),
            (
                "core/src/fs/ext4/dir.rs",
                "use crate::{base::Nanos,\n    vfs::Fs};",
            ),
            (
                "core/src/fs/xfs/log/cil.rs",
                "use crate::mm::buffer::Buffer;",
            ),
            ("core/src/observe/fold.rs", "use crate::kernel::Machine;"),
            ("web/src/views/map.rs", "use fsglass::session::Query;"),
        ] {
            assert_eq!(complaints(path, text).len(), 1, "{path}: {text}");
        }
        let text = "use crate::{base::Nanos,\n    vfs::Fs};";
        let expect = "core/src/fs/ext4/dir.rs:2: fs::ext4 must not import vfs::Fs";
        assert_eq!(complaints("core/src/fs/ext4/dir.rs", text), [expect]);
    }

    #[test]
    fn the_table_points_down() {
        for (at, layer) in LAYERS.iter().enumerate() {
            for name in layer.may {
                // `fs` stands for the first layer of it, `workload::ops` for the layer that it is a part of.
                let there = LAYERS.iter().position(|other| {
                    other.name.starts_with(name) || name.starts_with(&format!("{}::", other.name))
                });
                let below = there.is_some_and(|there| there < at);
                // mm returns the error type that all file systems share.
                assert!(
                    below || (layer.name == "mm" && *name == "fs::common"),
                    "{} {name}",
                    layer.name
                );
            }
        }
    }
}
