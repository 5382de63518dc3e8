//! Sheets over the page: keys, palette, share, go to, time, save. None in an embed.

use fsglass_web::link::protocol::Selection;
use fsglass_web::state::act::{Act, ENTRIES};
use fsglass_web::state::store::{Action, Dialog, State};
use fsglass_web::state::text::{bytes, instant, parse_instant};
use yew::prelude::*;

use super::value_of;
use crate::views::Scope;

/// The open sheet, if there is one.
pub(crate) fn view(scope: Scope<'_>, href: &str) -> Html {
    let Some(dialog) = scope.state.dialog else {
        return html! {};
    };
    let (title, body) = match dialog {
        Dialog::Help => ("Keys", help(scope)),
        Dialog::Palette => ("All actions", palette(scope)),
        Dialog::Share => ("Share and embed", share(scope, href)),
        Dialog::Goto => ("Go to", goto(scope)),
        Dialog::Time => ("Time", time(scope)),
        Dialog::Save => ("Let Linux be the judge", save(scope)),
    };
    html! {
        <div class="dialog" role="dialog" aria-label={title} tabindex="-1">
            <header><h2>{ title }</h2><button data-act={Act::Close.name()} onclick={scope.on(Action::Open(None))}>{ "Close " }<kbd>{ "Esc" }</kbd></button></header>
            { body }
        </div>
    }
}

fn shown(key: &str) -> String {
    let words = [
        (" ", "Space"),
        ("ArrowLeft", "←"),
        ("ArrowRight", "→"),
        ("Shift+ArrowLeft", "Shift ←"),
        ("Shift+ArrowRight", "Shift →"),
    ];
    words
        .iter()
        .find(|(k, _)| *k == key)
        .map_or_else(|| key.replace('+', " "), |(_, w)| (*w).to_string())
}

fn help(scope: Scope<'_>) -> Html {
    html! {
        <>
            <p>
                <label><input type="checkbox" data-act={Act::Keys.name()} checked={scope.state.keys} onchange={scope.on(Action::Act(Act::Keys))} />{ " Single-key shortcuts are on" }</label>
            </p>
            <ul class="keymap">
                { for ENTRIES.iter().filter(|e| !e.key.is_empty()).map(|e| html! {
                    <li><span>{ e.words }</span><span><kbd>{ shown(e.key) }</kbd>{ if e.other.is_empty() { html! {} } else { html! { <>{ " " }<kbd>{ shown(e.other) }</kbd></> } } }</span></li>
                }) }
                <li><span>{ "Map: move the cursor" }</span><kbd>{ "Alt arrows" }</kbd></li>
                <li><span>{ "Map: select what is under the cursor" }</span><kbd>{ "Enter" }</kbd></li>
            </ul>
        </>
    }
}

fn palette(scope: Scope<'_>) -> Html {
    html! {
        <ul class="keymap">{ for ENTRIES.iter().filter(|e| e.act != Act::Palette).map(|e| {
            let send = scope.send.clone();
            let act = e.act;
            let onclick = Callback::from(move |_: MouseEvent| {
                send.emit(Action::Open(None));
                send.emit(Action::Act(act));
            });
            html! { <li><button class="link" {onclick}>{ e.words }</button>if !e.key.is_empty() { <kbd>{ shown(e.key) }</kbd> }</li> }
        }) }</ul>
    }
}

fn share(scope: Scope<'_>, href: &str) -> Html {
    const LONG: usize = 2_000;
    let base = href.split(['#', '?']).next().unwrap_or(href);
    let folder = base.rsplit_once('/').map_or(base, |(f, _)| f);
    let fragment = scope.state.recipe().fragment();
    let link = format!("{base}#{fragment}");
    let title = scope.state.draft.title.replace('"', "'");
    let frame = format!(
        "<iframe src=\"{folder}/e/#{fragment}\" title=\"{title}\"\n  width=\"640\" height=\"360\" loading=\"lazy\" allow=\"fullscreen; clipboard-write\"></iframe>"
    );
    html! {
        <>
            <p>{ format!("The link holds the experiment, the instant and the view: {} characters. Nothing is stored anywhere else.", link.len()) }</p>
            if link.len() > LONG { <p class="bad">{ "Some mail programs cut links of more than 2 000 characters." }</p> }
            <pre tabindex="0" data-act="link">{ &link }</pre>
            <div class="row"><button data-act={Act::CopyLink.name()} onclick={scope.on(Action::Act(Act::CopyLink))}>{ "Copy the link" }</button></div>
            <p>{ "As a figure in another page:" }</p>
            <pre tabindex="0" data-act="embed">{ frame }</pre>
        </>
    }
}

/// Reads `1057`, `block 33`, `inode 12`, `T8`, `group 3`, `/path`, `super`.
fn parse_target(text: &str) -> Option<Selection> {
    let text = text.trim();
    if text.starts_with('/') {
        return Some(Selection::Path(text.into()));
    }
    let lower = text.to_lowercase();
    if lower.starts_with("super") {
        return Some(Selection::Super);
    }
    let digits: String = lower.chars().skip_while(|c| !c.is_ascii_digit()).collect();
    let number = digits.strip_prefix("0x").map_or_else(
        || digits.parse().ok(),
        |hex| u64::from_str_radix(hex, 16).ok(),
    )?;
    let small = u32::try_from(number).ok();
    match lower.chars().next()? {
        'i' | '<' => small.map(Selection::Inode),
        't' => small.map(Selection::Tid),
        'g' => small.map(Selection::Group),
        'j' => small.map(Selection::JournalBlock),
        _ => Some(Selection::Block(number)),
    }
}

fn goto(scope: Scope<'_>) -> Html {
    let send = scope.send.clone();
    let onchange = Callback::from(move |e: Event| match parse_target(&value_of(&e)) {
        Some(target) => {
            send.emit(Action::Select(Some(target)));
            send.emit(Action::Open(None));
        }
        None => send.emit(Action::Say(
            "Not understood: write 1057, inode 12, T8, group 3, j 40, /path or super.".into(),
        )),
    });
    html! {
        <>
            <p>{ "A block number, or: " }<code>{ "inode 12" }</code>{ ", " }<code>{ "T8" }</code>{ ", " }<code>{ "group 3" }</code>{ ", " }<code>{ "j 40" }</code>{ " (journal block), " }<code>{ "/path" }</code>{ ", " }<code>{ "super" }</code>{ "." }</p>
            <input type="text" class="mono" data-act="goto-text" aria-label="Target" {onchange} />
        </>
    }
}

fn time(scope: Scope<'_>) -> Html {
    let send = scope.send.clone();
    let onchange = Callback::from(move |e: Event| match parse_instant(&value_of(&e)) {
        Some(ns) => {
            send.emit(Action::Seek(ns));
            send.emit(Action::Open(None));
        }
        None => send.emit(Action::Say("Not a time: write 6s, 250ms or 1.5.".into())),
    });
    html! {
        <>
            <p>{ "In seconds, or with a unit: " }<code>{ "6s" }</code>{ ", " }<code>{ "250ms" }</code>{ ", " }<code>{ "12 345 678 us" }</code>{ "." }</p>
            <input type="text" class="mono" data-act="time-text" aria-label="Time" placeholder={instant(scope.state.at_ns)} {onchange} />
        </>
    }
}

fn save(scope: Scope<'_>) -> Html {
    html! {
        <>
            <p>{ format!("The disk as a power cut at {} leaves it, and a manifest of what recovery gives.", instant(scope.state.at_ns)) }</p>
            <div class="row">
                <button data-act="export-before" onclick={scope.on(Action::Export(false))}>{ "Save before recovery" }</button>
                <button data-act="export-after" onclick={scope.on(Action::Export(true))}>{ "Save after recovery" }</button>
            </div>
            { exported(scope.state) }
            <p>{ "Mounting an image that you did not make yourself belongs in a virtual machine." }</p>
        </>
    }
}

fn exported(state: &State) -> Html {
    let Some(export) = &state.export else {
        return html! {};
    };
    html! {
        <>
            <p>{ "Saved: " }{ export.files.iter().map(|f| format!("{} ({})", f.name, bytes(f.bytes.len() as u64))).collect::<Vec<_>>().join(", ") }</p>
            <p>{ "We predict: " }{ &export.prediction }</p>
            <pre tabindex="0" data-act="recipe">{ &export.recipe }</pre>
        </>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets() {
        assert_eq!(parse_target("1057"), Some(Selection::Block(1057)));
        assert_eq!(parse_target("inode 12"), Some(Selection::Inode(12)));
        assert_eq!(parse_target("<12>"), Some(Selection::Inode(12)));
        assert_eq!(parse_target("T8"), Some(Selection::Tid(8)));
        assert_eq!(parse_target("0x421"), Some(Selection::Block(0x421)));
        assert_eq!(parse_target("/a b"), Some(Selection::Path("/a b".into())));
        assert_eq!(parse_target("what"), None);
    }
}
