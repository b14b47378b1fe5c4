//! Checks deletions: what was deleted is gone everywhere, stays gone, and leaves its id free.

use jiff::{SignedDuration, Timestamp};
use reqwest::Method;
use serde_json::Value;

use super::Evidence;
use crate::history::Exchange;

/// How long a request without a definite answer may still take effect: longer than the deadline of a
/// request in a node, and than a node is stopped.
const IN_DOUBT: SignedDuration = SignedDuration::from_secs(60);

/// After the 204, no node shows the conversation, its journal or its open calls; a new one of the same
/// id may be created, and has nothing of the old one. Until then the id has no journal.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let mut violations = Vec::new();
    for exchange in &evidence.exchanges {
        let is_deletion = exchange.method == Method::DELETE && exchange.acknowledged().is_some();
        if let Some(id) = exchange.conversation().filter(|_| is_deletion)
            && !may_be_recreated(evidence, id, exchange.ended_at)
        {
            let life = After { evidence, id, deleted_at: exchange.ended_at };
            violations
                .extend(life.violations().into_iter().map(|why| format!("deleted {id}: {why}")));
        }
    }
    violations
}

/// The time from a deletion to the creation of another conversation of the same id.
struct After<'a> {
    evidence: &'a Evidence,
    id: &'a str,
    deleted_at: Timestamp,
}

impl After<'_> {
    fn violations(&self) -> Vec<String> {
        let creation = self.creation();
        let until = creation.map_or(Timestamp::MAX, |creation| creation.sent_at);
        let during =
            |exchange: &&Exchange| self.deleted_at < exchange.sent_at && exchange.ended_at < until;
        let mut violations = Vec::new();
        let reads = self.evidence.about(self.id).filter(|it| it.method == Method::GET);
        for read in reads.filter(during).filter(|read| read.acknowledged().is_some()) {
            violations.push(format!("{} shows it at {}", read.node, read.path));
        }
        let inbox = format!("/v1/pending?conversation={}", self.id);
        let inboxes = self.evidence.exchanges.iter().filter(|it| it.path.starts_with(&inbox));
        for read in inboxes.filter(during) {
            let pending = read.acknowledged().and_then(|body| body["pending"].as_array());
            if pending.is_some_and(|pending| !pending.is_empty()) {
                violations.push(format!("{} shows its open calls", read.node));
            }
        }
        match creation {
            Some(creation) => violations.extend(self.leftovers(creation)),
            None if self.evidence.journals.contains_key(self.id) => {
                violations.push("it is there at the end".to_owned());
            }
            None => {}
        }
        violations
    }

    /// The first request after the deletion that creates the conversation again.
    fn creation(&self) -> Option<&Exchange> {
        let later = self.evidence.exchanges.iter().filter(|it| it.sent_at > self.deleted_at);
        later.filter(|it| creates(it, self.id)).min_by_key(|it| it.sent_at)
    }

    /// Whether the new conversation was refused, or has something of the old one.
    fn leftovers(&self, creation: &Exchange) -> Vec<String> {
        let mut violations = Vec::new();
        if creation.answer.as_ref().is_ok_and(|answer| answer.status == 409) {
            violations.push("its id is not free".to_owned());
        }
        let later = |at: Timestamp| at > creation.ended_at;
        let writes = self.evidence.about(self.id).filter(|it| it.method != Method::GET);
        let until = writes.map(|it| it.sent_at).filter(|at| later(*at)).min();
        let until = until.unwrap_or(Timestamp::MAX);
        let reads = self.evidence.reads.iter().filter(|read| read.conversation == self.id);
        for read in reads.filter(|read| later(read.sent_at) && read.ended_at < until) {
            if creation.acknowledged().is_some() && read.last_seq != 1 {
                violations.push(format!("the new one begins with {read}"));
            }
        }
        violations
    }
}

fn creates(exchange: &Exchange, id: &str) -> bool {
    let body = exchange.body.as_ref().unwrap_or(&Value::Null);
    let by_id = exchange.path == "/v1/conversations" && body["id"] == id;
    exchange.method == Method::POST
        && (by_id || exchange.conversation() == Some(id) && exchange.verb() == "messages")
}

/// Whether a request that may create it had no definite answer before the deletion: it may take
/// effect afterwards.
fn may_be_recreated(evidence: &Evidence, id: &str, deleted_at: Timestamp) -> bool {
    evidence.exchanges.iter().filter(|it| creates(it, id)).any(|exchange| {
        let is_unknown = exchange.answer.as_ref().map_or(true, |answer| answer.status == 503);
        is_unknown && exchange.sent_at < deleted_at && exchange.sent_at > deleted_at - IN_DOUBT
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::checks::fixtures::{evidence, expect, second};
    use crate::client::Answer;
    use crate::history::JournalRead;

    fn request(method: Method, path: &str, at: i64, status: u16, answer: Value) -> Exchange {
        Exchange {
            method,
            path: path.to_owned(),
            body: Some(json!({"id": "c"})),
            sent_at: second(at),
            ended_at: second(at),
            answer: Ok(Answer { status, body: answer }),
            ..evidence().exchanges[0].clone()
        }
    }

    /// `c` is deleted in second 20.
    fn after_deletion(later: Vec<Exchange>) -> Evidence {
        let mut evidence = evidence();
        evidence.journals.clear();
        let path = "/v1/conversations/c";
        evidence.exchanges.push(request(Method::DELETE, path, 20, 204, Value::Null));
        evidence.exchanges.extend(later);
        evidence
    }

    #[test]
    fn what_is_gone_and_created_anew_keeps_the_promise() {
        let mut evidence = after_deletion(vec![
            request(Method::GET, "/v1/conversations/c", 21, 404, Value::Null),
            request(Method::GET, "/v1/pending?conversation=c", 21, 200, json!({"pending": []})),
            request(Method::POST, "/v1/conversations", 22, 201, json!({"id": "c"})),
            request(Method::GET, "/v1/conversations/c", 23, 200, json!({})),
        ]);
        assert_eq!(check(&evidence), [""; 0]);
        evidence.exchanges.truncate(5);
        assert_eq!(check(&evidence), [""; 0]);
    }

    #[test]
    fn what_a_node_still_shows_is_seen() {
        let shown = request(Method::GET, "/v1/conversations/c", 21, 200, json!({}));
        expect(check, &after_deletion(vec![shown]), "node-1 shows it");
        let pending = json!({"pending": [{"call_id": "send"}]});
        let asked = request(Method::GET, "/v1/pending?conversation=c&limit=9", 21, 200, pending);
        expect(check, &after_deletion(vec![asked]), "shows its open calls");
    }

    #[test]
    fn a_conversation_that_came_back_is_seen_unless_a_request_was_in_doubt() {
        let mut evidence = after_deletion(vec![]);
        evidence.journals = super::super::fixtures::evidence().journals;
        expect(check, &evidence, "it is there at the end");
        evidence.exchanges[0].answer = Err("the connection broke".to_owned());
        assert_eq!(check(&evidence), [""; 0]);
    }

    #[test]
    fn an_id_that_is_not_free_is_seen() {
        let refused = request(Method::POST, "/v1/conversations", 22, 409, Value::Null);
        expect(check, &after_deletion(vec![refused]), "its id is not free");
    }

    #[test]
    fn events_of_the_old_conversation_in_the_new_one_are_seen() {
        let created = request(Method::POST, "/v1/conversations", 22, 201, json!({"id": "c"}));
        let mut evidence = after_deletion(vec![created]);
        let read = |last_seq| JournalRead {
            conversation: "c".to_owned(),
            node: "node-2".to_owned(),
            sent_at: second(23),
            ended_at: second(24),
            last_seq,
            events: None,
        };
        evidence.reads.push(read(1));
        evidence.journals = super::super::fixtures::evidence().journals;
        assert_eq!(check(&evidence), [""; 0]);
        evidence.reads.push(read(5));
        expect(check, &evidence, "the new one begins with");
    }
}
