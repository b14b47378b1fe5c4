//! What became of the turn of a schedule's last tick, from the journal.

use abide_conversation::event::{EventData, TurnOutcome};
use abide_conversation::{ScheduleName, Scoped};
use abide_registry::schedules::Schedule;

use super::document::TickOutcome;
use crate::http::Api;
use crate::http::problem::Problem;

/// How many events are read at a time, and how often: a turn of more events is looked at no further.
const EVENTS_PER_READ: usize = 200;
const MAX_READS: usize = 10;

/// `None` before the first tick, if its conversation is gone, or if the turn is too long to look for
/// its end.
pub(super) async fn of_last(
    api: &Api,
    id: &Scoped<ScheduleName>,
    schedule: &Schedule,
) -> Result<Option<TickOutcome>, Problem> {
    let Some(last) = &schedule.last else { return Ok(None) };
    let Some(sent) = &last.sent else { return Ok(Some(TickOutcome::Refused)) };
    let conversation = id.sibling(&sent.conversation_id);
    if api.store.summary(&conversation).await?.is_none() {
        return Ok(None);
    }
    let mut after = sent.seq;
    for _ in 0..MAX_READS {
        let events = api.store.events(&conversation, after, EVENTS_PER_READ).await?;
        let Some(newest) = events.last().map(|event| event.seq) else {
            return Ok(Some(TickOutcome::Running));
        };
        let of_turn = events.iter().filter(|event| event.turn_id.as_ref() == Some(&sent.turn_id));
        let ended = of_turn.into_iter().find_map(|event| match &event.data {
            EventData::TurnEnded(ended) => Some(ended.outcome),
            EventData::TurnWithdrawn(_) => Some(TurnOutcome::Cancelled),
            _ => None,
        });
        if let Some(outcome) = ended {
            return Ok(Some(match outcome {
                TurnOutcome::Completed => TickOutcome::Completed,
                TurnOutcome::Cancelled => TickOutcome::Cancelled,
                TurnOutcome::Halted => TickOutcome::Halted,
                TurnOutcome::Failed => TickOutcome::Failed,
            }));
        }
        after = newest;
    }
    Ok(None)
}
