//! Inode tables: who is zeroing, how far, and what does it cost me? One core sample per group.

use std::rc::Rc;

use fsglass_web::link::protocol::{ItableMap, ItableRow, Pace, Selection};
use fsglass_web::state::act::Act;
use fsglass_web::state::options::{pace, with};
use fsglass_web::state::scenes;
use fsglass_web::state::store::{Action, Field, Mode, Panel};
use fsglass_web::state::text::{count, duration, thousands};
use yew::prelude::*;

use super::{log, Scope};
use crate::draw::figure::Point;
use crate::draw::pen::{Align, Face};
use crate::draw::{Figure, Painter, Pen};
use crate::widgets::scrub::Scrub;

/// The panel's body.
pub(crate) fn view(scope: Scope<'_>) -> Html {
    let Some(map) = &scope.state.view.itable else {
        return html! { <p class="empty">{ "The inode tables appear when the file system is mounted." }</p> };
    };
    match scope.state.mode(Panel::Itable) {
        Mode::Picture => picture(scope, map),
        Mode::Table => table(scope, map),
        Mode::Log => log::view(scope, &["lazyinit"]),
    }
}

/// Columns, core width and row height for so many cores.
fn fit(count: usize, w: f64, h: f64) -> (usize, f64, f64) {
    let mut best = (count.max(1), 2.0, 12.0);
    for core in (2..=40).map(f64::from) {
        let columns = ((w / (core + 1.0)) as usize).max(1);
        let rows = count.div_ceil(columns).max(1);
        let height = (h / rows as f64 - 5.0).min(90.0);
        if height >= core.max(12.0) {
            best = (columns, core, height);
        }
    }
    best
}

fn picture(scope: Scope<'_>, map: &Rc<ItableMap>) -> Html {
    let shown = map.clone();
    let chosen = match scope.state.selection {
        Some(Selection::Group(g)) => Some(g),
        _ => None,
    };
    let painter = Painter {
        stamp: scope.stamp(&format!("itable{chosen:?}")),
        paint: Rc::new(move |pen| paint(pen, &shown, chosen)),
    };
    let (send, rows) = (scope.send.clone(), map.clone());
    let onpick = Callback::from(move |p: Point| {
        let (columns, core, height) = fit(rows.rows.len(), p.w, p.h);
        let i = (p.y / (height + 5.0)) as usize * columns + (p.x / (core + 1.0)) as usize;
        if let Some(row) = rows.rows.get(i) {
            send.emit(Action::Select(Some(Selection::Group(row.group))));
        }
    });
    html! {
        <>
            <Figure label={scope.state.title(Panel::Itable)} {painter} {onpick} />
            { pace_strip(scope, &map.pace) }
            <div class="legend"><span>{ "solid: used inodes · line: high-water mark · ruled: zeroed · stipple: garbage, never written · bar: being zeroed" }</span></div>
        </>
    }
}

fn paint(pen: &Pen<'_>, map: &ItableMap, chosen: Option<u32>) {
    let (columns, core, height) = fit(map.rows.len(), pen.w, pen.h);
    for (i, row) in map.rows.iter().enumerate() {
        let x = (i % columns) as f64 * (core + 1.0);
        let y = (i / columns) as f64 * (height + 5.0);
        paint_core(pen, row, x, y, core, height);
        if chosen == Some(row.group) {
            pen.frame(
                x - 1.0,
                y - 1.0,
                core + 2.0,
                height + 2.0,
                &pen.t.focus,
                2.0,
            );
        }
    }
    if map.rows.is_empty() {
        pen.text(
            0.0,
            20.0,
            "no groups",
            &pen.t.ink_2,
            Face::Sans(12.0),
            Align::Start,
        );
    }
}

fn paint_core(pen: &Pen<'_>, row: &ItableRow, x: f64, y: f64, w: f64, h: f64) {
    let hue = &pen.t.role[3];
    let all = f64::from(row.inodes.max(1));
    let used = h * f64::from(row.used) / all;
    let water = h * f64::from(row.inodes.saturating_sub(row.unused)) / all;
    match row.zeroed {
        0 => stipple(pen, row.group, x, y, w, h - water),
        2 => {
            rules(pen, x, y, w, h - water);
            pen.rect(x, y, w, 3.0, &pen.t.ink);
        }
        _ => rules(pen, x, y, w, h - water),
    }
    pen.frame(x, y, w, h, &pen.t.rule, 1.0);
    if row.used > 0 {
        let used = used.max(2.0);
        pen.rect(x, y + h - used, w, used, hue);
    }
    if water > 0.0 {
        pen.line(x, y + h - water, x + w, y + h - water, &pen.t.ink, 1.0);
    }
    if row.flags & 1 != 0 {
        pen.rect(x, y, w, 2.0, &pen.t.ink_3);
    }
}

fn rules(pen: &Pen<'_>, x: f64, y: f64, w: f64, h: f64) {
    let mut d = 2.5;
    while d < h {
        pen.line(x, y + d, x + w, y + d, &pen.t.role[3], 0.5);
        d += 4.0;
    }
}

/// Seeded by the group, so that garbage looks the same at each redraw.
fn stipple(pen: &Pen<'_>, group: u32, x: f64, y: f64, w: f64, h: f64) {
    pen.fill(&pen.t.rule_strong);
    let mut seed = group.wrapping_mul(2_654_435_761) | 1;
    for _ in 0..(w * h / 18.0) as usize {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (px, py) = (
            f64::from(seed >> 16 & 255) / 256.0,
            f64::from(seed >> 24) / 256.0,
        );
        pen.ctx
            .fill_rect(x + px * (w - 1.0), y + py * (h - 1.0), 1.0, 1.0);
    }
}

/// The time of zeroing and the waits between, to scale, with the sentence whose `n` can be dragged.
fn pace_strip(scope: Scope<'_>, p: &Pace) -> Html {
    let state = scope.state;
    let draft = pace(&state.draft.mount);
    let running = state.running.as_ref().map_or(draft, |e| pace(&e.mount));
    let shown = p.clone();
    // Another n than that of the run is drawn beside it.
    let wish = draft.filter(|_| draft != running);
    let painter = Painter {
        stamp: scope.stamp(&format!("pace{wish:?}")),
        paint: Rc::new(move |pen| paint_pace(pen, &shown, wish)),
    };
    let note = scenes::find(&state.scene).map_or_else(String::new, |s| s.itable);
    html! {
        <div class="pace" data-act="pace">
            if !p.bursts.is_empty() {
                <Figure label={format!("Pace of the lazy init thread: {} of zeroing, then {} of waiting", duration(p.took_ns), duration(p.wait_ns))} {painter} />
            }
            <p>{ pace_sentence(scope, p, draft) }</p>
            if !note.is_empty() { <p class="hint">{ note }</p> }
        </div>
    }
}

/// What one group takes on average, ns.
fn burst_mean(p: &Pace) -> u64 {
    let all: u64 = p.bursts.iter().map(|b| b.1).sum();
    all / (p.bursts.len() as u64).max(1)
}

fn pace_sentence(scope: Scope<'_>, p: &Pace, n: Option<u32>) -> Html {
    let mount = scope.state.draft.mount.clone();
    let edit = |mount: String| Action::Edit(Field::Mount, mount);
    let thread = n.is_some();
    let toggle = {
        let send = scope.send.clone();
        let choice = if thread { "noinit_itable" } else { "10" };
        let mount = with(&mount, "init_itable", choice, !thread);
        Callback::from(move |_: MouseEvent| {
            send.emit(edit(mount.clone()));
            send.emit(Action::Act(Act::Run));
        })
    };
    let stop = html! {
        <button type="button" role="switch" aria-checked={(!thread).to_string()} data-act="pace-stop" onclick={toggle}>{ "noinit_itable" }</button>
    };
    let groups = count(u64::from(p.left), "group", "groups");
    let Some(n) = n else {
        return html! { <>{ format!("No thread zeroes: {groups} stay as they are. ") }{ stop }</> };
    };
    if p.left == 0 {
        return html! { <>{ "All inode tables are zeroed. " }{ stop }</> };
    }
    let onchange = {
        let send = scope.send.clone();
        Callback::from(move |n: u32| {
            let mount = with(&mount, "init_itable", &n.to_string(), n == 10);
            send.emit(edit(mount));
        })
    };
    let scrub = html! {
        <Scrub value={n} max={10_000} label="init_itable: waits so many times as long as it zeroed" act="pace-n" {onchange} ondone={scope.on(Action::Act(Act::Run))} />
    };
    if p.took_ns == 0 {
        return html! { <>{ format!("{groups} have tables that were never zeroed; the thread will wait ") }{ scrub }{ " times as long as it zeroes. " }{ stop }</> };
    }
    let wait = p.took_ns * u64::from(n);
    let needs = (burst_mean(p) + wait) * u64::from(p.left);
    html! {
        <>
            { format!("Zeroing took {}, waiting ", duration(p.took_ns)) }{ scrub }
            { format!(" × that = {}; {groups} left need about {}. ", duration(wait), minutes(needs)) }{ stop }
        </>
    }
}

/// `6 min 7 s`.
fn minutes(ns: u64) -> String {
    let s = ns / 1_000_000_000;
    match s {
        0..=119 => duration(ns),
        _ => format!("{} min {} s", thousands(s / 60), s % 60),
    }
}

fn paint_pace(pen: &Pen<'_>, p: &Pace, wish: Option<u32>) {
    let from = p.bursts.first().map_or(0, |b| b.0);
    let to = p.bursts.last().map_or(1, |b| b.0 + b.1 + p.wait_ns);
    let x_of =
        |ns: u64| pen.w * ns.saturating_sub(from) as f64 / to.saturating_sub(from).max(1) as f64;
    let rows = if wish.is_some() { 2.0 } else { 1.0 };
    let h = (pen.h / rows - 4.0).clamp(6.0, 14.0);
    let burst = |start: u64, took: u64, y: f64, sure: bool| {
        let w = (x_of(from + took)).max(1.5);
        if sure {
            pen.rect(x_of(start), y, w, h, &pen.t.role[3]);
            pen.hatch(x_of(start), y, w, h, 3);
        } else {
            pen.frame(x_of(start), y, w, h, &pen.t.role[3], 1.0);
        }
    };
    pen.line(0.0, h / 2.0, pen.w, h / 2.0, &pen.t.rule_strong, 1.0);
    for (start, took) in &p.bursts {
        burst(*start, *took, 0.0, true);
    }
    let Some(n) = wish else { return };
    let y = pen.h / 2.0;
    let (took, wait) = (burst_mean(p).max(1), p.took_ns * u64::from(n));
    pen.dash(&[3.0, 3.0]);
    pen.line(
        0.0,
        y + h / 2.0,
        pen.w,
        y + h / 2.0,
        &pen.t.rule_strong,
        1.0,
    );
    pen.dash(&[]);
    let mut at = from;
    let mut drawn = 0;
    while at < to && drawn < 400 {
        burst(at, took, y, false);
        at += took + wait;
        drawn += 1;
    }
}

fn table(scope: Scope<'_>, map: &ItableMap) -> Html {
    html! {
        <div class="scroll"><table>
            <thead><tr><th class="n">{ "group" }</th><th class="n">{ "inodes" }</th><th class="n">{ "used" }</th><th class="n">{ "itable_unused" }</th><th>{ "zeroed" }</th></tr></thead>
            <tbody>{ for map.rows.iter().take(2_000).map(|r| html! {
                <tr class="pick" onclick={scope.on(Action::Select(Some(Selection::Group(r.group))))}>
                    <td class="n"><button class="link" onclick={scope.on(Action::Select(Some(Selection::Group(r.group))))}>{ thousands(u64::from(r.group)) }</button></td>
                    <td class="n">{ thousands(u64::from(r.inodes)) }</td><td class="n">{ thousands(u64::from(r.used)) }</td><td class="n">{ thousands(u64::from(r.unused)) }</td>
                    <td>{ ["no", "yes", "now"][usize::from(r.zeroed).min(2)] }</td>
                </tr>
            }) }</tbody>
        </table></div>
    }
}
