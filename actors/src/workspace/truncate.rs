//! Cuts long text and marks the cut.

/// Marks where text was left out.
pub(crate) const TRUNCATION_MARK: &str = "[...truncated...]";

/// Cuts the text to at most `max_bytes` bytes, including the mark, between characters.
pub(crate) fn truncate(mut text: String, max_bytes: usize) -> String {
    if text.len() > max_bytes {
        text.truncate(text.floor_char_boundary(max_bytes.saturating_sub(TRUNCATION_MARK.len())));
        text.push_str(TRUNCATION_MARK);
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters_and_keeps_its_bound() {
        assert_eq!(truncate("x".repeat(20), 20), "x".repeat(20));
        assert_eq!(truncate("x".repeat(21), 20), format!("xxx{TRUNCATION_MARK}"));
        assert_eq!(truncate("ä".repeat(11), 20), format!("ä{TRUNCATION_MARK}"));
    }
}
