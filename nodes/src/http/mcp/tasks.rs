//! Calls that go on as tasks, for clients with the protocol's extension for work that takes long. A
//! task is a turn: it outlives the request, the connection and the node.

use std::time::Duration;

use abide_actors::request::ResolveRequest;
use abide_conversation::State;
use abide_conversation::event::{Event, EventData};
use rmcp::RoleServer;
use rmcp::model::{
    CallToolResult, CancelTaskParams, CreateTaskResult, DetailedTask, GetTaskResult, InputRequests,
    JsonObject, Task, TaskPayload, TaskStatus, UpdateTaskParams,
};
use rmcp::service::RequestContext;
use serde_json::Value;

use super::agent_call::{can_ask, questions, speaks_current};
use super::call_turn::CallTurn;
use super::caller::{CallError, Caller, Tools};
use super::follow::{CallOutcome, Patience, follow};
use crate::access::permission::{Answer, Cancel, Read};
use crate::http::answers::{GivenAnswer, give};
use crate::http::extract::fingerprint;
use crate::http::protocol_requests::cancel_turn;
use crate::http::turn_stream::{TurnStream, find_in_turn};
use crate::problem::Problem;
use crate::protocols::feed::{Feed, parse_suspension_id};
use crate::protocols::mcp::agent_turn::AgentTurn;
use crate::protocols::mcp::question::Question;
use crate::protocols::task_id::TaskId;

/// How long the call of a client that has tasks is held.
pub(super) const HOLD: Duration = Duration::from_secs(10);
/// How often a client is to ask how far a task is.
const POLL_INTERVAL_MS: u64 = 2_000;

/// Whether the client can take a task for a result.
pub(super) fn has_tasks(context: &RequestContext<RoleServer>) -> bool {
    let declares = context.client_capabilities().is_some_and(|client| client.supports_tasks());
    declares && speaks_current(context)
}

/// The task that a call goes on as.
pub(super) async fn create(
    caller: &Caller,
    turn: &CallTurn,
) -> Result<CreateTaskResult, CallError> {
    let id = TaskId { turn: turn.turn.clone(), conversation: turn.id.local() };
    let found = Found::new(caller, id).await?;
    Ok(CreateTaskResult::new(found.task(caller).await?))
}

/// How far a task is.
pub(super) async fn get(
    caller: &Caller,
    id: &str,
    context: &RequestContext<RoleServer>,
) -> Result<GetTaskResult, CallError> {
    let found = Found::parse(caller, id).await?;
    let mut task = found.task(caller).await?;
    let payload = match found.outcome(caller, context).await? {
        CallOutcome::End(ended) => ended_payload(&ended, &found.turn)?,
        CallOutcome::Running => TaskPayload::Working,
        CallOutcome::Rest(open) => match questions(&open).filter(|_| can_ask(context)) {
            Some(questions) => {
                let requests = questions.into_iter().map(|(id, (_, request))| (id, request));
                let input_requests: InputRequests = requests.collect();
                TaskPayload::InputRequired { input_requests }
            }
            None => {
                let waits = found.turn.ids(&found.turn.id.local()).waiting(&open);
                task.status_message = waits.content.first().and_then(text);
                TaskPayload::Working
            }
        },
    };
    Ok(GetTaskResult::new(DetailedTask::new(task, payload)))
}

/// Delivers what the person behind the client has answered. A late answer is no error.
pub(super) async fn update(
    caller: &Caller,
    params: UpdateTaskParams,
    context: &RequestContext<RoleServer>,
) -> Result<(), CallError> {
    let found = Found::parse(caller, &params.task_id).await?;
    let open = match found.outcome(caller, context).await? {
        CallOutcome::Rest(open) => open,
        CallOutcome::End(_) | CallOutcome::Running => Vec::new(),
    };
    let by = caller.allowed.principal();
    let mut answers = Vec::new();
    for (id, response) in &params.input_responses {
        let name = format!("inputResponses.{id}");
        let Some((call, suspension)) = parse_suspension_id(id) else {
            return Err(CallError::parameter(&name, "was not asked"));
        };
        let asked = open.iter().find(|open| open.id() == *id && open.may_answer);
        let Some((question, _)) = asked.and_then(Question::about) else { continue };
        let answer = question.answer(response);
        let answer =
            answer.map_err(|(field, why)| CallError::parameter(&format!("{name}.{field}"), why))?;
        let (suspension, by) = (Some(suspension), by.clone());
        let request = ResolveRequest { call, suspension, by, answer, remember: None };
        answers.push(GivenAnswer { value_at: format!("{name}.content"), at: name, request });
    }
    if !answers.is_empty() {
        let answerer = caller.allowed.with::<Answer>()?;
        let of = (&found.turn.id, &found.state);
        give(&caller.api, &answerer, of, answers, Vec::new()).await?;
    }
    Ok(())
}

/// Cancels the turn of a task, also one that has not begun. One that is over stays as it is.
pub(super) async fn cancel_task(
    caller: &Caller,
    params: CancelTaskParams,
) -> Result<(), CallError> {
    let canceller = caller.allowed.with::<Cancel>()?;
    let found = Found::parse(caller, &params.task_id).await?;
    let fingerprint = fingerprint(&["cancel", &params.task_id]);
    let keys = caller.idempotency.clone().keys(&canceller, fingerprint);
    cancel_turn(&caller.api, &canceller, (&found.turn.id, &found.turn.turn), keys).await?;
    Ok(())
}

/// A task that the caller may read.
struct Found {
    id: TaskId,
    turn: CallTurn,
    began: Event,
    state: State,
}

impl Found {
    async fn parse(caller: &Caller, id: &str) -> Result<Self, CallError> {
        Self::new(caller, TaskId::parse(id).ok_or_else(missing)?).await
    }

    async fn new(caller: &Caller, task: TaskId) -> Result<Self, CallError> {
        let api = &caller.api;
        let reader = caller.allowed.with::<Read>()?;
        let id = reader.conversation(task.conversation.as_str()).map_err(|_| missing())?;
        let state = api.conversations.state(&reader, &id).await.map_err(or_missing)?;
        let agent = state.agent.clone().ok_or_else(missing)?;
        if matches!(&caller.tools, Tools::Of(only) if *only != agent) {
            return Err(missing());
        }
        let began = find_in_turn(api, &id, &task.turn, is_message).await?.ok_or_else(missing)?;
        let turn = CallTurn { id, turn: task.turn.clone(), from: began.seq };
        Ok(Self { id: task, turn, began, state })
    }

    /// The task, which still works as far as this says.
    async fn task(&self, caller: &Caller) -> Result<Task, Problem> {
        let last = caller.api.store.events_before(&self.turn.id, self.state.seq.next(), 1).await?;
        let updated_at = last.first().map_or(self.began.at, |last| last.at).to_string();
        let (id, created_at) = (self.id.to_string(), self.began.at.to_string());
        let task = Task::new(id, TaskStatus::Working, created_at, updated_at);
        Ok(task.with_poll_interval_ms(POLL_INTERVAL_MS))
    }

    /// What the turn has come to by now.
    async fn outcome(
        &self,
        caller: &Caller,
        context: &RequestContext<RoleServer>,
    ) -> Result<CallOutcome, Problem> {
        let api = &caller.api;
        let reader = caller.allowed.with::<Read>()?;
        let permit = api.access.open_stream(&reader.tenant())?;
        let feed = Feed::new(self.turn.turn.clone(), self.turn.from.saturating_sub(1));
        let stream = TurnStream::open(api, &reader, (&self.turn.id, permit), feed).await?;
        follow(api, stream, context, Patience::None).await
    }
}

/// A turn that is queued has nothing else.
fn is_message(event: &Event) -> bool {
    matches!(event.data, EventData::UserMsg(_))
}

fn missing() -> CallError {
    CallError::parameter("taskId", "names no task")
}

fn or_missing(problem: Problem) -> CallError {
    if problem.is_not_found() { missing() } else { problem.into() }
}

/// What a client is told of a turn that has ended. A call that has failed has a result, which says so.
fn ended_payload(ended: &AgentTurn, turn: &CallTurn) -> Result<TaskPayload, CallError> {
    if ended.is_cancelled() {
        return Ok(TaskPayload::Cancelled);
    }
    let conversation = turn.id.local();
    let result: CallToolResult = ended.result(turn.ids(&conversation)).ok_or_else(missing)?;
    match serde_json::to_value(result) {
        Ok(Value::Object(result)) => Ok(TaskPayload::Completed { result }),
        Ok(_) | Err(_) => Ok(TaskPayload::Completed { result: JsonObject::new() }),
    }
}

fn text(block: &rmcp::model::ContentBlock) -> Option<String> {
    block.as_text().map(|text| text.text.clone())
}
