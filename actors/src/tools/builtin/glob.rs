//! `glob`: finds files by a pattern.
pub(super) const DESCRIPTION: &str = "";
pub(super) fn parameters() -> serde_json::Value {
    serde_json::json!({"type":"object"})
}
