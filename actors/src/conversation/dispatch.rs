//! A user's own call of a server tool, beside whatever turn runs.

use std::collections::BTreeMap;

use abide_conversation::event::{Event, EventData, Executor, OnInterrupt};
use abide_conversation::permission::{Decision, Verdict};
use abide_conversation::{Action, CallId, ConversationId, Rejection, Transition, command};
use ractor::ActorRef;
use serde_json::Value;

use super::ask_hooks::HookQuestion;
use super::requests::NotDone;
use super::{ConversationMsg, ExitReason, HookAnswers, LiveConversation};
use crate::assigns::merged;
use crate::hooks::HookContext;
use crate::hooks::tool_use::{self, ToolUse, ToolUseVerdict, spoilt};
use crate::journal::{StoreError, StoredResponse};
use crate::request::{
    DeliveryOutcome, DispatchRequest, IdempotencyKey, Reply, ReplyPort, Request, RequestError,
};
use crate::tools::{CallScope, Gate, Toolbox};

impl LiveConversation {
    /// Begins a user's own call, or joins the one that the request repeats; the answer comes with
    /// its result.
    pub(super) async fn dispatch(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        request: DispatchRequest,
        (repeats, reply): (Vec<IdempotencyKey>, ReplyPort),
        heard: Option<HookAnswers>,
    ) -> Result<(), ExitReason> {
        match self.joins(&repeats) {
            Ok(Some(call)) => {
                self.dispatched.entry(call).or_default().push(reply);
                return Ok(());
            }
            Ok(None) => {}
            Err(failure) => {
                let _ = reply.send(DeliveryOutcome::Failed(failure));
                return Ok(());
            }
        }
        let begun = match self.begin_dispatch(request, &repeats, heard).await {
            Ok((call, decided)) => {
                self.dispatched.entry(call.clone()).or_default().push(reply);
                // A call that the gate refused is over at once; nothing else keeps its answer.
                let answers = self.refused(&decided.events, &repeats);
                let committed = self.commit(myself, decided, answers).await;
                committed.map_err(|refusal| (self.dispatched.remove(&call), refusal))
            }
            Err(NotDone::Asks(question)) => {
                self.ask_hooks(myself, *question, repeats, reply);
                return Ok(());
            }
            Err(NotDone::Failed(failure)) => {
                let _ = reply.send(DeliveryOutcome::Failed(failure));
                return Ok(());
            }
            Err(NotDone::Unsure(refusal)) => {
                let _ = reply.send(DeliveryOutcome::Failed(refusal.clone().into()));
                return Err(refusal.into());
            }
        };
        begun.map_err(|(waiting, refusal)| {
            for reply in waiting.unwrap_or_default() {
                let _ = reply.send(DeliveryOutcome::Failed(refusal.clone().into()));
            }
            refusal.into()
        })
    }

    /// The answers to keep of a call that ended without beginning.
    fn refused(&self, events: &[Event], repeats: &[IdempotencyKey]) -> Vec<StoredResponse> {
        let answers = events.iter().filter_map(|event| match &event.data {
            EventData::DispatchFinished(done) => {
                let reply = Reply::Dispatched { outcome: done.result.clone(), ui: done.ui.clone() };
                Some(self.remember(repeats, &reply))
            }
            _ => None,
        });
        answers.flatten().collect()
    }

    /// The running call that a repeated request means.
    fn joins(&self, repeats: &[IdempotencyKey]) -> Result<Option<CallId>, RequestError> {
        for (id, run) in &self.state.dispatches {
            for repeat in repeats {
                match run.requests.get(&repeat.key) {
                    Some(fingerprint) if *fingerprint == repeat.fingerprint => {
                        return Ok(Some(id.clone()));
                    }
                    Some(_) => return Err(RequestError::KeyReused(repeat.field.clone())),
                    None => {}
                }
            }
        }
        Ok(None)
    }

    async fn begin_dispatch(
        &mut self,
        request: DispatchRequest,
        repeats: &[IdempotencyKey],
        heard: Option<HookAnswers>,
    ) -> Result<(CallId, Transition), NotDone> {
        let DispatchRequest { tool, input, approved, principal } = request;
        let agent = self.state.agent.clone().ok_or(Rejection::NotFound)?;
        let definition = self.newest(&agent).await?;
        let assigns = merged(&definition.assigns, &self.state.assigns, &Default::default());
        let scope = CallScope {
            conversation: self.id.clone(),
            principal: principal.clone(),
            assigns: assigns.clone(),
            metadata: self.state.metadata.clone(),
        };
        let toolbox = self.toolbox_of(definition.clone());
        let of_agent = match toolbox.uses_remembered_decisions(
            toolbox.dispatchable(&tool).map(|tool| tool.name.as_str()).into_iter(),
        ) {
            true => self.deps.agents.decisions(&agent).await?,
            false => Vec::new(),
        };
        let now = self.deps.clock.now();
        let gate = Gate::new(definition.clone(), &self.state);
        let gate = gate.with_remembered(&self.state, of_agent, now);
        // A condition may take a while; it must not hold up other conversations.
        let judged = tokio::task::spawn_blocking(move || {
            judge(&toolbox, &gate, (tool, input), approved, &scope, heard)
        });
        let judged = judged.await.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let Judged { tool, input, on_interrupt, asks, gate, heard } = judged?;
        let refused = gate.decision == Decision::Deny;
        if !heard && !refused && tool_use::concerned(&definition.hooks, &tool) {
            let (conversation_id, turn_id) = (self.id.clone(), None);
            let of = Some(principal.clone());
            let occasion = HookContext { conversation_id, turn_id, principal: of, assigns };
            let (executor, args) = (Executor::Server, input.clone());
            let asked = ToolUse { call_id: None, tool: tool.clone(), executor, args };
            let request = Request::Dispatch(DispatchRequest { tool, input, approved, principal });
            let question = HookQuestion { definition, occasion, asked, request };
            return Err(NotDone::Asks(Box::new(question)));
        }
        let call = CallId::new(self.deps.clock.id("call"));
        let requests: BTreeMap<_, _> =
            repeats.iter().map(|repeat| (repeat.key.clone(), repeat.fingerprint.clone())).collect();
        let action = Action::Dispatch(command::Dispatch {
            call: call.clone(),
            tool,
            input,
            principal,
            revision: definition.revision.clone(),
            on_interrupt,
            requests,
            gate,
            child: asks.then(|| ConversationId::new(self.deps.clock.id("conv"))),
        });
        Ok((call, self.decide(action)?))
    }
}

/// The tool that a user's own call means, and what the gate and the hooks say to it.
struct Judged {
    tool: String,
    input: Value,
    on_interrupt: OnInterrupt,
    asks: bool,
    gate: Verdict,
    /// Whether hooks were asked.
    heard: bool,
}

fn judge(
    toolbox: &Toolbox,
    gate: &Gate,
    (tool, input): (String, Value),
    approved: bool,
    scope: &CallScope,
    heard: Option<HookAnswers>,
) -> Result<Judged, RequestError> {
    let found = toolbox.dispatchable(&tool).ok_or(RequestError::ToolNotFound(tool))?;
    let judge = |input: &Value| {
        found.check_args(input).map_err(|why| RequestError::invalid("input", why))?;
        let verdict = gate.decide(found, input, scope);
        match !approved && verdict.decision == Decision::Ask {
            true => Err(RequestError::ApprovalRequired(found.name.clone())),
            false => Ok(verdict),
        }
    };
    let verdict = judge(&input)?;
    let said = heard.and_then(|heard| heard.about(toolbox.definition(), &found.name));
    let asked = said.is_some();
    let (input, gate) = match said.filter(|_| verdict.decision != Decision::Deny) {
        None | Some(ToolUseVerdict::GoOn) => (input, verdict),
        Some(ToolUseVerdict::Args { hook, args }) => match judge(&args) {
            Ok(verdict) => (args, verdict),
            Err(RequestError::Invalid { .. }) => {
                let refused = gate.deny(found, &input, &spoilt(&hook));
                (input, refused)
            }
            Err(failure) => return Err(failure),
        },
        Some(ToolUseVerdict::Deny(rule) | ToolUseVerdict::Halt(rule)) => {
            let refused = gate.deny(found, &input, &rule);
            (input, refused)
        }
    };
    let (tool, on_interrupt) = (found.name.clone(), found.on_interrupt);
    Ok(Judged { tool, input, on_interrupt, asks: found.is_sub_agent(), gate, heard: asked })
}
