//! The link: experiment and view as `#1.<base64url(deflate(CBOR))>`, and the short query forms for people.
//!
//! Keys in the CBOR map are numbers that are never reused; only values that differ from the default are written.

use super::ab::Ab;
use super::cbor::{self, Value};
use super::scenes;
use crate::link::protocol::{Experiment, LossModel};

/// Everything that a link restores.
#[derive(Clone, Debug, PartialEq)]
pub struct Recipe {
    /// Named scene that the draft started from.
    pub scene: String,
    /// The experiment.
    pub experiment: Experiment,
    /// Cursor, ns.
    pub at_ns: u64,
    /// Panels, comma separated.
    pub panels: String,
    /// `light`, `dark`, `projector` or `auto`.
    pub theme: String,
    /// `story`, `bench` or `mini`.
    pub ui: String,
    /// Power was cut at the cursor, with this model.
    pub crash: Option<LossModel>,
    /// Caption of an embedded figure.
    pub caption: String,
    /// Two settings to compare.
    pub ab: Ab,
}

impl Default for Recipe {
    fn default() -> Self {
        Self::of_scene(scenes::FIRST).expect("the first scene exists")
    }
}

impl Recipe {
    /// The recipe of a named scene.
    pub fn of_scene(name: &str) -> Option<Self> {
        let scene = scenes::find(name)?;
        Some(Self {
            scene: name.into(),
            experiment: scene.experiment,
            at_ns: scene.at_ns,
            panels: String::new(),
            theme: "auto".into(),
            ui: if name == scenes::FIRST {
                "story".into()
            } else {
                "bench".into()
            },
            crash: None,
            caption: String::new(),
            ab: scene.ab,
        })
    }

    /// The fragment of the link, without `#`.
    pub fn fragment(&self) -> String {
        let base = Self::of_scene(&self.scene).unwrap_or_default();
        let mut pairs = vec![(1, Value::Text(self.scene.clone()))];
        let mut pairs_of_b = Vec::new();
        let mut text = |key: u64, ours: &str, theirs: &str| {
            if ours != theirs {
                pairs.push((key, Value::Text(ours.into())));
            }
        };
        let (e, b) = (&self.experiment, &base.experiment);
        text(2, &e.title, &b.title);
        text(3, &e.device, &b.device);
        text(4, &e.size, &b.size);
        text(5, &e.mkfs, &b.mkfs);
        text(6, &e.mount, &b.mount);
        text(7, &e.kind, &b.kind);
        text(8, &e.workload, &b.workload);
        text(9, &self.panels, &base.panels);
        text(10, &self.theme, &base.theme);
        text(11, &self.ui, &base.ui);
        text(15, &self.caption, &base.caption);
        // What B does not name is as in A; a link that says so names A's value.
        let mut own = |key: u64, ours: &Option<String>, theirs: &Option<String>, a: &str| {
            if ours != theirs {
                let value = ours.as_deref().unwrap_or(a);
                pairs_of_b.push((key, Value::Text(value.into())));
            }
        };
        let (ab, b_ab) = (&self.ab, &base.ab);
        own(17, &ab.device, &b_ab.device, &e.device);
        own(18, &ab.mkfs, &b_ab.mkfs, &e.mkfs);
        own(19, &ab.mount, &b_ab.mount, &e.mount);
        pairs.append(&mut pairs_of_b);
        let mut number = |key: u64, ours: u64, theirs: u64| {
            if ours != theirs {
                pairs.push((key, Value::Uint(ours)));
            }
        };
        number(12, e.seed, b.seed);
        number(13, e.until_ns, b.until_ns);
        number(14, self.at_ns, base.at_ns);
        number(20, u64::from(self.ab.seeds), u64::from(base.ab.seeds));
        number(21, self.ab.length_ns, base.ab.length_ns);
        match self.crash {
            None => {}
            Some(LossModel::AllLost) => number(16, 1, 0),
            Some(LossModel::AllKept) => number(16, 2, 0),
            Some(LossModel::Seed(seed)) => number(16, seed.saturating_add(3), 0),
        }
        let packed = miniz_oxide::deflate::compress_to_vec(&cbor::encode(&pairs), 9);
        format!("1.{}", base64url(&packed))
    }

    /// Reads a fragment (with or without `#`).
    pub fn of_fragment(fragment: &str) -> Result<Self, String> {
        let fragment = fragment.trim_start_matches('#');
        let Some((version, payload)) = fragment.split_once('.') else {
            return Err("the link has no version number".into());
        };
        if version != "1" {
            return Err(format!(
                "the link is of format {version}, this page reads format 1"
            ));
        }
        let broken = || "the link is damaged: a character was lost or added".to_string();
        let packed = unbase64url(payload).ok_or_else(broken)?;
        let bytes = miniz_oxide::inflate::decompress_to_vec_with_limit(&packed, 1 << 20)
            .map_err(|_| broken())?;
        let pairs = cbor::decode(&bytes).ok_or_else(broken)?;
        let scene = pairs
            .iter()
            .find_map(|(key, value)| match value {
                Value::Text(text) if *key == 1 => Some(text.clone()),
                _ => None,
            })
            .unwrap_or_default();
        let mut recipe = Self::of_scene(&scene).unwrap_or_default();
        recipe.scene = scene;
        for (key, value) in pairs {
            recipe.set(key, value);
        }
        Ok(recipe)
    }

    fn set(&mut self, key: u64, value: Value) {
        let e = &mut self.experiment;
        match (key, value) {
            (2, Value::Text(t)) => e.title = t,
            (3, Value::Text(t)) => e.device = t,
            (4, Value::Text(t)) => e.size = t,
            (5, Value::Text(t)) => e.mkfs = t,
            (6, Value::Text(t)) => e.mount = t,
            (7, Value::Text(t)) => e.kind = t,
            (8, Value::Text(t)) => e.workload = t,
            (9, Value::Text(t)) => self.panels = t,
            (10, Value::Text(t)) => self.theme = t,
            (11, Value::Text(t)) => self.ui = t,
            (12, Value::Uint(n)) => e.seed = n,
            (13, Value::Uint(n)) => e.until_ns = n,
            (14, Value::Uint(n)) => self.at_ns = n,
            (15, Value::Text(t)) => self.caption = t,
            (17, Value::Text(t)) => self.ab.device = (t != e.device).then_some(t),
            (18, Value::Text(t)) => self.ab.mkfs = (t != e.mkfs).then_some(t),
            (19, Value::Text(t)) => self.ab.mount = (t != e.mount).then_some(t),
            (20, Value::Uint(n)) => self.ab.seeds = n.clamp(1, 31) as u32,
            (21, Value::Uint(n)) => self.ab.length_ns = n.max(1),
            (16, Value::Uint(n)) => {
                self.crash = match n {
                    0 => None,
                    1 => Some(LossModel::AllLost),
                    2 => Some(LossModel::AllKept),
                    seed => Some(LossModel::Seed(seed - 3)),
                }
            }
            // A newer page may write keys that this one does not know.
            _ => {}
        }
    }

    /// Applies only theme and caption of a query, where the link says nothing of them.
    pub fn apply_looks(&mut self, query: &str) {
        let mut looks = Self {
            theme: self.theme.clone(),
            ..Self::default()
        };
        looks.apply_query(query);
        if self.theme == "auto" {
            self.theme = looks.theme;
        }
        if self.caption.is_empty() {
            self.caption = looks.caption;
        }
    }

    /// Applies the query options of a page or an embed; unknown ones are left alone.
    pub fn apply_query(&mut self, query: &str) {
        for pair in query.trim_start_matches('?').split('&') {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let value = percent_decode(value);
            match key {
                "s" | "scene" => {
                    if let Some(named) = Self::of_scene(&value) {
                        let (theme, panels) = (self.theme.clone(), self.panels.clone());
                        *self = Self {
                            panels,
                            theme,
                            ..named
                        };
                    }
                }
                "t" => self.at_ns = super::text::parse_instant(&value).unwrap_or(self.at_ns),
                "p" => self.panels = value,
                "theme" => self.theme = value,
                "ui" => self.ui = value,
                "caption" => self.caption = value,
                _ => {}
            }
        }
    }
}

fn percent_decode(text: &str) -> String {
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let hex = tail.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        match (byte, hex.and_then(|two| u8::from_str_radix(two, 16).ok())) {
            (b'%', Some(value)) => {
                out.push(value);
                rest = &tail[2..];
            }
            (b'+', _) => {
                out.push(b' ');
                rest = tail;
            }
            _ => {
                out.push(byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn base64url(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 4 / 3 + 4);
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().fold(0u32, |acc, b| acc << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for i in 0..=chunk.len() {
            out.push(char::from(ALPHABET[(word >> (18 - 6 * i) & 63) as usize]));
        }
    }
    out
}

fn unbase64url(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len() * 3 / 4);
    for chunk in text.as_bytes().chunks(4) {
        if chunk.len() == 1 {
            return None;
        }
        let mut word = 0u32;
        for byte in chunk {
            let six = ALPHABET.iter().position(|a| a == byte)? as u32;
            word = word << 6 | six;
        }
        word <<= 6 * (4 - chunk.len());
        out.extend(&word.to_be_bytes()[1..chunk.len()]);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Links that were given out must open for ever: never change a line here, only add.
    const CORPUS: &[(&str, &str, u64)] = &[];

    #[test]
    fn round_trip() {
        let mut recipe = Recipe::default();
        assert_eq!(Recipe::of_fragment(&recipe.fragment()), Ok(recipe.clone()));
        recipe.experiment.mount = "data=journal".into();
        recipe.experiment.workload = "create /über\nfsync /über\n".into();
        recipe.at_ns = 6_000_000_001;
        recipe.ab.mount = Some("data=journal,nobarrier".into());
        recipe.ab.seeds = 11;
        recipe.crash = Some(LossModel::Seed(7));
        let link = recipe.fragment();
        assert_eq!(Recipe::of_fragment(&format!("#{link}")), Ok(recipe));
        assert!(
            link.len() < 400,
            "typical custom link has {} characters",
            link.len()
        );
    }

    #[test]
    fn old_links_open() {
        for (fragment, mount, at_ns) in CORPUS {
            let recipe = Recipe::of_fragment(fragment).expect("a link of the corpus opens");
            assert_eq!(
                (recipe.experiment.mount.as_str(), recipe.at_ns),
                (*mount, *at_ns)
            );
        }
    }

    #[test]
    fn damaged_links_say_so() {
        for link in ["", "2.abc", "1.", "1.!!!!", "1.AAAA", "1.A"] {
            assert!(Recipe::of_fragment(link).is_err(), "{link}");
        }
        let good = Recipe::default().fragment();
        for cut in 3..good.len() {
            let _ = Recipe::of_fragment(&good[..cut]);
        }
    }

    #[test]
    fn query_forms() {
        let mut recipe = Recipe::default();
        recipe.apply_query("?s=s3-journal&t=250ms&p=map,loss&theme=dark&x=1&caption=a%20b");
        assert_eq!(recipe.scene, "s3-journal");
        assert_eq!(
            (recipe.at_ns, recipe.panels.as_str()),
            (250_000_000, "map,loss")
        );
        assert_eq!(
            (recipe.theme.as_str(), recipe.caption.as_str()),
            ("dark", "a b")
        );
    }
}
