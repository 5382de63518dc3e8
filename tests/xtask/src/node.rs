//! Node.js and the two npm packages: binaryen (wasm-opt) and playwright-core (drives the browser).

use crate::paths::{cache, path_with, versioned, which};
use crate::report::note;
use crate::shell::{answer, minutes, must};
use crate::{debian, Fault};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

pub(crate) const BINARYEN: &str = "132.0.0";
pub(crate) const PLAYWRIGHT: &str = "1.65.1";
/// playwright-core's own requirement.
const NODE_MAJOR_MIN: u32 = 20;
/// npm's packaged Node.js, for systems whose own is older.
const NODE: &str = "20.20.0";

/// Node.js of a version that both packages run on.
pub(crate) fn ensure_node() -> Result<PathBuf, Fault> {
    static FOUND: OnceLock<Result<PathBuf, Fault>> = OnceLock::new();
    FOUND.get_or_init(find_or_install_node).clone()
}

fn find_or_install_node() -> Result<PathBuf, Fault> {
    if let Some(node) = which("node").filter(|node| is_recent(node)) {
        return Ok(node);
    }
    let packaged = versioned("node", NODE).join("node_modules/node/bin/node");
    if is_recent(&packaged) {
        return Ok(packaged);
    }
    if which("npm").is_none() {
        debian::install(&["nodejs", "npm"]).map_err(|fault| {
            format!("Node.js {NODE_MAJOR_MIN} or newer with npm is missing: {fault}")
        })?;
        if let Some(node) = which("node").filter(|node| is_recent(node)) {
            return Ok(node);
        }
    }
    npm_install("node", NODE)?;
    if is_recent(&packaged) {
        return Ok(packaged);
    }
    Err(format!(
        "Node.js {NODE_MAJOR_MIN} or newer is missing, and npm's package did not give it"
    ))
}

fn is_recent(node: &Path) -> bool {
    let version = answer(Command::new(node).arg("--version")).unwrap_or_default();
    let major = version
        .trim_start_matches('v')
        .split('.')
        .next()
        .and_then(|n| n.parse().ok());
    major.is_some_and(|major: u32| major >= NODE_MAJOR_MIN)
}

/// Both packages.
pub(crate) fn ensure() -> Result<(), Fault> {
    ensure_node()?;
    ensure_package("binaryen", BINARYEN)?;
    ensure_package("playwright-core", PLAYWRIGHT)
}

fn package_folder(name: &str, version: &str) -> PathBuf {
    versioned(name, version).join("node_modules").join(name)
}

fn ensure_package(name: &str, version: &str) -> Result<(), Fault> {
    if package_folder(name, version).join("package.json").is_file() {
        return Ok(());
    }
    npm_install(name, version)
}

/// Installed beside its place and moved there whole, so that a run that was stopped leaves nothing half done.
fn npm_install(name: &str, version: &str) -> Result<(), Fault> {
    let target = versioned(name, version);
    let partial = cache().join(format!("{name}-{version}.partial-{}", std::process::id()));
    let io = |error: std::io::Error| format!("{}: {error}", partial.display());
    fs::create_dir_all(&partial).map_err(io)?;
    let mut command = Command::new("npm");
    command.args([
        "install",
        "--no-audit",
        "--no-fund",
        "--loglevel=error",
        "--prefix",
    ]);
    command.arg(&partial).arg(format!("{name}@{version}"));
    must(
        &format!("installing npm's {name} {version}"),
        &mut command,
        minutes(10),
    )?;
    if target.exists() {
        // An earlier, incomplete one; or another run was first, then ours is as good.
        fs::remove_dir_all(&target).map_err(io)?;
    }
    fs::rename(&partial, &target).map_err(io)
}

/// The folder with `wasm-opt`.
pub(crate) fn binaryen_bin() -> PathBuf {
    versioned("binaryen", BINARYEN).join("node_modules/.bin")
}

/// The module that browser tests import.
pub(crate) fn playwright_module() -> PathBuf {
    package_folder("playwright-core", PLAYWRIGHT).join("index.mjs")
}

/// The folder to put first on PATH so that programs of npm packages find this Node.js: none where the system's own is
/// used, whose folder may hold other compilers too.
pub(crate) fn path_folder() -> Result<Option<PathBuf>, Fault> {
    let node = ensure_node()?;
    let ours = node.starts_with(cache());
    Ok(node.parent().filter(|_| ours).map(Path::to_path_buf))
}

/// `node`.
pub(crate) fn command() -> Result<Command, Fault> {
    let mut command = Command::new(ensure_node()?);
    let folders: Vec<PathBuf> = path_folder()?.into_iter().collect();
    command.env("PATH", path_with(&folders));
    Ok(command)
}

/// What brotli makes of files, at its best setting; in the given order.
pub(crate) fn brotli_sizes(files: &[PathBuf]) -> Result<Vec<u64>, Fault> {
    const SCRIPT: &str =
        "const z=require('zlib'),fs=require('fs');for(const f of process.argv.slice(1))\
        console.log(z.brotliCompressSync(fs.readFileSync(f),\
        {params:{[z.constants.BROTLI_PARAM_QUALITY]:11}}).length)";
    let output = command()?
        .args(["-e", SCRIPT])
        .args(files)
        .output()
        .map_err(|error| format!("measuring sizes: {error}"))?;
    let sizes: Vec<u64> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| line.trim().parse().ok())
        .collect();
    if sizes.len() == files.len() {
        Ok(sizes)
    } else {
        note(&String::from_utf8_lossy(&output.stderr));
        Err("measuring sizes with node failed".to_owned())
    }
}
