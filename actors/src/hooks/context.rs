//! What `pre` hooks add to the context of one step.

use abide_conversation::event::AddedContext;
use abide_conversation::message::Message;
use futures::future::join_all;
use serde_json::Value;

use super::{HookCallError, HookCaller, HookContext, HookPayload, HookSpec, Reply};
use crate::model::prompt;
use crate::model::tokens::TokenCounter;

/// How much may still be added to one step.
#[derive(Clone)]
pub(crate) struct TokenReserve {
    /// In tokens.
    whole: u32,
    used: u64,
    counter: TokenCounter,
}

impl TokenReserve {
    pub(crate) fn new(whole: u32, counter: TokenCounter) -> Self {
        Self { whole, used: 0, counter }
    }

    /// Takes what was added out of it; the error is why the turn ends.
    pub(crate) fn take(&mut self, hook: &str, content: &[Value]) -> Result<(), String> {
        self.used = self.used.saturating_add(self.counter.content(content));
        match self.used > u64::from(self.whole) {
            true => {
                Err(format!("hook {hook} went over the injection reserve of {} tokens", self.whole))
            }
            false => Ok(()),
        }
    }
}

/// Asks hooks in the order of their declaration, neighbours of one parallel group at once. The error
/// is why the turn is to be halted.
pub(crate) async fn additions(
    caller: &HookCaller,
    hooks: &[&HookSpec],
    occasion: &HookContext,
    what: &HookPayload,
    reserve: &mut TokenReserve,
) -> Result<Vec<AddedContext>, String> {
    let mut added = Vec::new();
    let together =
        |one: &&HookSpec, next: &&HookSpec| one.parallel.is_some() && one.parallel == next.parallel;
    for group in hooks.chunk_by(together) {
        let asked = group.iter().map(|hook| caller.ask(hook, occasion, what.clone()));
        for (hook, reply) in group.iter().zip(join_all(asked).await) {
            match reply.map_err(|failed| failed.to_string())? {
                Reply::Add(content) if content.is_empty() => {}
                Reply::Add(content) => {
                    reserve.take(&hook.name, &content)?;
                    added.push(AddedContext { hook: hook.name.clone(), content });
                }
                Reply::Halt(reason) if hook.parallel.is_none() => {
                    return Err(format!("hook {}: {reason}", hook.name));
                }
                Reply::Halt(_) => {
                    tracing::warn!(hook = hook.name, "a hook of a parallel group may only add");
                    return Err(HookCallError(hook.name.clone()).to_string());
                }
                Reply::GoOn
                | Reply::Refuse(_)
                | Reply::Show(_)
                | Reply::Deny(_)
                | Reply::Args(_) => {}
            }
        }
    }
    Ok(added)
}

/// What was added, as the model reads it, for one step only.
pub(crate) fn transient(added: Vec<AddedContext>) -> impl Iterator<Item = Message> {
    let message = |(at, added): (usize, AddedContext)| {
        prompt::generated_message(format!("{}now_{at}", prompt::CONTEXT_ID), added.content)
    };
    added.into_iter().enumerate().map(message)
}
