//! Prints what the wasm module has to print too.

fn main() {
    print!("{}", fsglass_wasm_tests::digests());
}
