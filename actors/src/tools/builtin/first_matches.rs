//! The first of many matches, however many there are and in whatever order they come.

use std::collections::BTreeMap;

use serde_json::json;

use crate::tools::ToolReturn;
use crate::workspace::MARK;

/// No result is longer; it goes to the model with every later step.
const LONGEST_TEXT: usize = 64_000;

/// The matches that are first by path and line. It never holds more than what is shown, and one.
#[derive(Debug)]
pub(crate) struct Matches {
    most: usize,
    /// Each has the line break that follows it.
    bytes: usize,
    shown: BTreeMap<(Vec<u8>, u64), String>,
}

impl Matches {
    /// None yet, and never more than `most`.
    pub(crate) fn new(most: usize) -> Self {
        Self { most, bytes: 0, shown: BTreeMap::new() }
    }

    /// Whether anything in this file could still be among the first.
    pub(crate) fn has_room(&self, path: &[u8]) -> bool {
        let last = self.shown.last_key_value();
        !self.is_over() || last.is_some_and(|((last, _), _)| path < last.as_slice())
    }

    pub(crate) fn add(&mut self, path: &[u8], line: u64, text: String) {
        self.bytes += text.len() + 1;
        // A file that is replaced during the walk may be listed twice.
        if let Some(other) = self.shown.insert((path.to_owned(), line), text) {
            self.bytes -= other.len() + 1;
        }
        while let Some(last) = self.shown.last_entry() {
            let without = self.bytes - last.get().len() - 1;
            if !is_over(self.shown.len() - 1, self.most, without) {
                break;
            }
            self.shown.pop_last();
            self.bytes = without;
        }
    }

    /// One a line, and the `matches` for people. Says so when some are left out.
    pub(crate) fn returned(mut self, pattern: &str) -> ToolReturn {
        let cut = self.is_over();
        while self.shown.len() > self.most || (cut && self.bytes + MARK.len() > LONGEST_TEXT) {
            let Some((_, text)) = self.shown.pop_last() else { break };
            self.bytes -= text.len() + 1;
        }
        let items: Vec<String> = self.shown.into_values().collect();
        let text = match (items.is_empty(), cut) {
            (true, false) => "(no matches)".to_owned(),
            (_, true) => [items.as_slice(), &[MARK.to_owned()]].concat().join("\n"),
            (_, false) => items.join("\n"),
        };
        let payload = json!({"pattern": pattern, "count": items.len(), "items": items});
        ToolReturn::ok(text).with_ui("matches", payload)
    }

    fn is_over(&self) -> bool {
        is_over(self.shown.len(), self.most, self.bytes)
    }
}

fn is_over(count: usize, most: usize, bytes: usize) -> bool {
    // The last line has no break after it.
    count > most || bytes > LONGEST_TEXT + 1
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use abide_conversation::message::Outcome;
    use serde_json::Value;

    use super::*;

    fn shown(matches: Matches) -> (String, Value) {
        let returned = matches.returned("p");
        let Outcome::Ok(Value::String(text)) = returned.outcome else { panic!("no text") };
        (text, returned.ui.unwrap().payload)
    }

    #[test]
    fn the_first_by_path_and_line_are_kept_in_whatever_order_they_come() {
        let mut matches = Matches::new(3);
        for (path, line) in [("b", 1), ("a", 10), ("c", 1), ("a", 2)] {
            assert!(matches.has_room(path.as_bytes()));
            matches.add(path.as_bytes(), line, format!("{path}:{line}"));
        }
        assert!(matches.has_room(b"a"));
        assert!(!matches.has_room(b"d"));
        assert_eq!(matches.shown.len(), 4, "one more than is shown, to know that there is one");
        let (text, payload) = shown(matches);
        assert_eq!(text, "a:2\na:10\nb:1\n[...truncated...]");
        let items = json!(["a:2", "a:10", "b:1"]);
        assert_eq!(payload, json!({"pattern": "p", "count": 3, "items": items}));
    }

    #[test]
    fn as_many_as_there_may_be_are_not_cut() {
        let mut matches = Matches::new(2);
        matches.add(b"a", 0, "a".to_owned());
        matches.add(b"b", 0, "b".to_owned());
        assert_eq!(shown(matches).0, "a\nb");
    }

    #[test]
    fn neither_the_text_nor_what_is_held_goes_beyond_the_bound() {
        for extra in [0, 1] {
            let mut matches = Matches::new(5000);
            for n in 0..640 {
                matches.add(b"a", n, "x".repeat(99));
            }
            matches.add(b"a", 0, "x".repeat(100 + extra));
            let (text, _) = shown(matches);
            assert_eq!(text.ends_with(MARK), extra == 1);
            assert!(text.len() <= LONGEST_TEXT && text.len() > LONGEST_TEXT - 200);
        }
        let mut many = Matches::new(5000);
        for n in 0..5000 {
            many.add(b"a", n, "x".repeat(500));
        }
        assert!(many.bytes <= LONGEST_TEXT + 502, "{}", many.bytes);
    }
}
