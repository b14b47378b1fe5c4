//! `write`: writes a file.
pub(super) const DESCRIPTION: &str = "";
pub(super) fn parameters() -> serde_json::Value {
    serde_json::json!({"type":"object"})
}
