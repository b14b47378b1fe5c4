//! With `replicas=N`, nothing is answered that rests on what no replica has.

use std::num::NonZeroU8;

use abide_actors::journal::{Journal, StoreError};
use abide_conversation::remembered_decision::{Match, RememberedDecision};
use abide_conversation::{AgentName, DecisionId, Principal, Revision, Seq};
use tokio::join;

use super::super::super::conformance::*;
use super::super::super::{Store, StoredAgent};
use super::super::{Durability, Redis, RedisUrl};
use super::members::{member, names};
use super::servers::{Server, free_port, wait_until};
use crate::membership::{Membership, MembershipStatus};

const REPLICA: Durability = Durability::Replicas(NonZeroU8::MIN);
const ARGS: [&str; 4] = ["--appendfsync", "no", "--repl-diskless-sync-delay", "0"];

/// A primary with one replica, and a store that waits for it.
struct Pair {
    primary: Server,
    replica: Server,
    store: Redis,
}

impl Pair {
    async fn start() -> Self {
        let primary = Server::start(&ARGS).await;
        let port = primary.port.to_string();
        let of = [&ARGS[..], &["--replicaof", "127.0.0.1", &port]].concat();
        let replica = Server::start(&of).await;
        let url = primary.url();
        Self::open(primary, replica, url).await
    }

    /// The same as a Redis cluster, in which the primary has all slots.
    async fn start_cluster() -> Self {
        let buses = [free_port().to_string(), free_port().to_string()];
        let args = |place: usize| {
            let own = ["--cluster-enabled", "yes", "--cluster-port", &buses[place]];
            [&ARGS[..], &own[..]].concat()
        };
        let primary = Server::start(&args(0)).await;
        let replica = Server::start(&args(1)).await;
        primary.ask::<()>(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]).await;
        let (port, bus) = (primary.port.to_string(), &buses[0]);
        replica.ask::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port, bus]).await;
        let id: String = primary.ask(&["CLUSTER", "MYID"]).await;
        wait_until("the replica knows its primary", async || {
            replica.try_ask::<()>(&["CLUSTER", "REPLICATE", &id]).await.is_ok()
        })
        .await;
        wait_until("the cluster is whole", async || {
            let info: String = primary.ask(&["CLUSTER", "INFO"]).await;
            info.contains("cluster_state:ok")
        })
        .await;
        let url = format!("redis+cluster://127.0.0.1:{port}").parse().unwrap();
        Self::open(primary, replica, url).await
    }

    async fn open(primary: Server, replica: Server, url: RedisUrl) -> Self {
        wait_until("the primary counts its replica", async || {
            let info: String = primary.ask(&["INFO", "replication"]).await;
            info.contains("state=online")
        })
        .await;
        let store = Redis::open(&url, REPLICA).await.unwrap();
        Self { primary, replica, store }
    }
}

fn agent(name: &str) -> StoredAgent {
    StoredAgent {
        name: AgentName::new(name),
        revision: Revision::new(format!("{name}-1")),
        definition: serde_json::json!({}),
        put_at: None,
    }
}

fn decision() -> RememberedDecision {
    RememberedDecision {
        id: DecisionId::new("dec_1"),
        tool: "send".to_owned(),
        tool_digest: String::new(),
        approved: true,
        matching: Match::Tool,
        fingerprint: String::new(),
        by: Principal::new("ann"),
        voters: Vec::new(),
        expires_at: at(60),
    }
}

fn assert_unknown<T: std::fmt::Debug>(what: &str, outcome: Result<T, StoreError>) {
    assert!(matches!(outcome, Err(StoreError::Unavailable(_))), "{what}: {outcome:?}");
}

async fn nothing_unreplicated_is_answered(pair: Pair) {
    let Pair { primary, replica, store } = pair;
    let (old, new) = (agent("old"), agent("new"));
    let ids = ["a", "b", "c"].map(id);
    let [a, b, c] = ids.each_ref();
    store.put_agent(&own(), old.clone(), None).await.unwrap();
    let held_a = create_conversation(&store, "a").await;
    let held_b = create_conversation(&store, "b").await;
    create_conversation(&store, "c").await;
    replica.freeze();

    let mut second = commit(2, 2);
    second.responses.push(response("key:1", "yes", 60));
    let (old_name, new_name) = (scoped(old.name.as_str()), scoped(new.name.as_str()));
    let (of_a, me) = (scope_of("a"), own());
    let unknown_scope = scope_of_agent("x");
    let (reserved, decision) = (response("key:1", "x", 60), decision());
    let (appended, deleted, put, removed, decided, kept) = join!(
        store.append(a, &held_a, second.clone()),
        store.delete(b, &held_b, None, Vec::new()),
        store.put_agent(&me, new.clone(), None),
        store.delete_agent(&old_name, None),
        store.set_decision(&new_name, &decision.id, Some(&decision)),
        store.reserve(&unknown_scope, reserved.clone(), at(0)),
    );
    assert_unknown("append", appended);
    assert_unknown("delete", deleted);
    assert_unknown("put_agent", put);
    assert_unknown("delete_agent", removed);
    assert_unknown("set_decision", decided);
    assert_unknown("reserve", kept);

    // All of it is on the primary now, and would be lost with it.
    let (other, dead) = (holder("m"), holder("n"));
    let (loaded, taken, response, events, newest_events, summary, gone) = join!(
        store.load(a),
        store.claim_and_load(c, &other, Some(&dead)),
        store.stored_response(&of_a, "key:1", at(0)),
        store.events(a, Seq::ZERO, 9),
        store.events_before(a, Seq::MAX, 9),
        store.summary(a),
        store.summary(b),
    );
    assert_unknown("load", loaded);
    assert_unknown("claim_and_load", taken);
    assert_unknown("stored_response", response);
    assert_unknown("events", events);
    assert_unknown("events_before", newest_events);
    assert_unknown("summary", summary);
    assert_unknown("summary of what was deleted", gone);
    assert_catalog_unknown(&store, &old, &new).await;
    // Hints need no replica.
    assert!(store.current_claim(a).await.unwrap().is_some());
    assert_eq!(store.last_seqs(std::slice::from_ref(a)).await, Ok(vec![Some(Seq::new(2))]));

    replica.thaw();
    wait_until("the replica has everything", async || store.load(a).await.is_ok()).await;
    assert_eq!(store.load(a).await.unwrap().unwrap().events.len(), 2);
    assert!(store.stored_response(&scope_of("a"), "key:1", at(0)).await.unwrap().is_some());
    assert_eq!(store.summary(b).await, Ok(None));
    assert_eq!(store.agents(&me).await, Ok(vec![new]));
    drop(primary);
}

/// Checks that no read of what was changed of the agents, or kept for a scope, is answered.
async fn assert_catalog_unknown(store: &Redis, old: &StoredAgent, new: &StoredAgent) {
    let (old_name, new_name) = (scoped(old.name.as_str()), scoped(new.name.as_str()));
    let revision = scoped(new.revision.as_str());
    let (own, scope) = (own(), scope_of_agent("x"));
    let (found, newest, revision, all, decisions, again) = join!(
        store.agent(&new_name),
        store.newest(&old_name),
        store.revision(&revision),
        store.agents(&own),
        store.decisions(&new_name),
        store.reserve(&scope, response_of_another(), at(0)),
    );
    assert_unknown("agent", found);
    assert_unknown("newest of what was deleted", newest);
    assert_unknown("revision", revision);
    assert_unknown("agents", all);
    assert_unknown("decisions", decisions);
    assert_unknown("reserve of what is kept", again);
}

fn response_of_another() -> abide_actors::journal::StoredResponse {
    response("key:1", "other", 60)
}

async fn no_unreplicated_lease_or_death_counts(pair: Pair) {
    let Pair { primary, replica, store } = pair;
    let [me, other, next] = ["me", "other", "next"].map(|name| member(name, "1", 60_000));
    let leaving = member("leaving", "1", 60_000);
    for member in [&me, &other, &leaving] {
        store.enter(member).await.unwrap();
    }
    // The server knows the script from here on, so that the next call waits once.
    store.renew(&me).await.unwrap();
    let nobody = holder("nobody");
    replica.freeze();

    let (renewed, killed, found_dead, left) = join!(
        store.renew(&me),
        store.declare_dead_if(&other.holder, true),
        store.declare_dead_if(&nobody, false),
        store.leave(&leaving.holder),
    );
    let why = renewed.unwrap_err().to_string();
    assert!(why.contains("0 of 1 replicas acknowledged the membership in time"), "{why}");
    assert_unknown("declare_dead_if of a suspect", killed);
    assert_unknown("declare_dead_if of what is no member", found_dead);
    // Nobody relies on it.
    assert_eq!(left, Ok(()));
    // The primary alone knows that this one is dead.
    let (evicted, entered) = join!(store.renew(&other), store.enter(&next));
    assert_unknown("renew of the dead", evicted);
    assert_unknown("enter", entered);

    replica.thaw();
    wait_until("the replica has everything", async || store.renew(&me).await.is_ok()).await;
    let renewed = store.renew(&me).await.unwrap();
    let alive = names(&renewed);
    assert!(alive.contains(&"me") && !alive.contains(&"other") && !alive.contains(&"leaving"));
    assert_eq!(store.renew(&other).await, Ok(MembershipStatus::Evicted));
    assert_eq!(store.enter(&other).await, Ok(MembershipStatus::Evicted));
    assert_eq!(store.declare_dead_if(&other.holder, false).await, Ok(true));
    drop(primary);
}

#[tokio::test]
async fn no_lease_or_death_counts_that_no_replica_has() {
    no_unreplicated_lease_or_death_counts(Pair::start().await).await;
}

#[tokio::test]
async fn no_lease_or_death_counts_that_no_replica_of_a_cluster_has() {
    no_unreplicated_lease_or_death_counts(Pair::start_cluster().await).await;
}

#[tokio::test]
async fn what_no_replica_has_is_not_answered() {
    nothing_unreplicated_is_answered(Pair::start().await).await;
}

#[tokio::test]
async fn what_no_replica_of_a_cluster_has_is_not_answered() {
    nothing_unreplicated_is_answered(Pair::start_cluster().await).await;
}

/// Makes a replica of a cluster the primary, whether or not the other server lives.
async fn take_over(replica: &Server) {
    replica.ask::<()>(&["CLUSTER", "FAILOVER", "TAKEOVER"]).await;
    wait_until("the replica has taken over", async || has_role(replica, "master").await).await;
}

async fn has_role(server: &Server, role: &str) -> bool {
    let found: Vec<redis::Value> = server.ask(&["ROLE"]).await;
    found.first() == Some(&redis::Value::BulkString(role.as_bytes().to_vec()))
}

#[tokio::test]
async fn a_replica_of_a_cluster_that_takes_over_is_written_to() {
    let Pair { mut primary, replica, store } = Pair::start_cluster().await;
    let (a, held) = (id("a"), create_conversation(&store, "a").await);
    take_over(&replica).await;
    wait_until("the former primary is its replica", async || {
        let info: String = replica.ask(&["INFO", "replication"]).await;
        info.contains("state=online")
    })
    .await;
    assert_eq!(store.append(&a, &held, commit(2, 2)).await, Ok(()));
    take_over(&primary).await;
    wait_until("it is a replica again", async || has_role(&replica, "slave").await).await;
    primary.kill();
    take_over(&replica).await;
    // It has no replica, so that nothing that it has can be relied on.
    assert_unknown("append", store.append(&a, &held, commit(3, 3)).await);
    assert_unknown("load", store.load(&a).await);
    primary.restart().await;
    wait_until("the former primary has everything", async || store.load(&a).await.is_ok()).await;
    let stored = store.load(&a).await.unwrap().unwrap();
    let last = stored.events.last().map_or(Seq::ZERO, |event| event.seq);
    let next = last.saturating_add(1).get();
    assert_eq!(store.append(&a, &held, commit(next, next)).await, Ok(()));
    assert!(next >= 3 && has_role(&primary, "slave").await);
}
