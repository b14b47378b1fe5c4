//! Which revisions of an agent a node brought with it: these are the operator's.

use abide_actors::journal::{ResponseScope, StoreError, StoredResponse};
use abide_conversation::{AgentName, Revision, Scoped, Timestamp};
use serde_json::{Value, json};

use crate::store::Store;

/// The idempotency key under which the store has this. No client's key has this form.
const SEEDED_KEY: &str = "brought";
/// The revisions that are remembered: conversations may wait with each of them.
const MAX_REVISIONS: usize = 1_000;

/// The revisions of an agent that starts seeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeedRecord {
    /// The one that a start seeded last.
    pub newest: String,
    /// Those before it, oldest first.
    earlier: Vec<String>,
}

impl SeedRecord {
    /// What the store has of this agent of the default tenant; `None` if no start seeded it.
    pub async fn read(
        store: &dyn Store,
        agent: &Scoped<AgentName>,
        now: Timestamp,
    ) -> Result<Option<Self>, StoreError> {
        let scope = ResponseScope::Agent(agent.clone());
        let stored = store.stored_response(&scope, SEEDED_KEY, now).await?;
        Ok(stored.map(|stored| {
            // Earlier versions stored no list.
            let earlier = stored.body["revisions"].as_array().into_iter().flatten();
            let earlier = earlier.filter_map(Value::as_str).map(str::to_owned).collect();
            Self { newest: stored.fingerprint, earlier }
        }))
    }

    /// Whether a start seeded this revision.
    pub fn includes(&self, revision: &Revision) -> bool {
        self.newest == revision.as_str() || self.earlier.iter().any(|it| it == revision.as_str())
    }

    /// What is stored when a start seeds this revision after the others.
    pub fn followed_by(seeded: Option<&Self>, revision: &Revision) -> StoredResponse {
        let known = seeded.into_iter().flat_map(|it| it.earlier.iter().chain([&it.newest]));
        let known: Vec<&String> = known.filter(|it| *it != revision.as_str()).collect();
        let surplus = known.len().saturating_sub(MAX_REVISIONS);
        StoredResponse {
            key: SEEDED_KEY.to_owned(),
            fingerprint: revision.to_string(),
            body: json!({"revisions": known.get(surplus..).unwrap_or_default()}),
            expires_at: Timestamp::MAX,
        }
    }
}
