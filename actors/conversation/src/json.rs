//! Reads events and states back from JSON exactly as they were written.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

/// Reads what this crate wrote, however deep the values inside it are.
///
/// A value from outside may be as deep as serde_json's default limit allows. In its event it is
/// nested a few levels deeper, which the default limit would refuse. Only for JSON that was written
/// here: its depth is bounded by the limit on input.
pub fn from_json<T: DeserializeOwned>(json: &[u8]) -> serde_json::Result<T> {
    let mut deserializer = serde_json::Deserializer::from_slice(json);
    deserializer.disable_recursion_limit();
    let value = T::deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(value)
}

/// For `deserialize_with`: a field that is present is `Some`, even if it is `null`.
pub fn keep_null<'de, D, T>(from: D) -> Result<Option<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    T::deserialize(from).map(Some)
}
