//! Canvas primitives: tokens from the style sheet, crisp lines, hatches, and the one component that owns a canvas.

pub mod figure;
pub mod pen;
pub mod tokens;

pub use figure::{Figure, Painter};
pub use pen::Pen;
pub use tokens::Tokens;
