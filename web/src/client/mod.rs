//! The page's end of the line to the worker: starts it, sends questions, drops answers that nobody wants any more.

use std::cell::RefCell;
use std::rc::Rc;

use fsglass_web::link::protocol::{Answer, Ask, FrameAsk, Question, Reply};
use fsglass_web::link::wire::Message as _;
use wasm_bindgen::closure::Closure;
use wasm_bindgen::JsCast;
use web_sys::{ErrorEvent, MessageEvent, Worker, WorkerOptions, WorkerType};
use yew::Callback;

use crate::mail;

/// What comes back.
pub(crate) enum News {
    /// An answer.
    Answer(Answer),
    /// The worker could not be started, or died.
    Died(String),
}

/// The line.
pub(crate) struct Link {
    worker: Worker,
    next_id: RefCell<u32>,
    frame: Rc<RefCell<FrameLine>>,
    _onmessage: Closure<dyn FnMut(MessageEvent)>,
    _onerror: Closure<dyn FnMut(ErrorEvent)>,
}

/// One frame is on its way at most; wishes in between are forgotten, the newest is asked for when it is back.
#[derive(Default)]
struct FrameLine {
    in_flight: Option<u32>,
    last: Option<FrameAsk>,
}

impl Link {
    /// Starts the worker that lies beside the page.
    pub(crate) fn start(base: &str, news: &Callback<News>) -> Result<Self, String> {
        let options = WorkerOptions::new();
        options.set_type(WorkerType::Module);
        options.set_name("fsglass engine");
        let worker = Worker::new_with_options(&format!("{base}engine.js"), &options)
            .map_err(|e| format!("the worker could not be started: {e:?}"))?;
        let frame: Rc<RefCell<FrameLine>> = Rc::default();
        let onmessage = {
            let (frame, news) = (frame.clone(), news.clone());
            Closure::<dyn FnMut(MessageEvent)>::new(move |e: MessageEvent| {
                match Reply::unpack(mail::opened(&e.data())) {
                    Ok(reply) => {
                        let mut line = frame.borrow_mut();
                        if line.in_flight == Some(reply.id) {
                            line.in_flight = None;
                        }
                        drop(line);
                        news.emit(News::Answer(reply.answer));
                    }
                    Err(e) => news.emit(News::Died(format!(
                        "an answer of the worker could not be read: {e}"
                    ))),
                }
            })
        };
        let onerror = {
            let news = news.clone();
            Closure::<dyn FnMut(ErrorEvent)>::new(move |e: ErrorEvent| {
                news.emit(News::Died(format!(
                    "{} ({}:{})",
                    e.message(),
                    e.filename(),
                    e.lineno()
                )));
            })
        };
        worker.set_onmessage(Some(onmessage.as_ref().unchecked_ref()));
        worker.set_onerror(Some(onerror.as_ref().unchecked_ref()));
        Ok(Self {
            worker,
            next_id: RefCell::new(1),
            frame,
            _onmessage: onmessage,
            _onerror: onerror,
        })
    }

    /// Asks anything but a frame.
    pub(crate) fn ask(&self, ask: Ask) {
        if matches!(ask, Ask::Load(_) | Ask::LoadImage { .. }) {
            // Frames of the run before are no longer wanted, and the first of the new one must be asked for.
            *self.frame.borrow_mut() = FrameLine::default();
        }
        self.post(ask);
    }

    fn post(&self, ask: Ask) -> u32 {
        let mut next = self.next_id.borrow_mut();
        let id = *next;
        *next += 1;
        match (Question { id, ask }).pack() {
            Ok(packed) => {
                let (letter, moved) = mail::letter(&packed);
                let _ = self.worker.post_message_with_transfer(&letter, &moved);
            }
            Err(e) => {
                web_sys::console::error_1(&format!("a question could not be sent: {e}").into());
            }
        }
        id
    }

    /// Asks for a frame unless one is on its way or the same was asked for last.
    pub(crate) fn want(&self, ask: FrameAsk) {
        let mut line = self.frame.borrow_mut();
        if line.in_flight.is_some() || line.last.as_ref() == Some(&ask) {
            return;
        }
        line.last = Some(ask.clone());
        line.in_flight = Some(self.post(Ask::Frame(ask)));
    }

    /// Whether this wish is answered or on its way already.
    pub(crate) fn is_fresh(&self, ask: &FrameAsk) -> bool {
        let line = self.frame.borrow();
        line.in_flight.is_some() || line.last.as_ref() == Some(ask)
    }

    /// Something changed in the engine: the same instant may look different now.
    pub(crate) fn forget(&self) {
        self.frame.borrow_mut().last = None;
    }

    /// Ends the worker.
    pub(crate) fn end(&self) {
        self.worker.terminate();
    }
}
