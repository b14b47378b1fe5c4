//! Other servers in definitions: URLs, headers, and the names of variables.

use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Map, Value};

use super::document::{HttpDocument, Text};
use super::reader::Mistakes;
use crate::definition::Endpoint;
use crate::outbound::Outbound;

/// Headers that one server may be sent.
const MAX_HEADERS: usize = 32;
const MAX_VARIABLE_BYTES: usize = 128;
/// Headers that HTTP itself interprets.
const RESERVED_HEADERS: [&str; 6] =
    ["host", "content-type", "content-length", "transfer-encoding", "connection", "upgrade"];
pub(super) const NOT_A_VARIABLE: &str =
    "must be the name of a variable, [A-Za-z0-9_]+, and none of this program's own";

/// Reads the `http` section at `prefix`, which belongs to a server tool's `run` or to a hook.
pub(super) fn http(mistakes: &mut Mistakes, prefix: &str, http: HttpDocument) -> Option<Endpoint> {
    let url = url(mistakes, prefix, http.url);
    let headers = headers(mistakes, prefix, http.headers, is_reserved_for_tools);
    let secret_headers = secret_headers(mistakes, prefix, http.headers_env, is_reserved_for_tools);
    let twice = secret_headers.iter().find(|(name, _)| headers.contains_key(name));
    if let Some((name, _)) = twice {
        mistakes.add(&format!("{prefix}headers_env.{name}"), "is in headers, too");
    }
    let secret = http.signing_secret_env.map(|Text(name)| name);
    let signing_secret_env = secret.filter(|name| {
        let is_legal = is_variable(name);
        if !is_legal {
            mistakes.add(&format!("{prefix}signing_secret_env"), NOT_A_VARIABLE);
        }
        is_legal
    });
    Some(Endpoint {
        url: url?,
        headers,
        secret_headers,
        signing_secret_env,
        outbound: Outbound::Unbound,
    })
}

fn is_reserved_for_tools(name: &str) -> bool {
    matches!(name, "idempotency-key" | "te") || name.starts_with("webhook-")
}

/// The `url` at `prefix`, which must be there.
pub(super) fn url(mistakes: &mut Mistakes, prefix: &str, text: Option<Text<2_048>>) -> Option<Url> {
    let field = format!("{prefix}url");
    let Some(Text(text)) = text else {
        mistakes.add_missing(&field);
        return None;
    };
    let url = Url::parse(&text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let Some(url) = url.filter(Url::has_host) else {
        mistakes.add(&field, "must be an http or https URL");
        return None;
    };
    if !url.username().is_empty() || url.password().is_some() {
        mistakes.add(&field, "must not carry a user name or password");
        return None;
    }
    Some(url)
}

/// The `headers` at `prefix`; those that are reserved, or the connection's own, are refused.
pub(super) fn headers(
    mistakes: &mut Mistakes,
    prefix: &str,
    given: Option<Map<String, Value>>,
    is_reserved: fn(&str) -> bool,
) -> HeaderMap {
    let field = format!("{prefix}headers");
    let mut headers = HeaderMap::new();
    for (name, value) in entries(mistakes, &field, given, is_reserved) {
        match value.as_str().and_then(|value| HeaderValue::from_str(value).ok()) {
            Some(value) => drop(headers.insert(name, value)),
            None => {
                let message = "must be a text that fits into a header";
                mistakes.add(&format!("{field}.{name}"), message);
            }
        }
    }
    headers
}

/// The `headers_env` at `prefix`: the names of the variables that hold the values.
pub(super) fn secret_headers(
    mistakes: &mut Mistakes,
    prefix: &str,
    given: Option<Map<String, Value>>,
    is_reserved: fn(&str) -> bool,
) -> Vec<(HeaderName, String)> {
    let field = format!("{prefix}headers_env");
    let mut headers = Vec::new();
    for (name, variable) in entries(mistakes, &field, given, is_reserved) {
        match variable.as_str().filter(|variable| is_variable(variable)) {
            Some(variable) => headers.push((name, variable.to_owned())),
            None => mistakes.add(&format!("{field}.{name}"), NOT_A_VARIABLE),
        }
    }
    headers
}

/// Whether a definition may name this variable. The program's own variables are refused: one of
/// them holds the cluster's secret.
pub(super) fn is_variable(name: &str) -> bool {
    let is_legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_own = name.to_ascii_uppercase().starts_with("ABIDE_");
    (1..=MAX_VARIABLE_BYTES).contains(&name.len()) && name.chars().all(is_legal) && !is_own
}

fn entries(
    mistakes: &mut Mistakes,
    field: &str,
    given: Option<Map<String, Value>>,
    is_reserved: fn(&str) -> bool,
) -> Vec<(HeaderName, Value)> {
    let given = given.unwrap_or_default();
    if given.len() > MAX_HEADERS {
        mistakes.add(field, format!("must be at most {MAX_HEADERS}"));
        return Vec::new();
    }
    let mut entries = Vec::new();
    for (name, value) in given {
        let field = format!("{field}.{name}");
        match HeaderName::try_from(&name) {
            Ok(name) if RESERVED_HEADERS.contains(&name.as_str()) || is_reserved(name.as_str()) => {
                mistakes.add(&field, "is set by the program");
            }
            Ok(name) => entries.push((name, value)),
            Err(_) => mistakes.add(&field, "is no name of a header"),
        }
    }
    entries
}
