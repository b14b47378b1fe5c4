//! Measures the bare commit rate of a store, which nothing built on the store can exceed.

use std::sync::Arc;

use abide_actors::journal::{Claim, Commit, ConversationSummary, Holder, StoreError};
use abide_conversation::event::{EventData, RepairRequested};
use abide_conversation::state::ConversationStatus;
use abide_conversation::{AgentName, ConversationId, Event, Scoped, Seq, Tenant, Timestamp};
use serde_json::Map;
use tokio::task::JoinSet;

use super::Store;

/// Conversations that do nothing but append, one for each commit in flight.
///
/// The caller measures how long [`CommitBenchmark::run`] takes.
pub struct CommitBenchmark {
    store: Arc<dyn Store>,
    appenders: Vec<Appender>,
}

#[derive(Clone)]
struct Appender {
    id: Scoped<ConversationId>,
    held: Claim,
    last_seq: Seq,
}

impl CommitBenchmark {
    /// Claims a conversation, `floor:0` and on, for each commit in flight.
    pub async fn new(
        store: Arc<dyn Store>,
        me: &Holder,
        in_flight: usize,
    ) -> Result<Self, StoreError> {
        let mut appenders = Vec::with_capacity(in_flight);
        for number in 0..in_flight {
            let id = ConversationId::new(format!("floor:{number}"));
            let id = Scoped::new(&Tenant::default(), &id);
            let held = store.claim(&id, me, None).await?;
            let last_seq = store.summary(&id).await?.map_or(Seq::ZERO, |summary| summary.last_seq);
            appenders.push(Appender { id, held, last_seq });
        }
        Ok(Self { store, appenders })
    }

    /// Appends `commits` commits of one event of `bytes` text, shared evenly by the conversations.
    pub async fn run(&mut self, commits: usize, bytes: usize) -> Result<(), StoreError> {
        let count = self.appenders.len().max(1);
        let mut running = JoinSet::new();
        for (number, appender) in self.appenders.drain(..).enumerate() {
            let share = commits / count + usize::from(number < commits % count);
            running.spawn(appender.append(Arc::clone(&self.store), share, bytes));
        }
        while let Some(joined) = running.join_next().await {
            let appender = joined.map_err(|error| StoreError::Unavailable(error.to_string()))?;
            self.appenders.push(appender?);
        }
        Ok(())
    }

    /// Deletes the conversations.
    pub async fn end(self) -> Result<(), StoreError> {
        for appender in self.appenders {
            self.store.delete(&appender.id, &appender.held, None, Vec::new()).await?;
        }
        Ok(())
    }
}

impl Appender {
    async fn append(
        mut self,
        store: Arc<dyn Store>,
        commits: usize,
        bytes: usize,
    ) -> Result<Self, StoreError> {
        for _ in 0..commits {
            self.last_seq = self.last_seq.next();
            store.append(&self.id, &self.held, commit(self.last_seq, bytes)).await?;
        }
        Ok(self)
    }
}

fn commit(seq: Seq, bytes: usize) -> Commit {
    let data = EventData::RepairRequested(RepairRequested { reason: "x".repeat(bytes) });
    let at = Timestamp::UNIX_EPOCH;
    let summary = ConversationSummary {
        agent: AgentName::new("floor"),
        status: ConversationStatus::Idle,
        last_seq: seq,
        created_at: at,
        metadata: Map::new(),
        participants: Default::default(),
        alarm: None,
        active: false,
        listing: Default::default(),
    };
    let events = Arc::from([Event { seq, at, turn_id: None, data }]);
    Commit::new(events, summary)
}
