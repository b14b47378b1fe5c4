//! A suspension is to wait longer.

use super::Rejection;
use super::draft::Draft;
use super::settle::add_millis;
use crate::Timestamp;
use crate::approval::VoteRefusal;
use crate::command::{Extend, Extension};
use crate::event::{EventData, SuspensionExtended};

/// A suspension waits for at most a year, however often it is extended.
const MAX_WAIT_MS: u64 = 365 * 24 * 60 * 60 * 1_000;

pub(super) fn extend(draft: &mut Draft, extend: Extend) -> Result<(), Rejection> {
    let Extend { call, suspension, extension, by, identity } = extend;
    let closed = |why: &'static str| Rejection::CallNotOpen(why.into());
    let known = draft.state.call(&call).ok_or_else(|| closed("no such open call"))?;
    let open = known.open_suspension().ok_or_else(|| closed("the call is not suspended"))?;
    if suspension.is_some_and(|number| number != open.suspension) {
        return Err(closed("that suspension of the call is closed"));
    }
    if draft.at >= open.expires_at {
        return Err(closed("the suspension has expired"));
    }
    let policy = open.approval.as_ref().map(|approval| &approval.policy);
    if let (Some(policy), Some(identity)) = (policy, &identity)
        && !policy.asks(identity.acting())
    {
        return Err(Rejection::VoteRefused(VoteRefusal::Role));
    }
    let (field, expires_at) = match extension {
        Extension::For(ms) => ("for", add_millis(open.expires_at, ms)),
        Extension::Until(until) => ("until", until),
    };
    check_expiry(field, open.expires_at, expires_at, add_millis(open.since, MAX_WAIT_MS))?;
    let suspension = open.suspension;
    draft.push(EventData::SuspensionExtended(SuspensionExtended {
        call_id: call,
        suspension,
        expires_at,
        by,
        identity,
    }));
    Ok(())
}

fn check_expiry(
    field: &'static str,
    before: Timestamp,
    after: Timestamp,
    last: Timestamp,
) -> Result<(), Rejection> {
    if after > last {
        let rule = "must be at most 365 days after the beginning of the suspension";
        return Err(Rejection::Invalid { field: field.into(), rule: rule.into() });
    }
    if after <= before {
        let rule = "must be after the present expiry";
        return Err(Rejection::Invalid { field: field.into(), rule: rule.into() });
    }
    Ok(())
}
