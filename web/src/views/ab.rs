//! A/B: what does this switch change, and is it real?

use std::rc::Rc;

use fsglass_web::link::protocol::{CompareRow, Comparison};
use fsglass_web::state::ab::{change, sentence, value, verdict, Edit, Published, SEEDS};
use fsglass_web::state::act::Act;
use fsglass_web::state::store::{Action, Mode, Panel, State};
use fsglass_web::state::text::{duration, parse_instant};
use yew::prelude::*;

use super::Scope;
use crate::draw::pen::{Align, Face};
use crate::draw::{Figure, Painter, Pen};
use crate::widgets::value_of;

/// Width of the names beside the strips, CSS px.
const NAMES_W: f64 = 150.0;
/// And of the verdicts.
const VERDICTS_W: f64 = 190.0;

/// The panel's body.
pub(crate) fn view(scope: Scope<'_>) -> Html {
    html! {
        <div class="ab">
            { controls(scope) }
            <div class="body">{ findings(scope) }</div>
        </div>
    }
}

fn controls(scope: Scope<'_>) -> Html {
    let (ab, draft) = (&scope.state.ab, &scope.state.draft);
    let b = ab.b(draft);
    let field = |name: &'static str, act: &'static str, value: String, edit: fn(String) -> Edit| {
        let send = scope.send.clone();
        let oninput =
            Callback::from(move |e: InputEvent| send.emit(Action::EditAb(edit(value_of(&e)))));
        html! {
            <label>{ name }<input type="text" class="mono" data-act={act} {value} placeholder="defaults" spellcheck="false" autocomplete="off" {oninput} /></label>
        }
    };
    let seeds = {
        let send = scope.send.clone();
        Callback::from(move |e: Event| {
            let seeds = value_of(&e).parse().unwrap_or(SEEDS[1]);
            send.emit(Action::EditAb(Edit::Seeds(seeds)));
        })
    };
    let length = {
        let send = scope.send.clone();
        Callback::from(move |e: Event| {
            if let Some(ns) = parse_instant(&value_of(&e)) {
                send.emit(Action::EditAb(Edit::Length(ns)));
            }
        })
    };
    let button = |act: Act, words: &'static str, off: bool| {
        html! {
            <button type="button" data-act={act.name()} title={act.words()} disabled={off} onclick={scope.on(Action::Act(act))}>{ words }</button>
        }
    };
    html! {
        <form class="setup" aria-label="B" onsubmit={Callback::from(|e: SubmitEvent| e.prevent_default())}>
            { field("B: mount -o", "ab-mount", b.mount, Edit::Mount) }
            { field("B: mkfs", "ab-mkfs", b.mkfs, Edit::Mkfs) }
            { field("B: device", "ab-device", b.device, Edit::Device) }
            <label>{ "seeds" }<select data-act="ab-seeds" onchange={seeds}>
                { for SEEDS.into_iter().map(|n| html! { <option value={n.to_string()} selected={n == ab.seeds}>{ n }</option> }) }
            </select></label>
            <label>{ "each run" }<input type="text" class="mono" data-act="ab-length" value={duration(ab.length_ns).replace('\u{2009}', " ")} onchange={length} /></label>
            <div class="row">
                { button(Act::AbRun, "Run A and B", ab.running) }
                { button(Act::AbNoise, "A/A", ab.running) }
                if ab.running { { button(Act::AbStop, "Stop", false) } }
            </div>
        </form>
    }
}

/// More than one cause, or none, is worth a word before the run.
fn doubt(state: &State) -> Option<String> {
    match state.ab.differences(&state.draft).len() {
        0 => Some("B is as A. Change one thing in B, or run A/A to see the noise.".into()),
        1 => None,
        n => Some(format!("Two causes, one result: B differs in {n} options.")),
    }
}

fn findings(scope: Scope<'_>) -> Html {
    let state = scope.state;
    let doubt =
        doubt(state).map(|words| html! { <p class="hint" data-act="ab-doubt">{ words }</p> });
    let Some(result) = &state.ab.result else {
        return html! {
            <>
                { doubt }
                <p class="empty">{ "Both settings run the same workload with the same seeds; a difference counts only where it is larger than what the seeds alone make." }</p>
                { published_only(&state.ab.published) }
            </>
        };
    };
    let comparison = &result.0;
    html! {
        <>
            { doubt }
            { progress(comparison, state.ab.running) }
            <p class="verdictline" data-act="ab-verdict">{ if state.ab.running { String::new() } else { sentence(comparison) } }</p>
            { match state.mode(Panel::Ab) {
                Mode::Picture => picture(scope, result),
                Mode::Table => table(comparison, &state.ab.published),
                Mode::Log => log(comparison),
            } }
        </>
    }
}

fn progress(c: &Comparison, running: bool) -> Html {
    if !running {
        return html! {};
    }
    let share = (f64::from(c.done) + c.part) / f64::from(c.total.max(1));
    html! {
        <label class="progress">{ format!("run {} of {} ", (c.done + 1).min(c.total), c.total) }
            <progress max="1" value={format!("{share:.3}")} aria-label="Progress of the comparison"></progress></label>
    }
}

fn picture(
    scope: Scope<'_>,
    result: &Rc<(Comparison, Vec<fsglass_web::state::ab::Difference>)>,
) -> Html {
    let shown = result.clone();
    let done = result.0.done;
    let painter = Painter {
        stamp: scope.stamp(&format!("ab{done}/{}", result.0.noise)),
        paint: Rc::new(move |pen| paint(pen, &shown.0)),
    };
    html! {
        <>
            <Figure label={scope.state.title(Panel::Ab)} {painter} />
            <div class="readout">{ "filled circle: a run of A; hollow square: a run of B; bar: its median; each strip has a scale of its own" }</div>
        </>
    }
}

fn paint(pen: &Pen<'_>, c: &Comparison) {
    let pitch = (pen.h / c.rows.len().max(1) as f64).clamp(16.0, 34.0);
    for (i, row) in c.rows.iter().enumerate() {
        strip(pen, row, i as f64 * pitch, pitch);
    }
}

fn strip(pen: &Pen<'_>, row: &CompareRow, top: f64, pitch: f64) {
    let all = || row.a.iter().chain(&row.b).copied();
    let low = all().fold(f64::INFINITY, f64::min);
    let high = all().fold(f64::NEG_INFINITY, f64::max);
    let (from, to) = (NAMES_W + 8.0, pen.w - VERDICTS_W - 12.0);
    let span = (high - low).max(high.abs() * 0.02).max(1e-9);
    let x_of = |v: f64| from + (to - from).max(20.0) * (v - low) / span;
    let middle = top + pitch / 2.0;
    pen.note(NAMES_W, middle + 4.0, &row.measure.name, Align::End);
    pen.line(from, middle, to.max(from + 20.0), middle, &pen.t.rule, 1.0);
    let (a_y, b_y) = (middle - pitch * 0.18, middle + pitch * 0.18);
    let (a_hue, b_hue) = (&pen.t.role[5], &pen.t.role[2]);
    for v in &row.a {
        pen.fill(a_hue);
        pen.ctx.begin_path();
        let _ = pen.ctx.arc(x_of(*v), a_y, 3.0, 0.0, std::f64::consts::TAU);
        pen.ctx.fill();
    }
    for v in &row.b {
        pen.frame(x_of(*v) - 3.0, b_y - 3.0, 6.0, 6.0, b_hue, 1.5);
    }
    for (mid, y, hue) in [(row.a_mid, a_y, a_hue), (row.b_mid, b_y, b_hue)] {
        pen.line(x_of(mid), y - 5.0, x_of(mid), y + 5.0, hue, 2.0);
    }
    let words = format!("{}  {}", change(row.change), verdict(row));
    let ink = if row.real { &pen.t.ink } else { &pen.t.ink_2 };
    pen.text(
        pen.w - VERDICTS_W,
        middle + 4.0,
        &words,
        ink,
        Face::Sans(12.0),
        Align::Start,
    );
}

fn table(c: &Comparison, published: &[Published]) -> Html {
    let thread = !published.is_empty() && !c.noise;
    let of = |name: &str| published.iter().find(|p| p.name == name);
    // What the thread measured and this run did not.
    let rest: Vec<Published> = published
        .iter()
        .filter(|p| c.rows.iter().all(|r| r.measure.name != p.name))
        .cloned()
        .collect();
    html! {
        <div class="scroll"><table data-table="ab">
            <thead><tr>
                <th>{ "measure" }</th><th class="n">{ "A" }</th><th class="n">{ "B" }</th><th class="n">{ "change" }</th><th class="n">{ "spread" }</th><th>{ "verdict" }</th><th>{ "source" }</th>
                if thread { <th class="n">{ "thread: A" }</th><th class="n">{ "thread: B" }</th><th class="n">{ "thread: change" }</th> }
            </tr></thead>
            <tbody>
                { for c.rows.iter().map(|row| {
                    let unit = row.measure.unit.as_str();
                    html! {
                        <tr data-real={row.real.to_string()}>
                            <td>{ &row.measure.name }</td><td class="n">{ value(row.a_mid, unit) }</td><td class="n">{ value(row.b_mid, unit) }</td>
                            <td class="n">{ change(row.change) }</td><td class="n">{ change(row.spread).replacen('+', "±", 1) }</td>
                            <td>{ verdict(row) }</td><td>{ if row.measure.exact { "exact" } else { "modelled" } }</td>
                            if thread { { theirs(of(&row.measure.name)) } }
                        </tr>
                    }
                }) }
                if thread { { for rest.iter().map(|p| html! {
                    <tr><td>{ &p.name }</td><td></td><td></td><td></td><td></td><td></td><td></td>{ theirs(Some(p)) }</tr>
                }) } }
            </tbody>
        </table>
        if thread { <p class="hint">{ "The thread's numbers are of their machine and their year." }</p> }
        </div>
    }
}

fn theirs(p: Option<&Published>) -> Html {
    let p = p.cloned().unwrap_or_default();
    html! { <><td class="n">{ p.a }</td><td class="n">{ p.b }</td><td class="n">{ p.change }</td></> }
}

/// The thread's table alone, before anything has run.
fn published_only(published: &[Published]) -> Html {
    if published.is_empty() {
        return html! {};
    }
    html! {
        <div class="scroll"><table data-table="published">
            <thead><tr><th>{ "the thread measured" }</th><th class="n">{ "A" }</th><th class="n">{ "B" }</th><th class="n">{ "change" }</th></tr></thead>
            <tbody>{ for published.iter().map(|p| html! { <tr><td>{ &p.name }</td>{ theirs(Some(p)) }</tr> }) }</tbody>
        </table></div>
    }
}

fn log(c: &Comparison) -> Html {
    let rounds = c.done.div_ceil(2) as usize;
    let line = |side: &'static str, round: usize| {
        let words = c.rows.iter().filter_map(|row| {
            let list = if side == "A" { &row.a } else { &row.b };
            let v = *list.get(round)?;
            Some(format!(
                "{} {}",
                row.measure.name,
                value(v, &row.measure.unit)
            ))
        });
        let words = words.collect::<Vec<_>>().join(", ");
        html! { if !words.is_empty() { <li>{ format!("Seed {}, {side}: {words}.", round + 1) }</li> } }
    };
    html! {
        <ul class="scroll" data-log="ab">{ for (0..rounds).map(|round| html! { <>{ line("A", round) }{ line("B", round) }</> }) }</ul>
    }
}
