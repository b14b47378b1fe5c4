//! The promises of the contract, held against what clients, readers and tools saw.

pub mod acknowledged;
pub mod alarms;
pub mod answers;
#[cfg(test)]
mod fixtures;
pub mod journals;
pub mod questions;
pub mod streams;
pub mod sub_agents;
pub mod tools;

use std::collections::{BTreeMap, BTreeSet};

use futures::StreamExt;
use jiff::Timestamp;
use reqwest::Method;
use tokio::time::{Instant, timeout_at};

use crate::client::Client;
use crate::deadline::{DEADLINE, POLL_INTERVAL, try_poll};
use crate::frames::{Frame, ids};
use crate::history::{Exchange, History};
use crate::journal::Journal;
use crate::request_log::Request;
use crate::tool_server::ToolServer;

/// Journals that are read at once: enough to be soon done, and no load on nodes that are watched.
const MAX_CONCURRENT_READS: usize = 8;

/// All that is known after a test.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    pub exchanges: Vec<Exchange>,
    /// Of every conversation that is there.
    pub journals: BTreeMap<String, Journal>,
    /// What each reader heard, from the first event on; and of which conversation.
    pub streams: Vec<(String, Vec<Frame>)>,
    /// The requests to the tools, in the order of their arrival.
    pub runs: Vec<Request>,
}

impl Evidence {
    /// Waits until every conversation is at rest and every reader has heard its end, or until the
    /// deadline: what is missing then is for the promises to tell.
    pub async fn gather(client: &Client, history: &History, tools: &[&ToolServer]) -> Self {
        let client = client.clone().without_history();
        let mut evidence = Self { exchanges: history.exchanges(), ..Self::default() };
        let mut all = history.conversations();
        all.extend(try_poll(async || listed(&client).await).await.unwrap_or_default());
        let deadline = Instant::now() + DEADLINE;
        let journals = futures::stream::iter(all).map(|id| {
            let (client, wanted) = (&client, evidence.must_be_there(&id));
            async move { (at_rest(client, &id, wanted, deadline).await, id) }
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
        evidence
    }

    /// Everything that was promised and not kept.
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
        ];
        checks.iter().flat_map(|check| check(self)).collect()
    }

    /// Fails unless every promise was kept.
    pub fn assert_no_violations(&self) {
        let violations = self.violations();
        assert!(violations.is_empty(), "{violations:#?}");
    }

    /// Whether somebody was told that this conversation is there, and nobody deleted it.
    fn must_be_there(&self, id: &str) -> bool {
        let mut about = self.about(id);
        let told = about.any(|exchange| exchange.acknowledged().is_some());
        told && !self.was_deleted(id)
    }

    /// Whether somebody was told by then that it is there, and nobody asked for its deletion.
    fn was_there(&self, id: &str, by: Timestamp) -> bool {
        let told =
            |exchange: &Exchange| exchange.acknowledged().is_some() && exchange.ended_at < by;
        self.about(id).any(told) && !self.was_deleted(id)
    }

    /// Whether somebody asked for its deletion; one without an answer may have been one.
    fn was_deleted(&self, id: &str) -> bool {
        self.about(id).any(|exchange| exchange.method == Method::DELETE)
    }

    /// Whether it may have been there and be gone: it was deleted, or is the child of one that was,
    /// of which no client knows.
    fn may_be_gone(&self, id: &str) -> bool {
        let deletions = self.exchanges.iter().any(|exchange| exchange.method == Method::DELETE);
        let unknown = self.about(id).next().is_none();
        !self.journals.contains_key(id) && (self.was_deleted(id) || deletions && unknown)
    }

    fn about(&self, id: &str) -> impl Iterator<Item = &Exchange> {
        self.exchanges.iter().filter(move |exchange| exchange.conversation() == Some(id))
    }
}

/// Every conversation of the store; `None` when that cannot be said now.
async fn listed(client: &Client) -> Option<BTreeSet<String>> {
    let (mut all, mut after) = (BTreeSet::new(), String::new());
    loop {
        let path = format!("/v1/conversations?limit=1000{after}");
        let page = client.ask(Method::GET, &path, None, None).await?;
        let rows = page.body["conversations"].as_array()?;
        all.extend(rows.iter().filter_map(|row| Some(row["id"].as_str()?.to_owned())));
        match page.body["cursor"].as_str() {
            Some(cursor) => after = format!("&cursor={cursor}"),
            None => return Some(all),
        }
    }
}

/// The journal once nothing is open in it, or as it was last at the deadline. One that need not be
/// there is not waited for.
async fn at_rest(client: &Client, id: &str, wanted: bool, deadline: Instant) -> Option<Journal> {
    let mut last = client.try_journal(id).await;
    let rests = |last: &Option<Journal>| last.as_ref().map_or(!wanted, |it| it.open().is_empty());
    let looking = async {
        while !rests(&last) {
            tokio::time::sleep(POLL_INTERVAL).await;
            last = client.try_journal(id).await.or(last.take());
        }
    };
    // What is open then is seen in the journal.
    let _ = timeout_at(deadline, looking).await;
    last
}
