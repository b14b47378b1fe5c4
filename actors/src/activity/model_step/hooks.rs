//! The hooks of one step: before the model call, on its message, and before its calls run.

use abide_conversation::command::{MessageVerdict, PlannedCall};
use abide_conversation::event::{Event, EventData, Executor};
use abide_conversation::message::Message;
use abide_conversation::permission::Decision;
use abide_conversation::{Action, CallId};
use futures::StreamExt;
use serde_json::{Value, json};

use super::{ModelReply, ModelStep};
use crate::assigns::merged;
use crate::definition::{HookPoint, HookSpec};
use crate::hooks::context::{TokenReserve, collect_additions, transient_messages};
use crate::hooks::stream;
use crate::hooks::stream::Filter;
use crate::hooks::tool_use::{self, ToolUse, ToolUseVerdict};
use crate::hooks::{HookCaller, HookContext, HookPayload, newest_messages, post};
use crate::model::{ModelToolCall, ReplyStream};

/// The calls of one message whose hooks are asked at once. Servers have limits of their own.
const MAX_CONCURRENT_CALLS: usize = 32;

impl ModelStep<'_> {
    /// Runs `pre` hooks. Returns what they add for this step only, or the action that must be
    /// journalled before the model is called.
    pub(super) async fn run_pre_hooks(
        &self,
        events: &[&Event],
        messages: &[Message],
    ) -> Result<Vec<Message>, Action> {
        let hooks = self.hooks(HookPoint::Pre);
        if hooks.is_empty() {
            return Ok(Vec::new());
        }
        // Programs outside learn only of what is in the journal.
        self.ctx.pending_commit.wait().await;
        let (durable, transient): (Vec<_>, Vec<_>) = hooks.into_iter().partition(|it| it.durable);
        let payload = HookPayload::Pre { step: self.step, messages: newest_messages(messages) };
        let context = self.hook_context();
        let mut reserve = TokenReserve::new(self.definition.injection_reserve, self.counter);
        let caller = self.caller();
        let turn = self.turn.id.clone();
        let step = self.step;
        if self.turn.hooks_done_for < step && !durable.is_empty() {
            let added = collect_additions(caller, &durable, &context, &payload, &mut reserve).await;
            match added {
                Ok(added) if added.is_empty() => {}
                Ok(added) => return Err(Action::ContextAdded { turn, step, added }),
                Err(reason) => return Err(Action::Halt { turn, step, reason }),
            }
        }
        let added = match self.charge_durable_additions(events, &mut reserve) {
            Ok(()) => collect_additions(caller, &transient, &context, &payload, &mut reserve).await,
            Err(reason) => Err(reason),
        };
        match added {
            Ok(added) => Ok(transient_messages(added).collect()),
            Err(reason) => Err(Action::Halt { turn, step, reason }),
        }
    }

    /// Subtracts from the reserve what durable hooks have added to this step.
    fn charge_durable_additions(
        &self,
        events: &[&Event],
        reserve: &mut TokenReserve,
    ) -> Result<(), String> {
        for event in events.iter().rev().filter(|it| it.turn_id.as_ref() == Some(&self.turn.id)) {
            if let EventData::ContextAdded(additions) = &event.data
                && additions.step == self.step
            {
                for added in &additions.added {
                    reserve.take(&added.hook, &added.content)?;
                }
            }
        }
        Ok(())
    }

    /// The stream as `stream` hooks let it through.
    pub(super) fn filter(&self, chunks: ReplyStream) -> ReplyStream {
        if self.hooks(HookPoint::Stream).is_empty() {
            return chunks;
        }
        let filter = Filter {
            caller: self.ctx.services.hooks.clone(),
            definition: self.definition.clone(),
            context: self.hook_context(),
            step: self.step,
            skipped: Vec::new(),
            has_changed: false,
        };
        stream::filter(chunks, filter)
    }

    /// Lets `post` hooks judge the message.
    pub(super) async fn judge_message(&self, reply: &ModelReply) -> MessageVerdict {
        if self.hooks(HookPoint::Post).is_empty() {
            return MessageVerdict::Accept;
        }
        let payload = HookPayload::Post {
            step: self.step,
            content: reply.content.clone(),
            tool_calls: reply.calls.iter().map(call_json).collect(),
        };
        let (hooks, context) = (&self.definition.hooks, self.hook_context());
        // Boxed: most agents have no such hook.
        Box::pin(post::judge_message(self.caller(), hooks, &context, &payload)).await
    }

    /// The verdicts of `PreToolUse` hooks on the calls, in call order; `None` if no hook is asked.
    pub(super) async fn judge_calls(&self, planned: &[PlannedCall]) -> Option<Vec<ToolUseVerdict>> {
        let hooks = &self.definition.hooks;
        let is_asked = |planned: &PlannedCall| {
            passed_the_gate(planned)
                && planned.plan.executor() != Executor::Provider
                && tool_use::is_judged(hooks, &planned.tool)
        };
        if !planned.iter().any(is_asked) {
            return None;
        }
        let context = &self.hook_context();
        let ask = |planned: &PlannedCall| {
            let tool_use = is_asked(planned).then(|| ToolUse {
                call_id: Some(CallId::new(planned.given_id.clone())),
                tool: planned.tool.clone(),
                executor: planned.plan.executor(),
                args: Value::clone(&planned.args),
            });
            async move {
                match tool_use {
                    Some(it) => tool_use::ask(self.caller(), hooks, context, it).await,
                    None => ToolUseVerdict::GoOn,
                }
            }
        };
        let asking: Vec<_> = planned.iter().map(ask).collect();
        Some(futures::stream::iter(asking).buffered(MAX_CONCURRENT_CALLS).collect().await)
    }

    fn hook_context(&self) -> HookContext {
        let state = &self.ctx.state;
        HookContext {
            conversation_id: self.ctx.id.local(),
            turn_id: Some(self.turn.id.clone()),
            principal: Some(self.turn.principal.clone()),
            assigns: merged(&self.definition.assigns, &state.assigns, &self.turn.assigns),
        }
    }

    pub(super) fn has_hooks(&self, on: HookPoint) -> bool {
        self.definition.hooks.iter().any(|hook| hook.on == on)
    }

    fn hooks(&self, on: HookPoint) -> Vec<&HookSpec> {
        self.definition.hooks.iter().filter(|hook| hook.on == on).collect()
    }

    fn caller(&self) -> &HookCaller {
        &self.ctx.services.hooks
    }
}

/// Whether neither the gate nor anything before it has refused the call.
pub(super) fn passed_the_gate(planned: &PlannedCall) -> bool {
    planned.verdict.as_ref().is_some_and(|verdict| verdict.decision != Decision::Deny)
}

/// A call as `post` hooks read it.
fn call_json(call: &ModelToolCall) -> Value {
    let args = match &call.args {
        Ok(args) => args.clone(),
        Err(raw) => Value::String(raw.clone()),
    };
    json!({"id": call.id, "name": call.name, "args": args})
}
