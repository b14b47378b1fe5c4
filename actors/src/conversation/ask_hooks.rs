//! `PreToolUse` hooks that judge a request: it waits in a task, and the actor goes on.

use abide_conversation::command::{ResolutionAnswer, Resolve};
use abide_conversation::permission::Decision;
use abide_conversation::{CallId, Revision};
use ractor::ActorRef;
use serde_json::Value;

use super::not_done::{HookQuestion, HookQuestions, NotDone};
use super::{ConversationMsg, LiveConversation};
use crate::assigns::merged;
use crate::definition::Definition;
use crate::definition::Tool;
use crate::hooks::HookContext;
use crate::hooks::tool_use::{self, ToolUse, ToolUseVerdict, invalid_args_rule};
use crate::request::{
    Delivery, DeliveryContent, DeliveryOutcome, ReplyPort, Request, RequestContext, RequestError,
    ResolveRequest,
};
use crate::tools::{Gate, Toolbox};

/// The hooks' verdict on a use of this tool, under this revision.
#[derive(Clone, Debug)]
pub struct HookVerdict {
    revision: Revision,
    /// `None` for a dispatch, which has no call yet.
    call: Option<CallId>,
    tool: String,
    verdict: ToolUseVerdict,
}

impl HookVerdict {
    /// The verdict, if it is on this tool of this definition.
    pub(super) fn verdict_on(self, definition: &Definition, tool: &str) -> Option<ToolUseVerdict> {
        (self.revision == definition.revision && self.tool == tool).then_some(self.verdict)
    }

    /// The verdict on this call, of several verdicts.
    pub(super) fn on_call(verdicts: &[Self], call: &CallId) -> Option<Self> {
        verdicts.iter().find(|verdict| verdict.call.as_ref() == Some(call)).cloned()
    }
}

impl LiveConversation {
    /// Lets a task ask the hooks. The request returns to this actor with their verdicts; if the
    /// actor ends before, it returns to its sender, and nothing was done.
    pub(super) fn ask_hooks(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        questions: HookQuestions,
        context: RequestContext,
        reply: ReplyPort,
    ) {
        if !self.waiters.can_defer() {
            // The caller may be gone.
            let _ = reply.send(DeliveryOutcome::Failed(RequestError::Overloaded));
            return;
        }
        let HookQuestions { request, questions, mut verdicts } = questions;
        let delivery = Delivery::again(DeliveryContent { request, context, reply });
        let myself = myself.clone();
        let hooks = self.services.hooks.clone();
        self.waiters.defer(|number| async move {
            for HookQuestion { definition, context, tool_use } in questions {
                let revision = definition.revision.clone();
                let (call, tool) = (tool_use.call_id.clone(), tool_use.tool.clone());
                let verdict = tool_use::ask(&hooks, &definition.hooks, &context, tool_use).await;
                verdicts.push(HookVerdict { revision, call, tool, verdict });
            }
            // An actor that has ended drops the delivery, which thereby returns to its sender.
            let _ =
                myself.cast(ConversationMsg::HooksAnswered(number, Box::new(delivery), verdicts));
        });
    }

    /// Lets the gate and the hooks judge arguments that an approver edited.
    pub(super) async fn judge_edited_args(
        &self,
        toolbox: &Toolbox,
        resolve: &mut Resolve,
        request: ResolveRequest,
        hook_verdict: Option<HookVerdict>,
    ) -> Result<(), NotDone> {
        let Some(open) = self.state.call(&resolve.call) else { return Ok(()) };
        let (Some(tool), Some(args)) = (toolbox.tool(&open.tool), edited_args(&request.answer))
        else {
            return Ok(());
        };
        let definition = toolbox.definition();
        let args = args.clone();
        let checked = tool.check_args_async(&args).await;
        checked.map_err(|why| RequestError::invalid("args", why))?;
        let gate = Gate::new(definition.clone(), &self.state);
        let verdict = gate.recheck_edited(tool, &args);
        let is_denied = verdict.decision == Decision::Deny;
        resolve.verdict = Some(verdict);
        if is_denied || !tool_use::is_judged(&definition.hooks, &tool.name) {
            return Ok(());
        }
        if let Some(verdict) =
            hook_verdict.and_then(|hooks| hooks.verdict_on(definition, &tool.name))
        {
            apply_verdict(resolve, &gate, tool, &args, verdict).await;
            return Ok(());
        }
        let turn = self.state.turn.as_ref();
        let turn_assigns = turn.map(|turn| turn.assigns.clone()).unwrap_or_default();
        let context = HookContext {
            conversation_id: self.id.local(),
            turn_id: turn.map(|turn| turn.id.clone()),
            principal: Some(resolve.by.clone()),
            assigns: merged(&definition.assigns, &self.state.assigns, &turn_assigns),
        };
        let tool_use = ToolUse {
            call_id: Some(open.id.clone()),
            tool: tool.name.clone(),
            executor: open.kind.executor(),
            args,
        };
        let question = HookQuestion { definition: definition.clone(), context, tool_use };
        Err(NotDone::AsksHooks(HookQuestions::one(Request::Resolve(request), question)))
    }
}

/// The arguments of an approval that edits them.
pub(super) fn edited_args(answer: &ResolutionAnswer) -> Option<&Value> {
    match answer {
        ResolutionAnswer::Approval { approved: true, args, .. } => args.as_ref(),
        ResolutionAnswer::Approval { .. }
        | ResolutionAnswer::Result(_)
        | ResolutionAnswer::Error(_)
        | ResolutionAnswer::Retry => None,
    }
}

async fn apply_verdict(
    resolve: &mut Resolve,
    gate: &Gate,
    tool: &Tool,
    args: &Value,
    verdict: ToolUseVerdict,
) {
    let deny = |rule: &str| Some(gate.deny(tool, args, rule));
    match verdict {
        // The approver who edited the arguments is the one whom the hook wants to be asked.
        ToolUseVerdict::GoOn | ToolUseVerdict::Ask { args: None, .. } => {}
        ToolUseVerdict::Args { hook, args }
        | ToolUseVerdict::Ask { args: Some((hook, args)), .. } => {
            match tool.check_args_async(&args).await {
                Ok(()) => {
                    resolve.verdict = Some(gate.recheck_edited(tool, &args));
                    if let ResolutionAnswer::Approval { args: edited, .. } = &mut resolve.answer {
                        *edited = Some(args);
                    }
                }
                Err(_) => resolve.verdict = deny(&invalid_args_rule(&hook)),
            }
        }
        ToolUseVerdict::Deny(rule) => resolve.verdict = deny(&rule),
        ToolUseVerdict::Halt(reason) => {
            resolve.verdict = deny(&reason);
            resolve.halt = Some(reason);
        }
    }
}
