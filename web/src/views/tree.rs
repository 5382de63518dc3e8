//! File tree with durability badges.

use fsglass_web::link::protocol::{Selection, TreeRow};
use fsglass_web::state::store::{Action, Ui};
use fsglass_web::state::text::{bytes, thousands};
use yew::prelude::*;

use super::{badge, Scope};

const ROWS_MAX: usize = 500;

/// The panel's body.
pub(crate) fn view(scope: Scope<'_>) -> Html {
    let Some(rows) = &scope.state.view.tree else {
        return html! { <p class="empty">{ "No file yet." }</p> };
    };
    html! {
        <div class="scroll"><table>
            <thead><tr><th>{ "path" }</th><th class="n">{ "bytes" }</th>
                if scope.state.ui != Ui::Mini { <th class="n">{ "inode" }</th> }
                <th>{ "newest version" }</th></tr></thead>
            <tbody>{ for rows.iter().take(ROWS_MAX).map(|row| line(scope, row)) }</tbody>
        </table>
        if rows.len() > ROWS_MAX { <p class="readout">{ format!("and {} more", thousands((rows.len() - ROWS_MAX) as u64)) }</p> }
        </div>
    }
}

/// Exact where there is room for the digits.
fn size(of: u64) -> String {
    if of < 100_000_000 {
        thousands(of)
    } else {
        bytes(of)
    }
}

fn line(scope: Scope<'_>, row: &TreeRow) -> Html {
    let select = Action::Select(Some(Selection::Inode(row.ino)));
    let chosen = scope.state.selection == Some(Selection::Inode(row.ino));
    html! {
        <tr class={classes!("pick", chosen.then_some("selected"))} onclick={scope.on(select.clone())} title={row.why.clone()}>
            <td class="path"><button class="link" onclick={scope.on(select)}>{ &row.path }{ if row.kind == "d" && row.path != "/" { "/" } else { "" } }</button></td>
            <td class="n">{ if row.kind == "-" { size(row.size) } else { String::new() } }</td>
            if scope.state.ui != Ui::Mini { <td class="n">{ if row.ino == 0 { "none".to_string() } else { row.ino.to_string() } }</td> }
            <td>{ badge(row.durability) }</td>
        </tr>
    }
}
