//! What `post` hooks make of a message of the model.

use abide_conversation::command::MessageVerdict;

use super::{HookCaller, HookContext, HookPayload, Reply};
use crate::definition::{HookPoint, HookSpec};

/// Asks the hooks in the order of their declaration; the first that is against the message decides.
pub(crate) async fn judged(
    caller: &HookCaller,
    hooks: &[HookSpec],
    occasion: &HookContext,
    what: &HookPayload,
) -> MessageVerdict {
    for hook in hooks.iter().filter(|hook| hook.on == HookPoint::Post) {
        match caller.ask(hook, occasion, what.clone()).await {
            Ok(Reply::Halt(reason)) => {
                return MessageVerdict::Halt(format!("hook {}: {reason}", hook.name));
            }
            Ok(Reply::Refuse(reason)) => {
                return MessageVerdict::Refuse { hook: hook.name.clone(), reason };
            }
            Err(failed) if hook.fail_closed => return MessageVerdict::Halt(failed.to_string()),
            Ok(Reply::GoOn | Reply::Add(_) | Reply::Show(_) | Reply::Deny(_) | Reply::Args(_))
            | Err(_) => {}
        }
    }
    MessageVerdict::Accept
}
