//! The actions of random conversations, from rolls of the dice.

use serde_json::json;

use super::random_driver::Roll;
use super::scenario::*;
use super::voters::*;
use super::waiting::{some_rules, with_rules};
use crate::command::*;
use crate::context::ContextMarks;
use crate::elicitation::InputRequest;
use crate::event::{Executor, Summarized, Todo, TodoStatus};
use crate::message::{ErrorType, Outcome, StopReason, text_block};
use crate::permission::{Decision, PermissionPhase};
use crate::state::PendingCall;
use crate::usage::Usage;
use crate::{MessageId, Seq, State, Step, TurnId};

/// Ids that a hostile provider may use.
const PROVIDER_IDS: [&str; 12] =
    ["a", "a", "a~2", "a~t1", "a~t2", "a~t2~2", "", "call", "..", "\u{1F600} /", "a~t3~3", "b"];

pub(super) fn asks(ms: u16) -> Option<InputRequest> {
    let asks = || InputRequest {
        message: "Which?".to_owned(),
        requests: json!({"form": {}}),
        request_state: Some("s1".to_owned()),
    };
    (ms % 3 == 1).then(asks)
}

pub(super) fn verdict_of(how: u8) -> MessageVerdict {
    match how % 13 {
        4 => MessageVerdict::Halt("hook".to_owned()),
        5 => MessageVerdict::Refuse { hook: "guard".to_owned(), reason: "rude".to_owned() },
        _ => MessageVerdict::Accept,
    }
}

/// Half of all conversations are children.
pub(super) fn create_random(roll: Roll) -> Create {
    Create { parent: roll.which.is_multiple_of(2).then(|| Box::new(parent())), ..create() }
}

pub(super) fn decision(which: u8) -> Decision {
    [Decision::Allow, Decision::Ask, Decision::Deny][usize::from(which % 3)]
}

pub(super) fn changes(how: u8) -> Vec<StateChange> {
    let todo = Todo { content: "x".to_owned(), status: TodoStatus::Pending };
    let phase = PermissionPhase::Plan;
    match how % 5 {
        0 => vec![StateChange::Todos(vec![todo])],
        1 => vec![StateChange::Phase { phase, planning: how.is_multiple_of(2) }],
        _ => Vec::new(),
    }
}

pub(super) fn answer_to(pending: &PendingCall, roll: Roll) -> Action {
    let call = pending.call_id.as_str();
    let suspension = Some(pending.suspension).filter(|_| roll.how.is_multiple_of(2));
    let answer = match (pending.kind, roll.how % 5) {
        (crate::event::SuspensionKind::Approval, 0) => deny(call, None),
        (crate::event::SuspensionKind::Approval, 1) => approve_with(call, json!(null)),
        (crate::event::SuspensionKind::Approval, _) => approve(call, suspension),
        (crate::event::SuspensionKind::InDoubt, 2 | 3) => again(call, suspension),
        (_, 0) => answer_error(call, "no"),
        (_, _) => answer(call, suspension, json!({"how": roll.how})),
    };
    let Some(votes) = &pending.votes else { return answer };
    let has_voted = |voter: &&str| votes.iter().any(|vote| vote.by == *voter);
    let next = VOTERS.into_iter().find(|voter| !has_voted(voter));
    match roll.ms % 4 {
        3 => voted_by(VOTERS[usize::from(roll.which) % VOTERS.len()], answer),
        _ => voted_by(next.unwrap_or("nobody"), answer),
    }
}

/// A summary that follows the last one, or a failed one.
pub(super) fn summarized(state: &State, upto: Seq, how: u8) -> Action {
    let after = state.context.summary.map_or(Seq::ZERO, |summary| summary.upto);
    if how.is_multiple_of(3) || upto <= after {
        return Action::SummaryFailed { reason: "the model is away".to_owned() };
    }
    let summarized = Summarized {
        upto,
        marks: ContextMarks { read_from: upto, shown_from: upto, ..ContextMarks::default() },
        text: "short".to_owned(),
        usage: None,
        tokens_before: 9,
        tokens_after: 1,
    };
    Action::Summarized { after, summarized }
}

/// A reply with these calls to what the model had read of the journal.
pub(super) fn reply(
    turn: &TurnId,
    step: Step,
    (calls, context_seq): (Vec<PlannedCall>, Seq),
    how: u8,
) -> Action {
    let object = match how % 9 {
        7 => Some(Ok(json!(null))),
        8 => Some(Err("bad".to_owned())),
        _ => None,
    };
    Action::ModelReplied(ModelReplied {
        turn: turn.clone(),
        step,
        id: MessageId::new(format!("msg_{step}")),
        content: vec![text_block("said")],
        calls,
        usage: (how % 5 == 1).then(|| Usage { input_tokens: 300, ..Usage::default() }),
        stop: [None, Some(StopReason::Paused), Some(StopReason::Refusal)][usize::from(how / 9 % 3)],
        verbatim: None,
        fallback: None,
        context_tokens: (how % 4 != 3).then_some(u64::from(how)),
        context_seq,
        object,
        verdict: verdict_of(how),
    })
}

/// Up to five calls of random kinds.
pub(super) fn planned(roll: Roll, seq: Seq) -> Vec<PlannedCall> {
    let kinds = |n: u8| {
        let seed =
            (roll.ms / 64).wrapping_mul(31).wrapping_add(u16::from(n) * 7 + u16::from(roll.how));
        let id = PROVIDER_IDS[usize::from(seed / 8) % PROVIDER_IDS.len()];
        let planned = match seed % 9 {
            0 | 1 => server(id),
            2 if seed.is_multiple_of(2) => gated(id),
            2 => with_policy(gated(id), two_of_three()),
            3 => human(id),
            4 => client(id),
            5 => gated_client(id),
            6 => answered_call(id, Executor::Provider, outcome(roll.how)),
            7 => answered_call(id, Executor::Client, outcome(roll.how)),
            _ => call(id, Executor::Provider, seed.is_multiple_of(2)),
        };
        let planned = if seed % 7 == 1 { with_child(id, &format!("{seq}_{n}")) } else { planned };
        let planned = if seed % 5 < 3 { with_rules(planned, some_rules(seed)) } else { planned };
        match seed % 8 {
            3 => run_once(planned),
            7 => asking(planned, None),
            _ => planned,
        }
    };
    (0..roll.which / 8 % 6).map(kinds).collect()
}

pub(super) fn outcome(how: u8) -> Outcome {
    match how % 3 {
        0 => Outcome::Err("broken".to_owned(), ErrorType::ToolError),
        _ => Outcome::Ok(json!(how)),
    }
}
