//! Developer tasks of fsglass: set up what is missing, build the page, serve it, run every test.
//!
//! Knows nothing of the core: it compiles alone and in seconds, also while the core does not.
//! Tools go into a per-user cache folder keyed by name and version, so a second clone builds none of them again.

#![allow(
    clippy::disallowed_methods,
    reason = "a developer tool works in real time and with threads; the bans are for the simulated machine"
)]

mod browser;
mod components;
mod debian;
mod node;
mod options;
mod page;
mod paths;
mod report;
mod server;
mod shell;
mod suite;
mod tools;
mod wasm_target;

use options::{Options, Task};
use std::process::ExitCode;

/// Why a task could not go on: one line that names the missing or failed thing.
type Fault = String;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let options = match Options::parse(&arguments) {
        Ok(options) => options,
        Err(problem) => {
            eprintln!("xtask: {problem}\n\n{}", options::USAGE);
            return ExitCode::from(2);
        }
    };
    let outcome = match options.task {
        Task::Help => {
            println!("{}", options::USAGE);
            Ok(true)
        }
        Task::Setup => setup(&options),
        Task::Build => page::build(&options).map(|()| true),
        Task::Serve => serve(&options),
        Task::Test => suite::run(&options),
        Task::Bench => suite::bench(&options),
        Task::Trace => suite::trace(),
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(fault) => {
            eprintln!("xtask: {fault}");
            ExitCode::FAILURE
        }
    }
}

/// Everything that building and testing need, nothing else.
fn setup(options: &Options) -> Result<bool, Fault> {
    let background = tools::Background::start();
    debian::ensure_test_programs();
    components::ensure()?;
    wasm_target::ensure(options.toolchain)?;
    node::ensure()?;
    background.join()?;
    report::note("everything is in place");
    Ok(true)
}

fn serve(options: &Options) -> Result<bool, Fault> {
    if options.build {
        page::build(options)?;
    }
    let dist = paths::workspace().join("dist");
    if !dist.join("index.html").is_file() {
        return Err("dist/index.html is missing: run without --no-build first".to_owned());
    }
    server::Server::bind(dist, &options.base, options.port)?.announce_and_run();
    Ok(true)
}
