//! Responses and conversations of OpenAI's API over HTTP.

use serde_json::{Value, json};

use crate::access::{GuardedApi, key, key_line};
use crate::api::{Api, ApiResponse, DEADLINE};

pub(crate) const RESPONSES: &str = "/openai/v1/responses";

impl ApiResponse {
    /// Panics unless this is an error in OpenAI's form with this code.
    pub(crate) fn is_openai_error(&self, status: u16, code: &str) -> &Value {
        assert_eq!((self.status, self.media()), (status, "application/json"), "{self:?}");
        let error = &self.body["error"];
        assert_eq!(error["code"], code, "{error}");
        for member in ["message", "type"] {
            assert!(error[member].as_str().is_some_and(|text| !text.is_empty()), "{error}");
        }
        error
    }
}

/// A body of a request about this conversation.
pub(crate) fn says(conversation: &str, input: Value) -> Value {
    json!({"model": "demo", "conversation": conversation, "input": input})
}

/// The events of a stream, to its end.
pub(crate) async fn events(request: reqwest::RequestBuilder) -> Vec<Value> {
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = tokio::time::timeout(DEADLINE, response.text()).await.unwrap().unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
    lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// The items of this type in a response.
pub(crate) fn items(response: &Value, kind: &str) -> Vec<Value> {
    let output = response["output"].as_array().unwrap();
    output.iter().filter(|item| item["type"] == kind).cloned().collect()
}

/// The texts of a response's messages.
fn text(response: &Value) -> String {
    let messages = items(response, "message");
    messages.iter().map(|item| item["content"][0]["text"].as_str().unwrap()).collect()
}

async fn respond(api: &Api, body: Value) -> Value {
    let answer = api.post(RESPONSES, body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body
}

#[tokio::test]
async fn agents_are_models() {
    let api = Api::start().await;
    let models = api.get("/openai/v1/models").await.body;
    assert_eq!((&models["object"], &models["data"][0]["id"]), (&json!("list"), &json!("demo")));
    let refused = api.post(RESPONSES, json!({"model": "gpt-5", "input": "hi"})).await;
    refused.is_openai_error(404, "model_not_found");
    let named = json!({"model": "abide/demo", "input": "hi"});
    assert_eq!(respond(&api, named).await["model"], "demo");
}

#[tokio::test]
async fn a_response_continues_the_one_before_and_is_read_again() {
    let api = Api::start().await;
    let first = respond(&api, json!({"model": "demo", "input": "hello"})).await;
    assert_eq!((&first["object"], &first["status"]), (&json!("response"), &json!("completed")));
    assert!(text(&first).starts_with("You said: hello"), "{first:#}");
    let next = json!({"model": "demo", "input": "again", "previous_response_id": first["id"]});
    let second = respond(&api, next).await;
    assert_eq!(second["conversation"], first["conversation"]);
    for response in [&first, &second] {
        let path = format!("{RESPONSES}/{}", response["id"].as_str().unwrap());
        assert_eq!(api.get(&path).await.body, *response, "from the journal");
        let input = api.get(&format!("{path}/input_items")).await.body;
        assert_eq!(
            (&input["data"][0]["role"], &input["has_more"]),
            (&json!("user"), &json!(false))
        );
    }
    let conversation = first["conversation"]["id"].as_str().unwrap();
    let path = format!("/openai/v1/conversations/{conversation}/items?order=asc&limit=3");
    let page = api.get(&path).await.body;
    let data = page["data"].as_array().unwrap();
    let roles: Vec<&str> = data.iter().map(|item| item["role"].as_str().unwrap()).collect();
    assert_eq!((roles, &page["has_more"]), (vec!["user", "assistant", "user"], &json!(true)));
    let after = format!("{path}&after={}", page["last_id"].as_str().unwrap());
    let rest = api.get(&after).await.body;
    assert_eq!((rest["data"].as_array().unwrap().len(), &rest["has_more"]), (1, &json!(false)));
}

#[tokio::test]
async fn an_approval_is_asked_for_and_given() {
    let api = Api::start().await;
    let asked = respond(&api, says("c", json!("Write a mail"))).await;
    let request = &items(&asked, "mcp_approval_request")[0];
    assert_eq!(
        (&request["server_label"], &request["name"]),
        (&json!("abide"), &json!("send_email"))
    );
    let busy = api.post(RESPONSES, says("c", json!("hello"))).await;
    busy.is_openai_error(409, "conversation_locked");
    let answer = json!([{"type": "mcp_approval_response", "approve": true,
        "approval_request_id": request["id"]}]);
    let given = respond(&api, says("c", answer.clone())).await;
    let call = &items(&given, "mcp_call")[0];
    assert_eq!((&call["status"], &call["id"]), (&json!("completed"), &json!("mcp_call_1_1")));
    assert!(text(&given).starts_with("The tool said"), "{given:#}");
    // What was told is told again, and not what came of it since.
    for response in [&asked, &given] {
        let path = format!("{RESPONSES}/{}", response["id"].as_str().unwrap());
        assert_eq!(api.get(&path).await.body, *response);
    }
    let mut late = says("c", answer);
    late["metadata"] = json!({"another": "request"});
    api.post(RESPONSES, late).await.is_openai_error(409, "call_not_open");
}

#[tokio::test]
async fn several_answers_are_one_response() {
    let api = Api::start().await;
    let asked = respond(&api, says("c", json!("Do everything"))).await;
    let approval = &items(&asked, "mcp_approval_request")[0];
    let question = &items(&asked, "function_call")[0];
    assert_eq!(items(&asked, "mcp_call").len(), 1, "the call that needs nobody is done");
    let answers = json!([
        {"type": "mcp_approval_response", "approval_request_id": approval["id"], "approve": true},
        {"type": "function_call_output", "call_id": question["call_id"], "output": "aisle"},
    ]);
    // One of them is not open: nothing is done.
    let mut wrong = answers.clone();
    wrong[1]["call_id"] = json!("call_9_9");
    let refused = api.post(RESPONSES, says("c", wrong)).await;
    let error = refused.is_openai_error(409, "call_not_open");
    assert!(error["message"].as_str().unwrap().contains("input[1]"), "{error}");
    assert_eq!(api.get("/v1/conversations/c").await.body["pending"].as_array().unwrap().len(), 2);
    let given = respond(&api, says("c", answers)).await;
    assert_eq!(items(&given, "mcp_call").len(), 1, "{given:#}");
    assert_eq!(text(&given), "Done with everything.");
    let path = format!("{RESPONSES}/{}", given["id"].as_str().unwrap());
    let input = api.get(&format!("{path}/input_items?order=asc")).await.body;
    let kinds: Vec<&Value> =
        input["data"].as_array().unwrap().iter().map(|item| &item["type"]).collect();
    assert_eq!(kinds, ["mcp_approval_response", "function_call_output"]);
    assert_eq!(input["data"][1]["output"], "aisle");
    // An answer that breaks the schema leaves the call open.
    let asked = respond(&api, says("d", json!("Choose a seat"))).await;
    let call = &items(&asked, "function_call")[0]["call_id"];
    let roof = json!([{"type": "function_call_output", "call_id": call, "output": "roof"}]);
    let refused = api.post(RESPONSES, says("d", roof)).await;
    refused.is_openai_error(400, "invalid_request");
    assert_eq!(api.get("/v1/conversations/d").await.body["state"], "awaiting_input");
}

#[tokio::test]
async fn two_results_of_one_request_are_one_response() {
    let api = Api::start().await;
    let calls = json!([{"calls": [{"name": "x", "args": {}}, {"name": "y", "args": {}}]}]);
    let tool = |name: &str| json!({"name": name, "description": name, "executor": "human"});
    let model = json!({"provider": "scripted", "script": calls});
    api.put("/v1/agents/asks", json!({"model": model, "tools": [tool("x"), tool("y")]})).await;
    let asked = respond(&api, json!({"model": "asks", "input": "go"})).await;
    let output = |item: &Value| json!({"type": "function_call_output", "call_id": item["call_id"], "output": "yes"});
    let input: Vec<Value> = items(&asked, "function_call").iter().map(output).collect();
    assert_eq!(input.len(), 2);
    let previous = &asked["id"];
    let given =
        respond(&api, json!({"model": "asks", "input": input, "previous_response_id": previous}));
    let given = given.await;
    // The first result leaves the other call waiting, within the commit and not after it.
    assert_eq!((text(&given).as_str(), given["output"].as_array().unwrap().len()), ("Done.", 1));
    let path = format!("{RESPONSES}/{}", given["id"].as_str().unwrap());
    assert_eq!(api.get(&path).await.body, given);
    let input = api.get(&format!("{path}/input_items")).await.body;
    assert_eq!(input["data"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn answers_one_by_one_each_have_their_response() {
    let api = Api::start().await;
    let asked = respond(&api, says("c", json!("Do everything"))).await;
    let question = &items(&asked, "function_call")[0];
    let seat = json!([{"type": "function_call_output", "call_id": question["call_id"],
        "output": "aisle"}]);
    let second = respond(&api, says("c", seat)).await;
    let approval = &items(&second, "mcp_approval_request")[0];
    assert_eq!(approval, &items(&asked, "mcp_approval_request")[0], "it still waits");
    let no = json!([{"type": "mcp_approval_response", "approval_request_id": approval["id"],
        "approve": false, "reason": "no"}]);
    let third = respond(&api, says("c", no)).await;
    assert_eq!(text(&third), "Done with everything.");
    for response in [&asked, &second, &third] {
        let path = format!("{RESPONSES}/{}", response["id"].as_str().unwrap());
        assert_eq!(api.get(&path).await.body, *response);
    }
}

#[tokio::test]
async fn a_stream_that_was_cut_goes_on_after_the_last_number() {
    let api = Api::start().await;
    let mut body = says("c", json!("hello"));
    body["stream"] = json!(true);
    let live = events(api.request("POST", RESPONSES).json(&body)).await;
    let kinds: Vec<&str> = live.iter().map(|event| event["type"].as_str().unwrap()).collect();
    assert_eq!(kinds[..2], ["response.created", "response.in_progress"]);
    assert_eq!(*kinds.last().unwrap(), "response.completed");
    let whole = live.last().unwrap()["response"].clone();
    let path = format!("{RESPONSES}/{}", whole["id"].as_str().unwrap());
    assert_eq!(api.get(&path).await.body, whole);
    let number = |event: &Value| event["sequence_number"].as_u64().unwrap();
    let delta = |event: &Value| event["delta"].as_str().unwrap_or_default().to_owned();
    for (cut, event) in live.iter().enumerate() {
        let after = format!("{path}?stream=true&starting_after={}", number(event));
        let rest = events(api.request("GET", &after)).await;
        assert!(rest.iter().all(|it| number(it) > number(event)));
        let told: String = live[..=cut].iter().chain(&rest).map(delta).collect();
        assert_eq!(told, text(&whole), "after {cut}");
    }
    let refused = api.get(&format!("{path}?starting_after=7")).await;
    refused.is_openai_error(400, "invalid_request");
}

#[tokio::test]
async fn a_response_in_the_background_is_polled_and_cancelled() {
    let api = Api::start().await;
    let script = json!([{"text": "one two three four five six seven", "delay": "1m"}]);
    let slow = json!({"model": {"provider": "scripted", "script": script}});
    api.put("/v1/agents/slow", slow).await;
    let body = json!({"model": "slow", "input": "go", "background": true});
    let queued = respond(&api, body).await;
    assert_eq!((&queued["status"], &queued["background"]), (&json!("queued"), &json!(true)));
    let path = format!("{RESPONSES}/{}", queued["id"].as_str().unwrap());
    assert_eq!(api.get(&path).await.body["status"], "in_progress");
    let cancel = || api.send(api.request("POST", &format!("{path}/cancel")));
    let cancelled = cancel().await;
    assert_eq!(cancelled.body["status"], "cancelled", "{cancelled:?}");
    assert_eq!(api.get(&path).await.body["status"], "cancelled");
    assert_eq!(cancel().await.body["status"], "cancelled");
}

#[tokio::test]
async fn each_end_of_a_turn_is_a_status_of_its_response() {
    let api = Api::start().await;
    let define = async |name: &str, script: Value, more: Value| {
        let mut agent = json!({"model": {"provider": "scripted", "script": script}});
        agent.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        api.put(&format!("/v1/agents/{name}"), agent).await;
    };
    define("fails", json!([{"error": {"message": "no model"}}]), json!({})).await;
    let look = json!([{"name": "look", "description": "looks", "run": {"native": "demo_look_up"}}]);
    let calls = json!([{"calls": [{"name": "look", "args": {"query": "x"}}]}]);
    define("halts", calls, json!({"tools": look, "max_steps": 1})).await;
    let failed = respond(&api, json!({"model": "fails", "input": "go"})).await;
    assert_eq!(
        (&failed["status"], &failed["error"]["code"]),
        (&json!("failed"), &json!("server_error"))
    );
    let halted = respond(&api, json!({"model": "halts", "input": "go"})).await;
    assert_eq!(
        (&halted["status"], &halted["incomplete_details"]["reason"]),
        (&json!("incomplete"), &json!("max_steps"))
    );
}

#[tokio::test]
async fn a_conversation_is_created_read_and_deleted() {
    let api = Api::start().await;
    let path = "/openai/v1/conversations";
    let new = json!({"metadata": {"agent": "demo", "customer": "7"}});
    let made = api.post(path, new).await.body;
    assert_eq!(
        (&made["object"], &made["metadata"]["customer"]),
        (&json!("conversation"), &json!("7"))
    );
    let own = format!("{path}/{}", made["id"].as_str().unwrap());
    assert_eq!(api.get(&own).await.body, made);
    assert_eq!(api.get(&format!("{own}/items")).await.body["data"], json!([]));
    let deleted = api.delete(&own).await.body;
    assert_eq!((&deleted["id"], &deleted["deleted"]), (&made["id"], &json!(true)));
    api.get(&own).await.is_openai_error(404, "not_found");
    for (body, param) in [
        (json!({}), "metadata.agent"),
        (json!({"metadata": {"agent": "demo"}, "items": [{"role": "user"}]}), "items"),
    ] {
        let refused = api.post(path, body).await;
        assert_eq!(refused.is_openai_error(400, "invalid_request")["param"], param);
    }
    let unknown = api.post(path, json!({"metadata": {"agent": "none"}})).await;
    unknown.is_openai_error(404, "model_not_found");
}

#[tokio::test]
async fn whoever_may_not_approve_is_not_asked_to() {
    let keys = json!([key_line("ada", &["user"]), key_line("ann", &["approver"])]);
    let guarded = GuardedApi::start(&json!({"keys": keys})).await;
    let mut body = says("c", json!("Write a mail"));
    body["background"] = json!(true);
    let begun = guarded.send("ada", "POST", RESPONSES, body).await.body;
    let path = format!("{RESPONSES}/{}", begun["id"].as_str().unwrap());
    let pending = async || guarded.get("ann", "/v1/pending").await.body["pending"].clone();
    let waits = async {
        while pending().await.as_array().is_none_or(Vec::is_empty) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, waits).await.unwrap();
    let response = guarded.get("ada", &path).await.body;
    assert_eq!(response["status"], "in_progress");
    assert_eq!(items(&response, "mcp_approval_request"), [] as [Value; 0]);
    let forged = json!([{"type": "mcp_approval_response", "approve": true,
        "approval_request_id": "mcpr_call_1_1.1"}]);
    let refused = guarded.send("ada", "POST", RESPONSES, says("c", forged)).await;
    refused.is_openai_error(403, "approval_forbidden");
    let resolution = "/v1/conversations/c/calls/call_1_1/resolution";
    let approved = guarded.send("ann", "POST", resolution, json!({"approved": true})).await;
    assert_eq!(approved.status, 200, "{approved:?}");
    // The response of whoever was not asked goes on to the turn's end.
    let ended = async {
        while guarded.get("ada", &path).await.body["status"] == "in_progress" {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, ended).await.unwrap();
    let response = guarded.get("ada", &path).await.body;
    assert!(text(&response).contains("The tool said"), "{response:#}");
    assert_eq!(items(&response, "mcp_approval_request"), [] as [Value; 0]);
}

#[tokio::test]
async fn a_refusal_has_openais_form_whoever_refuses() {
    let keys = json!([key_line("ada", &["user"]), key_line("eve", &["user"])]);
    let guarded = GuardedApi::start(&json!({"keys": keys})).await;
    for request in [
        guarded.api.request("GET", "/openai/v1/models"),
        guarded.api.request("GET", "/openai/v1/models").bearer_auth("garbage"),
        guarded.api.request("POST", RESPONSES).json(&says("c", json!("hi"))),
        guarded.api.request("GET", "/openai/v1/nothing"),
    ] {
        let refused = guarded.api.send(request).await;
        refused.is_openai_error(401, "invalid_api_key");
        assert_eq!(refused.headers["www-authenticate"], "Bearer error=\"invalid_token\"");
    }
    let unknown = guarded.get("ada", "/openai/v1/nothing").await;
    unknown.is_openai_error(404, "not_found");
    let method = guarded.api.request("PUT", RESPONSES).bearer_auth(key("ada"));
    guarded.api.send(method).await.is_openai_error(405, "invalid_request");
    let own = guarded.send("ada", "POST", RESPONSES, says("c", json!("hello"))).await.body;
    let id = own["id"].as_str().unwrap();
    for path in [
        format!("{RESPONSES}/{id}"),
        format!("{RESPONSES}/{id}/input_items"),
        "/openai/v1/conversations/c".to_owned(),
        "/openai/v1/conversations/c/items".to_owned(),
    ] {
        guarded.get("eve", &path).await.is_openai_error(404, "not_found");
        assert_eq!(guarded.get("ada", &path).await.status, 200);
    }
    let stolen = json!({"model": "demo", "input": "hi", "previous_response_id": id});
    let refused = guarded.send("eve", "POST", RESPONSES, stolen).await;
    refused.is_openai_error(400, "previous_response_not_found");
    let refused = guarded.send("eve", "POST", RESPONSES, says("c", json!("hi"))).await;
    refused.is_openai_error(404, "not_found");
}
