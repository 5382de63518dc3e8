//! Canvas primitives: tokens from the style sheet, crisp lines, hatches, and the one component that owns a canvas.

pub(crate) mod figure;
pub(crate) mod pen;
pub(crate) mod tokens;

pub(crate) use figure::{Figure, Painter};
pub(crate) use pen::Pen;
pub(crate) use tokens::Tokens;
