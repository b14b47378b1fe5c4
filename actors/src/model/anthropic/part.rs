//! Writes a block of a user's message as a content block.

use abide_conversation::message::blocks::{BlockKind, Media, Source, as_text, essence};
use serde_json::{Value, json};

use crate::model::http::media::image_type;

/// The largest image that the provider accepts on every platform, in bytes of base64.
const MAX_IMAGE_BASE64_BYTES: usize = 5 << 20;

/// The longest title of a document.
const MAX_TITLE_CHARS: usize = 200;

/// Renders a block; `None` if it is empty or never sent.
///
/// A block that the API does not know is sent as text: one block that the provider refuses would
/// make every later request of the conversation fail.
pub(super) fn render_block(block: &Value) -> Option<Value> {
    let native = Media::of(block).ok().and_then(|media| media_block(&media));
    native.or_else(|| text_block(&as_text(block)?))
}

/// A block of text; `None` if it is blank, which the provider refuses.
pub(super) fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text}))
}

fn media_block(media: &Media<'_>) -> Option<Value> {
    match media.kind {
        BlockKind::Image | BlockKind::GeneratedImage => {
            image_source(media.source).map(|source| json!({"type": "image", "source": source}))
        }
        BlockKind::Document => {
            let mut document = json!({"type": "document", "source": document_source(media)?});
            if let Some(title) = media.name {
                document["title"] = title.chars().take(MAX_TITLE_CHARS).collect::<String>().into();
            }
            Some(document)
        }
        _ => None,
    }
}

fn image_source(source: Source<'_>) -> Option<Value> {
    match source {
        Source::Base64 { media_type, data } => {
            let known = image_type(media_type)?;
            let fits = data.len() <= MAX_IMAGE_BASE64_BYTES;
            fits.then(|| json!({"type": "base64", "media_type": known, "data": data}))
        }
        Source::Url(url) => is_secure(url).then(|| json!({"type": "url", "url": url})),
        Source::File(id) => Some(json!({"type": "file", "file_id": id})),
        Source::Blob(_) | Source::Stored { .. } => None,
    }
}

fn document_source(media: &Media<'_>) -> Option<Value> {
    match media.source {
        Source::Base64 { media_type, data } if essence(media_type) == "application/pdf" => {
            Some(json!({"type": "base64", "media_type": "application/pdf", "data": data}))
        }
        Source::Base64 { .. } => {
            let text = media.document_text().filter(|text| !text.trim().is_empty())?;
            Some(json!({"type": "text", "media_type": "text/plain", "data": text}))
        }
        // The provider reads only PDFs from a URL.
        Source::Url(url) if is_secure(url) && is_pdf(url) => {
            Some(json!({"type": "url", "url": url}))
        }
        Source::File(id) => Some(json!({"type": "file", "file_id": id})),
        Source::Url(_) | Source::Blob(_) | Source::Stored { .. } => None,
    }
}

/// The provider does not fetch over plain HTTP.
fn is_secure(url: &str) -> bool {
    url.get(..8).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https://"))
}

fn is_pdf(url: &str) -> bool {
    let path = url.split(['?', '#']).next().unwrap_or_default();
    path.to_ascii_lowercase().ends_with(".pdf")
}
