//! A user's own call of a server tool, beside whatever turn runs.

use std::collections::BTreeMap;

use abide_conversation::event::{Data, Event, Executor, OnInterrupt};
use abide_conversation::permission::{Decision, Verdict};
use abide_conversation::{Action, CallId, ConversationId, Decided, Rejection, command};
use ractor::ActorRef;
use serde_json::Value;

use super::hooked::Question;
use super::requests::Undone;
use super::{ConversationMsg, Death, Heard, Loaded};
use crate::hooks::Occasion;
use crate::hooks::tool_use::{self, Asked, Said, spoilt};
use crate::journal::{Answer, Refusal};
use crate::request::{Answered, DispatchRequest, Failure, RepeatKey, Reply, ReplyPort, Request};
use crate::tools::{Gate, Scope, Toolbox, merged};

impl Loaded {
    /// Begins a user's own call, or joins the one that the request repeats; the answer comes with
    /// its result.
    pub(super) async fn dispatch(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        request: DispatchRequest,
        (repeats, reply): (Vec<RepeatKey>, ReplyPort),
        heard: Option<Heard>,
    ) -> Result<(), Death> {
        match self.joins(&repeats) {
            Ok(Some(call)) => {
                self.dispatched.entry(call).or_default().push(reply);
                return Ok(());
            }
            Ok(None) => {}
            Err(failure) => {
                let _ = reply.send(Answered::Failed(failure));
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
            Err(Undone::Asks(question)) => {
                self.ask_hooks(myself, *question, repeats, reply);
                return Ok(());
            }
            Err(Undone::Failed(failure)) => {
                let _ = reply.send(Answered::Failed(failure));
                return Ok(());
            }
            Err(Undone::Unsure(refusal)) => {
                let _ = reply.send(Answered::Failed(refusal.clone().into()));
                return Err(refusal.into());
            }
        };
        begun.map_err(|(waiting, refusal)| {
            for reply in waiting.unwrap_or_default() {
                let _ = reply.send(Answered::Failed(refusal.clone().into()));
            }
            refusal.into()
        })
    }

    /// The answers to keep of a call that ended without beginning.
    fn refused(&self, events: &[Event], repeats: &[RepeatKey]) -> Vec<Answer> {
        let answers = events.iter().filter_map(|event| match &event.data {
            Data::Dispatch(done) => {
                let reply = Reply::Dispatched { outcome: done.result.clone(), ui: done.ui.clone() };
                Some(self.remember(repeats, &reply))
            }
            _ => None,
        });
        answers.flatten().collect()
    }

    /// The running call that a repeated request means.
    fn joins(&self, repeats: &[RepeatKey]) -> Result<Option<CallId>, Failure> {
        for (id, run) in &self.state.dispatches {
            for repeat in repeats {
                match run.requests.get(&repeat.key) {
                    Some(fingerprint) if *fingerprint == repeat.fingerprint => {
                        return Ok(Some(id.clone()));
                    }
                    Some(_) => return Err(Failure::KeyReused(repeat.field.clone())),
                    None => {}
                }
            }
        }
        Ok(None)
    }

    async fn begin_dispatch(
        &mut self,
        request: DispatchRequest,
        repeats: &[RepeatKey],
        heard: Option<Heard>,
    ) -> Result<(CallId, Decided), Undone> {
        let DispatchRequest { tool, input, approved, principal } = request;
        let agent = self.state.agent.clone().ok_or(Rejection::NotFound)?;
        let definition = self.newest(&agent).await?;
        let assigns = merged(&definition.assigns, &self.state.assigns, &Default::default());
        let scope = Scope {
            conversation: self.id.clone(),
            principal: principal.clone(),
            assigns: assigns.clone(),
            metadata: self.state.metadata.clone(),
        };
        let toolbox = self.toolbox_of(definition.clone());
        let of_agent = match toolbox
            .recalls(toolbox.dispatchable(&tool).map(|tool| tool.name.as_str()).into_iter())
        {
            true => self.deps.agents.decisions(&agent).await?,
            false => Vec::new(),
        };
        let now = self.deps.clock.now();
        let gate = Gate::new(definition.clone(), &self.state);
        let gate = gate.recalling(&self.state, of_agent, now);
        // A condition may take a while; it must not hold up other conversations.
        let judged = tokio::task::spawn_blocking(move || {
            judge(&toolbox, &gate, (tool, input), approved, &scope, heard)
        });
        let judged = judged.await.map_err(|error| Refusal::Unavailable(error.to_string()))?;
        let Judged { tool, input, on_interrupt, asks, gate, heard } = judged?;
        let refused = gate.decision == Decision::Deny;
        if !heard && !refused && tool_use::concerned(&definition.hooks, &tool) {
            let (conversation_id, turn_id) = (self.id.clone(), None);
            let of = Some(principal.clone());
            let occasion = Occasion { conversation_id, turn_id, principal: of, assigns };
            let (executor, args) = (Executor::Server, input.clone());
            let asked = Asked { call_id: None, tool: tool.clone(), executor, args };
            let request = Request::Dispatch(DispatchRequest { tool, input, approved, principal });
            let question = Question { definition, occasion, asked, request };
            return Err(Undone::Asks(Box::new(question)));
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
    scope: &Scope,
    heard: Option<Heard>,
) -> Result<Judged, Failure> {
    let found = toolbox.dispatchable(&tool).ok_or(Failure::ToolNotFound(tool))?;
    let judge = |input: &Value| {
        found.check_args(input).map_err(|why| Failure::invalid("input", why))?;
        let verdict = gate.judge(found, input, scope);
        match !approved && verdict.decision == Decision::Ask {
            true => Err(Failure::ApprovalRequired(found.name.clone())),
            false => Ok(verdict),
        }
    };
    let verdict = judge(&input)?;
    let said = heard.and_then(|heard| heard.about(toolbox.definition(), &found.name));
    let asked = said.is_some();
    let (input, gate) = match said.filter(|_| verdict.decision != Decision::Deny) {
        None | Some(Said::GoOn) => (input, verdict),
        Some(Said::Args { hook, args }) => match judge(&args) {
            Ok(verdict) => (args, verdict),
            Err(Failure::Invalid { .. }) => {
                let refused = gate.deny(found, &input, &spoilt(&hook));
                (input, refused)
            }
            Err(failure) => return Err(failure),
        },
        Some(Said::Deny(rule) | Said::Halt(rule)) => {
            let refused = gate.deny(found, &input, &rule);
            (input, refused)
        }
    };
    let (tool, on_interrupt) = (found.name.clone(), found.on_interrupt);
    Ok(Judged { tool, input, on_interrupt, asks: found.asks_a_child(), gate, heard: asked })
}
