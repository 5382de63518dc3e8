//! All that a power cut can leave: every instant, every subset of the writes whose fate it decides, each recovered,
//! checked and held against what applications were promised (the idea of ALICE, and of CrashMonkey and ACE).

use super::oracle::{judge_at, Survivors};
use super::recover::{mount_and_unmount, tree_digest, DiskTree};
use crate::base::Nanos;
use crate::block::{CrashImage, CrashPoint, DeviceConfig, Op, Queue, Store};
use crate::experiment::model::ModelFs;
use crate::fs::ext4::fsck;
use crate::workload::app_log::AppLog;
use std::collections::{BTreeMap, BTreeSet};

/// States of one instant of a recovery that is cut in its turn.
const RECOVERY_STATES: usize = 4;
/// Instants get at least so many states each; where there are more instants, some are left out.
const STATES_LEAST: usize = 4;

/// When the power is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instants {
    /// After every record of the device log from this one on; 0 is before the first.
    From(u64),
    /// After this many records.
    Record(u64),
    /// At this time.
    Time(Nanos),
}

/// A power cut that can be repeated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Witness {
    /// Records of the device log acknowledged before the cut.
    pub record: u64,
    /// Instant of the cut.
    pub instant: Nanos,
    /// Undecided writes that were kept, as `--loss keep=` names them.
    pub kept: Vec<usize>,
    /// Undecided writes that were lost, with what they were.
    pub lost: Vec<(usize, String)>,
}

impl Witness {
    fn of(point: &CrashPoint, image: &CrashImage) -> Witness {
        let all = point.undecided();
        let (lost, kept): (Vec<_>, Vec<_>) =
            (0..all.len()).partition(|i| image.lost.binary_search(i).is_ok());
        let what = |i: usize| {
            let w = &all[i];
            let sectors = match w.op {
                Op::Write => format!("sectors {}+{}", w.lba.0, w.sectors),
                op => format!("{op:?} of sectors {}+{}", w.lba.0, w.sectors),
            };
            let of = match (w.tid.0, w.ino.0) {
                (0, 0) => String::new(),
                (0, ino) => format!(" of inode {ino}"),
                (tid, _) => format!(" of transaction {tid}"),
            };
            (i, format!("{}{of}, {sectors}", w.role.name()))
        };
        Witness {
            record: point.position(),
            instant: point.instant(),
            kept,
            lost: lost.into_iter().map(what).collect(),
        }
    }

    /// Fewer lost writes first, then earlier.
    fn size(&self) -> (usize, u64) {
        (self.lost.len(), self.record)
    }
}

/// States that end alike.
#[derive(Clone)]
pub struct Outcome {
    /// How many.
    pub states: u64,
    /// Digest of the tree after recovery (`tree_digest`); empty if there is none.
    pub tree: String,
    /// Why it could not be mounted.
    pub error: Option<String>,
    /// Broken promises: path, promise, what is there, why that is so.
    pub broken: Vec<[String; 4]>,
    /// Findings of the check after recovery.
    pub findings: Vec<String>,
    /// The smallest state that ends so.
    pub witness: Witness,
    smallest: Store,
}

impl Outcome {
    /// Nothing to complain of.
    pub fn good(&self) -> bool {
        self.error.is_none() && self.broken.is_empty() && self.findings.is_empty()
    }
}

/// What recovery made of a disk.
struct After {
    tree: String,
    error: Option<String>,
    findings: Vec<String>,
    store: Store,
}

impl After {
    fn of(device: &DeviceConfig, store: Store, mount: &str) -> After {
        let (machine, error) = mount_and_unmount(device.clone(), store, mount, 0);
        let store = machine.queue.device().store().clone();
        let mut findings: Vec<String> = fsck::check(&store)
            .iter()
            .map(ToString::to_string)
            .collect();
        let tree = DiskTree::open(&store).and_then(|t| tree_digest(&t));
        let tree = tree.unwrap_or_else(|damage| {
            findings.push(damage);
            String::new()
        });
        After {
            tree,
            error,
            findings,
            store,
        }
    }
}

/// What was found so far.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// Instants looked at.
    pub instants: u64,
    /// Different disks, each with what had been promised by then.
    pub states: u64,
    /// True if no instant and no subset was left out.
    pub exhaustive: bool,
    /// False if verdicts could not look at everything.
    pub complete: bool,
    /// Cuts during recoveries.
    pub recoveries_cut: u64,
    /// Cuts during a recovery after which the next one gave another tree or an unclean one.
    pub recoveries_differ: Vec<String>,
}

/// Key of an outcome: tree, broken paths, findings, error.
type Ending = (String, Vec<[String; 4]>, Vec<String>, Option<String>);

/// An exploration, one instant at a time.
pub struct Explorer<'a> {
    queue: &'a Queue,
    now: Nanos,
    app: AppLog,
    mount: String,
    device: DeviceConfig,
    seed: u64,
    /// States that may still be tried.
    left: usize,
    todo: Vec<Instants>,
    seen: BTreeSet<(u64, u64, usize)>,
    outcomes: BTreeMap<Ending, Outcome>,
    found: Found,
}

impl<'a> Explorer<'a> {
    /// Explores a run that ended at `now`, of which the device log of `queue` and the calls in `app` tell. At most
    /// `limit` states are tried; samples follow `seed`. The error says why the log does not tell of the instants.
    pub fn new(
        (queue, now): (&'a Queue, Nanos),
        app: AppLog,
        mount: &str,
        instants: Instants,
        (limit, seed): (usize, u64),
    ) -> Result<Explorer<'a>, String> {
        queue.device_mut().settle(now);
        let (size, first, end) = {
            let device = queue.device();
            let log = device.log();
            (device.store().sectors() * 512, log.first(), log.end())
        };
        if matches!(instants, Instants::From(n) if n < first) {
            return Err(format!(
                "the device log lost its first {first} records; explore one instant or a shorter run"
            ));
        }
        let mut todo: Vec<Instants> = match instants {
            Instants::From(n) => (n..=end).map(Instants::Record).collect(),
            one => vec![one],
        };
        let room = (limit / STATES_LEAST).max(1);
        let exhaustive = todo.len() <= room;
        if !exhaustive {
            let all = todo.len();
            todo = (0..room).map(|i| todo[i * all / room]).collect();
        }
        todo.reverse();
        Ok(Explorer {
            queue,
            now,
            mount: mount.to_string(),
            device: DeviceConfig::preset("sata-ssd", size)?,
            seed,
            left: limit,
            todo,
            seen: BTreeSet::new(),
            outcomes: BTreeMap::new(),
            found: Found {
                exhaustive,
                complete: app.dropped() == 0,
                ..Found::default()
            },
            app,
        })
    }

    /// Instants still to look at.
    pub fn instants_left(&self) -> usize {
        self.todo.len()
    }

    /// What was found so far.
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// Looks at the next instant; false if there is none.
    pub fn step(&mut self) -> Result<bool, String> {
        let Some(instant) = self.todo.pop() else {
            return Ok(false);
        };
        let point = match instant {
            Instants::Record(n) => CrashPoint::at_record(self.queue, self.now, n)?,
            Instants::Time(t) => CrashPoint::at_time(self.queue, self.now, t)?,
            Instants::From(_) => return Ok(true),
        };
        let budget = self.left / (self.todo.len() + 1);
        let (images, exhaustive) = point.states(budget.max(1), self.seed);
        self.left = self.left.saturating_sub(images.len());
        self.found.exhaustive &= exhaustive;
        self.found.instants += 1;
        let records = self.app.records();
        let returned = ModelFs::returned(records, point.instant());
        let started = records.partition_point(|r| r.start <= point.instant());
        for image in &images {
            if self
                .seen
                .insert((point.disk_hash(image), returned, started))
            {
                self.look_at(&point, image)?;
            }
        }
        Ok(true)
    }

    fn look_at(&mut self, point: &CrashPoint, image: &CrashImage) -> Result<(), String> {
        self.found.states += 1;
        let disk = image.to_store();
        let after = After::of(&self.device, disk.clone(), &self.mount);
        let survivors = match &after.error {
            None => self.survivors(point.instant(), &after.store)?,
            Some(_) => Survivors::default(),
        };
        self.found.complete &= survivors.complete || after.error.is_some();
        let broken = broken_of(&survivors);
        let witness = Witness::of(point, image);
        let key = (
            after.tree.clone(),
            broken.clone(),
            after.findings.clone(),
            after.error.clone(),
        );
        match self.outcomes.get_mut(&key) {
            Some(o) => {
                o.states += 1;
                if witness.size() < o.witness.size() {
                    o.witness = witness;
                    o.smallest = disk;
                }
            }
            None => {
                let outcome = Outcome {
                    states: 1,
                    tree: after.tree,
                    error: after.error,
                    broken,
                    findings: after.findings,
                    witness,
                    smallest: disk,
                };
                self.outcomes.insert(key, outcome);
            }
        }
        Ok(())
    }

    fn survivors(&self, at: Nanos, store: &Store) -> Result<Survivors, String> {
        let tree = DiskTree::open(store)?;
        Ok(judge_at(self.app.records(), at, &tree))
    }

    /// Cuts the recovery of each outcome's witness at every one of its own writes: the next recovery must give the
    /// same tree. Returns the outcomes, the worst first, then those of many states.
    pub fn finish(mut self) -> Result<(Found, Vec<Outcome>), String> {
        let mut outcomes: Vec<Outcome> = std::mem::take(&mut self.outcomes).into_values().collect();
        for o in outcomes.iter().filter(|o| o.error.is_none()) {
            self.cut_recovery(o)?;
        }
        outcomes.sort_by_key(|o| {
            let rank = (o.error.is_none(), std::cmp::Reverse(o.broken.len()));
            (rank, o.findings.is_empty(), std::cmp::Reverse(o.states))
        });
        Ok((self.found, outcomes))
    }

    fn cut_recovery(&mut self, o: &Outcome) -> Result<(), String> {
        let (machine, _) =
            mount_and_unmount(self.device.clone(), o.smallest.clone(), &self.mount, 0);
        let now = machine.now();
        machine.queue.device_mut().settle(now);
        let end = machine.queue.device().log().end();
        let mut seen = BTreeSet::new();
        for n in 0..=end {
            let point = CrashPoint::at_record(&machine.queue, now, n)?;
            for image in point.states(RECOVERY_STATES, self.seed).0 {
                if !seen.insert(point.disk_hash(&image)) {
                    continue;
                }
                self.found.recoveries_cut += 1;
                let again = After::of(&self.device, image.to_store(), &self.mount);
                let same = again.tree == o.tree && again.findings == o.findings;
                if !same || again.error.is_some() {
                    let lost = image.lost.len();
                    let reason = again.error.or(again.findings.first().cloned());
                    self.found.recoveries_differ.push(format!(
                        "recovery of record {} cut after {n} of its own records with {lost} writes lost: {}",
                        o.witness.record,
                        reason.unwrap_or_else(|| "another tree".to_string())
                    ));
                }
            }
        }
        Ok(())
    }
}

fn broken_of(s: &Survivors) -> Vec<[String; 4]> {
    let rows = s.rows.iter().filter(|r| r.broken);
    rows.map(|r| {
        let path = crate::workload::ops::percent_encode(&r.path);
        [path, r.promise.clone(), r.after.clone(), r.because.clone()]
    })
    .collect()
}
