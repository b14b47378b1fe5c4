//! Whether a conversation under which processes ended completes anything.

use abide_conversation::event::{Event, EventData, TurnOutcome};
use abide_conversation::message::{ErrorType, Outcome};

/// Looks for progress while the store counts deaths. A conversation under which no process ended
/// costs nothing.
#[derive(Debug, Default)]
pub struct ProgressCheck {
    /// Whether the store counts any deaths.
    counts_deaths: bool,
    /// Whether a call ended because its process did. The model's next message is no progress then:
    /// it may begin the same call anew.
    was_interrupted: bool,
}

impl ProgressCheck {
    /// Begins with the deaths that the store counted so far.
    pub fn begin(&mut self, deaths: u32) {
        *self = Self { counts_deaths: deaths > 0, was_interrupted: false };
    }

    /// Whether the store is to forget the deaths, because a commit of these events completes
    /// something.
    pub fn is_progress(&mut self, events: &[Event]) -> bool {
        if !self.counts_deaths {
            return false;
        }
        let is_interruption =
            |event: &Event| error_type(&event.data) == Some(ErrorType::Interrupted);
        self.was_interrupted |= events.iter().any(is_interruption);
        events.iter().any(|event| self.completes(&event.data))
    }

    /// Records that the store has forgotten the deaths.
    pub fn end(&mut self) {
        *self = Self::default();
    }

    fn completes(&self, data: &EventData) -> bool {
        match data {
            EventData::AssistantMsg(_) => !self.was_interrupted,
            EventData::ToolResult(_) | EventData::DispatchFinished(_) => {
                let error = error_type(data);
                error != Some(ErrorType::Interrupted) && error != Some(ErrorType::Cancelled)
            }
            EventData::TurnEnded(ended) => match ended.outcome {
                TurnOutcome::Completed | TurnOutcome::Halted => true,
                TurnOutcome::Cancelled | TurnOutcome::Failed => false,
            },
            EventData::Resolution(_)
            | EventData::InputRequired(_)
            | EventData::Forked(_)
            | EventData::Summarized(_)
            | EventData::ChildEnded(_)
            | EventData::ChildReleased(_)
            | EventData::ParentNotified(_)
            | EventData::ToolQueued(_)
            | EventData::ToolLeased(_)
            | EventData::CallbackAwaited(_)
            | EventData::DecisionPublished(_) => true,
            // Every attempt writes these, or a person does.
            EventData::Created(_)
            | EventData::UserMsg(_)
            | EventData::TurnStarted(_)
            | EventData::ToolCall(_)
            | EventData::Suspension(_)
            | EventData::Voted(_)
            | EventData::ToolStarted(_)
            | EventData::RepairRequested(_)
            | EventData::ContextAdded(_)
            | EventData::MessageRefused(_)
            | EventData::ContextReduced(_)
            | EventData::SummaryFailed(_)
            | EventData::DispatchStarted(_)
            | EventData::PhaseChanged(_)
            | EventData::TodosChanged(_)
            | EventData::WorkspaceOpened(_)
            | EventData::ChildStarted(_)
            | EventData::Abandoned {}
            | EventData::DecisionRemembered(_)
            | EventData::DecisionRevoked(_)
            | EventData::Updated(_)
            | EventData::Operated(_)
            | EventData::MessageScheduled(_)
            | EventData::ScheduleEnded(_)
            | EventData::SuspensionExpiring(_)
            | EventData::SuspensionExtended(_)
            | EventData::SuspensionEscalated(_)
            | EventData::ToolAttemptFailed(_)
            | EventData::StateChanged(_)
            | EventData::TurnWithdrawn(_)
            | EventData::Steered(_)
            | EventData::Rewound(_)
            | EventData::Unknown(_) => false,
        }
    }
}

/// The type of the error that a call or a dispatch ended with.
fn error_type(data: &EventData) -> Option<ErrorType> {
    let outcome = match data {
        EventData::ToolResult(result) => &result.outcome,
        EventData::DispatchFinished(done) => &done.result,
        _ => return None,
    };
    match outcome {
        Outcome::Err(_, error) => Some(*error),
        Outcome::Ok(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use abide_conversation::event::{AssistantMsg, Operated, ToolResult, TurnEnded};
    use abide_conversation::message::{Message, MessageRole, MessageStatus};
    use abide_conversation::{CallId, MessageId, Principal, Seq, Step, Timestamp};
    use serde_json::json;

    use super::*;

    fn event(data: EventData) -> [Event; 1] {
        [Event { seq: Seq::FIRST, at: Timestamp::UNIX_EPOCH, turn_id: None, data }]
    }

    fn reply() -> [Event; 1] {
        event(EventData::AssistantMsg(AssistantMsg {
            message: Message::new(MessageId::new("m"), MessageRole::Assistant, Vec::new()),
            status: MessageStatus::Complete,
            step: Step::FIRST,
            usage: None,
            stop: None,
            verbatim: None,
            fallback: None,
            context_tokens: None,
            read_upto: None,
        }))
    }

    fn result(outcome: Outcome) -> [Event; 1] {
        let call_id = CallId::new("c");
        event(EventData::ToolResult(ToolResult {
            call_id,
            outcome,
            ui: None,
            effective_args: None,
        }))
    }

    fn interrupted() -> [Event; 1] {
        result(Outcome::Err("interrupted".to_owned(), ErrorType::Interrupted))
    }

    fn turn_end(outcome: TurnOutcome) -> [Event; 1] {
        event(EventData::TurnEnded(TurnEnded { outcome, reason: None, usage: None }))
    }

    fn after_death() -> ProgressCheck {
        let mut check = ProgressCheck::default();
        check.begin(1);
        check
    }

    #[test]
    fn without_a_death_nothing_is_reset() {
        assert!(!ProgressCheck::default().is_progress(&reply()));
    }

    #[test]
    fn a_step_a_result_and_an_answer_are_progress() {
        for completed in [reply(), result(Outcome::Ok(json!(1))), turn_end(TurnOutcome::Completed)]
        {
            assert!(after_death().is_progress(&completed), "{completed:?}");
        }
        let cancelled = result(Outcome::Err("[cancelled]".to_owned(), ErrorType::Cancelled));
        for ended in [cancelled, turn_end(TurnOutcome::Cancelled)] {
            assert!(!after_death().is_progress(&ended), "{ended:?}");
        }
    }

    #[test]
    fn what_an_operator_does_is_no_progress() {
        let operated = Operated {
            by: Principal::new("operator"),
            identity: None,
            verb: "kill".to_owned(),
            reason: None,
        };
        assert!(!after_death().is_progress(&event(EventData::Operated(operated))));
    }

    #[test]
    fn the_step_after_an_interrupted_call_is_no_progress_and_its_answer_is() {
        let mut check = after_death();
        assert!(!check.is_progress(&interrupted()));
        assert!(!check.is_progress(&reply()), "the model may make the same call anew");
        let answer = [reply(), turn_end(TurnOutcome::Completed)].concat();
        assert!(check.is_progress(&answer));
        check.end();
        assert!(!check.is_progress(&reply()), "the deaths are forgotten once");
    }
}
