//! Disk map: what is where, and is it safe? Level 0 has a tile per group, level 1 the blocks of one group.

use std::rc::Rc;

use fsglass_web::layout::{self, Rect, Run};
use fsglass_web::link::protocol::{GroupMap, Selection, Tile, TreeRow, DURABILITY, ROLES};
use fsglass_web::state::act::Act;
use fsglass_web::state::store::{Action, Mode, Panel, State, Ui};
use fsglass_web::state::text::{bytes, count, thousands};
use wasm_bindgen::Clamped;
use yew::prelude::*;

use super::{legend, log, Scope};
use crate::draw::figure::Point;
use crate::draw::pen::{Align, Face};
use crate::draw::{Figure, Painter, Pen, Tokens};

const GAP: f64 = 4.0;
const CELL_MIN: f64 = 11.0;
const CELL_MAX: f64 = 34.0;
/// Room under a row of cells for its words.
const WORDS_H: f64 = 22.0;
const MEMORY_TOP: f64 = 4.0;
const MEMORY_H: f64 = 22.0;
/// Where the ground begins: the memory row is above it.
const GROUND_TOP: f64 = 62.0;
const RECENT_SHOWN: usize = 32;

/// The panel's body.
pub(crate) fn view(scope: Scope<'_>) -> Html {
    let state = scope.state;
    if state.loaded.is_none() {
        return html! { <p class="empty">{ "No filesystem yet: run mkfs in the setup, or drop an image on the page." }</p> };
    }
    match state.mode(Panel::Map) {
        Mode::Picture => picture(scope),
        Mode::Table => table(scope),
        Mode::Log => log::view(scope, &["device", "mm", "ext4"]),
    }
}

fn picture(scope: Scope<'_>) -> Html {
    let state = scope.state;
    let painter = match state.zoom {
        None => tiles_painter(scope),
        Some(_) if state.exact => grid_painter(scope),
        Some(_) => folded_painter(scope),
    };
    let label = format!("{}. {}", state.title(Panel::Map), readout(state));
    html! {
        <>
            <Figure label={label} painter={painter} onpick={pick(scope)} onhover={hover(scope)} onkey={keys(scope)} />
            <div class="readout" id="map-readout">{ readout(state) }</div>
            <div class="row legendrow">
                { legend(scope) }
                { controls(scope) }
            </div>
        </>
    }
}

fn controls(scope: Scope<'_>) -> Html {
    let state = scope.state;
    if state.ui == Ui::Mini || state.loaded.as_ref().is_none_or(|l| l.groups == 0) {
        return html! {};
    }
    html! {
        <div class="legend">
            if state.zoom.is_some() {
                <button data-act={Act::Zoom(false).name()} onclick={scope.on(Action::Act(Act::Zoom(false)))}>{ "− whole disk" }</button>
                <button data-act={Act::Exact.name()} aria-pressed="true" onclick={scope.on(Action::Act(Act::Exact))}>{ if state.exact { "fold runs" } else { "every block" } }</button>
            } else {
                <button data-act={Act::Zoom(true).name()} onclick={scope.on(Action::Act(Act::Zoom(true)))}>{ "+ this group" }</button>
            }
        </div>
    }
}

// ---- level 0 -------------------------------------------------------------------------------------------------

fn tiles_painter(scope: Scope<'_>) -> Painter {
    let tiles = scope.state.view.map.clone().unwrap_or_default();
    let cursor = scope.state.map_cursor as usize;
    let (faded, now) = (scope.state.faded, scope.state.at_ns);
    let glow_ns = glow_window(scope.state);
    Painter {
        stamp: scope.stamp(&format!("tiles{cursor}/{faded}")),
        paint: Rc::new(move |pen| paint_tiles(pen, &tiles, cursor, faded, now, glow_ns)),
    }
}

fn paint_tiles(pen: &Pen<'_>, tiles: &[Tile], cursor: usize, faded: u8, now: u64, glow_ns: u64) {
    let (columns, w, h) = layout::tiles(tiles.len(), pen.w, pen.h);
    for (i, tile) in tiles.iter().enumerate() {
        let x = (i % columns) as f64 * (w + 2.0);
        let y = (i / columns) as f64 * (h + 3.0);
        paint_tile(pen, tile, Rect { x, y, w, h }, faded);
        let age = now.saturating_sub(tile.last_write_ns);
        if tile.last_write_ns > 0 && tile.last_write_ns <= now && age < glow_ns {
            pen.frame(x - 1.0, y - 1.0, w + 2.0, h + 2.0, &pen.t.ink, 1.0);
        }
        if i == cursor {
            pen.frame(x - 2.0, y - 2.0, w + 4.0, h + 4.0, &pen.t.focus, 2.0);
        }
    }
}

fn paint_tile(pen: &Pen<'_>, tile: &Tile, r: Rect, faded: u8) {
    let total: u32 = tile.by_role.iter().sum();
    pen.frame(r.x, r.y, r.w, r.h, &pen.t.rule, 1.0);
    let mut x = r.x;
    let present = tile.by_role[1..].iter().filter(|n| **n > 0).count() as f64;
    // Every role that is there gets at least one pixel; the rest is to scale.
    let spare = (r.w - present).max(0.0);
    for role in 1..7 {
        let n = tile.by_role[role];
        if n == 0 {
            continue;
        }
        let w = 1.0 + spare * f64::from(n) / f64::from(total.max(1));
        pen.ctx
            .set_global_alpha(if faded & (1 << role) == 0 { 1.0 } else { 0.25 });
        pen.rect(x, r.y, w, r.h, &pen.t.role[role]);
        pen.hatch(x, r.y, w, r.h, role);
        x += w;
    }
    pen.ctx.set_global_alpha(1.0);
    let edge = |n: u32, colour: &str, lane: f64| {
        if n > 0 {
            let w = (r.w * f64::from(n) / f64::from(total.max(1))).max(2.0);
            pen.rect(
                r.x + lane * r.w / 3.0,
                r.y + r.h,
                w.min(r.w / 3.0),
                2.0,
                colour,
            );
        }
    };
    edge(
        tile.by_durability[1] + tile.by_durability[2],
        &pen.t.ink_3,
        0.0,
    );
    edge(tile.by_durability[3], &pen.t.ink, 1.0);
    edge(tile.by_durability[4], &pen.t.role[5], 2.0);
    if tile.flags & 128 != 0 {
        pen.line(r.x, r.y, r.x + r.w, r.y + r.h, &pen.t.alert, 2.0);
        pen.line(r.x, r.y + r.h, r.x + r.w, r.y, &pen.t.alert, 2.0);
    }
}

// ---- level 1, exact ------------------------------------------------------------------------------------------

fn grid_painter(scope: Scope<'_>) -> Painter {
    let group = scope.state.view.group.clone().unwrap_or_default();
    let (cursor, faded) = (scope.state.map_cursor, scope.state.faded);
    Painter {
        stamp: scope.stamp(&format!("grid{cursor}/{faded}/{}", group.group)),
        paint: Rc::new(move |pen| paint_grid(pen, &group, cursor, faded)),
    }
}

/// Two by two pixels per block: the role is the colour, durability the pattern of the four.
fn paint_grid(pen: &Pen<'_>, group: &GroupMap, cursor: u32, faded: u8) {
    let columns = layout::GRID_COLUMNS as usize;
    let rows = group.role.len().div_ceil(columns);
    if rows == 0 {
        return;
    }
    let (_, _, step) = layout::grid(group.role.len(), pen.w, pen.h);
    let ground = Tokens::rgb(&pen.t.ground);
    let journal = Tokens::rgb(&pen.t.role[5]);
    let roles: Vec<[u8; 3]> = pen.t.role.iter().map(|c| Tokens::rgb(c)).collect();
    let stride = columns * 2 * 4;
    let mut pixels = vec![0u8; stride * rows * 2];
    for (i, (&role, &durability)) in group.role.iter().zip(&group.durability).enumerate() {
        let mut colour = roles[usize::from(role).min(6)];
        if faded & (1 << role) != 0 {
            colour = mix(colour, ground, 0.75);
        }
        let four = match (role, durability) {
            (0, _) => [ground, ground, ground, colour],
            (_, 1) => [colour, ground, ground, colour],
            (_, 2) => [colour, ground, colour, ground],
            (_, 3) => [colour, ground, colour, colour],
            (_, 4) => [colour, colour, journal, journal],
            (_, 5) => [ground, ground, colour, ground],
            _ => [colour; 4],
        };
        let base = (i / columns) * 2 * stride + (i % columns) * 8;
        for (p, rgb) in four.into_iter().enumerate() {
            let at = base + (p / 2) * stride + (p % 2) * 4;
            pixels[at..at + 4].copy_from_slice(&[rgb[0], rgb[1], rgb[2], 255]);
        }
    }
    blit(pen, &pixels, columns * 2, rows * 2, step / 2.0);
    let (x, y) = (
        f64::from(cursor % 256) * step,
        f64::from(cursor / 256) * step,
    );
    pen.frame(x - 3.0, y - 3.0, step + 6.0, step + 6.0, &pen.t.focus, 2.0);
}

fn mix(a: [u8; 3], b: [u8; 3], share: f64) -> [u8; 3] {
    [0, 1, 2].map(|i| (f64::from(a[i]) * (1.0 - share) + f64::from(b[i]) * share) as u8)
}

/// Draws pixels at a scale without smoothing.
pub(super) fn blit(pen: &Pen<'_>, pixels: &[u8], w: usize, h: usize, scale: f64) {
    use wasm_bindgen::JsCast;
    let Ok(image) = web_sys::ImageData::new_with_u8_clamped_array(Clamped(pixels), w as u32) else {
        return;
    };
    let canvas = web_sys::window()
        .and_then(|win| win.document())
        .and_then(|d| d.create_element("canvas").ok())
        .and_then(|e| e.dyn_into::<web_sys::HtmlCanvasElement>().ok());
    let Some(canvas) = canvas else { return };
    canvas.set_width(w as u32);
    canvas.set_height(h as u32);
    let Ok(Some(ctx)) = canvas.get_context("2d") else {
        return;
    };
    let Ok(ctx) = ctx.dyn_into::<web_sys::CanvasRenderingContext2d>() else {
        return;
    };
    if ctx.put_image_data(&image, 0.0, 0.0).is_ok() {
        pen.ctx.set_image_smoothing_enabled(false);
        let _ = pen.ctx.draw_image_with_html_canvas_element_and_dw_and_dh(
            &canvas,
            0.0,
            0.0,
            w as f64 * scale,
            h as f64 * scale,
        );
    }
}

// ---- level 1, folded -----------------------------------------------------------------------------------------

struct Folded {
    runs: Vec<Run>,
    rects: Vec<Rect>,
    memory: Vec<(String, Rect)>,
}

/// Files that are only in the page cache stand above the ground: they have no block yet.
fn folded(group: &GroupMap, tree: &[TreeRow], width: f64, height: f64) -> Folded {
    let runs = layout::fold(&group.role, &group.durability);
    // The largest cells that still fit the height.
    let mut cell = CELL_MAX;
    let mut rects = layout::flow(&runs, width, cell, GAP, cell + WORDS_H, GROUND_TOP);
    while cell > CELL_MIN && rects.last().is_some_and(|r| r.y + cell + WORDS_H > height) {
        cell -= 1.0;
        rects = layout::flow(&runs, width, cell, GAP, cell + WORDS_H, GROUND_TOP);
    }
    let mut memory = Vec::new();
    let mut x = 112.0;
    for row in tree
        .iter()
        .filter(|r| r.kind == "-" && r.durability == 1 && r.first_block.is_none())
    {
        let w = MEMORY_H.max(8.0 + row.path.chars().count() as f64 * 7.5);
        if x + w > width {
            break;
        }
        memory.push((
            row.path.clone(),
            Rect {
                x,
                y: MEMORY_TOP + 4.0,
                w,
                h: MEMORY_H,
            },
        ));
        x += w + 14.0;
    }
    Folded {
        runs,
        rects,
        memory,
    }
}

fn folded_painter(scope: Scope<'_>) -> Painter {
    let state = scope.state;
    let group = state.view.group.clone().unwrap_or_default();
    let tree = state.view.tree.clone().unwrap_or_default();
    let (cursor, faded) = (state.map_cursor, state.faded);
    let cut = state.crash.is_some();
    Painter {
        stamp: scope.stamp(&format!("folded{cursor}/{faded}/{cut}/{}", group.group)),
        paint: Rc::new(move |pen| paint_folded(pen, &group, &tree, cursor, faded, cut)),
    }
}

fn paint_folded(
    pen: &Pen<'_>,
    group: &GroupMap,
    tree: &[TreeRow],
    cursor: u32,
    faded: u8,
    cut: bool,
) {
    let folded = folded(group, tree, pen.w, pen.h);
    paint_memory(pen, &folded, cut);
    for (run, r) in folded.runs.iter().zip(&folded.rects) {
        let shown = faded & (1 << run.role) == 0;
        pen.ctx.set_global_alpha(if shown { 1.0 } else { 0.25 });
        paint_run(pen, run, r);
        if cursor >= run.start && cursor < run.start + run.len {
            let (w, h) = (r.w + 4.0, r.h + 4.0);
            pen.frame(r.x - 2.0, r.y - 2.0, w, h, &pen.t.focus, 2.0);
        }
        pen.ctx.set_global_alpha(1.0);
    }
    for (block, _) in group.recent.iter().take(RECENT_SHOWN) {
        let found = folded
            .runs
            .iter()
            .position(|r| *block >= r.start && *block < r.start + r.len);
        if let Some(r) = found.and_then(|i| folded.rects.get(i)) {
            pen.rect(r.x, r.y - 4.0, r.w.min(6.0), 2.0, &pen.t.ink_2);
        }
    }
    name_files(pen, group, tree, &folded);
}

/// A run with its count under it, or a single block with its letter.
fn paint_run(pen: &Pen<'_>, run: &Run, r: &Rect) {
    let role = usize::from(run.role);
    if role == 0 {
        let (y, right) = (r.y + r.h / 2.0, r.x + r.w - 3.0);
        pen.frame(r.x, r.y, r.w, r.h, &pen.t.rule, 1.0);
        pen.dash(&[1.0, 5.0]);
        pen.line(r.x + 3.0, y, right, y, &pen.t.rule_strong, 1.0);
        pen.dash(&[]);
    } else {
        pen.cell(r.x, r.y, r.w, r.h, role, run.durability);
    }
    if run.len > 1 {
        let number = thousands(u64::from(run.len));
        let words = format!("{number} {}", short(role));
        let room = pen.width(&words, Face::Sans(12.0)) <= r.w + GAP;
        pen.note(
            r.x,
            r.y + r.h + 14.0,
            if room { &words } else { &number },
            Align::Start,
        );
    } else if let Some(letter) = letter(role) {
        let hollow = matches!(run.durability, 1 | 2 | 5);
        let on = if hollow {
            &pen.t.role[role]
        } else {
            &pen.t.on[role]
        };
        let (x, y) = (r.x + r.w / 2.0, r.y + r.h / 2.0 + 4.5);
        pen.text(x, y, letter, on, Face::Mono(12.0), Align::Middle);
    }
}

fn paint_memory(pen: &Pen<'_>, folded: &Folded, cut: bool) {
    let y = GROUND_TOP - 14.0;
    pen.text(
        0.0,
        MEMORY_TOP + 18.0,
        "memory only",
        &pen.t.ink_2,
        Face::Sans(12.0),
        Align::Start,
    );
    if !cut {
        pen.note(0.0, y - 5.0, "disk", Align::Start);
    }
    pen.line(0.0, y + 0.5, pen.w, y + 0.5, &pen.t.rule_strong, 1.0);
    if folded.memory.is_empty() {
        pen.text(
            112.0,
            MEMORY_TOP + 18.0,
            "nothing",
            &pen.t.ink_3,
            Face::Sans(12.0),
            Align::Start,
        );
    }
    for (path, r) in &folded.memory {
        pen.cell(r.x, r.y, r.w, r.h, 6, 1);
        pen.text(
            r.x + r.w / 2.0,
            r.y + 15.5,
            path,
            &pen.t.ink,
            Face::Mono(12.0),
            Align::Middle,
        );
        if cut {
            pen.line(
                r.x - 3.0,
                r.y - 3.0,
                r.x + r.w + 3.0,
                r.y + r.h + 3.0,
                &pen.t.alert,
                1.5,
            );
            pen.line(
                r.x - 3.0,
                r.y + r.h + 3.0,
                r.x + r.w + 3.0,
                r.y - 3.0,
                &pen.t.alert,
                1.5,
            );
        }
    }
    if cut {
        fault_line(pen, y);
    }
}

/// The fault: a broken line along the ground; what was above it is gone.
fn fault_line(pen: &Pen<'_>, y: f64) {
    pen.stroke(&pen.t.alert, 1.5);
    pen.ctx.begin_path();
    pen.ctx.move_to(0.0, y);
    let (mut x, mut up) = (0.0, true);
    while x < pen.w {
        x += if up { 17.0 } else { 11.0 };
        pen.ctx.line_to(x, y + if up { -5.0 } else { 5.0 });
        up = !up;
    }
    pen.ctx.stroke();
}

/// Names of files that have a block here, set under it.
fn name_files(pen: &Pen<'_>, group: &GroupMap, tree: &[TreeRow], folded: &Folded) {
    for row in tree.iter().filter(|r| r.kind == "-").take(200) {
        let Some(block) = row.first_block else {
            continue;
        };
        let Some(offset) = block.checked_sub(group.first_block) else {
            continue;
        };
        let Some(i) = folded.runs.iter().position(|r| {
            offset >= u64::from(r.start) && offset < u64::from(r.start) + u64::from(r.len)
        }) else {
            continue;
        };
        let r = folded.rects[i];
        if folded.runs[i].len == 1 {
            let name = row.path.rsplit('/').next().unwrap_or(&row.path);
            pen.text(
                r.x + r.w / 2.0,
                r.y + r.h + 14.0,
                name,
                &pen.t.ink,
                Face::Mono(12.0),
                Align::Middle,
            );
        }
    }
}

fn letter(role: usize) -> Option<&'static str> {
    match role {
        1 => Some("S"),
        2 => Some("b"),
        3 => Some("i"),
        4 => Some("d"),
        5 => Some("j"),
        _ => None,
    }
}

fn short(role: usize) -> &'static str {
    [
        "free",
        "descriptors",
        "bitmaps",
        "inode table",
        "tree",
        "journal",
        "data",
    ][role.min(6)]
}

// ---- pointer, keys, readout ----------------------------------------------------------------------------------

fn glow_window(state: &State) -> u64 {
    // 400 ms of real time while playing; paused, the last 50 ms of virtual time.
    if state.playing {
        (0.4e9 * state.speed_now().max(0.001)) as u64
    } else {
        50_000_000
    }
}

/// What is under a point: tile or block of the group.
fn at(state: &State, p: Point) -> Option<u32> {
    if state.zoom.is_none() {
        let n = state.view.map.as_ref()?.len();
        return layout::tile_at(n, layout::tiles(n, p.w, p.h), p.x, p.y).map(|t| t as u32);
    }
    let group = state.view.group.as_ref()?;
    if state.exact {
        let (_, _, step) = layout::grid(group.role.len(), p.w, p.h);
        let (column, row) = ((p.x / step) as u32, (p.y / step) as u32);
        let block = row * layout::GRID_COLUMNS + column;
        return (column < layout::GRID_COLUMNS && (block as usize) < group.role.len())
            .then_some(block);
    }
    let empty = Vec::new();
    let folded = folded(
        group,
        state.view.tree.as_deref().unwrap_or(&empty),
        p.w,
        p.h,
    );
    let i = folded.rects.iter().position(|r| r.has(p.x, p.y))?;
    let (run, r) = (folded.runs[i], folded.rects[i]);
    let share = (p.x - r.x) / r.w;
    Some(run.start + ((f64::from(run.len) * share) as u32).min(run.len - 1))
}

fn pick(scope: Scope<'_>) -> Callback<Point> {
    let state = scope.state.clone();
    let send = scope.send.clone();
    Callback::from(move |p: Point| {
        let Some(cursor) = at(&state, p) else { return };
        send.emit(Action::MapCursor(cursor));
        if let (Some(_), Some(group)) = (&state.zoom, &state.view.group) {
            send.emit(Action::Select(Some(Selection::Block(
                group.first_block + u64::from(cursor),
            ))));
        } else {
            let tile = state.view.map.as_ref().and_then(|m| m.get(cursor as usize));
            if let Some(tile) = tile {
                send.emit(Action::Select(Some(Selection::Group(tile.first_group))));
                if p.double {
                    send.emit(Action::ZoomTo(Some(tile.first_group)));
                }
            }
        }
    })
}

fn hover(scope: Scope<'_>) -> Callback<Option<Point>> {
    let state = scope.state.clone();
    let send = scope.send.clone();
    Callback::from(move |p: Option<Point>| {
        if let Some(cursor) = p.and_then(|p| at(&state, p)) {
            if cursor != state.map_cursor {
                send.emit(Action::MapCursor(cursor));
            }
        }
    })
}

fn keys(scope: Scope<'_>) -> Callback<KeyboardEvent> {
    let state = scope.state.clone();
    let send = scope.send.clone();
    Callback::from(move |e: KeyboardEvent| {
        let row = match (state.zoom, state.exact) {
            (Some(_), true) => layout::GRID_COLUMNS,
            _ => 16,
        };
        let last = match state.zoom {
            Some(_) => state.view.group.as_ref().map_or(0, |g| g.role.len()),
            None => state.view.map.as_ref().map_or(0, |m| m.len()),
        }
        .saturating_sub(1) as u32;
        // Arrows with Alt move the map's cursor: plain arrows always step through time.
        let moved = match (e.key().as_str(), e.alt_key()) {
            ("ArrowRight", true) => state.map_cursor.saturating_add(1),
            ("ArrowLeft", true) => state.map_cursor.saturating_sub(1),
            ("ArrowDown", true) => state.map_cursor.saturating_add(row),
            ("ArrowUp", true) => state.map_cursor.saturating_sub(row),
            ("Enter", _) => {
                let chosen = match (state.zoom, &state.view.group, &state.view.map) {
                    (Some(_), Some(g), _) => Some(Selection::Block(
                        g.first_block + u64::from(state.map_cursor),
                    )),
                    (None, _, Some(m)) => m
                        .get(state.map_cursor as usize)
                        .map(|t| Selection::Group(t.first_group)),
                    _ => None,
                };
                send.emit(Action::Select(chosen));
                e.prevent_default();
                e.stop_propagation();
                return;
            }
            _ => return,
        };
        e.prevent_default();
        e.stop_propagation();
        send.emit(Action::MapCursor(moved.min(last)));
    })
}

/// The line under the map: what the cursor stands on.
fn readout(state: &State) -> String {
    let cursor = state.map_cursor;
    if state.zoom.is_some() {
        let Some(group) = &state.view.group else {
            return String::new();
        };
        let (Some(role), Some(durability)) = (
            group.role.get(cursor as usize),
            group.durability.get(cursor as usize),
        ) else {
            return String::new();
        };
        let block = group.first_block + u64::from(cursor);
        let number = if state.hex {
            format!("0x{block:x}")
        } else {
            thousands(block)
        };
        let size = state
            .loaded
            .as_ref()
            .map_or(4096, |l| u64::from(l.block_size));
        let safe = if *role == 0 {
            ""
        } else {
            DURABILITY[usize::from(*durability).min(5)]
        };
        return format!(
            "Block {number} at {}: {}{}{safe}",
            bytes(block * size),
            ROLES[usize::from(*role).min(6)],
            if safe.is_empty() { "" } else { ", " }
        );
    }
    let Some(tile) = state.view.map.as_ref().and_then(|m| m.get(cursor as usize)) else {
        return String::new();
    };
    let used: u32 = tile.by_role[1..].iter().sum();
    format!(
        "{} {}: {} used, {} free, {} free{}",
        if tile.groups == 1 {
            "Group"
        } else {
            "Groups from"
        },
        thousands(u64::from(tile.first_group)),
        count(u64::from(used), "block", "blocks"),
        thousands(u64::from(tile.by_role[0])),
        count(u64::from(tile.free_inodes), "inode", "inodes"),
        flags(tile.flags)
    )
}

fn flags(flags: u8) -> String {
    [
        (1, "INODE_UNINIT"),
        (2, "BLOCK_UNINIT"),
        (4, "INODE_ZEROED"),
        (128, "descriptor checksum mismatch"),
    ]
    .into_iter()
    .filter(|(bit, _)| flags & bit != 0)
    .fold(String::new(), |out, (_, word)| out + ", " + word)
}

fn table(scope: Scope<'_>) -> Html {
    let state = scope.state;
    if let (Some(_), Some(group)) = (state.zoom, &state.view.group) {
        let runs = layout::fold(&group.role, &group.durability);
        return html! {
            <div class="scroll"><table>
                <thead><tr><th class="n">{ "block" }</th><th class="n">{ "blocks" }</th><th>{ "role" }</th><th>{ "newest version" }</th></tr></thead>
                <tbody>{ for runs.iter().take(2_000).map(|run| {
                    let block = group.first_block + u64::from(run.start);
                    html! {
                        <tr class="pick" onclick={scope.on(Action::Select(Some(Selection::Block(block))))}>
                            <td class="n"><button class="link" onclick={scope.on(Action::Select(Some(Selection::Block(block))))}>{ thousands(block) }</button></td>
                            <td class="n">{ thousands(u64::from(run.len)) }</td>
                            <td>{ ROLES[usize::from(run.role).min(6)] }</td>
                            <td>{ if run.role == 0 { "" } else { DURABILITY[usize::from(run.durability).min(5)] } }</td>
                        </tr>
                    }
                }) }</tbody>
            </table></div>
        };
    }
    let empty = Rc::new(Vec::new());
    let tiles = state.view.map.as_ref().unwrap_or(&empty);
    html! {
        <div class="scroll"><table>
            <thead><tr><th class="n">{ "group" }</th><th class="n">{ "used" }</th><th class="n">{ "free" }</th><th class="n">{ "free inodes" }</th><th class="n">{ "dirty" }</th><th class="n">{ "cache" }</th><th class="n">{ "journal" }</th><th>{ "flags" }</th></tr></thead>
            <tbody>{ for tiles.iter().take(2_048).map(|t| html! {
                <tr class="pick" onclick={scope.on(Action::ZoomTo(Some(t.first_group)))}>
                    <td class="n"><button class="link" onclick={scope.on(Action::ZoomTo(Some(t.first_group)))}>{ thousands(u64::from(t.first_group)) }</button></td>
                    <td class="n">{ thousands(u64::from(t.by_role[1..].iter().sum::<u32>())) }</td>
                    <td class="n">{ thousands(u64::from(t.by_role[0])) }</td>
                    <td class="n">{ thousands(u64::from(t.free_inodes)) }</td>
                    <td class="n">{ t.by_durability[1] + t.by_durability[2] }</td>
                    <td class="n">{ t.by_durability[3] }</td>
                    <td class="n">{ t.by_durability[4] }</td>
                    <td>{ flags(t.flags).trim_start_matches(", ").to_string() }</td>
                </tr>
            }) }</tbody>
        </table></div>
    }
}
