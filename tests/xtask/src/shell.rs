//! Running other programs: their output line by line, a sign of life on long ones, an end to those that hang.

use crate::report::{note, seconds};
use crate::Fault;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{channel, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// How a program's lines are shown.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Show {
    /// Every line as it comes.
    All,
    /// The latest line now and then; all of it only when it fails.
    Progress,
}

/// What a program did.
pub(crate) struct Finished {
    pub(crate) status: ExitStatus,
    /// stdout and stderr, in the order of arrival.
    pub(crate) lines: Vec<String>,
    pub(crate) time: Duration,
}

impl Finished {
    /// The exit status as scripts see it; -1 for a signal.
    pub(crate) fn code(&self) -> i32 {
        self.status.code().unwrap_or(-1)
    }

    /// The last lines, for an error.
    pub(crate) fn tail(&self, count: usize) -> String {
        self.lines[self.lines.len().saturating_sub(count)..].join("\n")
    }
}

/// How often a silent program's latest line is shown.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// Runs to the end, or ends the program after `limit`.
pub(crate) fn run(
    title: &str,
    command: &mut Command,
    show: Show,
    limit: Duration,
) -> Result<Finished, Fault> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("{title}: cannot start '{program}': {error}"))?;
    let start = Instant::now();
    let lines = collect(title, &mut child, show, start + limit);
    let timed_out = lines.is_err();
    if timed_out {
        // It may have ended by itself just now; either way it is waited for below.
        let _ = child.kill();
    }
    let status = child.wait().map_err(|error| format!("{title}: {error}"))?;
    match lines {
        Ok(lines) => Ok(Finished {
            status,
            lines,
            time: start.elapsed(),
        }),
        Err(lines) => {
            let tail = lines[lines.len().saturating_sub(20)..].join("\n");
            Err(format!(
                "{title}: no end after {}, stopped\n{tail}",
                seconds(limit)
            ))
        }
    }
}

/// Reads both streams until they close; `Err` with what came when the deadline passes first.
fn collect(
    title: &str,
    child: &mut Child,
    show: Show,
    deadline: Instant,
) -> Result<Vec<String>, Vec<String>> {
    let (sender, receiver) = channel();
    if let Some(stream) = child.stdout.take() {
        forward(stream, sender.clone());
    }
    if let Some(stream) = child.stderr.take() {
        forward(stream, sender.clone());
    }
    drop(sender);
    let mut lines: Vec<String> = Vec::new();
    let start = Instant::now();
    let mut shown = start;
    loop {
        let now = Instant::now();
        if now >= deadline {
            return Err(lines);
        }
        if show == Show::Progress && now - shown >= SIGN_OF_LIFE {
            shown = now;
            let latest = lines.iter().rev().find(|line| !line.trim().is_empty());
            note(&format!(
                "  {title}, {}: {}",
                seconds(now - start),
                latest.map_or("started", |line| line.trim())
            ));
        }
        match receiver.recv_timeout(Duration::from_millis(500)) {
            Ok(line) => {
                if show == Show::All {
                    println!("{line}");
                }
                lines.push(line);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(lines),
        }
    }
}

/// Sends each line of a stream on; bytes that are no text are replaced.
fn forward(stream: impl Read + Send + 'static, sender: Sender<String>) {
    thread::spawn(move || {
        let mut reader = BufReader::new(stream);
        let mut bytes = Vec::new();
        while reader
            .read_until(b'\n', &mut bytes)
            .is_ok_and(|count| count > 0)
        {
            let line = String::from_utf8_lossy(&bytes);
            if sender
                .send(line.trim_end_matches(['\n', '\r']).to_owned())
                .is_err()
            {
                return;
            }
            bytes.clear();
        }
    });
}

/// Runs a step of set-up or of a build that has to work.
pub(crate) fn must(title: &str, command: &mut Command, limit: Duration) -> Result<(), Fault> {
    note(title);
    let finished = run(title, command, Show::Progress, limit)?;
    if finished.status.success() {
        note(&format!("{title}: done in {}", seconds(finished.time)));
        Ok(())
    } else {
        Err(format!(
            "{title}: failed (status {})\n{}",
            finished.code(),
            finished.tail(40)
        ))
    }
}

/// A program's first output line, if it runs at all.
pub(crate) fn answer(command: &mut Command) -> Option<String> {
    let output = command.stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output
        .status
        .success()
        .then(|| text.lines().next().unwrap_or("").trim().to_owned())
}

/// Minutes, for limits.
pub(crate) const fn minutes(count: u64) -> Duration {
    Duration::from_secs(count * 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn lines_and_status_come_back() {
        let script = "echo one; echo two >&2; exit 3";
        let finished = run("t", &mut sh(script), Show::Progress, minutes(1)).unwrap();
        assert_eq!(finished.code(), 3);
        let mut lines = finished.lines.clone();
        lines.sort();
        assert_eq!(lines, ["one", "two"]);
    }

    #[test]
    fn a_program_that_hangs_is_ended() {
        let limit = Duration::from_millis(700);
        let fault = run(
            "t",
            &mut sh("echo here; exec sleep 60"),
            Show::Progress,
            limit,
        );
        assert!(fault
            .err()
            .is_some_and(|text| text.contains("here") && text.contains("stopped")));
    }

    #[test]
    fn a_missing_program_is_named() {
        let fault = must(
            "step",
            &mut Command::new("fsglass-no-such-program"),
            minutes(1),
        );
        assert!(fault.unwrap_err().contains("fsglass-no-such-program"));
    }
}
