//! The only door for the page and the command line: load an experiment, let virtual time run, look at any instant,
//! cut the power, take the disk home. Plain values in, plain values out ([`view`]).

mod committed;
mod compare;
mod crash;
mod inspect;
mod journal;
mod map;
mod observer;
mod report;
mod time;
mod tree;
pub mod view;

use crate::base::Nanos;
use crate::config::{Experiment, Problem};
use crate::experiment::drive::{drive, Progress};
use crate::experiment::setup::{prepare, Plan, Setup};
use crate::kernel::Machine;
use crate::observe::layout::role;
use crate::sim::{RunState, TaskClass};
pub use compare::Compare;
pub use crash::{manifest, Cut};
use observer::Observer;
use std::rc::Rc;
use view::{Frame, FrameAsk, Loaded, StepUnit};

/// One loaded experiment.
pub struct Session {
    pub(crate) machine: Machine,
    pub(crate) setup: Setup,
    pub(crate) progress: Rc<Progress>,
    pub(crate) observer: Observer,
    /// The disk was given: what is on it is not only what the workload made.
    pub(crate) given_image: bool,
    horizon: Nanos,
    idle: bool,
}

/// Memory for recorded events.
const TRACE_BUDGET: usize = 96 << 20;

impl Session {
    /// Loads an experiment: makes the file system and starts the driver; virtual time has not moved yet.
    pub fn load(e: &Experiment) -> Result<(Session, Loaded), Vec<Problem>> {
        let setup = prepare(e)?;
        let machine = Machine::boot(setup.machine.clone());
        machine.mkfs(&setup.image);
        Session::start(machine, setup, e.seed, TRACE_BUDGET)
    }

    /// Loads an experiment over an image instead of a new file system.
    pub fn load_image(e: &Experiment, image: &[u8]) -> Result<(Session, Loaded), Vec<Problem>> {
        let mut e = e.clone();
        let size = (image.len() as u64).div_ceil(4096) * 4096;
        let mib = size.max(1 << 20);
        e.set("device.size", &mib.to_string())
            .map_err(|p| vec![p])?;
        let mut setup = prepare(&e)?;
        setup.mkfs_line = "(the image as it is)".to_string();
        let machine = Machine::boot(setup.machine.clone());
        *machine.queue.device_mut().store_mut() = crate::block::Store::from_bytes(image);
        let (mut session, loaded) = Session::start(machine, setup, e.seed, TRACE_BUDGET)?;
        session.given_image = true;
        Ok((session, loaded))
    }

    /// Starts the driver; with a budget of 0 no events are recorded.
    fn start(
        machine: Machine,
        setup: Setup,
        seed: u64,
        trace_budget: usize,
    ) -> Result<(Session, Loaded), Vec<Problem>> {
        let image_problem = |reason: String| vec![Problem::new("image", reason)];
        let observer = Observer::new(machine.queue.device().cursor()).map_err(image_problem)?;
        if trace_budget > 0 {
            machine.record(trace_budget);
        }
        let progress = Rc::new(Progress::default());
        let (hw, mount, plan) = (machine.hw.clone(), setup.mount.clone(), setup.plan.clone());
        let task = drive(hw, mount, plan, seed, Rc::clone(&progress));
        machine.sim.spawn("app", TaskClass::User, task);
        let loaded = observer.loaded(&setup);
        let session = Session {
            machine,
            setup,
            progress,
            observer,
            given_image: false,
            horizon: Nanos::ZERO,
            idle: false,
        };
        Ok((session, loaded))
    }

    /// Lets virtual time run to `until_ns` at most, for at most `events` events of the scheduler.
    pub fn run(&mut self, until_ns: u64, events: u64) -> view::Progress {
        if !self.idle {
            let state = self.machine.sim.run_budget(Nanos(until_ns), events);
            self.horizon = self.machine.sim.now();
            if state == RunState::Idle && self.progress.done.get() {
                self.idle = true;
            }
        }
        self.progress_view(until_ns)
    }

    fn progress_view(&self, until_ns: u64) -> view::Progress {
        let done = self.progress.done.get();
        view::Progress {
            reachable_ns: self.horizon.0,
            end_ns: self.expected_end().0,
            events: self.machine.sim.trace().end_index(),
            running: !self.idle && self.horizon.0 < until_ns,
            done,
        }
    }

    /// When the workload will be over, where that can be known.
    fn expected_end(&self) -> Nanos {
        match &self.setup.plan {
            Plan::Fio(f) => {
                let times = f.jobs.iter().map(|j| j.runtime.map(|t| t + j.ramp_time));
                let all: Option<Vec<Nanos>> = times.collect();
                all.and_then(|v| v.into_iter().max()).unwrap_or(Nanos::ZERO)
            }
            // How long it takes is what it measures.
            Plan::Postmark(_) => Nanos::ZERO,
            Plan::Script(s) => {
                let sleeps = s.ops.iter().filter_map(|o| match o.op {
                    crate::workload::ops::Op::Sleep { ms } => Some(ms),
                    _ => None,
                });
                Nanos::from_ms(sleeps.sum())
            }
        }
    }

    /// Why the mount failed, if it did.
    pub fn failure(&self) -> Option<String> {
        self.progress.failed.borrow().clone()
    }

    /// Moves all folds to an instant, not after the horizon.
    fn seek(&mut self, at_ns: u64) -> Nanos {
        let at = Nanos(at_ns.min(self.horizon.0));
        self.machine.queue.device_mut().settle(self.horizon);
        let device = self.machine.queue.device();
        self.observer
            .seek(self.machine.sim.trace(), device.log(), at);
        at
    }

    /// Everything asked for of one instant.
    pub fn frame(&mut self, ask: &FrameAsk) -> Frame {
        let at = self.seek(ask.at_ns);
        let mut frame = Frame {
            at_ns: at.0,
            ..Frame::default()
        };
        let app = Rc::clone(&self.progress.app);
        let app = app.borrow();
        let queue = Rc::clone(&self.machine.queue);
        let device = queue.device();
        let log = device.log();
        let o = &mut self.observer;
        if let Some((first, groups, tiles)) = ask.map {
            frame.map = Some(o.tiles(log, first, groups, tiles));
        }
        if let Some(group) = ask.group {
            frame.group = o.group_map(log, group);
        }
        if ask.journal {
            frame.journal = Some(o.journal_view(commit_interval(&self.setup.mount)));
        }
        frame.tid_blocks = ask.tid.map(|tid| o.journal_blocks(tid));
        if ask.itable {
            frame.itable = Some(o.itable());
        }
        frame.metrics = ask.metrics.map(|w| o.metrics(&app, log, w));
        frame.marks = ask.marks.map(|w| o.marks(&app, log, w));
        if let Some((before, after)) = ask.log {
            frame.log = Some(o.log_lines(&self.machine.sim, before, after));
        }
        if let Some(what) = &ask.inspect {
            frame.inspect = Some(o.inspect(&self.machine.sim, log, what));
        }
        drop(device);
        if ask.report {
            frame.report = Some(self.report(at));
        }
        if ask.tree {
            frame.tree = Some(self.tree(&app, at));
        }
        if ask.loss {
            frame.loss = self.loss(&app, at);
        }
        frame
    }

    /// The next or previous instant of a kind; `None` if there is none in what has run so far.
    pub fn step(&mut self, at_ns: u64, unit: StepUnit, forward: bool) -> Option<u64> {
        self.observer.update_timeline(self.machine.sim.trace());
        let app = self.progress.app.borrow();
        let device = self.machine.queue.device();
        let tracer = self.machine.sim.trace();
        self.observer
            .step(tracer, &app, device.log(), Nanos(at_ns), unit, forward)
            .filter(|t| *t <= self.horizon)
            .map(|t| t.0)
    }
}

/// Result of a whole run.
pub struct RunResult {
    /// The printed report.
    pub text: String,
    /// Its JSON form.
    pub json: serde_json::Value,
    /// Something in the workload failed.
    pub failed: bool,
}

impl Session {
    /// The result of the run so far.
    pub fn result(&mut self) -> RunResult {
        self.seek(self.horizon.0);
        self.run_result()
    }

    /// Unmounts; the disk is then clean.
    pub fn unmount(&mut self) -> Result<(), String> {
        let vfs = self.progress.vfs.borrow_mut().take();
        let Some(vfs) = vfs else {
            return Ok(());
        };
        let hw = self.machine.hw.clone();
        let done = self
            .machine
            .sim
            .block_on("umount", async move { hw.umount(&vfs).await });
        self.horizon = self.machine.sim.now();
        done.map_err(|d| format!("unmount can't go on: {d}"))?
            .map_err(|e| format!("unmount: {e}"))
    }

    /// The disk now.
    pub fn store(&self) -> crate::block::Store {
        self.machine.queue.device().store().clone()
    }

    /// Hash of everything that happened.
    pub fn digest(&self) -> String {
        self.machine.digest()
    }
}

/// Decodes a structure of any disk.
pub fn inspect_disk(
    store: &crate::block::Store,
    what: &view::Selection,
) -> Result<view::Inspect, String> {
    let reader = crate::fs::ext4::reader::Reader::open(store).map_err(|e| e.to_string())?;
    let journal = reader.journal_extents().unwrap_or_default();
    let layout = crate::observe::layout::Layout::new(reader.sb, reader.group_descs(), journal);
    let mut tree = std::collections::BTreeSet::new();
    reader.walk_blocks(100_000, |b, is_tree| {
        if is_tree {
            tree.insert(b);
        }
    });
    let role_of = |b: u64| {
        let fixed = layout.fixed_role(b);
        fixed.unwrap_or(if tree.contains(&b) {
            role::TREE
        } else {
            role::FILE_DATA
        })
    };
    inspect::decode(store, &layout, what, role_of)
}

/// `commit=` of a mount option string.
fn commit_interval(options: &str) -> Nanos {
    let value = options
        .split(',')
        .rev()
        .find_map(|o| o.strip_prefix("commit="));
    let secs = value
        .and_then(|v| v.parse().ok())
        .filter(|s| *s > 0)
        .unwrap_or(5);
    Nanos::from_secs(secs)
}
