//! What the model reads of a conversation: from where on, and what was left out.

use serde::{Deserialize, Serialize};

/// The projection's marks: with them and the journal alone, every node draws the same prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Context {
    #[serde(default)]
    pub marks: Marks,
    #[serde(default)]
    pub summary: Option<Summary>,
    /// Tokens of the context after the event `counted`, as the provider counted them, or as we did;
    /// 0 before the first step.
    #[serde(default)]
    pub tokens: u64,
    /// The last event that `tokens` includes.
    #[serde(default)]
    pub counted: u64,
    /// A summary of what ended up to this event is wanted.
    #[serde(default)]
    pub summarize: Option<u64>,
}

/// What reducers took out of the context. Each only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Marks {
    /// Nothing before this event has to be read.
    pub from: u64,
    /// Turns that started before this event are not shown.
    pub since: u64,
    /// Results up to this event that are past their tool's retention there are shown as expired.
    pub expired: u64,
    /// Results up to this event are, whatever their retention; but never those of a tool whose
    /// results stay for good.
    #[serde(default)]
    pub forced: u64,
}

/// The latest summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// The event that has it.
    pub seq: u64,
    /// The last event that it covers.
    pub upto: u64,
}

impl Marks {
    /// Whether they leave out no less than the others.
    pub fn includes(&self, other: &Self) -> bool {
        self.from >= other.from
            && self.since >= other.since
            && self.expired >= other.expired
            && self.forced >= other.forced
    }

    /// What both leave out.
    pub fn and(self, other: Self) -> Self {
        Self {
            from: self.from.max(other.from),
            since: self.since.max(other.since),
            expired: self.expired.max(other.expired),
            forced: self.forced.max(other.forced),
        }
    }
}
