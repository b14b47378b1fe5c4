//! What is written about a repair: its entry in the operators' audit, its event in the journal of the
//! conversation, and its answer for a repeat.

use std::sync::Arc;
use std::time::Duration;

use abide_actors::journal::{RESPONSE_TTL, ResponseScope, StoredResponse};
use abide_actors::request::{IdempotencyKey, Request};
use abide_conversation::event::Operated;
use abide_conversation::identity::Identity;
use abide_conversation::{CallId, ConversationId, Principal, Scoped, Timestamp};
use serde::Serialize;
use serde_json::{Value, json};

use super::Admin;
use super::scoped_id::conversation;
use crate::access::Allowed;
use crate::access::permission::Operate;
use crate::http::extract::{Idempotency, canonical, fingerprint};
use crate::operations::Act;
use crate::problem::Problem;

/// How long the journal may keep a repair waiting: the actor may be what hangs.
const JOURNAL_TIMEOUT: Duration = Duration::from_secs(2);
/// The longest reason: the journal keeps it for ever.
const MAX_REASON_CHARS: usize = 500;

/// What an operator does about a conversation.
#[derive(Debug)]
pub(super) enum RepairVerb {
    Retry,
    Fail(CallId),
    Cancel,
    Move,
    Release,
    Kill,
}

impl RepairVerb {
    /// As the journal has it.
    fn name(&self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Fail(_) => "fail",
            Self::Cancel => "cancel",
            Self::Move => "move",
            Self::Release => "release",
            Self::Kill => "kill",
        }
    }

    /// As the operators' audit has it.
    fn operation(&self) -> &'static str {
        match self {
            Self::Retry => "conversation.retry",
            Self::Fail(_) => "conversation.fail",
            Self::Cancel => "conversation.cancel",
            Self::Move => "conversation.move",
            Self::Release => "conversation.release",
            Self::Kill => "conversation.kill",
        }
    }
}

/// A repair of one conversation.
pub(super) struct Repair<'a> {
    admin: &'a Admin,
    allowed: &'a Allowed<Operate>,
    id: Scoped<ConversationId>,
    verb: RepairVerb,
    reason: Option<String>,
    key: Option<IdempotencyKey>,
}

impl<'a> Repair<'a> {
    /// A repair of a conversation that exists, perhaps, for a reason that is checked.
    pub(super) fn new(
        admin: &'a Admin,
        allowed: &'a Allowed<Operate>,
        id: &str,
        verb: RepairVerb,
        reason: Option<&str>,
    ) -> Result<Self, Problem> {
        let id = conversation(allowed, id)?;
        if reason.is_some_and(|reason| !(1..=MAX_REASON_CHARS).contains(&reason.chars().count())) {
            let rule = format!("must be 1 to {MAX_REASON_CHARS} characters");
            return Err(Problem::field("reason", rule));
        }
        let reason = reason.map(str::to_owned);
        Ok(Self { admin, allowed, id, verb, reason, key: None })
    }

    /// Lets a repeat under the same `Idempotency-Key` get the first answer.
    pub(super) fn repeatable(self, idempotency: &Idempotency, body: &impl Serialize) -> Self {
        let call = match &self.verb {
            RepairVerb::Fail(call) => call.as_str(),
            RepairVerb::Retry
            | RepairVerb::Cancel
            | RepairVerb::Move
            | RepairVerb::Release
            | RepairVerb::Kill => "",
        };
        let body = canonical(&json!(body));
        let parts = ["repair", self.verb.name(), self.id.as_str(), call, &body];
        let key = idempotency.keys(self.allowed, fingerprint(&parts)).pop();
        let key =
            key.map(|key| IdempotencyKey { key: format!("repair:{}:{}", self.id, key.key), ..key });
        Self { key, ..self }
    }

    pub(super) fn id(&self) -> &Scoped<ConversationId> {
        &self.id
    }

    /// Who does it.
    pub(super) fn author(&self) -> (Principal, Option<Arc<Identity>>) {
        (self.allowed.operator(), self.allowed.identity().cloned().map(Arc::new))
    }

    /// The answer to the first request under the key; `None` if this is the first.
    pub(super) async fn first_answer(&self) -> Result<Option<Value>, Problem> {
        let Some(key) = &self.key else { return Ok(None) };
        let now = self.admin.clock.now();
        let stored = self.admin.store.stored_response(&self.scope(), &key.key, now).await?;
        match stored {
            Some(first) if first.fingerprint == key.fingerprint => Ok(Some(first.body)),
            Some(_) => Err(Problem::field(&key.field, "was used for another request")),
            None => Ok(None),
        }
    }

    /// Keeps the answer for repeats, and returns it.
    pub(super) async fn keep(&self, answer: Value) -> Result<Value, Problem> {
        let Some(key) = &self.key else { return Ok(answer) };
        let now = self.admin.clock.now();
        let response = StoredResponse {
            key: key.key.clone(),
            fingerprint: key.fingerprint.clone(),
            body: answer.clone(),
            expires_at: now.checked_add(RESPONSE_TTL).unwrap_or(Timestamp::MAX),
        };
        self.admin.store.reserve(&self.scope(), response, now).await?;
        Ok(answer)
    }

    /// Writes the entry of the operators' audit. What does not exist leaves none.
    pub(super) async fn record(&self, body: &impl Serialize) -> Result<(), Problem> {
        if self.admin.store.summary(&self.id).await?.is_none() {
            return Err(Problem::not_found("conversation"));
        }
        let act = Act::on(self.allowed, self.verb.operation(), &self.id).with_request(body);
        self.admin.operations.record(act).await
    }

    /// Writes into the journal if the conversation has an actor that takes requests. Returns whether
    /// the journal has it.
    pub(super) async fn journal_if_live(&self) -> bool {
        let details = self.admin.conversations.get_actor(&self.id);
        let details = tokio::time::timeout(JOURNAL_TIMEOUT, details).await;
        let is_live = match details {
            Ok(Ok(Some(details))) => details.live.is_some() && details.quarantined.is_none(),
            Ok(Ok(None) | Err(_)) | Err(_) => false,
        };
        is_live && self.journal().await
    }

    /// Writes into the journal, and starts the conversation if necessary. Returns whether the journal
    /// has it: a conversation that cannot be reached is repaired all the same.
    pub(super) async fn journal(&self) -> bool {
        let (by, identity) = self.author();
        let (verb, reason) = (self.verb.name().to_owned(), self.reason.clone());
        let request = Request::Operate(Operated { by, identity, verb, reason });
        let delivered = self.admin.conversations.deliver(&self.id, request, Vec::new());
        let failure = match tokio::time::timeout(JOURNAL_TIMEOUT, delivered).await {
            Ok(Ok(_)) => return true,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "the conversation did not answer in time".to_owned(),
        };
        tracing::warn!(
            conversation = %self.id, verb = self.verb.name(), reason = failure,
            "repair not journalled"
        );
        false
    }

    /// The answers of repairs are not the conversation's own: it may be unable to keep any.
    fn scope(&self) -> ResponseScope {
        ResponseScope::Creations(self.id.tenant())
    }
}
