//! A real ext4 and JBD2 over a simulated block device, in deterministic virtual time.
//!
//! Layers, bottom to top: `base`, `format`, `trace`, `sim`, `block`, `mm`, `fs`, `vfs`, `kernel`, `workload`,
//! `config`, `experiment`, `observe`, `session`. ARCHITECTURE.md has the table of who may import whom.

pub mod base;
pub mod block;
pub mod config;
pub mod experiment;
pub mod format;
pub mod fs;
pub mod kernel;
pub mod mm;
pub mod observe;
pub mod session;
pub mod sim;
pub mod trace;
pub mod vfs;
pub mod workload;
