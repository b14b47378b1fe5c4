//! Runs that programs outside carry out: what begins them.

use abide_conversation::command::{AwaitCallback, ExternalAction, QueueCall};
use abide_conversation::event::{EffectiveArgs, OnInterrupt};
use abide_conversation::{Action, Attempt, CallId};
use jiff::SignedDuration;

use super::ActivityContext;
use crate::definition::{QueueTarget, Target, Tool};
use crate::external::{Callback, CallbackClaims};

/// The action that puts an attempt into its queue.
pub(super) fn queue(
    (call, attempt): (&CallId, Attempt),
    target: &QueueTarget,
    on_interrupt: OnInterrupt,
    effective_args: Option<EffectiveArgs>,
) -> Action {
    Action::External(ExternalAction::Queue(QueueCall {
        call: call.clone(),
        attempt,
        queue: target.queue.clone(),
        on_interrupt,
        effective_args,
    }))
}

/// The action that leaves an attempt to the tool, which calls back.
pub(super) fn await_callback(
    call: &CallId,
    attempt: Attempt,
    effective_args: Option<EffectiveArgs>,
) -> Action {
    let call = call.clone();
    Action::External(ExternalAction::AwaitCallback(AwaitCallback { call, attempt, effective_args }))
}

/// Where the tool may send its result later. Only HTTP tools are told, and none of a dispatch, whose
/// caller waits for the result.
pub(super) async fn callback(
    ctx: &ActivityContext,
    tool: &Tool,
    id: &CallId,
    attempt: Attempt,
) -> Option<Callback> {
    let is_http = matches!(tool.target(), Some(Target::Http(_)));
    let turn = ctx.state.turn.as_ref().filter(|_| is_http)?;
    let call = ctx.state.call(id)?;
    let time = SignedDuration::from_millis(i64::try_from(call.timeout_ms).unwrap_or(i64::MAX));
    let expires_at = ctx.services.clock.now().checked_add(time).ok()?;
    let claims = CallbackClaims {
        tenant: ctx.id.tenant(),
        conversation: ctx.id.local(),
        turn: turn.id.clone(),
        call: id.clone(),
        attempt,
        exp: expires_at.as_second().saturating_add(1),
    };
    ctx.services.callbacks.issue(claims, expires_at).await
}
