//! Runs one attempt of a server tool.

use std::collections::BTreeSet;
use std::sync::Arc;

use abide_conversation::approval::Approver;
use abide_conversation::elicitation::PendingInput;
use abide_conversation::identity::Identity;
use abide_conversation::message::ErrorType;
use abide_conversation::{Action, Attempt, CallId, ConversationId, Principal, Revision, TurnId};
use serde_json::{Map, Value};
use tokio::time::timeout;

use super::ActivityContext;
use super::attempt_end::attempt_end;
use super::child::{self, SubAgentCall};
use super::external;
use super::limited::wait_for_places;
use super::outcome::tool_outcome;
use crate::assigns::Assigns;
use crate::definition::{Builtin, Definition, Tool};
use crate::journal::StoreError;
use crate::tools::mcp::Listings;
use crate::tools::runner::NOT_GRANTED;
use crate::tools::{Gate, Grant, Run, ToolEnvironment, ToolReturn, Toolbox, mcp};
use crate::workspace::WorkspaceRef;

/// A call as the state has it, either a turn's or a user's own.
struct CallToRun {
    /// `None` if the gate did not allow the call with these arguments.
    grant: Option<Grant>,
    tool: String,
    principal: Principal,
    identity: Option<Arc<Identity>>,
    approvals: Vec<Approver>,
    revision: Revision,
    turn: Option<TurnId>,
    assigns: Map<String, Value>,
    input: Option<PendingInput>,
    child: Option<ConversationId>,
}

pub(super) async fn tool_run(
    ctx: &ActivityContext,
    call: &CallId,
    attempt: Attempt,
) -> Result<Action, StoreError> {
    let outcome = |returned| Ok(tool_outcome(call, attempt, returned));
    let Some(to_run) = call_to_run(ctx, call) else {
        return outcome(cannot_run("the call is not open"));
    };
    let Some(definition) = ctx.services.agents.revision(&ctx.id.sibling(&to_run.revision)).await?
    else {
        return outcome(cannot_run("its definition is gone"));
    };
    let assigns = Assigns::new(&definition.assigns, &ctx.state.assigns, &to_run.assigns);
    let gate = Gate::new(definition.clone(), &ctx.state);
    let toolbox = if mcp::may_list(&definition, &to_run.tool) {
        ctx.toolbox(definition.clone()).await
    } else {
        Toolbox::with_declared(definition.clone(), &Listings::new(), ctx.declared_tools.clone())
    };
    let Some(tool) = toolbox.tool(&to_run.tool) else {
        return outcome(cannot_run("the tool is gone"));
    };
    let Some(grant) = to_run.grant else {
        tracing::error!(conversation = %ctx.id, %call, tool = tool.name, "tool run denied: no grant");
        return outcome(ToolReturn::failure(NOT_GRANTED, ErrorType::PermissionDenied));
    };
    let is_sub_agent = tool.is_sub_agent();
    let environment = if is_sub_agent || tool.queue().is_some() {
        ToolEnvironment::default()
    } else {
        tool_environment(ctx, &definition, &gate)
    };
    if let Some(opened) = open_storage(ctx, tool, &environment).await {
        return Ok(opened);
    }
    let callback = external::callback(ctx, tool, call, attempt).await;
    let run = Box::new(Run {
        agent: definition.name.clone(),
        conversation: ctx.id.clone(),
        turn: to_run.turn,
        call: call.clone(),
        attempt,
        grant,
        assigns: Arc::new(assigns),
        principal: to_run.principal,
        identity: to_run.identity,
        approvals: to_run.approvals,
        input: to_run.input,
        callback,
        state: Arc::new(ctx.state.key_values.clone()),
        environment,
    });
    let runner = &ctx.services.runner;
    if is_sub_agent {
        return Ok(match runner.run_child_middleware(tool, &gate, run).await {
            Ok((run, ran)) => {
                let sub_agent = SubAgentCall { tool, gate, child: to_run.child, run, ran };
                // Boxed: most tools are no sub-agents.
                Box::pin(child::spawn(ctx, sub_agent)).await
            }
            Err(instead) => tool_outcome(call, attempt, *instead),
        });
    }
    if let (Some(target), Some(server)) = (tool.queue(), tool.server()) {
        return Ok(match runner.run_child_middleware(tool, &gate, run).await {
            Ok((_, ran)) => external::queue((call, attempt), target, server.on_interrupt, ran),
            Err(instead) => tool_outcome(call, attempt, *instead),
        });
    }
    let progress = |payload| ctx.progress.publish(&*ctx.services.live, &ctx.id, call, payload);
    let _places = wait_for_places(ctx, call, definition.name.as_str(), tool).await;
    let returned = runner.call(tool, &gate, run, progress).await;
    if returned.awaits_callback {
        return Ok(external::await_callback(call, attempt, returned.effective_args));
    }
    Ok(attempt_end(ctx, (call, attempt), tool.server(), returned))
}

/// The storage of the files that the tool works on, if it is not journalled yet. It is journalled before
/// the first file exists: the call that creates the file may never have a result. A disk that hangs makes
/// the run hang, too, which then times out.
async fn open_storage(
    ctx: &ActivityContext,
    tool: &Tool,
    environment: &ToolEnvironment,
) -> Option<Action> {
    let works_on_files = tool.builtin().is_some_and(Builtin::needs_workspace);
    let server = tool.server().filter(|_| works_on_files && environment.storage.is_none())?;
    let opening = open_workspace(ctx, environment.workspace.clone());
    let storage = timeout(server.run_timeout, opening).await.ok()??;
    let root = environment.workspace.root_name();
    Some(Action::WorkspaceOpened { root, storage })
}

/// Makes a workspace that was not used before, and names the storage that it is on; `None` if there
/// is nothing to name. The run itself reports an error.
async fn open_workspace(ctx: &ActivityContext, workspace: WorkspaceRef) -> Option<String> {
    let workspaces = ctx.services.workspaces.clone();
    let opening = tokio::task::spawn_blocking(move || workspaces.open(&workspace, None));
    opening.await.ok()?.ok()?.storage().map(str::to_owned)
}

/// The workspace of a built-in tool, and what the tool may reach.
fn tool_environment(
    ctx: &ActivityContext,
    definition: &Arc<Definition>,
    gate: &Gate,
) -> ToolEnvironment {
    let parent = ctx.state.parent.as_ref();
    let root = parent.map(|parent| ctx.id.sibling(&parent.root_conversation_id));
    let hosts: BTreeSet<String> = gate.allowed_hosts();
    let workspace = definition.site(root.as_ref().unwrap_or(&ctx.id));
    ToolEnvironment {
        storage: ctx.state.storages.get(&workspace.root_name()).cloned(),
        workspace,
        allowed_hosts: hosts.into_iter().collect(),
        outbound: definition.outbound.clone(),
        network: gate.network(),
        base_phase: gate.base_phase(),
    }
}

fn call_to_run(ctx: &ActivityContext, id: &CallId) -> Option<CallToRun> {
    if let Some(run) = ctx.state.dispatches.get(id) {
        return Some(CallToRun {
            grant: Grant::of_dispatch(run),
            tool: run.tool.clone(),
            principal: run.principal.clone(),
            identity: run.identity.clone(),
            approvals: run.verdict.iter().flat_map(|it| it.approvals.clone()).collect(),
            revision: run.revision.clone(),
            turn: None,
            assigns: Map::new(),
            input: None,
            child: run.child.clone(),
        });
    }
    let turn = ctx.state.turn.as_ref()?;
    let call = ctx.state.call(id)?;
    Some(CallToRun {
        grant: Grant::of_call(call),
        tool: call.tool.clone(),
        principal: call.principal.clone(),
        identity: turn.identity.clone(),
        approvals: call.approvals.clone(),
        revision: turn.revision.clone(),
        turn: Some(turn.id.clone()),
        assigns: turn.assigns.clone(),
        input: call.pending_input.clone(),
        child: call.kind.child().cloned(),
    })
}

/// The result of a call that nothing can run: an error, so that it is not retried for ever.
fn cannot_run(why: &str) -> ToolReturn {
    ToolReturn::error(format!("tool cannot run: {why}"))
}
