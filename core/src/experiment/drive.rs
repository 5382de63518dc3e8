//! Runs a plan on a machine: mount, workload, results.

use super::setup::Plan;
use crate::base::rng::SplitMix64;
use crate::base::Nanos;
use crate::kernel::Hardware;
use crate::sim::TaskClass;
use crate::vfs::Vfs;
use crate::workload::app_log::AppLog;
use crate::workload::fio::run::{run_job, JobContext};
use crate::workload::fio::{DiskStats, FioJob, FioResult, JobFile, JobResult};
use crate::workload::play::{OpResult, PlayTotals, Player};
use crate::workload::postmark::{run_postmark, PostmarkContext, PostmarkFile, PostmarkResult};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What a run shares with whoever watches it.
#[derive(Default)]
pub struct Progress {
    /// The mounted file system.
    pub vfs: RefCell<Option<Rc<Vfs>>>,
    /// Calls of the applications.
    pub app: Rc<RefCell<AppLog>>,
    /// Results of the operations of a script so far.
    pub ops: RefCell<Vec<OpResult>>,
    /// Totals of the script.
    pub totals: RefCell<PlayTotals>,
    /// Results of the fio jobs that have ended.
    pub jobs: RefCell<Vec<JobResult>>,
    /// Results of the PostMark runs that have ended.
    pub postmark: RefCell<Vec<PostmarkResult>>,
    /// Why it could not mount.
    pub failed: RefCell<Option<String>>,
    /// The mount is done.
    pub mounted: Cell<bool>,
    /// The workload is done.
    pub done: Cell<bool>,
    /// CPU time of the program that plays a script: for each operation, for each KiB written.
    pub program_cost: Cell<(Nanos, Nanos)>,
    /// Set to end a workload early.
    pub stop: Rc<Cell<bool>>,
}

/// Mounts and runs the plan.
pub async fn drive(hw: Hardware, mount: String, plan: Plan, seed: u64, progress: Rc<Progress>) {
    let vfs = match hw.mount(&mount).await {
        Ok(vfs) => vfs,
        Err(e) => {
            *progress.failed.borrow_mut() = Some(format!("mount failed: {e}"));
            progress.done.set(true);
            return;
        }
    };
    *progress.vfs.borrow_mut() = Some(Rc::clone(&vfs));
    progress.mounted.set(true);
    run_plan(&hw, &vfs, &plan, seed, &progress).await;
    progress.done.set(true);
}

/// Runs the plan on a mounted file system.
pub async fn run_plan(
    hw: &Hardware,
    vfs: &Rc<Vfs>,
    plan: &Plan,
    seed: u64,
    progress: &Rc<Progress>,
) {
    match plan {
        Plan::Script(script) => {
            let mut player = Player::new(&hw.sim, vfs, &progress.app);
            (player.op_cost, player.kib_cost) = progress.program_cost.get();
            for op in &script.ops {
                if progress.stop.get() {
                    break;
                }
                let result = player.step(op).await;
                progress.ops.borrow_mut().push(result);
                progress.totals.borrow_mut().clone_from(&player.totals);
            }
            player.close_all().await;
        }
        Plan::Fio(file) => run_fio(hw, vfs, file, seed, progress).await,
        Plan::Postmark(file) => run_all_postmark(hw, vfs, file, progress).await,
    }
}

/// The runs of a PostMark file one after the other; an error ends them.
async fn run_all_postmark(
    hw: &Hardware,
    vfs: &Rc<Vfs>,
    file: &PostmarkFile,
    progress: &Rc<Progress>,
) {
    for settings in &file.runs {
        if progress.stop.get() {
            break;
        }
        let cx = PostmarkContext {
            sim: hw.sim.clone(),
            vfs: Rc::clone(vfs),
            log: Rc::clone(&progress.app),
            stop: Rc::clone(&progress.stop),
        };
        let result = run_postmark(cx, settings).await;
        let mut totals = progress.totals.borrow_mut();
        totals.app_bytes_written += result.bytes_written;
        totals.app_bytes_read += result.bytes_read;
        for (word, n) in [
            ("created", result.created.iter().sum()),
            ("deleted", result.deleted.iter().sum()),
            ("read", result.read),
            ("appended", result.appended),
        ] {
            *totals.ops.entry(word).or_default() += n;
        }
        let failed = result.error.is_some();
        progress.postmark.borrow_mut().push(result);
        if failed {
            break;
        }
    }
}

/// Jobs run side by side; a stonewall waits for all before it.
async fn run_fio(hw: &Hardware, vfs: &Rc<Vfs>, file: &JobFile, seed: u64, progress: &Rc<Progress>) {
    let mut running = Vec::new();
    let mut group = 0;
    let mut clone_id = 0;
    for (i, job) in file.jobs.iter().enumerate() {
        if job.stonewall && i > 0 {
            for t in running.drain(..) {
                hw.sim.join(t).await;
            }
            group += 1;
        }
        for clone in 0..job.numjobs {
            running.push(spawn_job(
                hw,
                vfs,
                job,
                (group, clone, clone_id),
                seed,
                progress,
            ));
            clone_id += 1;
        }
    }
    for t in running {
        hw.sim.join(t).await;
    }
}

fn spawn_job(
    hw: &Hardware,
    vfs: &Rc<Vfs>,
    job: &FioJob,
    (group, clone, id): (u32, u32, u32),
    seed: u64,
    progress: &Rc<Progress>,
) -> crate::sim::TaskId {
    let cx = JobContext {
        sim: hw.sim.clone(),
        vfs: Rc::clone(vfs),
        log: Rc::clone(&progress.app),
        stop: Rc::clone(&progress.stop),
    };
    // randrepeat: the same offsets in each run; else they follow the seed of the run.
    let base = match (job.randseed, job.randrepeat) {
        (Some(s), _) => s,
        (None, true) => 0x5EED,
        (None, false) => seed,
    };
    let stream = SplitMix64::named(base, &format!("job.{id}")).next_u64();
    let (mut job, progress) = (job.clone(), Rc::clone(progress));
    if clone > 0 {
        // fio makes further clones of the section, and `name=` stays with the first.
        job.name.clone_from(&job.section);
    }
    hw.sim
        .spawn(&format!("fio/{id}"), TaskClass::User, async move {
            let result = run_job(cx, job, group, clone, stream).await;
            progress.jobs.borrow_mut().push(result);
        })
}

/// The fio result of a run, clones merged where group_reporting asks for it.
pub fn fio_result(hw: &Hardware, file: &JobFile, progress: &Progress) -> FioResult {
    let mut jobs: Vec<JobResult> = Vec::new();
    for r in progress.jobs.borrow().iter() {
        match jobs.last_mut() {
            Some(last) if r.job.group_reporting && last.groupid == r.groupid => last.merge(r),
            _ => jobs.push(r.clone()),
        }
    }
    jobs.sort_by_key(|j| j.groupid);
    FioResult {
        jobs,
        disk: disk_stats(hw),
        global: file.global.clone(),
    }
}

/// `/proc/diskstats` of the device for the report.
pub fn disk_stats(hw: &Hardware) -> DiskStats {
    let d = hw.queue.disk_stats();
    let ms = |t: Nanos| t.0 / 1_000_000;
    let now = hw.sim.now().0.max(1);
    DiskStats {
        name: "vda".to_string(),
        ios: (d.read.ios, d.write.ios),
        merges: (d.read.merges, d.write.merges),
        sectors: (d.read.sectors, d.write.sectors),
        ticks_ms: (ms(d.read.time), ms(d.write.time)),
        in_queue_ms: ms(d.in_queue),
        util_percent: d.busy.0 as f64 * 100.0 / now as f64,
    }
}
