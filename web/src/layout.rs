//! Where things are on a picture: pure geometry, shared by drawing and by picking.

use crate::link::protocol::{HEAT_PER_DECADE, HEAT_ROWS};

/// A rectangle, CSS px.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Rect {
    /// Left.
    pub x: f64,
    /// Top.
    pub y: f64,
    /// Width.
    pub w: f64,
    /// Height.
    pub h: f64,
}

impl Rect {
    /// Whether a point is inside.
    pub fn has(&self, x: f64, y: f64) -> bool {
        x >= self.x && x < self.x + self.w && y >= self.y && y < self.y + self.h
    }
}

/// Blocks in a row that are alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First block in the group.
    pub start: u32,
    /// Blocks.
    pub len: u32,
    /// Role.
    pub role: u8,
    /// Durability.
    pub durability: u8,
}

/// Runs no longer than this are drawn block by block.
const SINGLE_MAX: u32 = 3;

/// Folds a group into runs; short ones stay single blocks so that each can be pointed at.
pub fn fold(role: &[u8], durability: &[u8]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (i, (&r, &d)) in role.iter().zip(durability).enumerate() {
        // What was never written is no news in a free block.
        let d = if r == 0 { 0 } else { d };
        match runs.last_mut() {
            Some(run) if run.role == r && run.durability == d => run.len += 1,
            _ => runs.push(Run {
                start: i as u32,
                len: 1,
                role: r,
                durability: d,
            }),
        }
    }
    let mut out = Vec::with_capacity(runs.len());
    for run in runs {
        if run.len <= SINGLE_MAX && run.role != 0 {
            out.extend((0..run.len).map(|i| Run {
                start: run.start + i,
                len: 1,
                ..run
            }));
        } else {
            out.push(run);
        }
    }
    out
}

/// Places folded runs in rows: single blocks are squares, long runs grow with the logarithm of their length, and
/// what is left of a row is shared out among its runs.
pub fn flow(runs: &[Run], width: f64, cell: f64, gap: f64, pitch: f64, top: f64) -> Vec<Rect> {
    let (mut x, mut y) = (0.0, top);
    let mut out: Vec<Rect> = Vec::with_capacity(runs.len());
    let mut row = 0;
    for (i, run) in runs.iter().enumerate() {
        let w = if run.len == 1 {
            cell
        } else {
            cell * (1.0 + 0.75 * f64::from(run.len).log2())
        };
        let w = w.min(width);
        if x > 0.0 && x + w > width {
            justify(&mut out[row..], &runs[row..i], width);
            row = i;
            x = 0.0;
            y += pitch;
        }
        out.push(Rect { x, y, w, h: cell });
        x += w + gap;
    }
    justify(&mut out[row..], &runs[row..], width);
    out
}

fn justify(rects: &mut [Rect], runs: &[Run], width: f64) {
    let Some(last) = rects.last() else { return };
    let spare = width - last.x - last.w;
    let long: f64 = rects
        .iter()
        .zip(runs)
        .filter(|(_, run)| run.len > 1)
        .map(|(r, _)| r.w)
        .sum();
    if long <= 0.0 || spare <= 0.0 {
        return;
    }
    let mut moved = 0.0;
    for (r, run) in rects.iter_mut().zip(runs) {
        r.x += moved;
        if run.len > 1 {
            let more = spare * r.w / long;
            r.w += more;
            moved += more;
        }
    }
}

/// Tiles of map level 0: columns, tile width and height that fill the space best.
pub fn tiles(count: usize, width: f64, height: f64) -> (usize, f64, f64) {
    let mut best = (1, 4.0, 3.0);
    for tile_w in (4..=96).map(f64::from) {
        let tile_h = (tile_w * 0.72).round().max(3.0);
        let columns = ((width / (tile_w + 2.0)) as usize).max(1);
        let rows = count.div_ceil(columns);
        if rows as f64 * (tile_h + 3.0) <= height {
            best = (columns, tile_w, tile_h);
        }
    }
    best
}

/// The tile under a point.
pub fn tile_at(
    count: usize,
    (columns, tile_w, tile_h): (usize, f64, f64),
    x: f64,
    y: f64,
) -> Option<usize> {
    let column = (x / (tile_w + 2.0)) as usize;
    let row = (y / (tile_h + 3.0)) as usize;
    let tile = row * columns + column;
    (x >= 0.0 && y >= 0.0 && column < columns && tile < count).then_some(tile)
}

/// Blocks per row of the exact grid of a group.
pub const GRID_COLUMNS: u32 = 256;

/// The exact grid: left, top, and CSS px per block (a whole number of half pixels).
pub fn grid(blocks: usize, width: f64, height: f64) -> (f64, f64, f64) {
    let rows = blocks.div_ceil(GRID_COLUMNS as usize).max(1) as f64;
    let fit = (width / f64::from(GRID_COLUMNS)).min(height / rows);
    let step = ((fit * 2.0).floor() / 2.0).max(0.5);
    (0.0, 0.0, step)
}

/// Angle of a journal block, radians clockwise from 12 o'clock.
pub fn ring_angle(block: u32, first: u32, blocks: u32) -> f64 {
    let span = f64::from(blocks.saturating_sub(first).max(1));
    std::f64::consts::TAU * f64::from(block.saturating_sub(first)) / span
}

/// The row of the heat map that a latency falls into.
pub fn heat_row(latency_ns: u64) -> usize {
    let micros = (latency_ns as f64 / 1e3).max(1.0);
    ((micros.log10() * HEAT_PER_DECADE as f64) as usize).min(HEAT_ROWS - 1)
}

/// The least latency of a row, ns.
pub fn heat_floor(row: usize) -> u64 {
    (10f64.powf(row as f64 / HEAT_PER_DECADE as f64) * 1e3) as u64
}

/// Step of the six-step ramp for a count, log2-binned against the largest.
pub fn heat_step(count: u32, most: u32) -> usize {
    if count == 0 {
        return 0;
    }
    let share = f64::from(count + 1).log2() / f64::from(most.max(1) + 1).log2();
    1 + ((share * 5.0).ceil() as usize).clamp(1, 5) - 1
}

/// A pleasant step of an axis: 1, 2 or 5 times a power of ten, at most `most` of them in `span`.
pub fn axis_step(span: f64, most: f64) -> f64 {
    let rough = (span / most.max(1.0)).max(1e-12);
    let power = 10f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .into_iter()
        .map(|m| m * power)
        .find(|s| *s >= rough)
        .unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_cover_every_block_once() {
        let role = [1, 1, 1, 1, 1, 2, 2, 0, 0, 6, 6, 6, 6];
        let durability = [0, 0, 0, 0, 0, 0, 1, 0, 5, 3, 3, 3, 3];
        let runs = fold(&role, &durability);
        assert_eq!(runs.iter().map(|r| r.len).sum::<u32>(), 13);
        assert_eq!(
            runs.iter().map(|r| r.start).collect::<Vec<_>>(),
            [0, 5, 6, 7, 9]
        );
        let rects = flow(&runs, 120.0, 20.0, 3.0, 40.0, 0.0);
        assert!(rects.iter().all(|r| r.x + r.w <= 120.0 + 1e-9));
        for (a, b) in rects.iter().zip(&rects[1..]) {
            assert!(b.y > a.y || b.x >= a.x + a.w);
        }
    }

    #[test]
    fn tiles_fit_and_are_found() {
        for (count, w, h) in [
            (1, 400.0, 300.0),
            (1_192, 800.0, 330.0),
            (2_048, 500.0, 300.0),
        ] {
            let layout = tiles(count, w, h);
            assert!(
                count.div_ceil(layout.0) as f64 * (layout.2 + 3.0) <= h,
                "{count} tiles: {layout:?}"
            );
            for tile in [0, count / 2, count - 1] {
                let x = (tile % layout.0) as f64 * (layout.1 + 2.0) + 1.0;
                let y = (tile / layout.0) as f64 * (layout.2 + 3.0) + 1.0;
                assert_eq!(tile_at(count, layout, x, y), Some(tile));
            }
        }
    }

    #[test]
    fn heat_rows_match_their_floor() {
        for row in 0..HEAT_ROWS {
            assert_eq!(heat_row(heat_floor(row) + 200), row);
        }
        assert_eq!(heat_row(0), 0);
        assert_eq!(heat_row(u64::MAX), HEAT_ROWS - 1);
        assert_eq!(heat_step(0, 10), 0);
        assert_eq!(heat_step(10, 10), 5);
        assert!(heat_step(1, 1_000_000) >= 1);
    }

    #[test]
    fn axes_step_pleasantly() {
        assert!((axis_step(10.0, 6.0) - 2.0).abs() < 1e-9);
        assert!((axis_step(0.9, 5.0) - 0.2).abs() < 1e-9);
    }
}
