//! The report of a run so far: fio's text or a table of operations, the device line, the ledger.

use super::view::Report;
use super::{RunResult, Session};
use crate::base::Nanos;
use crate::block::Role;
use crate::experiment::drive::{disk_stats, fio_result};
use crate::experiment::setup::Plan;
use crate::workload::app_log::AppOp;
use crate::workload::fio::{json::calendar, report, DiskStats};
use crate::workload::play::{OpResult, OpValue};
use crate::workload::postmark;
use serde_json::{json, Map, Value};
use std::fmt::Write as _;

/// Operations listed in full before the middle is left out.
const OPS_SHOWN: usize = 200;

impl Session {
    /// The report, as of the end of what has run; bytes are those up to `at`.
    pub(super) fn report(&self, at: Nanos) -> Report {
        let app = self.progress.app.borrow();
        let returned = app
            .records()
            .iter()
            .filter(|r| r.end <= at && r.err.is_none());
        let is_write = |op: &AppOp| match op {
            AppOp::Write { .. } => true,
            AppOp::Other(op) => matches!(op.name(), "pwrite" | "append"),
            _ => false,
        };
        let app_bytes = returned
            .filter(|r| is_write(&r.op))
            .map(|r| u64::from(r.bytes))
            .sum();
        let device = self.machine.queue.device();
        let log = device.log();
        let mut by_role = vec![0u64; Role::ALL.len()];
        let mut flushes = 0;
        for position in log.first()..log.position_at(at) {
            let Some(r) = log.record(position) else {
                continue;
            };
            match r.op {
                crate::block::Op::Flush => flushes += 1,
                crate::block::Op::Write | crate::block::Op::WriteZeroes => {
                    for part in log.parts(position) {
                        by_role[part.role as usize] += u64::from(part.sectors) * 512;
                    }
                }
                _ => {}
            }
        }
        let ledger: Vec<(String, u64)> = Role::ALL
            .iter()
            .zip(&by_role)
            .filter(|(_, n)| **n > 0)
            .map(|(r, n)| (r.name().to_string(), *n))
            .collect();
        drop(device);
        let bs = u64::from(self.observer.layout.block_size());
        Report {
            text: self.text(),
            device_bytes: by_role.iter().sum(),
            ledger,
            app_bytes,
            debt_bytes: self.observer.fold.blocks.debt * bs,
            flushes,
            digest: self.machine.digest(),
        }
    }

    /// The result of a run for the command line.
    pub(super) fn run_result(&self) -> RunResult {
        let r = self.report(self.horizon);
        let ledger: Map<String, Value> = r
            .ledger
            .iter()
            .map(|(name, n)| (name.clone(), json!(n)))
            .collect();
        let mut out = json!({
            "ledger": ledger, "app_bytes": r.app_bytes, "device_bytes": r.device_bytes,
            "debt_bytes": r.debt_bytes, "flushes": r.flushes, "end_ns": self.horizon.0,
        });
        let mut failed = false;
        match &self.setup.plan {
            Plan::Fio(file) => {
                let result = fio_result(&self.machine.hw, file, &self.progress);
                failed = result.jobs.iter().any(|j| j.error.is_some());
                let end = self.machine.config.wall_clock * 1000 + self.horizon.0 / 1_000_000;
                out["fio"] = crate::workload::fio::json::json(&result, &version(), end);
            }
            Plan::Postmark(_) => {
                let runs = self.progress.postmark.borrow();
                failed = runs.iter().any(|r| r.error.is_some());
                out["postmark"] = postmark::json(&runs);
            }
            Plan::Script(_) => {
                let ops = self.progress.ops.borrow();
                out["ops"] = json!(ops.iter().map(OpResult::to_json).collect::<Vec<_>>());
            }
        }
        let mut text = r.text;
        text.push_str(&device_line(&disk_stats(&self.machine.hw), self.horizon));
        text.push_str(&ledger_text(
            &r.ledger,
            r.app_bytes,
            r.device_bytes,
            r.debt_bytes,
        ));
        RunResult {
            text,
            json: out,
            failed,
        }
    }

    /// fio's text, or the table of operations.
    fn text(&self) -> String {
        match &self.setup.plan {
            Plan::Fio(file) => {
                let result = fio_result(&self.machine.hw, file, &self.progress);
                if result.jobs.is_empty() {
                    return "The jobs are still running;\nfio reports at their end.\n".to_string();
                }
                let end = self.machine.config.wall_clock + self.horizon.0 / 1_000_000_000;
                report::text(&result, &version(), &calendar(end))
            }
            Plan::Postmark(_) => {
                let runs = self.progress.postmark.borrow();
                let texts: Vec<String> = runs.iter().map(postmark::text).collect();
                match texts.is_empty() {
                    true => "PostMark is still running; it reports at its end.\n".to_string(),
                    false => texts.join("\n"),
                }
            }
            Plan::Script(_) => {
                let mut out = ops_table(&self.progress.ops.borrow());
                let d = disk_stats(&self.machine.hw);
                let _ = writeln!(
                    out,
                    "\nDisk stats (read/write):\n  {}: ios={}/{}, merge={}/{}, ticks={}/{}, in_queue={}, util={:3.2}%",
                    d.name, d.ios.0, d.ios.1, d.merges.0, d.merges.1, d.ticks_ms.0, d.ticks_ms.1,
                    d.in_queue_ms, d.util_percent
                );
                out
            }
        }
    }
}

/// The device in the columns of `iostat -x`.
fn device_line(d: &DiskStats, elapsed: Nanos) -> String {
    let secs = (elapsed.0.max(1)) as f64 / 1e9;
    let await_ms = d.ticks_ms.1 as f64 / d.ios.1.max(1) as f64;
    format!(
        "\nDevice      r/s     rkB/s    w/s     wkB/s    wrqm/s  w_await  aqu-sz  %util\n\
         {:8} {:7.2} {:8.2} {:7.2} {:9.2} {:8.2} {:7.2} {:7.2} {:6.2}\n",
        d.name,
        d.ios.0 as f64 / secs,
        d.sectors.0 as f64 / 2.0 / secs,
        d.ios.1 as f64 / secs,
        d.sectors.1 as f64 / 2.0 / secs,
        d.merges.1 as f64 / secs,
        await_ms,
        d.in_queue_ms as f64 / 1000.0 / secs,
        d.util_percent
    )
}

/// What one byte cost.
fn ledger_text(ledger: &[(String, u64)], app: u64, device: u64, debt: u64) -> String {
    let mut out = String::from("\nBytes written by role (exact):\n");
    for (name, n) in ledger {
        let _ = writeln!(out, "  {name:28} {n:14}");
    }
    let _ = writeln!(out, "  {:28} {device:14}", "all");
    let _ = writeln!(out, "  {:28} {app:14}", "application");
    let _ = writeln!(out, "  {:28} {debt:14}", "still to be written home");
    if app > 0 {
        let _ = writeln!(
            out,
            "  {:28} {:14.3}",
            "device / application",
            device as f64 / app as f64
        );
    }
    out
}

/// Name and version of the program in reports.
pub(crate) fn version() -> String {
    format!(
        "fsglass-{} (fio-3.33 layout, virtual time)",
        env!("CARGO_PKG_VERSION")
    )
}

/// Operations with what they returned.
pub(crate) fn ops_table(ops: &[OpResult]) -> String {
    let mut out = String::from("line  operation     result\n");
    for (i, o) in ops.iter().enumerate() {
        if ops.len() > OPS_SHOWN && (OPS_SHOWN / 2..ops.len() - OPS_SHOWN / 2).contains(&i) {
            if i == OPS_SHOWN / 2 {
                let _ = writeln!(out, "   .. {} more ..", ops.len() - OPS_SHOWN);
            }
            continue;
        }
        let what = match &o.result {
            Err(e) => e.name().to_string(),
            Ok(OpValue::None) => "OK".to_string(),
            Ok(OpValue::Moved { n }) => format!("OK, {n} bytes"),
            Ok(OpValue::Digest { n, .. }) => format!("OK, {n}"),
            Ok(OpValue::Names(names)) => format!("OK, {} names", names.len()),
            Ok(OpValue::Stat(s)) => format!("OK, {} bytes, {} blocks", s.size, s.blocks),
            Ok(OpValue::Statx { mask }) => format!("OK, mask {mask:#x}"),
            Ok(OpValue::StatFs(s)) => format!("OK, {} of {} blocks free", s.bfree, s.blocks),
        };
        let _ = writeln!(out, "{:4}  {:12}  {what}", o.line, o.word);
    }
    out
}
