//! Conversations over HTTP: create, list, read, delete; their journals.

use serde_json::{Value, json};

use crate::api::Api;

#[tokio::test]
async fn a_conversation_is_created_once() {
    let api = Api::start().await;
    let body =
        json!({"id": "A.b_c:d-1", "agent": "demo", "metadata": {"n": 1}, "assigns": {"a": 2}});
    let made = api.post("/v1/conversations", body.clone()).await;
    assert_eq!((made.status, &made.body["id"]), (201, &json!("A.b_c:d-1")));
    assert_eq!(made.body["agent"], "demo");
    let again = api.post("/v1/conversations", body).await;
    again.is_problem(409, "conversation-exists");
    let snapshot = api.get("/v1/conversations/A.b_c:d-1").await.body;
    assert_eq!(snapshot["revision"], made.body["revision"]);
    assert_eq!((&snapshot["state"], &snapshot["last_seq"]), (&json!("idle"), &json!(1)));
    assert_eq!(snapshot["metadata"], json!({"n": 1}));
    assert_eq!(snapshot["turn"], Value::Null);
    assert_eq!(snapshot["todos"], json!([]));
}

#[tokio::test]
async fn an_id_is_made_if_none_is_given() {
    let api = Api::start().await;
    let made = api.post("/v1/conversations", json!({"agent": "demo"})).await;
    assert!(made.body["id"].as_str().unwrap().starts_with("conv_"), "{made:?}");
}

#[tokio::test]
async fn a_key_whose_creation_was_refused_is_free_for_another_one() {
    let api = Api::start().await;
    let keyed = |body: Value| api.keyed("k", "POST", "/v1/conversations", body);
    keyed(json!({"agent": "nobody"})).await.is_problem(409, "agent-missing");
    let made = keyed(json!({"agent": "demo"})).await;
    assert_eq!(made.status, 201, "{made:?}");
    assert_eq!(keyed(json!({"agent": "demo"})).await.body, made.body);
    keyed(json!({"agent": "demo", "title": "x"})).await.is_problem(422, "invalid-request");
    let listed = api.get("/v1/conversations").await.body;
    assert_eq!(listed["conversations"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_repeat_of_a_creation_makes_no_deleted_conversation_again() {
    let api = Api::start().await;
    let source = json!({"id": "source", "agent": "demo"});
    assert_eq!(api.post("/v1/conversations", source).await.status, 201);
    for (path, new) in [
        ("/v1/conversations", json!({"id": "named", "agent": "demo"})),
        ("/v1/conversations", json!({"agent": "demo"})),
        ("/v1/conversations/source/fork", json!({})),
    ] {
        let key = format!("{path} {new}").replace(' ', "");
        let made = api.keyed(&key, "POST", path, new.clone()).await;
        assert_eq!(made.status, 201, "{made:?}");
        let own = format!("/v1/conversations/{}", made.body["id"].as_str().unwrap());
        assert_eq!(api.delete(&own).await.status, 204);
        let again = api.keyed(&key, "POST", path, new).await;
        assert_eq!((again.status, &again.body), (201, &made.body));
        api.get(&own).await.is_problem(404, "not-found");
    }
}

#[tokio::test]
async fn a_conversation_of_no_agent_is_refused() {
    let api = Api::start().await;
    let made = api.post("/v1/conversations", json!({"agent": "nobody"})).await;
    made.is_problem(409, "agent-missing");
}

#[tokio::test]
async fn a_wrong_field_of_a_conversation_is_named() {
    let api = Api::start().await;
    let large: String = "x".repeat(70_000);
    for (body, field) in [
        (json!({}), "agent"),
        (json!({"agent": 7}), "agent"),
        (json!({"agent": "No"}), "agent"),
        (json!({"agent": "demo", "id": ""}), "id"),
        (json!({"agent": "demo", "id": "a b"}), "id"),
        (json!({"agent": "demo", "id": "a/../b"}), "id"),
        (json!({"agent": "demo", "id": "é"}), "id"),
        (json!({"agent": "demo", "id": "x".repeat(129)}), "id"),
        (json!({"agent": "demo", "assigns": []}), "assigns"),
        (json!({"agent": "demo", "assigns": {"x": large}}), "assigns"),
        (json!({"agent": "demo", "metadata": {"x": large}}), "metadata"),
        (json!({"agent": "demo", "tools": {}}), "tools"),
        (json!({"agent": "demo", "tools": [{"name": "t"}]}), "tools"),
        (json!({"agent": "demo", "surprise": 1}), "surprise"),
        (json!([null, "demo", {}, {}, []]), "object"),
        (json!("demo"), "object"),
        (json!(null), "object"),
    ] {
        api.post("/v1/conversations", body).await.names(field);
    }
    assert_eq!(api.get("/v1/conversations").await.body["conversations"], json!([]));
}

#[tokio::test]
async fn conversations_are_listed_in_pages() {
    let api = Api::start().await;
    for id in ["a", "b", "c"] {
        api.post("/v1/conversations", json!({"id": id, "agent": "demo"})).await;
    }
    let path = "/v1/conversations?limit=2&dir=asc&agent=demo&state=idle";
    let first = api.get(path).await.body;
    let ids = |page: &Value| {
        let rows = page["conversations"].as_array().unwrap().clone();
        rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(ids(&first), ["a", "b"]);
    let cursor = first["cursor"].as_str().unwrap();
    let second = api.get(&format!("{path}&cursor={cursor}")).await.body;
    assert_eq!((ids(&second), &second["cursor"]), (vec!["c".to_owned()], &Value::Null));
    let none = api.get("/v1/conversations?state=awaiting_input").await.body;
    assert_eq!(ids(&none), Vec::<String>::new());
}

#[tokio::test]
async fn a_wrong_query_is_named() {
    let api = Api::start().await;
    api.post("/v1/conversations", json!({"id": "a", "agent": "demo"})).await;
    for (path, field) in [
        ("/v1/conversations?limit=0", "limit"),
        ("/v1/conversations?limit=1001", "limit"),
        ("/v1/conversations?limit=-1", "limit"),
        ("/v1/conversations?limit=abc", "limit"),
        ("/v1/conversations?limit=99999999999999999999", "limit"),
        ("/v1/conversations?limit=", "limit"),
        ("/v1/conversations?limit=1&limit=2", "limit"),
        ("/v1/conversations?state=busy", "state"),
        ("/v1/conversations?agent=No", "agent"),
        ("/v1/conversations?cursor=nonsense", "cursor"),
        ("/v1/conversations?cursor=%F0%9F%98%80", "cursor"),
        ("/v1/conversations?cursor=5b5d", "cursor"),
        ("/v1/conversations?surprise=1", "surprise"),
        ("/v1/conversations/a/journal?after=-1", "after"),
        ("/v1/conversations/a/journal?after=x", "after"),
        ("/v1/conversations/a/journal?limit=0", "limit"),
        ("/v1/conversations/a/messages?before=x", "before"),
        ("/v1/conversations/a/messages?limit=1001", "limit"),
        ("/v1/conversations/a/events?after=x", "after"),
        ("/v1/conversations/a/events?surprise=x", "surprise"),
        ("/v1/pending?kind=joke", "kind"),
        ("/v1/pending?agent=No", "agent"),
        ("/v1/pending?conversation=a%20b", "conversation"),
        ("/v1/pending?cursor=2261220a", "cursor"),
        ("/v1/pending?limit=0", "limit"),
    ] {
        api.get(path).await.names(field);
    }
}

#[tokio::test]
async fn nothing_is_known_of_a_conversation_that_does_not_exist() {
    let api = Api::start().await;
    for id in ["none", "a%20b", "..%2F..%2Fetc", "%00", &"x".repeat(200), "%F0%9F%98%80"] {
        for path in ["", "/messages", "/journal", "/events"] {
            let answer = api.get(&format!("/v1/conversations/{id}{path}")).await;
            answer.is_problem(404, "not-found");
        }
        let at = |call: &str| format!("/v1/conversations/{id}/{call}");
        let sent = api.post(&at("messages"), json!({"text": "hello"})).await;
        sent.is_problem(404, "not-found");
        let dispatched = api.post(&at("dispatch"), json!({"tool": "look_up", "input": {}})).await;
        dispatched.is_problem(404, "not-found");
        let resolved = api.post(&at("calls/c/resolution"), json!({"result": 1})).await;
        resolved.is_problem(404, "not-found");
        api.send(api.request("POST", &at("cancel"))).await.is_problem(404, "not-found");
        api.delete(&format!("/v1/conversations/{id}")).await.is_problem(404, "not-found");
    }
}

#[tokio::test]
async fn a_deleted_conversation_is_gone() {
    let api = Api::start().await;
    api.say_until("a", "write a mail", "suspended").await;
    let delete = || api.keyed("k", "DELETE", "/v1/conversations/a", Value::Null);
    assert_eq!(delete().await.status, 204);
    assert_eq!(delete().await.status, 204);
    api.delete("/v1/conversations/a").await.is_problem(404, "not-found");
    api.get("/v1/conversations/a").await.is_problem(404, "not-found");
    assert_eq!(api.get("/v1/pending").await.body["pending"], json!([]));
}

#[tokio::test]
async fn a_journal_is_read_in_pages() {
    let api = Api::start().await;
    api.say_until("a", "hello", "turn_completed").await;
    let all = api.get("/v1/conversations/a/journal").await.body;
    let events = all["events"].as_array().unwrap();
    let seqs: Vec<u64> = events.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, (1..=seqs.len() as u64).collect::<Vec<_>>());
    assert_eq!(all["last_seq"], seqs.len());
    let page = api.get("/v1/conversations/a/journal?after=1&limit=2").await.body;
    assert_eq!(page["events"], json!(events[1..3]));
    assert_eq!(page["last_seq"], seqs.len());
    let beyond = api.get("/v1/conversations/a/journal?after=9223372036854775807").await.body;
    assert_eq!(beyond["events"], json!([]));
}

#[tokio::test]
async fn a_repeated_creation_gets_the_first_answer() {
    let api = Api::start().await;
    let body = json!({"agent": "demo"});
    let first = api.keyed("k", "POST", "/v1/conversations", body.clone()).await;
    let again = api.keyed("k", "POST", "/v1/conversations", body).await;
    assert_eq!((first.status, again.status), (201, 201));
    assert_eq!(first.body, again.body);
    let other = json!({"agent": "demo", "metadata": {"n": 1}});
    api.keyed("k", "POST", "/v1/conversations", other).await.names("Idempotency-Key");
    let named = |id: &str| json!({"id": id, "agent": "demo"});
    let first = api.keyed("n", "POST", "/v1/conversations", named("n1")).await;
    let again = api.keyed("n", "POST", "/v1/conversations", named("n1")).await;
    assert_eq!((first.status, again.status), (201, 201));
    assert_eq!(first.body, again.body);
    api.keyed("n", "POST", "/v1/conversations", named("n2")).await.names("Idempotency-Key");
    assert_eq!(api.get("/v1/conversations/n2").await.status, 404);
}
