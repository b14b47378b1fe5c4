//! Plans one call: refused, answered at once, or handed to its executor.

use std::time::Duration;

use abide_conversation::command::{ApprovalQuestion, CallPlan, PlannedCall};
use abide_conversation::event::{CallKind, Executor, Intent, OnInterrupt};
use abide_conversation::message::{ErrorType, Outcome};
use abide_conversation::permission::{Decision, Verdict};
use serde_json::{Map, Value};

use super::answer_schema;
use super::call_scope::CallScope;
use super::{Gate, Toolbox};
use crate::definition::{ClientAnswer, MAX_TOOL_NAME_BYTES, Tool, ToolKind};
use crate::hooks::tool_use::{ApprovalDemand, ToolUseVerdict, invalid_args_rule};
use crate::limits::{MAX_EXCERPT_BYTES, MAX_VALUE_BYTES, cut, encoded_len};
use crate::model::{ModelToolCall, big_numbers};

/// Refused arguments are journalled whole up to this size: the model sees them again, no tool does.
const MAX_REFUSED_ARGS_BYTES: usize = 16 * 1024;

pub(super) fn plan(
    toolbox: &Toolbox,
    model_call: &ModelToolCall,
    scope: &CallScope,
    gate: &mut Gate,
) -> PlannedCall {
    plan_asking(toolbox, model_call, None, scope, gate)
}

/// Plans one call. With a question of a hook it goes to an approval, unless the gate denies it.
fn plan_asking(
    toolbox: &Toolbox,
    model_call: &ModelToolCall,
    question: Option<&ApprovalDemand>,
    scope: &CallScope,
    gate: &mut Gate,
) -> PlannedCall {
    if let Some(result) = &model_call.provider_result {
        return plan_provider_call(toolbox, model_call, result, scope, gate);
    }
    let Some(tool) = toolbox.tool(&model_call.name).filter(|tool| tool.is_for_model()) else {
        let name = cut(&model_call.name, MAX_TOOL_NAME_BYTES);
        let message = format!("unknown tool: {name}");
        let plan =
            error_plan(Executor::Server, Intent::default(), message, ErrorType::ToolNotFound);
        let (given_id, args) = (model_call.id.clone(), args_for_journal(&model_call.args));
        return PlannedCall {
            given_id,
            tool: name,
            args: args.into(),
            original_args: None,
            plan,
            verdict: None,
        };
    };
    let (args, plan, verdict) = match parse_args(tool, &model_call.args) {
        Ok(args) => {
            let verdict = gate.decide_asking(tool, &args, scope, question);
            gate.advance(tool, &args, &verdict);
            let mut plan = plan_verdict(toolbox, tool, &args, scope, &verdict);
            if let (Some(asked), CallPlan::Execute { gate: Some(approval), .. }) =
                (question, &mut plan)
            {
                approval.message.push('\n');
                approval.message.push_str(&asked.reason);
            }
            (args, plan, Some(verdict))
        }
        Err(mistake) => {
            let message = format!("invalid tool arguments: {mistake}");
            let kind = ErrorType::ValidationError;
            (
                args_for_journal(&model_call.args),
                error_plan(tool.executor(), tool.intent, message, kind),
                None,
            )
        }
    };
    let (given_id, tool) = (model_call.id.clone(), tool.name.clone());
    PlannedCall { given_id, tool, args: args.into(), original_args: None, plan, verdict }
}

/// Plans a call again with the verdict of the hooks. Arguments from a hook are checked as if the
/// model had given them, and the model's own are recorded beside them.
pub(super) fn replan(
    toolbox: &Toolbox,
    planned: PlannedCall,
    verdict: ToolUseVerdict,
    scope: &CallScope,
    gate: &mut Gate,
) -> PlannedCall {
    let again = |args: Value, question: Option<&ApprovalDemand>, gate: &mut Gate| {
        let (id, name) = (planned.given_id.clone(), planned.tool.clone());
        let model_call = ModelToolCall { id, name, args: Ok(args), provider_result: None };
        plan_asking(toolbox, &model_call, question, scope, gate)
    };
    let again_with =
        |hook: &str, args, question: Option<&ApprovalDemand>, gate: &mut Gate| match again(
            args, question, gate,
        ) {
            changed if changed.verdict.is_some() => {
                PlannedCall { original_args: Some(planned.args.clone()), ..changed }
            }
            _ => deny_by_hook(toolbox, planned.clone(), invalid_args_rule(hook), gate),
        };
    match verdict {
        // A provider's call already has its result and is not planned again.
        ToolUseVerdict::GoOn if is_provider_call(&planned.plan) => planned,
        ToolUseVerdict::GoOn => again(Value::clone(&planned.args), None, gate),
        ToolUseVerdict::Args { hook, args } => again_with(&hook, args, None, gate),
        ToolUseVerdict::Ask { question, args: None } => {
            again(Value::clone(&planned.args), Some(&question), gate)
        }
        ToolUseVerdict::Ask { question, args: Some((hook, args)) } => {
            again_with(&hook, args, Some(&question), gate)
        }
        ToolUseVerdict::Deny(rule) | ToolUseVerdict::Halt(rule) => {
            deny_by_hook(toolbox, planned, rule, gate)
        }
    }
}

fn is_provider_call(plan: &CallPlan) -> bool {
    plan.executor() == Executor::Provider
}

/// The call, denied by a hook.
fn deny_by_hook(toolbox: &Toolbox, planned: PlannedCall, rule: String, gate: &Gate) -> PlannedCall {
    let Some(tool) = toolbox.tool(&planned.tool) else { return planned };
    let verdict = gate.deny(tool, &planned.args, &rule);
    let outcome = verdict.to_error(&tool.name);
    let plan = CallPlan::Complete { executor: tool.executor(), intent: tool.intent, outcome };
    PlannedCall { plan, verdict: Some(verdict), ..planned }
}

fn parse_args(tool: &Tool, given: &Result<Value, String>) -> Result<Value, String> {
    let args = match given {
        Ok(args) => args.clone(),
        // Providers send an empty string for a tool without arguments.
        Err(raw) if raw.trim().is_empty() => Value::Object(Map::new()),
        Err(raw) => {
            return Err(match big_numbers::find_rounded(raw) {
                Some(field) if field.is_empty() => "must be an object".to_owned(),
                Some(field) => {
                    format!("{}: {}", cut(&field, MAX_EXCERPT_BYTES), big_numbers::OVER_64_BITS)
                }
                None => "not JSON".to_owned(),
            });
        }
    };
    tool.check_args(&args).map(|()| args)
}

fn plan_verdict(
    toolbox: &Toolbox,
    tool: &Tool,
    args: &Value,
    scope: &CallScope,
    verdict: &Verdict,
) -> CallPlan {
    let (executor, intent) = (tool.executor(), tool.intent);
    let at_once = |outcome| CallPlan::Complete { executor, intent, outcome };
    let question = || ApprovalQuestion {
        message: tool.confirmation(args, scope).unwrap_or_else(|| format!("Allow {}?", tool.name)),
        policy: tool.approval_policy(scope.identity.is_some()),
        answer_schema: Some(answer_schema::of_approval(tool)),
    };
    let gate = match verdict.decision {
        Decision::Allow => None,
        Decision::Ask => Some(question()),
        Decision::Deny => return at_once(verdict.to_error(&tool.name)),
    };
    let agent = toolbox.definition();
    let message = || tool.confirmation(args, scope).unwrap_or_else(|| tool.description.clone());
    let grace_ms = agent.client_grace.filter(|_| !toolbox.is_of_turn(&tool.name)).map(millis);
    let (kind, message) = match &tool.kind {
        ToolKind::Provider => {
            let message = "the provider sent no result".to_owned();
            return at_once(Outcome::Err(message, ErrorType::ToolError));
        }
        ToolKind::Client(ClientAnswer::Default(result)) if gate.is_none() => {
            return at_once(Outcome::Ok(result.clone()));
        }
        ToolKind::Client(ClientAnswer::Default(result)) => {
            let default_result = Some(result.clone());
            (CallKind::Client { grace_ms, default_result }, String::new())
        }
        ToolKind::Client(ClientAnswer::Awaited { .. }) => {
            (CallKind::Client { grace_ms, default_result: None }, message())
        }
        ToolKind::Human { .. } => (CallKind::Human, message()),
        ToolKind::Server(server) => {
            let lane = tool.builtin().and_then(|builtin| builtin.lane(args));
            let on_interrupt = server.on_interrupt;
            let policy = || tool.approval_policy(scope.identity.is_some()).map(Box::new);
            let answerers = (on_interrupt == OnInterrupt::Ask).then(policy).flatten();
            (CallKind::Server { on_interrupt, child: None, lane, answerers }, String::new())
        }
    };
    let timeout_ms = millis(tool.timeout.unwrap_or(agent.suspension_timeout));
    let answer_schema = answer_schema::of_result(tool);
    let waiting_rules = tool.waiting_rules.clone();
    CallPlan::Execute { kind, intent, gate, message, answer_schema, timeout_ms, waiting_rules }
}

/// Plans a call that the provider has run already. Nothing can prevent the run any more, and the
/// model has its result; the gate's verdict is only recorded.
pub(super) fn plan_provider_call(
    toolbox: &Toolbox,
    model_call: &ModelToolCall,
    result: &Value,
    scope: &CallScope,
    gate: &mut Gate,
) -> PlannedCall {
    let tool = toolbox.tool(&model_call.name).filter(|tool| tool.executor() == Executor::Provider);
    let args = args_for_journal(&model_call.args);
    let outcome = Outcome::Ok(match encoded_len(result) {
        small if small <= MAX_VALUE_BYTES => result.clone(),
        _ => Value::String("[the result is larger than 1 MB]".to_owned()),
    });
    let intent = tool.map(|tool| tool.intent).unwrap_or_default();
    PlannedCall {
        given_id: model_call.id.clone(),
        tool: cut(&model_call.name, MAX_TOOL_NAME_BYTES),
        verdict: tool.map(|tool| gate.decide(tool, &args, scope)),
        args: args.into(),
        original_args: None,
        plan: CallPlan::Complete { executor: Executor::Provider, intent, outcome },
    }
}

fn error_plan(executor: Executor, intent: Intent, message: String, kind: ErrorType) -> CallPlan {
    CallPlan::Complete { executor, intent, outcome: Outcome::Err(message, kind) }
}

/// Refused arguments for the journal: whole if they are small, else the beginning of their text.
fn args_for_journal(given: &Result<Value, String>) -> Value {
    match given {
        Ok(args) if encoded_len(args) <= MAX_REFUSED_ARGS_BYTES => args.clone(),
        Ok(args) => Value::String(cut(&args.to_string(), MAX_EXCERPT_BYTES)),
        Err(raw) => Value::String(cut(raw, MAX_EXCERPT_BYTES)),
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
