//! The bounds that the tools share, and the measures that they are held to.

use std::io::{self, Write};

use serde::Serialize;

/// Arguments and answers beyond this are refused: they travel between nodes in 1 MiB frames.
pub(crate) const LARGEST_VALUE: usize = 1024 * 1024;
/// What is kept of text that is only shown: enough to recognise it by.
pub(crate) const SHOWN_TEXT: usize = 1_000;
/// An error's text goes to the model with every later step, so it stays short.
pub(crate) const LONGEST_ERROR: usize = 4_000;

/// The bytes that the value takes as JSON.
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

/// At most `longest` bytes of the text, whole characters, marked if something is missing.
pub(crate) fn cut(text: &str, longest: usize) -> String {
    if text.len() <= longest {
        return text.to_owned();
    }
    let mark = '…';
    let end = text.floor_char_boundary(longest.saturating_sub(mark.len_utf8()));
    let mut short = text[..end].to_owned();
    short.push(mark);
    short
}

/// The same on one line, for logs and lists of mistakes.
pub(crate) fn one_line(text: &str, longest: usize) -> String {
    cut(&text.split_whitespace().collect::<Vec<_>>().join(" "), longest)
}

#[cfg(test)]
mod tests {
    use super::*;

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
