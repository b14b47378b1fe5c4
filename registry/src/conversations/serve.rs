//! Answers the calls of other nodes.

use std::sync::Arc;
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_actors::request::{Answered, Request};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use super::{Conversations, hand_in};
use crate::host::Incoming;
use crate::live::Hub;
use crate::membership::MemberState;
use crate::peers::LARGEST;
use crate::wire::{Answer, Ask, Envelope};

/// What the calls of other nodes are answered with.
#[derive(Clone)]
pub struct Desk {
    pub conversations: Conversations,
    pub hub: Hub,
    pub clock: Arc<dyn Clock>,
    /// What this node takes on; another may ask it to drain.
    pub state: Arc<watch::Sender<MemberState>>,
}

impl Desk {
    /// Answers until the host has ended. Each call is a task of its own: what is under way here is
    /// bounded by what its callers have under way.
    pub async fn run(self, mut incoming: mpsc::Receiver<Incoming>) {
        while let Some(Incoming { call, reply }) = incoming.recv().await {
            let desk = self.clone();
            tokio::spawn(async move {
                // Who asked may have gone.
                let _ = reply.send(encode(&desk.answer(&call).await));
            });
        }
    }

    async fn answer(&self, call: &[u8]) -> Answer {
        let Envelope { deadline, from, ask } = match abide_conversation::from_json(call) {
            Ok(envelope) => envelope,
            Err(error) => {
                tracing::warn!(said = %error, "a call of another node is unintelligible");
                metrics::counter!("abide_unintelligible_messages_total").increment(1);
                return Answer::Unintelligible;
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
            Ask::Deliver { id, request, repeats } => {
                if *request == Request::Delete && door.quarantined_here(&id).await.is_some() {
                    return Answer::Delivered(door.remove(&id).await);
                }
                let handle = match timeout(left, door.ensure_here(&id)).await {
                    Ok(Ok(Some(handle))) => handle,
                    Ok(Ok(None)) => return Answer::NotHere,
                    Ok(Err(failure)) => return Answer::Delivered(Err(failure)),
                    Err(_) => return late(),
                };
                match hand_in(&handle, *request, repeats).await {
                    Ok(Answered::Done(reply)) => Answer::Delivered(Ok(reply)),
                    Ok(Answered::Failed(failure)) | Err(failure) => Answer::Delivered(Err(failure)),
                    Ok(Answered::Untouched(..)) => Answer::NotHere,
                }
            }
            Ask::Start { id } => match timeout(left, door.ensure_here(&id)).await {
                Ok(Ok(Some(_))) => Answer::Started,
                Ok(Ok(None) | Err(_)) => Answer::NotHere,
                Err(_) => late(),
            },
            Ask::Inspect { id } => Answer::Inspected(door.inspect(&id).await.map(Box::new)),
            Ask::Look { id } => Answer::Looked(door.look_here(&id).await.map(Box::new)),
            Ask::Actors { after, limit } => {
                Answer::Rows(door.rows_here(after.as_deref(), limit).await)
            }
            Ask::Kill { id } => Answer::Killed(door.kill_here(&id).await),
            Ask::Retry { id } => Answer::Retried(door.retry_here(&id).await),
            Ask::LetGo { id, to, force } => Answer::Parted(door.let_go_here(&id, to, force).await),
            Ask::Drain => {
                begin_drain(&self.state);
                Answer::Noted
            }
            Ask::Tell(told) => match self.hub.hear(&from, told) {
                true => Answer::Noted,
                false => Answer::NotHere,
            },
        }
    }
}

fn encode(answer: &Answer) -> Vec<u8> {
    let written = serde_json::to_vec(answer).ok().filter(|bytes| bytes.len() <= LARGEST);
    // A unit is always written.
    written.unwrap_or_else(|| serde_json::to_vec(&Answer::TooLarge).unwrap_or_default())
}

fn late() -> Answer {
    metrics::counter!("abide_late_messages_total").increment(1);
    Answer::Late
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
