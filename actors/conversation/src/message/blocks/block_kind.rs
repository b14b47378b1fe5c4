//! The kinds of blocks, and the fields of each.

use serde::de::IntoDeserializer;
use serde::de::value::Error as Unread;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::field_type::{Field, FieldType, optional, required};

/// The kind of a block: its `type`.
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

/// The optional fields of every kind.
pub(super) const COMMON_FIELDS: [Field; 7] = [
    optional("id", FieldType::Text),
    optional("messageId", FieldType::Text),
    optional("createdAt", FieldType::Text),
    optional("mimeType", FieldType::MediaType("")),
    optional("index", FieldType::Number),
    optional("metadata", FieldType::Object),
    optional("summary", FieldType::Text),
];

impl BlockKind {
    /// The kind of a block; `None` if its `type` is missing or unknown.
    pub fn of(block: &Value) -> Option<Self> {
        let name = block.get("type")?.as_str()?;
        Self::deserialize(IntoDeserializer::<Unread>::into_deserializer(name)).ok()
    }

    /// Whether blocks of this kind carry bytes or point to some.
    pub fn is_media(self) -> bool {
        use BlockKind::*;
        matches!(self, Image | Document | Audio | Video | GeneratedImage)
    }

    /// Whether only a model may write blocks of this kind.
    pub(super) fn is_from_model(self) -> bool {
        matches!(self, BlockKind::ToolUse | BlockKind::ToolResult | BlockKind::Reasoning)
    }

    /// The fields of this kind, without the common ones. The source of media is validated by
    /// `Media`.
    pub(super) fn fields(self) -> &'static [Field] {
        use FieldType::*;
        match self {
            BlockKind::Text | BlockKind::Xml | BlockKind::Html => {
                const { &[required("text", Text)] }
            }
            BlockKind::Image => const { &[optional("altText", Text)] },
            BlockKind::Document => const { &[optional("title", Text)] },
            BlockKind::Audio | BlockKind::Video => const { &[optional("transcript", Text)] },
            BlockKind::ToolUse => {
                const {
                    &[
                        required("toolUseId", Name),
                        required("name", Name),
                        required("input", Object),
                    ]
                }
            }
            BlockKind::ToolResult => {
                const {
                    &[
                        required("toolUseId", Name),
                        required("name", Name),
                        required("content", Blocks),
                        optional("isError", Flag),
                    ]
                }
            }
            BlockKind::Reasoning => {
                const {
                    &[
                        required("text", Text),
                        optional("signature", Text),
                        optional("isRedacted", Flag),
                    ]
                }
            }
            BlockKind::Json => const { &[optional("text", Text)] },
            BlockKind::Csv => const { &[required("text", Text), optional("headers", Texts)] },
            BlockKind::Code => const { &[required("text", Text), required("language", Name)] },
            BlockKind::GeneratedImage => const { &[optional("altText", Text)] },
            BlockKind::GeneratedFile => {
                const {
                    &[
                        required("uri", Name),
                        required("mimeType", MediaType("")),
                        optional("displayName", Text),
                    ]
                }
            }
            BlockKind::ExecutableCode => {
                const { &[required("code", Text), optional("language", Text)] }
            }
            BlockKind::CodeExecutionResult => {
                const { &[required("output", Text), optional("isError", Flag)] }
            }
            BlockKind::UserAction => {
                const {
                    &[
                        required("action", Name),
                        optional("actor", Text),
                        optional("target", Text),
                        optional("details", Object),
                        optional("text", Text),
                    ]
                }
            }
            BlockKind::SystemEvent => {
                const {
                    &[
                        required("event", Name),
                        optional("source", Text),
                        optional("data", Object),
                        optional("text", Text),
                    ]
                }
            }
            BlockKind::StateChange => {
                const {
                    &[
                        required("entity", Name),
                        optional("field", Text),
                        required("from", Any),
                        required("to", Any),
                        optional("trigger", Text),
                        optional("text", Text),
                    ]
                }
            }
            BlockKind::Custom => {
                const {
                    &[
                        required("tag", Name),
                        required("content", Text),
                        required("attrs", TextMap),
                        optional("selfClosing", Flag),
                    ]
                }
            }
        }
    }
}
