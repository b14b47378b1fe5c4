//! The alarm rang: what is past its deadline expires. Ringing twice is harmless.

use super::draft::Draft;
use super::settle::settle;
use super::tool_returned::finish_dispatch;
use crate::Timestamp;
use crate::message::{ErrorType, Outcome};

const CHILD_LATE: &str = "sub_agent_timeout";

pub(super) fn wake(draft: &mut Draft) {
    let late = |deadline: Timestamp| deadline <= draft.at;
    let calls = draft.open_calls().into_iter();
    let calls: Vec<_> = calls.filter(|call| call.deadline().is_some_and(late)).collect();
    let runs = draft.state.dispatches.clone().into_iter();
    let runs: Vec<_> = runs.filter(|(_, run)| run.delegated.is_some_and(late)).collect();
    for call in calls {
        match call.waiting() {
            Some(_) => draft.error(call.id, "timed out: no response", ErrorType::Expired),
            None => draft.error(call.id, CHILD_LATE, ErrorType::ToolError),
        }
    }
    for (id, run) in runs {
        let outcome = Outcome::Err(CHILD_LATE.to_owned(), ErrorType::ToolError);
        finish_dispatch(draft, id, run, outcome, None, None);
    }
    settle(draft);
}
