//! The UI message stream over HTTP: what a request may say, who may chat, and what is refused.

use serde_json::{Value, json};

use crate::access::{GuardedApi, key_line};
use crate::api::{Api, DEADLINE};

fn message(id: &str, text: &str) -> Value {
    let parts = json!([{"type": "text", "text": text}]);
    json!({"id": id, "trigger": "submit-message",
        "messages": [{"id": "m-1", "role": "user", "parts": parts}]})
}

/// The chunks of a response, to its end.
async fn chunks(request: reqwest::RequestBuilder) -> Vec<Value> {
    let response = request.send().await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let text = tokio::time::timeout(DEADLINE, response.text()).await.unwrap().unwrap();
    let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("data: ")).collect();
    let (last, chunks) = lines.split_last().unwrap();
    assert_eq!(*last, "[DONE]");
    chunks.iter().map(|chunk| serde_json::from_str(chunk).unwrap()).collect()
}

#[tokio::test]
async fn a_chat_is_a_conversation_of_its_agent_and_of_no_other() {
    let api = Api::start().await;
    let hello = api.request("POST", "/v1/agents/demo/ui").json(&message("c", "hello"));
    let told = chunks(hello).await;
    assert_eq!(told[0]["messageMetadata"], json!({"conversation_id": "c"}));
    assert_eq!(told.last().unwrap()["finishReason"], "stop");
    let listed = api.get("/v1/agents/demo/ui/c/messages").await;
    let ids: Vec<_> =
        listed.body.as_array().unwrap().iter().map(|message| message["id"].clone()).collect();
    assert_eq!(ids, [json!("m-1"), told[0]["messageId"].clone()]);
    let idle = api.request("GET", "/v1/agents/demo/ui/c/stream").send().await.unwrap();
    assert_eq!(idle.status(), 204);
    let definition = json!({"model": {"provider": "scripted", "script": [{"text": "hi"}]}});
    api.put("/v1/agents/other", definition).await;
    for path in ["/v1/agents/other/ui/c", "/v1/agents/demo/ui/none"] {
        let refused = api.get(&format!("{path}/messages")).await;
        refused.is_problem(404, "not-found");
        api.get(&format!("{path}/stream")).await.is_problem(404, "not-found");
        api.post(&format!("{path}/stop"), json!({})).await.is_problem(404, "not-found");
    }
    let mut second = message("c", "hello");
    second["messages"][0]["id"] = json!("m-2");
    api.post("/v1/agents/other/ui", second).await.names("agent");
    let missing = api.post("/v1/agents/missing/ui", message("d", "hello")).await;
    missing.is_problem(409, "agent-missing");
}

#[tokio::test]
async fn a_request_that_is_wrong_names_its_field_and_creates_nothing() {
    let api = Api::start().await;
    let mut system = message("c", "hello");
    system["messages"][0]["role"] = json!("system");
    let mut busy = message("c", "hello");
    busy["abide"] = json!({"if_busy": "now"});
    for (path, body, field) in [
        ("/v1/agents/demo/ui?v=5", message("c", "hello"), "v: must be 6 or 7"),
        ("/v1/agents/demo/ui", message("c/d", "hello"), "id: "),
        ("/v1/agents/demo/ui", json!({"id": "c", "messages": []}), "messages: is empty"),
        ("/v1/agents/demo/ui", system, "messages[0].role"),
        ("/v1/agents/demo/ui", busy, "abide.if_busy"),
        ("/v1/agents/UP/ui", message("c", "hello"), "agent: "),
    ] {
        let refused = api.request("POST", path).json(&body);
        api.send(refused).await.names(field);
    }
    api.get("/v1/conversations/c").await.is_problem(404, "not-found");
    let answer = json!({"id": "c", "messages": [{"id": "t", "role": "assistant", "parts": []}]});
    let refused = api.post("/v1/agents/demo/ui", answer.clone()).await;
    refused.is_problem(404, "not-found");
    chunks(api.request("POST", "/v1/agents/demo/ui").json(&message("c", "hello"))).await;
    api.post("/v1/agents/demo/ui", answer).await.names("messages: the last is of no turn");
    let mut other = message("c", "another text");
    other["messages"][0]["id"] = json!("m-1");
    api.post("/v1/agents/demo/ui", other).await.names("message_id");
}

#[tokio::test]
async fn a_message_is_written_anew_as_the_page_asks() {
    let api = Api::start().await;
    let chat =
        async |body: Value| chunks(api.request("POST", "/v1/agents/demo/ui").json(&body)).await;
    chat(message("c", "hello")).await;
    let shown = api.get("/v1/agents/demo/ui/c/messages").await.body;
    let answer = shown[1]["id"].as_str().unwrap().to_owned();
    for which in [json!(null), json!("m-1")] {
        let mut regenerate = message("c", "hello");
        regenerate["trigger"] = json!("regenerate-message");
        regenerate["messageId"] = which.clone();
        let told = chat(regenerate).await;
        assert!(told.iter().any(|chunk| chunk["type"] == "finish"), "{which}: {told:#?}");
        let shown = api.get("/v1/agents/demo/ui/c/messages").await.body;
        assert_eq!(shown.as_array().unwrap().len(), 2, "{which}: {shown:#}");
        assert_ne!(shown[1]["id"], answer, "it is another turn");
    }
    let mut gone = message("c", "hello");
    gone["trigger"] = json!("regenerate-message");
    gone["messageId"] = json!(answer);
    api.post("/v1/agents/demo/ui", gone).await.names("messageId");
    let mut unknown = message("d", "hello");
    unknown["trigger"] = json!("regenerate-message");
    api.post("/v1/agents/demo/ui", unknown).await.is_problem(404, "not-found");
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_may_chat() {
    let origin = "https://shop.example";
    let api = Api::start_with(&["--allow-origin", origin]).await;
    let path = "/v1/agents/demo/ui";
    let hello = api.request("POST", path).header("Origin", origin).json(&message("c", "hello"));
    let response = hello.send().await.unwrap();
    assert_eq!(response.headers()["access-control-allow-origin"], origin);
    assert_eq!(response.headers()["x-vercel-ai-ui-message-stream"], "v1");
    let foreign = api.request("POST", path).header("Origin", "https://evil.example");
    let response = foreign.json(&message("d", "hello")).send().await.unwrap();
    assert!(!response.headers().contains_key("access-control-allow-origin"));
}

#[tokio::test]
async fn a_token_chats_with_the_scopes_that_it_has() {
    let keys = json!([key_line("shop", &["backend"])]);
    let tokens = json!({"keys": ["file:token.pem"]});
    let guarded = GuardedApi::start(&json!({"keys": keys, "tokens": tokens})).await;
    let new = json!({"id": "c", "agent": "demo"});
    guarded.send("shop", "POST", "/v1/conversations", new).await;
    let token = async |scope: &[&str]| {
        let asked = json!({"subject": "ada", "conversation": "c", "scope": scope});
        let minted = guarded.send("shop", "POST", "/v1/tokens", asked).await;
        minted.body["token"].as_str().unwrap().to_owned()
    };
    let request = |token: &str, body: &Value| {
        guarded.api.request("POST", "/v1/agents/demo/ui").bearer_auth(token).json(body)
    };
    let sender = token(&["send"]).await;
    let refused = guarded.api.send(request(&sender, &message("c", "Write a mail"))).await;
    refused.is_problem(403, "forbidden");
    assert_eq!(refused.body["needs"], "read");
    let chatter = token(&["read", "send", "answer:human"]).await;
    let elsewhere = guarded.api.send(request(&chatter, &message("d", "hello"))).await;
    elsewhere.is_problem(403, "forbidden");
    // A person's question is asked, since the token may answer it.
    let told = chunks(request(&chatter, &message("c", "Choose a seat"))).await;
    let asks = |chunk: &&Value| chunk["toolMetadata"]["abide"]["kind"] == "elicitation";
    let asked = told.iter().find(asks).unwrap();
    let part = json!({"type": "tool-choose_seat", "toolCallId": asked["toolCallId"],
        "state": "output-available", "output": "aisle", "toolMetadata": asked["toolMetadata"]});
    let answer = json!({"id": "c", "messages": [
        {"id": told[0]["messageId"], "role": "assistant", "parts": [part]}]});
    let reader = token(&["read", "send"]).await;
    let refused = guarded.api.send(request(&reader, &answer)).await;
    refused.is_problem(403, "forbidden");
    assert_eq!(refused.body["needs"], "answer:human");
    let told = chunks(request(&chatter, &answer)).await;
    assert_eq!(told.last().unwrap()["finishReason"], "stop", "{told:?}");
}
