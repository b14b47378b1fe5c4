//! Parts of messages, and the blocks that they are in a conversation.

use abide_conversation::message::blocks::{BlockKind, essence};
use abide_conversation::message::text_block;
use serde_json::{Value, json};

use super::proto_json::{FieldError, Fields, whole};

/// What a part may have as its content, of which it has one.
const CONTENTS: [&str; 4] = ["text", "raw", "url", "data"];

/// The most parts of a message.
pub const MAX_PARTS: usize = 100;

/// A part of a message.
#[derive(Clone, Debug, PartialEq)]
pub enum Part {
    Data(Value),
    /// Anything else, as a block.
    Block(Value),
}

impl Part {
    /// The part that a value at this path is.
    pub fn parse(value: &Value, path: &str) -> Result<Self, FieldError> {
        let fields = Fields::of(value, path)?;
        let is_given = |name: &&str| match *name {
            // Null is data, too.
            "data" => fields.present(name).is_some(),
            name => fields.get(name).is_some(),
        };
        let given: Vec<&str> = CONTENTS.into_iter().filter(|name| is_given(name)).collect();
        let [content] = given[..] else {
            return Err(FieldError::new(path, "must have one of text, raw, url and data"));
        };
        match content {
            "data" => Ok(Self::Data(whole(fields.present("data").unwrap_or(&Value::Null)))),
            "text" => {
                let text = fields.text("text")?;
                let text = text.ok_or_else(|| fields.error("text", "is empty"))?;
                Ok(Self::Block(text_block(text)))
            }
            content => media(&fields, content).map(Self::Block),
        }
    }

    /// The block of a user's message that the part is.
    pub fn into_block(self) -> Value {
        match self {
            Self::Data(data) => json!({"type": "json", "data": data}),
            Self::Block(block) => block,
        }
    }
}

/// The block of a part whose bytes it has, or points to.
fn media(fields: &Fields<'_>, content: &str) -> Result<Value, FieldError> {
    let given = fields.required_text(content)?;
    let media_type = fields.text("mediaType")?;
    let source = if content == "raw" {
        let media_type = media_type.unwrap_or("application/octet-stream");
        // Base64 in either of its alphabets, with or without padding.
        let mut data = given.replace('-', "+").replace('_', "/");
        while data.len() % 4 != 0 {
            data.push('=');
        }
        json!({"type": "base64", "mimeType": media_type, "data": data})
    } else if given.starts_with("https://") || given.starts_with("http://") {
        json!({"type": "url", "url": given})
    } else {
        return Err(fields.error("url", "must be of http or https"));
    };
    let family = media_type.unwrap_or_default().split('/').next().unwrap_or_default();
    let kind = match family {
        "image" | "audio" | "video" => family,
        _ => "document",
    };
    let mut block = json!({"type": kind, "source": source});
    if let Some(name) = fields.text("filename")? {
        block["title"] = json!(name);
    }
    Ok(block)
}

/// The part that tells a block of a user's message.
pub fn of_block(block: &Value) -> Value {
    let source = &block["source"];
    let mut part = match (BlockKind::of(block), source["type"].as_str()) {
        (Some(BlockKind::Text), _) => return json!({"text": block["text"]}),
        (Some(BlockKind::Json), _) if block.get("data").is_some() => {
            return json!({"data": block["data"], "mediaType": "application/json"});
        }
        (_, Some("url")) => json!({"url": source["url"]}),
        (_, Some("blob")) => {
            let id = source["blobId"].as_str().unwrap_or_default();
            json!({"url": format!("/v1/blobs/{id}")})
        }
        (_, Some("base64")) => json!({"raw": source["data"]}),
        _ => return json!({"data": block, "mediaType": "application/json"}),
    };
    if let Some(media_type) = source["mimeType"].as_str() {
        part["mediaType"] = json!(essence(media_type));
    }
    if let Some(title) = block["title"].as_str() {
        part["filename"] = json!(title);
    }
    part
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn block(part: Value) -> Result<Value, FieldError> {
        Part::parse(&part, "p").map(Part::into_block)
    }

    #[test]
    fn a_part_is_a_block() {
        for (part, expected) in [
            (json!({"text": "hi"}), json!({"type": "text", "text": "hi"})),
            (json!({"data": {"n": 1.0}}), json!({"type": "json", "data": {"n": 1}})),
            (json!({"data": null}), json!({"type": "json", "data": null})),
            (
                json!({"raw": "_-8", "mediaType": "image/png", "filename": "a.png"}),
                json!({"type": "image", "title": "a.png",
                    "source": {"type": "base64", "mimeType": "image/png", "data": "/+8="}}),
            ),
            (
                json!({"url": "https://x.y/z", "media_type": "audio/ogg"}),
                json!({"type": "audio", "source": {"type": "url", "url": "https://x.y/z"}}),
            ),
            (
                json!({"url": "http://x.y/z"}),
                json!({"type": "document", "source": {"type": "url", "url": "http://x.y/z"}}),
            ),
        ] {
            assert_eq!(block(part).unwrap(), expected);
        }
    }

    #[test]
    fn a_part_without_one_content_is_refused_with_its_place() {
        for (wrong, field) in [
            (json!({}), "p"),
            (json!({"text": "a", "url": "https://x.y"}), "p"),
            (json!({"text": null}), "p"),
            (json!({"text": ""}), "p.text"),
            (json!({"text": 1}), "p.text"),
            (json!({"url": "file:///etc/passwd"}), "p.url"),
            (json!("text"), "p"),
        ] {
            assert_eq!(block(wrong).unwrap_err().field, field);
        }
    }

    #[test]
    fn a_block_is_told_as_the_part_that_it_was() {
        for part in [
            json!({"text": "hi"}),
            json!({"data": {"a": 1}, "mediaType": "application/json"}),
            json!({"url": "https://x.y/z"}),
            json!({"raw": "/+8=", "mediaType": "image/png", "filename": "a.png"}),
        ] {
            assert_eq!(of_block(&block(part.clone()).unwrap()), part);
        }
        let unknown = json!({"type": "custom", "name": "x"});
        assert_eq!(of_block(&unknown)["data"], unknown);
    }
}
