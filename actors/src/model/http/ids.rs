//! Call ids in the characters and lengths that wire formats accept.

use sha2::{Digest, Sha256};

/// How many characters of an id's hash distinguish it from ids that look alike when sanitized.
const HASH_CHARS: usize = 12;

/// Rewrites an id for wire formats that accept only letters, digits, `_` and `-`, and at most
/// `max_chars` characters, which must be 16 or more. A legal id stays as it is. In any other id the
/// illegal characters are replaced and a hash of the whole id is appended, so that two ids stay
/// distinct.
pub(crate) fn sanitize_id(id: &str, max_chars: usize) -> String {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if (1..=max_chars).contains(&id.len()) && id.chars().all(is_legal) {
        return id.to_owned();
    }
    let prefix_chars = max_chars.saturating_sub(HASH_CHARS + 1);
    let prefix = id.chars().take(prefix_chars).map(|c| if is_legal(c) { c } else { '_' });
    let hash = format!("{:x}", Sha256::digest(id));
    prefix.chain(['_']).chain(hash.chars().take(HASH_CHARS)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_legal_id_stays_and_others_become_legal_and_distinct() {
        let long = "x".repeat(41);
        let ids = ["call_1-A", "call_1~2", "call_1!2", "ä", "", &long, &format!("{long}y")];
        let mut sanitized = ids.map(|id| sanitize_id(id, 40));
        assert_eq!(sanitized[0], "call_1-A");
        assert!(sanitized[1].starts_with("call_1_2_"), "{}", sanitized[1]);
        assert!(
            sanitized.iter().all(|id| (1..=40).contains(&id.len()) && id.is_ascii()),
            "{sanitized:?}"
        );
        assert_eq!(
            ids.map(|id| sanitize_id(id, 40)),
            sanitized,
            "the same id is always written the same"
        );
        sanitized.sort();
        assert!(sanitized.windows(2).all(|pair| pair[0] != pair[1]), "{sanitized:?}");
    }
}
