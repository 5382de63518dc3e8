//! fio job files: sections, `[global]`, `${VAR}` and line numbers for every complaint.

use super::options::FioJob;
use std::collections::BTreeMap;
use std::fmt;

/// A parsed job file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobFile {
    /// Jobs in file order, globals already applied.
    pub jobs: Vec<FioJob>,
    /// Options of `[global]` as written, for the report.
    pub global: Vec<(String, String)>,
    /// Options taken without effect.
    pub notices: Vec<Notice>,
}

/// An option that is accepted but changes nothing in virtual time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Line number, from 1.
    pub line: u32,
    /// The option.
    pub option: String,
    /// Why it changes nothing.
    pub reason: &'static str,
}

/// What is wrong with a job file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFileError {
    /// Line number, from 1; 0 if the file as a whole is meant.
    pub line: u32,
    /// What is wrong and what would be right.
    pub reason: String,
}

impl fmt::Display for JobFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.reason),
            n => write!(f, "line {n}: {}", self.reason),
        }
    }
}

/// True if the text looks like a fio job file (its first meaningful line is a section head).
pub fn looks_like_job_file(text: &str) -> bool {
    text.lines()
        .map(str::trim)
        .find(|l| !l.is_empty() && !l.starts_with(['#', ';']))
        .is_some_and(|l| l.starts_with('[') && l.contains(']') && !l.starts_with("[["))
}

/// Parses a job file. `vars` are the values of `${VAR}`.
pub fn parse_job_file(
    text: &str,
    vars: &BTreeMap<String, String>,
) -> Result<JobFile, JobFileError> {
    let mut file = JobFile::default();
    let mut defaults = FioJob::new("");
    let mut current: Option<FioJob> = None;
    let mut in_global = false;
    for (i, raw) in text.lines().enumerate() {
        let line = i as u32 + 1;
        let err = |reason: String| JobFileError { line, reason };
        let t = raw.trim();
        if t.is_empty() || t.starts_with('#') || t.starts_with(';') {
            continue;
        }
        let t = strip_remark(t);
        if let Some(head) = t.strip_prefix('[') {
            let name = head
                .strip_suffix(']')
                .filter(|n| !n.trim().is_empty())
                .ok_or_else(|| err(format!("`{t}` is not a section; write [name]")))?;
            file.jobs.extend(current.take());
            in_global = name == "global";
            if !in_global {
                let mut job = defaults.clone();
                job.name = name.to_string();
                job.section = name.to_string();
                current = Some(job);
            }
            continue;
        }
        let t = expand(t, vars).map_err(err)?;
        let (key, value) = match t.split_once('=') {
            Some((k, v)) => (k.trim(), Some(v.trim())),
            None => (t.trim(), None),
        };
        let written = (key.to_string(), value.unwrap_or("1").to_string());
        let job = match (&mut current, in_global) {
            (_, true) => {
                file.global.push(written);
                &mut defaults
            }
            (Some(job), false) => {
                job.written.push(written);
                job
            }
            (None, false) => {
                return Err(err(format!(
                    "`{t}` stands before any section; start with [global] or [name]"
                )))
            }
        };
        if let Some(reason) = job.set(key, value).map_err(err)? {
            file.notices.push(Notice {
                line,
                option: key.to_string(),
                reason,
            });
        }
    }
    file.jobs.extend(current.take());
    check(&file)?;
    Ok(file)
}

fn strip_remark(t: &str) -> &str {
    match t.find(" ;").or_else(|| t.find(" #")) {
        Some(i) => t[..i].trim_end(),
        None => t,
    }
}

fn expand(t: &str, vars: &BTreeMap<String, String>) -> Result<String, String> {
    let mut out = String::with_capacity(t.len());
    let mut rest = t;
    while let Some(start) = rest.find("${") {
        out.push_str(&rest[..start]);
        let after = &rest[start + 2..];
        let end = after
            .find('}')
            .ok_or_else(|| format!("`{t}`: `${{` without `}}`"))?;
        let name = &after[..end];
        let value = vars.get(name).ok_or_else(|| {
            format!("variable `${{{name}}}` has no value; give it with --var {name}=..")
        })?;
        out.push_str(value);
        rest = &after[end + 1..];
    }
    out.push_str(rest);
    Ok(out)
}

fn check(file: &JobFile) -> Result<(), JobFileError> {
    let whole = |reason: String| JobFileError { line: 0, reason };
    if file.jobs.is_empty() {
        return Err(whole("the job file has no job section; add [name]".into()));
    }
    for job in &file.jobs {
        let name = &job.name;
        if job.size == 0 && job.filesize.is_none() {
            return Err(whole(format!("job `{name}` has no size; add size=")));
        }
        let bs = job.bs_read.max(job.bs_write);
        if bs > job.file_bytes() {
            return Err(whole(format!(
                "job `{name}`: bs {bs} is larger than the file"
            )));
        }
        if job.time_based && job.runtime.is_none() {
            return Err(whole(format!(
                "job `{name}` is time_based but has no runtime"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::Nanos;
    use crate::workload::fio::{Engine, Pattern};

    fn parse(text: &str) -> Result<JobFile, String> {
        parse_job_file(text, &BTreeMap::new()).map_err(|e| e.to_string())
    }

    #[test]
    fn the_job_of_the_2020_thread() {
        let f = parse(
            "[global]\nioengine=sync\nruntime=30s\ntime_based\n\n[w]\nrw=randwrite\nbs=4k\n\
             iodepth=1\ndirect=1\nsize=100G\nrate_iops=25000\n",
        )
        .unwrap();
        let j = &f.jobs[0];
        assert_eq!(
            (j.rw, j.bs_write, j.size),
            (Pattern::RandWrite, 4096, 100 << 30)
        );
        assert_eq!(
            (j.ioengine, j.direct, j.time_based),
            (Engine::Sync, true, true)
        );
        assert_eq!(
            (j.runtime, j.rate_iops),
            (Some(Nanos::from_secs(30)), Some(25_000))
        );
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        let e = |t: &str| parse(t).err().unwrap_or_default();
        assert!(e("[w]\nsize=1m\nrw=randomwrite\n").starts_with("line 3: rw=`randomwrite`"));
        assert_eq!(
            e("[w]\nsize=1m\niodeth=4\n"),
            "line 3: option `iodeth` is unknown; did you mean `iodepth`?"
        );
        assert_eq!(
            e("[w]\nsize=1m\nverify=md5\n"),
            "line 3: option `verify` is not supported"
        );
        assert!(e("rw=read\n").contains("before any section"));
        assert!(e("[w]\nrw=read\n").contains("no size"));
        assert!(e("[w]\nsize=${SIZE}\n").contains("${SIZE}"));
        assert!(e("[w]\nsize=1m\ntime_based\n").contains("no runtime"));
        assert!(e("").contains("no job section"));
    }

    /// As fio 3.33 does: the report takes the name, the file the section; a name in `[global]` names the run.
    #[test]
    fn a_name_is_for_the_report_alone() {
        let f = parse("[global]\nname=run\nsize=64k\n[a]\nname=first\nname=other\n[b]\n").unwrap();
        let names = |j: &FioJob| (j.name.clone(), j.section.clone());
        assert_eq!(names(&f.jobs[0]), ("other".into(), "a".into()));
        assert_eq!(names(&f.jobs[1]), ("b".into(), "b".into()));
        assert_eq!(
            parse("[a]\nsize=64k\nname=\n").err().unwrap(),
            "line 3: `name` needs a value: name=..."
        );
    }

    #[test]
    fn variables_globals_and_notices() {
        let vars = BTreeMap::from([("SIZE".to_string(), "64m".to_string())]);
        let f = parse_job_file(
            "[global]\nbs=8k\nthread\n[a]\nsize=${SIZE}\n[b]\nsize=1m\nbs=4k,16k\n",
            &vars,
        );
        let f = f.unwrap();
        assert_eq!(f.jobs.len(), 2);
        assert_eq!((f.jobs[0].bs_read, f.jobs[0].size), (8192, 64 << 20));
        assert_eq!((f.jobs[1].bs_read, f.jobs[1].bs_write), (4096, 16384));
        assert_eq!(f.notices[0].option, "thread");
        assert_eq!(f.notices[0].line, 3);
    }
}
