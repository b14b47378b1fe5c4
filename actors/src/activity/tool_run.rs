//! One attempt of a server tool.

use std::collections::BTreeSet;
use std::sync::Arc;

use abide_conversation::command::ToolReturned;
use abide_conversation::elicitation::PendingInput;
use abide_conversation::message::ErrorType;
use abide_conversation::{Action, CallId, ConversationId, Principal, Revision, TurnId};
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::ActivityContext;
use super::child::{self, SubAgentCall};
use crate::assigns::merged;
use crate::definition::Builtin;
use crate::definition::Definition;
use crate::journal::StoreError;
use crate::tools::ToolEnvironment;
use crate::tools::mcp;
use crate::tools::mcp::Listings;
use crate::tools::runner::NOT_GRANTED;
use crate::tools::{Gate, Grant, Run, ToolReturn, Toolbox};

/// A call as its journal has it, a turn's or a user's own.
struct Wanted {
    /// `None`: the gate did not let it through as it is.
    grant: Option<Grant>,
    tool: String,
    principal: Principal,
    revision: Revision,
    turn: Option<TurnId>,
    assigns: Map<String, Value>,
    input: Option<PendingInput>,
    child: Option<ConversationId>,
}

pub(super) async fn tool_run(
    around: &ActivityContext,
    call: &CallId,
    attempt: u32,
) -> Result<Action, StoreError> {
    match wanted(around, call) {
        Some(wanted) => run(around, call, attempt, wanted).await,
        None => Ok(returned(call, attempt, gone("the call is not open"))),
    }
}

/// The report of a run that came to an end.
pub(super) fn returned(call: &CallId, attempt: u32, returned: ToolReturn) -> Action {
    let ToolReturn {
        outcome,
        ui,
        halt,
        state_changes: changes,
        input_request: asks,
        effective_args: ran,
    } = returned;
    let call = call.clone();
    Action::ToolReturned(ToolReturned {
        call,
        attempt,
        outcome,
        ui,
        halt,
        changes,
        input_request: asks,
        effective_args: ran,
    })
}

async fn run(
    around: &ActivityContext,
    call: &CallId,
    attempt: u32,
    wanted: Wanted,
) -> Result<Action, StoreError> {
    let ended = |with| Ok(returned(call, attempt, with));
    let Some(definition) = around.deps.agents.revision(&wanted.revision).await? else {
        return ended(gone("its definition is gone"));
    };
    let assigns = merged(&definition.assigns, &around.state.assigns, &wanted.assigns);
    let gate = Gate::new(definition.clone(), &around.state);
    let toolbox = match mcp::may_list(&definition, &wanted.tool) {
        true => around.toolbox(definition.clone()).await,
        false => Toolbox::new(definition.clone(), &Listings::new(), around.own.clone()),
    };
    let Some(tool) = toolbox.tool(&wanted.tool) else {
        return ended(gone("the tool is gone"));
    };
    let Some(grant) = wanted.grant else {
        tracing::error!(conversation = %around.id, %call, tool = tool.name, "no leave to run");
        return ended(ToolReturn::failure(NOT_GRANTED, ErrorType::PermissionDenied));
    };
    let asks_a_child = tool.is_sub_agent();
    let place = match asks_a_child {
        true => ToolEnvironment::default(),
        false => place(around, &definition, &gate),
    };
    let works_on_files = tool.builtin().is_some_and(Builtin::needs_workspace);
    if place.storage.is_none() && works_on_files {
        // Journalled before the first file is there: the call that makes it may have no result.
        // A disk that hangs hangs the run, too, which says so when its own time is over.
        let opening = around.deps.runner.open_workspace(place.workspace.clone());
        if let Ok(Some(storage)) = timeout(tool.run_timeout, opening).await {
            let root = place.workspace.root_name();
            return Ok(Action::WorkspaceOpened { root, storage });
        }
    }
    let run = Run {
        agent: definition.name.clone(),
        conversation: around.id.clone(),
        turn: wanted.turn,
        call: call.clone(),
        attempt,
        grant,
        assigns,
        principal: wanted.principal,
        input: wanted.input,
        environment: place,
    };
    let runner = &around.deps.runner;
    if asks_a_child {
        return Ok(match runner.run_child_middleware(tool, &gate, run).await {
            Ok((run, ran)) => {
                child::ask(around, SubAgentCall { tool, gate, child: wanted.child, run, ran }).await
            }
            Err(instead) => returned(call, attempt, *instead),
        });
    }
    let progress = |payload| around.progress.say(around, call, payload);
    ended(runner.call(tool, &gate, run, progress).await)
}

/// Where a built-in tool works, and how far it may reach.
fn place(around: &ActivityContext, definition: &Arc<Definition>, gate: &Gate) -> ToolEnvironment {
    let parent = around.state.parent.as_ref();
    let owner = parent.map_or(&around.id, |parent| &parent.root_conversation_id);
    let hosts: BTreeSet<String> = gate.allowed_hosts();
    let site = definition.site(owner);
    ToolEnvironment {
        storage: around.state.storages.get(&site.root_name()).cloned(),
        workspace: site,
        allowed_hosts: hosts.into_iter().collect(),
        network: gate.allows_network(),
        base_phase: gate.base_phase(),
    }
}

fn wanted(around: &ActivityContext, id: &CallId) -> Option<Wanted> {
    if let Some(run) = around.state.dispatches.get(id) {
        return Some(Wanted {
            grant: Grant::of_dispatch(run),
            tool: run.tool.clone(),
            principal: run.principal.clone(),
            revision: run.revision.clone(),
            turn: None,
            assigns: Map::new(),
            input: None,
            child: run.child.clone(),
        });
    }
    let (turn, call) = (around.state.turn.as_ref()?, around.state.call(id)?);
    Some(Wanted {
        grant: Grant::of_call(call),
        tool: call.tool.clone(),
        principal: call.principal.clone(),
        revision: turn.revision.clone(),
        turn: Some(turn.id.clone()),
        assigns: turn.assigns.clone(),
        input: call.pending_input.clone(),
        child: call.child.clone(),
    })
}

/// Nothing can run the call: it ends with an error result, never in a loop.
fn gone(why: &str) -> ToolReturn {
    ToolReturn::error(format!("tool cannot run: {why}"))
}
