//! The command line.

use crate::Fault;

pub(crate) const USAGE: &str = "\
usage: ./run TASK [OPTIONS]     (the same as: cargo xtask TASK [OPTIONS])

tasks
  serve    set up what is missing, build the page in release mode, serve it on a loopback port
  test     set up what is missing, run every test; the last line is 'N passed, N failed, N skipped'
  build    set up what is missing, build the page into dist/, check its size budgets
  setup    only set up what is missing
  bench    print the figures (native and wasm engine, sizes)
  trace    play the recorded ext4 scenarios and print the table of counts that are not as Linux

options
  --port N                     serve: this port or none (default: the first free one from 8017)
  --base /PATH/                serve: under this sub-path (default: /)
  --no-build                   serve: what dist/ holds already
  --only PART[,PART]           test: only these parts (see --list)
  --list                       test: name the parts
  --toolchain rustup|debian    where the wasm compiler comes from (default: rustup if it has or can get the
                               wasm target, else Debian's packages with a standard library built from source)

environment
  XDG_CACHE_HOME               tools are kept in $XDG_CACHE_HOME/fsglass (default ~/.cache/fsglass)
  FSGLASS_CHROMIUM             the browser of the page tests
  FSGLASS_SEEDS                how many fresh fuzz scripts the interop tests play (default 4)
  CI=true                      a test that is skipped though this machine could run it counts as failed";

/// What to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Task {
    Help,
    Setup,
    Build,
    Serve,
    Test,
    Bench,
    Trace,
}

/// Where the compiler for the wasm target comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Toolchain {
    /// rustup's if possible, else Debian's.
    Any,
    Rustup,
    Debian,
}

/// The parsed command line.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Options {
    pub(crate) task: Task,
    pub(crate) toolchain: Toolchain,
    pub(crate) port: Option<u16>,
    pub(crate) base: String,
    pub(crate) build: bool,
    pub(crate) only: Vec<String>,
    pub(crate) list: bool,
}

impl Options {
    /// Refuses what it does not know, by name.
    pub(crate) fn parse(arguments: &[String]) -> Result<Options, Fault> {
        let mut words = arguments.iter();
        let task = match words.next().map(String::as_str) {
            Some("serve") => Task::Serve,
            Some("test") => Task::Test,
            Some("build") => Task::Build,
            Some("setup") => Task::Setup,
            Some("bench") => Task::Bench,
            Some("trace") => Task::Trace,
            Some("help" | "--help" | "-h") => Task::Help,
            Some(other) => return Err(format!("unknown task '{other}'")),
            None => return Err("no task given".to_owned()),
        };
        let mut options = Options {
            task,
            toolchain: Toolchain::Any,
            port: None,
            base: "/".to_owned(),
            build: true,
            only: Vec::new(),
            list: false,
        };
        while let Some(word) = words.next() {
            let mut value = || words.next().ok_or(format!("{word} needs a value"));
            match word.as_str() {
                "--help" | "-h" => options.task = Task::Help,
                "--no-build" => options.build = false,
                "--list" => options.list = true,
                "--port" => {
                    let text = value()?;
                    let port = text.parse().ok().filter(|port| *port > 0);
                    options.port =
                        Some(port.ok_or(format!("--port {text}: not a port (1..65535)"))?);
                }
                "--base" => options.base = sub_path(value()?)?,
                "--only" => options.only = value()?.split(',').map(str::to_owned).collect(),
                "--toolchain" => {
                    options.toolchain = match value()?.as_str() {
                        "rustup" => Toolchain::Rustup,
                        "debian" => Toolchain::Debian,
                        other => {
                            return Err(format!("--toolchain {other}: 'rustup' or 'debian'"));
                        }
                    };
                }
                other => return Err(format!("unknown option '{other}'")),
            }
        }
        Ok(options)
    }
}

/// `/a/b` becomes `/a/b/`.
fn sub_path(text: &str) -> Result<String, Fault> {
    if !text.starts_with('/') || text.contains("..") {
        return Err(format!(
            "--base {text}: has to start with '/', without '..'"
        ));
    }
    let trimmed = text.trim_matches('/');
    Ok(if trimmed.is_empty() {
        "/".to_owned()
    } else {
        format!("/{trimmed}/")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, Fault> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Options::parse(&words)
    }

    #[test]
    fn options_are_read() {
        let options = parse("serve --port 9000 --base /a/b --no-build --toolchain debian").unwrap();
        assert_eq!(options.task, Task::Serve);
        assert_eq!(options.port, Some(9000));
        assert_eq!(options.base, "/a/b/");
        assert!(!options.build);
        assert_eq!(options.toolchain, Toolchain::Debian);
        assert_eq!(parse("test --only fmt,unit").unwrap().only, ["fmt", "unit"]);
    }

    #[test]
    fn mistakes_are_named() {
        for (line, part) in [
            ("", "no task"),
            ("dance", "'dance'"),
            ("serve --port 70000", "70000"),
            ("serve --port 0", "not a port"),
            ("serve --port", "needs a value"),
            ("serve --base x", "--base x"),
            ("test --toolchain gcc", "gcc"),
            ("test --fast", "'--fast'"),
        ] {
            let problem = parse(line).unwrap_err();
            assert!(problem.contains(part), "{line}: {problem}");
        }
    }
}
