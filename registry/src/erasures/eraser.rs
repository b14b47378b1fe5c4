//! Carries erasures out, on the node that looks after the first partition.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_actors::journal::StoreError;
use abide_actors::request::RequestError;
use abide_conversation::{ErasureId, Scoped, Tenant, Timestamp};
use tokio::time::Instant;

use crate::erasure::{Erasure, ErasureState, ErasureStep, Running};
use crate::partition::Partition;
use crate::router::ConversationRouter;
use crate::store::{ListError, Store};

/// How often a node looks whether there is something to erase: one command.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// How long an erasure waits after a pass in which something failed.
const RETRY_INTERVAL: Duration = Duration::from_secs(5);
/// How many erasures get a step in turn.
const MAX_ERASURES: usize = 64;

/// Carries erasures out. Each step may be done twice, so that a node that takes over from one that
/// died goes on from the last progress that was stored, and two nodes whose views differ do no harm.
#[derive(Clone)]
pub struct Eraser {
    pub store: Arc<dyn Store>,
    pub conversations: ConversationRouter,
    pub clock: Arc<dyn Clock>,
}

/// The erasures in which something failed, and until when they rest.
type Resting = HashMap<Scoped<ErasureId>, Instant>;

/// What failed in a step; the erasure goes on later.
#[derive(Debug, thiserror::Error)]
pub(super) enum EraseError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("{0}")]
    Request(#[from] RequestError),
    /// A step's cursor is of another version of the program or of another store.
    #[error("the cursor of the step is not known")]
    Cursor,
    /// A pass has left a conversation as it was, which names the subject or cannot be read.
    #[error("{0}")]
    Left(String),
}

impl From<ListError> for EraseError {
    fn from(error: ListError) -> Self {
        match error {
            ListError::Cursor => Self::Cursor,
            ListError::Store(error) => Self::Store(error),
        }
    }
}

impl Eraser {
    /// Runs until it is dropped.
    pub async fn run(self) {
        let (mut is_store_away, mut resting) = (false, Resting::new());
        loop {
            let wait = match self.round(&mut resting).await {
                Ok(wait) => {
                    is_store_away = false;
                    wait
                }
                Err(error) => {
                    if !std::mem::replace(&mut is_store_away, true) {
                        tracing::warn!(%error, "erasures not carried on");
                    }
                    RETRY_INTERVAL
                }
            };
            if !wait.is_zero() {
                tokio::time::sleep(wait).await;
            }
        }
    }

    fn is_mine(&self) -> bool {
        let view = self.conversations.cluster().view();
        Partition::all().next().is_some_and(|first| view.partitions.contains(first))
    }

    /// Gives each erasure one step that does not rest, and those a common one whose last it is.
    /// Returns how long to wait for the next round.
    async fn round(&self, resting: &mut Resting) -> Result<Duration, EraseError> {
        if !self.is_mine() {
            return Ok(POLL_INTERVAL);
        }
        let due = self.store.due_erasures(self.clock.now(), MAX_ERASURES).await?;
        let (mut rests, mut at_disk) = (Vec::new(), Vec::new());
        resting.retain(|_, until| *until > Instant::now());
        for name in due {
            if resting.contains_key(&name) {
                continue;
            }
            let Some(mut erasure) = self.store.erasure(&name).await? else { continue };
            match erasure.running().map(|running| running.step) {
                None => {
                    self.store.replace_erasure(&name, Some(erasure.version), None).await?;
                }
                Some(ErasureStep::Disk) => at_disk.push((name, erasure)),
                Some(_) => {
                    let progress = self.advance(&name.tenant(), &mut erasure).await;
                    let rest = self.note(&name, erasure, progress).await?;
                    rests.push((name, rest));
                }
            }
        }
        rests.extend(self.overwrite(at_disk).await?);
        let wait = if rests.iter().any(|(_, rest)| rest.is_zero()) {
            Duration::ZERO
        } else {
            POLL_INTERVAL
        };
        rests.retain(|(_, rest)| !rest.is_zero());
        resting.extend(rests.into_iter().map(|(name, rest)| (name, Instant::now() + rest)));
        Ok(wait)
    }

    /// Overwrites what is deleted, once for all erasures that stand there, and ends them. Returns
    /// how long each rests then.
    async fn overwrite(
        &self,
        at_disk: Vec<(Scoped<ErasureId>, Erasure)>,
    ) -> Result<Vec<(Scoped<ErasureId>, Duration)>, EraseError> {
        let mut rests = Vec::new();
        if at_disk.is_empty() {
            return Ok(rests);
        }
        let overwritten = self.store.overwrite_deleted().await;
        for (name, mut erasure) in at_disk {
            if overwritten.is_ok() {
                erasure.end(self.clock.now());
            }
            let progress = overwritten.clone().map_err(EraseError::from);
            let rest = self.note(&name, erasure, progress).await?;
            rests.push((name, rest));
        }
        Ok(rests)
    }

    /// Stores how far an erasure has come with a step. Returns how long it rests then.
    async fn note(
        &self,
        name: &Scoped<ErasureId>,
        mut erasure: Erasure,
        progress: Result<(), EraseError>,
    ) -> Result<Duration, EraseError> {
        let known = erasure.version;
        let mut wait = Duration::ZERO;
        if let Err(error) = progress {
            tracing::warn!(erasure = %erasure.id, %error, "step of an erasure failed");
            if let ErasureState::Running(running) = &mut erasure.state {
                running.problem = Some(error.to_string());
                if matches!(error, EraseError::Cursor) {
                    running.cursor = None;
                }
            }
            wait = RETRY_INTERVAL;
        }
        erasure.version = known.saturating_add(1);
        if erasure.running().is_some() {
            self.store.replace_erasure(name, Some(known), Some(&erasure)).await?;
            return Ok(wait);
        }
        // The report is there before the job is gone. One that another node has written is the same.
        let report = name.sibling(&erasure.id);
        self.store.replace_erasure(&report, None, Some(&erasure)).await?;
        if self.store.replace_erasure(name, Some(known), None).await? {
            let conversations = erasure.report.deleted.conversations;
            tracing::info!(erasure = %erasure.id, conversations, "erasure done");
        }
        Ok(Duration::ZERO)
    }

    /// Does a bounded part of the present step.
    async fn advance(&self, tenant: &Tenant, erasure: &mut Erasure) -> Result<(), EraseError> {
        let (Some(running), Some(alias)) = (erasure.running(), erasure.alias()) else {
            return Ok(());
        };
        match running.step {
            ErasureStep::Sources => {
                self.delete_keys(tenant, erasure, &alias).await?;
                self.delete_schedules(tenant, erasure, &alias).await?;
                erasure.go_on(ErasureStep::Conversations);
            }
            ErasureStep::Conversations => self.delete_conversations(tenant, erasure).await?,
            ErasureStep::Others => self.rewrite_others(tenant, erasure).await?,
            ErasureStep::Things => {
                self.forget_decisions(tenant, erasure, &alias).await?;
                self.rename_in_webhooks(tenant, erasure, &alias).await?;
                self.rename_usage(tenant, &alias).await?;
                erasure.go_on(ErasureStep::Operations);
            }
            ErasureStep::Operations => self.redact_operations(tenant, erasure).await?,
            // `overwrite` ends all erasures that stand at this step together.
            ErasureStep::Disk => {}
            ErasureStep::Last => {
                if erasure.running().is_some_and(|running| !running.newer_rewritten) {
                    let done = self.rewrite_newer(tenant, erasure).await?;
                    if let ErasureState::Running(running) = &mut erasure.state {
                        running.newer_rewritten = done;
                    }
                } else if self.delete_unnamed_blobs(tenant, erasure).await? {
                    self.look_again(tenant, erasure).await?;
                }
            }
        }
        Ok(())
    }
}

impl Erasure {
    /// Begins another step.
    pub(super) fn go_on(&mut self, step: ErasureStep) {
        if let ErasureState::Running(running) = &mut self.state {
            running.step = step;
            running.begin_pass();
        }
    }

    /// Begins the last step, which overwrites what is deleted. From here on nothing names the subject,
    /// and so neither does what the erasure itself has left on the disk.
    pub(super) fn forget_subject(&mut self) {
        self.go_on(ErasureStep::Disk);
        if let ErasureState::Running(running) = &mut self.state {
            running.subject.clear();
        }
    }

    /// Ends the erasure.
    pub(super) fn end(&mut self, ended_at: Timestamp) {
        self.state = ErasureState::Done { ended_at };
    }

    pub(super) fn progress(&mut self) -> Option<&mut Running> {
        match &mut self.state {
            ErasureState::Running(running) => Some(running),
            ErasureState::Done { .. } => None,
        }
    }
}

impl Running {
    /// Goes through the things of the step from the first one.
    pub(super) fn begin_pass(&mut self) {
        self.cursor = None;
        self.newer_rewritten = false;
        self.has_changed = false;
        self.problem = None;
    }
}
