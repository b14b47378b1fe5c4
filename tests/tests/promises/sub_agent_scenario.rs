//! The scenario of the sub-agent tests: roots whose child lives on another node.

use abide_tests::client::Client;
use abide_tests::cluster::Cluster;
use abide_tests::journal::Journal;
use serde_json::{Value, json};

use crate::agents::{agent, call};
use crate::three_nodes::{send_message, start_three};

/// How many roots are tried: two of three have their child on another node.
pub(crate) const MAX_ROOTS: usize = 16;
/// The path that lists all roots and children of a test.
pub(crate) const ALL_CONVERSATIONS: &str = "/v1/conversations?root_only=false&limit=1000";

/// The conversations whose nodes are killed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Victims {
    Parents,
    Childs,
    Both,
}

pub(crate) const ALL_VICTIMS: [Victims; 3] = [Victims::Parents, Victims::Childs, Victims::Both];

/// Roots `c0`, `c1` and so on with one child each, up to the first whose child lives on another
/// node.
pub(crate) struct Scenario {
    pub(crate) cluster: Cluster,
    pub(crate) roots: usize,
    pub(crate) child: String,
    /// The nodes of the last root, of its child, and the third node.
    pub(crate) nodes: [usize; 3],
}

/// An agent that calls another one, and replies with its answer.
pub(crate) fn calls_agent(name: &str) -> Value {
    let script = json!([
        {"calls": [call("ask", "ask", json!({"prompt": "the question"}))],
         "usage": {"input_tokens": 100, "output_tokens": 10}},
        {"text": "{{ results.ask.result }}", "usage": {"input_tokens": 1, "output_tokens": 1}},
    ]);
    let ask = json!({"name": "ask", "description": "Asks.", "run": {"agent": name},
        "parameters": {"type": "object"}, "run_timeout": "5m"});
    agent(json!({"provider": "scripted", "script": script}), vec![ask])
}

/// An agent that calls its one tool, then replies `child is done`.
pub(crate) fn sub_agent(tool: Value) -> Value {
    let script = json!([
        {"calls": [call("it", tool["name"].as_str().unwrap(), json!({"n": 7}))],
         "usage": {"input_tokens": 20, "output_tokens": 2}},
        {"text": "child is done", "usage": {"input_tokens": 3, "output_tokens": 3}},
    ]);
    agent(json!({"provider": "scripted", "script": script}), vec![tool])
}

/// The usage of a root with a `sub_agent`.
pub(crate) fn cost() -> Value {
    json!({"input_tokens": 124, "output_tokens": 16})
}

/// Waits until a conversation has a child, and returns its id.
pub(crate) async fn child(client: &Client, id: &str) -> String {
    let child_of = |journal: &Journal| {
        let children: Vec<String> = journal.of("tool_call").filter_map(named_child).collect();
        assert!(children.len() <= 1, "{id} asks {children:?}");
        children.into_iter().next()
    };
    let journal = client.wait_for(id, "a child", |journal| child_of(journal).is_some()).await;
    child_of(&journal).unwrap()
}

fn named_child(event: &Value) -> Option<String> {
    event["data"]["child"].as_str().map(str::to_owned)
}

impl Scenario {
    /// Starts the cluster and the roots, and waits for `is_ready` after each; it gets the number of
    /// roots and the child's id.
    pub(crate) async fn start(
        lease: &str,
        sub_agent: &Value,
        is_ready: impl AsyncFn(&Client, usize, &str),
    ) -> Self {
        let cluster = start_three(lease, &["--placement", "rendezvous"]).await;
        cluster.client(0).define("kid", sub_agent).await;
        cluster.client(0).define("boss", &calls_agent("kid")).await;
        for roots in 1..=MAX_ROOTS {
            let root = format!("c{}", roots - 1);
            send_message(cluster.client(0), &root, "boss", "go").await;
            let child = child(cluster.client(0), &root).await;
            is_ready(cluster.client(0), roots, &child).await;
            let parents = cluster.holder(0, &root).await;
            let childs = cluster.holder(0, &child).await;
            if parents != childs {
                let nodes = [parents, childs, 3 - parents - childs];
                return Self { cluster, roots, child, nodes };
            }
        }
        panic!("every child lives where its parent does");
    }

    /// A client of the node where neither the root nor its child lives.
    pub(crate) fn third(&self) -> &Client {
        self.cluster.client(self.nodes[2])
    }

    pub(crate) async fn kill(&mut self, victims: Victims) {
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

    /// Waits for the end of every root, and fails unless each has one answer of its one child.
    pub(crate) async fn expect_one_answer(&self, answer: &str, cost: &Value) {
        let client = self.third();
        for root in (0..self.roots).map(|number| format!("c{number}")) {
            let journal = client.wait_until_settled(&root, 1).await;
            assert_eq!(journal.outcomes(), ["completed"], "{root}");
            assert_eq!(journal.about("tool_result", "ask").count(), 1, "{root}");
            assert_eq!(journal.result("ask")["result"], answer, "{:#}", journal.result("ask"));
            let child = child(client, &root).await;
            assert_eq!(journal.result("ask")["ui"]["payload"]["subagent_id"], child);
            assert_eq!(journal.last_text(), answer, "{root}");
            assert_eq!(&client.snapshot(&root).await["usage"], cost, "{root}");
            let child_journal = client.wait_until_settled(&child, 1).await;
            assert_eq!(
                (child_journal.outcomes(), child_journal.of("user_msg").count()),
                (vec!["completed"], 1)
            );
            client
                .wait_for(&child, "the child to notify its parent", |its| {
                    its.of("told").count() == 1
                })
                .await;
        }
        let all = client.get(ALL_CONVERSATIONS).await.expect(200);
        assert_eq!(all["conversations"].as_array().unwrap().len(), 2 * self.roots, "{all:#}");
        assert_eq!(client.get("/v1/pending").await.expect(200)["pending"], json!([]));
    }
}
