//! A conversation goes on from an earlier event, and a turn begins anew.

use serde_json::{Value, json};

use crate::api::{Api, ApiResponse};

const AT: &str = "/v1/conversations/c";
const MESSAGES: &str = "/v1/conversations/c/messages";
const REWIND: &str = "/v1/conversations/c/rewind";
const REGENERATE: &str = "/v1/conversations/c/regenerate";

/// Lets the agent answer a message, and returns the turn.
async fn say(api: &Api, text: &str) -> Value {
    let sent = api.post(MESSAGES, json!({"agent": "echo", "text": text})).await;
    assert_eq!(sent.status, 202, "{sent:?}");
    ended(api, &sent.body["turn_id"]).await;
    sent.body["turn_id"].clone()
}

/// Waits for the end of a turn.
async fn ended(api: &Api, turn: &Value) {
    let mut stream = api.stream("/v1/conversations/c/events?after=0").await;
    while stream.until("turn_completed").await.data["turn_id"] != *turn {}
}

/// A node with an agent that always says yes.
async fn start() -> Api {
    let api = Api::start().await;
    let agent = json!({"model": {"provider": "scripted", "script": [{"text": "Yes."}]}});
    assert_eq!(api.put("/v1/agents/echo", agent).await.status, 201);
    api
}

async fn last_seq(api: &Api) -> u64 {
    api.get(AT).await.body["last_seq"].as_u64().unwrap()
}

/// The texts of the conversation's messages, oldest first, read in pages of this size.
async fn texts(api: &Api, limit: usize) -> Vec<String> {
    let (mut texts, mut before) = (Vec::new(), String::new());
    loop {
        let page = api.get(&format!("{MESSAGES}?limit={limit}{before}")).await.body;
        let text = |it: &Value| it["content"][0]["text"].as_str().unwrap_or("").to_owned();
        let older: Vec<String> = page["messages"].as_array().unwrap().iter().map(text).collect();
        texts = [older, texts].concat();
        match page["cursor"].as_str() {
            Some(cursor) => before = format!("&before={cursor}"),
            None => return texts,
        }
    }
}

async fn rewind(api: &Api, to_seq: u64) -> ApiResponse {
    api.post(REWIND, json!({"to_seq": to_seq})).await
}

#[tokio::test]
async fn lists_show_the_branch_that_counts_and_the_journal_keeps_the_other() {
    let api = start().await;
    say(&api, "one").await;
    let between = last_seq(&api).await;
    say(&api, "two").await;
    let mut stream = api.stream("/v1/conversations/c/events").await;
    stream.until("snapshot").await;
    let rewound = rewind(&api, between).await;
    assert_eq!(rewound.status, 200, "{rewound:?}");
    let frame = stream.until("rewound").await;
    assert_eq!((frame.id, &frame.data["to_seq"]), (rewound.body["seq"].as_u64(), &json!(between)));
    say(&api, "three").await;
    for limit in [1, 2, 50] {
        assert_eq!(texts(&api, limit).await, ["one", "Yes.", "three", "Yes."], "{limit} on a page");
    }
    let journal = api.get("/v1/conversations/c/journal?limit=1000").await.body;
    let said = |text: &str| journal.to_string().contains(&format!("\"text\":\"{text}\""));
    assert!(said("two") && said("three"));
    let items = api.get("/openai/v1/conversations/c/items?order=asc").await.body;
    assert!(!items.to_string().contains("two") && items.to_string().contains("three"), "{items}");
    let chat = api.get("/v1/agents/echo/ui/c/messages").await.body;
    assert!(!chat.to_string().contains("two") && chat.to_string().contains("three"), "{chat}");
}

#[tokio::test]
async fn what_cannot_be_gone_back_to_is_named_and_nothing_changes() {
    let api = start().await;
    say(&api, "one").await;
    let last = last_seq(&api).await;
    for (to_seq, rule) in [
        (json!(0), "must be at least 1"),
        (json!(last + 1), "is beyond the last event"),
        (json!(3), "is within a turn"),
        (json!(4), "is within a turn"),
    ] {
        let refused = api.post(REWIND, json!({"to_seq": to_seq})).await;
        let detail = refused.body["detail"].as_str().unwrap();
        assert_eq!(refused.status, 422, "{refused:?}");
        assert!(detail.starts_with(&format!("to_seq: {rule}")), "{to_seq}: {detail}");
    }
    for wrong in [json!({}), json!({"to_seq": "1"}), json!({"to_seq": -1}), json!({"to_seq": 1.5})]
    {
        assert_eq!(api.post(REWIND, wrong.clone()).await.status, 422, "{wrong}");
    }
    assert_eq!(last_seq(&api).await, last);
    assert_eq!(api.post("/v1/conversations/x/rewind", json!({"to_seq": 1})).await.status, 404);
}

#[tokio::test]
async fn a_turn_that_is_open_is_neither_rewound_nor_regenerated() {
    let api = Api::start().await;
    let who = json!({"name": "who", "description": "Asks.", "executor": "human",
        "parameters": {"type": "object"}});
    let script = json!([{"calls": [{"id": "w", "name": "who", "args": {}}]}, {"text": "Done."}]);
    let agent = json!({"tools": [who], "model": {"provider": "scripted", "script": script}});
    api.put("/v1/agents/asker", agent).await;
    api.post(MESSAGES, json!({"agent": "asker", "text": "go"})).await;
    api.stream("/v1/conversations/c/events?after=0").await.until("suspended").await;
    for refused in [rewind(&api, 1).await, api.post(REGENERATE, json!({})).await] {
        assert_eq!(refused.status, 409, "{refused:?}");
        assert_eq!(refused.body["type"], "/problems/turn-in-flight");
    }
}

#[tokio::test]
async fn the_last_turn_begins_anew_with_its_message() {
    let api = start().await;
    say(&api, "one").await;
    let old = say(&api, "two").await;
    let request =
        || api.request("POST", REGENERATE).header("Idempotency-Key", "k").json(&json!({}));
    let begun = api.send(request()).await;
    assert_eq!(begun.status, 202, "{begun:?}");
    let members: Vec<&String> = begun.body.as_object().unwrap().keys().collect();
    assert_eq!(members, ["turn_id"]);
    assert_ne!(begun.body["turn_id"], old);
    ended(&api, &begun.body["turn_id"]).await;
    assert_eq!(api.send(request()).await.body, begun.body, "a repeat begins nothing");
    assert_eq!(texts(&api, 50).await, ["one", "Yes.", "two", "Yes."]);
}

#[tokio::test]
async fn an_earlier_turn_begins_anew_without_those_after_it() {
    let api = start().await;
    let first = say(&api, "one").await;
    say(&api, "two").await;
    let begun = api.post(REGENERATE, json!({"turn_id": first})).await;
    assert_eq!(begun.status, 202, "{begun:?}");
    ended(&api, &begun.body["turn_id"]).await;
    assert_eq!(texts(&api, 50).await, ["one", "Yes."]);
    let gone = api.post(REGENERATE, json!({"turn_id": first})).await;
    assert_eq!(gone.status, 422, "it counts no longer: {gone:?}");
}

#[tokio::test]
async fn without_a_turn_nothing_begins_anew() {
    let api = start().await;
    api.post("/v1/conversations", json!({"id": "c", "agent": "echo"})).await;
    for body in [json!({}), json!({"turn_id": "turn_x"})] {
        let refused = api.post(REGENERATE, body).await;
        assert_eq!(refused.status, 422, "{refused:?}");
        assert!(refused.body["detail"].as_str().unwrap().starts_with("turn_id: "), "{refused:?}");
    }
    assert_eq!(api.post("/v1/conversations/x/regenerate", json!({})).await.status, 404);
}

#[tokio::test]
async fn a_fork_is_not_rewound_below_its_beginning() {
    let api = start().await;
    say(&api, "one").await;
    let forked = api.post("/v1/conversations/c/fork", json!({"id": "f"})).await;
    assert_eq!(forked.status, 201, "{forked:?}");
    let refused = api.post("/v1/conversations/f/rewind", json!({"to_seq": 1})).await;
    assert_eq!(refused.status, 422, "{refused:?}");
    assert!(refused.body["detail"].as_str().unwrap().contains("forked"), "{refused:?}");
    let refused = api.post("/v1/conversations/f/regenerate", json!({})).await;
    assert_eq!(refused.status, 422, "{refused:?}");
    let last = api.get("/v1/conversations/f").await.body["last_seq"].clone();
    let here = api.post("/v1/conversations/f/rewind", json!({"to_seq": last})).await;
    assert_eq!(here.status, 200, "{here:?}");
}

#[tokio::test]
async fn the_state_of_the_conversation_is_that_of_the_branch() {
    let api = start().await;
    say(&api, "one").await;
    assert_eq!(api.put("/v1/conversations/c/state/cart", json!(1)).await.status, 204);
    let between = last_seq(&api).await;
    assert_eq!(api.put("/v1/conversations/c/state/cart", json!(2)).await.status, 204);
    assert_eq!(rewind(&api, between).await.status, 200);
    assert_eq!(api.get("/v1/conversations/c/state/cart").await.body, json!(1));
}
