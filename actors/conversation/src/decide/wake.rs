//! The alarm rang: calls that are past their deadline expire. A second ring changes nothing.

use super::close::finish_dispatch;
use super::draft::Draft;
use super::settle::settle;
use crate::Timestamp;
use crate::message::{ErrorType, Outcome};

const CHILD_TIMEOUT: &str = "sub_agent_timeout";

pub(super) fn wake(draft: &mut Draft) {
    let is_past = |deadline: Timestamp| deadline <= draft.at;
    let mut calls = draft.open_calls();
    calls.retain(|call| call.deadline().is_some_and(is_past));
    let mut dispatches = draft.state.dispatches.clone();
    dispatches.retain(|_, run| run.delegated_until.is_some_and(is_past));
    for call in calls {
        match call.open_suspension() {
            Some(_) => draft.push_error(call.id, "timed out: no response", ErrorType::Expired),
            None => draft.push_error(call.id, CHILD_TIMEOUT, ErrorType::ToolError),
        }
    }
    for (id, run) in dispatches {
        let outcome = Outcome::Err(CHILD_TIMEOUT.to_owned(), ErrorType::ToolError);
        finish_dispatch(draft, id, run, outcome, None, None);
    }
    settle(draft);
}
