//! What an operator has a live conversation do at once: try again, or go.

use ractor::ActorRef;

use super::{ConversationMsg, ExitReason, LiveConversation, in_time};
use crate::journal::Holder;
use crate::request::ReleaseOutcome;

impl LiveConversation {
    /// Ends every wait for a later attempt, and starts what is wanted and does not run. What runs
    /// is left alone. Returns what is tried again.
    pub(super) fn retry(&mut self, myself: &ActorRef<ConversationMsg>) -> Vec<String> {
        let waited = self.pauses.cut().into_iter().map(|pause| pause.activity);
        let ran: Vec<_> = self.running.keys().cloned().collect();
        self.reconcile(myself);
        let begun = self.running.keys().filter(|activity| !ran.contains(activity));
        waited.chain(begun.map(ToString::to_string)).collect()
    }

    /// Cuts off what runs, gives the claim to `to` in one step, or up, and ends the actor.
    ///
    /// Nothing is done while calls run that must not run twice, unless it is forced: then they end
    /// as interrupted.
    pub(super) async fn let_go(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        to: Option<Holder>,
        force: bool,
    ) -> Result<ReleaseOutcome, ExitReason> {
        let runs = self.state.uninterruptible();
        if !force && !runs.is_empty() {
            return Ok(ReleaseOutcome::Runs(runs));
        }
        self.running.clear();
        let (journal, me) = (&self.deps.journal, &self.held.holder);
        let holder = match to {
            Some(to) => Some(in_time(journal.claim(&self.id, &to, Some(me))).await?.holder),
            None => {
                in_time(journal.release(&self.id, &self.held)).await?;
                None
            }
        };
        self.parted = true;
        myself.stop(Some("let go by an operator".to_owned()));
        Ok(ReleaseOutcome::Parted(holder))
    }
}
