//! What happens later: scheduled messages, and suspensions that are reminded of and wait longer.

use serde_json::{Value, json};

use crate::access::{GuardedApi, key_line};
use crate::api::Api;

const MESSAGES: &str = "/v1/conversations/c/messages";
const SCHEDULED: &str = "/v1/conversations/c/scheduled";

fn later(delivery: Value) -> Value {
    let mut message = json!({"agent": "demo", "text": "later"});
    for (name, value) in delivery.as_object().unwrap() {
        message[name] = value.clone();
    }
    message
}

async fn events_of(api: &Api, kind: &str) -> Vec<Value> {
    let journal = api.get("/v1/conversations/c/journal?limit=1000").await.body;
    let events = journal["events"].as_array().unwrap().clone();
    events.into_iter().filter(|event| event["type"] == kind).collect()
}

#[tokio::test]
async fn a_scheduled_message_is_delivered_once_at_its_time() {
    let api = Api::start().await;
    let sent = api.keyed("k", "POST", MESSAGES, later(json!({"deliver_in": "700ms"}))).await;
    assert_eq!(sent.status, 202, "{sent:?}");
    assert_eq!(sent.body["conversation_id"], "c");
    let members: Vec<&String> = sent.body.as_object().unwrap().keys().collect();
    assert_eq!(members, ["conversation_id", "scheduled_id", "deliver_at"]);
    let again = api.keyed("k", "POST", MESSAGES, later(json!({"deliver_in": "700ms"}))).await;
    assert_eq!(again.body, sent.body, "a repeat schedules nothing");
    let waiting = api.get(SCHEDULED).await.body;
    assert_eq!(waiting["scheduled"].as_array().unwrap().len(), 1);
    assert_eq!(waiting["scheduled"][0]["scheduled_id"], sent.body["scheduled_id"]);
    assert_eq!(waiting["scheduled"][0]["if_busy"], "queue");
    assert_eq!(waiting["scheduled"][0]["message"]["content"][0]["text"], "later");
    let mut stream = api.stream("/v1/conversations/c/events?after=0").await;
    stream.until("turn_completed").await;
    let delivered = events_of(&api, "user_msg").await;
    assert_eq!(delivered.len(), 1);
    assert_eq!(delivered[0]["data"]["scheduled_id"], sent.body["scheduled_id"]);
    assert!(delivered[0]["at"].as_str() >= sent.body["deliver_at"].as_str());
    assert_eq!(api.get(SCHEDULED).await.body, json!({"scheduled": []}));
    let path = format!("{SCHEDULED}/{}", sent.body["scheduled_id"].as_str().unwrap());
    let late = api.delete(&path).await;
    assert_eq!((late.status, &late.body["type"]), (409, &json!("/problems/already-delivered")));
}

#[tokio::test]
async fn a_repeat_of_a_message_gets_the_first_answer_whether_or_not_it_has_a_time() {
    let api = Api::start().await;
    let named = |id: &str| json!({"agent": "demo", "text": "x", "message_id": id});
    let in_an_hour = |id: &str| {
        let mut message = named(id);
        message["deliver_in"] = json!("1h");
        message
    };
    let scheduled = api.post(MESSAGES, in_an_hour("s")).await;
    assert_eq!(scheduled.status, 202, "{scheduled:?}");
    for path in [MESSAGES.to_owned(), format!("{MESSAGES}?wait=1s")] {
        let again = api.post(&path, named("s")).await;
        assert_eq!((again.status, &again.body), (202, &scheduled.body));
    }
    let sent = api.post(MESSAGES, named("n")).await;
    assert_eq!(api.post(MESSAGES, in_an_hour("n")).await.body, sent.body);
    assert_eq!(events_of(&api, "user_msg").await.len(), 1);
    assert_eq!(events_of(&api, "message_scheduled").await.len(), 1);
}

#[tokio::test]
async fn a_message_for_a_time_that_has_passed_is_delivered_at_once() {
    let api = Api::start().await;
    let past = later(json!({"deliver_at": "2020-01-01T00:00:00Z"}));
    assert_eq!(api.post(MESSAGES, past).await.status, 202);
    let mut stream = api.stream("/v1/conversations/c/events?after=0").await;
    stream.until("turn_completed").await;
}

#[tokio::test]
async fn a_scheduled_message_can_be_withdrawn() {
    let api = Api::start().await;
    let sent = api.post(MESSAGES, later(json!({"deliver_in": "1h"}))).await;
    let path = format!("{SCHEDULED}/{}", sent.body["scheduled_id"].as_str().unwrap());
    assert_eq!(api.delete(&path).await.status, 204);
    assert_eq!(api.delete(&path).await.status, 404);
    assert_eq!(api.get(SCHEDULED).await.body, json!({"scheduled": []}));
    let ended = events_of(&api, "schedule_ended").await;
    assert_eq!(ended[0]["data"]["reason"], "withdrawn");
    assert_eq!(api.delete("/v1/conversations/nobody/scheduled/x").await.status, 404);
}

#[tokio::test]
async fn a_time_that_cannot_be_meant_is_refused_and_nothing_is_scheduled() {
    let api = Api::start().await;
    for (delivery, field) in [
        (json!({"deliver_in": "soon"}), "deliver_in"),
        (json!({"deliver_in": "0s"}), "deliver_in"),
        (json!({"deliver_in": "1h", "deliver_at": "2030-01-01T00:00:00Z"}), "deliver_in"),
        (json!({"deliver_at": "2130-01-01T00:00:00Z"}), "deliver_at"),
        (json!({"deliver_at": "tomorrow"}), "deliver_at"),
    ] {
        let refused = api.post(MESSAGES, later(delivery.clone())).await;
        assert_eq!(refused.status, 422, "{delivery}: {refused:?}");
        let detail = refused.body["detail"].as_str().unwrap();
        assert!(detail.starts_with(&format!("{field}: ")), "{delivery}: {detail}");
    }
    let waited = api.post(&format!("{MESSAGES}?wait=1s"), later(json!({"deliver_in": "1h"}))).await;
    assert_eq!(waited.status, 422);
    assert_eq!(api.get("/v1/conversations/c").await.status, 404);
}

#[tokio::test]
async fn the_scheduled_messages_of_a_conversation_have_a_bound_of_bytes() {
    let api = Api::start().await;
    let mut large = later(json!({"deliver_in": "1h"}));
    large["text"] = json!("x".repeat(600_000));
    assert_eq!(api.post(MESSAGES, large.clone()).await.status, 202);
    let refused = api.post(MESSAGES, large).await;
    assert_eq!(refused.status, 422);
    assert!(refused.body["detail"].as_str().unwrap().starts_with("content: "), "{refused:?}");
}

/// An agent that asks a person, with these members of the tool.
fn asking(tool: &Value) -> Value {
    let mut who = json!({"name": "who", "description": "Asks.", "executor": "human",
        "parameters": {"type": "object"}, "result_schema": {"type": "string"}});
    for (name, value) in tool.as_object().unwrap() {
        who[name] = value.clone();
    }
    json!({"tools": [who], "model": {"provider": "scripted",
        "script": [{"calls": [{"id": "w", "name": "who", "args": {}}]}, {"text": "Done."}]}})
}

async fn ask(api: &Api, tool: Value) {
    assert_eq!(api.put("/v1/agents/asker", asking(&tool)).await.status, 201);
    let sent = api.post(MESSAGES, json!({"agent": "asker", "text": "go"})).await;
    assert_eq!(sent.status, 202);
    api.stream("/v1/conversations/c/events?after=0").await.until("suspended").await;
}

#[tokio::test]
async fn a_suspension_is_told_to_expire_and_then_has_the_result_that_its_tool_says() {
    let api = Api::start().await;
    let tool =
        json!({"timeout": "1200ms", "remind": ["900ms", "1h"], "on_expiry": {"result": "any"}});
    ask(&api, tool).await;
    let mut stream = api.stream("/v1/conversations/c/events?after=0").await;
    let expiring = stream.until("suspension_expiring").await.data;
    assert_eq!((&expiring["call_id"], &expiring["suspension"]), (&json!("w"), &json!(1)));
    let resolved = stream.until("tool_call_resolved").await.data;
    assert_eq!(resolved["result"], json!({"ok": true, "result": "any"}));
    stream.until("turn_completed").await;
    assert_eq!(events_of(&api, "suspension_expiring").await.len(), 1);
}

#[tokio::test]
async fn a_call_waits_longer_when_it_is_extended_and_the_inbox_follows() {
    let api = Api::start().await;
    ask(&api, json!({"timeout": "1h"})).await;
    let before = api.get("/v1/pending").await.body["pending"][0].clone();
    let path = "/v1/conversations/c/calls/w/extend";
    let extended = api.keyed("k", "POST", path, json!({"for": "30m"})).await;
    assert_eq!(extended.status, 200, "{extended:?}");
    assert!(extended.body["expires_at"].as_str() > before["expires_at"].as_str());
    let again = api.keyed("k", "POST", path, json!({"for": "30m"})).await;
    assert_eq!(again.body, extended.body, "a repeat extends nothing");
    let inbox = api.get("/v1/pending").await.body;
    assert_eq!(inbox["pending"].as_array().unwrap().len(), 1, "{inbox}");
    assert_eq!(inbox["pending"][0]["expires_at"], extended.body["expires_at"]);
    let mut stream = api.stream("/v1/conversations/c/events?after=0").await;
    let told = stream.until("suspension_extended").await.data;
    assert_eq!(told["expires_at"], extended.body["expires_at"]);
    for (body, field) in [
        (json!({}), "for"),
        (json!({"for": "1h", "until": "2030-01-01T00:00:00Z"}), "for"),
        (json!({"for": "9000h"}), "for"),
        (json!({"for": "8760h"}), "for"),
        (json!({"until": "2020-01-01T00:00:00Z"}), "until"),
        (json!({"until": "2130-01-01T00:00:00Z"}), "until"),
    ] {
        let refused = api.post(path, body.clone()).await;
        assert_eq!(refused.status, 422, "{body}");
        let detail = refused.body["detail"].as_str().unwrap();
        assert!(detail.starts_with(&format!("{field}: ")), "{body}: {detail}");
    }
    let unknown = api.post("/v1/conversations/c/calls/x/extend", json!({"for": "1h"})).await;
    assert_eq!((unknown.status, &unknown.body["type"]), (409, &json!("/problems/call-not-open")));
}

#[tokio::test]
async fn rules_for_waiting_that_can_never_apply_are_refused() {
    let api = Api::start().await;
    for (tool, field) in [
        (json!({"remind": ["soon"]}), "remind[0]"),
        (json!({"on_expiry": "never"}), "on_expiry"),
        (json!({"on_expiry": "deny"}), "on_expiry"),
        (json!({"on_expiry": {"result": 7}}), "on_expiry.result"),
        (json!({"escalate": [{"after": "1m", "by": {}}]}), "escalate"),
        (json!({"escalate": [{"by": {}}]}), "escalate[0].after"),
    ] {
        let refused = api.put("/v1/agents/asker", asking(&tool)).await;
        assert_eq!(refused.status, 422, "{tool}");
        let body = refused.body.to_string();
        assert!(body.contains(field), "{tool}: {body}");
    }
}

#[tokio::test]
async fn an_escalation_shows_the_approval_to_others_and_lets_them_answer_it() {
    let keys = json!({"keys": [key_line("ann", &["user"]), key_line("boss", &["approver"]),
        key_line("root", &["approver"]), key_line("dev", &["author"])],
        "tenants": {"default": {}}});
    let guarded = GuardedApi::start(&keys).await;
    let tool = json!({"name": "mail", "description": "Sends.", "timeout": "1h",
        "approval": {"by": {"roles": ["tenant-admin"], "services": true}},
        "escalate": [{"after": "300ms", "by": {"roles": ["approver"]}}],
        "run": {"native": "demo_send_email"}});
    let agent = json!({"tools": [tool], "model": {"provider": "scripted", "script": [
        {"calls": [{"id": "m", "name": "mail", "args": {"to": "a@b.c"}}]}, {"text": "Done."}]}});
    assert_eq!(guarded.send("dev", "PUT", "/v1/agents/one", agent).await.status, 201);
    let sent = json!({"agent": "one", "text": "go"});
    assert_eq!(guarded.send("ann", "POST", MESSAGES, sent).await.status, 202);
    let deadline = tokio::time::Instant::now() + crate::api::DEADLINE;
    loop {
        let inbox = guarded.send("boss", "GET", "/v1/pending?mine=true", Value::Null).await;
        if !inbox.body["pending"].as_array().unwrap().is_empty() {
            let escalated = &inbox.body["pending"][0]["policy"]["escalated"];
            assert_eq!(*escalated, json!([{"roles": ["approver"]}]));
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "it does not escalate");
        tokio::task::yield_now().await;
    }
    let resolution = "/v1/conversations/c/calls/m/resolution";
    let approved = guarded.send("boss", "POST", resolution, json!({"approved": true})).await;
    assert_eq!(approved.status, 200, "{approved:?}");
}
