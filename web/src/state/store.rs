//! The state of the page and its one reducer: actions in, effects out, no browser.

use std::rc::Rc;

use super::ab::{self, Ab};
use super::act::Act;
use super::commands;
use super::recipe::Recipe;
use super::scenes::{self, Switch};
use super::text;
use crate::link::protocol::{
    Answer, Ask, Crash, Danger, Experiment, Export, Frame, FrameAsk, GroupMap, Inspect, ItableMap,
    Journal, JournalBlock, Loaded, LogLine, Loss, LossModel, Marks, Metrics, Problem, Progress,
    Report, Selection, StepUnit, Tile, TreeRow, Window,
};

/// Columns of the time panels; the scrubber uses the same number so that they share one axis.
pub const COLUMNS: u32 = 240;
/// Most tiles on map level 0.
pub const TILES_MAX: u32 = 2_048;
const NANOS_PER_MS: f64 = 1e6;
/// *auto* plays the whole scene in this time.
const AUTO_PLAY_S: f64 = 12.0;
const UNDO_MAX: usize = 64;
/// Panels of a fresh bench.
const SLOTS: [Panel; 5] = [
    Panel::Map,
    Panel::Ring,
    Panel::Heat,
    Panel::Tree,
    Panel::Hex,
];

/// A panel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Panel {
    /// Disk map.
    Map,
    /// Journal ring.
    Ring,
    /// Inode tables.
    Itable,
    /// Throughput, latency heat map, fio text.
    Heat,
    /// Write-amplification ledger.
    Amp,
    /// File tree.
    Tree,
    /// Structure inspector.
    Hex,
    /// Two settings compared.
    Ab,
    /// Recovery and survivors.
    Crash,
    /// If the power failed now.
    Loss,
}

impl Panel {
    /// All that can stand in a slot.
    pub const SLOTTED: [Self; 8] = [
        Self::Map,
        Self::Ring,
        Self::Itable,
        Self::Heat,
        Self::Amp,
        Self::Tree,
        Self::Hex,
        Self::Ab,
    ];

    /// Value of `data-panel`.
    pub fn id(self) -> &'static str {
        match self {
            Self::Map => "map",
            Self::Ring => "ring",
            Self::Itable => "itable",
            Self::Heat => "heat",
            Self::Amp => "amp",
            Self::Tree => "tree",
            Self::Hex => "hex",
            Self::Ab => "ab",
            Self::Crash => "crash",
            Self::Loss => "loss",
        }
    }

    /// Name in menus.
    pub fn name(self) -> &'static str {
        match self {
            Self::Map => "Disk map",
            Self::Ring => "Journal",
            Self::Itable => "Inode tables",
            Self::Heat => "Throughput and latency",
            Self::Amp => "What a byte costs",
            Self::Tree => "Files",
            Self::Hex => "Inspector",
            Self::Ab => "A/B",
            Self::Crash => "Power cut",
            Self::Loss => "If the power failed now",
        }
    }

    /// Reads a `data-panel` value; `tput` is part of the heat panel.
    pub fn of_id(id: &str) -> Option<Self> {
        if id == "tput" {
            return Some(Self::Heat);
        }
        Self::SLOTTED
            .into_iter()
            .chain([Self::Crash, Self::Loss])
            .find(|p| p.id() == id)
    }
}

/// How a panel shows itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Canvas.
    #[default]
    Picture,
    /// The same as a table.
    Table,
    /// The same as sentences.
    Log,
}

/// What covers the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialog {
    /// Keys.
    Help,
    /// All actions.
    Palette,
    /// Link and embed.
    Share,
    /// Go to.
    Goto,
    /// Type a time.
    Time,
    /// Save images.
    Save,
}

/// How much of the page is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ui {
    /// One finding, one figure, one button.
    #[default]
    Story,
    /// Everything.
    Bench,
    /// An embedded figure.
    Mini,
}

impl Ui {
    fn of_word(word: &str) -> Self {
        match word {
            "story" => Self::Story,
            "mini" | "none" => Self::Mini,
            _ => Self::Bench,
        }
    }
}

/// The engine, as far as the page can know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Engine {
    /// On its way.
    #[default]
    Loading,
    /// There, with this version.
    Ready(String),
    /// Failed, with what it said.
    Failed(String),
}

/// Field of the setup form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Title.
    Title,
    /// Device.
    Device,
    /// Size.
    Size,
    /// mke2fs options.
    Mkfs,
    /// Mount options.
    Mount,
    /// The commands of Linux that mean both.
    Commands,
    /// `fio` or `ops`.
    Kind,
    /// Workload text.
    Workload,
    /// Seed.
    Seed,
    /// Length of the run.
    Until,
}

/// The latest of each part; parts age on their own.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Instant of the newest answer.
    pub at_ns: u64,
    /// Grows with every answer.
    pub stamp: u64,
    /// Map level 0.
    pub map: Option<Rc<Vec<Tile>>>,
    /// Map level 1.
    pub group: Option<Rc<GroupMap>>,
    /// Journal.
    pub journal: Option<Rc<Journal>>,
    /// Blocks of the selected transaction.
    pub tid_blocks: Option<Rc<Vec<JournalBlock>>>,
    /// Inode tables.
    pub itable: Option<Rc<ItableMap>>,
    /// Throughput and latency.
    pub metrics: Option<Rc<Metrics>>,
    /// Scrubber marks.
    pub marks: Option<Rc<Marks>>,
    /// Report.
    pub report: Option<Rc<Report>>,
    /// Files.
    pub tree: Option<Rc<Vec<TreeRow>>>,
    /// Meter.
    pub loss: Option<Rc<Loss>>,
    /// Sentences.
    pub log: Option<Rc<Vec<LogLine>>>,
    /// Structure.
    pub inspect: Option<Rc<Inspect>>,
}

impl View {
    pub(super) fn take(&mut self, frame: Frame) {
        fn put<T>(slot: &mut Option<Rc<T>>, part: Option<T>) {
            if let Some(part) = part {
                *slot = Some(Rc::new(part));
            }
        }
        self.at_ns = frame.at_ns;
        self.stamp += 1;
        put(&mut self.map, frame.map);
        put(&mut self.group, frame.group);
        put(&mut self.journal, frame.journal);
        put(&mut self.tid_blocks, frame.tid_blocks);
        put(&mut self.itable, frame.itable);
        put(&mut self.metrics, frame.metrics);
        put(&mut self.marks, frame.marks);
        put(&mut self.report, frame.report);
        put(&mut self.tree, frame.tree);
        put(&mut self.loss, frame.loss);
        put(&mut self.log, frame.log);
        put(&mut self.inspect, frame.inspect);
    }
}

#[derive(Clone, Debug)]
pub(super) struct Past {
    pub(super) experiment: Experiment,
    pub(super) crash: Option<Rc<Crash>>,
    pub(super) at_ns: u64,
}

/// Everything the page knows.
#[derive(Clone, Debug)]
pub struct State {
    /// Scene that the draft started from.
    pub scene: String,
    /// Its sentence.
    pub sentence: String,
    /// Its switches.
    pub switches: Vec<Switch>,
    /// What the form holds.
    pub draft: Experiment,
    /// The commands as the person types them.
    pub typed: Option<String>,
    /// What runs: differs from the draft while it is edited.
    pub running: Option<Experiment>,
    /// Image that the person chose instead of mkfs.
    pub image: Option<(String, Rc<Vec<u8>>)>,
    /// The loaded experiment.
    pub loaded: Option<Rc<Loaded>>,
    /// What is wrong with the draft.
    pub problems: Vec<Problem>,
    /// Engine.
    pub engine: Engine,
    /// Progress of the run.
    pub progress: Progress,
    /// The cursor, ns.
    pub at_ns: u64,
    /// Where the cursor wants to be once the run gets there.
    pub want_ns: Option<u64>,
    /// Whether the cursor moves by itself.
    pub playing: bool,
    /// Times real time; 0 is as fast as the engine goes; negative is *auto*.
    pub speed: f64,
    /// Unit of a step.
    pub unit: StepUnit,
    /// What is shown.
    pub view: View,
    /// The one selection.
    pub selection: Option<Selection>,
    /// Group on map level 1.
    pub zoom: Option<u32>,
    /// Block under the map's keyboard cursor, in the group; or tile on level 0.
    pub map_cursor: u32,
    /// A power cut.
    pub crash: Option<Rc<Crash>>,
    /// A cut is asked for.
    pub cutting: bool,
    /// Step of the recovery; 0 is before the first.
    pub recovery: usize,
    /// Loss model.
    pub loss: LossModel,
    /// Slots of the bench.
    pub slots: [Panel; 5],
    /// Modes of panels.
    pub modes: Vec<(Panel, Mode)>,
    /// Panel that has focus.
    pub focus: Option<Panel>,
    /// Panel that fills the bench.
    pub full: Option<Panel>,
    /// Story, bench or mini.
    pub ui: Ui,
    /// Tab on a phone.
    pub tab: Panel,
    /// Whether the setup is shown.
    pub setup: bool,
    /// Whether the inspector is shown.
    pub inspector: bool,
    /// Hexadecimal numbers.
    pub hex: bool,
    /// Ring unrolled.
    pub unrolled: bool,
    /// Map level 1 shows every block instead of folded runs.
    pub exact: bool,
    /// Latency on a linear axis.
    pub linear: bool,
    /// `light`, `dark`, `projector`, `auto`.
    pub theme: String,
    /// Legend roles that are faded; bit per role.
    pub faded: u8,
    /// Single keys work.
    pub keys: bool,
    /// Dialog.
    pub dialog: Option<Dialog>,
    /// Sentence for the live region.
    pub said: String,
    /// Why a wish was refused.
    pub refusal: String,
    /// The last export.
    pub export: Option<Rc<Export>>,
    /// Caption of an embed.
    pub caption: String,
    /// Instants of the run and what a power cut there can come to, in their order.
    pub danger: Rc<Vec<Danger>>,
    /// They were asked for.
    pub(super) judging: bool,
    /// Two settings compared.
    pub ab: Ab,
    /// Once a crash was seen, the story offers more.
    pub story_seen: bool,
    /// The plug is pulled as soon as the cursor is where it is going.
    pub(super) recut: bool,
    pub(super) undo: Vec<Past>,
}

fn place(slots: &mut [Panel; 5], ids: &str) {
    let ids = ids.split(',').filter(|p| !p.is_empty());
    for (slot, id) in slots.iter_mut().zip(ids) {
        *slot = Panel::of_id(id).unwrap_or(*slot);
    }
}

/// The slots of a scene whose panels are these.
fn slots_of(panels: &str) -> [Panel; 5] {
    let mut slots = SLOTS;
    place(&mut slots, panels);
    slots
}

impl State {
    /// The state that a link describes.
    pub fn of_recipe(recipe: &Recipe) -> Self {
        let scene = scenes::find(&recipe.scene).unwrap_or_default();
        let mut state = Self {
            scene: recipe.scene.clone(),
            sentence: scene.sentence,
            switches: scene.switches,
            draft: recipe.experiment.clone(),
            typed: None,
            running: None,
            image: None,
            loaded: None,
            problems: Vec::new(),
            engine: Engine::Loading,
            progress: Progress::default(),
            at_ns: 0,
            want_ns: Some(recipe.at_ns),
            playing: false,
            speed: -1.0,
            unit: StepUnit::Event,
            view: View::default(),
            selection: None,
            zoom: None,
            map_cursor: 0,
            crash: None,
            cutting: false,
            recovery: 0,
            loss: recipe.crash.clone().unwrap_or(LossModel::AllLost),
            slots: SLOTS,
            modes: Vec::new(),
            focus: None,
            full: None,
            ui: Ui::of_word(&recipe.ui),
            tab: Panel::Map,
            setup: true,
            inspector: true,
            hex: false,
            unrolled: false,
            exact: false,
            linear: false,
            theme: recipe.theme.clone(),
            faded: 0,
            keys: true,
            dialog: None,
            said: String::new(),
            refusal: String::new(),
            export: None,
            caption: recipe.caption.clone(),
            danger: Rc::default(),
            judging: false,
            ab: recipe.ab.clone(),
            story_seen: false,
            recut: recipe.crash.is_some(),
            undo: Vec::new(),
        };
        state.slots = slots_of(&scene.panels);
        state.place(&recipe.panels);
        state.zoom = state.first_zoom();
        state
    }

    /// Puts panels of a list of ids into the slots, in order.
    fn place(&mut self, ids: &str) {
        place(&mut self.slots, ids);
    }

    /// The link to this screen.
    pub fn recipe(&self) -> Recipe {
        let panels =
            if self.slots == slots_of(&scenes::find(&self.scene).unwrap_or_default().panels) {
                String::new()
            } else {
                self.slots.map(Panel::id).join(",")
            };
        Recipe {
            scene: self.scene.clone(),
            experiment: self.draft.clone(),
            at_ns: self.want_ns.unwrap_or(self.at_ns),
            panels,
            theme: self.theme.clone(),
            ui: match self.ui {
                Ui::Story => "story",
                Ui::Bench => "bench",
                Ui::Mini => "mini",
            }
            .into(),
            crash: (self.crash.is_some() || self.recut).then(|| self.loss.clone()),
            caption: self.caption.clone(),
            ab: Ab {
                running: false,
                result: None,
                ..self.ab.clone()
            },
        }
    }

    /// Value of `data-fsg`.
    pub fn phase(&self) -> &'static str {
        match &self.engine {
            Engine::Loading => "loading",
            Engine::Failed(_) => "error",
            Engine::Ready(_) if self.loaded.is_none() && !self.problems.is_empty() => "error",
            Engine::Ready(_) if self.loaded.is_none() => "loading",
            Engine::Ready(_) if self.progress.running || self.playing || self.on_the_way() => {
                "running"
            }
            Engine::Ready(_) if self.progress.done => "done",
            Engine::Ready(_) if self.progress.events > 0 => "paused",
            Engine::Ready(_) => "ready",
        }
    }

    /// The cursor has not yet arrived where a link or a scene wants it.
    pub(super) fn on_the_way(&self) -> bool {
        self.want_ns.is_some() && !self.progress.done
    }

    /// End of the time axis, ns.
    pub fn end_ns(&self) -> u64 {
        self.progress
            .end_ns
            .max(self.progress.reachable_ns)
            .max(self.draft.until_ns)
            .max(1)
    }

    /// Speed in force.
    pub fn speed_now(&self) -> f64 {
        if self.speed < 0.0 {
            self.end_ns() as f64 / 1e9 / AUTO_PLAY_S
        } else {
            self.speed
        }
    }

    /// Mode of a panel.
    pub fn mode(&self, panel: Panel) -> Mode {
        self.modes
            .iter()
            .find(|(p, _)| *p == panel)
            .map_or(Mode::Picture, |(_, m)| *m)
    }

    /// Sets a panel's mode.
    pub fn set_mode(&mut self, panel: Panel, mode: Mode) {
        self.modes.retain(|(p, _)| *p != panel);
        self.modes.push((panel, mode));
    }

    /// Whether a panel is on the screen.
    pub fn shows(&self, panel: Panel) -> bool {
        match (self.ui, panel) {
            (_, Panel::Loss) => true,
            (_, Panel::Crash) => self.crash.is_some(),
            (Ui::Story, p) => p == Panel::Map,
            (Ui::Mini, p) => self.slots[0] == p || self.slots[1] == p,
            (Ui::Bench, Panel::Hex) => self.inspector || self.tab == Panel::Hex,
            (Ui::Bench, p) => {
                self.full
                    .map_or_else(|| self.slots.contains(&p), |f| f == p)
                    || self.tab == p
            }
        }
    }

    pub(super) fn first_zoom(&self) -> Option<u32> {
        // A disk of one or two groups is shown block by block: tiles would say nothing.
        let groups = self.loaded.as_ref().map_or(1, |l| l.groups);
        (groups <= 2).then_some(0)
    }

    /// What is to be asked of the engine for this screen; heavy parts are left out at most frames while playing.
    pub fn wanted(&self, heavy: bool) -> FrameAsk {
        let whole = Window {
            from_ns: 0,
            to_ns: self.end_ns(),
            columns: COLUMNS,
        };
        let groups = self.loaded.as_ref().map_or(0, |l| l.groups);
        let logs = [
            Panel::Map,
            Panel::Ring,
            Panel::Heat,
            Panel::Itable,
            Panel::Tree,
        ]
        .into_iter()
        .any(|p| self.shows(p) && self.mode(p) == Mode::Log);
        let newest = self
            .view
            .journal
            .as_ref()
            .and_then(|j| j.transactions.last())
            .map(|t| t.tid);
        let tid = match self.selection {
            Some(Selection::Tid(tid)) => Some(tid),
            _ => newest,
        };
        FrameAsk {
            at_ns: self.at_ns,
            map: (self.shows(Panel::Map) && self.zoom.is_none()).then_some((0, groups, TILES_MAX)),
            group: self.zoom.filter(|_| self.shows(Panel::Map)),
            journal: self.shows(Panel::Ring),
            tid: tid.filter(|_| self.shows(Panel::Ring)),
            itable: heavy && self.shows(Panel::Itable),
            metrics: (heavy && self.shows(Panel::Heat)).then_some(whole),
            marks: (heavy && self.ui != Ui::Story).then_some(whole),
            report: heavy && (self.shows(Panel::Heat) || self.shows(Panel::Amp)),
            tree: heavy && (self.shows(Panel::Tree) || self.ui == Ui::Story),
            loss: heavy,
            log: (heavy && (logs || self.ui == Ui::Bench)).then_some((24, 8)),
            inspect: self
                .selection
                .clone()
                .filter(|_| heavy && self.shows(Panel::Hex)),
        }
    }
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Action {
    /// A key, a button or the palette.
    Act(Act),
    /// The worker says.
    Answer(Answer),
    /// Milliseconds of real time went by.
    Tick(f64),
    /// The cursor is put somewhere.
    Seek(u64),
    /// Selection.
    Select(Option<Selection>),
    /// A field of the form.
    Edit(Field, String),
    /// A named scene.
    Scene(String),
    /// A workload to start from.
    Preset(usize),
    /// A panel for a slot.
    Slot(usize, Panel),
    /// A mode for a panel.
    SetMode(Panel, Mode),
    /// Focus moved into a panel.
    Focus(Option<Panel>),
    /// Full slot.
    Full(Option<Panel>),
    /// A speed.
    SetSpeed(f64),
    /// A unit of stepping.
    SetUnit(StepUnit),
    /// A loss model.
    SetLoss(LossModel),
    /// A step of the recovery.
    Recovery(usize),
    /// A tab on a phone.
    Tab(Panel),
    /// Zoom to a group, or out.
    ZoomTo(Option<u32>),
    /// The map's cursor.
    MapCursor(u32),
    /// Fade or show a role.
    Fade(u8),
    /// Dialog.
    Open(Option<Dialog>),
    /// An image was chosen.
    Image(String, Rc<Vec<u8>>),
    /// A field of B.
    EditAb(ab::Edit),
    /// Save.
    Export(bool),
    /// Another link was opened in this tab.
    Link(Box<Recipe>),
    /// The worker could not be started or died.
    WorkerDied(String),
    /// Say something.
    Say(String),
}

/// What is to be done outside.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Ask the worker.
    Ask(Ask),
    /// A new entry in the history.
    Push,
    /// Copy the link.
    CopyLink,
    /// Files to save.
    Download(Rc<Export>),
    /// Move focus to a panel.
    FocusPanel(Panel),
}

impl State {
    /// The one door for changes.
    pub fn reduce(&mut self, action: Action) -> Vec<Effect> {
        match action {
            Action::Act(act) => self.act(act),
            Action::Answer(answer) => self.answer(answer),
            Action::Tick(ms) => self.tick(ms),
            Action::Seek(ns) => self.seek(ns),
            Action::Edit(field, value) => self.edit(field, value),
            Action::Scene(name) => self.scene(&name),
            Action::Preset(i) => {
                self.preset(i);
                Vec::new()
            }
            Action::Export(recovered) => {
                vec![Effect::Ask(Ask::Export {
                    at_ns: self.at_ns,
                    loss: self.loss.clone(),
                    recovered,
                })]
            }
            Action::Image(name, bytes) => {
                self.remember();
                self.image = Some((name, bytes));
                self.load()
            }
            Action::Link(recipe) => {
                let engine = self.engine.clone();
                let keys = self.keys;
                *self = Self {
                    engine,
                    keys,
                    ..Self::of_recipe(&recipe)
                };
                self.load()
            }
            Action::WorkerDied(message) => {
                // The first message says what failed; what follows are its consequences.
                if !matches!(self.engine, Engine::Failed(_)) {
                    self.engine = Engine::Failed(message);
                }
                self.playing = false;
                Vec::new()
            }
            other => {
                self.arrange(other);
                Vec::new()
            }
        }
    }

    /// Changes of the layout and of small settings; none of them has an effect outside.
    fn arrange(&mut self, action: Action) {
        match action {
            Action::Select(selection) => self.select(selection),
            Action::Slot(slot, panel) => {
                if let Some(old) = self.slots.iter().position(|p| *p == panel) {
                    self.slots.swap(old, slot);
                } else {
                    self.slots[slot] = panel;
                }
            }
            Action::SetMode(panel, mode) => self.set_mode(panel, mode),
            Action::Focus(panel) => self.focus = panel,
            Action::Full(panel) => self.full = panel,
            Action::SetSpeed(speed) => self.speed = speed,
            Action::SetUnit(unit) => self.unit = unit,
            Action::SetLoss(loss) => self.loss = loss,
            Action::Recovery(step) => self.recovery = step,
            Action::Tab(panel) => {
                self.tab = panel;
                if !self.slots.contains(&panel) {
                    self.slots[2] = panel;
                }
            }
            Action::EditAb(edit) => self.edit_ab(edit),
            Action::ZoomTo(group) => {
                self.zoom = group;
                self.map_cursor = 0;
            }
            Action::MapCursor(cursor) => self.map_cursor = cursor,
            Action::Fade(role) => self.faded ^= 1 << role,
            Action::Open(dialog) => {
                self.dialog = dialog;
                self.export = None;
            }
            Action::Say(sentence) => self.said = sentence,
            _ => {}
        }
    }

    fn select(&mut self, selection: Option<Selection>) {
        if let (Some(Selection::Block(block)), Some(loaded)) = (&selection, &self.loaded) {
            let per_group = u64::from(loaded.blocks_per_group.max(1));
            // With 1 KiB blocks group 0 begins at block 1; the offset is the same for all groups.
            let first = u64::from(loaded.block_size == 1024);
            let in_groups = block.saturating_sub(first);
            if self.zoom.is_some() {
                self.zoom = Some((in_groups / per_group) as u32);
                self.map_cursor = (in_groups % per_group) as u32;
            }
        }
        self.selection = selection;
    }

    pub(super) fn remember(&mut self) {
        self.undo.push(Past {
            experiment: self.running.clone().unwrap_or_else(|| self.draft.clone()),
            crash: self.crash.clone(),
            at_ns: self.at_ns,
        });
        if self.undo.len() > UNDO_MAX {
            self.undo.remove(0);
        }
    }

    pub(super) fn load(&mut self) -> Vec<Effect> {
        self.problems.clear();
        self.typed = None;
        if self.running.is_some() {
            // Before the first run it may say why a link could not be opened.
            self.refusal.clear();
        }
        self.playing = false;
        self.crash = None;
        self.recovery = 0;
        // The worker drops it with the run before.
        self.ab.running = false;
        self.danger = Rc::default();
        self.judging = false;
        if !matches!(self.engine, Engine::Ready(_)) {
            return Vec::new();
        }
        self.want_ns = Some(self.want_ns.unwrap_or(self.at_ns));
        self.loaded = None;
        self.progress = Progress::default();
        let experiment = self.draft.clone();
        self.running = Some(experiment.clone());
        let ask = match &self.image {
            Some((_, bytes)) => Ask::LoadImage {
                experiment,
                image: bytes.to_vec(),
            },
            None => Ask::Load(experiment),
        };
        vec![Effect::Ask(ask)]
    }

    fn scene(&mut self, name: &str) -> Vec<Effect> {
        let Some(recipe) = Recipe::of_scene(name) else {
            return Vec::new();
        };
        let scene = scenes::find(name).unwrap_or_default();
        self.remember();
        self.scene = name.into();
        self.slots = slots_of(&scene.panels);
        self.sentence = scene.sentence;
        self.switches = scene.switches;
        self.draft = recipe.experiment;
        self.ab = recipe.ab;
        self.image = None;
        self.want_ns = Some(recipe.at_ns);
        self.at_ns = 0;
        self.selection = None;
        let mut effects = self.load();
        effects.push(Effect::Push);
        effects
    }

    fn edit(&mut self, field: Field, value: String) -> Vec<Effect> {
        self.typed = None;
        let d = &mut self.draft;
        match field {
            Field::Title => d.title = value,
            Field::Device => d.device = value,
            Field::Size => d.size = value,
            Field::Mkfs => d.mkfs = value,
            Field::Mount => d.mount = value,
            Field::Commands => {
                let (mkfs, mount) = commands::read(&value);
                d.mkfs = mkfs.unwrap_or(std::mem::take(&mut d.mkfs));
                d.mount = mount.unwrap_or(std::mem::take(&mut d.mount));
                // As typed while it is typed: what it means may be spelled another way.
                self.typed = Some(value);
                return Vec::new();
            }
            Field::Kind => d.kind = value,
            Field::Workload => d.workload = value,
            Field::Seed => d.seed = value.trim().parse().unwrap_or(d.seed),
            Field::Until => d.until_ns = text::parse_instant(&value).unwrap_or(d.until_ns),
        }
        Vec::new()
    }

    fn seek(&mut self, ns: u64) -> Vec<Effect> {
        let ns = ns.min(self.end_ns());
        self.playing = false;
        self.drop_crash();
        if ns > self.progress.reachable_ns {
            self.want_ns = Some(ns);
            self.at_ns = self.progress.reachable_ns;
            if !self.progress.running && !self.progress.done && self.loaded.is_some() {
                return vec![Effect::Ask(Ask::Run { until_ns: ns })];
            }
        } else {
            self.want_ns = None;
            self.at_ns = ns;
        }
        Vec::new()
    }

    pub(super) fn drop_crash(&mut self) {
        if self.crash.is_some() {
            self.remember();
            self.crash = None;
            self.recovery = 0;
        }
    }

    fn tick(&mut self, ms: f64) -> Vec<Effect> {
        if !self.playing {
            return Vec::new();
        }
        let speed = self.speed_now();
        let reachable = self.progress.reachable_ns;
        self.at_ns = if speed <= 0.0 {
            reachable
        } else {
            (self.at_ns + (ms.clamp(0.0, 250.0) * NANOS_PER_MS * speed) as u64).min(reachable)
        };
        if self.at_ns >= reachable && !self.progress.running {
            self.playing = false;
            self.said = format!("The end, {}.", text::instant_short(self.at_ns));
        }
        Vec::new()
    }
}
