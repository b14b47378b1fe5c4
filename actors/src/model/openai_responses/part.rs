//! Writes a block of a user's message as a content part.

use abide_conversation::message::blocks::{BlockKind, Media, Source, as_text, essence};
use serde_json::{Value, json};

use crate::model::http::media::{image_type, pdf_name};

/// Renders a block; `None` if it is never sent.
///
/// A block that the API does not know is sent as text: one part that the provider refuses would
/// make every later request of the conversation fail.
pub(super) fn render_part(block: &Value) -> Option<Value> {
    let native = Media::of(block).ok().and_then(|media| media_part(&media));
    native.or_else(|| as_text(block).map(|text| json!({"type": "input_text", "text": text})))
}

fn media_part(media: &Media<'_>) -> Option<Value> {
    match (media.kind, media.source) {
        (BlockKind::Image | BlockKind::GeneratedImage, Source::Url(url)) => {
            Some(image_part("image_url", url))
        }
        (BlockKind::Image | BlockKind::GeneratedImage, Source::File(id)) => {
            Some(image_part("file_id", id))
        }
        (BlockKind::Image | BlockKind::GeneratedImage, Source::Base64 { media_type, data }) => {
            let known = image_type(media_type)?;
            Some(image_part("image_url", &format!("data:{known};base64,{data}")))
        }
        (BlockKind::Document, Source::Base64 { media_type, data })
            if essence(media_type) == "application/pdf" =>
        {
            let data = format!("data:application/pdf;base64,{data}");
            let name = pdf_name(media.name);
            Some(json!({"type": "input_file", "filename": name, "file_data": data}))
        }
        (BlockKind::Document, Source::Url(url)) => {
            Some(json!({"type": "input_file", "file_url": url}))
        }
        (BlockKind::Document, Source::File(id)) => {
            Some(json!({"type": "input_file", "file_id": id}))
        }
        _ => None,
    }
}

fn image_part(source: &str, at: &str) -> Value {
    json!({"type": "input_image", source: at, "detail": "auto"})
}
