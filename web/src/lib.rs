//! The parts of the page that know neither the browser nor the engine: messages, state, links, texts.

pub mod layout;
pub mod link;
pub mod state;
