//! The worker: owns the engine's session, runs it in slices and answers the page between them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use fsglass::config;
use fsglass::session::Session;
use fsglass_web::link::protocol::{
    Answer, Ask, Experiment, Loaded, Problem, Progress, Question, Reply,
};
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
    until_ns: u64,
    running: bool,
    told_ms: f64,
}

/// What the closures share.
struct Desk {
    scope: DedicatedWorkerGlobalScope,
    engine: RefCell<Engine>,
    bell: MessagePort,
}

impl Desk {
    fn post(&self, id: u32, answer: Answer) {
        match serde_wasm_bindgen::to_value(&Reply { id, answer }) {
            Ok(value) => {
                let _ = self.scope.post_message(&value);
            }
            Err(e) => {
                web_sys::console::error_1(&format!("an answer could not be sent: {e}").into());
            }
        }
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

    /// One slice of the run.
    fn slice(&self) {
        let mut engine = self.engine.borrow_mut();
        let Engine {
            session: Some(session),
            until_ns,
            running,
            told_ms,
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
        if goes_on {
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
            Ask::Load(_) | Ask::LoadImage { .. } | Ask::Run { .. } | Ask::Pause => {
                Answer::Refused("not a question about an instant".into())
            }
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
    let spoken = |p: config::Problem| Problem {
        path: match p.path.as_str() {
            "device.size" => "size".into(),
            _ => p.path,
        },
        line: p.line.unwrap_or(0),
        reason: p.reason,
    };
    loaded.map_err(|problems| problems.into_iter().map(spoken).collect())
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
    if let Ok(value) = serde_wasm_bindgen::to_value(&reply) {
        let _ = scope().post_message(&value);
    }
}

fn main() {
    std::panic::set_hook(Box::new(panicked));
    let Ok(channel) = MessageChannel::new() else {
        return;
    };
    let desk = Rc::new(Desk {
        scope: scope(),
        engine: RefCell::default(),
        bell: channel.port2(),
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
        match serde_wasm_bindgen::from_value::<Question>(e.data()) {
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
