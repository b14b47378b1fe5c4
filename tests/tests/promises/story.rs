//! Roots that ask a child on another node, and what must have become of them.

use abide_tests::client::Client;
use abide_tests::cluster::Cluster;
use abide_tests::journal::Journal;
use serde_json::{Value, json};

use crate::agents::{agent, call};
use crate::rig::{say, three};

/// Enough that one of them has its child on another node: by chance two of three have.
pub(crate) const STORIES: usize = 16;
/// All roots and children of a test.
pub(crate) const PAGE: &str = "/v1/conversations?limit=1000";

/// Who dies.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Victims {
    Parents,
    Childs,
    Both,
}

pub(crate) const ALL: [Victims; 3] = [Victims::Parents, Victims::Childs, Victims::Both];

/// Roots `c0`, `c1` and so on with a child each, up to the first whose child lives elsewhere.
pub(crate) struct Story {
    pub(crate) cluster: Cluster,
    pub(crate) roots: usize,
    pub(crate) child: String,
    /// The nodes of the last root, of its child, and the third one.
    pub(crate) nodes: [usize; 3],
}

/// An agent that asks another one, and says what it heard.
pub(crate) fn asks(whom: &str) -> Value {
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
pub(crate) fn kid(tool: Value) -> Value {
    let script = json!([
        {"calls": [call("it", tool["name"].as_str().unwrap(), json!({"n": 7}))],
         "usage": {"input_tokens": 20, "output_tokens": 2}},
        {"text": "kid is done", "usage": {"input_tokens": 3, "output_tokens": 3}},
    ]);
    agent(json!({"provider": "scripted", "script": script}), vec![tool])
}

/// What a root and a `kid` cost.
pub(crate) fn cost() -> Value {
    json!({"input_tokens": 124, "output_tokens": 16})
}

/// The child that a conversation asks, as soon as it does.
pub(crate) async fn child(client: &Client, id: &str) -> String {
    let named = |journal: &Journal| {
        let children: Vec<String> = journal.of("tool_call").filter_map(named_child).collect();
        assert!(children.len() <= 1, "{id} asks {children:?}");
        children.into_iter().next()
    };
    let journal = client.wait_for(id, "a child", |journal| named(journal).is_some()).await;
    named(&journal).unwrap()
}

fn named_child(event: &Value) -> Option<String> {
    event["data"]["child"].as_str().map(str::to_owned)
}

impl Story {
    /// Begins, and waits until each child `is_there`; that gets the count of the roots and the
    /// child's name.
    pub(crate) async fn begin(
        lease: &str,
        kid: &Value,
        is_there: impl AsyncFn(&Client, usize, &str),
    ) -> Self {
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

    /// Waits for the end of every root, each with one answer of its one child.
    pub(crate) async fn ends(&self, said: &str, cost: &Value) {
        let client = self.third();
        for root in (0..self.roots).map(|number| format!("c{number}")) {
            let journal = client.wait_until_settled(&root, 1).await;
            assert_eq!(journal.outcomes(), ["completed"], "{root}");
            assert_eq!(journal.about("tool_result", "ask").count(), 1, "{root}");
            assert_eq!(journal.result("ask")["result"], said, "{:#}", journal.result("ask"));
            let child = child(client, &root).await;
            assert_eq!(journal.result("ask")["ui"]["payload"]["subagent_id"], child);
            assert_eq!(journal.last_text(), said, "{root}");
            assert_eq!(&client.snapshot(&root).await["usage"], cost, "{root}");
            let its = client.wait_until_settled(&child, 1).await;
            assert_eq!((its.outcomes(), its.of("user_msg").count()), (vec!["completed"], 1));
            client.wait_for(&child, "it to have told", |its| its.of("told").count() == 1).await;
        }
        let all = client.get(PAGE).await.expect(200);
        assert_eq!(all["conversations"].as_array().unwrap().len(), 2 * self.roots, "{all:#}");
        assert_eq!(client.get("/v1/pending").await.expect(200)["pending"], json!([]));
    }
}
