//! Conversations that ask each other from node to node: every question has one answer, whoever dies.

use abide_tests::client::Client;
use abide_tests::cluster::Cluster;
use abide_tests::journal::Journal;
use abide_tests::model_server::{ModelServer, Piece};
use abide_tests::patience::look;
use abide_tests::processes::Mark;
use abide_tests::tool_server::ToolServer;
use reqwest::Method;
use serde_json::{Value, json};

use crate::agents::{agent, call, http, human};
use crate::rig::{resolve, say, three};

/// Enough that one of them has its child on another node: by chance two of three have.
const STORIES: usize = 16;
/// All roots and children of a test.
const PAGE: &str = "/v1/conversations?limit=1000";

/// Who dies.
#[derive(Clone, Copy, Debug)]
enum Victims {
    Parents,
    Childs,
    Both,
}

const ALL: [Victims; 3] = [Victims::Parents, Victims::Childs, Victims::Both];

/// Roots `c0`, `c1` and so on with a child each, up to the first whose child lives elsewhere.
struct Story {
    cluster: Cluster,
    roots: usize,
    child: String,
    /// The nodes of the last root, of its child, and the third one.
    nodes: [usize; 3],
}

/// An agent that asks another one, and says what it heard.
fn asks(whom: &str) -> Value {
    let script = json!([
        {"calls": [call("ask", "ask", json!({"prompt": "the question"}))],
         "usage": {"input_tokens": 100, "output_tokens": 10}},
        {"text": "{{ results.ask.result }}", "usage": {"input_tokens": 1, "output_tokens": 1}},
    ]);
    let ask = json!({"name": "ask", "description": "Asks.", "run": {"agent": whom},
        "parameters": {"type": "object"}, "run_timeout": "5m"});
    agent(json!({"provider": "scripted", "script": script}), vec![ask])
}

/// An agent that calls its one tool, then says that it did.
fn kid(tool: Value) -> Value {
    let script = json!([
        {"calls": [call("it", tool["name"].as_str().unwrap(), json!({"n": 7}))],
         "usage": {"input_tokens": 20, "output_tokens": 2}},
        {"text": "kid is done", "usage": {"input_tokens": 3, "output_tokens": 3}},
    ]);
    agent(json!({"provider": "scripted", "script": script}), vec![tool])
}

/// What a root and a `kid` cost.
fn cost() -> Value {
    json!({"input_tokens": 124, "output_tokens": 16})
}

/// The child that a conversation asks, as soon as it does.
async fn child(client: &Client, id: &str) -> String {
    let named = |journal: &Journal| {
        let children: Vec<String> = journal.of("tool_call").filter_map(named_child).collect();
        assert!(children.len() <= 1, "{id} asks {children:?}");
        children.into_iter().next()
    };
    let journal = client.until(id, "a child", |journal| named(journal).is_some()).await;
    named(&journal).unwrap()
}

fn named_child(event: &Value) -> Option<String> {
    event["data"]["child"].as_str().map(str::to_owned)
}

impl Story {
    /// Begins, and waits until each child `is_there`; that gets the count of the roots and the
    /// child's name.
    async fn begin(lease: &str, kid: &Value, is_there: impl AsyncFn(&Client, usize, &str)) -> Self {
        let cluster = three(lease, &["--placement", "rendezvous"]).await;
        cluster.client(0).define("kid", kid).await;
        cluster.client(0).define("boss", &asks("kid")).await;
        for roots in 1..=STORIES {
            let root = format!("c{}", roots - 1);
            say(cluster.client(0), &root, "boss", "go").await;
            let child = child(cluster.client(0), &root).await;
            is_there(cluster.client(0), roots, &child).await;
            let parents = cluster.holder(0, &root).await;
            let childs = cluster.holder(0, &child).await;
            if parents != childs {
                let nodes = [parents, childs, 3 - parents - childs];
                return Self { cluster, roots, child, nodes };
            }
        }
        panic!("every child lives where its parent does");
    }

    /// A client of the node where neither lives.
    fn third(&self) -> &Client {
        self.cluster.client(self.nodes[2])
    }

    async fn kill(&mut self, victims: Victims) {
        let [parents, childs, _] = self.nodes;
        match victims {
            Victims::Parents => self.cluster.kill(parents).await,
            Victims::Childs => self.cluster.kill(childs).await,
            Victims::Both => {
                self.cluster.kill(parents).await;
                self.cluster.kill(childs).await;
            }
        }
    }

    /// Waits for the end of every root, each with one answer of its one child.
    async fn ends(&self, said: &str, cost: &Value) {
        let client = self.third();
        for root in (0..self.roots).map(|number| format!("c{number}")) {
            let journal = client.settled(&root, 1).await;
            assert_eq!(journal.outcomes(), ["completed"], "{root}");
            assert_eq!(journal.about("tool_result", "ask").count(), 1, "{root}");
            assert_eq!(journal.result("ask")["result"], said, "{:#}", journal.result("ask"));
            let child = child(client, &root).await;
            assert_eq!(journal.result("ask")["ui"]["payload"]["subagent_id"], child);
            assert_eq!(journal.last_text(), said, "{root}");
            assert_eq!(&client.snapshot(&root).await["usage"], cost, "{root}");
            let its = client.settled(&child, 1).await;
            assert_eq!((its.outcomes(), its.of("user_msg").count()), (vec!["completed"], 1));
            client.until(&child, "it to have told", |its| its.of("told").count() == 1).await;
        }
        let all = client.get(PAGE).await.expect(200);
        assert_eq!(all["conversations"].as_array().unwrap().len(), 2 * self.roots, "{all:#}");
        assert_eq!(client.get("/v1/pending").await.expect(200)["pending"], json!([]));
    }
}

#[tokio::test]
async fn a_kill_while_the_childs_model_streams_ends_in_one_answer() {
    for victims in ALL {
        let model = ModelServer::start().await;
        for _ in 0..STORIES {
            model.reply(vec![Piece::Text("Half"), Piece::Hold, Piece::Text(" and half.")]);
        }
        let mut story = Story::begin("1m", &agent(model.model(), vec![]), async |_, roots, _| {
            model.seen.nth(roots).await;
        })
        .await;
        let asked = model.seen.all().len();
        story.kill(victims).await;
        if !matches!(victims, Victims::Parents) {
            model.seen.nth(asked + 1).await;
        }
        model.release();
        story.ends("Half and half.", &json!({"input_tokens": 101, "output_tokens": 11})).await;
    }
}

#[tokio::test]
async fn a_kill_while_the_childs_tool_runs_ends_in_one_answer() {
    for victims in ALL {
        let tools = ToolServer::start().await;
        let kid = kid(http("hold", &tools, "/hold", json!({})));
        let mut story = Story::begin("1m", &kid, async |_, roots, _| {
            tools.seen.nth(roots).await;
        })
        .await;
        story.kill(victims).await;
        let again = !matches!(victims, Victims::Parents);
        let key = format!("{}/it", story.child);
        let runs = async || {
            let all = tools.seen.all();
            let count = all.iter().filter(|run| run.header("idempotency-key") == key).count();
            (count == 1 + usize::from(again)).then_some(())
        };
        look("the child's tool to run as often as it must", runs).await;
        tools.release();
        story.ends("kid is done", &cost()).await;
        assert!(runs().await.is_some(), "the tool ran once too often");
    }
}

#[tokio::test]
async fn a_kill_while_the_child_waits_ends_in_one_answer_by_whoever_approves_elsewhere() {
    for victims in ALL {
        let tools = ToolServer::start().await;
        let gated = http("send", &tools, "/answer", json!({"approval": "requires_approval"}));
        let mut story = Story::begin("1m", &kid(gated), async |client, _, child| {
            let waits = |its: &Journal| its.about("suspension", "it").count() == 1;
            client.until(child, "the child to wait", waits).await;
        })
        .await;
        story.kill(victims).await;
        for number in 0..story.roots {
            let root = format!("c{number}");
            let path = format!("/v1/pending?conversation={root}");
            let inbox = story.third().get(&path).await.expect(200);
            let [open] = inbox["pending"].as_array().unwrap().as_slice() else {
                panic!("{inbox:#}");
            };
            assert_eq!(
                (&open["root_conversation_id"], &open["tool"]),
                (&json!(root), &json!("send"))
            );
            let child = child(story.third(), &root).await;
            assert_eq!(open["conversation_id"], child);
            let answer = json!({"approved": true});
            resolve(story.third(), &child, "it", answer).await.expect(200);
        }
        story.ends("kid is done", &cost()).await;
        assert_eq!(tools.seen.all().len(), story.roots);
    }
}

#[tokio::test]
async fn a_kill_between_the_childs_end_and_its_telling_ends_in_one_answer() {
    for victims in ALL {
        let tools = ToolServer::start().await;
        let kid = kid(http("hold", &tools, "/hold", json!({})));
        let mut story = Story::begin("1m", &kid, async |_, roots, _| {
            tools.seen.nth(roots).await;
        })
        .await;
        // From here on the parent hears nothing, and keeps its conversation.
        story.cluster.stop(story.nodes[0]).await;
        tools.release();
        let ended = |its: &Journal| its.outcomes() == ["completed"];
        let its = story.third().until(&story.child, "the child's end", ended).await;
        assert_eq!(its.of("told").count(), 0);
        story.kill(victims).await;
        if matches!(victims, Victims::Childs) {
            story.cluster.cont(story.nodes[0]);
        }
        story.ends("kid is done", &cost()).await;
    }
}

#[tokio::test]
async fn a_child_whose_node_was_stopped_goes_on_elsewhere_and_answers_once() {
    let tools = ToolServer::start().await;
    let kid = kid(http("hold", &tools, "/hold", json!({})));
    let story = Story::begin("2s", &kid, async |_, roots, _| {
        tools.seen.nth(roots).await;
    })
    .await;
    let stopped = story.nodes[1];
    story.cluster.stop(stopped).await;
    let key = format!("{}/it", story.child);
    let attempts = || {
        let all = tools.seen.all().into_iter();
        let runs = all.filter(|run| run.header("idempotency-key") == key);
        runs.map(|run| run.body["attempt"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    look("a second attempt", async || (attempts() == [1, 2]).then_some(())).await;
    tools.release();
    story.ends("kid is done", &cost()).await;
    let ended = story.third().journal(&story.child).await;
    story.cluster.cont(stopped);
    crate::rig::together(&story.cluster).await;
    story.ends("kid is done", &cost()).await;
    assert_eq!(attempts(), [1, 2]);
    assert_eq!(story.third().journal(&story.child).await, ended, "nothing is added late");
}

/// `root` asks `middle`, which asks `last`, which runs a command and asks a person.
async fn three_deep(cluster: &Cluster, mark: &Mark) -> [String; 2] {
    let command = format!("setsid sleep {mark} > /dev/null 2>&1 & sleep {mark}");
    let calls =
        json!([call("bash", "bash", json!({"command": command})), call("who", "who", json!({}))]);
    let model = json!({"provider": "scripted", "script": [{"calls": calls}]});
    let last = agent(model, vec![json!({"builtin": ["bash"]}), human("who")]);
    cluster.client(0).define("last", &last).await;
    cluster.client(0).define("middle", &asks("last")).await;
    cluster.client(0).define("boss", &asks("middle")).await;
    say(cluster.client(0), "root", "boss", "go").await;
    let middle = child(cluster.client(1), "root").await;
    let last = child(cluster.client(1), &middle).await;
    // The shell that waits, and the two sleeps.
    mark.is_on(3).await;
    cluster.client(2).pending(&last, "who", "elicitation").await;
    let inbox = cluster.client(2).get("/v1/pending?conversation=root").await.expect(200);
    assert_eq!(inbox["pending"][0]["conversation_id"], last);
    assert_eq!(inbox["pending"][0]["root_conversation_id"], "root");
    [middle, last]
}

#[tokio::test]
async fn a_cancelled_root_stops_its_grandchilds_command_and_empties_the_inbox() {
    let (cluster, mark) = (three("5s", &["--placement", "rendezvous"]).await, Mark::default());
    let [middle, last] = three_deep(&cluster, &mark).await;
    let cancelled = cluster.client(2).cancel("root").await.expect(200);
    assert_eq!(cancelled, json!({"cancelled": true}));
    mark.is_on(0).await;
    for id in ["root", &middle, &last] {
        let journal = cluster.client(1).settled(id, 1).await;
        assert_eq!(journal.outcomes(), ["cancelled"], "{id}");
    }
    for client in cluster.clients() {
        assert_eq!(client.get("/v1/pending").await.expect(200)["pending"], json!([]));
    }
}

#[tokio::test]
async fn a_deleted_root_takes_its_children_along() {
    let (cluster, mark) = (three("5s", &["--placement", "rendezvous"]).await, Mark::default());
    let [middle, last] = three_deep(&cluster, &mark).await;
    let path = "/v1/conversations/root";
    let deleted = cluster.client(2).ask(Method::DELETE, path, None, None).await.unwrap();
    assert_eq!(deleted.status, 204, "{:#}", deleted.body);
    mark.is_on(0).await;
    for client in cluster.clients() {
        for id in ["root", &middle, &last] {
            let gone = client.get(&format!("/v1/conversations/{id}")).await;
            gone.expect_problem(404, "not-found");
        }
        assert_eq!(client.get(PAGE).await.expect(200)["conversations"], json!([]));
        assert_eq!(client.get("/v1/pending").await.expect(200)["pending"], json!([]));
    }
}
