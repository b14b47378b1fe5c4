//! The pieces that texts are made of.

use serde_json::Value;

use crate::message::blocks::base64;

/// How long a type, a name or a place may be that stands in brackets.
const NAME_BYTES: usize = 2 << 10;
/// As deep as values from outside are.
const DEEPEST: usize = 128;

/// The same value, and in place of each string that is base64 only how much it is.
pub fn without_bytes(value: &Value) -> Value {
    fn stripped(value: &Value, deep: usize) -> Value {
        match value {
            Value::String(text) if base64::is_likely(text) => {
                let data = text.rsplit(',').next().unwrap_or_default();
                format!("[{} of base64]", spoken(base64::size(data))).into()
            }
            Value::Array(_) | Value::Object(_) if deep == 0 => "[...]".into(),
            Value::Array(list) => list.iter().map(|value| stripped(value, deep - 1)).collect(),
            Value::Object(fields) => {
                let field = |(key, value): (&String, _)| (key.clone(), stripped(value, deep - 1));
                Value::Object(fields.iter().map(field).collect())
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
        }
    }
    stripped(value, DEEPEST)
}

/// A fence longer than any in the text, so that the text cannot close it.
pub(super) fn fenced(language: &str, text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.saturating_add(1).max(3));
    let plain = |c: &char| c.is_ascii_alphanumeric() || "+-#._".contains(*c);
    let language: String = language.chars().filter(plain).take(32).collect();
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}{language}\n{text}{end}{fence}")
}

/// `[what: of whom]` on one line.
pub(super) fn line(what: &str, of: &str) -> String {
    format!("[{}: {}]", short(&on_one_line(what)), short(&on_one_line(of)))
}

/// The same without line breaks.
pub(super) fn on_one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// The same, cut to what may stand in brackets.
pub(super) fn short(text: &str) -> String {
    cut(text.to_owned(), NAME_BYTES)
}

/// At most so many bytes, whole characters, marked if something is missing.
pub(super) fn cut(mut text: String, longest: usize) -> String {
    if text.len() > longest {
        text.truncate(text.floor_char_boundary(longest));
        text.push_str("[...truncated...]");
    }
    text
}

/// `12 B`, `12 kB`, `1.2 MB`.
pub(super) fn spoken(bytes: usize) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} kB", bytes / 1_000),
        _ => format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10),
    }
}
