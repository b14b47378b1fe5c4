//! One attempt of a server tool.

use abide_conversation::command::ToolReturned;
use abide_conversation::message::{ErrorType, Outcome};
use abide_conversation::{Action, CallId, Principal, Revision, TurnId};
use serde_json::{Map, Value};

use super::Surroundings;
use crate::journal::Refusal;
use crate::tools::{Returned, Run, merged};

/// A call as its journal has it, a turn's or a user's own.
struct Wanted {
    tool: String,
    args: Value,
    principal: Principal,
    revision: Revision,
    turn: Option<TurnId>,
    assigns: Map<String, Value>,
}

pub(super) async fn tool_run(
    around: &Surroundings,
    call: &CallId,
    attempt: u32,
) -> Result<Action, Refusal> {
    let returned = match wanted(around, call) {
        Some(wanted) => run(around, call, attempt, wanted).await?,
        None => gone("the call is not open"),
    };
    let Returned { outcome, ui, halt } = returned;
    Ok(Action::ToolReturned(ToolReturned { call: call.clone(), attempt, outcome, ui, halt }))
}

async fn run(
    around: &Surroundings,
    call: &CallId,
    attempt: u32,
    wanted: Wanted,
) -> Result<Returned, Refusal> {
    let Some(definition) = around.deps.agents.revision(&wanted.revision).await? else {
        return Ok(gone("its definition is gone"));
    };
    let assigns = merged(&definition.assigns, &around.state.assigns, &wanted.assigns);
    let toolbox = around.toolbox(definition);
    let Some(tool) = toolbox.tool(&wanted.tool) else {
        return Ok(gone("the tool is gone"));
    };
    let run = Run {
        conversation: around.id.clone(),
        turn: wanted.turn,
        call: call.clone(),
        attempt,
        args: wanted.args,
        assigns,
        principal: wanted.principal,
    };
    let progress = |payload| around.progress.say(around, call, payload);
    Ok(around.deps.runner.run(tool, run, progress).await)
}

fn wanted(around: &Surroundings, id: &CallId) -> Option<Wanted> {
    if let Some(run) = around.state.dispatches.get(id) {
        return Some(Wanted {
            tool: run.tool.clone(),
            args: run.input.clone(),
            principal: run.principal.clone(),
            revision: run.revision.clone(),
            turn: None,
            assigns: Map::new(),
        });
    }
    let (turn, call) = (around.state.turn.as_ref()?, around.state.call(id)?);
    Some(Wanted {
        tool: call.tool.clone(),
        args: call.args.clone(),
        principal: call.principal.clone(),
        revision: turn.revision.clone(),
        turn: Some(turn.id.clone()),
        assigns: turn.assigns.clone(),
    })
}

/// Nothing can run the call: it ends with an error result, never in a loop.
fn gone(why: &str) -> Returned {
    let outcome = Outcome::Err(format!("tool cannot run: {why}"), ErrorType::ToolError);
    Returned { outcome, ui: None, halt: None }
}
