//! A user's own call of a server tool, beside whatever turn runs.

use std::collections::BTreeMap;

use abide_conversation::event::{Event, OnInterrupt};
use abide_conversation::{Action, CallId, Rejection, command, decide};
use ractor::ActorRef;
use serde_json::Value;

use super::{ConversationMsg, Death, Loaded};
use crate::journal::Refusal;
use crate::request::{Answered, DispatchRequest, Failure, RepeatKey, ReplyPort};
use crate::tools::{Scope, Toolbox, merged};

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
                let committed = self.commit(myself, events, Vec::new()).await;
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
        let toolbox = Toolbox::new(definition.clone(), self.own.clone());
        // A condition may take a while; it must not hold up other conversations.
        let judged = tokio::task::spawn_blocking(move || {
            judge(&toolbox, &tool, &input, approved, &scope).map(|found| (found, input))
        });
        let judged = judged.await.map_err(|error| Refusal::Unavailable(error.to_string()))?;
        let ((tool, on_interrupt), input) = judged?;
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
        });
        Ok((call, decide(&self.state, self.command(action))?))
    }
}

/// The tool that a user's own call means, if it may run.
fn judge(
    toolbox: &Toolbox,
    tool: &str,
    input: &Value,
    approved: bool,
    scope: &Scope,
) -> Result<(String, OnInterrupt), Failure> {
    let found = toolbox.dispatchable(tool).ok_or_else(|| Failure::ToolNotFound(tool.to_owned()))?;
    found.check_args(input).map_err(|why| Failure::invalid("input", why))?;
    if !approved && found.is_gated(input, scope) {
        return Err(Failure::ApprovalRequired(found.name.clone()));
    }
    Ok((found.name.clone(), found.on_interrupt))
}
