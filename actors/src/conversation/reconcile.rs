//! Reconciles what runs with what the state calls for.

use abide_conversation::{Activity, wanted};
use ractor::ActorRef;
use tokio_util::task::AbortOnDropHandle;

use super::{ConversationMsg, LiveConversation};
use crate::activity::{self, ActivityContext};
use crate::streaming::Stream;

impl LiveConversation {
    /// Ends what is no longer wanted: its task is dropped, and with it a stream's connection.
    pub(super) fn stop_unwanted(&mut self) {
        let wanted = wanted(&self.state);
        self.running.retain(|activity, _| wanted.contains(activity));
        if !self.running.keys().any(|activity| matches!(activity, Activity::CallModel { .. })) {
            self.stream = Stream::default();
        }
        self.progress.retain(|id| {
            wanted.iter().any(|activity| match activity {
                Activity::RunTool { call, .. } => call == id,
                Activity::StartTurn { .. }
                | Activity::CallModel { .. }
                | Activity::AwaitClient { .. }
                | Activity::StopChild { .. }
                | Activity::NotifyParent { .. }
                | Activity::PublishDecision { .. }
                | Activity::CopyFork { .. }
                | Activity::Summarize { .. } => false,
            })
        });
    }

    /// Starts what is wanted and does not run.
    pub(super) fn reconcile(&mut self, myself: &ActorRef<ConversationMsg>) {
        self.stop_unwanted();
        if self.dormant || !self.deps.standing.is_sound() {
            return;
        }
        let draining = self.deps.standing.is_draining();
        for activity in wanted(&self.state) {
            // A drain waits for what has been handed over, and lets nothing further begin.
            let held_back = draining && !matches!(activity, Activity::RunTool { .. });
            if held_back || self.running.contains_key(&activity) {
                continue;
            }
            if matches!(activity, Activity::CallModel { .. }) {
                self.stream = Stream::default();
            }
            let around = ActivityContext {
                id: self.id.clone(),
                epoch: self.held.epoch,
                deps: self.deps.clone(),
                state: self.state.clone(),
                own: self.own.clone(),
                tail: self.tail.clone(),
                stream: self.stream.clone(),
                progress: self.progress.clone(),
                pauses: self.pauses.clone(),
            };
            let (myself, task) = (myself.clone(), activity.clone());
            let task = async move {
                // People first: what was asked meanwhile is answered before the node goes on by itself.
                tokio::task::yield_now().await;
                let report = activity::run(task, around).await;
                // An actor that has ended wants no report; its successor starts over.
                let _ = myself.cast(ConversationMsg::Report(Box::new(report)));
            };
            let task = match activity {
                Activity::CallModel { .. } | Activity::RunTool { .. } => self.deps.work.spawn(task),
                Activity::StartTurn { .. }
                | Activity::AwaitClient { .. }
                | Activity::StopChild { .. }
                | Activity::NotifyParent { .. }
                | Activity::PublishDecision { .. }
                | Activity::CopyFork { .. }
                | Activity::Summarize { .. } => tokio::spawn(task),
            };
            self.running.insert(activity, AbortOnDropHandle::new(task));
        }
    }
}
