//! A hook's reply.

use abide_conversation::message::blocks::check_from_user;
use abide_conversation::message::text_block;
use serde_json::{Map, Value};

use crate::definition::HookPoint;
use crate::limits::{MAX_ERROR_BYTES, MAX_VALUE_BYTES, cut, encoded_len};
use crate::model::big_numbers::{OVER_64_BITS, find_rounded};

/// A hook's reply. As JSON: an object with one of the keys named here, or with none.
///
/// A reply that does not fit its [`HookPoint`] counts as a failure, except where nobody waits for
/// one.
#[derive(Clone, Debug, PartialEq)]
pub enum HookReply {
    /// `{}`, or no body at all.
    GoOn,
    /// On `pre`: `content`, blocks or one text, is added at the end of the context.
    Add(Vec<Value>),
    /// On `pre`, `post` and `PreToolUse`: `halt`, the reason why the turn ends.
    Halt(String),
    /// On `post`: `refuse`, the reason why the model is asked again. The second refusal halts the
    /// turn.
    Refuse(String),
    /// On `stream`: `text` replaces the model's text.
    Show(String),
    /// On `PreToolUse`: `deny`, the reason why the call does not run. The model reads it.
    Deny(String),
    /// On `PreToolUse`: `args` replaces the arguments of the call.
    Args(Value),
    /// On `PreToolUse`: `ask`, the reason why somebody must approve the call first. Approvers read it.
    Ask(String),
}

impl HookReply {
    /// Adds one text to the context.
    pub fn add(text: impl Into<String>) -> Self {
        Self::Add(vec![text_block(text)])
    }

    /// Parses a server's reply at a hook point that waits for one.
    pub(super) fn parse(on: HookPoint, body: &[u8]) -> Result<Self, String> {
        if body.is_empty() {
            return Ok(Self::GoOn);
        }
        let no_object = || "its answer is not a JSON object".to_owned();
        let body = std::str::from_utf8(body).map_err(|_| no_object())?;
        if let Some(field) = find_rounded(body) {
            return Err(format!("in its answer {}: {OVER_64_BITS}", cut(&field, 64)));
        }
        let object: Map<String, Value> = serde_json::from_str(body).map_err(|_| no_object())?;
        let mut fields = object.into_iter();
        let reply = match (fields.next(), fields.next()) {
            (None, _) => Self::GoOn,
            (Some((key, value)), None) => Self::of(&key, value)?,
            (Some(_), Some(_)) => return Err("its answer has more than one key".to_owned()),
        };
        reply.check(on)
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
            ("ask", Value::String(reason)) => Ok(Self::Ask(reason)),
            (key, _) => Err(format!("its answer has an unknown key {}", cut(key, 64))),
        }
    }

    /// Checks that the reply fits the hook point and is within the limits.
    pub(super) fn check(self, on: HookPoint) -> Result<Self, String> {
        let fits = match &self {
            Self::GoOn => true,
            Self::Add(_) => on == HookPoint::Pre,
            Self::Halt(_) => matches!(on, HookPoint::Pre | HookPoint::Post | HookPoint::PreToolUse),
            Self::Refuse(_) => on == HookPoint::Post,
            Self::Show(_) => on == HookPoint::Stream,
            Self::Deny(_) | Self::Args(_) | Self::Ask(_) => on == HookPoint::PreToolUse,
        };
        if !fits {
            return Err(format!("its answer does not fit {on}"));
        }
        let cut_reason = |reason: String| cut(&reason, MAX_ERROR_BYTES);
        Ok(match self {
            Self::Add(blocks) => {
                if let Some(wrong) = blocks.iter().find_map(|block| check_from_user(block).err()) {
                    return Err(format!("its content is not a list of blocks: {}", wrong.problem));
                }
                if blocks.iter().any(is_empty_text) {
                    return Err("its content has an empty text block".to_owned());
                }
                if blocks.iter().map(encoded_len).sum::<usize>() > MAX_VALUE_BYTES {
                    return Err("its content is larger than 1 MB".to_owned());
                }
                Self::Add(blocks)
            }
            Self::Show(text) if text.len() > MAX_VALUE_BYTES => {
                return Err("its text is larger than 1 MB".to_owned());
            }
            Self::Halt(reason) => Self::Halt(cut_reason(reason)),
            Self::Refuse(reason) => Self::Refuse(cut_reason(reason)),
            Self::Deny(reason) => Self::Deny(cut_reason(reason)),
            Self::Ask(reason) => Self::Ask(cut_reason(reason)),
            other @ (Self::GoOn | Self::Show(_) | Self::Args(_)) => other,
        })
    }
}

/// Whether it is a text block without text, which no provider accepts.
fn is_empty_text(block: &Value) -> bool {
    block["type"] == "text" && block["text"].as_str().is_none_or(str::is_empty)
}
