//! The page: one component that owns the state, the line to the worker, the clock of the screen and the address bar.

mod client;
mod draw;
mod form;
mod mail;
mod page;
mod views;
mod widgets;

use fsglass_web::link::protocol::{Answer, Ask};
use fsglass_web::state::act::Act;
use fsglass_web::state::recipe::Recipe;
use fsglass_web::state::store::{Action, Effect, State, Ui};
use wasm_bindgen::closure::Closure;
use wasm_bindgen::{JsCast, JsValue};
use web_sys::{KeyboardEvent, Window};
use yew::prelude::*;

use client::{Link, News};

/// Heavy parts of a frame are asked for at most every so many milliseconds while playing.
const HEAVY_MS: f64 = 500.0;
/// Frames are asked for at most every so many milliseconds while the engine runs on.
const RUNNING_MS: f64 = 200.0;
/// And pictures take at most one part in so many of its time.
const RUNNING_SHARE: f64 = 5.0;
/// The address bar follows the screen after so many milliseconds of rest.
const ADDRESS_MS: i32 = 500;

/// Narrower windows start with the setup folded away, CSS px.
const SETUP_WIDTH: f64 = 1_360.0;

/// Messages of the component.
enum Msg {
    /// Something a person did.
    Do(Action),
    /// From the worker.
    News(News),
    /// A frame of the screen, time in ms.
    Frame(f64),
    /// A key.
    Key(KeyboardEvent),
    /// The address bar may be brought up to date.
    Address,
    /// The person went back or forward, or edited the link.
    Popped,
    /// The system's theme, or the size of the window, changed.
    Redraw,
}

struct App {
    state: State,
    link: Option<Link>,
    send: Callback<Action>,
    raf: Closure<dyn FnMut(f64)>,
    raf_pending: bool,
    last_frame_ms: f64,
    last_heavy_ms: f64,
    last_ask_ms: f64,
    /// What the last answered picture took, ms.
    answer_ms: f64,
    address: Closure<dyn FnMut()>,
    address_timer: Option<i32>,
    shown_fragment: String,
    marked_ready: bool,
    _listeners: Vec<Closure<dyn FnMut(Event)>>,
}

fn window() -> Window {
    web_sys::window().expect("the page has a window")
}

fn root() -> web_sys::Element {
    window()
        .document()
        .and_then(|d| d.document_element())
        .expect("a document has a root")
}

/// The recipe of the address bar: fragment wins over query; without either, the first scene.
fn recipe_of_address() -> (Recipe, Option<String>) {
    let location = window().location();
    let (hash, query) = (
        location.hash().unwrap_or_default(),
        location.search().unwrap_or_default(),
    );
    let mut recipe = Recipe::default();
    let mut trouble = None;
    if hash.len() > 1 {
        match Recipe::of_fragment(&hash) {
            Ok(found) => recipe = found,
            Err(reason) => {
                trouble = Some(format!(
                    "This link could not be opened: {reason}. The first scene is shown instead."
                ));
            }
        }
    }
    // Fragment wins over query: with a fragment only the looks are taken from the query.
    if hash.len() > 1 && trouble.is_none() {
        recipe.apply_looks(&query);
    } else {
        recipe.apply_query(&query);
    }
    if root().has_attribute("data-embed") {
        recipe.ui = "mini".into();
        if recipe.panels.is_empty() {
            recipe.panels = "map,tree".into();
        }
    }
    (recipe, trouble)
}

impl Component for App {
    type Message = Msg;
    type Properties = ();

    fn create(ctx: &Context<Self>) -> Self {
        let (recipe, trouble) = recipe_of_address();
        let mut state = State::of_recipe(&recipe);
        if let Some(stored) = stored("keys") {
            state.keys = stored != "off";
        }
        if recipe == Recipe::default() && stored("ui").as_deref() == Some("bench") {
            state.ui = Ui::Bench;
        }
        state.refusal = trouble.unwrap_or_default();
        // On a narrow screen the setup is one press away instead of in the way.
        let width = window()
            .inner_width()
            .ok()
            .and_then(|w| w.as_f64())
            .unwrap_or(f64::MAX);
        state.setup = width >= SETUP_WIDTH;
        let news = ctx.link().callback(Msg::News);
        let base = root()
            .get_attribute("data-base")
            .unwrap_or_else(|| "./".into());
        let link = match Link::start(&base, &news) {
            Ok(link) => Some(link),
            Err(reason) => {
                state.reduce(Action::WorkerDied(reason));
                None
            }
        };
        let frame = ctx.link().callback(Msg::Frame);
        let address = ctx.link().callback(|()| Msg::Address);
        let app = Self {
            state,
            link,
            send: ctx.link().callback(Msg::Do),
            raf: Closure::new(move |ms: f64| frame.emit(ms)),
            raf_pending: false,
            last_frame_ms: 0.0,
            last_heavy_ms: 0.0,
            last_ask_ms: 0.0,
            answer_ms: 0.0,
            address: Closure::new(move || address.emit(())),
            address_timer: None,
            shown_fragment: String::new(),
            marked_ready: false,
            _listeners: listeners(ctx),
        };
        app.dress();
        app
    }

    fn update(&mut self, _: &Context<Self>, msg: Msg) -> bool {
        match msg {
            Msg::Do(action) => self.perform(action),
            Msg::News(News::Answer(answer)) => {
                // What says nothing of an instant on the screen leaves the frames as they are.
                let aside = matches!(answer, Answer::Compared(_) | Answer::Danger(..));
                if !matches!(answer, Answer::Frame(_)) {
                    if let Some(link) = self.link.as_ref().filter(|_| !aside) {
                        link.forget();
                    }
                } else if let Some(performance) = window().performance() {
                    self.answer_ms = performance.now() - self.last_ask_ms;
                }
                self.perform(Action::Answer(answer));
                self.mark_ready();
            }
            Msg::News(News::Died(message)) => self.perform(Action::WorkerDied(message)),
            Msg::Frame(ms) => self.frame(ms),
            Msg::Key(e) => self.key(&e),
            Msg::Address => self.write_address(false),
            Msg::Popped => {
                let (recipe, _) = recipe_of_address();
                if recipe.fragment() != self.state.recipe().fragment() {
                    self.perform(Action::Link(Box::new(recipe)));
                }
            }
            Msg::Redraw => self.state.view.stamp += 1,
        }
        true
    }

    fn view(&self, _: &Context<Self>) -> Html {
        let href = window().location().href().unwrap_or_default();
        page::view(
            views::Scope {
                state: &self.state,
                send: &self.send,
            },
            &href,
        )
    }

    fn rendered(&mut self, _: &Context<Self>, _: bool) {
        self.schedule();
    }
}

impl App {
    fn perform(&mut self, action: Action) {
        let fresh = matches!(
            action,
            Action::Open(Some(_))
                | Action::Act(
                    Act::Help | Act::Palette | Act::Share | Act::Goto | Act::TypeTime | Act::Save
                )
        );
        let effects = self.state.reduce(action);
        for effect in effects {
            self.effect(effect);
        }
        if fresh {
            focus_later(".dialog input[type=text]", ".dialog");
        }
        self.dress();
        self.schedule();
        self.later_address();
    }

    fn effect(&mut self, effect: Effect) {
        match effect {
            Effect::Ask(ask) => {
                if let Some(link) = &self.link {
                    link.ask(ask);
                }
            }
            Effect::Push => self.write_address(true),
            Effect::CopyLink => {
                self.write_address(false);
                let href = window().location().href().unwrap_or_default();
                let _ = window().navigator().clipboard().write_text(&href);
                self.state.said = "The link is copied.".into();
            }
            Effect::Download(export) => {
                for file in &export.files {
                    download(&file.name, &file.bytes);
                }
            }
            Effect::FocusPanel(panel) => {
                focus_later(&format!("[data-panel={}]", panel.id()), "#app");
            }
        }
    }

    /// What the page says about itself to style sheets, tests and hosts.
    fn dress(&self) {
        let root = root();
        let _ = root.set_attribute("data-fsg", self.state.phase());
        let theme = self.state.theme.as_str();
        if matches!(theme, "light" | "dark" | "projector") {
            let _ = root.set_attribute("data-theme", theme);
        } else {
            let _ = root.remove_attribute("data-theme");
        }
        if let Some(document) = window().document() {
            document.set_title(&format!("{} · fsglass", self.state.draft.title));
        }
        store("keys", if self.state.keys { "on" } else { "off" });
        match self.state.ui {
            Ui::Story => store("ui", "story"),
            Ui::Bench => store("ui", "bench"),
            Ui::Mini => {}
        }
    }

    /// Asks for a screen frame when something moves or something is to be asked.
    fn schedule(&mut self) {
        if self.raf_pending {
            return;
        }
        let moving = self.state.playing;
        let wants = self.state.loaded.is_some()
            && self
                .link
                .as_ref()
                .is_some_and(|l| !l.is_fresh(&self.state.wanted(true)));
        if moving || wants {
            self.raf_pending = true;
            let _ = window().request_animation_frame(self.raf.as_ref().unchecked_ref());
        }
    }

    fn frame(&mut self, ms: f64) {
        self.raf_pending = false;
        let passed = if self.last_frame_ms > 0.0 {
            ms - self.last_frame_ms
        } else {
            16.0
        };
        self.last_frame_ms = if self.state.playing { ms } else { 0.0 };
        for effect in self.state.reduce(Action::Tick(passed)) {
            self.effect(effect);
        }
        self.dress();
        if self.state.loaded.is_none() {
            return;
        }
        // While the engine runs on, looking at it takes its time: a few pictures a second are enough.
        let running = self.state.progress.running;
        let pause = match running {
            true => RUNNING_MS.max(self.answer_ms * RUNNING_SHARE),
            false => 0.0,
        };
        if ms - self.last_ask_ms < pause {
            self.schedule();
            return;
        }
        self.last_ask_ms = ms;
        let busy = self.state.playing || running;
        let heavy = !busy || ms - self.last_heavy_ms > HEAVY_MS;
        if heavy {
            self.last_heavy_ms = ms;
        }
        if let Some(link) = &self.link {
            link.want(self.state.wanted(heavy));
        }
    }

    /// The engine can be asked: the page is usable, as `data-fsg` says in the same turn.
    fn mark_ready(&mut self) {
        if self.marked_ready || self.state.phase() == "loading" {
            return;
        }
        self.marked_ready = true;
        if let Some(performance) = window().performance() {
            let _ = performance.mark("fsg-ready");
        }
    }

    fn key(&mut self, e: &KeyboardEvent) {
        let target = e
            .target()
            .and_then(|t| t.dyn_into::<web_sys::Element>().ok());
        let name = target
            .as_ref()
            .map(web_sys::Element::tag_name)
            .unwrap_or_default();
        let kind = target
            .as_ref()
            .and_then(|t| t.get_attribute("type"))
            .unwrap_or_default();
        let typing = name == "TEXTAREA"
            || name == "SELECT"
            || (name == "INPUT" && kind != "checkbox" && kind != "range");
        let ctrl = e.ctrl_key() || e.meta_key();
        if e.alt_key() || e.default_prevented() {
            return;
        }
        // An open sheet takes no single keys but its own.
        let single = self.state.keys && !typing && (self.state.dialog.is_none() || e.key() == "?");
        let Some(act) = Act::of_key(&e.key(), ctrl, e.shift_key(), single) else {
            return;
        };
        // A focused button or slider keeps its own keys.
        let own = (name == "BUTTON" || name == "A") && matches!(e.key().as_str(), " " | "Enter");
        let slides = name == "INPUT" && kind == "range" && e.key().starts_with("Arrow");
        if own || slides || (typing && act == Act::Undo) {
            return;
        }
        e.prevent_default();
        self.perform(Action::Act(act));
    }

    fn later_address(&mut self) {
        if self.state.playing || self.state.ui == Ui::Mini {
            return;
        }
        if let Some(timer) = self.address_timer.take() {
            window().clear_timeout_with_handle(timer);
        }
        self.address_timer = window()
            .set_timeout_with_callback_and_timeout_and_arguments_0(
                self.address.as_ref().unchecked_ref(),
                ADDRESS_MS,
            )
            .ok();
    }

    fn write_address(&mut self, push: bool) {
        if self.state.ui == Ui::Mini {
            return;
        }
        let fragment = format!("#{}", self.state.recipe().fragment());
        if fragment == self.shown_fragment {
            return;
        }
        let Ok(history) = window().history() else {
            return;
        };
        let done = if push && !self.shown_fragment.is_empty() {
            history.push_state_with_url(&JsValue::NULL, "", Some(&fragment))
        } else {
            history.replace_state_with_url(&JsValue::NULL, "", Some(&fragment))
        };
        if done.is_ok() {
            self.shown_fragment = fragment;
        }
    }
}

fn listeners(ctx: &Context<App>) -> Vec<Closure<dyn FnMut(Event)>> {
    let key = ctx.link().callback(Msg::Key);
    let popped = ctx.link().callback(|()| Msg::Popped);
    let dropped = ctx.link().callback(Msg::Do);
    let redraw = ctx.link().callback(|()| Msg::Redraw);
    let on_key = Closure::<dyn FnMut(Event)>::new(move |e: Event| {
        if let Ok(e) = e.dyn_into::<KeyboardEvent>() {
            key.emit(e);
        }
    });
    let on_pop = Closure::<dyn FnMut(Event)>::new(move |_| popped.emit(()));
    let on_over = Closure::<dyn FnMut(Event)>::new(|e: Event| e.prevent_default());
    let on_drop = Closure::<dyn FnMut(Event)>::new(move |e: Event| {
        e.prevent_default();
        let file = e
            .dyn_into::<DragEvent>()
            .ok()
            .and_then(|e| e.data_transfer())
            .and_then(|d| d.files())
            .and_then(|f| f.get(0));
        if let Some(file) = file {
            form::read_image(&file, dropped.clone());
        }
    });
    let on_theme = Closure::<dyn FnMut(Event)>::new(move |_| redraw.emit(()));
    let window = window();
    let add = |name: &str, closure: &Closure<dyn FnMut(Event)>| {
        let _ = window.add_event_listener_with_callback(name, closure.as_ref().unchecked_ref());
    };
    add("keydown", &on_key);
    add("popstate", &on_pop);
    add("dragover", &on_over);
    add("drop", &on_drop);
    if let Ok(Some(query)) = window.match_media("(prefers-color-scheme: dark)") {
        query.set_onchange(Some(on_theme.as_ref().unchecked_ref()));
    }
    vec![on_key, on_pop, on_over, on_drop, on_theme]
}

/// Gives focus once the next picture is there.
fn focus_later(selector: &str, otherwise: &'static str) {
    let selector = selector.to_string();
    let closure = Closure::once_into_js(move || {
        let find = |s: &str| {
            window()
                .document()
                .and_then(|d| d.query_selector(s).ok().flatten())
        };
        let found = find(&selector).or_else(|| find(otherwise));
        if let Some(element) = found.and_then(|e| e.dyn_into::<web_sys::HtmlElement>().ok()) {
            let _ = element.focus();
        }
    });
    let _ =
        window().set_timeout_with_callback_and_timeout_and_arguments_0(closure.unchecked_ref(), 30);
}

fn download(name: &str, bytes: &[u8]) {
    let parts = js_sys::Array::of1(&js_sys::Uint8Array::from(bytes));
    let Ok(blob) = web_sys::Blob::new_with_u8_array_sequence(&parts) else {
        return;
    };
    let Ok(url) = web_sys::Url::create_object_url_with_blob(&blob) else {
        return;
    };
    let anchor = window()
        .document()
        .and_then(|d| d.create_element("a").ok())
        .and_then(|a| a.dyn_into::<web_sys::HtmlAnchorElement>().ok());
    if let Some(anchor) = anchor {
        anchor.set_href(&url);
        anchor.set_download(name);
        anchor.click();
    }
    let revoke = Closure::once_into_js(move || {
        let _ = web_sys::Url::revoke_object_url(&url);
    });
    let _ = window()
        .set_timeout_with_callback_and_timeout_and_arguments_0(revoke.unchecked_ref(), 60_000);
}

fn storage() -> Option<web_sys::Storage> {
    window().local_storage().ok().flatten()
}

/// Small things the page remembers; blocked storage only means that it does not.
fn stored(key: &str) -> Option<String> {
    storage()?
        .get_item(&format!("fsglass.{key}"))
        .ok()
        .flatten()
}

fn store(key: &str, value: &str) {
    if let Some(storage) = storage() {
        let _ = storage.set_item(&format!("fsglass.{key}"), value);
    }
}

impl Drop for App {
    fn drop(&mut self) {
        if let Some(link) = &self.link {
            link.ask(Ask::Pause);
            link.end();
        }
    }
}

/// A panic of the page itself: say so where the person looks, and keep what is on the screen.
fn panicked(panic: &std::panic::PanicHookInfo<'_>) {
    console_error_panic_hook::hook(panic);
    let note = window()
        .document()
        .and_then(|d| d.get_element_by_id("page-note"));
    if let Some(note) = note {
        note.set_text_content(Some(&format!(
            "The page failed: {panic}. Please report this with the link in the address bar; reload to go on."
        )));
        let _ = note.remove_attribute("hidden");
    }
    let _ = root().set_attribute("data-fsg", "error");
}

fn main() {
    std::panic::set_hook(Box::new(panicked));
    let document = window().document().expect("a window has a document");
    let target = document
        .get_element_by_id("app")
        .expect("index.html has #app");
    yew::Renderer::<App>::with_root(target).render();
}
