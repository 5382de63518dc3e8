//! trunk and wasm-bindgen, built once per user and version.

use crate::paths::{cache, versioned};
use crate::report::note;
use crate::shell::{answer, minutes, must};
use crate::Fault;
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Command;
use std::thread::{self, JoinHandle};

/// A program from crates.io.
#[derive(Clone, Copy)]
pub(crate) struct Tool {
    package: &'static str,
    version: &'static str,
    binary: &'static str,
    extra: &'static [&'static str],
}

/// The newest trunk that rustc 1.90 .. 1.95 can build; it needs one TLS feature, though it never downloads anything here.
pub(crate) const TRUNK: Tool = Tool {
    package: "trunk",
    version: "0.21.14",
    binary: "trunk",
    extra: &["--locked", "--no-default-features", "--features", "rustls"],
};

/// Has to be the version of the crate wasm-bindgen in Cargo.lock. Built without its own lock file, which names a
/// crate version that has been withdrawn.
pub(crate) const WASM_BINDGEN: Tool = Tool {
    package: "wasm-bindgen-cli",
    version: "0.2.130",
    binary: "wasm-bindgen",
    extra: &[],
};

impl Tool {
    /// The folder to put on PATH.
    pub(crate) fn bin(&self) -> PathBuf {
        versioned(self.package, self.version).join("bin")
    }

    fn present(&self) -> bool {
        let version = answer(Command::new(self.bin().join(self.binary)).arg("--version"));
        version.is_some_and(|line| line.split_whitespace().any(|word| word == self.version))
    }

    /// Builds it if this user's cache does not have it.
    fn ensure(&self) -> Result<(), Fault> {
        if self.present() {
            return Ok(());
        }
        let cache = cache();
        let io = |error: std::io::Error| format!("{}: {error}", cache.display());
        fs::create_dir_all(&cache).map_err(io)?;
        // Two clones that set up at the same time build it once.
        let lock = File::create(cache.join(format!("{}.lock", self.package))).map_err(io)?;
        lock.lock().map_err(io)?;
        if self.present() {
            return Ok(());
        }
        note(&format!(
            "building {} {} once, into {} (some minutes)",
            self.package,
            self.version,
            self.bin().display()
        ));
        let mut command = Command::new("cargo");
        command
            .args([
                "install",
                "--force",
                self.package,
                "--version",
                self.version,
            ])
            .args(self.extra)
            .arg("--root")
            .arg(versioned(self.package, self.version))
            // Their speed does not matter here, the time to build them does.
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1")
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "false")
            .env("CARGO_INCREMENTAL", "0")
            .env_remove("CARGO_TARGET_DIR")
            .current_dir(&cache);
        must(
            &format!("building {}", self.package),
            &mut command,
            minutes(40),
        )?;
        if self.present() {
            Ok(())
        } else {
            Err(format!(
                "{} {} was built but does not run",
                self.package, self.version
            ))
        }
    }
}

/// The builds of both tools, beside other work.
pub(crate) struct Background {
    builds: Vec<JoinHandle<Result<(), Fault>>>,
}

impl Background {
    /// Returns at once.
    pub(crate) fn start() -> Background {
        let builds = [WASM_BINDGEN, TRUNK].map(|tool| thread::spawn(move || tool.ensure()));
        Background {
            builds: builds.into(),
        }
    }

    /// Waits until both are there.
    pub(crate) fn join(self) -> Result<(), Fault> {
        for build in self.builds {
            build
                .join()
                .map_err(|_| "the set-up of a tool panicked".to_owned())??;
        }
        Ok(())
    }
}
