//! Panels. Each draws what the newest answers say and sends actions; none of them holds a fact of its own.

pub(crate) mod ab;
pub(crate) mod amp;
pub(crate) mod crash;
pub(crate) mod heat;
pub(crate) mod hex;
pub(crate) mod itable;
pub(crate) mod log;
pub(crate) mod loss;
pub(crate) mod map;
pub(crate) mod ring;
pub(crate) mod tree;

use fsglass_web::link::protocol::{DURABILITY, ROLES};
use fsglass_web::state::store::{Action, Mode, Panel, State, Ui};
use yew::prelude::*;

/// State and a way to change it.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'a> {
    /// State.
    pub(crate) state: &'a State,
    /// Where actions go.
    pub(crate) send: &'a Callback<Action>,
}

impl Scope<'_> {
    /// A callback that sends one action, whatever the event.
    pub(crate) fn on<E: 'static>(&self, action: Action) -> Callback<E> {
        let send = self.send.clone();
        Callback::from(move |_| send.emit(action.clone()))
    }

    /// A redraw key: the newest answer, the theme, and what the caller adds.
    pub(crate) fn stamp(&self, more: &str) -> String {
        format!(
            "{}/{}/{}/{more}",
            self.state.view.stamp, self.state.theme, self.state.at_ns
        )
    }
}

/// The body of a panel.
pub(crate) fn body(scope: Scope<'_>, panel: Panel) -> Html {
    match panel {
        Panel::Map => map::view(scope),
        Panel::Ring => ring::view(scope),
        Panel::Itable => itable::view(scope),
        Panel::Heat => heat::view(scope),
        Panel::Amp => amp::view(scope),
        Panel::Tree => tree::view(scope),
        Panel::Hex => hex::view(scope),
        Panel::Ab => ab::view(scope),
        Panel::Crash => crash::view(scope),
        Panel::Loss => loss::view(scope),
    }
}

fn has_picture(panel: Panel) -> bool {
    matches!(
        panel,
        Panel::Map | Panel::Ring | Panel::Itable | Panel::Heat | Panel::Amp | Panel::Ab
    )
}

/// A panel with its head; `slot` is its place on the bench.
pub(crate) fn panel(scope: Scope<'_>, panel: Panel, slot: Option<usize>, class: &str) -> Html {
    let state = scope.state;
    let title = state.title(panel);
    let modes = [
        (Mode::Picture, "Picture"),
        (Mode::Table, "Table"),
        (Mode::Log, "Log"),
    ];
    let mut classes = classes!("panel", class.to_string(), panel.id());
    if state.focus == Some(panel) {
        classes.push("focused");
    }
    if state.tab == panel {
        classes.push("tab");
    }
    if panel == Panel::Loss && state.view.loss.as_ref().is_some_and(|l| l.worst.broken > 0) {
        classes.push("broken");
    }
    let onfocusin = {
        let send = scope.send.clone();
        let already = state.focus == Some(panel);
        Callback::from(move |_: FocusEvent| {
            if !already {
                send.emit(Action::Focus(Some(panel)));
            }
        })
    };
    html! {
        <section class={classes} data-panel={panel.id()} aria-label={title.clone()} tabindex="-1" onfocusin={onfocusin}>
            <header>
                <h2 title={title.clone()}>{ title }</h2>
                { provenance(panel) }
                if has_picture(panel) {
                    <div class="modes" role="group" aria-label="View">
                        { for modes.into_iter().map(|(mode, name)| html! {
                            <button class="quiet" aria-pressed={(state.mode(panel) == mode).to_string()}
                                data-act={format!("{}-{}", panel.id(), name.to_lowercase())}
                                onclick={scope.on(Action::SetMode(panel, mode))}>{ name }</button>
                        }) }
                    </div>
                }
                if let (Some(slot), true) = (slot, state.ui == Ui::Bench) {
                    { menu(scope, panel, slot) }
                }
            </header>
            <div class="body">{ body(scope, panel) }</div>
        </section>
    }
}

fn provenance(panel: Panel) -> Html {
    let (class, word, why) = match panel {
        Panel::Ab => (
            "dot",
            "exact and modelled",
            "Each row says which: bytes and counts are exact, times come from the device model",
        ),
        Panel::Heat => (
            "dot",
            "modelled",
            "Latencies come from the device model; counts and bytes are exact",
        ),
        _ => (
            "dot exact",
            "exact",
            "The core did it: bytes, blocks, order, counts",
        ),
    };
    html! { <span class="provenance" title={why}><span class={class}></span>{ " " }{ word }</span> }
}

fn menu(scope: Scope<'_>, panel: Panel, slot: usize) -> Html {
    let send = scope.send.clone();
    let onchange = Callback::from(move |e: Event| {
        let id = crate::widgets::value_of(&e);
        if let Some(panel) = Panel::of_id(&id) {
            send.emit(Action::Slot(slot, panel));
        }
    });
    html! {
        <select aria-label="Panel in this place" data-act={format!("slot-{slot}")} {onchange}>
            { for Panel::SLOTTED.into_iter().map(|p| html! {
                <option value={p.id()} selected={p == panel}>{ p.name() }</option>
            }) }
        </select>
    }
}

/// A small swatch of a role, with its hatch.
pub(crate) fn swatch(role: usize) -> Html {
    let class = [
        "role-free",
        "role-fixed",
        "role-bitmap",
        "role-itable",
        "role-tree",
        "role-journal",
        "role-data",
    ][role.min(6)];
    let hatch = match role {
        2 => "M0 4h12M0 8h12M4 0v12M8 0v12",
        3 => "M0 3h12M0 6h12M0 9h12",
        4 => "M0 6L6 0M0 12L12 0M6 12L12 6",
        5 => "M3 0v12M6 0v12M9 0v12",
        _ => "",
    };
    html! {
        <svg class="swatch" viewBox="0 0 12 12" aria-hidden="true"><rect class={class} x="0.5" y="0.5" width="11" height="11"/><path class="hatch" d={hatch}/></svg>
    }
}

/// The mark of a durability, for badges.
pub(crate) fn durability_mark(durability: u8) -> Html {
    let inside = match durability {
        1 => html! { <rect class="hollow" x="1" y="1" width="10" height="10"/> },
        2 => {
            html! { <><rect class="hollow" x="1" y="1" width="10" height="10"/><path class="stroke" d="M4 3l3 3-3 3"/></> }
        }
        3 => html! { <path class="role-data" d="M1 1h6l4 4v6H1z"/> },
        4 => {
            html! { <><rect class="role-data" x="1" y="1" width="10" height="7"/><rect class="role-journal" x="1" y="9" width="10" height="2"/></> }
        }
        5 => {
            html! { <path class="ink" d="M2 3h1v1H2zM6 2h1v1H6zM9 5h1v1H9zM4 6h1v1H4zM7 9h1v1H7zM2 9h1v1H2z"/> }
        }
        _ => html! { <rect class="role-data" x="1" y="1" width="10" height="10"/> },
    };
    html! { <svg viewBox="0 0 12 12" aria-hidden="true">{ inside }</svg> }
}

/// A badge: mark and word.
pub(crate) fn badge(durability: u8) -> Html {
    let word = DURABILITY
        .get(usize::from(durability))
        .copied()
        .unwrap_or("unknown");
    html! { <span class="badge">{ durability_mark(durability) }{ word }</span> }
}

/// The legend of roles, which fades the roles that are switched off.
pub(crate) fn legend(scope: Scope<'_>) -> Html {
    html! {
        <div class="legend" role="group" aria-label="Roles; press one to fade it">
            { for (1..ROLES.len()).map(|role| {
                let on = scope.state.faded & (1 << role) == 0;
                html! {
                    <button aria-pressed={on.to_string()} data-act={format!("role-{role}")}
                        onclick={scope.on(Action::Fade(role as u8))}>{ swatch(role) }{ ROLES[role] }</button>
                }
            }) }
        </div>
    }
}
