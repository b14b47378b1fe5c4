//! `web_fetch`: fetches a page.
pub(super) const DESCRIPTION: &str = "";
pub(super) fn parameters() -> serde_json::Value {
    serde_json::json!({"type":"object"})
}
