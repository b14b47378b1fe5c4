//! The hooks of one step: before the model is asked, on what it says, and before its calls run.

use abide_conversation::command::{CallPlan, MessageVerdict, PlannedCall};
use abide_conversation::event::{Event, EventData, Executor};
use abide_conversation::message::Message;
use abide_conversation::permission::Decision;
use abide_conversation::{Action, CallId};
use futures::StreamExt;
use serde_json::{Value, json};

use super::{Heard, Step};
use crate::assigns::merged;
use crate::definition::{HookPoint, HookSpec};
use crate::hooks::context::{TokenReserve, additions, transient};
use crate::hooks::stream::{Filter, filtered};
use crate::hooks::tool_use::{self, ToolUse, ToolUseVerdict};
use crate::hooks::{HookCaller, HookContext, HookPayload, kept, post};
use crate::model::{ModelToolCall, ReplyStream};

/// Calls of one message whose hooks are asked at once; servers have their own limits.
const ASKED_AT_ONCE: usize = 32;

impl Step<'_> {
    /// What `pre` hooks add for this step only; or what is to be journalled before the model is
    /// asked.
    pub(super) async fn prepare(
        &self,
        events: &[Event],
        messages: &[Message],
    ) -> Result<Vec<Message>, Action> {
        let hooks = self.hooks(HookPoint::Pre);
        if hooks.is_empty() {
            return Ok(Vec::new());
        }
        let (durable, passing): (Vec<_>, Vec<_>) = hooks.into_iter().partition(|it| it.durable);
        let what = HookPayload::Pre { step: self.step, messages: kept(messages) };
        let occasion = self.occasion();
        let mut reserve = TokenReserve::new(self.definition.injection_reserve, self.counter);
        let (turn, step) = (self.turn.id.clone(), self.step);
        if self.turn.hooks_done_for < step && !durable.is_empty() {
            let added = additions(self.caller(), &durable, &occasion, &what, &mut reserve).await;
            match added {
                Ok(added) if added.is_empty() => {}
                Ok(added) => return Err(Action::ContextAdded { turn, step, added }),
                Err(reason) => return Err(Action::Halt { turn, step, reason }),
            }
        }
        let added = match self.take_added(events, &mut reserve) {
            Ok(()) => additions(self.caller(), &passing, &occasion, &what, &mut reserve).await,
            Err(reason) => Err(reason),
        };
        match added {
            Ok(added) => Ok(transient(added).collect()),
            Err(reason) => Err(Action::Halt { turn, step, reason }),
        }
    }

    /// What durable hooks have added to this step counts, too.
    fn take_added(&self, events: &[Event], reserve: &mut TokenReserve) -> Result<(), String> {
        for event in events.iter().rev().filter(|it| it.turn_id.as_ref() == Some(&self.turn.id)) {
            if let EventData::ContextAdded(context) = &event.data
                && context.step == self.step
            {
                for added in &context.added {
                    reserve.take(&added.hook, &added.content)?;
                }
            }
        }
        Ok(())
    }

    /// The parts as `stream` hooks let them through.
    pub(super) fn filtered(&self, parts: ReplyStream) -> ReplyStream {
        if self.hooks(HookPoint::Stream).is_empty() {
            return parts;
        }
        let filter = Filter {
            caller: self.around.deps.runner.hooks().clone(),
            definition: self.definition.clone(),
            occasion: self.occasion(),
            step: self.step,
            left_out: Vec::new(),
            changed: false,
        };
        filtered(parts, filter)
    }

    /// What `post` hooks make of the message.
    pub(super) async fn judged(&self, heard: &Heard) -> MessageVerdict {
        if self.hooks(HookPoint::Post).is_empty() {
            return MessageVerdict::Accept;
        }
        let tool_calls = heard.calls.iter().map(said_call).collect();
        let what =
            HookPayload::Post { step: self.step, content: heard.content.clone(), tool_calls };
        post::judged(self.caller(), &self.definition.hooks, &self.occasion(), &what).await
    }

    /// What PreToolUse hooks say to the calls, in call order; nothing if none of them is asked.
    pub(super) async fn said(&self, planned: &[PlannedCall]) -> Option<Vec<ToolUseVerdict>> {
        let hooks = &self.definition.hooks;
        let is_asked = |planned: &PlannedCall| {
            let executor = executor(&planned.plan);
            is_let_through(planned)
                && executor != Executor::Provider
                && tool_use::concerned(hooks, &planned.tool)
        };
        if !planned.iter().any(is_asked) {
            return None;
        }
        let occasion = &self.occasion();
        let ask = |planned: &PlannedCall| {
            let asked = is_asked(planned).then(|| ToolUse {
                call_id: Some(CallId::new(planned.given_id.clone())),
                tool: planned.tool.clone(),
                executor: executor(&planned.plan),
                args: planned.args.clone(),
            });
            async move {
                match asked {
                    Some(asked) => tool_use::said(self.caller(), hooks, occasion, asked).await,
                    None => ToolUseVerdict::GoOn,
                }
            }
        };
        let asking: Vec<_> = planned.iter().map(ask).collect();
        Some(futures::stream::iter(asking).buffered(ASKED_AT_ONCE).collect().await)
    }

    fn occasion(&self) -> HookContext {
        let state = &self.around.state;
        HookContext {
            conversation_id: self.around.id.clone(),
            turn_id: Some(self.turn.id.clone()),
            principal: Some(self.turn.principal.clone()),
            assigns: merged(&self.definition.assigns, &state.assigns, &self.turn.assigns),
        }
    }

    fn hooks(&self, on: HookPoint) -> Vec<&HookSpec> {
        self.definition.hooks.iter().filter(|hook| hook.on == on).collect()
    }

    fn caller(&self) -> &HookCaller {
        self.around.deps.runner.hooks()
    }
}

/// Whether the gate has not refused the call, nor anything before the gate.
pub(super) fn is_let_through(planned: &PlannedCall) -> bool {
    planned.gate.as_ref().is_some_and(|verdict| verdict.decision != Decision::Deny)
}

fn executor(plan: &CallPlan) -> Executor {
    match plan {
        CallPlan::Answer { executor, .. } | CallPlan::Execute { executor, .. } => *executor,
    }
}

/// A call as `post` hooks read it.
fn said_call(call: &ModelToolCall) -> Value {
    let args = match &call.args {
        Ok(args) => args.clone(),
        Err(raw) => Value::String(raw.clone()),
    };
    json!({"id": call.id, "name": call.name, "args": args})
}
