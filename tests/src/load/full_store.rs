//! Compares turns over a store with many conversations with turns over an empty one.

use std::path::Path;
use std::time::Duration;

use super::client::Client;
use super::comparison::{self, Order, median};
use super::event_stream::Stream;
use super::idle_conversations::{self, PASSIVATE_AFTER};
use super::node_group::NodeGroup;
use super::report::Report;
use super::{Load, LoadError, turns};

/// How often a node of each group is killed, first a single node and then one of two.
const KILLS_PER_GROUP: usize = 11;

/// The recovery times after kills.
#[derive(Default)]
struct Kills {
    /// From the restart to the ready line.
    ready: Vec<Duration>,
    /// From the restart to the first accepted resolution.
    restarted: Vec<Duration>,
    /// From the kill to the first accepted resolution at the other node.
    taken_over: Vec<Duration>,
}

/// Fills one store, compares the turns of both, and kills nodes of both.
pub(super) async fn run(load: &Load, parked: u32, dir: &Path) -> Result<Report, LoadError> {
    let mut empty = NodeGroup::start(load, &dir.join("empty"), PASSIVATE_AFTER, None).await?;
    let mut full = NodeGroup::start(load, &dir.join("full"), PASSIVATE_AFTER, None).await?;
    full.define().await?;
    full.wait_until_quiet().await?;
    let before = (full.redis.info().await?.memory, full.resident_kb()?);
    let took = idle_conversations::park(load, &full.nodes, 0..parked).await?;
    full.wait_until_quiet().await?;
    let after = (full.redis.info().await?.memory, full.resident_kb()?);
    idle_conversations::expect_open_calls(&full.nodes[0], parked).await?;
    let idle = [empty.idle().await?, full.idle().await?];
    let groups = [("empty", &empty), ("full", &full)];
    let sides = comparison::turns(load, Order::Alternately, groups).await?;
    let kills = measure_kills(load, [&mut empty, &mut full]).await?;
    idle_conversations::expect_open_calls(&full.nodes[0], parked).await?;
    empty.stop().await?;
    full.stop().await?;

    let mut report = comparison::report(load, Order::Alternately, &sides)?;
    let filled = format!("{parked}, at {:.0}/s", f64::from(parked) / took.as_secs_f64());
    report.row("parked", &["0".to_owned(), filled, String::new()]);
    let redis = (after.0.saturating_sub(before.0)) as f64 / 1e6;
    let nodes = (after.1 as f64 - before.1 as f64) * 1_024.0 / 1e6;
    report.row(
        "memory of the parked, Redis",
        &[String::new(), format!("{redis:.0} MB"), String::new()],
    );
    report.row(
        "memory of the parked, nodes",
        &[String::new(), format!("{nodes:.0} MB"), String::new()],
    );
    let a_second = |cpu_time: Duration| cpu_time.as_secs_f64() * 1_000.0;
    report.compare("idle nodes, a second", " ms", 1, idle.map(|idle| a_second(idle.nodes)));
    report.compare("idle Redis, a second", " ms", 1, idle.map(|idle| a_second(idle.redis)));
    let middle = |which: fn(&Kills) -> &Vec<Duration>| {
        [&kills[0], &kills[1]].map(|kills| median(which(kills).clone()).as_secs_f64() * 1_000.0)
    };
    report.compare("SIGKILL, start → ready, median", " ms", 1, middle(|it| &it.ready));
    let restarted = "SIGKILL, start → first accepted resolution, median";
    report.compare(restarted, " ms", 1, middle(|it| &it.restarted));
    let taken_over = "SIGKILL of the holder → accepted at another node, median";
    report.compare(taken_over, " ms", 1, middle(|it| &it.taken_over));
    Ok(report)
}

/// Kills the first node of each group repeatedly: first as the only node, then as one of two.
async fn measure_kills(
    load: &Load,
    mut groups: [&mut NodeGroup; 2],
) -> Result<[Kills; 2], LoadError> {
    let mut kills = [Kills::default(), Kills::default()];
    for group in &mut groups {
        group.nodes.truncate(1);
    }
    for n in 0..KILLS_PER_GROUP {
        for (group, kills) in groups.iter_mut().zip(&mut kills) {
            let id = format!("restarted-{n}");
            start_suspended(group, &id).await?;
            group.kill(0).await?;
            group.restart(load, 0).await?;
            let node = &group.nodes[0];
            kills.ready.push(node.ready_after);
            idle_conversations::over_redis::resolve_with_retries(
                &mut Client::new(node.public),
                &id,
            )
            .await?;
            kills.restarted.push(node.age());
        }
    }
    for group in &mut groups {
        group.add(load).await?;
    }
    for n in 0..KILLS_PER_GROUP {
        for (group, kills) in groups.iter_mut().zip(&mut kills) {
            let id = format!("taken-over-{n}");
            group.wait_until_connected().await?;
            start_suspended(group, &id).await?;
            let mut other = Client::new(group.nodes[1].public);
            let killed = group.kill(0).await?;
            idle_conversations::over_redis::resolve_with_retries(&mut other, &id).await?;
            kills.taken_over.push(killed.elapsed());
            group.restart(load, 0).await?;
        }
    }
    Ok(kills)
}

/// Starts a conversation on the first node, and waits until its call is suspended.
async fn start_suspended(group: &NodeGroup, id: &str) -> Result<(), LoadError> {
    let mut client = Client::new(group.nodes[0].public);
    turns::send_message(&mut client, id).await?;
    turns::wait_for_suspension(&mut Stream::open(&client, id).await?).await?;
    Ok(())
}
