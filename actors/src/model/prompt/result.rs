//! Results as the model reads them: an envelope as text, followed by its media.

use abide_conversation::MessageId;
use abide_conversation::message::blocks::{
    BlockKind, Media, Source, as_text, is_block, without_bytes,
};
use abide_conversation::message::{CallRef, Message, MessageRole, Outcome, text_block};
use serde_json::{Value, json};

use super::{MEDIA_ID, truncate};

/// How much of one result the model reads. The journal has the whole result.
pub(super) const MAX_RESULT_BYTES: usize = 64 * 1024;

/// The limits of the media of one message's results, in number and in bytes of base64. They are
/// sent again with every later step, and providers refuse requests of tens of megabytes.
const MAX_MEDIA: usize = 16;
const MAX_MEDIA_BYTES: usize = 4 << 20;

/// What the model reads instead of surplus media, and of a malformed block.
const LEFT_OUT: &str = "(left out: too many)";
const BROKEN: &str = "[media that cannot be shown]";

/// The deepest nesting of values from outside.
const MAX_DEPTH: usize = 128;

/// The media of the results of one message's calls, in call order.
#[derive(Default)]
pub(super) struct ResultMedia {
    content: Vec<Value>,
    count: usize,
    bytes: usize,
}

impl ResultMedia {
    /// The envelope as text. Media are described in it and collected here, up to the limits. Base64
    /// is never cut: in a result that is too long, it is only described.
    pub(super) fn envelope(&mut self, call: &CallRef, outcome: &Outcome) -> String {
        let mut envelope = json!(outcome);
        let before = self.content.len();
        if let Some(result) = envelope.get_mut("result") {
            self.extract_media(result, MAX_DEPTH);
        }
        if self.content.len() > before {
            let heading = format!("Media in the result of {} ({}):", call.id, call.name);
            self.content.insert(before, text_block(heading));
        }
        let text = envelope.to_string();
        if text.len() <= MAX_RESULT_BYTES {
            return text;
        }
        truncate(without_bytes(&envelope).to_string(), MAX_RESULT_BYTES)
    }

    /// The message with the media that follows the results; `None` if there are none.
    pub(super) fn into_message(self, assistant: &MessageId) -> Option<Message> {
        (!self.content.is_empty()).then(|| {
            Message::new(
                MessageId::new(format!("{MEDIA_ID}{assistant}")),
                MessageRole::User,
                self.content,
            )
        })
    }

    fn extract_media(&mut self, value: &mut Value, depth: usize) {
        let Some(depth) = depth.checked_sub(1) else { return };
        if let Some(display) = media_display(value) {
            let text = as_text(value).unwrap_or_default().into_owned();
            let text = match display {
                MediaDisplay::AsText => text,
                MediaDisplay::Broken => BROKEN.to_owned(),
                MediaDisplay::Attached(bytes)
                    if self.count < MAX_MEDIA && self.bytes + bytes <= MAX_MEDIA_BYTES =>
                {
                    (self.count, self.bytes) = (self.count + 1, self.bytes + bytes);
                    self.content.push(value.take());
                    text
                }
                MediaDisplay::Attached(_) => format!("{text} {LEFT_OUT}"),
            };
            *value = text_block(text);
            return;
        }
        match value {
            Value::Array(list) => {
                list.iter_mut().for_each(|value| self.extract_media(value, depth))
            }
            Value::Object(fields) => {
                fields.values_mut().for_each(|value| self.extract_media(value, depth))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// How a block of media in a result is shown to the model.
enum MediaDisplay {
    /// In the message after the results; holds the size of its base64 in bytes.
    Attached(usize),
    /// As text, which is all of its content.
    AsText,
    /// Not at all: it is malformed.
    Broken,
}

/// `None` if the value is not a block of media, but for example a record with a `type` of its own.
fn media_display(value: &Value) -> Option<MediaDisplay> {
    BlockKind::of(value).filter(|kind| kind.is_media())?;
    let Ok(media) = Media::of(value) else {
        return (value["source"]["type"] == "base64").then_some(MediaDisplay::Broken);
    };
    let bytes = match media.source {
        Source::Base64 { data, .. } => data.len(),
        Source::Blob(_) | Source::Url(_) | Source::File(_) | Source::Stored { .. } => 0,
    };
    Some(if !is_block(value) {
        MediaDisplay::Broken
    } else if media.document_text().is_some() {
        MediaDisplay::AsText
    } else {
        MediaDisplay::Attached(bytes)
    })
}

#[cfg(test)]
mod tests;
