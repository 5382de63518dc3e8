//! Drawn signs; each stands beside a word or has an accessible name on its button.

use yew::prelude::*;

fn icon(d: &'static str) -> Html {
    html! { <svg viewBox="0 0 16 16" aria-hidden="true"><path class="ink" fill="currentColor" d={d}/></svg> }
}

/// Play.
pub(crate) fn play() -> Html {
    icon("M4 2l9 6-9 6z")
}

/// Pause.
pub(crate) fn pause() -> Html {
    icon("M4 2h3v12H4zM9 2h3v12H9z")
}

/// Step back.
pub(crate) fn back() -> Html {
    icon("M11 2v12L4 8zM2 2h2v12H2z")
}

/// Step forward.
pub(crate) fn forward() -> Html {
    icon("M5 2v12l7-6zM12 2h2v12h-2z")
}

/// To the start.
pub(crate) fn start() -> Html {
    icon("M2 2h2v12H2zM9 2v12L4 8zM15 2v12l-5-6z")
}

/// To the end.
pub(crate) fn end() -> Html {
    icon("M12 2h2v12h-2zM7 2v12l5-6zM1 2v12l5-6z")
}

/// The plug: a drawn connector, in or out.
pub(crate) fn plug(out: bool) -> Html {
    let x = if out { -7.0 } else { 0.0 };
    html! {
        <svg viewBox="0 0 40 32" aria-hidden="true">
            <g transform={format!("translate({x} 0)")}>
                <path d="M0 16h9M9 8h9v16H9z" fill="none" stroke="currentColor" stroke-width="2"/>
                <path d="M18 12h5M18 20h5" stroke="currentColor" stroke-width="2.5"/>
            </g>
            <path d="M27 6v20M27 7h5c4 0 6 4 6 9s-2 9-6 9h-5M38 16h2" fill="none" stroke="currentColor" stroke-width="2"/>
        </svg>
    }
}

/// The mark of the product: a journal ring.
pub(crate) fn ring() -> Html {
    html! {
        <svg viewBox="0 0 32 32" aria-hidden="true">
            <circle cx="16" cy="16" r="11" fill="none" stroke="currentColor" stroke-opacity="0.25" stroke-width="5"/>
            <path d="M16 5a11 11 0 0 1 9.5 16.5" fill="none" stroke="currentColor" stroke-width="5"/>
            <path d="M16 1v8" stroke="currentColor" stroke-width="2" stroke-dasharray="2 1.5"/>
        </svg>
    }
}
