//! `?wait`: requests that hold on until their turn has ended or rests.

use serde_json::{Value, json};

use crate::api::Api;

const MESSAGES: &str = "/v1/conversations/c/messages";

/// An agent that does these steps in each turn; `mail` is gated, `slow` takes a second.
async fn define(api: &Api, steps: Value) {
    let mail = json!({"name": "mail", "description": "Sends.", "approval": "requires_approval",
        "run": {"native": "demo_send_email"}});
    let slow = json!({"name": "slow", "description": "Looks up.",
        "run": {"native": "demo_look_up"}});
    let agent = json!({"tools": [mail, slow],
        "model": {"provider": "scripted", "script": steps}});
    assert_eq!(api.put("/v1/agents/one", agent).await.status, 201);
}

fn calls(calls: &[(&str, &str)]) -> Value {
    let call = |(id, tool): &(&str, &str)| json!({"id": id, "name": tool, "args": {"to": "a@b.c", "query": "q"}});
    json!({"calls": calls.iter().map(call).collect::<Vec<_>>()})
}

fn hello() -> Value {
    json!({"agent": "one", "text": "hi"})
}

#[tokio::test]
async fn a_message_waits_until_its_turn_has_ended_or_rests() {
    let api = Api::start().await;
    define(
        &api,
        json!([calls(&[("m", "mail"), ("s", "slow")]),
        {"text": "Done.", "usage": {"input_tokens": 7, "output_tokens": 3}}]),
    )
    .await;
    let path = format!("{MESSAGES}?wait=30s");
    let rests = api.keyed("k", "POST", &path, hello()).await;
    assert_eq!((rests.status, &rests.body["outcome"]), (200, &json!("awaiting_input")));
    // It rests only when the tool that needs no approval is done.
    let journal = api.get("/v1/conversations/c/journal").await.body;
    let is_done = |event: &Value| event["type"] == "tool_result" && event["data"]["call_id"] == "s";
    assert!(journal["events"].as_array().unwrap().iter().any(is_done), "{journal}");
    assert_eq!(rests.body["pending"][0]["call_id"], "m");
    assert_eq!(rests.body["pending"][0]["may_answer"], true);
    assert_eq!(rests.body["message"]["tool_calls"][0]["id"], "m");
    assert_eq!(rests.body["seq"], 2);
    let approve = "/v1/conversations/c/calls/m/resolution?wait=30s";
    let done = api.post(approve, json!({"approved": true})).await;
    assert_eq!((done.status, &done.body["status"]), (200, &json!("accepted")));
    assert_eq!(done.body["outcome"], "completed");
    assert_eq!(done.body["message"]["content"][0]["text"], "Done.");
    assert_eq!(done.body["usage"]["output_tokens"], 3);
    assert_eq!(done.body["turn_id"], rests.body["turn_id"]);
    assert!(done.body.get("pending").is_none());
    // A repeat waits again, and tells the same turn, also when later ones have run.
    let later = api.post(&path, json!({"text": "again"})).await;
    assert_ne!(later.body["turn_id"], rests.body["turn_id"]);
    let again = api.keyed("k", "POST", &path, hello()).await;
    assert_eq!((again.status, &again.body["outcome"]), (200, &json!("completed")));
    for member in ["turn_id", "seq", "conversation_id"] {
        assert_eq!(again.body[member], rests.body[member], "{member}");
    }
    assert_eq!(again.body["message"], done.body["message"]);
}

#[tokio::test]
async fn when_the_time_is_over_the_answer_is_the_one_without_a_wait() {
    let api = Api::start().await;
    define(&api, json!([calls(&[("m", "mail"), ("s", "slow")]), {"text": "Done."}])).await;
    let sent = api.post(&format!("{MESSAGES}?wait=1ms"), hello()).await;
    assert_eq!(sent.status, 202, "{sent:?}");
    assert!(sent.body.get("outcome").is_none());
    let mut stream = api.stream("/v1/conversations/c/events?after=0").await;
    stream.until("suspended").await;
    let approve = "/v1/conversations/c/calls/m/resolution?wait=1ms";
    let resolved = api.post(approve, json!({"approved": true})).await;
    assert_eq!((resolved.status, &resolved.body["status"]), (200, &json!("accepted")));
    assert!(resolved.body.get("outcome").is_none());
    stream.until("turn_completed").await;
}

#[tokio::test]
async fn a_queued_message_waits_for_its_own_turn() {
    let api = Api::start().await;
    define(
        &api,
        json!([{"when": "first", "steps": [calls(&[("s", "slow")]), {"text": "One."}]},
        {"when": "second", "steps": [{"text": "Two."}]}]),
    )
    .await;
    let first = json!({"agent": "one", "text": "first"});
    let first = api.post(MESSAGES, first).await;
    assert_eq!(first.status, 202);
    let second = json!({"text": "second", "if_busy": "queue"});
    let second = api.post(&format!("{MESSAGES}?wait=30s"), second).await;
    assert_eq!((second.status, &second.body["outcome"]), (200, &json!("completed")));
    assert_ne!(second.body["turn_id"], first.body["turn_id"]);
    assert_eq!(second.body["message"]["content"][0]["text"], "Two.");
}

#[tokio::test]
async fn a_turn_that_does_not_complete_says_how_it_ended_and_why() {
    let api = Api::start().await;
    define(
        &api,
        json!([{"when": "fail", "steps": [{"error": {"message": "broken"}}]},
        {"steps": [calls(&[("s", "slow")])]}]),
    )
    .await;
    let path = format!("{MESSAGES}?wait=30s");
    let failed = api.post(&path, json!({"agent": "one", "text": "fail"})).await;
    assert_eq!((failed.status, &failed.body["outcome"]), (200, &json!("failed")));
    assert!(failed.body["reason"].as_str().unwrap().contains("broken"), "{failed:?}");
    let waiting = api.post(&path, json!({"text": "go"}));
    let cancel = async {
        let mut stream = api.stream("/v1/conversations/c/events?after=0").await;
        stream.until("tool_call_started").await;
        api.keyed("k", "POST", "/v1/conversations/c/cancel", Value::Null).await
    };
    let (cancelled, _) = tokio::join!(waiting, cancel);
    assert_eq!((cancelled.status, &cancelled.body["outcome"]), (200, &json!("cancelled")));
}

#[tokio::test]
async fn a_wait_that_is_no_duration_of_at_most_ten_minutes_changes_nothing() {
    let api = Api::start().await;
    define(&api, json!([{"text": "Done."}])).await;
    for wrong in ["0", "0s", "11m", "soon", "", "-1s", "30"] {
        api.post(&format!("{MESSAGES}?wait={wrong}"), hello()).await.names("wait");
        let path = format!("/v1/conversations/c/resolutions?wait={wrong}");
        let answer = json!({"answers": [{"call_id": "c", "approved": true}]});
        api.post(&path, answer).await.names("wait");
        let path = format!("/v1/conversations/c/calls/c/resolution?wait={wrong}");
        api.post(&path, json!({"approved": true})).await.names("wait");
    }
    api.get("/v1/conversations/c").await.is_problem(404, "not-found");
}

#[tokio::test]
async fn a_turn_whose_child_rests_rests_too() {
    let api = Api::start().await;
    define(&api, json!([calls(&[("m", "mail"), ("s", "slow")]), {"text": "Kid done."}])).await;
    let boss = json!({"tools": [{"name": "ask", "run": {"agent": "one"}}],
        "model": {"provider": "scripted", "script": [
            {"calls": [{"id": "a", "name": "ask", "args": {"prompt": "go"}}]},
            {"text": "{{ results.ask.result }}"}]}});
    assert_eq!(api.put("/v1/agents/boss", boss).await.status, 201);
    let path = format!("{MESSAGES}?wait=30s");
    let rests = api.post(&path, json!({"agent": "boss", "text": "go"})).await;
    assert_eq!((rests.status, &rests.body["outcome"]), (200, &json!("awaiting_input")));
    let entry = &rests.body["pending"][0];
    assert_eq!((&entry["call_id"], &entry["root_conversation_id"]), (&json!("m"), &json!("c")));
    let kid = entry["conversation_id"].as_str().unwrap();
    let slow = api.get(&format!("/v1/conversations/{kid}")).await.body;
    assert_eq!(slow["in_flight"], json!([]), "the child's other tool is done");
    let approve = format!("/v1/conversations/{kid}/calls/m/resolution");
    assert_eq!(api.post(&approve, json!({"approved": true})).await.status, 200);
    let mut stream = api.stream("/v1/conversations/c/events?after=0").await;
    stream.until("turn_completed").await;
}

#[tokio::test]
async fn a_turn_rests_whose_child_waits_for_its_permission() {
    let api = Api::start().await;
    define(&api, json!([{"text": "Kid done."}])).await;
    let ask = json!({"name": "ask", "run": {"agent": "one"}, "approval": "requires_approval"});
    let call = json!({"id": "a", "name": "ask", "args": {"prompt": "go"}});
    let boss = json!({"tools": [ask],
        "model": {"provider": "scripted", "script": [{"calls": [call]}, {"text": "Done."}]}});
    assert_eq!(api.put("/v1/agents/boss", boss).await.status, 201);
    let path = format!("{MESSAGES}?wait=30s");
    let rests = api.post(&path, json!({"agent": "boss", "text": "go"})).await;
    assert_eq!((rests.status, &rests.body["outcome"]), (200, &json!("awaiting_input")));
    assert_eq!(rests.body["pending"][0]["call_id"], "a");
}
