//! All tests, in parts; counts them and ends with one plain line.

use crate::options::{Options, Toolchain};
use crate::paths::{is_ci, which, workspace};
use crate::report::{note, seconds};
use crate::shell::{self, minutes, Finished, Show};
use crate::wasm_target::{self, Compiler, TARGET};
use crate::{browser, components, debian, node, page, server, tools, Fault};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Results, added up over parts.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
struct Counts {
    passed: u64,
    failed: u64,
    skipped: u64,
}

impl Counts {
    fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }

    fn line(&self) -> String {
        format!(
            "{} passed, {} failed, {} skipped",
            self.passed, self.failed, self.skipped
        )
    }
}

/// The exit status of a script that cannot run here.
const SKIPPED: i32 = 77;

/// One part: its name, what it does, and doing it.
type Part = (
    &'static str,
    &'static str,
    fn(&mut Suite) -> Result<Counts, Fault>,
);

/// The parts, in the order in which they run: quick and cheap ones first.
const PARTS: [Part; 11] = [
    ("fmt", "cargo fmt --check", Suite::fmt),
    (
        "clippy",
        "clippy of core, tests and xtask, warnings denied",
        Suite::clippy,
    ),
    ("unit", "unit tests of core and xtask", Suite::unit),
    (
        "tests",
        "the test package: tidy, model, crash states, scenarios",
        Suite::test_package,
    ),
    (
        "lab",
        "self-test of tests/kernel-lab on this machine's kernel",
        Suite::lab,
    ),
    (
        "interop",
        "images, scripts and power cuts against the kernel and e2fsprogs",
        Suite::interop,
    ),
    (
        "clippy-wasm",
        "clippy of core and web for the wasm target, warnings denied",
        Suite::wasm_clippy,
    ),
    ("web", "unit tests of web, run natively", Suite::web),
    (
        "page",
        "release build of the page within its size budgets",
        Suite::page,
    ),
    (
        "wasm",
        "the engine in wasm under Node.js against the native one",
        Suite::wasm,
    ),
    ("browser", "the page in headless Chromium", Suite::browser),
];

/// What the parts share.
struct Suite {
    compiler: Option<Compiler>,
    toolchain: Toolchain,
    tools: Option<tools::Background>,
}

/// `Ok(true)` if nothing failed.
pub(crate) fn run(options: &Options) -> Result<bool, Fault> {
    if options.list {
        for (name, does, _) in PARTS {
            println!("{name:<12} {does}");
        }
        return Ok(true);
    }
    if let Some(unknown) = options
        .only
        .iter()
        .find(|name| !PARTS.iter().any(|part| part.0 == **name))
    {
        return Err(format!("--only {unknown}: no such part (see --list)"));
    }
    let wanted =
        |name: &str| options.only.is_empty() || options.only.iter().any(|part| part == name);
    let start = Instant::now();
    let needs_page = ["page", "wasm", "browser"].iter().any(|part| wanted(part));
    let mut suite = Suite {
        compiler: None,
        toolchain: options.toolchain,
        tools: needs_page.then(tools::Background::start),
    };
    debian::ensure_test_programs();
    components::ensure()?;
    page::fetch_crates()?;
    let mut total = Counts::default();
    for (name, does, part) in PARTS.into_iter().filter(|part| wanted(part.0)) {
        note(&format!("{name}: {does}"));
        let begin = Instant::now();
        let counts = match part(&mut suite) {
            Ok(counts) => counts,
            Err(fault) => {
                println!("{fault}");
                Counts {
                    failed: 1,
                    ..Counts::default()
                }
            }
        };
        note(&format!(
            "{name}: {} in {}",
            counts.line(),
            seconds(begin.elapsed())
        ));
        total.add(counts);
    }
    let total = strict(total);
    note(&format!("all parts took {}", seconds(start.elapsed())));
    println!("{}", total.line());
    Ok(total.failed == 0)
}

/// Where everything can run, continuous integration accepts no skipped check.
fn strict(total: Counts) -> Counts {
    if total.skipped == 0 || !is_ci() || !lab_usable() {
        return total;
    }
    note("this machine can mount images, so with CI set what was skipped counts as failed");
    Counts {
        failed: total.failed + total.skipped,
        skipped: 0,
        ..total
    }
}

/// Can images be mounted here?
fn lab_usable() -> bool {
    let mut command = Command::new("python3");
    command
        .args(["tests/kernel-lab/lab.py", "probe"])
        .current_dir(workspace());
    shell::answer(&mut command).is_some()
}

impl Suite {
    fn fmt(_: &mut Suite) -> Result<Counts, Fault> {
        check("fmt", cargo(&["fmt", "--all", "--check"]), minutes(5))
    }

    fn clippy(_: &mut Suite) -> Result<Counts, Fault> {
        check("clippy", native_clippy(), minutes(15))
    }

    fn unit(_: &mut Suite) -> Result<Counts, Fault> {
        let command = cargo_test(&["--package", "xtask", "--package", "fsglass"]);
        check("unit", command, minutes(20))
    }

    fn test_package(_: &mut Suite) -> Result<Counts, Fault> {
        let command = cargo_test(&["--package", "fsglass-tests"]);
        check("tests", command, minutes(30))
    }

    fn lab(_: &mut Suite) -> Result<Counts, Fault> {
        let mut command = in_workspace("sh");
        command.arg("tests/kernel-lab/selftest.sh");
        check("lab", command, minutes(5))
    }

    fn interop(_: &mut Suite) -> Result<Counts, Fault> {
        let python = which("python3").ok_or("interop: python3 is missing")?;
        let environment = [("FSGLASS_BIN", build_cli()?)];
        run_scripts("interop", "py", &environment, || Ok(Command::new(&python)))
    }

    fn web(_: &mut Suite) -> Result<Counts, Fault> {
        let mut command = cargo(&["test", "--quiet", "--locked", "--lib"]);
        command.args(["--package", "fsglass-web"]);
        check("web", command, minutes(15))
    }

    fn compiler(&mut self) -> Result<Compiler, Fault> {
        if let Some(compiler) = self.compiler {
            return Ok(compiler);
        }
        let compiler = wasm_target::ensure(self.toolchain)?;
        self.compiler = Some(compiler);
        Ok(compiler)
    }

    /// Waits for the tools that the page needs.
    fn join_tools(&mut self) -> Result<(), Fault> {
        node::ensure()?;
        self.tools.take().map_or(Ok(()), tools::Background::join)
    }

    fn wasm_clippy(&mut self) -> Result<Counts, Fault> {
        let compiler = self.compiler()?;
        if compiler == Compiler::DebianBuildStd {
            debian::install(&["rust-web-clippy"])?;
        }
        let mut command = cargo(&["clippy", "--locked", "--quiet", "--target", TARGET]);
        command.args([
            "--package",
            "fsglass",
            "--package",
            "fsglass-web",
            "--package",
            "fsglass-wasm-tests",
            "--",
            "-D",
            "warnings",
        ]);
        compiler.apply(&mut command, &[]);
        check("clippy-wasm", command, minutes(15))
    }

    fn page(&mut self) -> Result<Counts, Fault> {
        self.join_tools()?;
        page::build_with(self.compiler()?)?;
        Ok(Counts {
            passed: 1,
            ..Counts::default()
        })
    }

    fn wasm(&mut self) -> Result<Counts, Fault> {
        self.join_tools()?;
        let module = page::build_for_node(self.compiler()?)?;
        let native = cargo_build("fsglass-wasm-tests", "fsglass-digests", &["--release"])?;
        let environment = [("FSGLASS_WASM", module), ("FSGLASS_DIGESTS", native)];
        run_scripts("wasm", "mjs", &environment, node::command)
    }

    fn browser(&mut self) -> Result<Counts, Fault> {
        self.join_tools()?;
        let Some(chromium) = browser::find() else {
            println!("SKIP browser: no Chromium found (set FSGLASS_CHROMIUM to one)");
            return Ok(Counts {
                skipped: 1,
                ..Counts::default()
            });
        };
        let dist = workspace().join("dist");
        if !dist.join("index.html").is_file() {
            return Err("browser: dist/ is not built (run the part 'page')".to_owned());
        }
        // Under a sub-path, as many hosts serve it: an absolute link inside the page shows here.
        let url = server::Server::bind(dist, "/some/sub-path/", None)?.run_in_background();
        let environment = [
            ("FSGLASS_URL", PathBuf::from(url)),
            ("FSGLASS_CHROMIUM", chromium),
            ("FSGLASS_PLAYWRIGHT", node::playwright_module()),
            ("FSGLASS_BIN", build_cli()?),
        ];
        run_scripts("browser", "mjs", &environment, node::command)
    }
}

/// The scripts of a folder of `tests/`; those that start with '_' are shared code.
fn scripts(folder: &str, kind: &str) -> Result<Vec<PathBuf>, Fault> {
    let folder = workspace().join("tests").join(folder);
    let entries =
        fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut found: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == kind))
        .filter(|path| !script_name(path).starts_with('_'))
        .collect();
    found.sort();
    Ok(found)
}

fn script_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}

/// Each script in a process of its own.
fn run_scripts(
    folder: &str,
    kind: &str,
    environment: &[(&str, PathBuf)],
    interpreter: impl Fn() -> Result<Command, Fault>,
) -> Result<Counts, Fault> {
    let mut total = Counts::default();
    for script in scripts(folder, kind)? {
        let name = script_name(&script);
        let mut command = interpreter()?;
        command.arg(script).current_dir(workspace());
        for (variable, value) in environment {
            command.env(variable, value);
        }
        note(&format!("  {name}"));
        // A script that hangs has failed, the others still run.
        total.add(check(&name, command, minutes(15)).unwrap_or_else(|fault| {
            println!("{fault}");
            Counts {
                failed: 1,
                ..Counts::default()
            }
        }));
    }
    Ok(total)
}

fn in_workspace(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(workspace());
    command
}

fn cargo(arguments: &[&str]) -> Command {
    let mut command = in_workspace("cargo");
    command.args(arguments);
    command
}

/// The features of the core that its tests and the command line need.
const FEATURES: [&str; 2] = ["--features", "fsglass/cli,fsglass/testing"];

fn native_clippy() -> Command {
    let mut command = cargo(&["clippy", "--locked", "--quiet", "--all-targets"]);
    command.args([
        "--package",
        "fsglass",
        "--package",
        "fsglass-tests",
        "--package",
        "xtask",
    ]);
    command.args(FEATURES).args(["--", "-D", "warnings"]);
    command
}

fn cargo_test(arguments: &[&str]) -> Command {
    let mut command = cargo(&["test", "--locked", "--no-fail-fast"]);
    command.args(arguments).args(FEATURES);
    command
}

/// The native command line, which interop and page tests run.
fn build_cli() -> Result<PathBuf, Fault> {
    cargo_build("fsglass", "fsglass", &FEATURES)
}

/// Builds one native program; returns where it is.
fn cargo_build(package: &str, binary: &str, more: &[&str]) -> Result<PathBuf, Fault> {
    let mut command = cargo(&["build", "--locked", "--package", package, "--bin", binary]);
    command.args(more);
    let title = format!("building {binary}");
    let finished = shell::run(&title, &mut command, Show::Progress, minutes(15))?;
    if !finished.status.success() {
        return Err(format!("{title} failed\n{}", finished.tail(40)));
    }
    let profile = if more.contains(&"--release") {
        "release"
    } else {
        "debug"
    };
    Ok(page::target_folder(Compiler::Plain)
        .join(profile)
        .join(binary))
}

/// Runs one check; its counts come from the lines it prints, else from its exit status.
fn check(title: &str, mut command: Command, limit: Duration) -> Result<Counts, Fault> {
    let finished = shell::run(title, &mut command, Show::Progress, limit)?;
    let counts = count(&finished);
    for line in finished
        .lines
        .iter()
        .filter(|line| line.trim_start().starts_with("SKIP"))
    {
        println!("{line}");
    }
    if counts.failed > 0 {
        println!(
            "---- {title} (status {}) ----\n{}\n----",
            finished.code(),
            finished.tail(150)
        );
    }
    Ok(counts)
}

fn count(finished: &Finished) -> Counts {
    let mut counts = Counts::default();
    for line in &finished.lines {
        if let Some(found) = libtest_line(line).or_else(|| plain_line(line)) {
            counts.add(found);
        }
    }
    let nothing_counted = counts == Counts::default();
    match finished.code() {
        0 if nothing_counted => counts.passed = 1,
        0 => {}
        SKIPPED if counts.failed == 0 => counts.skipped = counts.skipped.max(1),
        // It ended badly, whatever it printed.
        _ if counts.failed == 0 => counts.failed = 1,
        _ => {}
    }
    counts
}

/// `test result: ok. 5 passed; 0 failed; 1 ignored; ..`; ignored ones are long tests, not skipped checks.
fn libtest_line(line: &str) -> Option<Counts> {
    let rest = line.strip_prefix("test result: ")?;
    let rest = rest.split_once(". ")?.1;
    let mut fields = rest.split("; ");
    Some(Counts {
        passed: number_before(fields.next()?, " passed")?,
        failed: number_before(fields.next()?, " failed")?,
        skipped: 0,
    })
}

/// `5 passed, 0 failed, 1 skipped`, perhaps with one word and a colon before it.
fn plain_line(line: &str) -> Option<Counts> {
    let line = line.trim();
    let line = line.split_once(": ").map_or(line, |(_, rest)| rest);
    let mut fields = line.split(", ");
    let passed = number_before(fields.next()?, " passed")?;
    let failed = number_before(fields.next()?, " failed")?;
    let skipped = fields
        .next()
        .map_or(Some(0), |field| number_before(field, " skipped"))?;
    Some(Counts {
        passed,
        failed,
        skipped,
    })
}

fn number_before(field: &str, word: &str) -> Option<u64> {
    field.strip_suffix(word)?.parse().ok()
}

/// Prints the counts of `fsglass trace` that lie outside of the kernel's; the exit status says whether there are any.
pub(crate) fn trace() -> Result<bool, Fault> {
    let native = cargo_build("fsglass", "fsglass", &["--release", "--features", "cli"])?;
    let mut command = Command::new("python3");
    command
        .arg("tests/kernel-lab/trace_table.py")
        .arg(native)
        .current_dir(workspace());
    let finished = shell::run("trace", &mut command, Show::All, minutes(30))?;
    Ok(finished.status.success())
}

/// Prints the figures of `tests/bench`.
pub(crate) fn bench(options: &Options) -> Result<bool, Fault> {
    let background = tools::Background::start();
    let compiler = wasm_target::ensure(options.toolchain)?;
    node::ensure()?;
    background.join()?;
    page::fetch_crates()?;
    let native = cargo_build("fsglass-wasm-tests", "fsglass-digests", &["--release"])?;
    let module = page::build_for_node(compiler)?;
    let mut command = node::command()?;
    command
        .arg("tests/bench/figures.mjs")
        .current_dir(workspace())
        .env("FSGLASS_DIGESTS", native)
        .env("FSGLASS_WASM", module);
    let finished = shell::run("bench", &mut command, Show::All, minutes(60))?;
    Ok(finished.status.success() && bench_page(compiler)?)
}

/// The page's figures, where there is a browser.
fn bench_page(compiler: Compiler) -> Result<bool, Fault> {
    let Some(chromium) = browser::find() else {
        println!("SKIP page: no Chromium found (set FSGLASS_CHROMIUM to one)");
        return Ok(true);
    };
    page::build_with(compiler)?;
    let url = server::Server::bind(workspace().join("dist"), "/", None)?.run_in_background();
    let mut command = node::command()?;
    command
        .arg("tests/bench/page.mjs")
        .current_dir(workspace())
        .env("FSGLASS_URL", url)
        .env("FSGLASS_CHROMIUM", chromium)
        .env("FSGLASS_PLAYWRIGHT", node::playwright_module());
    let finished = shell::run("bench of the page", &mut command, Show::All, minutes(20))?;
    Ok(finished.status.success())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(script: &str) -> Counts {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        count(&shell::run("t", &mut command, Show::Progress, minutes(1)).unwrap())
    }

    const fn counts(passed: u64, failed: u64, skipped: u64) -> Counts {
        Counts {
            passed,
            failed,
            skipped,
        }
    }

    #[test]
    fn lines_are_counted() {
        let libtest =
            "test result: FAILED. 5 passed; 2 failed; 1 ignored; 0 measured; 0 filtered out";
        assert_eq!(libtest_line(libtest), Some(counts(5, 2, 0)));
        assert_eq!(plain_line("3 passed, 1 failed"), Some(counts(3, 1, 0)));
        assert_eq!(
            plain_line("interop: 3 passed, 0 failed, 2 skipped"),
            Some(counts(3, 0, 2))
        );
        assert_eq!(plain_line("all 3 passed, 0 failed"), None);
        assert_eq!(plain_line("3 passed"), None);
    }

    #[test]
    fn the_exit_status_has_the_last_word() {
        assert_eq!(ran("exit 0"), counts(1, 0, 0));
        assert_eq!(ran("exit 1"), counts(0, 1, 0));
        assert_eq!(ran("exit 77"), counts(0, 0, 1));
        assert_eq!(ran("echo 4 passed, 0 failed; exit 101"), counts(4, 1, 0));
        assert_eq!(ran("echo 4 passed, 2 failed; exit 1"), counts(4, 2, 0));
        assert_eq!(ran("echo 4 passed, 0 failed; exit 0"), counts(4, 0, 0));
    }
}
