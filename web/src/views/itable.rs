//! Inode tables: who is zeroing, how far, and what does it cost me? One core sample per group.

use std::rc::Rc;

use fsglass_web::link::protocol::{ItableMap, ItableRow, Selection};
use fsglass_web::state::store::{Action, Mode, Panel};
use fsglass_web::state::text::thousands;
use yew::prelude::*;

use super::{log, Scope};
use crate::draw::figure::Point;
use crate::draw::pen::{Align, Face};
use crate::draw::{Figure, Painter, Pen};

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
            <div class="readout">{ &map.sentence }</div>
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
