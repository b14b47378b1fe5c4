//! Types whose values have golden lines, `{"of": TYPE, "json": VALUE}` each.

use std::collections::BTreeSet;

use abide_conversation::from_json;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::lines::{includes, texts};
use crate::variants::{listed, tagged};

/// A type, how it is read and written again, and the names that its lines must have among them.
pub(crate) struct Kind {
    name: &'static str,
    again: fn(&Value) -> Result<Value, String>,
    tag: Option<&'static str>,
    names: &'static [&'static str],
}

/// A struct, or an enum that names its variants from outside.
pub(crate) fn kind<T: Serialize + DeserializeOwned>(name: &'static str) -> Kind {
    Kind { name, again: again::<T>, tag: None, names: listed::<T>() }
}

/// An enum that names its variants in a field.
pub(crate) fn kind_by<T: Serialize + DeserializeOwned>(
    name: &'static str,
    tag: &'static str,
) -> Kind {
    Kind { name, again: again::<T>, tag: Some(tag), names: tagged::<T>(tag) }
}

fn again<T: Serialize + DeserializeOwned>(json: &Value) -> Result<Value, String> {
    let read: T = from_json(json.to_string().as_bytes()).map_err(|error| error.to_string())?;
    serde_json::to_value(read).map_err(|error| error.to_string())
}

/// Fails unless each line of the file reads, is written again as it was, and every name has a line.
pub(crate) fn check(file: &str, kinds: &[Kind]) {
    let lines: Vec<Value> = texts(file).iter().map(|l| serde_json::from_str(l).unwrap()).collect();
    for line in &lines {
        let kind = kinds.iter().find(|kind| line["of"] == kind.name);
        let kind = kind.unwrap_or_else(|| panic!("{file} has a type that nobody knows: {line}"));
        let written = (kind.again)(&line["json"]);
        let written = written.unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(includes(&written, &line["json"]), "stored {line}\nwritten {written}");
        assert_eq!((kind.again)(&written), Ok(written), "{line}");
    }
    for kind in kinds {
        let values = lines.iter().filter(|line| line["of"] == kind.name).map(|line| &line["json"]);
        let has: BTreeSet<&str> = values.flat_map(|value| names(value, kind.tag)).collect();
        assert!(!has.is_empty(), "{file} has no {}", kind.name);
        let missing: Vec<_> = kind.names.iter().filter(|name| !has.contains(**name)).collect();
        assert!(missing.is_empty(), "{file} has no {} with {missing:?}", kind.name);
    }
}

/// The variant that a value is, or the fields that it has.
fn names<'v>(value: &'v Value, tag: Option<&str>) -> Vec<&'v str> {
    match (value, tag) {
        (value, Some(tag)) => value[tag].as_str().into_iter().collect(),
        (Value::String(name), None) => vec![name],
        (Value::Object(fields), None) => fields.keys().map(String::as_str).collect(),
        _ => vec!["value"],
    }
}
