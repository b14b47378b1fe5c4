//! Nothing of an erased subject is left in events and in what follows from them.

#![allow(clippy::unwrap_used)]

use serde_json::{Value, json};

use super::SubjectAlias;
use crate::{Event, State, from_json, replay};

fn alias() -> SubjectAlias {
    SubjectAlias { subject: "zora".to_owned(), alias: "erased:0f".to_owned() }
}

fn event(seq: u64, kind: &str, data: Value) -> Event {
    let json = json!({"seq": seq, "at": "2026-11-22T10:00:00.000Z", "turn_id": "turn_1",
        "type": kind, "data": data});
    from_json(json.to_string().as_bytes()).unwrap()
}

fn identity() -> Value {
    json!({"tenant": "acme", "iss": "https://login", "sub": "zora", "name": "Zora Neale",
        "roles": ["user"], "groups": ["counts"], "auth": "jwt",
        "on_behalf_of": {"iss": "https://login", "sub": "zora", "roles": []},
        "minted_by": {"iss": "abide", "sub": "zora"}})
}

fn verdict() -> Value {
    json!({"decision": "allow", "rule": "remembered", "phase": "default", "fingerprint": "f",
        "by": "zora", "approvals": [{"iss": "https://login", "sub": "zora",
            "at": "2026-11-22T10:00:00.000Z"}]})
}

/// Each event names the subject wherever an event of its type can.
#[test]
fn nothing_of_the_subject_is_left_where_events_name_people() {
    let message = json!({"id": "m", "role": "user", "content": []});
    let user_msg = json!({"message": message, "principal": "zora", "identity": identity()});
    let at = "2026-11-22T10:00:00.000Z";
    let ran = json!({"args": {}, "gate": verdict()});
    let mut voted = identity();
    voted["at"] = json!(at);
    for (kind, data) in [
        (
            "created",
            json!({"agent": "demo", "members": ["bob", "zora"], "parent": {
            "conversation_id": "c", "call_id": "k", "root_conversation_id": "c", "depth": 1,
            "ceiling": {"phase": "default"}, "requesters": [{"iss": "abide", "sub": "zora"}]}}),
        ),
        ("user_msg", user_msg.clone()),
        (
            "message_scheduled",
            json!({"scheduled_id": "s", "deliver_at": at, "turn": "t",
            "if_busy": "queue", "user_msg": user_msg}),
        ),
        (
            "voted",
            json!({"call_id": "k", "suspension": 1, "by": voted, "approved": true,
            "args_fingerprint": "f", "gate": verdict()}),
        ),
        (
            "resolution",
            json!({"call_id": "k", "kind": "approval", "suspension": 1, "by": "zora",
            "identity": identity(), "gate": verdict(),
            "approvals": [{"iss": "abide", "sub": "zora", "at": at}]}),
        ),
        ("tool_result", json!({"call_id": "k", "ok": true, "result": 1, "ran": ran})),
        (
            "dispatch_started",
            json!({"call_id": "k", "tool": "t", "input": {}, "principal": "zora",
            "identity": identity(), "revision": "r", "attempt": 1, "gate": verdict()}),
        ),
        (
            "dispatch",
            json!({"call_id": "k", "tool": "t", "input": {}, "principal": "zora",
            "result": {"ok": true, "result": 1}, "gate": verdict(), "ran": ran}),
        ),
        ("updated", json!({"members": ["zora"], "by": "zora", "identity": identity()})),
        ("operated", json!({"by": "zora", "identity": identity(), "verb": "kill"})),
        (
            "schedule_ended",
            json!({"scheduled_id": "s", "reason": "withdrawn", "by": "zora",
            "identity": identity()}),
        ),
        (
            "suspension_extended",
            json!({"call_id": "k", "suspension": 1, "expires_at": at,
            "by": "zora", "identity": identity()}),
        ),
        (
            "tool_leased",
            json!({"call_id": "k", "attempt": 1, "lease": "l", "worker": "zora", "until": at}),
        ),
        ("state_changed", json!({"changes": {}, "by": "zora", "identity": identity()})),
        ("turn_withdrawn", json!({"by": "zora", "identity": identity()})),
        ("steered", json!({"message": message, "principal": "zora", "identity": identity()})),
    ] {
        let mut event = event(1, kind, data);
        let text = serde_json::to_string(&event).unwrap();
        assert!(text.contains("\"zora\""), "{text}");
        assert!(alias().apply(&mut event.data), "{kind}");
        let text = serde_json::to_string(&event).unwrap();
        for secret in ["zora", "Zora", "counts"] {
            assert!(!text.contains(secret), "{text}");
        }
        assert!(!alias().apply(&mut event.data), "{kind}: a repeat changes nothing");
    }
}

#[test]
fn the_owner_and_what_people_wrote_stay() {
    let created = json!({"agent": "demo", "owner": "zora", "metadata": {"about": "zora"}});
    let mut event = event(1, "created", created);
    let before = event.clone();
    assert!(!alias().apply(&mut event.data));
    assert_eq!(event, before);
}

#[test]
fn the_state_that_follows_is_that_of_the_alias() {
    let message = json!({"id": "m", "role": "user", "content": []});
    let mut events = vec![
        event(1, "created", json!({"agent": "demo", "owner": "bob", "members": ["zora"]})),
        event(
            2,
            "user_msg",
            json!({"message": message, "principal": "zora",
            "identity": identity()}),
        ),
    ];
    let before = serde_json::to_string(&replay(State::default(), &events)).unwrap();
    assert!(before.contains("\"zora\""));
    for event in &mut events {
        assert!(alias().apply(&mut event.data));
    }
    let after = serde_json::to_string(&replay(State::default(), &events)).unwrap();
    assert!(!after.contains("zora") && after.contains("erased:0f"), "{after}");
}
