//! What has time on its axis: marks under the scrubber, throughput and latency, stepping, the narrated log.

use super::view::{LogLine, Marks, Metrics, SlowOp, StepUnit, Window};
use super::Observer;
use crate::base::Nanos;
use crate::block::DeviceLog;
use crate::observe::metrics::{app_metrics, Columns};
use crate::observe::timeline::neighbour;
use crate::sim::{Sim, TaskId};
use crate::trace::{sentence, Event, Record, Tracer};
use crate::workload::app_log::{AppLog, AppOp, AppRecord};
use crate::workload::fio::PERCENTILES;

fn columns(w: Window) -> Columns {
    Columns {
        from: Nanos(w.from_ns),
        to: Nanos(w.to_ns.max(w.from_ns + 1)),
        columns: (w.columns as usize).clamp(1, 4096),
    }
}

impl Observer {
    /// Marks of a window.
    pub(super) fn marks(&self, app: &AppLog, log: &DeviceLog, w: Window) -> Marks {
        let c = columns(w);
        let mut m = Marks {
            from_ns: c.from.0,
            to_ns: c.to.0,
            ops: vec![0; c.columns],
            writes: vec![0; c.columns],
            ..Marks::default()
        };
        for r in app.records().iter().take_while(|r| r.start < c.to) {
            if let Some(i) = c.of(r.end) {
                m.ops[i] += 1;
            }
        }
        let (from, to) = (log.position_at(c.from), log.position_at(c.to));
        for position in from..to {
            let written = log.record(position).filter(|r| r.op.is_write());
            if let Some(i) = written.and_then(|r| c.of(r.acked)) {
                m.writes[i] += 1;
            }
        }
        let inside = |t: Nanos| t >= c.from && t < c.to;
        let t = &self.timeline;
        // More marks than columns can't be told apart; every n-th is kept then.
        let thin = |n: usize| n.div_ceil(c.columns).max(1);
        let commits: Vec<_> = t.commits.iter().filter(|x| inside(x.0)).collect();
        let step = thin(commits.len());
        m.commits = commits
            .iter()
            .step_by(step)
            .map(|x| (x.0 .0, x.1))
            .collect();
        let flushes: Vec<_> = t.flushes.iter().filter(|x| inside(**x)).collect();
        m.flushes = flushes
            .iter()
            .step_by(thin(flushes.len()))
            .map(|x| x.0)
            .collect();
        let checks: Vec<_> = t.checkpoints.iter().filter(|x| inside(x.1)).collect();
        let step = thin(checks.len());
        m.checkpoints = checks
            .iter()
            .step_by(step)
            .map(|x| (x.0 .0, x.1 .0))
            .collect();
        m
    }

    /// Throughput and latency of a window.
    pub(super) fn metrics(&self, app: &AppLog, log: &DeviceLog, w: Window) -> Metrics {
        let c = columns(w);
        let (a, histogram) = app_metrics(app, c);
        let mut device_bytes = vec![0; c.columns];
        let (from, to) = (log.position_at(c.from), log.position_at(c.to));
        for position in from..to {
            if let Some(r) = log.record(position) {
                if let Some(i) = c.of(r.acked) {
                    device_bytes[i] += u64::from(r.sectors) * 512;
                }
            }
        }
        let percentiles = match histogram.samples() {
            0 => Vec::new(),
            _ => PERCENTILES
                .iter()
                .copied()
                .zip(histogram.percentiles(&PERCENTILES))
                .collect(),
        };
        let slowest = a
            .slowest
            .iter()
            .filter_map(|i| app.records().get(*i))
            .map(|r| slow_op(app, r));
        Metrics {
            from_ns: c.from.0,
            column_ns: c.width(),
            slowest: slowest.collect(),
            app_bytes: a.bytes,
            app_ops: a.ops,
            device_bytes,
            heat: a.heat,
            percentiles,
        }
    }

    /// The next or previous instant of a kind.
    pub(super) fn step(
        &self,
        tracer: &Tracer,
        app: &AppLog,
        log: &DeviceLog,
        at: Nanos,
        unit: StepUnit,
        forward: bool,
    ) -> Option<Nanos> {
        let t = &self.timeline;
        match unit {
            StepUnit::Event => step_event(tracer, at, forward),
            StepUnit::Io => neighbour(log.records().map(|(_, r)| r.acked), at, forward),
            StepUnit::Syscall => {
                let mut ends: Vec<Nanos> = app
                    .records()
                    .iter()
                    .map(|r| r.end)
                    .filter(|e| *e != Nanos::MAX)
                    .collect();
                ends.sort_unstable();
                neighbour(ends.into_iter(), at, forward)
            }
            StepUnit::Commit => neighbour(t.commits.iter().map(|c| c.0), at, forward),
            StepUnit::Checkpoint => neighbour(t.checkpoints.iter().map(|c| c.1), at, forward),
        }
    }

    /// Sentences around the instant: `before` up to it and `after` following it.
    pub(super) fn log_lines(&self, sim: &Sim, before: u32, after: u32) -> Vec<LogLine> {
        let tracer = sim.trace();
        let here = tracer.seek(Nanos(self.at.0 + 1));
        let from = here
            .saturating_sub(u64::from(before))
            .max(tracer.first_index());
        let mut out = Vec::new();
        tracer.scan(from, |index, record| {
            if index >= here + u64::from(after) {
                return false;
            }
            out.extend(log_line(sim, record));
            true
        });
        out
    }
}

/// One event as a sentence.
pub(super) fn log_line(sim: &Sim, record: &Record) -> Option<LogLine> {
    let event = record.event()?;
    let (block, tid) = names(&event);
    let task = sim.task_name(TaskId(u32::from(record.task)));
    Some(LogLine {
        ns: record.time,
        family: event.category().name().to_lowercase(),
        sentence: sentence(record, &task),
        block,
        tid,
    })
}

fn step_event(tracer: &Tracer, at: Nanos, forward: bool) -> Option<Nanos> {
    if forward {
        return tracer.get(tracer.seek(Nanos(at.0 + 1))).map(|r| r.at());
    }
    let here = tracer.seek(at);
    tracer.get(here.checked_sub(1)?).map(|r| r.at())
}

/// Block and transaction that an event names.
pub(super) fn names(event: &Event) -> (Option<u64>, Option<u32>) {
    match *event {
        Event::LogCopy { tid, home, .. } | Event::Replayed { tid, home, .. } => {
            (Some(home.0), Some(tid.0))
        }
        Event::BlockJoined { tid, block }
        | Event::BlockForgotten { tid, block }
        | Event::BlockRevoked { tid, block }
        | Event::CheckpointPicked { tid, block }
        | Event::CheckpointWritten { tid, block }
        | Event::CheckpointDropped { tid, block }
        | Event::RevokeFound { tid, block }
        | Event::InodeChanged { tid, block, .. } => (Some(block.0), Some(tid.0)),
        Event::BlocksAllocated { block, .. }
        | Event::BlocksFreed { block, .. }
        | Event::ExtentSplit { block, .. }
        | Event::ChecksumFailed { block, .. } => (Some(block.0), None),
        Event::DelallocMapped { pblk, .. } => (Some(pblk.0), None),
        Event::HandleStart { tid, .. }
        | Event::HandleStop { tid, .. }
        | Event::HandleWait { tid, .. }
        | Event::TransactionState { tid, .. }
        | Event::CommitWait { tid }
        | Event::LogDescriptor { tid, .. }
        | Event::LogRevoke { tid, .. }
        | Event::LogCommit { tid, .. }
        | Event::LogSuperblock { tid, .. }
        | Event::TailAdvanced { tid, .. } => (None, Some(tid.0)),
        _ => (None, None),
    }
}

fn slow_op(app: &AppLog, r: &AppRecord) -> SlowOp {
    let (op, offset, fd) = match &r.op {
        AppOp::Write { fd, offset, .. } => ("W", *offset, Some(*fd)),
        AppOp::Read { fd, offset, .. } => ("R", *offset, Some(*fd)),
        AppOp::Fsync { fd, .. } => ("S", 0, Some(*fd)),
        AppOp::Open { .. } => ("O", 0, None),
        AppOp::Close { fd } => ("C", 0, Some(*fd)),
        AppOp::Other(op) => (op.name(), 0, None),
    };
    let opened = fd.and_then(|fd| {
        let before = app.records().iter().take_while(|x| x.start <= r.start);
        before
            .filter_map(|x| match &x.op {
                AppOp::Open { fd: f, path, .. } if *f == fd => Some(path.clone()),
                _ => None,
            })
            .last()
    });
    SlowOp {
        ns: r.end.0,
        comm: "app".to_string(),
        op: op.to_string(),
        bytes: u64::from(r.bytes),
        offset,
        latency_ns: r.end.saturating_sub(r.start).0,
        path: opened.map_or(String::new(), |p| String::from_utf8_lossy(&p).into_owned()),
    }
}
