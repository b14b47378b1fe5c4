//! What the model reads of a conversation: where the context begins, and what was left out of it.

use crate::numbers::Seq;
use serde::{Deserialize, Serialize};

/// All that a node needs, in addition to the journal, to build the same prompt as any other node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = ModelContext))]
pub struct Context {
    #[serde(default)]
    pub marks: ContextMarks,
    #[serde(default)]
    pub summary: Option<Summary>,
    /// Tokens of the context up to the event `counted_upto`, as counted by the provider or
    /// estimated here; 0 before the first step.
    #[serde(default)]
    pub tokens: u64,
    /// The last event that `tokens` includes.
    #[serde(rename = "counted", default)]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub counted_upto: Seq,
    /// Set while a summary is wanted of the turns that ended up to this event.
    #[serde(rename = "summarize", default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u64>))]
    pub summarize_upto: Option<Seq>,
    /// The branches that were left, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_branches: Vec<LeftBranch>,
}

/// What reductions took out of the context. No mark ever decreases, except by a rewind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Marks))]
pub struct ContextMarks {
    /// No event before this one is needed to build the context.
    #[serde(rename = "from")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub read_from: Seq,
    /// Turns that started before this event are not shown.
    #[serde(rename = "since")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub shown_from: Seq,
    /// Results whose tool's retention had run out by this event are shown as expired.
    #[serde(rename = "expired")]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub expired_upto: Seq,
    /// All results up to this event are shown as expired, whatever their retention, except those of
    /// tools whose results are kept for good.
    #[serde(rename = "forced", default)]
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub forced_upto: Seq,
}

/// The latest summary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Summary {
    /// The event that holds the summary.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub seq: Seq,
    /// The last event that the summary covers.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub upto: Seq,
}

impl Context {
    /// Whether some turns are neither shown nor covered by a summary. The marks of a summary and
    /// those of dropped turns both begin right after the end of a turn.
    pub fn has_uncovered_drop(&self) -> bool {
        self.marks.shown_from > self.summary.map_or(Seq::ZERO, |summary| summary.upto).next()
    }
}

impl Context {
    /// Whether the event belongs to the branch that counts.
    pub fn counts(&self, seq: Seq) -> bool {
        !self.left_branches.iter().any(|left| left.contains(seq))
    }
}

impl ContextMarks {
    /// Whether these marks leave out at least as much as `other`.
    pub fn includes(&self, other: &Self) -> bool {
        self.read_from >= other.read_from
            && self.shown_from >= other.shown_from
            && self.expired_upto >= other.expired_upto
            && self.forced_upto >= other.forced_upto
    }

    /// The marks that leave out whatever either of the two leaves out.
    pub fn union(self, other: Self) -> Self {
        Self {
            read_from: self.read_from.max(other.read_from),
            shown_from: self.shown_from.max(other.shown_from),
            expired_upto: self.expired_upto.max(other.expired_upto),
            forced_upto: self.forced_upto.max(other.forced_upto),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_include_others_only_if_none_of_them_is_smaller() {
        let marks = |[read, shown, expired, forced]: [u64; 4]| ContextMarks {
            read_from: Seq::new(read),
            shown_from: Seq::new(shown),
            expired_upto: Seq::new(expired),
            forced_upto: Seq::new(forced),
        };
        let [small, large] = [[5; 4], [6; 4]].map(marks);
        assert!(small.includes(&small) && large.includes(&small) && !small.includes(&large));
        for smaller in 0..4 {
            let mut mixed = [6; 4];
            mixed[smaller] = 4;
            assert!(!marks(mixed).includes(&small), "{mixed:?}");
        }
    }
}

/// The events of a branch that was left: those between the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LeftBranch {
    /// The last event that still counts.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub after: Seq,
    /// The event `rewound`.
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub until: Seq,
}

impl LeftBranch {
    /// Whether the event is one of the branch's.
    pub fn contains(&self, seq: Seq) -> bool {
        self.after < seq && seq < self.until
    }
}
