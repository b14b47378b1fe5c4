//! Writes a block of a user's message as a content part.

use abide_conversation::message::blocks::{BlockKind, Media, Source, as_text, essence};
use serde_json::{Value, json};

use crate::model::http::media::{image_type, pdf_name};

/// Renders a block; `None` if it is never sent.
///
/// A block that the API does not know is sent as text: one part that the server refuses would make
/// every later request of the conversation fail.
pub(super) fn render_part(block: &Value) -> Option<Value> {
    let native = Media::of(block).ok().and_then(|media| media_part(&media));
    native.or_else(|| as_text(block).map(|text| json!({"type": "text", "text": text})))
}

fn media_part(media: &Media<'_>) -> Option<Value> {
    match (media.kind, media.source) {
        (BlockKind::Image | BlockKind::GeneratedImage, Source::Url(url)) => Some(image_part(url)),
        (BlockKind::Image | BlockKind::GeneratedImage, Source::Base64 { media_type, data }) => {
            let known = image_type(media_type)?;
            Some(image_part(&format!("data:{known};base64,{data}")))
        }
        (BlockKind::Audio, Source::Base64 { media_type, data }) => {
            let format = match essence(media_type).as_str() {
                "audio/wav" | "audio/x-wav" | "audio/wave" | "audio/vnd.wave" => "wav",
                "audio/mpeg" | "audio/mp3" => "mp3",
                _ => return None,
            };
            let audio = json!({"data": data, "format": format});
            Some(json!({"type": "input_audio", "input_audio": audio}))
        }
        (BlockKind::Document, Source::Base64 { media_type, data })
            if essence(media_type) == "application/pdf" =>
        {
            let data = format!("data:application/pdf;base64,{data}");
            let file = json!({"filename": pdf_name(media.name), "file_data": data});
            Some(json!({"type": "file", "file": file}))
        }
        (BlockKind::Document, Source::File(id)) => {
            Some(json!({"type": "file", "file": {"file_id": id}}))
        }
        _ => None,
    }
}

fn image_part(url: &str) -> Value {
    json!({"type": "image_url", "image_url": {"url": url}})
}
