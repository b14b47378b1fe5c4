//! Content blocks: which fields each kind must have, and how each kind reads as text.

pub mod base64;
mod block_kind;
mod field_type;
mod media;
mod text;

use serde_json::Value;

pub use self::block_kind::BlockKind;
use self::block_kind::COMMON_FIELDS;
pub use self::media::{Media, Source, essence};
pub use self::text::{as_text, texts, without_bytes};

/// How deep `tool_result` blocks may be nested in each other.
const MAX_RESULT_NESTING: usize = 4;

/// An error in a block, and its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockError {
    /// The path from the block, for example `.source.data`; empty for the block itself.
    pub path: String,
    pub problem: String,
}

impl BlockError {
    fn new(why: impl Into<String>) -> Self {
        Self { path: String::new(), problem: why.into() }
    }

    fn inside(self, field: &str) -> Self {
        Self { path: format!(".{field}{}", self.path), ..self }
    }
}

/// Validates a block. Unknown kinds and unknown fields pass: a newer client or model may use them.
pub fn check(block: &Value) -> Result<(), BlockError> {
    check_nested(block, MAX_RESULT_NESTING)
}

/// Validates a block of a user's message, which must not contain blocks that only a model may
/// write.
pub fn check_from_user(block: &Value) -> Result<(), BlockError> {
    match BlockKind::of(block).filter(|kind| kind.is_from_model()) {
        Some(_) => {
            Err(BlockError::new("only a model may write a block of this type").inside("type"))
        }
        None => check(block),
    }
}

/// Whether the value is a valid block of a known kind.
pub fn is_block(value: &Value) -> bool {
    BlockKind::of(value).is_some() && check(value).is_ok()
}

fn check_nested(block: &Value, depth_left: usize) -> Result<(), BlockError> {
    let name = block.get("type").and_then(Value::as_str).unwrap_or_default();
    if name.is_empty() {
        return Err(BlockError::new("a block is an object with a type"));
    }
    let Some(kind) = BlockKind::of(block) else { return Ok(()) };
    for field in COMMON_FIELDS.iter().chain(kind.fields()) {
        field.check(block, depth_left)?;
    }
    match kind {
        _ if kind.is_media() => Media::of(block)?.check(),
        BlockKind::Json => check_json_data(block),
        _ => Ok(()),
    }
}

/// `data` may be any JSON. Without it, `text` must be JSON.
fn check_json_data(block: &Value) -> Result<(), BlockError> {
    let text = block.get("text").and_then(Value::as_str);
    match (block.get("data"), text) {
        (Some(_), _) => Ok(()),
        (None, None) => Err(BlockError::new("is missing").inside("data")),
        (None, Some(text)) => match serde_json::from_str::<serde::de::IgnoredAny>(text) {
            Ok(_) => Ok(()),
            Err(_) => Err(BlockError::new("is not JSON, and there is no `data`").inside("text")),
        },
    }
}

#[cfg(test)]
mod tests;
