//! Structure inspector: what do the bytes say? Fields and hexadecimal, side by side, and the life of the block.

use std::fmt::Write as _;

use fsglass_web::link::protocol::{Field, Inspect, Selection};
use fsglass_web::state::store::Action;
use fsglass_web::state::text::{instant_short, thousands};
use yew::prelude::*;

use super::Scope;

const PER_ROW: usize = 16;
const FIELDS_MAX: usize = 400;

/// The panel's body.
pub(crate) fn view(scope: Scope<'_>) -> Html {
    let state = scope.state;
    if state.selection.is_none() {
        return html! {
            <>
                <p class="empty">{ "Select a block on the map, a file, a transaction, or start with the superblock." }</p>
                <div class="theatre">
                    <button data-act="inspect-super" onclick={scope.on(Action::Select(Some(Selection::Super)))}>{ "Superblock" }</button>
                    <button data-act="inspect-group" onclick={scope.on(Action::Select(Some(Selection::Group(0))))}>{ "Group 0" }</button>
                    <button data-act="inspect-root" onclick={scope.on(Action::Select(Some(Selection::Inode(2))))}>{ "Root inode" }</button>
                </div>
            </>
        };
    }
    let Some(inspect) = &state.view.inspect else {
        return html! { <p class="empty">{ "Reading…" }</p> };
    };
    html! {
        <>
            { head(scope, inspect) }
            { biography(scope, inspect) }
            <div class="scroll">
                { fields(inspect) }
                <pre class="hexdump" aria-label="Bytes">{ hexdump(inspect) }</pre>
            </div>
        </>
    }
}

fn head(scope: Scope<'_>, inspect: &Inspect) -> Html {
    let endian = match inspect.endian.as_str() {
        "" => String::new(),
        order => format!(", {order}-endian"),
    };
    html! {
        <div class="theatre readout">
            <span><code>{ &inspect.structure }</code>{ endian }</span>
            { for inspect.links.iter().map(|(label, to)| html! {
                <button class="link" onclick={scope.on(Action::Select(Some(to.clone())))}>{ label }</button>
            }) }
            <button class="link" data-act="deselect" onclick={scope.on(Action::Select(None))}>{ "clear" }</button>
        </div>
    }
}

/// The life of the block as a strip.
fn biography(scope: Scope<'_>, inspect: &Inspect) -> Html {
    if inspect.biography.is_empty() {
        return html! {};
    }
    html! {
        <ol class="strip" aria-label="Life of the block">
            { for inspect.biography.iter().map(|line| html! {
                <li><button class="link num" onclick={scope.on(Action::Seek(line.ns))}>{ instant_short(line.ns) }</button><br/>{ &line.sentence }</li>
            }) }
        </ol>
    }
}

fn fields(inspect: &Inspect) -> Html {
    let row = |f: &Field| {
        html! {
            <tr>
                <td class="n">{ format!("{:x}", f.offset) }</td>
                <td class="mono">{ &f.name }</td>
                <td class={classes!("mono", f.bad.then_some("bad"))}>{ &f.value }{ if f.bad { " ✕" } else { "" } }</td>
                <td class="n">{ &f.raw }</td>
            </tr>
        }
    };
    html! {
        <table>
            <thead><tr><th class="n">{ "at" }</th><th>{ "field" }</th><th>{ "value" }</th><th class="n">{ "raw" }</th></tr></thead>
            <tbody>{ for inspect.fields.iter().take(FIELDS_MAX).map(row) }</tbody>
        </table>
    }
}

/// Sixteen bytes a row; rows of zeroes are folded as hexdump does.
fn hexdump(inspect: &Inspect) -> String {
    let mut out = format!("block {}\n", thousands(inspect.block));
    let mut folded = false;
    for (i, row) in inspect.bytes.chunks(PER_ROW).enumerate() {
        let last = (i + 1) * PER_ROW >= inspect.bytes.len();
        if i > 0 && !last && row.iter().all(|b| *b == 0) {
            if !folded {
                out.push_str("*\n");
            }
            folded = true;
            continue;
        }
        folded = false;
        let _ = write!(out, "{:04x}  ", inspect.offset as usize + i * PER_ROW);
        for (j, byte) in row.iter().enumerate() {
            let _ = write!(out, "{byte:02x}{}", if j == 7 { "  " } else { " " });
        }
        out.push(' ');
        out.extend(row.iter().map(|b| {
            if b.is_ascii_graphic() || *b == b' ' {
                char::from(*b)
            } else {
                '·'
            }
        }));
        out.push('\n');
    }
    out
}
