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

const TOOL_USE_FIELDS: &[Field] = &[
    required("toolUseId", FieldType::Name),
    required("name", FieldType::Name),
    required("input", FieldType::Object),
];

const TOOL_RESULT_FIELDS: &[Field] = &[
    required("toolUseId", FieldType::Name),
    required("name", FieldType::Name),
    required("content", FieldType::Blocks),
    optional("isError", FieldType::Flag),
];

const REASONING_FIELDS: &[Field] = &[
    required("text", FieldType::Text),
    optional("signature", FieldType::Text),
    optional("isRedacted", FieldType::Flag),
];

const GENERATED_FILE_FIELDS: &[Field] = &[
    required("uri", FieldType::Name),
    required("mimeType", FieldType::MediaType("")),
    optional("displayName", FieldType::Text),
];

const USER_ACTION_FIELDS: &[Field] = &[
    required("action", FieldType::Name),
    optional("actor", FieldType::Text),
    optional("target", FieldType::Text),
    optional("details", FieldType::Object),
    optional("text", FieldType::Text),
];

const SYSTEM_EVENT_FIELDS: &[Field] = &[
    required("event", FieldType::Name),
    optional("source", FieldType::Text),
    optional("data", FieldType::Object),
    optional("text", FieldType::Text),
];

const STATE_CHANGE_FIELDS: &[Field] = &[
    required("entity", FieldType::Name),
    optional("field", FieldType::Text),
    required("from", FieldType::Any),
    required("to", FieldType::Any),
    optional("trigger", FieldType::Text),
    optional("text", FieldType::Text),
];

const CUSTOM_FIELDS: &[Field] = &[
    required("tag", FieldType::Name),
    required("content", FieldType::Text),
    required("attrs", FieldType::TextMap),
    optional("selfClosing", FieldType::Flag),
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
        use FieldType::{Flag, Name, Text, Texts};
        match self {
            BlockKind::Text | BlockKind::Xml | BlockKind::Html => {
                const { &[required("text", Text)] }
            }
            BlockKind::Image | BlockKind::GeneratedImage => const { &[optional("altText", Text)] },
            BlockKind::Document => const { &[optional("title", Text)] },
            BlockKind::Audio | BlockKind::Video => const { &[optional("transcript", Text)] },
            BlockKind::ToolUse => TOOL_USE_FIELDS,
            BlockKind::ToolResult => TOOL_RESULT_FIELDS,
            BlockKind::Reasoning => REASONING_FIELDS,
            BlockKind::Json => const { &[optional("text", Text)] },
            BlockKind::Csv => const { &[required("text", Text), optional("headers", Texts)] },
            BlockKind::Code => const { &[required("text", Text), required("language", Name)] },
            BlockKind::GeneratedFile => GENERATED_FILE_FIELDS,
            BlockKind::ExecutableCode => {
                const { &[required("code", Text), optional("language", Text)] }
            }
            BlockKind::CodeExecutionResult => {
                const { &[required("output", Text), optional("isError", Flag)] }
            }
            BlockKind::UserAction => USER_ACTION_FIELDS,
            BlockKind::SystemEvent => SYSTEM_EVENT_FIELDS,
            BlockKind::StateChange => STATE_CHANGE_FIELDS,
            BlockKind::Custom => CUSTOM_FIELDS,
        }
    }
}
