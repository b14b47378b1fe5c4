//! The store in one directory of this machine, on redb, for one process.
//!
//! Measured on two shared cores with commits of 500 bytes on a new file: 2,260 a second one at a
//! time and 23,600 with 64 in flight, at 1.0 and 0.03 fsyncs per commit; without fsync 5,050 and
//! 43,900. With 100,000 waiting conversations in the file, redb's quick repair, which needs a
//! second fsync, lowers 1,600 and 15,500 commits a second to 840 and 13,300, and shortens opening
//! after a SIGKILL from 1.1 s to 1 ms. So it is used from 256 MiB on; up to that size opening takes
//! 0.35 s at most.

mod api_keys;
mod audit;
mod blob_names;
mod blobs;
mod claiming;
mod compaction;
mod disk;
mod durability;
mod encode;
mod encryption;
mod erasures;
mod failure;
mod journal;
mod listing;
mod notices;
mod operations;
mod overwrite;
mod queues;
mod read;
mod revisions;
mod schedules;
mod sealing_pass;
mod staging;
mod state;
mod store_dir;
mod tables;
#[cfg(test)]
mod tests;
mod usage;
mod write;
mod writer;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use abide_actors::journal::{
    Claim, ConversationSummary, InboxEntry, InboxFilter, ResponseScope, StoreError, StoredResponse,
};
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::{
    AgentName, ConversationId, DecisionId, Revision, Scoped, Tenant, Timestamp,
};
use async_trait::async_trait;
use redb::Error;
use tokio::sync::{mpsc, oneshot};

use self::disk::Probe;
use self::encode::EncodedResponse;
use self::encryption::Snapshot;
use self::state::{ReadError, Shared};
use self::store_dir::StoreDir;
use self::write::{Outcome, Write};
use self::writer::{Job, MAX_QUEUED_JOBS, Writer};
use super::paging;
use super::sealing::{KeyRing, Label};
use super::{
    HistoryEntry, KeyChange, KeyList, ListError, Occupancy, Page, Rewrapped, ScopedKeyId, Store,
    StoredAgent, SummaryFilter,
};
use crate::partition::PartitionSet;

pub use self::durability::{Durability, Stats};
pub use self::failure::FailureWatch;
pub use self::store_dir::{CloseWatch, OpenError, exists};

/// A journal of at most this many events is read on the caller's thread, because handing it to
/// another thread takes longer.
const MAX_INLINE_EVENTS: u64 = 64;
/// The bytes that are read on the caller's thread: parsing them takes a millisecond.
const MAX_INLINE_BYTES: usize = 128 << 10;

/// An open store. Dropping it waits for running writes and closes the file, once the reads that still
/// run on other threads have ended.
///
/// Reads of one row and of a short journal run on the caller's thread, all others on tokio's
/// blocking threads.
#[derive(Debug)]
pub struct Embedded {
    shared: Arc<Shared>,
    queue: Option<mpsc::Sender<Job>>,
    writer: Option<JoinHandle<()>>,
    close_watch: CloseWatch,
    failure_watch: FailureWatch,
}

impl Embedded {
    /// Opens the store in `dir`, creating the directory if there is none.
    ///
    /// Blocks for as long as a repair takes after a crash. Writes nothing if another process has
    /// the store open.
    pub fn open(dir: &Path, durability: Durability) -> Result<Self, OpenError> {
        Self::open_encrypted(dir, durability, None)
    }

    /// [Opens](Self::open) the store with the keys of a key file. A store that is encrypted is opened
    /// only with its keys.
    pub fn open_encrypted(
        dir: &Path,
        durability: Durability,
        keys: Option<KeyRing>,
    ) -> Result<Self, OpenError> {
        let (store_dir, close_watch) = StoreDir::lock(dir, durability)?;
        let probe = Arc::new(Probe::default());
        let database = store_dir.open(&probe)?;
        let sealer = encryption::sealer(&database, keys)
            .map_err(|reason| OpenError::Encryption { dir: dir.to_owned(), reason })?;
        // A full disk refuses the mark, and still serves reads.
        let interrupted = tables::mark_open(&database, true).unwrap_or_else(|error| {
            tracing::warn!(%error, "store not marked as open");
            BTreeSet::new()
        });
        let shared = Arc::new(Shared::new(database, interrupted, probe, sealer));
        let (queue, jobs) = mpsc::channel(MAX_QUEUED_JOBS);
        let writer = Writer::new(store_dir, Arc::clone(&shared), jobs);
        let thread = thread::Builder::new().name("store".to_owned());
        let (failure_watch, report) = FailureWatch::new();
        let run = || report.outcome_of(|| writer.run());
        let writer = thread.spawn(run).map_err(|error| OpenError::Unusable {
            dir: dir.to_owned(),
            reason: error.to_string(),
        })?;
        Ok(Self { shared, queue: Some(queue), writer: Some(writer), close_watch, failure_watch })
    }

    /// Tells when the store is closed, whoever uses it last.
    pub fn close_watch(&self) -> CloseWatch {
        self.close_watch.clone()
    }

    /// Tells when the store has failed for good.
    pub fn failure_watch(&self) -> FailureWatch {
        self.failure_watch.clone()
    }

    /// Commits and fsyncs so far.
    pub fn stats(&self) -> Stats {
        Stats { commits: self.shared.commits(), fsyncs: self.shared.probe.fsyncs() }
    }

    async fn submit<T>(
        &self,
        job: impl FnOnce(oneshot::Sender<T>) -> Job,
    ) -> Result<T, StoreError> {
        let ended = || StoreError::Unavailable("the store's writer has ended".to_owned());
        let (done, outcome) = oneshot::channel();
        let queue = self.queue.as_ref().ok_or_else(ended)?;
        queue.send(job(done)).await.map_err(|_| ended())?;
        outcome.await.map_err(|_| ended())
    }

    async fn write(&self, write: Write) -> Outcome {
        self.submit(|done| Job::Write(Box::new(write), done)).await?
    }

    async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Snapshot<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, StoreError> {
        let shared = Arc::clone(&self.shared);
        let outcome = tokio::task::spawn_blocking(move || shared.read(read)).await;
        let outcome = outcome.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        outcome.map_err(|error| self.report(error))
    }

    fn read_row<T>(
        &self,
        read: impl FnOnce(&Snapshot<'_>) -> Result<T, Error>,
    ) -> Result<T, StoreError> {
        self.shared.read(read).map_err(|error| self.report(error))
    }

    /// Reports a broken file to the writer. With a full queue the writer finds out by itself.
    fn report(&self, failure: ReadError) -> StoreError {
        if let (Some(generation), Some(queue)) = (failure.reopen, &self.queue) {
            let _ = queue.try_send(Job::Reopen(generation));
        }
        failure.error
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.queue = None;
        // How it ended was reported.
        let _ = self.writer.take().map(JoinHandle::join);
    }
}

#[async_trait]
impl Store for Embedded {
    async fn rewrap(&self) -> Result<Option<Rewrapped>, ListError> {
        Ok(self.rewrap_all().await?)
    }

    async fn current_claim(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<Option<Claim>, StoreError> {
        Ok(self.shared.claims().present(id).cloned())
    }

    async fn occupancy(&self, id: &Scoped<ConversationId>) -> Result<Occupancy, StoreError> {
        let exists = self.read_row(|from| read::sealed_record(from, id))?.is_some();
        Ok(Occupancy::new(self.shared.claims().present(id).cloned(), exists))
    }

    async fn conversations(
        &self,
        tenant: &Tenant,
        filter: &SummaryFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<(Scoped<ConversationId>, ConversationSummary)>, ListError> {
        let (filter, after) = (filter.clone(), paging::decode_of(tenant, cursor)?);
        let tenant = tenant.clone();
        Ok(self.read(move |from| read::conversations(from, &tenant, &filter, after, limit)).await?)
    }

    async fn inbox(
        &self,
        tenant: &Tenant,
        filter: &InboxFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<InboxEntry>, ListError> {
        let (filter, after) = (filter.clone(), paging::decode_of(tenant, cursor)?);
        let tenant = tenant.clone();
        Ok(self.read(move |from| read::inbox(from, &tenant, &filter, after, limit)).await?)
    }

    async fn tenants(&self) -> Result<BTreeSet<Tenant>, StoreError> {
        self.read(|from| tables::tenants(from)).await
    }

    async fn all_tenants(&self) -> Result<BTreeSet<Tenant>, StoreError> {
        self.read(|from| tables::all_tenants(from)).await
    }

    async fn alarms(
        &self,
        limit: usize,
    ) -> Result<Vec<(Scoped<ConversationId>, Timestamp)>, StoreError> {
        self.read(move |from| read::alarms(from, limit)).await
    }

    async fn active(
        &self,
        partitions: &PartitionSet,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<(Scoped<ConversationId>, Option<Claim>)>, ListError> {
        let (partitions, after) = (partitions.clone(), paging::decode(cursor)?);
        let page = self.read(move |from| read::active(from, &partitions, after, limit)).await?;
        let claims = self.shared.claims();
        let with_claim = |id: Scoped<ConversationId>| (id.clone(), claims.present(&id).cloned());
        Ok(Page { items: page.items.into_iter().map(with_claim).collect(), cursor: page.cursor })
    }

    async fn reserve(
        &self,
        scope: &ResponseScope,
        response: StoredResponse,
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let response = EncodedResponse::new(scope, response, self.sealer())?;
        self.write(Write::Reserve { response, now }).await
    }

    async fn put_agent(
        &self,
        tenant: &Tenant,
        agent: StoredAgent,
        response: Option<StoredResponse>,
    ) -> Result<bool, StoreError> {
        let name = Scoped::new(tenant, &agent.name);
        let response =
            encode::response(&ResponseScope::Agent(name.clone()), response, self.sealer())?;
        let json = self.sealed_agent(&name, &agent)?;
        self.write(Write::PutAgent { name, entry: HistoryEntry::from(&agent), json, response })
            .await
    }

    async fn put_agent_if(
        &self,
        tenant: &Tenant,
        agent: StoredAgent,
        response: Option<StoredResponse>,
        newest: Option<&Revision>,
    ) -> Result<bool, StoreError> {
        let replace = self.encoded_agent(tenant, &agent, response, newest)?;
        self.write(Write::ReplaceAgent(replace)).await
    }

    async fn agent(&self, name: &Scoped<AgentName>) -> Result<Option<StoredAgent>, StoreError> {
        self.read_row(|from| read::agent(from, name))
    }

    async fn newest(&self, name: &Scoped<AgentName>) -> Result<Option<Revision>, StoreError> {
        self.read_row(|from| read::newest(from, name))
    }

    async fn revision(
        &self,
        revision: &Scoped<Revision>,
    ) -> Result<Option<StoredAgent>, StoreError> {
        self.read_row(|from| read::revision(from, revision))
    }

    async fn agents(&self, tenant: &Tenant) -> Result<Vec<StoredAgent>, StoreError> {
        let tenant = tenant.clone();
        self.read(move |from| read::agents(from, &tenant)).await
    }

    async fn delete_agent(
        &self,
        name: &Scoped<AgentName>,
        response: Option<StoredResponse>,
    ) -> Result<bool, StoreError> {
        let response =
            encode::response(&ResponseScope::Agent(name.clone()), response, self.sealer())?;
        self.write(Write::DeleteAgent { name: name.clone(), response }).await
    }

    async fn set_decision(
        &self,
        agent: &Scoped<AgentName>,
        id: &DecisionId,
        decision: Option<&RememberedDecision>,
    ) -> Result<bool, StoreError> {
        let label = Label { kind: "decision", owner: agent.as_str(), part: "" };
        let json = decision.map(|decision| self.seal_json(label, decision)).transpose()?;
        let (agent, id) = (agent.clone(), id.clone());
        self.write(Write::SetDecision { agent, id, json }).await
    }

    async fn decisions(
        &self,
        agent: &Scoped<AgentName>,
    ) -> Result<Vec<RememberedDecision>, StoreError> {
        self.read_row(|from| read::decisions(from, agent))
    }

    async fn change_key(&self, change: KeyChange) -> Result<bool, StoreError> {
        let json = encode::changed_key(&change)?;
        self.write(Write::ChangeKey { change, json }).await
    }

    async fn keys(&self, known: Option<u64>) -> Result<Option<KeyList>, StoreError> {
        self.read(move |from| api_keys::list(from, known)).await
    }

    async fn mark_keys_used(&self, used: &[(ScopedKeyId, Timestamp)]) -> Result<(), StoreError> {
        self.write(Write::MarkKeysUsed { used: used.to_vec() }).await.map(|_| ())
    }

    async fn keys_used(&self, tenant: &Tenant) -> Result<BTreeMap<String, Timestamp>, StoreError> {
        let tenant = tenant.clone();
        self.read(move |from| api_keys::used(from, &tenant)).await
    }
}
