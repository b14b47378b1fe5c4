//! The content of users' messages: blocks of a conversation, and parts of AG-UI.

use abide_conversation::message::text_block;
use serde_json::{Value, json};

use super::types::InputError;

/// The media that parts may be.
const MEDIA: [&str; 4] = ["image", "audio", "video", "document"];

/// The blocks of a message's content.
pub fn blocks(content: &Value) -> Result<Vec<Value>, InputError> {
    let parts = match content {
        Value::String(text) => return Ok(vec![text_block(text)]),
        Value::Array(parts) => parts,
        _ => return Err(InputError::new("content", "must be a text or a list of parts")),
    };
    let block = |(index, part): (usize, &Value)| {
        block(part).map_err(|(field, why)| InputError::new(format!("content[{index}]{field}"), why))
    };
    parts.iter().enumerate().map(block).collect()
}

type PartError = (&'static str, &'static str);

fn block(part: &Value) -> Result<Value, PartError> {
    match part["type"].as_str().unwrap_or_default() {
        "text" => match part["text"].as_str() {
            Some(text) => Ok(text_block(text)),
            None => Err((".text", "is missing")),
        },
        "binary" => binary_block(part),
        kind if MEDIA.contains(&kind) => {
            let source = &part["source"];
            let value = source["value"].as_str().ok_or((".source.value", "is missing"))?;
            let media = source["mimeType"].as_str();
            let source = match source["type"].as_str() {
                Some("data") => base64(media, value),
                Some("url") => url(value).map_err(|why| (".source.value", why)),
                _ => Err((".source.type", "must be data or url")),
            };
            Ok(json!({"type": kind, "source": source?}))
        }
        _ => Err((".type", "must be text, image, audio, video, document or binary")),
    }
}

/// The block of a part as versions before 1.0 have it.
fn binary_block(part: &Value) -> Result<Value, PartError> {
    let media = part["mimeType"].as_str().filter(|media| media.contains('/'));
    let media = media.ok_or((".mimeType", "is no media type"))?;
    let source = match (part["data"].as_str(), part["url"].as_str()) {
        (Some(data), _) => base64(Some(media), data)?,
        (None, Some(address)) => url(address).map_err(|why| (".url", why))?,
        (None, None) => return Err((".data", "is missing")),
    };
    let kind = match media.split_once('/') {
        Some((kind @ ("image" | "audio" | "video"), _)) => kind,
        _ => "document",
    };
    Ok(json!({"type": kind, "source": source}))
}

fn base64(media: Option<&str>, data: &str) -> Result<Value, PartError> {
    let media = media.filter(|media| media.contains('/'));
    let media = media.ok_or((".source.mimeType", "is no media type"))?;
    Ok(json!({"type": "base64", "mimeType": media, "data": data}))
}

fn url(address: &str) -> Result<Value, &'static str> {
    if address.starts_with("https://") || address.starts_with("http://") {
        Ok(json!({"type": "url", "url": address}))
    } else {
        Err("must be an https or http URL")
    }
}

/// The content of a message with these blocks: a text if it has nothing else.
pub fn content(blocks: &[Value]) -> Value {
    match blocks {
        [only] if only["type"] == "text" => only["text"].clone(),
        blocks => blocks.iter().map(part).collect(),
    }
}

/// The part of a block. What is neither text nor a file that a client can fetch is told as its JSON.
fn part(block: &Value) -> Value {
    let kind = block["type"].as_str().unwrap_or_default();
    if kind == "text" {
        return json!({"type": "text", "text": block["text"]});
    }
    let source = &block["source"];
    let media = source["mimeType"].as_str();
    let text = |member: &str| source[member].as_str();
    let source = match source["type"].as_str() {
        Some("url") => text("url").map(|url| json!({"type": "url", "value": url})),
        Some("blob") => {
            text("blobId").map(|id| json!({"type": "url", "value": format!("/v1/blobs/{id}")}))
        }
        Some("base64") => text("data").map(|data| {
            let media = media.unwrap_or("application/octet-stream");
            json!({"type": "data", "value": data, "mimeType": media})
        }),
        _ => None,
    };
    match source {
        Some(mut source) if MEDIA.contains(&kind) => {
            if let Some(media) = media {
                source["mimeType"] = json!(media);
            }
            json!({"type": kind, "source": source})
        }
        _ => json!({"type": "text", "text": block.to_string()}),
    }
}
