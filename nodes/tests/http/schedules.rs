//! Schedules: their ticks, what they refuse, and whose they are.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::access::{GuardedApi, key, key_line};
use crate::api::{Api, ApiResponse, DEADLINE};

const DAILY: &str = "/v1/schedules/daily";

fn every(interval: &str) -> Value {
    json!({"agent": "demo", "every": interval, "text": "tick"})
}

/// Reads the schedule until it is as it is wanted.
async fn until(api: &Api, path: &str, is_wanted: impl Fn(&Value) -> bool) -> Value {
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        let read = api.get(path).await.body;
        if is_wanted(&read) {
            return read;
        }
        assert!(tokio::time::Instant::now() < deadline, "{read}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn each_tick_of_a_schedule_makes_a_conversation_of_its_name() {
    let api = Api::start().await;
    let put = api.put(DAILY, every("1s")).await;
    assert_eq!(put.status, 201, "{put:?}");
    assert_eq!((&put.body["every"], &put.body["last"]), (&json!("1s"), &Value::Null));
    let read = until(&api, DAILY, |it| it["last"]["outcome"] == "completed").await;
    let (last, tick) = (&read["last"], read["last"]["tick"].as_str().unwrap());
    assert_eq!(last["conversation_id"], format!("daily-{tick}"));
    assert!(read["next_at"].as_str() > last["at"].as_str());
    let journal = format!("/v1/conversations/daily-{tick}/journal");
    let journal = api.get(&journal).await.body;
    assert_eq!(journal["events"][1]["data"]["message_id"], format!("sched:daily:{tick}"));
    let paused = api.send(api.request("POST", &format!("{DAILY}/pause"))).await;
    assert_eq!((&paused.body["paused"], &paused.body["next_at"]), (&json!(true), &Value::Null));
}

#[tokio::test]
async fn a_schedule_of_a_conversation_sends_each_tick_there() {
    let api = Api::start().await;
    let mut schedule = every("1s");
    schedule["conversation"] = json!("c");
    assert_eq!(api.put(DAILY, schedule).await.status, 201);
    let mut stream = {
        until(&api, DAILY, |it| it["last"]["conversation_id"] == "c").await;
        api.stream("/v1/conversations/c/events?after=0").await
    };
    stream.until("turn_completed").await;
    stream.until("turn_completed").await;
    let journal = api.get("/v1/conversations/c/journal?limit=1000").await.body;
    let events = journal["events"].as_array().unwrap();
    let ids: Vec<&Value> = events.iter().filter(|it| it["type"] == "user_msg").collect();
    assert!(ids.len() >= 2 && ids[0]["data"]["message_id"] != ids[1]["data"]["message_id"]);
}

#[tokio::test]
async fn a_schedule_is_replaced_listed_and_deleted() {
    let api = Api::start().await;
    let cron = json!({"agent": "demo", "cron": "0 7 * * mon-fri", "timezone": "europe/berlin",
        "text": "hi"});
    assert_eq!(api.put(DAILY, every("1h")).await.status, 201);
    let replaced = api.put(DAILY, cron).await;
    assert_eq!((replaced.status, &replaced.body["timezone"]), (200, &json!("Europe/Berlin")));
    assert!(replaced.body.get("every").is_none());
    assert_eq!(api.put("/v1/schedules/b", every("1h")).await.status, 201);
    let listed = api.get("/v1/schedules?limit=1").await.body;
    assert_eq!(listed["schedules"][0]["name"], "b");
    let cursor = listed["cursor"].as_str().unwrap();
    let rest = api.get(&format!("/v1/schedules?cursor={cursor}")).await.body;
    assert_eq!((&rest["schedules"][0]["name"], &rest["cursor"]), (&json!("daily"), &Value::Null));
    assert_eq!(api.delete(DAILY).await.status, 204);
    assert_eq!(api.delete(DAILY).await.status, 404);
    assert_eq!(api.get(DAILY).await.status, 404);
}

#[tokio::test]
async fn a_trigger_sends_the_message_at_once_and_a_repeat_sends_none() {
    let api = Api::start().await;
    let mut schedule = every("1h");
    schedule["paused"] = json!(true);
    assert_eq!(api.put(DAILY, schedule).await.status, 201);
    let path = format!("{DAILY}/trigger");
    let triggered = api.keyed("k", "POST", &path, Value::Null).await;
    assert_eq!(triggered.status, 202, "{triggered:?}");
    let (conversation, turn) = (&triggered.body["conversation_id"], &triggered.body["turn_id"]);
    let tick = conversation.as_str().unwrap().strip_prefix("daily-").unwrap();
    assert!(tick.starts_with("manual_"), "{tick}");
    let again = api.keyed("k", "POST", &path, Value::Null).await;
    assert_eq!(again.body, triggered.body);
    let last = api.get(DAILY).await.body["last"].clone();
    assert_eq!((&last["tick"], &last["turn_id"]), (&json!(tick), turn));
    let other = api.send(api.request("POST", &path)).await;
    assert_ne!(&other.body["conversation_id"], conversation);
}

#[tokio::test]
async fn triggers_at_once_send_a_message_each() {
    let api = Api::start().await;
    assert_eq!(api.put(DAILY, every("1h")).await.status, 201);
    let trigger = || api.send(api.request("POST", "/v1/schedules/daily/trigger"));
    let sent = futures::future::join_all((0..16).map(|_| trigger())).await;
    let place = |it: &ApiResponse| {
        assert_eq!(it.status, 202, "{it:?}");
        it.body["conversation_id"].as_str().unwrap().to_owned()
    };
    let conversations: BTreeSet<String> = sent.iter().map(place).collect();
    assert_eq!(conversations.len(), sent.len());
}

#[tokio::test]
async fn a_schedule_that_is_put_again_after_it_was_deleted_sends_its_own_messages() {
    let keys = json!({"keys": [key_line("ann", &["user"]), key_line("eve", &["user"]),
        key_line("dev", &["author"])], "tenants": {"default": {}}});
    let guarded = GuardedApi::start(&keys).await;
    let agent = json!({"model": {"provider": "scripted", "script": [{"text": "hi"}]}});
    assert_eq!(guarded.send("dev", "PUT", "/v1/agents/one", agent).await.status, 201);
    let trigger = format!("{DAILY}/trigger");
    for (who, conversation, text) in [
        ("ann", None, "breakfast"),
        ("ann", None, "lunch"),
        ("eve", None, "tea"),
        ("ann", Some("c"), "dinner"),
        ("ann", Some("c"), "supper"),
    ] {
        let mut schedule = json!({"agent": "one", "every": "24h", "text": text});
        if let Some(conversation) = conversation {
            schedule["conversation"] = json!(conversation);
        }
        let put = guarded.send(who, "PUT", DAILY, schedule).await;
        assert_eq!(put.status, 201, "{text}: {put:?}");
        let sent = guarded.send(who, "POST", &trigger, Value::Null).await;
        assert_eq!(sent.status, 202, "{text}: {sent:?}");
        let id = sent.body["conversation_id"].as_str().unwrap();
        let journal = format!("/v1/conversations/{id}/journal?limit=1000");
        let journal = guarded.send(who, "GET", &journal, Value::Null).await.body;
        assert!(journal.to_string().contains(text), "{text}: {journal}");
        assert_eq!(guarded.send(who, "DELETE", DAILY, Value::Null).await.status, 204);
    }
}

#[tokio::test]
async fn a_schedule_that_cannot_be_meant_is_refused() {
    let api = Api::start().await;
    for (change, status, word) in [
        (json!({"every": null}), 422, "cron"),
        (json!({"cron": "@daily"}), 422, "cron"),
        (json!({"every": "999ms"}), 422, "every"),
        (json!({"timezone": "UTC"}), 422, "timezone"),
        (json!({"every": null, "cron": "0 0 30 2 *"}), 422, "cron"),
        (json!({"every": null, "cron": "61 * * * *"}), 422, "minute"),
        (json!({"every": null, "cron": "@daily", "timezone": "Mars/Olympus"}), 422, "timezone"),
        (json!({"until": "2020-01-01T00:00:00Z"}), 422, "until"),
        (json!({"text": null}), 422, "text"),
        (
            json!({"content": [{"type": "text", "text": "x".repeat(70_000)}], "text": null}),
            422,
            "content",
        ),
        (json!({"conversation": "a/b"}), 422, "conversation"),
        (json!({"missed": "some"}), 422, "missed"),
        (json!({"agent": "nobody"}), 409, "nobody"),
    ] {
        let mut schedule = every("1h");
        for (name, value) in change.as_object().unwrap() {
            schedule[name] = value.clone();
        }
        let refused = api.put(DAILY, schedule).await;
        assert_eq!(refused.status, status, "{change}: {refused:?}");
        let detail = refused.body["detail"].as_str().unwrap();
        assert!(detail.contains(word), "{change}: {detail}");
    }
    assert_eq!(api.put("/v1/schedules/A", every("1h")).await.status, 422);
    assert_eq!(api.get(DAILY).await.status, 404);
}

#[tokio::test]
async fn a_schedule_is_its_owners_and_its_messages_are_too() {
    let keys = json!({"keys": [key_line("ann", &["user"]), key_line("eve", &["user"]),
        key_line("shop", &["backend"]), key_line("dev", &["author"])],
        "tenants": {"default": {}}});
    let guarded = GuardedApi::start(&keys).await;
    let agent = json!({"model": {"provider": "scripted", "script": [{"text": "hi"}]}});
    assert_eq!(guarded.send("dev", "PUT", "/v1/agents/one", agent).await.status, 201);
    let schedule = |conversation: &str| json!({"agent": "one", "every": "1s", "text": "hi", "conversation": conversation});
    assert_eq!(guarded.send("ann", "PUT", DAILY, schedule("a")).await.status, 201);
    for (method, path) in [("GET", DAILY), ("DELETE", DAILY)] {
        assert_eq!(guarded.send("eve", method, path, Value::Null).await.status, 404, "{method}");
    }
    assert_eq!(guarded.send("eve", "PUT", DAILY, schedule("a")).await.status, 403);
    let listed = guarded.send("eve", "GET", "/v1/schedules", Value::Null).await;
    assert_eq!(listed.body["schedules"], json!([]));
    assert_eq!(guarded.send("shop", "GET", DAILY, Value::Null).await.status, 200);
    // Eve's schedule is to write into the conversation of Ann, which her messages may not reach.
    let theirs = "/v1/schedules/theirs";
    let deadline = tokio::time::Instant::now() + DEADLINE;
    loop {
        let read = guarded.send("ann", "GET", DAILY, Value::Null).await;
        if read.body["last"]["conversation_id"] == "a" {
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{read:?}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let owned = guarded.send("ann", "GET", "/v1/conversations/a", Value::Null).await;
    assert_eq!(owned.body["owner"], "key:ann");
    assert_eq!(guarded.send("eve", "PUT", theirs, schedule("a")).await.status, 201);
    loop {
        let read = guarded.send("eve", "GET", theirs, Value::Null).await;
        if !read.body["last"].is_null() {
            assert_eq!(read.body["last"]["outcome"], "refused", "{read:?}");
            break;
        }
        assert!(tokio::time::Instant::now() < deadline, "{read:?}");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

/// Waits until the node knows which blobs are named, without which it drops none.
async fn wait_for_blob_names(guarded: &GuardedApi) {
    let url = format!("http://{}/admin/indexes", guarded.api.node.admin);
    let known = tokio::time::timeout(DEADLINE, async {
        loop {
            let request = reqwest::Client::new().get(&url).bearer_auth(key("ops"));
            let indexes: Value = request.send().await.unwrap().json().await.unwrap();
            if indexes["rebuild"]["has_blob_names"] == true {
                return;
            }
            tokio::task::yield_now().await;
        }
    });
    known.await.unwrap();
}

#[tokio::test]
async fn a_put_over_anothers_schedule_keeps_no_blob() {
    let keys = json!({"keys": [key_line("ann", &["user"]), key_line("eve", &["user"]),
        key_line("shop", &["backend"]), key_line("dev", &["author"]),
        key_line("ops", &["operator"])], "tenants": {"default": {}}});
    let guarded = GuardedApi::start(&keys).await;
    wait_for_blob_names(&guarded).await;
    let agent = json!({"model": {"provider": "scripted", "script": [{"text": "hi"}]}});
    assert_eq!(guarded.send("dev", "PUT", "/v1/agents/one", agent).await.status, 201);
    let plain = json!({"agent": "one", "every": "24h", "text": "hi"});
    assert_eq!(guarded.send("ann", "PUT", DAILY, plain).await.status, 201);
    let source = json!({"type": "base64", "mimeType": "image/png", "data": "AAEC".repeat(1_000)});
    let photo = json!({"agent": "one", "every": "24h",
        "content": [{"type": "image", "source": source}]});
    let own = guarded.send("eve", "PUT", "/v1/schedules/own", photo.clone()).await;
    let id = own.body["content"][0]["source"]["blobId"].as_str().unwrap();
    let path = format!("/v1/blobs/{id}");
    let read = async || {
        let request = guarded.api.request("GET", &path).bearer_auth(key("shop"));
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!(read().await, 200);
    assert_eq!(guarded.send("eve", "PUT", DAILY, photo).await.status, 403);
    assert_eq!(read().await, 200, "it is that of another schedule");
    let gone = guarded.send("eve", "DELETE", "/v1/schedules/own", Value::Null).await;
    assert_eq!(gone.status, 204);
    assert_eq!(read().await, 404);
}

/// The results of a batch without the instances of their problems, which are those of the request.
fn told_of(batch: &Value) -> Value {
    let mut batch = batch.clone();
    for result in batch["results"].as_array_mut().unwrap() {
        if let Some(problem) = result.get_mut("problem") {
            problem.as_object_mut().unwrap().remove("instance");
        }
    }
    batch
}

#[tokio::test]
async fn answers_to_many_conversations_stand_by_themselves() {
    let api = Api::start().await;
    let mail = json!({"name": "mail", "description": "Sends.", "approval": "requires_approval",
        "run": {"native": "demo_send_email"}});
    let agent = json!({"tools": [mail], "model": {"provider": "scripted", "script": [
        {"calls": [{"id": "m", "name": "mail", "args": {"to": "a@b.c"}},
            {"id": "n", "name": "mail", "args": {"to": "a@b.c"}}]}, {"text": "Done."}]}});
    assert_eq!(api.put("/v1/agents/one", agent).await.status, 201);
    for id in ["a", "b"] {
        let path = format!("/v1/conversations/{id}/messages?wait=20s");
        let rests = api.post(&path, json!({"agent": "one", "text": "go"})).await;
        assert_eq!(rests.body["outcome"], "awaiting_input", "{rests:?}");
    }
    let answer = |conversation: &str, call: &str| json!({"conversation_id": conversation, "call_id": call, "approved": true});
    let batch = json!({"resolutions": [answer("a", "m"), answer("b", "m"), answer("a", "n"),
        answer("a", "x"), answer("nobody", "m"), answer("no/body", "m"),
        {"conversation_id": "b", "call_id": "n"},
        {"conversation_id": "a", "call_id": "m", "approved": "yes"},
        {"call_id": 7, "approved": true}, 7]});
    let done = api.keyed("k", "POST", "/v1/resolutions", batch.clone()).await;
    assert_eq!(done.status, 200, "{done:?}");
    let told = |result: &Value| {
        let place = result["conversation_id"].as_str().unwrap().to_owned();
        let problem = result["problem"]["type"].as_str().unwrap_or("none").to_owned();
        (place, result["call_id"].as_str().unwrap().to_owned(), problem)
    };
    let told: Vec<_> = done.body["results"].as_array().unwrap().iter().map(told).collect();
    let expected = [
        ("a", "m", "none"),
        ("b", "m", "none"),
        ("a", "n", "none"),
        ("a", "x", "/problems/call-not-open"),
        ("nobody", "m", "/problems/not-found"),
        ("no/body", "m", "/problems/not-found"),
        ("b", "n", "/problems/invalid-request"),
        ("a", "m", "/problems/invalid-request"),
        ("", "", "/problems/invalid-request"),
        ("", "", "/problems/invalid-request"),
    ];
    let expected = expected.map(|(a, b, c)| (a.to_owned(), b.to_owned(), c.to_owned()));
    assert_eq!(told, expected);
    let details = |place: usize| done.body["results"][place]["problem"]["detail"].clone();
    assert!(details(7).as_str().unwrap().starts_with("approved: "), "{done:?}");
    assert_eq!(details(9), "resolutions[9]: must be an object");
    let again = api.keyed("k", "POST", "/v1/resolutions", batch).await;
    assert_eq!(told_of(&again.body), told_of(&done.body), "a repeat answers nothing");
    let journal = api.get("/v1/conversations/a/journal?limit=1000").await.body;
    let events = journal["events"].as_array().unwrap();
    let resolved: Vec<&Value> = events.iter().filter(|it| it["type"] == "resolution").collect();
    assert_eq!(resolved[0]["at"], resolved[1]["at"], "they are in one commit");
    for bad in [json!([]), json!(vec![answer("a", "m"); 101])] {
        assert_eq!(api.post("/v1/resolutions", json!({"resolutions": bad})).await.status, 422);
    }
}
