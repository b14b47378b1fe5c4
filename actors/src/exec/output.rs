//! Captures the head and the tail of an output of unlimited length.

use std::collections::VecDeque;

/// Marks where text is missing.
const TRUNCATION_MARK: &str = "\n[...truncated...]\n";

/// The beginning and the end of an output, in bounded memory.
#[derive(Debug)]
pub(super) struct HeadAndTail {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    /// The maximum size of the head, and of the tail.
    half: usize,
    total: u64,
}

impl HeadAndTail {
    /// Captures at most `half` bytes of the head and of the tail.
    pub(super) fn new(half: usize) -> Self {
        Self { head: Vec::new(), tail: VecDeque::new(), half, total: 0 }
    }

    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.total += bytes.len() as u64;
        let (head, rest) = bytes.split_at(bytes.len().min(self.half - self.head.len()));
        self.head.extend_from_slice(head);
        let last = &rest[rest.len().saturating_sub(self.half)..];
        let too_many = (self.tail.len() + last.len()).saturating_sub(self.half);
        self.tail.drain(..too_many);
        self.tail.extend(last);
    }

    /// The length of the whole output, in bytes.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The captured output as at most `max_bytes` bytes of text; bytes that are not UTF-8 are
    /// replaced.
    pub(super) fn text(self, max_bytes: usize) -> String {
        let whole = self.total == (self.head.len() + self.tail.len()) as u64;
        let mut head = self.head;
        let mut tail = Vec::from(self.tail);
        if whole {
            head.append(&mut tail);
            return truncate_middle(&String::from_utf8_lossy(&head), max_bytes);
        }
        head.truncate(last_boundary(&head));
        // At most three bytes belong to a character whose beginning is missing.
        let start = tail.iter().take(3).take_while(|byte| **byte & 0xC0 == 0x80).count();
        let text = format!(
            "{}{TRUNCATION_MARK}{}",
            String::from_utf8_lossy(&head),
            String::from_utf8_lossy(&tail[start..])
        );
        truncate_middle(&text, max_bytes)
    }
}

/// Cuts the middle of a long text and marks the cut, between characters. The result has at most
/// `max_bytes` bytes, unless the mark alone is longer.
pub(crate) fn truncate_middle(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let half = max_bytes.saturating_sub(TRUNCATION_MARK.len()) / 2;
    let head = &text[..text.floor_char_boundary(half)];
    let tail = &text[text.ceil_char_boundary(text.len() - half)..];
    format!("{head}{TRUNCATION_MARK}{tail}")
}

/// Where the last character begins if it is incomplete, else the length.
fn last_boundary(bytes: &[u8]) -> usize {
    let Some(start) = bytes.iter().rposition(|byte| byte & 0xC0 != 0x80) else { return 0 };
    let width = match bytes[start] {
        0xC0..=0xDF => 2,
        0xE0..=0xEF => 3,
        0xF0..=0xF7 => 4,
        _ => 1,
    };
    if start + width > bytes.len() { start } else { bytes.len() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn capture(half: usize, pieces: &[&[u8]]) -> HeadAndTail {
        let mut capture = HeadAndTail::new(half);
        pieces.iter().for_each(|piece| capture.add(piece));
        capture
    }

    #[test]
    fn a_short_output_is_kept_whole() {
        assert_eq!(capture(4, &[b"abc", b"", b"defgh"]).text(8), "abcdefgh");
        assert_eq!(capture(4, &[]).text(8), "");
    }

    #[test]
    fn head_and_tail_of_a_long_output_are_kept() {
        let text = capture(20, &[b"first ", &[b'x'; 1000], b" last"]).text(60);
        assert_eq!(
            text,
            format!("first {}{TRUNCATION_MARK}{} last", "x".repeat(14), "x".repeat(15))
        );
    }

    #[test]
    fn characters_are_not_cut() {
        let text = capture(4, &["äääää".as_bytes(), "€€".as_bytes()]).text(100);
        assert_eq!(text, format!("ää{TRUNCATION_MARK}€"));
        let text = capture(3, &["äääää".as_bytes()]).text(100);
        assert_eq!(text, format!("ä{TRUNCATION_MARK}ä"));
        assert_eq!(truncate_middle("ääääääääääääääääää", 24), format!("ä{TRUNCATION_MARK}ä"));
    }

    #[test]
    fn what_is_not_text_is_replaced() {
        assert_eq!(capture(8, &[b"a\xff\xfeb\0"]).text(100), "a\u{fffd}\u{fffd}b\0");
    }

    proptest! {
        #[test]
        fn no_text_is_longer_than_asked(
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..90), 0..9),
        ) {
            let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
            let all = pieces.concat();
            let capture = capture(50, &pieces);
            prop_assert_eq!(capture.total(), all.len() as u64);
            let text = capture.text(100);
            prop_assert!(text.len() <= 100);
            let whole = String::from_utf8_lossy(&all);
            prop_assert_eq!(text == whole, whole.len() <= 100);
        }
    }
}
