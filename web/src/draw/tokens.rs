//! Colours and faces of the current theme. The style sheet is their only source: canvases read it.

/// Colours of the theme in force.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Tokens {
    /// Paper.
    pub(crate) ground: String,
    /// Raised paper.
    pub(crate) raised: String,
    /// Text.
    pub(crate) ink: String,
    /// Second text.
    pub(crate) ink_2: String,
    /// Third text.
    pub(crate) ink_3: String,
    /// Hairline.
    pub(crate) rule: String,
    /// Control border, axis.
    pub(crate) rule_strong: String,
    /// Focus.
    pub(crate) focus: String,
    /// Loss or corruption.
    pub(crate) alert: String,
    /// Fill per role.
    pub(crate) role: [String; 7],
    /// Text on the fill per role.
    pub(crate) on: [String; 7],
    /// Heat ramp, empty to many.
    pub(crate) heat: [String; 6],
    /// Stroke factor.
    pub(crate) stroke: f64,
    /// Type factor.
    pub(crate) scale: f64,
    /// Interface face.
    pub(crate) sans: String,
    /// Face of numbers.
    pub(crate) mono: String,
    /// Face of titles.
    pub(crate) serif: String,
}

impl Tokens {
    /// Reads the style sheet.
    pub(crate) fn read() -> Self {
        let window = web_sys::window().expect("the page has a window");
        let root = window
            .document()
            .and_then(|d| d.document_element())
            .expect("a document has a root");
        let style = window.get_computed_style(&root).ok().flatten();
        let get = |name: &str| {
            style
                .as_ref()
                .and_then(|s| s.get_property_value(name).ok())
                .map(|v| v.trim().to_string())
                .unwrap_or_default()
        };
        let font_px: f64 = get("font-size")
            .trim_end_matches("px")
            .parse()
            .unwrap_or(16.0);
        Self {
            ground: get("--ground"),
            raised: get("--raised"),
            ink: get("--ink"),
            ink_2: get("--ink-2"),
            ink_3: get("--ink-3"),
            rule: get("--rule"),
            rule_strong: get("--rule-strong"),
            focus: get("--focus"),
            alert: get("--alert"),
            role: [
                "--free",
                "--fixed",
                "--bitmap",
                "--itable",
                "--tree",
                "--journal",
                "--data",
            ]
            .map(get),
            on: [
                "--ink-3",
                "--on-fixed",
                "--on-bitmap",
                "--on-itable",
                "--on-tree",
                "--on-journal",
                "--on-data",
            ]
            .map(get),
            heat: [
                "--heat-0", "--heat-1", "--heat-2", "--heat-3", "--heat-4", "--heat-5",
            ]
            .map(get),
            stroke: get("--stroke").parse().unwrap_or(1.0),
            scale: font_px / 16.0,
            sans: get("--sans"),
            mono: get("--mono"),
            serif: get("--serif"),
        }
    }

    /// `#RRGGBB` as numbers.
    pub(crate) fn rgb(colour: &str) -> [u8; 3] {
        let hex = colour.trim_start_matches('#');
        let part = |i: usize| {
            hex.get(i..i + 2)
                .and_then(|h| u8::from_str_radix(h, 16).ok())
                .unwrap_or(0)
        };
        [part(0), part(2), part(4)]
    }
}
