//! The MCP server over HTTP, as messages: what official clients make of it is in tests/cluster.

mod client;

use serde_json::{Value, json};

use crate::api::{Api, DEADLINE};

pub(crate) use self::client::McpClient;

const CURRENT: &str = "2026-07-28";
pub(crate) const BEFORE: &str = "2025-11-25";

pub(crate) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

pub(crate) fn accept(content: Value) -> Value {
    json!({"action": "accept", "content": content})
}

pub(crate) fn mail() -> (&'static str, Value) {
    ("demo", json!({"message": "Write a mail", "conversation_id": "c"}))
}

#[tokio::test]
async fn each_agent_is_a_tool_and_no_tool_resolves() {
    let api = Api::start().await;
    api.put(
        "/v1/agents/other",
        json!({"description": "Another.", "model":
        {"provider": "scripted", "script": [{"text": "hi"}]}}),
    )
    .await;
    for version in [CURRENT, BEFORE] {
        let client = McpClient { version, ..McpClient::new(&api) };
        assert_eq!(client.tools().await, ["demo", "other", "abide_pending", "abide_conversation"]);
        let one = McpClient { path: "/mcp/other", version, ..McpClient::new(&api) };
        assert_eq!(one.tools().await, ["other", "abide_pending", "abide_conversation"]);
        let listed = client.ask("tools/list", json!({})).await;
        let tools = &listed["result"]["tools"];
        assert_eq!(tools[1]["description"], "Another.");
        assert_eq!(
            tools[0]["annotations"],
            json!({"readOnlyHint": false, "destructiveHint": false,
            "idempotentHint": false, "openWorldHint": true})
        );
        for reading in [&tools[2], &tools[3]] {
            assert_eq!(reading["annotations"]["readOnlyHint"], true, "{reading:#}");
        }
        assert_eq!(tools[0]["inputSchema"]["required"], json!(["message"]));
        let other = one.ask("tools/call", json!({"name": "demo", "arguments": {"message": "x"}}));
        assert_eq!(other.await["error"]["code"], -32602);
    }
}

#[tokio::test]
async fn an_agent_with_the_name_of_another_tool_is_none() {
    let api = Api::start().await;
    let agent = json!({"model": {"provider": "scripted", "script": [{"text": "hi"}]}});
    assert_eq!(api.put("/v1/agents/abide_pending", agent).await.status, 201);
    let client = McpClient::new(&api);
    assert_eq!(client.tools().await, ["demo", "abide_pending", "abide_conversation"]);
}

#[tokio::test]
async fn a_client_that_begins_with_initialize_is_served_without_a_session() {
    let api = Api::start().await;
    let client = McpClient { version: BEFORE, ..McpClient::new(&api) };
    let hello = json!({"protocolVersion": BEFORE, "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"}});
    let sent = client.request("initialize", hello).send().await.unwrap();
    assert!(sent.headers().get("mcp-session-id").is_none());
    let answer: Value = sent.json().await.unwrap();
    let result = &answer["result"];
    assert_eq!(
        (&result["protocolVersion"], &result["serverInfo"]["name"]),
        (&json!(BEFORE), &json!("abide")),
        "{answer:#}"
    );
    let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(api.post("/mcp", note).await.status, 202);
    let hi = client.call("demo", json!({"message": "hello"})).await;
    assert!(text(&hi).starts_with("You said: hello"), "{hi:#}");
    assert_eq!(api.get("/mcp").await.status, 405, "there is no stream of the server");
    let discovered = McpClient::new(&api).ask("server/discover", json!({})).await;
    let versions = discovered["result"]["supportedVersions"].as_array().unwrap();
    assert!(versions.contains(&json!(CURRENT)) && versions.contains(&json!(BEFORE)));
}

#[tokio::test]
async fn a_call_sends_a_message_and_returns_the_last_text() {
    let api = Api::start().await;
    for version in [CURRENT, BEFORE] {
        let client = McpClient { version, ..McpClient::new(&api) };
        let first = client.call("demo", json!({"message": "hello"})).await;
        assert!(text(&first).starts_with("You said: hello"), "{first:#}");
        let place = &first["structuredContent"];
        assert_eq!((&place["status"], &first["isError"]), (&json!("completed"), &json!(false)));
        let id = place["conversation_id"].as_str().unwrap();
        let next = json!({"message": "again", "conversation_id": id});
        let second = client.call("demo", next).await;
        assert!(text(&second).starts_with("You said: again"), "{second:#}");
        assert_eq!(second["structuredContent"]["conversation_id"], id);
        // An empty message tells the last turn again.
        let again = client.call("demo", json!({"message": " ", "conversation_id": id})).await;
        assert_eq!(again, second);
        let snapshot = client.call("abide_conversation", json!({"conversation_id": id})).await;
        let path = format!("/v1/conversations/{id}");
        assert_eq!(snapshot["structuredContent"], api.get(&path).await.body);
        let messages = api.get(&format!("{path}/messages")).await.body;
        assert_eq!(messages["messages"].as_array().unwrap().len(), 4);
    }
}

#[tokio::test]
async fn progress_is_told_to_a_client_that_asked_for_it() {
    let api = Api::start().await;
    let look = json!([{"name": "look", "description": "looks", "streaming": true,
        "run": {"native": "demo_look_up"}}]);
    let script = json!([{"calls": [{"name": "look", "args": {"query": "x"}}]}, {"text": "Done."}]);
    let model = json!({"provider": "scripted", "script": script});
    api.put("/v1/agents/looks", json!({"model": model, "tools": look})).await;
    for version in [CURRENT, BEFORE] {
        let client = McpClient { version, ..McpClient::new(&api) };
        let call = json!({"name": "looks", "arguments": {"message": "go"},
            "_meta": {"progressToken": "p"}});
        let mut messages = client.messages("tools/call", call).await;
        assert_eq!(text(&messages.pop().unwrap()["result"]), "Done.");
        let told: Vec<&str> = messages
            .iter()
            .map(|it| {
                assert_eq!(it["method"], "notifications/progress", "{it:#}");
                assert_eq!(it["params"]["progressToken"], "p");
                it["params"]["message"].as_str().unwrap()
            })
            .collect();
        for expected in ["look runs", "look: {\"percent\":50}", "look is done"] {
            assert!(told.contains(&expected), "{told:?}");
        }
        let numbers = messages.iter().map(|it| it["params"]["progress"].as_f64().unwrap());
        assert!(numbers.is_sorted_by(|one, next| one < next));
        // Without a token nothing is told.
        let call = json!({"name": "looks", "arguments": {"message": "go"}});
        assert_eq!(client.messages("tools/call", call).await.len(), 1);
    }
}

#[tokio::test]
async fn an_approval_is_asked_for_and_given_in_two_rounds() {
    let api = Api::start().await;
    let client = McpClient::new(&api);
    for (approved, outcome) in [(true, "The tool said"), (false, "The tool said")] {
        let id = format!("c{approved}");
        let arguments = json!({"message": "Write a mail", "conversation_id": id});
        let asked = client.call("demo", arguments.clone()).await;
        assert_eq!(asked["resultType"], "input_required", "{asked:#}");
        let request = &asked["inputRequests"]["call_1_1/1"];
        let message = request["params"]["message"].as_str().unwrap();
        assert!(message.contains("ada@example.com"), "the arguments are shown: {message}");
        let content = json!({"approved": approved, "reason": "because"});
        let answers = json!({"call_1_1/1": accept(content)});
        let done = client.answer(("demo", arguments.clone()), &asked, answers.clone()).await;
        assert!(text(&done["result"]).starts_with(outcome), "{done:#}");
        let journal = api.get(&format!("/v1/conversations/{id}/journal")).await.body;
        let resolution = journal["events"]
            .as_array()
            .unwrap()
            .iter()
            .find(|event| event["type"] == "resolution")
            .unwrap();
        assert_eq!(
            (&resolution["data"]["approved"], &resolution["data"]["reason"]),
            (&json!(approved), &json!("because"))
        );
        // A repeat of the answer is told what became of the call.
        let late = client.answer(("demo", arguments), &asked, answers).await;
        assert_eq!(late, done);
    }
}

#[tokio::test]
async fn several_questions_are_asked_at_once_and_answered_one_by_one() {
    let api = Api::start().await;
    let client = McpClient::new(&api);
    let call = || ("demo", json!({"message": "Do everything", "conversation_id": "c"}));
    let asked = client.call("demo", call().1).await;
    let requests = asked["inputRequests"].as_object().unwrap();
    assert_eq!(requests.len(), 2, "{asked:#}");
    let is_approval = |request: &Value| {
        request["params"]["requestedSchema"]["properties"].get("approved").is_some()
    };
    let approval = requests.iter().find(|(_, it)| is_approval(it)).unwrap().0;
    let question = requests.iter().find(|(_, it)| !is_approval(it)).unwrap().0;
    // An answer that breaks the schema leaves the calls open, as does one with another form.
    let yes = accept(json!({"approved": true}));
    for (wrong, field) in [
        (json!({question: accept(json!({"answer": "roof"}))}), "content"),
        (json!({approval: yes, question: accept(json!({"answer": "roof"}))}), question.as_str()),
        (json!({question: accept(json!("aisle"))}), "content"),
        (json!({question: {"action": "maybe"}}), "action"),
        (json!({approval: accept(json!({"approved": "yes"}))}), "content.approved"),
    ] {
        let refused = client.answer(call(), &asked, wrong).await;
        assert_eq!(refused["result"]["isError"], true, "{refused:#}");
        assert!(text(&refused["result"]).contains(field), "{field}: {refused:#}");
    }
    let unknown = client.answer(call(), &asked, json!({"call_9_9/1": accept(json!({}))})).await;
    assert_eq!(unknown["error"]["code"], -32602, "{unknown:#}");
    assert_eq!(api.get("/v1/conversations/c").await.body["pending"].as_array().unwrap().len(), 2);
    let first =
        client.answer(call(), &asked, json!({question: accept(json!({"answer": "aisle"}))})).await;
    let left = &first["result"]["inputRequests"];
    assert_eq!(left.as_object().unwrap().keys().collect::<Vec<_>>(), [approval], "{first:#}");
    let refusal = json!({approval: {"action": "decline"}});
    let done = client.answer(call(), &first["result"], refusal).await;
    assert_eq!(text(&done["result"]), "Done with everything.", "{done:#}");
}

#[tokio::test]
async fn the_state_is_for_its_own_call_alone() {
    let api = Api::start().await;
    let client = McpClient::new(&api);
    let (tool, arguments) = mail();
    let asked = client.call(tool, arguments.clone()).await;
    let yes = || json!({"call_1_1/1": accept(json!({"approved": true}))});
    let refused = async |client: &McpClient<'_>, arguments: Value, state: Value| {
        let answer = client.answer((tool, arguments), &json!({"requestState": state}), yes()).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer:#}");
        assert!(answer["error"]["message"].as_str().unwrap().starts_with("requestState"));
    };
    let state = asked["requestState"].as_str().unwrap().to_owned();
    let other = json!({"message": "Write a mail", "conversation_id": "d"});
    refused(&client, other, json!(state)).await;
    let signed = state.rsplit_once('.').unwrap().0;
    for forged in [&state[1..], "", "e30.e30.e30", signed, &format!("{state}x")] {
        refused(&client, arguments.clone(), json!(forged)).await;
    }
    let mut request = client.request(
        "tools/call",
        json!({"name": tool, "arguments": arguments,
        "requestState": state, "inputResponses": yes()}),
    );
    request = request.header("Abide-Principal", "somebody-else");
    let answer: String = request.send().await.unwrap().text().await.unwrap();
    assert!(answer.contains("-32602"), "{answer}");
    let without = json!({"name": tool, "arguments": arguments, "inputResponses": yes()});
    assert_eq!(client.ask("tools/call", without).await["error"]["code"], -32602);
    // A conversation that was deleted and made anew is another.
    api.delete("/v1/conversations/c").await;
    client.call(tool, arguments.clone()).await;
    refused(&client, arguments, json!(state)).await;
    assert_eq!(api.get("/v1/conversations/c").await.body["state"], "awaiting_input");
}

#[tokio::test]
async fn a_state_ends_with_its_questions() {
    let api = Api::start().await;
    let mail = json!({"name": "mail", "description": "Sends.", "approval": "requires_approval",
        "timeout": "1200ms", "run": {"native": "demo_send_email"}});
    let call = json!({"id": "m", "name": "mail", "args": {"to": "a@b.c"}});
    let script = json!([{"calls": [call]}, {"text": "Done."}]);
    let agent = json!({"model": {"provider": "scripted", "script": script}, "tools": [mail]});
    assert_eq!(api.put("/v1/agents/hasty", agent).await.status, 201);
    let client = McpClient::new(&api);
    let call = || ("hasty", json!({"message": "go", "conversation_id": "c"}));
    let (tool, arguments) = call();
    let asked = client.call(tool, arguments).await;
    let ended = async {
        while api.get("/v1/conversations/c").await.body["state"] != "idle" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, ended).await.unwrap();
    let yes = json!({"m/1": accept(json!({"approved": true}))});
    let late = client.answer(call(), &asked, yes).await;
    assert_eq!(late["error"]["message"], "requestState: has expired", "{late:#}");
}

#[tokio::test]
async fn a_client_that_cannot_ask_is_told_what_waits_and_goes_on_later() {
    let api = Api::start().await;
    for (version, asks) in [(CURRENT, false), (BEFORE, true)] {
        let client = McpClient { version, asks, ..McpClient::new(&api) };
        let (tool, mut arguments) = mail();
        arguments["conversation_id"] = json!(version);
        let waiting = client.call(tool, arguments.clone()).await;
        assert!(text(&waiting).starts_with("Waits for an approval:"), "{waiting:#}");
        let place = &waiting["structuredContent"];
        assert_eq!((&place["status"], &waiting["isError"]), (&json!("waiting"), &json!(false)));
        assert_eq!(place["pending"][0]["call_id"], "call_1_1");
        let inbox = client.call("abide_pending", json!({"conversation": version})).await;
        assert_eq!(inbox["structuredContent"]["pending"][0]["call_id"], "call_1_1", "{inbox:#}");
        // Another message does not supersede it.
        let busy = client.call(tool, arguments.clone()).await;
        assert_eq!(busy["isError"], true, "{busy:#}");
        arguments["message"] = json!("");
        assert_eq!(client.call(tool, arguments.clone()).await, waiting);
        let path = format!("/v1/conversations/{version}/calls/call_1_1/resolution");
        assert_eq!(api.post(&path, json!({"approved": true})).await.status, 200);
        let done = client.call(tool, arguments).await;
        assert!(text(&done).starts_with("The tool said"), "{done:#}");
    }
}

#[tokio::test]
async fn each_end_of_a_turn_is_a_result() {
    let api = Api::start().await;
    let define = async |name: &str, script: Value, more: Value| {
        let mut agent = json!({"model": {"provider": "scripted", "script": script}});
        agent.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        assert_eq!(api.put(&format!("/v1/agents/{name}"), agent).await.status, 201);
    };
    define("fails", json!([{"error": {"message": "no model"}}]), json!({})).await;
    let look = json!([{"name": "look", "description": "looks", "run": {"native": "demo_look_up"}}]);
    let calls = json!([{"calls": [{"name": "look", "args": {"query": "x"}}]}]);
    define("halts", calls, json!({"tools": look, "max_steps": 1})).await;
    let client = McpClient::new(&api);
    for (agent, expected) in [("fails", "failed: "), ("halts", "halted: max_steps")] {
        let result = client.call(agent, json!({"message": "go"})).await;
        assert_eq!(result["isError"], true, "{result:#}");
        assert!(text(&result).starts_with(expected), "{result:#}");
        assert!(result["structuredContent"]["conversation_id"].is_string());
    }
}

#[tokio::test]
async fn bad_input_gets_one_clear_error_and_changes_nothing() {
    let api = Api::start().await;
    api.put(
        "/v1/agents/other",
        json!({"model":
        {"provider": "scripted", "script": [{"text": "hi"}]}}),
    )
    .await;
    let client = McpClient::new(&api);
    client.call("other", json!({"message": "hi", "conversation_id": "others"})).await;
    for (tool, arguments, field) in [
        ("demo", json!({}), "message"),
        ("demo", json!({"message": 7}), "message"),
        ("demo", json!({"message": ""}), "message"),
        ("demo", json!({"message": "x", "more": 1}), "more"),
        ("demo", json!({"message": "x", "conversation_id": "a/b"}), "conversation_id"),
        ("demo", json!({"message": "x", "conversation_id": "others"}), "conversation not found"),
        ("demo", json!({"message": "", "conversation_id": "others"}), "conversation not found"),
        ("demo", json!({"message": "", "conversation_id": "none"}), "conversation not found"),
        ("abide_pending", json!({"limit": 0}), "limit"),
        ("abide_pending", json!({"cursor": "x"}), "cursor"),
        ("abide_pending", json!({"approve": true}), "approve"),
        ("abide_conversation", json!({}), "conversation_id"),
        ("abide_conversation", json!({"conversation_id": "none"}), "conversation not found"),
    ] {
        let refused = client.call(tool, arguments.clone()).await;
        assert_eq!(refused["isError"], true, "{tool} {arguments}: {refused:#}");
        assert!(text(&refused).contains(field), "{tool} {arguments}: {refused:#}");
    }
    for tool in ["nobody", "Demo", "", "abide_resolve"] {
        let call = json!({"name": tool, "arguments": {"message": "x"}});
        let client = McpClient { version: BEFORE, ..McpClient::new(&api) };
        let refused = client.ask("tools/call", call).await;
        assert_eq!(refused["error"]["code"], -32602, "{tool}");
    }
    api.post("/mcp", json!([])).await.is_problem(422, "invalid-request");
    for message in [json!({}), json!({"jsonrpc": "1.0", "id": 1, "method": "ping"})] {
        assert_eq!(api.post("/mcp", message).await.status, 400);
    }
    let response = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
    assert_eq!(api.post("/mcp", response).await.status, 400);
    api.post("/mcp/none", json!({})).await.is_problem(404, "not-found");
    let listed = api.get("/v1/conversations").await.body;
    assert_eq!(listed["conversations"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_parameter_that_is_wrong_is_named_and_the_method_is_there() {
    let api = Api::start().await;
    for version in [CURRENT, BEFORE] {
        let client = McpClient { version, tasks: true, ..McpClient::new(&api) };
        for (method, params, name) in [
            ("tools/call", json!({"arguments": {}}), "name"),
            ("tools/call", json!({"name": 5}), "name"),
            ("tools/call", json!({"name": "demo", "arguments": []}), "arguments"),
            ("tools/call", json!({"name": "demo", "inputResponses": 5}), "inputResponses"),
            ("tools/call", json!({"name": "demo", "requestState": 5}), "requestState"),
            ("tasks/get", json!({}), "taskId"),
            ("tasks/cancel", json!({"taskId": 5}), "taskId"),
            ("tasks/update", json!({"taskId": "x"}), "inputResponses"),
        ] {
            let refused = client.ask(method, params.clone()).await;
            let error = &refused["error"];
            assert_eq!(error["code"], -32602, "{version} {method} {params}: {refused:#}");
            assert!(
                error["message"].as_str().unwrap().contains(name),
                "{method} {params}: {error}"
            );
        }
        let unknown = client.request("tools/none", json!({})).send().await.unwrap();
        let unknown: Value = unknown.json().await.unwrap();
        assert_eq!(unknown["error"]["code"], -32601, "{unknown:#}");
    }
}

#[tokio::test]
async fn a_call_with_an_idempotency_key_is_sent_once() {
    let api = Api::start().await;
    let client = McpClient::new(&api);
    let call =
        || client.request("tools/call", json!({"name": "demo", "arguments": {"message": "hi"}}));
    let send = async || {
        let sent = call().header("Idempotency-Key", "k").send().await.unwrap();
        sent.text().await.unwrap()
    };
    assert_eq!(send().await, send().await);
    let listed = api.get("/v1/conversations").await.body;
    assert_eq!(listed["conversations"].as_array().unwrap().len(), 1);
}
