//! The workers of one queue that were seen lately.

use std::collections::BTreeMap;

use abide_conversation::Timestamp;

use super::WorkerView;

/// More workers than this are not remembered; those that were not seen for the longest go first.
const MAX_WORKERS: usize = 1_000;

/// The workers, by name.
#[derive(Debug, Default)]
pub(super) struct Workers(BTreeMap<String, WorkerView>);

impl Workers {
    /// A worker asks for calls.
    pub(super) fn asks(&mut self, name: &str, tools: Option<&Vec<String>>, now: Timestamp) {
        let worker = self.seen(name, now);
        worker.tools = tools.cloned();
    }

    /// A worker lives.
    pub(super) fn seen(&mut self, name: &str, now: Timestamp) -> &mut WorkerView {
        if self.0.len() >= MAX_WORKERS && !self.0.contains_key(name) {
            let oldest = self.0.values().min_by_key(|worker| worker.last_seen);
            if let Some(oldest) = oldest.map(|worker| worker.name.clone()) {
                self.0.remove(&oldest);
            }
        }
        let new = || WorkerView { name: name.to_owned(), last_seen: now, tools: None, offered: 0 };
        let worker = self.0.entry(name.to_owned()).or_insert_with(new);
        worker.last_seen = worker.last_seen.max(now);
        worker
    }

    pub(super) fn all(&self) -> Vec<WorkerView> {
        self.0.values().cloned().collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn the_worker_that_was_not_seen_for_the_longest_is_forgotten_first() {
        let mut workers = Workers::default();
        let at = |second: usize| Timestamp::from_second(second as i64).unwrap();
        for second in 0..MAX_WORKERS {
            workers.asks(&format!("w{second}"), None, at(second));
        }
        workers.seen("w0", at(5_000));
        workers.seen("new", at(5_001)).offered += 1;
        let names: Vec<String> = workers.all().into_iter().map(|worker| worker.name).collect();
        assert_eq!(names.len(), MAX_WORKERS);
        assert!(names.contains(&"w0".to_owned()) && !names.contains(&"w1".to_owned()));
    }
}
