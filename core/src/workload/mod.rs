//! What applications do: kernel-lab operation scripts, fio jobs, postmark, and the players that run them.
//!
//! Speaks to the machine through vfs system calls only; knows nothing of file-system internals.

pub mod app_log;
pub mod fio;
pub mod generate;
pub mod ops;
pub mod play;
pub mod postmark;
pub mod size;
