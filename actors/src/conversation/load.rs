//! A new actor claims its conversation and replays the journal.

use std::sync::Arc;
use std::time::Duration;

use abide_conversation::{Activity, State, replay, wanted};
use serde_json::Value;

use super::{ExitReason, LiveConversation, Origin, relist, with_store_timeout, with_timeout};
use crate::agent;
use crate::definition::Tool;
use crate::journal::{ClaimedConversation, Commit, StoreError};
use crate::limits::encoded_len;
use crate::live::Signal;

/// How long a journal of gigabytes may take. A store that falls silent fails earlier by itself.
const LOAD_TIMEOUT: Duration = Duration::from_secs(600);
/// After this many processes ended under a conversation that was at work, and of which nothing was
/// completed meanwhile, it is not run again until an operator intervenes: the next process would
/// most likely end, too, and with it the work of all others there.
const MAX_DEATHS: u32 = 5;

impl LiveConversation {
    /// Claims the conversation, and replays what the store has of it.
    pub(super) async fn load(&mut self) -> Result<(), ExitReason> {
        let started_at = self.services.clock.now();
        let journal = &self.services.journal;
        let me = self.services.lease.me();
        let claim_from = async |dead| {
            with_timeout(LOAD_TIMEOUT, journal.claim_and_load(&self.id, &me, dead)).await
        };
        // This node's former actor of the conversation is gone; its writes are fenced from here on.
        let mut claimed = claim_from(Some(&me)).await?;
        if self.origin.dead_holder() == Some(&claimed.claim.holder) {
            claimed = claim_from(self.origin.dead_holder()).await?;
        } else {
            self.origin = Origin::Journal;
        }
        let ClaimedConversation { claim, deaths, alarm, stored } = claimed;
        self.claim = claim;
        if self.claim.holder != me {
            return Err(ExitReason::HeldElsewhere(self.claim.holder.clone()));
        }
        ::metrics::counter!("abide_claims_total").increment(1);
        if let Some(stored) = stored {
            self.cached_seq = stored.cached_seq;
            self.state = Arc::new(replay(stored.state, &stored.events));
            let bytes = stored.events.iter().map(encoded_len).fold(0, usize::saturating_add);
            self.recent_events.push(Arc::from(stored.events), bytes);
            if kills_its_process(deaths, &self.state) {
                return Err(ExitReason::KillsItsProcess(deaths));
            }
            if alarm != self.state.alarm() {
                self.restore_alarm().await?;
            }
            self.progress_check.begin(deaths);
            self.compile_client_tools().await;
            self.trace_revival(started_at);
            // The former actor may have died between an append and its publication.
            self.services.live.publish(&self.id, Signal::Revived);
            self.publish_at_root();
        }
        Ok(())
    }

    /// Writes the alarm of the state. A node of an earlier version, which knows fewer reasons for one,
    /// has made the last commit.
    async fn restore_alarm(&self) -> Result<(), StoreError> {
        let restored = Commit::new(Arc::from([]), relist::summary(&self.state));
        let journal = &self.services.journal;
        with_store_timeout(journal.append(&self.id, &self.claim, restored)).await?;
        tracing::info!(conversation = %self.id, "alarm restored");
        Ok(())
    }

    /// Compiles the tools that the client declared for the conversation.
    pub(super) async fn compile_client_tools(&mut self) {
        if !self.state.tools.is_empty() {
            self.declared_tools.conversation = self.compile(self.state.tools.clone().into()).await;
        }
    }

    /// Compiles the tools that the client declared for the open turn, unless that was done.
    pub(super) async fn compile_turn_tools(&mut self) {
        if self.declared_tools.is_of(self.state.turn.as_ref()) {
            return;
        }
        let declared = self.state.turn.as_ref().map(|turn| turn.tools.clone());
        let tools = self.compile(declared.unwrap_or_default()).await;
        self.declared_tools.begin_turn(self.state.turn.as_ref(), tools);
    }

    /// Compiles definitions of tools, on a blocking thread since it may take long.
    async fn compile(&self, declared: Arc<[Value]>) -> Arc<[Tool]> {
        if declared.is_empty() {
            return Arc::default();
        }
        let id = &self.id;
        match tokio::task::spawn_blocking(move || agent::client_tools(&declared)).await {
            Ok(Ok(tools)) => return tools,
            // They were valid when they were declared; this version may be stricter.
            Ok(Err(mistakes)) => {
                let mistakes = agent::join_errors(&mistakes);
                tracing::error!(conversation = %id, content = mistakes, "client tools are invalid");
            }
            Err(error) => {
                tracing::error!(conversation = %id, content = %error, "client tools not compiled");
            }
        }
        Arc::default()
    }
}

/// Whether no other process may run a conversation in this state, because `deaths` processes ended
/// under it. A conversation that only waits for a client has ended no process.
pub fn kills_its_process(deaths: u32, state: &State) -> bool {
    let runs_here = |activity: &Activity| !matches!(activity, Activity::AwaitClient { .. });
    deaths >= MAX_DEATHS && wanted(state).iter().any(runs_here)
}
