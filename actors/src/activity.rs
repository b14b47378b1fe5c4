//! An activity becomes a task that reports back once, with an action for the actor to decide on.

mod attempt_end;
mod await_client;
mod child;
mod copy_fork;
mod external;
mod limited;
mod load_context;
mod model_call;
mod model_call_span;
mod model_step;
mod offload_media;
mod outcome;
mod publish_decision;
mod report;
mod start_turn;
mod summarize;
mod tool_run;
mod tool_span;

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use abide_conversation::{Action, Activity, ConversationId, Scoped, State};
use futures::FutureExt;
use tracing::Instrument;

use self::tool_span::ToolSpan;
use crate::backoff::Backoffs;
use crate::blobs::{BlobHold, TenantBlobs};
use crate::definition::Definition;
use crate::identity::Epoch;
use crate::journal::StoreError;
use crate::limit_waits::LimitWaits;
use crate::pending_commit::PendingCommit;
use crate::recent_events::RecentEvents;
use crate::services::Services;
use crate::streaming::Stream;
use crate::tools::{DeclaredTools, Toolbox};
pub(crate) use report::Progress;
pub use report::{ActivityError, Report};

/// What an activity gets from its actor. The state is the one that called for the activity.
pub(crate) struct ActivityContext {
    pub(crate) id: Scoped<ConversationId>,
    /// The epoch of the claim that the activity runs under.
    pub(crate) epoch: Epoch,
    pub(crate) services: Arc<Services>,
    pub(crate) state: Arc<State>,
    /// The commit that led to `state`, if the activity began before it was in the journal.
    pub(crate) pending_commit: PendingCommit,
    /// The last events up to `state`.
    pub(crate) recent_events: RecentEvents,
    /// The tools that clients declared.
    pub(crate) declared_tools: DeclaredTools,
    pub(crate) stream: Stream,
    pub(crate) progress: Progress,
    pub(crate) backoffs: Backoffs,
    pub(crate) limit_waits: LimitWaits,
}

impl ActivityContext {
    /// The tools of a definition. Asks its MCP servers for theirs, each within its time limit.
    async fn toolbox(&self, definition: Arc<Definition>) -> Toolbox {
        let listings = self.services.mcp.listings(&self.id.tenant(), &definition).await;
        Toolbox::with_declared(definition, &listings, self.declared_tools.clone())
    }
}

/// Runs an activity to its end. Dropping the future aborts it. Every log line written meanwhile
/// carries the ids of the conversation, the turn and the call.
///
/// Large futures are boxed: most running activities are waiting, and none should take more memory
/// than its own kind needs. This is not an `async` function: the future of one has room for its
/// arguments twice.
pub(crate) fn run(activity: Activity, ctx: ActivityContext) -> impl Future<Output = Report> {
    let turn = ctx.state.turn.as_ref().map(|turn| turn.id.as_str());
    let call = match &activity {
        Activity::RunTool { call, .. } | Activity::AwaitClient { call, .. } => Some(call.as_str()),
        _ => None,
    };
    let conversation = ctx.id.as_str();
    let epoch = ctx.epoch.get();
    // ERROR level, so that no filter drops the span: every log line must carry these ids.
    let span = tracing::error_span!("activity", conversation, epoch, turn, call);
    run_in_span(activity, ctx).instrument(span)
}

async fn run_in_span(activity: Activity, ctx: ActivityContext) -> Report {
    let work = async {
        let is_outside_work =
            matches!(activity, Activity::CallModel { .. } | Activity::RunTool { .. });
        // A process that was stopped resumes here, maybe long after it was declared dead.
        if is_outside_work && !ctx.services.lease.is_sound() {
            return Err(StoreError::Unavailable("this node could not renew its lease".to_owned()));
        }
        // Boxed: an action has almost a kilobyte, and goes through the frames that are around the work.
        let mut action = Box::new(perform(&activity, &ctx).await?);
        let hold = BlobHold::of_conversation(&ctx.id, ctx.services.clock.now());
        let blobs = TenantBlobs::new(&*ctx.services.blobs, &ctx.id).holding(&hold);
        Box::pin(offload_media::offload_media(blobs, &mut action)).await?;
        Ok(action)
    };
    let clock = ctx.services.clock.clone();
    let work = ctx.backoffs.scope(activity.to_string(), clock, work);
    let ended = match AssertUnwindSafe(work).catch_unwind().await {
        Ok(ended) => ended.map_err(ActivityError::from),
        Err(_) => Err(ActivityError::Panicked(activity.clone())),
    };
    Report { activity, ended }
}

async fn perform(activity: &Activity, ctx: &ActivityContext) -> Result<Action, StoreError> {
    match activity {
        Activity::StartTurn { turn } => Box::pin(start_turn::start_turn(ctx, turn)).await,
        Activity::CallModel { step, .. } => Box::pin(model_step::model_step(ctx, *step)).await,
        Activity::RunTool { call, attempt } => {
            let span = ToolSpan::begin(ctx, call, *attempt);
            let action = Box::pin(tool_run::tool_run(ctx, call, *attempt)).await;
            if let (Some(span), Ok(action)) = (span, &action) {
                span.end(ctx, action);
            }
            action
        }
        Activity::AwaitClient { call, suspension, grace_ms } => {
            Ok(await_client::await_client(ctx, call, *suspension, *grace_ms).await)
        }
        Activity::StopChild { child } => Ok(Box::pin(child::stop(ctx, child)).await),
        Activity::NotifyParent { turn } => Box::pin(child::notify_parent(ctx, turn)).await,
        Activity::CopyFork { after } => Box::pin(copy_fork::copy_fork(ctx, *after)).await,
        Activity::Summarize { upto } => Box::pin(summarize::summarize(ctx, *upto)).await,
        Activity::PublishDecision { decision } => {
            publish_decision::publish_decision(ctx, decision).await
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use abide_conversation::{Attempt, CallId, Step};

    use super::*;

    /// The bytes of the future that the function returns, which is not called.
    pub(crate) fn future_size<A, F: Future>(_: impl FnOnce(A) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn futures_of_activities_stay_small() {
        type Context = &'static ActivityContext;
        let call_model = future_size(|ctx: Context| model_step::model_step(ctx, Step::default()));
        let run_tool = future_size(|(ctx, call): (Context, &'static CallId)| {
            tool_run::tool_run(ctx, call, Attempt::new(1))
        });
        let run = future_size(|(activity, ctx)| run(activity, ctx));
        assert!(call_model < 6 << 10, "{call_model} bytes: box what few steps need");
        assert!(run_tool < 3 << 10, "{run_tool} bytes: box what few tools need");
        assert!(run < 2 << 10, "{run} bytes: box what few activities need");
    }
}
