//! The counts of a run under the names of kernel-lab (README, "Result of trace").

use crate::block::{BioCounts, Class, Phase, RequestCounts, Stats};
use crate::fs::ext4::Stats as Ext4Stats;
use crate::fs::jbd2::{HandleType, JournalStats};
use crate::kernel::Hardware;
use crate::workload::play::PlayTotals;
use serde_json::{json, Map, Number, Value};
use std::collections::BTreeMap;

/// A flat list of dotted names and numbers, sorted by name.
#[derive(Debug, Default)]
pub struct Truth(Map<String, Value>);

impl Truth {
    /// Sets a count.
    pub fn set(&mut self, name: &str, n: u64) {
        self.0.insert(name.to_string(), json!(n));
    }

    /// Sets a number of 4 KiB blocks from sectors: whole numbers stay whole.
    fn set_blocks(&mut self, name: &str, sectors: u64) {
        let value = match sectors % 8 {
            0 => json!(sectors / 8),
            _ => Number::from_f64(sectors as f64 / 8.0).map_or(Value::Null, Value::Number),
        };
        self.0.insert(name.to_string(), value);
    }

    /// The JSON object.
    pub fn into_json(self) -> Value {
        Value::Object(self.0)
    }

    /// Device I/O: totals, by class, by phase.
    pub fn io(&mut self, s: &Stats) {
        let mut all = BioCounts::default();
        let mut all_requests = RequestCounts::default();
        for phase in Phase::ALL {
            let (bios, requests) = (s.bios_total(phase), *s.requests(phase));
            let prefix = format!("io_by_phase.{}.total", phase.name());
            self.totals(&prefix, &bios, &requests);
            for class in Class::ALL {
                let path = format!("io_by_phase.{}.by_class.{}", phase.name(), class.name());
                self.class(&path, s.bios(phase, class));
            }
            all.add(&bios);
            all_requests.rq_w += requests.rq_w;
            all_requests.rq_r += requests.rq_r;
            all_requests.rq_flush += requests.rq_flush;
            all_requests.merges += requests.merges;
            all_requests.done_sectors_w += requests.done_sectors_w;
        }
        self.totals("io_total", &all, &all_requests);
        for class in Class::ALL {
            let mut sum = BioCounts::default();
            for phase in Phase::ALL {
                sum.add(s.bios(phase, class));
            }
            self.class(&format!("io_by_class.{}", class.name()), &sum);
        }
    }

    fn totals(&mut self, prefix: &str, b: &BioCounts, r: &RequestCounts) {
        for (name, n) in [
            ("bios_w", b.bios_w),
            ("bios_r", b.bios_r),
            ("preflush", b.preflush),
            ("fua", b.fua),
            ("flush_only", b.flush_only),
            ("rq_w", r.rq_w),
            ("rq_r", r.rq_r),
            ("rq_flush", r.rq_flush),
            ("merges", r.merges),
        ] {
            self.set(&format!("{prefix}.{name}"), n);
        }
        self.set_blocks(&format!("{prefix}.blocks_w"), b.sectors_w);
        self.set_blocks(&format!("{prefix}.blocks_r"), b.sectors_r);
        self.set_blocks(&format!("{prefix}.done_blocks_w"), r.done_sectors_w);
    }

    /// Counts of a class; as in kernel-lab, zero counts are left out, and empty flushes belong to no class.
    fn class(&mut self, path: &str, b: &BioCounts) {
        let with_sectors = |flags: u64| flags.saturating_sub(b.flush_only);
        for (name, n) in [
            ("bios_w", b.bios_w),
            ("bios_r", b.bios_r),
            ("preflush", with_sectors(b.preflush)),
            ("fua", b.fua),
            ("zero_bios", b.zero_bios),
            ("discard_bios", b.discard_bios),
        ] {
            if n > 0 {
                self.set(&format!("{path}.{name}"), n);
            }
        }
        for (name, sectors) in [("blocks_w", b.sectors_w), ("blocks_r", b.sectors_r)] {
            if sectors > 0 {
                self.set_blocks(&format!("{path}.{name}"), sectors);
            }
        }
    }

    /// Who submitted writes, digits in task names replaced by N.
    pub fn writers(&mut self, hw: &Hardware, s: &Stats) {
        let mut sums: BTreeMap<String, (u64, u64)> = BTreeMap::default();
        for (task, b) in s.writers().filter(|(_, b)| b.bios_w > 0) {
            let name = hw.sim.task_name(crate::sim::TaskId(task));
            let short: String = name.split('/').next().unwrap_or(&name).to_string();
            let mut masked = String::new();
            for c in short.chars() {
                match c {
                    '0'..='9' if masked.ends_with('N') => {}
                    '0'..='9' => masked.push('N'),
                    c => masked.push(c),
                }
            }
            let sum = sums.entry(masked).or_default();
            sum.0 += b.bios_w;
            sum.1 += b.sectors_w / 8;
        }
        for (name, (bios, blocks)) in sums {
            self.set(&format!("writers.{name}.bios"), bios);
            self.set(&format!("writers.{name}.blocks"), blocks);
        }
    }

    /// The journal.
    pub fn jbd2(&mut self, j: &JournalStats) {
        let h = j.handles();
        for (name, n) in [
            ("transactions", j.transactions),
            ("handle_count", j.run.handle_count),
            ("blocks", j.run.blocks),
            ("blocks_logged", j.run.blocks_logged),
            ("journal_sb_writes", j.journal_sb_writes),
            ("handles.n", h.count),
            ("handles.requested", h.requested),
            ("handles.dirtied", h.dirtied),
            ("handles.sync", h.sync),
            ("checkpoint.n", j.checkpoint.count),
            ("checkpoint.written", j.checkpoint.written),
            ("checkpoint.dropped", j.checkpoint.dropped),
            ("checkpoint.forced_to_close", j.checkpoint.forced_to_close),
        ] {
            self.set(&format!("jbd2.{name}"), n);
        }
        for (ty, h) in HandleType::ALL.iter().zip(&j.handles_by_type) {
            if h.count > 0 {
                let prefix = format!("jbd2.handles_by_type.{}", ty.name());
                self.set(&format!("{prefix}.n"), h.count);
                self.set(&format!("{prefix}.requested"), h.requested);
                self.set(&format!("{prefix}.dirtied"), h.dirtied);
            }
        }
    }

    /// Allocation and the other tracepoints of ext4.
    pub fn ext4(&mut self, s: &Ext4Stats) {
        for (name, n) in s.all() {
            if n == 0 {
                continue;
            }
            let alloc = [
                ("alloc_data_calls", "alloc.data.calls"),
                ("alloc_data_blocks", "alloc.data.blocks"),
                ("alloc_meta_calls", "alloc.meta.calls"),
                ("alloc_meta_blocks", "alloc.meta.blocks"),
                ("free_calls", "alloc.free.calls"),
                ("free_blocks", "alloc.free.blocks"),
            ];
            match alloc.iter().find(|a| a.0 == name) {
                Some((_, dotted)) => self.set(dotted, n),
                None => self.set(&format!("events.{name}"), n),
            }
        }
    }

    /// What the applications did.
    pub fn app(&mut self, t: &PlayTotals) {
        self.set("app.app_bytes_written", t.app_bytes_written);
        self.set("app.app_bytes_read", t.app_bytes_read);
        for (word, n) in &t.ops {
            self.set(&format!("app.ops.{word}"), *n);
        }
        for (what, n) in &t.errors {
            self.set(&format!("app.errors.{what}"), *n);
        }
    }

    /// Device bytes over application bytes, to four places.
    pub fn amplification(&mut self, s: &Stats, app_bytes: u64) {
        if app_bytes == 0 {
            return;
        }
        let sectors: u64 = Phase::ALL.iter().map(|p| s.bios_total(*p).sectors_w).sum();
        let ratio = (sectors as f64 * 512.0 / app_bytes as f64 * 10_000.0).round() / 10_000.0;
        let value = Number::from_f64(ratio).map_or(Value::Null, Value::Number);
        self.0.insert("write_amplification".to_string(), value);
    }
}
