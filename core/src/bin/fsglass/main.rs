//! The command line tool. Exit status: 0 good, 1 the check it makes failed, 2 bad input or usage.

mod args;
mod explore;
mod image;
mod inspect;
mod lab;
mod output;
mod run;

use args::{Cli, Command};
use clap::error::ErrorKind;
use clap::Parser;
use std::process::ExitCode;

/// How a command ended without an error.
enum Verdict {
    /// Done; the check holds.
    Good,
    /// Done; the check it makes failed.
    Failed,
}

/// Bad input or usage: one line that names file, line or option, what is wrong and what would be right.
type Outcome = Result<Verdict, String>;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(e) if !e.use_stderr() => {
            output::say(&e.to_string());
            return ExitCode::SUCCESS;
        }
        Err(e) if e.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            output::complain("a command is missing; `fsglass --help` lists them");
            return ExitCode::from(2);
        }
        Err(e) => {
            let text = e.to_string();
            let parts = text.lines().map(str::trim).filter(|l| !l.is_empty());
            let parts = parts
                .take_while(|l| !l.starts_with("Usage:"))
                .map(|l| l.trim_start_matches("error: "));
            output::complain(&parts.collect::<Vec<_>>().join(" "));
            return ExitCode::from(2);
        }
    };
    let outcome = match cli.command {
        Command::Mkfs(a) => image::mkfs(&a),
        Command::Fsck(a) => image::fsck(&a),
        Command::Recover(a) => image::recover(&a),
        Command::Ls(a) => inspect::ls(&a),
        Command::Cat(a) => inspect::cat(&a),
        Command::Dump(a) => inspect::dump(&a),
        Command::Ops(a) => lab::ops(&a),
        Command::Trace(a) => lab::trace(&a),
        Command::Wlog(a) => lab::wlog(&a),
        Command::Run(a) => run::run(&a),
        Command::Crash(a) => run::crash(&a),
    };
    match outcome {
        Ok(Verdict::Good) => ExitCode::SUCCESS,
        Ok(Verdict::Failed) => ExitCode::from(1),
        Err(reason) => {
            output::complain(&reason);
            ExitCode::from(2)
        }
    }
}
