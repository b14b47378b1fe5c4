//! The card of an agent: what it is, where it is reached, and what it can do.

use serde_json::{Value, json};

use super::rpc::VERSION;

/// What a card is made of.
#[derive(Clone, Debug)]
pub struct CardSource<'a> {
    pub name: &'a str,
    pub description: &'a str,
    /// The agent's revision.
    pub revision: &'a str,
    /// Where the agent is reached.
    pub url: &'a str,
    /// Whether callers need a credential.
    pub is_guarded: bool,
}

/// The card of an agent.
pub fn card(source: &CardSource<'_>) -> Value {
    let CardSource { name, description, revision, url, is_guarded } = *source;
    let description = if description.is_empty() { name } else { description };
    let mut card = json!({
        "name": name,
        "description": description,
        "version": revision,
        "supportedInterfaces": [
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": VERSION}],
        "capabilities": {"streaming": true, "pushNotifications": false,
            "extendedAgentCard": false},
        "defaultInputModes": ["text/plain", "application/json", "image/*", "audio/*", "video/*",
            "application/pdf"],
        "defaultOutputModes": ["text/plain"],
        "skills": [{"id": name, "name": name, "description": description, "tags": ["agent"]}],
    });
    if is_guarded {
        let scheme = json!({"scheme": "Bearer",
            "description": "An API key, a JWT of an issuer, or a conversation token."});
        card["securitySchemes"] = json!({"credential": {"httpAuthSecurityScheme": scheme}});
        card["securityRequirements"] = json!([{"schemes": {"credential": {"list": []}}}]);
    }
    card
}
