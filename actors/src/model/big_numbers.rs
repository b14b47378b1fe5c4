//! Finds integers in JSON that a [`Value`] would round.

use serde_json::Value;

/// What is wrong with an integer that would be rounded.
pub const OVER_64_BITS: &str = "must fit into 64 bits";

/// The digits of the smallest integer that does not fit.
const MIN_ROUNDED_DIGITS: usize = 19;
/// A whole number of at least this size that is kept as a float may be one that was rounded.
const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;

/// Parses JSON from outside; `Err` returns the text if it is not JSON, or contains an integer that
/// would be [rounded](find_rounded).
pub(crate) fn parse_exact(text: String) -> Result<Value, String> {
    match serde_json::from_str(&text) {
        Ok(value) if find_rounded(&text).is_none() => Ok(value),
        Ok(_) | Err(_) => Err(text),
    }
}

/// The path of the first integer in a JSON text that does not fit 64 bits, such as `a.0.b`; the
/// root's path is empty. A value keeps about 16 digits of such a number, and a call with the wrong
/// id is worse than no call. `None` if all integers fit, or if the text is not JSON.
pub fn find_rounded(json: &str) -> Option<String> {
    if !has_long_number(json) {
        return None;
    }
    let mut rest = json;
    let mut path: Vec<PathStep<'_>> = Vec::new();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => string_length(rest),
            '-' | '0'..='9' => number_length(rest),
            _ => first.len_utf8(),
        };
        let (token, after) = rest.split_at_checked(length)?;
        rest = after;
        match (first, path.last_mut()) {
            ('{', _) => path.push(PathStep::Key("")),
            ('[', _) => path.push(PathStep::Index(0)),
            ('}' | ']', _) => drop(path.pop()),
            (',', Some(PathStep::Index(at))) => *at += 1,
            ('"', Some(PathStep::Key(key))) if after.trim_start().starts_with(':') => *key = token,
            ('-' | '0'..='9', _) if !is_exact(token) => {
                let valid = serde_json::from_str::<serde::de::IgnoredAny>(json).is_ok();
                return valid.then(|| join_path(&path));
            }
            _ => {}
        }
    }
    None
}

/// The path of the first number in a value that may be an integer that was rounded: a whole one of
/// more than 64 bits. `None` if no integer in the text that the value was parsed from is long enough.
pub(crate) fn find_rounded_in(text: &str, value: &Value) -> Option<String> {
    if has_long_number(text) { find_large(value) } else { None }
}

/// The path of the first whole number in a value that does not fit 64 bits.
pub(crate) fn find_large(value: &Value) -> Option<String> {
    let below = |step: String, value: &Value| {
        let path = find_large(value)?;
        Some(if path.is_empty() { step } else { format!("{step}.{path}") })
    };
    match value {
        Value::Number(number) if number.is_f64() => {
            let is_large = |number: f64| number.abs() >= TWO_TO_63;
            number.as_f64().is_some_and(is_large).then(String::new)
        }
        Value::Array(items) => {
            items.iter().enumerate().find_map(|(at, item)| below(at.to_string(), item))
        }
        Value::Object(entries) => entries.iter().find_map(|(key, value)| below(key.clone(), value)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    }
}

/// Whether enough digits follow each other to be an integer that does not fit.
fn has_long_number(text: &str) -> bool {
    let mut digits = 0;
    text.bytes().any(|byte| {
        // YAML may have `_` between digits.
        digits = if byte.is_ascii_digit() || byte == b'_' { digits + 1 } else { 0 };
        digits >= MIN_ROUNDED_DIGITS
    })
}

/// A step on the path from the root to the reader's position.
enum PathStep<'a> {
    /// The key of an object, including its quotes.
    Key(&'a str),
    /// The index in a list.
    Index(usize),
}

/// The length of the string including its quotes; an escaped quote does not end it.
fn string_length(json: &str) -> usize {
    let mut escaped = false;
    let end = json.bytes().skip(1).position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    end.map_or(json.len(), |end| end + 2)
}

fn number_length(json: &str) -> usize {
    let part = |c: char| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E');
    json.find(|c| !part(c)).unwrap_or(json.len())
}

/// A number with a fraction or an exponent is meant to be approximate.
fn is_exact(number: &str) -> bool {
    let whole = !number.contains(['.', 'e', 'E']);
    !whole || number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok()
}

fn join_path(path: &[PathStep<'_>]) -> String {
    let step = |step: &PathStep<'_>| match step {
        PathStep::Key(key) => serde_json::from_str(key).unwrap_or_default(),
        PathStep::Index(at) => at.to_string(),
    };
    path.iter().map(step).collect::<Vec<String>>().join(".")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_integer_of_more_than_64_bits_is_found_with_its_path() {
        for (json, path) in [
            (r#"{"id": 12345678901234567890123}"#, "id"),
            (r#"{"a": [1, {"b\"c": "x"}, {"id" : -9223372036854775809}], "d": 1}"#, "a.2.id"),
            (r#"{"a": {"b": 1}, "c": [], "d": 18446744073709551616}"#, "d"),
            (r#"{"s": "{\"id\": 1", "\u0069d": 99999999999999999999}"#, "id"),
            ("[[], 99999999999999999999]", "1"),
            ("99999999999999999999", ""),
        ] {
            assert_eq!(find_rounded(json).as_deref(), Some(path), "{json}");
            assert_eq!(parse_exact(json.to_owned()), Err(json.to_owned()));
        }
    }

    #[test]
    fn a_value_that_was_rounded_is_found_with_its_path() {
        for (json, path) in [
            (r#"{"id": 12345678901234567890123}"#, Some("id")),
            (r#"{"a": [1, {"id": -9223372036854775809}]}"#, Some("a.1.id")),
            ("99999999999999999999", Some("")),
            (r#"{"a": 18446744073709551615, "b": -9223372036854775808, "c": 1e300}"#, None),
            (r#"{"a": 1.5, "b": "12345678901234567890123"}"#, None),
        ] {
            let value: Value = serde_json::from_str(json).unwrap();
            let large = find_large(&value).filter(|path| path != "c");
            assert_eq!(large.as_deref(), path, "{json}");
        }
        let large = serde_json::json!({"c": 1e300});
        assert_eq!(find_rounded_in("c: 1e300", &large), None);
        assert_eq!(find_rounded_in("c: 12345678901234567890", &large).as_deref(), Some("c"));
    }

    #[test]
    fn exact_and_approximate_numbers_are_not_reported() {
        for json in [
            r#"{"a": 18446744073709551615, "b": -9223372036854775808, "c": 0, "d": -0}"#,
            r#"{"a": 12345678901234567890123.5, "b": 1e300, "c": 1E+2}"#,
            r#"{"12345678901234567890123": "12345678901234567890123 \" 99999999999999999999"}"#,
        ] {
            assert_eq!(find_rounded(json), None, "{json}");
            assert!(parse_exact(json.to_owned()).is_ok());
        }
        for no_json in ["99999999999999999999 {", "\"", "\"\\", "{\"a", "99999999999999999999ä"] {
            assert_eq!(find_rounded(no_json), None, "{no_json}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[\\[\\]{}\":,\\\\a-cä0-9e.-]{0,40}") {
            let _ = find_rounded(&text);
        }
    }
}
