//! Calls of MCP clients that take tasks for results.

use serde_json::{Value, json};

use crate::access::{GuardedApi, key, key_line};
use crate::api::{Api, DEADLINE};
use crate::mcp::{BEFORE, McpClient, accept, mail, text};

/// A client that takes tasks, and whose person cannot be asked.
fn client(api: &Api) -> McpClient<'_> {
    McpClient { tasks: true, asks: false, ..McpClient::new(api) }
}

async fn get(client: &McpClient<'_>, task: &Value) -> Value {
    let answer = client.ask("tasks/get", json!({"taskId": task})).await;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer:#}");
    answer["result"].clone()
}

/// The task, once it has this status.
async fn wait_for(client: &McpClient<'_>, task: &Value, status: &str) -> Value {
    let reached = async {
        loop {
            let task = get(client, task).await;
            if task["status"] == status {
                return task;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, reached).await.unwrap_or_else(|_| panic!("no {status}"))
}

#[tokio::test]
async fn a_call_that_waits_for_others_is_a_task_until_they_have_answered() {
    let api = Api::start().await;
    let client = client(&api);
    let (tool, arguments) = mail();
    let created = client.call(tool, arguments).await;
    assert_eq!((&created["resultType"], &created["status"]), (&json!("task"), &json!("working")));
    let task = get(&client, &created["taskId"]).await;
    assert_eq!((&task["status"], &task["ttlMs"]), (&json!("working"), &Value::Null));
    let waits = task["statusMessage"].as_str().unwrap();
    assert!(waits.starts_with("Waits for an approval:"), "{task:#}");
    let path = "/v1/conversations/c/calls/call_1_1/resolution";
    assert_eq!(api.post(path, json!({"approved": true})).await.status, 200);
    let done = wait_for(&client, &created["taskId"], "completed").await;
    assert!(text(&done["result"]).starts_with("The tool said"), "{done:#}");
    assert_eq!(done["result"]["structuredContent"]["conversation_id"], "c");
    assert_eq!(done["createdAt"], created["createdAt"]);
    // What is over stays over.
    let cancelled = client.ask("tasks/cancel", json!({"taskId": created["taskId"]})).await;
    assert!(cancelled["error"].is_null(), "{cancelled:#}");
    assert_eq!(get(&client, &created["taskId"]).await, done);
}

#[tokio::test]
async fn the_person_behind_a_client_is_asked_by_its_task() {
    let api = Api::start().await;
    let (tool, arguments) = mail();
    let created = client(&api).call(tool, arguments).await;
    let client = McpClient { asks: true, ..client(&api) };
    let task = get(&client, &created["taskId"]).await;
    assert_eq!(task["status"], "input_required", "{task:#}");
    let schema = &task["inputRequests"]["call_1_1/1"]["params"]["requestedSchema"];
    assert_eq!(schema["required"], json!(["approved"]), "{task:#}");
    let update = async |responses: Value| {
        let params = json!({"taskId": created["taskId"], "inputResponses": responses});
        client.ask("tasks/update", params).await
    };
    for (responses, field) in [
        (json!({"nobody": accept(json!({}))}), "inputResponses.nobody"),
        (json!({"call_1_1/1": accept(json!({}))}), "inputResponses.call_1_1/1.content.approved"),
    ] {
        let refused = update(responses).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused:#}");
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.starts_with(field), "{message}");
    }
    assert_eq!(get(&client, &created["taskId"]).await["status"], "input_required");
    let yes = json!({"call_1_1/1": accept(json!({"approved": true}))});
    let taken = update(yes.clone()).await;
    assert!(taken["error"].is_null(), "{taken:#}");
    let done = wait_for(&client, &created["taskId"], "completed").await;
    assert!(text(&done["result"]).starts_with("The tool said"), "{done:#}");
    let late = update(yes).await;
    assert!(late["error"].is_null(), "a late answer is no error: {late:#}");
}

#[tokio::test]
async fn a_call_that_takes_long_goes_on_as_a_task_that_can_be_cancelled() {
    let api = Api::start().await;
    let script = json!([{"text": "late", "delay": "60s"}]);
    let agent = json!({"model": {"provider": "scripted", "script": script}});
    assert_eq!(api.put("/v1/agents/slow", agent).await.status, 201);
    let client = client(&api);
    let created = client.call("slow", json!({"message": "go", "conversation_id": "c"})).await;
    assert_eq!(created["resultType"], "task", "{created:#}");
    assert_eq!(get(&client, &created["taskId"]).await["status"], "working");
    let taken = client.ask("tasks/cancel", json!({"taskId": created["taskId"]})).await;
    assert!(taken["error"].is_null(), "{taken:#}");
    wait_for(&client, &created["taskId"], "cancelled").await;
    let ended = api.get("/v1/conversations/c").await.body;
    assert_eq!(ended["state"], "idle", "{ended:#}");
}

#[tokio::test]
async fn a_client_of_an_older_version_gets_no_task_whatever_it_declares() {
    let api = Api::start().await;
    let old = McpClient { version: BEFORE, ..client(&api) };
    let (tool, arguments) = mail();
    let declared = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    let call = json!({"name": tool, "arguments": arguments,
        "_meta": {"io.modelcontextprotocol/clientCapabilities": declared}});
    let told = old.ask("tools/call", call).await;
    let place = &told["result"]["structuredContent"];
    assert_eq!((&place["status"], &told["result"]["taskId"]), (&json!("waiting"), &Value::Null));
}

#[tokio::test]
async fn a_task_is_for_those_who_may_read_its_conversation() {
    let keys = json!([
        key_line("ada", &["user"]),
        key_line("eve", &["user"]),
        key_line("author", &["author"])
    ]);
    let guarded = GuardedApi::start(&json!({"keys": keys})).await;
    let other = json!({"model": {"provider": "scripted", "script": [{"text": "hi"}]}});
    let put =
        guarded.api.request("PUT", "/v1/agents/other").bearer_auth(key("author")).json(&other);
    assert_eq!(put.send().await.unwrap().status(), 201);
    let ada = client(&guarded.api).by("ada");
    let (tool, arguments) = mail();
    let created = ada.call(tool, arguments).await;
    assert_eq!(get(&ada, &created["taskId"]).await["status"], "working");
    let eve = client(&guarded.api).by("eve");
    let ids = [json!("a"), json!("t.none"), json!(""), created["taskId"].clone()];
    for id in &ids {
        for (method, mut params) in [
            ("tasks/get", json!({})),
            ("tasks/cancel", json!({})),
            ("tasks/update", json!({"inputResponses": {}})),
        ] {
            params["taskId"] = id.clone();
            let refused = eve.ask(method, params).await;
            assert_eq!(refused["error"]["code"], -32602, "{method} {id}: {refused:#}");
            assert_eq!(refused["error"]["message"], "taskId: names no task");
        }
    }
    // At the server of another agent there is no such task.
    let elsewhere = McpClient { path: "/mcp/other", ..client(&guarded.api).by("ada") };
    let refused = elsewhere.ask("tasks/get", json!({"taskId": created["taskId"]})).await;
    assert_eq!(refused["error"]["message"], "taskId: names no task", "{refused:#}");
    // Whoever may not approve is not asked to: an approval of theirs is passed over.
    let yes = json!({"call_1_1/1": accept(json!({"approved": true}))});
    let params = json!({"taskId": created["taskId"], "inputResponses": yes});
    let ignored = ada.ask("tasks/update", params).await;
    assert!(ignored["error"].is_null(), "{ignored:#}");
    let without = McpClient { tasks: false, ..client(&guarded.api).by("ada") };
    let refused = without.request("tasks/get", json!({"taskId": created["taskId"]}));
    let refused = refused.send().await.unwrap();
    assert_eq!(refused.status(), 400);
    let refused: Value = refused.json().await.unwrap();
    assert_eq!(refused["error"]["code"], -32021, "the client lacks a capability: {refused:#}");
    assert_eq!(get(&ada, &created["taskId"]).await["status"], "working", "nothing has changed");
}
