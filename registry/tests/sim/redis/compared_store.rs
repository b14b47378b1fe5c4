//! The store over the model compared with the store over a real server: random calls, of every
//! script, have the same outcomes.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ::redis::{Arg, Pipeline, RedisResult, Value};
use abide_actors::journal::{Holder, StoreError};
use abide_conversation::{Scoped, Timestamp};
use abide_registry::member::ProcessId;
use abide_registry::membership::{Member, MemberState, Membership, MembershipStatus};
use abide_registry::partition::PartitionSet;
use abide_registry::store::redis::transport::{Dial, Transport};
use abide_registry::store::redis::{Durability, Redis};
use abide_registry::store::{
    Direction, Effect, History as _, ListOrder, ListQuery, Lists as _, OperationLog as _,
    Store as _,
};
use futures::future::BoxFuture;

use super::Server;
use super::compared::RealServer;
use super::random_calls::{self, Choice, KINDS, agent_of, blob_of, operation, outcome, rollout_of};
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
        stored_form_version: abide_registry::protocol::STORED_FORM_VERSION,
        cookie: None,
        auth: None,
        ports: Vec::new(),
        since: Timestamp::UNIX_EPOCH,
        lease_ms: 60_000,
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
    if let Some(answer) = random_calls::call(store, choice).await {
        return answer;
    }
    let Choice { kind, number, me, id, .. } = choice;
    let (number, tenant) = (*number, id.tenant());
    let share = PartitionSet::all();
    match kind - KINDS {
        0 => names(store.enter(&member(me.clone(), me.incarnation.as_str())).await),
        1 => names(store.renew(&member(me.clone(), "p")).await),
        2 => outcome(store.declare_dead_if(me, number % 2 == 0).await),
        3 => {
            let effect = match number % 4 {
                0 => Effect::Follows,
                1 => Effect::DeleteAgent { name: agent_of(choice), response: None },
                2 => rollout_of(choice),
                _ => Effect::DeleteBlob(blob_of(choice)),
            };
            let done = outcome(store.operate(&operation(&tenant, number), effect).await);
            format!("{done} {:?}", store.current_revisions(&agent_of(choice)).await)
        }
        4 => outcome(store.operations(Some(&tenant).filter(|_| number % 2 == 0), 0, 9).await),
        _ => {
            let listed = (
                store.due_alarms(&share, Timestamp::MAX, 9).await,
                store.active(&share, None, 9).await,
                store.inbox(&tenant, &Default::default(), None, 9).await,
                store.conversations(&tenant, &Default::default(), None, 9).await,
                store.open_suspensions(&tenant, None, 9).await,
                store.list(&tenant, &Default::default(), None, 9).await,
                store.list(&tenant, &ascending(), None, 1).await,
            );
            format!("{listed:?}")
        }
    }
}

/// The list of all conversations, the least active first.
fn ascending() -> ListQuery {
    let (order, direction) = (ListOrder::Active, Direction::Ascending);
    ListQuery { order, direction, ..ListQuery::default() }
}

#[test]
fn random_calls_of_the_store_are_answered_as_over_a_real_server() {
    let real_server = RealServer::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let url = format!("redis://127.0.0.1:{}", real_server.port).parse().unwrap();
        let real = Redis::open(&url, Durability::Os).await.unwrap();
        let modelled = Redis::simulated(Arc::new(ToModel), Durability::Os, "o".to_owned());
        random_calls::know_names(&real).await;
        random_calls::know_names(&modelled).await;
        let mut random = Random::new(2, 7);
        for number in 1..CALLS {
            let full = number % 1_000 > 900;
            if full != MODEL.with_borrow(|model| model.limits.full) {
                real_server.fill(full);
                MODEL.with_borrow_mut(|model| model.limits.full = full);
            }
            let id = Scoped::parse(random.pick(&["a", "b", "acme/a"])).unwrap();
            let kinds = (KINDS + 6, number);
            let choice = Choice::new(&mut random, kinds, id, &modelled).await;
            let (theirs, ours) = (call(&real, &choice).await, call(&modelled, &choice).await);
            assert_eq!(ours, theirs, "call {number} of kind {}: {:?}", choice.kind, choice.commit);
        }
    });
}
