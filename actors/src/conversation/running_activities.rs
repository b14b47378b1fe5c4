//! The activities that run, and what they share with the actor.

use std::collections::{BTreeMap, BTreeSet};

use abide_conversation::{Activity, CallId, State};
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;

use crate::activity::Progress;
use crate::backoff::Backoffs;
use crate::limit_waits::LimitWaits;
use crate::streaming::Stream;

/// The running tasks. Dropping one aborts it.
#[derive(Default)]
pub(super) struct RunningActivities {
    tasks: BTreeMap<Activity, AbortOnDropHandle<()>>,
    /// The message that the running model call streams.
    pub(super) stream: Stream,
    pub(super) progress: Progress,
    pub(super) backoffs: Backoffs,
    /// The calls that wait because the limits of their tool are reached.
    pub(super) limit_waits: LimitWaits,
}

impl RunningActivities {
    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    pub(super) fn contains(&self, activity: &Activity) -> bool {
        self.tasks.contains_key(activity)
    }

    /// Whether a model call or a tool runs.
    pub(super) fn include_work(&self) -> bool {
        self.tasks.keys().any(|activity| {
            matches!(activity, Activity::CallModel { .. } | Activity::RunTool { .. })
        })
    }

    /// What runs, for people.
    pub(super) fn labels(&self) -> Vec<String> {
        self.tasks.keys().map(ToString::to_string).collect()
    }

    pub(super) fn insert(&mut self, activity: Activity, task: JoinHandle<()>) {
        self.tasks.insert(activity, AbortOnDropHandle::new(task));
    }

    /// Forgets an activity that has reported. Returns whether it was still running.
    pub(super) fn finish(&mut self, activity: &Activity) -> bool {
        self.tasks.remove(activity).is_some()
    }

    /// Aborts the activities that are not `wanted`: their tasks are dropped, and with a model call
    /// its connection.
    pub(super) fn retain(&mut self, wanted: &BTreeSet<Activity>, state: &State) {
        self.tasks.retain(|activity, _| wanted.contains(activity));
        if !self.tasks.keys().any(|activity| matches!(activity, Activity::CallModel { .. })) {
            self.stream = Stream::default();
        }
        // A program outside reports progress, too.
        let is_outside =
            |call: &CallId| state.call(call).is_some_and(|call| call.external_run().is_some());
        self.progress.retain(|call| {
            wanted.iter().any(|activity| runs_call(activity, call)) || is_outside(call)
        });
    }

    pub(super) fn abort_all(&mut self) {
        self.tasks.clear();
    }
}

fn runs_call(activity: &Activity, id: &CallId) -> bool {
    match activity {
        Activity::RunTool { call, .. } => call == id,
        Activity::StartTurn { .. }
        | Activity::CallModel { .. }
        | Activity::AwaitClient { .. }
        | Activity::StopChild { .. }
        | Activity::NotifyParent { .. }
        | Activity::PublishDecision { .. }
        | Activity::CopyFork { .. }
        | Activity::Summarize { .. } => false,
    }
}
