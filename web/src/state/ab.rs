//! Two settings of one workload: what differs, what was found, and whether the seeds alone could have done it.

use std::rc::Rc;

use super::act::Act;
use super::store::{Effect, Panel, State, Ui};
use super::text::{bytes, count, duration, significant};
use crate::link::protocol::{Ask, CompareAsk, CompareRow, Comparison, Experiment};

/// Seeds that can be chosen.
pub const SEEDS: [u32; 4] = [3, 5, 7, 11];
/// Length of each run where the scene says nothing, ns.
const LENGTH_NS: u64 = 2_000_000_000;

/// A row of a thread's table: what its authors measured, in their words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Published {
    /// Name of the measure it stands beside.
    pub name: String,
    /// A.
    pub a: String,
    /// B.
    pub b: String,
    /// Their difference.
    pub change: String,
}

/// The comparison on the screen. What B does not name is as in A.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Ab {
    /// B's device.
    pub device: Option<String>,
    /// B's mkfs options.
    pub mkfs: Option<String>,
    /// B's mount options.
    pub mount: Option<String>,
    /// Seeds.
    pub seeds: u32,
    /// Longest run, virtual ns.
    pub length_ns: u64,
    /// Runs are being made.
    pub running: bool,
    /// What was found, and the differences it was found for.
    pub result: Option<Rc<(Comparison, Vec<Difference>)>>,
    /// The thread's numbers.
    pub published: Vec<Published>,
}

/// One thing that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// In A.
    pub a: String,
    /// In B.
    pub b: String,
}

/// A field of B.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Device.
    Device(String),
    /// mkfs options.
    Mkfs(String),
    /// Mount options.
    Mount(String),
    /// Seeds.
    Seeds(u32),
    /// Longest run, ns.
    Length(u64),
}

/// The options of one list that the other does not have.
fn only(these: &str, those: &str, separator: &[char]) -> Vec<String> {
    let words = |text: &str| -> Vec<String> {
        let words = text.split(separator).map(str::trim);
        words.filter(|w| !w.is_empty()).map(String::from).collect()
    };
    let those = words(those);
    let mut left = words(these);
    left.retain(|w| !those.contains(w));
    left
}

/// Pairs what differs: options of the same name stand side by side.
fn paired(a: Vec<String>, mut b: Vec<String>, out: &mut Vec<Difference>) {
    let name = |o: &str| {
        let bare = o.split('=').next().unwrap_or(o);
        bare.trim_start_matches("no").to_string()
    };
    for option in a {
        let same = b.iter().position(|o| name(o) == name(&option));
        let other = same.map_or("default".to_string(), |i| b.remove(i));
        out.push(Difference {
            a: option,
            b: other,
        });
    }
    for option in b {
        out.push(Difference {
            a: "default".into(),
            b: option,
        });
    }
}

impl Ab {
    /// As a scene has it: `field | value` of B.
    pub fn of_hint(hint: &str) -> Self {
        let mut ab = Self {
            seeds: SEEDS[1],
            length_ns: LENGTH_NS,
            ..Self::default()
        };
        if let Some((field, value)) = hint.split_once('|') {
            let value = Some(value.trim().to_string());
            match field.trim() {
                "mount" => ab.mount = value,
                "mkfs" => ab.mkfs = value,
                _ => ab.device = value,
            }
        }
        ab
    }

    /// B's experiment beside this A.
    pub fn b(&self, a: &Experiment) -> Experiment {
        let own = |ours: &Option<String>, theirs: &str| ours.as_deref().unwrap_or(theirs).into();
        Experiment {
            device: own(&self.device, &a.device),
            mkfs: own(&self.mkfs, &a.mkfs),
            mount: own(&self.mount, &a.mount),
            ..a.clone()
        }
    }

    /// What differs between A and B.
    pub fn differences(&self, a: &Experiment) -> Vec<Difference> {
        let b = self.b(a);
        let mut out = Vec::new();
        let mut both = |a: &str, b: &str, separator: &[char]| {
            paired(only(a, b, separator), only(b, a, separator), &mut out);
        };
        both(&a.device, &b.device, &[',']);
        both(&a.mkfs, &b.mkfs, &[' ']);
        both(&a.mount, &b.mount, &[',']);
        out
    }

    fn edit(&mut self, a: &Experiment, edit: Edit) {
        let own = |value: String, theirs: &str| (value.trim() != theirs.trim()).then_some(value);
        match edit {
            Edit::Device(value) => self.device = own(value, &a.device),
            Edit::Mkfs(value) => self.mkfs = own(value, &a.mkfs),
            Edit::Mount(value) => self.mount = own(value, &a.mount),
            Edit::Seeds(seeds) => self.seeds = seeds,
            Edit::Length(ns) => self.length_ns = ns,
        }
    }
}

/// `data=ordered | data=journal`.
pub fn heading(differences: &[Difference]) -> String {
    let pairs = differences.iter().map(|d| format!("{} | {}", d.a, d.b));
    pairs.collect::<Vec<_>>().join(", ")
}

/// A value in its unit.
pub fn value(v: f64, unit: &str) -> String {
    match unit {
        "ns" => duration(v.max(0.0).round() as u64),
        "bytes" => bytes(v.max(0.0).round() as u64),
        "" => significant(v),
        unit => format!("{}{unit}", significant(v)),
    }
}

/// A change as people say it: percents while small, a factor from twice on.
pub fn change(share: f64) -> String {
    if !share.is_finite() {
        return "from nothing".into();
    }
    if share >= 1.0 {
        return format!("{}×", significant(share + 1.0));
    }
    let percent = significant((share * 100.0).abs());
    match share {
        s if s > 0.0 => format!("+{percent} %"),
        s if s < 0.0 => format!("\u{2212}{percent} %"),
        _ => "±0 %".into(),
    }
}

/// `real` or why not.
pub fn verdict(row: &CompareRow) -> &'static str {
    match row.real {
        true => "real",
        false if row.a_mid.total_cmp(&row.b_mid).is_eq() && row.spread == 0.0 => "the same",
        false => "not distinguishable",
    }
}

/// Whether a measure belongs into the verdict's sentence.
fn leads(name: &str) -> bool {
    matches!(
        name,
        "IOPS" | "clat p50" | "clat max" | "transactions" | "duration"
    )
}

/// The verdict line.
pub fn sentence(c: &Comparison) -> String {
    let seeds = count(u64::from(c.done / 2), "seed", "seeds");
    let spread = |row: &CompareRow| change(row.spread).replacen('+', "±", 1);
    if c.noise {
        let worst = c.rows.iter().max_by(|x, y| x.spread.total_cmp(&y.spread));
        let real = c.rows.iter().filter(|r| r.real).count() as u64;
        let found = match real {
            0 => "not distinguishable, as it must be".to_string(),
            n => format!("{} beyond the noise", count(n, "measure", "measures")),
        };
        let widest = worst.map_or_else(String::new, |row| {
            format!(" The noise: up to {} ({}).", spread(row), row.measure.name)
        });
        return format!("A against A, {seeds} each: {found}.{widest}");
    }
    let mut out = Vec::new();
    for row in &c.rows {
        let name = &row.measure.name;
        if name == "bytes on the device, all home" && row.a_mid > 0.0 {
            let factor = significant(row.b_mid / row.a_mid);
            out.push(format!(
                "B wrote {factor}\u{d7} the bytes (exact; {seeds}, spread {}): {}.",
                spread(row),
                verdict(row)
            ));
        } else if leads(name) {
            out.push(format!(
                "{name} {} (modelled; spread {}): {}.",
                change(row.change),
                spread(row),
                verdict(row)
            ));
        }
    }
    out.join(" ")
}

impl State {
    /// The panel's title.
    pub(super) fn ab_title(&self) -> String {
        if let Some(result) = &self.ab.result {
            let (c, differences) = &**result;
            let what = if c.noise {
                "A | A".into()
            } else {
                heading(differences)
            };
            let real = c.rows.iter().filter(|r| r.real).count();
            return format!("{what}: {real} of {} measures differ", c.rows.len());
        }
        match heading(&self.ab.differences(&self.draft)) {
            none if none.is_empty() => "A/B: change one thing in B".into(),
            heading => format!("A/B: {heading}"),
        }
    }

    pub(super) fn edit_ab(&mut self, edit: Edit) {
        self.ab.edit(&self.draft, edit);
    }

    pub(super) fn act_ab(&mut self, act: Act) -> Vec<Effect> {
        match act {
            Act::Ab => {
                self.ui = Ui::Bench;
                if !self.slots.contains(&Panel::Ab) {
                    self.slots[2] = Panel::Ab;
                }
                self.full = None;
                self.tab = Panel::Ab;
                self.focus = Some(Panel::Ab);
                vec![Effect::FocusPanel(Panel::Ab)]
            }
            Act::AbStop => {
                self.ab.running = false;
                vec![Effect::Ask(Ask::EndCompare)]
            }
            act => self.compare(act == Act::AbNoise),
        }
    }

    fn compare(&mut self, noise: bool) -> Vec<Effect> {
        if self.image.is_some() {
            self.said =
                "Over a given image there is nothing to compare: B needs a new file system.".into();
            return Vec::new();
        }
        self.problems.clear();
        self.ab.running = true;
        let differences = self.ab.differences(&self.draft);
        self.ab.result = Some(Rc::new((
            Comparison {
                noise,
                total: 2 * self.ab.seeds,
                ..Comparison::default()
            },
            differences,
        )));
        vec![Effect::Ask(Ask::Compare(Box::new(CompareAsk {
            a: self.draft.clone(),
            b: self.ab.b(&self.draft),
            seeds: self.ab.seeds,
            length_ns: self.ab.length_ns,
            noise,
        })))]
    }

    pub(super) fn compared(&mut self, comparison: Comparison) {
        let differences = self.ab.result.as_ref().map(|r| r.1.clone());
        self.ab.running = comparison.done < comparison.total;
        if !self.ab.running {
            self.said = sentence(&comparison);
        }
        self.ab.result = Some(Rc::new((comparison, differences.unwrap_or_default())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::protocol::Measure;

    fn row(name: &str, a: f64, b: f64, spread: f64) -> CompareRow {
        CompareRow {
            measure: Measure {
                name: name.into(),
                unit: "ns".into(),
                exact: false,
            },
            a_mid: a,
            b_mid: b,
            change: (b - a) / a,
            spread,
            real: (b - a).abs() > spread * a,
            ..CompareRow::default()
        }
    }

    #[test]
    fn what_differs_is_paired() {
        let a = Experiment {
            mount: "data=ordered,barrier".into(),
            mkfs: "-b 4096".into(),
            ..Experiment::default()
        };
        let mut ab = Ab::of_hint("mount | data=journal,nobarrier");
        assert_eq!(
            heading(&ab.differences(&a)),
            "data=ordered | data=journal, barrier | nobarrier"
        );
        ab.edit(&a, Edit::Mount("data=ordered,barrier".into()));
        assert_eq!(ab.mount, None);
        assert!(ab.differences(&a).is_empty());
        ab.edit(&a, Edit::Mount("data=ordered,barrier,commit=30".into()));
        assert_eq!(heading(&ab.differences(&a)), "default | commit=30");
        assert_eq!(ab.b(&a).mkfs, "-b 4096");
    }

    #[test]
    fn verdicts_are_sentences() {
        let c = Comparison {
            done: 10,
            total: 10,
            rows: vec![
                row("bytes on the device, all home", 100.0, 173.0, 0.0),
                row("clat p50", 16.0, 8.5, 0.01),
                row("IOPS", 1000.0, 996.0, 0.011),
            ],
            ..Comparison::default()
        };
        assert_eq!(
            sentence(&c),
            "B wrote 1.73× the bytes (exact; 5 seeds, spread ±0 %): real. \
             clat p50 −46.9 % (modelled; spread ±1 %): real. \
             IOPS −0.40 % (modelled; spread ±1.10 %): not distinguishable."
        );
        let noise = Comparison {
            noise: true,
            rows: vec![row("IOPS", 1000.0, 1001.0, 0.011)],
            ..c
        };
        assert_eq!(
            sentence(&noise),
            "A against A, 5 seeds each: not distinguishable, as it must be. The noise: up to ±1.10 % (IOPS)."
        );
    }

    #[test]
    fn changes_are_said_plainly() {
        assert_eq!(change(-0.47), "\u{2212}47 %");
        assert_eq!(change(89.0), "90×");
        assert_eq!(change(0.0), "±0 %");
        assert_eq!(change(f64::INFINITY), "from nothing");
    }
}
