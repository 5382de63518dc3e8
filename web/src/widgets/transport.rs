//! The transport bar: play, step, speed, scrubber. Everything with time on it shares the scrubber's axis.

use std::rc::Rc;

use fsglass_web::link::protocol::{Danger, Marks};
use fsglass_web::state::act::{Act, UNITS};
use fsglass_web::state::store::{Action, State};
use fsglass_web::state::text::{instant, speed, speed_sentence};
use yew::prelude::*;

use super::{icons, value_of};
use crate::draw::figure::Point;
use crate::draw::{Figure, Painter, Pen};
use crate::views::{crash, Scope};

const AXIS_W: f64 = 0.0;
/// The slider's steps, from 0.001× to 1000×, then max.
const SPEED_STEPS: f64 = 120.0;

/// The whole bar.
pub(crate) fn view(scope: Scope<'_>) -> Html {
    let state = scope.state;
    html! {
        <footer class="transport" data-now={state.at_ns.to_string()} data-shown={state.view.at_ns.to_string()} aria-label="Transport">
            <div class="left">
                <div class="keys">
                    { key(scope, Act::Start, icons::start()) }
                    { key(scope, Act::Step(false), icons::back()) }
                    { key(scope, Act::Play, if state.playing { icons::pause() } else { icons::play() }) }
                    { key(scope, Act::Step(true), icons::forward()) }
                    { key(scope, Act::End, icons::end()) }
                </div>
                <div class="row unit">{ unit(scope) }{ speed_control(scope) }</div>
            </div>
            <div>{ scrubber(scope) }{ danger(scope) }</div>
            <div class="right">
                <div class="time"><button data-act={Act::TypeTime.name()} title="Type a time" onclick={scope.on(Action::Act(Act::TypeTime))}>{ instant(state.at_ns) }</button></div>
                { crash::controls(scope) }
                { plug(scope, true) }
            </div>
        </footer>
    }
}

/// One button with a sign and an accessible name.
pub(crate) fn key(scope: Scope<'_>, act: Act, sign: Html) -> Html {
    let words = if act == Act::Play && scope.state.playing {
        "Pause"
    } else {
        act.words()
    };
    html! {
        <button data-act={act.name()} aria-label={words} title={words} onclick={scope.on(Action::Act(act))}>{ sign }</button>
    }
}

/// The plug: in, or out until it is put in again.
pub(crate) fn plug(scope: Scope<'_>, small: bool) -> Html {
    let out = scope.state.crash.is_some();
    let (act, words) = if out {
        (Act::Undo, "Plug in again")
    } else {
        (Act::PullPlug, "Pull the plug")
    };
    html! {
        <button class={classes!("plug", small.then_some("small"))} data-act={act.name()} disabled={scope.state.loaded.is_none() || scope.state.cutting}
            onclick={scope.on(Action::Act(act))}>{ icons::plug(out) }<span>{ words }</span></button>
    }
}

fn unit(scope: Scope<'_>) -> Html {
    let send = scope.send.clone();
    let onchange = Callback::from(move |e: Event| {
        let id = value_of(&e);
        if let Some((unit, ..)) = UNITS.iter().find(|(_, name, _)| *name == id) {
            send.emit(Action::SetUnit(*unit));
        }
    });
    html! {
        <select aria-label="Unit of a step" data-act="step-unit" {onchange}>
            { for UNITS.iter().map(|(unit, id, name)| html! { <option value={*id} selected={*unit == scope.state.unit}>{ *name }</option> }) }
        </select>
    }
}

fn speed_of(step: f64) -> f64 {
    if step > SPEED_STEPS {
        0.0
    } else {
        10f64.powf(step / 20.0 - 3.0)
    }
}

fn step_of(speed: f64) -> f64 {
    if speed <= 0.0 {
        SPEED_STEPS + 1.0
    } else {
        ((speed.log10() + 3.0) * 20.0).round()
    }
}

fn speed_control(scope: Scope<'_>) -> Html {
    let state = scope.state;
    let now = state.speed_now();
    let send = scope.send.clone();
    let oninput = Callback::from(move |e: InputEvent| {
        let step = value_of(&e).parse().unwrap_or(60.0);
        send.emit(Action::SetSpeed(speed_of(step)));
    });
    html! {
        <label class="speed" title={speed_sentence(now)}>
            <input type="range" min="0" max={(SPEED_STEPS + 1.0).to_string()} step="1" value={step_of(now).to_string()} {oninput}
                data-act="speed" aria-label="Speed" aria-valuetext={speed_sentence(now)} />
            <span>{ if state.speed < 0.0 { format!("auto, {}", speed(now)) } else { speed(now) } }</span>
        </label>
    }
}

/// The scrubber: density of operations, commits, flushes, checkpoints, and the cursor.
pub(crate) fn scrubber(scope: Scope<'_>) -> Html {
    let state = scope.state;
    let marks = state.view.marks.clone().unwrap_or_default();
    let (at, end, reachable) = (state.at_ns, state.end_ns(), state.progress.reachable_ns);
    let cut = state.crash.as_ref().map(|c| c.cut_ns);
    let painter = Painter {
        stamp: scope.stamp(&format!("scrub{end}/{reachable}/{cut:?}")),
        paint: Rc::new(move |pen| paint(pen, &marks, at, end, reachable, cut)),
    };
    let seek =
        move |p: Point| (end as f64 * ((p.x - AXIS_W) / (p.w - AXIS_W)).clamp(0.0, 1.0)) as u64;
    let onpick = {
        let send = scope.send.clone();
        Callback::from(move |p: Point| send.emit(Action::Seek(seek(p))))
    };
    let onhover = {
        let send = scope.send.clone();
        Callback::from(move |p: Option<Point>| {
            if let Some(p) = p.filter(|p| p.down) {
                send.emit(Action::Seek(seek(p)));
            }
        })
    };
    html! {
        <div class="scrubber">
            <Figure label="Time; arrows step, Home and End go to the ends" {painter} {onpick} {onhover} role="slider" act="scrub" value={instant(at)} />
        </div>
    }
}

fn paint(pen: &Pen<'_>, marks: &Marks, at: u64, end: u64, reachable: u64, cut: Option<u64>) {
    let x_of = |ns: u64| (pen.w - 2.0) * ns as f64 / end.max(1) as f64 + 1.0;
    let base = pen.h - 14.0;
    let tall = pen.h > 40.0;
    sparkline(pen, marks, base, &x_of, end);
    pen.line(0.0, base + 0.5, pen.w, base + 0.5, &pen.t.rule, 1.0);
    pen.line(
        0.0,
        base + 0.5,
        x_of(reachable),
        base + 0.5,
        &pen.t.rule_strong,
        2.0,
    );
    for (from, to) in &marks.checkpoints {
        pen.rect(
            x_of(*from),
            base + 3.0,
            (x_of(*to) - x_of(*from)).max(2.0),
            3.0,
            &pen.t.role[3],
        );
    }
    for ns in marks.flushes.iter().take(4_000) {
        pen.line(x_of(*ns), base, x_of(*ns), base + 5.0, &pen.t.ink_3, 0.5);
    }
    for (ns, tid) in marks.commits.iter().take(4_000) {
        let x = x_of(*ns);
        pen.line(x, base - 9.0, x, base, &pen.t.role[5], 1.5);
        if marks.commits.len() <= 12 && tall {
            let words = format!("T{tid}");
            pen.text(
                x + 3.0,
                base - 3.0,
                &words,
                &pen.t.ink_2,
                crate::draw::pen::Face::Sans(11.0),
                crate::draw::pen::Align::Start,
            );
        }
    }
    if tall {
        axis(pen, end, &x_of);
    }
    if let Some(ns) = cut {
        pen.line(x_of(ns), 0.0, x_of(ns), base, &pen.t.alert, 2.0);
    }
    let x = x_of(at);
    pen.line(x, 0.0, x, pen.h - 10.0, &pen.t.focus, 2.0);
    pen.fill(&pen.t.focus);
    pen.ctx.begin_path();
    pen.ctx.move_to(x - 6.0, 0.0);
    pen.ctx.line_to(x + 6.0, 0.0);
    pen.ctx.line_to(x, 8.0);
    pen.ctx.close_path();
    pen.ctx.fill();
}

fn sparkline(pen: &Pen<'_>, marks: &Marks, base: f64, x_of: &dyn Fn(u64) -> f64, end: u64) {
    let n = marks.ops.len().max(1) as u64;
    let span = marks.to_ns.saturating_sub(marks.from_ns).min(end).max(1);
    for (series, colour) in [
        (&marks.writes, &pen.t.rule),
        (&marks.ops, &pen.t.rule_strong),
    ] {
        let most = f64::from(series.iter().copied().max().unwrap_or(0).max(1)) + 1.0;
        for (i, count) in series.iter().enumerate().filter(|(_, c)| **c > 0) {
            let h = (base - 6.0) * (f64::from(*count) + 1.0).log2() / most.log2().max(1.0);
            let x = x_of(marks.from_ns + span * i as u64 / n);
            let w = (x_of(marks.from_ns + span * (i as u64 + 1) / n) - x).max(1.0);
            pen.rect(x, base - h, w, h, colour);
        }
    }
}

fn axis(pen: &Pen<'_>, end: u64, x_of: &dyn Fn(u64) -> f64) {
    let step = fsglass_web::layout::axis_step(end as f64 / 1e9, 10.0);
    let mut s = step;
    while s * 1e9 < end as f64 * 0.98 {
        let x = x_of((s * 1e9) as u64);
        let words = fsglass_web::state::text::significant(s);
        pen.text(
            x,
            pen.h - 1.0,
            &words,
            &pen.t.ink_3,
            crate::draw::pen::Face::Sans(11.0),
            crate::draw::pen::Align::Middle,
        );
        s += step;
    }
    pen.text(
        0.0,
        pen.h - 1.0,
        "0 s",
        &pen.t.ink_3,
        crate::draw::pen::Face::Sans(11.0),
        crate::draw::pen::Align::Start,
    );
}

/// The danger strip: of the states that a power cut at each instant can leave, the share that loses something and
/// the share that breaks a promise.
fn danger(scope: Scope<'_>) -> Html {
    let state = scope.state;
    let (judged, end) = (state.danger.clone(), state.end_ns());
    let painter = Painter {
        stamp: format!(
            "{}/{}/{end}/{}",
            judged.len(),
            state.theme,
            state.view.at_ns == 0
        ),
        paint: Rc::new(move |pen| paint_danger(pen, &judged, end)),
    };
    let onpick = {
        let send = scope.send.clone();
        Callback::from(move |p: Point| {
            send.emit(Action::Seek(
                (end as f64 * (p.x / p.w).clamp(0.0, 1.0)) as u64,
            ));
        })
    };
    html! {
        <div class="danger">
            <Figure label={state.danger_words()} {painter} {onpick} act="danger" />
        </div>
    }
}

fn paint_danger(pen: &Pen<'_>, judged: &[Danger], end: u64) {
    let x_of = |ns: u64| (pen.w - 2.0) * ns as f64 / end.max(1) as f64 + 1.0;
    pen.line(0.0, pen.h - 0.5, pen.w, pen.h - 0.5, &pen.t.rule, 1.0);
    for (i, d) in judged.iter().enumerate() {
        let half = |a: u64, b: u64| a / 2 + b / 2;
        let before = i.checked_sub(1).and_then(|i| judged.get(i));
        let from = before.map_or(0, |b| half(b.at_ns, d.at_ns));
        let to = judged
            .get(i + 1)
            .map_or(d.at_ns, |a| half(d.at_ns, a.at_ns));
        let (x, w) = (x_of(from), (x_of(to) - x_of(from)).max(2.0));
        let share = |n: u32| (pen.h - 1.0) * f64::from(n) / f64::from(d.states.max(1));
        let [_, lost, broken] = d.by_fate;
        let (low, high) = (share(broken), share(lost));
        pen.rect(x, pen.h - 1.0 - low, w, low, &pen.t.alert);
        // Hatched, so that it is not taken for the alert without colours.
        let mut y = pen.h - 1.0 - low - high;
        while y < pen.h - 1.0 - low {
            pen.line(x, y, x + w, y, &pen.t.ink_3, 1.0);
            y += 3.0;
        }
    }
}

/// The state of the run in words, for the head of the page.
pub(crate) fn status(state: &State) -> String {
    use fsglass_web::state::text::{instant_short, thousands};
    let p = &state.progress;
    match state.phase() {
        "loading" => "starting".into(),
        "error" => "stopped".into(),
        _ if p.running => format!(
            "running, {} of {}",
            instant_short(p.reachable_ns),
            instant_short(state.end_ns())
        ),
        _ => format!(
            "{} run, {} events",
            instant_short(p.reachable_ns),
            thousands(p.events)
        ),
    }
}
