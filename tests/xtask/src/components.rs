//! rustfmt and clippy, which a minimal installation of Rust lacks.

use crate::paths::which;
use crate::shell::{answer, minutes, must};
use crate::{debian, Fault};
use std::process::Command;

/// Name of cargo's subcommand, rustup's component, Debian's package.
const COMPONENTS: [(&str, &str, &str); 2] = [
    ("fmt", "rustfmt", "rustfmt-web"),
    ("clippy", "clippy", "rust-web-clippy"),
];

/// Adds what is missing.
pub(crate) fn ensure() -> Result<(), Fault> {
    for (subcommand, component, package) in COMPONENTS {
        if present(subcommand) {
            continue;
        }
        if which("rustup").is_some() {
            let mut command = Command::new("rustup");
            command.args(["component", "add", component]);
            let title = format!("adding {component} with rustup");
            must(&title, &mut command, minutes(5))?;
        } else {
            debian::install(&[package])?;
        }
        if !present(subcommand) {
            return Err(format!(
                "{component} is missing, and adding it did not help"
            ));
        }
    }
    Ok(())
}

fn present(subcommand: &str) -> bool {
    answer(Command::new("cargo").args([subcommand, "--version"])).is_some()
}
