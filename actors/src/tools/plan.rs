//! What becomes of one call: refused, answered at once, or handed to its executor.

use std::time::Duration;

use abide_conversation::command::{CallPlan, PlannedCall};
use abide_conversation::event::{Executor, Intent};
use abide_conversation::message::{ErrorType, Outcome};
use abide_conversation::permission::{Decision, Verdict};
use serde_json::{Map, Value};

use super::call_scope::CallScope;
use super::limits::{LARGEST_VALUE, SHOWN_TEXT, cut, encoded_len};
use super::tool::{LONGEST_NAME, Tool};
use super::{Gate, Toolbox};
use crate::hooks::tool_use::{ToolUseVerdict, spoilt};
use crate::model::{ModelToolCall, big_numbers};

/// Refused arguments are kept whole up to this; no tool will see them, the model will.
const SMALL_ARGS: usize = 16 * 1024;

pub(super) fn plan(
    toolbox: &Toolbox,
    given: &ModelToolCall,
    scope: &CallScope,
    gate: &mut Gate,
) -> PlannedCall {
    if let Some(result) = &given.provider_result {
        return provided(toolbox, given, result, scope, gate);
    }
    let Some(tool) = toolbox.tool(&given.name).filter(|tool| tool.is_for_model()) else {
        let name = cut(&given.name, LONGEST_NAME);
        let message = format!("unknown tool: {name}");
        let plan = refusal(Executor::Server, Intent::default(), message, ErrorType::ToolNotFound);
        let (given_id, args) = (given.id.clone(), shown(&given.args));
        return PlannedCall { given_id, tool: name, args, said: None, plan, gate: None };
    };
    let (args, plan, verdict) = match arguments(tool, &given.args) {
        Ok(args) => {
            let verdict = gate.judge(tool, &args, scope);
            gate.follow(tool, &args, &verdict);
            let plan = decide(toolbox, tool, &args, scope, &verdict);
            (args, plan, Some(verdict))
        }
        Err(mistake) => {
            let message = format!("invalid tool arguments: {mistake}");
            let kind = ErrorType::ValidationError;
            (shown(&given.args), refusal(tool.executor, tool.intent, message, kind), None)
        }
    };
    let (given_id, tool) = (given.id.clone(), tool.name.clone());
    PlannedCall { given_id, tool, args, said: None, plan, gate: verdict }
}

/// Arguments that a hook wants are judged as if the model had given them; it said others.
pub(super) fn replan(
    toolbox: &Toolbox,
    planned: PlannedCall,
    said: ToolUseVerdict,
    scope: &CallScope,
    gate: &mut Gate,
) -> PlannedCall {
    let again = |args: Value, gate: &mut Gate| {
        let (id, name) = (planned.given_id.clone(), planned.tool.clone());
        plan(
            toolbox,
            &ModelToolCall { id, name, args: Ok(args), provider_result: None },
            scope,
            gate,
        )
    };
    match said {
        // A call of the provider's own has its result, which is not planned anew.
        ToolUseVerdict::GoOn if is_the_providers(&planned.plan) => planned,
        ToolUseVerdict::GoOn => again(planned.args.clone(), gate),
        ToolUseVerdict::Args { hook, args } => match again(args, gate) {
            changed if changed.gate.is_some() => {
                PlannedCall { said: Some(planned.args), ..changed }
            }
            _ => denied(toolbox, planned, spoilt(&hook), gate),
        },
        ToolUseVerdict::Deny(rule) | ToolUseVerdict::Halt(rule) => {
            denied(toolbox, planned, rule, gate)
        }
    }
}

fn is_the_providers(plan: &CallPlan) -> bool {
    let (CallPlan::Answer { executor, .. } | CallPlan::Execute { executor, .. }) = plan;
    *executor == Executor::Provider
}

/// The call, refused by a hook.
fn denied(toolbox: &Toolbox, planned: PlannedCall, rule: String, gate: &Gate) -> PlannedCall {
    let Some(tool) = toolbox.tool(&planned.tool) else { return planned };
    let verdict = gate.deny(tool, &planned.args, &rule);
    let (executor, intent, outcome) = (tool.executor, tool.intent, verdict.denial(&tool.name));
    let plan = CallPlan::Answer { executor, intent, outcome };
    PlannedCall { plan, gate: Some(verdict), ..planned }
}

fn arguments(tool: &Tool, given: &Result<Value, String>) -> Result<Value, String> {
    let args = match given {
        Ok(args) => args.clone(),
        // Providers send nothing at all for a tool without arguments.
        Err(raw) if raw.trim().is_empty() => Value::Object(Map::new()),
        Err(raw) => {
            return Err(match big_numbers::find_rounded(raw) {
                Some(field) if field.is_empty() => "must be an object".to_owned(),
                Some(field) => {
                    format!("{}: must fit into 64 bits", cut(&field, SHOWN_TEXT))
                }
                None => "not JSON".to_owned(),
            });
        }
    };
    tool.check_args(&args).map(|()| args)
}

fn decide(
    toolbox: &Toolbox,
    tool: &Tool,
    args: &Value,
    scope: &CallScope,
    verdict: &Verdict,
) -> CallPlan {
    let (executor, intent) = (tool.executor, tool.intent);
    let at_once = |outcome| CallPlan::Answer { executor, intent, outcome };
    let question = || tool.message(args, scope).unwrap_or_else(|| format!("Allow {}?", tool.name));
    let gate = match verdict.decision {
        Decision::Allow => None,
        Decision::Ask => Some(question()),
        Decision::Deny => return at_once(verdict.denial(&tool.name)),
    };
    let (message, answer) = match (executor, &gate) {
        (Executor::Provider, _) => {
            let message = "the provider sent no result".to_owned();
            return at_once(Outcome::Err(message, ErrorType::ToolError));
        }
        (Executor::Client, None) if !tool.requires_response => {
            return at_once(Outcome::Ok(tool.default_result.clone()));
        }
        (Executor::Client, Some(_)) if !tool.requires_response => {
            (String::new(), Some(tool.default_result.clone()))
        }
        (Executor::Server, _) => (String::new(), None),
        (Executor::Human | Executor::Client, _) => {
            (tool.message(args, scope).unwrap_or_else(|| tool.description.clone()), None)
        }
    };
    let agent = toolbox.definition();
    let grace = agent.client_grace.filter(|_| executor == Executor::Client);
    CallPlan::Execute {
        executor,
        intent,
        gate,
        message,
        timeout_ms: millis(tool.timeout.unwrap_or(agent.suspension_timeout)),
        grace_ms: grace.map(millis),
        on_interrupt: tool.on_interrupt,
        answer,
        child: None,
        lane: tool.builtin().and_then(|builtin| builtin.lane(args)),
    }
}

/// A call that the provider has run: nothing can keep it from that any more, and the model has its
/// result. The gate's verdict on it is for the record.
pub(super) fn provided(
    toolbox: &Toolbox,
    given: &ModelToolCall,
    result: &Value,
    scope: &CallScope,
    gate: &mut Gate,
) -> PlannedCall {
    let tool = toolbox.tool(&given.name).filter(|tool| tool.executor == Executor::Provider);
    let args = shown(&given.args);
    let outcome = Outcome::Ok(match encoded_len(result) {
        small if small <= LARGEST_VALUE => result.clone(),
        _ => Value::String("[the result is larger than 1 MB]".to_owned()),
    });
    let intent = tool.map(|tool| tool.intent).unwrap_or_default();
    PlannedCall {
        given_id: given.id.clone(),
        tool: cut(&given.name, LONGEST_NAME),
        gate: tool.map(|tool| gate.judge(tool, &args, scope)),
        args,
        said: None,
        plan: CallPlan::Answer { executor: Executor::Provider, intent, outcome },
    }
}

fn refusal(executor: Executor, intent: Intent, message: String, kind: ErrorType) -> CallPlan {
    CallPlan::Answer { executor, intent, outcome: Outcome::Err(message, kind) }
}

/// Refused arguments as the journal keeps them: whole if small, else the beginning of their text.
fn shown(given: &Result<Value, String>) -> Value {
    match given {
        Ok(args) if encoded_len(args) <= SMALL_ARGS => args.clone(),
        Ok(args) => Value::String(cut(&args.to_string(), SHOWN_TEXT)),
        Err(raw) => Value::String(cut(raw, SHOWN_TEXT)),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
