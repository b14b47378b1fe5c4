//! Sends what a request says to its conversation: a message, or answers.

use std::time::Duration;

use abide_actors::request::IdempotencyKey;
use abide_conversation::state::ConversationStatus;
use abide_conversation::{ConversationId, Scoped, Seq};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::answers;
use super::input::Input;
use super::models::Model;
use crate::access::Allowed;
use crate::access::permission::Send;
use crate::http::extract::{self, Idempotency};
use crate::http::messages::{self, BusyPolicy, NewMessage};
use crate::http::protocol_requests::is_repeat;
use crate::http::{Api, creation};
use crate::problem::Problem;

/// How long a repeat without an `Idempotency-Key` is recognised at least: clients send a request again
/// by themselves within seconds. Divided into windows, of which a request counts for several.
const REPEAT_WINDOW: Duration = Duration::from_secs(30);
const REPEAT_WINDOWS: u64 = 3;

/// What an application adds for this API.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AbideOptions {
    #[serde(default, deserialize_with = "messages::without_steer")]
    pub(super) if_busy: Option<BusyPolicy>,
    pub(super) on_wait: Option<OnWait>,
}

/// What a completion does while its turn waits for people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum OnWait {
    /// It says so, and ends.
    #[default]
    Say,
    Wait,
}

/// The message of a request, apart from its content.
pub(super) struct Turn {
    pub(super) if_busy: BusyPolicy,
    /// A JSON Schema of the answer.
    pub(super) schema: Option<Value>,
    pub(super) tools: Vec<Value>,
    /// Blocks with the client's instructions.
    pub(super) context: Vec<Value>,
}

/// Where a request goes, and how a repeat of it is recognised.
pub(super) struct Target {
    pub(super) id: Scoped<ConversationId>,
    pub(super) keys: Vec<IdempotencyKey>,
    /// Whether the request was carried out before.
    is_repeat: bool,
}

impl Target {
    /// The conversation that a request names. A request without a key is recognised by its body.
    pub(super) async fn named(
        api: &Api,
        allowed: &Allowed<Send>,
        id: Scoped<ConversationId>,
        (idempotency, fingerprint, body): (&Idempotency, String, &Value),
    ) -> Result<Self, Problem> {
        let keys = if idempotency.is_given() {
            idempotency.keys(allowed, fingerprint)
        } else {
            keys_of_body(api, allowed, body)
        };
        let is_repeat = is_repeat(api, &id, &keys).await?;
        Ok(Self { id, keys, is_repeat })
    }

    /// A new conversation: the one that the request's key stands for, if it has one. Without a key a
    /// repeat begins another conversation: two people may say the same.
    pub(super) async fn new(
        api: &Api,
        allowed: &Allowed<Send>,
        prefix: &str,
        (idempotency, fingerprint): (&Idempotency, String),
    ) -> Result<Self, Problem> {
        let id = allowed.new_conversation(&api.clock.id(prefix))?;
        let keys = idempotency.keys(allowed, fingerprint);
        let id = creation::reserved(api, id, &keys).await?;
        Ok(Self { id, keys, is_repeat: false })
    }

    /// Sends what the request says, and returns the event that it begins with.
    pub(super) async fn send(
        self,
        api: &Api,
        allowed: &Allowed<Send>,
        (model, input, turn): (Model, Input, Turn),
    ) -> Result<Seq, Problem> {
        let Self { id, keys, is_repeat } = self;
        match input {
            Input::Answers(given) => {
                let allowed = allowed.with()?;
                answers::deliver(api, &allowed, &id, (given, is_repeat), keys).await
            }
            Input::Message { content, .. } => {
                let message = NewMessage {
                    text: None,
                    content: Some(content),
                    message_id: None,
                    agent: Some(model.name.to_string()),
                    if_busy: Some(turn.if_busy),
                    schema: turn.schema,
                    assigns: Map::new(),
                    tools: turn.tools,
                    context: turn.context,
                    deliver_in: None,
                    deliver_at: None,
                };
                Ok(messages::deliver(api, allowed, &id, message, keys).await?.seq)
            }
        }
    }
}

/// The keys of a request without one: those of its body, in the present window and the ones before.
/// Each caller has keys of its own.
fn keys_of_body(api: &Api, allowed: &Allowed<Send>, body: &Value) -> Vec<IdempotencyKey> {
    let subject = allowed.subject().unwrap_or_default();
    let fingerprint = extract::fingerprint(&[subject, &extract::canonical(body)]);
    let window =
        u64::try_from(api.clock.now().as_second()).unwrap_or_default() / REPEAT_WINDOW.as_secs();
    let windows = window.saturating_sub(REPEAT_WINDOWS - 1)..=window;
    let key = |window| IdempotencyKey {
        key: format!("body:{fingerprint}:{window}"),
        fingerprint: fingerprint.clone(),
        field: "input".into(),
    };
    windows.map(key).collect()
}

/// The id of a conversation in a request: an id, or an object with one.
pub(super) fn conversation_name(value: &Value) -> Result<Option<String>, Problem> {
    let id = if value.is_object() { &value["id"] } else { value };
    match id {
        Value::Null if value.is_null() => Ok(None),
        Value::String(id) => Ok(Some(id.clone())),
        _ => Err(Problem::field("conversation", "must be an id, or an object with an id")),
    }
}

/// What to do with a message unless its client says so: it supersedes a turn that waits for somebody.
pub(super) async fn superseding(
    api: &Api,
    id: &Scoped<ConversationId>,
) -> Result<BusyPolicy, Problem> {
    let state = api.conversations.unscoped().stored_state(id).await?.unwrap_or_default();
    Ok(match state.status() {
        ConversationStatus::AwaitingInput => BusyPolicy::Interrupt,
        ConversationStatus::Idle
        | ConversationStatus::Preparing
        | ConversationStatus::Streaming
        | ConversationStatus::ExecutingTools => BusyPolicy::Reject,
    })
}
