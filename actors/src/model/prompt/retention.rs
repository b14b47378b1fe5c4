//! Decides which results the prompt shows as expired.

use std::collections::{HashMap, HashSet};

use abide_conversation::CallId;
use abide_conversation::context::Marks;
use abide_conversation::event::{Event, EventData};

use super::ToolRules;
use crate::context::{Retention, RetentionMode};

/// The calls whose results have expired. Judged as of the mark `expired`, so that later events
/// change nothing.
pub(crate) fn expired_calls<'a>(
    events: &'a [Event],
    marks: &Marks,
    rules: &ToolRules<'_>,
) -> HashSet<&'a CallId> {
    let mut expired = HashSet::new();
    if marks.expired == 0 {
        return expired;
    }
    let tools = tools_by_call(events);
    let (mut steps, mut newer) = (0_u32, HashMap::<&str, u32>::new());
    for event in events.iter().rev().filter(|event| event.seq <= marks.expired) {
        match &event.data {
            EventData::AssistantMsg(_) => steps = steps.saturating_add(1),
            EventData::ToolResult(result) => {
                let Some(tool) = tools.get(&result.call_id) else { continue };
                let Retention { keep, never_evict } = rules(tool).retention;
                let newer = newer.entry(tool).or_default();
                let past = match keep {
                    RetentionMode::Age(most) => steps > most,
                    RetentionMode::Count(most) => *newer >= most,
                };
                *newer = newer.saturating_add(1);
                if !never_evict && (past || event.seq <= marks.forced) {
                    expired.insert(&result.call_id);
                }
            }
            _ => {}
        }
    }
    expired
}

fn tools_by_call(events: &[Event]) -> HashMap<&CallId, &str> {
    let calls = events.iter().filter_map(|event| match &event.data {
        EventData::AssistantMsg(assistant) => Some(&assistant.message.tool_calls),
        _ => None,
    });
    calls.flatten().map(|call| (&call.id, call.name.as_str())).collect()
}
