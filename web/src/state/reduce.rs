//! The second half of the reducer: named actions, and what the worker says.

use std::rc::Rc;

use super::act::Act;
use super::store::{Action, Dialog, Effect, Engine, Mode, Panel, State, Ui};
use super::text;
use crate::link::protocol::{Answer, Ask, Selection, VERDICTS};

const SPEED_STEP: f64 = 3.0;
const SPEED_MIN: f64 = 0.001;
const SPEED_MAX: f64 = 1_000.0;
/// Instants of a run that are judged.
const DANGER_COLUMNS: u32 = 64;

impl State {
    pub(super) fn act(&mut self, act: Act) -> Vec<Effect> {
        match act {
            Act::Play => self.play(),
            Act::Step(forward) => self.step(self.unit, forward),
            Act::Commit(forward) => self.step(crate::link::protocol::StepUnit::Commit, forward),
            Act::Mark(forward) => self.mark(forward),
            Act::Start => self.reduce(Action::Seek(0)),
            Act::End => self.reduce(Action::Seek(u64::MAX)),
            Act::PullPlug => self.pull_plug(),
            Act::Undo => self.take_back(),
            Act::Switch(n) => self.switch(n),
            Act::Run => self.run(),
            Act::CopyLink => vec![Effect::CopyLink],
            Act::Panel(forward) => self.next_panel(forward),
            Act::Speak => self.speak(),
            Act::Bench => {
                self.set(act);
                self.judge_instants()
            }
            Act::Ab | Act::AbRun | Act::AbNoise | Act::AbStop => self.act_ab(act),
            Act::Describe => {
                self.said = self.describe();
                Vec::new()
            }
            other => {
                self.set(other);
                Vec::new()
            }
        }
    }

    /// Actions that only change how the page looks.
    fn set(&mut self, act: Act) {
        match act {
            Act::Speed(faster) => self.faster(faster),
            Act::TypeTime => self.dialog = Some(Dialog::Time),
            Act::Goto => self.dialog = Some(Dialog::Goto),
            Act::Share => self.dialog = Some(Dialog::Share),
            Act::Save => self.dialog = Some(Dialog::Save),
            Act::Help => self.toggle_dialog(Dialog::Help),
            Act::Palette => self.toggle_dialog(Dialog::Palette),
            Act::Recover(forward) => self.recover(forward),
            Act::View => self.next_mode(),
            Act::Inspector => self.inspector = !self.inspector,
            Act::Hex => self.hex = !self.hex,
            Act::Projector => {
                self.theme = if self.theme == "projector" {
                    "auto"
                } else {
                    "projector"
                }
                .into();
            }
            Act::Theme => {
                self.theme = match self.theme.as_str() {
                    "light" => "dark",
                    "dark" => "projector",
                    "projector" => "auto",
                    _ => "light",
                }
                .into();
            }
            Act::Close => self.close(),
            Act::Zoom(true) => self.zoom_in(),
            Act::Zoom(false) | Act::Fit => self.zoom = None,
            Act::Unroll => self.unrolled = !self.unrolled,
            Act::Exact => self.exact = !self.exact,
            Act::Tid(forward) => self.next_tid(forward),
            Act::LogAxis => self.linear = !self.linear,
            Act::Bench => {
                self.ui = if self.ui == Ui::Bench {
                    Ui::Story
                } else {
                    Ui::Bench
                }
            }
            Act::Keys => self.keys = !self.keys,
            Act::Setup => self.setup = !self.setup,
            _ => {}
        }
    }

    fn toggle_dialog(&mut self, dialog: Dialog) {
        self.dialog = if self.dialog == Some(dialog) {
            None
        } else {
            Some(dialog)
        };
    }

    fn close(&mut self) {
        if self.dialog.take().is_some() {
            return;
        }
        if self.full.take().is_none() {
            self.zoom = None;
        }
    }

    fn zoom_in(&mut self) {
        if self.zoom.is_none() {
            let tile = self
                .view
                .map
                .as_ref()
                .and_then(|m| m.get(self.map_cursor as usize));
            self.zoom = Some(tile.map_or(0, |t| t.first_group));
            self.map_cursor = 0;
        }
    }

    fn play(&mut self) -> Vec<Effect> {
        self.playing = !self.playing;
        if !self.playing {
            return Vec::new();
        }
        self.drop_crash();
        self.want_ns = None;
        if self.at_ns >= self.progress.reachable_ns && self.progress.done {
            self.at_ns = 0;
        }
        if self.progress.running || self.progress.done || self.loaded.is_none() {
            return Vec::new();
        }
        vec![Effect::Ask(Ask::Run {
            until_ns: self.end_ns(),
        })]
    }

    fn run(&mut self) -> Vec<Effect> {
        self.remember();
        self.want_ns = Some(self.at_ns);
        let mut effects = self.load();
        effects.push(Effect::Push);
        effects
    }

    fn step(&mut self, unit: crate::link::protocol::StepUnit, forward: bool) -> Vec<Effect> {
        self.playing = false;
        if self.loaded.is_none() {
            return Vec::new();
        }
        self.drop_crash();
        vec![Effect::Ask(Ask::Step {
            at_ns: self.at_ns,
            unit,
            forward,
        })]
    }

    /// Marks are commits, flushes, and the instant of the scene.
    fn mark(&mut self, forward: bool) -> Vec<Effect> {
        let mut marks = vec![super::scenes::find(&self.scene).map_or(0, |s| s.at_ns)];
        if let Some(m) = &self.view.marks {
            marks.extend(m.commits.iter().map(|c| c.0));
        }
        marks.sort_unstable();
        let next = if forward {
            marks.into_iter().find(|m| *m > self.at_ns)
        } else {
            marks.into_iter().rev().find(|m| *m < self.at_ns)
        };
        next.map_or_else(Vec::new, |ns| self.reduce(Action::Seek(ns)))
    }

    fn pull_plug(&mut self) -> Vec<Effect> {
        self.playing = false;
        if self.crash.is_some() || !self.problems.is_empty() {
            return Vec::new();
        }
        if self.loaded.is_none() || self.on_the_way() {
            // Where the cursor is going, as soon as it is there.
            self.recut = true;
            self.said = format!(
                "The power will be cut at {}.",
                text::instant_short(self.want_ns.unwrap_or(self.at_ns))
            );
            return Vec::new();
        }
        self.cutting = true;
        vec![Effect::Ask(Ask::Crash {
            at_ns: self.at_ns,
            loss: self.loss.clone(),
        })]
    }

    fn take_back(&mut self) -> Vec<Effect> {
        if std::mem::take(&mut self.recut) {
            self.said = "The power stays on.".into();
            return Vec::new();
        }
        if self.crash.take().is_some() {
            self.recovery = 0;
            self.said = "The power cut is taken back.".into();
            return vec![Effect::Push];
        }
        let Some(past) = self.undo.pop() else {
            return Vec::new();
        };
        self.at_ns = past.at_ns;
        self.crash = past.crash;
        if self.running.as_ref() == Some(&past.experiment) {
            return Vec::new();
        }
        self.draft = past.experiment;
        self.want_ns = Some(past.at_ns);
        self.load()
    }

    fn switch(&mut self, n: u8) -> Vec<Effect> {
        let Some(switch) = self.switches.get(usize::from(n)).cloned() else {
            return Vec::new();
        };
        self.remember();
        switch.toggle(&mut self.draft);
        self.said = format!(
            "{}: {}.",
            switch.label,
            if switch.is_on(&self.draft) {
                "on"
            } else {
                "off"
            }
        );
        self.want_ns = Some(self.want_ns.unwrap_or(self.at_ns));
        let mut effects = self.load();
        effects.push(Effect::Push);
        effects
    }

    fn faster(&mut self, faster: bool) {
        let now = self.speed_now();
        self.speed = if faster {
            if now <= 0.0 || now * SPEED_STEP > SPEED_MAX {
                0.0
            } else {
                now * SPEED_STEP
            }
        } else if now <= 0.0 {
            SPEED_MAX
        } else {
            (now / SPEED_STEP).max(SPEED_MIN)
        };
        self.said = format!(
            "Speed {}: {}.",
            text::speed(self.speed),
            text::speed_sentence(self.speed)
        );
    }

    fn recover(&mut self, forward: bool) {
        let Some(crash) = &self.crash else { return };
        self.recovery = if forward {
            (self.recovery + 1).min(crash.steps.len())
        } else {
            self.recovery.saturating_sub(1)
        };
        if let Some(step) = self
            .recovery
            .checked_sub(1)
            .and_then(|i| crash.steps.get(i))
        {
            self.said = format!("{}: {}", step.title, step.sentence);
        }
    }

    fn next_mode(&mut self) {
        let panel = self.focus.unwrap_or(Panel::Map);
        let next = match self.mode(panel) {
            Mode::Picture => Mode::Table,
            Mode::Table => Mode::Log,
            Mode::Log => Mode::Picture,
        };
        self.set_mode(panel, next);
    }

    fn next_tid(&mut self, forward: bool) {
        let Some(journal) = &self.view.journal else {
            return;
        };
        let tids: Vec<u32> = journal.transactions.iter().map(|t| t.tid).collect();
        let now = match self.selection {
            Some(Selection::Tid(tid)) => tids.iter().position(|t| *t == tid),
            _ => None,
        };
        let next = match (now, forward) {
            (None, true) => tids.first(),
            (None, false) => tids.last(),
            (Some(i), true) => tids.get(i + 1),
            (Some(i), false) => i.checked_sub(1).and_then(|i| tids.get(i)),
        };
        if let Some(tid) = next {
            self.selection = Some(Selection::Tid(*tid));
        }
    }

    fn next_panel(&mut self, forward: bool) -> Vec<Effect> {
        let mut order: Vec<Panel> = vec![Panel::Map, Panel::Loss];
        if self.ui != Ui::Story {
            order = self.slots.to_vec();
            order.push(Panel::Loss);
        }
        if self.crash.is_some() {
            order.push(Panel::Crash);
        }
        order.retain(|p| self.shows(*p));
        let now = self.focus.and_then(|f| order.iter().position(|p| *p == f));
        let len = order.len();
        let next = match (now, forward) {
            (None, _) => 0,
            (Some(i), true) => (i + 1) % len,
            (Some(i), false) => (i + len - 1) % len,
        };
        self.focus = Some(order[next]);
        vec![Effect::FocusPanel(order[next])]
    }

    fn speak(&mut self) -> Vec<Effect> {
        let next = self
            .view
            .log
            .as_ref()
            .and_then(|log| log.iter().find(|l| l.ns > self.at_ns).cloned());
        if let Some(line) = next {
            self.said = format!("{}. {}", text::instant(line.ns), line.sentence);
            self.reduce(Action::Seek(line.ns))
        } else {
            self.said = "Nothing happens after this.".into();
            Vec::new()
        }
    }

    /// Two or three sentences about the panel that has focus.
    fn describe(&self) -> String {
        let panel = self.focus.unwrap_or(Panel::Map);
        let mut out = format!("{}. ", self.title(panel));
        if let Some(loss) = self.view.loss.as_ref() {
            let promises = text::count(u64::from(loss.worst.broken), "promise", "promises");
            out = out + "If the power failed now, " + &promises + " would break. ";
        }
        if let Some(crash) = &self.crash {
            for survivor in crash.survivors.iter().take(3) {
                let verdict = VERDICTS.get(usize::from(survivor.verdict)).unwrap_or(&"");
                out = out + &survivor.path + ": " + verdict + ". ";
            }
        }
        out
    }

    pub(super) fn answer(&mut self, answer: Answer) -> Vec<Effect> {
        match answer {
            Answer::Hello { version } => {
                self.engine = Engine::Ready(version);
                self.load()
            }
            Answer::Loaded(loaded) => {
                self.loaded = Some(Rc::new(*loaded));
                self.view = super::store::View::default();
                self.zoom = self.first_zoom();
                let until = self.draft.until_ns.max(self.want_ns.unwrap_or(0)).max(1);
                vec![Effect::Ask(Ask::Run { until_ns: until })]
            }
            Answer::Problems(problems) => {
                self.recut = false;
                self.ab.running = false;
                self.said = text::count(problems.len() as u64, "problem", "problems")
                    + " in the experiment.";
                self.problems = problems;
                Vec::new()
            }
            Answer::Progress(progress) => self.progressed(progress),
            Answer::Frame(frame) => {
                self.view.take(*frame);
                Vec::new()
            }
            Answer::Stepped(Some(ns)) => {
                self.at_ns = ns.min(self.progress.reachable_ns.max(ns));
                self.want_ns = None;
                Vec::new()
            }
            Answer::Stepped(None) => Vec::new(),
            Answer::Crash(crash) => self.crashed(*crash),
            Answer::Danger(judged, _) => {
                let danger = Rc::make_mut(&mut self.danger);
                danger.extend(judged);
                danger.sort_by_key(|d| d.at_ns);
                Vec::new()
            }
            Answer::Compared(comparison) => {
                self.compared(*comparison);
                Vec::new()
            }
            Answer::Export(export) => {
                let export = Rc::new(*export);
                self.export = Some(export.clone());
                vec![Effect::Download(export)]
            }
            Answer::Refused(reason) => {
                self.cutting = false;
                self.said.clone_from(&reason);
                self.refusal = reason;
                Vec::new()
            }
            Answer::Panic(message) => self.reduce(Action::WorkerDied(message)),
        }
    }

    fn progressed(&mut self, progress: crate::link::protocol::Progress) -> Vec<Effect> {
        self.progress = progress;
        if let Some(want) = self.want_ns {
            self.at_ns = want.min(self.progress.reachable_ns);
            if self.progress.reachable_ns >= want || self.progress.done {
                self.want_ns = None;
            }
        }
        if self.recut && self.want_ns.is_none() {
            self.recut = false;
            return self.pull_plug();
        }
        self.judge_instants()
    }

    /// Once the run is over its instants are judged, where there is a strip to show them.
    fn judge_instants(&mut self) -> Vec<Effect> {
        let idle =
            self.loaded.is_some() && !self.progress.running && self.progress.reachable_ns > 0;
        if self.ui != Ui::Bench || self.judging || !idle {
            return Vec::new();
        }
        self.judging = true;
        vec![Effect::Ask(Ask::Danger {
            to_ns: self.progress.reachable_ns,
            columns: DANGER_COLUMNS,
        })]
    }

    fn crashed(&mut self, crash: crate::link::protocol::Crash) -> Vec<Effect> {
        self.cutting = false;
        self.story_seen = true;
        let broken = crash.survivors.iter().filter(|s| s.broken).count() as u64;
        let intact = crash.survivors.iter().filter(|s| s.verdict == 0).count();
        self.said = format!(
            "The power is cut at {}. {} of {} intact, {} broken.",
            text::instant_short(crash.cut_ns),
            intact,
            text::count(crash.survivors.len() as u64, "file", "files"),
            text::count(broken, "promise", "promises"),
        );
        self.recovery = crash.steps.len();
        self.crash = Some(Rc::new(crash));
        vec![Effect::Push]
    }
}
