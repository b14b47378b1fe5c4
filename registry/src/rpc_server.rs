//! Answers the calls of other nodes.

use std::sync::Arc;
use std::time::Duration;

use abide_actors::access::{Access, AccessError};
use abide_actors::clock::Clock;
use abide_actors::credentials::Credentials;
use abide_actors::request::{DeliveryOutcome, RequestContext, RequestError};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::cluster_view::ClusterView;
use crate::host::RemoteCall;
use crate::live::Hub;
use crate::member::{LinkState, MemberState, ProcessId};
use crate::peers::MAX_MESSAGE_BYTES;
use crate::protocol::{
    Call, CallOutcome, CallRequest, Deliver, Drain, Envelope, LiveUpdate, Register, Start,
    SyncPermits,
};
use crate::queue_calls::QueueRequest;
use crate::queues::Queues;
use crate::router::calls::LocalCall;
use crate::router::{ConversationRouter, deliver_to_actor};

/// Carries out what other nodes ask of this one.
#[derive(Clone)]
pub struct RpcServer {
    pub conversations: ConversationRouter,
    pub hub: Hub,
    pub queues: Queues,
    pub clock: Arc<dyn Clock>,
    pub credentials: Arc<dyn Credentials>,
    /// What this node takes on; another node may have it drain.
    pub state: Arc<watch::Sender<MemberState>>,
}

impl RpcServer {
    /// Serves until the host has ended. Each call runs as a task of its own; their number is
    /// bounded by what each calling node may have in flight.
    pub async fn run(self, mut incoming: mpsc::Receiver<RemoteCall>) {
        while let Some(RemoteCall { call, reply }) = incoming.recv().await {
            let server = self.clone();
            tokio::spawn(async move {
                // The caller may have gone.
                let _ = reply.send(encode(&server.serve(&call).await));
            });
        }
    }

    async fn serve(&self, call: &[u8]) -> CallOutcome {
        let Envelope { deadline, from, call } = match abide_conversation::from_json(call) {
            Ok(envelope) => envelope,
            Err(error) => {
                tracing::warn!(content = %error, "call of another node is unintelligible");
                metrics::counter!("abide_unintelligible_messages_total").increment(1);
                return CallOutcome::Unintelligible;
            }
        };
        // A deadline in the past leaves no time.
        let left = Duration::try_from(deadline.duration_since(self.clock.now()));
        let left = left.unwrap_or_default();
        if left.is_zero() {
            return late();
        }
        match call {
            CallRequest::Deliver(call) => self.deliver(call, left).await,
            CallRequest::Start(call) => self.start(call, left).await,
            CallRequest::Inspect(call) => self.run_here(call).await,
            CallRequest::GetActor(call) => self.run_here(call).await,
            CallRequest::ListActors(call) => self.run_here(call).await,
            CallRequest::Kill(call) => self.run_here(call).await,
            CallRequest::Retry(call) => self.run_here(call).await,
            CallRequest::Release(call) => self.run_here(call).await,
            CallRequest::QueueRequest(call) => tokio::select! {
                biased;
                answer = self.queues.carry_out(call) => QueueRequest::encode(answer),
                // What a worker of a node that died is offered, nobody else is for a while.
                () = self.wait_until_gone(&from) => CallOutcome::Late,
            },
            CallRequest::SyncPermits(SyncPermits { sync }) => {
                SyncPermits::encode(self.conversations.give_permits(&from, &sync))
            }
            CallRequest::Drain => {
                begin_drain(&self.state);
                Drain::encode(())
            }
            CallRequest::Register(request) => {
                self.hub.register(&from, request).map_or(CallOutcome::NotHere, Register::encode)
            }
            CallRequest::Tell(update) => {
                if self.hub.apply(&from, update) {
                    LiveUpdate::encode(())
                } else {
                    CallOutcome::NotHere
                }
            }
        }
    }

    /// Waits until a node cannot be answered any more.
    async fn wait_until_gone(&self, from: &ProcessId) {
        let mut view = self.conversations.cluster().watch();
        let is_gone = |view: &Arc<ClusterView>| view.links.get(from) != Some(&LinkState::Connected);
        // A view that is told no more is that of a node that ends.
        let _ = view.wait_for(is_gone).await;
    }

    async fn run_here<C: LocalCall>(&self, call: C) -> CallOutcome {
        C::encode(call.run(&self.conversations).await)
    }

    async fn deliver(&self, call: Deliver, left: Duration) -> CallOutcome {
        let Deliver { id, request, idempotency_keys, access } = call;
        if let Err(error) = access.check_tenant(&id) {
            tracing::warn!(conversation = %id, "request of another tenant's caller refused");
            return Deliver::encode(Err(error.into()));
        }
        if let Err(error) = self.check_admitted(&access).await {
            tracing::warn!(conversation = %id, %error, "request refused: the nodes' auth files differ");
            return Deliver::encode(Err(error));
        }
        let context = RequestContext { access, idempotency_keys };
        let router = &self.conversations;
        let deletes = request.deletion_reason().is_some();
        if deletes && router.quarantined_here(&id).await.is_some() {
            return Deliver::encode(router.delete_here(&id, &request).await);
        }
        let handle = match timeout(left, router.ensure_started_here(&id)).await {
            Ok(Ok(Some(handle))) => handle,
            Ok(Ok(None)) => return CallOutcome::NotHere,
            Ok(Err(error)) => return Deliver::encode(Err(error)),
            Err(_) => return late(),
        };
        match deliver_to_actor(&handle, request, context).await {
            Ok(DeliveryOutcome::Done(reply)) => Deliver::encode(Ok(reply)),
            Ok(DeliveryOutcome::Failed(error)) | Err(error) => Deliver::encode(Err(error)),
            Ok(DeliveryOutcome::NotTaken(..)) => CallOutcome::NotHere,
        }
    }

    /// Judges a caller by this node's rules, too, which may be stricter than those of the other node.
    async fn check_admitted(&self, access: &Access) -> Result<(), RequestError> {
        let Some(identity) = access.identity() else { return Ok(()) };
        match self.credentials.admits(identity).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(AccessError::Hidden.into()),
            Err(error) => Err(RequestError::Unavailable(error.to_string())),
        }
    }

    async fn start(&self, call: Start, left: Duration) -> CallOutcome {
        match timeout(left, self.conversations.ensure_started_here(&call.id)).await {
            Ok(Ok(Some(_))) => Start::encode(()),
            Ok(Ok(None) | Err(_)) => CallOutcome::NotHere,
            Err(_) => late(),
        }
    }
}

fn encode(outcome: &CallOutcome) -> Vec<u8> {
    let encoded = serde_json::to_vec(outcome).ok();
    let fitting = encoded.filter(|bytes| bytes.len() <= MAX_MESSAGE_BYTES);
    // A variant without content can always be encoded.
    fitting.unwrap_or_else(|| serde_json::to_vec(&CallOutcome::TooLarge).unwrap_or_default())
}

fn late() -> CallOutcome {
    metrics::counter!("abide_late_messages_total").increment(1);
    CallOutcome::Late
}

/// Has a node that is up drain from here on.
pub fn begin_drain(state: &watch::Sender<MemberState>) {
    state.send_if_modified(|state| {
        let up = *state == MemberState::Up;
        if up {
            *state = MemberState::Draining;
        }
        up
    });
}
