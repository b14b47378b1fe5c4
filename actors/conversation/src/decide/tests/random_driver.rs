//! Runs random conversations, with legal and illegal commands, and finishes what is left open.

use proptest::prelude::*;
use serde_json::json;

use super::external;
use super::operate::operate;
use super::random_actions::*;
use super::scenario::*;
use super::update::update;
use crate::command::*;
use crate::context::ContextMarks;
use crate::event::{AddedContext, ContextReduced, Event, OnInterrupt, ReductionReason};
use crate::message::text_block;
use crate::remembered_decision::{Extent, Match, Scope};
use crate::{
    Activity, CallId, ConversationId, DecisionId, MessageId, Principal, Revision, Seq, State, Step,
    Timestamp, TurnId, checked_fold, decide, wanted,
};

/// One roll of the dice. Its meaning depends on the state that it meets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Roll {
    pub(super) what: u8,
    pub(super) which: u8,
    pub(super) how: u8,
    pub(super) ms: u16,
}

pub(super) fn rolls(length: usize) -> impl Strategy<Value = Vec<Roll>> {
    let roll = |bits: u32| {
        let [what, which, how, ms] = bits.to_le_bytes();
        Roll { what, which, how, ms: u16::from(ms) * 64 }
    };
    let split = move |bits: Vec<u32>| bits.into_iter().map(roll).collect();
    prop::collection::vec(any::<u32>(), 0..length).prop_map(split)
}

pub(super) struct RandomRun {
    pub(super) state: State,
    pub(super) journal: Vec<Event>,
    pub(super) at: Timestamp,
}

impl RandomRun {
    pub(super) fn from_rolls(rolls: &[Roll]) -> Self {
        let scenario = Scenario::empty();
        let mut run = Self { state: scenario.state, journal: Vec::new(), at: scenario.at };
        for (n, roll) in rolls.iter().enumerate() {
            let later = jiff::SignedDuration::from_millis(i64::from(roll.ms));
            run.at = run.at.checked_add(later).unwrap();
            let action = run.action(n, *roll);
            run.play(action);
        }
        run
    }

    pub(super) fn play(&mut self, action: Action) -> bool {
        let Ok(events) = decide(&self.state, Command { at: self.at, action }) else {
            return false;
        };
        self.state = events.iter().fold(std::mem::take(&mut self.state), |state, event| {
            checked_fold(state, event).unwrap_or_else(|error| panic!("{error}: {event:?}"))
        });
        self.journal.extend(events);
        true
    }

    fn action(&mut self, n: usize, roll: Roll) -> Action {
        match roll.what % 32 {
            0..=2 => self.message(n, roll),
            3..=11 => self.due(roll),
            12 => Action::Wake,
            13 => {
                self.at = self.state.alarm().unwrap_or(self.at);
                Action::Wake
            }
            14 => Action::Cancel(Cancel { partial: self.partial(roll) }),
            15 => Action::Revive,
            16 => self.dispatch(n, roll),
            17 => self.failed(roll),
            18 => {
                let call = self.some_call(roll);
                missing(&call, u32::from(roll.how % 4))
            }
            19 => Action::Start(Start { turn: self.queued(n, roll), settings: None }),
            20 => self.returned(roll),
            21 | 22 => self.child_ends(roll),
            23 if roll.how.is_multiple_of(2) => {
                let parent = Some(Box::new(self.state.parent.clone().unwrap_or_else(parent)));
                Action::Abandon(Create { parent, ..create() })
            }
            23 => child_started(&self.some_call(roll), u32::from(roll.how % 4)),
            24 if roll.how.is_multiple_of(2) => {
                let (root, storage) = (String::new(), roll.how.to_string());
                Action::WorkspaceOpened { root, storage }
            }
            24 => Action::ParentNotified(self.queued(n, roll)),
            25 if roll.how % 3 == 1 => self.reduced(roll),
            25 if roll.how % 3 == 2 => {
                summarized(&self.state, Seq::new(u64::from(roll.which)), roll.ms as u8)
            }
            25 => self.hook_action(roll),
            26 => Action::RevokeDecision(DecisionId::new(format!("dec_{}", roll.how % 4))),
            27 => self.remembered(roll),
            28 if roll.how.is_multiple_of(2) => fail(&self.some_call(roll)),
            28 if roll.how.is_multiple_of(3) => operate("retry"),
            28 => update(Some(u64::from(roll.how)), roll.what.is_multiple_of(2).then_some("ann")),
            29 if roll.how % 9 == 5 => external::random(&self.state, roll),
            29 if roll.how.is_multiple_of(3) => self.scheduled(n, roll),
            29 if roll.how % 3 == 1 => self.extended(roll),
            29 if roll.how % 9 == 2 => self.unscheduled(roll),
            31 if roll.which.is_multiple_of(2) => self.withdrawn(n, roll),
            31 => self.rewound(n, roll),
            _ => self.resolved(roll),
        }
    }

    /// A report or an answer that the state waits for; a message if it waits for nothing.
    fn due(&self, roll: Roll) -> Action {
        let wanted: Vec<Activity> = wanted(&self.state).into_iter().collect();
        let pending = self.state.pending_calls();
        let choices = wanted.len() + pending.len();
        match usize::from(roll.which).checked_rem(choices) {
            None if self.is_outside() => external::random(&self.state, roll),
            None => self.message(usize::from(roll.what) * 1_000 + self.journal.len(), roll),
            Some(choice) if choice < wanted.len() => self.perform(&wanted[choice], roll),
            Some(choice) => answer_to(&pending[choice - wanted.len()], roll),
        }
    }

    fn perform(&self, activity: &Activity, roll: Roll) -> Action {
        match activity {
            Activity::StartTurn { turn } => start(turn.as_str()),
            Activity::CallModel { turn, step } => {
                let seq = self.state.seq;
                let read = Seq::new(seq.get().saturating_sub(u64::from(roll.ms / 64 % 3)));
                reply(turn, *step, (planned(roll, seq), read), roll.how)
            }
            Activity::RunTool { call, attempt } if self.has_child(call) && roll.how % 3 != 1 => {
                child_started(call.as_str(), attempt.get())
            }
            Activity::RunTool { call, attempt }
                if roll.how % 8 == 3 && !self.has_child(call) && self.is_call(call) =>
            {
                match roll.which % 3 {
                    0 => external::await_callback(call.as_str(), attempt.get()),
                    _ => external::queue(call.as_str(), attempt.get()),
                }
            }
            Activity::RunTool { call, attempt } if self.breaks(call, roll) => {
                let (call, attempt) = (call.clone(), *attempt);
                let (error, retry_at) = ("busy".to_owned(), self.at);
                if roll.how % 32 < 16 || self.state.dispatches.contains_key(&call) {
                    Action::AttemptFailed(AttemptFailed { call, attempt, error, retry_at })
                } else {
                    Action::ConnectionBroke { call, attempt }
                }
            }
            Activity::RunTool { call, attempt } => {
                let halt = (roll.how % 16 == 1).then(|| "enough".to_owned());
                let outcome = outcome(roll.how);
                let (call, attempt) = (call.clone(), *attempt);
                Action::ToolReturned(ToolReturned {
                    call,
                    attempt,
                    outcome,
                    ui: None,
                    halt,
                    changes: changes(roll.how),
                    input_request: asks(roll.ms),
                    effective_args: None,
                })
            }
            Activity::AwaitClient { call, suspension, .. } => missing(call.as_str(), *suspension),
            Activity::StopChild { child } => {
                Action::ChildReleased { child: child.clone(), usage: Default::default() }
            }
            Activity::NotifyParent { turn } => Action::ParentNotified(turn.clone()),
            Activity::PublishDecision { decision } => Action::DecisionPublished(decision.clone()),
            Activity::CopyFork { .. } => unreachable!("nothing is forked here"),
            Activity::Summarize { upto } => summarized(&self.state, *upto, roll.how),
        }
    }

    /// Whether a worker or a callback is awaited.
    fn is_outside(&self) -> bool {
        let mut calls = self.state.turn.iter().flat_map(|turn| &turn.calls);
        calls.any(|call| call.external_run().is_some())
    }

    /// Whether it is a call of the turn, and no dispatch.
    fn is_call(&self, call: &CallId) -> bool {
        self.state.call(call).is_some()
    }

    /// Whether an attempt fails so that another one may follow.
    fn breaks(&self, call: &CallId, roll: Roll) -> bool {
        roll.how % 16 == 5 && !self.has_child(call)
    }

    fn has_child(&self, call: &CallId) -> bool {
        self.children().any(|(of, _)| of == *call)
    }

    /// The calls that children answer.
    fn children(&self) -> impl Iterator<Item = (CallId, ConversationId)> {
        let calls = self.state.turn.iter().flat_map(|turn| &turn.calls);
        let calls = calls.map(|call| (&call.id, call.kind.child()));
        let runs = self.state.dispatches.iter().map(|(id, run)| (id, run.child.as_ref()));
        calls.chain(runs).filter_map(|(id, child)| Some((id.clone(), child?.clone())))
    }

    fn child_ends(&self, roll: Roll) -> Action {
        let children: Vec<_> = self.children().collect();
        match usize::from(roll.which).checked_rem(children.len()) {
            Some(which) => child_ended(children[which].0.as_str(), children[which].1.as_str()),
            None => child_ended(&self.some_call(roll), "nobody"),
        }
    }

    pub(super) fn message(&self, n: usize, roll: Roll) -> Action {
        let choices = [IfBusy::Reject, IfBusy::Queue, IfBusy::Interrupt, IfBusy::Steer];
        let if_busy = choices[usize::from(roll.how % 4)];
        let mut sent = message(&format!("turn_{n}"), if_busy);
        sent.partial = self.partial(roll);
        sent.create = Some(create_random(roll));
        sent.settings.max_steps = u32::from(roll.which % 5);
        sent.settings.summarize_over = roll.how.is_multiple_of(4).then_some(u64::from(roll.which));
        sent.settings.budget.max_conversation_tokens = (roll.how % 16 == 7).then_some(1_000);
        Action::Send(sent)
    }

    /// The number of a step, counted from the latest one of the open turn.
    fn step_plus(&self, steps: u32) -> Step {
        let latest = self.state.turn.as_ref().map_or(Step::ZERO, |turn| turn.step);
        Step::new(latest.get() + steps)
    }

    fn partial(&self, roll: Roll) -> Option<PartialMessage> {
        let step = self.step_plus([1, 1, 1, 0, 2][usize::from(roll.which % 5)]);
        let content = vec![text_block("half"); usize::from(roll.how % 4).min(1)];
        let is_in_turn = self.state.turn.is_some();
        is_in_turn.then(|| PartialMessage { id: MessageId::new("msg"), step, content })
    }

    fn dispatch(&self, n: usize, roll: Roll) -> Action {
        Action::Dispatch(Dispatch {
            call: CallId::new(format!("dispatch_{n}")),
            tool: "tool".to_owned(),
            input: json!({}).into(),
            principal: Principal::new("user"),
            identity: None,
            revision: Revision::new("r"),
            on_interrupt: [OnInterrupt::Redispatch, OnInterrupt::Fail][usize::from(roll.how % 2)],
            requests: Default::default(),
            verdict: verdict(decision(roll.which)),
            child: (roll.how % 5 == 1).then(|| ConversationId::new(format!("kid_{n}"))),
        })
    }

    fn failed(&self, roll: Roll) -> Action {
        let turn = self.state.turn.as_ref();
        Action::ModelFailed(ModelFailed {
            turn: turn.map_or(TurnId::new("none"), |turn| turn.id.clone()),
            step: self.step_plus([1, 1, 1, 0, 2][usize::from(roll.how % 5)]),
            reason: "broken".to_owned(),
            partial: self.partial(roll),
        })
    }

    fn queued(&self, n: usize, roll: Roll) -> TurnId {
        let place = usize::from(roll.how % 2);
        self.state.queue.get(place).map_or(TurnId::new(format!("turn_{n}")), |next| next.id.clone())
    }

    fn returned(&self, roll: Roll) -> Action {
        returned(&self.some_call(roll), u32::from(roll.how % 4))
    }

    fn resolved(&self, roll: Roll) -> Action {
        let call = self.some_call(roll);
        let suspension = [None, Some(1), Some(2), Some(9)][usize::from(roll.how % 4)];
        match roll.how / 4 % 4 {
            0 => approve(&call, suspension),
            1 => deny(&call, None),
            2 => answer(&call, suspension, json!(roll.ms)),
            _ => answer_error(&call, "no"),
        }
    }

    fn hook_action(&self, roll: Roll) -> Action {
        let turn = self.state.turn.as_ref();
        let step = self.step_plus([1, 1, 1, 0, 2][usize::from(roll.how % 5)]);
        let turn = turn.map_or(TurnId::new("none"), |turn| turn.id.clone());
        let added = AddedContext { hook: "docs".to_owned(), content: vec![text_block("known")] };
        match roll.which % 8 {
            0 => Action::Halt { turn, step, reason: "hook".to_owned() },
            _ => Action::ContextAdded { turn, step, added: vec![added] },
        }
    }

    /// A reduction of the context, legal or illegal.
    fn reduced(&self, roll: Roll) -> Action {
        let turn = self.state.turn.as_ref();
        let step = self.step_plus([1, 1, 0][usize::from(roll.how / 3 % 3)]);
        let turn = turn.map_or(TurnId::new("none"), |turn| turn.id.clone());
        let seq = self.state.seq.saturating_sub(u64::from(roll.which % 8));
        let reduced = ContextReduced {
            step,
            marks: ContextMarks {
                read_from: seq,
                shown_from: seq,
                expired_upto: seq,
                forced_upto: Seq::ZERO,
            },
            reason: [ReductionReason::Budget, ReductionReason::TooLong]
                [usize::from(roll.which % 2)],
            results: 0,
            turns: 0,
            tokens_before: 10,
            tokens_after: u64::from(roll.which),
        };
        Action::ContextReduced { turn, reduced }
    }

    /// An approval that is to be remembered.
    fn remembered(&self, roll: Roll) -> Action {
        let scope = [Scope::Conversation, Scope::Agent][usize::from(roll.how % 2)];
        let id = DecisionId::new(format!("dec_{}", roll.how % 4));
        let wish = RememberDecision {
            id,
            extent: Extent { scope, matching: Match::Tool, for_ms: u64::from(roll.ms) },
            tool_digest: String::new(),
        };
        let pending = self.state.pending_calls();
        let open = pending.iter().find(|open| open.kind == crate::event::SuspensionKind::Approval);
        match open.map(|open| answer_to(open, roll)) {
            Some(Action::Resolve(resolve)) => {
                Action::Resolve(Resolve { remember: Some(wish), ..resolve })
            }
            Some(_) | None => Action::DecisionPublished(wish.id),
        }
    }

    pub(super) fn some_call(&self, roll: Roll) -> String {
        let calls = self.state.turn.iter().flat_map(|turn| &turn.calls).map(|call| &call.id);
        let known: Vec<&CallId> = calls.chain(self.state.dispatches.keys()).collect();
        let place = usize::from(roll.which) % (known.len() + 1);
        known.get(place).map_or("nobody".to_owned(), |call| call.to_string())
    }

    /// Revives the conversation, performs what is wanted, and answers or expires what is pending,
    /// until nothing is left.
    pub(super) fn finish(&mut self, roll: Roll) {
        let plain = Roll { what: 0, which: 0, how: roll.how & !1, ms: 0 };
        self.play(Action::Revive);
        for turn in 0..2_000 {
            let wanted = wanted(&self.state);
            let page = |wanted: &&Activity| matches!(wanted, Activity::AwaitClient { .. });
            let pages_come = (roll.how ^ turn as u8).is_multiple_of(2);
            let next = wanted.iter().find(|wanted| !page(wanted) || !pages_come);
            let pending = self.state.pending_calls();
            let action = match (next, pending.first()) {
                (None, None) if self.state.alarm().is_some() => match roll.how % 4 {
                    0 if self.children().next().is_some() => self.child_ends(plain),
                    _ => {
                        self.at = self.at.max(self.state.alarm().expect("a child has a time"));
                        Action::Wake
                    }
                },
                (Some(Activity::CallModel { turn, step }), _) => {
                    reply(turn, *step, (Vec::new(), self.state.seq), 0)
                }
                (Some(activity), _) => self.perform(activity, Roll { how: 0, ..plain }),
                (None, Some(first)) if roll.which.is_multiple_of(3) => {
                    self.at = self.at.max(first.expires_at);
                    Action::Wake
                }
                (None, Some(first)) if self.at >= first.expires_at => Action::Wake,
                (None, Some(first)) => answer_to(first, plain),
                (None, None) => return,
            };
            assert!(
                self.play(action.clone()),
                "the report of a wanted activity is accepted: {action:?}"
            );
        }
        panic!("the conversation does not settle");
    }
}
