//! Debian's packages: installed where this is root on Debian and something is missing, else named.

use crate::paths::{is_root, which};
use crate::report::note;
use crate::shell::{minutes, must};
use crate::Fault;
use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

/// A program that some tests need, and the package that has it.
const TEST_PROGRAMS: [(&str, &str); 13] = [
    ("python3", "python3"),
    ("mke2fs", "e2fsprogs"),
    ("e2fsck", "e2fsprogs"),
    ("dumpe2fs", "e2fsprogs"),
    ("debugfs", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("xfs_repair", "xfsprogs"),
    ("xfs_db", "xfsprogs"),
    ("losetup", "mount"),
    ("mount", "mount"),
    ("fio", "fio"),
    ("postmark", "postmark"),
    ("chromium", "chromium"),
];

/// Can packages be installed here?
pub(crate) fn can_install() -> bool {
    is_root() && which("apt-get").is_some() && Path::new("/etc/debian_version").exists()
}

/// Installs packages by name.
pub(crate) fn install(packages: &[&str]) -> Result<(), Fault> {
    if !can_install() {
        let why = "not root on Debian, so nothing is installed by itself";
        return Err(format!("missing packages: {} ({why})", packages.join(" ")));
    }
    update_lists()?;
    let mut command = Command::new("apt-get");
    command
        .env("DEBIAN_FRONTEND", "noninteractive")
        .args(["install", "-y", "-q", "--no-install-recommends"])
        .args(packages);
    must(
        &format!("installing Debian's {}", packages.join(", ")),
        &mut command,
        minutes(10),
    )
}

/// Once per run.
fn update_lists() -> Result<(), Fault> {
    static LISTS: OnceLock<Result<(), Fault>> = OnceLock::new();
    LISTS
        .get_or_init(|| {
            let mut update = Command::new("apt-get");
            update.args(["update", "-q"]);
            must("reading Debian's package lists", &mut update, minutes(5))
        })
        .clone()
}

/// The missing test programs: installed if possible. Where not, the parts that need them skip with their reason.
pub(crate) fn ensure_test_programs() {
    let has_browser = crate::browser::find().is_some();
    let mut packages: Vec<&str> = TEST_PROGRAMS
        .iter()
        .filter(|(program, _)| which(program).is_none() && !(*program == "chromium" && has_browser))
        .map(|(_, package)| *package)
        .collect();
    packages.dedup();
    if packages.is_empty() {
        return;
    }
    if let Err(fault) = install(&packages) {
        note(&format!(
            "{fault}; the tests that need them will be skipped"
        ));
    }
}
