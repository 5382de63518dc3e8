//! A compiler with the target wasm32-unknown-unknown: rustup's, or Debian's with a standard library from source.

use crate::options::Toolchain;
use crate::paths::{path_with, which, workspace};
use crate::report::note;
use crate::shell::{answer, minutes, must};
use crate::{debian, Fault};
use std::path::{Path, PathBuf};
use std::process::Command;

pub(crate) const TARGET: &str = "wasm32-unknown-unknown";
const DEBIAN_PACKAGES: [&str; 4] = ["rustc-web", "cargo-web", "rust-web-src", "lld-22"];
const DEBIAN_LINKER: &str = "wasm-ld-22";

/// How to run cargo for the wasm target.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compiler {
    /// The ordinary one on PATH.
    Plain,
    /// Debian's in /usr/bin; it builds the standard library itself.
    DebianBuildStd,
}

/// Finds or installs one.
pub(crate) fn ensure(toolchain: Toolchain) -> Result<Compiler, Fault> {
    if toolchain != Toolchain::Debian {
        match ensure_plain() {
            Ok(()) => return Ok(Compiler::Plain),
            Err(fault) if toolchain == Toolchain::Rustup => return Err(fault),
            Err(fault) => note(&format!("{fault}; trying Debian's packages")),
        }
    }
    ensure_debian()?;
    Ok(Compiler::DebianBuildStd)
}

fn has_target() -> bool {
    let mut command = Command::new("rustc");
    command.args(["--print", "target-libdir", "--target", TARGET]);
    answer(&mut command).is_some_and(|folder| Path::new(&folder).is_dir())
}

fn ensure_plain() -> Result<(), Fault> {
    if has_target() {
        return Ok(());
    }
    if which("rustup").is_none() {
        return Err(format!(
            "rustc has no target {TARGET}, and there is no rustup to add it"
        ));
    }
    let mut command = Command::new("rustup");
    command.args(["target", "add", TARGET]);
    must(
        &format!("adding the target {TARGET} with rustup"),
        &mut command,
        minutes(5),
    )?;
    if has_target() {
        Ok(())
    } else {
        Err(format!(
            "rustup added {TARGET}, but the rustc on PATH does not have it"
        ))
    }
}

fn ensure_debian() -> Result<(), Fault> {
    let there = Path::new("/usr/bin/cargo").exists()
        && Path::new("/usr/bin/rustc").exists()
        && which(DEBIAN_LINKER).is_some()
        && debian_source().is_some_and(|folder| folder.is_dir());
    if there {
        return Ok(());
    }
    debian::install(&DEBIAN_PACKAGES).map_err(|fault| {
        format!("no compiler for {TARGET}: neither rustup's nor Debian's. {fault}")
    })
}

/// Where Debian's compiler looks for the standard library's source.
fn debian_source() -> Option<PathBuf> {
    let sysroot = answer(Command::new("/usr/bin/rustc").args(["--print", "sysroot"]))?;
    Some(Path::new(&sysroot).join("lib/rustlib/src/rust/library"))
}

/// Where Debian's compiler builds.
pub(crate) fn debian_target_folder() -> PathBuf {
    workspace().join("target/debian")
}

impl Compiler {
    /// Sets a command's PATH (these folders first) and what else makes its cargo build for wasm.
    pub(crate) fn apply(self, command: &mut Command, first: &[PathBuf]) {
        let mut folders = first.to_vec();
        if self == Compiler::DebianBuildStd {
            folders.insert(0, PathBuf::from("/usr/bin"));
            command
                .env("RUSTC_BOOTSTRAP", "1")
                .env("CARGO_UNSTABLE_BUILD_STD", "std,panic_abort")
                .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", DEBIAN_LINKER)
                // Two compilers in one folder would undo each other's work.
                .env("CARGO_TARGET_DIR", debian_target_folder())
                // Set by rustup for the cargo that runs this program.
                .env_remove("RUSTUP_TOOLCHAIN")
                .env_remove("CARGO")
                .env_remove("RUSTC");
        }
        command.env("PATH", path_with(&folders));
    }
}
