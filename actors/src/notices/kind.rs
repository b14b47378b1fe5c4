//! The types of notices, and the events that they tell.

use std::fmt;
use std::str::FromStr;

use abide_conversation::State;
use abide_conversation::event::{EventData, TurnOutcome};
use abide_conversation::message::{ErrorType, Outcome};

macro_rules! kinds {
    ($($name:ident = $text:literal;)+) => {
        /// The type of a notice.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum NoticeKind {
            $($name,)+
        }

        impl NoticeKind {
            /// All types that a webhook may ask for.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            /// The `type` of the notice.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }
        }
    };
}

kinds! {
    ConversationCreated = "conversation.created";
    ConversationDeleted = "conversation.deleted";
    TurnCompleted = "turn.completed";
    TurnHalted = "turn.halted";
    TurnFailed = "turn.failed";
    TurnCancelled = "turn.cancelled";
    CallSuspended = "call.suspended";
    CallVoted = "call.voted";
    CallExpiring = "call.expiring";
    CallEscalated = "call.escalated";
    CallResolved = "call.resolved";
    CallExpired = "call.expired";
}

impl fmt::Display for NoticeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for NoticeKind {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        Self::ALL.iter().find(|kind| kind.as_str() == text).copied().ok_or(())
    }
}

impl NoticeKind {
    /// The notice that tells this event; `before` is the state without it.
    pub(crate) fn of(data: &EventData, before: &State) -> Option<Self> {
        match data {
            EventData::Created(_) => Some(Self::ConversationCreated),
            EventData::TurnEnded(ended) => Some(match ended.outcome {
                TurnOutcome::Completed => Self::TurnCompleted,
                TurnOutcome::Halted => Self::TurnHalted,
                TurnOutcome::Failed => Self::TurnFailed,
                TurnOutcome::Cancelled => Self::TurnCancelled,
            }),
            EventData::Suspension(_) => Some(Self::CallSuspended),
            EventData::Voted(_) => Some(Self::CallVoted),
            EventData::Resolution(_) => Some(Self::CallResolved),
            EventData::ToolResult(done) => {
                let is_expired = matches!(done.outcome, Outcome::Err(_, ErrorType::Expired));
                let was_open = || before.call(&done.call_id)?.open_suspension();
                (is_expired && was_open().is_some()).then_some(Self::CallExpired)
            }
            EventData::SuspensionExpiring(_) => Some(Self::CallExpiring),
            EventData::SuspensionEscalated(_) => Some(Self::CallEscalated),
            EventData::UserMsg(_)
            | EventData::TurnStarted(_)
            | EventData::AssistantMsg(_)
            | EventData::ToolCall(_)
            | EventData::ToolStarted(_)
            | EventData::InputRequired(_)
            | EventData::RepairRequested(_)
            | EventData::ContextAdded(_)
            | EventData::MessageRefused(_)
            | EventData::Forked(_)
            | EventData::ContextReduced(_)
            | EventData::Summarized(_)
            | EventData::SummaryFailed(_)
            | EventData::DispatchStarted(_)
            | EventData::DispatchFinished(_)
            | EventData::PhaseChanged(_)
            | EventData::TodosChanged(_)
            | EventData::WorkspaceOpened(_)
            | EventData::ChildStarted(_)
            | EventData::ChildEnded(_)
            | EventData::ChildReleased(_)
            | EventData::ParentNotified(_)
            | EventData::Abandoned {}
            | EventData::DecisionRemembered(_)
            | EventData::DecisionPublished(_)
            | EventData::DecisionRevoked(_)
            | EventData::Updated(_)
            | EventData::Operated(_)
            | EventData::ToolQueued(_)
            | EventData::ToolLeased(_)
            | EventData::CallbackAwaited(_)
            | EventData::MessageScheduled(_)
            | EventData::ScheduleEnded(_)
            | EventData::SuspensionExtended(_)
            | EventData::ToolAttemptFailed(_)
            | EventData::StateChanged(_)
            | EventData::TurnWithdrawn(_)
            | EventData::Steered(_)
            | EventData::Rewound(_)
            | EventData::Unknown(_) => None,
        }
    }
}
