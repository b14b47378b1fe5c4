//! Requests to simulated conversations, and what becomes of them.

use abide_conversation::erase::SubjectAlias;
use abide_conversation::{Action, ConversationId, Rejection, Scoped, Seq};

use crate::executor::OneShot;

/// A request to a conversation, with its idempotency key.
#[derive(Clone)]
pub struct Request {
    pub ask: Ask,
    pub key: Option<String>,
}

/// What a request wants.
#[derive(Clone)]
#[allow(clippy::large_enum_variant, reason = "few exist at once")]
pub enum Ask {
    Act(Action),
    Delete,
    /// Begins the conversation with a copy of another.
    Fork(Scoped<ConversationId>),
    /// Puts an alias in the place of a person.
    Erase(SubjectAlias),
}

impl From<Action> for Request {
    fn from(action: Action) -> Self {
        Self { ask: Ask::Act(action), key: None }
    }
}

impl Request {
    /// Whether the request creates its conversation.
    pub fn creates(&self) -> bool {
        let creates =
            |it: &Action| matches!(it, Action::Send(_) | Action::Spawn(_) | Action::Schedule(_));
        match &self.ask {
            Ask::Act(action) => creates(action),
            Ask::Fork(_) => true,
            Ask::Delete | Ask::Erase(_) => false,
        }
    }

    /// Whether it may be carried out twice without harm.
    pub fn is_repeatable(&self) -> bool {
        self.key.is_some()
            || matches!(
                self.ask,
                Ask::Erase(_)
                    | Ask::Act(
                        Action::Wake
                            | Action::Spawn(_)
                            | Action::ChildEnded(_)
                            | Action::Abandon(_)
                    )
            )
    }
}

/// What became of a request.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "the trace prints why a request failed")]
pub enum Outcome {
    /// Carried out; the `seq` of the last journalled event.
    Done(Seq),
    Rejected(Rejection),
    /// Certainly not carried out by this actor.
    Untouched,
    /// It is unknown whether the request was carried out.
    Lost,
    Unavailable(&'static str),
}

/// A request in a mailbox. A request that is dropped untaken comes back untouched; one that is
/// dropped after it was taken counts as lost.
pub struct Delivery {
    /// `None` once it was taken.
    pub(super) request: Option<Request>,
    pub(super) reply: OneShot<Outcome>,
}

impl Delivery {
    pub fn new(request: Request, reply: OneShot<Outcome>) -> Self {
        Self { request: Some(request), reply }
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        self.reply.send(if self.request.is_none() { Outcome::Lost } else { Outcome::Untouched });
    }
}
