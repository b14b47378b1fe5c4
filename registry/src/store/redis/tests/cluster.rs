//! The suite against three primaries.

use std::sync::Arc;
use std::time::Duration;

use abide_actors::journal::StoreError;

use super::super::super::Store;
use super::super::super::conformance::*;
use super::super::command::keys::Tag;
use super::super::connection::cluster::Primaries;
use super::super::connection::durability_watch::DurabilityWatch;
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

    /// Moves the slot of a tag, which has no keys, from the first primary to the second one.
    async fn move_slot(&self, tag: Tag, meanwhile: impl AsyncFnOnce()) {
        let [former, owner] = [0, 1].map(|place| &self.servers[place]);
        let from: String = former.ask(&["CLUSTER", "MYID"]).await;
        let to: String = owner.ask(&["CLUSTER", "MYID"]).await;
        let slot = tag.slot().to_string();
        let set = |state, node| ["CLUSTER", "SETSLOT", &slot, state, node];
        owner.ask::<()>(&set("IMPORTING", &from)).await;
        former.ask::<()>(&set("MIGRATING", &to)).await;
        meanwhile().await;
        for server in [owner, former, &self.servers[2]] {
            server.ask::<()>(&set("NODE", &to)).await;
        }
    }

    /// How many connections all servers have together.
    async fn connected_clients(&self) -> u64 {
        let mut sum = 0;
        for server in &self.servers {
            let info: String = server.ask(&["INFO", "clients"]).await;
            let count = info.lines().find_map(|line| line.strip_prefix("connected_clients:"));
            sum += count.unwrap().parse::<u64>().unwrap();
        }
        sum
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

fn commands_for(tag: Tag) -> redis::Pipeline {
    let mut commands = redis::pipe();
    commands.cmd("SET").arg(tag.key("x")).arg(1).cmd("GET").arg(tag.key("x"));
    commands
}

/// Whether commands for the tag go straight to a primary.
async fn is_answered(primaries: &Primaries, tag: Tag) -> bool {
    let time = Duration::from_secs(20);
    let answers = primaries.send(tag.slot(), &commands_for(tag), time).await.unwrap();
    let answers = answers.map(|answers| answers.last().cloned());
    assert!(matches!(&answers, None | Some(Some(redis::Value::BulkString(_)))), "{answers:?}");
    answers.is_some()
}

/// The primaries of the cluster, none of which is connected to.
fn primaries_of(cluster: &Cluster) -> Primaries {
    Primaries::new(Arc::new(url(&cluster.servers)), None)
}

/// Connects to the primaries; returns whether each slot has one that is connected to.
async fn connect(primaries: &Primaries, cluster: &Cluster) -> bool {
    primaries.connect(url(&cluster.servers).hosts().to_vec()).await
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
    let primaries = primaries_of(&cluster);
    assert!(!is_answered(&primaries, Tag::Agents).await, "nothing is connected to yet");
    assert!(connect(&primaries, &cluster).await);
    let tags = Partition::all().map(Tag::Partition).chain([Tag::Agents, Tag::Members]);
    for tag in tags {
        assert!(is_answered(&primaries, tag).await, "{tag:?}");
    }
    // A server that has left the cluster has no slots.
    let bus = free_port().to_string();
    let alone = Server::start(&["--cluster-enabled", "yes", "--cluster-port", &bus]).await;
    let elsewhere: RedisUrl = format!("redis+cluster://127.0.0.1:{}", alone.port).parse().unwrap();
    assert!(!primaries.connect(elsewhere.hosts().to_vec()).await);
    assert!(is_answered(&primaries, Tag::Agents).await, "what was known stays");
    let beside = Tag::Members;
    assert_ne!(beside.slot() < SLOTS[1], Tag::Agents.slot() < SLOTS[1]);
    let place = SLOTS.iter().rposition(|first| *first <= Tag::Agents.slot()).unwrap();
    cluster.servers[place].freeze();
    let (commands, time) = (commands_for(Tag::Agents), Duration::from_millis(10));
    assert!(primaries.send(Tag::Agents.slot(), &commands, time).await.is_err());
    cluster.servers[place].thaw();
    for (tag, answered) in [(Tag::Agents, false), (beside, true)] {
        assert_eq!(is_answered(&primaries, tag).await, answered, "{tag:?}");
    }
    assert!(connect(&primaries, &cluster).await);
    assert!(is_answered(&primaries, Tag::Agents).await, "it is connected to anew");
}

#[tokio::test]
async fn a_primary_that_hangs_keeps_nobody_from_the_others() {
    let cluster = Cluster::start().await;
    cluster.servers[2].freeze();
    let primaries = primaries_of(&cluster);
    let others = [0, 1].map(|place| tags_of(place)[0]);
    tokio::select! {
        _ = connect(&primaries, &cluster) => panic!("the others waited for it"),
        () = wait_until("the others answer", async || {
            is_answered(&primaries, others[0]).await && is_answered(&primaries, others[1]).await
        }) => {}
    }
}

#[tokio::test]
async fn a_primary_is_checked_before_a_durable_write_goes_to_it() {
    let mut cluster = Cluster::start().await;
    let watch = Arc::new(DurabilityWatch::new(Durability::Os));
    let primaries = Primaries::new(Arc::new(url(&cluster.servers)), Some(Arc::clone(&watch)));
    assert!(connect(&primaries, &cluster).await);
    assert_eq!(watch.require_all(), Ok(()));
    let [tag, _] = tags_of(1);
    cluster.servers[1].kill();
    assert!(!is_answered(&primaries, tag).await);
    cluster.servers[1].restart_with("--appendonly", "no").await;
    assert!(connect(&primaries, &cluster).await);
    assert!(watch.require_all().is_err_and(|reason| reason.contains("appendonly")));
}

#[tokio::test]
async fn a_primary_that_no_longer_has_a_slot_is_found_anew() {
    let cluster = Cluster::start().await;
    let primaries = primaries_of(&cluster);
    assert!(connect(&primaries, &cluster).await);
    let ([moved, beside], [elsewhere, _]) = (tags_of(0), tags_of(2));
    cluster
        .move_slot(moved, async || {
            assert!(!is_answered(&primaries, moved).await, "the key may be with either");
        })
        .await;
    for (tag, answered) in [(moved, false), (beside, true), (elsewhere, true)] {
        assert_eq!(is_answered(&primaries, tag).await, answered, "{tag:?}");
    }
    assert!(connect(&primaries, &cluster).await);
    for tag in [moved, beside, elsewhere] {
        assert!(is_answered(&primaries, tag).await, "{tag:?}");
    }
}

#[tokio::test]
async fn a_store_follows_a_slot_and_then_needs_the_library_no_more() {
    let cluster = Cluster::start().await;
    let [moved, beside] = tags_of(0);
    let names = |tag| (0..).map(|n| format!("c{n}")).filter(move |name| Tag::of(&id(name)) == tag);
    let (store, name) = (&*cluster.store, names(beside).next().unwrap());
    create_conversation(store, &name).await;
    assert!(store.current_claim(&id(&name)).await.unwrap().is_some());
    let before = cluster.connected_clients().await;
    let mut names = names(moved);
    cluster
        .move_slot(moved, async || {
            // A commit, which has several keys, is refused meanwhile.
            assert_eq!(store.current_claim(&id(&names.next().unwrap())).await, Ok(None));
            assert!(cluster.connected_clients().await > before, "the library asks elsewhere");
        })
        .await;
    for name in [names.next(), names.next()] {
        create_conversation(store, &name.unwrap()).await;
    }
    wait_until("the library's connections are closed", async || {
        cluster.connected_clients().await <= before
    })
    .await;
    create_conversation(store, &names.next().unwrap()).await;
}

#[tokio::test]
async fn a_primary_that_is_away_leaves_the_others_connected() {
    let mut cluster = Cluster::start().await;
    let primaries = primaries_of(&cluster);
    assert!(connect(&primaries, &cluster).await);
    for server in &cluster.servers {
        server.ask::<()>(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]).await;
    }
    let [one, other] = [0, 1].map(|place| tags_of(place)[0]);
    cluster.servers[1].kill();
    let answered = tokio::join!(is_answered(&primaries, other), is_answered(&primaries, other));
    assert_eq!(answered, (false, false));
    assert!(is_answered(&primaries, one).await);
    assert!(!connect(&primaries, &cluster).await, "one is away");
    for (tag, answered) in [(one, true), (other, false)] {
        assert_eq!(is_answered(&primaries, tag).await, answered, "{tag:?}");
    }
    cluster.servers[1].restart().await;
    wait_until("it is back", async || {
        connect(&primaries, &cluster).await && is_answered(&primaries, other).await
    })
    .await;
}
