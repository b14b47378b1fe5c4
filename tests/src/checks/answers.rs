//! Checks that every answer to a client is one that the API allows, and true.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::Value;

use super::Evidence;
use crate::history::Exchange;
use crate::journal::Journal;

/// No answer reports an internal error, or the absence of a conversation that exists; a repeat gets
/// the first answer; a call that is reported as not open is not open.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let answers = evidence.exchanges.iter().filter_map(|exchange| {
        let why = unexpected(evidence, exchange).or_else(|| untrue(evidence, exchange))?;
        Some(format!("{}: {why}", describe(exchange)))
    });
    answers.chain(repeats(evidence)).collect()
}

fn describe(exchange: &Exchange) -> String {
    let Exchange { node, method, path, answer, .. } = exchange;
    let answer = answer.as_ref().map_or(String::new(), |it| format!("{} {}", it.status, it.body));
    format!("{node} {method} {path} -> {answer}")
}

fn unexpected(evidence: &Evidence, exchange: &Exchange) -> Option<String> {
    let status = exchange.answer.as_ref().ok()?.status;
    let id = exchange.conversation()?;
    match status {
        200..=299 | 409 | 429 | 503 | 422 => None,
        404 if evidence.was_deleted(id)
            || evidence.may_be_missing(id)
            || !evidence.existed(id, exchange.sent_at) =>
        {
            None
        }
        404 => Some("the conversation exists".to_owned()),
        _ => Some("no client may get this status".to_owned()),
    }
}

/// Different answers to the same idempotency key or message id.
fn repeats(evidence: &Evidence) -> Vec<String> {
    let mut first: BTreeMap<_, &Exchange> = BTreeMap::new();
    let mut violations = Vec::new();
    for exchange in evidence.exchanges.iter().filter(|exchange| exchange.acknowledged().is_some()) {
        let body = exchange.body.as_ref().unwrap_or(&Value::Null);
        let name = exchange.key.as_deref().or(body["message_id"].as_str());
        let Some(name) = name else { continue };
        let first_answer = first.entry((&exchange.path, name)).or_insert(exchange);
        if first_answer.acknowledged() != exchange.acknowledged() {
            violations.push(format!(
                "{}, and before: {}",
                describe(exchange),
                describe(first_answer)
            ));
        }
    }
    violations
}

/// A resolution that was refused as `call-not-open` although the call was open.
fn untrue(evidence: &Evidence, exchange: &Exchange) -> Option<String> {
    let refused = exchange.answer.as_ref().ok().filter(|answer| answer.status == 409)?;
    if exchange.verb() != "resolution" || refused.body["type"] != "/problems/call-not-open" {
        return None;
    }
    let journal = evidence.journals.get(exchange.conversation()?)?;
    let call = exchange.path.split('/').nth(5)?;
    let approves = exchange.body.as_ref().is_some_and(|body| !body["approved"].is_null());
    let (opened, closed) = open_interval(journal, call, approves)?;
    let was_open = opened < exchange.sent_at && exchange.ended_at < closed;
    let is_refuted = was_open && !may_follow_another(evidence, exchange);
    is_refuted.then(|| format!("it was open from {opened} to {closed}"))
}

/// Whether another request changed the conversation at the same time, and may have come first: the
/// journal's times are a node's estimate of the store's clock, too coarse to order the two.
fn may_follow_another(evidence: &Evidence, exchange: &Exchange) -> bool {
    evidence.exchanges.iter().any(|other| {
        !std::ptr::eq(other, exchange)
            && other.conversation() == exchange.conversation()
            && (other.acknowledged().is_some() || other.answer.is_err())
            && other.sent_at < exchange.ended_at
            && exchange.sent_at < other.ended_at
    })
}

/// The time during which a call was open for an approval, or for another answer: at most until its
/// deadline, even when the expiry was written later.
fn open_interval(journal: &Journal, call: &str, approval: bool) -> Option<(Timestamp, Timestamp)> {
    let mut suspension = journal.about("suspension", call);
    let suspension = suspension.find(|event| (event["data"]["kind"] == "approval") == approval)?;
    let later = |event: &&Value| event["seq"].as_u64() > suspension["seq"].as_u64();
    let ends = |event: &&Value| {
        let kind = event["type"].as_str().unwrap_or_default();
        event["data"]["call_id"] == call && ["resolution", "tool_result"].contains(&kind)
    };
    let end = journal.0.iter().filter(later).find(ends)?;
    let time = |value: &Value| value.as_str()?.parse::<Timestamp>().ok();
    let (end, due) = (time(&end["at"])?, time(&suspension["data"]["expires_at"])?);
    Some((time(&suspension["at"])?, end.min(due)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::fixtures::{evidence, expect, second};

    #[test]
    fn answers_that_the_api_allows_keep_the_promise() {
        assert_eq!(check(&evidence()), [""; 0]);
    }

    #[test]
    fn an_internal_error_and_a_wrong_not_found_are_seen() {
        let mut evidence = evidence();
        evidence.exchanges[0].answer.as_mut().unwrap().status = 500;
        expect(check, &evidence, "no client may get this status");
        evidence.exchanges[0].answer.as_mut().unwrap().status = 202;
        let mut again = evidence.exchanges[3].clone();
        (again.sent_at, again.ended_at) = (second(50), second(51));
        again.answer.as_mut().unwrap().status = 404;
        evidence.exchanges.push(again);
        expect(check, &evidence, "the conversation exists");
        evidence.exchanges.last_mut().unwrap().sent_at = second(0);
        assert_eq!(check(&evidence), [""; 0], "nothing had been acknowledged yet");
    }

    #[test]
    fn another_answer_to_a_repeat_is_seen() {
        let mut evidence = evidence();
        let mut again = evidence.exchanges[0].clone();
        evidence.exchanges.push(again.clone());
        assert_eq!(check(&evidence), [""; 0]);
        again.answer.as_mut().unwrap().body["turn_id"] = json!("t9");
        evidence.exchanges.push(again);
        expect(check, &evidence, "and before");
    }

    #[test]
    fn an_open_call_that_is_reported_as_not_open_is_seen() {
        let mut evidence = evidence();
        let exchange = &mut evidence.exchanges[1];
        let answer = exchange.answer.as_mut().unwrap();
        (answer.status, answer.body) = (409, json!({"type": "/problems/call-not-open"}));
        // The call was open from second 6 to second 8.
        (exchange.sent_at, exchange.ended_at) = (second(6), second(9));
        assert_eq!(check(&evidence), [""; 0]);
        let half = jiff::SignedDuration::from_millis(500);
        (evidence.exchanges[1].sent_at, evidence.exchanges[1].ended_at) =
            (second(6) + half, second(7));
        expect(check, &evidence, "it was open from");
        // An answer of the same moment may have been first, by whatever clock the journal has.
        let mut other = evidence.exchanges[1].clone();
        other.answer.as_mut().unwrap().status = 200;
        other.ended_at = second(8);
        evidence.exchanges.push(other);
        assert_eq!(check(&evidence), [""; 0]);
        evidence.exchanges.last_mut().unwrap().ended_at = second(6);
        expect(check, &evidence, "it was open from");
        evidence.exchanges.pop();
        // After its deadline the call is not open, although no event says so yet.
        evidence.journal().0[5]["data"]["expires_at"] = json!((second(6) + half).to_string());
        assert_eq!(check(&evidence), [""; 0]);
    }
}
