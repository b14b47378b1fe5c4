//! The audit's record of one model call.

use abide_conversation::context::ContextMarks;
use abide_conversation::message::StopReason;
use abide_conversation::message::blocks::without_bytes;
use abide_conversation::usage::Usage;
use abide_conversation::{Seq, Step, Timestamp, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::Purpose;

/// The largest excerpt of what was sent, and of what was received.
const MAX_EXCERPT_BYTES: usize = 1 << 20;

/// One model call, including its retries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Unique, so that clients can page.
    pub id: String,
    /// When the first attempt started.
    pub at: Timestamp,
    pub purpose: Purpose,
    /// `None` for a summary, which belongs to no turn.
    #[serde(default)]
    pub turn_id: Option<TurnId>,
    #[serde(default)]
    pub step: Option<Step>,
    /// The number of attempts.
    pub attempts: u32,
    /// The body of the request, without keys.
    pub sent: Excerpt,
    #[serde(rename = "came")]
    pub received: Received,
    #[serde(default)]
    pub usage: Option<Usage>,
    /// Milliseconds from the first attempt to the first chunk, and to the end.
    #[serde(default)]
    pub first_part_ms: Option<u64>,
    pub whole_ms: u64,
    /// The event of the summary that preceded the messages.
    #[serde(default)]
    pub summary: Option<Seq>,
    #[serde(rename = "evicted")]
    pub omitted: Omitted,
}

/// The provider's answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Received {
    pub thinking: Excerpt,
    pub text: Excerpt,
    /// The calls as the model made them.
    pub calls: Excerpt,
    #[serde(default)]
    pub stop: Option<StopReason>,
    /// Why the call failed or was cut off.
    #[serde(default)]
    pub failure: Option<String>,
}

/// What was left out of the conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Omitted {
    pub marks: ContextMarks,
    /// The number of messages that were sent.
    pub messages: usize,
    /// How many of these messages are results that only say that they have expired.
    pub expired_results: usize,
}

/// A value, or the beginning of one that is too large.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Excerpt {
    /// The length of its JSON in bytes, after base64 was removed.
    pub bytes: usize,
    /// If set, `value` is the beginning of its JSON, as text.
    #[serde(rename = "cut")]
    pub truncated: bool,
    pub value: Value,
}

impl AuditEntry {
    /// The key by which a conversation's entries are sorted in time.
    pub fn key(&self) -> String {
        // Timestamps have 16 digits until the year 2286.
        format!("{:016}-{}", self.at.as_microsecond().max(0), self.id)
    }
}

impl Excerpt {
    /// At most 1 MiB of a value, in which base64 is replaced by its size.
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
    fn a_long_value_is_cut_and_says_so() {
        let short = json!({"a": [1, "ä"]});
        assert_eq!(
            Excerpt::of(&short),
            Excerpt { bytes: short.to_string().len(), truncated: false, value: short }
        );
        let long = json!(["ä ".repeat(MAX_EXCERPT_BYTES)]);
        let excerpt = Excerpt::of(&long);
        assert_eq!((excerpt.bytes, excerpt.truncated), (long.to_string().len(), true));
        let text = excerpt.value.as_str().unwrap_or_default();
        assert!(text.len() <= MAX_EXCERPT_BYTES && long.to_string().starts_with(text));
        assert!(text.len() > MAX_EXCERPT_BYTES - 4);
    }

    #[test]
    fn base64_is_removed() {
        let url = format!("data:image/png;base64,{}", "AAEC".repeat(1_000));
        let excerpt = Excerpt::of(&json!({"image_url": {"url": url}}));
        assert_eq!(excerpt.value, json!({"image_url": {"url": "[3 kB of base64]"}}));
    }
}
