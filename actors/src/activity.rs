//! An activity becomes a task that reports back, once, as an action to decide on.

mod await_client;
mod child;
mod copy_fork;
mod load_context;
mod model_call;
mod model_call_span;
mod model_step;
mod offload_media;
mod publish_decision;
mod start_turn;
mod summarize;
mod tool_run;
mod tool_span;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use abide_conversation::{Action, Activity, CallId, ConversationId, State};
use futures::FutureExt;
use serde_json::Value;
use tracing::Instrument;

use self::tool_span::ToolSpan;
use crate::backoff::Backoffs;
use crate::conversation::{RecentEvents, Services};
use crate::definition::Definition;
use crate::definition::Tool;
use crate::journal::StoreError;
use crate::live::Signal;
use crate::streaming::Stream;
use crate::tools::Toolbox;

/// What became of an activity.
pub struct Report {
    pub activity: Activity,
    pub ended: Result<Action, ActivityError>,
}

/// Why an activity could not end as it should. The actor dies of it, and its successor starts over.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ActivityError {
    #[error(transparent)]
    Refused(#[from] StoreError),
    #[error("{0} panicked")]
    Panicked(Activity),
}

/// What an activity works with: the state as it was when it became wanted.
pub(crate) struct ActivityContext {
    pub(crate) id: ConversationId,
    /// Of the holding that it runs under.
    pub(crate) epoch: u64,
    pub(crate) deps: Arc<Services>,
    pub(crate) state: Arc<State>,
    /// The last events up to that state.
    pub(crate) tail: RecentEvents,
    /// The tools that its client declared.
    pub(crate) own: Arc<[Tool]>,
    pub(crate) stream: Stream,
    pub(crate) progress: Progress,
    pub(crate) pauses: Backoffs,
}

/// How far the running tools have come: the last that each said.
#[derive(Clone, Debug, Default)]
pub(crate) struct Progress(Arc<Mutex<BTreeMap<CallId, Value>>>);

impl Progress {
    fn say(&self, around: &ActivityContext, call: &CallId, payload: Value) {
        self.with(|said| said.insert(call.clone(), payload.clone()));
        let signal = Signal::Progress { call: call.clone(), payload };
        around.deps.live.publish(&around.id, signal);
    }

    /// Forgets the calls that are not `kept`.
    pub(crate) fn retain(&self, kept: impl Fn(&CallId) -> bool) {
        self.with(|said| said.retain(|call, _| kept(call)));
    }

    /// What was said last, by call.
    pub(crate) fn said(&self) -> BTreeMap<CallId, Value> {
        self.with(|said| said.clone())
    }

    fn with<T>(&self, act: impl FnOnce(&mut BTreeMap<CallId, Value>) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl ActivityContext {
    /// The tools of a definition; MCP servers are asked for theirs, each within its time.
    async fn toolbox(&self, definition: Arc<Definition>) -> Toolbox {
        let listings = self.deps.runner.mcp().listings(&definition).await;
        Toolbox::new(definition, &listings, self.own.clone())
    }
}

/// Runs an activity to its end. Dropping the future ends it at once. Whatever is logged meanwhile
/// says of what it is.
///
/// What takes much room is boxed, so that an activity takes no more than its own kind needs: most of
/// those under way are waiting.
pub(crate) async fn run(activity: Activity, around: ActivityContext) -> Report {
    let turn = around.state.turn.as_ref().map(|turn| turn.id.as_str());
    let call = match &activity {
        Activity::RunTool { call, .. } | Activity::AwaitClient { call, .. } => Some(call.as_str()),
        _ => None,
    };
    let (conversation, epoch) = (around.id.as_str(), around.epoch);
    // As severe as can be: whoever reads any line wants to know of what it is.
    let span = tracing::error_span!("activity", conversation, epoch, turn, call);
    carry_out(activity, around).instrument(span).await
}

async fn carry_out(activity: Activity, around: ActivityContext) -> Report {
    let work = async {
        let works = matches!(activity, Activity::CallModel { .. } | Activity::RunTool { .. });
        // A process that was stopped goes on here long after it was taken for dead.
        if works && !around.deps.standing.is_sound() {
            return Err(StoreError::Unavailable("this node could not renew its lease".to_owned()));
        }
        let action = match &activity {
            Activity::StartTurn { turn } => Box::pin(start_turn::start(&around, turn)).await,
            Activity::CallModel { step, .. } => {
                Box::pin(model_step::model_step(&around, *step)).await
            }
            Activity::RunTool { call, attempt } => {
                let span = ToolSpan::begin(&around, call, *attempt);
                let came = Box::pin(tool_run::tool_run(&around, call, *attempt)).await;
                if let (Some(span), Ok(came)) = (span, &came) {
                    span.end(&around, came);
                }
                came
            }
            Activity::AwaitClient { call, suspension, grace_ms } => {
                Ok(await_client::page(&around, call, *suspension, *grace_ms).await)
            }
            Activity::StopChild { child } => Ok(Box::pin(child::release(&around, child)).await),
            Activity::NotifyParent { turn } => Box::pin(child::tell(&around, turn)).await,
            Activity::CopyFork { after } => Box::pin(copy_fork::copy(&around, *after)).await,
            Activity::Summarize { upto } => Box::pin(summarize::summarize(&around, *upto)).await,
            Activity::PublishDecision { decision } => {
                publish_decision::keep(&around, decision).await
            }
        };
        Box::pin(offload_media::kept(&*around.deps.blobs, action?)).await
    };
    let (pauses, clock) = (around.pauses.clone(), around.deps.clock.clone());
    let work = pauses.within(activity.to_string(), clock, work);
    let ended = match AssertUnwindSafe(work).catch_unwind().await {
        Ok(ended) => ended.map_err(ActivityError::from),
        Err(_) => Err(ActivityError::Panicked(activity.clone())),
    };
    Report { activity, ended }
}
