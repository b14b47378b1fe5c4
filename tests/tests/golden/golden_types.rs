//! Types whose values have golden lines, `{"of": TYPE, "json": VALUE}` each.

use std::collections::BTreeSet;

use abide_conversation::from_json;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::lines::{includes, lines};
use crate::variants::{serde_names, tagged_names};

/// A type, its round trip, and the names that its golden lines must cover.
pub(crate) struct GoldenType {
    name: &'static str,
    round_trip: fn(&Value) -> Result<Value, String>,
    tag: Option<&'static str>,
    names: &'static [&'static str],
}

/// A struct, or an externally tagged enum.
pub(crate) fn golden<T: Serialize + DeserializeOwned>(name: &'static str) -> GoldenType {
    GoldenType { name, round_trip: round_trip::<T>, tag: None, names: serde_names::<T>() }
}

/// An internally tagged enum.
pub(crate) fn internally_tagged<T: Serialize + DeserializeOwned>(
    name: &'static str,
    tag: &'static str,
) -> GoldenType {
    GoldenType { name, round_trip: round_trip::<T>, tag: Some(tag), names: tagged_names::<T>(tag) }
}

fn round_trip<T: Serialize + DeserializeOwned>(json: &Value) -> Result<Value, String> {
    let read: T = from_json(json.to_string().as_bytes()).map_err(|error| error.to_string())?;
    serde_json::to_value(read).map_err(|error| error.to_string())
}

/// Fails unless each line of the file survives a round trip, and every name has a line.
pub(crate) fn check(file: &str, types: &[GoldenType]) {
    let golden_lines: Vec<Value> =
        lines(file).iter().map(|l| serde_json::from_str(l).unwrap()).collect();
    for line in &golden_lines {
        let golden_type = types.iter().find(|golden_type| line["of"] == golden_type.name);
        let golden_type =
            golden_type.unwrap_or_else(|| panic!("{file} has a line of an unknown type: {line}"));
        let written = (golden_type.round_trip)(&line["json"]);
        let written = written.unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(includes(&written, &line["json"]), "stored {line}\nwritten {written}");
        assert_eq!((golden_type.round_trip)(&written), Ok(written), "{line}");
    }
    for golden_type in types {
        let values = golden_lines
            .iter()
            .filter(|line| line["of"] == golden_type.name)
            .map(|line| &line["json"]);
        let has: BTreeSet<&str> = values.flat_map(|value| names(value, golden_type.tag)).collect();
        assert!(!has.is_empty(), "{file} has no {}", golden_type.name);
        let missing: Vec<_> =
            golden_type.names.iter().filter(|name| !has.contains(**name)).collect();
        assert!(missing.is_empty(), "{file} has no {} with {missing:?}", golden_type.name);
    }
}

/// The variant of a value, or its fields.
fn names<'v>(value: &'v Value, tag: Option<&str>) -> Vec<&'v str> {
    match (value, tag) {
        (value, Some(tag)) => value[tag].as_str().into_iter().collect(),
        (Value::String(name), None) => vec![name],
        (Value::Object(fields), None) => fields.keys().map(String::as_str).collect(),
        _ => vec!["value"],
    }
}
