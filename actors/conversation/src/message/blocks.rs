//! The kinds of content blocks: what each must have, and what each is as text.

pub mod base64;
mod form;
mod media;
mod text;

use serde::de::IntoDeserializer;
use serde::de::value::Error as Unread;
use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use self::media::{Media, Source, essence};
pub use self::text::{as_text, texts, without_bytes};

use self::form::{Field, Form, may, must};

/// How deep blocks may stand in the results that blocks are.
const DEEPEST: usize = 4;

/// What a block is, by its `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Text,
    Image,
    Document,
    Audio,
    Video,
    ToolUse,
    ToolResult,
    Reasoning,
    Json,
    Xml,
    Csv,
    Html,
    Code,
    GeneratedImage,
    GeneratedFile,
    ExecutableCode,
    CodeExecutionResult,
    UserAction,
    SystemEvent,
    StateChange,
    Custom,
}

/// What is wrong with a block, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// From the block on, such as `.source.data`; empty for the block itself.
    pub at: String,
    pub why: String,
}

impl Wrong {
    fn here(why: impl Into<String>) -> Self {
        Self { at: String::new(), why: why.into() }
    }

    fn within(self, field: &str) -> Self {
        Self { at: format!(".{field}{}", self.at), ..self }
    }
}

/// What every block may have.
const BASE: [Field; 7] = [
    may("id", Form::Text),
    may("messageId", Form::Text),
    may("createdAt", Form::Text),
    may("mimeType", Form::MediaType("")),
    may("index", Form::Number),
    may("metadata", Form::Object),
    may("summary", Form::Text),
];

impl Kind {
    /// The kind of a block; `None` if it has no `type` that is known.
    pub fn of(block: &Value) -> Option<Self> {
        let name = block.get("type")?.as_str()?;
        Self::deserialize(IntoDeserializer::<Unread>::into_deserializer(name)).ok()
    }

    /// Whether a block of it may carry bytes, or point to some.
    pub fn is_media(self) -> bool {
        use Kind::*;
        matches!(self, Image | Document | Audio | Video | GeneratedImage)
    }

    /// Whether it tells what the model did: nobody else can say that.
    fn is_the_models(self) -> bool {
        matches!(self, Kind::ToolUse | Kind::ToolResult | Kind::Reasoning)
    }

    fn fields(self) -> &'static [Field] {
        use Form::*;
        match self {
            Kind::Text | Kind::Xml | Kind::Html => const { &[must("text", Text)] },
            Kind::Image => const { &[may("altText", Text)] },
            Kind::Document => const { &[may("title", Text)] },
            Kind::Audio | Kind::Video => const { &[may("transcript", Text)] },
            Kind::ToolUse => {
                const { &[must("toolUseId", Name), must("name", Name), must("input", Object)] }
            }
            Kind::ToolResult => {
                const {
                    &[
                        must("toolUseId", Name),
                        must("name", Name),
                        must("content", Blocks),
                        may("isError", Flag),
                    ]
                }
            }
            Kind::Reasoning => {
                const { &[must("text", Text), may("signature", Text), may("isRedacted", Flag)] }
            }
            Kind::Json => const { &[may("text", Text)] },
            Kind::Csv => const { &[must("text", Text), may("headers", Texts)] },
            Kind::Code => const { &[must("text", Text), must("language", Name)] },
            Kind::GeneratedImage => const { &[may("altText", Text)] },
            Kind::GeneratedFile => {
                const { &[must("uri", Name), must("mimeType", MediaType("")), may("displayName", Text)] }
            }
            Kind::ExecutableCode => const { &[must("code", Text), may("language", Text)] },
            Kind::CodeExecutionResult => const { &[must("output", Text), may("isError", Flag)] },
            Kind::UserAction => {
                const {
                    &[
                        must("action", Name),
                        may("actor", Text),
                        may("target", Text),
                        may("details", Object),
                        may("text", Text),
                    ]
                }
            }
            Kind::SystemEvent => {
                const {
                    &[
                        must("event", Name),
                        may("source", Text),
                        may("data", Object),
                        may("text", Text),
                    ]
                }
            }
            Kind::StateChange => {
                const {
                    &[
                        must("entity", Name),
                        may("field", Text),
                        must("from", Any),
                        must("to", Any),
                        may("trigger", Text),
                        may("text", Text),
                    ]
                }
            }
            Kind::Custom => {
                const {
                    &[
                        must("tag", Name),
                        must("content", Text),
                        must("attrs", TextMap),
                        may("selfClosing", Flag),
                    ]
                }
            }
        }
    }
}

/// Judges a block's shape. One of an unknown kind passes, whatever it has besides its `type`; so
/// do fields that the kind does not know.
pub fn check(block: &Value) -> Result<(), Wrong> {
    check_within(block, DEEPEST)
}

/// The same for a block that a person's message has: it must not tell what the model did.
pub fn check_said(block: &Value) -> Result<(), Wrong> {
    match Kind::of(block).filter(|kind| kind.is_the_models()) {
        Some(_) => Err(Wrong::here("a block of this type is the model's, nobody else may send it")
            .within("type")),
        None => check(block),
    }
}

/// Whether it is a well-formed block of a known kind.
pub fn is_block(value: &Value) -> bool {
    Kind::of(value).is_some() && check(value).is_ok()
}

fn check_within(block: &Value, deep: usize) -> Result<(), Wrong> {
    let name = block.get("type").and_then(Value::as_str).unwrap_or_default();
    if name.is_empty() {
        return Err(Wrong::here("a block is an object with a type"));
    }
    let Some(kind) = Kind::of(block) else { return Ok(()) };
    for field in BASE.iter().chain(kind.fields()) {
        field.check(block, deep)?;
    }
    match kind {
        _ if kind.is_media() => Media::of(block)?.check(),
        Kind::Json => json_data(block),
        _ => Ok(()),
    }
}

/// `data` may be anything; without it, `text` says it.
fn json_data(block: &Value) -> Result<(), Wrong> {
    let text = block.get("text").and_then(Value::as_str);
    match (block.get("data"), text) {
        (Some(_), _) => Ok(()),
        (None, None) => Err(Wrong::here("is missing").within("data")),
        (None, Some(text)) => match serde_json::from_str::<serde::de::IgnoredAny>(text) {
            Ok(_) => Ok(()),
            Err(_) => Err(Wrong::here("is not JSON, and there is no data").within("text")),
        },
    }
}

#[cfg(test)]
mod tests;
