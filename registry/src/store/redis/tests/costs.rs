//! The cost of reading alarms, of renewing leases, of releasing claims, and of what is counted of
//! tenants.

use abide_actors::blobs::{Blob, Blobs};
use abide_actors::identity::{Epoch, NodeName};
use abide_actors::journal::{ConversationSummary, Journal};
use abide_actors::usage_counts::{UsageCounts, day_of};
use abide_conversation::state::ConversationStatus;
use jiff::ToSpan;

use super::super::super::conformance::*;
use super::super::super::listing::Entry;
use super::super::super::{ListQuery, Lists, Schedules, Store, TenantCounts, UsageBy, UsageQuery};
use super::super::command::keys::Tag;
use super::super::{Durability, Redis};
use super::members::{member, names};
use super::servers::Server;
use crate::membership::{Member, Membership, MembershipStatus};
use crate::partition::{Partition, PartitionSet};

/// The numbers of commands and of bytes that the server has sent so far.
async fn server_traffic(server: &Server) -> (u64, u64) {
    let info: String = server.ask(&["INFO", "stats"]).await;
    let number = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.trim_start_matches(':').parse::<u64>().unwrap()
    };
    (number("total_commands_processed"), number("total_net_output_bytes"))
}

/// Adds `each` alarms that are due in an hour to each partition.
async fn add_alarms(server: &Server, each: usize) {
    let script = "for i = 1, ARGV[1] do redis.call('ZADD', KEYS[1], ARGV[2] + i, 'c' .. i) end";
    let (each, due) = (each.to_string(), super::super::command::keys::score(at(3_600)));
    for partition in Partition::all() {
        let key = Tag::Partition(partition).key("alarms");
        server.ask::<()>(&["EVAL", script, "1", &key, &each, &due]).await;
    }
}

#[tokio::test]
async fn reading_alarms_costs_the_same_with_a_thousand_as_with_a_million() {
    let server = Server::start(&["--appendonly", "no"]).await;
    let memory = Durability::Os;
    server.ask::<()>(&["CONFIG", "SET", "appendonly", "yes"]).await;
    let mut redis = Redis::open(&server.url(), memory).await.unwrap();
    // Its checks are traffic, too.
    redis._watching.abort_all();
    server.ask::<()>(&["CONFIG", "SET", "appendonly", "no"]).await;
    let members = ["a", "b", "c"].map(NodeName::new);
    let partitions = PartitionSet::of(&members[0], &members.each_ref());
    let mut costs = Vec::new();
    for each in [4, 4_000] {
        add_alarms(&server, each).await;
        assert_eq!(redis.due_alarms(&partitions, at(0), 1_000).await, Ok(vec![]));
        let (commands, bytes) = server_traffic(&server).await;
        redis.due_alarms(&partitions, at(0), 1_000).await.unwrap();
        let (after, sent) = server_traffic(&server).await;
        costs.push((after - commands, (sent - bytes) / 1_000));
    }
    assert_eq!(costs[0].0, costs[1].0, "commands");
    assert_eq!(costs[0].1, costs[1].1, "kilobytes");
    assert!(costs[0].0 <= partitions.iter().count() as u64 + 20, "{costs:?}");
}

/// Adds `each` older members of a list to each partition. The list is that of a property of this kind
/// that the conversation has.
async fn add_members(server: &Server, each: usize, summary: &ConversationSummary, kind: &str) {
    let script = "for i = 1, ARGV[1] do \
        redis.call('ZADD', KEYS[1], 0, ARGV[2] .. string.format('%014x', i) .. 'x' .. i) end";
    let (entry, id) = (Entry::new(summary, &[], None), id("c"));
    let of_kind = entry.members(&id).map(|member| member.concat());
    let of_kind = of_kind.filter(|member| member.starts_with(kind)).min().unwrap();
    let (each, property) = (each.to_string(), &of_kind[..15]);
    for partition in Partition::all() {
        let key = Tag::Partition(partition).key("lists");
        server.ask::<()>(&["EVAL", script, "1", &key, &each, property]).await;
    }
}

#[tokio::test]
async fn a_page_of_a_list_costs_the_same_beside_a_thousand_as_beside_a_million() {
    let server = Server::start(&["--appendfsync", "no"]).await;
    let mut redis = Redis::open(&server.url(), Durability::Os).await.unwrap();
    // Its checks are traffic, too.
    redis._watching.abort_all();
    for n in 0..10 {
        create_conversation(&redis, &format!("c{n}")).await;
    }
    let query = ListQuery::default();
    let mut costs = Vec::new();
    for each in [4, 4_000] {
        add_members(&server, each, &commit(1, 1).summary, "ct").await;
        let (commands, bytes) = server_traffic(&server).await;
        let page = redis.list(&own(), &query, None, 9).await.unwrap();
        let (after, sent) = server_traffic(&server).await;
        assert_eq!((page.items.len(), page.cursor.is_some()), (9, true));
        costs.push((after - commands, (sent - bytes) / 1_000));
    }
    assert_eq!(costs[0].0, costs[1].0, "commands");
    assert!(costs[0].1.abs_diff(costs[1].1) <= 2, "kilobytes: {costs:?}");
}

#[tokio::test]
async fn what_few_of_many_have_is_listed_at_the_cost_of_the_few() {
    let server = Server::start(&["--appendfsync", "no"]).await;
    let mut redis = Redis::open(&server.url(), Durability::Os).await.unwrap();
    // Its checks are traffic, too.
    redis._watching.abort_all();
    let mut first = commit(1, 1);
    first.summary.status = ConversationStatus::AwaitingInput;
    first.summary.participants.owner = Some("ann".to_owned());
    for n in 0..3 {
        let name = format!("c{n}");
        let held = claim_conversation(&redis, &name).await;
        redis.append(&id(&name), &held, first.clone()).await.unwrap();
    }
    let query = ListQuery {
        status: Some(ConversationStatus::AwaitingInput),
        owner: Some("ann".to_owned()),
        agent: Some(first.summary.agent.clone()),
        ..ListQuery::default()
    };
    let mut costs = Vec::new();
    for each in [4, 400] {
        for kind in ["cw", "cg"] {
            add_members(&server, each, &first.summary, kind).await;
        }
        let (commands, _) = server_traffic(&server).await;
        let page = redis.list(&own(), &query, None, 9).await.unwrap();
        let (after, _) = server_traffic(&server).await;
        assert_eq!((page.items.len(), page.cursor), (3, None));
        costs.push(after - commands);
    }
    assert_eq!(costs[0], costs[1]);
}

#[tokio::test]
async fn a_renewal_costs_the_same_among_thirty_members_as_among_three() {
    let server = Server::start(&["--appendfsync", "no"]).await;
    let mut redis = Redis::open(&server.url(), Durability::Os).await.unwrap();
    // Its checks are traffic, too.
    redis._watching.abort_all();
    let member = |n: usize| member(&format!("n{n}"), "1", 60_000);
    let mut costs = Vec::new();
    for members in [0..3, 3..30] {
        for n in members {
            redis.enter(&member(n)).await.unwrap();
        }
        redis.renew(&member(0)).await.unwrap();
        let (commands, bytes) = server_traffic(&server).await;
        let renewed = redis.renew(&member(0)).await.unwrap();
        let (after, sent) = server_traffic(&server).await;
        costs.push((after - commands, (sent - bytes) / 1_000));
        // `INFO` is most of what was sent.
        assert_eq!(costs[0], *costs.last().unwrap(), "commands and kilobytes");
        assert_eq!(names(&renewed).len(), if costs.len() == 1 { 3 } else { 30 });
    }
}

#[tokio::test]
async fn a_renewal_names_the_members_that_have_changed_since_the_last_one() {
    let server = Server::start(&["--appendfsync", "no"]).await;
    let redis = Redis::open(&server.url(), Durability::Os).await.unwrap();
    let (me, other) = (member("a", "1", 60_000), member("b", "1", 60_000));
    redis.enter(&me).await.unwrap();
    redis.enter(&other).await.unwrap();
    for live_actors in [0, 0, 7, 7] {
        redis.renew(&Member { live_actors, ..other.clone() }).await.unwrap();
        let Ok(MembershipStatus::Alive { members, .. }) = redis.renew(&me).await else { panic!() };
        assert_eq!(members[1].member.live_actors, live_actors);
        assert!(members.iter().all(|it| it.silent_ms < 60_000), "{members:?}");
    }
    redis.leave(&other.holder).await.unwrap();
    assert_eq!(names(&redis.renew(&me).await.unwrap()), ["a"]);
}

#[tokio::test]
async fn a_released_claim_leaves_no_key_and_its_epoch_is_not_reused() {
    let server = Server::start(&["--appendfsync", "no"]).await;
    let redis = Redis::open(&server.url(), Durability::Os).await.unwrap();
    let mut last = Epoch::ZERO;
    for _ in 0..3 {
        let held = claim_conversation(&redis, "a").await;
        assert!(held.epoch > last);
        last = held.epoch;
        redis.release(&id("a"), &held).await.unwrap();
        let key = Tag::of(&id("a")).key_of("c", "a");
        let exists: bool = server.ask(&["EXISTS", &key]).await;
        assert!(!exists, "a claim under which nothing was written leaves nothing");
    }
}

/// The API's longest range. Its commands are sent by some thousands at once: measured on two busy cores,
/// they take 32 ms, and the tokens of a day 0.5 ms.
#[tokio::test]
async fn usage_costs_a_command_for_each_day_and_partition_and_one_for_each_hash_that_is_there() {
    const DAYS: i64 = 93;
    let server = Server::start(&["--appendfsync", "no"]).await;
    let mut redis = Redis::open(&server.url(), Durability::Os).await.unwrap();
    redis._watching.abort_all();
    let held = claim_conversation(&redis, "a").await;
    let mut used = commit(1, 1);
    used.usage = Some(UsageCounts { turns: 1, ..Default::default() });
    redis.append(&id("a"), &held, used).await.unwrap();
    let last = day_of(at(0));
    let first = last.checked_sub((DAYS - 1).days()).unwrap();
    let (by, after) = (UsageBy::Agent, None);
    let query = UsageQuery { tenant: own(), first, last, by, after, limit: 9 };
    assert_eq!(redis.usage(&query).await.unwrap().total.turns, 1);
    let (before, _) = server_traffic(&server).await;
    redis.usage(&query).await.unwrap();
    redis.tokens_of_day(&own(), last).await.unwrap();
    let (after, _) = server_traffic(&server).await;
    let expected = (DAYS as u64 + 1) * Partition::all().count() as u64 + 1;
    // Asking for the traffic is traffic, too.
    assert!((expected..expected + 9).contains(&(after - before)), "{}", after - before);
}

#[tokio::test]
async fn a_day_of_usage_expires_and_blobs_from_before_are_counted_when_they_are_stored_again() {
    let server = Server::start(&["--appendfsync", "no"]).await;
    let redis = Redis::open(&server.url(), Durability::Os).await.unwrap();
    let held = claim_conversation(&redis, "a").await;
    let mut first = commit(1, 1);
    first.usage = Some(UsageCounts { turns: 1, ..Default::default() });
    redis.append(&id("a"), &held, first.clone()).await.unwrap();
    let name = format!("usage:{}", day_of(at(0)));
    let key = Tag::of(&id("a")).key(&name);
    let seconds: i64 = server.ask(&["TTL", &key]).await;
    assert!((399 * 86_400..=400 * 86_400).contains(&seconds), "{seconds}");
    let mut rows: Vec<String> = server.ask(&["HVALS", &key]).await;
    rows.dedup();
    assert_eq!(rows, ["1 0 0 0 0 0"]);
    // A newer program counts one thing more.
    server.ask::<()>(&["HSET", &key, "", "7 0 0 0 0 0 9"]).await;
    let mut next = commit(2, 2);
    next.usage = first.usage;
    redis.append(&id("a"), &held, next).await.unwrap();
    let sum: String = server.ask(&["HGET", &key, ""]).await;
    assert_eq!(sum, "8 0 0 0 0 0 9");

    let blob = Blob::new("text/plain", "one");
    let key = super::super::blobs::key_of(&blob_id(&blob)).into_string();
    let old = ["HSET", &key, "bytes", "one", "type", "text/plain", "size", "3"];
    server.ask::<()>(&old).await;
    assert_eq!(redis.blob_bytes(&own()).await, Ok(0));
    assert_eq!(redis.put_blob(&blob_id(&blob), &blob).await, Ok(false));
    assert_eq!(redis.blob_bytes(&own()).await, Ok(3));
    server.ask::<()>(&["DEL", &key]).await;
    server.ask::<()>(&old).await;
    assert_eq!(redis.delete_blob(&blob_id(&blob)).await, Ok(true));
    assert_eq!(redis.blob_bytes(&own()).await, Ok(3), "one that was not counted");
}

#[tokio::test]
async fn a_poll_for_due_schedules_asks_the_partitions_that_have_some() {
    let server = Server::start(&["--appendfsync", "no"]).await;
    let mut redis = Redis::open(&server.url(), Durability::Os).await.unwrap();
    redis._watching.abort_all();
    let all = PartitionSet::all();
    let cost = async || {
        let (before, _) = server_traffic(&server).await;
        redis.due_schedules(&all, at(9), 9).await.unwrap();
        let (after, _) = server_traffic(&server).await;
        after - before - 1
    };
    assert!(cost().await >= 256, "the first poll asks all: the set may have been lost");
    assert_eq!(cost().await, 1);
    let name = scoped("daily");
    let put = schedule(&name, 1, Some(at(1)));
    assert!(redis.replace_schedule(&name, None, Some(&put)).await.unwrap());
    assert_eq!(cost().await, 2);
    assert_eq!(redis.due_schedules(&all, at(9), 9).await.unwrap(), [(name, at(1))]);
}
