//! What a body is, by what its server says of it: HTML, other text, or nothing to read.

use encoding_rs::{Encoding, UTF_8};
use reqwest::header::{CONTENT_TYPE, HeaderMap};

use super::body::Body;
use super::failure::FetchError;
use super::text;

const HTML: [&str; 2] = ["text/html", "application/xhtml+xml"];
/// Text by other names than `text/…`, `…+json` and `…+xml`.
const TEXTS: [&str; 13] = [
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
/// Where a page says what it is, and where bytes that are no text show it: the standard's window.
const BEGIN: usize = 1_024;

/// A kind of body that can be read as text.
pub(super) struct ContentType {
    /// `None` if the server does not say.
    is_html: Option<bool>,
    charset: Option<&'static Encoding>,
}

impl ContentType {
    /// Refuses what is not text, by the server's word.
    pub(super) fn of(headers: &HeaderMap) -> Result<Self, FetchError> {
        let said = headers.get(CONTENT_TYPE).map_or(&b""[..], |kind| kind.as_bytes());
        let said = String::from_utf8_lossy(said).to_ascii_lowercase();
        let (kind, parameters) = said.split_once(';').unwrap_or((&said, ""));
        let is_html = match kind.trim() {
            "" => None,
            kind if HTML.contains(&kind) => Some(true),
            kind if is_text(kind) => Some(false),
            kind => return Err(FetchError::failed(format!("not text: {kind}"))),
        };
        Ok(Self { is_html, charset: charset_in(parameters) })
    }

    /// The body's text; bytes that are none become replacement characters.
    pub(super) fn text(&self, body: &Body) -> Result<String, FetchError> {
        let begin = &body.bytes[..body.bytes.len().min(BEGIN)];
        let begin = String::from_utf8_lossy(begin).to_ascii_lowercase();
        let is_html = self.is_html.unwrap_or_else(|| is_like_html(&begin));
        // What was readable so far is not in an encoding that ASCII is no part of.
        let declared = || charset_in(&begin).filter(|charset| charset.is_ascii_compatible());
        let charset = self.charset.or_else(|| declared().filter(|_| is_html)).unwrap_or(UTF_8);
        let (text, _, _) = charset.decode(&body.bytes);
        if text.bytes().take(BEGIN).any(|byte| byte == 0) {
            return Err(FetchError::failed("not text: it has zero bytes"));
        }
        let text = if body.truncated { text.trim_end_matches('\u{fffd}') } else { &text };
        Ok(if is_html { text::of_html(text) } else { text.to_owned() })
    }
}

fn is_text(kind: &str) -> bool {
    kind.starts_with("text/")
        || kind.ends_with("+json")
        || kind.ends_with("+xml")
        || TEXTS.contains(&kind)
}

fn is_like_html(begin: &str) -> bool {
    let begin = begin.trim_start_matches('\u{feff}').trim_start();
    begin.starts_with("<!doctype html") || begin.starts_with("<html")
}

/// The charset that a header's parameters, or the begin of a page, name.
fn charset_in(text: &str) -> Option<&'static Encoding> {
    let (_, value) = text.split_once("charset=")?;
    let value = value.trim_start_matches(['"', '\'']);
    let end = value.find(['"', '\'', ';', ' ', '>', '/']).unwrap_or(value.len());
    Encoding::for_label(&value.as_bytes()[..end])
}
