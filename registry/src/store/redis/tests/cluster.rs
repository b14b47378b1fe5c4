//! The suite against three primaries.

use std::sync::Arc;

use abide_actors::journal::StoreError;

use super::super::super::Store;
use super::super::super::conformance::*;
use super::super::command::keys::Tag;
use super::super::connection::cluster::Primaries;
use super::super::{Durability, Redis, RedisUrl};
use super::servers::{Server, free_port, wait_until};
use crate::partition::Partition;

/// The first slot of each primary, and the number of slots.
const SLOTS: [u16; 4] = [0, 5_461, 10_923, 16_384];

/// Three primaries, each with a third of the slots.
pub(super) struct Cluster {
    servers: Vec<Server>,
    store: Arc<Redis>,
}

impl Cluster {
    pub(super) async fn start() -> Self {
        let mut servers = Vec::new();
        for place in 0..3 {
            let bus = free_port().to_string();
            let args = ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"];
            let args = [&args[..], &["--cluster-port", &bus, "--appendfsync", "no"]].concat();
            let server = Server::start(&args).await;
            let (first, last) = (SLOTS[place], SLOTS[place + 1] - 1);
            let (first, last) = (first.to_string(), last.to_string());
            server.ask::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]).await;
            let epoch = (place + 1).to_string();
            server.ask::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]).await;
            servers.push((server, bus));
        }
        let (first, others) = servers.split_first().unwrap();
        for (server, _) in others {
            let port = first.0.port.to_string();
            server.ask::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port, &first.1]).await;
        }
        for (server, _) in &servers {
            wait_until("the cluster is whole", async || {
                let info: String = server.ask(&["CLUSTER", "INFO"]).await;
                let slots: Vec<redis::Value> = server.ask(&["CLUSTER", "SLOTS"]).await;
                info.contains("cluster_state:ok") && slots.len() == 3
            })
            .await;
            // A machine that is busy for two seconds is no failure.
            server.ask::<()>(&["CONFIG", "SET", "cluster-node-timeout", "15000"]).await;
        }
        let servers: Vec<_> = servers.into_iter().map(|(server, _)| server).collect();
        let store = Arc::new(Redis::open(&url(&servers), Durability::Os).await.unwrap());
        Self { servers, store }
    }

    async fn fresh(&self) -> Arc<dyn Store> {
        for server in &self.servers {
            server.ask::<()>(&["FLUSHDB"]).await;
        }
        Arc::clone(&self.store) as Arc<dyn Store>
    }
}

/// Names two of the primaries; the store finds the third.
fn url(servers: &[Server]) -> RedisUrl {
    let (one, two) = (servers[0].port, servers[1].port);
    format!("redis+cluster://127.0.0.1:{one},127.0.0.1:{two}").parse().unwrap()
}

conformance!(as one: a_cluster_keeps_every_promise, Cluster::start().await);

#[tokio::test]
async fn every_primary_of_a_cluster_is_checked_and_described() {
    let cluster = Cluster::start().await;
    let found = cluster.store.description();
    assert!(found.contains("3 primaries") && found.contains("appendonly yes"), "{found}");
    cluster.servers[2].ask::<()>(&["CONFIG", "SET", "appendonly", "no"]).await;
    let refused = Redis::open(&url(&cluster.servers), Durability::Os).await.err().unwrap();
    let port = cluster.servers[2].port.to_string();
    assert!(refused.to_string().contains(&port), "{refused}");
}

#[tokio::test]
async fn the_slots_of_a_killed_primary_are_unavailable_until_it_is_back() {
    let mut cluster = Cluster::start().await;
    let store = cluster.fresh().await;
    let names: Vec<String> = (0..12).map(|n| format!("c{n}")).collect();
    for name in &names {
        create_conversation(&*store, name).await;
    }
    cluster.servers[1].kill();
    let mut unreachable = 0;
    for name in &names {
        unreachable += usize::from(store.summary(&id(name)).await.is_err());
    }
    assert!(unreachable > 0, "some of them are in its slots");
    assert!(matches!(store.alarms(1).await, Err(StoreError::Unavailable(_))));
    cluster.servers[1].restart().await;
    for name in &names {
        wait_until("it is back", async || matches!(store.summary(&id(name)).await, Ok(Some(_))))
            .await;
    }
    let held = store.current_claim(&id("c0")).await.unwrap().unwrap();
    assert_eq!(store.append(&id("c0"), &held, commit(2, 2)).await, Ok(()));
}

/// Whether commands for the tag go straight to a primary.
async fn is_answered(primaries: &Primaries, tag: Tag) -> bool {
    let mut commands = redis::pipe();
    commands.cmd("SET").arg(tag.key("x")).arg(1).cmd("GET").arg(tag.key("x"));
    let answers = primaries.send(tag.slot(), &commands).await;
    let answers = answers.map(|answers| answers.last().cloned());
    assert!(matches!(&answers, None | Some(Some(redis::Value::BulkString(_)))), "{answers:?}");
    answers.is_some()
}

/// Two tags in the slots of this server.
fn tags_of(place: usize) -> [Tag; 2] {
    let slots = SLOTS[place]..SLOTS[place + 1];
    let mut tags = Partition::all().map(Tag::Partition).filter(|tag| slots.contains(&tag.slot()));
    [tags.next().unwrap(), tags.next().unwrap()]
}

#[tokio::test]
async fn every_tag_is_answered_by_the_primary_of_its_slot() {
    let cluster = Cluster::start().await;
    let primaries = Primaries::default();
    assert!(!is_answered(&primaries, Tag::Agents).await, "nothing is connected to yet");
    assert!(primaries.connect(&url(&cluster.servers), 0).await);
    let tags = Partition::all().map(Tag::Partition).chain([Tag::Agents, Tag::Members]);
    for tag in tags {
        assert!(is_answered(&primaries, tag).await, "{tag:?}");
    }
    // A server that has left the cluster has no slots.
    let bus = free_port().to_string();
    let alone = Server::start(&["--cluster-enabled", "yes", "--cluster-port", &bus]).await;
    let elsewhere = format!("redis+cluster://127.0.0.1:{}", alone.port).parse().unwrap();
    assert!(!primaries.connect(&elsewhere, 0).await);
    assert!(is_answered(&primaries, Tag::Agents).await, "what was known stays");
    let beside = Tag::Members;
    assert_ne!(beside.slot() < SLOTS[1], Tag::Agents.slot() < SLOTS[1]);
    primaries.forget(Tag::Agents.slot());
    for (tag, answered) in [(Tag::Agents, false), (beside, true)] {
        assert_eq!(is_answered(&primaries, tag).await, answered, "{tag:?}");
    }
    assert!(primaries.connect(&url(&cluster.servers), 0).await);
    assert!(is_answered(&primaries, Tag::Agents).await, "it is connected to anew");
}

#[tokio::test]
async fn a_primary_that_no_longer_has_a_slot_is_found_anew() {
    let cluster = Cluster::start().await;
    let primaries = Primaries::default();
    assert!(primaries.connect(&url(&cluster.servers), 0).await);
    let ([moved, beside], [elsewhere, _]) = (tags_of(0), tags_of(2));
    let [former, owner] = [0, 1].map(|place| &cluster.servers[place]);
    let from: String = former.ask(&["CLUSTER", "MYID"]).await;
    let to: String = owner.ask(&["CLUSTER", "MYID"]).await;
    let slot = moved.slot().to_string();
    let set = |state, node| ["CLUSTER", "SETSLOT", &slot, state, node];
    owner.ask::<()>(&set("IMPORTING", &from)).await;
    former.ask::<()>(&set("MIGRATING", &to)).await;
    assert!(!is_answered(&primaries, moved).await, "the key may be with either");
    for server in [owner, former, &cluster.servers[2]] {
        server.ask::<()>(&set("NODE", &to)).await;
    }
    for (tag, answered) in [(moved, false), (beside, true), (elsewhere, true)] {
        assert_eq!(is_answered(&primaries, tag).await, answered, "{tag:?}");
    }
    assert!(primaries.connect(&url(&cluster.servers), 0).await);
    for tag in [moved, beside, elsewhere] {
        assert!(is_answered(&primaries, tag).await, "{tag:?}");
    }
    // A store that knows of nothing follows, too.
    let mut names = (0..).map(|n| format!("c{n}"));
    let name = names.find(|name| Tag::of(&id(name)) == moved).unwrap();
    create_conversation(&*cluster.store, &name).await;
}

#[tokio::test]
async fn a_primary_that_is_away_leaves_the_others_connected() {
    let mut cluster = Cluster::start().await;
    let primaries = Primaries::default();
    assert!(primaries.connect(&url(&cluster.servers), 0).await);
    for server in &cluster.servers {
        server.ask::<()>(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]).await;
    }
    let [one, other] = [0, 1].map(|place| tags_of(place)[0]);
    cluster.servers[1].kill();
    let answered = tokio::join!(is_answered(&primaries, other), is_answered(&primaries, other));
    assert_eq!(answered, (false, false));
    assert!(is_answered(&primaries, one).await);
    assert!(!primaries.connect(&url(&cluster.servers), 0).await, "one is away");
    for (tag, answered) in [(one, true), (other, false)] {
        assert_eq!(is_answered(&primaries, tag).await, answered, "{tag:?}");
    }
    cluster.servers[1].restart().await;
    wait_until("it is back", async || {
        primaries.connect(&url(&cluster.servers), 0).await && is_answered(&primaries, other).await
    })
    .await;
}
