//! When a conversation may end by itself.

use jiff::SignedDuration;

use super::Rejection;
use super::draft::Draft;
use crate::Timestamp;

/// How far ahead the end of a conversation may be: ten years.
const MAX_AHEAD: SignedDuration = SignedDuration::from_hours(24 * 3_652);

/// Refuses an end that has passed, so that nobody deletes a conversation by mistake, and one that is
/// too far ahead to be meant.
pub(super) fn check_expires_at(
    draft: &Draft,
    expires_at: Option<Timestamp>,
) -> Result<(), Rejection> {
    let Some(expires_at) = expires_at else { return Ok(()) };
    let refuse = |rule: &str| {
        Err(Rejection::Invalid { field: "expires_at".into(), rule: rule.to_owned().into() })
    };
    if draft.state.parent.is_some() {
        return refuse("must be absent: the conversation of a sub-agent ends with its parent");
    }
    let last = draft.at.checked_add(MAX_AHEAD).unwrap_or(Timestamp::MAX);
    if draft.at < expires_at && expires_at <= last {
        return Ok(());
    }
    refuse("must be in the future, and at most ten years ahead")
}
