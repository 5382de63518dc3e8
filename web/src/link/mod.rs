//! The line between the page and the engine's worker: message types, and nothing else that both sides share.

pub mod protocol;
pub mod wire;
