//! What a hook answers.

use abide_conversation::message::blocks::check_from_user;
use abide_conversation::message::text_block;
use serde_json::{Map, Value};

use crate::definition::HookPoint;
use crate::limits::{MAX_ERROR_BYTES, MAX_VALUE_BYTES, cut, encoded_len};

/// A hook's answer. As JSON: an object with the one key that is named here, or with none.
///
/// What does not fit [`On`] is a failure, except where nobody waits for a reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply {
    /// `{}`, or no body at all.
    GoOn,
    /// On `pre`: `content`, blocks or one text, stands at the end of the context.
    Add(Vec<Value>),
    /// On `pre`, `post` and `PreToolUse`: `halt`, the reason why the turn ends.
    Halt(String),
    /// On `post`: `refuse`, the reason why the model is asked once more. The second of a turn halts it.
    Refuse(String),
    /// On `stream`: `text` stands in place of what was said.
    Show(String),
    /// On `PreToolUse`: `deny`, the reason why the call does not run. The model reads it.
    Deny(String),
    /// On `PreToolUse`: `args`, which the call has instead.
    Args(Value),
}

impl Reply {
    /// Adds one text to the context.
    pub fn add(text: impl Into<String>) -> Self {
        Self::Add(vec![text_block(text)])
    }

    /// Reads a server's answer to a hook that is waited for.
    pub(super) fn read(on: HookPoint, body: &[u8]) -> Result<Self, String> {
        if body.is_empty() {
            return Ok(Self::GoOn);
        }
        let object: Map<String, Value> =
            serde_json::from_slice(body).map_err(|_| "its answer is no JSON object".to_owned())?;
        let mut fields = object.into_iter();
        let reply = match (fields.next(), fields.next()) {
            (None, _) => Self::GoOn,
            (Some((key, value)), None) => Self::of(&key, value)?,
            (Some(_), Some(_)) => return Err("its answer says two things".to_owned()),
        };
        reply.checked(on)
    }

    fn of(key: &str, value: Value) -> Result<Self, String> {
        match (key, value) {
            ("content", Value::String(text)) => Ok(Self::add(text)),
            ("content", Value::Array(blocks)) => Ok(Self::Add(blocks)),
            ("halt", Value::String(reason)) => Ok(Self::Halt(reason)),
            ("refuse", Value::String(reason)) => Ok(Self::Refuse(reason)),
            ("text", Value::String(text)) => Ok(Self::Show(text)),
            ("deny", Value::String(reason)) => Ok(Self::Deny(reason)),
            ("args", args) => Ok(Self::Args(args)),
            (key, _) => Err(format!("its answer has a {} that means nothing", cut(key, 64))),
        }
    }

    /// The same, if it is an answer to that and within bounds.
    pub(super) fn checked(self, on: HookPoint) -> Result<Self, String> {
        let fits = match &self {
            Self::GoOn => true,
            Self::Add(_) => on == HookPoint::Pre,
            Self::Halt(_) => matches!(on, HookPoint::Pre | HookPoint::Post | HookPoint::PreToolUse),
            Self::Refuse(_) => on == HookPoint::Post,
            Self::Show(_) => on == HookPoint::Stream,
            Self::Deny(_) | Self::Args(_) => on == HookPoint::PreToolUse,
        };
        if !fits {
            return Err(format!("its answer does not fit {on}"));
        }
        let short = |reason: String| cut(&reason, MAX_ERROR_BYTES);
        Ok(match self {
            Self::Add(blocks) => {
                if let Some(wrong) = blocks.iter().find_map(|block| check_from_user(block).err()) {
                    return Err(format!("its content is not made of blocks: {}", wrong.problem));
                }
                if blocks.iter().any(is_empty) {
                    return Err("its content has an empty text".to_owned());
                }
                if blocks.iter().map(encoded_len).sum::<usize>() > MAX_VALUE_BYTES {
                    return Err("its content is larger than 1 MB".to_owned());
                }
                Self::Add(blocks)
            }
            Self::Show(text) if text.len() > MAX_VALUE_BYTES => {
                return Err("its text is larger than 1 MB".to_owned());
            }
            Self::Halt(reason) => Self::Halt(short(reason)),
            Self::Refuse(reason) => Self::Refuse(short(reason)),
            Self::Deny(reason) => Self::Deny(short(reason)),
            other @ (Self::GoOn | Self::Show(_) | Self::Args(_)) => other,
        })
    }
}

/// A text block without a text, which no provider takes.
fn is_empty(block: &Value) -> bool {
    block["type"] == "text" && block["text"].as_str().is_none_or(str::is_empty)
}
