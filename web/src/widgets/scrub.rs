//! A number in a sentence that can be dragged, stepped with the arrows, or typed.

use wasm_bindgen::JsCast;
use web_sys::HtmlElement;
use yew::prelude::*;

use super::value_of;

/// CSS px of dragging for a step of one.
const STEP_PX: f64 = 6.0;

/// Properties.
#[derive(Properties, PartialEq)]
pub(crate) struct Props {
    /// Value.
    pub(crate) value: u32,
    /// Largest.
    pub(crate) max: u32,
    /// Accessible name.
    pub(crate) label: AttrValue,
    /// Stable name for tests.
    pub(crate) act: AttrValue,
    /// Another value, while it changes.
    pub(crate) onchange: Callback<u32>,
    /// The change is over.
    pub(crate) ondone: Callback<()>,
}

/// See the module.
#[component]
pub(crate) fn Scrub(props: &Props) -> Html {
    // Where a drag began, and the value there.
    let drag = use_mut_ref(|| None::<(f64, u32)>);
    let (value, max) = (props.value, props.max);
    let set = {
        let onchange = props.onchange.clone();
        move |n: f64| onchange.emit(n.clamp(0.0, f64::from(max)) as u32)
    };
    let onpointerdown = {
        let drag = drag.clone();
        Callback::from(move |e: PointerEvent| {
            *drag.borrow_mut() = Some((f64::from(e.client_x()), value));
            if let Some(input) = e.target().and_then(|t| t.dyn_into::<HtmlElement>().ok()) {
                let _ = input.set_pointer_capture(e.pointer_id());
            }
        })
    };
    let onpointermove = {
        let (drag, set) = (drag.clone(), set.clone());
        Callback::from(move |e: PointerEvent| {
            let Some((x, start)) = *drag.borrow() else {
                return;
            };
            let moved = (f64::from(e.client_x()) - x) / STEP_PX;
            // From 20 on a step is a twentieth: 1 000 is within reach.
            let step = f64::from(start / 20).max(1.0);
            set(f64::from(start) + moved.trunc() * step);
        })
    };
    let onpointerup = {
        let done = props.ondone.clone();
        Callback::from(move |_: PointerEvent| {
            if drag
                .borrow_mut()
                .take()
                .is_some_and(|(_, start)| start != value)
            {
                done.emit(());
            }
        })
    };
    let onkeydown = {
        let set = set.clone();
        Callback::from(move |e: KeyboardEvent| {
            let by = match e.key().as_str() {
                "ArrowUp" => 1.0,
                "ArrowDown" => -1.0,
                "PageUp" => 10.0,
                "PageDown" => -10.0,
                _ => return,
            };
            e.prevent_default();
            e.stop_propagation();
            set(f64::from(value) + by);
        })
    };
    let oninput = Callback::from(move |e: InputEvent| {
        if let Ok(n) = value_of(&e).trim().parse() {
            set(n);
        }
    });
    let onchange = {
        let done = props.ondone.clone();
        Callback::from(move |_: Event| done.emit(()))
    };
    html! {
        <input type="text" inputmode="numeric" class="scrub mono" role="spinbutton" value={value.to_string()} data-act={props.act.clone()}
            aria-label={props.label.clone()} aria-valuenow={value.to_string()} aria-valuemin="0" aria-valuemax={max.to_string()}
            title="Drag, use the arrows, or type" autocomplete="off" size="4"
            {onpointerdown} {onpointermove} {onpointerup} {onkeydown} {oninput} {onchange} />
    }
}
