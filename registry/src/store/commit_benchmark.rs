//! The bare commit rate of a store: what nothing built on it can exceed.

use std::sync::Arc;

use abide_actors::journal::{Claim, Commit, ConversationSummary, Holder, StoreError};
use abide_conversation::event::{EventData, RepairRequested};
use abide_conversation::state::ConversationStatus;
use abide_conversation::{AgentName, ConversationId, Event, Timestamp};
use serde_json::Map;
use tokio::task::JoinSet;

use super::Store;

/// Conversations that do nothing but append, one for each commit in flight.
///
/// Whoever calls [`CommitBenchmark::run`] measures how long it takes.
pub struct CommitBenchmark {
    store: Arc<dyn Store>,
    lanes: Vec<Lane>,
}

#[derive(Clone)]
struct Lane {
    id: ConversationId,
    held: Claim,
    last_seq: u64,
}

impl CommitBenchmark {
    /// Claims a conversation, `floor:0` and on, for each commit in flight.
    pub async fn new(
        store: Arc<dyn Store>,
        me: &Holder,
        in_flight: usize,
    ) -> Result<Self, StoreError> {
        let mut lanes = Vec::with_capacity(in_flight);
        for lane in 0..in_flight {
            let id = ConversationId::new(format!("floor:{lane}"));
            let held = store.claim(&id, me, None).await?;
            let last_seq = store.head(&id).await?.map_or(0, |head| head.last_seq);
            lanes.push(Lane { id, held, last_seq });
        }
        Ok(Self { store, lanes })
    }

    /// Appends `commits` commits of one event of `bytes` text, shared evenly by the conversations.
    pub async fn run(&mut self, commits: usize, bytes: usize) -> Result<(), StoreError> {
        let lanes = self.lanes.len().max(1);
        let mut running = JoinSet::new();
        for (turn, lane) in self.lanes.drain(..).enumerate() {
            let share = commits / lanes + usize::from(turn < commits % lanes);
            running.spawn(lane.append(Arc::clone(&self.store), share, bytes));
        }
        while let Some(lane) = running.join_next().await {
            let lane = lane.map_err(|error| StoreError::Unavailable(error.to_string()))?;
            self.lanes.push(lane?);
        }
        Ok(())
    }

    /// Deletes the conversations.
    pub async fn end(self) -> Result<(), StoreError> {
        for lane in self.lanes {
            self.store.delete(&lane.id, &lane.held, None).await?;
        }
        Ok(())
    }
}

impl Lane {
    async fn append(
        mut self,
        store: Arc<dyn Store>,
        commits: usize,
        bytes: usize,
    ) -> Result<Self, StoreError> {
        for _ in 0..commits {
            self.last_seq += 1;
            store.append(&self.id, &self.held, commit(self.last_seq, bytes)).await?;
        }
        Ok(self)
    }
}

fn commit(seq: u64, bytes: usize) -> Commit {
    let data = EventData::RepairRequested(RepairRequested { reason: "x".repeat(bytes) });
    let at = Timestamp::UNIX_EPOCH;
    let head = ConversationSummary {
        agent: AgentName::new("floor"),
        state: ConversationStatus::Idle,
        last_seq: seq,
        created_at: at,
        metadata: Map::new(),
        alarm: None,
        active: false,
    };
    let events = Arc::from([Event { seq, at, turn_id: None, data }]);
    let (opened, closed, answers) = (Vec::new(), Vec::new(), Vec::new());
    Commit { events, head, opened, closed, state: None, answers }
}
