//! The house rules that no compiler checks: layers, sizes, names, pointers to sources, honest lists.
//!
//! Every rule is a function from file texts to complaints, so that each can be shown to fail (the unit tests of the
//! submodules do). `tests/tidy.rs` applies them to the repository.

pub mod layers;
pub mod mask;
pub mod promises;
pub mod sizes;
pub mod words;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{fs, io};

/// A text file of the repository.
#[derive(Clone, Debug)]
pub struct File {
    /// Relative to the top, with '/' between folders.
    pub path: String,
    /// As it stands.
    pub text: String,
    /// Rust only: the same text with comments and the contents of strings blanked out.
    pub code: String,
}

impl File {
    /// Masks the text of Rust files.
    pub fn new(path: &str, text: &str) -> File {
        let code = if is_rust(path) {
            mask::mask(text)
        } else {
            text.to_owned()
        };
        File {
            path: path.to_owned(),
            text: text.to_owned(),
            code,
        }
    }

    /// Is it Rust source?
    pub fn is_rust(&self) -> bool {
        is_rust(&self.path)
    }
}

fn is_rust(path: &str) -> bool {
    Path::new(path)
        .extension()
        .is_some_and(|extension| extension == "rs")
}

/// One broken rule, as `path:line: what`.
pub fn complaint(path: &str, line: usize, what: &str) -> String {
    format!("{path}:{line}: {what}")
}

/// The top of the repository.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Every text file that git knows or would add; recordings and other files that are not written by hand are left out.
///
/// # Errors
/// When git does not run here or a file cannot be read.
pub fn files() -> io::Result<Vec<File>> {
    let top = repository();
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(&top)
        .output()?;
    let list = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut files = Vec::new();
    for path in list
        .lines()
        .filter(|path| !path.starts_with("tests/kernel-lab/"))
    {
        // Listed, but deleted in the work tree.
        let Ok(bytes) = fs::read(top.join(path)) else {
            continue;
        };
        if let Ok(text) = String::from_utf8(bytes) {
            files.push(File::new(path, &text));
        }
    }
    Ok(files)
}
