//! Reads events and states back from JSON exactly as they were written.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Reads what this crate wrote, however deep the values inside it are.
///
/// A value from outside may be as deep as serde_json reads by default, and stands a few levels
/// deeper in its event, where the default would refuse it. Only for JSON that was written here:
/// depth is then bounded by what the border let in.
pub fn from_json<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    deserializer.disable_recursion_limit();
    let value = T::deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// A field that is there is `Some`, also when it is `null`.
pub fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(from).map(Some)
}
