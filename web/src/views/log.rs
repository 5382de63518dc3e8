//! The log view: one sentence per event around the cursor.

use fsglass_web::link::protocol::Selection;
use fsglass_web::state::store::Action;
use fsglass_web::state::text::instant;
use yew::prelude::*;

use super::Scope;

/// Sentences of these families; all of them where none of these is there.
pub(crate) fn view(scope: Scope<'_>, families: &[&str]) -> Html {
    let state = scope.state;
    let Some(log) = &state.view.log else {
        return html! { <p class="empty">{ "Nothing has happened yet." }</p> };
    };
    let mine = |family: &str| families.iter().any(|f| family.starts_with(f));
    let any = log.iter().any(|l| mine(&l.family));
    let now = log.iter().rposition(|l| l.ns <= state.at_ns);
    html! {
        <ol class="log scroll" data-log="1">
            { for log.iter().enumerate().filter(|(_, l)| !any || mine(&l.family)).map(|(i, line)| {
                let class = classes!((Some(i) == now).then_some("now"), (line.ns > state.at_ns).then_some("later"));
                let words = match (line.block, line.tid) {
                    (Some(block), _) => link(scope, &line.sentence, Selection::Block(block)),
                    (None, Some(tid)) => link(scope, &line.sentence, Selection::Tid(tid)),
                    _ => html! { <span>{ &line.sentence }</span> },
                };
                html! {
                    <li {class}>
                        <button class="link num" onclick={scope.on(Action::Seek(line.ns))}>{ instant(line.ns) }</button>
                        <span class="family">{ &line.family }</span>
                        { words }
                    </li>
                }
            }) }
        </ol>
    }
}

fn link(scope: Scope<'_>, sentence: &str, to: Selection) -> Html {
    html! { <span class="pick" onclick={scope.on(Action::Select(Some(to)))}>{ sentence.to_string() }</span> }
}
