//! The experiment as TOML text, or a bare fio job file, bare PostMark commands, or a bare operation script.

use super::{Experiment, Problem, Workload};
use crate::workload::fio::looks_like_job_file;
use crate::workload::ops::Script;
use crate::workload::postmark::looks_like_postmark;
use std::fmt::Write as _;
use toml::{Table, Value};

/// Reads an experiment from text: TOML, else a fio job file, else PostMark commands, else an operation script.
pub fn parse_experiment(text: &str) -> Result<Experiment, Vec<Problem>> {
    match text.parse::<Table>() {
        Ok(table) if table.contains_key("workload") => from_table(&table),
        parsed => {
            let mut e = Experiment::default();
            let sections = [
                "device", "mkfs", "mount", "machine", "vm", "vars", "seed", "title",
            ];
            let meant = parsed
                .as_ref()
                .is_ok_and(|t| sections.iter().any(|s| t.contains_key(*s)));
            if !meant && looks_like_job_file(text) {
                e.workload = Workload::Fio(text.to_string());
                return Ok(e);
            }
            if !meant && looks_like_postmark(text) {
                e.workload = Workload::Postmark(text.to_string());
                return Ok(e);
            }
            if let (Ok(script), Err(_)) = (Script::parse(text), &parsed) {
                if !script.ops.is_empty() {
                    e.workload = Workload::Ops(text.to_string());
                    return Ok(e);
                }
            }
            Err(vec![match parsed {
                Ok(_) => Problem::new(
                    "workload",
                    "the experiment has no workload; add [workload] with fio, ops or postmark",
                ),
                Err(e) => {
                    let line = e
                        .span()
                        .map(|s| text[..s.start.min(text.len())].lines().count());
                    Problem {
                        path: "experiment".into(),
                        line: line.map(|n| n.max(1) as u32),
                        reason: format!(
                            "neither TOML ({}), a fio job file, PostMark commands nor an operation script",
                            e.message()
                        ),
                    }
                }
            }])
        }
    }
}

fn from_table(table: &Table) -> Result<Experiment, Vec<Problem>> {
    let mut e = Experiment::default();
    let mut problems = Vec::new();
    for (section, value) in table {
        match value {
            Value::Table(inner) => {
                for (key, v) in inner {
                    let path = format!("{section}.{key}");
                    if let Err(p) = set(&mut e, &path, v) {
                        problems.push(p);
                    }
                }
            }
            v => problems.extend(set(&mut e, section, v).err()),
        }
    }
    let works = table
        .get("workload")
        .and_then(Value::as_table)
        .map_or(0, Table::len);
    if works != 1 {
        problems.push(Problem::new(
            "workload",
            "exactly one of fio, ops and postmark is needed",
        ));
    }
    if problems.is_empty() {
        Ok(e)
    } else {
        Err(problems)
    }
}

fn set(e: &mut Experiment, path: &str, v: &Value) -> Result<(), Problem> {
    if let (Some(var), Value::String(s)) = (path.strip_prefix("vars."), v) {
        e.vars.insert(var.to_string(), s.clone());
        return Ok(());
    }
    let text = match v {
        Value::String(s) => s.clone(),
        Value::Integer(n) => n.to_string(),
        Value::Float(x) => x.to_string(),
        // A mount flag: `nobarrier = true`.
        Value::Boolean(true) => String::new(),
        Value::Boolean(false) => {
            return Err(Problem::new(path, "leave the option out instead of false"))
        }
        _ => return Err(Problem::new(path, "a text or a number is needed here")),
    };
    e.set(path, &text)
}

impl Experiment {
    /// The canonical text: only what differs from the defaults, sorted. [`parse_experiment`] gives the same back.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        if !self.title.is_empty() {
            let _ = writeln!(out, "title = {}", quoted(&self.title));
        }
        let _ = writeln!(out, "seed = {}", self.seed);
        let mut section = "";
        for (path, value) in &self.values {
            let (head, key) = path.split_once('.').unwrap_or(("", path));
            if head != section {
                section = head;
                let _ = writeln!(out, "\n[{section}]");
            }
            let _ = writeln!(out, "{key} = {}", quoted(value));
        }
        if !self.vars.is_empty() {
            out.push_str("\n[vars]\n");
            for (k, v) in &self.vars {
                let _ = writeln!(out, "{k} = {}", quoted(v));
            }
        }
        let (key, text) = (self.workload.key(), self.workload.text());
        let _ = writeln!(out, "\n[workload]\n{key} = {}", quoted_block(text));
        out
    }
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => {
                let _ = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn quoted_block(text: &str) -> String {
    let plain = |c: char| c == '\n' || c == '\t' || !c.is_control();
    if text.contains("'''") || !text.chars().all(plain) {
        quoted(text)
    } else {
        format!("'''\n{text}'''")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        let mut e = Experiment {
            title: "a \"b\" \\ c".into(),
            seed: 9,
            ..Experiment::default()
        };
        e.set("device", "hdd").unwrap();
        e.set("mount.data", "journal").unwrap();
        e.workload = Workload::Fio("[w]\nsize=1m\nrw=write\n".into());
        e.vars.insert("SIZE".into(), "4k".into());
        assert_eq!(parse_experiment(&e.to_text()), Ok(e));
    }

    #[test]
    fn bare_workloads_are_experiments() {
        let fio = parse_experiment("; job\n[w]\nrw=write\nsize=1m\n").map(|e| e.workload.key());
        assert_eq!(fio, Ok("fio"));
        let ops = parse_experiment("create a\nfsync a\n").map(|e| e.workload.key());
        assert_eq!(ops, Ok("ops"));
        let pm = parse_experiment("set number 5\nrun\n").map(|e| e.workload.key());
        assert_eq!(pm, Ok("postmark"));
    }

    #[test]
    fn all_problems_come_at_once() {
        let text =
            "[device]\npreset = \"tape\"\n[machine]\nram = \"x\"\n[workload]\nops = \"sync\"\n";
        let p = parse_experiment(text).unwrap_err();
        assert_eq!(
            p.iter().map(|p| p.path.as_str()).collect::<Vec<_>>(),
            ["device.preset", "machine.ram"]
        );
        assert!(
            parse_experiment("[device]\nsize = \"1G\"\n").unwrap_err()[0]
                .reason
                .contains("no workload")
        );
        let p = parse_experiment("seed = 1\nwhat is this\n").unwrap_err();
        assert_eq!(p[0].line, Some(2));
    }
}
