//! Checks of the API's promises, against the records of clients, stream readers and tools.

pub mod acknowledged;
pub mod alarms;
pub mod answers;
pub mod decisions;
pub mod deletions;
#[cfg(test)]
mod fixtures;
pub mod journals;
pub mod notices;
pub mod outside;
pub mod questions;
pub mod reads;
pub mod streams;
pub mod sub_agents;
pub mod tools;

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use jiff::Timestamp;
use reqwest::Method;
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use crate::client::Client;
use crate::deadline::{DEADLINE, POLL_INTERVAL, try_poll};
use crate::frames::{Frame, ids};
use crate::history::{Exchange, History, JournalRead};
use crate::journal::Journal;
use crate::request_log::Request;
use crate::tool_server::ToolServer;

/// How many journals are read concurrently: fast enough, and no load on nodes that a test measures.
const MAX_CONCURRENT_READS: usize = 8;

/// Everything that a test has recorded.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    pub exchanges: Vec<Exchange>,
    /// The journal of every conversation that exists.
    pub journals: BTreeMap<String, Journal>,
    /// The conversation and the frames of each stream reader, from the first event on.
    pub streams: Vec<(String, Vec<Frame>)>,
    /// The types of events for which some build of the cluster has no frame.
    pub types_without_frame: Vec<String>,
    /// The requests to the tools, in the order in which they arrived.
    pub runs: Vec<Request>,
    /// When a node that had been stopped by SIGSTOP was resumed.
    pub resumptions: Vec<Timestamp>,
    /// What reads during the test showed of the journals.
    pub reads: Vec<JournalRead>,
    /// The remembered decisions at the end, by the path of their listing.
    pub decisions: BTreeMap<String, Vec<Value>>,
    /// What a webhook for all conversations and types of notices was told, in the order in which it
    /// arrived; `None` without one.
    pub notices: Option<Vec<Request>>,
    /// What workers, tools that call back and a schedule were promised; `None` without them.
    pub outside: Option<outside::Outside>,
}

impl Evidence {
    /// Waits until every conversation is at rest and every reader has received its end, or until
    /// the deadline: the checks then report what is missing.
    pub async fn gather(client: &Client, history: &History, tools: &[&ToolServer]) -> Self {
        let client = client.clone().without_history();
        let mut evidence = Self {
            exchanges: history.exchanges(),
            reads: history.reads(),
            resumptions: history.resumptions(),
            ..Self::default()
        };
        let mut all = history.conversations();
        all.extend(try_poll(async || list_conversations(&client).await).await.unwrap_or_default());
        let deadline = Instant::now() + DEADLINE;
        let journals = futures::stream::iter(all).map(|id| {
            let client = &client;
            let is_required = evidence.must_exist(&id);
            async move { (journal_at_rest(client, &id, is_required, deadline).await, id) }
        });
        let journals: Vec<_> = journals.buffer_unordered(MAX_CONCURRENT_READS).collect().await;
        let journals = journals.into_iter().filter_map(|(journal, id)| Some((id, journal?)));
        evidence.journals = journals.collect();
        for reader in history.readers() {
            let mirrored = evidence.journals.get(&reader.conversation).map(Journal::mirrored);
            let end = mirrored.and_then(|mirrored| mirrored.last().copied());
            try_poll(async || (ids(&reader.frames()).last().copied() >= end).then_some(())).await;
            evidence.streams.push((reader.conversation.clone(), reader.frames()));
        }
        evidence.runs = tools.iter().flat_map(|tools| tools.requests.all()).collect();
        evidence.gather_decisions(&client).await;
        evidence
    }

    /// Reads the decisions that must be remembered, until all are there or the deadline: an agent gets
    /// them after the acknowledgement.
    async fn gather_decisions(&mut self, client: &Client) {
        let listings = decisions::listings(self);
        try_poll(async || {
            for path in &listings {
                let answer = client.ask(Method::GET, path, None, None).await?;
                let found = answer.body["decisions"].as_array()?.clone();
                self.decisions.insert(path.clone(), found);
            }
            decisions::check(self).is_empty().then_some(())
        })
        .await;
    }

    /// The broken promises, one line each.
    pub fn violations(&self) -> Vec<String> {
        let checks = [
            journals::check,
            acknowledged::check,
            answers::check,
            questions::check,
            sub_agents::check,
            streams::check,
            tools::check,
            alarms::check,
            reads::check,
            deletions::check,
            decisions::check,
            notices::check,
            outside::check,
        ];
        checks.iter().flat_map(|check| check(self)).collect()
    }

    /// Fails unless every promise was kept.
    pub fn assert_no_violations(&self) {
        let violations = self.violations();
        assert!(violations.is_empty(), "{violations:#?}");
    }

    /// Whether a request for this conversation was acknowledged, and no client sent a deletion.
    fn must_exist(&self, id: &str) -> bool {
        let is_acknowledged = self.about(id).any(|exchange| exchange.acknowledged().is_some());
        is_acknowledged && !self.was_deleted(id)
    }

    /// Whether a request for the conversation was acknowledged before `by`, and no client sent a
    /// deletion.
    fn existed(&self, id: &str, by: Timestamp) -> bool {
        let is_earlier =
            |exchange: &Exchange| exchange.acknowledged().is_some() && exchange.ended_at < by;
        self.about(id).any(is_earlier) && !self.was_deleted(id)
    }

    /// Whether a client sent a deletion; without an answer it may have taken effect.
    fn was_deleted(&self, id: &str) -> bool {
        self.about(id).any(|exchange| exchange.method == Method::DELETE)
    }

    /// Whether the conversation may rightly be missing: it was deleted, or it may be a child,
    /// unknown to all clients, of one that was deleted.
    fn may_be_missing(&self, id: &str) -> bool {
        let deletions = self.exchanges.iter().any(|exchange| exchange.method == Method::DELETE);
        let unknown = self.about(id).next().is_none();
        !self.journals.contains_key(id) && (self.was_deleted(id) || deletions && unknown)
    }

    fn about(&self, id: &str) -> impl Iterator<Item = &Exchange> {
        self.exchanges.iter().filter(move |exchange| exchange.conversation() == Some(id))
    }
}

/// All conversations of the store; `None` when they cannot be listed now.
async fn list_conversations(client: &Client) -> Option<BTreeSet<String>> {
    let (mut all, mut after) = (BTreeSet::new(), String::new());
    loop {
        let path = format!("/v1/conversations?root_only=false&limit=1000{after}");
        let page = client.ask(Method::GET, &path, None, None).await?;
        let rows = page.body["conversations"].as_array()?;
        all.extend(rows.iter().filter_map(|row| Some(row["id"].as_str()?.to_owned())));
        match page.body["cursor"].as_str() {
            Some(cursor) => after = format!("&cursor={cursor}"),
            None => return Some(all),
        }
    }
}

/// The journal once nothing is open in it, or its last state at the deadline. A journal that need
/// not exist is not waited for.
async fn journal_at_rest(
    client: &Client,
    id: &str,
    is_required: bool,
    deadline: Instant,
) -> Option<Journal> {
    let mut last = client.try_journal(id).await;
    let is_at_rest =
        |last: &Option<Journal>| last.as_ref().map_or(!is_required, |it| it.open().is_empty());
    let polling = async {
        while !is_at_rest(&last) {
            tokio::time::sleep(POLL_INTERVAL).await;
            last = client.try_journal(id).await.or(last.take());
        }
    };
    // The checks see in the journal what is still open.
    let _ = timeout_at(deadline, polling).await;
    last
}
