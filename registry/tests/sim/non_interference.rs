//! Non-interference: a tenant that shares the store with another one, which has the same ids, agents,
//! keys and blobs, sees what it sees alone.
//!
//! A seed gives each of two tenants a sequence of calls that depends on the tenant's own things only.
//! The first tenant makes its calls alone, and again with the calls of the second one in between;
//! both times it must see the same, call by call, and in all that it can read.

use std::collections::BTreeSet;

use abide_actors::journal::ResponseScope;
use abide_conversation::{AgentName, ConversationId, Revision, Scoped, Seq, Tenant, Timestamp};
use abide_registry::partition::PartitionSet;
use abide_registry::store::memory::Memory;
use abide_registry::store::{Effect, Store};

use crate::forgetful::{self, Model};
use crate::random::Random;
use crate::redis::random_calls::{
    self, Choice, KINDS, agent_of, at, blob, blob_of, counted, operation, outcome, rollout_of,
    sorted_keys,
};
use crate::redis::random_notices;

/// The calls of the first tenant.
const CALLS: u64 = 80;
/// The first tenant looks at everything each time that it has made this many calls.
const CALLS_BETWEEN_VIEWS: u64 = 16;
/// Kinds of calls that keep something under a name that both tenants use, and are made more often.
const SHARED_NAMES: [u64; 4] = [23, 37, 37, 34];
/// The seeds of an ordinary run.
const SEEDS: u64 = 24;
/// The number of seeds within which a mutation must be noticed.
const MAX_SEARCHED_SEEDS: u64 = 200;
/// More than any listing has.
const ALL: usize = 1_000;

/// The kinds whose tenant is not missed.
const UNNOTICED: [&str; 10] = [
    // Two hundred seeds do not come to where the same blob of two tenants is due.
    "argument with {p}:blobs_due",
    // What a webhook is owed is kept under keys of its own, or by names of conversations: the tenant is
    // in the one or in the other, so that two tenants do not meet where it is missing from one of them.
    "argument with {p}:nd",
    "argument with {p}:nt",
    "argument with {p}:owed",
    // Two hundred seeds do not come to where dropped names or staged events of two tenants meet, nor
    // below the cached state and the expiries of a conversation's answers. Calls that do would be
    // better than these lines.
    "{p}:dropped",
    "{p}:nt",
    "{p}:nx",
    "{p}:s",
    "{p}:staged",
    "{p}:x",
];

/// Somebody who makes calls for a tenant.
struct Caller {
    tenant: Tenant,
    random: Random,
    number: u64,
}

impl Caller {
    fn new(tenant: &Tenant, seed: u64, stream: u64) -> Self {
        Self { tenant: tenant.clone(), random: Random::new(seed, stream), number: 0 }
    }

    /// Makes the next call, and returns what it was and its answer.
    async fn call(&mut self, store: &dyn Store) -> String {
        self.number += 1;
        let id = ConversationId::new(self.random.pick(&["a", "b"]));
        let (id, kinds) = (Scoped::new(&self.tenant, &id), (KINDS + 4, self.number));
        let mut choice = Choice::new(&mut self.random, kinds, id, store).await;
        if self.random.percent(30) {
            choice.kind = self.random.pick(&SHARED_NAMES);
        }
        let answer = match random_calls::call(store, &choice).await {
            Some(answer) => answer,
            None => operate(store, &choice).await,
        };
        format!("call {} of kind {}: {}", self.number, choice.kind, without_epochs(&answer))
    }
}

/// A call that the operators' audit has. Its answer names the entry in the cluster's chain, which is
/// not the tenant's to see.
async fn operate(store: &dyn Store, choice: &Choice) -> String {
    let Choice { kind, number, id, .. } = choice;
    let effect = match kind - KINDS {
        0 => Effect::Follows,
        1 => Effect::DeleteAgent { name: agent_of(choice), response: None },
        2 => rollout_of(choice),
        _ => Effect::DeleteBlob(blob_of(choice)),
    };
    let done = store.operate(&operation(&id.tenant(), *number), effect).await;
    outcome(done.map(|done| (done.answer, done.entry.is_some())))
}

/// All that a tenant can read after the call of this number.
async fn view(store: &dyn Store, tenant: &Tenant, number: u64) -> Vec<String> {
    let mut seen = vec![
        format!("{:?}", store.conversations(tenant, &Default::default(), None, ALL).await),
        format!("{:?}", store.conversations(tenant, &Default::default(), None, 1).await),
        format!("{:?}", store.list(tenant, &Default::default(), None, ALL).await),
        format!("{:?}", store.list(tenant, &Default::default(), None, 1).await),
        format!("{:?}", store.inbox(tenant, &Default::default(), None, ALL).await),
        format!("{:?}", store.inbox(tenant, &Default::default(), None, 1).await),
        format!("{:?}", store.open_suspensions(tenant, None, ALL).await.map(|it| it.items.len())),
        outcome(store.operations(Some(tenant), 0, ALL).await),
        outcome(store.agents(tenant).await),
        sorted_keys(store, tenant).await,
        counted(store, tenant).await,
        alarms_and_active(store, tenant).await,
        random_notices::view(store, tenant).await,
        kept_answers(store, ResponseScope::Creations(tenant.clone()), number).await,
        outcome(store.queue_depths(tenant, None).await),
    ];
    for name in ["a", "b", "copy"] {
        let id = Scoped::new(tenant, &ConversationId::new(name));
        seen.push(conversation(store, &id, number).await);
        seen.push(kept_answers(store, ResponseScope::Conversation(id), number).await);
    }
    for suffix in 0..3 {
        let agent = Scoped::new(tenant, &AgentName::new(format!("agent{suffix}")));
        let (stored, newest) = (store.agent(&agent).await, store.current_revisions(&agent).await);
        seen.push(format!("{stored:?} {newest:?} {:?}", store.decisions(&agent).await));
        for revision in 0..7 {
            let revision = Revision::new(format!("agent{suffix}-r{revision}"));
            seen.push(outcome(store.revision(&agent.sibling(&revision)).await));
        }
        seen.push(kept_answers(store, ResponseScope::Agent(agent), number).await);
    }
    for content in 0..4 {
        let id = Scoped::new(tenant, &blob(content).id());
        seen.push(format!("{:?} {:?}", store.blob_info(&id).await, store.blob(&id).await));
    }
    seen
}

/// What was seen without the epochs of claims, which no tenant sees: those of a partition grow together.
fn without_epochs(seen: &str) -> String {
    let mut parts = seen.split("Epoch(");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| text + part.trim_start_matches(|c: char| c.is_ascii_digit()))
}

async fn conversation(store: &dyn Store, id: &Scoped<ConversationId>, number: u64) -> String {
    let seen = (
        store.summary(id).await,
        store.load(id).await,
        store.events(id, Seq::ZERO, ALL).await,
        store.events_before(id, Seq::MAX, ALL).await,
        store.last_seqs(std::slice::from_ref(id)).await,
        store.current_claim(id).await,
        store.entries(id, None, ALL, at(number)).await,
    );
    format!("{seen:?}")
}

/// The answers that are kept under the keys of the last calls, and under those that are used again.
async fn kept_answers(store: &dyn Store, scope: ResponseScope, number: u64) -> String {
    let mut seen = Vec::new();
    let numbers = (0..5).chain(number.saturating_sub(12).max(5)..=number);
    for key in numbers.map(|number| format!("key:{number}")).chain(["key:gone".to_owned()]) {
        seen.push(store.stored_response(&scope, &key, at(number)).await);
    }
    format!("{seen:?}")
}

/// The alarms and the active marks of a tenant's conversations, among those of all.
async fn alarms_and_active(store: &dyn Store, tenant: &Tenant) -> String {
    let all = PartitionSet::all();
    let mut due = store.due_alarms(&all, Timestamp::MAX, ALL).await.unwrap();
    due.retain(|(id, _)| id.is_of(tenant));
    let mut active = store.active(&all, None, ALL).await.unwrap().items;
    active.retain(|(id, _)| id.is_of(tenant));
    active.sort_by(|(one, _), (other, _)| one.cmp(other));
    format!("{due:?} {active:?}")
}

/// What the first tenant sees, call by call, alone or with the other one.
async fn run(store: &dyn Store, seed: u64, tenants: &[Tenant; 2], together: bool) -> Vec<String> {
    let [mut mine, mut other] =
        [(0, 3), (1, 4)].map(|(it, stream)| Caller::new(&tenants[it], seed, stream));
    random_calls::know_names(store).await;
    let mut turns = Random::new(seed, 5);
    let mut seen = Vec::new();
    for number in 1..=CALLS {
        forgetful::set_clock(number);
        // As many turns are drawn alone. Both tenants have one clock, and name things by it.
        for _ in 0..turns.below(4) {
            if together {
                other.number = number - 1;
                other.call(store).await;
            }
        }
        seen.push(mine.call(store).await);
        if number % CALLS_BETWEEN_VIEWS == 0 {
            let repeated = forgetful::repeat_deletion(&mine.tenant);
            seen.push(format!("after call {number}, a repeat of the last deletion: {repeated:?}"));
            let views = view(store, &mine.tenant, number).await;
            let views = views.iter().map(|view| without_epochs(view));
            seen.extend(views.map(|view| format!("after call {number}: {view}")));
        }
    }
    seen
}

/// Two tenants: the one without a prefix in the store is the first, the second, or neither.
fn tenants(seed: u64) -> [Tenant; 2] {
    let names = [["default", "acme"], ["acme", "default"], ["acme", "globex"]];
    names[usize::try_from(seed % 3).unwrap()].map(|name| Tenant::parse(name).unwrap())
}

/// What the first tenant sees differently with the other one; `None` if it sees the same.
fn difference(seed: u64, mut make: impl FnMut() -> Box<dyn Store>) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let tenants = tenants(seed);
    let [alone, together] = [false, true].map(|together| {
        let store = make();
        runtime.block_on(run(&*store, seed, &tenants, together))
    });
    let mut pairs = alone.into_iter().zip(together);
    let (alone, together) = pairs.find(|(alone, together)| alone != together)?;
    let [mine, other] = tenants;
    Some(format!("seed {seed}: {mine} sees\n{alone}\nalone, and with {other}\n{together}"))
}

#[test]
fn a_tenant_sees_with_another_one_what_it_sees_alone() {
    for seed in 0..SEEDS {
        if let Some(difference) = difference(seed, || Box::new(Model::begin(None))) {
            panic!("{difference}");
        }
        forgetful::end();
        if let Some(difference) = difference(seed, || Box::new(Memory::default())) {
            panic!("in memory: {difference}");
        }
    }
}

/// The kinds that have a tenant in the calls of each seed, which are made once.
#[derive(Default)]
struct SeedKinds(Vec<BTreeSet<String>>);

impl SeedKinds {
    fn of(&mut self, seed: u64) -> &BTreeSet<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let index = usize::try_from(seed).unwrap();
        while self.0.len() <= index {
            let next = u64::try_from(self.0.len()).unwrap();
            let store = Model::begin(None);
            runtime.block_on(run(&store, next, &tenants(next), true));
            self.0.push(forgetful::kinds());
        }
        &self.0[index]
    }
}

/// Each kind of key, and each kind of argument, that has a tenant in it loses the tenant in turn.
#[test]
fn a_key_without_its_tenant_is_noticed_whatever_its_kind() {
    let mut seeds = SeedKinds::default();
    let kinds: BTreeSet<String> = (0..3).flat_map(|seed| seeds.of(seed).clone()).collect();
    assert!(kinds.len() > 20, "the calls have few kinds of keys: {kinds:?}");
    let mut is_noticed = |kind: &String| {
        // Where a kind is in no call, its mutation changes nothing.
        (0..MAX_SEARCHED_SEEDS).any(|seed| {
            seeds.of(seed).contains(kind)
                && difference(seed, || Box::new(Model::begin(Some(kind)))).is_some()
        })
    };
    let unnoticed: Vec<&String> = kinds
        .iter()
        .filter(|kind| UNNOTICED.contains(&kind.as_str()) || !is_noticed(kind))
        .collect();
    assert_eq!(unnoticed, UNNOTICED);
}
