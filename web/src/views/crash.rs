//! Crash: recovery step by step, and what survived and why.

use fsglass_web::link::protocol::{Crash, LossModel, Selection, Survivor, VERDICTS};
use fsglass_web::state::act::Act;
use fsglass_web::state::store::{Action, Ui};
use fsglass_web::state::text::count;
use yew::prelude::*;

use super::Scope;

/// The panel's body.
pub(crate) fn view(scope: Scope<'_>) -> Html {
    let Some(crash) = &scope.state.crash else {
        return html! { <p class="empty">{ "The plug is in." }</p> };
    };
    html! {
        <div class="scroll">
            { survivors(scope, crash) }
            if scope.state.ui == Ui::Bench {
                { theatre(scope, crash) }
            }
            if !crash.fsck.is_empty() {
                <p class="readout">{ "fsck after recovery:" }</p>
                <ul>{ for crash.fsck.iter().map(|line| html! { <li class="mono">{ line }</li> }) }</ul>
            }
        </div>
    }
}

/// The loss model and what can be done now.
pub(crate) fn controls(scope: Scope<'_>) -> Html {
    let models = [
        (LossModel::AllLost, "all", "cache lost"),
        (LossModel::AllKept, "none", "cache kept"),
        (LossModel::Seed(1), "seed", "some, by seed"),
    ];
    let send = scope.send.clone();
    let onchange = Callback::from(move |e: Event| {
        let loss = match crate::widgets::value_of(&e).as_str() {
            "none" => LossModel::AllKept,
            "seed" => LossModel::Seed(1),
            _ => LossModel::AllLost,
        };
        send.emit(Action::SetLoss(loss));
    });
    html! {
        <select aria-label="What the volatile cache loses" data-act="loss-model" {onchange}>
            { for models.into_iter().map(|(model, value, name)| html! {
                <option {value} selected={std::mem::discriminant(&model) == std::mem::discriminant(&scope.state.loss)}>{ name }</option>
            }) }
        </select>
    }
}

/// Survivors, broken promises first. In the narrow column of the bench the reason has a line of its own.
pub(crate) fn survivors(scope: Scope<'_>, crash: &Crash) -> Html {
    let wide = scope.state.ui == Ui::Story;
    html! {
        <table class={classes!("survivors", (!wide).then_some("short"))} data-table="survivors">
            <caption class="sr">{ "What survived the power cut" }</caption>
            <thead><tr><th>{ "path" }</th><th>{ "app saw" }</th>
                if wide { <th class="wide">{ "promise" }</th> }
                <th>{ "after recovery" }</th><th>{ "verdict" }</th>
                if wide { <th class="wide">{ "because" }</th> }
            </tr></thead>
            <tbody>{ for crash.survivors.iter().take(500).map(|s| survivor(scope, s, wide)) }</tbody>
        </table>
    }
}

fn survivor(scope: Scope<'_>, s: &Survivor, wide: bool) -> Html {
    let verdict = usize::from(s.verdict).min(VERDICTS.len() - 1);
    let glyph = ["●", "◐", "◔", "○", "✕", "✕", "✕"][verdict];
    let broken = if s.broken { ", promise broken" } else { "" };
    let promise = if s.promise.is_empty() {
        "none"
    } else {
        s.promise.as_str()
    };
    let because = match s.block {
        Some(block) => html! {
            <button class="link" onclick={scope.on(Action::Select(Some(Selection::Block(block))))}>{ &s.because }</button>
        },
        None => html! { <>{ &s.because }</> },
    };
    let row = html! {
        <tr data-verdict={VERDICTS[verdict]}>
            <td class="path">{ &s.path }</td>
            <td>{ &s.saw }</td>
            if wide { <td class="wide">{ promise }</td> }
            <td>{ &s.after }</td>
            <td class={classes!("verdict", (s.broken || verdict > 1).then_some("bad"))}>{ glyph }{ " " }{ VERDICTS[verdict] }{ broken }</td>
            if wide { <td class="wide">{ because.clone() }</td> }
        </tr>
    };
    if wide || scope.state.ui == Ui::Mini {
        return row;
    }
    html! {
        <>{ row }<tr class="why"><td></td><td colspan="3">{ format!("promise: {promise}. ") }{ because }</td></tr></>
    }
}

fn theatre(scope: Scope<'_>, crash: &Crash) -> Html {
    let at = scope.state.recovery;
    let act = |act: Act, words: &'static str| html! { <button data-act={act.name()} onclick={scope.on(Action::Act(act))}>{ words }</button> };
    html! {
        <>
            <div class="theatre">
                { act(Act::Recover(false), "‹ step") }{ act(Act::Recover(true), "step ›") }
                <span class="readout">{ format!("recovery {at} of {}", crash.steps.len()) }</span>
                { act(Act::Undo, "Plug in again") }
                { act(Act::Save, "Let Linux judge") }
            </div>
            <ol class="steps" data-table="recovery">{ for crash.steps.iter().enumerate().map(|(i, step)| {
                let class = if i + 1 == at { "now past" } else if i < at { "past" } else { "" };
                let copies = if step.copies.is_empty() { String::new() } else { format!(" ({})", count(step.copies.len() as u64, "block copied home", "blocks copied home")) };
                html! { <li class={class}><b>{ &step.title }</b><span>{ &step.sentence }{ copies }</span></li> }
            }) }</ol>
        </>
    }
}
