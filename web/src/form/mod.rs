//! Setup: device, mkfs and mount in the order of reality, and the workload. Typing in the command lines changes
//! the same fields that the lists do.

use std::rc::Rc;

use fsglass_web::state::act::Act;
use fsglass_web::state::commands;
use fsglass_web::state::options::{given, with, MOUNT};
use fsglass_web::state::presets::{postmark, with_postmark, POSTMARK, PRESETS};
use fsglass_web::state::scenes;
use fsglass_web::state::store::{Action, Field, State};
use fsglass_web::state::text::{bytes, duration};
use yew::prelude::*;

use crate::views::Scope;
use crate::widgets::value_of;

const DEVICES: [(&str, &str); 9] = [
    ("hdd", "Disk, 7 200/min, write cache"),
    ("hdd-2010", "Disk of 2010, write cache"),
    ("sata-ssd", "SATA SSD, volatile cache"),
    ("sata-ssd-plp", "SATA SSD, protected cache"),
    ("nvme", "NVMe SSD, volatile cache"),
    ("nvme-plp", "NVMe SSD, no cache"),
    ("optane", "Optane, no cache"),
    ("emmc", "eMMC"),
    ("loop", "Loop device of the lab"),
];
const SIZES: [&str; 8] = ["16M", "64M", "128M", "1G", "8G", "149G", "200G", "16T"];

/// The setup rail.
pub(crate) fn view(scope: Scope<'_>) -> Html {
    let state = scope.state;
    html! {
        <form class="setup" aria-label="Setup" onsubmit={Callback::from(|e: SubmitEvent| e.prevent_default())}>
            <h3>{ "Scene" }</h3>
            { scene_list(scope) }
            { switches(scope) }
            <h3>{ "Device" }</h3>
            { device(scope) }
            <h3>{ "mkfs" }</h3>
            { mkfs(scope) }
            <h3>{ "mount" }</h3>
            { mount(scope) }
            <h3>{ "Workload" }</h3>
            { workload(scope) }
            { problems(state, "") }
            <button type="button" class="run" data-act={Act::Run.name()} onclick={scope.on(Action::Act(Act::Run))}>
                { if state.running.as_ref() == Some(&state.draft) { "Run again" } else { "Run" } }{ "  " }<kbd>{ "Ctrl Enter" }</kbd>
            </button>
            { warnings(state) }
            { image(scope) }
        </form>
    }
}

fn scene_list(scope: Scope<'_>) -> Html {
    let send = scope.send.clone();
    let onchange = Callback::from(move |e: Event| send.emit(Action::Scene(value_of(&e))));
    let known = scenes::list();
    html! {
        <select aria-label="Scene" data-act="scene" {onchange}>
            { for known.into_iter().map(|(name, title)| html! { <option value={name} selected={name == scope.state.scene}>{ title }</option> }) }
        </select>
    }
}

/// The scene's switches, also on the keys 1 to 3.
pub(crate) fn switches(scope: Scope<'_>) -> Html {
    if scope.state.switches.is_empty() {
        return html! {};
    }
    html! {
        <div class="switches" role="group" aria-label="Switches of this scene">
            { for scope.state.switches.iter().enumerate().map(|(i, switch)| {
                let on = switch.is_on(&scope.state.draft);
                html! {
                    <button type="button" role="switch" aria-checked={on.to_string()} data-act={format!("switch-{}", i + 1)}
                        onclick={scope.on(Action::Act(Act::Switch(i as u8)))}>{ &switch.label }{ " " }<kbd>{ i + 1 }</kbd></button>
                }
            }) }
        </div>
    }
}

fn edit(scope: Scope<'_>, field: Field) -> Callback<InputEvent> {
    let send = scope.send.clone();
    Callback::from(move |e: InputEvent| send.emit(Action::Edit(field, value_of(&e))))
}

fn text(
    scope: Scope<'_>,
    field: Field,
    name: &'static str,
    act: &'static str,
    value: String,
    hint: &'static str,
) -> Html {
    html! {
        <label>{ name }<input type="text" class="mono" data-act={act} value={value} placeholder={hint} spellcheck="false" autocomplete="off"
            oninput={edit(scope, field)} /></label>
    }
}

fn device(scope: Scope<'_>) -> Html {
    let state = scope.state;
    let (preset, rest) = state
        .draft
        .device
        .split_once(',')
        .unwrap_or((&state.draft.device, ""));
    let pick = {
        let (send, rest) = (scope.send.clone(), rest.to_string());
        Callback::from(move |e: Event| {
            let preset = value_of(&e);
            let value = if rest.is_empty() {
                preset
            } else {
                format!("{preset},{rest}")
            };
            send.emit(Action::Edit(Field::Device, value));
        })
    };
    let more = {
        let (send, preset) = (scope.send.clone(), preset.to_string());
        Callback::from(move |e: InputEvent| {
            let rest = value_of(&e);
            let value = if rest.trim().is_empty() {
                preset.clone()
            } else {
                format!("{preset},{rest}")
            };
            send.emit(Action::Edit(Field::Device, value));
        })
    };
    html! {
        <>
            <label>{ "preset" }<select data-act="device" onchange={pick}>
                { for DEVICES.into_iter().map(|(id, name)| html! { <option value={id} selected={id == preset}>{ name }</option> }) }
            </select></label>
            <label>{ "size" }<input type="text" class="mono" data-act="size" list="sizes" value={state.draft.size.clone()} oninput={edit(scope, Field::Size)} />
            </label>
            <datalist id="sizes">{ for SIZES.into_iter().map(|s| html! { <option value={s}/> }) }</datalist>
            <label>{ "overrides" }<input type="text" class="mono" data-act="device-more" value={rest.to_string()} placeholder="cache=32M" spellcheck="false" oninput={more} /></label>
            <p class="hint">{ "Latency is modelled; bytes, blocks and order are exact." }</p>
            { problems(state, "device") }
            { problems(state, "size") }
        </>
    }
}

fn mkfs(scope: Scope<'_>) -> Html {
    let state = scope.state;
    html! {
        <>
            { text(scope, Field::Mkfs, "options", "mkfs", state.draft.mkfs.clone(), "-b 4096 -J size=64") }
            { problems(state, "mkfs") }
        </>
    }
}

fn mount(scope: Scope<'_>) -> Html {
    let state = scope.state;
    let row = |(key, choices, effect): &(&'static str, &'static [&'static str], &'static str)| {
        let now = given(&state.draft.mount, key).unwrap_or_else(|| choices[0].to_string());
        // What was typed need not be among the choices.
        let own = (!choices.contains(&now.as_str())).then(|| now.clone());
        let (send, mount, key, first) = (
            scope.send.clone(),
            state.draft.mount.clone(),
            *key,
            choices[0],
        );
        let onchange = Callback::from(move |e: Event| {
            let choice = value_of(&e);
            let value = with(&mount, key, &choice, choice == first);
            send.emit(Action::Edit(Field::Mount, value));
        });
        html! {
            <label title={*effect}>{ key }<select data-act={format!("mount-{key}")} {onchange}>
                { for choices.iter().enumerate().map(|(i, c)| html! {
                    <option value={*c} selected={*c == now}>{ format!("{c}{}", if i == 0 { " (default)" } else { "" }) }</option>
                }) }
                { for own.into_iter().map(|c| html! { <option value={c.clone()} selected=true>{ c }</option> }) }
            </select></label>
        }
    };
    let commands = state
        .typed
        .clone()
        .unwrap_or_else(|| commands::of(&state.draft, state.image.is_some()));
    html! {
        <>
            { for MOUNT.iter().map(row) }
            { text(scope, Field::Mount, "-o", "mount", state.draft.mount.clone(), "defaults") }
            { problems(state, "mount") }
            <p class="hint">{ "The same on Linux; typing here changes the form:" }</p>
            <textarea class="line" aria-label="Equivalent commands; typing here changes the form" data-act="commands" spellcheck="false"
                autocomplete="off" value={commands} oninput={edit(scope, Field::Commands)} />
        </>
    }
}

fn workload(scope: Scope<'_>) -> Html {
    let state = scope.state;
    let kind = {
        let send = scope.send.clone();
        Callback::from(move |e: Event| send.emit(Action::Edit(Field::Kind, value_of(&e))))
    };
    // Ctrl+Enter is caught by the page; Tab leaves the editor, as everywhere.
    html! {
        <>
            <label>{ "kind" }<select data-act="kind" onchange={kind}>
                <option value="ops" selected={state.draft.kind == "ops"}>{ "operations" }</option>
                <option value="fio" selected={state.draft.kind == "fio"}>{ "fio job" }</option>
                <option value="postmark" selected={state.draft.kind == "postmark"}>{ "PostMark" }</option>
            </select></label>
            { presets(scope) }
            if state.draft.kind == "postmark" { { postmark_fields(scope) } }
            <textarea aria-label="Workload" data-act="workload" spellcheck="false" wrap="off" rows="12" value={state.draft.workload.clone()} oninput={edit(scope, Field::Workload)} />
            { problems(state, "workload") }
            { text(scope, Field::Until, "run for", "until", duration(state.draft.until_ns).replace('\u{2009}', " "), "10s") }
            { text(scope, Field::Seed, "seed", "seed", state.draft.seed.to_string(), "1") }
        </>
    }
}

/// Workloads to start from.
fn presets(scope: Scope<'_>) -> Html {
    let send = scope.send.clone();
    let onchange = Callback::from(move |e: Event| {
        if let Ok(i) = value_of(&e).parse() {
            send.emit(Action::Preset(i));
        }
    });
    let draft = &scope.state.draft;
    let own = PRESETS
        .iter()
        .all(|(_, kind, text)| draft.kind != *kind || draft.workload != *text);
    html! {
        <label>{ "start from" }<select data-act="preset" {onchange}>
            <option value="" selected={own}>{ "as it is" }</option>
            { for PRESETS.iter().enumerate().map(|(i, (name, kind, text))| html! {
                <option value={i.to_string()} selected={draft.kind == *kind && draft.workload == *text}>{ *name }</option>
            }) }
        </select></label>
    }
}

/// PostMark's settings; each edits the line of its command.
fn postmark_fields(scope: Scope<'_>) -> Html {
    let text = &scope.state.draft.workload;
    html! {
        <>{ for POSTMARK.iter().map(|(name, default)| {
            let (send, text_now) = (scope.send.clone(), text.clone());
            let oninput = Callback::from(move |e: InputEvent| {
                let changed = with_postmark(&text_now, name, &value_of(&e));
                send.emit(Action::Edit(Field::Workload, changed));
            });
            html! {
                <label>{ *name }<input type="text" class="mono" data-act={format!("postmark-{}", name.replace(' ', "-"))} placeholder={*default}
                    value={postmark(text, name).unwrap_or_default()} spellcheck="false" autocomplete="off" {oninput} /></label>
            }
        }) }</>
    }
}

/// Problems of one field in words next to it; with an empty path, those of no field.
fn problems(state: &State, path: &str) -> Html {
    const FIELDS: [&str; 5] = ["device", "size", "mkfs", "mount", "workload"];
    let root = |p: &str| p.split('.').next().unwrap_or(p).to_string();
    let mine = state.problems.iter().filter(|p| {
        let root = root(&p.path);
        if path.is_empty() {
            !FIELDS.contains(&root.as_str())
        } else {
            root == path
        }
    });
    html! {
        { for mine.map(|p| html! {
            <p class="problem" role="alert">{ "✕ " }{ if p.line > 0 { format!("line {}: ", p.line) } else { String::new() } }{ &p.reason }</p>
        }) }
    }
}

fn warnings(state: &State) -> Html {
    let Some(loaded) = &state.loaded else {
        return html! {};
    };
    html! {
        <ul class="warnings" aria-label="Warnings">{ for loaded.warnings.iter().map(|w| html! { <li>{ w }</li> }) }</ul>
    }
}

fn image(scope: Scope<'_>) -> Html {
    let send = scope.send.clone();
    let onchange = Callback::from(move |e: Event| {
        use wasm_bindgen::JsCast;
        let input = e
            .target()
            .and_then(|t| t.dyn_into::<web_sys::HtmlInputElement>().ok());
        if let Some(file) = input.and_then(|i| i.files()).and_then(|f| f.get(0)) {
            read_image(&file, send.clone());
        }
    });
    let name = scope
        .state
        .image
        .as_ref()
        .map(|(name, bytes_of)| format!("{name}, {}", bytes(bytes_of.len() as u64)));
    html! {
        <div class="drop">
            { name.unwrap_or_else(|| "Or drop an ext4 image on the page. It never leaves the browser.".into()) }
            <label class="wide"><input type="file" data-act="upload" aria-label="Choose an ext4 image" {onchange} /></label>
        </div>
    }
}

/// Reads a file that the person chose and loads it.
pub(crate) fn read_image(file: &web_sys::File, send: Callback<Action>) {
    use wasm_bindgen::closure::Closure;
    use wasm_bindgen::JsCast;
    /// More than this does not fit beside a run in a browser's memory.
    const IMAGE_MAX: f64 = 1_073_741_824.0;
    let name = file.name();
    if file.size() > IMAGE_MAX {
        send.emit(Action::Say(format!(
            "{name} has more than 1 GiB, which this page does not take."
        )));
        return;
    }
    let Ok(reader) = web_sys::FileReader::new() else {
        return;
    };
    let shared = reader.clone();
    let onload = Closure::once_into_js(move || {
        if let Ok(result) = shared.result() {
            let bytes = js_sys::Uint8Array::new(&result).to_vec();
            send.emit(Action::Image(name, Rc::new(bytes)));
        }
    });
    reader.set_onload(Some(onload.unchecked_ref()));
    let _ = reader.read_as_array_buffer(file);
}
