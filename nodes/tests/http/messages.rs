//! Sending messages, repeating them, refusing them, and reading them back.

use serde_json::{Value, json};

use crate::api::TestApi;

const MESSAGES_PATH: &str = "/v1/conversations/a/messages";

#[tokio::test]
async fn a_message_starts_a_turn_that_the_stream_reports() {
    let api = TestApi::start().await;
    api.post("/v1/conversations", json!({"id": "a", "agent": "demo"})).await;
    let mut stream = api.stream("/v1/conversations/a/events").await;
    assert_eq!(stream.next().await.unwrap().event, "snapshot");
    let sent = api.post(MESSAGES_PATH, json!({"text": "hello"})).await;
    assert_eq!((sent.status, &sent.body["conversation_id"]), (202, &json!("a")));
    let frames = stream.frames_until("turn_completed").await;
    let turn = &sent.body["turn_id"];
    let started = frames.iter().find(|frame| frame.event == "turn_started").unwrap();
    assert_eq!(&started.data["turn_id"], turn);
    let completed = frames.iter().find(|frame| frame.event == "message_completed").unwrap();
    let text = completed.data["message"]["content"][0]["text"].as_str().unwrap();
    let deltas = frames.iter().filter(|frame| frame.event == "text_delta");
    let streamed: String =
        deltas.clone().map(|frame| frame.data["text"].as_str().unwrap()).collect();
    assert_eq!(streamed, text);
    assert!(deltas.clone().all(|frame| frame.id.is_none()));
    assert!(frames.last().unwrap().id.is_some());
    let ids: Vec<u64> = frames.iter().filter_map(|frame| frame.id).collect();
    assert!(ids.is_sorted_by(|one, other| one < other), "{ids:?}");
}

#[tokio::test]
async fn a_stream_goes_on_after_the_last_event_id() {
    let api = TestApi::start().await;
    api.send_and_wait_for("a", "hello", "turn_completed").await;
    let mut whole = api.stream("/v1/conversations/a/events?after=0").await;
    let all = whole.frames_until("turn_completed").await;
    let last_seen = all.iter().find_map(|frame| frame.id).unwrap();
    let request = api.request("GET", "/v1/conversations/a/events?after=0");
    let mut rest =
        crate::stream::EventStream::open(request.header("Last-Event-ID", last_seen)).await;
    let tail = rest.frames_until("turn_completed").await;
    let after: Vec<_> =
        all.iter().filter(|frame| frame.id.is_none_or(|id| id > last_seen)).collect();
    assert_eq!(tail.iter().collect::<Vec<_>>(), after);
    let request = api.request("GET", "/v1/conversations/a/events");
    api.send(request.header("Last-Event-ID", "x")).await.names("Last-Event-ID");
}

#[tokio::test]
async fn a_deleted_conversation_ends_its_streams() {
    let api = TestApi::start().await;
    api.post("/v1/conversations", json!({"id": "a", "agent": "demo"})).await;
    let mut stream = api.stream("/v1/conversations/a/events").await;
    stream.wait_for("snapshot").await;
    api.delete("/v1/conversations/a").await;
    assert_eq!(stream.next().await, None);
}

#[tokio::test]
async fn a_wrong_field_of_a_message_is_named() {
    let api = TestApi::start().await;
    api.post("/v1/conversations", json!({"id": "a", "agent": "demo"})).await;
    for (body, field) in [
        (json!({}), "text"),
        (json!({"text": ""}), "text"),
        (json!({"text": 7}), "text"),
        (json!({"text": "a", "content": [{"type": "text", "text": "a"}]}), "text"),
        (json!({"content": []}), "content"),
        (json!({"content": ["a"]}), "content[0]"),
        (json!({"content": [{"type": "text", "text": "a"}, {"type": 7}]}), "content[1]"),
        (json!({"content": [{"type": "text"}]}), "content[0].text: is missing"),
        (json!({"text": "a", "message_id": ""}), "message_id"),
        (json!({"text": "a", "message_id": "x".repeat(256)}), "message_id"),
        (json!({"text": "a", "agent": "No"}), "agent"),
        (json!({"text": "a", "if_busy": "wait"}), "if_busy"),
        (json!({"text": "a", "schema": true}), "schema"),
        (json!({"text": "a", "schema": {"title": "x".repeat(65_536)}}), "schema: is larger"),
        (json!({"text": "a", "schema": {"type": "nothing"}}), "schema"),
        (json!({"text": "a", "assigns": {"x": "x".repeat(70_000)}}), "assigns"),
        (json!({"text": "a", "surprise": 1}), "surprise"),
    ] {
        api.post(MESSAGES_PATH, body).await.names(field);
    }
    let journal = api.get("/v1/conversations/a/journal").await.body;
    assert_eq!(journal["last_seq"], 1);
}

#[tokio::test]
async fn a_wrong_field_of_a_block_is_named_with_its_place() {
    let api = TestApi::start().await;
    api.post("/v1/conversations", json!({"id": "a", "agent": "demo"})).await;
    let png = |data: &str| json!({"type": "base64", "mimeType": "image/png", "data": data});
    for (block, wrong) in [
        (json!({"type": "image"}), "content[1].source: is missing"),
        (json!({"type": "image", "source": png("?")}), "content[1].source.data: is not base64"),
        (json!({"type": "audio", "source": png("AA==")}), "content[1].source.mimeType: must be"),
        (json!({"type": "document", "source": {"type": "ftp"}}), "content[1].source.type: must be"),
        (json!({"type": "video", "source": {"type": "url", "url": "x"}}), "content[1].source.url"),
        (json!({"type": "code", "text": "x"}), "content[1].language: is missing"),
        (json!({"type": "csv", "text": "x", "headers": [1]}), "content[1].headers: must be"),
        (json!({"type": "user_action"}), "content[1].action: is missing"),
        (
            json!({"type": "tool_use", "toolUseId": "c", "name": "t", "input": {}}),
            "content[1].type: a block of this type is the model's",
        ),
        (
            json!({"type": "tool_result", "toolUseId": "c", "name": "t", "content": []}),
            "content[1].type: a block of this type is the model's",
        ),
        (
            json!({"type": "reasoning", "text": "hm"}),
            "content[1].type: a block of this type is the model's",
        ),
        (json!({"text": "typeless"}), "content[1]: a block is an object with a type"),
    ] {
        let content = json!([{"type": "text", "text": "see"}, block]);
        api.post(MESSAGES_PATH, json!({"content": content})).await.names(wrong);
    }
    let journal = api.get("/v1/conversations/a/journal").await.body;
    assert_eq!(journal["last_seq"], 1);
}

#[tokio::test]
async fn blocks_are_stored_unchanged_and_reach_the_model_as_text() {
    let api = TestApi::start().await;
    let echo = json!({"model": {"provider": "scripted", "script": [{"text": "{{ user }}"}]}});
    api.put("/v1/agents/echo", echo).await;
    let content = json!([
        {"type": "text", "text": "See", "metadata": {"from": "page"}},
        {"type": "image", "altText": "a cat", "source":
            {"type": "base64", "mimeType": "image/png", "data": "AAEC"}},
        {"type": "json", "data": {"z": 1, "a": 2}},
        {"type": "hologram", "beams": 3},
    ]);
    let mut stream = {
        let sent = api.post(MESSAGES_PATH, json!({"agent": "echo", "content": content})).await;
        assert_eq!(sent.status, 202);
        api.stream("/v1/conversations/a/events?after=0").await
    };
    stream.wait_for("turn_completed").await;
    let messages = api.get(MESSAGES_PATH).await.body["messages"].clone();
    assert_eq!(messages[0]["content"], content);
    let expected =
        "See\n[image/png, 3 B: a cat]\n{\"z\":1,\"a\":2}\n{\"type\":\"hologram\",\"beams\":3}";
    assert_eq!(messages[1]["content"][0]["text"], expected);
}

#[tokio::test]
async fn an_agent_that_is_not_the_conversations_is_refused() {
    let api = TestApi::start().await;
    let echo = json!({"model": {"provider": "scripted", "script": [{"text": "x"}]}});
    api.put("/v1/agents/echo", echo).await;
    api.post("/v1/conversations", json!({"id": "a", "agent": "demo"})).await;
    api.post(MESSAGES_PATH, json!({"text": "a", "agent": "echo"})).await.names("agent");
    api.delete("/v1/agents/demo").await;
    api.post(MESSAGES_PATH, json!({"text": "a"})).await.is_problem(409, "agent-missing");
    assert_eq!(api.get("/v1/conversations/a").await.body["revision"], Value::Null);
}

#[tokio::test]
async fn a_busy_conversation_refuses_queues_or_interrupts() {
    let api = TestApi::start().await;
    api.send_and_wait_for("a", "write a mail", "suspended").await;
    api.send_message("a", "and this?").await.is_problem(409, "turn-in-flight");
    let queued = api.post(MESSAGES_PATH, json!({"text": "hello", "if_busy": "queue"})).await;
    assert_eq!(queued.status, 202);
    assert_eq!(api.get("/v1/conversations/a").await.body["queued"], 1);
    let mut stream = api.stream("/v1/conversations/a/events").await;
    let body = json!({"content": [{"type": "text", "text": "now"}], "if_busy": "interrupt"});
    assert_eq!(api.post(MESSAGES_PATH, body).await.status, 202);
    stream.wait_for("turn_cancelled").await;
    stream.wait_for("turn_completed").await;
}

#[tokio::test]
async fn a_repeated_message_is_one_message() {
    let api = TestApi::start().await;
    let body = json!({"text": "hello", "agent": "demo", "message_id": "m"});
    let first = api.post(MESSAGES_PATH, body.clone()).await;
    let again = api.post(MESSAGES_PATH, body).await;
    assert_eq!((again.status, &again.body), (202, &first.body));
    let other = json!({"text": "other", "agent": "demo", "message_id": "m"});
    api.post(MESSAGES_PATH, other).await.names("message_id");
    let keyed = json!({"text": "one", "if_busy": "queue"});
    let first = api.send_keyed("k", "POST", MESSAGES_PATH, keyed.clone()).await;
    let again = api.send_keyed("k", "POST", MESSAGES_PATH, keyed).await;
    assert_eq!((again.status, &again.body), (202, &first.body));
    let other = json!({"text": "two", "if_busy": "queue"});
    api.send_keyed("k", "POST", MESSAGES_PATH, other).await.names("Idempotency-Key");
    let events = api.get("/v1/conversations/a/journal?limit=1000").await.body["events"].clone();
    let is_user_message = |event: &&Value| event["type"] == "user_msg";
    assert_eq!(events.as_array().unwrap().iter().filter(is_user_message).count(), 2);
}

#[tokio::test]
async fn messages_are_read_from_the_newest_page_backwards() {
    let api = TestApi::start().await;
    for text in ["one", "two"] {
        let sent = api.send_message("a", text).await;
        let after = sent.body["seq"].as_u64().unwrap();
        let mut stream = api.stream(&format!("/v1/conversations/a/events?after={after}")).await;
        stream.wait_for("turn_completed").await;
    }
    let all = api.get(MESSAGES_PATH).await.body;
    assert_eq!((&all["more"], &all["cursor"]), (&json!(false), &Value::Null));
    let roles: Vec<_> = all["messages"].as_array().unwrap().iter().map(|m| &m["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
    let below = api.get(&format!("{MESSAGES_PATH}?limit=3")).await.body;
    assert_eq!(below["messages"], json!(all["messages"].as_array().unwrap()[1..]));
    assert_eq!(below["more"], true);
    let cursor = below["cursor"].as_str().unwrap();
    let above = api.get(&format!("{MESSAGES_PATH}?before={cursor}&limit=3")).await.body;
    assert_eq!(above["messages"], json!(all["messages"].as_array().unwrap()[..1]));
    assert_eq!(above["more"], false);
}
