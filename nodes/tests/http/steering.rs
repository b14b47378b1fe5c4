//! Turns that wait are listed and withdrawn, and a turn that runs is steered.

use serde_json::{Value, json};

use crate::api::Api;

const MESSAGES: &str = "/v1/conversations/c/messages";
const QUEUE: &str = "/v1/conversations/c/queue";

/// A conversation whose turn asks a person, `w`, and then says `Done.`.
async fn asking(api: &Api) -> Value {
    let who = json!({"name": "who", "description": "Asks.", "executor": "human",
        "parameters": {"type": "object"}});
    let script = json!([{"calls": [{"id": "w", "name": "who", "args": {}}]}, {"text": "Done."}]);
    let agent = json!({"tools": [who], "model": {"provider": "scripted", "script": script}});
    assert_eq!(api.put("/v1/agents/asker", agent).await.status, 201);
    let sent = api.post(MESSAGES, json!({"agent": "asker", "text": "go"})).await;
    assert_eq!(sent.status, 202, "{sent:?}");
    api.stream("/v1/conversations/c/events?after=0").await.until("suspended").await;
    sent.body["turn_id"].clone()
}

async fn answer(api: &Api) {
    let path = "/v1/conversations/c/calls/w/resolution";
    assert_eq!(api.post(path, json!({"result": "me"})).await.status, 200);
}

/// Answers until the turn ends: with a message that steered it, the script begins anew.
async fn answer_all(api: &Api) {
    for outcome in ["awaiting_input", "completed"] {
        let waits = api.get("/v1/pending").await.body["pending"][0]["call_id"].clone();
        let path = format!("/v1/conversations/c/calls/{}/resolution", waits.as_str().unwrap());
        let ended = api.post(&format!("{path}?wait=20s"), json!({"result": "me"})).await;
        assert_eq!(ended.body["outcome"], outcome, "{ended:?}");
    }
}

async fn send(api: &Api, if_busy: &str, text: &str) -> Value {
    let sent = api.post(MESSAGES, json!({"text": text, "if_busy": if_busy})).await;
    assert_eq!(sent.status, 202, "{sent:?}");
    sent.body
}

fn at(turn: &Value) -> String {
    format!("{QUEUE}/{}", turn.as_str().unwrap())
}

/// The texts of the conversation's messages, oldest first.
async fn texts(api: &Api) -> Vec<String> {
    let messages = api.get(MESSAGES).await.body["messages"].as_array().unwrap().clone();
    let text = |message: &Value| message["content"][0]["text"].as_str().unwrap_or("").to_owned();
    messages.iter().map(text).collect()
}

#[tokio::test]
async fn the_turns_that_wait_are_listed_with_their_messages() {
    let api = Api::start().await;
    asking(&api).await;
    assert_eq!(api.get(QUEUE).await.body, json!({"queued": []}));
    let first = send(&api, "queue", "one").await;
    let named = json!({"text": "two", "if_busy": "queue", "message_id": "m-2"});
    assert_eq!(api.post(MESSAGES, named).await.status, 202);
    let queued = api.get(QUEUE).await.body["queued"].as_array().unwrap().clone();
    assert_eq!(queued.len(), 2);
    assert_eq!(queued[0]["turn_id"], first["turn_id"]);
    assert_eq!(queued[0]["seq"], first["seq"]);
    assert_eq!(queued[0]["message"]["content"][0]["text"], "one");
    assert_eq!(queued[1]["message_id"], "m-2");
    assert_eq!(api.get("/v1/conversations/nobody/queue").await.status, 404);
}

#[tokio::test]
async fn a_turn_that_is_withdrawn_never_starts() {
    let api = Api::start().await;
    asking(&api).await;
    let [gone, other] = [send(&api, "queue", "one").await, send(&api, "queue", "two").await];
    let mut stream = api.stream("/v1/conversations/c/events").await;
    assert_eq!(stream.next().await.unwrap().data["queued"], 2);
    let withdraw = || api.request("DELETE", &at(&gone["turn_id"])).header("Idempotency-Key", "k");
    assert_eq!(api.send(withdraw()).await.status, 204);
    let frame = stream.until("turn_withdrawn").await;
    assert_eq!(frame.data["turn_id"], gone["turn_id"]);
    assert_eq!(api.send(withdraw()).await.status, 204, "a repeat gets the first answer");
    assert_eq!(api.delete(&at(&gone["turn_id"])).await.status, 404);
    answer(&api).await;
    stream.until("turn_completed").await;
    assert_eq!(stream.until("turn_started").await.data["turn_id"], other["turn_id"]);
    assert!(!texts(&api).await.contains(&"one".to_owned()));
}

#[tokio::test]
async fn a_turn_that_runs_or_that_never_was_is_not_withdrawn() {
    let api = Api::start().await;
    let running = asking(&api).await;
    let refused = api.delete(&at(&running)).await;
    assert_eq!((refused.status, &refused.body["type"]), (409, &json!("/problems/turn-in-flight")));
    assert_eq!(api.delete(&at(&json!("turn_x"))).await.status, 404);
    assert_eq!(api.delete("/v1/conversations/nobody/queue/turn_x").await.status, 404);
    answer(&api).await;
    api.stream("/v1/conversations/c/events?after=0").await.until("turn_completed").await;
    assert_eq!(api.delete(&at(&running)).await.status, 404, "it has ended");
}

#[tokio::test]
async fn who_waits_for_a_turn_that_is_withdrawn_is_told() {
    let api = Api::start().await;
    asking(&api).await;
    let body = json!({"text": "one", "if_busy": "queue"});
    let waiting = api.post("/v1/conversations/c/messages?wait=20s", body);
    let withdrawing = async {
        loop {
            let queued = api.get(QUEUE).await.body["queued"].as_array().unwrap().clone();
            if let Some(turn) = queued.first() {
                break api.delete(&at(&turn["turn_id"])).await;
            }
        }
    };
    let (waited, withdrawn) = tokio::join!(waiting, withdrawing);
    assert_eq!((waited.status, withdrawn.status), (200, 204), "{waited:?}");
    assert_eq!(waited.body["outcome"], "cancelled");
    assert_eq!(waited.body["reason"], "withdrawn");
}

#[tokio::test]
async fn a_message_that_steers_is_part_of_the_turn_that_runs() {
    let api = Api::start().await;
    let running = asking(&api).await;
    let mut stream = api.stream("/v1/conversations/c/events").await;
    stream.until("snapshot").await;
    let image =
        json!({"type": "image", "source": {"type": "url", "url": "https://example.com/c.png"}});
    let content = json!([{"type": "text", "text": "be quick"}, image]);
    let steer = json!({"content": content, "if_busy": "steer", "message_id": "m-9"});
    let sent = api.post(MESSAGES, steer.clone()).await;
    assert_eq!((sent.status, &sent.body["turn_id"]), (202, &running));
    assert_eq!(api.post(MESSAGES, steer).await.body, sent.body, "a repeat is one message");
    let told = stream.until("user_message").await;
    assert_eq!((&told.data["turn_id"], told.id), (&running, sent.body["seq"].as_u64()));
    assert_eq!(told.data["message"]["client_id"], "m-9");
    assert_eq!(api.get("/v1/conversations/c").await.body["pending"][0]["call_id"], "w");
    answer(&api).await;
    // The model begins its script anew, because it has read another message.
    assert_eq!(stream.until("suspended").await.data["call_id"], "w~2");
    let listed = texts(&api).await;
    assert_eq!([&listed[0], &listed[2]], ["go", "be quick"], "{listed:?}");
}

#[tokio::test]
async fn a_message_that_steers_nothing_is_an_ordinary_one() {
    let api = Api::start().await;
    let sent = api.post(MESSAGES, json!({"agent": "demo", "text": "hi", "if_busy": "steer"})).await;
    assert_eq!(sent.status, 202);
    let mut stream = api.stream("/v1/conversations/c/events?after=0").await;
    assert_eq!(stream.until("turn_started").await.data["turn_id"], sent.body["turn_id"]);
}

#[tokio::test]
async fn what_a_message_that_steers_cannot_have_is_named_and_nothing_is_sent() {
    let api = Api::start().await;
    let client_tool = json!([{"name": "t", "description": "T.", "executor": "client",
        "parameters": {"type": "object"}}]);
    for (field, value) in [
        ("schema", json!(false)),
        ("assigns", json!({"a": 1})),
        ("tools", client_tool),
        ("context", json!([{"type": "text", "text": "x"}])),
        ("deliver_in", json!("1h")),
    ] {
        let mut body = json!({"agent": "demo", "text": "hi", "if_busy": "steer"});
        body[field] = value;
        let refused = api.post(MESSAGES, body).await;
        assert_eq!(refused.status, 422, "{field}: {refused:?}");
        let detail = refused.body["detail"].as_str().unwrap();
        assert!(detail.starts_with(&format!("{field}: ")), "{detail}");
    }
    assert_eq!(api.get("/v1/conversations/c").await.status, 404);
}

/// The texts of the user's messages among these, and where the answer is, in the order in which a client
/// of the protocol has them.
fn outline(messages: &Value, text: impl Fn(&Value) -> Value) -> Vec<String> {
    let line = |message: &Value| match message["role"].as_str() {
        Some("user") => Some(text(message).as_str().unwrap().to_owned()),
        Some("assistant") => Some("-".to_owned()),
        _ => None,
    };
    messages.as_array().unwrap().iter().filter_map(line).collect()
}

#[tokio::test]
async fn the_histories_of_the_protocols_have_the_messages_that_steered() {
    let api = Api::start().await;
    asking(&api).await;
    send(&api, "steer", "and quickly").await;
    answer_all(&api).await;
    let chat = api.get("/v1/agents/asker/ui/c/messages").await.body;
    let shown = outline(&chat, |message| message["parts"][0]["text"].clone());
    assert_eq!(shown, ["go", "and quickly", "-"]);
    let items = api.get("/openai/v1/conversations/c/items?order=asc").await.body["data"].clone();
    let shown = outline(&items, |message| message["content"][0]["text"].clone());
    assert_eq!(shown, ["go", "and quickly", "-"], "{items}");
    let question = items.as_array().unwrap().iter().position(|it| it["type"] == "function_call");
    let steering =
        items.as_array().unwrap().iter().position(|it| it["content"][0]["text"] == "and quickly");
    assert!(question < steering, "it came after the question: {items}");
}

#[tokio::test]
async fn a_turn_that_begins_anew_has_the_messages_that_steered_it() {
    let api = Api::start().await;
    asking(&api).await;
    send(&api, "steer", "and quickly").await;
    send(&api, "steer", "and quietly").await;
    answer_all(&api).await;
    let again = api.post("/v1/conversations/c/regenerate", json!({})).await;
    assert_eq!(again.status, 202, "{again:?}");
    let journal = api.get("/v1/conversations/c/journal?limit=1000").await.body["events"].clone();
    let events = journal.as_array().unwrap();
    let rewound = events.iter().position(|event| event["type"] == "rewound").unwrap();
    let kinds: Vec<&Value> = events[rewound..].iter().map(|event| &event["type"]).take(5).collect();
    assert_eq!(kinds, ["rewound", "user_msg", "turn_started", "steered", "steered"]);
    let text = |event: &Value| event["data"]["message"]["content"][0]["text"].clone();
    assert_eq!(text(&events[rewound + 3]), "and quickly");
    assert_eq!(text(&events[rewound + 4]), "and quietly");
    assert_eq!(texts(&api).await[..3], ["go", "and quickly", "and quietly"]);
}
