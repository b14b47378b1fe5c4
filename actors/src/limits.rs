//! Size limits that tools and models share, and how sizes are measured.

use std::io::{self, Write};

use serde::Serialize;

/// Larger arguments and answers are refused: they travel between nodes in frames of 1 MiB.
pub(crate) const MAX_VALUE_BYTES: usize = 1024 * 1024;
/// Text that is only quoted, as in a log or a message, is cut to this: enough to recognise it.
pub(crate) const MAX_EXCERPT_BYTES: usize = 1_000;
/// An error text is cut to this, since it goes to the model with every later step.
pub(crate) const MAX_ERROR_BYTES: usize = 4_000;

/// The length of the value as JSON, in bytes.
pub(crate) fn encoded_len(value: &impl Serialize) -> usize {
    struct Count(usize);
    impl Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.saturating_add(bytes.len());
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    match serde_json::to_writer(&mut count, value) {
        Ok(()) => count.0,
        Err(_) => usize::MAX,
    }
}

/// Cuts the text to at most `max_bytes` bytes, between characters, and marks the cut with `…`.
pub(crate) fn cut(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let mark = '…';
    let end = text.floor_char_boundary(max_bytes.saturating_sub(mark.len_utf8()));
    let mut short = text[..end].to_owned();
    short.push(mark);
    short
}

/// Cuts the text and puts it on one line, for logs and lists of errors.
pub(crate) fn one_line(text: &str, max_bytes: usize) -> String {
    cut(&text.split_whitespace().collect::<Vec<_>>().join(" "), max_bytes)
}

/// Spells out the characters that reverse or isolate what stands around them (UAX #9), such as
/// U+202E: with them a text that a model or a tool wrote would be shown to people as another one.
pub(crate) fn without_bidi_controls(text: &str) -> String {
    let is_control = |c: char| matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    if !text.contains(is_control) {
        return text.to_owned();
    }
    let mut visible = String::with_capacity(text.len());
    for c in text.chars() {
        if is_control(c) {
            visible.push_str(&format!("[U+{:04X}]", u32::from(c)));
        } else {
            visible.push(c);
        }
    }
    visible
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_reorder_a_text_are_spelled_out() {
        let hostile = "Pay \u{202e}001\u{202c} to \u{2066}Bob\u{2069}?";
        let shown = "Pay [U+202E]001[U+202C] to [U+2066]Bob[U+2069]?";
        assert_eq!(without_bidi_controls(hostile), shown);
        let plain = "Zahle an \u{5d3}\u{5e0}\u{5d4}\u{200f}, bitte.\n";
        assert_eq!(without_bidi_controls(plain), plain);
    }

    #[test]
    fn a_cut_text_keeps_whole_characters_and_its_bound() {
        assert_eq!(cut("short", 5), "short");
        assert_eq!(cut("äääää", 8), "ää…");
        assert_eq!(cut("xxxxxx", 5), "xx…");
    }

    #[test]
    fn one_line_has_no_breaks() {
        assert_eq!(one_line("a\n  | b\r\n", 9), "a | b");
    }

    #[test]
    fn the_encoded_length_is_that_of_the_json() {
        let value = serde_json::json!({"a": [1, "ä", null]});
        assert_eq!(encoded_len(&value), value.to_string().len());
    }
}
