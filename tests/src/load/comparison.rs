//! Compares the turns of two nodes, or groups of nodes, so interleaved that other load on the machine
//! affects both alike.

use std::path::Path;
use std::slice;
use std::time::Duration;

use super::deployment::Deployment;
use super::idle_conversations::{self, PASSIVATE_AFTER};
use super::node::Node;
use super::node_group::NodeGroup;
use super::redis::Redis;
use super::report::{Report, at_once, quantile_ms};
use super::turns::Turns;
use super::{Load, LoadError};

/// The measurements of one side of a comparison.
pub(super) struct Side {
    name: &'static str,
    /// The turns of all rounds together.
    turns: Option<Turns>,
    rounds: Vec<Round>,
}

/// The measurements of one round.
#[derive(Clone, Copy, Debug)]
struct Round {
    /// Turns per second.
    rate: f64,
    /// The nodes' processor time per turn, in milliseconds.
    cpu_time: f64,
}

/// What makes the turns of one side.
#[derive(Clone, Copy)]
pub(super) struct Contender<'a> {
    nodes: &'a [Node],
    redis: Option<&'a Redis>,
}

impl<'a> From<&'a NodeGroup> for Contender<'a> {
    fn from(group: &'a NodeGroup) -> Self {
        Self { nodes: &group.nodes, redis: Some(&group.redis) }
    }
}

impl<'a> From<&'a Deployment> for Contender<'a> {
    fn from(deployment: &'a Deployment) -> Self {
        match deployment {
            Deployment::Redis(group) => group.into(),
            Deployment::Embedded(node) => Self { nodes: slice::from_ref(node), redis: None },
        }
    }
}

impl Contender<'_> {
    /// Waits until no actor is live and Redis does no background work.
    pub(super) async fn wait_until_quiet(self) -> Result<(), LoadError> {
        for node in self.nodes {
            idle_conversations::wait_until_passivated(node).await?;
        }
        match self.redis {
            Some(redis) => redis.wait_until_quiet().await,
            None => Ok(()),
        }
    }
}

/// The order in which the two sides are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// One side after the other, each with the machine to itself.
    Alternately,
    /// Both sides at the same time, so that whatever slows the machine down slows both: the cost of
    /// a turn is then compared far more precisely than the rate.
    Concurrently,
}

/// Runs plain turns on both sides, for `load.rounds` rounds.
pub(super) async fn turns<'a>(
    load: &Load,
    order: Order,
    [one, other]: [(&'static str, impl Into<Contender<'a>>); 2],
) -> Result<[Side; 2], LoadError> {
    let (one, other) = ((one.0, one.1.into()), (other.0, other.1.into()));
    let new = |name| Side { name, turns: None, rounds: Vec::new() };
    let mut sides = [new(one.0), new(other.0)];
    for number in 0..load.rounds {
        let (one, other) = (round(load, one.1, number), round(load, other.1, number));
        let measured = match order {
            Order::Concurrently => tokio::try_join!(one, other)?,
            // The sides alternate in going first.
            Order::Alternately if number % 2 == 0 => (one.await?, other.await?),
            Order::Alternately => {
                let other = other.await?;
                (one.await?, other)
            }
        };
        for (side, turns) in sides.iter_mut().zip([measured.0, measured.1]) {
            side.add(turns);
        }
    }
    Ok(sides)
}

async fn round(load: &Load, side: Contender<'_>, number: u32) -> Result<Turns, LoadError> {
    side.wait_until_quiet().await?;
    Turns::run(load, side.nodes, side.redis, &format!("round-{number}")).await
}

impl Side {
    fn add(&mut self, turns: Turns) {
        self.rounds
            .push(Round { rate: rate(&turns), cpu_time: cpu_ms_per_turn(&turns, turns.cpu_time) });
        self.turns = Some(match self.turns.take() {
            None => turns,
            Some(before) => before.plus(turns),
        });
    }
}

/// Compares two builds of the program, over Redis or over an embedded store of each.
pub(super) async fn builds(load: &Load, against: &Path, dir: &Path) -> Result<Report, LoadError> {
    let other = Load { binary: Some(against.to_owned()), ..load.clone() };
    let order = Order::Concurrently;
    let before = Deployment::start(&other, &dir.join("before")).await?;
    let after = Deployment::start(load, &dir.join("after")).await?;
    let sides = turns(load, order, [("against", &before), ("this", &after)]).await?;
    before.stop().await?;
    after.stop().await?;
    report(load, order, &sides)
}

/// Compares turns without and with a setting of the nodes.
pub(super) async fn settings(
    [(without_name, without), (with_name, with)]: [(&'static str, &Load); 2],
    dir: &Path,
) -> Result<Report, LoadError> {
    let load = with;
    let without = NodeGroup::start(without, &dir.join("without"), PASSIVATE_AFTER, None).await?;
    let with = NodeGroup::start(with, &dir.join("with"), PASSIVATE_AFTER, None).await?;
    let groups = [(without_name, &without), (with_name, &with)];
    let sides = turns(load, Order::Concurrently, groups).await?;
    without.stop().await?;
    with.stop().await?;
    report(load, Order::Concurrently, &sides)
}

fn rate(turns: &Turns) -> f64 {
    f64::from(turns.count) / turns.took.as_secs_f64()
}

fn cpu_ms_per_turn(turns: &Turns, cpu_time: Option<Duration>) -> f64 {
    cpu_time.unwrap_or_default().as_secs_f64() * 1_000.0 / f64::from(turns.count)
}

/// The median.
pub(super) fn median(mut all: Vec<Duration>) -> Duration {
    all.sort();
    all.get(all.len() / 2).copied().unwrap_or_default()
}

/// The rows that compare the turns of both sides.
pub(super) fn report(load: &Load, order: Order, sides: &[Side; 2]) -> Result<Report, LoadError> {
    let [Some(one), Some(other)] = sides.each_ref().map(|side| side.turns.as_ref()) else {
        return Err(LoadError("no round was measured".to_owned()));
    };
    let both = [one, other];
    let mut report = Report::of_sides(sides[0].name, sides[1].name);
    let how = match order {
        Order::Alternately => "alternately",
        Order::Concurrently => "both at once",
    };
    let settings = format!("{} × {} {how}, {}", load.conversations, load.rounds, load.durability);
    report.row("turns", &[settings.clone(), settings, String::new()]);
    let nodes = load.nodes.unwrap_or(1);
    let at_once = format!("{nodes}, {}", at_once(load));
    report.row("nodes", &[at_once.clone(), at_once, String::new()]);
    let ratios_by_round = |of: fn(&Round) -> f64| {
        let rounds = sides[0].rounds.iter().zip(&sides[1].rounds);
        let ratios = ratio_summary(rounds.map(|(one, other)| of(other) / of(one)).collect());
        [String::new(), String::new(), ratios]
    };
    report.compare("turns/s", "", 0, both.map(rate));
    if order == Order::Alternately {
        report.row("the same, round by round", &ratios_by_round(|round| round.rate));
    }
    let nodes = both.map(|turns| cpu_ms_per_turn(turns, turns.cpu_time));
    report.compare("nodes' processor time a turn", " ms", 3, nodes);
    report.row("the same, round by round", &ratios_by_round(|round| round.cpu_time));
    if let [Some(one_used), Some(other_used)] = both.map(|turns| turns.redis) {
        let redis = [(one, one_used), (other, other_used)];
        let redis = redis.map(|(turns, used)| cpu_ms_per_turn(turns, Some(used.cpu_time)));
        report.compare("Redis' processor time a turn", " ms", 3, redis);
    }
    for (percent, which) in [(50, "p50"), (99, "p99")] {
        let accepted = both.map(|turns| quantile_ms(&turns.accepted, percent));
        report.compare(&format!("resolution → 200, {which}"), " ms", 1, accepted);
    }
    for (percent, which) in [(50, "p50"), (99, "p99")] {
        let ended = both.map(|turns| quantile_ms(&turns.ended, percent));
        report.compare(&format!("resolution → turn end, {which}"), " ms", 1, ended);
    }
    Ok(report)
}

/// The median of ratios with its 95 % confidence interval, whatever their distribution. Fewer than
/// six ratios have no such interval and are given with their range.
pub(super) fn ratio_summary(mut ratios: Vec<f64>) -> String {
    ratios.sort_by(f64::total_cmp);
    let (Some(least), Some(largest)) = (ratios.first(), ratios.last()) else {
        return String::new();
    };
    let median = ratios[ratios.len() / 2];
    match values_outside_interval(ratios.len()) {
        Some(skipped) => {
            let (from, to) = (ratios[skipped], ratios[ratios.len() - 1 - skipped]);
            format!("{median:.3}, 95 %: {from:.3} to {to:.3}")
        }
        None => format!("{median:.3}, all: {least:.3} to {largest:.3}"),
    }
}

/// How many of `count` values to leave out at either end so that the true median lies among the
/// others with 95 % confidence: each value is as likely above it as below.
fn values_outside_interval(count: usize) -> Option<usize> {
    let mut outside = 0.0;
    let mut probability = 0.5_f64.powi(count as i32);
    let mut skipped = None;
    for left in 0..count / 2 {
        outside += 2.0 * probability;
        if outside > 0.05 {
            break;
        }
        skipped = Some(left);
        probability *= (count - left) as f64 / (left + 1) as f64;
    }
    skipped
}

#[cfg(test)]
mod tests {
    use super::{ratio_summary, values_outside_interval};

    #[test]
    fn an_interval_leaves_out_what_is_unlikely() {
        assert_eq!(
            [5, 6, 8, 20, 30, 100].map(values_outside_interval),
            [None, Some(0), Some(0), Some(5), Some(9), Some(39)]
        );
        assert_eq!(ratio_summary(vec![1.2, 1.0, 1.1]), "1.100, all: 1.000 to 1.200");
        let twenty = (1..=20).map(f64::from).collect();
        assert_eq!(ratio_summary(twenty), "11.000, 95 %: 6.000 to 15.000");
        assert_eq!(ratio_summary(Vec::new()), "");
    }
}
