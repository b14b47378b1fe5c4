//! The one-line summary of a run.

use super::fault_log::FaultLog;
use super::worker::RunContext;
use crate::checks::Evidence;
use crate::frames::Frame;

/// Counts the requests, answers, events, tool runs, frames and faults of a run.
pub(super) fn of(evidence: &Evidence, fault_log: &FaultLog, context: &RunContext) -> String {
    let events = |kind: &str| -> usize {
        evidence.journals.values().map(|journal| journal.of(kind).count()).sum()
    };
    let requests = evidence.exchanges.len();
    let acknowledged = evidence.exchanges.iter().filter(|it| it.acknowledged().is_some()).count();
    let lost = evidence.exchanges.iter().filter(|it| it.answer.is_err()).count();
    let frames: usize =
        evidence.streams.iter().map(|(_, frames): &(_, Vec<Frame>)| frames.len()).sum();
    let expired = evidence.journals.values().map(|journal| {
        journal.of("tool_result").filter(|it| it["data"]["error_type"] == "EXPIRED").count()
    });
    let repeated =
        evidence.runs.iter().filter(|run| run.body["attempt"].as_u64() > Some(1)).count();
    format!(
        "{} conversations of {} shapes, {} turns, {} calls, {} suspensions ({} expired), {} \
         dispatches; {requests} requests, {acknowledged} acknowledged, {lost} unanswered; {} reads \
         of journals; {} runs of tools ({repeated} repeated); {frames} frames to {} readers; \
         faults: {}",
        evidence.journals.len(),
        context.shapes.len(),
        events("turn_ended"),
        events("tool_call"),
        events("suspension"),
        expired.sum::<usize>(),
        events("dispatch"),
        evidence.reads.len(),
        evidence.runs.len(),
        evidence.streams.len(),
        fault_log.counts(),
    )
}
