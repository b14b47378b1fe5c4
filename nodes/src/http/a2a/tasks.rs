//! Tasks that exist: found, read, followed, cancelled.

use abide_conversation::event::{Event, EventData, UserMsg};
use abide_conversation::{ConversationId, Scoped, Seq, State, TurnId};
use axum::response::Response;

use super::Request;
use super::task_response::{TaskForm, TaskResponse};
use crate::access::Allowed;
use crate::access::permission::{Cancel, Read};
use crate::http::Api;
use crate::http::extract::fingerprint;
use crate::http::protocol_requests::{cancel_turn, conversation};
use crate::http::turn_stream::find_in_turn;
use crate::problem::Problem;
use crate::protocols::a2a::decode::TaskParams;
use crate::protocols::a2a::encoder::{TaskHead, TellUntil};
use crate::protocols::a2a::parts;
use crate::protocols::a2a::rpc::RpcError;
use crate::protocols::a2a::task::message;
use crate::protocols::task_id::TaskId;

/// How many events are read at a time in search of a message.
const EVENTS_PER_SEARCH: usize = 100;
/// The most events between a message and its turn that are searched.
const MAX_SEARCHED_EVENTS: usize = 20_000;

/// A task, and where it is.
pub(super) struct Task {
    pub(super) id: Scoped<ConversationId>,
    pub(super) head: TaskHead,
    /// The event before the first of the task.
    pub(super) after: Seq,
}

/// How far the turn of a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It waits for the turns before it.
    Queued,
    Open,
    Over,
}

impl Progress {
    /// How far the turn is in this state, if the conversation has it.
    pub(super) fn of(turn: &TurnId, state: &State) -> Self {
        if state.turn.as_ref().is_some_and(|open| open.id == *turn) {
            Self::Open
        } else if state.queue.iter().any(|queued| queued.id == *turn) {
            Self::Queued
        } else {
            Self::Over
        }
    }
}

fn missing() -> Problem {
    Problem::not_found("task")
}

impl Task {
    /// The task with this id, for a caller who may read its conversation, and the conversation's state.
    pub(super) async fn find(
        api: &Api,
        allowed: &Allowed<Read>,
        (agent, id): (&str, &str),
    ) -> Result<(Self, State), Problem> {
        let task = TaskId::parse(id).ok_or_else(missing)?;
        let id = allowed.conversation(task.conversation.as_str()).map_err(|_| missing())?;
        let state = conversation(api, allowed, &id, agent).await;
        let state =
            state.map_err(|problem| if problem.is_not_found() { missing() } else { problem })?;
        let began = find_in_turn(api, &id, &task.turn, is_message).await?.ok_or_else(missing)?;
        let message = if is_message(&began) {
            None
        } else {
            message_of(api, &id, &task.turn, began.seq).await?
        };
        let began = message.unwrap_or(began);
        Ok((Self::begun_with(&id, task, &began), state))
    }

    /// The task that begins with the message at this place.
    pub(super) async fn sent(
        api: &Api,
        id: &Scoped<ConversationId>,
        (turn, seq): (TurnId, Seq),
    ) -> Result<Self, Problem> {
        let events = api.store.events(id, seq.saturating_sub(1), 1).await?;
        let began = events.into_iter().next().ok_or_else(missing)?;
        let task = TaskId { turn, conversation: id.local() };
        Ok(Self::begun_with(id, task, &began))
    }

    fn begun_with(id: &Scoped<ConversationId>, task: TaskId, began: &Event) -> Self {
        let message = match &began.data {
            EventData::UserMsg(user) => Some(user_message(&task, user)),
            _ => None,
        };
        let head = TaskHead { id: task, message, submitted_at: began.at };
        Self { id: id.clone(), head, after: began.seq.saturating_sub(1) }
    }
}

fn is_message(event: &Event) -> bool {
    matches!(event.data, EventData::UserMsg(_))
}

/// The message of a turn that has started at this place. One that was queued is far before it.
async fn message_of(
    api: &Api,
    id: &Scoped<ConversationId>,
    turn: &TurnId,
    mut before: Seq,
) -> Result<Option<Event>, Problem> {
    for _ in 0..MAX_SEARCHED_EVENTS / EVENTS_PER_SEARCH {
        let events = api.store.events_before(id, before, EVENTS_PER_SEARCH).await?;
        let Some(oldest) = events.last().map(|event| event.seq) else { return Ok(None) };
        let is_own = |event: &Event| is_message(event) && event.turn_id.as_ref() == Some(turn);
        if let Some(found) = events.into_iter().find(is_own) {
            return Ok(Some(found));
        }
        before = oldest;
    }
    Ok(None)
}

/// The message of a user, as a client reads it.
fn user_message(task: &TaskId, user: &UserMsg) -> serde_json::Value {
    let id = user.message_id.as_deref().unwrap_or(user.message.id.as_str());
    let parts = user.message.content.iter().map(parts::of_block).collect();
    message(task, "ROLE_USER", id, parts)
}

impl Request<'_> {
    /// Reads a task.
    pub(super) async fn get_task(self) -> Result<Response, Problem> {
        let params = TaskParams::parse(&self.call.params)?;
        let (task, _) = Task::find(self.api, self.allowed, (self.agent, &params.id)).await?;
        self.current(task, params.history_length).await
    }

    /// Cancels a task that is not over. One that has not begun never begins.
    pub(super) async fn cancel_task(self) -> Result<Response, Problem> {
        let params = TaskParams::parse(&self.call.params)?;
        let canceller: Allowed<Cancel> = self.allowed.with()?;
        let (task, state) = Task::find(self.api, self.allowed, (self.agent, &params.id)).await?;
        let turn = &task.head.id.turn;
        let keys = self.idempotency.keys(&canceller, fingerprint(&["cancel", &params.id]));
        let is_over = Progress::of(turn, &state) == Progress::Over;
        if is_over || !cancel_turn(self.api, &canceller, (&task.id, turn), keys).await? {
            return Err(Problem::a2a(RpcError::TaskNotCancelable, "the task is over"));
        }
        let Self { api, allowed, call, .. } = self;
        TaskResponse::new(api, allowed, call, task).current(params.history_length).await
    }

    /// Tells a task as it is, and then what happens in it.
    pub(super) async fn subscribe(self) -> Result<Response, Problem> {
        let params = TaskParams::parse(&self.call.params)?;
        let (task, state) = Task::find(self.api, self.allowed, (self.agent, &params.id)).await?;
        if Progress::of(&task.head.id.turn, &state) == Progress::Over {
            let why = "the task is over: read it with GetTask";
            return Err(Problem::a2a(RpcError::UnsupportedOperation, why));
        }
        let permit = self.api.access.open_stream(&task.id.tenant())?;
        let Self { api, allowed, call, .. } = self;
        let form = TaskForm::Stream(TellUntil::End, permit);
        TaskResponse::new(api, allowed, call, task).tell(form, None).await
    }

    async fn current(self, task: Task, history: Option<u32>) -> Result<Response, Problem> {
        let Self { api, allowed, call, .. } = self;
        TaskResponse::new(api, allowed, call, task).current(history).await
    }
}
