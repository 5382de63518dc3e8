//! Units, ids, byte access, checksums, random streams and errno: what every layer shares.
//!
//! Knows nothing of devices, time or policy. Everything here is pure and total.

pub mod bitmap;
pub mod bytes;
pub mod checksum;
mod errno;
mod hash;
pub mod math;
pub mod payload;
mod read_at;
pub mod rng;
pub mod sha256;
mod units;
mod uuid;

pub use errno::Errno;
pub use hash::{FastMap, FastSet};
pub use payload::{Payload, WriteSource};
pub use read_at::ReadAt;
pub use units::{FsBlock, GroupNo, Ino, Lba, Lblk, Nanos, Tid};
pub use uuid::Uuid;
