//! What definitions say of other servers: URLs, headers, and the names of variables.

use reqwest::Url;
use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use serde_json::Value;

use super::field_reader::Fields;

/// Headers that one server may be sent.
const MOST_HEADERS: usize = 32;
const LONGEST_URL: usize = 2_048;
const LONGEST_VARIABLE: usize = 128;
/// Headers that the connection gives a meaning.
const RESERVED: [&str; 6] =
    ["host", "content-type", "content-length", "transfer-encoding", "connection", "upgrade"];

/// Reads `url`, which must be there.
pub(super) fn url(fields: &mut Fields) -> Option<Url> {
    if !fields.says("url") {
        fields.wrong("url", "is missing");
    }
    let text = fields.text("url", LONGEST_URL)?;
    let url = Url::parse(&text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let Some(url) = url.filter(Url::has_host) else {
        fields.wrong("url", "must be an http or https URL");
        return None;
    };
    if !url.username().is_empty() || url.password().is_some() {
        fields.wrong("url", "must not carry a user name or password");
        return None;
    }
    Some(url)
}

/// Reads `headers`; those that are `reserved`, or the connection's own, are refused.
pub(super) fn headers(fields: &mut Fields, reserved: fn(&str) -> bool) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in entries(fields, "headers", reserved) {
        match value.as_str().and_then(|value| HeaderValue::from_str(value).ok()) {
            Some(value) => drop(headers.insert(name, value)),
            None => {
                let field = format!("headers.{name}");
                fields.wrong(&field, "must be a text that fits into a header");
            }
        }
    }
    headers
}

/// Reads `headers_env`: the names of the variables that hold the values.
pub(super) fn secret_headers(
    fields: &mut Fields,
    reserved: fn(&str) -> bool,
) -> Vec<(HeaderName, String)> {
    let mut headers = Vec::new();
    for (name, variable) in entries(fields, "headers_env", reserved) {
        match variable.as_str().filter(|variable| is_variable(variable)) {
            Some(variable) => headers.push((name, variable.to_owned())),
            None => fields.wrong(&format!("headers_env.{name}"), NO_VARIABLE),
        }
    }
    headers
}

/// Reads the name of a variable.
pub(super) fn variable(fields: &mut Fields, field: &str) -> Option<String> {
    let name = fields.text(field, LONGEST_VARIABLE)?;
    if !is_variable(&name) {
        fields.wrong(field, NO_VARIABLE);
        return None;
    }
    Some(name)
}

pub(super) const NO_VARIABLE: &str =
    "must be the name of a variable, [A-Za-z0-9_]+, and none of this program's own";

/// Whether a definition may name it. Whoever has a variable of the program's own may have the whole
/// cluster.
pub(super) fn is_variable(name: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let own = name.to_ascii_uppercase().starts_with("ABIDE_");
    (1..=LONGEST_VARIABLE).contains(&name.len()) && name.chars().all(legal) && !own
}

fn entries(
    fields: &mut Fields,
    field: &str,
    reserved: fn(&str) -> bool,
) -> Vec<(HeaderName, Value)> {
    let given = fields.map(field);
    if given.len() > MOST_HEADERS {
        fields.wrong(field, format!("must be at most {MOST_HEADERS}"));
        return Vec::new();
    }
    let mut entries = Vec::new();
    for (name, value) in given {
        let field = format!("{field}.{name}");
        match HeaderName::try_from(&name) {
            Ok(name) if RESERVED.contains(&name.as_str()) || reserved(name.as_str()) => {
                fields.wrong(&field, "is set by the program");
            }
            Ok(name) => entries.push((name, value)),
            Err(_) => fields.wrong(&field, "is no name of a header"),
        }
    }
    entries
}
