//! Sends the messages of schedules, as those who put them, who must still be allowed to.

use std::sync::Arc;

use abide_actors::access::Access;
use abide_actors::clock::Clock;
use abide_actors::request::{
    IdempotencyKey, Reply, Request, RequestContext, RequestError, SendRequest,
};
use abide_conversation::{Rejection, ScheduleName, Scoped};
use abide_registry::router::ConversationRouter;
use abide_registry::schedules::{Schedule, SentTick};
use abide_registry::store::Store;
use abide_registry::ticks::{self, TickError, TickSender};
use async_trait::async_trait;
use futures::FutureExt;
use tokio_util::task::AbortOnDropHandle;

use crate::access::AccessControl;
use crate::problem::{Kind, Problem};

/// How long the ticks rest after a bug ended them.
const RESTART_DELAY: std::time::Duration = std::time::Duration::from_secs(1);

/// Sends the messages of schedules.
#[derive(Clone)]
pub(crate) struct ScheduleSender {
    pub(crate) conversations: ConversationRouter,
    pub(crate) access: AccessControl,
}

/// Why a tick was not sent.
enum SendError {
    Request(RequestError),
    Problem(Problem),
}

impl ScheduleSender {
    /// Sends the ticks of this node's partitions until the handle is dropped.
    pub(crate) fn run(self, store: Arc<dyn Store>, clock: Arc<dyn Clock>) -> AbortOnDropHandle<()> {
        let cluster = self.conversations.cluster().clone();
        let sender = Arc::new(self);
        AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                let run = ticks::run(cluster.clone(), store.clone(), clock.clone(), sender.clone());
                if std::panic::AssertUnwindSafe(run).catch_unwind().await.is_ok() {
                    return;
                }
                tracing::error!(task = "ticks", "task of the node panicked");
                tokio::time::sleep(RESTART_DELAY).await;
            }
        }))
    }

    /// Sends the message of a tick, for a caller who waits for it.
    pub(crate) async fn deliver(
        &self,
        id: &Scoped<ScheduleName>,
        schedule: &Schedule,
        tick: &str,
    ) -> Result<SentTick, Problem> {
        self.send_once(id, schedule, tick).await.map_err(|error| match error {
            SendError::Request(error) => error.into(),
            SendError::Problem(problem) => problem,
        })
    }

    async fn send_once(
        &self,
        id: &Scoped<ScheduleName>,
        schedule: &Schedule,
        tick: &str,
    ) -> Result<SentTick, SendError> {
        let access = self.access_of(id, schedule).await.map_err(SendError::Problem)?;
        let conversation = id.sibling(&schedule.conversation_of(tick));
        let admitted = async {
            self.access.admit_turn(&id.tenant()).await?;
            self.access.admit_conversation(&conversation).await
        };
        admitted.await.map_err(SendError::Problem)?;
        let message_id = format!("sched:{}:{tick}", schedule.name);
        let key = IdempotencyKey {
            key: format!("message:{message_id}"),
            // Whatever the schedule says by then: it is the same tick.
            fingerprint: format!("tick {tick} of {}", schedule.name),
            field: "message_id".into(),
        };
        let request = Request::Send(SendRequest {
            agent: Some(schedule.agent.clone()),
            content: schedule.content.clone(),
            message_id: Some(message_id),
            principal: schedule.principal.clone(),
            assigns: schedule.assigns.clone(),
            answer_format: Default::default(),
            tools: Default::default(),
            context: Vec::new(),
            if_busy: schedule.if_busy,
        });
        let context = RequestContext { access, idempotency_keys: vec![key] };
        let sent = self.conversations.deliver_for(&conversation, request, context).await;
        match sent.map_err(SendError::Request)? {
            Reply::Sent { conversation_id, turn_id, seq } => {
                Ok(SentTick { conversation_id, turn_id, seq })
            }
            other => {
                let detail = format!("unexpected reply: {other:?}");
                Err(SendError::Problem(Problem::new(Kind::Internal, detail)))
            }
        }
    }

    /// What the message may do: what whoever put the schedule may do now, as far as their credential
    /// and their roles say.
    async fn access_of(
        &self,
        id: &Scoped<ScheduleName>,
        schedule: &Schedule,
    ) -> Result<Access, Problem> {
        if !self.access.is_guarded() {
            return Ok(Access::Unrestricted);
        }
        let refused = |why: &str| Problem::new(Kind::Forbidden, why.to_owned());
        let Some(identity) = &schedule.identity else {
            return Err(refused("the schedule was put before callers were authenticated"));
        };
        if identity.tenant.as_ref().is_none_or(|tenant| !id.is_of(tenant)) {
            return Err(refused("whoever put the schedule is of another tenant"));
        }
        self.access.sender_access(identity).await
    }
}

#[async_trait]
impl TickSender for ScheduleSender {
    async fn send(
        &self,
        id: &Scoped<ScheduleName>,
        schedule: &Schedule,
        tick: &str,
    ) -> Result<SentTick, TickError> {
        self.send_once(id, schedule, tick).await.map_err(|error| match error {
            SendError::Request(error) if may_pass(&error) => TickError::Later(error.to_string()),
            SendError::Request(error) => TickError::Refused(error.to_string()),
            SendError::Problem(problem) if problem.kind() == Kind::Unavailable => {
                TickError::Later(problem.detail().to_owned())
            }
            SendError::Problem(problem) => TickError::Refused(problem.detail().to_owned()),
        })
    }
}

/// Whether the same message may be accepted a moment later.
fn may_pass(error: &RequestError) -> bool {
    match error {
        RequestError::Store(_)
        | RequestError::Lost
        | RequestError::Overloaded
        | RequestError::Unavailable(_)
        | RequestError::Rejected(Rejection::Forking) => true,
        RequestError::Rejected(_)
        | RequestError::AgentMissing(_)
        | RequestError::Invalid { .. }
        | RequestError::ToolNotFound(_)
        | RequestError::ApprovalRequired(_)
        | RequestError::KeyReused(_)
        | RequestError::Quarantined(_)
        | RequestError::Forbidden { .. }
        | RequestError::ChildrenRemain => false,
    }
}
