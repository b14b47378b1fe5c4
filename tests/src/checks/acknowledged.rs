//! Checks that whatever was acknowledged with a 2xx is in the journal, at the place that the answer
//! gives.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Evidence;
use crate::history::Exchange;
use crate::journal::Journal;

/// No acknowledged conversation, message, resolution or cancellation is lost or in the journal
/// twice.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let mut violations = Vec::new();
    for exchange in &evidence.exchanges {
        let Some((id, answer)) = exchange.conversation().zip(exchange.acknowledged()) else {
            continue;
        };
        let problem = match evidence.journals.get(id) {
            Some(journal) => missing_event(exchange, answer, journal),
            None if evidence.must_exist(id) => Some("the conversation is gone".to_owned()),
            None => None,
        };
        let describe = |why| format!("{} {} -> {answer}: {why}", exchange.method, exchange.path);
        violations.extend(problem.map(describe));
    }
    violations.extend(accepted_twice(evidence));
    violations.extend(forks(evidence));
    for (id, journal) in &evidence.journals {
        violations.extend(duplicate_messages(id, journal));
        violations.extend(dispatches(evidence, id, journal));
        violations.extend(cancels(evidence, id, journal));
    }
    violations
}

/// Why an acknowledged request is not in the journal; `None` if it is.
fn missing_event(exchange: &Exchange, answer: &Value, journal: &Journal) -> Option<String> {
    let kind = match (exchange.method.as_str(), exchange.verb()) {
        ("POST", "messages") => "user_msg",
        ("POST", "resolution") => "resolution",
        _ => return None,
    };
    let seq = answer["seq"].as_u64();
    let Some(event) = journal.0.iter().find(|event| event["seq"].as_u64() == seq) else {
        return Some("there is no such seq".to_owned());
    };
    let body = exchange.body.as_ref().unwrap_or(&Value::Null);
    let data = &event["data"];
    let is_same = match kind {
        "user_msg" => {
            let text = &data["message"]["content"][0]["text"];
            event["turn_id"] == answer["turn_id"]
                && data["message_id"] == body["message_id"]
                && (body["text"].is_null() || *text == body["text"])
        }
        _ => {
            let call = exchange.path.split('/').nth(5).unwrap_or_default();
            data["call_id"] == call && data["approved"] == body["approved"]
        }
    };
    (event["type"] != kind || !is_same).then(|| format!("the journal has {event}"))
}

/// Two different resolutions that were both answered with the same event: only one can have closed
/// the suspension.
fn accepted_twice(evidence: &Evidence) -> Vec<String> {
    let mut winners: BTreeMap<_, Vec<&Exchange>> = BTreeMap::new();
    for exchange in &evidence.exchanges {
        if let Some(answer) = exchange.acknowledged().filter(|_| exchange.verb() == "resolution") {
            let event = (exchange.conversation(), answer["seq"].as_u64());
            winners.entry(event).or_default().push(exchange);
        }
    }
    let repeats =
        |all: &Vec<&Exchange>| all[0].key.is_some() && all.iter().all(|one| one.key == all[0].key);
    let twice = winners.into_values().filter(|all| all.len() > 1 && !repeats(all));
    twice.map(|all| format!("{} was accepted {} times", all[0].path, all.len())).collect()
}

/// Acknowledged forks that are missing.
fn forks(evidence: &Evidence) -> Vec<String> {
    let forks = evidence.exchanges.iter().filter(|exchange| exchange.verb() == "fork");
    let ids = forks.filter_map(|exchange| exchange.acknowledged()?["id"].as_str());
    let gone = ids.filter(|id| !evidence.journals.contains_key(*id) && !evidence.was_deleted(id));
    gone.map(|id| format!("fork {id} is gone")).collect()
}

/// Every acknowledged dispatch has an event of its own in the journal.
fn dispatches(evidence: &Evidence, id: &str, journal: &Journal) -> Option<String> {
    let mut keys = BTreeSet::new();
    let answered = evidence
        .about(id)
        .filter(|exchange| exchange.verb() == "dispatch" && exchange.acknowledged().is_some());
    let answered =
        answered.filter(|exchange| exchange.key.as_ref().is_none_or(|key| keys.insert(key)));
    let (answered, journalled) = (answered.count(), journal.of("dispatch").count());
    (answered > journalled).then(|| {
        format!("journal {id}: {answered} dispatches were acknowledged, {journalled} are there")
    })
}

/// Messages whose id is in the journal twice.
fn duplicate_messages(id: &str, journal: &Journal) -> Vec<String> {
    let mut names = BTreeSet::new();
    let message_ids =
        journal.of("user_msg").filter_map(|event| event["data"]["message_id"].as_str());
    let twice = message_ids.filter(|name| !names.insert(*name));
    twice.map(|name| format!("journal {id}: message {name} is there twice")).collect()
}

/// Every acknowledged cancellation ended a turn of its own.
fn cancels(evidence: &Evidence, id: &str, journal: &Journal) -> Option<String> {
    let mut keys = BTreeSet::new();
    let cancelled = evidence.exchanges.iter().filter(|exchange| {
        let ended = exchange.acknowledged().is_some_and(|answer| answer["cancelled"] == true);
        ended && exchange.conversation() == Some(id) && exchange.verb() == "cancel"
    });
    let cancelled =
        cancelled.filter(|exchange| exchange.key.as_ref().is_none_or(|key| keys.insert(key)));
    let cancelled = cancelled.count();
    let ended = journal.outcomes().into_iter().filter(|outcome| *outcome == "cancelled").count();
    (cancelled > ended)
        .then(|| format!("journal {id}: {cancelled} turns were cancelled, {ended} are there"))
}

#[cfg(test)]
mod tests {
    use reqwest::Method;
    use serde_json::json;

    use super::*;
    use crate::checks::fixtures::{evidence, expect};

    #[test]
    fn what_is_in_the_journal_keeps_the_promise() {
        assert_eq!(check(&evidence()), [""; 0]);
    }

    #[test]
    fn a_lost_conversation_is_seen_unless_it_was_deleted() {
        let mut evidence = evidence();
        evidence.journals.clear();
        expect(check, &evidence, "the conversation is gone");
        let mut deletion = evidence.exchanges[0].clone();
        (deletion.method, deletion.path) = (Method::DELETE, "/v1/conversations/c".to_owned());
        evidence.exchanges.push(deletion);
        assert_eq!(check(&evidence), [""; 0]);
    }

    #[test]
    fn a_lost_message_and_another_in_its_place_are_seen() {
        let mut evidence = evidence();
        evidence.journal().0[1]["data"]["message"]["content"][0]["text"] = json!("stop");
        expect(check, &evidence, "messages -> {\"conversation_id\":\"c\",\"turn_id\":\"t1\"");
        evidence.journal().0.truncate(13);
        expect(check, &evidence, "there is no such seq");
    }

    #[test]
    fn a_message_that_is_there_twice_is_seen() {
        let mut evidence = evidence();
        evidence.journal().0[13]["data"]["message_id"] = json!("m1");
        expect(check, &evidence, "message m1 is there twice");
    }

    #[test]
    fn a_lost_resolution_and_another_one_in_its_place_are_seen() {
        for (field, other) in [("call_id", json!("once")), ("approved", json!(false))] {
            let mut evidence = evidence();
            evidence.journal().0[7]["data"][field] = other;
            expect(check, &evidence, "resolution -> {\"seq\":8}: the journal has");
        }
    }

    #[test]
    fn two_winners_of_one_suspension_are_seen_and_a_repeat_is_none() {
        let mut evidence = evidence();
        let again = evidence.exchanges[1].clone();
        evidence.exchanges.push(again);
        expect(check, &evidence, "was accepted 2 times");
        for exchange in &mut evidence.exchanges {
            exchange.key = Some("k".to_owned());
        }
        assert_eq!(check(&evidence), [""; 0]);
    }

    #[test]
    fn a_cancel_that_ended_no_turn_is_seen() {
        let mut evidence = evidence();
        evidence.journal().0[15]["data"]["outcome"] = json!("completed");
        expect(check, &evidence, "1 turns were cancelled, 0 are there");
    }

    #[test]
    fn a_lost_fork_and_a_lost_dispatch_are_seen() {
        let mut evidence = evidence();
        let mut fork = evidence.exchanges[0].clone();
        fork.path = "/v1/conversations/c/fork".to_owned();
        fork.answer.as_mut().unwrap().body = json!({"id": "f"});
        let mut dispatch = evidence.exchanges[0].clone();
        dispatch.path = "/v1/conversations/c/dispatch".to_owned();
        evidence.exchanges.extend([fork, dispatch]);
        expect(check, &evidence, "fork f is gone");
        expect(check, &evidence, "1 dispatches were acknowledged, 0 are there");
    }

    #[test]
    fn what_was_not_acknowledged_may_be_lost() {
        let mut evidence = evidence();
        evidence.exchanges[0].answer = Err("cut".to_owned());
        evidence.exchanges[2].answer.as_mut().unwrap().status = 503;
        evidence.journal().0.truncate(1);
        let violations = check(&evidence);
        assert!(
            violations.iter().all(|violations| !violations.contains("messages")),
            "{violations:#?}"
        );
    }
}
