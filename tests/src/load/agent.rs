//! The agent under load: one gated call between two steps.

use serde_json::json;

use super::{Client, LoadError};

/// The agent's name.
pub(super) const NAME: &str = "load";
/// The id that the scripted model gives to the call of its first step.
pub(super) const CALL: &str = "call_1_1";

/// Defines the agent over HTTP.
pub(super) async fn define(client: &mut Client) -> Result<(), LoadError> {
    let definition = json!({
        "name": NAME,
        "system_prompt": "You are under load.",
        "suspension_timeout": "24h",
        "model": {"provider": "scripted", "script": [
            {"text": "Asking.", "calls": [
                {"name": "send_email", "args": {"to": "ada@example.com", "subject": "{{ user }}"}},
            ]},
            {"text": "Sent."},
        ]},
        "tools": [{
            "name": "send_email",
            "approval": "requires_approval",
            "confirmation_message": "Send an e-mail to {{ args.to }}?",
            "run": {"native": "demo_send_email"},
        }],
    });
    client.define(NAME, definition).await
}
