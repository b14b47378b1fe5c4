//! `post` hooks judge a message of the model.

use abide_conversation::command::MessageVerdict;

use super::{HookCaller, HookContext, HookPayload, HookReply};
use crate::definition::{HookPoint, HookSpec};

/// Asks the hooks in the order of their declaration. The first that objects to the message decides.
pub(crate) async fn judge_message(
    caller: &HookCaller,
    hooks: &[HookSpec],
    context: &HookContext,
    payload: &HookPayload,
) -> MessageVerdict {
    for hook in hooks.iter().filter(|hook| hook.on == HookPoint::Post) {
        match caller.ask(hook, context, payload.clone()).await {
            Ok(HookReply::Halt(reason)) => {
                return MessageVerdict::Halt(format!("hook {}: {reason}", hook.name));
            }
            Ok(HookReply::Refuse(reason)) => {
                return MessageVerdict::Refuse { hook: hook.name.clone(), reason };
            }
            Err(error) if hook.fail_closed => return MessageVerdict::Halt(error.to_string()),
            Ok(
                HookReply::GoOn
                | HookReply::Add(_)
                | HookReply::Show(_)
                | HookReply::Deny(_)
                | HookReply::Args(_)
                | HookReply::Ask(_),
            )
            | Err(_) => {}
        }
    }
    MessageVerdict::Accept
}
