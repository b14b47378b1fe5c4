//! What was measured, as a table.

use std::fmt;
use std::time::Duration;

use super::Load;
use super::floor::Bare;
use super::long::Long;
use super::model::PACE;
use super::parallel::Parallel;
use super::park::Parked;
use super::park::shared::{Held, Shared};
use super::speakers::Speakers;
use super::streams::{Streams, WORDS};
use super::turns::Turns;

/// Rows of a name and values, printed as Markdown.
pub(super) struct Report {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Report {
    pub(super) fn of_turns(load: &Load, turns: &Turns, floor: Bare) -> Self {
        let (seconds, counted) = (turns.took.as_secs_f64(), turns.counted);
        let commits_a_second = counted.commits as f64 / seconds;
        let shared = match counted.fsyncs {
            0 => "no fsyncs".to_owned(),
            fsyncs => format!("{:.1}", counted.commits as f64 / fsyncs as f64),
        };
        let worked = turns.worked.map(|worked| format!("{:.2} ms", mean_ms(worked, turns.count)));
        let worked = worked.unwrap_or_else(|| "not known".to_owned());
        let stored = turns.stored.map(|stored| format!("{:.2} ms", mean_ms(stored, turns.count)));
        let bare = format!("{:.0} ({} of {} bytes)", floor.rate(), floor.commits, floor.bytes);
        let rows = [
            ("turns", format!("{}, {} conversations at once", turns.count, load.concurrency)),
            ("turns a conversation", load.turns.to_string()),
            ("nodes", load.nodes.map_or("1".to_owned(), |nodes| format!("{nodes}, over Redis"))),
            ("durability", load.durability.to_string()),
            ("turns/s", format!("{:.0}", f64::from(turns.count) / seconds)),
            ("nodes' processor time a turn", worked),
            ("Redis' processor time a turn", stored.unwrap_or_else(|| "no Redis".to_owned())),
            ("resolution → 200, p50 / p99", both(&turns.accepted)),
            ("resolution → turn end, p50 / p99", both(&turns.ended)),
            ("commits a turn", format!("{:.2}", counted.commits as f64 / f64::from(turns.count))),
            ("commits per fsync", shared),
            ("commits/s", format!("{commits_a_second:.0}")),
            ("floor, commits/s", bare),
            ("commits/s ÷ floor", format!("{:.2}", commits_a_second / floor.rate())),
        ];
        Self::of(rows)
    }

    pub(super) fn of_parallel(load: &Load, parallel: &Parallel) -> Self {
        let middle = |all: &[Duration]| all[all.len() / 2].as_secs_f64();
        let ratio = middle(&parallel.together) / middle(&parallel.alone);
        Self::of([
            ("durability", load.durability.to_string()),
            ("turn with the slowest tool alone, p50 / p99", both(&parallel.alone)),
            ("turn with all tools, p50 / p99", both(&parallel.together)),
            ("tools", parallel.tools.to_string()),
            ("all ÷ slowest alone", format!("{ratio:.2}")),
        ])
    }

    pub(super) fn of_parked(load: &Load, parked: &Parked) -> Self {
        let count = f64::from(parked.count);
        let kb = &parked.resident_kb;
        let grown = |from: u64, to: u64, count: f64| {
            let kb = (to as f64 - from as f64) * 1_000.0 / count.max(1.0);
            format!("{kb:.0} kB")
        };
        let second_half = f64::from(parked.count - parked.count / 2);
        let rate = count / parked.took.as_secs_f64();
        let parking = format!("{:.1} s ({rate:.0}/s)", parked.took.as_secs_f64());
        let resident = format!("{} / {} / {} MB", kb.before >> 10, kb.half >> 10, kb.all >> 10);
        Self::of([
            ("parked conversations", parked.count.to_string()),
            ("durability", load.durability.to_string()),
            ("parking them all", parking),
            ("last message → no live actor", ms(parked.passivated_after)),
            ("resident before / half parked / all parked", resident),
            ("per 1,000 parked, of all", grown(kb.before, kb.all, count)),
            ("per 1,000 parked, of the second half", grown(kb.half, kb.all, second_half)),
            ("store's file", format!("{} MB", parked.store_bytes >> 20)),
            ("SIGKILL, start → ready line", ms(parked.ready_after)),
            ("SIGKILL, start → first accepted resolution", ms(parked.accepted_after)),
        ])
    }

    pub(super) fn of_shared(load: &Load, shared: &Shared) -> Self {
        let [before, half, all] = shared.held;
        let count = f64::from(shared.count);
        let rate = count / shared.took.as_secs_f64();
        let mb = |of: fn(&Held) -> u64| {
            format!("{} / {} / {} MB", of(&before) >> 20, of(&half) >> 20, of(&all) >> 20)
        };
        let grown = |of: fn(&Held) -> u64| {
            let second = f64::from(shared.count - shared.count / 2);
            let each =
                |from: &Held, count: f64| (of(&all) as f64 - of(from) as f64) / count.max(1.0);
            format!("{:.0} / {:.0} kB", each(&before, count), each(&half, second))
        };
        let nodes = load.nodes.unwrap_or(1);
        let ready = shared.ready_after.map_or("nobody started again".to_owned(), ms);
        Self::of([
            ("parked conversations", shared.count.to_string()),
            ("nodes", format!("{nodes}, over Redis")),
            ("durability", load.durability.to_string()),
            ("parking them all", format!("{:.1} s ({rate:.0}/s)", shared.took.as_secs_f64())),
            ("Redis, before / half parked / all parked", mb(|held| held.redis)),
            ("Redis, per 1,000 parked, of all / of the second half", grown(|held| held.redis)),
            ("Redis' dataset, the same", grown(|held| held.dataset)),
            ("nodes' memory, before / half parked / all parked", mb(|held| held.nodes_kb << 10)),
            ("nodes' memory, per 1,000 parked, the same", grown(|held| held.nodes_kb << 10)),
            ("live actors", shared.live_actors.to_string()),
            ("idle nodes, processor time a second", ms(shared.idle.nodes)),
            ("idle Redis, processor time a second", ms(shared.idle.redis)),
            ("SIGKILL, start → ready line", ready),
            ("SIGKILL → first accepted resolution", ms(shared.accepted_after)),
        ])
    }

    pub(super) fn of_streams(load: &Load, streams: &Streams) -> Self {
        let Streams { count, shared_kb, own_kb, quiet, bursts, heard, deltas } = streams;
        let delay = |percent| {
            let delay = quantile(bursts, percent).saturating_sub(quantile(quiet, percent));
            ms(delay)
        };
        Self::of([
            ("open streams", format!("{count} of one conversation, {count} of their own")),
            ("durability", load.durability.to_string()),
            ("memory a stream, many of one conversation", format!("{shared_kb:.1} kB")),
            ("memory a stream, each of its own conversation", format!("{own_kb:.1} kB")),
            ("a burst", format!("{WORDS} deltas to {count} streams")),
            ("burst → heard by all, p50 / p99", both(heard)),
            ("deltas that came", format!("{:.1} %", deltas * 100.0)),
            ("commit, nothing said, p50 / p99", both(quiet)),
            ("commit, during a burst, p50 / p99", both(bursts)),
            ("delay of a commit, p50 / p99", format!("{} / {}", delay(50), delay(99))),
        ])
    }

    pub(super) fn of_long(load: &Load, measured: &[Long]) -> Self {
        let mut report = Self::of([("durability", load.durability.to_string())]);
        for Long { events, live, revived, grown_kb } in measured {
            let mut row =
                |what: &str, value| report.row(&format!("{events} events: {what}"), &[value]);
            row("message → provider asked, p50 / p99", both(live));
            row("the same, not in memory", both(revived));
            row("memory a step leaves behind", format!("{grown_kb:.1} kB"));
        }
        report
    }

    pub(super) fn of_speakers(load: &Load, speakers: &Speakers) -> Self {
        let Speakers { count, first_alone, tokens, heard, took, spoken, worked } = speakers;
        let cores = worked.map(|worked| worked.as_secs_f64() / took.as_secs_f64());
        Self::of([
            ("models that speak at once", format!("{count}, a token every {PACE:?} each")),
            ("durability", load.durability.to_string()),
            ("provider's byte → listener, first token, alone, p50 / p99", both(first_alone)),
            ("provider's byte → listener, all at once, p50 / p99", both(tokens)),
            ("tokens that came", format!("{:.1} %", heard * 100.0)),
            ("took, of a speech of", format!("{} of {}", ms(*took), ms(*spoken))),
            ("the node's cores", cores.map_or("not known".to_owned(), |it| format!("{it:.2}"))),
        ])
    }

    /// A table that compares two.
    pub(super) fn of_sides(one: &str, other: &str) -> Self {
        let head = ["measured", one, other, "ratio"].map(str::to_owned).into();
        Self { head, rows: Vec::new() }
    }

    /// Adds a row.
    pub(super) fn row(&mut self, name: &str, values: &[String]) {
        let mut row = vec![name.to_owned()];
        row.extend_from_slice(values);
        self.rows.push(row);
    }

    /// Adds a row of two numbers, and the second by the first.
    pub(super) fn compare(
        &mut self,
        name: &str,
        unit: &str,
        digits: usize,
        [one, other]: [f64; 2],
    ) {
        let shown = |value: f64| format!("{value:.digits$}{unit}");
        self.row(name, &[shown(one), shown(other), format!("{:.2}", other / one)]);
    }

    fn of<const N: usize>(rows: [(&str, String); N]) -> Self {
        let head = ["measured", "value"].map(str::to_owned).into();
        Self { head, rows: rows.map(|(name, value)| vec![name.to_owned(), value]).into() }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| {} |\n|{}", self.head.join(" | "), "---|".repeat(self.head.len()))?;
        self.rows.iter().try_for_each(|row| write!(f, "\n| {} |", row.join(" | ")))
    }
}

fn both(sorted: &[Duration]) -> String {
    format!("{} / {}", ms(quantile(sorted, 50)), ms(quantile(sorted, 99)))
}

/// A quantile in milliseconds.
pub(super) fn quantile_ms(sorted: &[Duration], percent: usize) -> f64 {
    quantile(sorted, percent).as_secs_f64() * 1_000.0
}

/// The smallest value that so many percent of all do not exceed.
fn quantile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

fn mean_ms(all: Duration, of: u32) -> f64 {
    all.as_secs_f64() * 1_000.0 / f64::from(of)
}

fn ms(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1_000.0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::quantile;

    #[test]
    fn a_quantile_is_the_value_that_so_many_do_not_exceed() {
        let sorted: Vec<_> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(quantile(&sorted, 50), Duration::from_millis(100));
        assert_eq!(quantile(&sorted, 99), Duration::from_millis(198));
        assert_eq!(quantile(&sorted[..1], 99), Duration::from_millis(1));
        assert_eq!(quantile(&[], 99), Duration::ZERO);
    }
}
