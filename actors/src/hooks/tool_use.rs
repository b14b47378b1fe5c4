//! `PreToolUse` hooks judge a call that the gate does not deny.

use abide_conversation::CallId;
use abide_conversation::event::Executor;
use serde_json::Value;

use super::{HookCaller, HookContext, HookPayload, HookReply};
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

/// What a hook wants approvers to read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ApprovalDemand {
    pub(crate) hook: String,
    pub(crate) reason: String,
}

impl ApprovalDemand {
    /// The rule that the call goes to an approval by.
    pub(crate) fn rule(&self) -> String {
        format!("hook {}: {}", self.hook, self.reason)
    }
}

/// The verdict of all the hooks together.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ToolUseVerdict {
    GoOn,
    /// The call gets these arguments, which are still unchecked. `hook` is the last that changed
    /// them.
    Args {
        hook: String,
        args: Value,
    },
    /// The call goes to an approval, unless the gate denies it.
    Ask {
        question: ApprovalDemand,
        /// The arguments that the call gets, as in `Args`, with the hook that changed them last.
        args: Option<(String, Value)>,
    },
    /// The rule that denies the call.
    Deny(String),
    /// The reason why the turn ends.
    Halt(String),
}

/// Whether a hook judges calls of the tool.
pub(crate) fn is_judged(hooks: &[HookSpec], tool: &str) -> bool {
    hooks.iter().any(|hook| hook.concerns(HookPoint::PreToolUse, Some(tool)))
}

/// Asks the hooks in the order of their declaration, each about the arguments that the previous
/// ones left. A hook that fails denies the call.
pub(crate) async fn ask(
    caller: &HookCaller,
    hooks: &[HookSpec],
    context: &HookContext,
    tool_use: ToolUse,
) -> ToolUseVerdict {
    let ToolUse { call_id, tool, executor, mut args } = tool_use;
    let mut changed_by = None;
    let mut question = None;
    for hook in hooks.iter().filter(|hook| hook.concerns(HookPoint::PreToolUse, Some(&tool))) {
        let payload = HookPayload::Call {
            call_id: call_id.clone(),
            tool: tool.clone(),
            executor,
            args: args.clone(),
        };
        let rule = |reason: &str| format!("hook {}: {reason}", hook.name);
        match caller.ask(hook, context, payload).await {
            Ok(HookReply::Deny(reason)) => return ToolUseVerdict::Deny(rule(&reason)),
            Ok(HookReply::Halt(reason)) => return ToolUseVerdict::Halt(rule(&reason)),
            Ok(HookReply::Args(new_args)) => {
                args = new_args;
                changed_by = Some(hook.name.clone());
            }
            // The first reason is enough; a later hook may still deny the call.
            Ok(HookReply::Ask(reason)) => {
                question.get_or_insert(ApprovalDemand { hook: hook.name.clone(), reason });
            }
            Ok(HookReply::GoOn | HookReply::Add(_) | HookReply::Refuse(_) | HookReply::Show(_)) => {
            }
            Err(_) => return ToolUseVerdict::Deny(rule("failed")),
        }
    }
    match (question, changed_by) {
        (Some(question), changed_by) => {
            ToolUseVerdict::Ask { question, args: changed_by.map(|hook| (hook, args)) }
        }
        (None, Some(hook)) => ToolUseVerdict::Args { hook, args },
        (None, None) => ToolUseVerdict::GoOn,
    }
}

/// The rule that denies a call because a hook gave it invalid arguments.
pub(crate) fn invalid_args_rule(hook: &str) -> String {
    format!("hook {hook}: the arguments that it wants are invalid")
}
