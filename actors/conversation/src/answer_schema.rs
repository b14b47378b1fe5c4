//! The JSON Schema of an answer, which everybody passes on and nobody here reads.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// The JSON Schema of an answer to a suspended call. It is held as text, because it is written into
/// the journal, the inbox, the snapshot and a frame of each suspension. Cheap to clone.
#[derive(Clone, Debug)]
pub struct AnswerSchema(Arc<RawValue>);

impl AnswerSchema {
    /// The schema as JSON.
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// The schema as a value.
    pub fn to_value(&self) -> Value {
        serde_json::from_str(self.text()).unwrap_or_default()
    }
}

impl From<&Value> for AnswerSchema {
    fn from(schema: &Value) -> Self {
        // A JSON value can always be written.
        let text = to_raw_value(schema).unwrap_or_else(|_| RawValue::NULL.to_owned());
        Self(Arc::from(text))
    }
}

impl PartialEq for AnswerSchema {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Eq for AnswerSchema {}

impl Serialize for AnswerSchema {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(to)
    }
}

impl<'de> Deserialize<'de> for AnswerSchema {
    /// Takes the detour over a value, because text is lost where members of a type are collected
    /// before it is known.
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Value::deserialize(from).map(|schema| Self::from(&schema))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_is_written_as_it_was_read_in_text_and_in_values() {
        let schema = json!({"type": "object", "properties": {"b": {"const": 1.0}, "a": true}});
        let held: AnswerSchema = serde_json::from_value(schema.clone()).unwrap();
        assert_eq!(held.text(), schema.to_string());
        assert_eq!(
            serde_json::to_string(&json!({"s": held})).unwrap(),
            format!("{{\"s\":{schema}}}")
        );
        assert_eq!(serde_json::to_value(&held).unwrap(), schema);
        assert_eq!(serde_json::from_str::<AnswerSchema>(held.text()).unwrap(), held);
    }
}
