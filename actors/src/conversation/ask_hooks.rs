//! Hooks that judge what a client asks for: the request waits beside the actor, which goes on.

use std::sync::Arc;

use abide_conversation::Revision;
use abide_conversation::command::{ResolutionAnswer, Resolve};
use abide_conversation::permission::Decision;
use ractor::ActorRef;
use serde_json::Value;
use tokio_util::task::AbortOnDropHandle;

use super::requests::NotDone;
use super::{ConversationMsg, LiveConversation};
use crate::assigns::merged;
use crate::definition::Definition;
use crate::definition::Tool;
use crate::hooks::HookContext;
use crate::hooks::tool_use::{self, ToolUse, ToolUseVerdict, spoilt};
use crate::request::{
    Delivery, DeliveryContent, DeliveryOutcome, IdempotencyKey, ReplyPort, Request, RequestError,
    ResolveRequest,
};
use crate::tools::{Gate, Toolbox};

/// Requests of one conversation whose hooks are asked; more is a client that has lost its way.
pub(super) const ASKING: usize = 100;

/// What hooks must say before a request is looked at again.
pub(super) struct HookQuestion {
    pub(super) definition: Arc<Definition>,
    pub(super) occasion: HookContext,
    pub(super) asked: ToolUse,
    pub(super) request: Request,
}

/// What hooks said to a request: about calls of this tool, under this revision.
#[derive(Debug)]
pub struct HookAnswers {
    revision: Revision,
    tool: String,
    said: ToolUseVerdict,
}

impl HookAnswers {
    /// What was said, if it was about this.
    pub(super) fn about(self, definition: &Definition, tool: &str) -> Option<ToolUseVerdict> {
        (self.revision == definition.revision && self.tool == tool).then_some(self.said)
    }
}

impl LiveConversation {
    /// Lets a task ask the hooks. The request comes back to this actor with what they said; if the
    /// actor ends before, it goes back to its sender, and nothing was done.
    pub(super) fn ask_hooks(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        question: HookQuestion,
        repeats: Vec<IdempotencyKey>,
        reply: ReplyPort,
    ) {
        if self.asking.len() >= ASKING {
            // Who asked may have gone.
            let _ = reply.send(DeliveryOutcome::Failed(RequestError::Overloaded));
            return;
        }
        let HookQuestion { definition, occasion, asked, request } = question;
        let delivery = Delivery::back(DeliveryContent { request, repeats, reply });
        let (myself, caller) = (myself.clone(), self.deps.runner.hooks().clone());
        self.asked += 1;
        let number = self.asked;
        let task = tokio::spawn(async move {
            let (revision, tool) = (definition.revision.clone(), asked.tool.clone());
            let said = tool_use::said(&caller, &definition.hooks, &occasion, asked).await;
            let heard = Box::new(HookAnswers { revision, tool, said });
            // An actor that has ended drops it, and the request goes back.
            let _ = myself.cast(ConversationMsg::HooksAnswered(number, Box::new(delivery), heard));
        });
        self.asking.insert(number, AbortOnDropHandle::new(task));
    }

    /// What the gate and the hooks make of arguments that an approver edited.
    pub(super) fn edited(
        &self,
        toolbox: &Toolbox,
        resolve: &mut Resolve,
        request: Option<ResolveRequest>,
        heard: Option<HookAnswers>,
    ) -> Result<(), NotDone> {
        let (Some(open), Some(request)) = (self.state.call(&resolve.call), request) else {
            return Ok(());
        };
        let (Some(tool), Some(args)) = (toolbox.tool(&open.tool), edit(&request.answer)) else {
            return Ok(());
        };
        let (definition, args) = (toolbox.definition(), args.clone());
        tool.check_args(&args).map_err(|why| RequestError::invalid("args", why))?;
        let gate = Gate::new(definition.clone(), &self.state);
        let verdict = gate.recheck_edited(tool, &args);
        let refused = verdict.decision == Decision::Deny;
        resolve.gate = Some(verdict);
        if refused || !tool_use::concerned(&definition.hooks, &tool.name) {
            return Ok(());
        }
        match heard.and_then(|heard| heard.about(definition, &tool.name)) {
            Some(said) => heed(resolve, &gate, tool, &args, said),
            None => {
                let asked = ToolUse {
                    call_id: Some(open.id.clone()),
                    tool: tool.name.clone(),
                    executor: open.executor,
                    args,
                };
                let turn = self.state.turn.as_ref();
                let (before, own) = (&definition.assigns, Default::default());
                let own = turn.map_or(&own, |turn| &turn.assigns);
                let occasion = HookContext {
                    conversation_id: self.id.clone(),
                    turn_id: turn.map(|turn| turn.id.clone()),
                    principal: Some(resolve.by.clone()),
                    assigns: merged(before, &self.state.assigns, own),
                };
                let (definition, request) = (definition.clone(), Request::Resolve(request));
                let question = HookQuestion { definition, occasion, asked, request };
                return Err(NotDone::Asks(Box::new(question)));
            }
        }
        Ok(())
    }
}

/// The arguments of an approval that edits them.
pub(super) fn edit(answer: &ResolutionAnswer) -> Option<&Value> {
    match answer {
        ResolutionAnswer::Approval { approved: true, args, .. } => args.as_ref(),
        ResolutionAnswer::Approval { .. }
        | ResolutionAnswer::Result(_)
        | ResolutionAnswer::Error(_) => None,
    }
}

fn heed(resolve: &mut Resolve, gate: &Gate, tool: &Tool, args: &Value, said: ToolUseVerdict) {
    let deny = |rule: &str| Some(gate.deny(tool, args, rule));
    match said {
        ToolUseVerdict::GoOn => {}
        ToolUseVerdict::Args { hook, args } => match tool.check_args(&args) {
            Ok(()) => {
                resolve.gate = Some(gate.recheck_edited(tool, &args));
                if let ResolutionAnswer::Approval { args: edited, .. } = &mut resolve.answer {
                    *edited = Some(args);
                }
            }
            Err(_) => resolve.gate = deny(&spoilt(&hook)),
        },
        ToolUseVerdict::Deny(rule) => resolve.gate = deny(&rule),
        ToolUseVerdict::Halt(reason) => {
            resolve.gate = deny(&reason);
            resolve.halt = Some(reason);
        }
    }
}
