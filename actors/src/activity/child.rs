//! A child conversation is asked, told about, or stopped.

use std::collections::BTreeSet;
use std::time::Duration;

use abide_conversation::State;
use abide_conversation::command::{ChildEnded, ChildStarted, Create};
use abide_conversation::event::{EffectiveArgs, EventData, TurnOutcome};
use abide_conversation::message::{ErrorType, Message, Outcome, Ui, Usage};
use abide_conversation::parent::{MAX_CHILD_DEPTH, Parent};
use abide_conversation::permission::{Ceiling, PermissionPhase};
use abide_conversation::state::OwedReport;
use abide_conversation::usage::Budget;
use abide_conversation::{Action, ConversationId, TurnId};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::ActivityContext;
use super::tool_run::returned;
use crate::backoff;
use crate::definition::{Target, Tool};
use crate::journal::StoreError;
use crate::limits::{MAX_VALUE_BYTES, encoded_len};
use crate::request::{Reply, Request, RequestError, SpawnRequest};
use crate::tools::builtin::spawn_agent::{SubAgentRequest, agent_tool_request, sub_agent_request};
use crate::tools::{Gate, Run, ToolReturn};

/// How many children may work for a root at once; each may have half as many, so that a family never
/// has more than some two thousand.
const AT_ONCE: usize = 16;
/// How many events are read at once while the last message is looked for.
const PAGE: usize = 100;
/// The pause before another conversation is tried again doubles, from the first of these up to the
/// second: it comes back in a moment, or is away for longer.
const PAUSE: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// What is known of a call that a child is to answer.
pub(super) struct SubAgentCall<'a> {
    pub(super) tool: &'a Tool,
    pub(super) gate: Gate,
    pub(super) child: Option<ConversationId>,
    pub(super) run: Run,
    /// What middleware changed.
    pub(super) ran: Option<EffectiveArgs>,
}

/// Starts the child, or finds it started; the call is its own from here on.
pub(super) async fn ask(around: &ActivityContext, asked: SubAgentCall<'_>) -> Action {
    let ran = asked.ran.clone();
    let (call, attempt) = (asked.run.call.clone(), asked.run.attempt);
    let failed = |why: String| {
        returned(
            &call,
            attempt,
            ToolReturn { effective_args: ran.clone(), ..ToolReturn::error(why) },
        )
    };
    let Some(child) = asked.child.clone() else {
        return failed("sub_agent_failed: the call has no child".to_owned());
    };
    let args = asked.run.grant.args();
    let errand = match &asked.tool.target {
        Some(Target::Agent(agent)) => Ok(agent_tool_request(agent, args)),
        Some(Target::Builtin(_) | Target::Http(_) | Target::Native(_) | Target::Mcp(_)) | None => {
            sub_agent_request(args)
        }
    };
    let errand = match errand {
        Ok(errand) => errand,
        Err(why) => return failed(why),
    };
    let parent = match parent(around, &asked, &errand) {
        Ok(parent) => parent,
        Err(why) => return failed(format!("sub_agent_failed: {why}")),
    };
    let Run { agent, principal, assigns, .. } = asked.run;
    let request = SpawnRequest {
        parent,
        agent: errand.agent.unwrap_or(agent),
        content: vec![errand.content],
        principal,
        assigns,
    };
    let limit = asked.tool.run_timeout;
    let started = |within: Duration| {
        let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let (call, ran) = (call.clone(), ran.clone());
        Action::ChildStarted(ChildStarted { call, attempt, within_ms, effective_args: ran })
    };
    match timeout(limit, deliver(around, &child, Request::Spawn(Box::new(request)))).await {
        Ok(Ok(_)) => started(limit),
        Ok(Err(why)) => failed(format!("sub_agent_failed: {why}")),
        // It may be there or not: it had its time.
        Err(_) => started(Duration::ZERO),
    }
}

/// Carries a request to a relative, and waits for one that is away for now. The request must be one
/// that may be repeated.
async fn deliver(
    around: &ActivityContext,
    to: &ConversationId,
    request: Request,
) -> Result<Reply, RequestError> {
    let mut pause = PAUSE.0;
    loop {
        match around.deps.door.deliver(to, request.clone()).await {
            Ok(reply) => return Ok(reply),
            Err(failure) if passes(&failure) => {
                tracing::debug!(conversation = %around.id, %to, said = %failure, "tries again");
                backoff::pause(&format!("conversation {to}: {failure}"), pause).await;
            }
            Err(failure) => return Err(failure),
        }
        pause = pause.saturating_mul(2).min(PAUSE.1);
    }
}

/// What the child is told of whose it is.
fn parent(
    around: &ActivityContext,
    asked: &SubAgentCall<'_>,
    errand: &SubAgentRequest,
) -> Result<Parent, String> {
    let above = around.state.parent.as_ref();
    let depth = above.map_or(0, |above| above.depth).saturating_add(1);
    if depth > MAX_CHILD_DEPTH {
        return Err(format!("agents may ask each other {MAX_CHILD_DEPTH} deep"));
    }
    let calls = around.state.turn.iter().flat_map(|turn| &turn.calls);
    let calls = calls.filter(|call| call.child.is_some()).map(|call| &call.id);
    let runs = around.state.dispatches.iter().filter(|(_, run)| run.child.is_some());
    let open = calls.chain(runs.map(|(id, _)| id));
    let most = AT_ONCE >> above.map_or(0, |above| above.depth);
    if open.take(most).all(|id| *id != asked.run.call) {
        return Err(format!("{most} agents may be asked at once here"));
    }
    let root = above.map_or(&around.id, |above| &above.root_conversation_id);
    Ok(Parent {
        conversation_id: around.id.clone(),
        call_id: asked.run.call.clone(),
        root_conversation_id: root.clone(),
        depth,
        budget: budget_left(around),
        ceiling: asked.gate.ceiling(&asked.run.grant, errand.tools.clone()),
        storages: around.state.storages.clone(),
    })
}

/// What a child may spend: what its parent has left. Children that run at once share it unknowingly.
fn budget_left(around: &ActivityContext) -> Budget {
    let State { usage, parent, turn, .. } = &*around.state;
    match (turn, parent) {
        (Some(turn), _) => turn.budget.remaining(&turn.usage, usage),
        (None, Some(parent)) => parent.budget,
        (None, None) => Budget::default(),
    }
}

/// Whether trying again may help.
fn passes(failure: &RequestError) -> bool {
    match failure {
        RequestError::Refused(_)
        | RequestError::Lost
        | RequestError::Overloaded
        | RequestError::Quarantined(_) => true,
        RequestError::Rejected(_)
        | RequestError::AgentMissing(_)
        | RequestError::Invalid { .. }
        | RequestError::ToolNotFound(_)
        | RequestError::ApprovalRequired(_)
        | RequestError::KeyReused(_) => false,
    }
}

/// Tells the parent what the turn came to. A parent that is gone, or waits no more, is told enough.
pub(super) async fn tell(around: &ActivityContext, turn: &TurnId) -> Result<Action, StoreError> {
    let told = Action::ParentNotified(turn.clone());
    let (Some(due), Some(parent)) = (&around.state.owed_report, &around.state.parent) else {
        return Ok(told);
    };
    let outcome = match due.outcome {
        TurnOutcome::Completed => Outcome::Ok(last_words(around, turn).await?),
        TurnOutcome::Cancelled => failed("it was cancelled"),
        TurnOutcome::Halted | TurnOutcome::Failed => {
            failed(due.reason.as_deref().unwrap_or("it failed"))
        }
    };
    let ended = ChildEnded {
        call: parent.call_id.clone(),
        child: around.id.clone(),
        outcome,
        ui: Some(shown(around, due).await?),
        usage: around.state.usage,
        storages: around.state.storages.clone(),
    };
    let request = Request::ChildEnded(Box::new(ended));
    if let Err(failure) = deliver(around, &parent.conversation_id, request).await {
        tracing::debug!(conversation = %around.id, said = %failure, "its parent wants no answer");
    }
    Ok(told)
}

fn failed(why: &str) -> Outcome {
    Outcome::Err(format!("sub_agent_failed: {why}"), ErrorType::ToolError)
}

/// The turn's last message: its value if it is structured, else its text.
async fn last_words(around: &ActivityContext, turn: &TurnId) -> Result<Value, StoreError> {
    let mut before = around.state.seq.saturating_add(1);
    loop {
        let page = around.deps.journal.events_before(&around.id, before, PAGE).await?;
        let Some(last) = page.last() else { return Ok(Value::String(String::new())) };
        before = last.seq;
        for event in page {
            match event.data {
                EventData::AssistantMsg(spoken) if event.turn_id.as_ref() == Some(turn) => {
                    return Ok(words(spoken.message));
                }
                _ => {}
            }
        }
    }
}

fn words(message: Message) -> Value {
    let text = message.text();
    let words = message.object.unwrap_or(Value::String(text));
    match encoded_len(&words) > MAX_VALUE_BYTES / 2 {
        true => Value::String("[...truncated...]".to_owned()),
        false => words,
    }
}

async fn shown(around: &ActivityContext, due: &OwedReport) -> Result<Ui, StoreError> {
    let agent = match &around.state.agent {
        Some(agent) => around.deps.agents.newest(agent).await?,
        None => None,
    };
    let own = agent.is_some_and(|agent| agent.workspace.is_some());
    let took = due.ended_at.duration_since(due.started_at).as_millis();
    let payload = json!({
        "subagent_id": around.id,
        "iterations": due.steps,
        "tool_calls_made": due.calls,
        // Without prices nobody knows.
        "cost_usd": Some(around.state.usage.cost).filter(|cost| !cost.is_zero()),
        "duration_ms": u64::try_from(took).unwrap_or_default(),
        "isolation": if own { "own" } else { "shared" },
    });
    Ok(Ui { kind: "subagent".to_owned(), payload })
}

/// Stops a child that nobody waits for, or keeps it from ever beginning.
pub(super) async fn release(around: &ActivityContext, child: &ConversationId) -> Action {
    let released = |usage| Action::ChildReleased { child: child.clone(), usage };
    let (Some(call), Some(agent)) = (around.state.orphans.get(child), &around.state.agent) else {
        return released(Usage::default());
    };
    let above = around.state.parent.as_ref();
    let root = above.map_or(&around.id, |above| &above.root_conversation_id);
    let parent = Parent {
        conversation_id: around.id.clone(),
        call_id: call.clone(),
        root_conversation_id: root.clone(),
        depth: above.map_or(0, |above| above.depth).saturating_add(1),
        // A conversation that only this makes is never to do anything.
        ceiling: Ceiling {
            phase: PermissionPhase::Plan,
            allowed_tools: vec![BTreeSet::new()],
            ..Ceiling::default()
        },
        budget: Budget::default(),
        storages: Default::default(),
    };
    let create = Create {
        agent: agent.clone(),
        assigns: Map::new(),
        fork: None,
        metadata: Map::new(),
        tools: Vec::new(),
        parent: Some(Box::new(parent)),
    };
    match deliver(around, child, Request::Abandon(Box::new(create))).await {
        Ok(Reply::Abandoned { usage }) => released(usage),
        Ok(_) => released(Usage::default()),
        Err(failure) => {
            tracing::debug!(conversation = %around.id, %child, said = %failure, "it is no child of this");
            released(Usage::default())
        }
    }
}
