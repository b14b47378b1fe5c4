//! Blocks as text, for a model that accepts no better form of them.

mod event;
mod pieces;

use std::borrow::Cow;

use serde_json::Value;

pub use self::pieces::without_bytes;

use self::event::{state_change, system_event, user_action};
use self::pieces::{bracketed, fenced, human_size, truncate, truncate_name};
use super::{BlockKind, Media, Source, base64};

/// How much is shown of the JSON of a block that has no better text.
const MAX_RAW_BYTES: usize = 16 << 10;

/// The text of every block that has one.
pub fn texts(blocks: &[Value]) -> Vec<Cow<'_, str>> {
    blocks.iter().filter_map(as_text).collect()
}

/// The text of a block; `None` for reasoning, which is never sent back.
///
/// The text never contains the bytes of media, only a label such as `[image/png, 12 kB]`. A
/// document of text is its text. Data stands in a fence, and events are one line each. A block of
/// an unknown kind and an invalid block become their JSON, truncated.
pub fn as_text(block: &Value) -> Option<Cow<'_, str>> {
    match (BlockKind::of(block), block["text"].as_str()) {
        (Some(BlockKind::Reasoning), _) => None,
        (Some(BlockKind::Text), Some(text)) => Some(Cow::Borrowed(text)),
        (Some(kind), _) if kind.is_media() => Some(media(block).into()),
        (Some(BlockKind::ToolResult), _) => {
            Some(result(block).unwrap_or_else(|| raw(block)).into())
        }
        (Some(kind), _) => {
            let block = without_bytes(block);
            Some(describe(kind, &block).unwrap_or_else(|| raw(&block)).into())
        }
        (None, _) => Some(raw(block).into()),
    }
}

/// `None` if the block lacks a required field, or if `as_text` handles its kind itself.
fn describe(kind: BlockKind, block: &Value) -> Option<String> {
    let field = |name: &str| block[name].as_str();
    match kind {
        BlockKind::Text
        | BlockKind::Reasoning
        | BlockKind::Image
        | BlockKind::Document
        | BlockKind::Audio
        | BlockKind::Video
        | BlockKind::GeneratedImage
        | BlockKind::ToolResult => None,
        BlockKind::Json => match block.get("data") {
            Some(data) => Some(data.to_string()),
            None => field("text").map(str::to_owned),
        },
        BlockKind::Xml => Some(fenced("xml", field("text")?)),
        BlockKind::Html => Some(fenced("html", field("text")?)),
        BlockKind::Code => Some(fenced(field("language").unwrap_or_default(), field("text")?)),
        BlockKind::Csv => {
            let table = fenced("csv", field("text")?);
            let headers = block["headers"].as_array().map(Vec::as_slice).unwrap_or_default();
            let headers: Vec<&str> = headers.iter().filter_map(Value::as_str).collect();
            if headers.is_empty() {
                Some(table)
            } else {
                Some(format!("{}\n{table}", bracketed("columns", &headers.join(", "))))
            }
        }
        BlockKind::ExecutableCode => {
            Some(fenced(field("language").unwrap_or_default(), field("code")?))
        }
        BlockKind::CodeExecutionResult => {
            let failed = block["isError"] == true;
            let head = if failed { "[the code failed]" } else { "[the code's output]" };
            Some(format!("{head}\n{}", fenced("", field("output")?)))
        }
        BlockKind::GeneratedFile => {
            let named = field("displayName").map(|name| format!("{name} ")).unwrap_or_default();
            Some(bracketed(field("mimeType")?, &format!("{named}{}", field("uri")?)))
        }
        BlockKind::UserAction => user_action(block),
        BlockKind::SystemEvent => system_event(block),
        BlockKind::StateChange => state_change(block),
        BlockKind::ToolUse => {
            Some(bracketed("call", &format!("{} {}", field("name")?, block["input"])))
        }
        BlockKind::Custom => custom(block),
    }
}

fn media(block: &Value) -> String {
    let kind = block["type"].as_str().unwrap_or_default();
    let Ok(media) = Media::of(block) else {
        return format!("[{} that cannot be shown]", kind);
    };
    let what = match media.source {
        Source::Base64 { media_type, data } => {
            if let Some(text) = media.document_text() {
                let title = media.name.map(|name| format!("{}\n", bracketed("document", name)));
                return format!("{}{}", title.unwrap_or_default(), fenced("", &text));
            }
            format!("{media_type}, {}", human_size(base64::decoded_len(data)))
        }
        Source::Url(url) => format!("{} at {url}", kind),
        Source::Blob(id) => format!("{kind} in blob {id}"),
        Source::File(id) => format!("{} in file {id}", kind),
        Source::Stored { scheme, bucket, name } => {
            format!("{} at {scheme}://{bucket}/{name}", kind)
        }
    };
    let label = match media.name {
        Some(name) => bracketed(&what, name),
        None => format!("[{}]", truncate_name(&what)),
    };
    match media.transcript {
        Some(transcript) => format!("{label}\n{}", fenced("transcript", transcript)),
        None => label,
    }
}

/// Nested results are replaced by a label, whatever their depth.
fn result(block: &Value) -> Option<String> {
    let what = if block["isError"] == true { "error of" } else { "result of" };
    let mut texts = vec![Cow::Owned(bracketed(what, block["name"].as_str()?))];
    for inner in block["content"].as_array()? {
        texts.extend(match BlockKind::of(inner) {
            Some(BlockKind::ToolResult) => Some(Cow::Borrowed("[result]")),
            _ => as_text(inner),
        });
    }
    Some(texts.join("\n"))
}

/// A tag around its content, as the model wrote it.
fn custom(block: &Value) -> Option<String> {
    let tag = block["tag"].as_str()?;
    let attr = |(name, value): (&String, &Value)| {
        let value = value.as_str().unwrap_or_default().replace('"', "&quot;");
        format!(" {name}=\"{value}\"")
    };
    let attrs: String = block["attrs"].as_object().into_iter().flatten().map(attr).collect();
    match block["content"].as_str()? {
        "" if block["selfClosing"] == true => Some(format!("<{tag}{attrs}/>")),
        content => Some(format!("<{tag}{attrs}>{content}</{tag}>")),
    }
}

fn raw(block: &Value) -> String {
    truncate(without_bytes(block).to_string(), MAX_RAW_BYTES)
}
