//! Whole numbers that a JSON value here would round.

use serde_json::Value;

/// Reads JSON from outside; the text itself if it is no JSON, or has a number that would be
/// [`rounded`].
pub(crate) fn parse_exact(text: String) -> Result<Value, String> {
    match serde_json::from_str(&text) {
        Ok(value) if find_rounded(&text).is_none() => Ok(value),
        Ok(_) | Err(_) => Err(text),
    }
}

/// Where in a JSON text the first whole number stands that 64 bits do not hold, as `a.0.b`; empty
/// at the root. A value keeps about 16 of its digits, and a call with the wrong id is worse than
/// none. `None` if all are held, and of a text that is no JSON.
pub(crate) fn find_rounded(json: &str) -> Option<String> {
    let mut rest = json;
    let mut places: Vec<PathStep<'_>> = Vec::new();
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '"' => text_length(rest),
            '-' | '0'..='9' => number_length(rest),
            _ => first.len_utf8(),
        };
        let (token, after) = rest.split_at_checked(length)?;
        rest = after;
        match (first, places.last_mut()) {
            ('{', _) => places.push(PathStep::Key("")),
            ('[', _) => places.push(PathStep::Index(0)),
            ('}' | ']', _) => drop(places.pop()),
            (',', Some(PathStep::Index(at))) => *at += 1,
            ('"', Some(PathStep::Key(key))) if after.trim_start().starts_with(':') => *key = token,
            ('-' | '0'..='9', _) if !is_exact(token) => {
                let valid = serde_json::from_str::<serde::de::IgnoredAny>(json).is_ok();
                return valid.then(|| join_path(&places));
            }
            _ => {}
        }
    }
    None
}

/// A step from the root to where the reader is.
enum PathStep<'a> {
    /// The key of an object, in its quotes.
    Key(&'a str),
    /// The place in a list.
    Index(usize),
}

/// Of the text with its quotes, whose end an escaped quote is not.
fn text_length(json: &str) -> usize {
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

/// A number with a fraction or an exponent is meant to be near, not exact.
fn is_exact(number: &str) -> bool {
    let whole = !number.contains(['.', 'e', 'E']);
    !whole || number.parse::<i64>().is_ok() || number.parse::<u64>().is_ok()
}

fn join_path(places: &[PathStep<'_>]) -> String {
    let step = |place: &PathStep<'_>| match place {
        PathStep::Key(key) => serde_json::from_str(key).unwrap_or_default(),
        PathStep::Index(at) => at.to_string(),
    };
    places.iter().map(step).collect::<Vec<String>>().join(".")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_whole_number_of_more_than_64_bits_is_found_where_it_stands() {
        for (json, place) in [
            (r#"{"id": 12345678901234567890123}"#, "id"),
            (r#"{"a": [1, {"b\"c": "x"}, {"id" : -9223372036854775809}], "d": 1}"#, "a.2.id"),
            (r#"{"a": {"b": 1}, "c": [], "d": 18446744073709551616}"#, "d"),
            (r#"{"s": "{\"id\": 1", "\u0069d": 99999999999999999999}"#, "id"),
            ("[[], 99999999999999999999]", "1"),
            ("99999999999999999999", ""),
        ] {
            assert_eq!(find_rounded(json).as_deref(), Some(place), "{json}");
            assert_eq!(parse_exact(json.to_owned()), Err(json.to_owned()));
        }
    }

    #[test]
    fn numbers_that_are_held_or_meant_to_be_near_are_none_of_them() {
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
