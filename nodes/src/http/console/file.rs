//! A file of the console, as it is and compressed.

use std::io::Write;

use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

use crate::http::extract::fingerprint;

/// One file, prepared once for all requests.
pub(super) struct ConsoleFile {
    pub(super) path: &'static str,
    plain: Representation,
    compressed: Representation,
}

/// The bytes of a file, and their tag.
struct Representation {
    bytes: Bytes,
    tag: String,
}

impl ConsoleFile {
    pub(super) fn new(path: &'static str, text: &'static str) -> Self {
        let fingerprint = fingerprint(&[text]);
        let bytes = Bytes::from_static(text.as_bytes());
        let plain = Representation { bytes, tag: format!("\"{fingerprint}\"") };
        let bytes = Bytes::from(compress(text));
        let compressed = Representation { bytes, tag: format!("\"{fingerprint}-gzip\"") };
        Self { path, plain, compressed }
    }

    /// The file in an encoding that the client takes, or 304 if the client has it.
    pub(super) fn respond(&self, headers: &HeaderMap) -> Response {
        let takes_gzip = takes_gzip(headers);
        let given = if takes_gzip { &self.compressed } else { &self.plain };
        let tag = HeaderValue::from_str(&given.tag).expect("a tag is of hex digits and letters");
        let tagged =
            [(header::ETAG, tag), (header::VARY, HeaderValue::from_static("accept-encoding"))];
        let cached = headers.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
        // A proxy may have marked the tag as weak.
        let is_current = |cached: &str| cached.trim().trim_start_matches("W/") == given.tag;
        if cached.is_some_and(|tags| tags.split(',').any(is_current)) {
            return (StatusCode::NOT_MODIFIED, tagged).into_response();
        }
        let mut response = (tagged, given.bytes.clone()).into_response();
        if takes_gzip {
            let gzip = HeaderValue::from_static("gzip");
            response.headers_mut().insert(header::CONTENT_ENCODING, gzip);
        }
        response
    }
}

fn compress(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(text.as_bytes()).expect("memory takes all bytes");
    encoder.finish().expect("memory takes all bytes")
}

/// Whether the client lists gzip, other than with a weight of 0.
fn takes_gzip(headers: &HeaderMap) -> bool {
    let listed = headers.get_all(header::ACCEPT_ENCODING).iter();
    let listed = listed.filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    listed.into_iter().any(|coding| {
        let (name, weight) = coding.split_once(';').unwrap_or((coding, ""));
        let weight = weight.trim().strip_prefix("q=").map_or(Ok(1.0), str::parse::<f32>);
        name.trim().eq_ignore_ascii_case("gzip") && weight.is_ok_and(|weight| weight > 0.0)
    })
}
