//! "If the power failed now": always on the screen, words first, then two bars.

use fsglass_web::link::protocol::{Outcome, VERDICTS};
use fsglass_web::state::store::{Action, Ui};
use fsglass_web::state::text::{count, instant_short};
use yew::prelude::*;

use super::Scope;

/// The panel's body.
pub(crate) fn view(scope: Scope<'_>) -> Html {
    let Some(loss) = &scope.state.view.loss else {
        return html! { <p class="words">{ "Known once the file system is mounted." }</p> };
    };
    let late = if loss.as_of_ns == scope.state.at_ns {
        String::new()
    } else {
        format!(" As of {}.", instant_short(loss.as_of_ns))
    };
    html! {
        <>
            <p class="words">{ words(&loss.worst, loss.promises) }{ late }</p>
            <div class="bars">
                <span>{ "cache lost" }</span>{ bar(&loss.worst) }
                <span>{ "cache kept" }</span>{ bar(&loss.best) }
            </div>
            if scope.state.ui == Ui::Bench && !scope.state.danger.is_empty() { { instants(scope) } }
        </>
    }
}

/// The danger strip as a table.
fn instants(scope: Scope<'_>) -> Html {
    let all = scope.state.danger.iter().all(|d| d.exhaustive);
    html! {
        <details data-act="danger-table">
            <summary>{ scope.state.danger_words() }</summary>
            <p class="hint">{ if all { "All states that a power cut can leave." } else { "Where there are many states: the extremes, prefixes and a seeded choice." } }</p>
            <div class="scroll"><table data-table="danger">
                <thead><tr><th class="n">{ "instant" }</th><th class="n">{ "states" }</th><th class="n">{ "as seen" }</th><th class="n">{ "lost, old" }</th><th class="n">{ "broken" }</th></tr></thead>
                <tbody>{ for scope.state.danger.iter().map(|d| html! {
                    <tr>
                        <td class="n"><button class="link" onclick={scope.on(Action::Seek(d.at_ns))}>{ instant_short(d.at_ns) }</button></td>
                        <td class="n">{ d.states }{ if d.exhaustive { "" } else { " of more" } }</td>
                        { for d.by_fate.iter().map(|n| html! { <td class="n">{ n }</td> }) }
                    </tr>
                }) }</tbody>
            </table></div>
        </details>
    }
}

fn words(outcome: &Outcome, promises: u32) -> String {
    let files: u32 = outcome.by_verdict.iter().sum();
    let named: Vec<String> = outcome
        .by_verdict
        .iter()
        .enumerate()
        .filter(|(_, n)| **n > 0)
        .map(|(v, n)| format!("{n} {}", VERDICTS[v]))
        .collect();
    format!(
        "{} made, {} would break. {}: {}.",
        count(u64::from(promises), "promise", "promises"),
        outcome.broken,
        count(u64::from(files), "file", "files"),
        if named.is_empty() {
            "none".into()
        } else {
            named.join(", ")
        }
    )
}

fn bar(outcome: &Outcome) -> Html {
    let total: u32 = outcome.by_verdict.iter().sum::<u32>().max(1);
    let mut x = 0.0;
    html! {
        <svg viewBox="0 0 200 16" preserveAspectRatio="none" role="img" aria-label={words(outcome, 0)}>
            { for outcome.by_verdict.iter().enumerate().filter(|(_, n)| **n > 0).map(|(verdict, n)| {
                let w = 200.0 * f64::from(*n) / f64::from(total);
                let at = x;
                x += w;
                let class = if verdict == 0 { "role-data" } else { "role-alert" };
                let shown = (w - 1.0).max(0.5);
                html! {
                    <g>
                        <rect class={class} x={at.to_string()} y="1" width={shown.to_string()} height="14"/>
                        if verdict == 1 || verdict == 2 { <rect class="paper" x={(at + 2.0).to_string()} y="4" width={(shown - 4.0).max(0.0).to_string()} height="8"/> }
                    </g>
                }
            }) }
        </svg>
    }
}
