//! What a run did, in one line.

use super::fault_log::FaultLog;
use super::worker::RunContext;
use crate::checks::Evidence;
use crate::frames::Frame;

/// Counts of what was asked, answered, journalled, run, heard and broken.
pub(super) fn of(evidence: &Evidence, fault_log: &FaultLog, context: &RunContext) -> String {
    let events = |kind: &str| -> usize {
        evidence.journals.values().map(|journal| journal.of(kind).count()).sum()
    };
    let asked = evidence.exchanges.len();
    let promised = evidence.exchanges.iter().filter(|it| it.acknowledged().is_some()).count();
    let lost = evidence.exchanges.iter().filter(|it| it.answer.is_err()).count();
    let frames: usize =
        evidence.streams.iter().map(|(_, frames): &(_, Vec<Frame>)| frames.len()).sum();
    let expired = evidence.journals.values().map(|journal| {
        journal.of("tool_result").filter(|it| it["data"]["error_type"] == "EXPIRED").count()
    });
    let again = evidence.runs.iter().filter(|run| run.body["attempt"].as_u64() > Some(1)).count();
    format!(
        "{} conversations of {} shapes, {} turns, {} calls, {} suspensions ({} expired), {} \
         dispatches; {asked} requests, {promised} acknowledged, {lost} unanswered; {} runs of \
         tools ({again} again); {frames} frames to {} readers; faults: {}",
        evidence.journals.len(),
        context.shapes.len(),
        events("turn_ended"),
        events("tool_call"),
        events("suspension"),
        expired.sum::<usize>(),
        events("dispatch"),
        evidence.runs.len(),
        evidence.streams.len(),
        fault_log.counts(),
    )
}
