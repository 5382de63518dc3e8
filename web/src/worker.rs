//! The worker: owns the engine, runs it in slices and answers the page between them.

use fsglass_web::link::protocol::{Answer, Question, Reply};
use wasm_bindgen::closure::Closure;
use wasm_bindgen::JsCast;
use web_sys::{DedicatedWorkerGlobalScope, MessageEvent};

fn post(scope: &DedicatedWorkerGlobalScope, id: u32, answer: Answer) {
    if let Ok(value) = serde_wasm_bindgen::to_value(&Reply { id, answer }) {
        let _ = scope.post_message(&value);
    }
}

fn main() {
    console_error_panic_hook::set_once();
    let scope: DedicatedWorkerGlobalScope = js_sys::global().unchecked_into();
    let out = scope.clone();
    let onmessage = Closure::<dyn FnMut(MessageEvent)>::new(move |e: MessageEvent| {
        let Ok(question) = serde_wasm_bindgen::from_value::<Question>(e.data()) else {
            return;
        };
        post(
            &out,
            question.id,
            Answer::Refused("this build has no engine session yet".into()),
        );
    });
    scope.set_onmessage(Some(onmessage.as_ref().unchecked_ref()));
    onmessage.forget();
    post(
        &scope,
        0,
        Answer::Hello {
            version: env!("CARGO_PKG_VERSION").into(),
        },
    );
}
