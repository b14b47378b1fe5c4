//! Text that is cut where its bound is.

/// Stands where something was left out.
pub(crate) const MARK: &str = "[...truncated...]";

/// At most `longest` bytes of the text: whole characters, and the mark if something is missing.
pub(crate) fn truncated(mut text: String, longest: usize) -> String {
    if text.len() > longest {
        text.truncate(text.floor_char_boundary(longest.saturating_sub(MARK.len())));
        text.push_str(MARK);
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_characters_and_keeps_its_bound() {
        assert_eq!(truncated("x".repeat(20), 20), "x".repeat(20));
        assert_eq!(truncated("x".repeat(21), 20), format!("xxx{MARK}"));
        assert_eq!(truncated("ä".repeat(11), 20), format!("ä{MARK}"));
    }
}
