//! When a conversation may end by itself.

use jiff::SignedDuration;

use super::Rejection;
use super::draft::Draft;
use crate::Timestamp;

const END_RULE: &str = "must be in the future, and at most ten years ahead";
/// How far ahead the end of a conversation may be: ten years.
const MAX_AHEAD: SignedDuration = SignedDuration::from_hours(24 * 3_652);

/// Refuses an end that has passed, so that nobody deletes a conversation by mistake, and one that
/// is too far ahead to be meant.
pub(super) fn check_expires_at(
    draft: &Draft,
    expires_at: Option<Timestamp>,
) -> Result<(), Rejection> {
    let has_passed = expires_at.is_some_and(|expires_at| expires_at <= draft.at);
    let checked = check_end(draft.state.parent.is_some(), draft.at, expires_at);
    let checked = checked.and(if has_passed { Err(END_RULE) } else { Ok(()) });
    checked.map_err(|rule| Rejection::Invalid { field: "expires_at".into(), rule: rule.into() })
}

/// Refuses an end that is too far ahead of the time at which it was given to be meant, and that of a
/// child.
pub(crate) fn check_end(
    is_child: bool,
    at: Timestamp,
    expires_at: Option<Timestamp>,
) -> Result<(), &'static str> {
    let Some(expires_at) = expires_at else { return Ok(()) };
    if is_child {
        return Err("must be absent: the conversation of a sub-agent ends with its parent");
    }
    let last = at.checked_add(MAX_AHEAD).unwrap_or(Timestamp::MAX);
    if expires_at <= last { Ok(()) } else { Err(END_RULE) }
}
