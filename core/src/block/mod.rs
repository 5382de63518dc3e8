//! The block device and its request queue.
//!
//! Knows sectors, never files. A write passes these states: *submitted* (a bio is in the queue), *issued* (its request
//! is with the device), *acknowledged* (done; contents visible to reads), *durable* (survives a power cut).
//!
//! Invariants:
//! 1. The log has every request the device carried out, in the order of acknowledgement, with all contents.
//! 2. A write without a volatile cache, or with FUA on a device that has it, is durable when acknowledged.
//! 3. A flush makes durable all writes acknowledged before it was issued.
//! 4. The ledger by role sums to the bytes that the device moved.
//! 5. Only [`Queue::wait`] and its like suspend; submitting never does.

mod bio;
mod cache;
mod crash;
mod device;
mod elevator;
mod fault;
mod flush;
mod image;
mod log;
mod model;
mod params;
mod queue;
mod request;
mod stats;
mod store;
mod table;
#[cfg(test)]
mod tests;
mod zeroout;

pub use bio::{
    Bio, BioFlags, BioId, Class, EndIoId, IoError, IoResult, Op, Payloads, Role, SECTOR_SIZE,
};
pub use crash::{CrashImage, CrashPoint, Loss, Undecided};
pub use device::Device;
pub use fault::{Fault, Faults};
pub use log::{Cursor, DeviceLog, LogPart, LogRecord};
pub use params::{size_bytes, DeviceConfig, Elevator, ModelKind, ParamView, Params, PRESETS};
pub use queue::{Batch, Plug, Queue};
pub use stats::{BioCounts, DiskGroup, DiskStats, Phase, RequestCounts, RoleBytes, Stats};
pub use store::{Fill, Store};
