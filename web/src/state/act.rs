//! Everything that a person can do, once: buttons, keys and the palette all name these.

use crate::link::protocol::StepUnit;

/// One action without an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Play or pause.
    Play,
    /// One step of the chosen unit forward or back.
    Step(bool),
    /// Next or previous commit.
    Commit(bool),
    /// Next or previous mark.
    Mark(bool),
    /// To the start.
    Start,
    /// To the end.
    End,
    /// Three times faster or slower.
    Speed(bool),
    /// Type a time.
    TypeTime,
    /// Go to a block, inode, path or transaction.
    Goto,
    /// Pull the plug.
    PullPlug,
    /// Take back.
    Undo,
    /// Recovery: next or previous step.
    Recover(bool),
    /// One of the scene's switches, 0 to 2.
    Switch(u8),
    /// Next or previous panel.
    Panel(bool),
    /// Picture, Table, Log.
    View,
    /// Describe the panel in sentences.
    Describe,
    /// Speak the next event.
    Speak,
    /// Show or hide the inspector.
    Inspector,
    /// Hexadecimal or decimal.
    Hex,
    /// Projector theme.
    Projector,
    /// Next theme.
    Theme,
    /// Run the experiment as it is in the form.
    Run,
    /// Share dialog.
    Share,
    /// Copy the link.
    CopyLink,
    /// Save images.
    Save,
    /// Keys.
    Help,
    /// Palette of all actions.
    Palette,
    /// Close what is open.
    Close,
    /// Zoom into or out of the map.
    Zoom(bool),
    /// Whole disk.
    Fit,
    /// Ring or strip.
    Unroll,
    /// Every block of a group, or runs folded.
    Exact,
    /// Previous or next transaction.
    Tid(bool),
    /// Linear or logarithmic latency.
    LogAxis,
    /// Story or bench.
    Bench,
    /// Single-key shortcuts on or off.
    Keys,
    /// Fold the setup away or show it.
    Setup,
    /// Show the comparison of two settings.
    Ab,
    /// Run both.
    AbRun,
    /// Run A against itself.
    AbNoise,
    /// End the comparison.
    AbStop,
}

/// A row of the key map.
pub struct Entry {
    /// The action.
    pub act: Act,
    /// Stable name, value of `data-act`.
    pub name: &'static str,
    /// Key as `KeyboardEvent.key`, `Ctrl+` and `Shift+` in front.
    pub key: &'static str,
    /// A second key.
    pub other: &'static str,
    /// What it does, for `?` and the palette.
    pub words: &'static str,
}

const fn entry(
    act: Act,
    name: &'static str,
    key: &'static str,
    other: &'static str,
    words: &'static str,
) -> Entry {
    Entry {
        act,
        name,
        key,
        other,
        words,
    }
}

/// All actions.
pub const ENTRIES: &[Entry] = &[
    entry(Act::Play, "play", " ", "", "Play or pause"),
    entry(Act::Step(false), "step-back", "ArrowLeft", "", "Step back"),
    entry(
        Act::Step(true),
        "step-forward",
        "ArrowRight",
        "",
        "Step forward",
    ),
    entry(
        Act::Commit(false),
        "commit-back",
        "Shift+ArrowLeft",
        "",
        "Previous commit",
    ),
    entry(
        Act::Commit(true),
        "commit-forward",
        "Shift+ArrowRight",
        "",
        "Next commit",
    ),
    entry(Act::Mark(false), "mark-back", "PageUp", "", "Previous mark"),
    entry(
        Act::Mark(true),
        "mark-forward",
        "PageDown",
        ".",
        "Next mark",
    ),
    entry(Act::Start, "start", "Home", "", "To the start"),
    entry(Act::End, "end", "End", "", "To the end"),
    entry(Act::Speed(false), "slower", "<", "", "Three times slower"),
    entry(Act::Speed(true), "faster", ">", "", "Three times faster"),
    entry(Act::TypeTime, "type-time", "t", "", "Type a time"),
    entry(
        Act::Goto,
        "goto",
        "g",
        "",
        "Go to a block, inode, path or transaction",
    ),
    entry(Act::PullPlug, "crash", "c", "", "Pull the plug"),
    entry(
        Act::Undo,
        "undo",
        "Backspace",
        "Ctrl+z",
        "Take the last action back",
    ),
    entry(
        Act::Recover(true),
        "recover-next",
        "r",
        "",
        "Recovery: next step",
    ),
    entry(
        Act::Recover(false),
        "recover-back",
        "Shift+R",
        "",
        "Recovery: previous step",
    ),
    entry(
        Act::Switch(0),
        "switch-1",
        "1",
        "",
        "First switch of the scene",
    ),
    entry(
        Act::Switch(1),
        "switch-2",
        "2",
        "",
        "Second switch of the scene",
    ),
    entry(
        Act::Switch(2),
        "switch-3",
        "3",
        "",
        "Third switch of the scene",
    ),
    entry(Act::Panel(true), "panel-next", "F6", "", "Next panel"),
    entry(
        Act::Panel(false),
        "panel-back",
        "Shift+F6",
        "",
        "Previous panel",
    ),
    entry(Act::View, "view", "v", "", "Picture, Table or Log"),
    entry(Act::Describe, "describe", "d", "", "Describe the panel"),
    entry(Act::Speak, "speak", "n", "", "Speak the next event"),
    entry(
        Act::Inspector,
        "inspector",
        "i",
        "",
        "Show or hide the inspector",
    ),
    entry(
        Act::Hex,
        "hex",
        "h",
        "",
        "Numbers in hexadecimal or decimal",
    ),
    entry(Act::Projector, "projector", "p", "", "Projector theme"),
    entry(
        Act::Theme,
        "theme",
        "",
        "",
        "Next theme: light, dark, projector, as the system",
    ),
    entry(
        Act::Run,
        "run",
        "Ctrl+Enter",
        "",
        "Run the experiment in the form",
    ),
    entry(Act::Share, "share", "", "", "Share or embed"),
    entry(
        Act::CopyLink,
        "copy-link",
        "Ctrl+Shift+C",
        "",
        "Copy the link",
    ),
    entry(Act::Save, "save", "Ctrl+s", "", "Save the disk image"),
    entry(Act::Help, "help", "?", "", "All keys"),
    entry(Act::Palette, "palette", "Ctrl+k", "", "All actions"),
    entry(Act::Close, "close", "Escape", "", "Close, or zoom out"),
    entry(Act::Zoom(true), "zoom-in", "+", "w", "Zoom into the map"),
    entry(
        Act::Zoom(false),
        "zoom-out",
        "-",
        "s",
        "Zoom out of the map",
    ),
    entry(Act::Fit, "fit", "f", "", "Whole disk"),
    entry(Act::Unroll, "unroll", "u", "", "Journal as ring or strip"),
    entry(
        Act::Exact,
        "exact",
        "x",
        "",
        "Map: every block, or runs folded",
    ),
    entry(Act::Tid(false), "tid-back", ",", "", "Previous transaction"),
    entry(Act::Tid(true), "tid-forward", ";", "", "Next transaction"),
    entry(
        Act::LogAxis,
        "log-axis",
        "y",
        "",
        "Latency axis linear or logarithmic",
    ),
    entry(
        Act::Bench,
        "bench",
        "",
        "",
        "Open the bench, or back to the story",
    ),
    entry(Act::Keys, "keys", "", "", "Single-key shortcuts on or off"),
    entry(Act::Setup, "setup", "", "", "Show or fold the setup"),
    entry(Act::Ab, "ab", "", "", "Compare two settings, A and B"),
    entry(Act::AbRun, "ab-run", "", "", "A/B: run both settings"),
    entry(
        Act::AbNoise,
        "ab-noise",
        "",
        "",
        "A/B: A against itself, the noise alone",
    ),
    entry(Act::AbStop, "ab-stop", "", "", "A/B: end the comparison"),
];

impl Act {
    /// Stable name.
    pub fn name(self) -> &'static str {
        ENTRIES
            .iter()
            .find(|e| e.act == self)
            .map_or("", |e| e.name)
    }

    /// Words.
    pub fn words(self) -> &'static str {
        ENTRIES
            .iter()
            .find(|e| e.act == self)
            .map_or("", |e| e.words)
    }

    /// The action of a key; `single` says whether keys without Ctrl count.
    pub fn of_key(key: &str, ctrl: bool, shift: bool, single: bool) -> Option<Self> {
        let mut wanted = String::new();
        if ctrl {
            wanted.push_str("Ctrl+");
        }
        // Shift is part of the character except for named keys and for Shift+R, Ctrl+Shift+C.
        if shift && (key.len() > 1 || ctrl || key == "R") {
            wanted.push_str("Shift+");
        }
        wanted.push_str(key);
        let lower = wanted.to_lowercase();
        let always = ctrl || matches!(key, "Escape" | "F6");
        if !single && !always {
            return None;
        }
        ENTRIES
            .iter()
            .find(|e| {
                [e.key, e.other]
                    .iter()
                    .any(|k| !k.is_empty() && (*k == wanted || k.to_lowercase() == lower))
            })
            .map(|e| e.act)
    }
}

/// A unit of stepping with its name.
pub const UNITS: [(StepUnit, &str, &str); 5] = [
    (StepUnit::Event, "event", "event"),
    (StepUnit::Io, "io", "I/O"),
    (StepUnit::Syscall, "syscall", "system call"),
    (StepUnit::Commit, "commit", "commit"),
    (StepUnit::Checkpoint, "checkpoint", "checkpoint"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_names_are_unique() {
        let mut keys: Vec<&str> = ENTRIES
            .iter()
            .flat_map(|e| [e.key, e.other])
            .filter(|k| !k.is_empty())
            .collect();
        let mut names: Vec<&str> = ENTRIES.iter().map(|e| e.name).collect();
        for list in [&mut keys, &mut names] {
            let all = list.len();
            list.sort_unstable();
            list.dedup();
            assert_eq!(list.len(), all);
        }
    }

    #[test]
    fn keys_are_found() {
        let of = |key, ctrl, shift| Act::of_key(key, ctrl, shift, true);
        assert_eq!(of(" ", false, false), Some(Act::Play));
        assert_eq!(of("C", false, true), Some(Act::PullPlug));
        assert_eq!(of("c", true, false), None);
        assert_eq!(of("C", true, true), Some(Act::CopyLink));
        assert_eq!(of("?", false, true), Some(Act::Help));
        assert_eq!(of("r", false, false), Some(Act::Recover(true)));
        assert_eq!(of("R", false, true), Some(Act::Recover(false)));
        assert_eq!(of("ArrowLeft", false, true), Some(Act::Commit(false)));
        assert_eq!(Act::of_key("c", false, false, false), None);
        assert_eq!(Act::of_key("Escape", false, false, false), Some(Act::Close));
    }
}
