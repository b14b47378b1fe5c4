//! Results as the model reads them: an envelope of text, and the media beside it.

use abide_conversation::MessageId;
use abide_conversation::message::blocks::{
    BlockKind, Media, Source, as_text, is_block, without_bytes,
};
use abide_conversation::message::{CallRef, Message, Outcome, Role, text_block};
use serde_json::{Value, json};

use super::{MEDIA_ID, truncate};

/// How much of one result the model reads. The journal keeps all of it.
pub(super) const MAX_RESULT_BYTES: usize = 64 * 1024;

/// How many media of one message's results the model is shown, and how many bytes of base64: each
/// goes along with every later step, and providers refuse requests of some tens of megabytes.
const MAX_MEDIA: usize = 16;
const MAX_MEDIA_BYTES: usize = 4 << 20;

/// What the model reads of those beyond, and of a block that is broken.
const LEFT_OUT: &str = "(left out: too many)";
const BROKEN: &str = "[media that cannot be shown]";

/// As deep as values from outside are.
const MAX_DEPTH: usize = 128;

/// The media of the results of one message's calls, in call order.
#[derive(Default)]
pub(super) struct ResultMedia {
    content: Vec<Value>,
    count: usize,
    bytes: usize,
}

impl ResultMedia {
    /// The envelope as text. Media are named in it and kept here, as many as may be shown; base64
    /// is never cut: in a result that is too long, it is named too.
    pub(super) fn envelope(&mut self, call: &CallRef, outcome: &Outcome) -> String {
        let mut envelope = json!(outcome);
        let before = self.content.len();
        if let Some(result) = envelope.get_mut("result") {
            self.extract_media(result, MAX_DEPTH);
        }
        if self.content.len() > before {
            let of = format!("Media in the result of {} ({}):", call.id, call.name);
            self.content.insert(before, text_block(of));
        }
        let text = envelope.to_string();
        if text.len() <= MAX_RESULT_BYTES {
            return text;
        }
        truncate(without_bytes(&envelope).to_string(), MAX_RESULT_BYTES)
    }

    /// What the model is shown after the results; `None` if there is nothing.
    pub(super) fn into_message(self, spoken: &MessageId) -> Option<Message> {
        (!self.content.is_empty()).then(|| {
            Message::new(MessageId::new(format!("{MEDIA_ID}{spoken}")), Role::User, self.content)
        })
    }

    fn extract_media(&mut self, value: &mut Value, deep: usize) {
        let Some(deep) = deep.checked_sub(1) else { return };
        if let Some(shown) = media_display(value) {
            let told = as_text(value).unwrap_or_default().into_owned();
            let told = match shown {
                MediaDisplay::AsText => told,
                MediaDisplay::Broken => BROKEN.to_owned(),
                MediaDisplay::Attached(bytes)
                    if self.count < MAX_MEDIA && self.bytes + bytes <= MAX_MEDIA_BYTES =>
                {
                    (self.count, self.bytes) = (self.count + 1, self.bytes + bytes);
                    self.content.push(value.take());
                    told
                }
                MediaDisplay::Attached(_) => format!("{told} {LEFT_OUT}"),
            };
            *value = text_block(told);
            return;
        }
        match value {
            Value::Array(list) => list.iter_mut().for_each(|value| self.extract_media(value, deep)),
            Value::Object(fields) => {
                fields.values_mut().for_each(|value| self.extract_media(value, deep))
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
}

/// How a block of media in a result reaches the model.
enum MediaDisplay {
    /// Beside the results, with so many bytes of base64.
    Attached(usize),
    /// Its text is all of it.
    AsText,
    /// It is broken.
    Broken,
}

/// `None` for what is no block of media, such as a record with a `type` of its own.
fn media_display(value: &Value) -> Option<MediaDisplay> {
    BlockKind::of(value).filter(|kind| kind.is_media())?;
    let Ok(media) = Media::of(value) else {
        return (value["source"]["type"] == "base64").then_some(MediaDisplay::Broken);
    };
    let bytes = match media.source {
        Source::Base64 { data, .. } => data.len(),
        Source::Blob(_) | Source::Url(_) | Source::File(_) | Source::Stored { .. } => 0,
    };
    Some(match is_block(value) {
        true if media.written().is_some() => MediaDisplay::AsText,
        true => MediaDisplay::Attached(bytes),
        false => MediaDisplay::Broken,
    })
}

#[cfg(test)]
mod tests;
