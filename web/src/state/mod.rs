//! What the page knows of itself: draft, cursor, selection, layout; pure, so that it is tested without a browser.

pub mod ab;
pub mod act;
pub mod cbor;
pub mod commands;
pub mod options;
pub mod presets;
pub mod recipe;
pub mod reduce;
pub mod scenes;
pub mod store;
pub mod text;

#[cfg(test)]
mod tests;
pub mod titles;
