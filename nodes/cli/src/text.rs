//! Texts of others on a terminal: no character of theirs is an order to it.

use std::borrow::Cow;

/// The text with every character spelled out that a terminal acts on, or that reverses what is read.
/// Line feeds and tabs stay.
pub(crate) fn visible(text: &str) -> Cow<'_, str> {
    if !text.contains(is_active) {
        return Cow::Borrowed(text);
    }
    let mut spelled = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_active(c) {
            spelled.extend(c.escape_unicode());
        } else {
            spelled.push(c);
        }
    }
    Cow::Owned(spelled)
}

/// The text in one line of at most `max_chars` characters.
pub(crate) fn one_line(text: &str, max_chars: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = visible(&words.join(" ")).into_owned();
    match line.char_indices().nth(max_chars) {
        Some(_) => line.chars().take(max_chars.saturating_sub(1)).chain(['…']).collect(),
        None => line,
    }
}

/// JSON whose strings have no such character as it is: only within strings can one stand.
pub(crate) fn visible_json(json: &str) -> Cow<'_, str> {
    let is_raw = |c: char| is_active(c) && c != '\r';
    if !json.contains(is_raw) {
        return Cow::Borrowed(json);
    }
    let mut spelled = String::with_capacity(json.len() + 16);
    for c in json.chars() {
        if is_raw(c) {
            spelled.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            spelled.push(c);
        }
    }
    Cow::Owned(spelled)
}

/// Control characters, and those that change the direction of what follows.
fn is_active(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}')
        || matches!(c, '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_control_character_and_no_reversal_reaches_the_terminal() {
        let hostile = "a\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}b\r\nc\td";
        let shown = visible(hostile);
        assert_eq!(shown, "a\\u{1b}]0;owned\\u{7}\\u{9b}31m\\u{202e}b\\u{d}\nc\td");
        assert!(matches!(visible("plain ö 漢\n"), Cow::Borrowed(_)));
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({"a": "x\u{1b}\u{9b}\u{7f}\u{202e}y"});
        let shown = visible_json(&value.to_string()).into_owned();
        assert!(!shown.contains(is_active), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).ok(), Some(value));
    }

    #[test]
    fn a_line_is_cut_between_characters() {
        assert_eq!(one_line("a\n  b\u{1b}", 20), "a b\\u{1b}");
        assert_eq!(one_line("äöüäöü", 4), "äöü…");
        assert_eq!(one_line("äöü", 3), "äöü");
    }
}
