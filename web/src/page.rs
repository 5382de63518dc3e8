//! The three arrangements of the page: story, bench and the embedded figure.

use fsglass_web::link::protocol::TreeRow;
use fsglass_web::state::act::Act;
use fsglass_web::state::store::{Action, Engine, Field, Panel, State, Ui};
use fsglass_web::state::text::{count, instant, instant_short, thousands};
use yew::prelude::*;

use crate::form;
use crate::views::{self, crash, Scope};
use crate::widgets::{dialogs, icons, transport, value_of};

/// Everything.
pub(crate) fn view(scope: Scope<'_>, href: &str) -> Html {
    let state = scope.state;
    let class = match state.ui {
        Ui::Story => "app",
        Ui::Bench => "app bench",
        Ui::Mini => "app mini",
    };
    html! {
        <div class={class}>
            <p id="page-note" class="banner bad" role="alert" hidden=true></p>
            if state.ui == Ui::Mini {
                { mini(scope, href) }
            } else {
                { top(scope) }
                { banners(scope) }
                { if state.ui == Ui::Story { story(scope) } else { bench(scope) } }
                { dialogs::view(scope, href) }
            }
            <div class="sr" role="status" aria-live="polite">{ &state.said }</div>
        </div>
    }
}

fn top(scope: Scope<'_>) -> Html {
    let state = scope.state;
    let oninput = {
        let send = scope.send.clone();
        Callback::from(move |e: InputEvent| send.emit(Action::Edit(Field::Title, value_of(&e))))
    };
    let button = |act: Act, words: &'static str, wide: bool| {
        html! {
            <button class={classes!("quiet", wide.then_some("wide"))} data-act={act.name()} title={act.words()} onclick={scope.on(Action::Act(act))}>{ words }</button>
        }
    };
    html! {
        <header class="top">
            <span class="brand">{ icons::ring() }<span>{ "fsglass" }</span></span>
            <input type="text" class="title" aria-label="Title of the scene" data-act="title" value={state.draft.title.clone()} {oninput} />
            <span class="status" data-act="status">{ transport::status(state) }</span>
            <nav aria-label="Page">
                if state.ui == Ui::Bench {
                    { button(Act::Setup, "Setup", false) }
                    { button(Act::Inspector, "Inspector", true) }
                }
                { button(Act::Ab, "A/B", true) }
                { button(Act::Bench, if state.ui == Ui::Story { "Open the bench" } else { "Story" }, false) }
                { button(Act::Share, "Share", false) }
                { button(Act::Theme, match state.theme.as_str() { "light" => "Light", "dark" => "Dark", "projector" => "Projector", _ => "Theme" }, true) }
                { button(Act::Help, "?", false) }
            </nav>
        </header>
    }
}

fn banners(scope: Scope<'_>) -> Html {
    let state = scope.state;
    let engine = match &state.engine {
        Engine::Failed(message) => html! {
            <div class="banner bad" role="alert" data-act="report">
                <strong>{ "The engine stopped. The picture is the last one it gave." }</strong>
                <span>{ "Please report it with the text below; reload to go on." }</span>
                <pre tabindex="0">{ report(state, message) }</pre>
            </div>
        },
        _ => html! {},
    };
    html! {
        <>
            { engine }
            if !state.refusal.is_empty() {
                <p class="banner" role="alert">{ &state.refusal }</p>
            }
            if !state.problems.is_empty() {
                <p class="banner bad" role="alert">{ cannot_run(state) }</p>
            }
        </>
    }
}

/// All problems in one sentence; each also stands beside its field in the setup.
fn cannot_run(state: &State) -> String {
    let named = state.problems.iter().map(|p| match p.line {
        0 => format!("{}: {}", p.path, p.reason),
        line => format!("{} line {line}: {}", p.path, p.reason),
    });
    format!(
        "This experiment can't run. {}",
        named.collect::<Vec<_>>().join("; ")
    )
}

/// What a report needs: what was run, where, and what failed.
fn report(state: &State, message: &str) -> String {
    let e = state.running.as_ref().unwrap_or(&state.draft);
    format!(
        "fsglass {}\n{message}\nat {} after {} events\ndevice {} size {} mkfs \"{}\" mount \"{}\" seed {}\n{}",
        env!("CARGO_PKG_VERSION"),
        instant(state.progress.reachable_ns),
        state.progress.events,
        e.device,
        e.size,
        e.mkfs,
        e.mount,
        e.seed,
        e.workload
    )
}

// ---- story ---------------------------------------------------------------------------------------------------

fn story(scope: Scope<'_>) -> Html {
    let state = scope.state;
    html! {
        <main class="story">
            <p class="eyebrow">{ eyebrow(state) }</p>
            <h1>{ prose(&state.draft.title) }</h1>
            <div class="storyfigure">
                if state.view.group.is_some() || state.view.map.is_some() {
                    { views::panel(scope, Panel::Map, None, "tab") }
                } else if state.scene == fsglass_web::state::scenes::FIRST {
                    { poster() }
                }
            </div>
            if let Some(crash) = &state.crash {
                <section class="panel crash" data-panel="crash" aria-label={state.title(Panel::Crash)} tabindex="-1">
                    <header><h2>{ state.title(Panel::Crash) }</h2></header>
                    { crash::survivors(scope, crash) }
                </section>
                <p class="lead">{ prose(&state.sentence) }</p>
            } else {
                <p class="lead">{ before(state) }</p>
            }
            <div class="row">
                { transport::plug(scope, false) }
                if state.story_seen {
                    <button data-act="why" onclick={why(scope)}>{ "Why? Step through it" }</button>
                }
                if state.story_seen && !state.switches.is_empty() {
                    <span>{ "Try to save it:" }</span>
                    { form::switches(scope) }
                }
            </div>
            { views::panel(scope, Panel::Loss, None, "always") }
            { title_block(state) }
            <span hidden=true class="transport" data-now={state.at_ns.to_string()}></span>
        </main>
    }
}

/// The still picture of the first scene, until the live one is there.
fn poster() -> Html {
    Html::from_html_unchecked(AttrValue::Static(include_str!("../../static/poster.svg")))
}

/// Opens the bench at the beginning, where each event is one step.
fn why(scope: Scope<'_>) -> Callback<MouseEvent> {
    let send = scope.send.clone();
    Callback::from(move |_| {
        send.emit(Action::Act(Act::Bench));
        send.emit(Action::Seek(0));
        send.emit(Action::SetMode(
            Panel::Heat,
            fsglass_web::state::store::Mode::Log,
        ));
    })
}

fn eyebrow(state: &State) -> String {
    let mount = if state.draft.mount.trim().is_empty() {
        "default mount options".into()
    } else {
        format!("-o {}", state.draft.mount)
    };
    format!("ext4, {mount}, at {}", instant_short(state.at_ns))
}

fn before(state: &State) -> Html {
    let Some(tree) = &state.view.tree else {
        return html! { <>{ "The disk is being made." }</> };
    };
    let files = tree.iter().filter(|r| r.kind == "-").take(6);
    html! { <>{ format!("At {}", instant_short(state.at_ns)) }{ for files.enumerate().map(|(i, row)| {
        html! { <>{ if i == 0 { " " } else { "; " } }{ fate(row) }</> }
    }) }{ "." }</> }
}

/// What a file's durability means to the person who wrote it, before the plug is pulled.
fn fate(row: &TreeRow) -> Html {
    let name = html! { <code>{ row.path.trim_start_matches('/').to_string() }</code> };
    match (row.ino, row.durability) {
        (0, 1) => html! { <>{ name }{ " is only in memory, name and contents" }</> },
        (_, 0 | 4) => html! { <>{ name }{ " is safe" }</> },
        (_, 1) => {
            html! { <>{ "the name of " }{ name }{ format!(" is safe, its {} bytes are only in memory", thousands(row.size)) }</> }
        }
        _ => {
            html! { <>{ "the name of " }{ name }{ format!(" is safe, its {} bytes have not reached the medium", thousands(row.size)) }</> }
        }
    }
}

/// Backquotes in a sentence become code.
fn prose(text: &str) -> Html {
    let parts = text.split('`').enumerate().map(|(i, part)| match i % 2 {
        1 => html! { <code>{ part.to_string() }</code> },
        _ => html! { <>{ part.to_string() }</> },
    });
    html! { <>{ for parts }</> }
}

fn title_block(state: &State) -> Html {
    let engine = match &state.engine {
        Engine::Ready(version) => format!("engine {version}"),
        Engine::Loading => "engine on its way".into(),
        Engine::Failed(_) => "engine stopped".into(),
    };
    html! {
        <footer class="titleblock">
            <span>{ format!("scene {}", state.scene) }</span>
            <span>{ engine }</span>
            <span>{ format!("seed {}", state.draft.seed) }</span>
            <span>{ format!("{} on {}", state.draft.size, state.draft.device) }</span>
            <span>{ count(state.progress.events, "event", "events") }</span>
            <span>{ "bytes, blocks and order: exact; latency: modelled; CPU caches: not modelled" }</span>
        </footer>
    }
}

// ---- bench ---------------------------------------------------------------------------------------------------

fn bench(scope: Scope<'_>) -> Html {
    let state = scope.state;
    let slot = |i: usize| views::panel(scope, state.slots[i], Some(i), &format!("slot-{i}"));
    let centre = match state.full {
        Some(panel) => {
            html! { <div class="centre one">{ views::panel(scope, panel, None, "tab") }</div> }
        }
        None => html! { <div class="centre">{ slot(0) }{ slot(1) }{ slot(2) }</div> },
    };
    html! {
        <>
            <div class={classes!("desk", (!state.setup).then_some("folded"))}>
                <aside class={classes!("rail", state.setup.then_some("open"))} aria-label="Setup">
                    if state.setup { { form::view(scope) } } else {
                        <button class="quiet" data-act={Act::Setup.name()} aria-label="Show the setup" onclick={scope.on(Action::Act(Act::Setup))}>{ "»" }</button>
                    }
                </aside>
                { centre }
                <div class="side">
                    { views::panel(scope, Panel::Loss, None, "always") }
                    if state.crash.is_some() { { views::panel(scope, Panel::Crash, None, "grow wider tab tall") } }
                    { views::panel(scope, state.slots[3], Some(3), "grow slot-3") }
                    if state.inspector && state.crash.is_none() {
                        { views::panel(scope, state.slots[4], Some(4), "grow slot-4") }
                    }
                </div>
            </div>
            <nav class="tabs" aria-label="Panels">
                { for [(Panel::Map, "Map"), (Panel::Ring, "Journal"), (Panel::Heat, "Time"), (Panel::Tree, "Files"), (Panel::Hex, "Bytes"), (Panel::Ab, "A/B")].into_iter().map(|(panel, name)| html! {
                    <button aria-pressed={(state.tab == panel).to_string()} data-act={format!("tab-{}", panel.id())} onclick={scope.on(Action::Tab(panel))}>{ name }</button>
                }) }
            </nav>
            { transport::view(scope) }
        </>
    }
}

// ---- embed ---------------------------------------------------------------------------------------------------

fn mini(scope: Scope<'_>, href: &str) -> Html {
    let state = scope.state;
    let fragment = state.recipe().fragment();
    let base = href
        .split(['#', '?'])
        .next()
        .unwrap_or(href)
        .trim_end_matches("index.html")
        .trim_end_matches('/');
    let full = format!(
        "{}#{fragment}",
        base.trim_end_matches("/e").to_string() + "/"
    );
    let caption = if state.caption.is_empty() {
        &state.draft.title
    } else {
        &state.caption
    };
    let second = if state.crash.is_some() {
        Panel::Crash
    } else {
        state.slots[1]
    };
    html! {
        <>
            <p class="caption">{ prose(caption) }</p>
            if let Engine::Failed(message) = &state.engine {
                <p class="banner bad" role="alert">{ "The figure stopped: " }{ message.lines().next().unwrap_or("").to_string() }</p>
            }
            <div class="pair">{ views::panel(scope, state.slots[0], None, "tab") }{ views::panel(scope, second, None, "tab") }</div>
            <div class="bar transport-mini">
                { transport::key(scope, Act::Play, if state.playing { icons::pause() } else { icons::play() }) }
                { transport::key(scope, Act::Step(true), icons::forward()) }
                { transport::scrubber(scope) }
                <span class="time transport-now" data-now={state.at_ns.to_string()}>{ instant_short(state.at_ns) }</span>
                { transport::plug(scope, true) }
                <a href={full} target="_blank" rel="noopener" data-act="open-full">{ "Open" }</a>
            </div>
            <span hidden=true class="transport" data-now={state.at_ns.to_string()}></span>
        </>
    }
}
