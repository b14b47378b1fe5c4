//! Times in requests.

use abide_conversation::Timestamp;
use serde::Deserialize;
use serde::de::{Deserializer, Error as _};

/// Reads a time. One that no clock shows is refused with words of ours.
pub(super) fn optional<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Timestamp>, D::Error> {
    let Some(text) = Option::<String>::deserialize(from)? else { return Ok(None) };
    let wrong =
        |_| D::Error::custom("must be a time such as 2030-01-01T09:00:00Z, within ten years");
    text.parse().map(Some).map_err(wrong)
}

/// Reads a time, or null, which is not the same as nothing.
pub(super) fn nullable<'de, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Option<Timestamp>>, D::Error> {
    optional(from).map(Some)
}
