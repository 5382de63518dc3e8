//! Runs fio jobs: layout, the I/O loop with its clocks, and the results.
//!
//! SIMPLIFIED: fio's own work per I/O is one constant charge, and offsets come from our seeded permutation instead
//! of fio's generators; what the file system sees is the same kind of stream, not the same list of offsets.

use super::offsets::Offsets;
use super::options::{Fallocate, FioJob, SyncKind};
use super::outcome::{Direction, JobResult};
use crate::base::rng::SplitMix64;
use crate::base::{Errno, Nanos, WriteSource};
use crate::sim::sync::Mailbox;
use crate::sim::{Sim, TaskClass, WaitReason};
use crate::vfs::{Fd, OpenFlags, SysResult, Vfs};
use crate::workload::app_log::{AppLog, AppOp};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

/// CPU time that fio itself spends on each I/O outside of the call (modelled: 2.4 us between calls less 1.92 us in
/// the call, from the percentiles of the 2022 thread).
pub const FIO_OVERHEAD: Nanos = Nanos(450);

/// Largest piece of layout writes.
const LAYOUT_PIECE: u64 = 1 << 20;

/// What a running job shares with whoever watches it.
#[derive(Clone)]
pub struct JobContext {
    /// Clock and tasks.
    pub sim: Sim,
    /// System calls.
    pub vfs: Rc<Vfs>,
    /// Record of calls.
    pub log: Rc<RefCell<AppLog>>,
    /// Set to end the run early.
    pub stop: Rc<Cell<bool>>,
}

/// One job (clone) while it runs.
struct Run {
    cx: JobContext,
    job: FioJob,
    fd: Fd,
    offsets: Offsets,
    mix: SplitMix64,
    result: JobResult,
    start: Nanos,
    measuring: bool,
    issued_bytes: u64,
    issued: [u64; 2],
    writes_since_sync: u32,
    generation: u32,
    pending: VecDeque<Pending>,
    in_flight: u32,
    done: Rc<Mailbox<Finished>>,
}

/// A buffered I/O of an asynchronous engine: done when submitted, not yet reaped.
struct Pending {
    begun: Nanos,
    submitted: Nanos,
    bytes: u64,
    write: bool,
}

/// A direct I/O of an asynchronous engine that has ended.
struct Finished {
    begun: Nanos,
    submitted: Nanos,
    end: Nanos,
    result: SysResult<u64>,
    write: bool,
}

/// Name of the file of clone `clone` of a job, as fio makes it.
pub fn file_name(job: &FioJob, clone: u32) -> String {
    match &job.filename {
        Some(name) => name.clone(),
        None => format!("{}.{clone}.0", job.section),
    }
}

/// Runs one clone of a job to its end.
pub async fn run_job(
    cx: JobContext,
    job: FioJob,
    groupid: u32,
    clone: u32,
    seed: u64,
) -> JobResult {
    let mut result = JobResult::new(job.clone(), groupid);
    if job.startdelay.0 > 0 {
        cx.sim.sleep(job.startdelay, WaitReason::Timer).await;
    }
    let name = file_name(&job, clone);
    if let Err(e) = lay_out(&cx, &job, &name).await {
        result.error = Some((e, "laying out the file"));
        return result;
    }
    let fd = match open(&cx, &job, &name).await {
        Ok(fd) => fd,
        Err(e) => {
            result.error = Some((e, "open"));
            return result;
        }
    };
    let bs = if job.rw.writes() {
        job.bs_write
    } else {
        job.bs_read
    };
    let blocks = job.size.max(bs) / bs;
    let sim = cx.sim.clone();
    let mut run = Run {
        fd,
        offsets: Offsets::new(&job, blocks, seed),
        mix: SplitMix64::named(seed, "mix"),
        result,
        start: sim.now(),
        measuring: job.ramp_time.0 == 0,
        issued_bytes: 0,
        issued: [0; 2],
        writes_since_sync: 0,
        generation: 0,
        pending: VecDeque::new(),
        in_flight: 0,
        done: Rc::new(Mailbox::new(&sim)),
        job,
        cx,
    };
    let outcome = run.main_loop().await;
    run.finish(outcome, clone).await
}

/// Makes the file as fio does before the clock starts: readers get a written file, writers an allocated one.
async fn lay_out(cx: &JobContext, job: &FioJob, name: &str) -> SysResult<()> {
    let size = job.file_bytes();
    if let Ok(st) = cx.vfs.lstat(name.as_bytes()).await {
        if st.size >= size {
            return Ok(());
        }
    }
    let with_content = job.rw.reads() || job.overwrite;
    let mut flags = OpenFlags::WRONLY.with(OpenFlags::CREAT);
    if with_content {
        flags = flags.with(OpenFlags::TRUNC);
    }
    let fd = cx.vfs.open(name.as_bytes(), flags, 0o644).await?;
    match job.fallocate {
        Fallocate::Native => cx.vfs.fallocate(fd, 0, 0, size as i64).await?,
        Fallocate::Keep => cx.vfs.fallocate(fd, 1, 0, size as i64).await?,
        Fallocate::Truncate => cx.vfs.ftruncate(fd, size as i64).await?,
        Fallocate::None => {}
    }
    if with_content {
        cx.vfs.ftruncate(fd, size as i64).await?;
        let mut offset = 0;
        while offset < size && !cx.stop.get() {
            let len = LAYOUT_PIECE.min(size - offset);
            let n = cx
                .vfs
                .pwrite(fd, offset as i64, len, WriteSource::Content { seed: 0 })
                .await?;
            offset += n.max(1);
        }
        cx.vfs.fsync(fd).await?;
    }
    cx.vfs.close(fd).await
}

async fn open(cx: &JobContext, job: &FioJob, name: &str) -> SysResult<Fd> {
    let mut flags = match (job.rw.reads(), job.rw.writes()) {
        (true, false) => OpenFlags::RDONLY,
        _ => OpenFlags::RDWR.with(OpenFlags::CREAT),
    };
    if job.direct {
        flags = flags.with(OpenFlags::DIRECT);
    }
    match job.sync {
        SyncKind::Sync => flags = flags.with(OpenFlags::SYNC),
        SyncKind::Dsync => flags = flags.with(OpenFlags::DSYNC),
        SyncKind::None => {}
    }
    let start = cx.sim.now();
    let fd = cx.vfs.open(name.as_bytes(), flags, 0o644).await?;
    let record = AppOp::Open {
        fd: fd.0,
        path: name.as_bytes().into(),
        flags: crate::workload::ops::OpenFlags {
            read: true,
            write: job.rw.writes(),
            creat: job.rw.writes(),
            direct: job.direct,
            sync: job.sync == SyncKind::Sync,
            dsync: job.sync == SyncKind::Dsync,
            ..Default::default()
        },
    };
    let token = cx.log.borrow_mut().begin(start, record);
    cx.log.borrow_mut().end(token, cx.sim.now(), None, 0);
    if job.invalidate && !job.direct {
        cx.vfs.fadvise_dontneed(fd, 0, 0).await?;
    }
    Ok(fd)
}

type Failure = (Errno, &'static str);

impl Run {
    async fn main_loop(&mut self) -> Result<(), Failure> {
        self.begin_measuring();
        while !self.finished() {
            let write = self.pick_direction();
            self.pace(write).await;
            if self.finished() {
                break;
            }
            let choice = self.offsets.choose();
            if choice.wrapped {
                if !self.job.time_based && self.offsets.passes >= u64::from(self.job.loops) {
                    break;
                }
                // A time_based job drops the file's cache at each wrap (fio io_u.c loop_cache_invalidate).
                if self.job.invalidate && !self.job.direct {
                    let done = self.cx.vfs.fadvise_dontneed(self.fd, 0, 0).await;
                    done.map_err(|e| (e, "fadvise"))?;
                }
            }
            let bs = if write {
                self.job.bs_write
            } else {
                self.job.bs_read
            };
            let align = self.job.bs_write.max(self.job.bs_read);
            let offset = self.job.offset + choice.block * align.min(bs.max(1));
            self.io(write, offset, bs).await?;
            self.after_io(write).await?;
        }
        self.drain(0).await?;
        if self.job.end_fsync && self.job.rw.writes() {
            self.sync(false).await?;
        }
        Ok(())
    }

    fn begin_measuring(&mut self) {
        let now = self.cx.sim.now();
        self.start = now;
        self.result.read.rate.start(now);
        self.result.write.rate.start(now);
    }

    fn finished(&mut self) -> bool {
        let elapsed = self.cx.sim.now().saturating_sub(self.start);
        if !self.measuring && elapsed.0 >= self.job.ramp_time.0 {
            self.measuring = true;
            self.begin_measuring();
            return self.cx.stop.get();
        }
        if self.cx.stop.get() {
            return true;
        }
        let over = |limit: Option<Nanos>| limit.is_some_and(|l| l.0 > 0 && elapsed.0 >= l.0);
        if self.measuring && over(self.job.runtime) {
            return true;
        }
        let limit = self
            .job
            .io_size
            .unwrap_or(self.job.size * u64::from(self.job.loops));
        !self.job.time_based && self.issued_bytes >= limit
    }

    fn pick_direction(&mut self) -> bool {
        match (self.job.rw.mixed(), self.job.rw.writes()) {
            (true, _) => self.mix.below(100) >= u64::from(self.job.rwmixread),
            (false, w) => w,
        }
    }

    /// Holds the next I/O back for rate limits and thinktime, and charges fio's own work.
    async fn pace(&mut self, write: bool) {
        let sim = self.cx.sim.clone();
        sim.charge(FIO_OVERHEAD).await;
        self.result.usr += FIO_OVERHEAD;
        let done = self.issued[usize::from(write)];
        let bs = if write {
            self.job.bs_write
        } else {
            self.job.bs_read
        };
        let interval = |n: u128, per_second: u64| {
            Nanos((n * 1_000_000_000 / u128::from(per_second.max(1))) as u64)
        };
        let mut next = Nanos::ZERO;
        if let Some(iops) = self.job.rate_iops {
            next = interval(u128::from(done), iops);
        }
        if let Some(rate) = self.job.rate {
            next = next.max(interval(u128::from(done) * u128::from(bs), rate));
        }
        let due = self.start + next;
        if due > sim.now() {
            self.drain_for_sleep();
            sim.sleep_until(due, WaitReason::Timer).await;
        }
        let total = self.issued[0] + self.issued[1];
        if self.job.thinktime.0 > 0
            && total > 0
            && total % u64::from(self.job.thinktime_blocks) == 0
        {
            sim.sleep(self.job.thinktime, WaitReason::Timer).await;
        }
    }

    /// fio reaps what is complete before it sleeps for a rate.
    fn drain_for_sleep(&mut self) {
        while let Some(p) = self.pending.pop_front() {
            self.complete(p.begun, p.submitted, self.cx.sim.now(), p.bytes, p.write);
        }
    }

    async fn io(&mut self, write: bool, offset: u64, bytes: u64) -> Result<(), Failure> {
        self.issued_bytes += bytes;
        self.issued[usize::from(write)] += 1;
        self.generation = self.generation.wrapping_add(1).max(1);
        let depth = self.pending.len() as u32 + self.in_flight + 1;
        self.result.mark_depth(depth);
        if !self.job.ioengine.is_async() {
            let begun = self.cx.sim.now();
            let n = call(&self.cx, self.fd, write, offset, bytes, self.generation).await;
            let n = n.map_err(|e| (e, op_name(write)))?;
            let end = self.cx.sim.now();
            self.result.sys += end.saturating_sub(begun);
            self.complete(begun, begun, end, n, write);
            return Ok(());
        }
        if self.job.direct {
            self.submit_direct(write, offset, bytes);
        } else {
            let begun = self.cx.sim.now();
            let n = call(&self.cx, self.fd, write, offset, bytes, self.generation).await;
            let n = n.map_err(|e| (e, op_name(write)))?;
            let submitted = self.cx.sim.now();
            self.result.sys += submitted.saturating_sub(begun);
            self.pending.push_back(Pending {
                begun,
                submitted,
                bytes: n,
                write,
            });
        }
        self.drain(self.job.iodepth.saturating_sub(1)).await
    }

    /// A direct I/O of an asynchronous engine runs as a task of its own, as the block layer would run it.
    fn submit_direct(&mut self, write: bool, offset: u64, bytes: u64) {
        let (cx, fd, generation) = (self.cx.clone(), self.fd, self.generation);
        let done = Rc::clone(&self.done);
        let begun = self.cx.sim.now();
        self.in_flight += 1;
        self.cx.sim.spawn("aio", TaskClass::Kworker, async move {
            let submitted = cx.sim.now();
            let result = call(&cx, fd, write, offset, bytes, generation).await;
            let end = cx.sim.now();
            done.push(Finished {
                begun,
                submitted,
                end,
                result,
                write,
            });
        });
    }

    /// Reaps completions until at most `left` I/Os are outstanding.
    async fn drain(&mut self, left: u32) -> Result<(), Failure> {
        while self.pending.len() as u32 > left {
            if let Some(p) = self.pending.pop_front() {
                self.complete(p.begun, p.submitted, self.cx.sim.now(), p.bytes, p.write);
            }
        }
        while self.in_flight > left {
            let f = self.done.recv(WaitReason::Other("io_getevents")).await;
            self.in_flight -= 1;
            let n = f.result.map_err(|e| (e, op_name(f.write)))?;
            self.complete(f.begun, f.submitted, f.end, n, f.write);
        }
        Ok(())
    }

    fn complete(&mut self, begun: Nanos, submitted: Nanos, end: Nanos, bytes: u64, write: bool) {
        if !self.measuring {
            return;
        }
        let asynchronous = self.job.ioengine.is_async();
        let d: &mut Direction = if write {
            &mut self.result.write
        } else {
            &mut self.result.read
        };
        d.total_ios += 1;
        d.io_bytes += bytes;
        if asynchronous {
            d.slat.add(submitted.saturating_sub(begun).0);
        }
        let clat = end.saturating_sub(submitted);
        d.clat.add(clat.0);
        d.lat.add(end.saturating_sub(begun).0);
        d.rate.add(end, bytes);
        d.runtime = end.saturating_sub(self.start);
    }

    async fn after_io(&mut self, write: bool) -> Result<(), Failure> {
        if !write {
            return Ok(());
        }
        self.writes_since_sync += 1;
        let due = |every: u32| every > 0 && self.writes_since_sync % every == 0;
        let (fsync, fdatasync) = (due(self.job.fsync), due(self.job.fdatasync));
        if fsync || fdatasync {
            self.drain(0).await?;
            self.sync(!fsync).await?;
        }
        Ok(())
    }

    async fn sync(&mut self, datasync: bool) -> Result<(), Failure> {
        let cx = &self.cx;
        let begun = cx.sim.now();
        let token = cx.log.borrow_mut().begin(
            begun,
            AppOp::Fsync {
                fd: self.fd.0,
                datasync,
            },
        );
        let done = if datasync {
            cx.vfs.fdatasync(self.fd).await
        } else {
            cx.vfs.fsync(self.fd).await
        };
        let end = cx.sim.now();
        cx.log.borrow_mut().end(token, end, done.err(), 0);
        done.map_err(|e| (e, if datasync { "fdatasync" } else { "fsync" }))?;
        if self.measuring {
            self.result.sync.add(end.saturating_sub(begun).0);
        }
        Ok(())
    }

    async fn finish(mut self, outcome: Result<(), Failure>, clone: u32) -> JobResult {
        self.result.error = outcome.err();
        let now = self.cx.sim.now();
        let spent = now.saturating_sub(self.start);
        self.result.job_runtime = spent;
        for d in [&mut self.result.read, &mut self.result.write] {
            if d.total_ios > 0 {
                d.runtime = spent;
            }
        }
        if self.job.fsync_on_close && self.job.rw.writes() && self.result.error.is_none() {
            self.result.error = self.sync(false).await.err();
        }
        if let Err(e) = self.cx.vfs.close(self.fd).await {
            self.result.error = self.result.error.or(Some((e, "close")));
        }
        if self.job.unlink {
            let name = file_name(&self.job, clone);
            if let Err(e) = self.cx.vfs.unlink(name.as_bytes()).await {
                self.result.error = self.result.error.or(Some((e, "unlink")));
            }
        }
        self.result
    }
}

fn op_name(write: bool) -> &'static str {
    if write {
        "pwrite"
    } else {
        "pread"
    }
}

/// One read or write through a descriptor, noted in the log.
async fn call(
    cx: &JobContext,
    fd: Fd,
    write: bool,
    offset: u64,
    bytes: u64,
    seed: u32,
) -> SysResult<u64> {
    let len = bytes as u32;
    let entry = match write {
        true => AppOp::Write {
            fd: fd.0,
            offset,
            len,
            seed,
        },
        false => AppOp::Read {
            fd: fd.0,
            offset,
            len,
        },
    };
    let token = cx.log.borrow_mut().begin(cx.sim.now(), entry);
    let source = WriteSource::Content {
        seed: u64::from(seed),
    };
    let n = match write {
        true => cx.vfs.pwrite(fd, offset as i64, bytes, source).await,
        false => cx.vfs.pread_discard(fd, offset as i64, bytes).await,
    };
    let moved = n.as_ref().map_or(0, |n| *n as u32);
    cx.log
        .borrow_mut()
        .end(token, cx.sim.now(), n.as_ref().err().copied(), moved);
    n
}
