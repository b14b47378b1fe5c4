//! Parts of an assistant's message that several formats write in the same way.

use std::borrow::Cow;

use abide_conversation::message::blocks::texts;
use abide_conversation::message::{CallRef, Message, MessageStatus};
use serde_json::Value;

/// What the model reads at the end of a message that was interrupted.
pub(crate) const INTERRUPTED: &str = "[interrupted]";

/// The longest name of a function.
const MAX_NAME_CHARS: usize = 64;

/// The text of the message, followed by a mark if it was interrupted.
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

/// A call's arguments, which every wire format requires to be an object.
pub(crate) fn args_object(call: &CallRef) -> Cow<'_, Value> {
    match &*call.args {
        args @ Value::Object(_) => Cow::Borrowed(args),
        _ => Cow::Owned(Value::Object(Default::default())),
    }
}

/// The name in the characters that wire formats accept. A model that once invented an illegal name
/// must not make every later request of its conversation fail.
pub(crate) fn sanitize_name(name: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let name: String = name.chars().take(MAX_NAME_CHARS).map(legal).collect();
    if name.is_empty() { "_".to_owned() } else { name }
}
