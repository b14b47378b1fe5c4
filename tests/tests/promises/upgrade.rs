//! Two builds work on one store: the previous one, which `.ci/previous-build` builds, and this one.

use std::path::PathBuf;

use abide_tests::client::{Client, resolution};
use abide_tests::cluster::{Cluster, Plan};
use abide_tests::journal::Journal;
use abide_tests::node::Site;
use abide_tests::tool_server::ToolServer;
use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};

use crate::ABIDE;
use crate::agents::{agent, calls_once, client, gated_client, http, human};
use crate::sub_agent_scenario::{calls_agent, child};
use crate::three_nodes::{retry_post, send_message, start_cluster, wait_until_all_up};

/// The directory that `.ci/previous-build` makes for its revision.
const PREVIOUS: &str = "previous-1d8b9ee";
/// The builds derive different keys from it.
const SECRET: &str = "one secret for nodes of both builds";
/// The drain time-out cuts off the tool that never ends, so that each replaced node runs it again.
const REPLACE_FLAGS: [&str; 4] = ["--placement", "rendezvous", "--drain-timeout", "1s"];
/// Turns of the long conversation per build, of four events each: enough that each build caches a
/// state.
const TURNS: usize = 18;

fn previous() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache");
    let cache = std::env::var_os("XDG_CACHE_HOME").map_or_else(home, PathBuf::from);
    let program = cache.join("abide-tests").join(PREVIOUS).join("abide");
    assert!(program.exists(), "{} is missing: run .ci/previous-build", program.display());
    program
}

/// A kind of conversation that waits for answers, with the agent of this name.
struct Shape {
    name: &'static str,
    agent: Value,
    /// The answers that it needs, in order: the call, its kind, and the answer.
    answers: Vec<(&'static str, &'static str, Value)>,
    turns: usize,
}

fn shapes(tools: &ToolServer) -> Vec<Shape> {
    let gate = json!({"approval": "requires_approval"});
    let gated = |name| http(name, tools, "/answer", gate.clone());
    let yes = json!({"approved": true});
    let result = json!({"result": {"said": "yes"}});
    let no = json!({"approved": false, "reason": "not today"});
    let shape = |name, tools, answers| Shape { name, agent: calls_once(tools), answers, turns: 1 };
    let mixed = vec![
        http("auto", tools, "/answer", json!({})),
        gated("gated"),
        human("ask"),
        gated_client("page"),
    ];
    let all = vec![
        ("page", "approval", yes.clone()),
        ("ask", "elicitation", result.clone()),
        ("gated", "approval", yes.clone()),
        ("page", "client_exec", result.clone()),
    ];
    let queued =
        vec![("ask", "elicitation", result.clone()), ("ask~2", "elicitation", result.clone())];
    vec![
        shape("approved", vec![gated("send")], vec![("send", "approval", yes)]),
        shape("denied", vec![gated("send")], vec![("send", "approval", no)]),
        shape("page", vec![client("page")], vec![("page", "client_exec", result.clone())]),
        shape("mixed", mixed, all),
        Shape { turns: 2, ..shape("queued", vec![human("ask")], queued) },
    ]
}

/// The running work of a cluster.
struct Work {
    cluster: Cluster,
    tools: ToolServer,
    shapes: Vec<Shape>,
}

impl Work {
    fn id(shape: &Shape, round: usize) -> String {
        format!("{}-{round}", shape.name)
    }

    /// Starts one conversation of each shape with a stream reader, and waits until all are
    /// suspended.
    async fn begin(&self, round: usize, node: usize) {
        let client = self.cluster.client(node);
        for shape in &self.shapes {
            let id = Self::id(shape, round);
            send_message(client, &id, shape.name, "first").await;
            for turn in 1..shape.turns {
                let next =
                    json!({"text": "next", "if_busy": "queue", "message_id": turn.to_string()});
                retry_post(client, &format!("/v1/conversations/{id}/messages"), None, &next)
                    .await
                    .expect(202);
            }
            self.cluster.history.listen(self.cluster.clients(), &id);
            let (call, kind, _) = &shape.answers[0];
            client.wait_for_pending(&id, call, kind).await;
        }
        send_message(client, &format!("boss-{round}"), "boss", "go").await;
        let kid = child(client, &format!("boss-{round}")).await;
        client.wait_for(&kid, "its question", |its| its.of("suspension").count() == 1).await;
    }

    /// Answers all calls of a round, each through the next of these nodes, and sends each answer
    /// twice.
    async fn answer(&self, round: usize, nodes: &[usize]) {
        let mut clients = nodes.iter().map(|node| self.cluster.client(*node)).cycle();
        let mut next = || clients.next().unwrap();
        for shape in &self.shapes {
            let id = Self::id(shape, round);
            for (call, kind, answer) in &shape.answers {
                let at = next();
                at.wait_for_pending(&id, call, kind).await;
                let first = resolve(at, &id, call, kind, answer).await;
                let again = resolve(next(), &id, call, kind, answer).await;
                assert_eq!(again, first, "{id}: a repeat gets the first answer");
            }
            let journal = next().wait_until_settled(&id, shape.turns).await;
            assert_eq!(journal.outcomes(), vec!["completed"; shape.turns], "{id}");
            // Every build knows the id of the first message.
            send_message(next(), &id, shape.name, "first").await;
        }
        let boss = format!("boss-{round}");
        let kid = child(next(), &boss).await;
        let at = next();
        at.wait_for_pending(&kid, "ask", "elicitation").await;
        resolve(at, &kid, "ask", "elicitation", &json!({"result": "yes"})).await;
        let journal = next().wait_until_settled(&boss, 1).await;
        assert_eq!((journal.outcomes(), journal.last_text()), (vec!["completed"], "Done.".into()));
    }

    /// Sends messages to the long conversation at once, and waits for the ends of their turns.
    async fn send_messages(&self, node: usize, name: &str, turns: usize) {
        let client = self.cluster.client(node);
        let before = client.try_journal("long").await.map_or(0, |it| it.of("turn_ended").count());
        for turn in 1..=turns {
            let name = format!("{name} {turn}");
            let message =
                json!({"text": name, "agent": "says", "message_id": name, "if_busy": "queue"});
            retry_post(client, "/v1/conversations/long/messages", None, &message).await.expect(202);
        }
        client.wait_until_settled("long", before + turns).await;
    }
}

/// Resolves a call under an idempotency key of this suspension.
async fn resolve(at: &Client, id: &str, call: &str, kind: &str, answer: &Value) -> Value {
    let key = format!("{id}/{call}/{kind}");
    retry_post(at, &resolution(id, call), Some(&key), answer).await.expect(200)
}

/// Starts three nodes of the previous build, and defines all agents.
async fn start_previous(tools: ToolServer) -> Work {
    let plan = Plan::new(previous()).with_secret(SECRET);
    let cluster = start_cluster(plan.with(&["--lease", "5s"]).with(&REPLACE_FLAGS)).await;
    let (first, shapes) = (cluster.client(0), shapes(&tools));
    for shape in &shapes {
        first.define(shape.name, &shape.agent).await;
    }
    first.define("kid", &calls_once(vec![human("ask")])).await;
    first.define("boss", &calls_agent("kid")).await;
    first.define("says", &agent(json!({"provider": "scripted", "script": []}), vec![])).await;
    first.define("holds", &calls_once(vec![http("hold", &tools, "/hold", json!({}))])).await;
    Work { cluster, tools, shapes }
}

#[tokio::test]
async fn a_cluster_is_replaced_by_another_build_node_by_node_and_one_node_goes_back() {
    let mut work = start_previous(ToolServer::start().await).await;
    send_message(work.cluster.client(0), "holds", "holds", "go").await;
    work.tools.requests.nth(1).await;
    work.begin(1, 0).await;
    work.begin(2, 1).await;
    work.send_messages(2, "old", TURNS).await;
    let created = create_with_key(work.cluster.client(0)).await;

    work.cluster.replace(0, ABIDE).await;
    wait_until_all_up(&work.cluster).await;
    work.begin(3, 0).await;
    work.answer(1, &[0, 1, 2]).await;
    work.send_messages(0, "new", TURNS).await;

    for node in 1..3 {
        work.cluster.replace(node, ABIDE).await;
        wait_until_all_up(&work.cluster).await;
    }
    work.answer(2, &[0, 1, 2]).await;
    work.begin(4, 1).await;
    assert_eq!(repeat_creation(work.cluster.client(1)).await, created);

    work.cluster.replace(2, previous()).await;
    wait_until_all_up(&work.cluster).await;
    work.answer(3, &[2]).await;
    work.answer(4, &[2, 0]).await;
    work.send_messages(2, "old again", TURNS).await;
    work.send_messages(0, "new again", 1).await;
    assert_eq!(repeat_creation(work.cluster.client(2)).await, created);

    work.tools.release();
    let held = work.cluster.client(0).wait_until_settled("holds", 1).await;
    assert_eq!(held.outcomes(), ["completed"]);
    let long = work.cluster.client(0).wait_until_settled("long", 3 * TURNS + 1).await;
    assert!(long.outcomes().iter().all(|outcome| *outcome == "completed"));
    let mut evidence = work.cluster.evidence(&[&work.tools]).await;
    // The previous build journals them, and tells them to no stream.
    evidence.types_without_frame = ["user_msg", "resolution"].map(str::to_owned).to_vec();
    evidence.assert_no_violations();
}

#[tokio::test]
async fn an_embedded_store_of_the_previous_build_goes_on() {
    let mut site = Site::new(previous());
    let node = site.start().await;
    site.client.define("says", &agent(json!({"provider": "scripted", "script": []}), vec![])).await;
    site.client.define("asks", &calls_once(vec![human("ask")])).await;
    site.client.send_message("asks", "asks", "go").await;
    site.client.wait_for_pending("asks", "ask", "elicitation").await;
    for turn in 1..=TURNS {
        site.client.send_message("long", "says", &turn.to_string()).await;
        site.client.wait_until_settled("long", turn).await;
    }
    let before = (site.client.journal("long").await, create_with_key(&site.client).await);
    node.kill().await;

    site.set_program(ABIDE);
    let node = site.start().await;
    let after = (site.client.journal("long").await, repeat_creation(&site.client).await);
    assert_eq!((with_moments(after.0), after.1), (with_moments(before.0), before.1));
    site.client.send_message("long", "says", "more").await;
    site.client.wait_until_settled("long", TURNS + 1).await;
    let pending = site.client.get("/v1/pending").await.expect(200);
    assert_eq!(pending["pending"][0]["conversation_id"], "asks");
    site.client.resolve("asks", "ask", json!({"result": "yes"})).await.expect(200);
    assert_eq!(site.client.wait_until_settled("asks", 1).await.outcomes(), ["completed"]);
    node.kill().await;
}

/// Creates a conversation under an idempotency key. Returns what the store has in addition to its
/// journal.
async fn create_with_key(client: &Client) -> [Value; 2] {
    let body = json!({"id": "named", "agent": "says", "metadata": {"plan": "gold"}});
    let answer = client.ask(Method::POST, "/v1/conversations", Some("once"), Some(&body)).await;
    answer.unwrap().expect(201);
    repeat_creation(client).await
}

/// The answer to the repeated creation, and the conversation's metadata.
async fn repeat_creation(client: &Client) -> [Value; 2] {
    let body = json!({"id": "named", "agent": "says", "metadata": {"plan": "gold"}});
    let answer = client.ask(Method::POST, "/v1/conversations", Some("once"), Some(&body)).await;
    let snapshot = client.snapshot("named").await;
    [answer.unwrap().expect(201), snapshot["metadata"].clone()]
}

/// The journal with its times as numbers: the previous build wrote a moment with as few digits as it
/// could.
fn with_moments(Journal(events): Journal) -> Vec<Value> {
    let mut events = events;
    for event in &mut events {
        let at: Timestamp = event["at"].as_str().unwrap().parse().unwrap();
        event["at"] = json!(at.as_millisecond());
    }
    events
}
