//! Tests of the whole file system over a simulated device.
