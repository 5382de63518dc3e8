//! The commands that speak kernel-lab's formats: `ops`, `trace`, `wlog`.

use crate::args::{OpsArgs, TraceArgs, WlogArgs};
use crate::image::{load_store, save_store};
use crate::output::{json_text, read_text, say, write_text};
use crate::{Outcome, Verdict};
use fsglass::block::{DeviceLog, Op};
use fsglass::experiment::lab::{run_scenario, run_script, Files, LabOptions, LabRun};
use fsglass::experiment::scenario::{Scenario, LAB_MKFS};
use fsglass::workload::ops::Script;
use serde_json::{json, Value};
use std::fs;
use std::io::Write as _;
use std::path::Path;

fn only_ext4(fs: &str) -> Result<(), String> {
    match fs {
        "ext4" => Ok(()),
        _ => Err(format!("--fs {fs} is not supported; ext4")),
    }
}

fn script(name: &str) -> Result<Script, String> {
    Script::parse(&read_text(name)?).map_err(|e| format!("{name}: {e}"))
}

fn mkfs_args(given: Option<&str>) -> Vec<String> {
    match given {
        Some(text) => text.split_whitespace().map(str::to_string).collect(),
        None => LAB_MKFS.iter().map(ToString::to_string).collect(),
    }
}

/// `fsglass ops`: 0 if the image is clean afterwards, 1 if not.
pub(crate) fn ops(a: &OpsArgs) -> Outcome {
    only_ext4(&a.fs)?;
    let script = script(&a.script)?;
    let store = if a.no_mkfs {
        Some(load_store(&a.image)?)
    } else {
        None
    };
    let options = LabOptions {
        size_mib: a.size,
        mkfs: mkfs_args(a.mkfs_opts.as_deref()),
        mount: a.mount_opts.clone().unwrap_or_default(),
        store,
        seed: a.seed,
        faults: a.fault.clone(),
    };
    let run =
        run_script(options, &script, |_, _, _| {}).map_err(|e| format!("{}: {e}", a.image))?;
    let mut result = run.to_json();
    result["fs"] = json!(a.fs);
    result["mkfs"] = match a.no_mkfs {
        true => Value::Null,
        false => json!(mkfs_args(a.mkfs_opts.as_deref())),
    };
    result["mount"] = json!(a.mount_opts);
    result["size_mib"] = if a.no_mkfs {
        Value::Null
    } else {
        json!(a.size)
    };
    save_store(&a.image, run.store())?;
    write_text(&a.out, &json_text(&result))?;
    Ok(if run.findings.is_empty() {
        Verdict::Good
    } else {
        Verdict::Failed
    })
}

/// `fsglass trace`.
pub(crate) fn trace(a: &TraceArgs) -> Outcome {
    let text = read_text(&a.scenario)?;
    let scenario = Scenario::parse(&text).map_err(|e| format!("{}: {e}", a.scenario))?;
    let folder = Path::new(&a.scenario).parent().unwrap_or(Path::new("."));
    let files: Files<'_> = &|name| read_text(&folder.join(name).to_string_lossy());
    let result =
        run_scenario(&scenario, a.seed, files).map_err(|e| format!("{}: {e}", a.scenario))?;
    write_text(&a.out, &json_text(&result))?;
    Ok(Verdict::Good)
}

/// `fsglass wlog`.
pub(crate) fn wlog(a: &WlogArgs) -> Outcome {
    only_ext4(&a.fs)?;
    let script = script(&a.script)?;
    let out = Path::new(&a.out);
    fs::create_dir_all(out).map_err(|e| format!("{}: {e}", a.out))?;
    let options = LabOptions {
        size_mib: a.size,
        mkfs: mkfs_args(a.mkfs_opts.as_deref()),
        mount: a.mount_opts.clone().unwrap_or_default(),
        store: None,
        seed: a.seed,
        faults: Vec::new(),
    };
    let mut marks: Vec<(u64, String)> = Vec::new();
    let all = a.mark == "all";
    let run = run_script(options, &script, |position, word, text| {
        if all || matches!(word, "fsync" | "fdatasync" | "sync" | "") {
            marks.push((position, text.to_string()));
        }
    })
    .map_err(|e| format!("{}: {e}", a.script))?;
    save_store(&out.join("base.img").to_string_lossy(), run.base())?;
    let device = run.machine().queue.device();
    let summary = write_log(out, device.log(), &marks).map_err(|e| format!("{}: {e}", a.out))?;
    drop(device);
    let summary = with_settings(summary, a, &run);
    write_text(
        &out.join("summary.json").to_string_lossy(),
        &json_text(&summary),
    )?;
    say(&summary.to_string());
    Ok(Verdict::Good)
}

fn with_settings(mut summary: Value, a: &WlogArgs, run: &LabRun) -> Value {
    summary["fs"] = json!(a.fs);
    summary["size_mib"] = json!(a.size);
    summary["mkfs"] = json!(mkfs_args(a.mkfs_opts.as_deref()));
    summary["mount"] = json!(a.mount_opts);
    summary["op_errors"] = json!(run.totals.errors);
    summary["trace_lost_events"] = json!(0);
    summary
}

/// Writes log.dat and log.jsonl; gives back the counts for summary.json.
fn write_log(out: &Path, log: &DeviceLog, marks: &[(u64, String)]) -> std::io::Result<Value> {
    let mut dat = std::io::BufWriter::new(fs::File::create(out.join("log.dat"))?);
    let mut lines = std::io::BufWriter::new(fs::File::create(out.join("log.jsonl"))?);
    let (mut n, mut dat_len) = (0u64, 0u64);
    let (mut writes, mut bytes, mut flushes, mut zeroes, mut fua, mut preflush) =
        (0, 0, 0, 0, 0, 0);
    let mut next_mark = 0;
    let mut emit = |value: Value, n: &mut u64| -> std::io::Result<()> {
        let mut value = value;
        value["n"] = json!(*n);
        *n += 1;
        writeln!(lines, "{value}")
    };
    for position in log.first()..=log.end() {
        while marks.get(next_mark).is_some_and(|m| m.0 <= position) {
            emit(json!({ "op": "M", "mark": marks[next_mark].1 }), &mut n)?;
            next_mark += 1;
        }
        let Some(r) = log.record(position) else {
            continue;
        };
        let (off, len) = (r.lba.0 * 512, u64::from(r.sectors) * 512);
        match r.op {
            Op::Read => {}
            Op::Flush => {
                flushes += 1;
                emit(json!({ "op": "F" }), &mut n)?;
            }
            Op::WriteZeroes | Op::Discard => {
                zeroes += 1;
                emit(
                    json!({ "op": "Z", "off": off, "len": len, "mode": 0 }),
                    &mut n,
                )?;
            }
            Op::Write => {
                let content = log.contents(position);
                dat.write_all(&content)?;
                let sha = fsglass::base::sha256::hex(&content);
                let mut v = json!({
                    "op": "W", "off": off, "len": content.len(), "dat": dat_len, "sha256": sha, "nbios": r.bios,
                });
                if r.flags.has(fsglass::block::BioFlags::PREFLUSH) {
                    v["preflush"] = json!(true);
                    preflush += 1;
                }
                if r.flags.has(fsglass::block::BioFlags::FUA) {
                    v["fua"] = json!(true);
                    fua += 1;
                }
                dat_len += content.len() as u64;
                bytes += content.len() as u64;
                writes += 1;
                emit(v, &mut n)?;
            }
        }
    }
    dat.flush()?;
    lines.flush()?;
    Ok(json!({
        "writes": writes, "bytes": bytes, "flushes": flushes, "zeroes": zeroes,
        "marks": marks.len(), "fua_writes": fua, "preflush_writes": preflush,
    }))
}
