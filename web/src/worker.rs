//! The worker: owns the engine's session, runs it in slices and answers the page between them.

mod danger;
mod mail;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use fsglass::config;
use fsglass::session::{Compare, Session};
use fsglass_web::link::protocol::{
    Answer, Ask, CompareAsk, Experiment, Loaded, Problem, Progress, Question, Reply,
};
use fsglass_web::link::wire::Message as _;
use wasm_bindgen::closure::Closure;
use wasm_bindgen::{JsCast, JsValue};
use web_sys::{DedicatedWorkerGlobalScope, MessageChannel, MessageEvent, MessagePort};

/// A slice of engine time between two looks at the mailbox, ms.
const SLICE_MS: f64 = 12.0;
/// Events of the scheduler between two looks at the clock.
const EVENTS_PER_LOOK: u64 = 4_000;
/// Progress is told at most this often while running, ms.
const PROGRESS_MS: f64 = 60.0;

thread_local! {
    /// After a panic nothing of the engine can be trusted: questions are no longer answered.
    static DEAD: Cell<bool> = const { Cell::new(false) };
}

/// The engine and where its run is to stop.
#[derive(Default)]
struct Engine {
    session: Option<Session>,
    compare: Option<Compare>,
    danger: danger::Task,
    until_ns: u64,
    running: bool,
    told_ms: f64,
}

/// What the closures share.
struct Desk {
    scope: DedicatedWorkerGlobalScope,
    engine: RefCell<Engine>,
    bell: MessagePort,
    /// Rings the bell.
    later: Closure<dyn FnMut()>,
}

impl Desk {
    fn post(&self, id: u32, answer: Answer) {
        send(&self.scope, Reply { id, answer });
    }

    fn now_ms(&self) -> f64 {
        self.scope.performance().map_or(0.0, |p| p.now())
    }

    /// Rings for the next slice, behind every question that is already waiting.
    fn ring(&self) {
        let _ = self.bell.post_message(&JsValue::NULL);
    }

    fn answer(&self, id: u32, ask: Ask) {
        match ask {
            Ask::Load(experiment) => self.load(id, &experiment, None),
            Ask::LoadImage { experiment, image } => self.load(id, &experiment, Some(&image)),
            Ask::Run { until_ns } => self.run(until_ns),
            Ask::Pause => self.engine.borrow_mut().running = false,
            Ask::Compare(ask) => self.compare(id, &ask),
            Ask::Danger { to_ns, columns } => {
                self.engine.borrow_mut().danger = danger::Task::new(to_ns, columns);
                self.ring();
            }
            Ask::EndCompare => self.engine.borrow_mut().compare = None,
            other => {
                let answer = self.look(other);
                self.post(id, answer);
            }
        }
    }

    fn load(&self, id: u32, experiment: &Experiment, image: Option<&[u8]>) {
        let mut engine = self.engine.borrow_mut();
        *engine = Engine::default();
        let answer = match load(experiment, image) {
            Ok((session, loaded)) => {
                engine.session = Some(session);
                Answer::Loaded(Box::new(loaded))
            }
            Err(problems) => Answer::Problems(problems),
        };
        drop(engine);
        self.post(id, answer);
    }

    fn run(&self, until_ns: u64) {
        let mut engine = self.engine.borrow_mut();
        if engine.session.is_none() {
            return;
        }
        engine.until_ns = engine.until_ns.max(until_ns);
        engine.told_ms = self.now_ms();
        if !engine.running {
            engine.running = true;
            self.ring();
        }
    }

    fn compare(&self, id: u32, ask: &CompareAsk) {
        let compare = configured(&ask.a).and_then(|a| {
            let b = configured(&ask.b)?;
            Compare::load(&a, &b, ask.seeds, ask.length_ns, ask.noise)
        });
        match compare {
            Ok(compare) => {
                self.engine.borrow_mut().compare = Some(compare);
                self.ring();
            }
            Err(problems) => self.post(id, Answer::Problems(spoken(problems))),
        }
    }

    /// One slice of whatever is to be done: the run first, then the comparison, then the instants of the run.
    fn slice(&self) {
        let (running, comparing) = {
            let engine = self.engine.borrow();
            (engine.running, engine.compare.is_some())
        };
        match (running, comparing) {
            (true, _) => self.run_slice(),
            (_, true) => self.compare_slice(),
            _ => self.danger_slice(),
        }
    }

    fn danger_slice(&self) {
        let mut engine = self.engine.borrow_mut();
        let Engine {
            session: Some(session),
            danger,
            ..
        } = &mut *engine
        else {
            return;
        };
        let start = self.now_ms();
        let told = danger.step(|at, states| session.danger(at, states), || self.now_ms());
        let more = !danger.is_over();
        drop(engine);
        if let Some(judged) = told {
            self.post(0, Answer::Danger(judged, !more));
        }
        if more {
            self.rest(self.now_ms() - start);
        }
    }

    /// Rings later, so that idle work leaves half of the time to questions.
    fn rest(&self, ms: f64) {
        let _ = self
            .scope
            .set_timeout_with_callback_and_timeout_and_arguments_0(
                self.later.as_ref().unchecked_ref(),
                ms.min(200.0) as i32,
            );
    }

    fn compare_slice(&self) {
        let mut engine = self.engine.borrow_mut();
        let Some(compare) = &mut engine.compare else {
            return;
        };
        let start = self.now_ms();
        let mut state = Ok(false);
        while state == Ok(false) && self.now_ms() - start < SLICE_MS {
            state = compare.run(EVENTS_PER_LOOK);
        }
        let over = state != Ok(false);
        let tell = over || start - engine.told_ms >= PROGRESS_MS;
        let view = engine.compare.as_ref().map(Compare::view);
        if tell {
            engine.told_ms = start;
        }
        if over {
            engine.compare = None;
        }
        let more = !over || !engine.danger.is_over();
        drop(engine);
        match (state, view) {
            (Err(reason), _) => self.post(0, Answer::Refused(reason)),
            (_, Some(view)) if tell => self.post(0, Answer::Compared(Box::new(view))),
            _ => {}
        }
        if more {
            self.ring();
        }
    }

    /// One slice of the run.
    fn run_slice(&self) {
        let mut engine = self.engine.borrow_mut();
        let Engine {
            session: Some(session),
            until_ns,
            running,
            told_ms,
            compare,
            danger,
        } = &mut *engine
        else {
            return;
        };
        if !*running {
            return;
        }
        let start = self.now_ms();
        let progress = loop {
            let progress = session.run(*until_ns, EVENTS_PER_LOOK);
            if !progress.running {
                *running = false;
                break progress;
            }
            if self.now_ms() - start >= SLICE_MS {
                break progress;
            }
        };
        let now = self.now_ms();
        let tell = !*running || now - *told_ms >= PROGRESS_MS;
        if tell {
            *told_ms = now;
        }
        let goes_on = *running;
        let more = goes_on || compare.is_some() || !danger.is_over();
        let failure = if goes_on { None } else { session.failure() };
        drop(engine);
        if let Some(reason) = failure {
            self.post(0, Answer::Refused(reason));
        }
        if tell {
            self.post(
                0,
                Answer::Progress(Progress {
                    running: goes_on,
                    ..progress
                }),
            );
        }
        if more {
            self.ring();
        }
    }

    /// Questions about instants that have run.
    fn look(&self, ask: Ask) -> Answer {
        let mut engine = self.engine.borrow_mut();
        let Some(session) = &mut engine.session else {
            return Answer::Refused("no experiment is loaded".into());
        };
        let refused = Answer::Refused;
        match ask {
            Ask::Frame(ask) => Answer::Frame(Box::new(session.frame(&ask))),
            Ask::Step {
                at_ns,
                unit,
                forward,
            } => Answer::Stepped(session.step(at_ns, unit, forward)),
            Ask::Crash { at_ns, loss } => session
                .crash(at_ns, &loss)
                .map_or_else(refused, |c| Answer::Crash(Box::new(c))),
            Ask::Export {
                at_ns,
                loss,
                recovered,
            } => session
                .export(at_ns, &loss, recovered)
                .map_or_else(refused, |e| Answer::Export(Box::new(e))),
            _ => Answer::Refused("not a question about an instant".into()),
        }
    }
}

/// The experiment of the form as the engine's configuration; all problems at once.
fn configured(e: &Experiment) -> Result<config::Experiment, Vec<config::Problem>> {
    let mut out = config::Experiment {
        title: e.title.clone(),
        seed: e.seed,
        ..Default::default()
    };
    let mut problems = Vec::new();
    let mut set = |path: &str, value: &str| problems.extend(out.set(path, value).err());
    let mut device = e.device.split(',').map(str::trim);
    set("device.preset", device.next().unwrap_or_default());
    set("device.size", e.size.trim());
    for pair in device.filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        // `machine.ram=4G` is a path of its own; a bare key is one of the device.
        let path = if key.contains('.') {
            key.to_string()
        } else {
            format!("device.{key}")
        };
        set(&path, value);
    }
    set("mkfs.opts", e.mkfs.trim());
    set("mount.options", e.mount.trim());
    set(&format!("workload.{}", e.kind), &e.workload);
    if problems.is_empty() {
        Ok(out)
    } else {
        Err(problems)
    }
}

fn load(e: &Experiment, image: Option<&[u8]>) -> Result<(Session, Loaded), Vec<Problem>> {
    let loaded = configured(e).and_then(|configured| match image {
        None => Session::load(&configured),
        Some(bytes) => Session::load_image(&configured, bytes),
    });
    loaded.map_err(spoken)
}

/// Problems under the names of the form's fields.
fn spoken(problems: Vec<config::Problem>) -> Vec<Problem> {
    let field = |p: config::Problem| Problem {
        path: match p.path.as_str() {
            "device.size" => "size".into(),
            _ => p.path,
        },
        line: p.line.unwrap_or(0),
        reason: p.reason,
    };
    problems.into_iter().map(field).collect()
}

fn send(scope: &DedicatedWorkerGlobalScope, reply: Reply) {
    match reply.pack() {
        Ok(packed) => {
            let (letter, moved) = mail::letter(&packed);
            let _ = scope.post_message_with_transfer(&letter, &moved);
        }
        Err(e) => {
            web_sys::console::error_1(&format!("an answer could not be sent: {e}").into());
        }
    }
}

fn scope() -> DedicatedWorkerGlobalScope {
    js_sys::global().unchecked_into()
}

/// Tells the page what failed before the module stops for good.
fn panicked(message: &std::panic::PanicHookInfo<'_>) {
    console_error_panic_hook::hook(message);
    if DEAD.replace(true) {
        return;
    }
    let reply = Reply {
        id: 0,
        answer: Answer::Panic(format!("the engine failed: {message}")),
    };
    send(&scope(), reply);
}

fn main() {
    std::panic::set_hook(Box::new(panicked));
    let Ok(channel) = MessageChannel::new() else {
        return;
    };
    let bell = channel.port2();
    let rung = bell.clone();
    let desk = Rc::new(Desk {
        scope: scope(),
        engine: RefCell::default(),
        bell,
        later: Closure::new(move || {
            let _ = rung.post_message(&JsValue::NULL);
        }),
    });
    let slices = Rc::clone(&desk);
    let onring = Closure::<dyn FnMut(MessageEvent)>::new(move |_: MessageEvent| {
        if !DEAD.get() {
            slices.slice();
        }
    });
    channel
        .port1()
        .set_onmessage(Some(onring.as_ref().unchecked_ref()));
    onring.forget();
    let questions = Rc::clone(&desk);
    let onmessage = Closure::<dyn FnMut(MessageEvent)>::new(move |e: MessageEvent| {
        if DEAD.get() {
            return;
        }
        match Question::unpack(mail::opened(&e.data())) {
            Ok(question) => questions.answer(question.id, question.ask),
            Err(e) => questions.post(
                0,
                Answer::Refused(format!("a question could not be read: {e}")),
            ),
        }
    });
    desk.scope
        .set_onmessage(Some(onmessage.as_ref().unchecked_ref()));
    onmessage.forget();
    desk.post(
        0,
        Answer::Hello {
            version: env!("CARGO_PKG_VERSION").into(),
        },
    );
}
