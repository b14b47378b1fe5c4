//! After the death of a node, its conversations go on elsewhere, once, and their alarms fire in
//! time.

use std::time::Duration;

use abide_actors::request::Request;
use abide_conversation::Scoped;
use abide_conversation::event::{Event, EventData, TurnOutcome};
use serde_json::json;
use tokio::time::Instant;

use crate::revival::{APPROVAL_AGENT, HOLD_AGENT, HOLD_ONCE_AGENT};
use crate::test_cluster::{DeathMode, TestCluster};
use crate::test_node::{LEASE, results};

/// The journalled attempts of a call, in order.
fn attempts(events: &[Event], call: &str) -> Vec<u32> {
    let attempt = |event: &Event| match &event.data {
        EventData::ToolStarted(started) if started.call_id.as_str() == call => {
            Some(started.attempt.get())
        }
        _ => None,
    };
    events.iter().filter_map(attempt).collect()
}

fn suspended(data: &EventData) -> bool {
    matches!(data, EventData::Suspension(_))
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_died_unseen_is_replaced_after_its_lease() {
    let mut cluster = TestCluster::new(3, APPROVAL_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).poll_for_event("x", suspended).await;
    cluster.kill(0, DeathMode::HalfOpen);
    tokio::time::sleep(LEASE + Duration::from_secs(1)).await;
    cluster.release_all();
    let begun = Instant::now();
    cluster.node(2).approve("x", "c").await.unwrap();
    assert!(begun.elapsed() < Duration::from_millis(200));
    assert_eq!(
        cluster.live_on("x"),
        [2],
        "the conversation did not start on the node of the request"
    );
    assert_eq!(cluster.node(1).turn_end("x", 1).await, (TurnOutcome::Completed, None));
    cluster.node(1).check("x").await;
    cluster.check_writes();
}

#[tokio::test(start_paused = true)]
async fn a_suspects_conversations_are_taken_at_once() {
    let mut cluster = TestCluster::new(3, APPROVAL_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).poll_for_event("x", suspended).await;
    cluster.kill(0, DeathMode::ConnectionRefused);
    cluster.release_all();
    let begun = Instant::now();
    cluster.node(1).approve("x", "c").await.unwrap();
    assert!(begun.elapsed() < Duration::from_millis(200), "{:?}", begun.elapsed());
    assert_eq!(cluster.node(1).turn_end("x", 1).await, (TurnOutcome::Completed, None));
    cluster.node(1).check("x").await;
}

#[tokio::test(start_paused = true)]
async fn work_of_a_dead_node_resumes_by_itself_once() {
    for (mode, within) in [(DeathMode::ConnectionRefused, 200), (DeathMode::HalfOpen, 6_200)] {
        let mut cluster = TestCluster::new(3, HOLD_AGENT).await;
        for n in 0..9 {
            cluster.node(0).send(&format!("x{n}"), "go").await.unwrap();
        }
        cluster.node(0).wait_for_holds(9).await;
        cluster.kill(0, mode);
        tokio::time::sleep(Duration::from_millis(within)).await;
        let took = [1, 2].map(|n| cluster.node(n).tools.started.lock().unwrap().len());
        assert_eq!(took.iter().sum::<usize>(), 9, "not every run was resumed without a request");
        assert!(took[0] > 0 && took[1] > 0, "one of the nodes resumed nothing: {took:?}");
        cluster.release_all();
        for n in 0..9 {
            let id = format!("x{n}");
            assert_eq!(cluster.node(1).turn_end(&id, 1).await, (TurnOutcome::Completed, None));
            let events = cluster.node(1).journal(&id).await;
            assert_eq!(attempts(&events, "c"), [2]);
            assert_eq!(results(&events, "c")[0]["result"]["attempt"], 2);
            assert_eq!(cluster.run_count(&id, "c"), 2);
            cluster.node(1).check(&id).await;
        }
        cluster.check_writes();
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_must_not_run_twice_is_interrupted_by_the_death_of_its_node() {
    let mut cluster = TestCluster::new(3, HOLD_ONCE_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).wait_for_holds(1).await;
    cluster.kill(0, DeathMode::ConnectionRefused);
    cluster.release_all();
    assert_eq!(cluster.node(1).turn_end("x", 1).await, (TurnOutcome::Completed, None));
    let interrupted =
        json!({"ok": false, "error": "tool call interrupted", "error_type": "INTERRUPTED"});
    assert_eq!(results(&cluster.node(1).journal("x").await, "c"), [interrupted]);
    assert_eq!(cluster.run_count("x", "c"), 1);
    cluster.node(1).check("x").await;
}

/// How late the call of a passivated conversation expired, in milliseconds.
async fn lateness(cluster: &TestCluster, by: usize, id: &str) -> i64 {
    let events = cluster.node(by).journal(id).await;
    let suspended_at = events.iter().find(|event| suspended(&event.data)).unwrap().at;
    let left_ms = 599_900 - cluster.clock.now().duration_since(suspended_at).as_millis();
    // Sleeps until shortly before the expiry, since polling until then would be slow.
    tokio::time::sleep(Duration::from_millis(u64::try_from(left_ms).unwrap_or_default())).await;
    let result =
        cluster.node(by).poll_for_event(id, |data| matches!(data, EventData::ToolResult(_))).await;
    assert_eq!(cluster.node(by).turn_end(id, 1).await, (TurnOutcome::Completed, None));
    let results = results(&cluster.node(by).journal(id).await, "c");
    assert_eq!(results.len(), 1);
    assert_eq!(results[0]["error_type"], "EXPIRED");
    i64::try_from(result.at.duration_since(suspended_at).as_millis()).unwrap() - 600_000
}

#[tokio::test(start_paused = true)]
async fn the_alarm_of_a_passivated_conversation_fires_once_and_in_time() {
    let cluster = TestCluster::new(3, APPROVAL_AGENT).await;
    for n in 0..30 {
        let id = format!("x{n}");
        cluster.node(n % 3).send(&id, "go").await.unwrap();
        cluster.node(0).poll_for_event(&id, suspended).await;
    }
    for n in 0..30 {
        let late_ms = lateness(&cluster, 0, &format!("x{n}")).await;
        assert!((0..=200).contains(&late_ms), "{late_ms} ms");
    }
}

#[tokio::test(start_paused = true)]
async fn an_alarm_fires_in_time_when_the_owner_of_its_partition_has_died() {
    let mut cluster = TestCluster::new(3, APPROVAL_AGENT).await;
    let id = cluster.id_in_partitions_of(2);
    cluster.node(0).send(&id, "go").await.unwrap();
    cluster.node(0).poll_for_event(&id, suspended).await;
    cluster.node(0).wait_until_passivated(&id).await;
    let suspended_at = cluster.node(0).journal(&id).await;
    let suspended_at = suspended_at.iter().find(|event| suspended(&event.data)).unwrap().at;
    let left_ms = 599_990 - cluster.clock.now().duration_since(suspended_at).as_millis();
    tokio::time::sleep(Duration::from_millis(u64::try_from(left_ms).unwrap())).await;
    cluster.kill(2, DeathMode::ConnectionRefused);
    let late_ms = lateness(&cluster, 0, &id).await;
    assert!((0..=200).contains(&late_ms), "{late_ms} ms");
}

#[tokio::test(start_paused = true)]
async fn an_alarm_fires_in_time_when_every_node_was_restarted() {
    let mut cluster = TestCluster::new(3, APPROVAL_AGENT).await;
    for n in 0..9 {
        let id = format!("x{n}");
        cluster.node(n % 3).send(&id, "go").await.unwrap();
        cluster.node(0).poll_for_event(&id, suspended).await;
    }
    tokio::time::sleep(Duration::from_secs(599)).await;
    for number in 0..3 {
        cluster.kill(number, DeathMode::ConnectionRefused);
    }
    tokio::time::sleep(Duration::from_millis(900)).await;
    for number in 0..3 {
        cluster.start(number).await;
    }
    for n in 0..9 {
        let late_ms = lateness(&cluster, n % 3, &format!("x{n}")).await;
        assert!((0..=200).contains(&late_ms), "{late_ms} ms");
    }
    cluster.check_writes();
}

#[tokio::test(start_paused = true)]
async fn an_alarm_of_a_dead_holder_fires_in_time() {
    let mut cluster = TestCluster::new(2, APPROVAL_AGENT).await;
    let id = cluster.id_in_partitions_of(1);
    cluster.node(0).send(&id, "go").await.unwrap();
    cluster.node(0).poll_for_event(&id, suspended).await;
    tokio::time::sleep(Duration::from_secs(595)).await;
    cluster
        .node(0)
        .conversations
        .start(&abide_conversation::Scoped::parse(&id).unwrap())
        .await
        .unwrap();
    tokio::time::sleep(Duration::from_millis(4_900)).await;
    cluster.kill(0, DeathMode::ConnectionRefused);
    let late_ms = lateness(&cluster, 1, &id).await;
    assert!((0..=200).contains(&late_ms), "{late_ms} ms");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_died_as_a_whole_resumes_its_work() {
    let mut cluster = TestCluster::new(3, HOLD_AGENT).await;
    for n in 0..9 {
        cluster.node(n % 3).send(&format!("x{n}"), "go").await.unwrap();
    }
    for number in 0..3 {
        cluster.node(number).wait_for_holds(3).await;
        cluster.kill(number, DeathMode::HalfOpen);
    }
    for number in 0..3 {
        cluster.start(number).await;
    }
    cluster.release_all();
    for n in 0..9 {
        let id = format!("x{n}");
        assert_eq!(cluster.node(0).turn_end(&id, 1).await, (TurnOutcome::Completed, None));
        assert_eq!(cluster.run_count(&id, "c"), 2);
        cluster.node(0).check(&id).await;
    }
    cluster.check_writes();
}

/// The number of the node that holds `x`.
async fn holder_of_x(cluster: &TestCluster) -> usize {
    let holder = cluster.holder("x").await.unwrap();
    holder.node.as_str()[1..].parse().unwrap()
}

/// Kills the holder of `x` and starts its node again. Returns whether the call of `x` then runs on
/// any node.
async fn kill_holder(cluster: &mut TestCluster) -> bool {
    let runs = cluster.run_count("x", "c");
    let holder = holder_of_x(cluster).await;
    cluster.kill(holder, DeathMode::ConnectionRefused);
    cluster.start(holder).await;
    cluster.wait_for_full_view().await;
    let runs_again = async {
        while cluster.run_count("x", "c") == runs {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), runs_again).await.is_ok()
}

/// The ids that a listing of the node has as quarantined.
async fn quarantined_ids(cluster: &TestCluster, number: usize) -> Vec<String> {
    let actors = cluster.node(number).conversations.list_actors(None, None, 100).await;
    let quarantined = actors.into_iter().filter(|actor| actor.is_quarantined);
    quarantined.map(|actor| actor.conversation_id.to_string()).collect()
}

#[tokio::test(start_paused = true)]
async fn no_conversation_ends_more_than_five_processes() {
    let mut cluster = TestCluster::new(3, HOLD_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).wait_for_holds(1).await;
    for ended in 1..5 {
        assert!(kill_holder(&mut cluster).await, "given up after {ended}");
    }
    assert!(!kill_holder(&mut cluster).await, "a sixth process ran it");
    assert_eq!(cluster.run_count("x", "c"), 5);
    for number in 0..3 {
        let quarantined = cluster.node(number).quarantine("x").await.unwrap();
        assert!(quarantined.reason.starts_with("5 processes"), "{}", quarantined.reason);
        assert_eq!(quarantined_ids(&cluster, number).await, ["x"]);
        assert!(cluster.node(number).send("x", "more").await.is_err());
    }
    // The death of the node that keeps it frees nothing, and is seen by all others.
    let keeper = holder_of_x(&cluster).await;
    cluster.kill(keeper, DeathMode::ConnectionRefused);
    let rest = cluster.running();
    for number in &rest {
        let seen = async {
            while cluster.node(*number).quarantine("x").await.is_none() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), seen).await.expect("it left quarantine");
        assert_eq!(quarantined_ids(&cluster, *number).await, ["x"]);
    }
    assert_eq!(cluster.run_count("x", "c"), 5);
    cluster.release_all();
    cluster.node(rest[0]).conversations.retry(&Scoped::parse("x").unwrap()).await.unwrap();
    assert_eq!(cluster.node(rest[1]).turn_end("x", 1).await, (TurnOutcome::Completed, None));
    assert!(quarantined_ids(&cluster, rest[1]).await.is_empty());
    cluster.check_writes();
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_ended_its_processes_can_be_released_and_deleted() {
    for release in [true, false] {
        let mut cluster = TestCluster::new(3, HOLD_AGENT).await;
        cluster.node(0).send("x", "go").await.unwrap();
        cluster.node(0).wait_for_holds(1).await;
        while kill_holder(&mut cluster).await {}
        cluster.release_all();
        if release {
            let id = Scoped::parse("x").unwrap();
            assert!(cluster.node(1).conversations.release(&id, false).await.unwrap());
        } else {
            cluster.node(1).deliver("x", Request::Delete).await.unwrap();
            cluster.node(1).send("x", "go").await.unwrap();
        }
        assert_eq!(cluster.node(1).turn_end("x", 1).await, (TurnOutcome::Completed, None));
        assert!(quarantined_ids(&cluster, 2).await.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_conversation_that_waits_for_a_person_survives_any_number_of_processes() {
    let mut cluster = TestCluster::new(3, APPROVAL_AGENT).await;
    cluster.node(0).send("x", "go").await.unwrap();
    cluster.node(0).poll_for_event("x", suspended).await;
    for _ in 0..7 {
        assert!(cluster.node(0).approve("x", "nosuch").await.is_err());
        let holder = holder_of_x(&cluster).await;
        cluster.kill(holder, DeathMode::ConnectionRefused);
        cluster.start(holder).await;
        cluster.wait_for_full_view().await;
    }
    cluster.release_all();
    cluster.node(0).approve("x", "c").await.unwrap();
    assert_eq!(cluster.node(0).turn_end("x", 1).await, (TurnOutcome::Completed, None));
}
