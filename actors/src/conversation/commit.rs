//! One decision becomes one append. Only then does anybody learn of it.

use std::sync::Arc;

use abide_conversation::event::{Event, EventData};
use abide_conversation::state::{ConversationStatus, PendingCall};
use abide_conversation::{State, Timestamp, Transition, wanted};
use ractor::ActorRef;
use serde_json::Value;
use tokio::time::Instant;

use super::external::queue_entries;
use super::owe::near_notices;
use super::relist::summary;
use super::{ConversationMsg, LiveConversation, with_store_timeout};
use crate::journal::{
    ClosedSuspension, Commit, RESPONSE_TTL, StoreError, StoredResponse, event_json,
};
use crate::live::Signal;
use crate::request::{IdempotencyKey, Reply};
use crate::usage_counts::UsageCounts;

/// The number of events that may follow the state cache in the store. A revival folds about as many
/// at most.
const MAX_UNCACHED_EVENTS: u64 = 64;

impl LiveConversation {
    /// Appends the events, folds them in, stops what they end, and publishes them.
    pub(super) fn commit(
        &mut self,
        transition: Transition,
        responses: Vec<StoredResponse>,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        self.commit_as(transition, responses, None)
    }

    /// Commits what an activity reported. The model call that follows it begins at once.
    pub(super) fn commit_report(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        transition: Transition,
    ) -> impl Future<Output = Result<(), StoreError>> + Send {
        self.commit_as(transition, Vec::new(), Some(myself))
    }

    /// Where the actor itself is given, a model call that follows begins ahead of the commit.
    async fn commit_as(
        &mut self,
        transition: Transition,
        mut responses: Vec<StoredResponse>,
        myself: Option<&ActorRef<ConversationMsg>>,
    ) -> Result<(), StoreError> {
        let Transition { events, state: next } = transition;
        if events.is_empty() && responses.is_empty() {
            return Ok(());
        }
        let status_before = self.status();
        // Copied events happened elsewhere: no caller here waits for them, and no hook is notified.
        let is_copy = self.state.forking.is_some();
        if !is_copy {
            responses.extend(events.iter().flat_map(|event| self.dispatch_responses(event)));
        }
        let events: Arc<[Event]> = Arc::from(events);
        let myself = myself.filter(|_| !is_copy);
        let ahead = myself.and_then(|myself| self.call_model_ahead(myself, &events, &next));
        let mut commit = self.compose(&next, events.clone(), responses);
        let arrived = commit.arrived(&queue_entries(&self.state));
        let json = event_json(&events)?;
        let bytes = json.iter().map(Vec::len).sum();
        commit.json = Some(json);
        commit.relisting = self.relisting(&next).await?;
        commit.resets_deaths = self.progress_check.is_progress(&events);
        // Copied events were counted where they happened.
        commit.usage = UsageCounts::of(&events).filter(|_| !is_copy);
        commit.owed = if is_copy { Vec::new() } else { self.owed_for(&events).await? };
        let near_notices = near_notices(&commit.owed);
        let has_cache = commit.state.is_some();
        let is_progress = commit.resets_deaths;
        let waits_for_else = !commit.opened.is_empty() || !commit.closed.is_empty();
        self.write(commit).await?;
        if has_cache {
            self.cached_seq = next.seq;
        }
        if is_progress {
            self.progress_check.end();
        }
        let before = std::mem::replace(&mut self.state, next);
        self.recent_events.push(events.clone(), bytes);
        self.announce_alarm(&before);
        self.announce_notices(&near_notices);
        self.announce_arrivals(arrived);
        self.waiters.answer_dispatches(&events);
        if !is_copy {
            self.record_metrics(&before, &events);
            self.notify_hooks(&before, &events);
        } else if self.state.forking.is_none() {
            self.waiters.answer_forks();
        }
        let published = events.clone();
        self.services.live.publish(&self.id, Signal::Committed(events));
        if waits_for_else {
            self.publish_at_root();
        }
        if !is_copy {
            self.publish_to_inboxes(&before, &published, waits_for_else);
        }
        self.activities.retain(&wanted(&self.state), &self.state);
        let status = self.status();
        if status != status_before {
            let signal = Signal::Status { status, seq: self.state.seq };
            self.services.live.publish(&self.id, signal);
        }
        if let Some(pending_commit) = ahead {
            pending_commit.finish();
        }
        Ok(())
    }

    /// Appends a commit; the first of a new conversation claims it.
    async fn write(&mut self, commit: Commit) -> Result<(), StoreError> {
        let journal = &self.services.journal;
        let started_at = Instant::now();
        if self.is_unclaimed() {
            let claimed = journal.claim_and_append(&self.id, &self.claim.holder, commit);
            self.claim = with_store_timeout(claimed).await?;
            metrics::counter!("abide_claims_total").increment(1);
        } else {
            with_store_timeout(journal.append(&self.id, &self.claim, commit)).await?;
        }
        metrics::histogram!("abide_commit_seconds").record(started_at.elapsed().as_secs_f64());
        Ok(())
    }

    /// Tells the node of an alarm that it may have to ring before it asks the store again.
    fn announce_alarm(&self, before: &State) {
        if let Some(due) = self.state.alarm().filter(|due| before.alarm() != Some(*due)) {
            self.services.near_alarms.announce_alarm(&self.id, due, self.services.clock.now());
        }
    }

    /// What the conversation is doing, the live stream included.
    fn status(&self) -> ConversationStatus {
        self.state.status().with_streaming(self.activities.stream.has_begun())
    }

    fn compose(
        &self,
        next: &Arc<State>,
        events: Arc<[Event]>,
        responses: Vec<StoredResponse>,
    ) -> Commit {
        let before = self.state.pending_calls();
        let after = next.pending_calls();
        let is_cache_due =
            !next.has_unknown_events && next.seq.since(self.cached_seq) >= MAX_UNCACHED_EVENTS;
        // A vote, and a change of members, changes what the inbox has of a suspension that stays open.
        let is_for_others = self.state.participants != next.participants;
        let is_new = |open: &&PendingCall| is_for_others || !before.contains(open);
        Commit {
            opened: after.iter().filter(is_new).cloned().collect(),
            closed: before.iter().filter(|open| is_gone(&after, open)).map(closed).collect(),
            state: is_cache_due.then(|| next.clone()),
            queued: Some(queue_entries(next)).filter(|now| *now != queue_entries(&self.state)),
            responses,
            ..Commit::new(events, summary(next))
        }
    }

    /// The responses to store, so that a repeat of the request gets the same reply.
    pub(super) fn responses(&self, keys: &[IdempotencyKey], reply: &Reply) -> Vec<StoredResponse> {
        self.responses_for(keys.iter().map(|key| (&key.key, &key.fingerprint)), reply)
    }

    /// The responses to store for a dispatch that ends with this event.
    fn dispatch_responses(&self, event: &Event) -> Vec<StoredResponse> {
        let EventData::DispatchFinished(done) = &event.data else { return Vec::new() };
        let Some(run) = self.state.dispatches.get(&done.call_id) else { return Vec::new() };
        let reply = Reply::Dispatched { outcome: done.result.clone(), ui: done.ui.clone() };
        self.responses_for(&run.requests, &reply)
    }

    fn responses_for<'a>(
        &self,
        keys: impl IntoIterator<Item = (&'a String, &'a String)>,
        reply: &Reply,
    ) -> Vec<StoredResponse> {
        let now = self.services.clock.now();
        let expires_at = now.checked_add(RESPONSE_TTL).unwrap_or(Timestamp::MAX);
        let body = serde_json::to_value(reply).unwrap_or(Value::Null);
        let response = |(key, fingerprint): (&String, &String)| StoredResponse {
            key: key.clone(),
            fingerprint: fingerprint.clone(),
            body: body.clone(),
            expires_at,
        };
        keys.into_iter().map(response).collect()
    }
}

/// Whether the inbox's entry of a suspension is void: it has closed, or it has another place now,
/// because it waits longer.
fn is_gone(after: &[PendingCall], before: &PendingCall) -> bool {
    let place = |it: &PendingCall| (it.call_id.clone(), it.suspension, it.expires_at);
    after.iter().all(|open| place(open) != place(before))
}

fn closed(pending: &PendingCall) -> ClosedSuspension {
    ClosedSuspension {
        call_id: pending.call_id.clone(),
        suspension: pending.suspension,
        expires_at: pending.expires_at,
    }
}
