//! A conversation goes on from an earlier event, and what came after it counts for nothing.

use serde_json::json;

use super::remembered::remembering;
use super::scenario::*;
use crate::branch::{BranchTip, NewestFirst, RewindError, RewindPoint};
use crate::command::{
    Action, ChangeState, CopiedEvents, Create, IfBusy, Regenerate, Rewind, Schedule,
};
use crate::event::{Event, Executor, Steered};
use crate::fork::Fork;
use crate::message::{Message, MessageRole};
use crate::remembered_decision::Scope;
use crate::{
    ConversationId, MessageId, Principal, Rejection, ScheduledId, Seq, State, TurnId, checked_fold,
    replay,
};

fn point(journal: &[Event], to_seq: Seq) -> Result<RewindPoint, RewindError> {
    let prefix = journal.iter().take_while(|event| event.seq <= to_seq);
    RewindPoint::at(&replay(State::default(), prefix))
}

fn rewind_of(scenario: &Scenario, to_seq: Seq) -> Rewind {
    let point = point(&scenario.journal, to_seq).unwrap();
    Rewind { to_seq, point, by: Principal::new("ada"), identity: None }
}

fn rewind(scenario: &Scenario, to_seq: Seq) -> Action {
    Action::Rewind(rewind_of(scenario, to_seq))
}

fn regenerate(scenario: &Scenario, to_seq: Seq) -> Action {
    let (rewind, tip) = (rewind_of(scenario, to_seq), BranchTip::of(&scenario.state));
    let send = message("turn_9", IfBusy::Reject);
    let steering = Vec::new();
    Action::Regenerate(Box::new(Regenerate { rewind, tip, send, steering }))
}

/// A conversation with two turns that have ended, and the event before the second.
fn two_turns() -> (Scenario, Seq) {
    let mut scenario = Scenario::with_turn();
    scenario.reply(vec![]).unwrap();
    let between = scenario.state.seq;
    scenario.then(send("turn_2"));
    scenario.reply(vec![]).unwrap();
    (scenario, between)
}

fn set(key: &str, value: i32) -> Action {
    let changes = [(key.to_owned(), json!(value))].into_iter().collect();
    Action::ChangeState(ChangeState { changes, by: Principal::new("ada"), identity: None })
}

/// The events that count, oldest first.
fn counting(journal: &[Event]) -> Vec<Seq> {
    let mut reader = NewestFirst::default();
    let mut seqs: Vec<Seq> =
        journal.iter().rev().filter(|event| reader.counts(event)).map(|event| event.seq).collect();
    seqs.reverse();
    seqs
}

fn seqs(numbers: &[u64]) -> Vec<Seq> {
    numbers.iter().copied().map(Seq::new).collect()
}

#[test]
fn what_came_after_the_event_counts_for_nothing_and_stays_in_the_journal() {
    let (mut scenario, between) = two_turns();
    let before = scenario.journal.len();
    assert_eq!(scenario.apply(rewind(&scenario, between)).unwrap(), ["rewound"]);
    assert_eq!(scenario.journal.len(), before + 1);
    let rewound = scenario.state.seq;
    for event in &scenario.journal {
        let counts = event.seq <= between || event.seq == rewound;
        assert_eq!(scenario.state.context.counts(event.seq), counts, "{}", event.seq);
    }
    assert!(scenario.wanted().is_empty());
    scenario.then(send("turn_3"));
    assert_eq!(scenario.state.turn.as_ref().unwrap().ordinal, 3, "ordinals are used once");
}

#[test]
fn the_branch_that_counts_is_the_same_from_both_ends_of_the_journal() {
    let (mut scenario, between) = two_turns();
    let end = scenario.state.seq;
    scenario.then(rewind(&scenario, between)).then(send("turn_3"));
    scenario.reply(vec![]).unwrap();
    for to_seq in [end, between, Seq::FIRST] {
        scenario.then(rewind(&scenario, to_seq));
        let counts = |event: &&Event| scenario.state.context.counts(event.seq);
        let expected: Vec<Seq> = scenario.journal.iter().filter(counts).map(|it| it.seq).collect();
        assert_eq!(counting(&scenario.journal), expected, "back to {to_seq}");
    }
}

#[test]
fn a_rewind_is_undone_by_going_back_to_the_event_before_it() {
    let (mut scenario, between) = two_turns();
    let end = scenario.state.seq;
    scenario.then(rewind(&scenario, between));
    scenario.then(rewind(&scenario, end));
    let all: Vec<u64> = (1..=end.get()).chain([end.get() + 2]).collect();
    assert_eq!(counting(&scenario.journal), seqs(&all));
}

#[test]
fn todos_phase_and_state_are_those_of_the_event_and_usage_goes_on() {
    let mut scenario = Scenario::with_turn();
    scenario.reply(vec![]).unwrap();
    scenario.then(set("cart", 1));
    let between = scenario.state.seq;
    scenario.then(set("cart", 2)).then(set("late", 3));
    scenario.state.usage.input_tokens = 700;
    let spent = scenario.state.usage;
    let action = rewind(&scenario, between);
    let events = crate::decide(&scenario.state, crate::Command { at: scenario.at, action });
    let state = events.unwrap().iter().try_fold(scenario.state.clone(), checked_fold).unwrap();
    assert_eq!(json!(state.key_values), json!({"cart": 1}));
    assert_eq!((state.usage, state.turns_started), (spent, 1));
}

#[test]
fn what_was_approved_before_counts_for_nothing_after() {
    let mut scenario = Scenario::with_calls(vec![gated("send")]);
    scenario.then(remembering(approve("send", None), Scope::Conversation, 60_000));
    scenario.then(returned("send", 1));
    scenario.reply(vec![]).unwrap();
    assert_eq!(scenario.state.decisions.len(), 1);
    scenario.then(rewind(&scenario, scenario.state.seq));
    assert!(scenario.state.decisions.is_empty());
}

#[test]
fn a_decision_that_the_agent_does_not_have_yet_still_reaches_it() {
    let mut scenario = Scenario::with_calls(vec![gated("send")]);
    scenario.then(remembering(approve("send", None), Scope::Agent, 60_000));
    scenario.then(returned("send", 1));
    scenario.reply(vec![]).unwrap();
    let before = scenario.wanted();
    assert!(!before.is_empty());
    scenario.then(rewind(&scenario, Seq::FIRST));
    assert_eq!(scenario.wanted(), before);
}

#[test]
fn nothing_that_is_under_way_is_rewound() {
    let mut scenario = Scenario::with_calls(vec![call("run", Executor::Server, false)]);
    let busy = Err(Rejection::TurnInFlight);
    assert_eq!(scenario.apply(rewind(&scenario, Seq::FIRST)), busy, "a tool runs");
    scenario.then(queued("turn_2")).then(cancel());
    assert_eq!(scenario.apply(rewind(&scenario, Seq::FIRST)), busy, "a message waits");
    scenario.then(start("turn_2"));
    scenario.reply(vec![]).unwrap();
    scenario.then(rewind(&scenario, Seq::FIRST));
}

#[test]
fn a_turn_counts_as_a_whole_or_not_at_all() {
    let (scenario, between) = two_turns();
    let errors: Vec<_> = (0..=scenario.state.seq.get())
        .map(|seq| point(&scenario.journal, Seq::new(seq)).err())
        .collect();
    // Created, the message, the start, the answer, the end, and the same again.
    let within = Some(RewindError::WithinTurn);
    let expected = [
        Some(RewindError::BeforeBeginning),
        None,
        None,
        within,
        within,
        None,
        None,
        within,
        within,
        None,
    ];
    assert_eq!(errors, expected);
    assert_eq!(between, Seq::new(5));
}

#[test]
fn an_event_that_is_not_there_yet_is_no_place_to_go_back_to() {
    let (mut scenario, _) = two_turns();
    let to_seq = scenario.state.seq.next();
    let action = Action::Rewind(Rewind { to_seq, ..rewind_of(&scenario, Seq::FIRST) });
    assert!(
        matches!(scenario.apply(action), Err(Rejection::Invalid { field, .. }) if field == "to_seq")
    );
}

#[test]
fn a_turn_that_is_regenerated_begins_anew_with_its_message() {
    let (mut scenario, between) = two_turns();
    let kinds = scenario.apply(regenerate(&scenario, between)).unwrap();
    assert_eq!(kinds, ["rewound", "user_msg", "turn_started"]);
    assert_eq!(scenario.wanted(), ["model step 1 of turn_9"]);
    assert_eq!(scenario.apply(regenerate(&scenario, between)), Err(Rejection::TurnInFlight));
}

#[test]
fn messages_that_steered_a_turn_are_read_with_its_message_when_it_begins_anew() {
    let (mut scenario, between) = two_turns();
    let Action::Regenerate(mut again) = regenerate(&scenario, between) else { unreachable!() };
    again.steering = ["one", "two"].map(steered).to_vec();
    let kinds = scenario.apply(Action::Regenerate(again)).unwrap();
    assert_eq!(kinds, ["rewound", "user_msg", "turn_started", "steered", "steered"]);
    assert_eq!(scenario.wanted(), ["model step 1 of turn_9"]);
    scenario.reply(vec![]).unwrap();
    assert_eq!(scenario.state.turn, None, "its first step has read them");
}

fn steered(id: &str) -> Steered {
    let message = Message::new(MessageId::new(id), MessageRole::User, Vec::new());
    Steered { message, message_id: None, principal: Principal::new("bob"), identity: None }
}

#[test]
fn a_turn_is_not_regenerated_if_the_conversation_went_on_since_it_was_looked_up() {
    let (mut scenario, between) = two_turns();
    let late = regenerate(&scenario, between);
    scenario.then(rewind(&scenario, between));
    assert_eq!(scenario.apply(late), Err(Rejection::TurnInFlight));
    let late = regenerate(&scenario, Seq::FIRST);
    scenario.then(send("turn_3"));
    scenario.reply(vec![]).unwrap();
    assert_eq!(scenario.apply(late), Err(Rejection::TurnInFlight));
}

#[test]
fn what_is_scheduled_is_delivered_in_the_branch_that_counts() {
    let (mut scenario, between) = two_turns();
    let send = message("turn_5", IfBusy::Queue);
    let deliver_at = scenario.after(1_000);
    let scheduled_id = ScheduledId::new("sch_1");
    scenario.then(Action::Schedule(Schedule { scheduled_id, deliver_at, send }));
    scenario.then(rewind(&scenario, between)).advance(1_000).then(Action::Wake);
    assert_eq!(scenario.wanted(), ["start of turn_5"]);
}

/// The copy of the first events of a journal.
fn fork_at(journal: &[Event], at_seq: Seq) -> Scenario {
    let mut copy = Scenario::empty();
    let fork = Fork { conversation_id: ConversationId::new("first"), at_seq, created_at: None };
    copy.then(Action::Create(Create { fork: Some(fork), ..create() }));
    let events = journal[1..at_seq.get() as usize].to_vec();
    copy.then(Action::EventsCopied(CopiedEvents { after: Seq::FIRST, events, is_last: true }));
    copy
}

#[test]
fn a_fork_above_a_rewind_has_the_branch_that_counts_and_one_below_it_the_old_one() {
    let (mut scenario, between) = two_turns();
    let end = scenario.state.seq;
    scenario.then(rewind(&scenario, between)).then(send("turn_3"));
    scenario.reply(vec![]).unwrap();
    let above = fork_at(&scenario.journal, scenario.state.seq);
    assert_eq!(above.state.context.left_branches, scenario.state.context.left_branches);
    let below = fork_at(&scenario.journal, end);
    assert!(below.state.context.left_branches.is_empty());
    let forked = point(&below.journal, end);
    assert_eq!(forked, Err(RewindError::WithinPrefix), "a fork is not rewound below its beginning");
    assert!(point(&below.journal, below.state.seq).is_ok());
}

#[test]
fn a_turn_that_was_withdrawn_does_not_come_back() {
    let mut scenario = Scenario::with_turn();
    scenario.then(queued("turn_2"));
    scenario.reply(vec![]).unwrap();
    let between = scenario.state.seq;
    scenario.then(start("turn_2"));
    scenario.reply(vec![]).unwrap();
    scenario.then(rewind(&scenario, between));
    assert!(scenario.wanted().is_empty(), "turn_2 waited then");
    assert_eq!(scenario.apply(start("turn_2")), Err(Rejection::Stale));
    assert!(scenario.state.turn.as_ref().is_none_or(|turn| turn.id != TurnId::new("turn_2")));
}
