//! The report of broken promises: only the conversations concerned, in chronological order.

use std::collections::BTreeSet;
use std::path::Path;

use jiff::Timestamp;
use serde_json::Value;

use super::fault_log::FaultLog;
use crate::checks::Evidence;
use crate::history::Exchange;

/// The lines of a report that are printed; the file has all of them.
pub(super) const MAX_PRINTED_LINES: usize = 250;
/// The conversations that are reported; the first broken promise is often the cause of the others.
const MAX_CONVERSATIONS: usize = 3;
/// The characters of a line's JSON: enough to recognise it.
const MAX_LINE_CHARS: usize = 220;

/// The broken promises, then the history of the first conversations concerned.
pub(super) fn of(
    violations: &[String],
    evidence: &Evidence,
    fault_log: &FaultLog,
    logs: &Path,
) -> String {
    let mut lines: Vec<String> =
        violations.iter().map(|violation| format!("BROKEN {violation}")).collect();
    let mut reported = BTreeSet::new();
    for violation in violations {
        for id in concerned(violation, evidence) {
            if reported.len() < MAX_CONVERSATIONS && reported.insert(id.clone()) {
                lines.push(format!("\n{id}, in chronological order:"));
                lines.extend(about(&id, evidence, fault_log, logs));
            }
        }
    }
    lines.join("\n")
}

/// The conversations that a violation names, and their parents.
fn concerned(violation: &str, evidence: &Evidence) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    let words: BTreeSet<&str> = violation.split(|c| !is_part(c)).collect();
    let requested = evidence.exchanges.iter().filter_map(Exchange::conversation);
    let known: BTreeSet<&str> =
        evidence.journals.keys().map(String::as_str).chain(requested).collect();
    let mut all: Vec<String> = known.intersection(&words).map(|id| id.to_string()).collect();
    for id in all.clone() {
        let created = evidence.journals.get(&id).and_then(|journal| journal.of("created").next());
        let parent = created.and_then(|event| event["data"]["parent"]["conversation_id"].as_str());
        all.extend(parent.map(str::to_owned));
    }
    all
}

/// The faults, holders, requests, events, tool runs and log lines of a conversation, in order.
fn about(id: &str, evidence: &Evidence, fault_log: &FaultLog, logs: &Path) -> Vec<String> {
    let mut lines: Vec<(Timestamp, String)> = Vec::new();
    for exchange in evidence.exchanges.iter().filter(|it| it.conversation() == Some(id)) {
        let Exchange { node, method, path, key, body, answer, .. } = exchange;
        let key = key.as_ref().map(|key| format!(" key {key}")).unwrap_or_default();
        let body = body.as_ref().map(short).unwrap_or_default();
        lines.push((exchange.sent_at, format!("{node} <- {method} {path}{key} {body}")));
        let answer = match answer {
            Ok(answer) => format!("{} {}", answer.status, short(&answer.body)),
            Err(why) => format!("no answer: {}", cut(why)),
        };
        let sent_at = exchange.sent_at.strftime("%T%.3f");
        lines.push((exchange.ended_at, format!("{node} -> {method} of {sent_at}: {answer}")));
    }
    for event in evidence.journals.get(id).iter().flat_map(|journal| &journal.0) {
        let [seq, kind, turn] = ["seq", "type", "turn_id"].map(|name| &event[name]);
        let line = format!("journal {seq} {kind} {turn} {}", short(&event["data"]));
        lines.push((time(&event["at"]), line));
    }
    for run in evidence.runs.iter().filter(|run| run.body["conversation_id"] == id) {
        lines.push((run.at, format!("tool {} <- {}", run.path, short(&run.body))));
    }
    lines.extend(fault_log.holders(id).into_iter().map(|(at, by)| (at, format!("held by {by}"))));
    lines.extend(log_lines(id, logs));
    let first = lines.iter().map(|(at, _)| *at).min().unwrap_or(Timestamp::MAX);
    let last = lines.iter().map(|(at, _)| *at).max().unwrap_or(Timestamp::MIN);
    let faults = fault_log.faults().into_iter().filter(|(at, _)| (first..=last).contains(at));
    lines.extend(faults.map(|(at, what)| (at, format!("FAULT {what}"))));
    lines.sort_by_key(|(at, _)| *at);
    lines.into_iter().map(|(at, line)| format!("{} {line}", at.strftime("%T%.3f"))).collect()
}

/// The lines of the nodes' logs that name the conversation.
fn log_lines(id: &str, logs: &Path) -> Vec<(Timestamp, String)> {
    let files = std::fs::read_dir(logs).into_iter().flatten().flatten();
    let files = files.filter(|file| file.path().extension().is_some_and(|it| it == "log"));
    let mut lines = Vec::new();
    let quoted = format!("\"{id}\"");
    for file in files {
        let text = std::fs::read_to_string(file.path()).unwrap_or_default();
        let name = file.file_name().to_string_lossy().into_owned();
        for line in text.lines().filter(|line| line.contains(&quoted)) {
            let parsed: Value = serde_json::from_str(line).unwrap_or_default();
            lines.push((time(&parsed["timestamp"]), format!("{name}: {}", cut(line))));
        }
    }
    lines
}

fn time(value: &Value) -> Timestamp {
    value.as_str().and_then(|text| text.parse().ok()).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn short(value: &Value) -> String {
    cut(&value.to_string())
}

fn cut(text: &str) -> String {
    let cut: String = text.chars().take(MAX_LINE_CHARS).collect();
    if cut.len() < text.len() { cut + "…" } else { cut }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Journal;

    #[test]
    fn a_violation_concerns_the_conversations_that_it_names_and_no_others() {
        let mut evidence = Evidence::default();
        for id in ["c1-1", "c1-12", "conv_x"] {
            evidence.journals.insert(id.to_owned(), Journal(Vec::new()));
        }
        assert_eq!(concerned("journal c1-12: seq 4", &evidence), ["c1-12"]);
        let run = "runs of \"conv_x/send\": attempt 1 comes after 2";
        assert_eq!(concerned(run, &evidence), ["conv_x"]);
    }
}
