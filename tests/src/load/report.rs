//! The tables of the measurements.

use std::fmt;
use std::time::Duration;

use super::Load;
use super::floor::FloorRate;
use super::idle_conversations::IdleMeasurement;
use super::idle_conversations::over_redis::{MemoryUse, SharedMeasurement};
use super::journals::JournalsMeasurement;
use super::long_conversations::LongMeasurement;
use super::long_journal::JournalMeasurement;
use super::model_server::TOKEN_INTERVAL;
use super::open_streams::{DELTAS_PER_BURST, StreamsMeasurement};
use super::parallel_tools::ParallelMeasurement;
use super::redis::Usage;
use super::scale::{RollingRestart, ScaleMeasurement};
use super::streaming_models::StreamingMeasurement;
use super::turns::Turns;

/// Rows of a name and its values, displayed as a Markdown table.
pub(super) struct Report {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Report {
    pub(super) fn of_turns(load: &Load, turns: &Turns, floor: FloorRate) -> Self {
        let (seconds, counters) = (turns.took.as_secs_f64(), turns.counters);
        let commits_a_second = counters.commits as f64 / seconds;
        let shared = match counters.fsyncs {
            0 => "no fsyncs".to_owned(),
            fsyncs => format!("{:.1}", counters.commits as f64 / fsyncs as f64),
        };
        let cpu_time =
            turns.cpu_time.map(|cpu_time| format!("{:.2} ms", mean_ms(cpu_time, turns.count)));
        let cpu_time = cpu_time.unwrap_or_else(|| "not known".to_owned());
        let redis = redis_work(turns.redis, turns.count);
        let bare = format!("{:.0} ({} of {} bytes)", floor.rate(), floor.commits, floor.bytes);
        let rows = [
            ("turns", format!("{}, {}", turns.count, at_once(load))),
            ("turns a conversation", load.turns.to_string()),
            ("nodes", load.nodes.map_or("1".to_owned(), |nodes| format!("{nodes}, over Redis"))),
            ("durability", load.durability.to_string()),
            ("turns/s", format!("{:.0}", f64::from(turns.count) / seconds)),
            ("nodes' processor time a turn", cpu_time),
            ("Redis a turn", redis),
            ("begun too late, p50 / p99", both(&turns.late)),
            ("resolution → 200, p50 / p99", both(&turns.accepted)),
            ("resolution → turn end, p50 / p99", both(&turns.ended)),
            ("commits a turn", format!("{:.2}", counters.commits as f64 / f64::from(turns.count))),
            ("commits per fsync", shared),
            ("commits/s", format!("{commits_a_second:.0}")),
            ("floor, commits/s", bare),
            ("commits/s ÷ floor", format!("{:.2}", commits_a_second / floor.rate())),
        ];
        Self::of(rows)
    }

    pub(super) fn of_parallel(load: &Load, parallel: &ParallelMeasurement) -> Self {
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

    pub(super) fn of_journals(load: &Load, journals: &JournalsMeasurement) -> Self {
        let rate = f64::from(journals.turns) / journals.took.as_secs_f64();
        let commits = journals.commits_per_turn;
        let (turns, at_once) = (journals.turns, load.concurrency);
        Self::of([
            ("journals of turns", format!("{turns}, {at_once} at once, {commits} commits each")),
            ("drivers", journals.drivers.to_string()),
            ("durability", load.durability.to_string()),
            ("turns/s", format!("{rate:.0}")),
            ("commits/s", format!("{:.0}", rate * commits as f64)),
            ("Redis a turn", redis_work(journals.redis, journals.turns)),
            ("commit → acknowledged, p50 / p99", both(&journals.acknowledged)),
        ])
    }

    pub(super) fn of_scale(load: &Load, measured: &[ScaleMeasurement]) -> Self {
        let head = std::iter::once("nodes".to_owned());
        let head = head.chain(measured.iter().map(|it| it.nodes.to_string())).collect();
        let mut report = Self::with_head(head);
        let mut row = |name: &str, value: &dyn Fn(&ScaleMeasurement) -> String| {
            report.row(name, &measured.iter().map(value).collect::<Vec<_>>());
        };
        row("an idle node, processor time a second", &|it| ms(it.idle.nodes / it.nodes));
        row("idle Redis, processor time a second", &|it| ms(it.idle.redis));
        row("idle Redis, commands/s", &|it| format!("{:.0}", it.idle.redis_commands));
        row("memory of a node", &|it| format!("{} MB", it.resident_kb >> 10));
        row("turns/s", &|it| {
            format!("{:.0}", f64::from(it.turns.count) / it.turns.took.as_secs_f64())
        });
        row("nodes' processor time a turn", &|it| cpu_time(&it.turns));
        row("— of one node with as many clients as each", &|it| cpu_time(&it.alone));
        row("resolution → turn end, p50 / p99", &|it| both(&it.turns.ended));
        let restart = |it: &ScaleMeasurement, show: fn(&RollingRestart) -> String| {
            it.restart.as_ref().map_or("not measured".to_owned(), show)
        };
        row("all restarted, one after the other", &|it| restart(it, |all| ms(all.took)));
        row("— a message meanwhile, p50 / p99, longest", &|it| {
            restart(it, |all| spread(&all.accepted))
        });
        row("five killed at once → all that wait are resolved", &|it| {
            it.resolved_after.map_or("not measured".to_owned(), ms)
        });
        report.row("durability", &[load.durability.to_string()]);
        report
    }

    pub(super) fn of_parked(load: &Load, parked: &IdleMeasurement) -> Self {
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

    pub(super) fn of_shared(load: &Load, shared: &SharedMeasurement) -> Self {
        let [before, half, all] = shared.memory;
        let count = f64::from(shared.count);
        let rate = count / shared.took.as_secs_f64();
        let mb = |of: fn(&MemoryUse) -> u64| {
            format!("{} / {} / {} MB", of(&before) >> 20, of(&half) >> 20, of(&all) >> 20)
        };
        let grown = |of: fn(&MemoryUse) -> u64| {
            let second = f64::from(shared.count - shared.count / 2);
            let each =
                |from: &MemoryUse, count: f64| (of(&all) as f64 - of(from) as f64) / count.max(1.0);
            format!("{:.0} / {:.0} kB", each(&before, count), each(&half, second))
        };
        let nodes = load.nodes.unwrap_or(1);
        let ready = shared.ready_after.map_or("nobody started again".to_owned(), ms);
        Self::of([
            ("parked conversations", shared.count.to_string()),
            ("nodes", format!("{nodes}, over Redis")),
            ("durability", load.durability.to_string()),
            ("parking them all", format!("{:.1} s ({rate:.0}/s)", shared.took.as_secs_f64())),
            ("Redis, before / half parked / all parked", mb(|memory| memory.redis)),
            ("Redis, per 1,000 parked, of all / of the second half", grown(|memory| memory.redis)),
            ("Redis' dataset, the same", grown(|memory| memory.dataset)),
            (
                "Redis, all parked, without the content of events and inbox entries",
                format!("{} MB", shared.redis_without_content >> 20),
            ),
            (
                "nodes' memory, before / half parked / all parked",
                mb(|memory| memory.nodes_kb << 10),
            ),
            ("nodes' memory, per 1,000 parked, the same", grown(|memory| memory.nodes_kb << 10)),
            ("live actors", shared.live_actors.to_string()),
            ("idle nodes, processor time a second", ms(shared.idle.nodes)),
            ("idle Redis, processor time a second", ms(shared.idle.redis)),
            ("SIGKILL, start → ready line", ready),
            ("SIGKILL → first accepted resolution", ms(shared.accepted_after)),
        ])
    }

    pub(super) fn of_streams(load: &Load, streams: &StreamsMeasurement) -> Self {
        let StreamsMeasurement { count, shared_kb, own_kb, quiet, bursts, delivered, deltas } =
            streams;
        let delay = |percent| {
            let delay = quantile(bursts, percent).saturating_sub(quantile(quiet, percent));
            ms(delay)
        };
        Self::of([
            ("open streams", format!("{count} of one conversation, {count} of their own")),
            ("durability", load.durability.to_string()),
            ("memory a stream, many of one conversation", format!("{shared_kb:.1} kB")),
            ("memory a stream, each of its own conversation", format!("{own_kb:.1} kB")),
            ("a burst", format!("{DELTAS_PER_BURST} deltas to {count} streams")),
            ("burst → received by all, p50 / p99", both(delivered)),
            ("deltas that arrived", format!("{:.1} %", deltas * 100.0)),
            ("commit, no burst, p50 / p99", both(quiet)),
            ("commit, during a burst, p50 / p99", both(bursts)),
            ("delay of a commit, p50 / p99", format!("{} / {}", delay(50), delay(99))),
        ])
    }

    pub(super) fn of_long(load: &Load, measured: &[LongMeasurement]) -> Self {
        let mut report = Self::of([("durability", load.durability.to_string())]);
        for LongMeasurement { events, live, revived, grown_kb } in measured {
            let mut row =
                |what: &str, value| report.row(&format!("{events} events: {what}"), &[value]);
            row("message → provider asked, p50 / p99", both(live));
            row("the same, not in memory", both(revived));
            row("memory a step leaves behind", format!("{grown_kb:.1} kB"));
        }
        report
    }

    pub(super) fn of_long_journal(load: &Load, measured: &JournalMeasurement) -> Self {
        let JournalMeasurement { megabytes, opened_after, peak_kb, quiet, meanwhile } = measured;
        let store = if load.nodes.is_some() { "Redis" } else { "embedded" };
        Self::of([
            ("journal, no cached state", format!("{megabytes} MB")),
            ("store", store.to_owned()),
            ("durability", load.durability.to_string()),
            ("message → 202, its conversation is loaded", ms(*opened_after)),
            ("the node's peak memory before / after", {
                format!("{} / {} MB", peak_kb[0] >> 10, peak_kb[1] >> 10)
            }),
            ("message to another, alone, p50 / p99 / longest", spread(quiet)),
            ("message to another, meanwhile, p50 / p99 / longest", spread(meanwhile)),
        ])
    }

    pub(super) fn of_streaming_models(load: &Load, measured: &StreamingMeasurement) -> Self {
        let StreamingMeasurement {
            count,
            first_alone,
            tokens,
            delivered,
            took,
            expected,
            cpu_time,
        } = measured;
        let cores = cpu_time.map(|cpu_time| cpu_time.as_secs_f64() / took.as_secs_f64());
        Self::of([
            (
                "models that stream at once",
                format!("{count}, a token every {TOKEN_INTERVAL:?} each"),
            ),
            ("durability", load.durability.to_string()),
            ("provider's byte → listener, first token, alone, p50 / p99", both(first_alone)),
            ("provider's byte → listener, all at once, p50 / p99", both(tokens)),
            ("tokens that arrived", format!("{:.1} %", delivered * 100.0)),
            ("took, at the model's rate", format!("{} of {}", ms(*took), ms(*expected))),
            ("the node's cores", cores.map_or("not known".to_owned(), |it| format!("{it:.2}"))),
        ])
    }

    /// A table with these columns.
    pub(super) fn with_head(head: Vec<String>) -> Self {
        Self { head, rows: Vec::new() }
    }

    /// A table that compares two sides.
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

    /// Adds a row of two numbers and their ratio, the second divided by the first.
    pub(super) fn compare(
        &mut self,
        name: &str,
        unit: &str,
        digits: usize,
        [one, other]: [f64; 2],
    ) {
        let format = |value: f64| format!("{value:.digits$}{unit}");
        self.row(name, &[format(one), format(other), format!("{:.2}", other / one)]);
    }

    pub(super) fn of<const N: usize>(rows: [(&str, String); N]) -> Self {
        Self::of_rows(rows.into())
    }

    pub(super) fn of_rows(rows: Vec<(&str, String)>) -> Self {
        let head = ["measured", "value"].map(str::to_owned).into();
        let rows = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]);
        Self { head, rows: rows.collect() }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| {} |\n|{}", self.head.join(" | "), "---|".repeat(self.head.len()))?;
        self.rows.iter().try_for_each(|row| write!(f, "\n| {} |", row.join(" | ")))
    }
}

/// How many conversations run at once.
pub(super) fn at_once(load: &Load) -> String {
    let most = load.concurrency;
    match load.rate {
        Some(rate) => format!("{rate} conversations a second, at most {most} at once"),
        None => format!("{most} conversations at once"),
    }
}

/// What a server did for each of these turns.
fn redis_work(used: Option<Usage>, turns: u32) -> String {
    let Some(used) = used else { return "not measured".to_owned() };
    let each = |of: u64| of as f64 / f64::from(turns);
    let cpu_time = mean_ms(used.cpu_time, turns) * 1_000.0;
    let (commands, reads) = (each(used.commands), each(used.reads));
    let bytes = each(used.bytes_read);
    format!("{cpu_time:.0} µs, {commands:.1} commands, {reads:.1} reads of {bytes:.0} bytes in all")
}

/// The median, the 99th percentile, the longest, and the number.
pub(super) fn spread(sorted: &[Duration]) -> String {
    let longest = ms(sorted.last().copied().unwrap_or_default());
    format!("{} / {longest} of {}", both(sorted), sorted.len())
}

fn both(sorted: &[Duration]) -> String {
    format!("{} / {}", ms(quantile(sorted, 50)), ms(quantile(sorted, 99)))
}

/// A quantile in milliseconds.
pub(super) fn quantile_ms(sorted: &[Duration], percent: usize) -> f64 {
    quantile(sorted, percent).as_secs_f64() * 1_000.0
}

/// The smallest value that `percent` percent of all values do not exceed.
fn quantile(sorted: &[Duration], percent: usize) -> Duration {
    let rank = (sorted.len() * percent).div_ceil(100).max(1);
    sorted.get(rank - 1).copied().unwrap_or_default()
}

/// The nodes' processor time for each turn.
fn cpu_time(turns: &Turns) -> String {
    format!("{:.2} ms", mean_ms(turns.cpu_time.unwrap_or_default(), turns.count))
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
    fn a_quantile_is_the_value_that_its_percentage_does_not_exceed() {
        let sorted: Vec<_> = (1..=200).map(Duration::from_millis).collect();
        assert_eq!(quantile(&sorted, 50), Duration::from_millis(100));
        assert_eq!(quantile(&sorted, 99), Duration::from_millis(198));
        assert_eq!(quantile(&sorted[..1], 99), Duration::from_millis(1));
        assert_eq!(quantile(&[], 99), Duration::ZERO);
    }
}
