//! An erasure as clients read it.

use abide_conversation::{ErasureId, Timestamp};
use abide_registry::erasure::{Deleted, Erasure, ErasureStep, Report, Rewritten};
use serde::Serialize;
use utoipa::ToSchema;

/// What no erasure reaches, for whoever hands the report to a person.
const NOT_COVERED: [&str; 6] = [
    "Backups and exports, until they are deleted where they are kept.",
    "Copies that Redis has on its disks, until its append-only file and its snapshots are rewritten.",
    "Notices that webhooks were sent or are still owed, requests that tools and models were sent, and \
     what their receivers keep.",
    "Logs and traces, until their retention ends.",
    "Responses that are kept a day so that repeated requests get them.",
    "What other people wrote about the person, and what the person wrote into others' conversations.",
];

/// An erasure.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Erasure)]
pub(in crate::http) struct ErasureDocument {
    id: ErasureId,
    state: RunState,
    /// What takes the place of the person: `erased:HASH`.
    alias: String,
    /// The person, as long as the erasure runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    /// What it does now, as long as it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    step: Option<Step>,
    /// What failed last, and is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
    /// How many conversations it has deleted.
    conversations: u64,
    started_at: Timestamp,
    /// Null as long as it runs.
    #[schema(required)]
    ended_at: Option<Timestamp>,
    /// When the report goes.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    deleted: DeletedCounts,
    rewritten: RewrittenCounts,
    /// The conversations that were deleted, up to 10,000; absent in lists. An id that has the name of
    /// the person shows the alias instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    conversation_ids: Option<Vec<String>>,
    /// How many conversations the person had made anew when the erasure ended, up to 50.
    made_since: u64,
    /// What no erasure reaches; absent in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    not_covered: Option<Vec<String>>,
}

/// Whether an erasure runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ErasureState)]
enum RunState {
    Running,
    Done,
}

/// The step of an erasure: what makes conversations, the person's conversations, those of others,
/// decisions and webhooks and usage, the operators' audit, the disk, a last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ErasureStep)]
enum Step {
    Sources,
    Conversations,
    Others,
    Things,
    Operations,
    Disk,
    Last,
}

/// How many things were deleted.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ErasureDeleted)]
struct DeletedCounts {
    conversations: u64,
    schedules: u64,
    api_keys: u64,
    decisions: u64,
    /// Blobs that nobody else's conversations name.
    blobs: u64,
}

/// In how many things the alias stands now.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ErasureRewritten)]
struct RewrittenCounts {
    /// Conversations of others.
    conversations: u64,
    /// Events in their journals.
    events: u64,
    decisions: u64,
    webhooks: u64,
    /// Entries of the operators' audit.
    operations: u64,
}

impl ErasureDocument {
    pub(super) fn without_ids(self) -> Self {
        Self { conversation_ids: None, not_covered: None, ..self }
    }
}

impl From<Erasure> for ErasureDocument {
    fn from(erasure: Erasure) -> Self {
        let (running, ended_at) = (erasure.running(), erasure.ended_at());
        let Report { deleted, rewritten, conversation_ids, made_since } = erasure.report.clone();
        Self {
            state: if running.is_some() { RunState::Running } else { RunState::Done },
            owner: running.map(|it| it.subject.clone()).filter(|subject| !subject.is_empty()),
            step: running.map(|running| running.step.into()),
            problem: running.and_then(|running| running.problem.clone()),
            conversations: deleted.conversations,
            started_at: erasure.started_at,
            ended_at,
            expires_at: ended_at.map(|_| erasure.due_at()),
            deleted: deleted.into(),
            rewritten: rewritten.into(),
            conversation_ids: Some(conversation_ids),
            made_since,
            not_covered: Some(NOT_COVERED.map(str::to_owned).to_vec()),
            id: erasure.id,
            alias: erasure.alias,
        }
    }
}

impl From<ErasureStep> for Step {
    fn from(step: ErasureStep) -> Self {
        match step {
            ErasureStep::Sources => Self::Sources,
            ErasureStep::Conversations => Self::Conversations,
            ErasureStep::Others => Self::Others,
            ErasureStep::Things => Self::Things,
            ErasureStep::Operations => Self::Operations,
            ErasureStep::Disk => Self::Disk,
            ErasureStep::Last => Self::Last,
        }
    }
}

impl From<Deleted> for DeletedCounts {
    fn from(deleted: Deleted) -> Self {
        let Deleted { conversations, schedules, api_keys, decisions, blobs } = deleted;
        Self { conversations, schedules, api_keys, decisions, blobs }
    }
}

impl From<Rewritten> for RewrittenCounts {
    fn from(rewritten: Rewritten) -> Self {
        let Rewritten { conversations, events, decisions, webhooks, operations } = rewritten;
        Self { conversations, events, decisions, webhooks, operations }
    }
}
