//! Checks what programs outside were promised: a result that was acknowledged is in the journal, and
//! a tick happens once. That a call has one result, and one worker at a time, is a rule of all
//! [journals](super::journals).

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::Evidence;

/// The schedule of a run, each of whose ticks makes a conversation.
pub const SCHEDULE: &str = "clockwork";
pub const TICK_INTERVAL: Duration = Duration::from_secs(3);

/// What programs outside were promised.
#[derive(Clone, Debug, Default)]
pub struct Outside {
    pub completions: Vec<Completion>,
    /// The schedule at the end, as it was read after it was paused; `None` if clocks jumped, so that
    /// nobody knows which ticks there were.
    pub schedule: Option<Value>,
}

/// A result that was acknowledged to a worker, or to a tool that called back.
#[derive(Clone, Debug)]
pub struct Completion {
    pub conversation: String,
    pub call: String,
    pub seq: u64,
    pub result: Value,
}

/// Nothing is checked of a run without such programs, and of conversations that were deleted.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let Some(outside) = &evidence.outside else { return Vec::new() };
    let lost = outside.completions.iter().filter_map(|it| lost(evidence, it));
    let mut violations: Vec<String> = lost.collect();
    violations.extend(ticks(evidence, outside.schedule.as_ref()));
    violations
}

/// Why an acknowledged result is not where the answer says.
fn lost(evidence: &Evidence, done: &Completion) -> Option<String> {
    let Completion { conversation, call, seq, result } = done;
    let Some(journal) = evidence.journals.get(conversation) else {
        let lost =
            || format!("{conversation}: a result of {call} was acknowledged, and it is gone");
        return evidence.must_exist(conversation).then(lost);
    };
    let event = journal.0.iter().find(|event| event["seq"].as_u64() == Some(*seq));
    let is_there = event.is_some_and(|event| {
        event["type"] == "tool_result"
            && event["data"]["call_id"] == **call
            && event["data"]["result"] == *result
    });
    let is_lost = !is_there && !evidence.was_deleted(conversation);
    is_lost
        .then(|| format!("{conversation}: {call}: {result} was acknowledged at {seq}: {event:?}"))
}

/// Each tick from the first one to the last one that the schedule knows made one conversation, with
/// one message.
fn ticks(evidence: &Evidence, schedule: Option<&Value>) -> Vec<String> {
    let prefix = format!("{SCHEDULE}-");
    let happened: BTreeMap<&str, usize> = evidence
        .journals
        .iter()
        .filter_map(|(id, it)| Some((id.strip_prefix(&prefix)?, it.of("user_msg").count())))
        .collect();
    let not_once = happened.iter().filter(|(_, messages)| **messages != 1);
    let mut violations: Vec<String> =
        not_once.map(|(tick, messages)| format!("tick {tick} has {messages} messages")).collect();
    let Some(schedule) = schedule else { return violations };
    let last = schedule["last"]["at"].as_str().and_then(|at| at.parse::<Timestamp>().ok());
    let Some(mut at) = last else {
        violations.push(format!("no tick happened: {schedule}"));
        return violations;
    };
    let first = happened.keys().next().copied().unwrap_or_default();
    loop {
        let tick = at.strftime("%Y%m%dT%H%M%SZ").to_string();
        if tick.as_str() <= first {
            return violations;
        }
        if !happened.contains_key(tick.as_str()) {
            violations.push(format!("tick {tick} did not happen"));
        }
        at -= TICK_INTERVAL;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::fixtures::{evidence, expect, second};
    use super::*;
    use crate::journal::Journal;

    fn event(seq: u64, kind: &str, data: Value) -> Value {
        json!({"seq": seq, "type": kind, "data": data})
    }

    /// The evidence with a worker's result, and two ticks.
    fn complete() -> Evidence {
        let mut evidence = evidence();
        let result = json!({"done_by": 1});
        let done = event(1, "tool_result", json!({"call_id": "q", "result": result}));
        evidence.journals.insert("w".to_owned(), Journal(vec![done]));
        for tick in ["19700101T000000Z", "19700101T000003Z"] {
            let journal = Journal(vec![event(1, "user_msg", json!({}))]);
            evidence.journals.insert(format!("{SCHEDULE}-{tick}"), journal);
        }
        let (conversation, call) = ("w".to_owned(), "q".to_owned());
        evidence.outside = Some(Outside {
            completions: vec![Completion { conversation, call, seq: 1, result }],
            schedule: Some(json!({"last": {"at": second(3).to_string()}})),
        });
        evidence
    }

    #[test]
    fn an_acknowledged_result_may_not_be_lost() {
        assert_eq!(check(&complete()), Vec::<String>::new());
        let mut other = complete();
        other.journals.get_mut("w").unwrap().0[0]["data"]["result"] = json!({"done_by": 2});
        expect(check, &other, "was acknowledged at 1");
        let mut gone = complete();
        gone.exchanges[0].path = "/v1/conversations/w/messages".to_owned();
        gone.journals.remove("w");
        expect(check, &gone, "and it is gone");
    }

    #[test]
    fn a_tick_may_not_be_missing_and_not_happen_twice() {
        let mut missing = complete();
        let later = json!({"last": {"at": second(6).to_string()}});
        missing.outside.as_mut().unwrap().schedule = Some(later);
        expect(check, &missing, "tick 19700101T000006Z did not happen");
        let mut twice = complete();
        let tick = twice.journals.get_mut(&format!("{SCHEDULE}-19700101T000003Z")).unwrap();
        tick.0.push(event(2, "user_msg", json!({})));
        expect(check, &twice, "has 2 messages");
    }
}
