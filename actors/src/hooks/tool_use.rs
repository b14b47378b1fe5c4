//! What `PreToolUse` hooks say to a call that the gate does not refuse.

use abide_conversation::CallId;
use abide_conversation::event::Executor;
use serde_json::Value;

use super::{HookCaller, HookContext, HookPayload, Reply};
use crate::definition::{HookPoint, HookSpec};

/// The call that hooks are asked about.
#[derive(Clone, Debug)]
pub(crate) struct ToolUse {
    /// `None` for a user's own call.
    pub(crate) call_id: Option<CallId>,
    pub(crate) tool: String,
    pub(crate) executor: Executor,
    pub(crate) args: Value,
}

/// What all the hooks together say to it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ToolUseVerdict {
    GoOn,
    /// It is to have these arguments, which nobody has looked at yet; the last hook that changed them.
    Args {
        hook: String,
        args: Value,
    },
    /// The rule by which it is refused.
    Deny(String),
    /// Why the turn ends.
    Halt(String),
}

/// Whether any hook wants to be asked about calls of the tool.
pub(crate) fn concerned(hooks: &[HookSpec], tool: &str) -> bool {
    hooks.iter().any(|hook| hook.concerns(HookPoint::PreToolUse, Some(tool)))
}

/// Asks the hooks in the order of their declaration, each about the arguments that those before it
/// left. One that fails denies.
pub(crate) async fn said(
    caller: &HookCaller,
    hooks: &[HookSpec],
    occasion: &HookContext,
    asked: ToolUse,
) -> ToolUseVerdict {
    let ToolUse { call_id, tool, executor, mut args } = asked;
    let mut changed = None;
    for hook in hooks.iter().filter(|hook| hook.concerns(HookPoint::PreToolUse, Some(&tool))) {
        let (call_id, tool) = (call_id.clone(), tool.clone());
        let what = HookPayload::Call { call_id, tool, executor, args: args.clone() };
        let because = |reason: &str| format!("hook {}: {reason}", hook.name);
        match caller.ask(hook, occasion, what).await {
            Ok(Reply::Deny(reason)) => return ToolUseVerdict::Deny(because(&reason)),
            Ok(Reply::Halt(reason)) => return ToolUseVerdict::Halt(because(&reason)),
            Ok(Reply::Args(others)) => {
                (args, changed) = (others, Some(hook.name.clone()));
            }
            Ok(Reply::GoOn | Reply::Add(_) | Reply::Refuse(_) | Reply::Show(_)) => {}
            Err(_) => return ToolUseVerdict::Deny(because("failed")),
        }
    }
    match changed {
        Some(hook) => ToolUseVerdict::Args { hook, args },
        None => ToolUseVerdict::GoOn,
    }
}

/// The rule that refuses a call whose arguments a hook spoilt.
pub(crate) fn spoilt(hook: &str) -> String {
    format!("hook {hook}: the arguments that it wants are invalid")
}
