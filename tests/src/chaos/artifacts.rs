//! What a run stores beside conversations: blobs and agents, which read as they were acknowledged.

use std::collections::BTreeMap;
use std::sync::Mutex;

use reqwest::Method;
use serde_json::{Value, json};

use super::worker::Worker;
use crate::client::{Answer, Client};
use crate::deadline::try_poll;

/// The acknowledged artifacts, and the promises about them that were broken.
#[derive(Default)]
pub(super) struct Artifacts {
    /// The text of each blob.
    blobs: Mutex<BTreeMap<String, String>>,
    agents: Mutex<BTreeMap<String, Versions>>,
    violations: Mutex<Vec<String>>,
}

/// The versions of one worker's own agent.
#[derive(Clone, Copy, Default)]
struct Versions {
    acknowledged: u64,
    /// At least the acknowledged one: a request without an answer may have taken effect.
    sent: u64,
}

impl Artifacts {
    fn report(&self, violation: String) {
        self.violations.lock().unwrap().push(violation);
    }

    /// The promises that were broken during the run, and those that a node breaks now.
    pub(super) async fn violations<'a>(
        &self,
        clients: impl Iterator<Item = &'a Client>,
    ) -> Vec<String> {
        let clients: Vec<&Client> = clients.collect();
        let blobs = self.blobs.lock().unwrap().clone();
        for (id, text) in blobs {
            for client in &clients {
                let answer = read(client, &format!("/v1/blobs/{id}")).await;
                self.check_blob(&id, &text, answer);
            }
        }
        let agents = self.agents.lock().unwrap().clone();
        for (name, versions) in agents {
            for client in &clients {
                let answer = read(client, &format!("/v1/agents/{name}")).await;
                self.check_agent(&name, versions, answer);
            }
        }
        self.violations.lock().unwrap().clone()
    }

    fn check_blob(&self, id: &str, text: &str, answer: Option<Answer>) {
        if answer.as_ref().is_none_or(|answer| answer.status != 200 || answer.body != text) {
            self.report(format!("blob {id} is {answer:?}, not {text:?}"));
        }
    }

    fn check_agent(&self, name: &str, versions: Versions, answer: Option<Answer>) {
        let Versions { acknowledged, sent } = versions;
        let version = answer.as_ref().and_then(|answer| version_of(&answer.body));
        let is_known = |version| (acknowledged..=sent).contains(&version);
        if acknowledged > 0 && !version.is_some_and(is_known) {
            self.report(format!(
                "agent {name} is {answer:?}; version {acknowledged} was acknowledged, {sent} was sent"
            ));
        }
    }
}

/// The answer to a GET; `None` when none comes until the deadline that is about the artifact.
async fn read(client: &Client, path: &str) -> Option<Answer> {
    let client = client.clone().without_history();
    try_poll(async || {
        let answer = client.ask(Method::GET, path, None, None).await?;
        (![429, 503].contains(&answer.status)).then_some(answer)
    })
    .await
}

fn definition(version: u64) -> Value {
    let script = json!([{"text": "Done."}]);
    json!({"model": {"provider": "scripted", "script": script},
        "system_prompt": format!("version {version}")})
}

fn version_of(definition: &Value) -> Option<u64> {
    definition["system_prompt"].as_str()?.strip_prefix("version ")?.parse().ok()
}

impl Worker {
    /// Occasionally stores a blob or a new version of the worker's own agent, and reads it through
    /// another node.
    pub(super) async fn store_artifacts(&mut self) {
        match self.random.below(6) {
            0 => self.store_blob().await,
            1 => self.define_own_agent().await,
            _ => {}
        }
    }

    async fn store_blob(&mut self) {
        let text = format!("blob {}", self.key("blob"));
        let stored = loop {
            let answer = self.node().clone().store_blob(&text).await;
            match answer.filter(|answer| ![429, 503].contains(&answer.status)) {
                Some(answer) => break answer,
                None if self.context.gives_up() => return,
                None => self.pause_before_retry().await,
            }
        };
        let context = self.context.clone();
        let id = stored.body["id"].as_str().unwrap_or_default().to_owned();
        if ![200, 201].contains(&stored.status) || id.is_empty() {
            return context.artifacts.report(format!("a blob was answered with {stored:?}"));
        }
        context.artifacts.blobs.lock().unwrap().insert(id.clone(), text.clone());
        let client = self.node().clone().without_history();
        let read = client.ask(Method::GET, &format!("/v1/blobs/{id}"), None, None).await;
        if read.as_ref().is_some_and(|answer| ![429, 503].contains(&answer.status)) {
            context.artifacts.check_blob(&id, &text, read);
        }
    }

    async fn define_own_agent(&mut self) {
        let name = format!("own-{}", self.number);
        let context = self.context.clone();
        let version = {
            let mut agents = context.artifacts.agents.lock().unwrap();
            let versions = agents.entry(name.clone()).or_default();
            versions.sent += 1;
            versions.sent
        };
        let (path, body) = (format!("/v1/agents/{name}"), definition(version));
        // Under a key: a request that a stopped node carries out late is then a repeat, and does not
        // replace a later version.
        let key = format!("{name}/{version}");
        let Some(answer) = self.repeat(Method::PUT, &path, Some(&key), Some(&body)).await else {
            return;
        };
        if ![200, 201].contains(&answer.status) {
            return context.artifacts.report(format!("{path} was answered with {answer:?}"));
        }
        let versions = Versions { acknowledged: version, sent: version };
        context.artifacts.agents.lock().unwrap().insert(name.clone(), versions);
        let client = self.node().clone().without_history();
        let read = client.ask(Method::GET, &path, None, None).await;
        if read.as_ref().is_some_and(|answer| ![429, 503].contains(&answer.status)) {
            context.artifacts.check_agent(&name, versions, read);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_or_changed_artifact_is_seen() {
        let artifacts = Artifacts::default();
        let answer = |status, body| Some(Answer { status, body });
        let versions = Versions { acknowledged: 2, sent: 3 };
        artifacts.check_blob("b", "text", answer(200, json!("text")));
        for version in [2, 3] {
            artifacts.check_agent("a", versions, answer(200, definition(version)));
        }
        assert_eq!(*artifacts.violations.lock().unwrap(), [""; 0]);
        artifacts.check_blob("b", "text", answer(200, json!("other")));
        artifacts.check_blob("b", "text", answer(404, Value::Null));
        artifacts.check_blob("b", "text", None);
        artifacts.check_agent("a", versions, answer(200, definition(1)));
        artifacts.check_agent("a", versions, answer(404, Value::Null));
        assert_eq!(artifacts.violations.lock().unwrap().len(), 5);
    }
}
