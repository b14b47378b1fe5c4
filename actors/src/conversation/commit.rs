//! One decision becomes one append; then the world hears of it.

use std::sync::Arc;

use abide_conversation::event::{Event, EventData};
use abide_conversation::state::{ConversationStatus, PendingCall};
use abide_conversation::{AgentName, State, Transition, wanted};
use ractor::ActorRef;
use serde_json::Value;
use tokio::time::Instant;

use super::{ConversationMsg, LiveConversation, in_time};
use crate::journal::{
    ANSWERS_KEPT, ClosedSuspension, Commit, ConversationSummary, StoreError, StoredResponse,
};
use crate::live::Signal;
use crate::request::{DeliveryOutcome, IdempotencyKey, Reply};

/// How many events may follow the stored state cache; revival folds no more than about these.
const CACHE_EVERY: u64 = 64;

impl LiveConversation {
    /// Appends the events, folds them in, publishes them, and reconciles what runs.
    pub(super) async fn commit(
        &mut self,
        myself: &ActorRef<ConversationMsg>,
        decided: Transition,
        mut answers: Vec<StoredResponse>,
    ) -> Result<(), StoreError> {
        let Transition { events, state: next } = decided;
        if events.is_empty() && answers.is_empty() {
            self.reconcile(myself);
            return Ok(());
        }
        let before = self.activeness();
        // What is copied happened elsewhere: nobody waits for it here, and no hook hears of it.
        let copies = self.state.forking.is_some();
        if !copies {
            answers.extend(events.iter().flat_map(|event| self.of_dispatch(event)));
        }
        let events: Arc<[Event]> = Arc::from(events);
        let commit = self.compose(&next, events.clone(), answers);
        let cached = commit.state.is_some();
        let append = self.deps.journal.append(&self.id, &self.held, commit);
        let began = Instant::now();
        in_time(append).await?;
        metrics::histogram!("abide_commit_seconds").record(began.elapsed().as_secs_f64());
        if cached {
            self.cached_seq = next.seq;
        }
        let was = std::mem::replace(&mut self.state, Arc::new(next));
        self.tail.push(events.clone());
        self.answer_dispatches(&events);
        if copies {
            self.answer_forks();
        } else {
            self.count(&was, &events);
            self.tell(&was, &events);
        }
        self.deps.live.publish(&self.id, Signal::Committed(events));
        self.stop_unwanted();
        let after = self.activeness();
        if after != before {
            let said = Signal::State { state: after, seq: self.state.seq };
            self.deps.live.publish(&self.id, said);
        }
        self.reconcile(myself);
        Ok(())
    }

    /// What the conversation is doing, the live stream included.
    pub(super) fn activeness(&self) -> ConversationStatus {
        self.state.status().with_streaming(self.stream.speaks())
    }

    fn compose(&self, next: &State, events: Arc<[Event]>, answers: Vec<StoredResponse>) -> Commit {
        let (was, is) = (self.state.pending_calls(), next.pending_calls());
        let cache =
            !next.has_unknown_events && next.seq.saturating_sub(self.cached_seq) >= CACHE_EVERY;
        Commit {
            events,
            head: head(next),
            opened: is.iter().filter(|open| !among(&was, open)).cloned().collect(),
            closed: was.iter().filter(|open| !among(&is, open)).map(closed).collect(),
            state: cache.then(|| next.clone()),
            answers,
        }
    }

    /// The answers to keep for repeats of a request.
    pub(super) fn remember(
        &self,
        repeats: &[IdempotencyKey],
        reply: &Reply,
    ) -> Vec<StoredResponse> {
        let keys = repeats.iter().map(|repeat| (&repeat.key, &repeat.fingerprint));
        self.kept(keys, reply)
    }

    /// The answers to keep for a user's own call that is done with this event.
    fn of_dispatch(&self, event: &Event) -> Vec<StoredResponse> {
        let EventData::DispatchFinished(done) = &event.data else { return Vec::new() };
        let Some(run) = self.state.dispatches.get(&done.call_id) else { return Vec::new() };
        let reply = Reply::Dispatched { outcome: done.result.clone(), ui: done.ui.clone() };
        self.kept(&run.requests, &reply)
    }

    fn kept<'a>(
        &self,
        keys: impl IntoIterator<Item = (&'a String, &'a String)>,
        reply: &Reply,
    ) -> Vec<StoredResponse> {
        let expires_at =
            self.deps.clock.now().checked_add(ANSWERS_KEPT).unwrap_or(jiff::Timestamp::MAX);
        let body = serde_json::to_value(reply).unwrap_or(Value::Null);
        let answer = |(key, fingerprint): (&String, &String)| StoredResponse {
            key: key.clone(),
            fingerprint: fingerprint.clone(),
            body: body.clone(),
            expires_at,
        };
        keys.into_iter().map(answer).collect()
    }

    /// Answers those who wait for a user's own call that is done now.
    fn answer_dispatches(&mut self, events: &[Event]) {
        for event in events {
            let EventData::DispatchFinished(done) = &event.data else { continue };
            for reply in self.dispatched.remove(&done.call_id).unwrap_or_default() {
                let answer =
                    Reply::Dispatched { outcome: done.result.clone(), ui: done.ui.clone() };
                // Who asked may have gone; the journal has the result.
                let _ = reply.send(DeliveryOutcome::Done(answer));
            }
        }
    }
}

fn head(state: &State) -> ConversationSummary {
    ConversationSummary {
        agent: state.agent.clone().unwrap_or_else(|| AgentName::new("")),
        state: state.status(),
        last_seq: state.seq,
        created_at: state.created_at.unwrap_or(jiff::Timestamp::UNIX_EPOCH),
        metadata: state.metadata.clone(),
        alarm: state.alarm(),
        active: !wanted(state).is_empty(),
    }
}

fn among(all: &[PendingCall], one: &PendingCall) -> bool {
    all.iter().any(|other| (&other.call_id, other.suspension) == (&one.call_id, one.suspension))
}

fn closed(pending: &PendingCall) -> ClosedSuspension {
    ClosedSuspension {
        call_id: pending.call_id.clone(),
        suspension: pending.suspension,
        expires_at: pending.expires_at,
    }
}
