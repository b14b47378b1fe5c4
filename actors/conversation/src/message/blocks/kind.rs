//! The kinds of blocks, and the fields of each.

use serde::de::IntoDeserializer;
use serde::de::value::Error as Unread;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::form::{Field, Form, may, must};

/// What a block is, by its `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BlockKind {
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

/// What every block may have.
pub(super) const BASE: [Field; 7] = [
    may("id", Form::Text),
    may("messageId", Form::Text),
    may("createdAt", Form::Text),
    may("mimeType", Form::MediaType("")),
    may("index", Form::Number),
    may("metadata", Form::Object),
    may("summary", Form::Text),
];

impl BlockKind {
    /// The kind of a block; `None` if it has no `type` that is known.
    pub fn of(block: &Value) -> Option<Self> {
        let name = block.get("type")?.as_str()?;
        Self::deserialize(IntoDeserializer::<Unread>::into_deserializer(name)).ok()
    }

    /// Whether a block of it may carry bytes, or point to some.
    pub fn is_media(self) -> bool {
        use BlockKind::*;
        matches!(self, Image | Document | Audio | Video | GeneratedImage)
    }

    /// Whether it tells what the model did: nobody else can say that.
    pub(super) fn is_the_models(self) -> bool {
        matches!(self, BlockKind::ToolUse | BlockKind::ToolResult | BlockKind::Reasoning)
    }

    /// What a block of it has besides; the source of media is read by itself.
    pub(super) fn fields(self) -> &'static [Field] {
        use Form::*;
        match self {
            BlockKind::Text | BlockKind::Xml | BlockKind::Html => const { &[must("text", Text)] },
            BlockKind::Image => const { &[may("altText", Text)] },
            BlockKind::Document => const { &[may("title", Text)] },
            BlockKind::Audio | BlockKind::Video => const { &[may("transcript", Text)] },
            BlockKind::ToolUse => {
                const { &[must("toolUseId", Name), must("name", Name), must("input", Object)] }
            }
            BlockKind::ToolResult => {
                const {
                    &[
                        must("toolUseId", Name),
                        must("name", Name),
                        must("content", Blocks),
                        may("isError", Flag),
                    ]
                }
            }
            BlockKind::Reasoning => {
                const { &[must("text", Text), may("signature", Text), may("isRedacted", Flag)] }
            }
            BlockKind::Json => const { &[may("text", Text)] },
            BlockKind::Csv => const { &[must("text", Text), may("headers", Texts)] },
            BlockKind::Code => const { &[must("text", Text), must("language", Name)] },
            BlockKind::GeneratedImage => const { &[may("altText", Text)] },
            BlockKind::GeneratedFile => {
                const { &[must("uri", Name), must("mimeType", MediaType("")), may("displayName", Text)] }
            }
            BlockKind::ExecutableCode => const { &[must("code", Text), may("language", Text)] },
            BlockKind::CodeExecutionResult => {
                const { &[must("output", Text), may("isError", Flag)] }
            }
            BlockKind::UserAction => {
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
            BlockKind::SystemEvent => {
                const {
                    &[
                        must("event", Name),
                        may("source", Text),
                        may("data", Object),
                        may("text", Text),
                    ]
                }
            }
            BlockKind::StateChange => {
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
            BlockKind::Custom => {
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
