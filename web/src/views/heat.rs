//! Throughput, latency heat map, fio text: fast on average, or fast always?

use std::rc::Rc;

use fsglass_web::layout::{axis_step, heat_floor, heat_step};
use fsglass_web::link::protocol::{Metrics, HEAT_DECADES, HEAT_PER_DECADE, HEAT_ROWS};
use fsglass_web::state::store::{Action, Mode, Panel, Ui};
use fsglass_web::state::text::{bytes, duration, instant, significant, thousands};
use yew::prelude::*;

use super::Scope;
use crate::draw::figure::Point;
use crate::draw::pen::{Align, Face};
use crate::draw::{Figure, Painter, Pen};

const AXIS_W: f64 = 44.0;
/// The latency axis stops a decade above the slowest operation, to give the rows room.
const DECADES_MIN: usize = 3;

/// The panel's body.
pub(crate) fn view(scope: Scope<'_>) -> Html {
    match (&scope.state.view.metrics, scope.state.mode(Panel::Heat)) {
        (None, _) => {
            html! { <p class="empty">{ "Axes without a line: no operation has ended yet. Run the workload." }</p> }
        }
        (Some(metrics), Mode::Picture) => picture(scope, metrics),
        (Some(metrics), Mode::Table) => table(scope, metrics),
        (Some(metrics), Mode::Log) => slowest(scope, metrics),
    }
}

fn picture(scope: Scope<'_>, metrics: &Rc<Metrics>) -> Html {
    let state = scope.state;
    let (at, end, linear) = (state.at_ns, state.end_ns(), state.linear);
    let shown = metrics.clone();
    let painter = Painter {
        stamp: scope.stamp(&format!("heat{linear}/{end}")),
        paint: Rc::new(move |pen| {
            let split = (pen.h * 0.36).round();
            paint_throughput(pen, &shown, split - 8.0, at, end);
            paint_heat(pen, &shown, split, at, end, linear);
        }),
    };
    let send = scope.send.clone();
    let onpick = Callback::from(move |p: Point| {
        let share = ((p.x - AXIS_W) / (p.w - AXIS_W)).clamp(0.0, 1.0);
        send.emit(Action::Seek((end as f64 * share) as u64));
    });
    let text = state
        .view
        .report
        .as_ref()
        .map(|r| r.text.clone())
        .unwrap_or_default();
    html! {
        <div class="heatsplit">
            <div class="body" data-panel="tput">
                <Figure label={state.title(Panel::Heat)} {painter} {onpick} />
                { ramp(metrics) }
            </div>
            if state.ui != Ui::Mini {
                <pre class="fio" tabindex="0" aria-label="Report in fio's layout">{ text }</pre>
            }
        </div>
    }
}

fn ramp(metrics: &Metrics) -> Html {
    let most = metrics.heat.iter().copied().max().unwrap_or(0);
    html! { <div class="readout">{ format!("colour: operations in a cell, log₂, 1 to {}; outlined cells hold 1 to 3", thousands(u64::from(most))) }</div> }
}

fn x_of(pen: &Pen<'_>, ns: u64, end: u64) -> f64 {
    AXIS_W + (pen.w - AXIS_W) * ns as f64 / end.max(1) as f64
}

fn paint_throughput(pen: &Pen<'_>, m: &Metrics, h: f64, at: u64, end: u64) {
    let seconds = m.column_ns.max(1) as f64 / 1e9;
    let most = m
        .app_bytes
        .iter()
        .chain(&m.device_bytes)
        .copied()
        .max()
        .unwrap_or(0) as f64
        / seconds;
    let step = axis_step(most.max(1.0) / 1_048_576.0, 3.0) * 1_048_576.0;
    let top = (most / step).ceil().max(1.0) * step;
    let y_of = |rate: f64| 14.0 + (h - 14.0) * (1.0 - rate / top);
    let mut rate = 0.0;
    while rate <= top + 1.0 {
        let y = y_of(rate).round() + 0.5;
        pen.line(AXIS_W, y, pen.w, y, &pen.t.rule, 1.0);
        let label = significant(rate / 1_048_576.0);
        pen.text(
            AXIS_W - 6.0,
            y + 4.0,
            &label,
            &pen.t.ink_2,
            Face::Sans(11.0),
            Align::End,
        );
        rate += step;
    }
    pen.text(
        AXIS_W,
        9.0,
        "MiB/s",
        &pen.t.ink_2,
        Face::Sans(11.0),
        Align::Start,
    );
    for (series, colour, width) in [
        (&m.device_bytes, &pen.t.ink_3, 1.0),
        (&m.app_bytes, &pen.t.ink, 2.0),
    ] {
        pen.stroke(colour, width);
        pen.ctx.begin_path();
        for (i, value) in series.iter().enumerate() {
            let x = x_of(
                pen,
                m.from_ns + i as u64 * m.column_ns + m.column_ns / 2,
                end,
            );
            let y = y_of(*value as f64 / seconds);
            if i == 0 {
                pen.ctx.move_to(x, y);
            } else {
                pen.ctx.line_to(x, y);
            }
        }
        pen.ctx.stroke();
    }
    pen.text(
        pen.w,
        9.0,
        "application bold, device thin",
        &pen.t.ink_2,
        Face::Sans(11.0),
        Align::End,
    );
    cursor(pen, at, end, 12.0, h);
}

fn cursor(pen: &Pen<'_>, at: u64, end: u64, y0: f64, y1: f64) {
    let x = x_of(pen, at, end).round() + 0.5;
    pen.line(x, y0, x, y1, &pen.t.focus, 1.0);
}

fn paint_heat(pen: &Pen<'_>, m: &Metrics, top: f64, at: u64, end: u64, linear: bool) {
    let columns = m.heat.len() / HEAT_ROWS;
    let highest = m
        .heat
        .iter()
        .enumerate()
        .filter(|(_, n)| **n > 0)
        .map(|(i, _)| i % HEAT_ROWS)
        .max()
        .unwrap_or(0);
    let decades = (highest / HEAT_PER_DECADE + 1).clamp(DECADES_MIN, HEAT_DECADES);
    let rows = decades * HEAT_PER_DECADE;
    let height = pen.h - top - 16.0;
    let ceiling = heat_floor(rows) as f64;
    let y_of = |ns: f64| {
        let share = if linear {
            ns / ceiling
        } else {
            (ns / 1e3).max(1.0).log10() / decades as f64
        };
        top + height * (1.0 - share.min(1.0))
    };
    let most = m.heat.iter().copied().max().unwrap_or(1);
    let column_w = ((pen.w - AXIS_W) * m.column_ns as f64 / end.max(1) as f64).max(1.0);
    pen.rect(AXIS_W, top, pen.w - AXIS_W, height, &pen.t.heat[0]);
    for column in 0..columns {
        let x = x_of(pen, m.from_ns + column as u64 * m.column_ns, end);
        for row in 0..rows {
            let n = m.heat[column * HEAT_ROWS + row];
            if n == 0 {
                continue;
            }
            let (y0, y1) = (
                y_of(heat_floor(row + 1) as f64),
                y_of(heat_floor(row) as f64),
            );
            let (w, h) = (column_w.max(2.0), (y1 - y0).max(2.0));
            pen.rect(x, y0, w, h, &pen.t.heat[heat_step(n, most)]);
            if n <= 3 {
                pen.frame(x, y0, w, h, &pen.t.ink_3, 1.0);
            }
        }
    }
    axes(pen, decades, end, top, height, linear, ceiling);
    guides(pen, m, &y_of);
    cursor(pen, at, end, top, top + height);
}

fn axes(
    pen: &Pen<'_>,
    decades: usize,
    end: u64,
    top: f64,
    height: f64,
    linear: bool,
    ceiling: f64,
) {
    for decade in 0..=decades {
        let (y, label) = if linear {
            let ns = ceiling * decade as f64 / decades as f64;
            (
                top + height * (1.0 - decade as f64 / decades as f64),
                duration(ns as u64),
            )
        } else {
            (
                top + height * (1.0 - decade as f64 / decades as f64),
                duration(1_000 * 10u64.pow(decade as u32)),
            )
        };
        pen.line(AXIS_W - 3.0, y, AXIS_W, y, &pen.t.rule_strong, 1.0);
        pen.text(
            AXIS_W - 6.0,
            y + 4.0,
            &label,
            &pen.t.ink_2,
            Face::Sans(11.0),
            Align::End,
        );
    }
    let step = axis_step(end as f64 / 1e9, 8.0);
    let mut s = 0.0;
    while s * 1e9 <= end as f64 {
        let x = x_of(pen, (s * 1e9) as u64, end);
        let words = if s == 0.0 {
            "0 s".to_string()
        } else {
            significant(s)
        };
        let align = if x > pen.w - 20.0 {
            Align::End
        } else {
            Align::Middle
        };
        pen.text(
            x,
            pen.h - 3.0,
            &words,
            &pen.t.ink_2,
            Face::Sans(11.0),
            align,
        );
        s += step;
    }
}

fn guides(pen: &Pen<'_>, m: &Metrics, y_of: &dyn Fn(f64) -> f64) {
    let mut taken: Vec<f64> = Vec::new();
    for (p, ns) in &m.percentiles {
        let words = match *p {
            p if (p - 50.0).abs() < 0.01 => "p50",
            p if (p - 99.0).abs() < 0.01 => "p99",
            p if (p - 99.9).abs() < 0.01 => "p99.9",
            _ => continue,
        };
        let y = y_of(*ns as f64);
        pen.dash(&[4.0, 3.0]);
        pen.line(AXIS_W, y, pen.w, y, &pen.t.ink_2, 1.0);
        pen.dash(&[]);
        if taken.iter().all(|t| (t - y).abs() > 12.0) {
            let words = format!("{words} {}", duration(*ns));
            let w = pen.width(&words, Face::Sans(11.0));
            pen.rect(pen.w - w - 4.0, y - 14.0, w + 4.0, 13.0, &pen.t.ground);
            pen.text(
                pen.w - 2.0,
                y - 4.0,
                &words,
                &pen.t.ink,
                Face::Sans(11.0),
                Align::End,
            );
            taken.push(y);
        }
    }
}

fn table(scope: Scope<'_>, m: &Metrics) -> Html {
    let report = scope.state.view.report.clone();
    html! {
        <div class="heatsplit">
            <div class="scroll"><table>
                <thead><tr><th class="n">{ "percentile" }</th><th class="n">{ "completion latency" }</th></tr></thead>
                <tbody>{ for m.percentiles.iter().map(|(p, ns)| html! {
                    <tr><td class="n">{ format!("{p:.2} %") }</td><td class="n">{ duration(*ns) }</td></tr>
                }) }</tbody>
            </table></div>
            <pre class="fio" tabindex="0">{ report.map(|r| r.text.clone()).unwrap_or_default() }</pre>
        </div>
    }
}

fn slowest(scope: Scope<'_>, m: &Metrics) -> Html {
    html! {
        <div class="scroll"><table>
            <thead><tr><th class="n">{ "TIME" }</th><th>{ "COMM" }</th><th>{ "T" }</th><th class="n">{ "BYTES" }</th><th class="n">{ "OFF_KB" }</th><th class="n">{ "LAT" }</th><th>{ "FILENAME" }</th></tr></thead>
            <tbody>{ for m.slowest.iter().map(|s| html! {
                <tr class="pick" onclick={scope.on(Action::Seek(s.ns))}>
                    <td class="n"><button class="link" onclick={scope.on(Action::Seek(s.ns))}>{ instant(s.ns) }</button></td>
                    <td class="mono">{ &s.comm }</td><td class="mono">{ &s.op }</td><td class="n">{ bytes(s.bytes) }</td><td class="n">{ thousands(s.offset / 1024) }</td>
                    <td class="n">{ duration(s.latency_ns) }</td><td class="path">{ &s.path }</td>
                </tr>
            }) }</tbody>
        </table></div>
    }
}
