//! `PATCH` of a conversation: its metadata and its members.

use serde_json::{Value, json};

use crate::access::{GuardedApi, key, key_line};
use crate::api::Api;
use crate::stream::Stream;

const PATH: &str = "/v1/conversations/c";

#[tokio::test]
async fn metadata_is_merged_and_what_is_null_is_removed() {
    let api = Api::start().await;
    let new = json!({"id": "c", "agent": "demo", "metadata": {"a": 1, "b": {"c": 2, "d": 3}}});
    assert_eq!(api.post("/v1/conversations", new).await.status, 201);
    let mut stream = api.stream("/v1/conversations/c/events").await;
    let patch = async |body: Value| api.patch(PATH, body).await;
    let updated = patch(json!({"metadata": {"a": null, "b": {"c": 9}, "e": [null]}})).await;
    assert_eq!(updated.status, 200, "{updated:?}");
    let expected = json!({"b": {"c": 9, "d": 3}, "e": [null]});
    assert_eq!(updated.body["metadata"], expected);
    assert_eq!(updated.body["members"], Value::Null);
    let frame = stream.until("conversation_updated").await;
    assert_eq!((frame.data, frame.id), (json!({"metadata": expected}), Some(2)));
    let list = api.get("/v1/conversations").await.body;
    assert_eq!(list["conversations"][0]["metadata"], expected);

    // What changes nothing has no event; what is wrong changes nothing.
    for same in [json!({}), json!({"metadata": {"b": {"d": 3}}}), json!({"members": []})] {
        assert_eq!(patch(same).await.body["last_seq"], 2);
    }
    let half = "x".repeat(40 << 10);
    assert_eq!(patch(json!({"metadata": {"x": half}})).await.status, 200);
    for (field, wrong) in [
        ("metadata: ", json!({"metadata": {"y": half}})),
        ("metadata: ", json!({"metadata": null})),
        ("metadata: ", json!({"metadata": [1]})),
        ("members: ", json!({"members": null})),
        ("members[0]: ", json!({"members": [""]})),
        ("owner: ", json!({"owner": "eve"})),
    ] {
        patch(wrong).await.names(field);
    }
    assert_eq!(api.get(PATH).await.body["last_seq"], 3);
    let missing = api.patch("/v1/conversations/d", json!({})).await;
    missing.is_problem(404, "not-found");
}

#[tokio::test]
async fn a_repeat_of_a_change_changes_nothing_and_shows_what_is_there_now() {
    let api = Api::start().await;
    let new = json!({"id": "c", "agent": "demo"});
    assert_eq!(api.post("/v1/conversations", new).await.status, 201);
    let first = json!({"title": "first"});
    assert_eq!(api.keyed("k", "PATCH", PATH, first.clone()).await.body["title"], "first");
    assert_eq!(api.patch(PATH, json!({"title": "second"})).await.body["last_seq"], 3);
    let again = api.keyed("k", "PATCH", PATH, first).await;
    assert_eq!((again.status, &again.body["title"]), (200, &json!("second")));
    assert_eq!(again.body["last_seq"], 3);
}

#[tokio::test]
async fn a_title_is_in_the_snapshot_and_the_list_until_null_removes_it() {
    let api = Api::start().await;
    let new = json!({"id": "c", "agent": "demo", "title": "Order 7"});
    assert_eq!(api.post("/v1/conversations", new).await.status, 201);
    let mut stream = api.stream("/v1/conversations/c/events").await;
    let listed =
        async || api.get("/v1/conversations").await.body["conversations"][0]["title"].clone();
    assert_eq!(api.get(PATH).await.body["title"], "Order 7");
    assert_eq!(listed().await, "Order 7");
    let renamed = api.patch(PATH, json!({"title": "Bestellung 7"})).await;
    assert_eq!((renamed.status, &renamed.body["title"]), (200, &json!("Bestellung 7")));
    let frame = stream.until("conversation_updated").await;
    assert_eq!(frame.data, json!({"title": "Bestellung 7"}));
    assert_eq!(listed().await, "Bestellung 7");
    for wrong in [json!(""), json!("a\nb"), json!("x".repeat(201)), json!(7)] {
        api.patch(PATH, json!({"title": wrong})).await.names("title: ");
        api.post("/v1/conversations", json!({"agent": "demo", "title": wrong}))
            .await
            .names("title: ");
    }
    let removed = api.patch(PATH, json!({"title": null})).await;
    assert_eq!((removed.status, &removed.body["title"]), (200, &Value::Null));
    assert_eq!(stream.until("conversation_updated").await.data, json!({"title": null}));
    assert_eq!(listed().await, Value::Null);
    assert_eq!(api.patch(PATH, json!({"title": null})).await.body["last_seq"], 3);
}

#[tokio::test]
async fn an_end_is_in_the_snapshot_and_the_list_until_null_removes_it() {
    let api = Api::start().await;
    let (first, second) = ("2030-01-01T09:00:00.000Z", "2031-02-03T04:05:06.000Z");
    let new = json!({"id": "c", "agent": "demo", "expires_at": first});
    assert_eq!(api.post("/v1/conversations", new).await.status, 201);
    let mut stream = api.stream("/v1/conversations/c/events").await;
    let listed =
        async || api.get("/v1/conversations").await.body["conversations"][0]["expires_at"].clone();
    assert_eq!(api.get(PATH).await.body["expires_at"], first);
    assert_eq!(listed().await, first);
    let moved = api.patch(PATH, json!({"expires_at": second})).await;
    assert_eq!((moved.status, &moved.body["expires_at"]), (200, &json!(second)));
    let frame = stream.until("conversation_updated").await;
    assert_eq!(frame.data, json!({"expires_at": second}));
    assert_eq!(listed().await, second);
    let far = "2130-01-01T00:00:00Z";
    let wrong = [json!("2020-01-01T00:00:00Z"), json!(far), json!("soon"), json!(7), json!("")];
    for wrong in wrong {
        api.patch(PATH, json!({"expires_at": wrong})).await.names("expires_at: ");
        let new = json!({"id": "d", "agent": "demo", "expires_at": wrong});
        api.post("/v1/conversations", new).await.names("expires_at: ");
    }
    assert_eq!(api.get("/v1/conversations/d").await.status, 404);
    let removed = api.patch(PATH, json!({"expires_at": null})).await;
    assert_eq!((removed.status, &removed.body["expires_at"]), (200, &Value::Null));
    assert_eq!(stream.until("conversation_updated").await.data, json!({"expires_at": null}));
    assert_eq!(listed().await, Value::Null);
    assert_eq!(api.patch(PATH, json!({"expires_at": null})).await.body["last_seq"], 3);
}

#[tokio::test]
async fn a_fork_and_a_copy_have_no_end_that_has_passed_or_that_is_not_their_own() {
    let api = Api::start().await;
    let end = "2030-01-01T09:00:00.000Z";
    let new = json!({"id": "c", "agent": "demo"});
    assert_eq!(api.post("/v1/conversations", new).await.status, 201);
    assert_eq!(api.patch(PATH, json!({"expires_at": end})).await.status, 200);
    let fork = api.post("/v1/conversations/c/fork", json!({"id": "f"})).await;
    assert_eq!(fork.status, 201, "{fork:?}");
    assert_eq!(api.get("/v1/conversations/f").await.body["expires_at"], Value::Null);
    let export = api.request("GET", "/v1/conversations/c/export").send().await.unwrap();
    let lines = export.text().await.unwrap();
    for (lines, expected) in
        [(lines.clone(), json!(end)), (lines.replace("2030", "2020"), json!(null))]
    {
        let request = api.request("POST", "/v1/conversations/import");
        let request = request.header("Content-Type", "application/x-ndjson").body(lines);
        let imported = api.send(request).await;
        assert_eq!(imported.status, 201, "{imported:?}");
        let path = format!("/v1/conversations/{}", imported.body["id"].as_str().unwrap());
        assert_eq!(api.get(&path).await.body["expires_at"], expected);
    }
}

#[tokio::test]
async fn a_repeat_gets_the_first_answer_and_another_body_is_refused() {
    let api = Api::start().await;
    let new = json!({"id": "c", "agent": "demo"});
    assert_eq!(api.post("/v1/conversations", new).await.status, 201);
    let patch = async |n: u64| api.keyed("k", "PATCH", PATH, json!({"metadata": {"n": n}})).await;
    assert_eq!((patch(1).await.status, patch(1).await.body["last_seq"].clone()), (200, json!(2)));
    patch(2).await.names("Idempotency-Key: ");
}

/// A node with users; Ada owns `c`, which waits for a person in itself and in a child.
async fn asking() -> GuardedApi {
    let mut keys: Vec<Value> =
        ["ada", "bob", "eve"].iter().map(|id| key_line(id, &["user"])).collect();
    keys.push(key_line("author", &["author"]));
    let guarded = GuardedApi::start(&json!({"keys": keys})).await;
    let who = json!({"name": "who", "description": "Asks.", "executor": "human",
        "parameters": {"type": "object"}});
    let asks = json!({"calls": [{"id": "h", "name": "who", "args": {}}]});
    let kid = json!({"model": {"provider": "scripted", "script": [asks]}, "tools": [who]});
    let both = json!({"calls": [{"id": "h", "name": "who", "args": {}},
        {"id": "a", "name": "kid", "args": {"prompt": "go"}}]});
    let boss = json!({"model": {"provider": "scripted", "script": [both]},
        "tools": [who, {"name": "kid", "run": {"agent": "kid"}}]});
    for (name, agent) in [("kid", kid), ("boss", boss)] {
        let path = format!("/v1/agents/{name}");
        assert_eq!(guarded.send("author", "PUT", &path, agent).await.status, 201);
    }
    let new = json!({"id": "c", "agent": "boss", "members": ["key:bob"]});
    assert_eq!(guarded.send("ada", "POST", "/v1/conversations", new).await.status, 201);
    let path = "/v1/conversations/c/messages";
    assert_eq!(guarded.send("ada", "POST", path, json!({"text": "go"})).await.status, 202);
    while pending(&guarded, "ada").await.len() < 2 {
        tokio::task::yield_now().await;
    }
    guarded
}

/// The conversations of the suspensions that somebody's inbox has.
async fn pending(guarded: &GuardedApi, who: &str) -> Vec<String> {
    let list = guarded.get(who, "/v1/pending").await.body;
    let entries = list["pending"].as_array().unwrap().iter();
    entries.map(|entry| entry["conversation_id"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn who_is_no_longer_a_member_loses_the_inbox_the_children_and_open_streams() {
    let guarded = asking().await;
    let child = pending(&guarded, "bob").await.into_iter().find(|id| id != "c").unwrap();
    let child = format!("/v1/conversations/{child}");
    let request = guarded.api.request("GET", "/v1/conversations/c/events");
    let mut stream = Stream::open(request.bearer_auth(key("bob"))).await;
    stream.until("snapshot").await;
    let members = json!({"members": ["key:eve"]});
    let refused = guarded.send("bob", "PATCH", PATH, members.clone()).await;
    refused.is_problem(403, "forbidden");
    assert_eq!(refused.body["needs"], "update");
    guarded.send("eve", "PATCH", PATH, members.clone()).await.is_problem(404, "not-found");
    let updated = guarded.send("ada", "PATCH", PATH, members).await;
    assert_eq!((updated.status, &updated.body["members"]), (200, &json!(["key:eve"])));
    assert_eq!(stream.until("credential_ended").await.data, json!({}));
    for (who, status, inbox) in [("bob", 404, 0), ("eve", 200, 2), ("ada", 200, 2)] {
        for path in [PATH, &child] {
            assert_eq!(guarded.get(who, path).await.status, status, "{who}: {path}");
        }
        assert_eq!(pending(&guarded, who).await.len(), inbox, "{who}");
    }
    let journal = guarded.get("ada", "/v1/conversations/c/journal").await.body;
    let last = &journal["events"].as_array().unwrap().last().unwrap()["data"];
    assert_eq!((&last["by"], &last["identity"]["sub"]), (&json!("key:ada"), &json!("key:ada")));
    let fork = json!({"id": "f", "at_seq": 1});
    let forked = guarded.send("ada", "POST", "/v1/conversations/c/fork", fork).await;
    assert_eq!(forked.status, 201, "{forked:?}");
    assert_eq!(guarded.get("bob", "/v1/conversations/f").await.status, 404);
    assert_eq!(guarded.get("eve", "/v1/conversations/f").await.status, 200);
}
