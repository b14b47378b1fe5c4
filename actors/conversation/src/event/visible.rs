//! What an event contributes to the messages of its conversation.

use super::{
    AssistantMsg, ContextAdded, EventData, MessageRefused, RepairRequested, Steered, ToolResult,
    UserMsg,
};

/// An event that clients or the model read as part of the conversation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Visible<'a> {
    User(&'a UserMsg),
    /// A user's message for the turn that runs.
    Steered(&'a Steered),
    Assistant(&'a AssistantMsg),
    Result(&'a ToolResult),
    /// Only the model reads it.
    Repair(&'a RepairRequested),
    /// Only the model reads it.
    Added(&'a ContextAdded),
    /// Only the model reads it: the reason, not the message.
    Refused(&'a MessageRefused),
}

impl EventData {
    /// What clients or the model read of the event; `None` if the event only changes the state.
    ///
    /// The one place that decides this, so that a new type of event is placed once.
    pub fn visible(&self) -> Option<Visible<'_>> {
        match self {
            EventData::UserMsg(message) => Some(Visible::User(message)),
            EventData::Steered(message) => Some(Visible::Steered(message)),
            EventData::AssistantMsg(message) => Some(Visible::Assistant(message)),
            EventData::ToolResult(result) => Some(Visible::Result(result)),
            EventData::RepairRequested(repair) => Some(Visible::Repair(repair)),
            EventData::ContextAdded(added) => Some(Visible::Added(added)),
            EventData::MessageRefused(refused) => Some(Visible::Refused(refused)),
            EventData::Created(_)
            | EventData::TurnStarted(_)
            | EventData::ToolCall(_)
            | EventData::Suspension(_)
            | EventData::Voted(_)
            | EventData::Resolution(_)
            | EventData::ToolStarted(_)
            | EventData::InputRequired(_)
            | EventData::Forked(_)
            | EventData::ContextReduced(_)
            | EventData::Summarized(_)
            | EventData::SummaryFailed(_)
            | EventData::TurnEnded(_)
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
            | EventData::SuspensionExpiring(_)
            | EventData::SuspensionExtended(_)
            | EventData::SuspensionEscalated(_)
            | EventData::ToolAttemptFailed(_)
            | EventData::StateChanged(_)
            | EventData::TurnWithdrawn(_)
            | EventData::Rewound(_)
            | EventData::Unknown(_) => None,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event(json: serde_json::Value) -> EventData {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn messages_and_results_are_visible() {
        let message = json!({"id": "m", "role": "user", "content": []});
        let user = event(json!({"type": "user_msg", "data":
            {"message": message, "principal": "ann"}}));
        assert!(
            matches!(user.visible(), Some(Visible::User(it)) if it.principal.as_str() == "ann")
        );
        let assistant = event(json!({"type": "assistant_msg", "data":
            {"message": message, "status": "complete", "step": 3}}));
        assert!(matches!(assistant.visible(), Some(Visible::Assistant(it)) if it.step.get() == 3));
        let result = event(json!({"type": "tool_result", "data":
            {"call_id": "c", "ok": true, "result": 1}}));
        assert!(matches!(result.visible(), Some(Visible::Result(it)) if it.outcome.is_ok()));
    }

    #[test]
    fn what_is_put_into_the_context_is_visible() {
        let message = json!({"id": "m", "role": "assistant", "content": []});
        let repair = event(json!({"type": "repair_requested", "data": {"reason": "bad"}}));
        assert!(matches!(repair.visible(), Some(Visible::Repair(_))));
        let added = event(json!({"type": "context_added", "data": {"step": 1, "added": []}}));
        assert!(matches!(added.visible(), Some(Visible::Added(_))));
        let refused = event(json!({"type": "message_refused", "data":
            {"step": 1, "hook": "h", "reason": "no", "message": message}}));
        assert!(matches!(refused.visible(), Some(Visible::Refused(_))));
    }

    #[test]
    fn a_dispatch_and_the_bookkeeping_of_a_turn_are_not_visible() {
        let outcome = json!({"ok": true, "result": 1});
        for hidden in [
            json!({"type": "turn_ended", "data": {"outcome": "completed"}}),
            json!({"type": "dispatch", "data": {"call_id": "d", "tool": "t", "input": {},
                "principal": "ann", "result": outcome}}),
            json!({"type": "abandoned", "data": {}}),
        ] {
            assert_eq!(event(hidden).visible(), None);
        }
    }
}
