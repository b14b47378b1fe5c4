//! An erasure goes on whichever nodes die, and leaves nothing of the person where the store keeps its
//! data.

use std::path::Path;

use abide_tests::client::Client;
use abide_tests::cluster::{Cluster, Plan};
use abide_tests::deadline::{DEADLINE, poll, poll_within};
use abide_tests::redis::Redis;
use reqwest::Method;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{able, agent, steps};
use crate::cluster_state::{LOAD_FACTOR, cluster, wait_until_connected};

/// The person, and what only their things have.
const PERSON: &str = "zq-person-71f3";
const SECRETS: [&str; 12] = [
    PERSON,
    "zq-message-22aa",
    "zq-metadata-90bc",
    "zq-title-4de1",
    "zq-assigns-8f02",
    "zq-state-13d7",
    "zq-later-5b6e",
    "zq-schedule-c0d4",
    "zq-arguments-77e9",
    "zq-file-31ab",
    "zq-blob-5d90",
    "zq-upload-e4c8",
];

/// An agent that answers with a text.
fn answering() -> Value {
    agent(steps(&[]), Vec::new())
}

async fn create(client: &Client, body: Value) {
    client.post("/v1/conversations", &body).await.expect(201);
}

async fn say(client: &Client, id: &str, text: &str) {
    let path = format!("/v1/conversations/{id}/messages?wait=10s");
    client.post(&path, &json!({"text": text})).await.expect(200);
}

async fn begin(client: &Client) -> String {
    let begun = client.post("/v1/erasures", &json!({"owner": PERSON})).await.expect(202);
    begun["id"].as_str().unwrap().to_owned()
}

/// Waits until the erasure is done. Returns its report.
async fn report(client: &Client, id: &str) -> Value {
    poll_within(DEADLINE * LOAD_FACTOR, "the erasure to be done", async || {
        let erasure = client.get(&format!("/v1/erasures/{id}")).await.body;
        (erasure["state"] == "done").then_some(erasure)
    })
    .await
}

#[tokio::test]
async fn an_erasure_goes_on_when_its_nodes_are_killed() {
    const OWN: usize = 120;
    const OTHERS: usize = 60;
    let mut cluster = cluster(3, &["--lease", "2s", "--passivate-after", "20ms"]).await;
    wait_until_connected(&cluster).await;
    let client = cluster.client(2).clone();
    client.define("a", &answering()).await;
    let person = client.clone().named(PERSON);
    for number in 0..OWN {
        create(&client, json!({"id": format!("own-{number}"), "agent": "a", "owner": PERSON}))
            .await;
    }
    for number in 0..OTHERS {
        let id = format!("other-{number}");
        create(&client, json!({"id": id, "agent": "a", "members": [PERSON, "eve"]})).await;
        say(&person, &id, "hello").await;
    }
    let id = begin(&client).await;
    for node in 0..2 {
        let erasure = client.get(&format!("/v1/erasures/{id}")).await.body;
        println!("killing node {node} at {}: {}", erasure["step"], erasure["conversations"]);
        cluster.kill(node).await;
    }
    let report = report(&client, &id).await;
    println!("{report:#}");
    for number in 0..OWN {
        assert_eq!(client.get(&format!("/v1/conversations/own-{number}")).await.status, 404);
    }
    let alias = report["alias"].as_str().unwrap();
    for number in 0..OTHERS {
        let id = format!("other-{number}");
        let journal = client.journal(&id).await;
        let senders: Vec<_> = journal.of("user_msg").map(|it| &it["data"]["principal"]).collect();
        assert_eq!(senders, [alias], "{id}");
        assert_eq!(client.snapshot(&id).await["members"], json!([alias, "eve"]));
    }
    say(&client, "other-0", "and on").await;
}

/// Writes the secrets wherever a person can, and lets each of them be stored.
async fn plant(client: &Client) {
    let person = client.clone().named(PERSON);
    client.define("a", &answering()).await;
    let note = json!({"name": "note", "approval": "auto", "run": {"native": "demo_send_email"}});
    client.define("b", &agent(steps(&[]), vec![note])).await;
    client.define("c", &able(steps(&[]))).await;
    for (id, agent) in [("mine", "a"), ("calls", "b"), ("files", "c")] {
        create(
            client,
            json!({"id": id, "agent": agent, "owner": PERSON, "title": SECRETS[3],
                "metadata": {"note": SECRETS[2]}, "assigns": {"note": SECRETS[4]}}),
        )
        .await;
        for _ in 0..20 {
            say(&person, id, SECRETS[1]).await;
        }
    }
    for (id, tool, input) in [
        ("calls", "note", json!({"to": "a@b.c", "subject": SECRETS[8]})),
        ("files", "write", json!({"path": "note.txt", "content": SECRETS[9]})),
    ] {
        let call = json!({"tool": tool, "input": input});
        let path = format!("/v1/conversations/{id}/dispatch");
        let done = person.post(&path, &call).await.expect(200);
        assert_ne!(done["ok"], false, "{done:#}");
    }
    let state = "/v1/conversations/mine/state/note";
    let put = person.ask(Method::PUT, state, None, Some(&json!(SECRETS[5]))).await.unwrap();
    assert!(put.status < 300, "{:#}", put.body);
    let later = json!({"text": SECRETS[6], "deliver_in": "3h"});
    person.post("/v1/conversations/mine/messages", &later).await.expect(202);
    let named = person.store_blob(SECRETS[10]).await.unwrap().expect(201);
    let source = json!({"type": "blob", "blobId": named["id"]});
    let content = json!({"content": [{"type": "document", "source": source}]});
    person.post("/v1/conversations/mine/messages?wait=10s", &content).await.expect(200);
    person.store_blob(SECRETS[11]).await.unwrap().expect(201);
    let schedule = json!({"agent": "a", "every": "3h", "text": SECRETS[7]});
    let put = person.ask(Method::PUT, "/v1/schedules/mine", None, Some(&schedule)).await.unwrap();
    assert_eq!(put.status, 201, "{:#}", put.body);
    // In a conversation of somebody else, the name alone is the person's.
    create(client, json!({"id": "other", "agent": "a", "members": [PERSON]})).await;
    for _ in 0..70 {
        say(&person, "other", "hello").await;
    }
    say(client, "other", "hello yourself").await;
}

/// Which secrets these bytes have.
fn found(place: &str, bytes: &[u8]) -> Vec<String> {
    let has = |secret: &&&str| bytes.windows(secret.len()).any(|it| it == secret.as_bytes());
    SECRETS.iter().filter(has).map(|secret| format!("{secret} in {place}")).collect()
}

/// Which secrets the files below a directory have.
fn found_below(dir: &Path) -> Vec<String> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all.extend(found_below(&path));
        } else if let Ok(bytes) = std::fs::read(&path) {
            all.extend(found(&path.display().to_string(), &bytes));
        }
    }
    all
}

/// Which secrets the server has in its keys and their values.
async fn found_in(redis: &Redis) -> Vec<String> {
    let keys: Vec<String> = redis.ask(&["KEYS", "*"]).await;
    let mut all = Vec::new();
    for key in keys {
        all.extend(found("a key's name", key.as_bytes()));
        let kind: String = redis.ask(&["TYPE", &key]).await;
        let read: &[&str] = match kind.as_str() {
            "string" => &["GET", &key],
            "list" => &["LRANGE", &key, "0", "-1"],
            "hash" => &["HGETALL", &key],
            "set" => &["SMEMBERS", &key],
            "zset" => &["ZRANGE", &key, "0", "-1"],
            other => panic!("{key} is a {other}"),
        };
        let values: Vec<Vec<u8>> = match kind.as_str() {
            "string" => vec![redis.ask(read).await],
            _ => redis.ask(read).await,
        };
        all.extend(values.iter().flat_map(|value| found(&key, value)));
        let dump: Option<Vec<u8>> = redis.ask(&["DUMP", &key]).await;
        all.extend(dump.iter().flat_map(|dump| found(&key, dump)));
    }
    all
}

/// Rewrites the append-only file, and waits until that is done.
async fn rewrite_file(redis: &Redis) {
    let _: String = redis.ask(&["BGREWRITEAOF"]).await;
    poll("the append-only file to be rewritten", async || {
        let info: String = redis.ask(&["INFO", "persistence"]).await;
        let rests = |name: &str| info.contains(&format!("{name}:0"));
        (rests("aof_rewrite_in_progress") && rests("aof_rewrite_scheduled")).then_some(())
    })
    .await;
}

#[tokio::test]
async fn nothing_of_an_erased_person_is_left_in_redis() {
    let redis = Redis::process_with(&["--appendonly", "yes", "--rdbcompression", "no"]).await;
    let plan = Plan::new(ABIDE).with(&["--passivate-after", "20ms"]);
    let cluster = plan.start(redis, 1).await;
    let client = cluster.client(0);
    plant(client).await;
    let before = found_in(&cluster.redis).await;
    for secret in SECRETS {
        assert!(before.iter().any(|it| it.starts_with(secret)), "{secret} was not planted");
    }
    let report = report(client, &begin(client).await).await;
    println!("{report:#}");
    assert_eq!(report["deleted"]["blobs"], 2);
    assert_eq!(found_in(&cluster.redis).await, [""; 0]);
    rewrite_file(&cluster.redis).await;
    let dir: Vec<String> = cluster.redis.ask(&["CONFIG", "GET", "dir"]).await;
    assert_eq!(found_below(Path::new(&dir[1])), [""; 0]);
    assert_eq!(found("the log", cluster.log(0).as_bytes()), [""; 0]);
    assert_eq!(found_below(cluster.dir(0)), [""; 0]);
}

#[tokio::test]
async fn nothing_of_an_erased_person_is_left_in_an_embedded_store() {
    let plan = Plan::new(ABIDE).embedded().with(&["--passivate-after", "20ms"]);
    let mut cluster: Cluster = plan.start(Redis::process().await, 1).await;
    let client = cluster.client(0).clone();
    plant(&client).await;
    let before = found_below(cluster.dir(0));
    for secret in SECRETS {
        assert!(before.iter().any(|it| it.starts_with(secret)), "{secret} was not planted");
    }
    let report = report(&client, &begin(&client).await).await;
    println!("{report:#}");
    assert_eq!(report["deleted"]["blobs"], 2);
    cluster.terminate(0).await;
    assert_eq!(found_below(cluster.dir(0)), [""; 0]);
}
