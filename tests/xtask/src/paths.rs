//! Where things are.

use std::env;
use std::path::{Path, PathBuf};

/// The top of the repository.
pub(crate) fn workspace() -> PathBuf {
    // tests/xtask is two levels below it.
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

/// The per-user cache folder of this project; not created here.
pub(crate) fn cache() -> PathBuf {
    let base = env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    base.unwrap_or_else(env::temp_dir).join("fsglass")
}

/// The folder of one tool in one version.
pub(crate) fn versioned(name: &str, version: &str) -> PathBuf {
    cache().join(format!("{name}-{version}"))
}

/// Looks a program up on PATH and in the folders of system programs, which ordinary users may not have on PATH.
pub(crate) fn which(program: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/local/sbin", "/usr/sbin", "/sbin"].map(PathBuf::from))
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}

/// PATH with these folders first.
pub(crate) fn path_with(first: &[PathBuf]) -> std::ffi::OsString {
    let path = env::var_os("PATH").unwrap_or_default();
    let all = first.iter().cloned().chain(env::split_paths(&path));
    // Only a folder with a ':' in its name can fail here; then the plain PATH is the best there is.
    env::join_paths(all).unwrap_or(path)
}

/// Is this process allowed to install packages and mount images?
pub(crate) fn is_root() -> bool {
    std::process::Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|output| output.stdout.starts_with(b"0") && output.stdout.trim_ascii() == b"0")
}

/// Set by continuous integration: a check that this machine can run must not be skipped.
pub(crate) fn is_ci() -> bool {
    env::var("CI").is_ok_and(|value| value == "true" || value == "1")
}
