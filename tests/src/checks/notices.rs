//! Checks notices: what happened is told at least once, in a conversation's order, and nothing else is.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Evidence;
use crate::request_log::Request;

/// Each event that webhooks tell is told at least once, each for the first time after those before
/// it; and nothing is told that the journal does not have. Nothing is checked without a webhook, and
/// of conversations that a client deleted, whose numbers may begin anew.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let Some(notices) = &evidence.notices else { return Vec::new() };
    let mut told: BTreeMap<&str, Vec<(u64, &str)>> = BTreeMap::new();
    let mut violations = Vec::new();
    for notice in notices {
        match parse(notice) {
            Some((id, seq, kind)) => told.entry(id).or_default().push((seq, kind)),
            None => violations.push(format!("a notice has no id: {:?}", notice.headers)),
        }
    }
    for (id, journal) in &evidence.journals {
        if evidence.was_deleted(id) {
            continue;
        }
        let told = told.get(id.as_str()).map(Vec::as_slice).unwrap_or_default();
        let mut heard = BTreeSet::new();
        let firsts = told.iter().filter(|(seq, _)| heard.insert(*seq));
        let firsts: Vec<u64> = firsts.map(|(seq, _)| *seq).collect();
        if !firsts.is_sorted() {
            violations.push(format!("{id}: notices are not in order: {firsts:?}"));
        }
        // What a fork copies was told of the original.
        let copied = journal.of("forked").next().and_then(|event| event["seq"].as_u64());
        let is_copy = |event: &&Value| (2..=copied.unwrap_or(0)).contains(&seq_of(event));
        for event in journal.0.iter().filter(|event| !is_copy(event)) {
            let seq = seq_of(event);
            let kinds: BTreeSet<&str> =
                told.iter().filter(|(it, _)| *it == seq).map(|(_, kind)| *kind).collect();
            match kind_of(event) {
                Some(kind) if !kinds.contains(kind.as_str()) => {
                    violations.push(format!("{id}: event {seq} was never told as {kind}"));
                }
                Some(_) | None => {}
            }
        }
        let last = journal.0.last().map(seq_of).unwrap_or_default();
        let unknown = firsts.iter().filter(|seq| **seq > last);
        violations.extend(
            unknown
                .map(|seq| format!("{id}: event {seq} was told, and the journal ends before it")),
        );
    }
    violations
}

fn seq_of(event: &Value) -> u64 {
    event["seq"].as_u64().unwrap_or_default()
}

/// The conversation, the event and the type of a notice.
fn parse(notice: &Request) -> Option<(&str, u64, &str)> {
    let (rest, _) = notice.header("webhook-id").rsplit_once(':')?;
    let (id, seq) = rest.rsplit_once(':')?;
    Some((id, seq.parse().ok()?, notice.body["type"].as_str()?))
}

/// How an event must be told; `None` if it need not be.
fn kind_of(event: &Value) -> Option<String> {
    let kind = match event["type"].as_str()? {
        "created" => "conversation.created",
        "suspension" => "call.suspended",
        "voted" => "call.voted",
        "resolution" => "call.resolved",
        "turn_ended" => {
            return Some(format!("turn.{}", event["data"]["outcome"].as_str()?));
        }
        _ => return None,
    };
    Some(kind.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::fixtures::{evidence, expect, second};
    use super::*;

    fn notice(seq: u64, kind: &str) -> Request {
        Request {
            path: "/answer".to_owned(),
            headers: vec![("webhook-id".to_owned(), format!("c:{seq}:ops"))],
            body: json!({"type": kind}),
            at: second(20),
        }
    }

    /// The evidence with all that its conversation must tell.
    fn complete() -> Evidence {
        let mut evidence = evidence();
        let journal = evidence.journal().0.clone();
        let told = journal
            .iter()
            .filter_map(|event| Some(notice(event["seq"].as_u64().unwrap(), &kind_of(event)?)));
        evidence.notices = Some(told.collect());
        evidence
    }

    fn notices(evidence: &mut Evidence) -> &mut Vec<Request> {
        evidence.notices.as_mut().unwrap()
    }

    #[test]
    fn a_notice_may_be_told_again_and_none_may_be_missing_early_or_made_up() {
        assert_eq!(check(&evidence()), Vec::<String>::new());
        let mut again = complete();
        let first = notices(&mut again)[0].clone();
        notices(&mut again).push(first);
        assert_eq!(check(&again), Vec::<String>::new());
        let mut missing = complete();
        notices(&mut missing).remove(2);
        expect(check, &missing, "was never told");
        let mut early = complete();
        notices(&mut early).swap(1, 2);
        expect(check, &early, "not in order");
        let mut other = complete();
        notices(&mut other)[0].body = json!({"type": "turn.failed"});
        expect(check, &other, "was never told as conversation.created");
        let mut fork = missing;
        fork.journal().0[11] = json!({"seq": 12, "type": "forked", "data": {}});
        assert_eq!(check(&fork), Vec::<String>::new());
        let mut made_up = complete();
        notices(&mut made_up).push(notice(99, "turn.failed"));
        expect(check, &made_up, "the journal ends before it");
    }
}
