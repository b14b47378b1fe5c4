//! Jobs beside turns: a node that is killed around any of their writes, before it is done and after,
//! finishes the job when it is there again.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use abide_tests::client::Client;
use abide_tests::deadline::{DEADLINE, poll, poll_within};
use abide_tests::kill_matrix::{Side, WatchedNode, script_of};
use abide_tests::node::Site;
use futures::{StreamExt, stream};
use reqwest::Method;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{agent, steps};
use crate::cluster_state::LOAD_FACTOR;

/// The person who is erased.
const PERSON: &str = "zq-person-71f3";

/// A job, of which each write is a place at which its node dies.
trait Job: Sync {
    /// The scripts with which it writes. A new one is a place, too.
    const WRITES: &'static [&'static str];
    /// How many nodes are killed at a time.
    const PARALLEL_RUNS: usize = 3;

    /// Makes what the job is about, before anything is watched.
    async fn prepare(&self, watched: &mut WatchedNode);

    /// Has the job done, whatever becomes of the node meanwhile.
    async fn carry_out(&self, client: &Client);

    /// Panics unless the job was done whole, and once.
    async fn check(&self, watched: &mut WatchedNode);
}

/// Does the job, and kills the node at the place if there is one. Returns the job's writes.
async fn run(job: &impl Job, place: Option<(&str, Side)>) -> Vec<String> {
    let flags = ["--passivate-after", "20ms"];
    let mut watched = WatchedNode::start(Path::new(ABIDE), &flags, place).await;
    job.prepare(&mut watched).await;
    watched.watch();
    let client = watched.client();
    let done = job.carry_out(&client);
    if place.is_some() {
        tokio::join!(done, watched.kill_at_its_place());
    } else {
        done.await;
    }
    let writes = watched.writes();
    job.check(&mut watched).await;
    writes
}

/// Does the job once for each side of each of its writes.
async fn kill_around_each_write<J: Job>(job: &J) {
    let writes = run(job, None).await;
    let scripts: BTreeSet<&str> = writes.iter().map(|write| script_of(write)).collect();
    assert_eq!(scripts, BTreeSet::from_iter(J::WRITES.iter().copied()), "{writes:#?}");
    let sides = [Side::Before, Side::After];
    let places = writes.iter().flat_map(|write| sides.map(|side| (write.as_str(), side)));
    let runs = places.map(|(write, side)| async move {
        println!("{side:?} {write}");
        run(job, Some((write, side))).await
    });
    stream::iter(runs).buffer_unordered(J::PARALLEL_RUNS).collect::<Vec<_>>().await;
}

/// Repeats a request under one key until it is acknowledged.
async fn insist(client: &Client, method: Method, path: &str, body: Option<&Value>) -> Value {
    poll(&format!("{path} to be acknowledged"), async || {
        let answer = client.ask(method.clone(), path, Some("key"), body).await?;
        assert!(answer.status < 300 || answer.status == 503, "{answer:#?}");
        (answer.status < 300).then_some(answer.body)
    })
    .await
}

fn answering() -> Value {
    agent(steps(&[]), Vec::new())
}

/// The lines of a conversation's export.
async fn exported(client: &Client, id: &str) -> Vec<String> {
    let url = format!("http://{}/v1/conversations/{id}/export", client.public_address());
    let text = reqwest::get(url).await.unwrap().text().await.unwrap();
    text.lines().map(str::to_owned).collect()
}

/// Imports these lines under a key, until that is acknowledged.
async fn import(client: &Client, key: &str, lines: &[String]) -> Value {
    let body = lines.join("\n");
    poll("the import to be acknowledged", async || {
        let address = client.public_address();
        let url = format!("http://{address}/v1/conversations/import?keep_id=true");
        let request = reqwest::Client::new().post(url).header("Idempotency-Key", key);
        let request = request.header("Content-Type", "application/x-ndjson");
        let answer = request.body(body.clone()).send().await.ok()?;
        let status = answer.status().as_u16();
        assert!([201, 503].contains(&status), "{answer:?}");
        if status == 201 { answer.json().await.ok() } else { None }
    })
    .await
}

struct Erasure;

impl Job for Erasure {
    const WRITES: &'static [&'static str] = &[
        "delete",
        "operation",
        "rename_usage",
        "replace_operation",
        "reserve",
        "rewrite",
        "schedule",
    ];

    async fn prepare(&self, watched: &mut WatchedNode) {
        let client = watched.client();
        let person = client.clone().named(PERSON);
        // The operators' audit has who put it.
        let put = Method::PUT;
        person
            .ask(put.clone(), "/v1/agents/a", None, Some(&answering()))
            .await
            .unwrap()
            .expect(201);
        for (id, more) in [
            ("own", json!({"owner": PERSON})),
            ("other", json!({"owner": "bob", "members": [PERSON, "eve"]})),
        ] {
            let mut new = json!({"id": id, "agent": "a"});
            new.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            client.post("/v1/conversations", &new).await.expect(201);
            let path = format!("/v1/conversations/{id}/messages?wait=10s");
            person.post(&path, &json!({"text": "hello"})).await.expect(200);
        }
        let schedule = json!({"agent": "a", "every": "3h", "text": "hello"});
        person.ask(put, "/v1/schedules/s", None, Some(&schedule)).await.unwrap().expect(201);
    }

    async fn carry_out(&self, client: &Client) {
        let owner = json!({"owner": PERSON});
        let begun = insist(client, Method::POST, "/v1/erasures", Some(&owner)).await;
        let path = format!("/v1/erasures/{}", begun["id"].as_str().unwrap());
        poll_within(DEADLINE * LOAD_FACTOR, "the erasure to be done", async || {
            let answer = client.ask(Method::GET, &path, None, None).await?;
            (answer.body["state"] == "done").then_some(())
        })
        .await;
    }

    async fn check(&self, watched: &mut WatchedNode) {
        let client = watched.client();
        assert_eq!(client.get("/v1/conversations/own").await.status, 404);
        assert_eq!(client.get("/v1/schedules/s").await.status, 404);
        let erasures = client.get("/v1/erasures").await.expect(200);
        assert_eq!(erasures["erasures"].as_array().unwrap().len(), 1, "{erasures:#}");
        let alias = &erasures["erasures"][0]["alias"];
        let journal = client.journal("other").await;
        let senders: Vec<_> = journal.of("user_msg").map(|it| &it["data"]["principal"]).collect();
        assert_eq!(senders, [alias]);
        assert_eq!(client.snapshot("other").await["members"], json!([alias, "eve"]));
        let audit = client.admin(Method::GET, "/admin/operations").await.expect(200);
        assert!(!audit.to_string().contains(PERSON), "{audit:#}");
        let message = json!({"text": "and on"});
        client.post("/v1/conversations/other/messages?wait=10s", &message).await.expect(200);
    }
}

#[tokio::test]
async fn an_erasure_is_done_whole_around_whichever_write_its_node_dies() {
    kill_around_each_write(&Erasure).await;
}

/// Deletes what was idle for longer than its agent keeps it.
struct Retention;

impl Job for Retention {
    const WRITES: &'static [&'static str] = &["agent", "delete"];

    async fn prepare(&self, watched: &mut WatchedNode) {
        let client = watched.client();
        client.define("a", &answering()).await;
        for id in ["old-1", "old-2", "new"] {
            client.post("/v1/conversations", &json!({"id": id, "agent": "a"})).await.expect(201);
        }
        for id in ["old-1", "old-2"] {
            let lines = exported(&client, id).await;
            let path = format!("/v1/conversations/{id}");
            client.ask(Method::DELETE, &path, None, None).await.unwrap().expect(204);
            let lines: Vec<String> = lines.iter().map(|line| long_ago(line)).collect();
            import(&client, id, &lines).await;
        }
    }

    async fn carry_out(&self, client: &Client) {
        let mut keeping = answering();
        keeping["retention"] = json!({"idle": "1h"});
        insist(client, Method::PUT, "/v1/agents/a", Some(&keeping)).await;
        poll_within(DEADLINE * LOAD_FACTOR, "what is idle to be deleted", async || {
            for id in ["old-1", "old-2"] {
                let path = format!("/v1/conversations/{id}");
                let found = client.ask(Method::GET, &path, None, None).await?;
                if found.status != 404 {
                    return None;
                }
            }
            Some(())
        })
        .await;
    }

    async fn check(&self, watched: &mut WatchedNode) {
        let listed = watched.client().get("/v1/conversations").await.expect(200);
        let ids: Vec<_> = listed["conversations"].as_array().unwrap().iter().collect();
        assert_eq!((ids.len(), &ids[0]["id"]), (1, &json!("new")), "{listed:#}");
    }
}

/// Indexes the conversations that an agent has by a key that its definition adds.
struct AddedKey;

impl Job for AddedKey {
    const WRITES: &'static [&'static str] = &["agent", "rebuild", "relist"];
    // Each waits for half a minute: a job begins once no request is under way that did not know the key.
    const PARALLEL_RUNS: usize = 16;

    async fn prepare(&self, watched: &mut WatchedNode) {
        let client = watched.client();
        client.define("a", &answering()).await;
        for id in ["one", "two"] {
            let new = json!({"id": id, "agent": "a", "metadata": {"ticket": id}});
            client.post("/v1/conversations", &new).await.expect(201);
        }
    }

    async fn carry_out(&self, client: &Client) {
        let mut indexing = answering();
        indexing["index"] = json!(["ticket"]);
        insist(client, Method::PUT, "/v1/agents/a", Some(&indexing)).await;
        poll_within(DEADLINE * LOAD_FACTOR, "the conversations to be indexed", async || {
            let found = client.ask(Method::GET, TICKET_ONE, None, None).await?;
            (found.status == 200 && found.body.get("incomplete").is_none()).then_some(())
        })
        .await;
    }

    async fn check(&self, watched: &mut WatchedNode) {
        let found = watched.client().get(TICKET_ONE).await.expect(200);
        let ids: Vec<_> =
            found["conversations"].as_array().unwrap().iter().map(|it| &it["id"]).collect();
        assert_eq!(ids, ["one"], "{found:#}");
    }
}

/// The list that an index of the added key makes short.
const TICKET_ONE: &str = "/v1/conversations?agent=a&metadata.ticket=one";

#[tokio::test]
async fn an_added_key_is_indexed_around_whichever_write_its_node_dies() {
    kill_around_each_write(&AddedKey).await;
}

/// The line of an event that happened long ago; any other as it is.
fn long_ago(line: &str) -> String {
    let mut line: Value = serde_json::from_str(line).unwrap();
    if line.get("at").is_some() {
        line["at"] = json!("2026-01-01T00:00:00Z");
    }
    line.to_string()
}

#[tokio::test]
async fn what_is_idle_goes_around_whichever_write_its_node_dies() {
    kill_around_each_write(&Retention).await;
}

/// Imports a journal of more than one page.
struct Import {
    lines: Vec<String>,
}

impl Import {
    /// The journal of a conversation whose title was changed often.
    async fn new() -> Self {
        let site = Site::new(ABIDE).with(&["--durability", "os"]);
        let _node = site.start().await;
        let client = &site.client;
        client.define("a", &answering()).await;
        client.post("/v1/conversations", &json!({"id": "c", "agent": "a"})).await.expect(201);
        for number in 0..300 {
            let title = json!({"title": format!("title {number}")});
            let path = "/v1/conversations/c";
            client.ask(Method::PATCH, path, None, Some(&title)).await.unwrap().expect(200);
        }
        Self { lines: exported(client, "c").await }
    }
}

impl Job for Import {
    const WRITES: &'static [&'static str] = &["agent", "append", "operation", "stage"];

    async fn prepare(&self, _: &mut WatchedNode) {}

    async fn carry_out(&self, client: &Client) {
        assert_eq!(import(client, "key", &self.lines).await, json!({"id": "c"}));
    }

    async fn check(&self, watched: &mut WatchedNode) {
        assert_eq!(exported(&watched.client(), "c").await, self.lines);
    }
}

#[tokio::test]
async fn an_import_is_whole_around_whichever_write_its_node_dies() {
    kill_around_each_write(&Import::new().await).await;
}

const ONE: &str = "k1:AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";
const TWO: &str = "k2:HwECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";

/// Wraps all data keys by a new key.
struct Rewrap;

/// Gives the node these keys from its next start on.
fn set_keys(watched: &WatchedNode, keys: &str) {
    let path = watched.site.dir().join("keys");
    fs::write(&path, keys).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
}

impl Job for Rewrap {
    const WRITES: &'static [&'static str] = &["operation", "rekey"];

    async fn prepare(&self, watched: &mut WatchedNode) {
        set_keys(watched, ONE);
        watched.site.set_env("ABIDE_ENCRYPT_KEY_FILE", "keys");
        watched.restart().await;
        let client = watched.client();
        client.define("a", &answering()).await;
        for number in 0..3 {
            let new = json!({"id": format!("c{number}"), "agent": "a", "title": "kept"});
            client.post("/v1/conversations", &new).await.expect(201);
        }
        set_keys(watched, &format!("{TWO}{ONE}"));
        watched.restart().await;
    }

    async fn carry_out(&self, client: &Client) {
        poll("the keys to be wrapped anew", async || {
            let answer = client.try_admin(Method::POST, "/admin/encryption/rewrap").await?;
            (answer.status == 200).then_some(())
        })
        .await;
    }

    async fn check(&self, watched: &mut WatchedNode) {
        set_keys(watched, TWO);
        watched.restart().await;
        for number in 0..3 {
            let snapshot = watched.client().snapshot(&format!("c{number}")).await;
            assert_eq!(snapshot["title"], "kept");
        }
    }
}

#[tokio::test]
async fn data_keys_are_wrapped_anew_around_whichever_write_their_node_dies() {
    kill_around_each_write(&Rewrap).await;
}
