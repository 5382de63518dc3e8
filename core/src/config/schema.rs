//! The fields of an experiment: path, kind, default and one line of documentation each.

use crate::workload::size::{parse_number, parse_size};

/// What a field takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldKind {
    /// Any text; the owning layer parses it.
    Text,
    /// A size with a binary suffix, from `min` bytes to `max` bytes.
    #[allow(missing_docs, reason = "limits")]
    Size { min: u64, max: u64 },
    /// A number from `min` to `max`.
    #[allow(missing_docs, reason = "limits")]
    Number { min: u64, max: u64 },
    /// One of these words.
    Choice(&'static [&'static str]),
}

/// One field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Path as in `--set` and in the TOML text (`section.key`).
    pub path: &'static str,
    /// What it takes.
    pub kind: FieldKind,
    /// Value if it is not given.
    pub default: &'static str,
    /// What it does, one line.
    pub doc: &'static str,
    /// True if a change needs a new file system.
    pub needs_mkfs: bool,
}

const fn field(
    path: &'static str,
    kind: FieldKind,
    default: &'static str,
    needs_mkfs: bool,
    doc: &'static str,
) -> Field {
    Field {
        path,
        kind,
        default,
        doc,
        needs_mkfs,
    }
}

/// Device presets, slowest first.
pub const DEVICES: [&str; 9] = [
    "hdd-2010",
    "hdd",
    "emmc",
    "sata-ssd",
    "sata-ssd-plp",
    "nvme",
    "nvme-plp",
    "optane",
    "loop",
];

/// Every field of an experiment besides title, seed and workload.
pub const FIELDS: [Field; 10] = [
    field(
        "device.preset",
        FieldKind::Choice(&DEVICES),
        "sata-ssd",
        true,
        "latency model of the device",
    ),
    field(
        "device.size",
        FieldKind::Size {
            min: 1 << 20,
            max: 16 << 40,
        },
        "1G",
        true,
        "size of the device (1 MiB to 16 TiB, sparse)",
    ),
    field(
        "device.fill",
        FieldKind::Choice(&["zero", "garbage"]),
        "garbage",
        true,
        "what blocks hold that were never written",
    ),
    field(
        "mkfs.fs",
        FieldKind::Choice(&["ext4"]),
        "ext4",
        true,
        "file system",
    ),
    field(
        "mkfs.size",
        FieldKind::Text,
        "",
        true,
        "size of the file system, if smaller than the device",
    ),
    field(
        "mkfs.opts",
        FieldKind::Text,
        "",
        true,
        "options as mke2fs spells them",
    ),
    field(
        "mount.options",
        FieldKind::Text,
        "",
        false,
        "options as mount -o spells them",
    ),
    field(
        "machine.ram",
        FieldKind::Size {
            min: 16 << 20,
            max: 1 << 42,
        },
        "8G",
        false,
        "memory; dirty limits are shares of it",
    ),
    field(
        "machine.cpus",
        FieldKind::Number { min: 1, max: 256 },
        "2",
        false,
        "virtual CPUs",
    ),
    field(
        "machine.hz",
        FieldKind::Number {
            min: 100,
            max: 1000,
        },
        "250",
        false,
        "kernel ticks in a second",
    ),
];

impl Field {
    /// Checks a value against the kind.
    pub fn check(&self, value: &str) -> Result<(), String> {
        match self.kind {
            FieldKind::Text => Ok(()),
            FieldKind::Size { min, max } => match parse_size(value) {
                Some(n) if (min..=max).contains(&n) => Ok(()),
                Some(_) => Err(format!(
                    "`{value}` is out of range; from {min} to {max} bytes"
                )),
                None => Err(format!("`{value}` is not a size; write 64M, 1G, 16T")),
            },
            FieldKind::Number { min, max } => match parse_number(value) {
                Some(n) if (min..=max).contains(&n) => Ok(()),
                _ => Err(format!("`{value}` is not a number from {min} to {max}")),
            },
            FieldKind::Choice(words) if words.contains(&value) => Ok(()),
            FieldKind::Choice(words) => {
                Err(format!("`{value}` is unknown; one of {}", words.join(", ")))
            }
        }
    }
}
