//! A run of a call by a program outside.

use serde::{Deserialize, Serialize};

use crate::Timestamp;
use crate::event::{CallbackAwaited, EffectiveArgs, OnInterrupt, ToolLeased, ToolQueued};
use crate::ids::{CallId, LeaseId, QueueName};
use crate::numbers::Attempt;
use crate::state::{Call, CallPhase};

/// An attempt that a program outside carries out, and that wants nothing here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExternalRun {
    pub attempt: Attempt,
    pub since: Timestamp,
    /// When the call ends without a result.
    pub expires_at: Timestamp,
    /// The arguments of the run, if middleware changed them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effective_args: Option<EffectiveArgs>,
    pub by: ExternalRunner,
}

/// Who carries an attempt out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExternalRunner {
    /// The tool itself, which calls back.
    Callback,
    Queue(QueueRun),
}

/// An attempt that a worker of a queue carries out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct QueueRun {
    pub queue: QueueName,
    pub on_interrupt: OnInterrupt,
    /// `None` while the attempt waits for a worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
}

/// What one worker has, for a time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lease {
    pub id: LeaseId,
    pub worker: String,
    pub until: Timestamp,
}

/// A call that waits in a queue for a worker.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct QueueEntry {
    pub since: Timestamp,
    pub queue: QueueName,
    pub call: CallId,
    pub attempt: Attempt,
    pub tool: String,
}

impl ExternalRun {
    /// The run that a queue was given.
    pub(crate) fn queued(at: Timestamp, queued: &ToolQueued) -> Self {
        let ToolQueued { attempt, queue, expires_at, on_interrupt, effective_args, .. } =
            queued.clone();
        let by = ExternalRunner::Queue(QueueRun { queue, on_interrupt, lease: None });
        Self { attempt, since: at, expires_at, effective_args, by }
    }

    /// The run that is to call back.
    pub(crate) fn awaiting(at: Timestamp, awaited: &CallbackAwaited) -> Self {
        let CallbackAwaited { attempt, expires_at, effective_args, .. } = awaited.clone();
        Self { attempt, since: at, expires_at, effective_args, by: ExternalRunner::Callback }
    }

    /// A worker has the run, or has it for longer.
    pub(crate) fn lease_to(&mut self, leased: &ToolLeased) {
        if let ExternalRunner::Queue(queued) = &mut self.by {
            let ToolLeased { lease: id, worker, until, .. } = leased.clone();
            queued.lease = Some(Lease { id, worker, until });
        }
    }

    /// The worker's lease, if a worker has the run.
    pub fn lease(&self) -> Option<&Lease> {
        match &self.by {
            ExternalRunner::Queue(queued) => queued.lease.as_ref(),
            ExternalRunner::Callback => None,
        }
    }

    /// The queue, if a worker carries the run out.
    pub fn queue(&self) -> Option<&QueueName> {
        match &self.by {
            ExternalRunner::Queue(queued) => Some(&queued.queue),
            ExternalRunner::Callback => None,
        }
    }

    /// When the conversation must look at the run: at the end of the lease, or of the call's time.
    pub fn deadline(&self) -> Timestamp {
        self.lease().map_or(self.expires_at, |lease| lease.until.min(self.expires_at))
    }
}

impl Call {
    /// The run by a program outside, if there is one.
    pub fn external_run(&self) -> Option<&ExternalRun> {
        match &self.phase {
            CallPhase::External(run) => Some(run),
            CallPhase::Requested
            | CallPhase::Suspended(_)
            | CallPhase::Approved
            | CallPhase::Running { .. }
            | CallPhase::AwaitingRetry { .. }
            | CallPhase::Delegated { .. }
            | CallPhase::Done => None,
        }
    }

    /// The entry of the call in its queue, while the call waits for a worker.
    pub fn queue_entry(&self) -> Option<QueueEntry> {
        let run = self.external_run()?;
        match &run.by {
            ExternalRunner::Queue(QueueRun { queue, lease: None, .. }) => Some(QueueEntry {
                queue: queue.clone(),
                since: run.since,
                call: self.id.clone(),
                attempt: run.attempt,
                tool: self.tool.clone(),
            }),
            ExternalRunner::Queue(_) | ExternalRunner::Callback => None,
        }
    }
}
