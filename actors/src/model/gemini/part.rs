//! Writes a block of a user's message as a part.

use abide_conversation::message::blocks::{Media, Source, as_text, essence};
use serde_json::{Value, json};

use super::DEFAULT_BASE_URL;

/// A part of text.
pub(super) fn text_part(text: &str) -> Value {
    json!({"text": text})
}

/// Renders a block; `None` if it is empty or never sent.
///
/// A block that the API does not know is sent as text: one part that the server refuses would make
/// every later request of the conversation fail.
pub(super) fn render_part(block: &Value) -> Option<Value> {
    let native = Media::of(block).ok().and_then(|media| media_part(&media, block));
    let text = || as_text(block).filter(|text| !text.is_empty()).map(|text| text_part(&text));
    native.or_else(text)
}

fn media_part(media: &Media<'_>, block: &Value) -> Option<Value> {
    let file =
        |uri: &str, media_type: &str| json!({"fileData": {"mimeType": media_type, "fileUri": uri}});
    match media.source {
        Source::Base64 { media_type, data } => {
            let media_type = supported_type(&essence(media_type))?;
            Some(json!({"inlineData": {"mimeType": media_type, "data": data}}))
        }
        // The server fetches this URL, which only this machine may be able to reach if it is plain
        // HTTP.
        Source::Url(url) if url.starts_with("https://") => {
            Some(file(url, media_type_of(url, block)?))
        }
        Source::File(id) if id.starts_with("files/") => {
            let media_type = media_type_of(id, block)?;
            Some(file(&format!("{DEFAULT_BASE_URL}/{id}"), media_type))
        }
        Source::File(id) if id.starts_with(&format!("{DEFAULT_BASE_URL}/files/")) => {
            Some(file(id, media_type_of(id, block)?))
        }
        Source::Stored { scheme: scheme @ "gs", bucket, name } => {
            let media_type = media_type_of(name, block)?;
            Some(file(&format!("{scheme}://{bucket}/{name}"), media_type))
        }
        Source::Url(_) | Source::File(_) | Source::Blob(_) | Source::Stored { .. } => None,
    }
}

/// The media type of a file that is not in the request: the one that the block declares, or else
/// the one of the name's extension.
fn media_type_of(place: &str, block: &Value) -> Option<&'static str> {
    let declared = block["source"]["mimeType"].as_str().or(block["mimeType"].as_str());
    if let Some(declared) = declared {
        return supported_type(&essence(declared));
    }
    let path = place.split(['?', '#']).next().unwrap_or_default();
    let (_, end) = path.rsplit_once('.')?;
    let media_type = match end.to_ascii_lowercase().as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "webp" => "image/webp",
        "heic" => "image/heic",
        "heif" => "image/heif",
        "pdf" => "application/pdf",
        "wav" => "audio/wav",
        "mp3" => "audio/mp3",
        "flac" => "audio/flac",
        "ogg" => "audio/ogg",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        "mov" => "video/mov",
        _ => return None,
    };
    Some(media_type)
}

/// The media types that the API accepts, in its spelling.
fn supported_type(essence: &str) -> Option<&'static str> {
    const KNOWN: [&str; 22] = [
        "image/png",
        "image/jpeg",
        "image/webp",
        "image/heic",
        "image/heif",
        "application/pdf",
        "audio/wav",
        "audio/mp3",
        "audio/aiff",
        "audio/aac",
        "audio/ogg",
        "audio/flac",
        "video/mp4",
        "video/mpeg",
        "video/mov",
        "video/avi",
        "video/x-flv",
        "video/mpg",
        "video/webm",
        "video/wmv",
        "video/3gpp",
        "video/quicktime",
    ];
    let spelled = match essence {
        "image/jpg" => "image/jpeg",
        "audio/mpeg" => "audio/mp3",
        "audio/x-wav" | "audio/wave" | "audio/vnd.wave" => "audio/wav",
        other => other,
    };
    KNOWN.into_iter().find(|known| *known == spelled)
}
