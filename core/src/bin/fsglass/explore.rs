//! `crash --explore`.

use crate::args::CrashArgs;
use crate::output::{complain, json_text, say};
use crate::run::{config_json, instant, load, SLICE};
use crate::{Outcome, Verdict};
use fsglass::experiment::explore::{Found, Instants, Outcome as Ending};
use serde_json::{json, Value};

/// Signs of life: so many in a whole exploration.
const SIGNS: usize = 20;
/// Differing recoveries that are shown.
const SHOWN: usize = 5;

/// `fsglass crash --explore`: 0 if all states are sound and no promise is broken, 1 if not.
pub(crate) fn explore(a: &CrashArgs) -> Outcome {
    let name = &a.experiment.experiment;
    let (mut session, e) = load(&a.experiment)?;
    let instants = match (&a.at, a.record) {
        (Some(t), _) => {
            let at = instant(t)?;
            while session.run(at.0, SLICE).running {}
            Instants::Time(at)
        }
        (None, n) => {
            while !session.run(u64::MAX, SLICE).done {}
            n.map_or(Instants::From(0), Instants::Record)
        }
    };
    if let Some(reason) = session.failure() {
        return Err(format!("{name}: {reason}"));
    }
    let problem = |e: String| format!("{name}: {e}");
    let mut explorer = session
        .explorer(instants, a.limit as usize)
        .map_err(problem)?;
    let all = explorer.instants_left();
    while explorer.step().map_err(problem)? {
        let left = explorer.instants_left();
        if left > 0 && left % all.div_ceil(SIGNS) == 0 {
            let states = explorer.found().states;
            complain(&format!(
                "explored {} of {all} instants, {states} states",
                all - left
            ));
        }
    }
    let (found, outcomes) = explorer.finish().map_err(problem)?;
    if a.json {
        let at = match instants {
            Instants::From(_) => Value::Null,
            _ => json!(outcomes.first().map(|o| o.witness.instant.0)),
        };
        let mut o = result_json(&found, &outcomes);
        o["instant_ns"] = at;
        o["digest"] = json!(session.digest());
        o["config"] = config_json(&e);
        say(&json_text(&o));
    } else {
        print(a, &found, &outcomes);
    }
    let good = outcomes.iter().all(Ending::good) && found.recoveries_differ.is_empty();
    Ok(if good { Verdict::Good } else { Verdict::Failed })
}

fn result_json(found: &Found, outcomes: &[Ending]) -> Value {
    let one = |o: &Ending| {
        let broken = o.broken.iter();
        let broken = broken.map(|[path, promise, after, because]| {
            json!({ "path": path, "promise": promise, "after": after, "because": because })
        });
        let lost = o.witness.lost.iter();
        let lost = lost.map(|(n, what)| json!({ "record": n, "what": what }));
        json!({
            "states": o.states, "tree": o.tree, "error": o.error, "broken_promises": o.broken.len(),
            "broken": broken.collect::<Vec<_>>(), "findings": o.findings,
            "witness": {
                "record": o.witness.record, "instant_ns": o.witness.instant.0, "kept": o.witness.kept,
                "lost": lost.collect::<Vec<_>>(),
            },
        })
    };
    json!({
        "instants": found.instants, "states": found.states, "exhaustive": found.exhaustive, "complete": found.complete,
        "recoveries_cut": found.recoveries_cut, "recoveries_differ": found.recoveries_differ,
        "outcomes": outcomes.iter().map(one).collect::<Vec<_>>(),
    })
}

/// The exploration for people.
fn print(a: &CrashArgs, found: &Found, outcomes: &[Ending]) {
    let bad: u64 = outcomes
        .iter()
        .filter(|o| !o.good())
        .map(|o| o.states)
        .sum();
    say(&format!(
        "{} states at {} instants, {}: {bad} with a loss or damage; {} outcomes",
        found.states,
        found.instants,
        if found.exhaustive {
            "all there are"
        } else {
            "a sample, raise --limit for more"
        },
        outcomes.len()
    ));
    for o in outcomes {
        let tree = o.tree.get(..12).unwrap_or("none");
        let verdict = match (&o.error, o.broken.len(), o.findings.len()) {
            (Some(e), ..) => e.clone(),
            (None, 0, 0) => "no promise broken".to_string(),
            (None, broken, findings) => {
                format!("{broken} promises broken, {findings} findings of the check")
            }
        };
        say(&format!("{:8} states  tree {tree}  {verdict}", o.states));
        for [path, promise, after, because] in &o.broken {
            say(&format!(
                "           {path}: {promise}; after recovery: {after} ({because})"
            ));
        }
        for f in &o.findings {
            say(&format!("           {f}"));
        }
        if !o.good() {
            print_witness(a, o);
        }
    }
    say(&format!(
        "recovery cut {} times in its turn: {} other results",
        found.recoveries_cut,
        found.recoveries_differ.len()
    ));
    for d in found.recoveries_differ.iter().take(SHOWN) {
        say(&format!("           {d}"));
    }
}

fn print_witness(a: &CrashArgs, o: &Ending) {
    let kept: Vec<String> = o.witness.kept.iter().map(ToString::to_string).collect();
    let cut = match &a.at {
        Some(t) => format!("--at {t}"),
        None => format!("--record {}", o.witness.record),
    };
    say(&format!(
        "           smallest: fsglass crash {} {cut} --loss keep={}",
        a.experiment.experiment,
        kept.join(",")
    ));
    for (n, what) in &o.witness.lost {
        say(&format!("             lost {n}: {what}"));
    }
}
