//! From an experiment's text fields to what runs: every layer parses its own options, all problems come at once.

use crate::block::DeviceConfig;
use crate::config::{Experiment, Problem, Workload};
use crate::fs::ext4::mkfs::{mkfs, MkfsImage, MkfsOptions};
use crate::fs::ext4::MountOptions;
use crate::kernel::{MachineConfig, WALL_CLOCK};
use crate::mm::Sysctls;
use crate::workload::fio::{parse_job_file, JobFile};
use crate::workload::ops::Script;
use crate::workload::postmark::{parse_postmark, PostmarkFile};
use crate::workload::size::{parse_number, parse_size, parse_time};

/// A workload, parsed.
#[derive(Clone, Debug)]
pub enum Plan {
    /// An operation script.
    Script(Script),
    /// A fio job file.
    Fio(JobFile),
    /// PostMark commands.
    Postmark(PostmarkFile),
}

/// Everything that a run needs.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The machine.
    pub machine: MachineConfig,
    /// The new file system.
    pub image: MkfsImage,
    /// Mount options.
    pub mount: String,
    /// What runs.
    pub plan: Plan,
    /// The equivalent command.
    pub mkfs_line: String,
    /// The equivalent command.
    pub mount_line: String,
    /// Doubts, each a sentence.
    pub warnings: Vec<String>,
}

/// Parses and checks an experiment.
pub fn prepare(e: &Experiment) -> Result<Setup, Vec<Problem>> {
    let mut problems = Vec::new();
    let machine = machine(e, &mut problems);
    let image = file_system(e, &mut problems);
    let mount = e.get("mount.options");
    let options = MountOptions::parse(&mount);
    if let Err(reason) = &options {
        problems.push(Problem::new("mount.options", reason.clone()));
    }
    let plan = plan(e, &mut problems);
    match (machine, image, options, plan, problems.is_empty()) {
        (Some(machine), Some(image), Ok(options), Some(plan), true) => {
            let mkfs_line = format!("mkfs.ext4 {} /dev/vda", e.get("mkfs.opts"));
            let mount_line = match mount.is_empty() {
                true => "mount /dev/vda /mnt".to_string(),
                false => format!("mount -o {mount} /dev/vda /mnt"),
            };
            let warnings = warnings(&machine, &options, &plan);
            let mkfs_line = mkfs_line.split_whitespace().collect::<Vec<_>>().join(" ");
            Ok(Setup {
                machine,
                image,
                mount,
                plan,
                mkfs_line,
                mount_line,
                warnings,
            })
        }
        _ => Err(problems),
    }
}

fn machine(e: &Experiment, problems: &mut Vec<Problem>) -> Option<MachineConfig> {
    let size = parse_size(&e.get("device.size"))?;
    let mut device = match DeviceConfig::preset(&e.get("device.preset"), size) {
        Ok(d) => d,
        Err(reason) => {
            problems.push(Problem::new("device.preset", reason));
            return None;
        }
    };
    let fill = e.get("device.fill");
    let fill = if fill == "garbage" {
        format!("garbage:{}", e.seed as u32)
    } else {
        fill
    };
    let mut set = |key: &str, value: &str| {
        if let Err(reason) = device.set(key, value) {
            problems.push(Problem::new(&format!("device.{key}"), reason));
        }
    };
    set("fill", &fill);
    for (key, value) in e.extras("device.") {
        set(&key, &value);
    }
    let sysctls = sysctls(e, problems);
    Some(MachineConfig {
        seed: e.seed,
        cpus: parse_number(&e.get("machine.cpus"))? as u32,
        ram: parse_size(&e.get("machine.ram"))?,
        device,
        sysctls,
        wall_clock: WALL_CLOCK,
    })
}

fn sysctls(e: &Experiment, problems: &mut Vec<Problem>) -> Sysctls {
    let mut s = Sysctls::default();
    let centisecond = crate::base::Nanos::from_ms(10);
    for (key, value) in e.extras("vm.") {
        let ratio = parse_number(&value).filter(|n| *n <= 100).map(|n| n as u32);
        let bytes = parse_size(&value);
        let time = parse_time(&value, centisecond);
        let done = match key.as_str() {
            "dirty_ratio" => ratio.map(|n| s.dirty_ratio = n),
            "dirty_background_ratio" => ratio.map(|n| s.dirty_background_ratio = n),
            "dirty_bytes" => bytes.map(|n| s.dirty_bytes = n),
            "dirty_background_bytes" => bytes.map(|n| s.dirty_background_bytes = n),
            "dirty_expire_centisecs" => time.map(|t| s.dirty_expire = t),
            "dirty_writeback_centisecs" => time.map(|t| s.dirty_writeback = t),
            _ => {
                problems.push(Problem::new(
                    &format!("vm.{key}"),
                    "there is no such setting; dirty_ratio, dirty_background_ratio, dirty_bytes, \
                     dirty_background_bytes, dirty_expire_centisecs, dirty_writeback_centisecs",
                ));
                continue;
            }
        };
        if done.is_none() {
            problems.push(Problem::new(
                &format!("vm.{key}"),
                format!("`{value}` does not fit"),
            ));
        }
    }
    s
}

fn file_system(e: &Experiment, problems: &mut Vec<Problem>) -> Option<MkfsImage> {
    let device = parse_size(&e.get("device.size"))?;
    let size = match e.get("mkfs.size").as_str() {
        "" => device,
        t => match parse_size(t) {
            Some(n) if n <= device => n,
            Some(_) => {
                problems.push(Problem::new(
                    "mkfs.size",
                    "larger than the device; raise device.size",
                ));
                return None;
            }
            None => {
                problems.push(Problem::new("mkfs.size", format!("`{t}` is not a size")));
                return None;
            }
        },
    };
    let mut opts = match MkfsOptions::parse(&e.get("mkfs.opts")) {
        Ok(o) => o,
        Err(reason) => {
            problems.push(Problem::new("mkfs.opts", reason.to_string()));
            return None;
        }
    };
    opts.now = WALL_CLOCK as u32;
    opts.seed = e.seed;
    opts.discard_zeroes = e.get("device.fill") == "zero";
    match mkfs(&opts, size) {
        Ok(image) => Some(image),
        Err(reason) => {
            problems.push(Problem::new("mkfs.opts", reason.to_string()));
            None
        }
    }
}

fn plan(e: &Experiment, problems: &mut Vec<Problem>) -> Option<Plan> {
    match &e.workload {
        Workload::Ops(text) => match Script::parse(text) {
            Ok(s) => Some(Plan::Script(s)),
            Err(err) => {
                let path = "workload.ops".to_string();
                problems.push(Problem {
                    path,
                    line: Some(err.line),
                    reason: err.reason,
                });
                None
            }
        },
        Workload::Fio(text) => match parse_job_file(text, &e.vars) {
            Ok(f) => Some(Plan::Fio(f)),
            Err(err) => {
                let line = (err.line > 0).then_some(err.line);
                problems.push(Problem {
                    path: "workload.fio".into(),
                    line,
                    reason: err.reason,
                });
                None
            }
        },
        Workload::Postmark(text) => match parse_postmark(text) {
            Ok(f) => Some(Plan::Postmark(f)),
            Err(err) => {
                problems.push(Problem {
                    path: "workload.postmark".into(),
                    line: Some(err.line),
                    reason: err.reason,
                });
                None
            }
        },
    }
}

fn warnings(machine: &MachineConfig, options: &MountOptions, plan: &Plan) -> Vec<String> {
    let mut out = Vec::new();
    if !options.barrier && machine.device.has_volatile_cache() {
        out.push(
            "Barriers are off and the device has a volatile cache: a power cut can break fsync's promise."
                .to_string(),
        );
    }
    if let Plan::Fio(file) = plan {
        for n in &file.notices {
            out.push(format!(
                "Line {}: `{}` changes nothing: {}.",
                n.line, n.option, n.reason
            ));
        }
        let journalled = options.data_mode == Some(crate::fs::ext4::DataMode::Journal);
        if journalled && file.jobs.iter().any(|j| j.direct) {
            out.push(
                "data=journal turns O_DIRECT into buffered I/O: writes return before they are on the device."
                    .to_string(),
            );
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::PRESETS;
    use crate::config::{parse_experiment, DEVICES};

    #[test]
    fn every_device_preset_can_be_chosen() {
        for (name, _) in PRESETS {
            let text = format!("[device]\npreset = \"{name}\"\n[workload]\nops = \"sync\"\n");
            let experiment = parse_experiment(&text).expect("parses");
            assert!(prepare(&experiment).is_ok(), "{name}");
        }
        assert_eq!(PRESETS.len(), DEVICES.len());
    }
}
