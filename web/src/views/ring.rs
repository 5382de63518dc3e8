//! Journal: how does the log fill, commit and empty? A ring, or the same unrolled as a strip.

use std::f64::consts::{FRAC_PI_2, TAU};
use std::rc::Rc;

use fsglass_web::layout::ring_angle;
use fsglass_web::link::protocol::{
    Journal, JournalBlock, JournalKind, Selection, Transaction, TxState,
};
use fsglass_web::state::act::Act;
use fsglass_web::state::store::{Action, Mode, Panel};
use fsglass_web::state::text::{bytes, duration, instant, significant, thousands};
use yew::prelude::*;

use super::{log, Scope};
use crate::draw::figure::Point;
use crate::draw::pen::{Align, Face};
use crate::draw::{Figure, Painter, Pen};

const TEETH_H: f64 = 46.0;
const TOOTH_W: f64 = 9.0;
/// Under this height the ring is drawn as a strip.
const RING_MIN: f64 = 210.0;
/// Arcs thinner than this are widened so that they can be seen, rad.
const ARC_MIN: f64 = 0.012;

/// The panel's body.
pub(crate) fn view(scope: Scope<'_>) -> Html {
    let state = scope.state;
    let Some(journal) = &state.view.journal else {
        return html! { <p class="empty">{ "The journal appears when the file system is mounted." }</p> };
    };
    if !journal.present {
        return html! { <p class="empty">{ "No journal: after a power cut nothing puts the structures right but fsck." }</p> };
    }
    match state.mode(Panel::Ring) {
        Mode::Picture => picture(scope, journal),
        Mode::Table => table(scope, journal),
        Mode::Log => log::view(scope, &["jbd2"]),
    }
}

fn picture(scope: Scope<'_>, journal: &Rc<Journal>) -> Html {
    let state = scope.state;
    let blocks = in_log_order(journal, state.view.tid_blocks.as_deref());
    let tid = match state.selection {
        Some(Selection::Tid(tid)) => Some(tid),
        _ => journal.transactions.last().map(|t| t.tid),
    };
    let unrolled = state.unrolled;
    let painter = {
        let (journal, blocks) = (journal.clone(), blocks.clone());
        Painter {
            stamp: scope.stamp(&format!("ring{tid:?}/{unrolled}")),
            paint: Rc::new(move |pen| {
                let height = pen.h - TEETH_H;
                if unrolled || height < RING_MIN {
                    paint_strip(pen, &journal, tid, height);
                } else {
                    paint_ring(pen, &journal, tid, height);
                }
                paint_teeth(pen, &journal, &blocks, tid, height);
            }),
        }
    };
    let label = state.title(Panel::Ring);
    html! {
        <>
            <Figure {label} {painter} onpick={pick(scope, journal)} />
            <div class="legend">
                <button aria-pressed="true" data-act={Act::Unroll.name()} onclick={scope.on(Action::Act(Act::Unroll))}>{ if unrolled { "roll up" } else { "unroll" } }</button>
                <button aria-pressed="true" data-act={Act::Tid(false).name()} onclick={scope.on(Action::Act(Act::Tid(false)))}>{ "‹ earlier" }</button>
                <button aria-pressed="true" data-act={Act::Tid(true).name()} onclick={scope.on(Action::Act(Act::Tid(true)))}>{ "later ›" }</button>
            </div>
        </>
    }
}

/// Blocks of a transaction as they lie in the log, from its first block and over the wrap.
fn in_log_order(journal: &Journal, blocks: Option<&Vec<JournalBlock>>) -> Rc<Vec<JournalBlock>> {
    let mut blocks = blocks.cloned().unwrap_or_default();
    let tail = journal.tail;
    blocks.sort_by_key(|b| (b.jblock < tail, b.jblock));
    Rc::new(blocks)
}

struct Ring {
    x: f64,
    y: f64,
    outer: f64,
    inner: f64,
}

fn geometry(w: f64, height: f64) -> Ring {
    let outer = (w.min(height) / 2.0 - 34.0).max(40.0);
    Ring {
        x: w / 2.0,
        y: height / 2.0 + 4.0,
        outer,
        inner: outer - (outer * 0.2).clamp(14.0, 30.0),
    }
}

fn sector(pen: &Pen<'_>, ring: &Ring, from: f64, to: f64) {
    let to = if to - from < ARC_MIN {
        from + ARC_MIN
    } else {
        to
    };
    pen.ctx.begin_path();
    let _ = pen
        .ctx
        .arc(ring.x, ring.y, ring.outer, from - FRAC_PI_2, to - FRAC_PI_2);
    let _ = pen.ctx.arc_with_anticlockwise(
        ring.x,
        ring.y,
        ring.inner,
        to - FRAC_PI_2,
        from - FRAC_PI_2,
        true,
    );
    pen.ctx.close_path();
}

fn paint_ring(pen: &Pen<'_>, journal: &Journal, tid: Option<u32>, height: f64) {
    let ring = geometry(pen.w, height);
    pen.stroke(&pen.t.rule_strong, 1.0);
    for radius in [ring.outer, ring.inner] {
        pen.ctx.begin_path();
        let _ = pen.ctx.arc(ring.x, ring.y, radius, 0.0, TAU);
        pen.ctx.stroke();
    }
    ticks(pen, journal, &ring);
    for t in &journal.transactions {
        paint_transaction(pen, journal, &ring, t, tid == Some(t.tid));
    }
    running_arc(pen, journal, &ring);
    seam(pen, &ring);
    hand(pen, journal, &ring, journal.tail, false);
    hand(pen, journal, &ring, journal.head, true);
    centre(pen, journal, &ring);
}

fn ticks(pen: &Pen<'_>, journal: &Journal, ring: &Ring) {
    let step = fsglass_web::layout::axis_step(f64::from(journal.blocks), 8.0);
    let mut block = step;
    while block < f64::from(journal.blocks) {
        let angle = ring_angle(block as u32, journal.first, journal.blocks) - FRAC_PI_2;
        let (sin, cos) = angle.sin_cos();
        pen.line(
            ring.x + cos * ring.inner,
            ring.y + sin * ring.inner,
            ring.x + cos * (ring.inner - 4.0),
            ring.y + sin * (ring.inner - 4.0),
            &pen.t.rule_strong,
            1.0,
        );
        block += step;
    }
}

fn paint_transaction(pen: &Pen<'_>, journal: &Journal, ring: &Ring, t: &Transaction, chosen: bool) {
    let from = ring_angle(t.start, journal.first, journal.blocks);
    let to = from + TAU * f64::from(t.blocks) / f64::from((journal.blocks - journal.first).max(1));
    sector(pen, ring, from, to);
    let hue = &pen.t.role[5];
    pen.fill(hue);
    if matches!(t.state, TxState::Commit | TxState::Flush | TxState::Locked) {
        pen.ctx.set_global_alpha(0.35);
        pen.ctx.fill();
        pen.ctx.set_global_alpha(1.0);
        pen.stroke(hue, 1.0);
        pen.ctx.stroke();
        hatch_sector(pen, ring, from, to);
    } else if t.checkpointed_ns > 0 {
        pen.fill(&pen.t.rule);
        pen.ctx.fill();
    } else {
        pen.ctx.fill();
    }
    if t.state == TxState::Checkpointing {
        inward(pen, ring, from, to);
    }
    if chosen {
        sector(pen, ring, from, to);
        pen.stroke(&pen.t.focus, 2.0);
        pen.ctx.stroke();
    }
    let middle = f64::midpoint(from, to) - FRAC_PI_2;
    if to - from > 0.16 || chosen {
        let radius = ring.outer + 12.0;
        let (sin, cos) = middle.sin_cos();
        let label = format!("T{}", t.tid);
        pen.text(
            ring.x + cos * radius,
            ring.y + sin * radius + 4.0,
            &label,
            &pen.t.ink,
            Face::Sans(12.0),
            Align::Middle,
        );
    }
}

fn hatch_sector(pen: &Pen<'_>, ring: &Ring, from: f64, to: f64) {
    pen.ctx.save();
    sector(pen, ring, from, to);
    pen.ctx.clip();
    pen.stroke(&pen.t.role[5], 1.0);
    pen.ctx.begin_path();
    let mut d = -2.0 * ring.outer;
    while d < 2.0 * ring.outer {
        pen.ctx.move_to(ring.x + d, ring.y + ring.outer);
        pen.ctx
            .line_to(ring.x + d + 2.0 * ring.outer, ring.y - ring.outer);
        d += 5.0;
    }
    pen.ctx.stroke();
    pen.ctx.restore();
}

/// Ticks towards the centre: this transaction's blocks are on their way home.
fn inward(pen: &Pen<'_>, ring: &Ring, from: f64, to: f64) {
    let mut angle = from;
    while angle <= to {
        let (sin, cos) = (angle - FRAC_PI_2).sin_cos();
        pen.line(
            ring.x + cos * ring.inner,
            ring.y + sin * ring.inner,
            ring.x + cos * (ring.inner - 8.0),
            ring.y + sin * (ring.inner - 8.0),
            &pen.t.role[5],
            1.5,
        );
        angle += 0.05;
    }
}

/// The running transaction is outside: it is in memory, not in the log.
fn running_arc(pen: &Pen<'_>, journal: &Journal, ring: &Ring) {
    let Some(running) = &journal.running else {
        return;
    };
    let from = ring_angle(journal.head, journal.first, journal.blocks);
    let span =
        TAU * f64::from(running.credits.max(running.blocks)) / f64::from(journal.blocks.max(1));
    let radius = ring.outer + 6.0;
    pen.stroke(&pen.t.role[5], 2.0);
    pen.dash(&[4.0, 3.0]);
    pen.ctx.begin_path();
    let _ = pen.ctx.arc(
        ring.x,
        ring.y,
        radius,
        from - FRAC_PI_2,
        from + span.max(0.08) - FRAC_PI_2,
    );
    pen.ctx.stroke();
    pen.dash(&[]);
}

/// Where the log wraps: a stitched line.
fn seam(pen: &Pen<'_>, ring: &Ring) {
    pen.dash(&[2.0, 2.0]);
    pen.line(
        ring.x,
        ring.y - ring.outer - 4.0,
        ring.x,
        ring.y - ring.inner + 4.0,
        &pen.t.ink,
        2.0,
    );
    pen.dash(&[]);
}

fn hand(pen: &Pen<'_>, journal: &Journal, ring: &Ring, block: u32, solid: bool) {
    let angle = ring_angle(block.max(journal.first), journal.first, journal.blocks) - FRAC_PI_2;
    let (sin, cos) = angle.sin_cos();
    let at = |radius: f64, side: f64| {
        (
            ring.x + cos * radius - sin * side,
            ring.y + sin * radius + cos * side,
        )
    };
    let tip = at(ring.inner - 2.0, 0.0);
    let (left, right) = (at(ring.inner - 12.0, -4.5), at(ring.inner - 12.0, 4.5));
    pen.ctx.begin_path();
    pen.ctx.move_to(tip.0, tip.1);
    pen.ctx.line_to(left.0, left.1);
    pen.ctx.line_to(right.0, right.1);
    pen.ctx.close_path();
    if solid {
        pen.fill(&pen.t.ink);
        pen.ctx.fill();
    } else {
        pen.fill(&pen.t.ground);
        pen.ctx.fill();
        pen.stroke(&pen.t.ink, 1.5);
        pen.ctx.stroke();
    }
    // Head and tail may meet: their words stand on different radii.
    let words = at(ring.inner - if solid { 24.0 } else { 38.0 }, 0.0);
    let word = if solid { "head" } else { "tail" };
    pen.text(
        words.0,
        words.1 + 4.0,
        word,
        &pen.t.ink_2,
        Face::Sans(12.0),
        Align::Middle,
    );
}

fn centre(pen: &Pen<'_>, journal: &Journal, ring: &Ring) {
    let free = 100.0 * f64::from(journal.free) / f64::from(journal.blocks.max(1));
    let top = match (&journal.running, journal.transactions.last()) {
        (Some(running), _) => format!("T{} {}", running.tid, running.state.word()),
        (None, Some(last)) => format!("T{} {}", last.tid, last.state.word()),
        (None, None) => "empty".into(),
    };
    let next = journal.next_commit_ns.map_or_else(
        || "no commit due".into(),
        |ns| format!("commits in {}", duration(ns)),
    );
    pen.text(
        ring.x,
        ring.y - 12.0,
        &top,
        &pen.t.ink,
        Face::Serif(16.0),
        Align::Middle,
    );
    pen.text(
        ring.x,
        ring.y + 6.0,
        &next,
        &pen.t.ink_2,
        Face::Sans(12.0),
        Align::Middle,
    );
    let share = format!("{} % free", significant(free));
    pen.text(
        ring.x,
        ring.y + 22.0,
        &share,
        &pen.t.ink_2,
        Face::Sans(12.0),
        Align::Middle,
    );
}

/// The unrolled log: where it is on the canvas.
struct Strip {
    y: f64,
    h: f64,
    first: u32,
    px_per_block: f64,
}

impl Strip {
    fn x_of(&self, block: u32) -> f64 {
        self.px_per_block * f64::from(block.saturating_sub(self.first))
    }
}

fn paint_strip(pen: &Pen<'_>, journal: &Journal, tid: Option<u32>, height: f64) {
    let span = f64::from((journal.blocks - journal.first).max(1));
    let strip = Strip {
        y: height * 0.38,
        h: (height * 0.24).clamp(16.0, 40.0),
        first: journal.first,
        px_per_block: pen.w / span,
    };
    let (y, h) = (strip.y, strip.h);
    pen.frame(0.0, y, pen.w, h, &pen.t.rule_strong, 1.0);
    for t in &journal.transactions {
        for (from, len) in split(journal, t) {
            strip_part(pen, &strip, t, from, len, tid == Some(t.tid));
        }
    }
    let ends = [
        (journal.tail, "tail", 1.0, 14.0),
        (journal.head, "head", 2.0, 28.0),
    ];
    for (block, word, width, drop) in ends {
        let x = strip.x_of(block).clamp(5.0, pen.w - 5.0);
        pen.line(x, y - 4.0, x, y + h + drop - 10.0, &pen.t.ink, width);
        let align = if x > pen.w - 40.0 {
            Align::End
        } else {
            Align::Start
        };
        pen.note(x, y + h + drop, word, align);
    }
    if let Some(running) = &journal.running {
        let w = (strip.px_per_block * f64::from(running.credits.max(1))).max(24.0);
        let x = strip.x_of(journal.head).min(pen.w - w);
        pen.dash(&[4.0, 3.0]);
        pen.frame(x, y - 16.0, w, 10.0, &pen.t.role[5], 1.5);
        pen.dash(&[]);
        let (tid, state) = (running.tid, running.state.word());
        let words = format!("T{tid} {state}, {} blocks joined", running.blocks);
        pen.note(pen.w, y - 24.0, &words, Align::End);
    }
    let all = thousands(u64::from(journal.blocks));
    let words = format!("{all} blocks, {} free", thousands(u64::from(journal.free)));
    pen.note(pen.w, y + h + 42.0, &words, Align::End);
}

/// A transaction, or the half of it before or after the wrap.
fn strip_part(pen: &Pen<'_>, strip: &Strip, t: &Transaction, from: u32, len: u32, chosen: bool) {
    let (x, w) = (
        strip.x_of(from),
        (strip.px_per_block * f64::from(len)).max(1.5),
    );
    let home = t.checkpointed_ns > 0;
    let committing = matches!(t.state, TxState::Commit | TxState::Flush | TxState::Locked);
    pen.ctx.set_global_alpha(if committing { 0.4 } else { 1.0 });
    pen.rect(
        x,
        strip.y,
        w,
        strip.h,
        if home { &pen.t.rule } else { &pen.t.role[5] },
    );
    pen.ctx.set_global_alpha(1.0);
    if chosen {
        pen.frame(
            x - 1.0,
            strip.y - 2.0,
            w + 2.0,
            strip.h + 4.0,
            &pen.t.focus,
            2.0,
        );
    }
    if w > 26.0 {
        pen.note(
            x + w / 2.0,
            strip.y - 6.0,
            &format!("T{}", t.tid),
            Align::Middle,
        );
    }
}

/// A transaction in the log, in two parts where it wraps.
fn split(journal: &Journal, t: &Transaction) -> Vec<(u32, u32)> {
    let end = u64::from(t.start) + u64::from(t.blocks);
    if end > u64::from(journal.blocks) {
        let first = journal.blocks.saturating_sub(t.start);
        vec![(t.start, first), (journal.first, t.blocks - first)]
    } else {
        vec![(t.start, t.blocks)]
    }
}

/// The blocks of one transaction, each a tooth in the hue of its home.
fn paint_teeth(
    pen: &Pen<'_>,
    journal: &Journal,
    blocks: &[JournalBlock],
    tid: Option<u32>,
    top: f64,
) {
    let Some(tid) = tid else { return };
    let y = top + 14.0;
    let h = 18.0;
    let state = journal
        .transactions
        .iter()
        .find(|t| t.tid == tid)
        .map_or("", |t| t.state.word());
    let words = format!("T{tid} {state}: {} blocks in the log", blocks.len());
    pen.text(
        0.0,
        top + 8.0,
        &words,
        &pen.t.ink_2,
        Face::Sans(12.0),
        Align::Start,
    );
    let fit = (pen.w / (TOOTH_W + 2.0)) as usize;
    for (i, block) in blocks.iter().take(fit).enumerate() {
        let x = i as f64 * (TOOTH_W + 2.0);
        let role = usize::from(block.role).min(6);
        match block.kind {
            JournalKind::Descriptor => letter_tooth(pen, x, y, h, "D"),
            JournalKind::Commit => {
                pen.rect(x, y, 3.0, h + 4.0, &pen.t.ink);
                pen.rect(x + 5.0, y, 3.0, h + 4.0, &pen.t.ink);
            }
            JournalKind::Revoke => letter_tooth(pen, x, y, h, "×"),
            _ => {
                pen.rect(x, y + 4.0, TOOTH_W, h - 4.0, &pen.t.role[role]);
                pen.hatch(x, y + 4.0, TOOTH_W, h - 4.0, role);
            }
        }
        if !block.csum_ok {
            pen.line(x, y, x + TOOTH_W, y + h, &pen.t.alert, 2.0);
            pen.line(x, y + h, x + TOOTH_W, y, &pen.t.alert, 2.0);
        }
    }
    if blocks.len() > fit {
        let more = format!("+{}", thousands((blocks.len() - fit) as u64));
        pen.text(
            pen.w,
            top + 8.0,
            &more,
            &pen.t.ink_2,
            Face::Sans(12.0),
            Align::End,
        );
    }
}

fn letter_tooth(pen: &Pen<'_>, x: f64, y: f64, h: f64, letter: &str) {
    pen.frame(x, y, TOOTH_W, h, &pen.t.ink, 1.0);
    pen.text(
        x + TOOTH_W / 2.0,
        y + 13.0,
        letter,
        &pen.t.ink,
        Face::Sans(11.0),
        Align::Middle,
    );
}

fn pick(scope: Scope<'_>, journal: &Rc<Journal>) -> Callback<Point> {
    let (journal, send, unrolled) = (journal.clone(), scope.send.clone(), scope.state.unrolled);
    let blocks = in_log_order(&journal, scope.state.view.tid_blocks.as_deref());
    Callback::from(move |p: Point| {
        let height = p.h - TEETH_H;
        if p.y > height {
            let tooth = (p.x / (TOOTH_W + 2.0)) as usize;
            if let Some(block) = blocks.get(tooth) {
                let target = block
                    .home
                    .map_or(Selection::JournalBlock(block.jblock), Selection::Block);
                send.emit(Action::Select(Some(target)));
            }
            return;
        }
        let span = f64::from((journal.blocks - journal.first).max(1));
        let block = if unrolled || height < RING_MIN {
            f64::from(journal.first) + p.x / p.w * span
        } else {
            let ring = geometry(p.w, height);
            let angle = ((p.x - ring.x).atan2(ring.y - p.y) + TAU) % TAU;
            f64::from(journal.first) + angle / TAU * span
        };
        // The nearest transaction, so that thin arcs can be hit.
        let nearest = journal.transactions.iter().min_by(|a, b| {
            let away = |t: &Transaction| {
                let from = f64::from(t.start);
                let to = from + f64::from(t.blocks);
                if block < from {
                    from - block
                } else {
                    (block - to).max(0.0)
                }
            };
            away(a).total_cmp(&away(b))
        });
        if let Some(t) = nearest {
            send.emit(Action::Select(Some(Selection::Tid(t.tid))));
        }
    })
}

fn table(scope: Scope<'_>, journal: &Journal) -> Html {
    let when = |ns: u64| if ns == 0 { String::new() } else { instant(ns) };
    html! {
        <div class="scroll">
            <p class="readout">{ format!("tail {}, head {}, {} free of {}", journal.tail, journal.head, thousands(u64::from(journal.free)), bytes(u64::from(journal.blocks) * scope.state.loaded.as_ref().map_or(4096, |l| u64::from(l.block_size)))) }</p>
            <table>
                <thead><tr><th class="n">{ "tid" }</th><th>{ "state" }</th><th class="n">{ "start" }</th><th class="n">{ "blocks" }</th><th class="n">{ "desc" }</th><th class="n">{ "meta" }</th><th class="n">{ "data" }</th><th class="n">{ "revoke" }</th><th class="n">{ "committed" }</th><th class="n">{ "home" }</th></tr></thead>
                <tbody>
                    if let Some(r) = &journal.running {
                        <tr><td class="n">{ r.tid }</td><td>{ r.state.word() }</td><td></td><td class="n">{ r.blocks }</td><td></td><td></td><td></td><td></td><td></td><td></td></tr>
                    }
                    { for journal.transactions.iter().rev().take(500).map(|t| html! {
                        <tr class={classes!("pick", (scope.state.selection == Some(Selection::Tid(t.tid))).then_some("selected"))}
                            onclick={scope.on(Action::Select(Some(Selection::Tid(t.tid))))}>
                            <td class="n"><button class="link" onclick={scope.on(Action::Select(Some(Selection::Tid(t.tid))))}>{ t.tid }</button></td>
                            <td>{ t.state.word() }</td><td class="n">{ t.start }</td><td class="n">{ t.blocks }</td>
                            <td class="n">{ t.descriptors }</td><td class="n">{ t.metadata }</td><td class="n">{ t.data_blocks }</td><td class="n">{ t.revokes }</td>
                            <td class="n">{ when(t.committed_ns) }</td><td class="n">{ when(t.checkpointed_ns) }</td>
                        </tr>
                    }) }
                </tbody>
            </table>
        </div>
    }
}
