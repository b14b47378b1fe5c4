//! Answers the calls of other nodes.

use std::sync::Arc;
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_actors::request::{DeliveryOutcome, Request};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::{Conversations, hand_in};
use crate::host::RemoteCall;
use crate::live::Hub;
use crate::membership::MemberState;
use crate::peers::LARGEST;
use crate::wire::{Call, CallResult, Envelope};

/// What the calls of other nodes are answered with.
#[derive(Clone)]
pub struct RpcServer {
    pub conversations: Conversations,
    pub hub: Hub,
    pub clock: Arc<dyn Clock>,
    /// What this node takes on; another may ask it to drain.
    pub state: Arc<watch::Sender<MemberState>>,
}

impl RpcServer {
    /// Answers until the host has ended. Each call is a task of its own: what is under way here is
    /// bounded by what its callers have under way.
    pub async fn run(self, mut incoming: mpsc::Receiver<RemoteCall>) {
        while let Some(RemoteCall { call, reply }) = incoming.recv().await {
            let desk = self.clone();
            tokio::spawn(async move {
                // Who asked may have gone.
                let _ = reply.send(encode(&desk.answer(&call).await));
            });
        }
    }

    async fn answer(&self, call: &[u8]) -> CallResult {
        let Envelope { deadline, from, ask } = match abide_conversation::from_json(call) {
            Ok(envelope) => envelope,
            Err(error) => {
                tracing::warn!(said = %error, "a call of another node is unintelligible");
                metrics::counter!("abide_unintelligible_messages_total").increment(1);
                return CallResult::Unintelligible;
            }
        };
        // Nothing is left when it has passed.
        let left = Duration::try_from(deadline.duration_since(self.clock.now()));
        let left = left.unwrap_or_default();
        if left.is_zero() {
            return late();
        }
        let door = &self.conversations;
        match ask {
            Call::Deliver { id, request, repeats } => {
                if *request == Request::Delete && door.quarantined_here(&id).await.is_some() {
                    return CallResult::Delivered(door.remove(&id).await);
                }
                let handle = match timeout(left, door.ensure_here(&id)).await {
                    Ok(Ok(Some(handle))) => handle,
                    Ok(Ok(None)) => return CallResult::NotHere,
                    Ok(Err(failure)) => return CallResult::Delivered(Err(failure)),
                    Err(_) => return late(),
                };
                match hand_in(&handle, *request, repeats).await {
                    Ok(DeliveryOutcome::Done(reply)) => CallResult::Delivered(Ok(reply)),
                    Ok(DeliveryOutcome::Failed(failure)) | Err(failure) => {
                        CallResult::Delivered(Err(failure))
                    }
                    Ok(DeliveryOutcome::NotTaken(..)) => CallResult::NotHere,
                }
            }
            Call::Start { id } => match timeout(left, door.ensure_here(&id)).await {
                Ok(Ok(Some(_))) => CallResult::Started,
                Ok(Ok(None) | Err(_)) => CallResult::NotHere,
                Err(_) => late(),
            },
            Call::Inspect { id } => CallResult::Inspected(door.inspect(&id).await.map(Box::new)),
            Call::Look { id } => CallResult::Looked(door.look_here(&id).await.map(Box::new)),
            Call::Actors { after, limit } => {
                CallResult::Rows(door.rows_here(after.as_deref(), limit).await)
            }
            Call::Kill { id } => CallResult::Killed(door.kill_here(&id).await),
            Call::Retry { id } => CallResult::Retried(door.retry_here(&id).await),
            Call::LetGo { id, to, force } => {
                CallResult::Parted(door.let_go_here(&id, to, force).await)
            }
            Call::Drain => {
                begin_drain(&self.state);
                CallResult::Noted
            }
            Call::Tell(told) => match self.hub.hear(&from, told) {
                true => CallResult::Noted,
                false => CallResult::NotHere,
            },
        }
    }
}

fn encode(answer: &CallResult) -> Vec<u8> {
    let written = serde_json::to_vec(answer).ok().filter(|bytes| bytes.len() <= LARGEST);
    // A unit is always written.
    written.unwrap_or_else(|| serde_json::to_vec(&CallResult::TooLarge).unwrap_or_default())
}

fn late() -> CallResult {
    metrics::counter!("abide_late_messages_total").increment(1);
    CallResult::Late
}

/// A node that is up drains from here on.
pub fn begin_drain(state: &watch::Sender<MemberState>) {
    state.send_if_modified(|state| {
        let up = *state == MemberState::Up;
        if up {
            *state = MemberState::Draining;
        }
        up
    });
}
