//! Classifies a body by its headers and decodes it: HTML, other text, or not text.

use encoding_rs::{Encoding, UTF_8};
use reqwest::header::{CONTENT_TYPE, HeaderMap};

use super::body::Body;
use super::error::FetchError;
use super::html_to_text;

const HTML_TYPES: [&str; 2] = ["text/html", "application/xhtml+xml"];
/// Media types of text besides `text/…`, `…+json` and `…+xml`.
const TEXT_TYPES: [&str; 13] = [
    "application/json",
    "application/x-ndjson",
    "application/jsonl",
    "application/xml",
    "application/xml-dtd",
    "application/javascript",
    "application/x-javascript",
    "application/ecmascript",
    "application/yaml",
    "application/x-yaml",
    "application/toml",
    "application/sql",
    "application/x-www-form-urlencoded",
];
/// The window, defined by the standard, in which a page declares its type and charset, and in which
/// zero bytes reveal binary data.
const SNIFF_BYTES: usize = 1_024;

/// The type of a body that can be read as text.
pub(super) struct ContentType {
    /// `None` if the server does not declare a type.
    is_html: Option<bool>,
    charset: Option<&'static Encoding>,
}

impl ContentType {
    /// Reads the declared type; an error if it is not text.
    pub(super) fn from_headers(headers: &HeaderMap) -> Result<Self, FetchError> {
        let declared_type = headers.get(CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
        let declared_type = String::from_utf8_lossy(declared_type).to_ascii_lowercase();
        let (kind, parameters) = declared_type.split_once(';').unwrap_or((&declared_type, ""));
        let is_html = match kind.trim() {
            "" => None,
            kind if HTML_TYPES.contains(&kind) => Some(true),
            kind if is_text(kind) => Some(false),
            kind => return Err(FetchError::failed(format!("not text: {kind}"))),
        };
        Ok(Self { is_html, charset: charset_in(parameters) })
    }

    /// Decodes the body's text; invalid bytes become replacement characters.
    pub(super) fn text(&self, body: &Body) -> Result<String, FetchError> {
        let begin = &body.bytes[..body.bytes.len().min(SNIFF_BYTES)];
        let begin = String::from_utf8_lossy(begin).to_ascii_lowercase();
        let is_html = self.is_html.unwrap_or_else(|| is_like_html(&begin));
        // The declaration was readable as ASCII, so the charset must be a superset of ASCII.
        let declared = || charset_in(&begin).filter(|charset| charset.is_ascii_compatible());
        let charset = self.charset.or_else(|| declared().filter(|_| is_html)).unwrap_or(UTF_8);
        let (text, _, _) = charset.decode(&body.bytes);
        if text.bytes().take(SNIFF_BYTES).any(|byte| byte == 0) {
            return Err(FetchError::failed("not text: it contains zero bytes"));
        }
        let text = if body.truncated { text.trim_end_matches('\u{fffd}') } else { &text };
        Ok(if is_html { html_to_text::convert(text) } else { text.to_owned() })
    }
}

fn is_text(kind: &str) -> bool {
    kind.starts_with("text/")
        || kind.ends_with("+json")
        || kind.ends_with("+xml")
        || TEXT_TYPES.contains(&kind)
}

fn is_like_html(begin: &str) -> bool {
    let begin = begin.trim_start_matches('\u{feff}').trim_start();
    begin.starts_with("<!doctype html") || begin.starts_with("<html")
}

/// The charset that a header's parameters or the beginning of a page declare.
fn charset_in(text: &str) -> Option<&'static Encoding> {
    let (_, value) = text.split_once("charset=")?;
    let value = value.trim_start_matches(['"', '\'']);
    let end = value.find(['"', '\'', ';', ' ', '>', '/']).unwrap_or(value.len());
    Encoding::for_label(&value.as_bytes()[..end])
}
