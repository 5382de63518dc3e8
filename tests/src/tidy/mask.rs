//! Blanks comments and string contents out of Rust source, so that the rules look at code only.

/// What the scanner is inside of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    Code,
    LineComment,
    /// Nesting depth.
    BlockComment(usize),
    Text,
    /// Number of `#`.
    RawText(usize),
}

/// The same text, same lines and columns, with blanks in place of comments and of what strings hold.
pub fn mask(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let mut out = String::with_capacity(source.len());
    let mut inside = Inside::Code;
    let mut at = 0;
    while at < chars.len() {
        let (next, length, visible) = step(&chars, at, inside);
        for &c in &chars[at..at + length] {
            out.push(if visible || c == '\n' { c } else { ' ' });
        }
        inside = next;
        at += length;
    }
    out
}

/// The state after the piece at `at`, the length of the piece, and whether it is code.
fn step(chars: &[char], at: usize, inside: Inside) -> (Inside, usize, bool) {
    let c = chars[at];
    let next = chars.get(at + 1).copied().unwrap_or('\0');
    match inside {
        Inside::Code => code_step(chars, at),
        Inside::LineComment => (
            if c == '\n' {
                Inside::Code
            } else {
                Inside::LineComment
            },
            1,
            false,
        ),
        Inside::BlockComment(depth) => match (c, next) {
            ('/', '*') => (Inside::BlockComment(depth + 1), 2, false),
            ('*', '/') if depth == 1 => (Inside::Code, 2, false),
            ('*', '/') => (Inside::BlockComment(depth - 1), 2, false),
            _ => (inside, 1, false),
        },
        Inside::Text => match c {
            '\\' => (inside, 2.min(chars.len() - at), false),
            '"' => (Inside::Code, 1, true),
            _ => (inside, 1, false),
        },
        Inside::RawText(hashes) => {
            let closes = c == '"' && chars[at + 1..].iter().take(hashes).all(|&h| h == '#');
            if closes && chars.len() > at + hashes {
                (Inside::Code, 1 + hashes, true)
            } else {
                (inside, 1, false)
            }
        }
    }
}

fn code_step(chars: &[char], at: usize) -> (Inside, usize, bool) {
    let c = chars[at];
    let next = chars.get(at + 1).copied().unwrap_or('\0');
    let in_word = at > 0 && is_word(chars[at - 1]);
    match (c, next) {
        ('/', '/') => (Inside::LineComment, 2, false),
        ('/', '*') => (Inside::BlockComment(1), 2, false),
        ('"', _) => (Inside::Text, 1, true),
        ('r', '"' | '#') | ('b', 'r') if !in_word => raw_step(chars, at),
        ('\'', _) => {
            let length = char_length(chars, at);
            (Inside::Code, length, length == 1)
        }
        _ => (Inside::Code, 1, true),
    }
}

/// `r"`, `r#"`, `br##"`; a raw identifier (`r#type`) stays code.
fn raw_step(chars: &[char], at: usize) -> (Inside, usize, bool) {
    let mut quote = at + 1;
    if chars[at] == 'b' {
        quote += 1;
    }
    let hashes = chars[quote.min(chars.len())..]
        .iter()
        .take_while(|&&c| c == '#')
        .count();
    if chars.get(quote + hashes) == Some(&'"') {
        (Inside::RawText(hashes), quote + hashes + 1 - at, true)
    } else {
        (Inside::Code, 1, true)
    }
}

/// The length of a character literal, or 1 for the tick of a lifetime.
fn char_length(chars: &[char], at: usize) -> usize {
    match (chars.get(at + 1), chars.get(at + 2)) {
        (Some('\\'), Some(_)) => {
            let rest = chars[at + 3..].iter().take(10).position(|&c| c == '\'');
            rest.map_or(1, |end| end + 4)
        }
        (Some(_), Some('\'')) => 3,
        _ => 1,
    }
}

/// May `c` be part of an identifier?
pub fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The identifiers of a line of masked code with the column (in characters) of each.
pub fn identifiers(line: &str) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (column, c) in line.chars().enumerate() {
        if is_word(c) {
            if open {
                if let Some((_, word)) = found.last_mut() {
                    word.push(c);
                }
            } else {
                found.push((column, c.to_string()));
            }
        }
        open = is_word(c);
    }
    found.retain(|(_, word)| !word.starts_with(|c: char| c.is_ascii_digit()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expect: &str) {
        assert_eq!(mask(source), expect);
        assert_eq!(source.lines().count(), mask(source).lines().count());
    }

    #[test]
    fn comments_and_texts_become_blanks() {
        check("a // b\nc", "a     \nc");
        check("a /* b /* c */ d */ e", "a                   e");
        check(r#"f("x // y", 1)"#, r#"f("      ", 1)"#);
        check(r#"f("x\"y")"#, r#"f("    ")"#);
        check("r#\"a\"b\"# + c", "r#\"   \"# + c");
        check("b'\\'' + '\"' + c", "b     +     + c");
        check(
            "fn f<'a>(x: &'a str) { '{' }",
            "fn f<'a>(x: &'a str) {     }",
        );
        check("let r#type = 1; // t", "let r#type = 1;     ");
        check("\"open", "\"    ");
        check("\"a\\", "\"  ");
    }

    #[test]
    fn words_are_found() {
        let words = identifiers("let data_1 = r.data(0x1f);");
        let words: Vec<&str> = words.iter().map(|(_, word)| word.as_str()).collect();
        assert_eq!(words, ["let", "data_1", "r", "data"]);
    }
}
