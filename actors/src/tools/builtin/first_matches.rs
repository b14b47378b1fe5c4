//! Collects the first of many matches that arrive in any order.

use std::collections::BTreeMap;

use serde_json::json;

use crate::tools::ToolReturn;
use crate::workspace::TRUNCATION_MARK;

/// The longest result; it goes to the model with every later step.
const MAX_TEXT_BYTES: usize = 64_000;

/// The first matches by path and line. It holds at most one more than will be shown.
#[derive(Debug)]
pub(crate) struct FirstMatches {
    max_count: usize,
    /// The length of all matches, each with its line break.
    bytes: usize,
    matches: BTreeMap<(Vec<u8>, u64), String>,
}

impl FirstMatches {
    /// An empty collection that will show at most `max_count` matches.
    pub(crate) fn new(max_count: usize) -> Self {
        Self { max_count, bytes: 0, matches: BTreeMap::new() }
    }

    /// Whether a match in this file could still be among the first.
    pub(crate) fn has_room(&self, path: &[u8]) -> bool {
        let last = self.matches.last_key_value();
        !self.exceeds_limits() || last.is_some_and(|((last, _), _)| path < last.as_slice())
    }

    pub(crate) fn add(&mut self, path: &[u8], line: u64, text: String) {
        self.bytes += text.len() + 1;
        // A file that is replaced during the walk may be visited twice.
        if let Some(other) = self.matches.insert((path.to_owned(), line), text) {
            self.bytes -= other.len() + 1;
        }
        while let Some(last) = self.matches.last_entry() {
            let without = self.bytes - last.get().len() - 1;
            if !exceeds_limits(self.matches.len() - 1, self.max_count, without) {
                break;
            }
            self.matches.pop_last();
            self.bytes = without;
        }
    }

    /// The matches, one on each line, and a `matches` payload for user interfaces. A mark shows if
    /// some are left out.
    pub(crate) fn into_tool_return(mut self, pattern: &str) -> ToolReturn {
        let cut = self.exceeds_limits();
        while self.matches.len() > self.max_count
            || (cut && self.bytes + TRUNCATION_MARK.len() > MAX_TEXT_BYTES)
        {
            let Some((_, text)) = self.matches.pop_last() else { break };
            self.bytes -= text.len() + 1;
        }
        let items: Vec<String> = self.matches.into_values().collect();
        let text = match (items.is_empty(), cut) {
            (true, false) => "(no matches)".to_owned(),
            (_, true) => [items.as_slice(), &[TRUNCATION_MARK.to_owned()]].concat().join("\n"),
            (_, false) => items.join("\n"),
        };
        let payload = json!({"pattern": pattern, "count": items.len(), "items": items});
        ToolReturn::ok(text).with_ui("matches", payload)
    }

    fn exceeds_limits(&self) -> bool {
        exceeds_limits(self.matches.len(), self.max_count, self.bytes)
    }
}

fn exceeds_limits(count: usize, max_count: usize, bytes: usize) -> bool {
    // The last line needs no line break.
    count > max_count || bytes > MAX_TEXT_BYTES + 1
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use abide_conversation::message::Outcome;
    use serde_json::Value;

    use super::*;

    fn output(matches: FirstMatches) -> (String, Value) {
        let returned = matches.into_tool_return("p");
        let Outcome::Ok(Value::String(text)) = returned.outcome else { panic!("no text") };
        (text, returned.ui.unwrap().payload)
    }

    #[test]
    fn the_first_by_path_and_line_are_kept_in_whatever_order_they_come() {
        let mut matches = FirstMatches::new(3);
        for (path, line) in [("b", 1), ("a", 10), ("c", 1), ("a", 2)] {
            assert!(matches.has_room(path.as_bytes()));
            matches.add(path.as_bytes(), line, format!("{path}:{line}"));
        }
        assert!(matches.has_room(b"a"));
        assert!(!matches.has_room(b"d"));
        assert_eq!(matches.matches.len(), 4, "one more than is shown, to know that there is one");
        let (text, payload) = output(matches);
        assert_eq!(text, "a:2\na:10\nb:1\n[...truncated...]");
        let items = json!(["a:2", "a:10", "b:1"]);
        assert_eq!(payload, json!({"pattern": "p", "count": 3, "items": items}));
    }

    #[test]
    fn as_many_as_there_may_be_are_not_cut() {
        let mut matches = FirstMatches::new(2);
        matches.add(b"a", 0, "a".to_owned());
        matches.add(b"b", 0, "b".to_owned());
        assert_eq!(output(matches).0, "a\nb");
    }

    #[test]
    fn neither_the_text_nor_what_is_held_goes_beyond_the_bound() {
        for extra in [0, 1] {
            let mut matches = FirstMatches::new(5000);
            for n in 0..640 {
                matches.add(b"a", n, "x".repeat(99));
            }
            matches.add(b"a", 0, "x".repeat(100 + extra));
            let (text, _) = output(matches);
            assert_eq!(text.ends_with(TRUNCATION_MARK), extra == 1);
            assert!(text.len() <= MAX_TEXT_BYTES && text.len() > MAX_TEXT_BYTES - 200);
        }
        let mut many = FirstMatches::new(5000);
        for n in 0..5000 {
            many.add(b"a", n, "x".repeat(500));
        }
        assert!(many.bytes <= MAX_TEXT_BYTES + 502, "{}", many.bytes);
    }
}
