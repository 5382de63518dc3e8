//! Named scenes: experiment texts from `static/scenes`, and the switches that a scene offers on the keys 1 to 3.

use super::ab::{Ab, Published};
use super::text::parse_instant;
use crate::link::protocol::Experiment;

/// Scene of the first screen.
pub const FIRST: &str = "write-nofsync";

const TEXTS: [(&str, &str); 7] = [
    (
        "write-nofsync",
        include_str!("../../../static/scenes/write-nofsync.toml"),
    ),
    (
        "rename-nofsync",
        include_str!("../../../static/scenes/rename-nofsync.toml"),
    ),
    (
        "one-echo",
        include_str!("../../../static/scenes/one-echo.toml"),
    ),
    (
        "s1-iversion",
        include_str!("../../../static/scenes/s1-iversion.toml"),
    ),
    (
        "s2-lazyinit",
        include_str!("../../../static/scenes/s2-lazyinit.toml"),
    ),
    (
        "s2-postmark",
        include_str!("../../../static/scenes/s2-postmark.toml"),
    ),
    (
        "s3-journal",
        include_str!("../../../static/scenes/s3-journal.toml"),
    ),
];

/// Names and titles, in the order of the menu.
pub fn list() -> Vec<(&'static str, String)> {
    TEXTS
        .iter()
        .map(|(name, text)| (*name, read(text).experiment.title))
        .collect()
}

/// A named scene.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scene {
    /// What to run.
    pub experiment: Experiment,
    /// One sentence under the title.
    pub sentence: String,
    /// Where the cursor stands.
    pub at_ns: u64,
    /// Panels of its bench where they are not the usual ones, ids in order.
    pub panels: String,
    /// At most three switches.
    pub switches: Vec<Switch>,
    /// What its A/B compares, with the numbers of its thread.
    pub ab: Ab,
    /// What the thread says of the inode tables.
    pub itable: String,
}

/// One labelled change of a scene.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Switch {
    /// Label.
    pub label: String,
    /// A line of the workload that is written as a comment while the switch is off.
    pub line: String,
    /// A mount option.
    pub mount: String,
    /// The mount option that takes its place while it is off; empty for none.
    pub back: String,
}

impl Switch {
    /// Whether the experiment has it.
    pub fn is_on(&self, experiment: &Experiment) -> bool {
        if self.line.is_empty() {
            experiment.mount.split(',').any(|o| o.trim() == self.mount)
        } else {
            experiment.workload.lines().any(|l| l.trim() == self.line)
        }
    }

    /// Turns it on or off.
    pub fn toggle(&self, experiment: &mut Experiment) {
        let on = self.is_on(experiment);
        if self.line.is_empty() {
            let key = self.mount.split('=').next().unwrap_or_default();
            let mut options: Vec<&str> = experiment
                .mount
                .split(',')
                .map(str::trim)
                .filter(|o| !o.is_empty() && o.split('=').next() != Some(key))
                .collect();
            let now = if on { &self.back } else { &self.mount };
            if !now.is_empty() {
                options.push(now);
            }
            experiment.mount = options.join(",");
        } else {
            let mut out = String::new();
            for line in experiment.workload.lines() {
                let bare = line.trim().trim_start_matches('#').trim();
                if bare == self.line {
                    out.push_str(if on { "# " } else { "" });
                    out.push_str(bare);
                } else {
                    out.push_str(line);
                }
                out.push('\n');
            }
            experiment.workload = out;
        }
    }
}

/// Finds a scene by its name.
pub fn find(name: &str) -> Option<Scene> {
    TEXTS
        .iter()
        .find(|(n, _)| *n == name)
        .map(|(_, text)| read(text))
}

/// Reads the subset of TOML that the scenes use: sections, `key = "text"`, numbers and multi-line strings. Lines
/// that begin with `#:` are comments to the engine and hints to the page.
fn read(text: &str) -> Scene {
    let mut scene = Scene {
        experiment: Experiment {
            seed: 1,
            ..Default::default()
        },
        ab: Ab::of_hint(""),
        ..Default::default()
    };
    let mut section = "";
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let line = line.trim();
        if let Some((key, value)) = line
            .strip_prefix("#:")
            .and_then(|hint| hint.split_once('='))
        {
            hint(&mut scene, key.trim(), value.trim());
            continue;
        }
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
            continue;
        }
        let Some((key, value)) = line.split_once('=') else {
            continue;
        };
        let value = value.trim();
        let value = if value == "\"\"\"" {
            let body: Vec<&str> = lines
                .by_ref()
                .take_while(|l| l.trim() != "\"\"\"")
                .collect();
            body.join("\n") + "\n"
        } else {
            value.trim_matches('"').to_string()
        };
        set(&mut scene.experiment, section, key.trim(), value);
    }
    scene
}

fn hint(scene: &mut Scene, key: &str, value: &str) {
    match key {
        "sentence" => scene.sentence = value.into(),
        "panels" => scene.panels = value.into(),
        "at" => scene.at_ns = parse_instant(value).unwrap_or_default(),
        "until" => scene.experiment.until_ns = parse_instant(value).unwrap_or_default(),
        "ab" => {
            scene.ab = Ab {
                published: std::mem::take(&mut scene.ab.published),
                ..Ab::of_hint(value)
            }
        }
        "ab-length" => scene.ab.length_ns = parse_instant(value).unwrap_or_default(),
        "ab-seeds" => scene.ab.seeds = value.parse().unwrap_or(scene.ab.seeds),
        "itable" => scene.itable = value.into(),
        "published" => {
            let mut parts = value.split('|').map(|p| p.trim().to_string());
            let mut next = || parts.next().unwrap_or_default();
            scene.ab.published.push(Published {
                name: next(),
                a: next(),
                b: next(),
                change: next(),
            });
        }
        "switch" => {
            let mut parts = value.split('|').map(|p| p.trim().to_string());
            let mut switch = Switch {
                label: parts.next().unwrap_or_default(),
                ..Default::default()
            };
            match (parts.next().as_deref(), parts.next()) {
                (Some("line"), Some(line)) => switch.line = line,
                (Some("mount"), Some(option)) => {
                    switch.mount = option;
                    switch.back = parts.next().unwrap_or_default();
                }
                _ => return,
            }
            scene.switches.push(switch);
        }
        _ => {}
    }
}

/// The form keeps the machine with the device.
fn machine(e: &mut Experiment, key: &str, value: &str) {
    e.device = format!("{},machine.{key}={value}", e.device);
}

fn set(e: &mut Experiment, section: &str, key: &str, value: String) {
    match (section, key) {
        ("", "title") => e.title = value,
        ("", "seed") => e.seed = value.parse().unwrap_or(1),
        ("device", "preset") => e.device = value,
        ("device", "size") => e.size = value,
        ("device", key) => e.device = format!("{},{key}={value}", e.device),
        ("machine", key) => machine(e, key, &value),
        ("mkfs", "opts") => e.mkfs = value,
        ("mount", "options") => e.mount = value,
        ("workload", kind) => {
            e.kind = kind.into();
            e.workload = value;
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scene_is_complete() {
        for (name, _) in TEXTS {
            let scene = find(name).expect("listed");
            let e = &scene.experiment;
            assert!(
                !e.title.is_empty() && !e.device.is_empty() && !e.size.is_empty(),
                "{name}"
            );
            assert!(
                matches!(e.kind.as_str(), "ops" | "fio" | "postmark")
                    && !e.workload.trim().is_empty(),
                "{name}"
            );
            assert!(
                !scene.sentence.is_empty() && scene.switches.len() <= 3 && e.until_ns > 0,
                "{name}"
            );
        }
    }

    #[test]
    fn switches_toggle_and_toggle_back() {
        for (name, _) in TEXTS {
            let scene = find(name).expect("listed");
            for switch in &scene.switches {
                let mut e = scene.experiment.clone();
                assert!(!switch.is_on(&e), "{name} {}", switch.label);
                switch.toggle(&mut e);
                assert!(switch.is_on(&e), "{name} {}", switch.label);
                switch.toggle(&mut e);
                assert!(!switch.is_on(&e), "{name} {}", switch.label);
            }
        }
    }
}
