//! Describes runs of a provider's own tools as text, for models that cannot read the provider's
//! form.

use std::collections::HashSet;

use abide_conversation::CallId;
use abide_conversation::event::{CallKind, Event, EventData};
use abide_conversation::message::{CallRef, Outcome, text_block};
use serde_json::Value;

use super::result::ResultMedia;
use super::truncate;

/// The limits of one run's arguments and result. Whatever mattered of the result is in the text
/// that the model wrote after it.
const MAX_ARGS_BYTES: usize = 1024;
const MAX_RESULT_BYTES: usize = 8 * 1024;

/// The calls that providers ran.
pub(super) fn provider_calls<'a>(events: &[&'a Event]) -> HashSet<&'a CallId> {
    let provided = events.iter().filter_map(|event| match &event.data {
        EventData::ToolCall(call) if call.kind == CallKind::Provider => Some(&call.call_id),
        _ => None,
    });
    provided.collect()
}

/// One run as text.
pub(super) fn run_as_text(call: &CallRef, outcome: Option<&Outcome>) -> Value {
    let args = truncate(call.args.to_string(), MAX_ARGS_BYTES);
    // Its media are only described; they are visible in the provider's own form alone.
    let envelope = |outcome: &Outcome| ResultMedia::default().envelope(call, outcome);
    let outcome = outcome.map_or_else(|| "no result".to_owned(), envelope);
    text_block(format!(
        "[{} was run with {args}: {}]",
        call.name,
        truncate(outcome, MAX_RESULT_BYTES)
    ))
}
