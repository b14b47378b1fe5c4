//! Calls over HTTP: resolve, deny, cancel, dispatch; the inbox.

use serde_json::{Value, json};

use crate::api::Api;

fn at(call: &Value) -> String {
    format!("/v1/conversations/a/calls/{}/resolution", call.as_str().unwrap())
}

#[tokio::test]
async fn an_approval_is_answered_once() {
    let api = Api::start().await;
    let open = api.say_until("a", "write a mail", "suspended").await;
    let snapshot = api.get("/v1/conversations/a").await.body;
    assert_eq!(snapshot["state"], "awaiting_input");
    let pending = &snapshot["pending"][0];
    assert_eq!((&pending["kind"], &pending["suspension"]), (&json!("approval"), &json!(1)));
    let path = at(&open["call_id"]);
    let yes = api.post(&path, json!({"approved": true, "suspension": 1})).await;
    assert_eq!((yes.status, &yes.body["status"]), (200, &json!("accepted")));
    assert!(yes.body["seq"].is_u64());
    api.post(&path, json!({"approved": true})).await.is_problem(409, "call-not-open");
    let mut stream = api.stream("/v1/conversations/a/events?after=0").await;
    let done = stream.until("tool_call_resolved").await;
    assert_eq!(done.data["result"]["ok"], true);
    stream.until("turn_completed").await;
}

#[tokio::test]
async fn an_answer_of_another_form_or_number_is_stale() {
    let api = Api::start().await;
    let open = api.say_until("a", "write a mail", "suspended").await;
    let path = at(&open["call_id"]);
    for body in [
        json!({"result": 1}),
        json!({"error": "no"}),
        json!({"approved": true, "suspension": 2}),
        json!({"approved": true, "suspension": 0}),
    ] {
        api.post(&path, body).await.is_problem(409, "call-not-open");
    }
    let unknown = api.post(&at(&json!("call%2Fx")), json!({"approved": true})).await;
    unknown.is_problem(409, "call-not-open");
}

#[tokio::test]
async fn a_wrong_field_of_a_resolution_is_named() {
    let api = Api::start().await;
    let open = api.say_until("a", "write a mail", "suspended").await;
    let path = at(&open["call_id"]);
    for (body, field) in [
        (json!({}), "approved"),
        (json!({"approved": null}), "approved"),
        (json!({"approved": "yes"}), "approved"),
        (json!({"approved": true, "result": 1}), "approved"),
        (json!({"approved": true, "result": null}), "approved"),
        (json!({"approved": false, "error": "x"}), "approved"),
        (json!({"error": ""}), "error: "),
        (json!({"error": " \n"}), "error: "),
        (json!({"result": 1, "error": "x"}), "approved"),
        (json!({"reason": "x"}), "approved"),
        (json!({"result": 1, "args": {}}), "approved"),
        (json!({"approved": false, "args": {}}), "args"),
        (json!({"approved": true, "args": {"to": 7}}), "args"),
        (json!({"approved": true, "args": []}), "args"),
        (json!({"approved": true, "suspension": -1}), "suspension"),
        (json!({"approved": true, "suspension": 1.5}), "suspension"),
        (json!({"approved": true, "suspension": 1_u32 << 31}), "suspension"),
        (json!({"approved": true, "surprise": 1}), "surprise"),
    ] {
        api.post(&path, body).await.names(field);
    }
    let edited = json!({"approved": true, "args": {"to": "c@d.e"}});
    assert_eq!(api.post(&path, edited).await.status, 200);
    let mut stream = api.stream("/v1/conversations/a/events?after=0").await;
    let done = stream.until("tool_call_resolved").await;
    assert_eq!(done.data["result"]["result"]["sent_to"], "c@d.e");
}

#[tokio::test]
async fn a_denied_call_ends_as_denied() {
    let api = Api::start().await;
    let open = api.say_until("a", "write a mail", "suspended").await;
    let no = json!({"approved": false, "reason": "not today"});
    assert_eq!(api.post(&at(&open["call_id"]), no).await.status, 200);
    let mut stream = api.stream("/v1/conversations/a/events?after=0").await;
    let done = stream.until("tool_call_errored").await.data;
    let expected = json!({"ok": false, "error": "denied by approver: not today",
        "error_type": "DENIED"});
    assert_eq!(done["result"], expected);
}

#[tokio::test]
async fn an_answer_that_breaks_its_schema_leaves_the_call_open() {
    let api = Api::start().await;
    let open = api.say_until("a", "choose a seat", "suspended").await;
    assert_eq!(open["kind"], "elicitation");
    let path = at(&open["call_id"]);
    api.post(&path, json!({"result": "roof"})).await.names("result");
    api.post(&path, json!({"result": null})).await.names("result");
    api.post(&path, json!({"approved": true})).await.is_problem(409, "call-not-open");
    let first = api.keyed("k", "POST", &path, json!({"result": "aisle"})).await;
    let again = api.keyed("k", "POST", &path, json!({"result": "aisle"})).await;
    assert_eq!((first.status, &first.body), (200, &again.body));
    api.keyed("k", "POST", &path, json!({"result": "window"})).await.names("Idempotency-Key");
}

#[tokio::test]
async fn null_is_an_answer_of_a_page() {
    let api = Api::start().await;
    let open = api.say_until("a", "where am I", "suspended").await;
    assert_eq!(open["kind"], "client_exec");
    assert_eq!(api.post(&at(&open["call_id"]), json!({"result": null})).await.status, 200);
    let mut stream = api.stream("/v1/conversations/a/events?after=0").await;
    let done = stream.until("tool_call_resolved").await.data;
    assert_eq!(done["result"], json!({"ok": true, "result": null}));
}

#[tokio::test]
async fn the_principal_of_an_answer_is_journalled() {
    let api = Api::start().await;
    let open = api.say_until("a", "write a mail", "suspended").await;
    let path = at(&open["call_id"]);
    let ask = |who: &str| {
        let request = api.request("POST", &path).header("Abide-Principal", who);
        api.send(request.json(&json!({"approved": true})))
    };
    ask("system").await.names("Abide-Principal");
    ask("").await.names("Abide-Principal");
    ask(&"x".repeat(256)).await.names("Abide-Principal");
    ask("a\tb").await.names("Abide-Principal");
    let twice = api.request("POST", &path).header("Abide-Principal", "a");
    let twice = twice.header("Abide-Principal", "b").json(&json!({"approved": true}));
    api.send(twice).await.names("Abide-Principal");
    assert_eq!(ask("ada").await.status, 200);
    let events = api.get("/v1/conversations/a/journal").await.body["events"].clone();
    let resolution = events.as_array().unwrap().iter().find(|event| event["type"] == "resolution");
    assert_eq!(resolution.unwrap()["data"]["by"], "ada");
}

#[tokio::test]
async fn the_inbox_shows_what_waits() {
    let api = Api::start().await;
    api.say_until("a", "write a mail", "suspended").await;
    api.say_until("b", "choose a seat", "suspended").await;
    let all = api.get("/v1/pending").await.body;
    assert_eq!(all["pending"].as_array().unwrap().len(), 2);
    for (query, conversation) in [
        ("kind=approval", "a"),
        ("kind=elicitation&agent=demo", "b"),
        ("tool=send_email", "a"),
        ("conversation=b", "b"),
    ] {
        let some = api.get(&format!("/v1/pending?{query}")).await.body;
        assert_eq!(some["pending"].as_array().unwrap().len(), 1, "{query}");
        assert_eq!(some["pending"][0]["conversation_id"], conversation);
        assert_eq!(some["pending"][0]["agent"], "demo");
    }
    let first = api.get("/v1/pending?limit=1").await.body;
    let cursor = first["cursor"].as_str().unwrap();
    let second = api.get(&format!("/v1/pending?limit=1&cursor={cursor}")).await.body;
    assert_ne!(first["pending"], second["pending"]);
    assert_eq!(second["pending"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_cancel_ends_the_turn_once() {
    let api = Api::start().await;
    api.say_until("a", "write a mail", "suspended").await;
    let cancel = |key| api.keyed(key, "POST", "/v1/conversations/a/cancel", Value::Null);
    assert_eq!(cancel("k").await.body, json!({"cancelled": true}));
    assert_eq!(cancel("k").await.body, json!({"cancelled": true}));
    assert_eq!(cancel("l").await.body, json!({"cancelled": false}));
    assert_eq!(api.get("/v1/conversations/a").await.body["state"], "idle");
}

#[tokio::test]
async fn a_user_calls_a_tool_without_the_model() {
    let api = Api::start().await;
    api.post("/v1/conversations", json!({"id": "a", "agent": "demo"})).await;
    let path = "/v1/conversations/a/dispatch";
    let input = json!({"to": "a@b.c"});
    let gated = api.post(path, json!({"tool": "send_email", "input": input})).await;
    gated.is_problem(409, "approval-required");
    let body = json!({"tool": "send_email", "input": input, "approved": true});
    let done = api.post(path, body).await;
    assert_eq!((done.status, &done.body["ok"]), (200, &json!(true)));
    assert_eq!(done.body["result"]["sent_to"], "a@b.c");
    for (body, field) in [
        (json!({"tool": "send_email", "approved": true}), "input"),
        (json!({"tool": "send_email", "approved": true, "input": {"to": 7}}), "input"),
        (json!({"tool": "send_email", "approved": true, "input": null}), "input"),
        (json!({"input": {}}), "tool"),
        (json!({"tool": "look_up"}), "`input`"),
        (json!({"tool": "send_email", "surprise": 1}), "surprise"),
    ] {
        api.post(path, body).await.names(field);
    }
    let dispatch = async |tool: &str| {
        api.post(path, json!({"tool": tool, "input": {}, "approved": true})).await
    };
    for tool in ["nothing", ""] {
        dispatch(tool).await.is_problem(404, "not-found");
    }
    for (tool, why) in [("choose_seat", "answered by a person"), ("locate", "run by a client")] {
        dispatch(tool).await.names(&format!("tool: {tool} is {why}"));
    }
}

#[tokio::test]
async fn media_of_an_answer_are_kept_whole_and_only_named_to_the_model() {
    let api = Api::start().await;
    let ask = json!({"name": "ask", "description": "Asks for a photo.", "executor": "human",
        "parameters": {"type": "object"}});
    let script = json!([{"calls": [{"name": "ask"}]}, {"text": "{{ results.ask }} {{ user }}"}]);
    let agent = json!({"model": {"provider": "scripted", "script": script}, "tools": [ask]});
    assert_eq!(api.put("/v1/agents/photos", agent).await.status, 201);
    let mut stream = {
        let message = json!({"text": "Ask.", "agent": "photos"});
        assert_eq!(api.post("/v1/conversations/a/messages", message).await.status, 202);
        api.stream("/v1/conversations/a/events?after=0").await
    };
    let suspended = stream.until("suspended").await;
    let photo = json!({"type": "image",
        "source": {"type": "base64", "mimeType": "image/png", "data": "AAEC"}});
    let call = suspended.data["call_id"].as_str().unwrap();
    let answer = json!({"result": [{"type": "text", "text": "Here."}, photo]});
    let answered = api.post(&format!("/v1/conversations/a/calls/{call}/resolution"), answer).await;
    assert_eq!(answered.status, 200);
    let resolved = stream.until("tool_call_resolved").await;
    assert_eq!(resolved.data["result"]["result"][1], photo);
    let block = stream.until("message_completed").await.data["message"]["content"][0].clone();
    let text = block["text"].as_str().unwrap();
    assert!(text.contains("[image/png, 3 B]") && !text.contains("AAEC"), "{text}");
    assert!(text.ends_with("Ask."), "{text}");
}
