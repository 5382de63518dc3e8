//! Experiments: `run` and `crash`.

use crate::args::{CrashArgs, ExperimentArgs, RunArgs};
use crate::explore::explore;
use crate::image::save_store;
use crate::output::{complain, json_text, read_text, say, write_text};
use crate::{Outcome, Verdict};
use fsglass::base::Nanos;
use fsglass::block::Loss;
use fsglass::config::{parse_experiment, Experiment, Problem, FIELDS};
use fsglass::experiment::oracle::Survivors;
use fsglass::experiment::recover::Step;
use fsglass::session::{manifest, Cut, Session};
use fsglass::workload::size::parse_time;
use serde_json::{json, Value};

/// Events of the scheduler between looks at the end of the run.
pub(crate) const SLICE: u64 = 1 << 20;

fn problems(name: &str, list: &[Problem]) -> String {
    let all: Vec<String> = list.iter().map(|p| format!("{name}: {p}")).collect();
    all.join("; ")
}

fn experiment(a: &ExperimentArgs) -> Result<Experiment, String> {
    let name = &a.experiment;
    let mut e = parse_experiment(&read_text(name)?).map_err(|p| problems(name, &p))?;
    for assignment in &a.set {
        let (path, value) = assignment
            .split_once('=')
            .ok_or_else(|| format!("--set {assignment}: write PATH=VALUE"))?;
        e.set(path, value).map_err(|p| format!("--set {p}"))?;
    }
    for v in &a.var {
        let (key, value) = v
            .split_once('=')
            .ok_or_else(|| format!("--var {v}: write NAME=VALUE"))?;
        e.vars.insert(key.to_string(), value.to_string());
    }
    if let Some(seed) = a.seed {
        e.seed = seed;
    }
    Ok(e)
}

pub(crate) fn load(a: &ExperimentArgs) -> Result<(Session, Experiment), String> {
    let e = experiment(a)?;
    let (session, loaded) = Session::load(&e).map_err(|p| problems(&a.experiment, &p))?;
    for w in &loaded.warnings {
        complain(&format!("warning: {w}"));
    }
    Ok((session, e))
}

/// All fields with their values, for results.
pub(crate) fn config_json(e: &Experiment) -> Value {
    let mut o = json!({ "seed": e.seed, "title": e.title });
    for f in &FIELDS {
        o[f.path] = json!(e.get(f.path));
    }
    for (path, value) in &e.values {
        o[path] = json!(value);
    }
    o["workload"] = json!({ e.workload.key(): e.workload.text() });
    o
}

/// `fsglass run`.
pub(crate) fn run(a: &RunArgs) -> Outcome {
    let (mut session, e) = load(&a.experiment)?;
    while !session.run(u64::MAX, SLICE).done {}
    if let Some(reason) = session.failure() {
        return Err(format!("{}: {reason}", a.experiment.experiment));
    }
    let result = session.result();
    session
        .unmount()
        .map_err(|e| format!("{}: {e}", a.experiment.experiment))?;
    if let Some(image) = &a.image {
        save_store(image, session.store())?;
    }
    if a.json {
        let mut o = result.json;
        o["config"] = config_json(&e);
        o["digest"] = json!(session.digest());
        say(&json_text(&o));
    } else {
        say(&result.text);
        say(&format!("digest {}", session.digest()));
    }
    Ok(if result.failed {
        Verdict::Failed
    } else {
        Verdict::Good
    })
}

fn loss(text: &str) -> Result<Loss, String> {
    match text.split_once('=') {
        None if text == "none" => Ok(Loss::None),
        None if text == "all" => Ok(Loss::All),
        Some(("seed", n)) => n
            .parse()
            .map(Loss::Seed)
            .map_err(|_| format!("--loss {text}: seed=NUMBER")),
        Some(("keep", list)) => {
            let numbers: Option<Vec<usize>> = list
                .split(',')
                .filter(|t| !t.is_empty())
                .map(|t| t.parse().ok())
                .collect();
            numbers
                .map(Loss::Keep)
                .ok_or_else(|| format!("--loss {text}: keep=RECORD,RECORD.."))
        }
        _ => Err(format!(
            "--loss {text}: none, all, seed=N or keep=RECORD,RECORD.."
        )),
    }
}

/// The power cut for people.
fn print_cut(cut: &Cut, steps: &[Step], survivors: &Survivors) {
    say(&format!(
        "power cut at {:.9} s: {} writes lost, {} kept; {} of {} promises broken",
        cut.at.as_secs_f64(),
        cut.lost,
        cut.kept,
        survivors.broken,
        survivors.promises
    ));
    for s in steps {
        say(&format!("  {:12} {}", s.title, s.sentence));
    }
    for r in &survivors.rows {
        say(&format!(
            "{:20} saw {:16} {:24} after {:16} {}{}",
            fsglass::workload::ops::percent_encode(&r.path),
            r.saw,
            r.promise,
            r.after,
            r.verdict.words(),
            if r.broken { " (BROKEN PROMISE)" } else { "" }
        ));
    }
}

/// The time of `--at`.
pub(crate) fn instant(text: &str) -> Result<Nanos, String> {
    let at = parse_time(text, Nanos::from_secs(1));
    at.ok_or_else(|| format!("--at {text}: write 6.1s or 250ms"))
}

/// `fsglass crash`: 0 if no promise is broken, 1 if one is.
pub(crate) fn crash(a: &CrashArgs) -> Outcome {
    if a.explore {
        return explore(a);
    }
    let loss = loss(&a.loss)?;
    let (mut session, e) = load(&a.experiment)?;
    let name = &a.experiment.experiment;
    let cut = match (&a.at, a.record) {
        (Some(t), _) => {
            let at = instant(t)?;
            while session.run(at.0, SLICE).running {}
            session.cut(at.0, &loss)
        }
        (None, Some(n)) => {
            while !session.run(u64::MAX, SLICE).done {}
            session.cut_at_record(n, &loss)
        }
        (None, None) => return Err("crash needs --at TIME, --record N or --explore".to_string()),
    }
    .map_err(|e| format!("{name}: {e}"))?;
    if let Some(reason) = session.failure() {
        return Err(format!("{name}: {reason}"));
    }
    let recovered = session.recover(&cut).map_err(|e| format!("{name}: {e}"))?;
    let survivors = session.survivors(cut.at, &recovered.store)?;
    let (sums, _) = manifest(&recovered.store)?;
    let rows: Vec<Value> = survivors
        .rows
        .iter()
        .map(|r| {
            json!({
                "path": fsglass::workload::ops::percent_encode(&r.path), "saw": r.saw, "promise": r.promise,
                "after": r.after, "verdict": r.verdict.words(), "because": r.because, "broken": r.broken,
            })
        })
        .collect();
    let result = json!({
        "instant_ns": cut.at.0, "writes_lost": cut.lost, "writes_kept": cut.kept,
        "mounts": recovered.error.is_none(), "error": recovered.error,
        "promises": survivors.promises, "broken_promises": survivors.broken, "complete": survivors.complete,
        "survivors": rows, "digest": session.digest(), "config": config_json(&e),
    });
    if let Some(image) = &a.image {
        save_store(image, &cut.store)?;
        write_text(&format!("{image}.sha256"), &sums)?;
        write_text(&format!("{image}.json"), &json_text(&result))?;
    }
    if a.json {
        say(&json_text(&result));
    } else {
        print_cut(&cut, &recovered.steps, &survivors);
    }
    Ok(if survivors.broken > 0 || recovered.error.is_some() {
        Verdict::Failed
    } else {
        Verdict::Good
    })
}
