//! Workers take calls from queues over HTTP, and HTTP tools call back.

use serde_json::{Value, json};

use crate::access::{GuardedApi, key_line};
use crate::api::{Api, ApiResponse};

/// An agent that calls each of these tools once in one step, with the tool's name as the call's id.
fn agent(tools: Vec<Value>) -> Value {
    let call = |tool: &Value| json!({"id": tool["name"], "name": tool["name"], "args": {"n": 1}});
    let calls: Vec<Value> = tools.iter().map(call).collect();
    let script = json!([{"calls": calls}, {"text": "Done."}]);
    json!({"model": {"provider": "scripted", "script": script}, "tools": tools,
        "assigns": {"shop": 7}})
}

/// A tool whose calls a worker of the queue `mail` takes.
fn worked(name: &str) -> Value {
    json!({"name": name, "description": name, "parameters": {"type": "object"},
        "run": {"queue": "mail"}, "timeout": "1h",
        "result_schema": {"type": "object", "required": ["sent"]}})
}

async fn with_call(tools: Vec<Value>) -> Api {
    let api = Api::start().await;
    assert_eq!(api.put("/v1/agents/mailer", agent(tools)).await.status, 201);
    say(&api, "c").await;
    api
}

async fn say(api: &Api, id: &str) {
    let path = format!("/v1/conversations/{id}/messages");
    assert_eq!(api.post(&path, json!({"agent": "mailer", "text": "go"})).await.status, 202);
}

async fn lease(api: &Api, body: Value) -> Vec<Value> {
    let leased = api.post("/v1/queues/mail/lease", body).await;
    assert_eq!(leased.status, 200, "{leased:?}");
    leased.body["work"].as_array().unwrap().clone()
}

async fn one(api: &Api) -> Value {
    let work = lease(api, json!({"worker": "w", "wait": "20s"})).await;
    assert_eq!(work.len(), 1, "{work:?}");
    work[0].clone()
}

async fn act(api: &Api, work: &Value, verb: &str, body: Value) -> ApiResponse {
    let lease = work["lease_id"].as_str().unwrap();
    api.post(&format!("/v1/leases/{lease}/{verb}"), body).await
}

async fn result(api: &Api, id: &str, call: &str) -> Value {
    let mut stream = api.stream(&format!("/v1/conversations/{id}/events?after=0")).await;
    stream.until("turn_completed").await;
    let journal = api.get(&format!("/v1/conversations/{id}/journal")).await.body;
    let events = journal["events"].as_array().unwrap().iter();
    let of_call =
        |event: &&Value| event["type"] == "tool_result" && event["data"]["call_id"] == call;
    let mut results = events.filter(of_call);
    let result = results.next().unwrap()["data"].clone();
    assert_eq!(results.next(), None, "one result");
    result
}

#[tokio::test]
async fn a_worker_takes_a_call_and_ends_it_with_its_one_result() {
    let api = with_call(vec![worked("send")]).await;
    let work = one(&api).await;
    assert_eq!(work["conversation_id"], "c");
    assert_eq!((&work["call_id"], &work["tool"]), (&json!("send"), &json!("send")));
    assert_eq!((&work["args"], &work["attempt"]), (&json!({"n": 1}), &json!(1)));
    assert_eq!((&work["assigns"], &work["principal"]), (&json!({"shop": 7}), &json!("anonymous")));
    assert!(work["idempotency_key"].as_str().unwrap().starts_with("c/send/"), "{work}");
    assert!(work["lease_until"].as_str() < work["deadline"].as_str(), "{work}");
    assert_eq!(lease(&api, json!({"wait": "0s"})).await, [] as [Value; 0], "nobody gets it twice");

    let extended = act(&api, &work, "extend", json!({"lease": "5m"})).await;
    assert!(extended.body["lease_until"].as_str() > work["lease_until"].as_str(), "{extended:?}");
    let mut stream = api.stream("/v1/conversations/c/events?after=0").await;
    stream.until("tool_call_started").await;
    assert_eq!(act(&api, &work, "progress", json!({"progress": {"of": 2}})).await.status, 204);
    let progress = stream.until("tool_progress").await.data;
    assert_eq!(progress["payload"], json!({"of": 2}), "{progress}");
    let snapshot = api.get("/v1/conversations/c").await.body;
    assert_eq!(snapshot["state"], "executing_tools");
    assert_eq!(snapshot["in_flight"][0]["progress"], json!({"of": 2}));

    let done = json!({"result": {"sent": true}, "ui": {"kind": "mail", "payload": 1}});
    let completed = act(&api, &work, "complete", done.clone()).await;
    assert_eq!(completed.status, 200, "{completed:?}");
    assert!(completed.body["seq"].is_u64());
    let data = result(&api, "c", "send").await;
    assert_eq!((&data["result"], &data["ui"]["kind"]), (&json!({"sent": true}), &json!("mail")));
    for (verb, body) in
        [("complete", done), ("extend", json!({})), ("progress", json!({"progress": 1}))]
    {
        act(&api, &work, verb, body).await.is_problem(409, "lease-lost");
    }
}

#[tokio::test]
async fn a_repeated_completion_with_its_key_gets_the_first_answer() {
    let api = with_call(vec![worked("send")]).await;
    let work = one(&api).await;
    let path = format!("/v1/leases/{}/complete", work["lease_id"].as_str().unwrap());
    let body = json!({"result": {"sent": 1}});
    let first = api.keyed("k", "POST", &path, body.clone()).await;
    let again = api.keyed("k", "POST", &path, body.clone()).await;
    assert_eq!((first.status, &first.body), (200, &again.body));
    api.keyed("other", "POST", &path, body).await.is_problem(409, "lease-lost");
}

#[tokio::test]
async fn a_result_that_does_not_fit_is_refused_and_the_worker_keeps_the_call() {
    let api = with_call(vec![worked("send")]).await;
    let work = one(&api).await;
    for (body, field) in [
        (json!({"result": {"lost": true}}), "result: "),
        (json!({"result": null}), "result: "),
        (json!({}), "result: or error"),
        (json!({"result": {"sent": 1}, "error": "x"}), "error: "),
        (json!({"result": {"sent": 1}, "color": 1}), "color"),
        (json!({"error": 7}), "error"),
        (json!({"result": {"sent": 1}, "ui": {"kind": 1}}), "ui"),
    ] {
        act(&api, &work, "complete", body).await.names(field);
    }
    let large = json!({"result": {"sent": "x".repeat(2 << 20)}});
    act(&api, &work, "complete", large).await.is_problem(413, "payload-too-large");
    for lease in ["0s", "2h", "1000d", "soon", "-1s"] {
        act(&api, &work, "extend", json!({"lease": lease})).await.names("lease");
    }
    let error = act(&api, &work, "complete", json!({"error": "no such address"})).await;
    assert_eq!(error.status, 200, "{error:?}");
    let data = result(&api, "c", "send").await;
    assert_eq!(
        (&data["error"], &data["error_type"]),
        (&json!("no such address"), &json!("TOOL_ERROR"))
    );
}

#[tokio::test]
async fn a_lease_that_runs_out_gives_the_call_to_another_worker() {
    let api = with_call(vec![worked("send")]).await;
    let taken = lease(&api, json!({"worker": "frozen", "wait": "20s", "lease": "1s"})).await;
    let work = one(&api).await;
    assert_eq!((&work["call_id"], &work["attempt"]), (&json!("send"), &json!(2)));
    assert_eq!(work["idempotency_key"], taken[0]["idempotency_key"]);
    let late = act(&api, &taken[0], "complete", json!({"result": {"sent": "late"}})).await;
    late.is_problem(409, "lease-lost");
    assert_eq!(act(&api, &work, "complete", json!({"result": {"sent": 2}})).await.status, 200);
    assert_eq!(result(&api, "c", "send").await["result"], json!({"sent": 2}));
}

#[tokio::test]
async fn a_worker_that_waits_is_given_a_call_at_once_and_only_those_of_its_tools() {
    let api = Api::start().await;
    let tools = vec![worked("send"), worked("draft")];
    assert_eq!(api.put("/v1/agents/mailer", agent(tools)).await.status, 201);
    let drafts = json!({"tools": ["draft"], "max": 5, "wait": "20s"});
    let (work, ()) = tokio::join!(lease(&api, drafts), say(&api, "c"));
    let tools: Vec<&Value> = work.iter().map(|work| &work["tool"]).collect();
    assert_eq!(tools, ["draft"]);
    assert_eq!(lease(&api, json!({"tools": ["other"], "wait": "0s"})).await, [] as [Value; 0]);
    assert_eq!(one(&api).await["tool"], "send");
}

#[tokio::test]
async fn a_worker_that_waits_at_a_node_that_stops_gets_an_empty_answer() {
    let api = with_call(vec![worked("send")]).await;
    let none = json!({"tools": ["other"], "worker": "w", "wait": "60s"});
    let waits = api.request("POST", "/v1/queues/mail/lease").json(&none).send();
    let waits = tokio::spawn(waits);
    let is_seen = async {
        let url = format!("http://{}/admin/queues", api.node.admin);
        loop {
            let queues: Value = reqwest::get(&url).await.unwrap().json().await.unwrap();
            if queues["queues"][0]["workers"][0]["name"] == "w" {
                return;
            }
        }
    };
    tokio::time::timeout(crate::api::DEADLINE, is_seen).await.unwrap();
    api.node.drain(crate::api::DEADLINE).await;
    api.node.stop().await;
    let answer = waits.await.unwrap().unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.json::<Value>().await.unwrap(), json!({"work": []}));
}

#[tokio::test]
async fn a_cancelled_turn_takes_its_calls_from_the_queue_and_from_workers() {
    let api = with_call(vec![worked("send"), worked("draft")]).await;
    let work = one(&api).await;
    assert_eq!(api.send(api.request("POST", "/v1/conversations/c/cancel")).await.status, 200);
    act(&api, &work, "complete", json!({"result": {"sent": 1}}))
        .await
        .is_problem(409, "lease-lost");
    assert_eq!(lease(&api, json!({"wait": "0s"})).await, [] as [Value; 0]);
    let second = with_call(vec![worked("send")]).await;
    let work = one(&second).await;
    assert_eq!(second.delete("/v1/conversations/c").await.status, 204);
    let gone = act(&second, &work, "complete", json!({"result": {"sent": 1}})).await;
    gone.is_problem(409, "lease-lost");
}

#[tokio::test]
async fn absurd_requests_of_workers_are_refused_by_field() {
    let api = Api::start().await;
    for (body, field) in [
        (json!({"max": 0}), "max"),
        (json!({"max": 101}), "max"),
        (json!({"max": -1}), "max"),
        (json!({"max": 1.5}), "max"),
        (json!({"wait": "61s"}), "wait"),
        (json!({"wait": "-1s"}), "wait"),
        (json!({"wait": 5}), "wait"),
        (json!({"lease": "0s"}), "lease"),
        (json!({"lease": "61m"}), "lease"),
        (json!({"worker": ""}), "worker"),
        (json!({"worker": "x".repeat(129)}), "worker"),
        (json!({"worker": "a\nb"}), "worker"),
        (json!({"tools": []}), "tools"),
        (json!({"tools": ["a b"]}), "tools[0]"),
        (json!({"tools": vec!["a"; 257]}), "tools"),
        (json!({"queue": "mail"}), "queue"),
    ] {
        api.post("/v1/queues/mail/lease", body).await.names(field);
    }
    let nobodys = api.post("/v1/queues/nobody-knows/lease", json!({"wait": "0s"})).await;
    assert_eq!((nobodys.status, &nobodys.body), (200, &json!({"work": []})));
    for queue in ["Mail", "a%20b", "-a"] {
        let path = format!("/v1/queues/{queue}/lease");
        api.post(&path, json!({"wait": "0s"})).await.is_problem(404, "not-found");
    }
    for lease in ["x", "YQpiCmM"] {
        let path = format!("/v1/leases/{lease}/complete");
        api.post(&path, json!({"result": 1})).await.is_problem(409, "lease-lost");
    }
    for wrong in [json!("Mail"), json!(""), json!("a b"), json!(7)] {
        let mut tool = worked("send");
        tool["run"]["queue"] = wrong;
        let refused = api.put("/v1/agents/mailer", agent(vec![tool])).await;
        assert_eq!(refused.status, 422, "{refused:?}");
    }
}

#[tokio::test]
async fn a_worker_of_another_tenant_or_queue_gets_nothing() {
    let mut worker = key_line("worker", &["worker"]);
    worker["queues"] = json!(["mail"]);
    let mut printer = key_line("printer", &["worker"]);
    printer["queues"] = json!(["print"]);
    let mut stranger = key_line("stranger", &["worker"]);
    stranger["queues"] = json!(["mail"]);
    stranger["tenant"] = json!("acme");
    let keys = json!([
        worker,
        printer,
        stranger,
        key_line("backend", &["backend"]),
        key_line("author", &["author"]),
        key_line("user", &["user"])
    ]);
    let document = json!({"keys": keys, "tenants": {"default": {}, "acme": {}}});
    let guarded = GuardedApi::start(&document).await;
    let put = guarded.send("author", "PUT", "/v1/agents/mailer", agent(vec![worked("send")])).await;
    assert_eq!(put.status, 201, "{put:?}");
    let message = json!({"agent": "mailer", "text": "go"});
    let said = guarded.send("user", "POST", "/v1/conversations/c/messages", message).await;
    assert_eq!(said.status, 202);
    let lease = async |who: &str, wait: &str| {
        guarded.send(who, "POST", "/v1/queues/mail/lease", json!({"wait": wait})).await
    };
    assert_eq!(lease("stranger", "0s").await.body, json!({"work": []}));
    lease("printer", "0s").await.is_problem(403, "forbidden");
    lease("user", "0s").await.is_problem(403, "forbidden");
    let leased = lease("worker", "20s").await;
    let work = leased.body["work"][0].clone();
    assert_eq!(work["principal"], "key:user", "{leased:?}");
    let path = format!("/v1/leases/{}/complete", work["lease_id"].as_str().unwrap());
    let body = json!({"result": {"sent": 1}});
    guarded.send("stranger", "POST", &path, body.clone()).await.is_problem(409, "lease-lost");
    guarded.send("worker", "GET", "/v1/agents", Value::Null).await.is_problem(403, "forbidden");
    assert_eq!(guarded.send("worker", "POST", &path, body).await.status, 200);
}

#[tokio::test]
async fn operators_see_queues_with_their_workers_and_why_a_call_waits() {
    let api = with_call(vec![worked("send"), worked("draft")]).await;
    let mut stream = api.stream("/v1/conversations/c/events?after=0").await;
    stream.until("tool_call_started").await;
    let admin = async |path: &str| -> Value {
        let url = format!("http://{}{path}", api.node.admin);
        reqwest::get(url).await.unwrap().json().await.unwrap()
    };
    let why = async || admin("/admin/actors/c").await["why"]["waits_for"].clone();
    let deadline = std::time::Instant::now() + crate::api::DEADLINE;
    while !why().await.as_str().unwrap().starts_with("a worker of queue mail") {
        assert!(std::time::Instant::now() < deadline, "{}", why().await);
    }
    assert!(why().await.as_str().unwrap().ends_with("; none was seen"), "{}", why().await);
    let none = json!({"tools": ["other"], "worker": "w2", "wait": "0s"});
    assert_eq!(lease(&api, none).await, [] as [Value; 0]);
    let work = lease(&api, json!({"tools": ["send"], "worker": "w1", "wait": "20s"})).await;
    let waits = why().await;
    assert!(waits.as_str().unwrap().contains("draft") || work[0]["tool"] == "send", "{waits}");
    let queues = admin("/admin/queues").await;
    let queue = &queues["queues"][0];
    assert_eq!((&queue["queue"], &queue["depth"]), (&json!("mail"), &json!(1)), "{queues}");
    assert_eq!(queue["tools"][0]["tool"], "draft");
    assert!(queue["oldest"].is_string() && queue["last_seen"].is_string(), "{queue}");
    let names: Vec<&Value> =
        queue["workers"].as_array().unwrap().iter().map(|worker| &worker["name"]).collect();
    assert_eq!(names, ["w1", "w2"]);
}
