//! The promises of the contract, held against what clients, readers and tools saw.

pub mod acknowledged;
pub mod alarms;
pub mod journals;
#[cfg(test)]
mod made_up;
pub mod streams;
pub mod tools;

use std::collections::BTreeMap;

use reqwest::Method;

use crate::client::Client;
use crate::frames::{Frame, ids};
use crate::history::{Exchange, History};
use crate::journal::Journal;
use crate::patience::try_look;
use crate::seen::Request;
use crate::tool_server::ToolServer;

/// All that is known after a test.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    pub exchanges: Vec<Exchange>,
    /// Of every conversation that is there.
    pub journals: BTreeMap<String, Journal>,
    /// What each reader heard, from the first event on; and of which conversation.
    pub heard: Vec<(String, Vec<Frame>)>,
    /// The requests to the tools, in the order of their arrival.
    pub runs: Vec<Request>,
}

impl Evidence {
    /// Waits until every conversation of the history is at rest and every reader has heard its
    /// end, or until the deadline: what is missing then is for the promises to tell.
    pub async fn gather(client: &Client, history: &History, tools: &[&ToolServer]) -> Self {
        let client = client.clone().unrecorded();
        let mut evidence = Self { exchanges: history.exchanges(), ..Self::default() };
        for id in history.conversations() {
            let wanted = evidence.must_be_there(&id);
            let mut last = None;
            try_look(async || {
                last = client.try_journal(&id).await;
                let rests = last.as_ref().map_or(!wanted, |journal| journal.open().is_empty());
                rests.then_some(())
            })
            .await;
            evidence.journals.extend(last.map(|journal| (id, journal)));
        }
        for reader in history.readers() {
            let mirrored = evidence.journals.get(&reader.conversation).map(Journal::mirrored);
            let end = mirrored.and_then(|mirrored| mirrored.last().copied());
            try_look(async || (ids(&reader.frames()).last().copied() >= end).then_some(())).await;
            evidence.heard.push((reader.conversation.clone(), reader.frames()));
        }
        evidence.runs = tools.iter().flat_map(|tools| tools.seen.all()).collect();
        evidence
    }

    /// Everything that was promised and not kept.
    pub fn violations(&self) -> Vec<String> {
        let checks =
            [journals::check, acknowledged::check, streams::check, tools::check, alarms::check];
        checks.iter().flat_map(|check| check(self)).collect()
    }

    /// Fails unless every promise was kept.
    pub fn assert_kept(&self) {
        let wrong = self.violations();
        assert!(wrong.is_empty(), "{wrong:#?}");
    }

    /// Whether somebody was told that this conversation is there, and nobody deleted it.
    fn must_be_there(&self, id: &str) -> bool {
        let about = |exchange: &&Exchange| exchange.conversation() == Some(id);
        let mut about = self.exchanges.iter().filter(about);
        // A deletion without an answer may have been one.
        let deleted = about.clone().any(|exchange| exchange.method == Method::DELETE);
        !deleted && about.any(|exchange| exchange.acknowledged().is_some())
    }
}
