//! The alarm rang: what is past its deadline expires. Ringing twice is harmless.

use super::draft::Draft;
use super::settle::settle;
use crate::message::ErrorType;

pub(super) fn wake(draft: &mut Draft) {
    for call in draft.open_calls() {
        if call.waiting().is_some_and(|waiting| waiting.expires_at <= draft.at) {
            draft.error(call.id, "timed out: no response", ErrorType::Expired);
        }
    }
    settle(draft);
}
