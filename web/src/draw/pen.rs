//! Drawing in CSS pixels on a canvas, with the marks of the visual language: role by fill, durability by edge.

use web_sys::CanvasRenderingContext2d;

use super::Tokens;

/// Roles, as indices of `protocol::ROLES`.
pub(crate) mod role {
    /// Bitmaps.
    pub(crate) const BITMAP: usize = 2;
    /// Inode table.
    pub(crate) const ITABLE: usize = 3;
    /// Directories, indices.
    pub(crate) const TREE: usize = 4;
    /// Journal.
    pub(crate) const JOURNAL: usize = 5;
}

/// Where text sits at its point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    /// Starts there.
    Start,
    /// Centred.
    Middle,
    /// Ends there.
    End,
}

/// A face and its size, CSS px.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Face {
    /// Interface and labels.
    Sans(f64),
    /// Numbers and code.
    Mono(f64),
    /// Titles.
    Serif(f64),
}

/// A canvas of a size, and the theme.
pub(crate) struct Pen<'a> {
    /// The canvas.
    pub(crate) ctx: &'a CanvasRenderingContext2d,
    /// Width, CSS px.
    pub(crate) w: f64,
    /// Height, CSS px.
    pub(crate) h: f64,
    /// Theme.
    pub(crate) t: &'a Tokens,
}

impl Pen<'_> {
    /// Fills the whole with paper.
    pub(crate) fn clear(&self) {
        self.fill(&self.t.ground);
        self.ctx.fill_rect(0.0, 0.0, self.w, self.h);
    }

    /// Sets the fill.
    pub(crate) fn fill(&self, colour: &str) {
        self.ctx.set_fill_style_str(colour);
    }

    /// Sets the stroke.
    pub(crate) fn stroke(&self, colour: &str, width: f64) {
        self.ctx.set_stroke_style_str(colour);
        self.ctx.set_line_width(width * self.t.stroke);
    }

    /// A filled rectangle.
    pub(crate) fn rect(&self, x: f64, y: f64, w: f64, h: f64, colour: &str) {
        self.fill(colour);
        self.ctx.fill_rect(x, y, w, h);
    }

    /// A rectangle's outline, inside its bounds.
    pub(crate) fn frame(&self, x: f64, y: f64, w: f64, h: f64, colour: &str, width: f64) {
        self.stroke(colour, width);
        let half = width * self.t.stroke / 2.0;
        self.ctx.stroke_rect(
            x + half,
            y + half,
            (w - 2.0 * half).max(0.0),
            (h - 2.0 * half).max(0.0),
        );
    }

    /// A line.
    pub(crate) fn line(&self, x0: f64, y0: f64, x1: f64, y1: f64, colour: &str, width: f64) {
        self.stroke(colour, width);
        self.ctx.begin_path();
        self.ctx.move_to(x0, y0);
        self.ctx.line_to(x1, y1);
        self.ctx.stroke();
    }

    /// Dashes for what is stroked next; an empty slice for none.
    pub(crate) fn dash(&self, pattern: &[f64]) {
        let list = js_sys::Array::new();
        for part in pattern {
            list.push(&(*part).into());
        }
        let _ = self.ctx.set_line_dash(&list);
    }

    fn set_face(&self, face: Face) {
        let (size, family) = match face {
            Face::Sans(size) => (size, &self.t.sans),
            Face::Mono(size) => (size, &self.t.mono),
            Face::Serif(size) => (size, &self.t.serif),
        };
        self.ctx
            .set_font(&format!("{}px {family}", size * self.t.scale));
    }

    /// Text on its baseline.
    pub(crate) fn text(&self, x: f64, y: f64, words: &str, colour: &str, face: Face, align: Align) {
        self.fill(colour);
        self.set_face(face);
        self.ctx.set_text_align(match align {
            Align::Start => "left",
            Align::Middle => "center",
            Align::End => "right",
        });
        let _ = self.ctx.fill_text(words, x, y);
    }

    /// A note in the second ink.
    pub(crate) fn note(&self, x: f64, y: f64, words: &str, align: Align) {
        self.text(x, y, words, &self.t.ink_2, Face::Sans(12.0), align);
    }

    /// Width of text.
    pub(crate) fn width(&self, words: &str, face: Face) -> f64 {
        self.set_face(face);
        self.ctx.measure_text(words).map_or(0.0, |m| m.width())
    }

    /// One block or run: role by fill and hatch, durability by edge and corner.
    pub(crate) fn cell(&self, x: f64, y: f64, w: f64, h: f64, role: usize, durability: u8) {
        let colour = &self.t.role[role.min(6)];
        if role == 0 {
            self.rect(x + w / 2.0 - 0.5, y + h / 2.0 - 0.5, 1.0, 1.0, colour);
            return;
        }
        match durability {
            1 | 2 => {
                self.frame(x, y, w, h, colour, 1.5);
                if durability == 2 {
                    self.chevron(x, y, h, colour);
                }
            }
            3 => self.cut_corner(x, y, w, h, role),
            5 => self.stipple(x, y, w, h, colour),
            _ => {
                self.rect(x, y, w, h, colour);
                self.hatch(x, y, w, h, role);
                if durability == 4 {
                    self.rect(x, y + h, w, 2.0, &self.t.role[role::JOURNAL]);
                }
            }
        }
    }

    fn chevron(&self, x: f64, y: f64, h: f64, colour: &str) {
        self.stroke(colour, 2.0);
        self.ctx.begin_path();
        self.ctx.move_to(x + 3.0, y + h * 0.25);
        self.ctx.line_to(x + 3.0 + h * 0.25, y + h * 0.5);
        self.ctx.line_to(x + 3.0, y + h * 0.75);
        self.ctx.stroke();
    }

    fn cut_corner(&self, x: f64, y: f64, w: f64, h: f64, role: usize) {
        let cut = (w.min(h) * 0.45).max(2.0);
        let colour = &self.t.role[role.min(6)];
        self.fill(colour);
        self.ctx.begin_path();
        self.ctx.move_to(x, y);
        self.ctx.line_to(x + w - cut, y);
        self.ctx.line_to(x + w, y + cut);
        self.ctx.line_to(x + w, y + h);
        self.ctx.line_to(x, y + h);
        self.ctx.close_path();
        self.ctx.fill();
        self.hatch(x, y + cut, w, h - cut, role);
        self.dash(&[1.5, 2.0]);
        self.frame(x - 1.5, y - 1.5, w + 3.0, h + 3.0, colour, 1.0);
        self.dash(&[]);
    }

    fn stipple(&self, x: f64, y: f64, w: f64, h: f64, colour: &str) {
        self.fill(colour);
        let mut seed = 12_345u32;
        for _ in 0..((w * h / 14.0) as usize).clamp(3, 400) {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let px = f64::from(seed >> 16 & 255) / 256.0 * (w - 1.0);
            let py = f64::from(seed >> 24) / 256.0 * (h - 1.0);
            self.ctx.fill_rect(x + px, y + py, 1.0, 1.0);
        }
    }

    /// The hatch of a role over its fill, where there is room for one.
    pub(crate) fn hatch(&self, x: f64, y: f64, w: f64, h: f64, role: usize) {
        if w < 7.0 || h < 7.0 || !matches!(role, role::BITMAP..=role::JOURNAL) {
            return;
        }
        self.ctx.save();
        self.ctx.begin_path();
        self.ctx.rect(x, y, w, h);
        self.ctx.clip();
        self.stroke(&self.t.ground, 1.0);
        self.ctx.set_global_alpha(0.55);
        self.ctx.begin_path();
        match role {
            role::ITABLE => self.rules(x, y, w, h, true),
            role::JOURNAL => self.rules(x, y, w, h, false),
            role::TREE => {
                let mut d = -h;
                while d < w {
                    self.ctx.move_to(x + d, y + h);
                    self.ctx.line_to(x + d + h, y);
                    d += 5.0;
                }
            }
            _ => {
                self.rules(x, y, w, h, true);
                self.rules(x, y, w, h, false);
            }
        }
        self.ctx.stroke();
        self.ctx.restore();
    }

    fn rules(&self, x: f64, y: f64, w: f64, h: f64, horizontal: bool) {
        let (span, across) = if horizontal { (h, w) } else { (w, h) };
        let mut d = 3.5;
        while d < span {
            if horizontal {
                self.ctx.move_to(x, (y + d).round() + 0.5);
                self.ctx.line_to(x + across, (y + d).round() + 0.5);
            } else {
                self.ctx.move_to((x + d).round() + 0.5, y);
                self.ctx.line_to((x + d).round() + 0.5, y + across);
            }
            d += 4.0;
        }
    }
}
