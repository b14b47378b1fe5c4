//! What `post` hooks make of a message of the model.

use abide_conversation::command::Judged;

use super::{Declared, HookCaller, Occasion, On, Reply, What};

/// Asks the hooks in the order of their declaration; the first that is against the message decides.
pub(crate) async fn judged(
    caller: &HookCaller,
    hooks: &[Declared],
    occasion: &Occasion,
    what: &What,
) -> Judged {
    for hook in hooks.iter().filter(|hook| hook.on == On::Post) {
        match caller.ask(hook, occasion, what.clone()).await {
            Ok(Reply::Halt(reason)) => {
                return Judged::Halt(format!("hook {}: {reason}", hook.name));
            }
            Ok(Reply::Refuse(reason)) => {
                return Judged::Refuse { hook: hook.name.clone(), reason };
            }
            Err(failed) if hook.fail_closed => return Judged::Halt(failed.to_string()),
            Ok(Reply::GoOn | Reply::Add(_) | Reply::Show(_) | Reply::Deny(_) | Reply::Args(_))
            | Err(_) => {}
        }
    }
    Judged::GoOn
}
