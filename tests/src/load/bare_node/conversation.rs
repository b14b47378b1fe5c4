//! A conversation of the bare node: a supervised actor that folds a recorded turn, commits it and writes
//! its frames, and whose activities do nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use abide_actors::journal::{Claim, Holder, StoreError};
use abide_conversation::{ConversationId, Scoped, State, wanted};
use abide_registry::store::Store;
use axum::body::Bytes;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};
use tokio::sync::mpsc::UnboundedSender;

use super::super::LoadError;
use super::recorded_turn::{RecordedCommit, commit};

/// What all conversations of the node have in common.
pub(super) struct Services {
    pub(super) store: Arc<dyn Store>,
    pub(super) me: Holder,
    pub(super) turn: Vec<RecordedCommit>,
    pub(super) committed: AtomicU64,
}

pub(super) type Reply = RpcReplyPort<Result<(), StoreError>>;

pub(super) enum Message {
    /// Replies once the message is stored.
    Send(Reply),
    /// Replies once the resolution is stored.
    Resolve(Reply),
    /// An activity has ended.
    Report,
}

impl ractor::Message for Message {}

pub(super) struct Arguments {
    pub(super) id: Scoped<ConversationId>,
    pub(super) services: Arc<Services>,
    pub(super) frames: UnboundedSender<Bytes>,
}

pub(super) struct Conversation;

pub(super) struct LiveConversation {
    id: Scoped<ConversationId>,
    services: Arc<Services>,
    frames: UnboundedSender<Bytes>,
    claim: Option<Claim>,
    state: State,
    /// How many of the turn's commits are made.
    committed: usize,
}

impl Actor for Conversation {
    type Msg = Message;
    type State = LiveConversation;
    type Arguments = Arguments;

    async fn pre_start(
        &self,
        _: ActorRef<Message>,
        Arguments { id, services, frames }: Arguments,
    ) -> Result<LiveConversation, ActorProcessingErr> {
        let (claim, state) = (None, State::default());
        Ok(LiveConversation { id, services, frames, claim, state, committed: 0 })
    }

    async fn handle(
        &self,
        myself: ActorRef<Message>,
        message: Message,
        conversation: &mut LiveConversation,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            Message::Send(reply) | Message::Resolve(reply) => {
                let committed = conversation.commit().await;
                let proceeds = committed.is_ok();
                // A client that has disconnected wants no answer.
                let _ = reply.send(committed);
                if proceeds {
                    conversation.proceed(&myself);
                } else {
                    myself.stop(None);
                }
            }
            Message::Report => {
                conversation.commit().await?;
                conversation.proceed(&myself);
            }
        }
        Ok(())
    }
}

impl LiveConversation {
    /// Makes the next commit of the turn.
    async fn commit(&mut self) -> Result<(), StoreError> {
        let Services { store, me, turn, committed } = &*self.services;
        let Some(RecordedCommit { events, .. }) = turn.get(self.committed) else { return Ok(()) };
        // Folded before it is stored: the actor ends if the store refuses.
        let commit = commit(&mut self.state, events.clone());
        let commit = commit.map_err(|LoadError(why)| StoreError::Unavailable(why))?;
        match &self.claim {
            Some(claim) => store.append(&self.id, claim, commit).await.map(drop)?,
            None => self.claim = Some(store.claim_and_append(&self.id, me, commit).await?),
        }
        committed.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Sends the frames of the commit that was made, and starts the activity that follows it. The actor
    /// ends with the turn.
    fn proceed(&mut self, myself: &ActorRef<Message>) {
        let Some(commit) = self.services.turn.get(self.committed) else { return };
        let frames = commit.encode_frames();
        if !frames.is_empty() {
            // A client that has disconnected gets no frames.
            let _ = self.frames.send(frames.into());
        }
        self.committed += 1;
        if !wanted(&self.state).is_empty() {
            let myself = myself.clone();
            // An actor that has ended needs no report.
            tokio::spawn(async move { myself.cast(Message::Report) });
        } else if self.committed == self.services.turn.len() {
            myself.stop(None);
        }
    }
}

/// The supervisor of the conversations, which lets them end.
pub(super) struct Supervisor;

impl Actor for Supervisor {
    type Msg = ();
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<()>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        _: ActorRef<()>,
        _: SupervisionEvent,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        Ok(())
    }
}
