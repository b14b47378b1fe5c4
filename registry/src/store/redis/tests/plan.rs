//! The cost of reading alarms, however many are stored.

use abide_actors::identity::{Epoch, NodeName};
use abide_actors::journal::Journal;

use super::super::super::Store;
use super::super::super::conformance::*;
use super::super::keys::Tag;
use super::super::{Durability, Redis};
use super::servers::Server;
use crate::partition::{Partition, PartitionSet};

/// The numbers of commands and of bytes that the server has sent so far.
async fn spent(server: &Server) -> (u64, u64) {
    let info: String = server.ask(&["INFO", "stats"]).await;
    let number = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_start_matches(':').parse::<u64>().unwrap()
    };
    (number("total_commands_processed"), number("total_net_output_bytes"))
}

/// Puts this many alarms that are due in an hour into each partition.
async fn fill(server: &Server, each: usize) {
    let many = "for i = 1, ARGV[1] do redis.call('ZADD', KEYS[1], ARGV[2] + i, 'c' .. i) end";
    let (each, due) = (each.to_string(), super::super::keys::score(at(3_600)));
    for partition in Partition::all() {
        let key = Tag::Partition(partition).key("alarms");
        server.ask::<()>(&["EVAL", many, "1", &key, &each, &due]).await;
    }
}

#[tokio::test]
async fn a_million_alarms_cost_no_more_to_look_at_than_a_thousand() {
    let server = Server::start(&["--appendonly", "no"]).await;
    let memory = Durability::Os;
    server.ask::<()>(&["CONFIG", "SET", "appendonly", "yes"]).await;
    let redis = Redis::open(&server.url(), memory).await.unwrap();
    server.ask::<()>(&["CONFIG", "SET", "appendonly", "no"]).await;
    let members = ["a", "b", "c"].map(NodeName::new);
    let share = PartitionSet::of(&members[0], &members.each_ref());
    let mut costs = Vec::new();
    for each in [4, 4_000] {
        fill(&server, each).await;
        assert_eq!(redis.due(&share, at(0), 1_000).await, Ok(vec![]));
        let (commands, bytes) = spent(&server).await;
        redis.due(&share, at(0), 1_000).await.unwrap();
        let (after, sent) = spent(&server).await;
        costs.push((after - commands, (sent - bytes) / 1_000));
    }
    assert_eq!(costs[0].0, costs[1].0, "commands");
    assert_eq!(costs[0].1, costs[1].1, "kilobytes");
    assert!(costs[0].0 <= share.partitions().count() as u64 + 20, "{costs:?}");
}

#[tokio::test]
async fn an_epoch_is_not_given_twice_after_another_conversation_had_a_higher_one() {
    let server = Server::start(&["--appendfsync", "no"]).await;
    let redis = Redis::open(&server.url(), Durability::Os).await.unwrap();
    let mut last = Epoch::ZERO;
    for _ in 0..3 {
        let held = claimed(&redis, "a").await;
        assert!(held.epoch > last);
        last = held.epoch;
        redis.release(&id("a"), &held).await.unwrap();
        let key = Tag::of(&id("a")).key_of("c", "a");
        let kept: bool = server.ask(&["EXISTS", &key]).await;
        assert!(!kept, "a claim that came to nothing leaves nothing");
    }
}
