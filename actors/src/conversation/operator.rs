//! Operators' requests to a live conversation: retry now, or give the claim away.

use ractor::ActorRef;

use super::{ConversationMsg, ExitReason, LiveConversation, with_store_timeout};
use crate::journal::Holder;
use crate::request::ReleaseOutcome;

impl LiveConversation {
    /// Ends every backoff, and starts what is wanted and does not run. Running work is left alone.
    /// Returns what is retried.
    pub(super) fn retry(&mut self, myself: &ActorRef<ConversationMsg>) -> Vec<String> {
        let ended = self.activities.backoffs.end_all().into_iter().map(|backoff| backoff.activity);
        let running_before = self.activities.labels();
        self.reconcile(myself);
        let running = self.activities.labels().into_iter();
        let started = running.filter(|activity| !running_before.contains(activity));
        ended.chain(started).collect()
    }

    /// Aborts what runs, gives the claim to `to` in one step, or up, and ends the actor.
    ///
    /// Does nothing while calls run that must not run twice, unless `force` is set: those calls
    /// then end as interrupted.
    pub(super) async fn release(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        to: Option<Holder>,
        force: bool,
    ) -> Result<ReleaseOutcome, ExitReason> {
        let uninterruptible = self.state.uninterruptible();
        if !force && !uninterruptible.is_empty() {
            return Ok(ReleaseOutcome::Uninterruptible(uninterruptible));
        }
        self.activities.abort_all();
        let journal = &self.services.journal;
        let me = &self.claim.holder;
        let holder = match to {
            Some(to) => {
                let claim = with_store_timeout(journal.claim(&self.id, &to, Some(me))).await?;
                Some(claim.holder)
            }
            None => {
                with_store_timeout(journal.release(&self.id, &self.claim)).await?;
                None
            }
        };
        self.is_released = true;
        // What waits in the mailbox is not read: another holder may have changed the conversation.
        myself.stop(Some("released by an operator".to_owned()));
        Ok(ReleaseOutcome::Released(holder))
    }
}
