//! On-disk structures: bytes to types and back. Pure and total: no I/O, no policy, no allocation of space, and no
//! bytes make it panic.
//!
//! Invariants:
//! 1. `encode` after `decode` gives the same bytes; bytes that no field covers are left as they are in the buffer.
//! 2. A failed check is a [`Corrupt`] that names structure, check, offset and (where the caller knows it) block.
//! 3. Field names are the kernel's; `_lo`/`_hi` halves are joined into one number.

#![cfg_attr(
    not(test),
    warn(
        clippy::arithmetic_side_effects,
        clippy::as_conversions,
        clippy::indexing_slicing
    )
)]

mod cast;
mod corrupt;
pub mod ext4;
pub mod jbd2;
mod layout;
#[cfg(test)]
mod tests;

pub use corrupt::{Corrupt, CorruptKind};
pub use layout::{Field, FieldValue};
