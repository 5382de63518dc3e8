//! Events, their ring, digest and counters.
//!
//! Knows ids and numbers only, never what an event means to a file system: `observe` folds events into views.
//! Observing never changes time or order: recording is a side effect nobody reads during the run.
//!
//! To add an event: one line in `event.rs`, one arm in `sentences.rs`, one `sim.emit(Category::X, || Event::Y { .. })`.

mod event;
mod histogram;
mod ring;
mod sentences;

pub use event::{Arg, Call, Category, Event, Record};
pub use histogram::Histogram;
pub use ring::Tracer;
pub use sentences::{sentence, time_text};
