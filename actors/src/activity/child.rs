//! Starts child conversations, stops them, and reports their outcome to the parent.

use std::collections::BTreeSet;
use std::time::Duration;

use abide_conversation::State;
use abide_conversation::command::{ChildEnded, ChildStarted, Create};
use abide_conversation::event::{EffectiveArgs, EventData, TurnOutcome};
use abide_conversation::message::{ErrorType, Message, Outcome, Ui};
use abide_conversation::parent::{MAX_CHILD_DEPTH, Parent};
use abide_conversation::permission::{Ceiling, PermissionPhase};
use abide_conversation::state::OwedReport;
use abide_conversation::usage::{Budget, Usage};
use abide_conversation::{Action, ConversationId, Principal, TurnId};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::ActivityContext;
use super::outcome::tool_outcome;
use crate::backoff;
use crate::definition::{Target, Tool};
use crate::journal::StoreError;
use crate::limits::{MAX_VALUE_BYTES, encoded_len};
use crate::request::{Reply, Request, RequestError, SpawnRequest};
use crate::tools::builtin::spawn_agent::{SubAgentRequest, agent_tool_request, sub_agent_request};
use crate::tools::{Gate, Run, ToolReturn};

/// The children that may work for a root at once. Each level may have half as many, so that one
/// root never has more than some two thousand descendants.
const MAX_CONCURRENT_CHILDREN: usize = 16;
/// The events that are read at once in the search for the last message.
const PAGE_EVENTS: usize = 100;
/// The delay before another conversation is tried again doubles between these: it is back in a
/// moment, or away for longer.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(50);
const MAX_RETRY_DELAY: Duration = Duration::from_secs(5);

/// A call that a child is to answer.
pub(super) struct SubAgentCall<'a> {
    pub(super) tool: &'a Tool,
    pub(super) gate: Gate,
    pub(super) child: Option<ConversationId>,
    pub(super) run: Box<Run>,
    /// The arguments, if middleware changed them.
    pub(super) ran: Option<EffectiveArgs>,
}

/// Starts the child, or finds it started. From then on, the child answers the call.
pub(super) async fn spawn(ctx: &ActivityContext, sub_agent: SubAgentCall<'_>) -> Action {
    let effective_args = sub_agent.ran.clone();
    let call = sub_agent.run.call.clone();
    let attempt = sub_agent.run.attempt;
    let failed = |why: String| {
        tool_outcome(
            &call,
            attempt,
            ToolReturn { effective_args: effective_args.clone(), ..ToolReturn::error(why) },
        )
    };
    let Some(child) = sub_agent.child.clone() else {
        return failed("sub_agent_failed: the call has no child".to_owned());
    };
    let args = sub_agent.run.grant.args();
    let Some(server) = sub_agent.tool.server() else {
        return failed("sub_agent_failed: the tool does not run on the server".to_owned());
    };
    let request = match &server.target {
        Target::Agent(agent) => {
            let agents = &ctx.services.agents;
            let choice = agents.choose(agent, &ctx.id.sibling(&child)).await.ok().flatten();
            let lets_choose = choice.is_some_and(|choice| !choice.definition.models.is_empty());
            Ok(agent_tool_request(agent, args, lets_choose))
        }
        Target::Builtin(_)
        | Target::Http(_)
        | Target::Native(_)
        | Target::Mcp(_)
        | Target::Queue(_) => sub_agent_request(args),
    };
    let request = match request {
        Ok(request) => request,
        Err(why) => return failed(why),
    };
    let parent = match parent(ctx, &sub_agent, &request) {
        Ok(parent) => parent,
        Err(why) => return failed(format!("sub_agent_failed: {why}")),
    };
    let Run { agent, principal, identity, assigns, .. } = *sub_agent.run;
    // An approver permits the work of a child, but it is done for whoever asked for it.
    let asking = identity.as_ref().map(|identity| Principal::new(identity.acting().sub.clone()));
    let principal = asking.unwrap_or(principal);
    let spawn = SpawnRequest {
        parent,
        agent: request.agent.unwrap_or(agent),
        content: vec![request.content],
        principal,
        identity,
        participants: ctx.state.participants.clone(),
        assigns: assigns.conversation.clone(),
        message_assigns: assigns.message.clone(),
    };
    let limit = server.run_timeout;
    let started = |within: Duration| {
        let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let (call, effective_args) = (call.clone(), effective_args.clone());
        Action::ChildStarted(ChildStarted { call, attempt, within_ms, effective_args })
    };
    match timeout(limit, deliver(ctx, &child, Request::Spawn(Box::new(spawn)))).await {
        Ok(Ok(_)) => started(limit),
        Ok(Err(why)) => failed(format!("sub_agent_failed: {why}")),
        // The child may have started or not; its time is up in either case.
        Err(_) => started(Duration::ZERO),
    }
}

/// Delivers a request to the parent or a child, and retries while that is unavailable. The request
/// must be safe to repeat.
async fn deliver(
    ctx: &ActivityContext,
    to: &ConversationId,
    request: Request,
) -> Result<Reply, RequestError> {
    let to = ctx.id.sibling(to);
    let mut delay = MIN_RETRY_DELAY;
    loop {
        match ctx.services.conversations.deliver(&to, request.clone()).await {
            Ok(reply) => return Ok(reply),
            Err(error) if is_transient(&error) => {
                let id = &ctx.id;
                tracing::debug!(conversation = %id, %to, content = %error, "delivery retried");
                backoff::wait(&format!("conversation {to}: {error}"), delay).await;
            }
            Err(error) => return Err(error),
        }
        delay = delay.saturating_mul(2).min(MAX_RETRY_DELAY);
    }
}

/// The parent as the child is to know it.
fn parent(
    ctx: &ActivityContext,
    sub_agent: &SubAgentCall<'_>,
    request: &SubAgentRequest,
) -> Result<Parent, String> {
    let own_parent = ctx.state.parent.as_ref();
    let depth = own_parent.map_or(0, |parent| parent.depth).saturating_add(1);
    if depth > MAX_CHILD_DEPTH {
        return Err(format!("sub-agents may be nested {MAX_CHILD_DEPTH} deep"));
    }
    let calls = ctx.state.turn.iter().flat_map(|turn| &turn.calls);
    let calls = calls.filter(|call| call.kind.child().is_some()).map(|call| &call.id);
    let runs = ctx.state.dispatches.iter().filter(|(_, run)| run.child.is_some());
    let open = calls.chain(runs.map(|(id, _)| id));
    let max = MAX_CONCURRENT_CHILDREN >> own_parent.map_or(0, |parent| parent.depth);
    if open.take(max).all(|id| *id != sub_agent.run.call) {
        return Err(format!("{max} sub-agents may run at once here"));
    }
    let id = ctx.id.local();
    let root = own_parent.map_or(&id, |parent| &parent.root_conversation_id);
    Ok(Parent {
        root_conversation_id: root.clone(),
        conversation_id: id,
        call_id: sub_agent.run.call.clone(),
        depth,
        budget: budget_left(ctx),
        ceiling: sub_agent.gate.ceiling(&sub_agent.run.grant, request.tools.clone()),
        storages: ctx.state.storages.clone(),
        requesters: ctx.state.requesters_with(sub_agent.run.identity.as_deref()),
        model: request.model.clone(),
    })
}

/// The budget of a child: what its parent has left. Children that run at once do not know how much
/// of it the others spend.
fn budget_left(ctx: &ActivityContext) -> Budget {
    let State { usage, parent, turn, .. } = &*ctx.state;
    match (turn, parent) {
        (Some(turn), _) => turn.budget.remaining(&turn.usage, usage),
        (None, Some(parent)) => parent.budget,
        (None, None) => Budget::default(),
    }
}

/// Whether trying again may help.
fn is_transient(error: &RequestError) -> bool {
    match error {
        RequestError::Store(_)
        | RequestError::Lost
        | RequestError::Overloaded
        | RequestError::ChildrenRemain
        | RequestError::Unavailable(_)
        | RequestError::Quarantined(_) => true,
        RequestError::Rejected(_)
        | RequestError::AgentMissing(_)
        | RequestError::Invalid { .. }
        | RequestError::ToolNotFound(_)
        | RequestError::ApprovalRequired(_)
        | RequestError::KeyReused(_)
        | RequestError::Forbidden { .. } => false,
    }
}

/// Reports the outcome of the turn to the parent. A parent that is gone or no longer waits needs no
/// report.
pub(super) async fn notify_parent(
    ctx: &ActivityContext,
    turn: &TurnId,
) -> Result<Action, StoreError> {
    let notified = Action::ParentNotified(turn.clone());
    let (Some(due), Some(parent)) = (&ctx.state.owed_report, &ctx.state.parent) else {
        return Ok(notified);
    };
    let outcome = match due.outcome {
        TurnOutcome::Completed => Outcome::Ok(last_message(ctx, turn).await?),
        TurnOutcome::Cancelled => failed("it was cancelled"),
        TurnOutcome::Halted | TurnOutcome::Failed => {
            failed(due.reason.as_deref().unwrap_or("it failed"))
        }
    };
    let ended = ChildEnded {
        call: parent.call_id.clone(),
        child: ctx.id.local(),
        outcome,
        ui: Some(sub_agent_ui(ctx, due).await?),
        usage: ctx.state.usage,
        storages: ctx.state.storages.clone(),
    };
    let request = Request::ChildEnded(Box::new(ended));
    if let Err(error) = deliver(ctx, &parent.conversation_id, request).await {
        tracing::debug!(conversation = %ctx.id, content = %error, "report refused by the parent");
    }
    Ok(notified)
}

fn failed(why: &str) -> Outcome {
    Outcome::Err(format!("sub_agent_failed: {why}"), ErrorType::ToolError)
}

/// The turn's last message: its value if it is structured, else its text.
async fn last_message(ctx: &ActivityContext, turn: &TurnId) -> Result<Value, StoreError> {
    let mut before = ctx.state.seq.next();
    loop {
        let page = ctx.services.journal.events_before(&ctx.id, before, PAGE_EVENTS).await?;
        let Some(last) = page.last() else { return Ok(Value::String(String::new())) };
        before = last.seq;
        for event in page {
            match event.data {
                EventData::AssistantMsg(reply) if event.turn_id.as_ref() == Some(turn) => {
                    return Ok(message_value(reply.message));
                }
                _ => {}
            }
        }
    }
}

fn message_value(message: Message) -> Value {
    let text = message.text();
    let value = message.object.unwrap_or(Value::String(text));
    if encoded_len(&value) > MAX_VALUE_BYTES / 2 {
        return Value::String("[...truncated...]".to_owned());
    }
    value
}

async fn sub_agent_ui(ctx: &ActivityContext, due: &OwedReport) -> Result<Ui, StoreError> {
    let agent = match &ctx.state.agent {
        Some(agent) => ctx.services.agents.choose(agent, &ctx.id).await?,
        None => None,
    };
    let has_own_workspace = agent.is_some_and(|agent| agent.definition.workspace.is_some());
    let duration = due.ended_at.duration_since(due.started_at).as_millis();
    let payload = json!({
        "subagent_id": ctx.id.local(),
        "iterations": due.steps,
        "tool_calls_made": due.calls,
        // Without prices the cost is unknown, not zero.
        "cost_usd": Some(ctx.state.usage.cost).filter(|cost| !cost.is_zero()),
        "duration_ms": u64::try_from(duration).unwrap_or_default(),
        "isolation": if has_own_workspace { "own" } else { "shared" },
    });
    Ok(Ui { kind: "subagent".to_owned(), payload })
}

/// Stops a child that nobody waits for any more. One that does not exist deletes itself if the
/// message that spawns it arrives nevertheless.
pub(super) async fn stop(ctx: &ActivityContext, child: &ConversationId) -> Action {
    let released = |usage| Action::ChildReleased { child: child.clone(), usage };
    let (Some(call), Some(agent)) = (ctx.state.orphans.get(child), &ctx.state.agent) else {
        return released(Usage::default());
    };
    let own_parent = ctx.state.parent.as_ref();
    let id = ctx.id.local();
    let root = own_parent.map_or(&id, |parent| &parent.root_conversation_id);
    let parent = Parent {
        root_conversation_id: root.clone(),
        conversation_id: id,
        call_id: call.clone(),
        depth: own_parent.map_or(0, |parent| parent.depth).saturating_add(1),
        // A node of the build before creates the conversation if it is not there; it must never do
        // anything.
        ceiling: Ceiling {
            phase: PermissionPhase::Plan,
            allowed_tools: vec![BTreeSet::new()],
            ..Ceiling::default()
        },
        budget: Budget::default(),
        storages: Default::default(),
        requesters: Default::default(),
        model: None,
    };
    let create = Create {
        agent: agent.clone(),
        assigns: Map::new(),
        fork: None,
        title: None,
        expires_at: None,
        metadata: Map::new(),
        tools: Vec::new(),
        parent: Some(Box::new(parent)),
        participants: Default::default(),
    };
    match deliver(ctx, child, Request::Abandon(Box::new(create))).await {
        Ok(Reply::Abandoned { usage }) => released(usage),
        Ok(_) => released(Usage::default()),
        Err(error) => {
            let id = &ctx.id;
            tracing::debug!(conversation = %id, %child, content = %error, "child release refused");
            released(Usage::default())
        }
    }
}
