//! Turns with many conversations in the store, compared with turns in one that has none.

use std::path::Path;
use std::time::Duration;

use super::client::Client;
use super::compared::{self, Order, median};
use super::ground::Ground;
use super::park::{self, PASSIVATE};
use super::report::Report;
use super::stream::Stream;
use super::{Load, Wrong, turns};

/// How often a node of each is killed, alone and with another beside it.
const KILLS: usize = 11;

/// What kills came to.
#[derive(Default)]
struct Kills {
    /// From the start after the kill to the ready line, and to the first resolution.
    ready: Vec<Duration>,
    restarted: Vec<Duration>,
    /// From the kill to the first resolution at the other node.
    taken_over: Vec<Duration>,
}

/// Fills one store, measures both by turns, and kills nodes of both.
pub(super) async fn run(load: &Load, parked: u32, dir: &Path) -> Result<Report, Wrong> {
    let mut empty = Ground::start(load, &dir.join("empty"), PASSIVATE, None).await?;
    let mut full = Ground::start(load, &dir.join("full"), PASSIVATE, None).await?;
    full.define().await?;
    full.quiet().await?;
    let before = (full.redis.info().await?.memory, full.resident_kb()?);
    let took = park::park(load, &full.nodes, 0..parked).await?;
    full.quiet().await?;
    let after = (full.redis.info().await?.memory, full.resident_kb()?);
    park::all_wait(&full.nodes[0], parked).await?;
    let idle = [empty.idle().await?, full.idle().await?];
    let grounds = [("empty", &empty), ("full", &full)];
    let sides = compared::turns(load, Order::Alternately, grounds).await?;
    let kills = kills(load, [&mut empty, &mut full]).await?;
    park::all_wait(&full.nodes[0], parked).await?;
    empty.stop().await?;
    full.stop().await?;

    let mut report = compared::report(load, Order::Alternately, &sides)?;
    let filled = format!("{parked}, at {:.0}/s", f64::from(parked) / took.as_secs_f64());
    report.row("parked", &["0".to_owned(), filled, String::new()]);
    let redis = (after.0.saturating_sub(before.0)) as f64 / 1e6;
    let nodes = (after.1 as f64 - before.1 as f64) * 1_024.0 / 1e6;
    report.row("they hold, Redis", &[String::new(), format!("{redis:.0} MB"), String::new()]);
    report.row("they hold, nodes", &[String::new(), format!("{nodes:.0} MB"), String::new()]);
    let a_second = |worked: Duration| worked.as_secs_f64() * 1_000.0;
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

/// Kills the first node of each again and again: with nobody beside it, if that is how it runs, and
/// with another.
async fn kills(load: &Load, mut grounds: [&mut Ground; 2]) -> Result<[Kills; 2], Wrong> {
    let mut kills = [Kills::default(), Kills::default()];
    for ground in &mut grounds {
        ground.nodes.truncate(1);
    }
    for n in 0..KILLS {
        for (ground, kills) in grounds.iter_mut().zip(&mut kills) {
            let id = format!("restarted-{n}");
            waiting(ground, &id).await?;
            ground.kill(0).await?;
            ground.revive(load, 0).await?;
            let node = &ground.nodes[0];
            kills.ready.push(node.ready_after);
            park::shared::accepted(&mut Client::new(node.public), &id).await?;
            kills.restarted.push(node.age());
        }
    }
    for ground in &mut grounds {
        ground.add(load).await?;
    }
    for n in 0..KILLS {
        for (ground, kills) in grounds.iter_mut().zip(&mut kills) {
            let id = format!("taken-over-{n}");
            ground.linked().await?;
            waiting(ground, &id).await?;
            let mut other = Client::new(ground.nodes[1].public);
            let killed = ground.kill(0).await?;
            park::shared::accepted(&mut other, &id).await?;
            kills.taken_over.push(killed.elapsed());
            ground.revive(load, 0).await?;
        }
    }
    Ok(kills)
}

/// A conversation whose actor lives at the first node, and whose call waits.
async fn waiting(ground: &Ground, id: &str) -> Result<(), Wrong> {
    let mut client = Client::new(ground.nodes[0].public);
    turns::say(&mut client, id).await?;
    turns::suspended(&mut Stream::open(&client, id).await?).await?;
    Ok(())
}
