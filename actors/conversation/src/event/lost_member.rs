//! Finds what this program would lose of an event that another one wrote.

use serde_json::Value;

use super::Event;
use crate::json::from_json;

/// How much of a path is shown: names of members may be long.
const MAX_PATH_CHARS: usize = 200;

/// The first member of an event's JSON, as a path, that the parsed event does not have, so that it
/// is lost when the event is written again. A member that is null or empty counts as absent.
///
/// `json` must be no deeper than what this program writes.
pub fn lost_member(json: &[u8], event: &Event) -> serde_json::Result<Option<String>> {
    let written = serde_json::to_vec(event)?;
    if written == json.trim_ascii() {
        return Ok(None);
    }
    let (stored, written): (Value, Value) = (from_json(json)?, from_json(&written)?);
    let path = lost(&stored, &written);
    Ok(path.map(|path| path.trim_start_matches('.').chars().take(MAX_PATH_CHARS).collect()))
}

fn lost(stored: &Value, written: &Value) -> Option<String> {
    match (stored, written) {
        (Value::Object(stored), Value::Object(written)) => {
            stored.iter().find_map(|(name, stored)| {
                let rest = match written.get(name) {
                    Some(written) => lost(stored, written)?,
                    None if is_empty(stored) => return None,
                    None => String::new(),
                };
                Some(format!(".{name}{rest}"))
            })
        }
        (Value::Array(stored), Value::Array(written)) => {
            let mut pairs = stored.iter().zip(written).enumerate();
            pairs.find_map(|(index, (stored, written))| {
                Some(format!("[{index}]{}", lost(stored, written)?))
            })
        }
        _ => None,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn lost_of(json: &str) -> Option<String> {
        let event = from_json(json.as_bytes()).unwrap();
        lost_member(json.as_bytes(), &event).unwrap()
    }

    const CALLS: &str = r#"{"seq":4,"at":"2026-11-22T10:00:00Z","turn_id":"t","type":"assistant_msg","data":{"message":{"id":"m","role":"assistant","content":[{"type":"new","x":1}],"tool_calls":[{"id":"a","name":"n","args":{"any":1}}]},"status":"complete","step":1}}"#;

    #[test]
    fn what_is_known_or_passes_through_is_not_lost() {
        assert_eq!(lost_of(CALLS), None);
        assert_eq!(lost_of(&CALLS.replace("00Z", "00.000Z")), None, "another spelling");
        for absent in [r#""usage":null"#, r#""any":[]"#, r#""any":{}"#] {
            assert_eq!(
                lost_of(&CALLS.replace(r#""step":1"#, &format!(r#"{absent},"step":1"#))),
                None
            );
        }
    }

    #[test]
    fn a_member_of_a_newer_version_is_named_with_its_path() {
        for (from, to, path) in [
            (r#""seq":4"#, r#""epoch":7,"seq":4"#, "epoch"),
            (r#""step":1"#, r#""step":1,"mood":false"#, "data.mood"),
            (r#""role""#, r#""tone":{"x":1},"role""#, "data.message.tone"),
            (r#""name":"n""#, r#""name":"n","why":"x""#, "data.message.tool_calls[0].why"),
        ] {
            assert_eq!(lost_of(&CALLS.replace(from, to)).as_deref(), Some(path));
        }
    }

    #[test]
    fn a_long_name_is_cut() {
        let name = "n".repeat(10_000);
        let json = CALLS.replace(r#""seq":4"#, &format!(r#""{name}":7,"seq":4"#));
        assert_eq!(lost_of(&json).unwrap().len(), MAX_PATH_CHARS);
    }
}
