//! A log of the faults of a run, and of the holders of each conversation, for the report.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::ValueEnum;
use jiff::Timestamp;

use super::fault::FaultKind;

/// The log, shared by all parts of a run.
#[derive(Clone, Default)]
pub(super) struct FaultLog(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    faults: Vec<(Timestamp, String)>,
    counts: BTreeMap<FaultKind, u64>,
    crashed_actors: u64,
    holders: BTreeMap<String, Vec<(Timestamp, String)>>,
    longest: Duration,
}

impl FaultLog {
    /// Records an event with the current time.
    pub(super) fn record(&self, what: &str) {
        self.0.lock().unwrap().faults.push((Timestamp::now(), what.to_owned()));
    }

    /// Counts a fault by its kind.
    pub(super) fn count(&self, kind: FaultKind) {
        *self.0.lock().unwrap().counts.entry(kind).or_default() += 1;
    }

    /// Counts an actor that was crashed.
    pub(super) fn count_crashed_actor(&self) {
        self.0.lock().unwrap().crashed_actors += 1;
    }

    /// Records the holder of a conversation, if it has changed.
    pub(super) fn record_holder(&self, conversation: &str, by: &str) {
        let mut inner = self.0.lock().unwrap();
        let known = inner.holders.entry(conversation.to_owned()).or_default();
        if known.last().is_none_or(|(_, last)| last != by) {
            known.push((Timestamp::now(), by.to_owned()));
        }
    }

    /// Records for how long faults lasted without interruption.
    pub(super) fn record_duration(&self, time: Duration) {
        let mut inner = self.0.lock().unwrap();
        inner.longest = inner.longest.max(time);
    }

    pub(super) fn longest_fault(&self) -> Duration {
        self.0.lock().unwrap().longest
    }

    pub(super) fn faults(&self) -> Vec<(Timestamp, String)> {
        self.0.lock().unwrap().faults.clone()
    }

    pub(super) fn holders(&self, conversation: &str) -> Vec<(Timestamp, String)> {
        self.0.lock().unwrap().holders.get(conversation).cloned().unwrap_or_default()
    }

    /// The number of faults of each kind.
    pub(super) fn counts(&self) -> String {
        let inner = self.0.lock().unwrap();
        let counts = inner.counts.iter().map(|(kind, count)| format!("{count} {}", name(*kind)));
        let crashed = format!("{} crashed actors", inner.crashed_actors);
        counts.chain([crashed]).collect::<Vec<_>>().join(", ")
    }

    /// The faults, one line each.
    pub(super) fn lines(&self) -> String {
        let lines = self.faults().into_iter().map(|(at, what)| format!("{at} {what}"));
        lines.collect::<Vec<_>>().join("\n")
    }
}

/// The name of a kind, as on the command line.
fn name(kind: FaultKind) -> String {
    kind.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Prints a line to standard error; the report goes elsewhere.
pub(super) fn print_progress(line: &str) {
    // A closed standard error is no failure.
    let _ = writeln!(std::io::stderr(), "{line}");
}
