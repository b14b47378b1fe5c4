//! What was answered with a 2xx is in the journal, where the answer says.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Evidence;
use crate::history::Exchange;
use crate::journal::Journal;

/// No acknowledged conversation, message, resolution or cancel is lost, and none is there twice.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let mut violations = Vec::new();
    for exchange in &evidence.exchanges {
        let Some((id, answer)) = exchange.conversation().zip(exchange.acknowledged()) else {
            continue;
        };
        let lost = match evidence.journals.get(id) {
            Some(journal) => lost(exchange, answer, journal),
            None if evidence.must_be_there(id) => Some("the conversation is gone".to_owned()),
            None => None,
        };
        let told = |why| format!("{} {} -> {answer}: {why}", exchange.method, exchange.path);
        violations.extend(lost.map(told));
    }
    violations.extend(accepted_twice(evidence));
    violations.extend(forks(evidence));
    for (id, journal) in &evidence.journals {
        violations.extend(said_twice(id, journal));
        violations.extend(dispatches(evidence, id, journal));
        violations.extend(cancels(evidence, id, journal));
    }
    violations
}

/// What of an acknowledged request the journal lacks.
fn lost(exchange: &Exchange, answer: &Value, journal: &Journal) -> Option<String> {
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
    let same = match kind {
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
    (event["type"] != kind || !same).then(|| format!("this is there: {event}"))
}

/// One resolution closes a suspension: an event that two of them were told is theirs.
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

/// A fork that somebody was told of is there.
fn forks(evidence: &Evidence) -> Vec<String> {
    let told = evidence.exchanges.iter().filter(|exchange| exchange.verb() == "fork");
    let told = told.filter_map(|exchange| exchange.acknowledged()?["id"].as_str());
    let gone = told.filter(|id| !evidence.journals.contains_key(*id) && !evidence.was_deleted(id));
    gone.map(|id| format!("fork {id} is gone")).collect()
}

/// Whoever heard the result of a dispatch finds it in the journal, each its own.
fn dispatches(evidence: &Evidence, id: &str, journal: &Journal) -> Option<String> {
    let mut keys = BTreeSet::new();
    let told = evidence
        .about(id)
        .filter(|exchange| exchange.verb() == "dispatch" && exchange.acknowledged().is_some());
    let told = told.filter(|exchange| exchange.key.as_ref().is_none_or(|key| keys.insert(key)));
    let (told, there) = (told.count(), journal.of("dispatch").count());
    (told > there).then(|| format!("journal {id}: {told} dispatches were told, {there} are there"))
}

fn said_twice(id: &str, journal: &Journal) -> Vec<String> {
    let mut names = BTreeSet::new();
    let said = journal.of("user_msg").filter_map(|event| event["data"]["message_id"].as_str());
    let twice = said.filter(|name| !names.insert(*name));
    twice.map(|name| format!("journal {id}: message {name} is there twice")).collect()
}

/// Whoever was told that they ended a turn did end one of their own.
fn cancels(evidence: &Evidence, id: &str, journal: &Journal) -> Option<String> {
    let mut keys = BTreeSet::new();
    let told = evidence.exchanges.iter().filter(|exchange| {
        let ended = exchange.acknowledged().is_some_and(|answer| answer["cancelled"] == true);
        ended && exchange.conversation() == Some(id) && exchange.verb() == "cancel"
    });
    let told = told.filter(|exchange| exchange.key.as_ref().is_none_or(|key| keys.insert(key)));
    let (told, ended) = (
        told.count(),
        journal.outcomes().into_iter().filter(|outcome| *outcome == "cancelled").count(),
    );
    (told > ended).then(|| format!("journal {id}: {told} turns were cancelled, {ended} are there"))
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
            expect(check, &evidence, "resolution -> {\"seq\":8}: this is there");
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
        expect(check, &evidence, "1 dispatches were told, 0 are there");
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
