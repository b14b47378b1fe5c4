//! What several formats write alike of an assistant's message.

use std::borrow::Cow;

use abide_conversation::message::blocks::texts;
use abide_conversation::message::{CallRef, Message, MessageStatus};
use serde_json::Value;

/// What the model reads at the end of a message that was cut.
pub(crate) const INTERRUPTED: &str = "[interrupted]";

/// How long a function's name may be.
const MAX_NAME_CHARS: usize = 64;

/// What it said, and whether it was cut.
pub(crate) fn assistant_text(message: &Message) -> String {
    let text = texts(&message.content).concat();
    match message.status {
        Some(MessageStatus::Cancelled | MessageStatus::Error) => {
            let space = if text.is_empty() { "" } else { " " };
            format!("{text}{space}{INTERRUPTED}")
        }
        Some(MessageStatus::Complete) | None => text,
    }
}

/// A call's arguments, which are an object on every wire.
pub(crate) fn args_object(call: &CallRef) -> Cow<'_, Value> {
    match &call.args {
        args @ Value::Object(_) => Cow::Borrowed(args),
        _ => Cow::Owned(Value::Object(Default::default())),
    }
}

/// A name that the wire allows. A model that once invented another one must not make every later
/// request of its conversation fail.
pub(crate) fn sanitize_name(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name: String = name.chars().take(MAX_NAME_CHARS).map(plain).collect();
    if name.is_empty() { "_".to_owned() } else { name }
}
