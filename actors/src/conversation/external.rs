//! Requests about calls that programs outside carry out.

use abide_conversation::command::{CompleteCall, ExternalAction, LeaseCall, Proof};
use abide_conversation::decide::check_proof;
use abide_conversation::event::{Event, EventData};
use abide_conversation::ids::{CallId, LeaseId};
use abide_conversation::message::Outcome;
use abide_conversation::state::{Call, QueueEntry};
use abide_conversation::{Action, Rejection, State, Transition, TurnId};
use serde_json::{Map, Value};

use super::not_done::NotDone;
use super::requests::{Proposal, propose};
use super::{LiveConversation, seq_of, with_store_timeout};
use crate::assigns;
use crate::blobs::{self, BlobHold, TenantBlobs};
use crate::external::{ExternalRequest, LeaseToken, QueueArrival, Work};
use crate::limits::{MAX_ERROR_BYTES, MAX_VALUE_BYTES, cut, encoded_len};
use crate::request::{Reply, RequestError};
use crate::tools::idempotency_key;

impl LiveConversation {
    /// Prepares a request about a call that a program outside carries out.
    pub(super) async fn external(&mut self, request: ExternalRequest) -> Result<Proposal, NotDone> {
        match request {
            ExternalRequest::Lease(lease) => self.lease(lease).await,
            ExternalRequest::Extend(extend) => {
                let (call, id) = (extend.call.clone(), extend.lease.clone());
                let action = external(ExternalAction::Extend(extend));
                let transition = self.decide(action.clone())?;
                let extended = extended(&transition, &call, &id).ok_or(Rejection::Stale)?;
                Ok(propose(action, move |_| extended))
            }
            ExternalRequest::Progress { .. } => Err(Rejection::Stale.into()),
            ExternalRequest::Complete(complete) => self.complete(*complete).await,
        }
    }

    /// Publishes the progress of a call, which no journal has.
    pub(super) fn external_progress(
        &self,
        call: &CallId,
        proof: &Proof,
        progress: Value,
    ) -> Result<Reply, NotDone> {
        check_proof(&self.state, self.services.clock.now(), call, proof)?;
        if encoded_len(&progress) > MAX_VALUE_BYTES {
            return Err(RequestError::invalid("progress", "must be at most 1 MB").into());
        }
        self.activities.progress.publish(&*self.services.live, &self.id, call, progress);
        Ok(Reply::Noted)
    }

    /// Gives a waiting call to a worker.
    async fn lease(&mut self, lease: LeaseCall) -> Result<Proposal, NotDone> {
        let action = external(ExternalAction::Lease(lease.clone()));
        let transition = self.decide(action.clone())?;
        let state = transition.state;
        let Some(turn) = &state.turn else { return Err(Rejection::Stale.into()) };
        let revision = self.id.sibling(&turn.revision);
        let definition = self.services.agents.revision(&revision).await?;
        let of_agent = definition.map(|definition| definition.assigns.clone()).unwrap_or_default();
        let assigns = assigns::merged(&of_agent, &state.assigns, &turn.assigns);
        let call = state.call(&lease.call).ok_or(Rejection::Stale)?;
        let work = Box::new(self.work(call, &turn.id, assigns)?);
        Ok(propose(action, move |_| Reply::Leased { work }))
    }

    fn work(
        &self,
        call: &Call,
        turn: &TurnId,
        assigns: Map<String, Value>,
    ) -> Result<Work, NotDone> {
        let run = call.external_run().ok_or(Rejection::Stale)?;
        let lease = run.lease().ok_or(Rejection::Stale)?;
        let conversation_id = self.id.local();
        let token = LeaseToken {
            conversation: conversation_id.clone(),
            call: call.id.clone(),
            lease: lease.id.clone(),
        };
        let effective = run.effective_args.as_ref().map(|effective| &effective.args);
        Ok(Work {
            lease_id: token.encode(),
            conversation_id,
            turn_id: turn.clone(),
            call_id: call.id.clone(),
            attempt: run.attempt,
            tool: call.tool.clone(),
            args: effective.unwrap_or(&call.args).clone(),
            assigns,
            principal: call.principal.clone(),
            approvals: call.approvals.clone(),
            idempotency_key: idempotency_key(&self.id, &call.id, Some(turn)),
            lease_until: lease.until,
            deadline: run.expires_at,
        })
    }

    /// Checks a result from outside. One that does not fit changes nothing: the call stays with whoever
    /// has it.
    async fn complete(&mut self, mut complete: CompleteCall) -> Result<Proposal, NotDone> {
        check_proof(&self.state, self.services.clock.now(), &complete.call, &complete.proof)?;
        let large = |value: &Value| encoded_len(value) > MAX_VALUE_BYTES;
        if complete.ui.as_ref().is_some_and(|ui| large(&ui.payload)) {
            return Err(RequestError::invalid("ui.payload", "must be at most 1 MB").into());
        }
        complete.halt = complete.halt.map(|reason| cut(&reason, MAX_ERROR_BYTES));
        match &mut complete.outcome {
            Outcome::Err(error, _) => *error = cut(error, MAX_ERROR_BYTES),
            Outcome::Ok(result) => {
                if large(result) {
                    return Err(RequestError::invalid("result", "must be at most 1 MB").into());
                }
                let tool = self.state.call(&complete.call).map(|call| call.tool.clone());
                if let (Some(toolbox), Some(tool)) = (self.toolbox().await?, tool) {
                    let checked = toolbox.check_answer(&tool, result).await;
                    checked.map_err(|why| RequestError::invalid("result", why))?;
                }
                let hold = BlobHold::of_conversation(&self.id, self.services.clock.now());
                let blobs = TenantBlobs::new(&*self.services.blobs, &self.id).holding(&hold);
                with_store_timeout(blobs::extract_media(blobs, result)).await?;
            }
        }
        let call = complete.call.clone();
        let action = external(ExternalAction::Complete(Box::new(complete)));
        Ok(propose(action, move |events| {
            let is_result = |event: &Event| matches!(&event.data, EventData::ToolResult(result) if result.call_id == call);
            Reply::Resolved { seq: seq_of(events, is_result) }
        }))
    }
}

impl LiveConversation {
    /// Tells the node of calls that workers may have at once.
    pub(super) fn announce_arrivals(&self, arrived: Vec<QueueEntry>) {
        let arrival = |entry| QueueArrival { conversation: self.id.clone(), entry };
        self.services.queue_arrivals.announce(arrived.into_iter().map(arrival).collect());
    }
}

fn external(action: ExternalAction) -> Action {
    Action::External(action)
}

/// The reply to an extension.
fn extended(transition: &Transition, call: &CallId, id: &LeaseId) -> Option<Reply> {
    let run = transition.state.call(call).and_then(Call::external_run)?;
    let lease = run.lease().filter(|lease| lease.id == *id)?;
    let queue = run.queue()?.clone();
    Some(Reply::LeaseExtended { until: lease.until, queue, worker: lease.worker.clone() })
}

/// What waits in queues in a state.
pub(super) fn queue_entries(state: &State) -> Vec<QueueEntry> {
    let calls = state.turn.iter().flat_map(|turn| &turn.calls);
    calls.filter_map(Call::queue_entry).collect()
}
