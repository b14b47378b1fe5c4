//! What a run did, in one line.

use super::lane::World;
use super::notes::Notes;
use crate::frames::Frame;
use crate::promises::Evidence;

/// Counts of what was asked, answered, journalled, run, heard and broken.
pub(super) fn of(evidence: &Evidence, notes: &Notes, world: &World) -> String {
    let events = |kind: &str| -> usize {
        evidence.journals.values().map(|journal| journal.of(kind).count()).sum()
    };
    let asked = evidence.exchanges.len();
    let promised = evidence.exchanges.iter().filter(|it| it.acknowledged().is_some()).count();
    let lost = evidence.exchanges.iter().filter(|it| it.answer.is_err()).count();
    let frames: usize =
        evidence.heard.iter().map(|(_, frames): &(_, Vec<Frame>)| frames.len()).sum();
    let expired = evidence.journals.values().map(|journal| {
        journal.of("tool_result").filter(|it| it["data"]["error_type"] == "EXPIRED").count()
    });
    let again = evidence.runs.iter().filter(|run| run.body["attempt"].as_u64() > Some(1)).count();
    format!(
        "{} conversations of {} shapes, {} turns, {} calls, {} suspensions ({} expired), {} \
         dispatches; {asked} requests, {promised} acknowledged, {lost} unanswered; {} runs of \
         tools ({again} again); {frames} frames to {} readers; faults: {}",
        evidence.journals.len(),
        world.shapes.len(),
        events("turn_ended"),
        events("tool_call"),
        events("suspension"),
        expired.sum::<usize>(),
        events("dispatch"),
        evidence.runs.len(),
        evidence.heard.len(),
        notes.counts(),
    )
}
