//! Folds what people do about turns.

use crate::context::LeftBranch;
use crate::event::RewindPoint;
use crate::event::{Event, Rewound, Steered};
use crate::state::State;

pub(super) fn withdraw(state: &mut State, event: &Event) {
    state.queue.retain(|queued| Some(&queued.id) != event.turn_id.as_ref());
}

pub(super) fn steer(state: &mut State, event: &Event, steered: &Steered) {
    if let Some(turn) = &mut state.turn {
        turn.steering.add(event.seq, steered.identity.as_deref());
    }
}

/// What was approved in the conversation holds no more; what an agent is still to learn does.
pub(super) fn rewind(state: &mut State, event: &Event, rewound: &Rewound) {
    let RewindPoint { context, todos, state: key_values, planning } = rewound.point.clone();
    state.context = context;
    let left = LeftBranch { after: rewound.to_seq, until: event.seq };
    state.context.left_branches.push(left);
    (state.todos, state.key_values, state.planning_override) = (todos, key_values, planning);
    let State { decisions, unpublished, .. } = state;
    decisions.retain(|id, _| unpublished.contains_key(id));
}
