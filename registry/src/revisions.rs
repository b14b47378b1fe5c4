//! Removes revisions of agents that nobody needs.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::Arc;

use abide_actors::journal::ConversationSummary;
use abide_conversation::state::ConversationStatus;
use abide_conversation::{AgentName, ConversationId, Revision, Scoped, State, Timestamp, replay};
use futures::TryStreamExt;

use crate::store::{HistoryEntry, ListError, Store, SummaryFilter, pages};

/// How many revisions of an agent stay, those that were put last, even if nothing runs on them.
const SPARED_REVISIONS: usize = 50;
/// How long a revision stays after it was replaced: a turn that began with it then is in the store by
/// now.
const GRACE: jiff::SignedDuration = jiff::SignedDuration::from_mins(10);
/// How many conversations are read at a time.
const PAGE_ROWS: usize = 500;

/// Removes the revisions of an agent that are not among the [`SPARED_REVISIONS`] and that no turn
/// and no call runs on.
pub(crate) async fn prune(
    store: Arc<dyn Store>,
    name: Scoped<AgentName>,
    now: Timestamp,
) -> Result<(), ListError> {
    let mut old = old_revisions(&store.history(&name).await?, now);
    if old.is_empty() {
        return Ok(());
    }
    let filter = SummaryFilter { agent: Some(name.local()), ..SummaryFilter::default() };
    let (store, tenant) = (&*store, &name.tenant());
    let filter = &filter;
    let pages = pages(|cursor| async move {
        store.conversations(tenant, filter, cursor.as_deref(), PAGE_ROWS).await
    });
    let mut pages = pin!(pages);
    while !old.is_empty()
        && let Some(page) = pages.try_next().await?
    {
        for (id, _) in page.iter().filter(|(_, summary)| is_at_work(summary)) {
            for revision in revisions_in_use(store, id).await? {
                old.remove(&revision);
            }
        }
    }
    if !old.is_empty() {
        let old: Vec<Revision> = old.into_iter().collect();
        store.drop_revisions(&name, &old, SPARED_REVISIONS).await?;
        tracing::info!(agent = %name, count = old.len(), "old revisions removed");
    }
    Ok(())
}

/// The revisions that go unless something runs on them.
fn old_revisions(history: &[HistoryEntry], now: Timestamp) -> BTreeSet<Revision> {
    // Each was replaced when the one before it in the history was put, or later.
    let pairs = history.iter().zip(history.iter().skip(1)).skip(SPARED_REVISIONS - 1);
    let old = pairs.filter(|(newer, _)| {
        newer.put_at.is_none_or(|replaced_at| now.duration_since(replaced_at) >= GRACE)
    });
    old.map(|(_, old)| old.revision.clone()).collect()
}

/// Whether anything may run in the conversation. A call that a client dispatched may wait in one that
/// is idle: for its next attempt, or for a child.
fn is_at_work(summary: &ConversationSummary) -> bool {
    summary.status != ConversationStatus::Idle || summary.active || summary.alarm.is_some()
}

async fn revisions_in_use(
    store: &dyn Store,
    id: &Scoped<ConversationId>,
) -> Result<Vec<Revision>, ListError> {
    let Some(stored) = store.load(id).await? else { return Ok(Vec::new()) };
    let State { turn, dispatches, .. } = replay(stored.state, &stored.events);
    let turn = turn.map(|turn| turn.revision);
    Ok(dispatches.into_values().map(|run| run.revision).chain(turn).collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use abide_actors::journal::Journal;
    use abide_conversation::event::EventData;
    use abide_conversation::{Event, Seq, Tenant, TurnId};
    use serde_json::json;

    use super::*;
    use crate::store::conformance::{claim_conversation, commit, id};
    use crate::store::memory::Memory;
    use crate::store::{History, StoredAgent};

    fn at(minutes: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + 60 * minutes).unwrap()
    }

    fn name() -> Scoped<AgentName> {
        Scoped::new(&Tenant::default(), &AgentName::new("demo"))
    }

    /// An agent with this many revisions, one for each minute.
    async fn store(revisions: usize) -> Arc<Memory> {
        let store = Arc::new(Memory::default());
        for number in 0..revisions {
            let agent = StoredAgent {
                name: name().local(),
                revision: Revision::new(format!("r{number}")),
                definition: json!({}),
                put_at: Some(at(i64::try_from(number).unwrap())),
            };
            store.put_agent(&Tenant::default(), agent, None).await.unwrap();
        }
        store
    }

    async fn left(store: &Arc<Memory>, now: Timestamp) -> Vec<String> {
        prune(store.clone(), name(), now).await.unwrap();
        let history = store.history(&name()).await.unwrap();
        history.into_iter().map(|entry| entry.revision.to_string()).collect()
    }

    #[tokio::test]
    async fn the_revisions_that_were_put_last_stay() {
        let store = store(53).await;
        let left = left(&store, at(100)).await;
        assert_eq!(left.len(), SPARED_REVISIONS);
        assert_eq!((left[0].as_str(), left[49].as_str()), ("r52", "r3"));
    }

    #[tokio::test]
    async fn a_revision_that_was_just_replaced_stays() {
        let store = store(53).await;
        // The first one was replaced ten minutes ago, the second one nine.
        assert_eq!(left(&store, at(11)).await.last().unwrap(), "r1");
        assert_eq!(left(&store, at(10)).await.len(), 52);
    }
    #[tokio::test]
    async fn a_revision_that_a_turn_runs_on_stays() {
        let store = store(53).await;
        let held = claim_conversation(&*store, "c").await;
        let mut first = commit(1, 1);
        let message = json!({"principal": "ada",
            "message": {"id": "m", "role": "user", "content": []}});
        let started = json!({"agent": "demo", "revision": "r1", "max_steps": 3});
        let turn = [
            EventData::UserMsg(serde_json::from_value(message).unwrap()),
            EventData::TurnStarted(serde_json::from_value(started).unwrap()),
        ];
        let turn = turn.into_iter().zip(2..).map(|(data, seq)| Event {
            seq: Seq::new(seq),
            at: at(0),
            turn_id: Some(TurnId::new("turn_1")),
            data,
        });
        first.events = first.events.iter().cloned().chain(turn).collect();
        first.summary.last_seq = Seq::new(3);
        first.summary.status = ConversationStatus::ExecutingTools;
        store.append(&id("c"), &held, first).await.unwrap();
        let left = left(&store, at(100)).await;
        assert_eq!(left.len(), SPARED_REVISIONS + 1);
        assert_eq!(left.last().unwrap(), "r1");
    }
}
