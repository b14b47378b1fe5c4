//! The shortest story of what went wrong: only the conversations concerned, in the order of time.

use std::collections::BTreeSet;
use std::path::Path;

use jiff::Timestamp;
use serde_json::Value;

use super::fault_log::FaultLog;
use crate::checks::Evidence;
use crate::history::Exchange;

/// Lines of a story that are printed; the file has all.
pub(super) const MAX_PRINTED_LINES: usize = 250;
/// Conversations that are told of; the first broken promise is often the cause of the others.
const MAX_CONVERSATIONS: usize = 3;
/// Characters of a line's JSON: enough to see what it is.
const MAX_LINE_CHARS: usize = 220;

/// The promises that were not kept, then what happened to the first conversations concerned.
pub(super) fn of(
    wrong: &[String],
    evidence: &Evidence,
    fault_log: &FaultLog,
    logs: &Path,
) -> String {
    let mut lines: Vec<String> = wrong.iter().map(|wrong| format!("BROKEN {wrong}")).collect();
    let mut told = BTreeSet::new();
    for wrong in wrong {
        let concerned = concerned(wrong, evidence);
        for id in concerned {
            if told.len() < MAX_CONVERSATIONS && told.insert(id.clone()) {
                lines.push(format!("\n{id}, in the order of time:"));
                lines.extend(about(&id, evidence, fault_log, logs));
            }
        }
    }
    lines.join("\n")
}

/// The conversations that a sentence names, and the parents of those that are children.
fn concerned(wrong: &str, evidence: &Evidence) -> Vec<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    let words: BTreeSet<&str> = wrong.split(|c| !is_part(c)).collect();
    let asked = evidence.exchanges.iter().filter_map(Exchange::conversation);
    let known: BTreeSet<&str> = evidence.journals.keys().map(String::as_str).chain(asked).collect();
    let mut all: Vec<String> = known.intersection(&words).map(|id| id.to_string()).collect();
    for id in all.clone() {
        let created = evidence.journals.get(&id).and_then(|journal| journal.of("created").next());
        let parent = created.and_then(|event| event["data"]["parent"]["conversation_id"].as_str());
        all.extend(parent.map(str::to_owned));
    }
    all
}

/// Faults, holders, requests, events, runs and log lines, from its first request on.
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
        let asked = exchange.sent_at.strftime("%T%.3f");
        lines.push((exchange.ended_at, format!("{node} -> {method} of {asked}: {answer}")));
    }
    for event in evidence.journals.get(id).iter().flat_map(|journal| &journal.0) {
        let (seq, kind, turn) = (&event["seq"], &event["type"], &event["turn_id"]);
        let line = format!("journal {seq} {kind} {turn} {}", short(&event["data"]));
        lines.push((time(&event["at"]), line));
    }
    for run in evidence.runs.iter().filter(|run| run.body["conversation_id"] == id) {
        lines.push((run.at, format!("tool {} <- {}", run.path, short(&run.body))));
    }
    lines.extend(fault_log.holders(id).into_iter().map(|(at, by)| (at, format!("held by {by}"))));
    lines.extend(logged(id, logs));
    let first = lines.iter().map(|(at, _)| *at).min().unwrap_or(Timestamp::MAX);
    let last = lines.iter().map(|(at, _)| *at).max().unwrap_or(Timestamp::MIN);
    let faults = fault_log.faults().into_iter().filter(|(at, _)| (first..=last).contains(at));
    lines.extend(faults.map(|(at, what)| (at, format!("FAULT {what}"))));
    lines.sort_by_key(|(at, _)| *at);
    lines.into_iter().map(|(at, line)| format!("{} {line}", at.strftime("%T%.3f"))).collect()
}

/// What the nodes' logs say of it.
fn logged(id: &str, logs: &Path) -> Vec<(Timestamp, String)> {
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
    fn a_sentence_concerns_whom_it_names_and_nobody_else() {
        let mut evidence = Evidence::default();
        for id in ["c1-1", "c1-12", "conv_x"] {
            evidence.journals.insert(id.to_owned(), Journal(Vec::new()));
        }
        assert_eq!(concerned("journal c1-12: seq 4", &evidence), ["c1-12"]);
        let run = "runs of \"conv_x/send\": attempt 1 comes after 2";
        assert_eq!(concerned(run, &evidence), ["conv_x"]);
    }
}
