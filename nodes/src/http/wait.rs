//! `?wait`: a request holds on until the turn that it concerns has ended, or rests.

use std::time::Duration;

use abide_actors::access::Access;
use abide_actors::agent;
use abide_actors::journal::InboxEntry;
use abide_actors::live::Signal;
use abide_conversation::event::{Event, EventData, TurnOutcome};
use abide_conversation::message::Message;
use abide_conversation::state::CallPhase;
use abide_conversation::usage::Usage;
use abide_conversation::{CallId, ConversationId, Scoped, Seq, State, TurnId};
use abide_registry::live::{StreamItem, Subscription};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{Instant, sleep, timeout_at};
use utoipa::{IntoParams, ToSchema};

use super::Api;
use super::calls::PendingEntry;
use super::problem::Problem;
use super::turn_progress::TurnProgress;
use crate::access::permission::ConversationPermission;
use crate::access::{Allowed, CredentialWatch};

/// The longest wait.
const MAX_WAIT: Duration = Duration::from_secs(600);
/// How many requests wait on a node at a time. Any further one is answered at once, as without `wait`.
pub(crate) const MAX_WAITING_REQUESTS: usize = 2_048;
/// How many events are read from the store at a time.
const EVENTS_PER_READ: usize = 100;
/// How long to wait until the other nodes know that this node has a listener.
const ANNOUNCE_TIMEOUT: Duration = Duration::from_millis(500);
/// How often children are looked at whose turn waits for them: not all that they do is told to the root.
const CHILDREN_INTERVAL: Duration = Duration::from_millis(500);
/// How many descendants are looked at.
const MAX_DESCENDANTS: usize = 64;

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct WaitQuery {
    /// How long to hold on until the turn has ended or rests: a duration of at most 10 m.
    #[param(example = "30s")]
    wait: Option<String>,
}

impl WaitQuery {
    pub(super) fn duration(&self) -> Result<Option<Duration>, Problem> {
        let Some(text) = &self.wait else { return Ok(None) };
        let duration = agent::duration(text).map_err(|why| Problem::field("wait", why))?;
        if duration > MAX_WAIT {
            return Err(Problem::field("wait", "must be at most 10m"));
        }
        Ok(Some(duration))
    }
}

/// What a turn has come to.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum WaitOutcome {
    Completed,
    Cancelled,
    Halted,
    Failed,
    /// The turn rests: nothing goes on until somebody answers one of the calls in `pending`.
    AwaitingInput,
}

/// What a turn has come to, for a request that waited for it.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TurnReport {
    conversation_id: ConversationId,
    turn_id: TurnId,
    outcome: WaitOutcome,
    /// The newest message of the model in this turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<Message>,
    /// The value of a structured turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    object: Option<Value>,
    /// Why the turn was cancelled, halted, or failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    /// `awaiting_input` only: what the turn waits for, also in the children that work for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pending: Option<Vec<PendingEntry>>,
    /// Usage of the turn so far, including that of its children.
    usage: Usage,
}

/// Waits, if that is asked for, until the turn that this event belongs to has ended or rests.
///
/// `None` if it has not by then, and for a caller who may not read the conversation, or not any more:
/// the response is then the one without `wait`.
pub(super) async fn after<P: ConversationPermission>(
    api: &Api,
    allowed: &Allowed<P>,
    id: &Scoped<ConversationId>,
    seq: Seq,
    wait: Option<Duration>,
) -> Result<Option<TurnReport>, Problem> {
    match wait {
        // Boxed: most requests do not wait.
        Some(wait) => Box::pin(wait_within(api, allowed, id, seq, wait)).await,
        None => Ok(None),
    }
}

async fn wait_within<P: ConversationPermission>(
    api: &Api,
    allowed: &Allowed<P>,
    id: &Scoped<ConversationId>,
    seq: Seq,
    wait: Duration,
) -> Result<Option<TurnReport>, Problem> {
    let give_up_at = Instant::now() + wait;
    let Ok(_permit) = api.waiting_requests.try_acquire() else { return Ok(None) };
    let Some(summary) = api.store.summary(id).await? else { return Ok(None) };
    let created_at = Some(summary.created_at);
    let access = allowed.access();
    if access.check_read(&summary.participants, created_at).is_err() {
        return Ok(None);
    }
    let credential = api.access.watch(allowed, summary.participants, created_at);
    let subscription = api.hub.subscribe(id);
    subscription.wait_until_announced(ANNOUNCE_TIMEOUT).await;
    let Some((progress, seen)) = begin(api, id, seq).await? else { return Ok(None) };
    let mut wait =
        Wait { api, id, access, progress, seen, is_behind: true, subscription, credential };
    let come_to = match timeout_at(give_up_at, wait.come_to()).await {
        Ok(come_to) => come_to?,
        Err(_) => return Ok(None),
    };
    let Some(come_to) = come_to else { return Ok(None) };
    let caller = allowed.answerer(api.clock.now()).within_token();
    let entry = |entry| PendingEntry::new(entry, &caller);
    let TurnProgress { turn_id, message, ended, usage, .. } = wait.progress;
    Ok(Some(TurnReport {
        conversation_id: id.local(),
        turn_id,
        outcome: come_to.outcome,
        object: message.as_ref().and_then(|message| message.object.clone()),
        message,
        reason: ended.as_ref().and_then(|ended| ended.reason.clone()),
        usage: ended.and_then(|ended| ended.usage).or(come_to.usage).unwrap_or(usage),
        pending: come_to.pending.map(|entries| entries.into_iter().map(entry).collect()),
    }))
}

/// The turn of this event as of the event, and the event's seq.
///
/// The fold begins with the last message of the model before it: that names the calls of the step.
async fn begin(
    api: &Api,
    id: &Scoped<ConversationId>,
    seq: Seq,
) -> Result<Option<(TurnProgress, Seq)>, Problem> {
    let mut before = seq.next();
    let mut newest_first: Vec<Event> = Vec::new();
    let mut turn = None;
    'reading: loop {
        let events = api.store.events_before(id, before, EVENTS_PER_READ).await?;
        let Some(oldest) = events.last().map(|event| event.seq) else { break };
        for event in events {
            let of = turn.get_or_insert_with(|| event.turn_id.clone());
            let begins = matches!(
                event.data,
                EventData::AssistantMsg(_) | EventData::UserMsg(_) | EventData::TurnStarted(_)
            );
            let begins = begins && event.turn_id == *of;
            newest_first.push(event);
            if begins {
                break 'reading;
            }
        }
        before = oldest;
    }
    let Some(turn_id) = turn.flatten() else { return Ok(None) };
    let mut progress = TurnProgress::new(turn_id);
    newest_first.iter().rev().for_each(|event| progress.take(event));
    Ok(Some((progress, seq)))
}

/// How the waiting ended.
struct ComeTo {
    outcome: WaitOutcome,
    pending: Option<Vec<InboxEntry>>,
    /// Usage of the turn, while it is open.
    usage: Option<Usage>,
}

/// A request that waits.
struct Wait<'a> {
    api: &'a Api,
    id: &'a Scoped<ConversationId>,
    access: Access,
    progress: TurnProgress,
    /// The seq of the last event that was taken.
    seen: Seq,
    /// Whether the journal may have events after `seen`.
    is_behind: bool,
    subscription: Subscription,
    credential: Option<CredentialWatch>,
}

impl Wait<'_> {
    /// Returns when the turn has ended or rests; `None` when the caller may no longer learn of it.
    async fn come_to(&mut self) -> Result<Option<ComeTo>, Problem> {
        loop {
            while self.is_behind {
                self.catch_up().await?;
            }
            if let Some(ended) = &self.progress.ended {
                let outcome = match ended.outcome {
                    TurnOutcome::Completed => WaitOutcome::Completed,
                    TurnOutcome::Cancelled => WaitOutcome::Cancelled,
                    TurnOutcome::Halted => WaitOutcome::Halted,
                    TurnOutcome::Failed => WaitOutcome::Failed,
                };
                return Ok(Some(ComeTo { outcome, pending: None, usage: None }));
            }
            if self.progress.waits()
                && let Some(rest) = self.rest().await?
            {
                return Ok(Some(rest));
            }
            let has_children = self.progress.children().next().is_some();
            let look_again = async {
                if has_children {
                    sleep(CHILDREN_INTERVAL).await;
                } else {
                    std::future::pending().await
                }
            };
            tokio::select! {
                item = self.subscription.next() => self.take(&item)?,
                () = ended(&mut self.credential) => return Ok(None),
                () = look_again => {}
            }
        }
    }

    fn take(&mut self, item: &StreamItem) -> Result<(), Problem> {
        let signal = match item {
            StreamItem::Signal(shared) => &shared.signal,
            StreamItem::Missed => {
                self.is_behind = true;
                return Ok(());
            }
        };
        match signal {
            Signal::Committed(events) => match events.first() {
                Some(first) if first.seq > self.seen.next() => self.is_behind = true,
                _ => events.iter().for_each(|event| self.take_event(event)),
            },
            Signal::Revived => self.is_behind = true,
            Signal::Deleted => return Err(Problem::not_found("conversation")),
            Signal::Status { .. }
            | Signal::Text(_)
            | Signal::Thinking(_)
            | Signal::Progress { .. }
            | Signal::CallArgs(_)
            | Signal::Child(_) => {}
        }
        Ok(())
    }

    fn take_event(&mut self, event: &Event) {
        if event.seq <= self.seen {
            return;
        }
        self.seen = event.seq;
        if let (EventData::Updated(updated), Some(credential)) = (&event.data, &mut self.credential)
            && let Some(members) = &updated.members
        {
            credential.update_members(members);
        }
        self.progress.take(event);
    }

    /// Takes the next events that the journal has.
    async fn catch_up(&mut self) -> Result<(), Problem> {
        let events = self.api.store.events(self.id, self.seen, EVENTS_PER_READ).await?;
        events.iter().for_each(|event| self.take_event(event));
        self.is_behind = events.len() == EVENTS_PER_READ;
        if !self.is_behind {
            self.subscription.mark_known(self.seen);
        }
        Ok(())
    }

    /// What the turn waits for, if it rests, and so do all children that work for it.
    async fn rest(&mut self) -> Result<Option<ComeTo>, Problem> {
        let router = self.api.conversations.unscoped();
        let mut pending = Vec::new();
        let mut usage = None;
        let mut family = vec![self.id.clone()];
        let mut looked_at = 0;
        while let Some(id) = family.pop() {
            looked_at += 1;
            let state = router.stored_state(&id).await?.unwrap_or_default();
            if id == *self.id {
                // Somebody may have answered, or left, since the events that were taken.
                if state.turn.as_ref().is_none_or(|turn| turn.id != self.progress.turn_id) {
                    return Ok(None);
                }
                usage = state.turn.as_ref().map(|turn| turn.usage);
                if self.access.check_read(&state.participants, state.created_at).is_err() {
                    return Ok(None);
                }
            }
            if !state.rests() || looked_at + family.len() > MAX_DESCENDANTS {
                return Ok(None);
            }
            // A child whose call waits itself has not begun.
            let has_begun = |call: &CallId| {
                let call = state.call(call);
                call.is_none_or(|call| !matches!(call.phase, CallPhase::Suspended(_)))
            };
            let children = state.awaited_children().filter(|(call, _)| has_begun(call));
            family.extend(children.map(|(_, child)| id.sibling(child)));
            pending.extend(entries(&id, &state));
        }
        let outcome = WaitOutcome::AwaitingInput;
        let is_asked = !pending.is_empty();
        Ok(is_asked.then_some(ComeTo { outcome, pending: Some(pending), usage }))
    }
}

/// The open suspensions of a conversation, as the inbox lists them.
fn entries(id: &Scoped<ConversationId>, state: &State) -> Vec<InboxEntry> {
    let Some(agent) = &state.agent else { return Vec::new() };
    let entry = |pending| InboxEntry {
        conversation_id: id.local(),
        agent: agent.clone(),
        participants: state.participants.clone(),
        pending,
    };
    state.pending_calls().into_iter().map(entry).collect()
}

/// Returns when the credential has ended.
async fn ended(credential: &mut Option<CredentialWatch>) {
    match credential {
        Some(credential) => credential.ended().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_a_duration_of_at_most_ten_minutes() {
        let read = |wait: &str| WaitQuery { wait: Some(wait.to_owned()) }.duration();
        assert_eq!(read("30s").unwrap(), Some(Duration::from_secs(30)));
        assert_eq!(read("10m").unwrap(), Some(MAX_WAIT));
        for wrong in ["0", "0s", "11m", "600001ms", "-1s", "", "soon", "30", "1e9s"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
        assert_eq!(WaitQuery { wait: None }.duration().unwrap(), None);
    }
}
