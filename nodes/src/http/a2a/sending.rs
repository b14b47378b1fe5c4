//! Messages: those that begin a task, and those that answer what a task asks.

use abide_actors::request::IdempotencyKey;
use abide_conversation::command::IfBusy;
use abide_conversation::state::ConversationStatus;
use abide_conversation::{ConversationId, Scoped};
use axum::response::Response;
use serde_json::{Map, Value};

use super::task_response::{TaskForm, TaskResponse};
use super::tasks::{Progress, Task};
use super::{Request, push_not_supported};
use crate::access::Allowed;
use crate::access::permission::Send;
use crate::http::creation;
use crate::http::extract::{canonical, fingerprint};
use crate::http::messages::{self, BusyPolicy, NewMessage};
use crate::problem::Problem;
use crate::protocols::a2a::decode::SendParams;
use crate::protocols::a2a::encoder::TellUntil;
use crate::protocols::a2a::parts::Part;
use crate::protocols::a2a::rpc::RpcError;

/// What the ids of conversations begin with whose first message names none.
const CONTEXT_PREFIX: &str = "ctx";

impl Request<'_> {
    /// Sends a message, and tells its task.
    pub(super) async fn send(self, streams: bool) -> Result<Response, Problem> {
        let params = SendParams::parse(&self.call.params)?;
        if params.wants_push {
            return Err(push_not_supported());
        }
        let permit =
            if streams { self.api.access.open_stream(&self.allowed.tenant())? } else { None };
        let history = params.history_length;
        let is_waited_for = !params.returns_immediately;
        let (task, may_wait) = match params.task.clone() {
            Some(task) => (self.answer(&task, params).await?, true),
            None => self.begin(params).await?,
        };
        let form = if streams {
            TaskForm::Stream(TellUntil::Question, permit)
        } else if is_waited_for && may_wait {
            TaskForm::AtRest
        } else {
            TaskForm::Now
        };
        let Self { api, allowed, call, .. } = self;
        TaskResponse::new(api, allowed, call, task).tell(form, history).await
    }

    /// Sends a message that begins a task. Returns whether waiting for it makes sense: a task before it
    /// may wait for people.
    async fn begin(&self, params: SendParams) -> Result<(Task, bool), Problem> {
        let sender: Allowed<Send> = self.allowed.with()?;
        let content: Vec<Value> = params.parts.into_iter().map(Part::into_block).collect();
        let digest = self.digest(&sender, (&params.message_id, &content));
        let id = match &params.context {
            Some(context) => named(&sender, context)?,
            None => self.new_context(&sender, digest).await?,
        };
        let message = NewMessage {
            text: None,
            content: Some(content),
            message_id: Some(params.message_id),
            agent: Some(self.agent.to_owned()),
            if_busy: Some(match params.if_busy {
                IfBusy::Reject => BusyPolicy::Reject,
                IfBusy::Queue => BusyPolicy::Queue,
                IfBusy::Interrupt => BusyPolicy::Interrupt,
                IfBusy::Steer => BusyPolicy::Steer,
            }),
            schema: None,
            assigns: Map::new(),
            tools: Vec::new(),
            context: Vec::new(),
            deliver_in: None,
            deliver_at: None,
        };
        let keys = self.idempotency.keys(&sender, self.fingerprint.clone());
        let sent = messages::deliver(self.api, &sender, &id, message, keys).await;
        let sent = sent.map_err(in_terms_of_the_protocol)?;
        let turn = sent.turn_id;
        let state = self.api.conversations.unscoped().stored_state(&id).await?.unwrap_or_default();
        let is_behind = Progress::of(&turn, &state) == Progress::Queued
            && state.status() == ConversationStatus::AwaitingInput;
        let task = Task::sent(self.api, &id, (turn, sent.seq)).await?;
        Ok((task, !is_behind))
    }

    /// What a repeat of a message is recognised by, without a context.
    fn digest(&self, sender: &Allowed<Send>, (id, content): (&str, &[Value])) -> String {
        let content = canonical(&Value::Array(content.to_vec()));
        let subject = sender.subject().unwrap_or_default();
        fingerprint(&["a2a", subject, self.agent, id, &content])
    }

    /// The conversation of a message that names none: a new one, or that of the message before, of which
    /// this is a repeat.
    async fn new_context(
        &self,
        sender: &Allowed<Send>,
        digest: String,
    ) -> Result<Scoped<ConversationId>, Problem> {
        let id = sender.new_conversation(&self.api.clock.id(CONTEXT_PREFIX))?;
        let key = IdempotencyKey {
            key: format!("a2a:{digest}"),
            fingerprint: digest,
            field: "message.messageId".into(),
        };
        creation::reserved(self.api, id, &[key]).await
    }

    /// Gives the answers in a message to a task.
    async fn answer(&self, task: &str, params: SendParams) -> Result<Task, Problem> {
        let (task, state) = Task::find(self.api, self.allowed, (self.agent, task)).await?;
        if params.context.is_some_and(|context| context != task.id.local().as_str()) {
            return Err(Problem::field("message.contextId", "is not the context of the task"));
        }
        let key = self.answer_key((&params.message_id, &params.parts));
        if self.is_repeat(&task, &key).await? {
            return Ok(task);
        }
        match Progress::of(&task.head.id.turn, &state) {
            Progress::Open => {}
            Progress::Queued => {
                let why = "message.taskId: the task has not begun, and takes no messages";
                return Err(Problem::a2a(RpcError::UnsupportedOperation, why));
            }
            Progress::Over => {
                let why = "message.taskId: the task is over; a message with only its contextId \
                           begins another";
                return Err(Problem::a2a(RpcError::UnsupportedOperation, why));
            }
        }
        self.give_answers(&task, &state, (params.parts, key)).await?;
        Ok(task)
    }
}

/// The conversation that a message names.
fn named(sender: &Allowed<Send>, context: &str) -> Result<Scoped<ConversationId>, Problem> {
    sender.new_conversation(context).map_err(|problem| match problem.field_name() {
        Some(_) => Problem::field("message.contextId", "must be [A-Za-z0-9_.:-]{1,128}"),
        None => problem,
    })
}

/// A problem of a message, with the names that A2A has for its fields.
fn in_terms_of_the_protocol(problem: Problem) -> Problem {
    match problem.field_name() {
        Some("agent") => Problem::field("message.contextId", "is a context of another agent"),
        Some("message_id") => {
            Problem::field("message.messageId", "was used for another message of the context")
        }
        Some(field) if field.starts_with("content") => problem.renamed("content", "message.parts"),
        _ => problem,
    }
}
