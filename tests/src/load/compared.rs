//! Two grounds that should differ little, measured by turns: what else the machine does meanwhile
//! falls on both.

use std::time::Duration;

use super::ground::Ground;
use super::report::{Report, quantile_ms};
use super::turns::Turns;
use super::{Load, Wrong};

/// How often each is measured.
pub(super) const ROUNDS: usize = 3;

/// What was measured of one of the two.
pub(super) struct Side {
    pub(super) name: &'static str,
    /// Of all rounds together.
    pub(super) turns: Turns,
    /// Turns a second, round by round.
    pub(super) rates: Vec<f64>,
}

/// Runs the ordinary turns on both, alternately.
pub(super) async fn turns(
    load: &Load,
    grounds: [(&'static str, &Ground); 2],
) -> Result<[Side; 2], Wrong> {
    let mut sides = [None, None];
    for round in 0..ROUNDS {
        for ((name, ground), side) in grounds.iter().zip(&mut sides) {
            ground.quiet().await?;
            let part = format!("round-{round}");
            let turns = Turns::run(load, &ground.nodes, Some(&ground.redis), &part).await?;
            let rate = f64::from(turns.count) / turns.took.as_secs_f64();
            *side = Some(match side.take() {
                None => Side { name, turns, rates: vec![rate] },
                Some(Side { name, turns: before, mut rates }) => {
                    rates.push(rate);
                    Side { name, turns: before.and(turns), rates }
                }
            });
        }
    }
    match sides {
        [Some(one), Some(other)] => Ok([one, other]),
        _ => Err(Wrong("nothing was compared".to_owned())),
    }
}

/// The middle one.
pub(super) fn median(mut all: Vec<Duration>) -> Duration {
    all.sort();
    all.get(all.len() / 2).copied().unwrap_or_default()
}

/// The rows that say how the turns compare.
pub(super) fn report(load: &Load, [one, other]: &[Side; 2]) -> Report {
    let mut report = Report::of_sides(one.name, other.name);
    let settings = format!("{} × {ROUNDS} alternately, {}", load.conversations, load.durability);
    report.row("turns", &[settings.clone(), settings, String::new()]);
    let nodes = load.nodes.unwrap_or(1);
    let at_once = format!("{nodes}, {} conversations at once", load.concurrency);
    report.row("nodes", &[at_once.clone(), at_once, String::new()]);
    let rate = |side: &Side| f64::from(side.turns.count) / side.turns.took.as_secs_f64();
    report.compare("turns/s", "", 0, [rate(one), rate(other)]);
    let rates = |side: &Side| {
        let each: Vec<_> = side.rates.iter().map(|rate| format!("{rate:.0}")).collect();
        each.join(", ")
    };
    report.row("turns/s, each", &[rates(one), rates(other), String::new()]);
    let a_turn = |side: &Side, worked: Option<Duration>| {
        let worked = worked.unwrap_or_default().as_secs_f64() * 1_000.0;
        worked / f64::from(side.turns.count)
    };
    let nodes = [one, other].map(|side| a_turn(side, side.turns.worked));
    report.compare("nodes' processor time a turn", " ms", 3, nodes);
    let redis = [one, other].map(|side| a_turn(side, side.turns.stored));
    report.compare("Redis' processor time a turn", " ms", 3, redis);
    for (percent, which) in [(50, "p50"), (99, "p99")] {
        let accepted = [one, other].map(|side| quantile_ms(&side.turns.accepted, percent));
        report.compare(&format!("resolution → 200, {which}"), " ms", 1, accepted);
    }
    for (percent, which) in [(50, "p50"), (99, "p99")] {
        let ended = [one, other].map(|side| quantile_ms(&side.turns.ended, percent));
        report.compare(&format!("resolution → turn end, {which}"), " ms", 1, ended);
    }
    report
}
