//! The metrics that are emitted, listed, shown on the dashboard and watched by alerts are the same.
#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use abide_actors::metric::{METRICS, Metric, MetricKind};
use serde_json::Value;

const RUNBOOK: &str = "deploy/docs/src/operations/runbook.md";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The sources of the program, without the test package.
fn sources() -> String {
    let list = ["ls-files", "--cached", "--others", "--exclude-standard", "--", "*/src/*.rs"];
    let listed = Command::new("git").args(list).current_dir(root()).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let ours = listed.lines().filter(|path| !path.starts_with("tests/"));
    ours.filter(|path| root().join(path).exists()).map(read).collect()
}

/// The words in a text that look like names of metrics.
fn named(text: &str) -> BTreeSet<&str> {
    let word = |c: char| !(c.is_ascii_alphanumeric() || c == '_');
    text.split(word).filter(|word| word.starts_with("abide_") && word.len() > 6).collect()
}

/// The kind, name and labels of every use of a macro of `metrics`.
fn emitted(sources: &str) -> Vec<(MetricKind, String, BTreeSet<String>)> {
    let mut found = Vec::new();
    let macros = [
        ("counter!(", MetricKind::Counter),
        ("gauge!(", MetricKind::Gauge),
        ("histogram!(", MetricKind::Histogram),
    ];
    for (open, kind) in macros {
        for (at, _) in sources.match_indices(&format!("metrics::{open}")) {
            let rest = &sources[at + "metrics::".len() + open.len()..];
            let inside = &rest[..closed(rest)];
            let words: Vec<&str> = inside.split('"').collect();
            // The code that describes the list contains no names.
            if !words[0].trim().is_empty() {
                continue;
            }
            let is_label = |at: &usize| words.get(at + 1).is_some_and(|it| it.contains("=>"));
            let labels = (3..words.len()).step_by(2).filter(is_label);
            let labels = labels.map(|at| words[at].to_owned()).collect();
            found.push((kind, words[1].to_owned(), labels));
        }
    }
    found
}

/// The position of the parenthesis that closes the one before the text.
fn closed(text: &str) -> usize {
    let mut depth = 1;
    let closes = |c: char| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth == 0
    };
    text.find(closes).unwrap()
}

#[test]
fn what_is_emitted_and_what_is_listed_are_the_same() {
    let sources = sources();
    let listed: BTreeMap<&str, &Metric> =
        METRICS.iter().map(|metric| (metric.name, metric)).collect();
    let emitted = emitted(&sources);
    for (kind, name, labels) in &emitted {
        let metric = listed.get(name.as_str()).unwrap_or_else(|| panic!("{name} is not listed"));
        let listed: BTreeSet<String> = metric.labels.iter().map(ToString::to_string).collect();
        assert_eq!((metric.kind, &listed), (*kind, labels), "{name}");
    }
    for name in listed.keys() {
        assert!(emitted.iter().any(|(_, known, _)| known == name), "{name} is never emitted");
    }
}

/// Fails unless every name is of the list, as Prometheus spells it.
fn assert_listed(of: &str, expressions: &[String]) -> BTreeSet<&'static str> {
    let mut used = BTreeSet::new();
    for expression in expressions {
        for name in named(expression) {
            let spelt = |metric: &&Metric| match metric.kind {
                MetricKind::Histogram => {
                    let rest = name.strip_prefix(metric.name);
                    rest.is_some_and(|rest| ["_bucket", "_count", "_sum"].contains(&rest))
                }
                MetricKind::Counter | MetricKind::Gauge => metric.name == name,
            };
            let metric = METRICS.iter().find(spelt);
            used.insert(
                metric.unwrap_or_else(|| panic!("{of} uses {name}, which is not listed")).name,
            );
        }
    }
    used
}

#[test]
fn the_dashboard_shows_every_metric_and_no_other() {
    let dashboard: Value =
        serde_json::from_str(&read("deploy/observability/dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let targets = panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten();
    let expressions: Vec<String> =
        targets.map(|target| target["expr"].as_str().unwrap().to_owned()).collect();
    let panel_metrics = assert_listed("the dashboard", &expressions);
    for Metric { name, .. } in METRICS {
        assert!(panel_metrics.contains(name), "{name} is on no panel");
    }
    let ids: BTreeSet<i64> = panels.iter().map(|panel| panel["id"].as_i64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "panels have ids of their own");
}

/// The alerts, each with its name first.
fn alerts(rules: &str) -> Vec<(&str, &str)> {
    let alerts = rules.split("- alert: ").skip(1);
    alerts.map(|alert| (alert.lines().next().unwrap().trim(), alert)).collect()
}

#[test]
fn every_alert_watches_metrics_of_the_list() {
    let rules = read("deploy/observability/alerts.yaml");
    let alerts = alerts(&rules);
    assert!(alerts.len() >= 20, "{}", alerts.len());
    for (name, alert) in alerts {
        assert_listed(name, &[alert.to_owned()]);
    }
}

#[test]
fn every_alert_has_a_section_in_the_runbook() {
    let rules = read("deploy/observability/alerts.yaml");
    let runbook = read(RUNBOOK);
    let headings: BTreeSet<String> = runbook
        .lines()
        .filter_map(|line| line.strip_prefix('#'))
        .map(|line| line.trim_start_matches('#').trim().trim_matches('`').to_lowercase())
        .collect();
    for (name, alert) in alerts(&rules) {
        let anchor = name.to_lowercase();
        let url = format!("runbook_url: {RUNBOOK}#{anchor}");
        assert!(alert.contains(&url), "{name} has not {url}");
        assert!(headings.contains(&anchor), "{RUNBOOK} has no section {name}");
    }
}
