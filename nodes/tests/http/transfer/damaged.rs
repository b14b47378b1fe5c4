//! The lines of an export, and each change after which they tell what cannot have happened.

use serde_json::{Value, json};

/// The lines of a whole export.
pub(super) struct Lines(pub(super) Vec<String>);

impl Lines {
    /// The line of the first event of this type.
    pub(super) fn at(&self, kind: &str) -> usize {
        let kind = format!("\"type\":\"{kind}\"");
        self.0.iter().position(|line| line.contains(&kind)).unwrap()
    }

    /// The first event of this type.
    fn event(&self, kind: &str) -> Value {
        serde_json::from_str(&self.0[self.at(kind)]).unwrap()
    }

    pub(super) fn without(&self, index: usize) -> Vec<String> {
        let mut lines = self.0.clone();
        lines.remove(index);
        lines
    }

    pub(super) fn with(&self, index: usize, line: &str) -> Vec<String> {
        let mut lines = self.0.clone();
        lines[index] = line.to_owned();
        lines
    }

    /// The lines with another head, in which this text stands for the format.
    pub(super) fn with_format(&self, text: &str) -> Vec<String> {
        self.with(0, &self.0[0].replace("\"format\":1", text))
    }

    /// The lines with another number of the last event in this one.
    pub(super) fn with_last_seq(&self, index: usize, last_seq: u64) -> Vec<String> {
        let mut value: Value = serde_json::from_str(&self.0[index]).unwrap();
        value["last_seq"] = json!(last_seq);
        self.with(index, &value.to_string())
    }

    /// Without the first event of this type, and so that no number is missing.
    pub(super) fn without_event(&self, kind: &str) -> Vec<String> {
        let gone = self.at(kind);
        let mut lines = self.without(gone);
        for (index, line) in lines.iter_mut().enumerate() {
            let mut value: Value = serde_json::from_str(line).unwrap();
            if index >= gone && value["seq"].is_u64() {
                value["seq"] = json!(value["seq"].as_u64().unwrap() - 1);
            }
            if value["last_seq"].is_u64() {
                value["last_seq"] = json!(value["last_seq"].as_u64().unwrap() - 1);
            }
            *line = value.to_string();
        }
        lines
    }

    /// With one more event at the end, like the first of this type but for these members; one that is
    /// null is removed.
    pub(super) fn with_more(&self, like: &str, members: Value) -> Vec<String> {
        let mut lines = self.0.clone();
        let last = serde_json::from_str::<Value>(&lines[0]).unwrap()["last_seq"].clone();
        let next = last.as_u64().unwrap() + 1;
        for line in [0, lines.len() - 1] {
            let mut value: Value = serde_json::from_str(&lines[line]).unwrap();
            value["last_seq"] = json!(next);
            lines[line] = value.to_string();
        }
        let mut event = self.event(like);
        event["seq"] = json!(next);
        for (name, value) in members.as_object().unwrap() {
            event[name] = value.clone();
        }
        event.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        lines.insert(self.at("turn_ended") + 1, event.to_string());
        lines
    }

    /// With another value at this path of the first event of a type.
    pub(super) fn with_member(&self, kind: &str, path: &str, value: Value) -> Vec<String> {
        let mut event = self.event(kind);
        let (parent, name) = path.rsplit_once('/').unwrap();
        event.pointer_mut(parent).unwrap()[name] = value;
        self.with(self.at(kind), &event.to_string())
    }
}
