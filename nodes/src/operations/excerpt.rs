//! What the operators' audit keeps of a request: the beginning of its body, without secrets.

use serde_json::Value;

/// The longest excerpt: 100,000 entries of this size are 200 MB.
const MAX_EXCERPT_BYTES: usize = 2 << 10;
/// What stands in the place of a secret.
const REDACTED: &str = "[redacted]";
/// A member whose name contains one of these is taken for a secret, with all that is in it.
const SECRET_NAMES: [&str; 9] = [
    "secret",
    "token",
    "password",
    "authorization",
    "api_key",
    "credential",
    "cookie",
    "headers",
    "env",
];
/// A text that begins so is taken for a secret: keys of ours and of providers, and credentials.
const SECRET_BEGINNINGS: [&str; 5] = ["abide_", "sk-", "Bearer ", "Basic ", "eyJ"];

/// The beginning of a body as canonical JSON, without what looks like a secret.
pub(super) fn excerpt(mut body: Value) -> String {
    redact(&mut body);
    let mut text = serde_json_canonicalizer::to_string(&body).unwrap_or_else(|_| body.to_string());
    if text.len() > MAX_EXCERPT_BYTES {
        let end = (0..=MAX_EXCERPT_BYTES).rev().find(|end| text.is_char_boundary(*end));
        text.truncate(end.unwrap_or_default());
    }
    text
}

fn redact(value: &mut Value) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                if is_secret_name(name) {
                    *value = Value::from(REDACTED);
                } else {
                    redact(value);
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(redact),
        Value::String(text) if is_secret(text) => *value = Value::from(REDACTED),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace('-', "_");
    SECRET_NAMES.iter().any(|secret| name.contains(secret))
}

/// Whether a text looks like a credential, or like an address with one.
fn is_secret(text: &str) -> bool {
    let names_user = text.split_once("://").is_some_and(|(_, rest)| {
        rest.split('/').next().is_some_and(|authority| authority.contains('@'))
    });
    names_user || SECRET_BEGINNINGS.iter().any(|beginning| text.starts_with(beginning))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_excerpt_has_no_secrets() {
        let body = json!({
            "name": "demo", "API-Key": "k", "headers": {"x": "y"}, "list": [{"password": ["p"]}],
            "texts": ["abide_a_b", "Bearer x", "sk-1", "https://u:p@host/x", "https://host/a@b"],
            "mcp": {"env": {"A": "b"}},
        });
        let expected = r#"{"API-Key":"[redacted]","headers":"[redacted]","list":[{"password":"[redacted]"}],"mcp":{"env":"[redacted]"},"name":"demo","texts":["[redacted]","[redacted]","[redacted]","[redacted]","https://host/a@b"]}"#;
        assert_eq!(excerpt(body), expected);
    }

    #[test]
    fn an_excerpt_is_short_and_whole_characters() {
        let text = excerpt(json!({"name": "ä".repeat(3_000)}));
        assert!(text.len() <= MAX_EXCERPT_BYTES && text.len() > MAX_EXCERPT_BYTES - 2);
        assert!(text.starts_with(r#"{"name":"ää"#));
    }
}
