//! Mount options as choices, and how they are spelled.

/// Mount options with a list: key, choices (first is the default), one line of effect.
pub const MOUNT: [(&str, &[&str], &str); 7] = [
    (
        "data",
        &["ordered", "journal", "writeback"],
        "journal: data into the log first; turns off delayed allocation and O_DIRECT",
    ),
    (
        "barrier",
        &["1", "0"],
        "0: no flush before and after a commit",
    ),
    (
        "commit",
        &["5", "1", "30", "300"],
        "seconds between timed commits",
    ),
    (
        "delalloc",
        &["delalloc", "nodelalloc"],
        "nodelalloc: blocks are chosen at write()",
    ),
    (
        "auto_da_alloc",
        &["auto_da_alloc", "noauto_da_alloc"],
        "writes a replaced file out at the rename",
    ),
    (
        "init_itable",
        &["10", "0", "1", "100", "noinit_itable"],
        "waits n times as long as it zeroed; noinit_itable: no thread",
    ),
    (
        "iversion_mode",
        &["lazy", "unconditional", "off"],
        "i_version. lazy: counts a change only after someone asked (since 4.16); unconditional: each change, as before; off",
    ),
];

/// Value of an option in a mount string, among the choices or not; `None` where it is not named.
pub fn given(mount: &str, key: &str) -> Option<String> {
    let named = mount.split(',').map(str::trim).rev();
    named.into_iter().find_map(|o| {
        let (name, value) = o.split_once('=').unwrap_or((o, ""));
        match name.strip_prefix("no").unwrap_or(name) == key {
            false => None,
            true if value.is_empty() && key == "barrier" => {
                Some(if name == key { "1" } else { "0" }.into())
            }
            true if value.is_empty() => Some(name.into()),
            true => Some(value.into()),
        }
    })
}

/// How the kernel spells a choice.
fn spell(key: &str, choice: &str) -> String {
    if choice.ends_with(key) {
        choice.into()
    } else {
        format!("{key}={choice}")
    }
}

/// The mount string with another choice; the default is not written.
pub fn with(mount: &str, key: &str, choice: &str, default: bool) -> String {
    let same = |o: &str| {
        let name = o.split('=').next().unwrap_or(o);
        name.strip_prefix("no").unwrap_or(name) == key
    };
    let mut out: Vec<String> = mount
        .split(',')
        .map(str::trim)
        .filter(|o| !o.is_empty() && !same(o))
        .map(String::from)
        .collect();
    if !default {
        out.push(spell(key, choice));
    }
    out.join(",")
}

/// How many times as long as it zeroed the lazy init thread waits; `None` where there is no thread.
pub fn pace(mount: &str) -> Option<u32> {
    match given(mount, "init_itable").as_deref() {
        Some("noinit_itable") => None,
        Some(n) => Some(n.parse().unwrap_or(10)),
        None => Some(10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_found_and_changed() {
        assert_eq!(given("nobarrier", "barrier").as_deref(), Some("0"));
        assert_eq!(
            given("barrier=0,data=journal", "barrier").as_deref(),
            Some("0")
        );
        assert_eq!(
            given("nodelalloc", "delalloc").as_deref(),
            Some("nodelalloc")
        );
        assert_eq!(given("data=journal", "barrier"), None);
        assert_eq!(
            with("data=journal,nodelalloc", "data", "ordered", true),
            "nodelalloc"
        );
        assert_eq!(with("", "iversion_mode", "off", false), "iversion_mode=off");
        assert_eq!(
            with("init_itable=10", "init_itable", "noinit_itable", false),
            "noinit_itable"
        );
    }

    #[test]
    fn the_pace_is_read() {
        assert_eq!(pace(""), Some(10));
        assert_eq!(pace("init_itable=100"), Some(100));
        assert_eq!(pace("noinit_itable"), None);
    }
}
