//! Pieces of text: labels, fences, sizes, and the truncation of all of them.

use serde_json::Value;

use crate::message::blocks::base64;

/// How long a media type, a name or a URL in a label may be.
const MAX_NAME_BYTES: usize = 2 << 10;
/// The nesting at which a value is cut. Values from outside are never nested deeper.
const MAX_DEPTH: usize = 128;

/// The value, with the size in place of each string that is probably base64.
pub fn without_bytes(value: &Value) -> Value {
    fn stripped(value: &Value, deep: usize) -> Value {
        match value {
            Value::String(text) if base64::is_likely(text) => {
                let data = text.rsplit(',').next().unwrap_or_default();
                format!("[{} of base64]", human_size(base64::decoded_len(data))).into()
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
    stripped(value, MAX_DEPTH)
}

/// The text in a code fence that is longer than every fence in the text, which therefore cannot
/// close it.
pub(super) fn fenced(language: &str, text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat(longest.saturating_add(1).max(3));
    let plain = |c: &char| c.is_ascii_alphanumeric() || "+-#._".contains(*c);
    let language: String = language.chars().filter(plain).take(32).collect();
    let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}{language}\n{text}{end}{fence}")
}

/// The label `[what: of]`, on one line.
pub(super) fn bracketed(what: &str, of: &str) -> String {
    format!("[{}: {}]", truncate_name(&on_one_line(what)), truncate_name(&on_one_line(of)))
}

/// The text with spaces instead of line breaks.
pub(super) fn on_one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// The text, truncated to the length of a label.
pub(super) fn truncate_name(text: &str) -> String {
    truncate(text.to_owned(), MAX_NAME_BYTES)
}

/// The text, truncated to at most `longest` bytes of whole characters, with a mark where it was
/// cut.
pub(super) fn truncate(mut text: String, longest: usize) -> String {
    if text.len() > longest {
        text.truncate(text.floor_char_boundary(longest));
        text.push_str("[...truncated...]");
    }
    text
}

/// `12 B`, `12 kB`, `1.2 MB`.
pub(super) fn human_size(bytes: usize) -> String {
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..1_000_000 => format!("{} kB", bytes / 1_000),
        _ => format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10),
    }
}
