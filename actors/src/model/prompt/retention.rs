//! How long a tool's results stay in the prompt once space is needed.

use std::collections::{HashMap, HashSet};

use abide_conversation::context::ContextMarks;
use abide_conversation::event::{Event, EventData};
use abide_conversation::{CallId, Seq};

use super::ToolRules;

/// The `retention` of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    pub keep: RetentionMode,
    /// Its results never expire.
    pub never_evict: bool,
}

/// Which results are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetentionMode {
    /// Results from the last N model steps.
    Age(u32),
    /// The tool's N newest results.
    Count(u32),
}

impl Default for Retention {
    /// The retention of a tool that declares none: a result that is six steps old has been read by
    /// now.
    fn default() -> Self {
        Self { keep: RetentionMode::Age(6), never_evict: false }
    }
}

/// The calls whose results have expired. Judged as of the mark `expired`, so that later events
/// change nothing.
pub(crate) fn expired_calls<'a>(
    events: &[&'a Event],
    marks: &ContextMarks,
    rules: &ToolRules<'_>,
) -> HashSet<&'a CallId> {
    let mut expired = HashSet::new();
    if marks.expired_upto == Seq::ZERO {
        return expired;
    }
    let tools = tools_by_call(events);
    let (mut steps, mut newer) = (0_u32, HashMap::<&str, u32>::new());
    for event in events.iter().rev().filter(|event| event.seq <= marks.expired_upto) {
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
                if !never_evict && (past || event.seq <= marks.forced_upto) {
                    expired.insert(&result.call_id);
                }
            }
            _ => {}
        }
    }
    expired
}

fn tools_by_call<'a>(events: &[&'a Event]) -> HashMap<&'a CallId, &'a str> {
    let calls = events.iter().filter_map(|event| match &event.data {
        EventData::AssistantMsg(assistant) => Some(&assistant.message.tool_calls),
        _ => None,
    });
    calls.flatten().map(|call| (&call.id, call.name.as_str())).collect()
}
