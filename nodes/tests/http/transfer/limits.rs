//! What no request may give, no import may bring.

use abide_conversation::Timestamp;
use jiff::SignedDuration;
use serde_json::{Value, json};

use super::damaged::Lines;
use super::{answer, export, import, waiting};
use crate::api::Api;

/// A conversation with metadata, a title and a state, and the lines of its export.
async fn annotated() -> (Api, Lines) {
    let (api, _) = waiting().await;
    assert_eq!(answer(&api, "c").await.body["outcome"], "completed");
    let stated = api.put("/v1/conversations/c/state/seats", json!([1])).await;
    assert!(stated.status < 300, "{stated:?}");
    let patch = json!({"metadata": {"n": 1}, "title": "T"});
    assert_eq!(api.patch("/v1/conversations/c", patch).await.status, 200);
    let lines = Lines(export(&api, "c").await);
    (api, lines)
}

fn in_days(days: i64) -> Value {
    let later = SignedDuration::from_hours(24 * days);
    json!(Timestamp::from(jiff::Timestamp::now()).checked_add(later).unwrap())
}

fn parent(of: &str, depth: u32) -> Value {
    json!({"conversation_id": of, "call_id": "k", "root_conversation_id": of, "depth": depth,
        "ceiling": {"phase": "trusted", "allowed_tools": [], "disallowed_tools": []}})
}

#[tokio::test]
async fn what_no_request_may_give_is_refused_with_its_line_and_member() {
    let (_here, whole) = annotated().await;
    let long = "x".repeat(70_000);
    let created = |name: &str, value: Value| {
        (whole.with_member("created", &format!("/data/{name}"), value), format!("data.{name}: "))
    };
    let updated = |name: &str, value: Value| {
        (whole.with_member("updated", &format!("/data/{name}"), value), format!("data.{name}: "))
    };
    let changes = |value: Value| {
        (whole.with_member("state_changed", "/data/changes", value), "data.changes: ".to_owned())
    };
    let in_parent = |of: &str, depth: u32, named: &str| {
        (whole.with_member("created", "/data/parent", parent(of, depth)), named.to_owned())
    };
    let there = Api::start().await;
    for (lines, named) in [
        created("owner", json!("")),
        created("owner", json!("system")),
        created("owner", json!("a\nb")),
        created("owner", json!("x".repeat(256))),
        created("members", json!(vec!["ann"; 101])),
        created("metadata", json!({"k": long})),
        created("assigns", json!({"k": long})),
        created("title", json!("x".repeat(201))),
        created("title", json!("a\u{0}b")),
        created("expires_at", in_days(3_700)),
        updated("members", json!(vec!["ann"; 101])),
        updated("metadata", json!({"k": long})),
        updated("title", json!("")),
        updated("expires_at", in_days(3_700)),
        changes(json!({"a/b": 1})),
        changes(json!({"k": long})),
        in_parent("c", 1, "data.parent.conversation_id: "),
        in_parent("a/b", 1, "data.parent.conversation_id: "),
        in_parent("boss", 0, "data.parent.depth: "),
        in_parent("boss", 6, "data.parent.depth: "),
        (
            whole.with_member("created", "/data/members", json!(["ann", ""])),
            "data.members[1]: ".to_owned(),
        ),
        (
            whole.with_member("turn_started", "/data/max_steps", json!(1_001)),
            "data.max_steps: ".to_owned(),
        ),
        (whole.with_member("turn_ended", "/at", in_days(1)), "at: lies in the future".to_owned()),
    ] {
        let changed = (1..lines.len()).find(|at| lines[*at] != whole.0[*at]).unwrap() + 1;
        for query in ["", "?keep_id=true"] {
            let refused = import(&there, query, &lines).await;
            let detail = refused.is_problem(422, "invalid-request").to_owned();
            let begin = format!("line {changed}: {named}");
            assert!(detail.starts_with(&begin), "{begin}: {detail}");
        }
    }
    assert_eq!(there.get("/v1/conversations").await.body["conversations"], json!([]));
}

#[tokio::test]
async fn what_is_at_its_limit_is_imported() {
    let (_here, whole) = annotated().await;
    let soon = SignedDuration::from_secs(30);
    let soon = Timestamp::from(jiff::Timestamp::now()).checked_add(soon).unwrap();
    let there = Api::start().await;
    for lines in [
        whole.with_member("created", "/data/owner", json!("x".repeat(255))),
        whole.with_member("created", "/data/owner", json!("erased:0123")),
        whole.with_member("created", "/data/members", json!(vec!["ann"; 100])),
        whole.with_member("created", "/data/title", json!("x".repeat(200))),
        whole.with_member("turn_started", "/data/max_steps", json!(1_000)),
        whole.with_member("created", "/data/expires_at", json!("1970-01-01T00:00:00Z")),
        whole.with_member("created", "/data/parent", parent("boss", 5)),
        // Two nodes, one of which is ahead.
        whole.with_member("turn_ended", "/at", json!(soon)),
        whole.with_member("turn_ended", "/at", json!("1970-01-01T00:00:00Z")),
        whole.0.clone(),
    ] {
        let imported = import(&there, "", &lines).await;
        assert_eq!(imported.status, 201, "{imported:?}");
    }
}
