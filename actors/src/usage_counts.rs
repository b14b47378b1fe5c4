//! What a tenant's usage is counted in: by day, agent and owner, in the commits themselves.

use std::ops::AddAssign;

use abide_conversation::Timestamp;
use abide_conversation::event::{Event, EventData};
use abide_conversation::message::MessageStatus;
use abide_conversation::usage::{Cost, Usage};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Serialize;
use utoipa::ToSchema;

/// The most that one commit adds to a counter. No model call comes near it, and stores that count in
/// floating-point numbers stay exact for thousands of the largest.
const MAX_ADDED: u64 = 1_000_000_000_000;

/// How much was used. Usage of child conversations counts where it happened: in the children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct UsageCounts {
    /// Turns that ended.
    pub turns: u64,
    /// Replies of models that are complete, also those that a hook refused.
    pub steps: u64,
    /// Calls that models made, and dispatches that ended.
    pub calls: u64,
    /// Tokens that went into models, also for summaries.
    pub input_tokens: u64,
    /// Tokens that came out of models, also for summaries.
    pub output_tokens: u64,
    /// In US dollars, by the prices in the agents' definitions.
    #[serde(rename = "cost_usd")]
    #[schema(value_type = f64)]
    pub cost: Cost,
}

impl UsageCounts {
    /// How many counters there are.
    pub const COUNTERS: usize = 6;

    /// What these events count; `None` if they count nothing.
    pub fn of(events: &[Event]) -> Option<Self> {
        let mut counts = Self::default();
        events.iter().for_each(|event| counts.count(&event.data));
        let counts = Self::from_numbers(counts.numbers().map(|number| number.min(MAX_ADDED)));
        (counts != Self::default()).then_some(counts)
    }

    fn count(&mut self, data: &EventData) {
        match data {
            EventData::AssistantMsg(reply) => {
                self.steps += u64::from(reply.status == MessageStatus::Complete);
                self.add_usage(reply.usage);
            }
            EventData::MessageRefused(refused) => {
                self.steps += 1;
                self.add_usage(refused.usage);
            }
            EventData::Summarized(summarized) => self.add_usage(summarized.usage),
            EventData::ToolCall(_) | EventData::DispatchFinished(_) => self.calls += 1,
            EventData::TurnEnded(_) => self.turns += 1,
            EventData::Created(_)
            | EventData::UserMsg(_)
            | EventData::TurnStarted(_)
            | EventData::Operated(_)
            | EventData::ToolQueued(_)
            | EventData::ToolLeased(_)
            | EventData::CallbackAwaited(_)
            | EventData::MessageScheduled(_)
            | EventData::ScheduleEnded(_)
            | EventData::SuspensionExpiring(_)
            | EventData::SuspensionExtended(_)
            | EventData::SuspensionEscalated(_)
            | EventData::Suspension(_)
            | EventData::Voted(_)
            | EventData::Resolution(_)
            | EventData::ToolStarted(_)
            | EventData::InputRequired(_)
            | EventData::ToolResult(_)
            | EventData::RepairRequested(_)
            | EventData::ContextAdded(_)
            | EventData::Forked(_)
            | EventData::ContextReduced(_)
            | EventData::SummaryFailed(_)
            | EventData::DispatchStarted(_)
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
            | EventData::ToolAttemptFailed(_)
            | EventData::StateChanged(_)
            | EventData::TurnWithdrawn(_)
            | EventData::Steered(_)
            | EventData::Rewound(_)
            | EventData::Unknown(_) => {}
        }
    }

    fn add_usage(&mut self, usage: Option<Usage>) {
        let usage = usage.unwrap_or_default();
        self.input_tokens = self.input_tokens.saturating_add(usage.input_tokens);
        self.output_tokens = self.output_tokens.saturating_add(usage.output_tokens);
        self.cost += usage.cost;
    }

    /// Input and output tokens.
    pub fn tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }

    /// The counters in the order in which stores keep them, for ever: new ones follow these.
    pub fn numbers(&self) -> [u64; Self::COUNTERS] {
        let Self { turns, steps, calls, input_tokens, output_tokens, cost } = *self;
        [turns, steps, calls, input_tokens, output_tokens, cost.nanos()]
    }

    /// The counters that have these numbers.
    pub fn from_numbers(numbers: [u64; Self::COUNTERS]) -> Self {
        let [turns, steps, calls, input_tokens, output_tokens, nanos] = numbers;
        let cost = Cost::from_nanos(nanos);
        Self { turns, steps, calls, input_tokens, output_tokens, cost }
    }
}

impl AddAssign for UsageCounts {
    fn add_assign(&mut self, more: Self) {
        let mut sums = self.numbers();
        for (sum, more) in sums.iter_mut().zip(more.numbers()) {
            *sum = sum.saturating_add(more);
        }
        *self = Self::from_numbers(sums);
    }
}

/// The day of a moment, in UTC, by which usage is counted.
pub fn day_of(at: Timestamp) -> Date {
    at.to_zoned(TimeZone::UTC).date()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn events(data: &[serde_json::Value]) -> Vec<Event> {
        let event = |(index, data): (usize, &serde_json::Value)| {
            let mut event = data.clone();
            event["seq"] = json!(index + 1);
            event["at"] = json!("2027-01-15T08:00:00.000Z");
            serde_json::from_value(event).unwrap()
        };
        data.iter().enumerate().map(event).collect()
    }

    fn reply(status: &str, usage: &serde_json::Value) -> serde_json::Value {
        json!({"type": "assistant_msg", "turn_id": "t", "data": {
            "message": {"id": "m", "role": "assistant", "content": []},
            "status": status, "step": 1, "usage": usage}})
    }

    #[test]
    fn replies_calls_and_ends_of_turns_are_counted() {
        let usage = json!({"input_tokens": 7, "output_tokens": 2, "cost_usd": 0.5});
        let ended = json!({"type": "turn_ended", "turn_id": "t", "data": {"outcome": "completed"}});
        let counts = UsageCounts::of(&events(&[reply("complete", &usage), ended])).unwrap();
        assert_eq!(counts.numbers(), [1, 1, 0, 7, 2, 500_000_000]);
        assert_eq!(counts.tokens(), 9);
        let cut = UsageCounts::of(&events(&[reply("cancelled", &usage)])).unwrap();
        assert_eq!(cut.numbers(), [0, 0, 0, 7, 2, 500_000_000]);
    }

    #[test]
    fn an_event_that_uses_nothing_adds_nothing_to_a_commit() {
        let waits = json!({"type": "abandoned", "data": {}});
        assert_eq!(UsageCounts::of(&events(&[waits])), None);
        assert_eq!(UsageCounts::of(&[]), None);
    }

    #[test]
    fn what_a_provider_reports_is_bounded() {
        let usage = json!({"input_tokens": u64::MAX, "output_tokens": u64::MAX});
        let counts = UsageCounts::of(&events(&[reply("complete", &usage)])).unwrap();
        assert_eq!(counts.numbers(), [0, 1, 0, MAX_ADDED, MAX_ADDED, 0]);
    }

    #[test]
    fn a_day_begins_at_midnight_in_utc() {
        let day = |text: &str| day_of(text.parse().unwrap()).to_string();
        assert_eq!(day("2027-01-15T23:59:59.999Z"), "2027-01-15");
        assert_eq!(day("2027-01-16T00:00:00.000Z"), "2027-01-16");
        assert_eq!(day("2027-01-16T00:30:00+01:00"), "2027-01-15");
    }
}
