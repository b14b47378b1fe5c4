//! The store over the model compared with the store over a real server: random calls, of every
//! script, have the same outcomes.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ::redis::{Arg, Pipeline, RedisResult, Value};
use abide_actors::audit::{AuditEntry, AuditLog, Excerpt, Omitted, Received};
use abide_actors::blobs::{Blob, Blobs};
use abide_actors::identity::{Epoch, Incarnation, NodeName};
use abide_actors::journal::{
    Claim, Commit, Holder, Journal, ResponseScope, StoreError, StoredResponse,
};
use abide_actors::model::Purpose;
use abide_actors::usage_counts::day_of;
use abide_conversation::command::IfBusy;
use abide_conversation::remembered_decision::RememberedDecision;
use abide_conversation::{
    AgentName, Command, ConversationId, DecisionId, Principal, Revision, Scoped, Seq, State,
    Tenant, Timestamp, decide, replay,
};
use abide_registry::member::ProcessId;
use abide_registry::membership::{Member, MemberState, Membership, MembershipStatus};
use abide_registry::partition::PartitionSet;
use abide_registry::store::redis::transport::{Dial, Transport};
use abide_registry::store::redis::{Durability, Redis};
use abide_registry::store::{
    AuditLevel, Effect, Operation, OperationLog, Store, StoredAgent, TenantCounts, UsageBy,
    UsageQuery,
};
use futures::future::BoxFuture;
use serde_json::json;

use super::Server;
use super::compared::RealServer;
use crate::activities;
use crate::actor::compose;
use crate::random::Random;

/// How many calls both stores are given.
const CALLS: u64 = 6_000;

thread_local! {
    static MODEL: RefCell<Server> = RefCell::new(Server::new(&[]));
}

/// Connects to the model of this thread.
struct ToModel;

impl Dial for ToModel {
    fn dial(&self) -> BoxFuture<'_, RedisResult<Arc<dyn Transport>>> {
        Box::pin(async { Ok(Arc::new(ToModel) as Arc<dyn Transport>) })
    }
}

impl Transport for ToModel {
    #[allow(clippy::disallowed_methods, reason = "the real server has the machine's clock, too")]
    fn send<'a>(&'a self, commands: &'a Pipeline) -> BoxFuture<'a, RedisResult<Vec<Value>>> {
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        let carry_out = |command: &::redis::Cmd| {
            let words = command.args_iter().map(|arg| match arg {
                Arg::Simple(word) => word.to_vec(),
                other => unreachable!("{other:?}"),
            });
            let words: Vec<_> = words.collect();
            MODEL.with_borrow_mut(|model| model.execute(&words, 0, now_ms.try_into().unwrap()))
        };
        let values = commands.cmd_iter().map(carry_out).collect();
        Box::pin(async { Ok(values) })
    }
}

fn at(seconds: u64) -> Timestamp {
    Timestamp::from_second(1_900_000_000 + seconds.cast_signed()).unwrap()
}

fn response(key: String, seconds: u64) -> StoredResponse {
    let expires_at = if seconds == 7 { Timestamp::MAX } else { at(seconds) };
    StoredResponse { key, fingerprint: String::new(), body: json!(seconds), expires_at }
}

fn member(holder: Holder, process: &str) -> Member {
    Member {
        holder,
        process: ProcessId::new(process),
        address: String::new(),
        state: MemberState::Up,
        live_actors: 0,
        version: String::new(),
        protocol_version: abide_registry::protocol::PROTOCOL_VERSION,
        handshake_version: abide_registry::protocol::HANDSHAKE_VERSION,
        live_directory_version: abide_registry::protocol::LIVE_DIRECTORY_VERSION,
        cookie: None,
        auth: None,
        ports: Vec::new(),
        since: Timestamp::UNIX_EPOCH,
        lease_ms: 60_000,
    }
}

fn audit_entry(number: u64) -> AuditEntry {
    let excerpt = || Excerpt::of(&json!("x"));
    AuditEntry {
        id: format!("audit_{number}"),
        at: at(number),
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

/// What a call needs, chosen once for both stores.
struct Choice {
    kind: u64,
    number: u64,
    id: Scoped<ConversationId>,
    me: Holder,
    other: Holder,
    held: Claim,
    commit: Option<Commit>,
}

impl Choice {
    /// Chooses a call by what the first store has.
    async fn new(random: &mut Random, number: u64, store: &Redis) -> Self {
        let id = Scoped::parse(random.pick(&["a", "b", "acme/a"])).unwrap();
        let holder = |random: &mut Random| Holder {
            node: NodeName::new(random.pick(&["n", "m"])),
            incarnation: Incarnation::new(random.pick(&["1", "2", "3"])),
        };
        let (me, other) = (holder(random), holder(random));
        let stale = Claim { holder: me.clone(), epoch: Epoch::new(random.below(9)) };
        let held = store.current_claim(&id).await.unwrap().filter(|_| random.percent(90));
        let held = held.unwrap_or(stale);
        let stored = store.load(&id).await.unwrap();
        let state = stored.map(|it| replay(it.state, &it.events)).unwrap_or_default();
        let commit = commit(random, number, &state);
        Self { kind: random.below(41), number, id, me, other, held, commit }
    }
}

/// A commit that follows this state, or one that does not.
fn commit(random: &mut Random, number: u64, state: &State) -> Option<Commit> {
    let action = match abide_conversation::wanted(state).into_iter().next() {
        Some(activity) if random.percent(80) => activities::outcome(&activity, number, None),
        Some(_) | None => match state.pending_calls().into_iter().next() {
            Some(pending) if random.percent(50) => activities::approve(pending.call_id, None),
            Some(_) | None => activities::send(number, "hello", IfBusy::Queue),
        },
    };
    let events = decide(state, Command { at: at(number), action }).ok()?;
    let next = replay(state.clone(), &events);
    let answer = random.percent(50).then(|| response(format!("key:{number}"), number % 9));
    let cached_seq = if random.percent(30) { Seq::ZERO } else { next.seq };
    let mut commit = compose(state, &next, events, answer, cached_seq);
    if random.percent(5) {
        commit.summary.last_seq = commit.summary.last_seq.next();
    }
    Some(commit)
}

fn outcome<T: std::fmt::Debug>(outcome: Result<T, StoreError>) -> String {
    match outcome {
        Err(StoreError::Unavailable(_)) => "unavailable".to_owned(),
        outcome => format!("{outcome:?}"),
    }
}

fn names(renewed: Result<MembershipStatus, StoreError>) -> String {
    outcome(renewed.map(|renewed| match renewed {
        MembershipStatus::Alive { members, .. } => {
            Some(members.into_iter().map(|it| it.member.holder).collect::<Vec<_>>())
        }
        MembershipStatus::Evicted => None,
    }))
}

/// Calls a store, and returns what it answers.
async fn call(store: &Redis, choice: &Choice) -> String {
    let Choice { kind, number, id, me, other, held, commit } = choice;
    let number = *number;
    let tenant = id.tenant();
    let agent = id.sibling(&AgentName::new(format!("agent{}", number % 3)));
    let (share, scope) = (PartitionSet::all(), ResponseScope::Creations(tenant.clone()));
    let own = ResponseScope::Conversation(id.clone());
    let blob = Blob::new("text/plain", format!("blob {}", number % 4).into_bytes());
    let blob_id = id.sibling(&blob.id());
    match kind {
        0..=2 => outcome(store.claim(id, me, Some(other).filter(|_| number % 2 == 0)).await),
        3 => outcome(store.claim_and_load(id, me, Some(&held.holder)).await),
        4 => outcome(store.release(id, held).await),
        5..=14 => match commit {
            Some(commit) => outcome(store.append(id, held, commit.clone()).await),
            None => String::new(),
        },
        15 if number % 3 == 0 => {
            outcome(store.delete(id, held, Some(response("key:gone".to_owned(), 9))).await)
        }
        15 => outcome(store.current_claim(id).await),
        16 => outcome(store.load(id).await),
        17 => outcome(store.events(id, Seq::new(number % 5), 3).await),
        18 => outcome(store.events_before(id, Seq::new(number % 9), 3).await),
        19 => outcome(store.summary(id).await),
        20 => {
            outcome(store.stored_response(&own, &format!("key:{}", number - 1), at(number)).await)
        }
        21 => {
            let answer = response(format!("key:{}", number % 5), number % 9);
            outcome(store.reserve(&scope, answer, at(number % 12)).await)
        }
        22 => outcome(store.stored_response(&scope, &format!("key:{}", number % 5), at(3)).await),
        23 => {
            let revision = Revision::new(format!("{agent}-r{}", number % 7));
            let agent =
                StoredAgent { name: agent.local(), revision, definition: json!({"n": number}) };
            outcome(
                store.put_agent(&tenant, agent, Some(response(format!("key:{number}"), 9))).await,
            )
        }
        24 => outcome(store.delete_agent(&agent, None).await),
        25 => outcome(store.agents(&tenant).await),
        26 => {
            let decision: RememberedDecision = serde_json::from_value(json!({
                "id": format!("d{}", number % 4), "tool": "t", "does": "", "approved": true,
                "match": "exact", "fingerprint": "", "by": "ada", "expires_at": at(number),
            }))
            .unwrap();
            let decision = Some(&decision).filter(|_| number % 3 > 0);
            let id = DecisionId::new(format!("d{}", number % 4));
            outcome(store.set_decision(&agent, &id, decision).await)
        }
        27 => outcome(store.decisions(&agent).await),
        28 => outcome(store.put_blob(&blob_id, &blob).await),
        29 if number % 3 == 0 => outcome(store.delete_blob(&blob_id).await),
        29 => outcome(store.blob(&blob_id).await),
        30 => outcome(store.put_entry(id, &audit_entry(number), at(number + number % 9)).await),
        31 => outcome(store.entries(id, None, 9, at(number)).await),
        32 => names(store.enter(&member(me.clone(), me.incarnation.as_str())).await),
        33 => names(store.renew(&member(me.clone(), "p")).await),
        34 => outcome(store.declare_dead_if(me, number % 2 == 0).await),
        35 => outcome(store.reset_deaths(id).await),
        36 => outcome(store.events(id, Seq::new(number % 5), 100).await),
        37 => {
            let operation = operation(&tenant, number);
            let effect = match number % 3 {
                0 => Effect::Follows,
                1 => Effect::DeleteAgent { name: agent, response: None },
                _ => Effect::DeleteBlob(blob_id),
            };
            outcome(store.operate(&operation, effect).await)
        }
        38 => outcome(store.operations(Some(&tenant).filter(|_| number % 2 == 0), 0, 9).await),
        39 => counted(store, &tenant).await,
        _ => {
            let listed = (
                store.due_alarms(&share, Timestamp::MAX, 9).await,
                store.active(&share, None, 9).await,
                store.inbox(&tenant, &Default::default(), None, 9).await,
                store.conversations(&tenant, &Default::default(), None, 9).await,
                store.open_suspensions(&tenant, None, 9).await,
            );
            format!("{listed:?}")
        }
    }
}

fn operation(tenant: &Tenant, number: u64) -> Operation {
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

/// What a store has counted of a tenant.
async fn counted(store: &Redis, tenant: &Tenant) -> String {
    let (first, last) = (day_of(at(0)), day_of(at(CALLS)));
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

#[test]
fn random_calls_of_the_store_are_answered_as_over_a_real_server() {
    let real_server = RealServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let url = format!("redis://127.0.0.1:{}", real_server.port).parse().unwrap();
        let real = Redis::open(&url, Durability::Os).await.unwrap();
        let modelled = Redis::simulated(Arc::new(ToModel), Durability::Os, "o".to_owned());
        let mut random = Random::new(2, 7);
        for number in 1..CALLS {
            let full = number % 1_000 > 900;
            if full != MODEL.with_borrow(|model| model.limits.full) {
                real_server.fill(full);
                MODEL.with_borrow_mut(|model| model.limits.full = full);
            }
            let choice = Choice::new(&mut random, number, &modelled).await;
            let (theirs, ours) = (call(&real, &choice).await, call(&modelled, &choice).await);
            assert_eq!(ours, theirs, "call {number} of kind {}: {:?}", choice.kind, choice.commit);
        }
    });
}
