//! Reconciles the running activities with those that the state calls for.

use std::sync::Arc;

use abide_conversation::event::Event;
use abide_conversation::{Activity, State, wanted};
use ractor::ActorRef;

use super::{ConversationMsg, LiveConversation, is_ending};
use crate::activity::{self, ActivityContext};
use crate::pending_commit::PendingCommit;
use crate::streaming::Stream;

impl LiveConversation {
    /// Starts the wanted activities that do not run. The unwanted ones were stopped by the commit
    /// that ended them.
    pub(super) fn reconcile(&mut self, myself: &ActorRef<ConversationMsg>) {
        for activity in wanted(&self.state) {
            if self.may_start(&activity) {
                let ctx = self.activity_context(&activity);
                self.start(myself, activity, ctx);
            }
        }
    }

    /// Starts the model call that the open turn makes after these events, while their commit is under
    /// way: the provider may need as long for its first byte as the store for the commit. The call
    /// shows nothing before the commit is finished, and ends with the actor if the commit fails.
    pub(super) fn call_model_ahead(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        events: &Arc<[Event]>,
        next: &Arc<State>,
    ) -> Option<PendingCommit> {
        let turn = |state: &State| state.turn.as_ref().map(|turn| turn.id.clone());
        // The tools of another turn are not compiled, and a message that streams ends with the commit.
        if turn(&self.state) != turn(next) || self.activities.stream.has_begun() {
            return None;
        }
        let is_model_call = |activity: &Activity| matches!(activity, Activity::CallModel { .. });
        let call = wanted(next).into_iter().find(is_model_call)?;
        if !self.may_start(&call) || is_ending(myself) {
            return None;
        }
        let pending_commit = PendingCommit::new();
        let mut ctx = self.activity_context(&call);
        ctx.state = next.clone();
        ctx.pending_commit = pending_commit.clone();
        // They count where the actor keeps them.
        ctx.recent_events.push(events.clone(), 0);
        self.start(myself, call, ctx);
        Some(pending_commit)
    }

    /// Whether this node may run the activity, and does not run it.
    fn may_start(&self, activity: &Activity) -> bool {
        let lease = &self.services.lease;
        // A drain waits for tools that were started, and lets nothing else begin.
        let is_held_back = lease.is_draining() && !matches!(activity, Activity::RunTool { .. });
        let may_run = !self.idle.is_dormant && lease.is_sound() && !is_held_back;
        may_run && !self.activities.contains(activity)
    }

    /// What the activity gets; a model call writes a new message.
    fn activity_context(&mut self, activity: &Activity) -> ActivityContext {
        if matches!(activity, Activity::CallModel { .. }) {
            self.activities.stream = Stream::default();
        }
        ActivityContext {
            id: self.id.clone(),
            epoch: self.claim.epoch,
            services: self.services.clone(),
            state: self.state.clone(),
            pending_commit: PendingCommit::default(),
            recent_events: self.recent_events.clone(),
            declared_tools: self.declared_tools.clone(),
            stream: self.activities.stream.clone(),
            progress: self.activities.progress.clone(),
            backoffs: self.activities.backoffs.clone(),
            limit_waits: self.activities.limit_waits.clone(),
        }
    }

    fn start(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        activity: Activity,
        ctx: ActivityContext,
    ) {
        let myself = myself.clone();
        let to_run = activity.clone();
        // Boxed: a task is moved ten times until it runs, and this one has kilobytes.
        let task = Box::pin(async move {
            // People first: requests that came meanwhile are answered before the node works on.
            tokio::task::yield_now().await;
            let report = activity::run(to_run, ctx).await;
            // An actor that has ended needs no report; its successor starts over.
            let _ = myself.cast(ConversationMsg::Report(Box::new(report)));
        });
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
