//! Reads events back from JSON. An event of a type that this program does not know is kept as it
//! is.

use serde::de::value::MapDeserializer;
use serde::{Deserialize, Serialize, Serializer, de};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Event, EventData};
use crate::Timestamp;
use crate::ids::TurnId;
use crate::json::from_json;
use crate::numbers::Seq;

/// An event that a newer program wrote; this program only counts it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Unknown {
    #[serde(rename = "type")]
    pub kind: String,
    pub data: Value,
}

/// An event whose type is not parsed yet.
#[derive(Deserialize)]
pub(super) struct StoredEvent {
    seq: Seq,
    at: Timestamp,
    #[serde(default)]
    turn_id: Option<TurnId>,
    #[serde(rename = "type")]
    kind: String,
    data: Box<RawValue>,
}

impl TryFrom<StoredEvent> for Event {
    type Error = serde_json::Error;

    fn try_from(stored: StoredEvent) -> Result<Self, Self::Error> {
        let StoredEvent { seq, at, turn_id, kind, data } = stored;
        let json = format!(r#"{{"type":{},"data":{data}}}"#, Value::from(kind.as_str()));
        let data = match from_json(json.as_bytes()) {
            Err(_) if !is_known(&kind) => {
                EventData::Unknown(Unknown { kind, data: from_json(data.get().as_bytes())? })
            }
            read => read?,
        };
        Ok(Self { seq, at, turn_id, data })
    }
}

/// Serializes the type and the data of an event, flattened into the event.
pub(super) fn write<S: Serializer>(data: &EventData, to: S) -> Result<S::Ok, S::Error> {
    match data {
        EventData::Unknown(unknown) => unknown.serialize(to),
        known => known.serialize(to),
    }
}

/// Whether this program knows the type. If so, an error in the data must be reported.
fn is_known(kind: &str) -> bool {
    let only_type = MapDeserializer::new([("type", kind)].into_iter());
    !matches!(EventData::deserialize(only_type), Err(Complaint::Type))
}

/// Why an event that consists of nothing but its type cannot be parsed.
#[derive(Debug)]
enum Complaint {
    Type,
    Rest,
}

impl de::Error for Complaint {
    fn custom<T: std::fmt::Display>(_: T) -> Self {
        Self::Rest
    }

    fn unknown_variant(_: &str, _: &'static [&'static str]) -> Self {
        Self::Type
    }
}

impl std::error::Error for Complaint {}

impl std::fmt::Display for Complaint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{self:?}")
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use crate::event::EventData;
    use crate::{Event, Seq, State, from_json, replay};

    const NEWER: &str = r#"{"seq":8,"at":"2026-11-22T10:00:00.000Z","turn_id":"turn_1","type":"mused","data":{"on":{"n":1.5},"by":["a",null]}}"#;

    fn read(json: &str) -> serde_json::Result<Event> {
        from_json(json.as_bytes())
    }

    #[test]
    fn an_event_of_an_unknown_type_is_written_as_it_was_read() {
        let event = read(NEWER).unwrap();
        assert!(matches!(&event.data, EventData::Unknown(unknown) if unknown.kind == "mused"));
        assert_eq!(serde_json::to_string(&event).unwrap(), NEWER);
        let value = serde_json::to_value(&event).unwrap();
        assert_eq!(serde_json::from_value::<Event>(value).unwrap(), event);
    }

    #[test]
    fn an_event_of_an_unknown_type_counts_and_changes_nothing_else() {
        let (created, newer) = (read(CREATED).unwrap(), read(NEWER).unwrap());
        let before = replay(State::default(), [&created]);
        let after = replay(before.clone(), [&newer]);
        assert_eq!(after, State { seq: Seq::new(8), has_unknown_events: true, ..before });
    }

    const CREATED: &str =
        r#"{"seq":1,"at":"2026-11-22T10:00:00Z","type":"created","data":{"agent":"a"}}"#;

    #[test]
    fn what_is_wrong_with_an_event_of_a_known_type_is_told() {
        let broken = CREATED.replace(r#""agent":"a""#, r#""agent":7"#);
        let error = read(&broken).unwrap_err().to_string();
        assert!(error.contains("invalid type: integer `7`, expected a string"), "{error}");
        let error = read(&NEWER.replace(r#""data""#, r#""date""#)).unwrap_err().to_string();
        assert!(error.contains("missing field `data`"), "{error}");
    }
}
