//! Notes agents whose definitions index keys that their conversations are not indexed by yet.

use abide_actors::definition::Definition;
use abide_actors::journal::StoreError;
use abide_conversation::{AgentName, Scoped, Timestamp};

use crate::store::{Direction, ListError, ListQuery, Store, StoredAgent};

/// How often the list of noted agents, which others change, too, is read anew.
const MAX_ATTEMPTS: usize = 5;

/// What a definition means for the index of the conversations that its agent has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexChange {
    /// No conversation is known to lack a key.
    None,
    /// The conversations will be indexed by the added keys; until then lists by them lack some.
    Begins,
    /// Too many other agents of the tenant are being indexed.
    TooMany,
}

/// Has the conversations of an agent indexed anew if this definition, which is about to follow `newest`,
/// indexes keys that that one does not.
pub async fn ask(
    store: &dyn Store,
    name: &Scoped<AgentName>,
    newest: Option<&StoredAgent>,
    definition: &Definition,
    now: Timestamp,
) -> Result<IndexChange, StoreError> {
    if definition.index.is_empty() {
        return Ok(IndexChange::None);
    }
    let known = newest.and_then(|newest| newest.definition["index"].as_array());
    let is_known = |key: &String| known.is_some_and(|known| known.iter().any(|it| it == key));
    if definition.index.iter().all(is_known) {
        return Ok(IndexChange::None);
    }
    let query = of_agent(name);
    let first = store.list(&name.tenant(), &query, None, 1).await.map_err(|error| match error {
        ListError::Store(error) => error,
        ListError::Cursor => StoreError::Unavailable(error.to_string()),
    })?;
    let has_conversations = !first.items.is_empty() || first.cursor.is_some();
    // One may just be created by the definition before.
    if newest.is_none() && !has_conversations {
        return Ok(IndexChange::None);
    }
    for _ in 0..MAX_ATTEMPTS {
        let present = store.index_jobs().await?;
        let Some(next) = present.with(name, now) else { return Ok(IndexChange::TooMany) };
        if store.replace_index_jobs(&present, &next).await? {
            return Ok(if has_conversations { IndexChange::Begins } else { IndexChange::None });
        }
    }
    Err(StoreError::Unavailable("others ask for agents to be indexed at the same time".to_owned()))
}

/// The conversations of an agent, the one that was active longest ago first.
pub(crate) fn of_agent(name: &Scoped<AgentName>) -> ListQuery {
    let (agent, direction) = (Some(name.local()), Direction::Ascending);
    ListQuery { agent, direction, root_only: false, ..ListQuery::default() }
}
