//! Events of child conversations, and of the reports to their parents.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{EffectiveArgs, Event, EventData};
use crate::Timestamp;
use crate::fork::Fork;
use crate::ids::{CallId, ConversationId, TurnId};
use crate::numbers::Attempt;
use crate::usage::Usage;

/// A child conversation took up the call. Nothing runs for the call until the child ends or times
/// out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChildStarted {
    pub call_id: CallId,
    pub conversation_id: ConversationId,
    #[cfg_attr(feature = "openapi", schema(value_type = u32))]
    pub attempt: Attempt,
    pub expires_at: Timestamp,
    #[serde(rename = "ran", default, skip_serializing_if = "Option::is_none")]
    pub effective_args: Option<EffectiveArgs>,
}

/// The child needs no further attention: it reported its outcome, or it was never created.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChildEnded {
    pub call_id: CallId,
    pub conversation_id: ConversationId,
    /// Usage of the child and of its own children.
    #[serde(default)]
    pub usage: Usage,
    /// The storages that the child found its workspaces on, by workspace root.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub storages: BTreeMap<String, String>,
}

/// An orphan, a child whose call ended first, was stopped.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ChildReleased {
    pub conversation_id: ConversationId,
    /// Usage of the child and of its own children until then.
    #[serde(default)]
    pub usage: Usage,
}

/// The parent has the report of the turn.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(as = Told))]
pub struct ParentNotified {
    pub turn_id: TurnId,
}

impl EventData {
    /// The child conversation that the event plans for a call or a dispatch.
    pub fn planned_child(&self) -> Option<&ConversationId> {
        match self {
            Self::ToolCall(call) => call.kind.child(),
            Self::DispatchStarted(run) => run.child.as_ref(),
            Self::Created(_)
            | Self::UserMsg(_)
            | Self::TurnStarted(_)
            | Self::AssistantMsg(_)
            | Self::Suspension(_)
            | Self::Voted(_)
            | Self::Resolution(_)
            | Self::ToolStarted(_)
            | Self::InputRequired(_)
            | Self::ToolResult(_)
            | Self::RepairRequested(_)
            | Self::ContextAdded(_)
            | Self::MessageRefused(_)
            | Self::Forked(_)
            | Self::ContextReduced(_)
            | Self::Summarized(_)
            | Self::SummaryFailed(_)
            | Self::TurnEnded(_)
            | Self::DispatchFinished(_)
            | Self::PhaseChanged(_)
            | Self::TodosChanged(_)
            | Self::WorkspaceOpened(_)
            | Self::ChildStarted(_)
            | Self::ChildEnded(_)
            | Self::ChildReleased(_)
            | Self::ParentNotified(_)
            | Self::Abandoned {}
            | Self::DecisionRemembered(_)
            | Self::DecisionPublished(_)
            | Self::DecisionRevoked(_)
            | Self::Updated(_)
            | Self::Operated(_)
            | Self::ToolQueued(_)
            | Self::ToolLeased(_)
            | Self::CallbackAwaited(_)
            | Self::MessageScheduled(_)
            | Self::ScheduleEnded(_)
            | Self::SuspensionExpiring(_)
            | Self::SuspensionExtended(_)
            | Self::SuspensionEscalated(_)
            | Self::ToolAttemptFailed(_)
            | Self::StateChanged(_)
            | Self::TurnWithdrawn(_)
            | Self::Steered(_)
            | Self::Rewound(_)
            | Self::Unknown(_) => None,
        }
    }
}

/// The children that a conversation has planned, as its events show. Those that a fork has copied
/// belong to the original, also while it is still copied.
#[derive(Clone, Debug, Default)]
pub struct PlannedChildren {
    children: BTreeSet<ConversationId>,
    /// The prefix that is not whole yet.
    copying: Option<Fork>,
}

impl PlannedChildren {
    /// Adds those of the next events.
    pub fn add(&mut self, events: &[Event]) {
        for event in events {
            if let EventData::Created(created) = &event.data {
                self.copying.clone_from(&created.fork);
            }
            if self.copying.is_none() {
                self.children.extend(event.data.planned_child().cloned());
            }
            // The prefix may be that of a fork, too.
            if let EventData::Forked(fork) = &event.data {
                self.copying.take_if(|own| own.is_ended_by(event.seq, fork));
            }
        }
    }

    /// The ids of the children.
    pub fn into_ids(self) -> BTreeSet<ConversationId> {
        self.children
    }
}
