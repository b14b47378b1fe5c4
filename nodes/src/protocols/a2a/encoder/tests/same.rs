//! A stream that begins anywhere, and a task that is read afterwards, tell the same.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::protocols::feed::tests::live_and_journal::{journalled, live, step, timeline};

/// What a client knows that has read these events, as it folds them.
#[derive(Debug, Default, PartialEq)]
struct Known {
    state: String,
    message: Value,
    texts: BTreeMap<String, String>,
}

impl Known {
    fn of(events: &[Value]) -> Self {
        let mut known = Self::default();
        for event in events {
            if let Some(task) = event.get("task") {
                known = Self::of_task(task);
            } else if let Some(update) = event.get("artifactUpdate") {
                known.artifact(&update["artifact"], update["append"] == true);
            } else {
                known.status(&event["statusUpdate"]["status"]);
            }
        }
        // A text that was taken back is empty.
        known.texts.retain(|_, text| !text.is_empty());
        known
    }

    fn of_task(task: &Value) -> Self {
        let mut known = Self::default();
        known.status(&task["status"]);
        for artifact in task["artifacts"].as_array().into_iter().flatten() {
            known.artifact(artifact, false);
        }
        known
    }

    fn status(&mut self, status: &Value) {
        self.state = status["state"].as_str().unwrap().to_owned();
        self.message = status["message"].clone();
    }

    fn artifact(&mut self, artifact: &Value, appends: bool) {
        let parts = artifact["parts"].as_array().unwrap();
        let text: String = parts.iter().map(|part| part["text"].as_str().unwrap()).collect();
        let id = artifact["artifactId"].as_str().unwrap().to_owned();
        let so_far = self.texts.entry(id).or_default();
        if !appends {
            so_far.clear();
        }
        so_far.push_str(&text);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_stream_that_begins_anywhere_and_a_task_that_is_read_tell_the_same(
        steps in vec(step(), 0..4),
        has_ended in any::<bool>(),
        at in any::<prop::sample::Index>(),
        has_snapshot in any::<bool>(),
        is_lost in vec(proptest::bool::weighted(0.2), 1..8),
    ) {
        let published = timeline(&steps, has_ended);
        let mut read = Case::new(TellUntil::Rest);
        for event in journalled(&published) {
            for item in read.feed.event(event, &Answerable::All) {
                read.encoder.item(None, &item);
            }
        }
        let read = read.catch_up().encoder.task(None);
        let cut = at.index(published.len() + 1);
        let (_, items) = live(&published, cut, has_snapshot, &is_lost);
        let mut stream = TaskEncoder::new(head(), TellUntil::End);
        let told: Vec<Value> = items.iter().flat_map(|item| stream.item(None, item)).collect();
        prop_assert!(told[0].get("task").is_some(), "the task comes first");
        prop_assert_eq!(Known::of(&told), Known::of_task(&read));
        prop_assert_eq!(Known::of_task(&stream.task(None)), Known::of_task(&read));
    }
}
