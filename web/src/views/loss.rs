//! "If the power failed now": always on the screen, words first, then two bars.

use fsglass_web::link::protocol::{Outcome, VERDICTS};
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
        </>
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
