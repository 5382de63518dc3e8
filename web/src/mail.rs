//! Packed messages as the browser carries them: an array of byte arrays, the message first, its files after it.

use fsglass_web::link::wire::Packed;
use js_sys::{Array, Uint8Array};
use wasm_bindgen::{JsCast, JsValue};

/// The value to be posted, and what moves with it instead of being copied.
pub(crate) fn letter(packed: &Packed) -> (Array, Array) {
    let (parts, moved) = (Array::new(), Array::new());
    for bytes in std::iter::once(&packed.bytes).chain(&packed.files) {
        let part = Uint8Array::from(bytes.as_slice());
        moved.push(&part.buffer());
        parts.push(&part);
    }
    (parts, moved)
}

/// What was posted.
pub(crate) fn opened(value: &JsValue) -> Packed {
    let parts = Array::from(value);
    let mut all = parts
        .iter()
        .filter_map(|part| part.dyn_into::<Uint8Array>().ok())
        .map(|part| part.to_vec());
    Packed {
        bytes: all.next().unwrap_or_default(),
        files: all.collect(),
    }
}
