//! Indexes the conversations that an agent has by the keys that its definition adds.

use futures::{StreamExt, TryStreamExt, stream};
use jiff::SignedDuration;

use super::{IndexRebuilder, MAX_ATTEMPTS, MAX_CONCURRENT_READS, STEP_CONVERSATIONS};
use crate::added_keys::of_agent;
use crate::store::{IndexJob, ListError};

/// How long after it was asked for a job begins: by then every request has ended that indexed a
/// conversation by the definition before.
const SETTLE_TIME: SignedDuration = SignedDuration::from_secs(30);

impl IndexRebuilder {
    /// Indexes some more conversations of an agent whose definition has added keys. Returns whether
    /// nothing is left to do by now.
    pub async fn index_step(&self) -> Result<bool, ListError> {
        let now = self.clock.now();
        let is_due = |job: &&IndexJob| now.duration_since(job.asked_at) >= SETTLE_TIME;
        let jobs = self.store.index_jobs().await?.jobs;
        let Some(job) = jobs.iter().find(is_due) else { return Ok(true) };
        let next = self.index_page(job).await?;
        for _ in 0..MAX_ATTEMPTS {
            // Somebody may have asked for this agent anew meanwhile.
            let present = self.store.index_jobs().await?;
            let Some(changed) = present.after_step(job, next.as_ref()) else { break };
            if self.store.replace_index_jobs(&present, &changed).await? {
                if next.is_none() {
                    tracing::info!(agent = %job.agent, "conversations of an agent indexed anew");
                }
                break;
            }
        }
        Ok(false)
    }

    /// Writes the entries of the next conversations. Returns how the job goes on; `None` if it is
    /// done.
    async fn index_page(&self, job: &IndexJob) -> Result<Option<IndexJob>, ListError> {
        let Some(keys) = self.indexed_keys(&job.agent).await? else { return Ok(None) };
        let (tenant, query) = (job.agent.tenant(), of_agent(&job.agent));
        let cursor = job.cursor.as_deref();
        let page = match self.store.list(&tenant, &query, cursor, STEP_CONVERSATIONS).await {
            // It is of another version of the program.
            Err(ListError::Cursor) if cursor.is_some() => {
                return Ok(Some(IndexJob { cursor: None, conversations: 0, ..job.clone() }));
            }
            page => page?,
        };
        let conversations = job.conversations + page.items.len() as u64;
        let keys = &keys;
        let relists = page
            .items
            .into_iter()
            .map(|listed| async move { self.relist(&listed.id, listed.summary, keys).await });
        let relists = stream::iter(relists).buffer_unordered(MAX_CONCURRENT_READS);
        relists.try_collect::<Vec<()>>().await?;
        let cursor = page.cursor;
        Ok(cursor.map(|cursor| IndexJob { cursor: Some(cursor), conversations, ..job.clone() }))
    }
}
