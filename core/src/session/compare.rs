//! Two settings of the same workload over several seeds: is the difference larger than what the seeds alone make?
//!
//! Runs are made one after the other, A and B with the same seed, without recording events. An A-against-A
//! comparison gives B seeds of its own: what it shows is the noise alone.

use super::view::{CompareRow, Comparison, Measure};
use super::Session;
use crate::base::Nanos;
use crate::block::Op;
use crate::config::{Experiment, Problem};
use crate::experiment::setup::{prepare, Plan};
use crate::kernel::Machine;
use crate::workload::fio::JobResult;

/// Most seeds of a comparison.
const SEEDS_MAX: u32 = 31;

/// A comparison under way.
pub struct Compare {
    sides: [Experiment; 2],
    seeds: u64,
    length: Nanos,
    noise: bool,
    /// Figures of the runs that are over, A then B of each seed.
    runs: Vec<Figures>,
    current: Option<Session>,
}

/// What one run measured.
type Figures = Vec<(Measure, f64)>;

impl Compare {
    /// Checks both settings. Each run lasts `length_ns` of virtual time at most; a job is then ended as by its
    /// `runtime`. With `noise` only A counts.
    pub fn load(
        a: &Experiment,
        b: &Experiment,
        seeds: u32,
        length_ns: u64,
        noise: bool,
    ) -> Result<Compare, Vec<Problem>> {
        prepare(a)?;
        prepare(b)?;
        Ok(Compare {
            sides: [a.clone(), if noise { a.clone() } else { b.clone() }],
            seeds: u64::from(seeds.clamp(1, SEEDS_MAX)),
            length: Nanos(length_ns.max(1)),
            noise,
            runs: Vec::new(),
            current: None,
        })
    }

    /// Goes on for at most `events` events of the scheduler; true once all runs are over.
    pub fn run(&mut self, events: u64) -> Result<bool, String> {
        if self.is_over() {
            return Ok(true);
        }
        let mut session = match self.current.take() {
            Some(session) => session,
            None => self.next()?,
        };
        if session.run_to(self.length, events)? {
            let figures = session.figures();
            self.runs.push(figures);
            return Ok(self.is_over());
        }
        self.current = Some(session);
        Ok(false)
    }

    fn is_over(&self) -> bool {
        self.runs.len() as u64 == 2 * self.seeds
    }

    fn next(&self) -> Result<Session, String> {
        let n = self.runs.len() as u64;
        let (side, round) = ((n % 2) as usize, n / 2);
        let mut e = self.sides[side].clone();
        let fresh = if self.noise && side == 1 {
            self.seeds
        } else {
            0
        };
        e.seed = e.seed.wrapping_add(round + fresh);
        Session::unobserved(&e).map_err(|p| p.first().map_or(String::new(), |p| p.reason.clone()))
    }

    /// What is known so far.
    pub fn view(&self) -> Comparison {
        let part = self.current.as_ref().map_or(0.0, |s| {
            s.machine.sim.now().0 as f64 / self.length.0.max(1) as f64
        });
        let names = self.runs.first().map_or(Vec::new(), |first| {
            first.iter().map(|(m, _)| m.clone()).collect()
        });
        let of_side = |name: &str, side: usize| -> Vec<f64> {
            let runs = self.runs.iter().skip(side).step_by(2);
            runs.filter_map(|r| r.iter().find(|(m, _)| m.name == name))
                .map(|(_, v)| *v)
                .collect()
        };
        let rows = names.into_iter().map(|measure| {
            let (a, b) = (of_side(&measure.name, 0), of_side(&measure.name, 1));
            judged(measure, a, b)
        });
        Comparison {
            done: self.runs.len() as u32,
            total: 2 * self.seeds as u32,
            part: part.min(1.0),
            noise: self.noise,
            rows: rows.collect(),
        }
    }
}

/// A difference is real where all runs of one side lie beyond all runs of the other, and the medians are further
/// apart than the runs of either side among themselves. Of less than five runs the gap itself has to be that wide:
/// otherwise one comparison in twenty of the same with the same would be called real.
fn judged(measure: Measure, a: Vec<f64>, b: Vec<f64>) -> CompareRow {
    let (a_mid, b_mid) = (median(&a), median(&b));
    let noise = range(&a).max(range(&b));
    let enough = a.len() >= 2 && b.len() >= 2;
    let gap = (lowest(&a) - highest(&b)).max(lowest(&b) - highest(&a));
    let wide = match a.len().min(b.len()) {
        0..=4 => gap,
        _ => (b_mid - a_mid).abs(),
    };
    CompareRow {
        change: ratio(b_mid - a_mid, a_mid),
        spread: ratio(noise, a_mid),
        real: enough && gap > 0.0 && wide > noise,
        measure,
        a_mid,
        b_mid,
        a,
        b,
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if part == 0.0 {
        return 0.0;
    }
    part / whole.abs()
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match (sorted.get(middle), sorted.len() % 2) {
        (None, _) => 0.0,
        (Some(v), 1) => *v,
        (Some(v), _) => (v + sorted[middle - 1]) / 2.0,
    }
}

fn lowest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

fn highest(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::NEG_INFINITY, f64::max)
}

fn range(values: &[f64]) -> f64 {
    (highest(values) - lowest(values)).max(0.0)
}

fn exact(name: &str, unit: &str, value: f64) -> (Measure, f64) {
    figure(name, unit, true, value)
}

fn modelled(name: &str, unit: &str, value: f64) -> (Measure, f64) {
    figure(name, unit, false, value)
}

fn figure(name: &str, unit: &str, exact: bool, value: f64) -> (Measure, f64) {
    let measure = Measure {
        name: name.to_string(),
        unit: unit.to_string(),
        exact,
    };
    (measure, value)
}

impl Session {
    /// Loads an experiment whose events nobody will look at.
    fn unobserved(e: &Experiment) -> Result<Session, Vec<Problem>> {
        let setup = prepare(e)?;
        let machine = Machine::boot(setup.machine.clone());
        machine.mkfs(&setup.image);
        Session::start(machine, setup, e.seed, 0).map(|(session, _)| session)
    }

    /// Goes on until the workload is over or `length` has passed; true when there is something to measure.
    fn run_to(&mut self, length: Nanos, events: u64) -> Result<bool, String> {
        let timed = !matches!(self.setup.plan, Plan::Script(_));
        if !self.progress.stop.get() {
            self.run(length.0, events);
            if self.progress.done.get() {
                return self.failure().map_or(Ok(true), Err);
            }
            if self.horizon < length {
                return Ok(false);
            }
            // Jobs report when they end; a script is what it has done by now.
            self.progress.stop.set(timed);
            return Ok(!timed);
        }
        self.run(u64::MAX, events);
        Ok(self.progress.done.get())
    }

    /// The figures of a run that has ended.
    fn figures(&mut self) -> Figures {
        let took = self.machine.sim.now();
        let mut out = self.workload_figures(took);
        let written = self.progress.totals.borrow().app_bytes_written;
        let fio: u64 = self
            .progress
            .jobs
            .borrow()
            .iter()
            .map(|j| j.write.io_bytes)
            .sum();
        let app = written.max(fio);
        let (_, flushes) = self.device_writes();
        out.push(exact("flushes", "", flushes as f64));
        // What is still in memory or only in the journal is owed: the bill is that of a disk that is written out.
        if self.unmount().is_ok() {
            let (bytes, _) = self.device_writes();
            out.insert(
                0,
                exact("bytes on the device, all home", "bytes", bytes as f64),
            );
            if app > 0 {
                let cost = bytes as f64 / app as f64;
                out.insert(1, exact("device bytes for a byte written", "×", cost));
            }
        }
        out
    }

    /// Bytes written to the device and flushes, so far.
    fn device_writes(&self) -> (u64, u64) {
        let device = self.machine.queue.device();
        let records = device.log().records();
        records.fold((0, 0), |(bytes, flushes), (_, r)| match r.op {
            Op::Flush => (bytes, flushes + 1),
            Op::Write | Op::WriteZeroes => (bytes + u64::from(r.sectors) * 512, flushes),
            _ => (bytes, flushes),
        })
    }

    fn workload_figures(&self, took: Nanos) -> Figures {
        match &self.setup.plan {
            Plan::Fio(_) => fio_figures(&self.progress.jobs.borrow()),
            Plan::Postmark(_) => {
                let runs = self.progress.postmark.borrow();
                let transactions: u64 = runs.iter().map(|r| r.transactions).sum();
                let mixed: u64 = runs.iter().map(|r| r.phases[1].0).sum();
                let total: u64 = runs.iter().map(|r| r.total().0).sum();
                let rate = transactions as f64 * 1e9 / (mixed.max(1)) as f64;
                vec![
                    modelled("transactions", "/s", rate),
                    modelled("total duration", "ns", total as f64),
                ]
            }
            Plan::Script(_) => {
                let ops = self.progress.ops.borrow().len() as f64;
                vec![
                    exact("operations", "", ops),
                    modelled("duration", "ns", took.0 as f64),
                ]
            }
        }
    }
}

fn fio_figures(jobs: &[JobResult]) -> Figures {
    let mut all = match jobs.first() {
        Some(first) => first.clone(),
        None => return Vec::new(),
    };
    for other in jobs.iter().skip(1) {
        all.merge(other);
    }
    let busier = match all.read.total_ios > all.write.total_ios {
        true => &all.read,
        false => &all.write,
    };
    let mut out = vec![modelled("IOPS", "/s", all.read.iops() + all.write.iops())];
    if busier.slat.summary.samples > 0 {
        out.push(modelled("slat mean", "ns", busier.slat.summary.mean()));
    }
    if busier.clat.summary.samples > 0 {
        out.push(modelled("clat mean", "ns", busier.clat.summary.mean()));
        let list = [50.0, 99.0, 99.9];
        let values = busier.clat.histogram.percentiles(&list);
        for (name, value) in ["clat p50", "clat p99", "clat p99.9"].iter().zip(values) {
            out.push(modelled(name, "ns", value as f64));
        }
        out.push(modelled("clat max", "ns", busier.clat.summary.max as f64));
    }
    if all.sync.summary.samples > 0 {
        out.push(modelled("fsync mean", "ns", all.sync.summary.mean()));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn experiment(mount: &str, workload: &str) -> Experiment {
        let mut e = Experiment::default();
        for (path, value) in [
            ("device.preset", "sata-ssd"),
            ("device.size", "64M"),
            ("mount.options", mount),
            ("workload.fio", workload),
        ] {
            e.set(path, value).expect("known path");
        }
        e
    }

    fn compared(a: &Experiment, b: &Experiment, noise: bool) -> Comparison {
        let mut compare = Compare::load(a, b, 3, 40_000_000, noise).expect("both are good");
        while !compare.run(50_000).expect("runs") {}
        compare.view()
    }

    fn row<'a>(c: &'a Comparison, name: &str) -> &'a CompareRow {
        let found = c.rows.iter().find(|r| r.measure.name == name);
        found.unwrap_or_else(|| panic!("no row {name} in {:?}", c.rows))
    }

    const JOB: &str = "[j]\nrw=randwrite\nbs=4k\nsize=4M\nfsync=4\ntime_based\nruntime=60\n";

    #[test]
    fn journalled_data_costs_more_and_it_is_real() {
        let (a, b) = (experiment("", JOB), experiment("data=journal", JOB));
        let c = compared(&a, &b, false);
        assert_eq!((c.done, c.total), (6, 6));
        let cost = row(&c, "device bytes for a byte written");
        assert!(cost.real && cost.change > 0.0, "{cost:?}");
        assert_eq!((cost.a.len(), cost.b.len()), (3, 3));
        assert!(row(&c, "IOPS").a_mid > 0.0);
    }

    #[test]
    fn a_against_itself_is_not_distinguishable() {
        let a = experiment("", JOB);
        let c = compared(&a, &a, true);
        for r in &c.rows {
            assert!(!r.real, "{r:?}");
        }
    }

    #[test]
    fn medians_and_noise() {
        let m = || figure("x", "", false, 0.0).0;
        let r = judged(m(), vec![10.0, 11.0, 12.0], vec![11.0, 12.0, 12.5]);
        assert!(!r.real, "{r:?}");
        let r = judged(m(), vec![10.0, 11.0, 12.0], vec![20.0, 21.0, 22.0]);
        assert!(r.real && (r.change - 10.0 / 11.0).abs() < 1e-9, "{r:?}");
        let r = judged(m(), vec![0.0, 0.0], vec![0.0, 0.0]);
        assert!(!r.real && r.change == 0.0 && r.spread == 0.0, "{r:?}");
        assert!(!judged(m(), vec![1.0], vec![2.0]).real);
        assert!((median(&[1.0, 4.0, 2.0, 3.0]) - 2.5).abs() < 1e-12);
    }
}
