//! A worker's part in a running turn: it resolves open calls, cancels, and dispatches tools.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use reqwest::Method;
use serde_json::{Value, json};

use super::agents::Shape;
use super::worker::Worker;
use crate::client::resolution;

/// The pause between two polls of a conversation: people are slow, and polling is load.
const LOOK_INTERVAL_MS: u64 = 120;

impl Worker {
    /// Polls, resolves and interferes until the conversation is idle, or the run is over.
    pub(super) async fn attend(&mut self, id: &str, shape: &Shape) {
        let mut ignored = BTreeSet::new();
        let mut idle = 0;
        // Only two idle polls mean idle: a conversation is also idle between a message and its
        // turn.
        while idle < 2 && !self.context.gives_up() {
            let pause = LOOK_INTERVAL_MS + self.random.below(LOOK_INTERVAL_MS);
            tokio::time::sleep(Duration::from_millis(pause)).await;
            let Some(snapshot) = self.read_snapshot(id).await else { continue };
            let holder = &snapshot["holder"];
            if !holder.is_null() {
                let epoch = &holder["epoch"];
                let by = format!("{} (epoch {epoch})", holder["node"].as_str().unwrap_or_default());
                self.context.fault_log.record_holder(id, &by);
            }
            if snapshot["state"] == "idle" && snapshot["queued"] == 0 {
                idle += 1;
                continue;
            }
            idle = 0;
            let from_inbox = shape.has_sub_agents || self.random.below(2) == 0;
            let pending = if from_inbox {
                self.inbox(id).await
            } else {
                snapshot["pending"].as_array().cloned()
            };
            for entry in pending.unwrap_or_default() {
                let name = format!("{}/{}", entry["call_id"], entry["suspension"]);
                let late = Self::expires_soon(&entry) && self.random.below(2) == 0;
                if late {
                    ignored.insert(name.clone());
                }
                // Some take until the next poll to think.
                if !ignored.contains(&name) && self.random.below(4) != 0 {
                    self.answer(id, &entry).await;
                }
            }
            self.interfere(id, shape).await;
        }
    }

    /// Reads the snapshot, and sometimes the journal, and records how far they show the conversation.
    async fn read_snapshot(&mut self, id: &str) -> Option<Value> {
        if self.random.below(8) == 0 {
            self.node().clone().observe_journal(id).await;
        }
        let (node, sent_at) = (self.node().clone(), Timestamp::now());
        let path = format!("/v1/conversations/{id}");
        let answer = node.clone().without_history().ask(Method::GET, &path, None, None).await?;
        if [200, 404].contains(&answer.status) {
            node.record_read(id, sent_at, answer.body["last_seq"].as_u64().unwrap_or(0), None);
        }
        (answer.status == 200).then_some(answer.body)
    }

    async fn inbox(&mut self, id: &str) -> Option<Vec<Value>> {
        let node = self.node().clone().without_history();
        let path = format!("/v1/pending?conversation={id}&limit=1000");
        node.ask(Method::GET, &path, None, None).await?.body["pending"].as_array().cloned()
    }

    /// Resolves a call; sometimes twice at once through two nodes, sometimes with a repeat.
    async fn answer(&mut self, root: &str, entry: &Value) {
        let id = entry["conversation_id"].as_str().unwrap_or(root).to_owned();
        let Some(call) = entry["call_id"].as_str() else { return };
        let path = resolution(&id, call);
        let (body, other) = (self.resolution_of(entry), self.resolution_of(entry));
        match self.random.below(6) {
            0 => {
                let (one, two) = (self.node().clone(), self.node().clone());
                tokio::join!(
                    one.ask(Method::POST, &path, None, Some(&body)),
                    two.ask(Method::POST, &path, None, Some(&other)),
                );
            }
            1 => {
                self.insist(&path, None, Some(&body)).await;
            }
            choice => {
                let key = self.key(&id);
                self.insist(&path, Some(&key), Some(&body)).await;
                if choice == 2 {
                    self.insist(&path, Some(&key), Some(&body)).await;
                }
            }
        }
    }

    fn resolution_of(&mut self, entry: &Value) -> Value {
        let pauses = entry["args"]["pause_ms"].is_u64();
        let mut body = match (entry["kind"].as_str(), self.random.below(6)) {
            (Some("approval"), 0) => json!({"approved": false, "reason": "no"}),
            (Some("approval"), 1) if pauses => json!({"approved": true, "args": {"pause_ms": 77}}),
            (Some("approval"), _) => json!({"approved": true}),
            (_, 0) => json!({"error": "nobody knows"}),
            (_, number) => json!({"result": {"number": number}}),
        };
        if self.random.below(2) == 0 {
            body["suspension"] = entry["suspension"].clone();
        }
        if entry["kind"] == "approval" && entry["tool"] != "plan_mode" && body["args"].is_null() {
            self.remember(&mut body);
        }
        body
    }

    /// Occasionally lets an approval or a denial answer equal calls of later turns, too.
    fn remember(&mut self, body: &mut Value) {
        let scope = match self.random.below(10) {
            0 => "conversation",
            // An agent that remembers a denial remembers no approval of the same call.
            1 if body["approved"] == true => "agent",
            _ => return,
        };
        body["remember"] = json!({"scope": scope, "match": "exact", "for": "1h"});
    }

    /// Occasionally cancels the turn or dispatches a tool.
    async fn interfere(&mut self, id: &str, shape: &Shape) {
        let key = self.key(id);
        let key = (self.random.below(2) == 0).then_some(key);
        match (self.random.below(40), shape.dispatch) {
            (0, _) => {
                let path = format!("/v1/conversations/{id}/cancel");
                self.insist(&path, key.as_deref(), None).await;
            }
            (1 | 2, Some(tool)) => {
                let path = format!("/v1/conversations/{id}/dispatch");
                let pause = self.random.below(800);
                let body = json!({"tool": tool, "input": {"pause_ms": pause}, "approved": true});
                self.insist(&path, key.as_deref(), Some(&body)).await;
            }
            _ => {}
        }
    }
}
