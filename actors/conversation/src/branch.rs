//! Branches: a conversation that is rewound goes on from an earlier event, and the events in between
//! count no longer. The journal keeps them.

use serde::{Deserialize, Serialize};

use crate::context::{Context, LeftBranch};
pub use crate::event::RewindPoint;
use crate::event::{Event, EventData};
use crate::numbers::Seq;
use crate::state::State;

/// Why a conversation cannot go on from an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RewindError {
    #[error("is within a turn: a turn counts as a whole, or not at all")]
    WithinTurn,
    #[error("is before the end of the prefix with which the conversation was forked")]
    WithinPrefix,
    #[error("is before the beginning of the conversation")]
    BeforeBeginning,
}

impl RewindPoint {
    /// The point after the last event of this state.
    pub fn at(state: &State) -> Result<Self, RewindError> {
        if !state.exists() {
            return Err(RewindError::BeforeBeginning);
        }
        if state.forking.is_some() {
            return Err(RewindError::WithinPrefix);
        }
        if state.turn.is_some() {
            return Err(RewindError::WithinTurn);
        }
        Ok(Self {
            context: Context { summarize_upto: None, ..state.context.clone() },
            todos: state.todos.clone(),
            state: state.key_values.clone(),
            planning: state.planning_override,
        })
    }
}

/// How far a conversation is: another turn and another rewind result in another tip.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BranchTip {
    turns: u64,
    left: Option<LeftBranch>,
}

impl BranchTip {
    /// How far the conversation is in this state.
    pub fn of(state: &State) -> Self {
        let left = state.context.left_branches.last().copied();
        Self { turns: state.turns_started, left }
    }
}

/// Reads a journal from its end, and tells which events count.
#[derive(Clone, Copy, Debug, Default)]
pub struct NewestFirst {
    /// The last event that counts among those that were not read.
    upto: Option<Seq>,
}

impl NewestFirst {
    /// Whether the event counts that is before all those that were read.
    pub fn counts(&mut self, event: &Event) -> bool {
        if self.upto.is_some_and(|upto| event.seq > upto) {
            return false;
        }
        if let EventData::Rewound(rewound) = &event.data {
            self.upto = Some(rewound.to_seq);
        }
        true
    }

    /// Where to go on reading, when the events from `oldest` on were read.
    pub fn before(&self, oldest: Seq) -> Seq {
        self.upto.map_or(oldest, |upto| oldest.min(upto.next()))
    }
}
