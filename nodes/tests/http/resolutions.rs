//! Several answers in one request, and what tells a user interface which answers fit.

use serde_json::{Value, json};

use crate::access::{GuardedApi, key_line};
use crate::api::Api;

const ANSWERS: &str = "/v1/conversations/c/resolutions";

/// An agent whose first message makes these calls; `mail` is gated, `who` asks a person, `page` a page.
fn agent(calls: Value) -> Value {
    let mail = json!({"name": "mail", "description": "Sends.", "approval": "requires_approval",
        "run": {"native": "demo_send_email"}});
    let who = json!({"name": "who", "description": "Asks.", "executor": "human",
        "parameters": {"type": "object"}, "result_schema": {"type": "string", "minLength": 2}});
    let page = json!({"name": "page", "description": "Shows.", "executor": "client",
        "approval": "requires_approval", "parameters": {"type": "object"},
        "result_schema": {"type": "integer"}});
    json!({"client_grace": null, "tools": [mail, who, page],
        "model": {"provider": "scripted", "script": [{"calls": calls}, {"text": "Done."}]}})
}

fn call(id: &str, tool: &str) -> Value {
    json!({"id": id, "name": tool, "args": {"to": "a@b.c"}})
}

/// The conversation `c`, which waits for answers to two mails and a person.
async fn waiting() -> Api {
    let api = Api::start().await;
    let calls = json!([call("m1", "mail"), call("m2", "mail"), call("w", "who")]);
    assert_eq!(api.put("/v1/agents/asker", agent(calls)).await.status, 201);
    let sent = json!({"agent": "asker", "text": "go"});
    assert_eq!(api.post("/v1/conversations/c/messages", sent).await.status, 202);
    let mut stream = api.stream("/v1/conversations/c/events?after=0").await;
    for _ in 0..3 {
        stream.until("suspended").await;
    }
    api
}

async fn journal(api: &Api) -> Vec<Value> {
    let read = api.get("/v1/conversations/c/journal?limit=1000").await;
    read.body["events"].as_array().unwrap().clone()
}

#[tokio::test]
async fn answers_stand_by_themselves() {
    let api = waiting().await;
    let answers = json!({"answers": [
        {"call_id": "m1", "approved": true, "suspension": 1},
        {"call_id": "w", "result": "x"},
        {"call_id": "nobody", "approved": true},
        {"call_id": "m2", "approved": false, "reason": "no"},
    ]});
    let done = api.keyed("k", "POST", ANSWERS, answers.clone()).await;
    assert_eq!(done.status, 200, "{done:?}");
    let results = done.body["results"].as_array().unwrap();
    let told = |result: &Value| {
        let call = result["call_id"].as_str().unwrap().to_owned();
        (call, result["status"].clone(), result["problem"]["type"].clone())
    };
    let told: Vec<_> = results.iter().map(told).collect();
    let problem = |name: &str| json!(format!("/problems/{name}"));
    assert_eq!(
        told,
        [
            ("m1".to_owned(), json!("accepted"), Value::Null),
            ("w".to_owned(), Value::Null, problem("invalid-request")),
            ("nobody".to_owned(), Value::Null, problem("call-not-open")),
            ("m2".to_owned(), json!("accepted"), Value::Null),
        ]
    );
    assert!(results[1]["problem"]["detail"].as_str().unwrap().starts_with("result: "));
    let kinds = ["resolution", "tool_started"];
    let events = journal(&api).await;
    let resolved: Vec<_> = events
        .iter()
        .filter(|event| kinds.contains(&event["type"].as_str().unwrap()))
        .map(|event| (event["type"].as_str().unwrap(), event["data"]["call_id"].as_str().unwrap()))
        .collect();
    assert_eq!(resolved, [("resolution", "m1"), ("tool_started", "m1"), ("resolution", "m2")]);
    let again = api.keyed("k", "POST", ANSWERS, answers).await;
    let without_instances = |mut body: Value| {
        for result in body["results"].as_array_mut().unwrap() {
            result["problem"]["instance"] = Value::Null;
        }
        body
    };
    assert_eq!(without_instances(again.body), without_instances(done.body.clone()));
    // The call whose answer did not fit is still open.
    let last = json!({"answers": [{"call_id": "w", "result": "Ada"}]});
    assert_eq!(api.post(ANSWERS, last).await.body["results"][0]["status"], "accepted");
    api.stream("/v1/conversations/c/events?after=0").await.until("turn_completed").await;
}

#[tokio::test]
async fn a_batch_that_cannot_be_read_changes_nothing() {
    let api = waiting().await;
    let before = journal(&api).await;
    let yes = |call: &str| json!({"call_id": call, "approved": true});
    let many: Vec<Value> = (0..101).map(|n| yes(&format!("c{n}"))).collect();
    for (body, field) in [
        (json!({}), "answers"),
        (json!({"answers": []}), "answers: must be 1 to 100"),
        (json!({"answers": many}), "answers: must be 1 to 100"),
        (json!({"answers": [7]}), "answers[0]"),
        (json!({"answers": [yes("m1")], "more": 1}), "more"),
        (json!({"answers": [{"approved": true}]}), "answers[0]: missing field `call_id`"),
        (json!({"answers": [{"call_id": 7, "approved": true}]}), "answers[0].call_id"),
        (json!({"answers": [yes("m1"), yes("m1")]}), "answers[1].call_id"),
        (json!({"answers": [yes("m1"), {"call_id": "w"}]}), "answers[1].approved"),
        (json!({"answers": [{"call_id": "m1", "approved": 1}]}), "answers[0].approved"),
        (json!({"answers": [{"call_id": "m1", "approved": true, "x": 1}]}), "answers[0]"),
        (
            json!({"answers": [{"call_id": "m1", "approved": true, "remember": {"for": "x"}}]}),
            "answers[0].remember.for",
        ),
    ] {
        api.post(ANSWERS, body).await.names(field);
    }
    assert_eq!(journal(&api).await, before);
    let unknown = json!({"answers": [yes("m1")]});
    let missing = api.post("/v1/conversations/nowhere/resolutions", unknown).await;
    missing.is_problem(404, "not-found");
}

#[tokio::test]
async fn each_answer_of_a_batch_is_judged_by_who_gives_it() {
    let keys = [("ada", "user"), ("author", "author"), ("approver", "approver")];
    let keys: Vec<Value> = keys.iter().map(|(id, role)| key_line(id, &[role])).collect();
    let guarded = GuardedApi::start(&json!({"keys": keys})).await;
    let mut agent = agent(json!([call("m1", "mail"), call("w", "who")]));
    agent["tools"][0]["approval"] = json!({"by": {"services": true}});
    assert_eq!(guarded.send("author", "PUT", "/v1/agents/asker", agent).await.status, 201);
    let sent = json!({"agent": "asker", "text": "go"});
    let waited = "/v1/conversations/c/messages?wait=30s";
    let waited = guarded.send("ada", "POST", waited, sent).await;
    assert_eq!((waited.status, &waited.body["outcome"]), (200, &json!("awaiting_input")));
    let may: Vec<_> =
        waited.body["pending"].as_array().unwrap().iter().map(|it| &it["may_answer"]).collect();
    assert_eq!(may, [&json!(false), &json!(true)], "{waited:?}");
    let both = json!({"answers": [{"call_id": "m1", "approved": true},
        {"call_id": "w", "result": "Ada"}]});
    let users = guarded.send("ada", "POST", ANSWERS, both.clone()).await.body["results"].clone();
    assert_eq!(users[0]["problem"]["type"], "/problems/approval-forbidden");
    assert_eq!(users[1]["status"], "accepted");
    // An approver may not read the conversation, and so learns nothing of what follows.
    let path = format!("{ANSWERS}?wait=30s");
    let approvers = guarded.send("approver", "POST", &path, both).await;
    assert_eq!(approvers.status, 200);
    assert_eq!(approvers.body.as_object().unwrap().keys().collect::<Vec<_>>(), ["results"]);
    let results = &approvers.body["results"];
    assert_eq!(results[0]["status"], "accepted");
    assert!(results[1]["problem"].is_object(), "{results}");
}

#[tokio::test]
async fn what_waits_says_which_answer_fits() {
    let api = Api::start().await;
    let calls = json!([call("m", "mail"), call("w", "who"), call("p", "page")]);
    assert_eq!(api.put("/v1/agents/asker", agent(calls)).await.status, 201);
    let sent = json!({"agent": "asker", "text": "go"});
    assert_eq!(api.post("/v1/conversations/c/messages", sent).await.status, 202);
    let mut stream = api.stream("/v1/conversations/c/events?after=0").await;
    let mut frames = Vec::new();
    for _ in 0..3 {
        frames.push(stream.until("suspended").await.data);
    }
    let approval = &frames[0]["answer_schema"];
    assert_eq!(approval["required"], json!(["approved"]));
    let parameters = &approval["properties"]["args"];
    assert_eq!(parameters["properties"]["to"], json!({"type": "string"}));
    assert_eq!(frames[1]["answer_schema"], json!({"type": "string", "minLength": 2}));
    assert_eq!(frames[2]["answer_schema"]["required"], json!(["approved"]));
    // A later revision of the agent changes nothing of what waits.
    let mut newer = agent(json!([]));
    newer["tools"][2]["result_schema"] = json!({"type": "boolean"});
    assert_eq!(api.put("/v1/agents/asker", newer).await.status, 200);
    let yes = json!({"answers": [{"call_id": "p", "approved": true}]});
    assert_eq!(api.post(ANSWERS, yes).await.status, 200);
    let answered = stream.until("answered").await.data;
    let expected = json!({"call_id": "p", "suspension": 1, "kind": "approval",
        "by": "anonymous", "approved": true});
    assert_eq!(answered, expected);
    let second = stream.until("suspended").await.data;
    assert_eq!(
        (&second["kind"], &second["answer_schema"]),
        (&json!("client_exec"), &json!({"type": "integer"}))
    );
    let snapshot = api.get("/v1/conversations/c").await.body;
    let pending = snapshot["pending"].as_array().unwrap();
    assert_eq!(pending[1]["answer_schema"], frames[1]["answer_schema"]);
    assert_eq!(pending[2]["answer_schema"], second["answer_schema"]);
    let inbox = api.get("/v1/pending?conversation=c&tool=page").await.body;
    assert_eq!(inbox["pending"][0]["answer_schema"], second["answer_schema"]);
}
