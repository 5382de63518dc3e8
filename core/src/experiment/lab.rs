//! What kernel-lab does on a real kernel, done here: operation scripts with their results and final tree, and
//! scenarios with their counts.

use super::drive::{run_plan, Progress};
use super::scenario::{Load, Scenario};
use super::setup::Plan;
use super::state::tree_state;
use super::truth::Truth;
use crate::base::Nanos;
use crate::block::{DeviceConfig, Fault, Phase, Store};
use crate::fs::ext4::fsck;
use crate::fs::ext4::mkfs::{mkfs, MkfsOptions};
use crate::fs::ext4::reader::Reader;
use crate::fs::ext4::Ext4;
use crate::kernel::{Hardware, Machine, MachineConfig, WALL_CLOCK};
use crate::mm::Sysctls;
use crate::sim::WaitReason;
use crate::vfs::{Fs, StatFs, Vfs};
use crate::workload::fio::parse_job_file;
use crate::workload::ops::Script;
use crate::workload::play::{statfs_json, OpResult, PlayTotals, Player};
use crate::workload::postmark::parse_postmark;
use serde_json::{json, Value};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Memory of the machine that recorded the ground truth.
const LAB_RAM: u64 = 8 << 30;

/// How a script is run.
#[derive(Clone, Debug)]
pub struct LabOptions {
    /// Size of a new image in MiB.
    pub size_mib: u64,
    /// Options of mke2fs.
    pub mkfs: Vec<String>,
    /// Mount options.
    pub mount: String,
    /// An image to use as it is instead of a new one.
    pub store: Option<Store>,
    /// Seed.
    pub seed: u64,
    /// Requests that fail.
    pub faults: Vec<Fault>,
}

/// A script that was run and unmounted.
pub struct LabRun {
    machine: Machine,
    base: Store,
    /// Result of each operation.
    pub ops: Vec<OpResult>,
    /// Totals.
    pub totals: PlayTotals,
    /// `statfs` of the read-only mount afterwards.
    pub statfs: StatFs,
    /// The tree afterwards, in kernel-lab's `state` form.
    pub state: Value,
    /// What our fsck finds afterwards.
    pub findings: Vec<String>,
}

/// Gives the text of a file that a scenario names.
pub type Files<'a> = &'a dyn Fn(&str) -> Result<String, String>;

fn machine(device: DeviceConfig, seed: u64, store: Store) -> Machine {
    let config = MachineConfig {
        seed,
        cpus: 2,
        ram: LAB_RAM,
        device,
        sysctls: Sysctls::default(),
        wall_clock: WALL_CLOCK,
    };
    Machine::boot_with(config, store)
}

fn loop_device(bytes: u64) -> Result<DeviceConfig, String> {
    let mut device = DeviceConfig::preset("loop", bytes)?;
    device.log_budget = 1 << 30;
    Ok(device)
}

fn new_store(mkfs_args: &[String], bytes: u64, seed: u64) -> Result<Store, String> {
    let mut opts = MkfsOptions::parse_args(mkfs_args).map_err(|e| format!("mkfs options: {e}"))?;
    opts.now = WALL_CLOCK as u32;
    opts.seed = seed;
    opts.discard_zeroes = true;
    let image = mkfs(&opts, bytes).map_err(|e| format!("mkfs: {e}"))?;
    let mut store = Store::new(bytes / 512, crate::block::Fill::Zero);
    crate::kernel::apply_mkfs(&mut store, &image);
    Ok(store)
}

/// Runs a script: mount, operations, unmount, read-only mount for the final tree, check. `on_op` hears the position of
/// the device log, the word and the mark of each operation (word "" for mounted, ops-done, unmounted).
pub fn run_script(
    options: LabOptions,
    script: &Script,
    on_op: impl FnMut(u64, &str, &str),
) -> Result<LabRun, String> {
    let store = match options.store {
        Some(s) => s,
        None => new_store(&options.mkfs, options.size_mib << 20, options.seed)?,
    };
    let base = store.clone();
    let mut device = loop_device(store.sectors() * 512)?;
    device.faults = options.faults;
    let m = machine(device, options.seed, store);
    let on_op = Rc::new(RefCell::new(on_op));
    let played = play(&m, &options.mount, script, &on_op)?;
    let (ops, totals) = played;
    let after = m.queue.device().store().clone();
    let (state, statfs) = read_back(&after, options.seed, m.now())?;
    let findings = fsck::check(&after)
        .iter()
        .map(ToString::to_string)
        .collect();
    Ok(LabRun {
        machine: m,
        base,
        ops,
        totals,
        statfs,
        state,
        findings,
    })
}

type OnOp<F> = Rc<RefCell<F>>;

fn play<F: FnMut(u64, &str, &str)>(
    m: &Machine,
    mount: &str,
    script: &Script,
    on_op: &OnOp<F>,
) -> Result<(Vec<OpResult>, PlayTotals), String> {
    let vfs = block(m, "mount", {
        let (hw, mount) = (m.hw.clone(), mount.to_string());
        async move { hw.mount(&mount).await }
    })?
    .map_err(|e| format!("mount: {e}"))?;
    let mark = |word: &str, text: &str| {
        let end = m.queue.device().log().end();
        on_op.borrow_mut()(end, word, text);
    };
    mark("", "mounted");
    let mut ops = Vec::with_capacity(script.ops.len());
    let log = Rc::default();
    let mut player = Player::new(&m.sim, &vfs, &log);
    for op in &script.ops {
        let op = op.clone();
        let (p, r) = block(m, "app", async move {
            let r = player.step(&op).await;
            (player, r)
        })?;
        player = p;
        let err = r.result.as_ref().err().map_or("OK", |e| e.name());
        mark(r.word, &format!("done {} {} {err}", r.line, r.word));
        ops.push(r);
    }
    let totals = block(m, "app", async move {
        player.close_all().await;
        player.totals
    })?;
    mark("", "ops-done");
    let hw = m.hw.clone();
    let unmounted = block(m, "umount", async move { hw.umount(&vfs).await })?;
    // umount(2) hides what the disk refused.
    if m.config.device.faults.is_empty() {
        unmounted.map_err(|e| format!("unmount: {e}"))?;
    }
    mark("", "unmounted");
    Ok((ops, totals))
}

fn block<T: 'static>(
    m: &Machine,
    name: &str,
    fut: impl std::future::Future<Output = T> + 'static,
) -> Result<T, String> {
    m.sim
        .block_on(name, fut)
        .map_err(|d| format!("{name} can't go on: {d}"))
}

/// The final tree through a read-only mount, as kernel-lab walks it.
fn read_back(store: &Store, seed: u64, now: Nanos) -> Result<(Value, StatFs), String> {
    let device = loop_device(store.sectors() * 512)?;
    let m = machine(device, seed, store.clone());
    let hw = m.hw.clone();
    let hour = 3600i128 * 1_000_000_000;
    let start = i128::from(WALL_CLOCK) * 1_000_000_000;
    let window = (start - hour, start + i128::from(now.0) + hour);
    let result = block(&m, "walk", async move {
        let vfs: Rc<Vfs> = hw
            .mount("ro")
            .await
            .map_err(|e| format!("read-only mount: {e}"))?;
        let state = tree_state(&vfs, Some(window)).await;
        let statfs = vfs.statfs().await.map_err(|e| format!("statfs: {e}"))?;
        hw.umount(&vfs).await.map_err(|e| format!("unmount: {e}"))?;
        Ok::<_, String>((state, statfs))
    })?;
    result
}

impl LabRun {
    /// The disk before the run.
    pub fn base(&self) -> &Store {
        &self.base
    }

    /// The disk after the unmount.
    pub fn store(&self) -> Store {
        self.machine.queue.device().store().clone()
    }

    /// The machine, for its device log.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// The result object of `lab.py oplog replay`.
    pub fn to_json(&self) -> Value {
        let fsck = match self.findings.is_empty() {
            true => json!({ "clean": true, "exit": 0 }),
            false => json!({ "clean": false, "exit": 4, "tail": self.findings }),
        };
        json!({
            "errors": self.totals.errors,
            "statfs": statfs_json(&self.statfs),
            "fsck": fsck,
            "state": self.state,
            "ops": self.ops.iter().map(OpResult::to_json).collect::<Vec<_>>(),
            "runs": 1,
            "unstable": [],
        })
    }
}

/// Runs a scenario and gives back kernel-lab's result object: `truth` with plain numbers, `context`.
pub fn run_scenario(s: &Scenario, seed: u64, files: Files<'_>) -> Result<Value, String> {
    let bytes = s.image_mib << 20;
    let mut store = new_store(&s.mkfs, bytes, seed)?;
    if let Some(prep) = &s.prep {
        let m = machine(loop_device(bytes)?, seed, store);
        let plan = plan(prep, files)?;
        run_traced(&m, s, &plan, seed, false)?;
        store = m.queue.device().store().clone();
    }
    let before = zeroed_groups(&store);
    let mut device = loop_device(bytes)?;
    for (name, slow) in [("write_ns", s.slow_write), ("zero_ns", s.slow_zero)] {
        if slow.0 > 0 {
            device.set(name, &slow.0.to_string())?;
        }
    }
    let m = machine(device, seed, store);
    let plan = plan(&s.workload, files)?;
    let traced = run_traced(&m, s, &plan, seed, true)?;
    let after = m.queue.device().store().clone();
    let mut truth = traced.truth;
    let stats = m.queue.stats();
    truth.io(&stats);
    truth.writers(&m.hw, &stats);
    truth.app(&traced.totals);
    let app_bytes = match &s.workload {
        Load::Postmark(_, Some(n)) => *n,
        _ => traced.totals.app_bytes_written,
    };
    truth.amplification(&stats, app_bytes);
    let (files_n, extents) = super::state::layout_counts(&after)?;
    truth.set("layout.files", files_n);
    truth.set("layout.extents", extents);
    let (groups, zeroed) = zeroed_groups(&after);
    truth.set("itable.groups", groups);
    truth.set("itable.zeroed_before", before.1);
    truth.set("itable.zeroed_after", zeroed);
    truth.set("trace_lost_events", 0);
    truth.set("fsck_clean", u64::from(fsck::check(&after).is_empty()));
    let secs = |t: Nanos| json!(t.as_secs_f64());
    Ok(json!({
        "scenario": s.name,
        "truth": truth.into_json(),
        "context": {
            "note": "virtual time; latencies and CPU time are modelled",
            "seconds": { "mount": secs(traced.mount), "work": secs(traced.work), "umount": secs(traced.umount) },
        },
        "digest": m.digest(),
        "config": { "image_mib": s.image_mib, "mkfs": s.mkfs, "mount": s.mount, "device": "loop", "seed": seed },
    }))
}

struct Traced {
    truth: Truth,
    totals: PlayTotals,
    mount: Nanos,
    work: Nanos,
    umount: Nanos,
}

/// CPU time of kernel-lab's own program for each operation (modelled: 10,000 calls took 0.19 to 0.47 s).
const LAB_OP_COST: Nanos = Nanos::from_us(11);
/// CPU time of kernel-lab's content function for each KiB (modelled: 64 MiB took 0.2 s).
const LAB_KIB_COST: Nanos = Nanos(3_000);
/// Longest step of waiting for the lazy inode-table thread, as kernel-lab polls.
const POLL: Nanos = Nanos::from_ms(100);

fn run_traced(
    m: &Machine,
    s: &Scenario,
    plan: &Plan,
    seed: u64,
    wait: bool,
) -> Result<Traced, String> {
    let (hw, plan) = (m.hw.clone(), plan.clone());
    let mount = s.mount.clone();
    let (itable, settle) = if wait {
        (s.wait_itable, s.settle)
    } else {
        (None, Nanos::ZERO)
    };
    block(m, "scenario", async move {
        let t0 = hw.sim.now();
        let vfs = hw.mount(&mount).await.map_err(|e| format!("mount: {e}"))?;
        let t1 = hw.sim.now();
        let progress = Rc::new(Progress::default());
        progress.program_cost.set((LAB_OP_COST, LAB_KIB_COST));
        run_plan(&hw, &vfs, &plan, seed, &progress).await;
        if let Some(limit) = itable {
            wait_itable(&hw, &vfs, t1 + limit).await;
        }
        if settle.0 > 0 {
            hw.sim.sleep(settle, WaitReason::Timer).await;
        }
        let t2 = hw.sim.now();
        let mut totals = progress.totals.borrow().clone();
        for j in progress.jobs.borrow().iter() {
            totals.app_bytes_written += j.write.io_bytes;
            totals.app_bytes_read += j.read.io_bytes;
            if let Some((e, what)) = j.error {
                return Err(format!("fio job {}: {what}: {e}", j.name));
            }
        }
        for r in progress.postmark.borrow().iter() {
            if let Some((e, what)) = &r.error {
                return Err(format!("postmark: {what}: {e}"));
            }
        }
        let fs = ext4_of(&vfs);
        hw.queue.set_phase(Phase::Umount);
        // The journal's counters outlive the unmount.
        let journal = fs.journal();
        hw.umount(&vfs).await.map_err(|e| format!("unmount: {e}"))?;
        let mut truth = Truth::default();
        truth.jbd2(&journal.map(|j| j.stats()).unwrap_or_default());
        truth.ext4(&fs.stats);
        let now = hw.sim.now();
        Ok(Traced {
            truth,
            totals,
            mount: t1 - t0,
            work: t2 - t1,
            umount: now - t2,
        })
    })?
}

fn ext4_of(vfs: &Rc<Vfs>) -> Rc<Ext4> {
    let Fs::Ext4(fs) = vfs.fs();
    fs
}

async fn wait_itable(hw: &Hardware, vfs: &Rc<Vfs>, deadline: Nanos) {
    while hw.sim.now() < deadline && ext4_of(vfs).lazy_init_pending() {
        hw.sim.sleep(POLL, WaitReason::Timer).await;
    }
}

fn plan(load: &Load, files: Files<'_>) -> Result<Plan, String> {
    let fio = |text: &str| {
        parse_job_file(text, &BTreeMap::new())
            .map(Plan::Fio)
            .map_err(|e| format!("fio job: {e}"))
    };
    match load {
        Load::Generated(g) => Ok(Plan::Script(g.script())),
        Load::OpsFile(name) => Script::parse(&files(name)?)
            .map(Plan::Script)
            .map_err(|e| format!("{name}: {e}")),
        Load::Fio(text) => fio(text),
        Load::FioFile(name) => fio(&files(name)?),
        Load::Postmark(lines, _) => parse_postmark(&lines.join("\n"))
            .map(Plan::Postmark)
            .map_err(|e| format!("postmark config: {e}")),
    }
}

/// Number of groups, and of groups with INODE_ZEROED.
fn zeroed_groups(store: &Store) -> (u64, u64) {
    let Ok(reader) = Reader::open(store) else {
        return (0, 0);
    };
    let descs = reader.group_descs();
    let zeroed = descs.iter().filter(|d| d.bg_flags & 4 != 0).count();
    (descs.len() as u64, zeroed as u64)
}
