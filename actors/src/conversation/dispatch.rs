//! A user's own call of a server tool, beside whatever turn runs.

use std::collections::BTreeMap;

use abide_conversation::event::{Data, Event, OnInterrupt};
use abide_conversation::permission::{Decision, Verdict};
use abide_conversation::{Action, CallId, ConversationId, Rejection, command, decide};
use ractor::ActorRef;
use serde_json::Value;

use super::{ConversationMsg, Death, Loaded};
use crate::journal::{Answer, Refusal};
use crate::request::{Answered, DispatchRequest, Failure, RepeatKey, Reply, ReplyPort};
use crate::tools::{Gate, Scope, Toolbox, merged};

impl Loaded {
    /// Begins a user's own call, or joins the one that the request repeats; the answer comes with
    /// its result.
    pub(super) async fn dispatch(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        request: DispatchRequest,
        repeats: &[RepeatKey],
        reply: ReplyPort,
    ) -> Result<(), Death> {
        match self.joins(repeats) {
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
        let begun = match self.begin_dispatch(request, repeats).await {
            Ok((call, events)) => {
                self.dispatched.entry(call.clone()).or_default().push(reply);
                // A call that the gate refused is over at once; nothing else keeps its answer.
                let answers = self.refused(&events, repeats);
                let committed = self.commit(myself, events, answers).await;
                committed.map_err(|refusal| (self.dispatched.remove(&call), refusal))
            }
            Err(failure) => {
                let _ = reply.send(Answered::Failed(failure));
                return Ok(());
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
        &self,
        request: DispatchRequest,
        repeats: &[RepeatKey],
    ) -> Result<(CallId, Vec<Event>), Failure> {
        let DispatchRequest { tool, input, approved, principal } = request;
        let agent = self.state.agent.clone().ok_or(Rejection::NotFound)?;
        let definition = self.newest(&agent).await?;
        let scope = Scope {
            conversation: self.id.clone(),
            principal: principal.clone(),
            assigns: merged(&definition.assigns, &self.state.assigns, &Default::default()),
            metadata: self.state.metadata.clone(),
        };
        let toolbox = self.toolbox_of(definition.clone());
        let of_agent = match toolbox.recalls(std::iter::once(tool.as_str())) {
            true => self.deps.agents.decisions(&agent).await?,
            false => Vec::new(),
        };
        let now = self.deps.clock.now();
        let gate = Gate::new(definition.clone(), &self.state);
        let gate = gate.recalling(&self.state, of_agent, now);
        // A condition may take a while; it must not hold up other conversations.
        let judged = tokio::task::spawn_blocking(move || {
            judge(&toolbox, &gate, &tool, &input, approved, &scope).map(|found| (found, input))
        });
        let judged = judged.await.map_err(|error| Refusal::Unavailable(error.to_string()))?;
        let (Judged { tool, on_interrupt, asks, gate }, input) = judged?;
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
        Ok((call, decide(&self.state, self.command(action))?))
    }
}

/// The tool that a user's own call means, and what the gate says to it.
struct Judged {
    tool: String,
    on_interrupt: OnInterrupt,
    asks: bool,
    gate: Verdict,
}

fn judge(
    toolbox: &Toolbox,
    gate: &Gate,
    tool: &str,
    input: &Value,
    approved: bool,
    scope: &Scope,
) -> Result<Judged, Failure> {
    let found = toolbox.dispatchable(tool).ok_or_else(|| Failure::ToolNotFound(tool.to_owned()))?;
    found.check_args(input).map_err(|why| Failure::invalid("input", why))?;
    let gate = gate.judge(found, input, scope);
    if !approved && gate.decision == Decision::Ask {
        return Err(Failure::ApprovalRequired(found.name.clone()));
    }
    let (tool, on_interrupt) = (found.name.clone(), found.on_interrupt);
    Ok(Judged { tool, on_interrupt, asks: found.asks_a_child(), gate })
}
