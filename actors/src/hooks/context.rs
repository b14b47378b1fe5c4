//! `pre` hooks add to the context of one step.

use abide_conversation::event::AddedContext;
use abide_conversation::message::Message;
use futures::future::join_all;
use serde_json::Value;

use super::{HookCallError, HookCaller, HookContext, HookPayload, HookReply};
use crate::definition::HookSpec;
use crate::model::prompt;
use crate::model::tokens::TokenCounter;

/// The tokens that hooks may still add to one step.
#[derive(Clone)]
pub(crate) struct TokenReserve {
    total: u32,
    used: u64,
    counter: TokenCounter,
}

impl TokenReserve {
    pub(crate) fn new(total: u32, counter: TokenCounter) -> Self {
        Self { total, used: 0, counter }
    }

    /// Subtracts what a hook added. The error is the reason why the turn ends.
    pub(crate) fn take(&mut self, hook: &str, content: &[Value]) -> Result<(), String> {
        self.used = self.used.saturating_add(self.counter.content(content));
        if self.used > u64::from(self.total) {
            let total = self.total;
            return Err(format!("hook {hook} went over the injection reserve of {total} tokens"));
        }
        Ok(())
    }
}

/// Asks hooks in the order of their declaration, neighbours of the same parallel group at once. The
/// error is the reason why the turn is halted.
pub(crate) async fn collect_additions(
    caller: &HookCaller,
    hooks: &[&HookSpec],
    context: &HookContext,
    payload: &HookPayload,
    reserve: &mut TokenReserve,
) -> Result<Vec<AddedContext>, String> {
    let mut added = Vec::new();
    let in_one_group =
        |one: &&HookSpec, next: &&HookSpec| one.parallel.is_some() && one.parallel == next.parallel;
    for group in hooks.chunk_by(in_one_group) {
        let replies = group.iter().map(|hook| caller.ask(hook, context, payload.clone()));
        for (hook, reply) in group.iter().zip(join_all(replies).await) {
            match reply.map_err(|error| error.to_string())? {
                HookReply::Add(content) if content.is_empty() => {}
                HookReply::Add(content) => {
                    reserve.take(&hook.name, &content)?;
                    added.push(AddedContext { hook: hook.name.clone(), content });
                }
                HookReply::Halt(reason) if hook.parallel.is_none() => {
                    return Err(format!("hook {}: {reason}", hook.name));
                }
                HookReply::Halt(_) => {
                    tracing::warn!(
                        hook = hook.name,
                        "hook failed: a hook of a parallel group may only add"
                    );
                    return Err(HookCallError(hook.name.clone()).to_string());
                }
                HookReply::GoOn
                | HookReply::Refuse(_)
                | HookReply::Show(_)
                | HookReply::Deny(_)
                | HookReply::Args(_)
                | HookReply::Ask(_) => {}
            }
        }
    }
    Ok(added)
}

/// The messages that the additions become, for one step only.
pub(crate) fn transient_messages(added: Vec<AddedContext>) -> impl Iterator<Item = Message> {
    let message = |(at, added): (usize, AddedContext)| {
        prompt::generated_message(format!("{}now_{at}", prompt::CONTEXT_ID), added.content)
    };
    added.into_iter().enumerate().map(message)
}
