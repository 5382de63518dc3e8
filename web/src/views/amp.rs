//! Write-amplification ledger: what did one byte cost?

use std::rc::Rc;

use fsglass_web::link::protocol::Report;
use fsglass_web::state::store::{Mode, Panel};
use fsglass_web::state::text::{bytes, count, significant, thousands};
use yew::prelude::*;

use super::Scope;
use crate::draw::pen::{Align, Face};
use crate::draw::{Figure, Painter, Pen};

/// The panel's body.
pub(crate) fn view(scope: Scope<'_>) -> Html {
    match (&scope.state.view.report, scope.state.mode(Panel::Amp)) {
        (None, _) => html! { <p class="empty">{ "Nothing was written yet." }</p> },
        (Some(report), Mode::Picture) => picture(scope, report),
        (Some(report), _) => table(report),
    }
}

/// Role of a ledger line, for its hue.
fn role_of(name: &str) -> usize {
    let has = |word: &str| name.contains(word);
    if has("journal") || has("descriptor") || has("commit") || has("revoke") {
        5
    } else if has("inode") {
        3
    } else if has("bitmap") {
        2
    } else if has("data") {
        6
    } else if has("dir") || has("tree") || has("extent") {
        4
    } else {
        1
    }
}

fn picture(scope: Scope<'_>, report: &Rc<Report>) -> Html {
    let shown = report.clone();
    let painter = Painter {
        stamp: scope.stamp("amp"),
        paint: Rc::new(move |pen| paint(pen, &shown)),
    };
    html! {
        <>
            <Figure label={scope.state.title(Panel::Amp)} {painter} />
            <div class="readout">{ format!("{}; {} still to be written home", count(report.flushes, "flush", "flushes"), bytes(report.debt_bytes)) }</div>
        </>
    }
}

fn paint(pen: &Pen<'_>, report: &Report) {
    let total = (report.device_bytes + report.debt_bytes)
        .max(report.app_bytes)
        .max(1) as f64;
    let left = 132.0;
    let scale = (pen.w - left - 92.0).max(40.0) / total;
    let rows = report.ledger.len() as f64 + 2.0;
    let pitch = (pen.h / rows).clamp(14.0, 26.0);
    let h = (pitch - 6.0).max(8.0);
    let line = |row: f64, name: &str, value: u64, from: f64, role: usize| {
        let y = row * pitch;
        pen.text(
            left - 8.0,
            y + h - 1.0,
            name,
            &pen.t.ink_2,
            Face::Sans(12.0),
            Align::End,
        );
        let w = value as f64 * scale;
        pen.rect(left + from * scale, y, w.max(1.0), h, &pen.t.role[role]);
        pen.hatch(left + from * scale, y, w, h, role);
        let words = format!(
            "{}  {}×",
            bytes(value),
            significant(value as f64 / report.app_bytes.max(1) as f64)
        );
        pen.text(
            left + from * scale + w + 6.0,
            y + h - 1.0,
            &words,
            &pen.t.ink,
            Face::Sans(12.0),
            Align::Start,
        );
    };
    line(0.0, "application", report.app_bytes, 0.0, 1);
    let mut from = 0.0;
    for (i, (name, value)) in report.ledger.iter().enumerate() {
        line(i as f64 + 1.0, name, *value, from, role_of(name));
        from += *value as f64;
    }
    if report.debt_bytes > 0 {
        let y = (rows - 1.0) * pitch;
        pen.text(
            left - 8.0,
            y + h - 1.0,
            "owed",
            &pen.t.ink_2,
            Face::Sans(12.0),
            Align::End,
        );
        pen.dash(&[3.0, 3.0]);
        pen.frame(
            left + from * scale,
            y,
            report.debt_bytes as f64 * scale,
            h,
            &pen.t.ink_2,
            1.0,
        );
        pen.dash(&[]);
    }
}

fn table(report: &Report) -> Html {
    html! {
        <div class="scroll"><table>
            <thead><tr><th>{ "role" }</th><th class="n">{ "bytes" }</th><th class="n">{ "× application" }</th></tr></thead>
            <tbody>
                <tr><td>{ "application" }</td><td class="n">{ thousands(report.app_bytes) }</td><td class="n">{ "1" }</td></tr>
                { for report.ledger.iter().map(|(name, value)| html! {
                    <tr><td>{ name }</td><td class="n">{ thousands(*value) }</td><td class="n">{ significant(*value as f64 / report.app_bytes.max(1) as f64) }</td></tr>
                }) }
                <tr><td>{ "device, all" }</td><td class="n">{ thousands(report.device_bytes) }</td><td class="n">{ significant(report.device_bytes as f64 / report.app_bytes.max(1) as f64) }</td></tr>
                <tr><td>{ "still owed" }</td><td class="n">{ thousands(report.debt_bytes) }</td><td></td></tr>
                <tr><td>{ "flushes" }</td><td class="n">{ thousands(report.flushes) }</td><td></td></tr>
            </tbody>
        </table></div>
    }
}
