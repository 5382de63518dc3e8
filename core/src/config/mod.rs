//! The experiment: device, mkfs, mount, machine and workload as people write them.
//!
//! One schema ([`FIELDS`]) serves the TOML text, `--set path=value`, the form of the page and the reference table.
//! Values stay text until the layer that owns them parses them, so that each complaint comes from one place.

mod schema;
mod text;

pub use schema::{Field, FieldKind, DEVICES, FIELDS};
pub use text::parse_experiment;

use std::collections::BTreeMap;
use std::fmt;

/// One thing that is wrong with an experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Path of the field (`mount.data`) or of the text (`workload.fio`).
    pub path: String,
    /// Line within a multi-line text, from 1.
    pub line: Option<u32>,
    /// What is wrong and what would be right.
    pub reason: String,
}

impl Problem {
    /// A problem of the field `path`.
    pub fn new(path: &str, reason: impl Into<String>) -> Problem {
        Problem {
            path: path.to_string(),
            line: None,
            reason: reason.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(n) => write!(f, "{} line {n}: {}", self.path, self.reason),
            None => write!(f, "{}: {}", self.path, self.reason),
        }
    }
}

/// What the applications do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Workload {
    /// A fio job file.
    Fio(String),
    /// An operation script in the kernel-lab grammar.
    Ops(String),
    /// PostMark commands (`set number 500` ..).
    Postmark(String),
}

impl Workload {
    /// Key of the workload in the experiment text.
    pub fn key(&self) -> &'static str {
        match self {
            Workload::Fio(_) => "fio",
            Workload::Ops(_) => "ops",
            Workload::Postmark(_) => "postmark",
        }
    }

    /// Its text.
    pub fn text(&self) -> &str {
        match self {
            Workload::Fio(t) | Workload::Ops(t) | Workload::Postmark(t) => t,
        }
    }
}

/// A whole experiment. Equal experiments give equal runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Experiment {
    /// Shown in the tab and in links.
    pub title: String,
    /// Seed of every random stream of the run.
    pub seed: u64,
    /// Fields other than title, seed and workload that differ from their default, by path.
    pub values: BTreeMap<String, String>,
    /// What runs.
    pub workload: Workload,
    /// Values of `${VAR}` in a fio job file.
    pub vars: BTreeMap<String, String>,
}

impl Default for Experiment {
    fn default() -> Experiment {
        Experiment {
            title: String::new(),
            seed: 1,
            values: BTreeMap::new(),
            workload: Workload::Ops(String::new()),
            vars: BTreeMap::new(),
        }
    }
}

impl Experiment {
    /// Value of a field: as set, else its default.
    pub fn get(&self, path: &str) -> String {
        match path {
            "title" => self.title.clone(),
            "seed" => self.seed.to_string(),
            _ => self.values.get(path).cloned().unwrap_or_else(|| {
                let field = FIELDS.iter().find(|f| f.path == path);
                field.map_or(String::new(), |f| f.default.to_string())
            }),
        }
    }

    /// Sets one field from text; `mount.OPTION=VALUE` sets one mount option, `device.KEY=VALUE` one parameter of the
    /// device and `vm.KEY=VALUE` one sysctl.
    pub fn set(&mut self, path: &str, value: &str) -> Result<(), Problem> {
        match path {
            "title" => self.title = value.to_string(),
            "seed" => {
                self.seed = crate::workload::size::parse_number(value)
                    .ok_or_else(|| Problem::new("seed", format!("`{value}` is not a number")))?;
            }
            "device" => self.set_value("device.preset", value)?,
            "mount" => self.set_value("mount.options", value)?,
            "workload.fio" => self.workload = Workload::Fio(value.to_string()),
            "workload.ops" => self.workload = Workload::Ops(value.to_string()),
            "workload.postmark" => self.workload = Workload::Postmark(value.to_string()),
            _ => self.set_value(path, value)?,
        }
        Ok(())
    }

    fn set_value(&mut self, path: &str, value: &str) -> Result<(), Problem> {
        if let Some(field) = FIELDS.iter().find(|f| f.path == path) {
            field
                .check(value)
                .map_err(|reason| Problem::new(path, reason))?;
            if field.default == value {
                self.values.remove(path);
            } else {
                self.values.insert(path.to_string(), value.to_string());
            }
            return Ok(());
        }
        if let Some(option) = path.strip_prefix("mount.") {
            self.set_mount_option(option, value);
            return Ok(());
        }
        match path.split_once('.') {
            Some(("device" | "vm", key)) if !key.is_empty() => {
                self.values.insert(path.to_string(), value.to_string());
                Ok(())
            }
            _ => Err(Problem::new(path, unknown(path))),
        }
    }

    /// `mount.data=journal` becomes the option `data=journal`; an empty value or `1` gives the bare word.
    fn set_mount_option(&mut self, option: &str, value: &str) {
        let same = |o: &str| o.split('=').next() == Some(option);
        let old = self.get("mount.options");
        let mut options: Vec<String> = old
            .split(',')
            .filter(|o| !o.is_empty() && !same(o))
            .map(str::to_string)
            .collect();
        options.push(match value {
            "" => option.to_string(),
            v => format!("{option}={v}"),
        });
        self.values
            .insert("mount.options".to_string(), options.join(","));
    }

    /// Parameters under a prefix (`device.`), without the prefix and without schema fields.
    pub fn extras(&self, prefix: &str) -> Vec<(String, String)> {
        let of_prefix = self
            .values
            .iter()
            .filter_map(|(k, v)| Some((k.strip_prefix(prefix)?, k, v)));
        of_prefix
            .filter(|(_, path, _)| !FIELDS.iter().any(|f| f.path == path.as_str()))
            .map(|(key, _, v)| (key.to_string(), v.clone()))
            .collect()
    }
}

fn unknown(path: &str) -> String {
    use crate::workload::ops::edit_distance;
    let best = FIELDS
        .iter()
        .map(|f| (edit_distance(path, f.path), f.path))
        .min();
    match best {
        Some((d, name)) if d <= 3 => format!("there is no such field; did you mean `{name}`?"),
        _ => "there is no such field".to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_set_by_path() {
        let mut e = Experiment::default();
        for (path, value) in [
            ("device", "optane"),
            ("device.cache", "32M"),
            ("mkfs.size", "400G"),
            ("mkfs.opts", "-J size=128"),
            ("mount.data", "journal"),
            ("mount.commit", "30"),
            ("mount.data", "ordered"),
            ("machine.ram", "16G"),
            ("machine.cpus", "4"),
            ("seed", "7"),
        ] {
            assert_eq!(e.set(path, value), Ok(()), "{path}");
        }
        assert_eq!(e.get("device.preset"), "optane");
        assert_eq!(e.get("mount.options"), "commit=30,data=ordered");
        assert_eq!(
            e.extras("device."),
            [("cache".to_string(), "32M".to_string())]
        );
        assert_eq!(e.seed, 7);
    }

    #[test]
    fn unknown_fields_and_bad_values_are_named() {
        let mut e = Experiment::default();
        let reason = |r: Result<(), Problem>| r.err().map(|p| p.to_string()).unwrap_or_default();
        assert!(reason(e.set("machine.rma", "1")).contains("did you mean `machine.ram`"));
        assert!(reason(e.set("machine.ram", "lots")).contains("not a size"));
        assert!(reason(e.set("machine.cpus", "0")).contains("from 1"));
        assert!(reason(e.set("device.fill", "ones")).contains("zero, garbage"));
    }
}
