//! Tests of what a live inbox knows.

#![allow(clippy::unwrap_used)]

use abide_actors::access::Access;
use abide_actors::child_calls::ClosedCall;
use abide_conversation::AgentName;
use abide_conversation::state::PendingCall;
use serde_json::{Value, json};

use super::*;

fn pending(call: &str, expires_at: i64) -> PendingCall {
    let expires_at = Timestamp::from_second(expires_at).unwrap();
    serde_json::from_value(json!({"call_id": call, "tool": "mail", "executor": "server",
        "kind": "approval", "args": {}, "message": "", "intent": "action", "suspension": 1,
        "suspended_at": "2026-11-26T06:00:00Z", "expires_at": expires_at}))
    .unwrap()
}

fn calls(seq: u64, pending: Vec<PendingCall>) -> ChildCalls {
    ChildCalls {
        conversation_id: ConversationId::new("c"),
        agent: AgentName::new("demo"),
        seq: Seq::new(seq),
        pending,
        participants: Default::default(),
        closed: Vec::new(),
        expiring: Vec::new(),
    }
}

/// The names of the frames, each with the call that it is about.
fn frames_of(
    known: &mut KnownInbox,
    calls: &ChildCalls,
    filter: &InboxFilter,
) -> Vec<(String, String)> {
    let caller = Answerer { access: Access::Unrestricted, at: Timestamp::UNIX_EPOCH };
    let frames = known.update(calls, filter, &caller);
    let named = |frame: &InboxFrame| {
        let json = serde_json::to_value(frame).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        (text(&json["event"]), text(&json["data"]["call_id"]))
    };
    frames.iter().map(named).collect()
}

fn update(known: &mut KnownInbox, calls: &ChildCalls) -> Vec<(String, String)> {
    frames_of(known, calls, &InboxFilter::default())
}

fn names(frames: &[(&str, &str)]) -> Vec<(String, String)> {
    frames.iter().map(|(name, call)| ((*name).to_owned(), (*call).to_owned())).collect()
}

#[test]
fn what_opens_changes_and_closes_is_told_once() {
    let mut known = KnownInbox::default();
    let opened = calls(3, vec![pending("a", 60), pending("b", 60)]);
    assert_eq!(update(&mut known, &opened), names(&[("opened", "a"), ("opened", "b")]));
    assert_eq!(update(&mut known, &opened), [], "it was told");
    let mut extended = calls(4, vec![pending("a", 90), pending("b", 60)]);
    extended.expiring = vec![(CallId::new("b"), 1)];
    assert_eq!(update(&mut known, &extended), names(&[("opened", "a"), ("expiring", "b")]));
    assert_eq!(update(&mut known, &opened), [], "it is older");
    assert_eq!(update(&mut known, &calls(5, vec![pending("b", 60)])), names(&[("closed", "a")]));
    assert_eq!(known.count, 1);
}

#[test]
fn a_vote_is_told_as_such_and_a_close_says_who_answered() {
    let mut known = KnownInbox::default();
    update(&mut known, &calls(3, vec![pending("a", 60)]));
    let mut voted = pending("a", 60);
    voted.votes = serde_json::from_value(json!([{"by": "ann", "iss": "abide", "approved": true,
        "at": "2026-11-26T06:00:00Z"}]))
    .unwrap();
    assert_eq!(update(&mut known, &calls(4, vec![voted])), names(&[("voted", "a")]));
    let by = Some(Principal::new("ann"));
    let closed = vec![ClosedCall { call_id: CallId::new("a"), suspension: 1, by }];
    let closed = ChildCalls { closed, ..calls(5, Vec::new()) };
    let caller = Answerer { access: Access::Unrestricted, at: Timestamp::UNIX_EPOCH };
    let frames = known.update(&closed, &InboxFilter::default(), &caller);
    assert_eq!(
        serde_json::to_value(&frames[0]).unwrap(),
        json!({"event": "closed", "data":
            {"conversation_id": "c", "call_id": "a", "suspension": 1, "by": "ann"}})
    );
}

#[test]
fn what_the_filter_does_not_admit_is_not_told_and_what_it_admits_no_more_closes() {
    let mut known = KnownInbox::default();
    let filter = InboxFilter { tool: Some("other".to_owned()), ..InboxFilter::default() };
    assert_eq!(frames_of(&mut known, &calls(3, vec![pending("a", 60)]), &filter), []);
    let mut other = pending("a", 60);
    other.tool = "other".to_owned();
    let admitted = calls(4, vec![other]);
    assert_eq!(frames_of(&mut known, &admitted, &filter), names(&[("opened", "a")]));
    let back = calls(5, vec![pending("a", 60)]);
    assert_eq!(frames_of(&mut known, &back, &filter), names(&[("closed", "a")]));
}

#[test]
fn the_number_of_known_entries_is_bounded() {
    let mut known = KnownInbox::default();
    let many: Vec<_> = (0..MAX_KNOWN_ENTRIES + 5).map(|n| pending(&n.to_string(), 60)).collect();
    assert_eq!(update(&mut known, &calls(3, many)).len(), MAX_KNOWN_ENTRIES);
    assert_eq!(update(&mut known, &calls(4, Vec::new())).len(), MAX_KNOWN_ENTRIES);
    assert_eq!(known.count, 0);
}

#[test]
fn an_inbox_that_differs_from_what_was_told_is_noticed() {
    let mut known = KnownInbox::default();
    let shown = calls(3, vec![pending("a", 60), pending("b", 90)]);
    let entries: Vec<InboxEntry> = shown.entries().collect();
    known.replace(&entries, false);
    assert!(known.agrees(&entries, false));
    assert!(!known.agrees(&entries[..1], false), "one has closed");
    assert!(known.agrees(&entries[..1], true), "only the first was read");
    assert!(!known.agrees(&entries[1..], true), "the first has closed");
    let extended: Vec<InboxEntry> =
        calls(4, vec![pending("a", 70), pending("b", 90)]).entries().collect();
    assert!(!known.agrees(&extended, false));
}
