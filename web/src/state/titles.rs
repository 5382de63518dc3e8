//! Titles of panels: each is a finding with current values.

use super::store::{Panel, State, Ui};
use super::text::{bytes, count, duration, instant_short, significant, thousands};
use crate::link::protocol::{Loss, Selection};

impl State {
    /// The panel's title, which is its accessible name too.
    pub fn title(&self, panel: Panel) -> String {
        match panel {
            Panel::Map => self.map_title(),
            Panel::Ring => self.ring_title(),
            Panel::Itable => self.itable_title(),
            Panel::Heat => self.heat_title(),
            Panel::Amp => self.amp_title(),
            Panel::Tree => self.tree_title(),
            Panel::Hex => self.hex_title(),
            Panel::Ab => self.ab_title(),
            Panel::Crash => self.crash_title(),
            Panel::Loss => self.loss_title(),
        }
    }

    fn map_title(&self) -> String {
        let Some(loaded) = &self.loaded else {
            return "No filesystem yet".into();
        };
        let dirty = |d: &[u32; 6]| u64::from(d[1]) + u64::from(d[2]) + u64::from(d[3]);
        if let Some(group) = self.zoom {
            let Some(map) = &self.view.group else {
                return format!("Group {group}");
            };
            let mut by = [0u32; 6];
            for d in &map.durability {
                by[usize::from(*d).min(5)] += 1;
            }
            return format!(
                "Group {group} of {}: {}",
                thousands(u64::from(loaded.groups)),
                at_risk(dirty(&by))
            );
        }
        let lost: u64 = self
            .view
            .map
            .as_ref()
            .map_or(0, |m| m.iter().map(|t| dirty(&t.by_durability)).sum());
        format!(
            "{} in {}: {}",
            bytes(loaded.blocks * u64::from(loaded.block_size)),
            count(u64::from(loaded.groups), "group", "groups"),
            at_risk(lost)
        )
    }

    fn ring_title(&self) -> String {
        let Some(journal) = &self.view.journal else {
            return "Journal".into();
        };
        if !journal.present {
            return "No journal (^has_journal)".into();
        }
        let used = f64::from(journal.blocks.saturating_sub(journal.free));
        let share = 100.0 * used / f64::from(journal.blocks.max(1));
        let waiting = journal
            .transactions
            .iter()
            .filter(|t| t.checkpointed_ns == 0)
            .count() as u64;
        if waiting == 0 && journal.running.is_none() {
            return "Journal: clean, tail meets head".into();
        }
        let next = journal.next_commit_ns.map_or_else(String::new, |ns| {
            format!(", next timed commit in {}", duration(ns))
        });
        let used = match share {
            s if s > 0.0 && s < 0.1 => "under 0.1".to_string(),
            s => significant(s),
        };
        let home = match waiting {
            0 => String::new(),
            n => format!(", {} to go home", count(n, "transaction", "transactions")),
        };
        format!("Journal: {used} % used{home}{next}")
    }

    fn itable_title(&self) -> String {
        let Some(map) = &self.view.itable else {
            return "Inode tables".into();
        };
        let zeroed = map.rows.iter().filter(|r| r.zeroed == 1).count() as u64;
        format!(
            "Inode tables: {} of {} groups zeroed",
            thousands(zeroed),
            thousands(map.rows.len() as u64)
        )
    }

    fn heat_title(&self) -> String {
        let Some(metrics) = &self.view.metrics else {
            return "No I/O yet".into();
        };
        let of = |p: f64| {
            metrics
                .percentiles
                .iter()
                .find(|(q, _)| (*q - p).abs() < 1e-6)
                .map(|x| x.1)
        };
        let ops: u64 = metrics.app_ops.iter().sum();
        match (of(50.0), metrics.slowest.first()) {
            _ if ops == 0 => "No I/O yet".into(),
            (Some(p50), Some(slowest)) => format!(
                "{}: half within {}, the slowest {}",
                count(ops, "operation", "operations"),
                duration(p50),
                duration(slowest.latency_ns)
            ),
            _ => count(ops, "operation", "operations"),
        }
    }

    fn amp_title(&self) -> String {
        match &self.view.report {
            Some(r) if r.app_bytes > 0 => format!(
                "One byte written costs {} on the device",
                significant(r.device_bytes as f64 / r.app_bytes as f64)
            ),
            Some(r) => format!("{} written to the device", bytes(r.device_bytes)),
            None => "What a byte costs".into(),
        }
    }

    fn tree_title(&self) -> String {
        let Some(rows) = &self.view.tree else {
            return "Files".into();
        };
        let files = rows.iter().filter(|r| r.kind == "-").count() as u64;
        let unsafe_files = rows
            .iter()
            .filter(|r| r.kind == "-" && (1..=3).contains(&r.durability))
            .count();
        format!(
            "{}, {unsafe_files} not yet durable",
            count(files, "file", "files")
        )
    }

    fn hex_title(&self) -> String {
        match (&self.selection, &self.view.inspect) {
            (None, _) => "Select a block, a file or a transaction".into(),
            (Some(_), Some(inspect)) => inspect.title.clone(),
            (Some(Selection::Block(b)), None) => format!("Block {}", thousands(*b)),
            (Some(_), None) => "Inspector".into(),
        }
    }

    fn crash_title(&self) -> String {
        let Some(crash) = &self.crash else {
            return "Power is on".into();
        };
        let broken = crash.survivors.iter().filter(|s| s.broken).count() as u64;
        if broken == 0 {
            format!(
                "Power failed at {}: no promise broken",
                instant_short(crash.cut_ns)
            )
        } else {
            format!(
                "Power failed at {}: {} broken",
                instant_short(crash.cut_ns),
                count(broken, "promise", "promises")
            )
        }
    }

    fn loss_title(&self) -> String {
        let Some(loss) = &self.view.loss else {
            return "If the power failed now".into();
        };
        // Of a long run not every instant is judged: the title says which one it speaks of.
        if loss.as_of_ns != self.at_ns && !self.playing && !self.progress.running {
            return format!(
                "At {}: {}",
                instant_short(loss.as_of_ns),
                self.loss_words(loss)
            );
        }
        self.loss_words(loss)
    }

    /// The danger strip in words.
    pub fn danger_words(&self) -> String {
        let judged = &self.danger;
        if judged.is_empty() {
            return "Danger strip: no instant is judged yet".into();
        }
        let states: u64 = judged.iter().map(|d| u64::from(d.states)).sum();
        let broken: Vec<u64> = judged
            .iter()
            .filter(|d| d.by_fate[2] > 0)
            .map(|d| d.at_ns)
            .collect();
        let all = count(states, "crash state", "crash states");
        let instants = count(judged.len() as u64, "instant", "instants");
        match broken.first() {
            None => format!("Danger strip: {all} at {instants}, no promise broken in any"),
            Some(first) => format!(
                "Danger strip: a promise can break at {} of {instants}, first at {}",
                broken.len(),
                instant_short(*first)
            ),
        }
    }

    fn loss_words(&self, loss: &Loss) -> String {
        let broken = loss.worst.broken;
        if broken > 0 {
            return format!(
                "{broken} of {} would break",
                count(u64::from(loss.promises), "promise", "promises")
            );
        }
        let damaged: u32 = loss.worst.by_verdict.iter().skip(1).sum();
        if self.ui == Ui::Story || damaged > 0 {
            return format!(
                "{} would be lost or old; no promise would break",
                count(u64::from(damaged), "file", "files")
            );
        }
        "Nothing would be lost".into()
    }
}

fn at_risk(blocks: u64) -> String {
    if blocks == 0 {
        "all of it durable".into()
    } else {
        format!("{} not on the medium", count(blocks, "block", "blocks"))
    }
}
