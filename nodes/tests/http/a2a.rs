//! A2A over HTTP: what a call may say, what it changes, and what is told to whom.

use reqwest::RequestBuilder;
use serde_json::{Value, json};

use crate::api::{Api, ApiResponse, DEADLINE};

const PATH: &str = "/a2a/demo";

/// The body of a call.
pub(crate) fn call(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params})
}

/// The parameters of a message with these parts.
pub(crate) fn message(id: &str, parts: Value) -> Value {
    json!({"message": {"messageId": id, "role": "ROLE_USER", "parts": parts}})
}

/// The parameters of a message in a context.
pub(crate) fn says(context: &str, id: &str, text: &str) -> Value {
    let mut params = message(id, json!([{"text": text}]));
    params["message"]["contextId"] = json!(context);
    params
}

/// The parameters of a message with data for a task.
pub(crate) fn answers(task: &Value, id: &str, answers: Vec<Value>) -> Value {
    let parts: Vec<Value> = answers.into_iter().map(|data| json!({"data": data})).collect();
    let mut params = message(id, json!(parts));
    params["message"]["taskId"] = task["id"].clone();
    params
}

fn request(api: &Api, method: &str, params: Value) -> RequestBuilder {
    let request = api.request("POST", PATH).header("A2A-Version", "1.0");
    request.json(&call(method, params))
}

async fn answer(api: &Api, method: &str, params: Value) -> ApiResponse {
    api.send(request(api, method, params)).await
}

/// The result of a call.
async fn result(api: &Api, method: &str, params: Value) -> Value {
    let answer = answer(api, method, params).await;
    assert_eq!((answer.status, answer.media()), (200, "application/json"), "{answer:?}");
    assert_eq!((&answer.body["jsonrpc"], &answer.body["id"]), (&json!("2.0"), &json!(7)));
    assert!(answer.body.get("error").is_none(), "{answer:?}");
    answer.body["result"].clone()
}

/// The task that a message is told with.
async fn send(api: &Api, params: Value) -> Value {
    result(api, "SendMessage", params).await["task"].clone()
}

async fn get(api: &Api, task: &Value) -> Value {
    result(api, "GetTask", json!({"id": task["id"]})).await
}

/// Panics unless the answer is this error; returns its message.
pub(crate) fn is_error(answer: &ApiResponse, code: i64) -> String {
    let error = &answer.body["error"];
    assert_eq!((answer.media(), &error["code"]), ("application/json", &json!(code)), "{answer:?}");
    assert_eq!(answer.body["jsonrpc"], "2.0");
    let info = &error["data"][0];
    assert_eq!(info["@type"], "type.googleapis.com/google.rpc.ErrorInfo");
    assert!(info["reason"].is_string() && info["domain"].is_string(), "{error}");
    error["message"].as_str().unwrap().to_owned()
}

async fn refused(api: &Api, method: &str, params: Value, code: i64) -> String {
    is_error(&answer(api, method, params).await, code)
}

/// The events of a stream, to its end.
async fn events(request: RequestBuilder) -> Vec<Value> {
    events_of(request.send().await.unwrap()).await
}

async fn events_of(response: reqwest::Response) -> Vec<Value> {
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = tokio::time::timeout(DEADLINE, response.text()).await.unwrap().unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
    let result = |line: &str| {
        let event: Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["id"], 7, "{event}");
        event["result"].clone()
    };
    lines.map(result).collect()
}

pub(crate) fn state(task: &Value) -> &str {
    task["status"]["state"].as_str().unwrap()
}

/// The texts of a task.
pub(crate) fn text(task: &Value) -> String {
    let artifacts = task["artifacts"].as_array().into_iter().flatten();
    artifacts.map(|it| it["parts"][0]["text"].as_str().unwrap()).collect()
}

/// What a task asks.
pub(crate) fn questions(task: &Value) -> Vec<Value> {
    let parts = task["status"]["message"]["parts"].as_array().unwrap();
    let data = parts.iter().filter_map(|part| part.get("data"));
    data.map(|data| data["abide"].clone()).collect()
}

async fn journal_length(api: &Api, context: &str) -> usize {
    let journal = api.get(&format!("/v1/conversations/{context}/journal")).await;
    journal.body["events"].as_array().map_or(0, Vec::len)
}

#[tokio::test]
async fn a_card_says_what_an_agent_is_and_where_it_is_reached() {
    let api = Api::start().await;
    let card = api.get("/a2a/demo/.well-known/agent-card.json").await.body;
    assert_eq!(card["name"], "demo");
    assert_eq!(card["capabilities"]["streaming"], true);
    assert_eq!(card["capabilities"]["pushNotifications"], false);
    let interface = &card["supportedInterfaces"][0];
    assert_eq!(interface["url"], format!("http://{}/a2a/demo", api.node.public));
    assert_eq!(interface["protocolBinding"], "JSONRPC");
    assert_eq!(interface["protocolVersion"], "1.0");
    assert!(card.get("securitySchemes").is_none());
    let proxied = api.request("GET", "/a2a/demo/.well-known/agent-card.json");
    let proxied = api.send(proxied.header("X-Forwarded-Proto", "https")).await.body;
    assert!(proxied["supportedInterfaces"][0]["url"].as_str().unwrap().starts_with("https://"));
    let missing = api.get("/a2a/nobody/.well-known/agent-card.json").await;
    missing.is_problem(404, "not-found");
}

#[tokio::test]
async fn a_message_is_a_task_in_a_context_of_its_own_and_is_read_again() {
    let api = Api::start().await;
    let task = send(&api, message("m-1", json!([{"text": "hello"}]))).await;
    assert_eq!(state(&task), "TASK_STATE_COMPLETED");
    assert!(text(&task).starts_with("You said: hello"), "{task:#}");
    assert_eq!(task["history"][0]["messageId"], "m-1");
    assert_eq!(task["history"][0]["parts"], json!([{"text": "hello"}]));
    assert_eq!(get(&api, &task).await, task);
    let context = task["contextId"].as_str().unwrap();
    assert_eq!(api.get(&format!("/v1/conversations/{context}")).await.body["agent"], "demo");
    // A repeat attaches to its task; the same text with another id is another message.
    assert_eq!(send(&api, message("m-1", json!([{"text": "hello"}]))).await, task);
    let other = send(&api, message("m-2", json!([{"text": "hello"}]))).await;
    assert_ne!(other["contextId"], task["contextId"]);
    let next = send(&api, says(context, "m-3", "again")).await;
    assert_eq!((&next["contextId"], state(&next)), (&task["contextId"], "TASK_STATE_COMPLETED"));
    assert_ne!(next["id"], task["id"]);
    let short = result(&api, "GetTask", json!({"id": next["id"], "historyLength": 0})).await;
    assert!(short.get("history").is_none());
}

#[tokio::test]
async fn a_stream_begins_with_the_task_and_ends_with_its_last_state() {
    let api = Api::start().await;
    let told = events(request(&api, "SendStreamingMessage", says("c", "m", "hello"))).await;
    let task = told[0]["task"].clone();
    assert_eq!(task["contextId"], "c");
    let pieces = told.iter().filter_map(|event| event.get("artifactUpdate"));
    let joined: String =
        pieces.map(|it| it["artifact"]["parts"][0]["text"].as_str().unwrap()).collect();
    let last = &told.last().unwrap()["statusUpdate"];
    assert_eq!(last["status"]["state"], "TASK_STATE_COMPLETED");
    assert_eq!(last["taskId"], task["id"]);
    let read = get(&api, &task).await;
    assert_eq!((text(&read), &read["status"]), (joined, &last["status"]));
    // A repeat tells the task, which is over.
    let again = events(request(&api, "SendStreamingMessage", says("c", "m", "hello"))).await;
    assert_eq!(again, [json!({"task": read})]);
    let over = refused(&api, "SubscribeToTask", json!({"id": task["id"]}), -32_004).await;
    assert!(over.contains("is over"), "{over}");
}

#[tokio::test]
async fn an_approval_is_asked_as_data_and_given_as_data() {
    let api = Api::start().await;
    let task = send(&api, says("c", "m", "Write a mail")).await;
    assert_eq!(state(&task), "TASK_STATE_INPUT_REQUIRED");
    let question = &questions(&task)[0];
    assert_eq!((&question["kind"], &question["tool"]), (&json!("approval"), &json!("send_email")));
    assert_eq!(
        (&question["suspension"], &question["args"]["to"]),
        (&json!(1), &json!("ada@example.com"))
    );
    assert!(question["answer_schema"].is_object() && question["expires_at"].is_string());
    let words = &task["status"]["message"]["parts"][0]["text"];
    assert_eq!(words, "Send an e-mail to ada@example.com?");
    assert_eq!(get(&api, &task).await, task);
    // As clients of protocol buffers write numbers.
    let yes = json!({"call_id": question["call_id"], "suspension": 1.0, "approved": true});
    let done = send(&api, answers(&task, "m-2", vec![yes.clone()])).await;
    assert_eq!((state(&done), &done["id"]), ("TASK_STATE_COMPLETED", &task["id"]));
    assert!(text(&done).contains("The tool said"), "{done:#}");
    // A repeat of the very message is told what became of it; any other is too late.
    assert_eq!(send(&api, answers(&task, "m-2", vec![yes.clone()])).await, done);
    let late = refused(&api, "SendMessage", answers(&task, "m-3", vec![yes]), -32_004).await;
    assert!(late.contains("is over"), "{late}");
}

#[tokio::test]
async fn free_text_approves_nothing_and_changes_nothing() {
    let api = Api::start().await;
    let task = send(&api, says("c", "m", "Write a mail")).await;
    let before = journal_length(&api, "c").await;
    for parts in [
        json!([{"text": "yes"}]),
        json!([{"text": "approved: true"}]),
        json!([{"data": {"call_id": "call_1_1", "approved": true}}, {"text": "Go ahead."}]),
    ] {
        let mut params = message("m-2", parts);
        params["message"]["taskId"] = task["id"].clone();
        let why = refused(&api, "SendMessage", params, -32_602).await;
        assert!(why.contains("free text answers nothing"), "{why}");
    }
    assert_eq!(journal_length(&api, "c").await, before);
    assert_eq!(get(&api, &task).await, task);
}

#[tokio::test]
async fn a_wrong_answer_is_named_and_leaves_all_calls_open() {
    let api = Api::start().await;
    let task = send(&api, says("c", "m", "Do everything")).await;
    let [approval, _] = &questions(&task)[..] else { panic!("{task:#}") };
    let yes = json!({"call_id": approval["call_id"], "approved": true});
    let seat = |seat: &str| json!({"call_id": seat_id(&task), "result": seat});
    let with = |data: Value| vec![yes.clone(), data];
    let before = journal_length(&api, "c").await;
    for (data, field) in [
        (seat("roof"), "message.parts[1].data.result"),
        (json!({"call_id": seat_id(&task), "approved": true}), "message.parts[1].data.result"),
        (json!({"call_id": "call_9_9", "result": 1}), "message.parts[1].data.call_id"),
        (json!({"call_id": seat_id(&task), "result": "aisle", "x": 1}), "message.parts[1].data"),
        (json!({"result": "aisle"}), "message.parts[1].data"),
        (json!({"call_id": seat_id(&task)}), "message.parts[1].data.approved"),
        (yes.clone(), "message.parts[1].data"),
        (json!("aisle"), "message.parts[1].data"),
    ] {
        let params = answers(&task, "m-2", with(data));
        let why = refused(&api, "SendMessage", params, -32_602).await;
        assert!(why.starts_with(field), "{field}: {why}");
    }
    assert_eq!(journal_length(&api, "c").await, before);
    assert_eq!(get(&api, &task).await, task);
    // One after the other: the first leaves the task asking.
    let one = send(&api, answers(&task, "m-3", vec![seat("aisle")])).await;
    assert_eq!(state(&one), "TASK_STATE_INPUT_REQUIRED");
    assert_eq!(questions(&one).len(), 1);
    // An answer that is late tells what became of its call.
    let late = send(&api, answers(&task, "m-4", vec![seat("window")])).await;
    assert_eq!(late, one);
    let done = send(&api, answers(&task, "m-5", vec![yes])).await;
    assert_eq!(
        (state(&done), text(&done).contains("Done with everything.")),
        ("TASK_STATE_COMPLETED", true)
    );
    assert_eq!(get(&api, &done).await, done);
}

/// The id of the call that asks for a seat.
fn seat_id(task: &Value) -> Value {
    let asked = questions(task);
    asked.iter().find(|it| it["tool"] == "choose_seat").unwrap()["call_id"].clone()
}

#[tokio::test]
async fn a_subscriber_sees_an_answer_that_is_given_elsewhere() {
    let api = Api::start().await;
    let task = send(&api, says("c", "m", "Write a mail")).await;
    let subscribed = request(&api, "SubscribeToTask", json!({"id": task["id"]}));
    let told = tokio::spawn(events_of(subscribed.send().await.unwrap()));
    let call = questions(&task)[0]["call_id"].as_str().unwrap().to_owned();
    let path = format!("/v1/conversations/c/calls/{call}/resolution");
    assert_eq!(api.post(&path, json!({"approved": false, "reason": "no"})).await.status, 200);
    let told = tokio::time::timeout(DEADLINE, told).await.unwrap().unwrap();
    assert_eq!(told[0]["task"]["id"], task["id"]);
    let last = &told.last().unwrap()["statusUpdate"]["status"];
    assert_eq!(*last, get(&api, &task).await["status"]);
    assert_eq!(last["state"], "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn a_task_that_has_not_begun_is_canceled_and_the_open_one_goes_on() {
    let api = Api::start().await;
    let task = send(&api, says("c", "m", "Choose a seat")).await;
    let queued = send(&api, says("c", "m-2", "hello")).await;
    let canceled = result(&api, "CancelTask", json!({"id": queued["id"]})).await;
    assert_eq!((state(&canceled), &canceled["id"]), ("TASK_STATE_CANCELED", &queued["id"]));
    assert_eq!(state(&get(&api, &task).await), "TASK_STATE_INPUT_REQUIRED");
    refused(&api, "CancelTask", json!({"id": queued["id"]}), -32_002).await;
    let list = api.get("/v1/conversations/c/queue").await.body;
    assert_eq!(list, json!({"queued": []}));
}

#[tokio::test]
async fn a_task_that_is_open_is_canceled_once() {
    let api = Api::start().await;
    let task = send(&api, says("c", "m", "Choose a seat")).await;
    let queued = send(&api, says("c", "m-2", "hello")).await;
    assert_eq!(state(&queued), "TASK_STATE_SUBMITTED", "it waits for the task before it");
    assert_eq!(get(&api, &queued).await, queued);
    let early = answers(&queued, "m-3", vec![json!({"call_id": "x", "result": 1})]);
    refused(&api, "SendMessage", early, -32_004).await;
    let followed = request(&api, "SubscribeToTask", json!({"id": queued["id"]}));
    let followed = tokio::spawn(events_of(followed.send().await.unwrap()));
    let canceled = result(&api, "CancelTask", json!({"id": task["id"]})).await;
    assert_eq!((state(&canceled), &canceled["id"]), ("TASK_STATE_CANCELED", &task["id"]));
    refused(&api, "CancelTask", json!({"id": task["id"]}), -32_002).await;
    let told = tokio::time::timeout(DEADLINE, followed).await.unwrap().unwrap();
    assert_eq!(state(&told.last().unwrap()["statusUpdate"]), "TASK_STATE_COMPLETED");
    assert_eq!(get(&api, &queued).await["history"], queued["history"]);
}

#[tokio::test]
async fn a_message_may_be_told_of_at_once_and_a_busy_context_may_refuse_it() {
    let api = Api::start().await;
    let mut params = says("c", "m", "look it up");
    params["configuration"] = json!({"returnImmediately": true});
    let task = send(&api, params).await;
    assert!(["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"].contains(&state(&task)), "{task:#}");
    let mut rejected = says("c", "m-2", "hello");
    rejected["metadata"] = json!({"abide": {"if_busy": "reject"}});
    refused(&api, "SendMessage", rejected, -32_004).await;
    let mut to_task = message("m-3", json!([{"text": "faster"}]));
    to_task["message"]["taskId"] = task["id"].clone();
    let why = refused(&api, "SendMessage", to_task, -32_004).await;
    assert!(why.contains("takes no messages"), "{why}");
    let told = events(request(&api, "SubscribeToTask", json!({"id": task["id"]}))).await;
    assert_eq!(state(&told.last().unwrap()["statusUpdate"]), "TASK_STATE_COMPLETED");
}

#[tokio::test]
async fn parts_become_blocks_and_are_told_as_they_were() {
    let api = Api::start().await;
    let png = "iVBORw0KGgo=";
    let parts = json!([{"text": "look"}, {"data": {"n": 1.0}, "mediaType": "application/json"},
        {"raw": png, "mediaType": "image/png", "filename": "a.png"},
        {"url": "https://example.com/a.pdf", "mediaType": "application/pdf"}]);
    let mut params = message("m", parts);
    params["message"]["context_id"] = json!("c");
    let task = send(&api, params).await;
    let told = &task["history"][0]["parts"];
    assert_eq!(told[1]["data"], json!({"n": 1}));
    assert_eq!((&told[2]["raw"], &told[2]["mediaType"]), (&json!(png), &json!("image/png")));
    assert_eq!(told[3]["url"], "https://example.com/a.pdf");
    let messages = api.get("/v1/conversations/c/messages").await.body;
    let kinds = messages["messages"][0]["content"].as_array().unwrap().iter();
    assert!(kinds.map(|block| &block["type"]).eq(["text", "json", "image", "document"]));
}

#[tokio::test]
async fn what_is_not_supported_is_refused_before_anything_is_done() {
    let api = Api::start().await;
    for method in ["Create", "Get", "Delete"] {
        let method = format!("{method}TaskPushNotificationConfig");
        refused(&api, &method, json!({"taskId": "t"}), -32_003).await;
    }
    refused(&api, "ListTaskPushNotificationConfigs", json!({}), -32_003).await;
    let mut pushed = says("c", "m", "hello");
    pushed["configuration"] = json!({"taskPushNotificationConfig": {"url": "https://x.y"}});
    refused(&api, "SendMessage", pushed, -32_003).await;
    refused(&api, "ListTasks", json!({}), -32_004).await;
    refused(&api, "GetExtendedAgentCard", json!({}), -32_007).await;
    refused(&api, "message/send", json!({}), -32_601).await;
    assert_eq!(api.get("/v1/conversations/c").await.status, 404);
}

#[tokio::test]
async fn bad_input_is_one_error_of_json_rpc_that_names_the_field() {
    let api = Api::start().await;
    for (params, field) in [
        (json!({}), "message"),
        (json!({"message": {"messageId": "m", "role": "ROLE_USER"}}), "message.parts"),
        (message("", json!([{"text": "x"}])), "message.messageId"),
        (message("m", json!([{"text": "x", "url": "https://x.y"}])), "message.parts[0]"),
        (message("m", json!([{"raw": "!!", "mediaType": "image/png"}])), "message.parts[0]"),
        (says("a/b", "m", "x"), "message.contextId"),
        (json!([]), "params"),
    ] {
        let refusal = answer(&api, "SendMessage", params).await;
        let why = is_error(&refusal, -32_602);
        assert!(why.starts_with(field), "{field}: {why}");
        let named = &refusal.body["error"]["data"][0]["metadata"]["field"];
        assert!(named.as_str().unwrap().starts_with(field), "{named}");
    }
    for id in ["x", "k_a.nothing", "", "k_a.a/b"] {
        let code = if id.is_empty() { -32_602 } else { -32_001 };
        refused(&api, "GetTask", json!({"id": id}), code).await;
    }
    for (body, code) in [
        ("{", -32_700),
        ("[]", -32_600),
        ("{}", -32_600),
        (r#"{"jsonrpc": "2.0", "method": "GetTask"}"#, -32_600),
        (r#"{"jsonrpc": "1.0", "id": 1, "method": "GetTask"}"#, -32_600),
    ] {
        let sent = api.request("POST", PATH).header("A2A-Version", "1.0").body(body);
        is_error(&api.send(sent.header("Content-Type", "application/json")).await, code);
    }
    let listed = api.get("/v1/conversations").await.body;
    assert_eq!(listed["conversations"], json!([]), "nothing was changed");
}

#[tokio::test]
async fn a_request_is_of_version_1_0_and_to_an_agent_that_exists() {
    let api = Api::start().await;
    let body = call("SendMessage", says("c", "m", "hello"));
    for version in [None, Some(""), Some("0.3"), Some("2.0")] {
        let sent = api.request("POST", PATH).json(&body);
        let sent = match version {
            Some(version) => sent.header("A2A-Version", version),
            None => sent,
        };
        let why = is_error(&api.send(sent).await, -32_009);
        assert!(why.starts_with("A2A-Version"), "{why}");
    }
    let twice = api.request("POST", PATH).header("A2A-Version", "1.0").header("A2A-Version", "1.0");
    is_error(&api.send(twice.json(&body)).await, -32_009);
    let nobody = api.request("POST", "/a2a/nobody").header("A2A-Version", "1.0").json(&body);
    let answer = api.send(nobody).await;
    assert_eq!(answer.status, 404);
    is_error(&answer, -32_001);
    // A task, and a context, of another agent.
    let task = send(&api, says("c", "m", "hello")).await;
    let other = json!({"model": {"provider": "scripted", "script": [{"text": "hi"}]}});
    assert!(api.put("/v1/agents/other", other).await.status < 300);
    for (method, params, code) in [
        ("GetTask", json!({"id": task["id"]}), -32_001),
        ("CancelTask", json!({"id": task["id"]}), -32_001),
        ("SubscribeToTask", json!({"id": task["id"]}), -32_001),
        ("SendMessage", answers(&task, "m-2", vec![json!({"call_id": "x"})]), -32_001),
        ("SendMessage", says("c", "m-2", "hi"), -32_602),
    ] {
        let to = api.request("POST", "/a2a/other").header("A2A-Version", "1.0");
        is_error(&api.send(to.json(&call(method, params))).await, code);
    }
    let mut elsewhere = answers(&task, "m-2", vec![json!({"call_id": "x"})]);
    elsewhere["message"]["contextId"] = json!("d");
    let why = refused(&api, "SendMessage", elsewhere, -32_602).await;
    assert!(why.starts_with("message.contextId"), "{why}");
}
