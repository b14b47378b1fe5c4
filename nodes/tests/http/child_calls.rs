//! The questions of children, in the snapshot and on the stream of their root.

use serde_json::{Value, json};

use crate::api::Api;
use crate::stream::Stream;

/// Defines `boss`, who asks `kid`, who asks a person and a page.
async fn define(api: &Api) {
    let calls = |calls: Value| json!({"calls": calls});
    let boss = json!({
        "model": {"provider": "scripted", "script": [
            calls(json!([{"id": "a", "name": "ask", "args": {"prompt": "go"}}])),
            {"text": "{{ results.ask.result }}"},
        ]},
        "tools": [{"name": "ask", "run": {"agent": "kid"}}],
    });
    let tool = |name: &str, executor: &str| {
        json!({"name": name, "description": "Asks.", "executor": executor,
            "parameters": {"type": "object"}})
    };
    let kid = json!({
        "client_grace": "100ms",
        "model": {"provider": "scripted", "script": [
            calls(json!([{"id": "h", "name": "who", "args": {"n": 1}},
                {"id": "p", "name": "locate", "args": {}}])),
            {"text": "{{ results.locate.result }}"},
        ]},
        "tools": [tool("who", "human"), tool("locate", "client")],
    });
    assert_eq!(api.put("/v1/agents/kid", kid).await.status, 201);
    assert_eq!(api.put("/v1/agents/boss", boss).await.status, 201);
}

/// Begins a root whose child asks two questions. Returns the root's events.
async fn begin(api: &Api) -> Stream {
    let new = json!({"id": "r", "agent": "boss"});
    assert_eq!(api.post("/v1/conversations", new).await.status, 201);
    let stream = api.stream("/v1/conversations/r/events").await;
    assert_eq!(api.post("/v1/conversations/r/messages", json!({"text": "go"})).await.status, 202);
    stream
}

#[tokio::test]
async fn a_childs_questions_are_shown_and_answered_at_its_root() {
    let api = Api::start().await;
    define(&api).await;
    let new = json!({"id": "r", "agent": "boss"});
    assert_eq!(api.post("/v1/conversations", new).await.status, 201);
    let mut stream = api.stream("/v1/conversations/r/events").await;
    assert_eq!(stream.next().await.unwrap().data["child_pending"], json!([]));
    assert_eq!(api.post("/v1/conversations/r/messages", json!({"text": "go"})).await.status, 202);
    let asked = stream.until("child_suspended").await;
    let located = stream.until("child_suspended").await;
    assert_eq!((asked.id, located.id), (None, None));
    let kid = asked.data["conversation_id"].as_str().unwrap().to_owned();
    let named = |entry: &Value| {
        ["conversation_id", "agent", "root_conversation_id", "call_id", "kind", "suspension"]
            .map(|member| entry[member].clone())
    };
    let expected = |call: &str, kind: &str| {
        [json!(kid), json!("kid"), json!("r"), json!(call), json!(kind), json!(1)]
    };
    assert_eq!(named(&asked.data), expected("h", "elicitation"));
    assert_eq!(named(&located.data), expected("p", "client_exec"));

    // The snapshot, the inbox, and the first frame of another stream have the same entries.
    let snapshot = api.get("/v1/conversations/r").await.body;
    assert_eq!(snapshot["child_pending"], json!([asked.data, located.data]));
    assert_eq!((&snapshot["pending"], &snapshot["state"]), (&json!([]), &json!("executing_tools")));
    let mut inbox = api.get("/v1/pending?conversation=r").await.body;
    for entry in inbox["pending"].as_array_mut().unwrap() {
        let may_answer = entry.as_object_mut().unwrap().remove("may_answer");
        assert_eq!(may_answer, Some(json!(true)), "nobody is authenticated");
    }
    assert_eq!(inbox["pending"], snapshot["child_pending"]);
    let mut again = api.stream("/v1/conversations/r/events?after=1").await;
    let first = again.next().await.unwrap();
    assert_eq!(first.data["child_pending"], snapshot["child_pending"]);
    let own = api.get(&format!("/v1/conversations/{kid}")).await.body;
    assert_eq!((own["pending"].as_array().unwrap().len(), &own["child_pending"]), (2, &json!([])));

    for (call, answer) in [("h", "ada"), ("p", "here")] {
        let path = format!("/v1/conversations/{kid}/calls/{call}/resolution");
        assert_eq!(api.post(&path, json!({"result": answer})).await.status, 200);
        for stream in [&mut stream, &mut again] {
            let closed = stream.until("child_call_closed").await;
            let expected = json!({"conversation_id": kid, "call_id": call, "suspension": 1});
            assert_eq!((closed.data, closed.id), (expected, None));
        }
    }
    let rest = stream.all_until("turn_completed").await;
    assert!(rest.iter().all(|frame| !frame.event.starts_with("child_")), "{rest:?}");
    let end = api.get("/v1/conversations/r").await.body;
    assert_eq!((&end["child_pending"], &end["state"]), (&json!([]), &json!("idle")));
}

#[tokio::test]
async fn a_page_of_a_trees_questions_goes_on_after_the_last_one_whatever_was_answered() {
    let api = Api::start().await;
    define(&api).await;
    let mut stream = begin(&api).await;
    let asked = stream.until("child_suspended").await;
    stream.until("child_suspended").await;
    let page = "/v1/pending?conversation=r&limit=1";
    let first = api.get(page).await.body;
    assert_eq!(first["pending"][0]["call_id"], "h", "{first}");
    let kid = asked.data["conversation_id"].as_str().unwrap();
    let path = format!("/v1/conversations/{kid}/calls/h/resolution");
    assert_eq!(api.post(&path, json!({"result": "ada"})).await.status, 200);
    stream.until("child_call_closed").await;
    let cursor = first["cursor"].as_str().unwrap();
    let next = api.get(&format!("{page}&cursor={cursor}")).await.body;
    assert_eq!((&next["pending"][0]["call_id"], &next["cursor"]), (&json!("p"), &Value::Null));
    api.get(&format!("{page}&cursor=1")).await.names("cursor");
}

#[tokio::test]
async fn a_cancelled_root_shows_no_questions_of_its_child() {
    let api = Api::start().await;
    define(&api).await;
    let mut stream = begin(&api).await;
    stream.until("child_suspended").await;
    stream.until("child_suspended").await;
    let cancel = api.keyed("k", "POST", "/v1/conversations/r/cancel", Value::Null).await;
    assert_eq!(cancel.body, json!({"cancelled": true}));
    stream.until("child_call_closed").await;
    stream.until("child_call_closed").await;
    assert_eq!(api.get("/v1/conversations/r").await.body["child_pending"], json!([]));
}
