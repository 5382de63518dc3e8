//! kernel-lab scenarios (README, "Scenarios"): JSON to a typed description, refusing what is unknown by name.

use crate::base::Nanos;
use crate::workload::generate::{Generator, Query, WriteLoop};
use crate::workload::ops::{parse_open_flags, OpenFlags};
use crate::workload::size::parse_number;
use serde_json::{Map, Value};

/// A scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// Size of the image in MiB.
    pub image_mib: u64,
    /// Options of mke2fs.
    pub mkfs: Vec<String>,
    /// Mount options.
    pub mount: String,
    /// What is traced.
    pub workload: Load,
    /// What runs before, in a mount of its own.
    pub prep: Option<Load>,
    /// Longest wait for the lazy inode-table thread.
    pub wait_itable: Option<Nanos>,
    /// Time to wait after the workload.
    pub settle: Nanos,
    /// Extra time of each write and each zeroing call of the device.
    pub slow_write: Nanos,
    /// Extra time of each zeroing call.
    pub slow_zero: Nanos,
}

/// A workload of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub enum Load {
    /// A generator.
    Generated(Generator),
    /// An operation script in a file beside the scenario.
    OpsFile(String),
    /// A fio job text.
    Fio(String),
    /// A fio job in a file beside the scenario.
    FioFile(String),
    /// PostMark commands, and the bytes that the tool writes if the scenario says so.
    Postmark(Vec<String>, Option<u64>),
}

/// The default options of kernel-lab's mke2fs.
pub const LAB_MKFS: [&str; 8] = [
    "-b",
    "4096",
    "-I",
    "256",
    "-U",
    "6b6c6162-0000-4000-8000-000000000001",
    "-E",
    "lazy_itable_init=0,lazy_journal_init=0,nodiscard,hash_seed=6b6c6162-0000-4000-8000-000000000002",
];

impl Scenario {
    /// Reads a scenario.
    pub fn parse(text: &str) -> Result<Scenario, String> {
        let value: Value = serde_json::from_str(text).map_err(|e| format!("not JSON: {e}"))?;
        let top = Object::new("scenario", &value)?;
        top.known(&[
            "name",
            "fs",
            "image_mib",
            "mkfs",
            "mount",
            "workload",
            "prep",
            "wait_itable_s",
            "settle_s",
            "slow_device",
            "trace_mb",
            "block_size",
        ])?;
        match top.text("fs")?.as_str() {
            "ext4" => {}
            fs => return Err(format!("fs `{fs}` is not supported; ext4")),
        }
        let mkfs = match top.map.get("mkfs") {
            None => LAB_MKFS.iter().map(ToString::to_string).collect(),
            Some(Value::Array(a)) => a
                .iter()
                .map(|v| v.as_str().map(str::to_string))
                .collect::<Option<Vec<_>>>()
                .ok_or("mkfs: a list of texts is needed")?,
            Some(_) => return Err("mkfs: a list of texts is needed".into()),
        };
        let workload = top
            .map
            .get("workload")
            .ok_or("the scenario has no workload")?;
        let mut s = Scenario {
            name: top.text("name")?,
            image_mib: top.number("image_mib", None)?,
            mkfs,
            mount: top.text_or("mount", "")?,
            workload: Load::parse("workload", workload)?,
            prep: top
                .map
                .get("prep")
                .map(|p| Load::parse("prep", p))
                .transpose()?,
            wait_itable: top.seconds("wait_itable_s")?,
            settle: top.seconds("settle_s")?.unwrap_or(Nanos::ZERO),
            slow_write: Nanos::ZERO,
            slow_zero: Nanos::ZERO,
        };
        if let Some(slow) = top.map.get("slow_device") {
            let slow = Object::new("slow_device", slow)?;
            slow.known(&["write_ms", "zero_ms"])?;
            s.slow_write = Nanos::from_ms(slow.number("write_ms", Some(0))?);
            s.slow_zero = Nanos::from_ms(slow.number("zero_ms", Some(0))?);
        }
        if s.image_mib == 0 || s.image_mib > 16 << 20 {
            return Err(format!(
                "image_mib {} is out of range; 1 to 16777216",
                s.image_mib
            ));
        }
        Ok(s)
    }
}

impl Load {
    fn parse(path: &str, value: &Value) -> Result<Load, String> {
        let o = Object::new(path, value)?;
        match o.text("kind")?.as_str() {
            "gen" => generator(&o).map(Load::Generated),
            "ops" => {
                o.known(&["kind", "file"])?;
                Ok(Load::OpsFile(o.text("file")?))
            }
            "fio" => {
                o.known(&["kind", "job", "file"])?;
                match o.map.contains_key("job") {
                    true => Ok(Load::Fio(o.text("job")?)),
                    false => Ok(Load::FioFile(o.text("file")?)),
                }
            }
            "postmark" => {
                o.known(&["kind", "config", "app_bytes_written"])?;
                let lines = o.map.get("config").and_then(Value::as_array);
                let lines: Option<Vec<String>> =
                    lines.and_then(|l| l.iter().map(|v| v.as_str().map(str::to_string)).collect());
                let lines = lines.ok_or("postmark needs config: a list of texts")?;
                let bytes = match o.map.contains_key("app_bytes_written") {
                    true => Some(o.number("app_bytes_written", None)?),
                    false => None,
                };
                Ok(Load::Postmark(lines, bytes))
            }
            kind => Err(format!(
                "{path}: kind `{kind}` is unknown; gen, ops, fio or postmark"
            )),
        }
    }
}

fn generator(o: &Object<'_>) -> Result<Generator, String> {
    let common = [
        "kind",
        "gen",
        "file",
        "filesize",
        "bs",
        "count",
        "seed",
        "fsync_every",
        "final_fsync",
        "create",
        "flags",
        "query",
    ];
    match o.text("gen")?.as_str() {
        "randwrite" => {
            o.known(&common)?;
            write_loop(o, true).map(Generator::RandWrite)
        }
        "seqwrite" => {
            o.known(&common)?;
            write_loop(o, false).map(Generator::SeqWrite)
        }
        "prealloc" => {
            o.known(&["kind", "gen", "filesize", "written", "seed"])?;
            Ok(Generator::Prealloc {
                filesize: o.number("filesize", None)?,
                written: o.flag("written", false)?,
                seed: o.number("seed", Some(1))?,
            })
        }
        "createunlink" => {
            o.known(&["kind", "gen", "dir", "count", "sync", "unlink"])?;
            Ok(Generator::CreateUnlink {
                dir: o.text_or("dir", "d")?,
                count: o.number32("count", None)?,
                sync: o.flag("sync", true)?,
                unlink: o.flag("unlink", true)?,
            })
        }
        "idle" => {
            o.known(&["kind", "gen", "ms"])?;
            Ok(Generator::Idle {
                ms: o.number("ms", None)?,
            })
        }
        g => Err(format!(
            "generator `{g}` is unknown; randwrite, seqwrite, prealloc, createunlink or idle"
        )),
    }
}

fn write_loop(o: &Object<'_>, random: bool) -> Result<WriteLoop, String> {
    let query = match o.text_or("query", "")?.as_str() {
        "" => None,
        "stat" => Some(Query::Stat),
        t => {
            let mask = t.strip_prefix("statx ").unwrap_or(t).trim();
            let mask = parse_number(mask).and_then(|n| u32::try_from(n).ok());
            Some(Query::Statx(mask.ok_or_else(|| {
                format!("query `{t}`: stat or a statx mask")
            })?))
        }
    };
    let flags: OpenFlags = parse_open_flags(&o.text_or("flags", "rw")?)?;
    let bs = o.number("bs", None)?;
    if bs == 0 {
        return Err("bs 0 is no block size".into());
    }
    Ok(WriteLoop {
        file: o.text_or("file", "f")?,
        filesize: o.number("filesize", if random { None } else { Some(0) })?,
        bs,
        count: o.number32("count", None)?,
        seed: o.number("seed", Some(1))?,
        fsync_every: o.number32("fsync_every", Some(0))?,
        final_fsync: o.flag("final_fsync", true)?,
        create: o.flag("create", true)?,
        flags,
        query,
    })
}

/// A JSON object with the name it goes by in messages.
struct Object<'a> {
    path: &'a str,
    map: &'a Map<String, Value>,
}

impl<'a> Object<'a> {
    fn new(path: &'a str, value: &'a Value) -> Result<Object<'a>, String> {
        let map = value
            .as_object()
            .ok_or_else(|| format!("{path}: an object is needed"))?;
        Ok(Object { path, map })
    }

    fn known(&self, keys: &[&str]) -> Result<(), String> {
        match self.map.keys().find(|k| !keys.contains(&k.as_str())) {
            Some(k) => Err(format!(
                "{}: key `{k}` is unknown; one of {}",
                self.path,
                keys.join(", ")
            )),
            None => Ok(()),
        }
    }

    fn text(&self, key: &str) -> Result<String, String> {
        let v = self
            .map
            .get(key)
            .ok_or_else(|| format!("{}: `{key}` is missing", self.path))?;
        v.as_str()
            .map(str::to_string)
            .ok_or_else(|| format!("{}: `{key}` must be a text", self.path))
    }

    fn text_or(&self, key: &str, default: &str) -> Result<String, String> {
        match self.map.get(key) {
            None | Some(Value::Null) => Ok(default.to_string()),
            Some(_) => self.text(key),
        }
    }

    fn number(&self, key: &str, default: Option<u64>) -> Result<u64, String> {
        match (self.map.get(key), default) {
            (None, Some(d)) => Ok(d),
            (None, None) => Err(format!("{}: `{key}` is missing", self.path)),
            (Some(v), _) => v
                .as_u64()
                .ok_or_else(|| format!("{}: `{key}` must be a whole number from 0", self.path)),
        }
    }

    fn number32(&self, key: &str, default: Option<u64>) -> Result<u32, String> {
        let n = self.number(key, default)?;
        u32::try_from(n).map_err(|_| format!("{}: `{key}` is over 4294967295", self.path))
    }

    fn flag(&self, key: &str, default: bool) -> Result<bool, String> {
        match self.map.get(key) {
            None => Ok(default),
            Some(v) => v
                .as_bool()
                .ok_or_else(|| format!("{}: `{key}` must be true or false", self.path)),
        }
    }

    fn seconds(&self, key: &str) -> Result<Option<Nanos>, String> {
        match self.map.get(key) {
            None => Ok(None),
            Some(v) => match v.as_f64() {
                Some(s) if (0.0..1e9).contains(&s) => Ok(Some(Nanos((s * 1e9) as u64))),
                _ => Err(format!(
                    "{}: `{key}` must be a number of seconds",
                    self.path
                )),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named() {
        let e = |t: &str| Scenario::parse(t).err().unwrap_or_default();
        assert!(e("{").starts_with("not JSON"));
        assert!(e("{}").contains("`fs` is missing"));
        assert!(e(r#"{"fs":"xfs"}"#).contains("not supported"));
        let base = r#"{"name":"x","fs":"ext4","image_mib":64,"workload":"#;
        assert!(e(&format!("{base}{{\"kind\":\"gen\",\"gen\":\"spin\"}}}}"))
            .contains("generator `spin`"));
        assert!(e(&format!("{base}{{\"kind\":\"gen\",\"gen\":\"idle\"}}}}"))
            .contains("`ms` is missing"));
        assert!(e(&format!(
            "{base}{{\"kind\":\"gen\",\"gen\":\"idle\",\"ms\":1}},\"x\":1}}"
        ))
        .contains("key `x`"));
        assert!(Scenario::parse(&format!(
            "{base}{{\"kind\":\"gen\",\"gen\":\"idle\",\"ms\":1}}}}"
        ))
        .is_ok());
    }
}
