//! Every metric of the program: its name, its labels, and its description.
//!
//! No label is ever a conversation's id or a client's text: every value that may vary is bounded
//! here, or by an enum. Clients define any number of agents and tools, so these appear on spans
//! only.

mod catalog;
mod labels;

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

pub use catalog::METRICS;
pub(crate) use labels::{
    call_outcome, executor, message_status, purpose, suspension_kind, turn_outcome,
};

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

/// The unit of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Count,
    Seconds,
}

/// The description of a metric for its readers.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    pub name: &'static str,
    pub kind: MetricKind,
    pub unit: Unit,
    pub labels: &'static [&'static str],
    pub help: &'static str,
}

/// The upper bounds of histogram buckets in seconds, from a commit to a tool that runs for an hour.
pub const BUCKETS: [f64; 17] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
    300.0, 3600.0,
];

/// How many models have a label of their own: definitions come over HTTP and may name any model.
const MAX_MODEL_LABELS: usize = 64;
/// A longer name is not the name of a model.
const MAX_MODEL_NAME_BYTES: usize = 100;

static MODELS: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// The label of a model: its name, or `other` once there have been too many names since the start.
pub(crate) fn model(name: &str) -> &'static str {
    let mut models = MODELS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = models.get(name) {
        return known;
    }
    if models.len() >= MAX_MODEL_LABELS || name.len() > MAX_MODEL_NAME_BYTES {
        return "other";
    }
    // At most `MAX_MODEL_LABELS` names are leaked, once each.
    let name: &'static str = Box::leak(name.to_owned().into_boxed_str());
    models.insert(name);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_say_their_unit() {
        let names: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), METRICS.len());
        for Metric { name, kind, unit, help, .. } in METRICS {
            assert!(name.starts_with("abide_") && help.ends_with('.'), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == MetricKind::Counter, "{name}");
            assert_eq!(name.ends_with("_seconds"), *unit == Unit::Seconds, "{name}");
            assert!(*kind != MetricKind::Histogram || *unit == Unit::Seconds, "{name}");
        }
    }

    #[test]
    fn the_number_of_model_labels_is_bounded() {
        assert_eq!(model("gpt"), "gpt");
        assert_eq!(model(&"x".repeat(MAX_MODEL_NAME_BYTES + 1)), "other");
        let labels: BTreeSet<_> = (0..1_000).map(|number| model(&format!("m{number}"))).collect();
        assert!(labels.len() <= MAX_MODEL_LABELS + 1, "{}", labels.len());
        assert!(labels.contains("other"));
        assert_eq!(model("gpt"), "gpt");
    }
}
