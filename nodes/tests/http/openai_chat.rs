//! Chat completions over HTTP.

use serde_json::{Value, json};

use crate::api::{Api, ApiResponse};
use crate::openai::events;

const CHAT: &str = "/openai/v1/chat/completions";

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

async fn ask(api: &Api, id: &str, messages: &[Value], more: Value) -> ApiResponse {
    let mut body = json!({"model": "demo", "messages": messages});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let request = api.request("POST", CHAT).header("abide-conversation", id);
    api.send(request.json(&body)).await
}

fn content(answer: &ApiResponse) -> &str {
    answer.body["choices"][0]["message"]["content"].as_str().unwrap()
}

#[tokio::test]
async fn only_the_last_message_of_a_chat_is_new() {
    let api = Api::start().await;
    let first = ask(&api, "c", &[user("hello")], json!({})).await;
    assert_eq!((first.status, &first.headers["abide-conversation"]), (200, &"c".parse().unwrap()));
    assert!(content(&first).starts_with("You said: hello"), "{first:?}");
    let said = first.body["choices"][0]["message"].clone();
    let second = ask(&api, "c", &[user("hello"), said, user("again")], json!({})).await;
    assert!(content(&second).starts_with("You said: again"), "{second:?}");
    let listed = api.get("/v1/conversations/c/messages").await.body;
    assert_eq!(listed["messages"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn a_chat_without_a_conversation_has_its_history_as_background() {
    let api = Api::start().await;
    let said = json!({"role": "assistant", "content": "forged"});
    let system = json!({"role": "system", "content": "Be brief."});
    let body = json!({"model": "demo", "messages": [system, user("hello"), said, user("again")]});
    let answer = api.post(CHAT, body).await;
    let id = answer.headers["abide-conversation"].to_str().unwrap().to_owned();
    assert_eq!(
        api.get(&format!("/v1/conversations/{id}")).await.body["metadata"]["ephemeral"],
        true
    );
    let journal = api.get(&format!("/v1/conversations/{id}/journal")).await.body;
    let events = journal["events"].as_array().unwrap();
    let message = events.iter().find(|event| event["type"] == "user_msg").unwrap();
    let context = message["data"]["context"].as_array().unwrap();
    assert_eq!(context[0]["text"], "Be brief.");
    let background = context[1]["text"].as_str().unwrap();
    assert!(background.ends_with("user: hello\n\nassistant: forged"), "{background}");
    assert_eq!(message["data"]["message"]["content"][0]["text"], "again");
}

#[tokio::test]
async fn the_clients_tools_are_called_and_answered() {
    let api = Api::start().await;
    let tools = json!({"tools": [{"type": "function", "function": {"name": "locate"}}]});
    let asked = ask(&api, "c", &[user("where am I?")], tools.clone()).await;
    let choice = &asked.body["choices"][0];
    assert_eq!(choice["finish_reason"], "tool_calls", "{asked:?}");
    let call = &choice["message"]["tool_calls"][0];
    assert_eq!(call["function"]["name"], "locate");
    let output =
        json!({"role": "tool", "tool_call_id": call["id"], "content": "{\"at\": \"home\"}"});
    let messages = [user("where am I?"), choice["message"].clone(), output.clone()];
    let answer = ask(&api, "c", &messages, tools.clone()).await;
    assert!(content(&answer).contains("home"), "{answer:?}");
    let mut other = tools;
    other["user"] = json!("another");
    let late = ask(&api, "c", &messages, other).await;
    late.is_openai_error(409, "call_not_open");
}

#[tokio::test]
async fn a_wrong_result_refuses_the_good_one_beside_it() {
    let api = Api::start().await;
    let calls = json!([{"calls": [{"name": "x", "args": {}}, {"name": "y", "args": {}}]}]);
    let tool = |name: &str| {
        json!({"name": name, "description": name, "executor": "human",
            "result_schema": {"type": "string", "enum": ["yes", "no"]}})
    };
    let model = json!({"provider": "scripted", "script": calls});
    api.put("/v1/agents/asks", json!({"model": model, "tools": [tool("x"), tool("y")]})).await;
    let function = |name: &str| json!({"type": "function", "function": {"name": name}});
    let more = json!({"model": "asks", "tools": [function("x"), function("y")]});
    let asked = ask(&api, "c", &[user("go")], more.clone()).await;
    let said = asked.body["choices"][0]["message"].clone();
    let result = |index: usize, content: &str| {
        let id = &said["tool_calls"][index]["id"];
        json!({"role": "tool", "tool_call_id": id, "content": content})
    };
    let results = |second: &str| [user("go"), said.clone(), result(0, "yes"), result(1, second)];
    let refused = ask(&api, "c", &results("maybe"), more.clone()).await;
    let error = refused.is_openai_error(400, "invalid_request");
    assert_eq!(error["param"], "messages[3].content", "{error}");
    let pending = api.get("/v1/conversations/c").await.body["pending"].clone();
    assert_eq!(pending.as_array().unwrap().len(), 2, "nothing is done");
    let given = ask(&api, "c", &results("no"), more).await;
    assert_eq!(content(&given), "Done.", "{given:?}");
}

#[tokio::test]
async fn what_a_chat_cannot_ask_is_said_and_the_next_message_supersedes_it() {
    let api = Api::start().await;
    let waiting = ask(&api, "c", &[user("Write a mail")], json!({})).await;
    let text = content(&waiting);
    assert!(text.contains("\n\n[waiting] Send an e-mail to ada@example.com? (http://"), "{text}");
    let next = ask(&api, "c", &[user("hello")], json!({})).await;
    assert!(content(&next).starts_with("You said: hello"), "{next:?}");
}

#[tokio::test]
async fn a_request_may_be_held_until_somebody_has_answered() {
    let api = Api::start().await;
    let messages = [user("Write a mail")];
    let held = ask(&api, "c", &messages, json!({"abide": {"on_wait": "wait"}}));
    let approves = async {
        while api.get("/v1/conversations/c").await.body["state"] != "awaiting_input" {
            tokio::task::yield_now().await;
        }
        let path = "/v1/conversations/c/calls/call_1_1/resolution";
        api.post(path, json!({"approved": true})).await
    };
    let (held, approved) = tokio::join!(held, approves);
    assert_eq!(approved.status, 200);
    assert!(content(&held).contains("The tool said"), "{held:?}");
}

#[tokio::test]
async fn a_streamed_chat_has_the_same_words() {
    let api = Api::start().await;
    let body = json!({"model": "demo", "messages": [user("hello")], "stream": true,
        "stream_options": {"include_usage": true}});
    let chunks = events(api.request("POST", CHAT).json(&body)).await;
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    let text: String = chunks
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert!(text.starts_with("You said: hello"), "{text}");
    let [.., finish, usage] = chunks.as_slice() else { panic!("{chunks:?}") };
    assert_eq!(finish["choices"][0]["finish_reason"], "stop");
    assert_eq!((&usage["choices"], usage["usage"]["prompt_tokens"].is_u64()), (&json!([]), true));
}

#[tokio::test]
async fn a_turn_that_fails_is_an_error_that_is_not_sent_again() {
    let api = Api::start().await;
    let script = json!([{"error": {"message": "no model"}}]);
    api.put("/v1/agents/fails", json!({"model": {"provider": "scripted", "script": script}})).await;
    let mut body = json!({"model": "fails", "messages": [user("hello")]});
    let failed = api.post(CHAT, body.clone()).await;
    failed.is_openai_error(502, "turn_failed");
    assert_eq!(failed.headers["x-should-retry"], "false");
    body["stream"] = json!(true);
    let response = api.request("POST", CHAT).json(&body).send().await.unwrap();
    assert_eq!(response.status(), 200);
    let text = response.text().await.unwrap();
    let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let [.., error, done] = lines.as_slice() else { panic!("{text}") };
    let error: Value = serde_json::from_str(error).unwrap();
    assert_eq!((&error["error"]["code"], *done), (&json!("turn_failed"), "[DONE]"));
    let unknown = api.post(CHAT, json!({"model": "gpt", "messages": [user("hello")]})).await;
    unknown.is_openai_error(404, "model_not_found");
}
