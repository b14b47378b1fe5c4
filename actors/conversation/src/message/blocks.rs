//! The kinds of content blocks: what each must have, and what each is as text.

pub mod base64;
mod form;
mod kind;
mod media;
mod text;

use serde_json::Value;

use self::kind::BASE;
pub use self::kind::BlockKind;
pub use self::media::{Media, Source, essence};
pub use self::text::{as_text, texts, without_bytes};

/// How deep blocks may stand in the results that blocks are.
const DEEPEST: usize = 4;

/// What is wrong with a block, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockError {
    /// From the block on, such as `.source.data`; empty for the block itself.
    pub at: String,
    pub why: String,
}

impl BlockError {
    fn here(why: impl Into<String>) -> Self {
        Self { at: String::new(), why: why.into() }
    }

    fn within(self, field: &str) -> Self {
        Self { at: format!(".{field}{}", self.at), ..self }
    }
}

/// Judges a block's shape. One of an unknown kind passes, whatever it has besides its `type`; so
/// do fields that the kind does not know.
pub fn check(block: &Value) -> Result<(), BlockError> {
    check_within(block, DEEPEST)
}

/// The same for a block that a person's message has: it must not tell what the model did.
pub fn check_said(block: &Value) -> Result<(), BlockError> {
    match BlockKind::of(block).filter(|kind| kind.is_the_models()) {
        Some(_) => {
            Err(BlockError::here("a block of this type is the model's, nobody else may send it")
                .within("type"))
        }
        None => check(block),
    }
}

/// Whether it is a well-formed block of a known kind.
pub fn is_block(value: &Value) -> bool {
    BlockKind::of(value).is_some() && check(value).is_ok()
}

fn check_within(block: &Value, deep: usize) -> Result<(), BlockError> {
    let name = block.get("type").and_then(Value::as_str).unwrap_or_default();
    if name.is_empty() {
        return Err(BlockError::here("a block is an object with a type"));
    }
    let Some(kind) = BlockKind::of(block) else { return Ok(()) };
    for field in BASE.iter().chain(kind.fields()) {
        field.check(block, deep)?;
    }
    match kind {
        _ if kind.is_media() => Media::of(block)?.check(),
        BlockKind::Json => json_data(block),
        _ => Ok(()),
    }
}

/// `data` may be anything; without it, `text` says it.
fn json_data(block: &Value) -> Result<(), BlockError> {
    let text = block.get("text").and_then(Value::as_str);
    match (block.get("data"), text) {
        (Some(_), _) => Ok(()),
        (None, None) => Err(BlockError::here("is missing").within("data")),
        (None, Some(text)) => match serde_json::from_str::<serde::de::IgnoredAny>(text) {
            Ok(_) => Ok(()),
            Err(_) => Err(BlockError::here("is not JSON, and there is no data").within("text")),
        },
    }
}

#[cfg(test)]
mod tests;
