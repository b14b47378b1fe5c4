//! The call of an agent: sends its message, or answers, and follows the turn.

use std::collections::BTreeMap;

use abide_conversation::AgentName;
use abide_conversation::event::{Event, EventData};
use rmcp::RoleServer;
use rmcp::model::{CallToolRequestParams, CallToolResponse, InputRequiredResult, ProtocolVersion};
use rmcp::service::RequestContext;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::answers;
use super::call_state::{CallInput, CallState, digest};
use super::call_turn::CallTurn;
use super::caller::{CallError, Caller};
use super::follow::{CallOutcome, MAX_WAIT, Patience, follow};
use super::tasks;
use crate::access::Allowed;
use crate::access::permission::{Read, Send};
use crate::http::creation::reserved;
use crate::http::extract;
use crate::http::messages::{self, BusyPolicy, NewMessage};
use crate::http::protocol_requests::{conversation, newest_turns};
use crate::http::turn_stream::{TurnStream, find_in_turn};
use crate::problem::Problem;
use crate::protocols::feed::{Feed, SuspendedCall};
use crate::protocols::mcp::question::Question;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct AgentArguments {
    message: String,
    conversation_id: Option<String>,
}

/// Calls an agent.
pub(super) async fn call(
    caller: &Caller,
    agent: &AgentName,
    request: CallToolRequestParams,
    context: &RequestContext<RoleServer>,
) -> Result<CallToolResponse, CallError> {
    let arguments = Value::Object(request.arguments.unwrap_or_default());
    let call = digest(agent.as_str(), &arguments);
    let arguments: AgentArguments = extract::deserialize(arguments)?;
    let allowed = caller.allowed.with::<Send>()?;
    // Nothing is done for a caller whom its outcome cannot be told.
    let reader = allowed.with::<Read>().map_err(|_| Problem::forbidden("read"))?;
    let permit = caller.api.access.open_stream(&allowed.tenant())?;
    let turn = match (request.request_state, request.input_responses) {
        (Some(state), responses) => {
            let state = CallState::open(caller, &state, &call).await?;
            answers::deliver(caller, agent, state, responses.unwrap_or_default()).await?
        }
        (None, Some(_)) => {
            return Err(CallError::parameter("requestState", "is missing beside inputResponses"));
        }
        (None, None) if arguments.message.trim().is_empty() => {
            attach(caller, &reader, agent, arguments.conversation_id).await?
        }
        (None, None) => send(caller, &allowed, agent, arguments, &call).await?,
    };
    let feed = Feed::new(turn.turn.clone(), turn.from.saturating_sub(1));
    let stream = TurnStream::open(&caller.api, &allowed, (&turn.id, permit), feed).await?;
    let has_tasks = tasks::has_tasks(context);
    let patience = Patience::For(if has_tasks { tasks::HOLD } else { MAX_WAIT });
    let outcome = follow(&caller.api, stream, context, patience).await?;
    let conversation = turn.id.local();
    let ids = turn.ids(&conversation);
    match outcome {
        CallOutcome::End(ended) => match ended.result(ids) {
            Some(result) => Ok(result.into()),
            None => Ok(ids.running().into()),
        },
        CallOutcome::Running if has_tasks => Ok(tasks::create(caller, &turn).await?.into()),
        CallOutcome::Running => Ok(ids.running().into()),
        CallOutcome::Rest(open) => match questions(&open) {
            Some(questions) if can_ask(context) => {
                ask(caller, &turn, questions, (&open, call)).await
            }
            Some(_) | None if has_tasks => Ok(tasks::create(caller, &turn).await?.into()),
            Some(_) | None => Ok(ids.waiting(&open).into()),
        },
    }
}

/// Sends a message.
async fn send(
    caller: &Caller,
    allowed: &Allowed<Send>,
    agent: &AgentName,
    arguments: AgentArguments,
    call: &str,
) -> Result<CallTurn, Problem> {
    let api = &caller.api;
    let keys = caller.idempotency.keys(allowed, call.to_owned());
    let id = match &arguments.conversation_id {
        Some(name) => {
            let id = with_argument_name(allowed.new_conversation(name))?;
            let summary = api.store.summary(&id).await?;
            if summary.is_some_and(|summary| summary.agent != *agent) {
                return Err(Problem::not_found("conversation"));
            }
            id
        }
        None => reserved(api, allowed.new_conversation(&api.clock.id("conv"))?, &keys).await?,
    };
    let message = NewMessage {
        text: Some(arguments.message),
        content: None,
        message_id: None,
        agent: Some(agent.as_str().to_owned()),
        if_busy: Some(BusyPolicy::Reject),
        schema: None,
        assigns: Map::new(),
        tools: Vec::new(),
        context: Vec::new(),
        deliver_in: None,
        deliver_at: None,
    };
    let sent = messages::deliver(api, allowed, &id, message, keys).await?;
    Ok(CallTurn { id, turn: sent.turn_id, from: sent.seq })
}

/// The problem with an id, by the name that the argument has here.
fn with_argument_name<T>(id: Result<T, Problem>) -> Result<T, Problem> {
    let rule = "must be 1 to 128 of A-Z a-z 0-9 _ . : -, and neither . nor ..";
    id.map_err(|problem| match problem.field_name() {
        Some(_) => Problem::field("conversation_id", rule),
        None => problem,
    })
}

/// The open turn of a conversation, or else its last.
async fn attach(
    caller: &Caller,
    allowed: &Allowed<Read>,
    agent: &AgentName,
    conversation_id: Option<String>,
) -> Result<CallTurn, Problem> {
    let empty = || Problem::field("message", "is empty, and there is no turn to go on with");
    let api = &caller.api;
    let id = allowed.conversation(&conversation_id.ok_or_else(empty)?)?;
    let state = conversation(api, allowed, &id, agent.as_str()).await?;
    let turn = match state.turn {
        Some(turn) => turn.id,
        None => {
            let starts = |event: &Event| matches!(event.data, EventData::TurnStarted(_));
            let events = newest_turns(api, &id, state.seq, 1).await?;
            let last = events.into_iter().rev().find(starts);
            last.and_then(|event| event.turn_id).ok_or_else(empty)?
        }
    };
    let began = find_in_turn(api, &id, &turn, |_| false).await?;
    let from = began.map(|event| event.seq).ok_or_else(empty)?;
    Ok(CallTurn { id, turn, from })
}

/// Whether the client can ask its person, and bring the answer back.
pub(super) fn can_ask(context: &RequestContext<RoleServer>) -> bool {
    let elicitation = context.client_capabilities().and_then(|client| client.elicitation);
    // A client that names no mode has forms.
    let has_forms = elicitation.is_some_and(|modes| modes.form.is_some() || modes.url.is_none());
    speaks_current(context) && has_forms
}

/// Whether results other than those of tools are known to the client's version of the protocol.
pub(super) fn speaks_current(context: &RequestContext<RoleServer>) -> bool {
    let current = ProtocolVersion::V_2026_07_28;
    let version = context.protocol_version();
    version.is_some_and(|version| version.as_str() >= current.as_str())
}

type Questions = BTreeMap<String, (Question, rmcp::model::InputRequest)>;

/// The questions that the caller may answer; `None` if there are none.
pub(super) fn questions(open: &[SuspendedCall]) -> Option<Questions> {
    let own = open.iter().filter(|open| open.may_answer);
    let questions: Questions =
        own.filter_map(|open| Some((open.id(), Question::about(open)?))).collect();
    (!questions.is_empty()).then_some(questions)
}

/// Asks the person behind the client.
async fn ask(
    caller: &Caller,
    turn: &CallTurn,
    questions: Questions,
    (open, call): (&[SuspendedCall], String),
) -> Result<CallToolResponse, CallError> {
    let expires_at = open.iter().map(|open| open.expires_at.as_second()).max().unwrap_or_default();
    let forms = questions.iter().map(|(id, (question, _))| (id.clone(), *question)).collect();
    let input = CallInput {
        conversation: turn.id.local(),
        turn: turn.turn.clone(),
        from: turn.from,
        questions: forms,
        call,
        expires_at,
    };
    let state = CallState::seal(caller, input).await?;
    let requests = questions.into_iter().map(|(id, (_, request))| (id, request)).collect();
    Ok(InputRequiredResult::new(Some(requests), Some(state)).into())
}
