//! Webhooks: what their receivers are told, and what becomes of receivers that misbehave.

mod receiver;
mod reply_links;

use serde_json::{Value, json};

use crate::access::{GuardedApi, key_line};
use crate::api::{Api, ApiResponse, DEADLINE};
use receiver::Receiver;

async fn put(api: &Api, name: &str, url: &str, more: Value) -> ApiResponse {
    let mut body = json!({"url": url, "events": "all"});
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    api.put(&format!("/v1/webhooks/{name}"), body).await
}

/// Polls a webhook until it is like this.
async fn until(api: &Api, path: &str, is_it: impl Fn(&Value) -> bool) -> Value {
    let polling = async {
        loop {
            let body = api.get(path).await.body;
            if is_it(&body) {
                return body;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(DEADLINE, polling).await.unwrap()
}

#[tokio::test]
async fn a_turn_is_told_in_order_signed_and_once() {
    let (api, receiver) = (Api::start().await, Receiver::start().await);
    let stored = put(&api, "ops", &receiver.url("/ok"), json!({})).await;
    assert_eq!((stored.status, &stored.body["name"]), (201, &json!("ops")));
    let secret = stored.body["secret"].as_str().unwrap().to_owned();
    api.say_until("c", "hello", "turn_completed").await;
    let (first, second) = (receiver.nth("/ok", 0).await, receiver.nth("/ok", 1).await);
    first.verify(&secret);
    second.verify(&secret);
    assert_eq!(first.body["type"], "conversation.created");
    assert_eq!(first.header("webhook-id"), "c:1:ops");
    assert_eq!(second.body["type"], "turn.completed");
    let data = &second.body["data"];
    assert_eq!((&data["conversation_id"], &data["outcome"]), (&json!("c"), &json!("completed")));
    assert!(data["text"].is_string() && data["message_id"].is_string(), "{data}");
    let status = until(&api, "/v1/webhooks/ops", |it| it["owed"] == 0).await;
    assert_eq!((&status["state"], &status["dead"]), (&json!("active"), &json!(0)));
    assert_eq!(status.get("secret"), None);
    api.delete("/v1/conversations/c").await;
    let deleted = receiver.nth("/ok", 2).await;
    assert_eq!(deleted.body["type"], "conversation.deleted");
    assert_eq!(deleted.body["data"]["reason"], "request");
    assert_eq!(receiver.all("/ok").len(), 3);
}

#[tokio::test]
async fn a_conversation_that_ends_at_its_own_time_is_told_with_the_reason() {
    let (api, receiver) = (Api::start().await, Receiver::start().await);
    put(&api, "ops", &receiver.url("/ok"), json!({"events": ["conversation.deleted"]})).await;
    let end = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(1_500);
    let new = json!({"id": "c", "agent": "demo", "expires_at": end});
    assert_eq!(api.post("/v1/conversations", new).await.status, 201);
    let deleted = receiver.nth("/ok", 0).await;
    assert_eq!(deleted.body["data"]["reason"], "expires_at");
    assert_eq!(deleted.header("webhook-id"), "c:2:ops");
    let told_at: jiff::Timestamp = deleted.body["timestamp"].as_str().unwrap().parse().unwrap();
    assert!(end.as_millisecond() <= told_at.as_millisecond(), "{deleted:?}");
    assert_eq!(api.get("/v1/conversations/c").await.status, 404);
}

#[tokio::test]
async fn a_webhook_is_told_only_what_it_wants() {
    let (api, receiver) = (Api::start().await, Receiver::start().await);
    let some = json!({"events": ["turn.completed"]});
    put(&api, "some", &receiver.url("/some"), some).await;
    let other = json!({"agents": ["other"]});
    put(&api, "other", &receiver.url("/other"), other).await;
    let team = json!({"metadata": {"team": "blue"}});
    put(&api, "team", &receiver.url("/team"), team).await;
    put(&api, "all", &receiver.url("/all"), json!({})).await;
    api.say_until("c", "hello", "turn_completed").await;
    assert_eq!(receiver.nth("/all", 1).await.body["type"], "turn.completed");
    assert_eq!(receiver.nth("/some", 0).await.body["type"], "turn.completed");
    let blue = json!({"id": "d", "agent": "demo", "metadata": {"team": "blue"}});
    assert_eq!(api.post("/v1/conversations", blue).await.status, 201);
    assert_eq!(receiver.nth("/team", 0).await.header("webhook-id"), "d:1:team");
    assert_eq!(receiver.all("/other").len(), 0);
    assert_eq!(receiver.all("/some").len(), 1);
}

#[tokio::test]
async fn a_receiver_that_hangs_delays_no_other() {
    let (api, receiver) = (Api::start().await, Receiver::start().await);
    put(&api, "slow", &receiver.url("/hang"), json!({})).await;
    put(&api, "fast", &receiver.url("/fast"), json!({})).await;
    for n in 0..20 {
        let new = json!({"id": format!("c{n}"), "agent": "demo"});
        assert_eq!(api.post("/v1/conversations", new).await.status, 201);
    }
    receiver.nth("/fast", 19).await;
    let hanging = receiver.all("/hang").len();
    assert!(hanging <= 4, "{hanging} at once");
    let status = api.get("/v1/webhooks/slow").await.body;
    assert_eq!((&status["owed"], &status["state"]), (&json!(20), &json!("active")));
    assert!(status["oldest_owed_at"].is_string());
}

#[tokio::test]
async fn a_receiver_that_misbehaves_is_tried_again_and_its_error_is_visible() {
    let (api, receiver) = (Api::start().await, Receiver::start().await);
    for (path, error) in [
        ("/fail", "the receiver answered 500"),
        ("/redirect", "the receiver answered 307, a redirect"),
        ("/drop", "the connection to the receiver broke"),
    ] {
        let name = &path[1..];
        put(&api, name, &receiver.url(path), json!({"events": ["conversation.created"]})).await;
        let new = json!({"id": format!("c-{name}"), "agent": "demo"});
        assert_eq!(api.post("/v1/conversations", new).await.status, 201);
        let failed = |it: &Value| it["last_error"] == error;
        let status = until(&api, &format!("/v1/webhooks/{name}"), failed).await;
        assert!(status["failing_since"].is_string(), "{status}");
        let path = format!("/v1/webhooks/{name}/deliveries?state=owed");
        let tried = |it: &Value| it["deliveries"][0]["attempts"] == 1;
        let row = until(&api, &path, tried).await["deliveries"][0].clone();
        assert_eq!((&row["state"], &row["last_error"]), (&json!("owed"), &json!(error)));
        assert_eq!(api.delete(&format!("/v1/webhooks/{name}")).await.status, 204);
    }
    assert_eq!(receiver.all("/metadata").len(), 0, "no redirect is followed");
    receiver.nth("/fail", 0).await;
}

#[tokio::test]
async fn an_endless_answer_counts_and_is_not_read_to_its_end() {
    let (api, receiver) = (Api::start().await, Receiver::start().await);
    put(&api, "ops", &receiver.url("/endless"), json!({})).await;
    api.say_until("c", "hello", "turn_completed").await;
    receiver.nth("/endless", 1).await;
    until(&api, "/v1/webhooks/ops", |it| it["owed"] == 0).await;
    assert!(receiver.endless_bytes() < 16 << 20, "{}", receiver.endless_bytes());
}

#[tokio::test]
async fn a_receiver_that_is_gone_ends_its_webhook_until_it_is_put_anew() {
    let (api, receiver) = (Api::start().await, Receiver::start().await);
    let first = put(&api, "ops", &receiver.url("/gone"), json!({})).await;
    api.say_until("c", "hello", "turn_completed").await;
    let why = "the receiver answered 410";
    let ended = |it: &Value| it["state"] == "ended" && it["last_error"] == why;
    until(&api, "/v1/webhooks/ops", ended).await;
    assert_eq!(receiver.all("/gone").len(), 1);
    let again = put(&api, "ops", &receiver.url("/ok"), json!({})).await;
    assert_eq!(again.status, 201);
    assert_ne!(again.body["secret"], first.body["secret"]);
    api.say_until("d", "hello", "turn_completed").await;
    assert_eq!(receiver.nth("/ok", 0).await.header("webhook-id"), "d:1:ops");
}

#[tokio::test]
async fn two_secrets_sign_while_one_is_rotated() {
    let (api, receiver) = (Api::start().await, Receiver::start().await);
    let old = put(&api, "ops", &receiver.url("/ok"), json!({})).await.body["secret"].clone();
    let rotated = api.post("/v1/webhooks/ops/rotate", json!({"overlap": "1h"})).await;
    let new = rotated.body["secret"].as_str().unwrap();
    let tested = api.send(api.request("POST", "/v1/webhooks/ops/test")).await;
    assert_eq!((tested.status, &tested.body["delivered"]), (200, &json!(true)));
    let request = receiver.nth("/ok", 0).await;
    assert_eq!(request.body["type"], "webhook.test");
    request.verify(new);
    request.verify(old.as_str().unwrap());
    let update = put(&api, "ops", &receiver.url("/ok"), json!({"events": ["turn.failed"]})).await;
    assert_eq!((update.status, update.body.get("secret")), (200, None));
}

#[tokio::test]
async fn a_repeat_makes_no_other_secret_and_changes_nothing() {
    let (api, receiver) = (Api::start().await, Receiver::start().await);
    let body = |path: &str| json!({"url": receiver.url(path), "events": "all"});
    let put = |key: &'static str, path: &str| api.keyed(key, "PUT", "/v1/webhooks/ops", body(path));
    let stored = put("p", "/ok").await;
    let again = put("p", "/ok").await;
    assert_eq!((again.status, &again.body), (201, &stored.body));
    put("p", "/fail").await.is_problem(422, "invalid-request");
    let rotate = |body: Value| api.keyed("r", "POST", "/v1/webhooks/ops/rotate", body);
    let rotated = rotate(json!({})).await;
    assert_eq!(rotate(json!({})).await.body, rotated.body);
    rotate(json!({"overlap": "1h"})).await.is_problem(422, "invalid-request");
    let tested = api.send(api.request("POST", "/v1/webhooks/ops/test")).await;
    assert_eq!((tested.status, &tested.body["delivered"]), (200, &json!(true)));
    let request = receiver.nth("/ok", 0).await;
    request.verify(stored.body["secret"].as_str().unwrap());
    request.verify(rotated.body["secret"].as_str().unwrap());
    assert_eq!(put("q", "/fail").await.status, 200);
    assert_eq!(put("p", "/ok").await.body, stored.body, "a late repeat takes nothing back");
    assert!(api.get("/v1/webhooks/ops").await.body["url"].as_str().unwrap().ends_with("/fail"));
    for _ in 0..2 {
        let deleted = api.keyed("d", "DELETE", "/v1/webhooks/ops", Value::Null).await;
        assert_eq!(deleted.status, 204, "{deleted:?}");
    }
}

#[tokio::test]
async fn a_deleted_webhook_is_told_nothing_more() {
    let (api, receiver) = (Api::start().await, Receiver::start().await);
    put(&api, "ops", &receiver.url("/fail"), json!({})).await;
    api.say_until("c", "hello", "turn_completed").await;
    receiver.nth("/fail", 0).await;
    assert_eq!(api.delete("/v1/webhooks/ops").await.status, 204);
    api.get("/v1/webhooks/ops").await.is_problem(404, "not-found");
    api.delete("/v1/webhooks/ops").await.is_problem(404, "not-found");
    assert_eq!(api.get("/v1/webhooks").await.body["webhooks"], json!([]));
    put(&api, "ops", &receiver.url("/ok"), json!({})).await;
    let status = api.get("/v1/webhooks/ops").await.body;
    assert_eq!(status["owed"], 0, "what the old one was owed is not the new one's");
}

#[tokio::test]
async fn an_owed_notice_can_be_sent_at_once() {
    let (api, receiver) = (Api::start().await, Receiver::start().await);
    put(&api, "ops", &receiver.url("/fail"), json!({"events": ["conversation.created"]})).await;
    assert_eq!(
        api.post("/v1/conversations", json!({"id": "c", "agent": "demo"})).await.status,
        201
    );
    let path = "/v1/webhooks/ops/deliveries";
    let tried = |it: &Value| it["deliveries"][0]["attempts"] == 1;
    until(&api, &format!("{path}?state=owed"), tried).await;
    let again = |id: &str| api.request("POST", &format!("{path}/{id}/redeliver"));
    let answer = api.send(again("c:1:ops")).await;
    assert_eq!((answer.status, &answer.body["id"]), (202, &json!("c:1:ops")));
    receiver.nth("/fail", 1).await;
    for unknown in ["c:2:ops", "d:1:ops", "c:1:other", "c", "1:ops"] {
        api.send(again(unknown)).await.is_problem(404, "not-found");
    }
    assert_eq!(api.get(&format!("{path}?state=dead")).await.body["deliveries"], json!([]));
}

#[tokio::test]
async fn a_webhook_that_cannot_be_used_is_refused_with_its_field() {
    let api = Api::start().await;
    let here = "http://127.0.0.1:1/";
    for (url, more, field) in [
        ("no url", json!({}), "url"),
        ("ftp://a.b/", json!({}), "url"),
        ("https://u:p@a.b/", json!({}), "url"),
        (here, json!({"events": ["turn.done"]}), "events[0]"),
        (here, json!({"events": []}), "events"),
        (here, json!({"agents": ["a b"]}), "agents[0]"),
        (here, json!({"secret_env": "a-b"}), "secret_env"),
        (here, json!({"secret_env": "NOT_SET_ANYWHERE"}), "secret_env"),
        (here, json!({"secret_env": "ABIDE_STORE"}), "secret_env"),
        (here, json!({"headers_env": {"webhook-id": "A"}}), "headers_env.webhook-id"),
        (here, json!({"links": true}), "links"),
        (here, json!({"more": 1}), "more"),
    ] {
        let refused = put(&api, "ops", url, more.clone()).await;
        let detail = refused.is_problem(422, "invalid-request");
        assert!(detail.starts_with(field), "{url} {more}: {refused:?}");
    }
    let refused = put(&api, "Ops", here, json!({})).await;
    assert!(refused.is_problem(422, "invalid-request").starts_with("name"), "{refused:?}");
    assert_eq!(api.get("/v1/webhooks").await.body["webhooks"], json!([]));
}

#[tokio::test]
async fn a_tenant_has_at_most_20_webhooks() {
    let api = Api::start().await;
    for n in 0..20 {
        assert_eq!(put(&api, &format!("w{n}"), "http://127.0.0.1:1/", json!({})).await.status, 201);
    }
    let refused = put(&api, "w20", "http://127.0.0.1:1/", json!({})).await;
    refused.is_problem(422, "invalid-request");
    assert_eq!(put(&api, "w3", "http://127.0.0.1:1/", json!({})).await.status, 200);
    assert_eq!(api.delete("/v1/webhooks/w3").await.status, 204);
    assert_eq!(put(&api, "w20", "http://127.0.0.1:1/", json!({})).await.status, 201);
}

#[tokio::test]
async fn a_tenant_reaches_what_its_agents_may_reach_and_sees_its_own_webhooks() {
    let line = |id: &str, tenant: &str| {
        let mut line = key_line(id, &["tenant-admin", "backend", "author"]);
        line["tenant"] = json!(tenant);
        line
    };
    let receiver = Receiver::start().await;
    let file = json!({"keys": [line("mine", "default"), line("theirs", "acme")],
        "tenants": {"default": {}, "acme": {"allowed_hosts": [receiver.host()]}}});
    let guarded = GuardedApi::start(&file).await;
    let body = json!({"url": receiver.url("/ok"), "events": "all"});
    let refused = guarded.send("mine", "PUT", "/v1/webhooks/ops", body.clone()).await;
    let detail = refused.is_problem(422, "invalid-request");
    assert!(detail.starts_with("url: its host is not permitted"), "{detail}");
    let link_local = json!({"url": "http://169.254.169.254/latest", "events": "all"});
    guarded
        .send("mine", "PUT", "/v1/webhooks/ops", link_local)
        .await
        .is_problem(422, "invalid-request");
    assert_eq!(guarded.send("theirs", "PUT", "/v1/webhooks/ops", body).await.status, 201);
    guarded.get("mine", "/v1/webhooks/ops").await.is_problem(404, "not-found");
    let agent = json!({"model": {"provider": "scripted", "script": [{"text": "Done."}]}});
    for who in ["mine", "theirs"] {
        let defined = guarded.send(who, "PUT", "/v1/agents/a", agent.clone()).await;
        assert_eq!(defined.status, 201, "{defined:?}");
        let new = json!({"id": format!("c-{who}"), "agent": "a"});
        assert_eq!(guarded.send(who, "POST", "/v1/conversations", new).await.status, 201);
    }
    assert_eq!(receiver.nth("/ok", 0).await.header("webhook-id"), "c-theirs:1:ops");
    assert_eq!(receiver.all("/ok").len(), 1);
}
