//! Equality and uniqueness of values, charged step by step.
//!
//! The library's own uniqueness check compares all values whose hashes are equal, and hashes of
//! nested arrays are equal for many different shapes.

use std::collections::HashSet;
use std::fmt::Write;

use jsonschema::json::cmp;
use serde_json::{Number, Value};

use super::meter::charge;

/// The bytes of strings that are compared in one step.
const COMPARED_BYTES_PER_STEP: usize = 256;
/// The bytes of canonical text that are written in one step.
const WRITTEN_BYTES_PER_STEP: usize = 16;

/// Whether the two are the same JSON; numbers are compared by value.
pub(super) fn is_equal(left: &Value, right: &Value) -> bool {
    charge(1);
    match (left, right) {
        (Value::Array(left), Value::Array(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(l, r)| is_equal(l, r))
        }
        (Value::Object(left), Value::Object(right)) => {
            let is_member = |(name, value): (&String, &Value)| {
                charge_bytes(name.len(), COMPARED_BYTES_PER_STEP);
                right.get(name).is_some_and(|other| is_equal(value, other))
            };
            left.len() == right.len() && left.iter().all(is_member)
        }
        (Value::String(left), Value::String(right)) if left.len() == right.len() => {
            charge_bytes(left.len(), COMPARED_BYTES_PER_STEP);
            left == right
        }
        (Value::Number(_), Value::Number(_)) => cmp::equal(left, right),
        (Value::Null, Value::Null) => true,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        _ => false,
    }
}

/// Whether no two of the values are equal.
pub(super) fn are_unique(values: &[Value]) -> bool {
    let mut seen = HashSet::new();
    values.iter().all(|value| {
        let mut text = String::new();
        write_canonical(value, &mut text);
        seen.insert(text)
    })
}

/// Writes a text that is the same for equal values only.
fn write_canonical(value: &Value, text: &mut String) {
    let before = text.len();
    match value {
        Value::Number(number) => write_number(number, text),
        Value::Array(items) => {
            text.push('[');
            for item in items {
                write_canonical(item, text);
                text.push(',');
            }
            text.push(']');
        }
        Value::Object(object) => {
            let mut members: Vec<_> = object.iter().collect();
            members.sort_unstable_by_key(|(name, _)| *name);
            text.push('{');
            for (name, value) in members {
                write_string(name, text);
                write_canonical(value, text);
                text.push(',');
            }
            text.push('}');
        }
        Value::String(string) => write_string(string, text),
        Value::Null => text.push('n'),
        Value::Bool(value) => text.push(if *value { 't' } else { 'f' }),
    }
    charge_bytes(text.len() - before, WRITTEN_BYTES_PER_STEP);
}

/// Writes its length first, so that no string can look like the end of one.
fn write_string(string: &str, text: &mut String) {
    // Writing to a string cannot fail.
    let _ = write!(text, "{}:", string.len());
    text.push_str(string);
}

/// Writes all digits of a whole number, so that `1` and `1.0` are equal.
fn write_number(number: &Number, text: &mut String) {
    let _ = match number.as_f64() {
        _ if number.is_i64() || number.is_u64() => write!(text, "{number}"),
        Some(0.0) => write!(text, "0"),
        Some(whole) if whole.fract() == 0.0 => write!(text, "{whole:.0}"),
        Some(_) | None => write!(text, "{number}"),
    };
}

fn charge_bytes(bytes: usize, bytes_per_step: usize) {
    charge(u64::try_from(1 + bytes / bytes_per_step).unwrap_or(u64::MAX));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_unique_unless_two_are_the_same_json() {
        for unique in [
            json!([]),
            json!([1, "1", true, null, [1], {"a": 1}, 1.5, -1]),
            json!([[[1], 2], [1, [2]], [[1, 2]], [1, 2]]),
            json!([{"a": "b,c"}, {"a": "b", "c": ""}, "a:", "a"]),
            json!([9_007_199_254_740_993_u64, 9_007_199_254_740_992.0]),
        ] {
            assert!(are_unique(unique.as_array().map_or(&[], Vec::as_slice)), "{unique}");
        }
        for twice in [
            json!([1, 2, 1.0]),
            json!([0, -0.0]),
            json!([{"a": 1, "b": [2]}, {"b": [2.0], "a": 1}]),
            json!([1e20, 100_000_000_000_000_000_000.0]),
        ] {
            assert!(!are_unique(twice.as_array().map_or(&[], Vec::as_slice)), "{twice}");
        }
    }

    #[test]
    fn equal_values_are_the_same_json() {
        let value = json!({"a": [1, "x", null], "b": {"c": true}});
        assert!(is_equal(&value, &json!({"b": {"c": true}, "a": [1.0, "x", null]})));
        for other in [
            json!({"a": [1, "x", null]}),
            json!({"a": [1, "x"], "b": {"c": true}}),
            json!({"a": [1, "y", null], "b": {"c": true}}),
            json!({"a": [1, "x", null], "b": {"c": false}}),
        ] {
            assert!(!is_equal(&value, &other), "{other}");
        }
    }
}
