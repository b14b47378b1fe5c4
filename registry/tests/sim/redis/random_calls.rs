//! Random calls of a store, which depend on nothing but a seed and what the store has.

use std::collections::BTreeSet;
use std::sync::Arc;

use abide_actors::audit::{AuditEntry, Excerpt, Omitted, Received};
use abide_actors::blobs::{Blob, BlobHold, BlobHolder};
use abide_actors::conversation::imported;
use abide_actors::identity::{Epoch, Incarnation, NodeName};
use abide_actors::journal::{
    Claim, Commit, Holder, ResponseScope, Rewrite, StoreError, StoredResponse,
};
use abide_actors::model::Purpose;
use abide_actors::usage_counts::day_of;
use abide_conversation::command::IfBusy;
use abide_conversation::erase::SubjectAlias;
use abide_conversation::identity::Role;
use abide_conversation::ids::QueueName;
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::state::QueueEntry;
use abide_conversation::{
    AgentName, Attempt, BlobId, CallId, Command, ConversationId, DecisionId, Principal, Revision,
    ScheduleName, Scoped, Seq, State, Tenant, Timestamp, decide, replay,
};
use abide_registry::partition::PartitionSet;
use abide_registry::schedules::Schedule;
use abide_registry::store::{
    AuditLevel, Effect, KeyChange, Operation, Rebuild, Rollout, RolloutChange, StagedJournal,
    Store, StoredAgent, StoredKey, UsageBy, UsageQuery,
};
use serde_json::json;

use super::random_notices;
use crate::activities;
use crate::actor::compose;
use crate::random::Random;

/// The kinds of calls.
pub const KINDS: u64 = 50;

pub fn at(seconds: u64) -> Timestamp {
    Timestamp::from_second(1_900_000_000 + seconds.cast_signed()).unwrap()
}

/// An answer of the call of this number, which names whose it is, and expires at a time that is another
/// for another tenant, or never.
fn response(mark: &str, key: String, number: u64) -> StoredResponse {
    let seconds = (number + mark.len() as u64) % 9;
    let expires_at = if seconds == 7 { Timestamp::MAX } else { at(number + seconds) };
    StoredResponse { key, fingerprint: String::new(), body: json!([mark, number]), expires_at }
}

fn audit_entry(mark: &str, number: u64) -> AuditEntry {
    let excerpt = || Excerpt::of(&json!(mark));
    AuditEntry {
        id: format!("audit_{}", number % 2),
        at: at(number / 16 * 16),
        purpose: Purpose::Step,
        turn_id: None,
        step: None,
        attempts: 1,
        sent: excerpt(),
        received: Received {
            thinking: excerpt(),
            text: excerpt(),
            calls: excerpt(),
            stop: None,
            failure: None,
        },
        usage: None,
        first_part_ms: None,
        whole_ms: 1,
        summary: None,
        omitted: Omitted::default(),
    }
}

/// What a call needs, chosen once for all stores that are given it.
pub struct Choice {
    pub kind: u64,
    pub number: u64,
    pub id: Scoped<ConversationId>,
    pub me: Holder,
    other: Holder,
    held: Claim,
    pub commit: Option<Commit>,
}

impl Choice {
    /// Chooses a call of one of these kinds, about this conversation, by what the store has of it.
    pub async fn new(
        random: &mut Random,
        (kinds, number): (u64, u64),
        id: Scoped<ConversationId>,
        store: &dyn Store,
    ) -> Self {
        let holder = |random: &mut Random| Holder {
            node: NodeName::new(random.pick(&["n", "m"])),
            incarnation: Incarnation::new(random.pick(&["1", "2", "3"])),
        };
        let (me, other) = (holder(random), holder(random));
        let stale = Claim { holder: me.clone(), epoch: Epoch::new(1_000 + random.below(9)) };
        let held = store.current_claim(&id).await.unwrap().filter(|_| random.percent(90));
        let held = held.unwrap_or(stale);
        let stored = store.load(&id).await.unwrap();
        let state = stored.map(|it| replay(it.state, &it.events)).unwrap_or_default();
        let commit = commit(random, number, &id.tenant(), &state);
        Self { kind: random.below(kinds), number, id, me, other, held, commit }
    }
}

/// The text of a message, which names a blob now and then.
fn message(tenant: &Tenant, number: u64) -> String {
    match number % 3 {
        0 => format!("{tenant} {}", blob(number / 3).id()),
        _ => tenant.to_string(),
    }
}

/// A commit that follows this state, or one that does not.
fn commit(random: &mut Random, number: u64, tenant: &Tenant, state: &State) -> Option<Commit> {
    let action = match abide_conversation::wanted(state).into_iter().next() {
        Some(activity) if random.percent(80) => activities::outcome(&activity, number, None),
        Some(_) | None => match state.pending_calls().into_iter().next() {
            Some(pending) if random.percent(50) => activities::approve(pending.call_id, None),
            Some(_) | None => activities::send(number, &message(tenant, number), IfBusy::Queue),
        },
    };
    let events = decide(state, Command { at: at(number), action }).ok()?;
    let next = replay(state.clone(), &events);
    let key = format!("key:{number}");
    let answer = random.percent(50).then(|| response(tenant.as_str(), key, number));
    let cached_seq = if random.percent(30) { Seq::ZERO } else { next.seq };
    let mut commit = compose(state, &next, events, answer, cached_seq);
    if random.percent(50) {
        let seqs = commit.events.iter().map(|event| event.seq);
        commit.owed = random_notices::owed(number, tenant, seqs);
    }
    if number % 4 < 2 {
        commit.queued = Some(waiting_calls(tenant, number));
    }
    if random.percent(5) {
        commit.summary.last_seq = commit.summary.last_seq.next();
    }
    Some(commit)
}

/// The calls of a conversation that wait in queues, under names that both tenants use.
fn waiting_calls(tenant: &Tenant, number: u64) -> Vec<QueueEntry> {
    let entry = |index| QueueEntry {
        queue: QueueName::new("q"),
        tool: format!("t{}", (number + index) % 2),
        since: at(number),
        call: CallId::new(format!("{tenant}{index}")),
        attempt: Attempt::FIRST,
    };
    (0..number % 3).map(entry).collect()
}

pub fn outcome<T: std::fmt::Debug>(outcome: Result<T, StoreError>) -> String {
    match outcome {
        Err(StoreError::Unavailable(_)) => "unavailable".to_owned(),
        outcome => format!("{outcome:?}"),
    }
}

/// Calls a store, and returns what it answers; `None` if the kind is none of [`KINDS`].
pub async fn call(store: &dyn Store, choice: &Choice) -> Option<String> {
    Some(match choice.kind {
        0..=22 => call_conversation(store, choice).await,
        23..=29 => call_administration(store, choice).await,
        30..=33 => call_keys(store, choice).await,
        34..=36 => call_blobs(store, choice).await,
        37 => {
            let entry = audit_entry(choice.id.tenant().as_str(), choice.number);
            let expires_at = at(choice.number + 9 * (choice.number % 9));
            outcome(store.put_entry(&choice.id, &entry, expires_at).await)
        }
        38 => outcome(store.entries(&choice.id, None, 9, at(choice.number)).await),
        39 => counted(store, &choice.id.tenant()).await,
        40..=45 => random_notices::call(store, choice).await,
        46 => call_schedules(store, choice).await,
        47 => rewrite(store, choice).await,
        48..=49 => import(store, choice).await,
        _ => return None,
    })
}

async fn call_conversation(store: &dyn Store, choice: &Choice) -> String {
    let Choice { kind, number, id, me, other, held, commit } = choice;
    let number = *number;
    let own = ResponseScope::Conversation(id.clone());
    match kind {
        0..=2 => outcome(store.claim(id, me, Some(other).filter(|_| number % 2 == 0)).await),
        3 => outcome(store.claim_and_load(id, me, Some(&held.holder)).await),
        4 => outcome(store.release(id, held).await),
        5..=14 => match commit {
            Some(commit) if number % 4 == 0 => {
                outcome(store.claim_and_append(id, me, commit.clone()).await)
            }
            Some(commit) => outcome(store.append(id, held, commit.clone()).await),
            None => String::new(),
        },
        15 if number % 3 == 0 => {
            let gone = response(id.tenant().as_str(), "key:gone".to_owned(), number);
            let owed = random_notices::owed(number, &id.tenant(), [Seq::new(number)]);
            outcome(store.delete(id, held, Some(gone), owed).await)
        }
        15 => outcome(store.current_claim(id).await),
        16 => outcome(store.load(id).await),
        17 => outcome(store.events(id, Seq::new(number % 5), 3).await),
        18 => outcome(store.events_before(id, Seq::new(number % 9), 3).await),
        19 => outcome(store.summary(id).await),
        20 => {
            outcome(store.stored_response(&own, &format!("key:{}", number - 1), at(number)).await)
        }
        21 => outcome(store.reset_deaths(id).await),
        _ => outcome(store.events(id, Seq::new(number % 5), 100).await),
    }
}

/// Puts an alias into the journal of a conversation.
async fn rewrite(store: &dyn Store, choice: &Choice) -> String {
    let Choice { number, id, held, .. } = choice;
    let found = (store.events(id, Seq::ZERO, 100).await, store.summary(id).await);
    let (Ok(mut events), Ok(Some(summary))) = found else { return String::new() };
    let open = replay(State::default(), &events).pending_calls();
    let alias = SubjectAlias { subject: "ada".to_owned(), alias: format!("erased:{number}") };
    events.retain_mut(|event| alias.apply(&mut event.data));
    let rewrite = Rewrite { events, summary, indexed: [].into(), open };
    let rewritten = outcome(store.rewrite(id, held, rewrite).await);
    format!("{rewritten} {:?}", store.load(id).await.ok())
}

/// Keeps events of a conversation aside, or makes another one of them.
async fn import(store: &dyn Store, choice: &Choice) -> String {
    let Choice { kind, number, id, me, other, .. } = choice;
    let Ok(events) = store.events(id, Seq::ZERO, 100).await else { return String::new() };
    let (copy, aside) = (id.sibling(&ConversationId::new("copy")), number % 3 * 2);
    let (import, last_seq) = (format!("i{}", number % 2), Seq::new(aside));
    let staged = StagedJournal { id: copy.clone(), import, last_seq, blobs: BTreeSet::new() };
    let mut rest = events.iter().skip(usize::try_from(aside).unwrap());
    if *kind == 48 {
        return match number % 5 {
            0 => outcome(store.unstage(&staged).await),
            _ => outcome(store.stage(&staged, rest.take(2).cloned().collect()).await),
        };
    }
    let Ok(claim) = store.claim(&copy, me, Some(other)).await else { return String::new() };
    if number.is_multiple_of(7) {
        return outcome(store.delete(&copy, &claim, None, Vec::new()).await);
    }
    let Some(last) = rest.next() else { return String::new() };
    let whole = &events[..usize::try_from(last.seq.get()).unwrap()];
    let state = Arc::new(replay(State::default(), whole));
    let commit = imported(&state, [last.clone()].into(), [].into());
    let published = outcome(store.publish(&staged, &claim, commit).await);
    format!("{published} {:?}", store.load(&copy).await.ok())
}

/// Calls about the agents and decisions of a tenant, and about the creation of conversations.
async fn call_administration(store: &dyn Store, choice: &Choice) -> String {
    let Choice { kind, number, id, .. } = choice;
    let (number, tenant) = (*number, id.tenant());
    let mark = tenant.as_str();
    let agent = agent_of(choice);
    let scope = match number % 2 {
        0 => ResponseScope::Agent(agent.clone()),
        _ => ResponseScope::Creations(tenant.clone()),
    };
    match kind {
        23 => {
            let answer = response(mark, format!("key:{}", number % 5), number);
            outcome(store.reserve(&scope, answer, at(number)).await)
        }
        24 => {
            let key = format!("key:{}", number % 5);
            outcome(store.stored_response(&scope, &key, at(number)).await)
        }
        25 => {
            let revision = Revision::new(format!("{}-r{}", agent.local(), number % 7));
            let definition = json!({"n": number, "of": mark});
            let agent =
                StoredAgent { name: agent.local(), revision, definition, put_at: Some(at(number)) };
            let answer = response(mark, format!("key:{}", number % 5), number);
            outcome(store.put_agent(&tenant, agent, Some(answer)).await)
        }
        26 => outcome(store.delete_agent(&agent, None).await),
        27 if number % 2 == 0 => outcome(store.agents(&tenant).await),
        27 => {
            let name = agent.local();
            let revisions = [1, 2, 3].map(|n| Revision::new(format!("{name}-r{n}")));
            let dropped = outcome(store.drop_revisions(&agent, &revisions, 2).await);
            let left = store.history(&agent).await.unwrap_or_default().into_iter();
            let left: Vec<_> = left.map(|entry| entry.revision).collect();
            format!("{dropped} {left:?}")
        }
        28 => {
            let decision: RememberedDecision = serde_json::from_value(json!({
                "id": format!("d{}", number % 4), "tool": "t", "does": mark, "approved": true,
                "match": "exact", "fingerprint": "", "by": "ada", "expires_at": at(number),
            }))
            .unwrap();
            let decision = Some(&decision).filter(|_| number % 3 > 0);
            let id = DecisionId::new(format!("d{}", number % 4));
            outcome(store.set_decision(&agent, &id, decision).await)
        }
        _ => outcome(store.decisions(&agent).await),
    }
}

/// Calls about the API keys of a tenant.
async fn call_keys(store: &dyn Store, choice: &Choice) -> String {
    let (number, tenant) = (choice.number, choice.id.tenant());
    let id = choice.id.sibling(&format!("k{}", number % 3));
    match choice.kind {
        30 => {
            let key = StoredKey {
                id: id.local(),
                sha256: "0".repeat(64),
                tenant: tenant.clone(),
                roles: [Role::User].into(),
                queues: Default::default(),
                name: format!("{number} of {tenant}"),
                owner: "ada".to_owned(),
                created_at: at(number),
                expires_at: at(number + 9),
            };
            let change = if number % 2 == 0 { KeyChange::Add(key) } else { KeyChange::Update(key) };
            outcome(store.change_key(change).await)
        }
        31 => outcome(store.change_key(KeyChange::Remove(id)).await),
        32 => outcome(store.mark_keys_used(&[(id, at(number))]).await),
        _ => sorted_keys(store, &tenant).await,
    }
}

/// The keys of a tenant, and when they were used.
pub async fn sorted_keys(store: &dyn Store, tenant: &Tenant) -> String {
    let keys = store.tenants_keys(tenant).await.map(|mut keys| {
        keys.sort_by(|one, other| one.id.cmp(&other.id));
        keys
    });
    outcome(keys) + &outcome(store.keys_used(tenant).await)
}

async fn call_blobs(store: &dyn Store, choice: &Choice) -> String {
    let (id, number) = (blob_of(choice), choice.number);
    let holder = match number % 2 {
        0 => BlobHolder::Conversation(choice.id.local()),
        _ => BlobHolder::uploader("ada"),
    };
    let hold = BlobHold { holder, until: at(number + number % 9) };
    match (choice.kind, number % 3) {
        (34, 0) => outcome(store.put_blob(&id, &blob(number)).await),
        (34, _) => outcome(store.store_blob(&id, &blob(number), Some(&hold)).await),
        (35, 0) => outcome(store.delete_blob(&id).await),
        (35, 1) => outcome(store.hold_blob(&id, &hold).await),
        (35, _) => outcome(store.end_holds(&id, Some(&hold.holder), at(number)).await),
        (_, 0) => outcome(store.name_blobs(&choice.id, &[id.local()].into()).await),
        (_, 1) => held_and_named(store, choice).await,
        _ => outcome(store.blob(&id).await),
    }
}

/// Who holds a blob, which blobs of the tenant are due, and what the conversation names.
async fn held_and_named(store: &dyn Store, choice: &Choice) -> String {
    let tenant = choice.id.tenant();
    let own = |due: Vec<Scoped<BlobId>>| {
        due.into_iter().filter(|id| id.is_of(&tenant)).collect::<Vec<_>>()
    };
    let until = at(choice.number + 5);
    let parts = [
        outcome(store.blob_holds(&blob_of(choice)).await),
        outcome(store.due_blobs(&PartitionSet::all(), until, 99).await.map(own)),
        outcome(store.named_blobs(&choice.id).await),
    ];
    parts.join(" ")
}

/// Has a store know all names of blobs, as after a rebuild.
pub async fn know_names(store: &dyn Store) {
    let rebuild = Rebuild::after(None, at(0)).ended(at(0));
    assert!(store.replace_rebuild(None, &rebuild).await.unwrap());
}

/// The agent that a call is about.
pub fn agent_of(choice: &Choice) -> Scoped<AgentName> {
    choice.id.sibling(&AgentName::new(format!("agent{}", choice.number % 3)))
}

/// The blob that a call is about.
pub fn blob_of(choice: &Choice) -> Scoped<BlobId> {
    choice.id.sibling(&blob(choice.number).id())
}

/// One of four blobs, which all tenants have.
pub fn blob(number: u64) -> Blob {
    Blob::new("text/plain", format!("blob {}", number % 4).into_bytes())
}

/// A change of the rollout of an agent.
pub fn rollout_of(choice: &Choice) -> Effect {
    let (name, number) = (agent_of(choice), choice.number);
    let revision = Revision::new(format!("{}-r{}", name.local(), number % 7));
    let percent = u8::try_from(number % 100).unwrap() + 1;
    let rollout = Some(Rollout { revision, percent }).filter(|_| !number.is_multiple_of(5));
    Effect::ChangeRollout(RolloutChange { name, rollout, response: None })
}

pub fn operation(tenant: &Tenant, number: u64) -> Operation {
    Operation {
        at: at(number),
        tenant: Some(tenant.clone()).filter(|_| !number.is_multiple_of(4)),
        by: Principal::new("operator"),
        identity: None,
        operation: "conversation.retry".to_owned(),
        target: number.to_string(),
        level: AuditLevel::Metadata,
        request: None,
    }
}

/// Changes a schedule of a tenant, if its version is known, and reads what is due and listed.
async fn call_schedules(store: &dyn Store, choice: &Choice) -> String {
    let (number, tenant) = (choice.number, choice.id.tenant());
    let name = choice.id.sibling(&ScheduleName::new(format!("s{}", number % 3)));
    let known = match store.schedule(&name).await {
        Ok(before) => before.map(|before| before.version).filter(|_| !number.is_multiple_of(7)),
        Err(error) => return outcome::<()>(Err(error)),
    };
    let schedule: Schedule = serde_json::from_value(json!({
        "name": name.local(), "version": number, "agent": tenant.as_str(),
        "rhythm": {"every_ms": 1000}, "content": [], "if_busy": "Queue", "missed": "last",
        "paused": number.is_multiple_of(5), "principal": "ada", "created_at": at(0),
        "put_at": at(0), "next_at": at(number + number % 9),
    }))
    .unwrap();
    let next = Some(&schedule).filter(|_| !number.is_multiple_of(4));
    let all = PartitionSet::all();
    let own = |due: Vec<(Scoped<ScheduleName>, Timestamp)>| {
        due.into_iter().filter(|(name, _)| name.is_of(&tenant)).collect::<Vec<_>>()
    };
    let parts = [
        outcome(store.replace_schedule(&name, known, next).await),
        outcome(store.due_schedules(&all, at(number), 99).await.map(own)),
        format!("{:?}", store.schedules(&tenant, None, 9).await.ok()),
        outcome(store.schedule_count(&tenant).await),
    ];
    parts.join(" ")
}

/// What a store has counted of a tenant.
pub async fn counted(store: &dyn Store, tenant: &Tenant) -> String {
    let (first, last) = (day_of(at(0)), day_of(at(6_000)));
    let (by, after) = (UsageBy::Agent, None);
    let query = UsageQuery { tenant: tenant.clone(), first, last, by, after, limit: 9 };
    let counted = (
        store.usage(&query).await,
        store.tokens_of_day(tenant, first).await,
        store.conversation_count(tenant).await,
        store.blob_bytes(tenant).await,
    );
    format!("{counted:?}")
}
