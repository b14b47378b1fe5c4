//! Messages over HTTP: send, repeat, refuse, list.

use serde_json::{Value, json};

use crate::api::Api;

const AT: &str = "/v1/conversations/a/messages";

#[tokio::test]
async fn a_message_starts_a_turn_whose_frames_are_streamed() {
    let api = Api::start().await;
    api.post("/v1/conversations", json!({"id": "a", "agent": "demo"})).await;
    let mut stream = api.stream("/v1/conversations/a/events").await;
    assert_eq!(stream.next().await.unwrap().event, "snapshot");
    let sent = api.post(AT, json!({"text": "hello"})).await;
    assert_eq!((sent.status, &sent.body["conversation_id"]), (202, &json!("a")));
    let frames = stream.all_until("turn_completed").await;
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
    let api = Api::start().await;
    api.say_until("a", "hello", "turn_completed").await;
    let mut whole = api.stream("/v1/conversations/a/events?after=0").await;
    let all = whole.all_until("turn_completed").await;
    let seen = all.iter().find_map(|frame| frame.id).unwrap();
    let request = api.request("GET", "/v1/conversations/a/events?after=0");
    let mut rest = crate::stream::Stream::open(request.header("Last-Event-ID", seen)).await;
    let tail = rest.all_until("turn_completed").await;
    let after: Vec<_> = all.iter().filter(|frame| frame.id.is_none_or(|id| id > seen)).collect();
    assert_eq!(tail.iter().collect::<Vec<_>>(), after);
    let request = api.request("GET", "/v1/conversations/a/events");
    api.send(request.header("Last-Event-ID", "x")).await.names("Last-Event-ID");
}

#[tokio::test]
async fn a_deleted_conversation_ends_its_streams() {
    let api = Api::start().await;
    api.post("/v1/conversations", json!({"id": "a", "agent": "demo"})).await;
    let mut stream = api.stream("/v1/conversations/a/events").await;
    stream.until("snapshot").await;
    api.delete("/v1/conversations/a").await;
    assert_eq!(stream.next().await, None);
}

#[tokio::test]
async fn a_wrong_field_of_a_message_is_named() {
    let api = Api::start().await;
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
        api.post(AT, body).await.names(field);
    }
    let journal = api.get("/v1/conversations/a/journal").await.body;
    assert_eq!(journal["last_seq"], 1);
}

#[tokio::test]
async fn a_wrong_field_of_a_block_is_named_with_its_place() {
    let api = Api::start().await;
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
            "content[1].type: only a model may write a block of this type",
        ),
        (
            json!({"type": "tool_result", "toolUseId": "c", "name": "t", "content": []}),
            "content[1].type: only a model may write a block of this type",
        ),
        (
            json!({"type": "reasoning", "text": "hm"}),
            "content[1].type: only a model may write a block of this type",
        ),
        (json!({"text": "typeless"}), "content[1]: a block is an object with a type"),
    ] {
        let content = json!([{"type": "text", "text": "see"}, block]);
        api.post(AT, json!({"content": content})).await.names(wrong);
    }
    let journal = api.get("/v1/conversations/a/journal").await.body;
    assert_eq!(journal["last_seq"], 1);
}

#[tokio::test]
async fn blocks_are_stored_unchanged_and_given_to_the_model_as_text() {
    let api = Api::start().await;
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
        let sent = api.post(AT, json!({"agent": "echo", "content": content})).await;
        assert_eq!(sent.status, 202);
        api.stream("/v1/conversations/a/events?after=0").await
    };
    stream.until("turn_completed").await;
    let messages = api.get(AT).await.body["messages"].clone();
    assert_eq!(messages[0]["content"], content);
    let model_text =
        "See\n[image/png, 3 B: a cat]\n{\"z\":1,\"a\":2}\n{\"type\":\"hologram\",\"beams\":3}";
    assert_eq!(messages[1]["content"][0]["text"], model_text);
}

#[tokio::test]
async fn an_agent_that_is_not_the_conversations_is_refused() {
    let api = Api::start().await;
    let echo = json!({"model": {"provider": "scripted", "script": [{"text": "x"}]}});
    api.put("/v1/agents/echo", echo).await;
    api.post("/v1/conversations", json!({"id": "a", "agent": "demo"})).await;
    api.post(AT, json!({"text": "a", "agent": "echo"})).await.names("agent");
    api.delete("/v1/agents/demo").await;
    api.post(AT, json!({"text": "a"})).await.is_problem(409, "agent-missing");
    assert_eq!(api.get("/v1/conversations/a").await.body["revision"], Value::Null);
}

#[tokio::test]
async fn a_busy_conversation_refuses_queues_or_interrupts() {
    let api = Api::start().await;
    api.say_until("a", "write a mail", "suspended").await;
    api.say("a", "and this?").await.is_problem(409, "turn-in-flight");
    let queued = api.post(AT, json!({"text": "hello", "if_busy": "queue"})).await;
    assert_eq!(queued.status, 202);
    assert_eq!(api.get("/v1/conversations/a").await.body["queued"], 1);
    let mut stream = api.stream("/v1/conversations/a/events").await;
    let body = json!({"content": [{"type": "text", "text": "now"}], "if_busy": "interrupt"});
    assert_eq!(api.post(AT, body).await.status, 202);
    stream.until("turn_cancelled").await;
    stream.until("turn_completed").await;
}

#[tokio::test]
async fn a_repeated_message_is_one_message() {
    let api = Api::start().await;
    let body = json!({"text": "hello", "agent": "demo", "message_id": "m"});
    let first = api.post(AT, body.clone()).await;
    let again = api.post(AT, body).await;
    assert_eq!((again.status, &again.body), (202, &first.body));
    let other = json!({"text": "other", "agent": "demo", "message_id": "m"});
    api.post(AT, other).await.names("message_id");
    let keyed = json!({"text": "one", "if_busy": "queue"});
    let first = api.keyed("k", "POST", AT, keyed.clone()).await;
    let again = api.keyed("k", "POST", AT, keyed).await;
    assert_eq!((again.status, &again.body), (202, &first.body));
    let other = json!({"text": "two", "if_busy": "queue"});
    api.keyed("k", "POST", AT, other).await.names("Idempotency-Key");
    let events = api.get("/v1/conversations/a/journal?limit=1000").await.body["events"].clone();
    let is_user_message = |event: &&Value| event["type"] == "user_msg";
    assert_eq!(events.as_array().unwrap().iter().filter(is_user_message).count(), 2);
}

#[tokio::test]
async fn messages_are_listed_from_the_newest() {
    let api = Api::start().await;
    for text in ["one", "two"] {
        let sent = api.say("a", text).await;
        let after = sent.body["seq"].as_u64().unwrap();
        let mut stream = api.stream(&format!("/v1/conversations/a/events?after={after}")).await;
        stream.until("turn_completed").await;
    }
    let all = api.get(AT).await.body;
    assert_eq!((&all["more"], &all["cursor"]), (&json!(false), &Value::Null));
    let roles: Vec<_> = all["messages"].as_array().unwrap().iter().map(|m| &m["role"]).collect();
    assert_eq!(roles, ["user", "assistant", "user", "assistant"]);
    let newer = api.get(&format!("{AT}?limit=3")).await.body;
    assert_eq!(newer["messages"], json!(all["messages"].as_array().unwrap()[1..]));
    assert_eq!(newer["more"], true);
    let cursor = newer["cursor"].as_str().unwrap();
    let older = api.get(&format!("{AT}?before={cursor}&limit=3")).await.body;
    assert_eq!(older["messages"], json!(all["messages"].as_array().unwrap()[..1]));
    assert_eq!(older["more"], false);
}

#[tokio::test]
async fn a_messages_tools_and_context_hold_for_its_turn() {
    let api = Api::start().await;
    let agent = json!({"client_grace": "1ms", "model": {"provider": "scripted", "script": [
        {"calls": [{"id": "l", "name": "locate", "args": {}}]}, {"text": "Done."}]},
        "tools": [{"name": "own", "executor": "human", "description": "Asks."}]});
    assert_eq!(api.put("/v1/agents/plain", agent).await.status, 201);
    let locate = json!({"name": "locate", "description": "Locates.", "executor": "client",
        "result_schema": {"type": "string"}});
    let path = "/v1/conversations/t/messages";
    let context = json!([{"type": "text", "text": "It is noon."}]);
    let with = |tools: Value, context: Value| json!({"agent": "plain", "text": "go", "tools": tools, "context": context});
    let huge = "x".repeat(64 << 10);
    for (body, field) in [
        (
            with(json!([{"name": "own", "executor": "client", "description": "x"}]), json!([])),
            "tools[0].name",
        ),
        (
            with(
                json!([{"name": "s", "description": "x", "run": {"http": {"url": "http://a"}}}]),
                json!([]),
            ),
            "executor",
        ),
        (with(json!([locate, locate]), json!([])), "locate"),
        (with(json!(["x"]), json!([])), "tools[0]"),
        (
            with(
                json!([{"name": "l", "description": "x".repeat(128 << 10), "executor": "client"}]),
                json!([]),
            ),
            "tools",
        ),
        (with(json!([]), json!([{"type": "text", "text": huge}])), "context"),
        (with(json!([]), json!([{"type": "text"}])), "context[0]"),
        (with(json!([]), json!("noon")), "context"),
    ] {
        api.post(path, body).await.names(field);
    }
    api.get("/v1/conversations/t").await.is_problem(404, "not-found");
    let rests = api.post(&format!("{path}?wait=30s"), with(json!([locate]), context.clone())).await;
    let pending = &rests.body["pending"][0];
    assert_eq!((&pending["tool"], &pending["kind"]), (&json!("locate"), &json!("client_exec")));
    assert_eq!(pending["answer_schema"], json!({"type": "string"}));
    let journal = api.get("/v1/conversations/t/journal").await.body;
    let data = &journal["events"][1]["data"];
    assert_eq!((&data["tools"], &data["context"]), (&json!([locate]), &context));
    let listed = api.get(path).await.body;
    assert_eq!(listed["messages"][0]["content"].as_array().unwrap().len(), 1);
    // No page is connected, and the grace of the agent's own client calls is long over.
    let answer = "/v1/conversations/t/calls/l/resolution?wait=30s";
    api.post(answer, json!({"result": 7})).await.names("result");
    let done = api.post(answer, json!({"result": "here"})).await;
    assert_eq!(done.body["outcome"], "completed", "{done:?}");
    // The next turn has neither.
    let next = api.post(&format!("{path}?wait=30s"), json!({"text": "again"})).await;
    assert_eq!(next.body["outcome"], "completed", "{next:?}");
    let messages = api.get(path).await.body;
    let unknown = messages["messages"]
        .as_array()
        .unwrap()
        .iter()
        .any(|message| message.to_string().contains("unknown tool: locate"));
    assert!(unknown, "{messages}");
}
