//! One call of a model, as the audit keeps it.

use abide_conversation::context::Marks;
use abide_conversation::message::blocks::without_bytes;
use abide_conversation::message::{StopReason, Usage};
use abide_conversation::{Timestamp, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::Purpose;

/// How much of what was sent, and of what came back, is kept.
const MAX_EXCERPT_BYTES: usize = 1 << 20;

/// One call of a model, its repeats included.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Unique, for whoever pages.
    pub id: String,
    /// When it was asked first.
    pub at: Timestamp,
    pub purpose: Purpose,
    /// `None` for a summary: it belongs to no turn.
    #[serde(default)]
    pub turn_id: Option<TurnId>,
    #[serde(default)]
    pub step: Option<u32>,
    /// How often it was asked.
    pub attempts: u32,
    /// The body of the request, without keys.
    pub sent: Excerpt,
    #[serde(rename = "came")]
    pub received: Received,
    #[serde(default)]
    pub usage: Option<Usage>,
    /// From asking first to the first part, and to the end, in milliseconds.
    #[serde(default)]
    pub first_part_ms: Option<u64>,
    pub whole_ms: u64,
    /// The event of the summary that stood in front of what was sent.
    #[serde(default)]
    pub summary: Option<u64>,
    #[serde(rename = "evicted")]
    pub omitted: Omitted,
}

/// What a model's provider answered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Received {
    pub thinking: Excerpt,
    pub text: Excerpt,
    /// The calls as the model made them.
    pub calls: Excerpt,
    #[serde(default)]
    pub stop: Option<StopReason>,
    /// Why it came to nothing, or was cut off.
    #[serde(default)]
    pub failure: Option<String>,
}

/// What was not sent of the conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Omitted {
    pub marks: Marks,
    /// Messages that were sent.
    pub messages: usize,
    /// Those of them that are results, and say only that they have expired.
    pub expired_results: usize,
}

/// A value, or as much of it as is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Excerpt {
    /// How long it was as JSON, in bytes, once base64 was taken out.
    pub bytes: usize,
    /// Then `value` is how its JSON begins, as a text.
    #[serde(rename = "cut")]
    pub truncated: bool,
    pub value: Value,
}

impl AuditEntry {
    /// Sorts the entries of a conversation by time.
    pub fn key(&self) -> String {
        // Until the year 2255 all have 16 digits.
        format!("{:016}-{}", self.at.as_microsecond().max(0), self.id)
    }
}

impl Excerpt {
    /// At most 1 MiB of a value, and of base64 in it only how much it is.
    pub fn of(value: &Value) -> Self {
        let value = without_bytes(value);
        let mut text = value.to_string();
        let bytes = text.len();
        if bytes <= MAX_EXCERPT_BYTES {
            return Self { bytes, truncated: false, value };
        }
        text.truncate(text.floor_char_boundary(MAX_EXCERPT_BYTES));
        Self { bytes, truncated: true, value: text.into() }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_too_long_is_cut_and_says_so() {
        let short = json!({"a": [1, "ä"]});
        assert_eq!(
            Excerpt::of(&short),
            Excerpt { bytes: short.to_string().len(), truncated: false, value: short }
        );
        let long = json!(["ä ".repeat(MAX_EXCERPT_BYTES)]);
        let kept = Excerpt::of(&long);
        assert_eq!((kept.bytes, kept.truncated), (long.to_string().len(), true));
        let text = kept.value.as_str().unwrap_or_default();
        assert!(text.len() <= MAX_EXCERPT_BYTES && long.to_string().starts_with(text));
        assert!(text.len() > MAX_EXCERPT_BYTES - 4);
    }

    #[test]
    fn base64_is_taken_out() {
        let url = format!("data:image/png;base64,{}", "AAEC".repeat(1_000));
        let kept = Excerpt::of(&json!({"image_url": {"url": url}}));
        assert_eq!(kept.value, json!({"image_url": {"url": "[3 kB of base64]"}}));
    }
}
