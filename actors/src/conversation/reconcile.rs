//! Reconciles the running activities with those that the state calls for.

use abide_conversation::{Activity, wanted};
use ractor::ActorRef;

use super::{ConversationMsg, LiveConversation};
use crate::activity::{self, ActivityContext};
use crate::streaming::Stream;

impl LiveConversation {
    /// Starts the wanted activities that do not run. The unwanted ones were stopped by the commit
    /// that ended them.
    pub(super) fn reconcile(&mut self, myself: &ActorRef<ConversationMsg>) {
        if self.idle.is_dormant || !self.services.lease.is_sound() {
            return;
        }
        let is_draining = self.services.lease.is_draining();
        for activity in wanted(&self.state) {
            // A drain waits for tools that were started, and lets nothing else begin.
            let is_held_back = is_draining && !matches!(activity, Activity::RunTool { .. });
            if !is_held_back && !self.activities.contains(&activity) {
                self.start(myself, activity);
            }
        }
    }

    fn start(&mut self, myself: &ActorRef<ConversationMsg>, activity: Activity) {
        if matches!(activity, Activity::CallModel { .. }) {
            self.activities.stream = Stream::default();
        }
        let ctx = ActivityContext {
            id: self.id.clone(),
            epoch: self.claim.epoch,
            services: self.services.clone(),
            state: self.state.clone(),
            recent_events: self.recent_events.clone(),
            declared_tools: self.declared_tools.clone(),
            stream: self.activities.stream.clone(),
            progress: self.activities.progress.clone(),
            backoffs: self.activities.backoffs.clone(),
            limit_waits: self.activities.limit_waits.clone(),
        };
        let myself = myself.clone();
        let to_run = activity.clone();
        let task = async move {
            // People first: requests that came meanwhile are answered before the node works on.
            tokio::task::yield_now().await;
            let report = activity::run(to_run, ctx).await;
            // An actor that has ended needs no report; its successor starts over.
            let _ = myself.cast(ConversationMsg::Report(Box::new(report)));
        };
        let task = match activity {
            Activity::CallModel { .. } | Activity::RunTool { .. } => self.services.work.spawn(task),
            Activity::StartTurn { .. }
            | Activity::AwaitClient { .. }
            | Activity::StopChild { .. }
            | Activity::NotifyParent { .. }
            | Activity::PublishDecision { .. }
            | Activity::CopyFork { .. }
            | Activity::Summarize { .. } => tokio::spawn(task),
        };
        self.activities.insert(activity, task);
    }
}
