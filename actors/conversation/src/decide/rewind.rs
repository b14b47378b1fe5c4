//! A conversation goes on from an earlier event, with or without the message that came next.

use super::draft::Draft;
use super::schedule::user_msg;
use super::{Rejection, start};
use crate::branch::BranchTip;
use crate::command::{Regenerate, Rewind};
use crate::event::{EventData, Rewound};

/// Each branch is part of the state.
const MAX_LEFT_BRANCHES: usize = 1_000;

/// Nothing may be under way: what runs would end in a branch that it did not begin in.
pub(super) fn rewind(draft: &mut Draft, rewind: Rewind) -> Result<(), Rejection> {
    let Rewind { to_seq, point, by, identity } = rewind;
    let state = &draft.state;
    let is_busy = state.turn.is_some()
        || !state.queue.is_empty()
        || !state.dispatches.is_empty()
        || state.owed_report.is_some();
    if is_busy {
        return Err(Rejection::TurnInFlight);
    }
    let invalid =
        |rule: &'static str| Rejection::Invalid { field: "to_seq".into(), rule: rule.into() };
    if to_seq > state.seq {
        return Err(invalid("is beyond the last event"));
    }
    if point.context.left_branches.len() >= MAX_LEFT_BRANCHES {
        return Err(invalid("is after 1000 rewinds that count, the most that may be"));
    }
    draft.push_in(None, EventData::Rewound(Rewound { to_seq, by, identity, point }));
    Ok(())
}

pub(super) fn regenerate(draft: &mut Draft, regenerate: Regenerate) -> Result<(), Rejection> {
    let Regenerate { rewind: to, tip, send, steering } = regenerate;
    if tip != BranchTip::of(&draft.state) {
        return Err(Rejection::TurnInFlight);
    }
    rewind(draft, to)?;
    let (turn, settings) = (send.turn_id.clone(), send.settings.clone());
    draft.push_in(Some(turn.clone()), EventData::UserMsg(user_msg(send)));
    start::begin_turn(draft, turn, settings);
    for steered in steering {
        draft.push(EventData::Steered(steered));
    }
    Ok(())
}
