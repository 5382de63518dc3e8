//! The browser of the page tests: the system's own, never a downloaded one.

use crate::paths::which;
use std::path::PathBuf;

/// Programs that speak Chromium's protocol, best first.
const PROGRAMS: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "chrome"];

/// Where macOS keeps them.
const BUNDLES: [&str; 2] = [
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
];

/// `FSGLASS_CHROMIUM`, or the first that is installed.
pub(crate) fn find() -> Option<PathBuf> {
    let chosen = std::env::var_os("FSGLASS_CHROMIUM").map(PathBuf::from);
    chosen
        .filter(|path| path.is_file())
        .or_else(|| PROGRAMS.iter().find_map(|program| which(program)))
        .or_else(|| {
            BUNDLES
                .iter()
                .map(PathBuf::from)
                .find(|path| path.is_file())
        })
}
