//! A call's id is the provider's, made unique for ever.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::json;

use super::random_driver::RandomRun;
use super::scenario::*;
use crate::call_ids::UsedIds;
use crate::command::{Action, ModelReplied, PlannedCall};
use crate::event::{EventData, Executor};
use crate::message::Outcome;
use crate::{CallId, MessageId, Rejection, Seq, State, Step};

fn answered_at_once(id: &str) -> PlannedCall {
    answered_call(id, Executor::Server, Outcome::Ok(json!(1)))
}

/// Runs one turn with these calls in its first step, and returns the ids that they got.
fn turn(run: &mut RandomRun, given: &[&str]) -> Vec<String> {
    steps(run, &[given])
}

/// Runs one turn that makes these calls, step by step, and returns the ids that they got.
fn steps(run: &mut RandomRun, given: &[&[&str]]) -> Vec<String> {
    let id = format!("turn_{}", run.state.seq);
    assert!(run.play(send(&id)));
    let mut names = Vec::new();
    for (step, given) in (1..).zip(given.iter().chain([&[].as_slice()])) {
        let Some(turn) = &run.state.turn else { break };
        let reply = ModelReplied {
            turn: turn.id.clone(),
            step: Step::new(step),
            id: MessageId::new("msg"),
            content: Vec::new(),
            calls: given.iter().map(|id| answered_at_once(id)).collect(),
            usage: None,
            stop: None,
            verbatim: None,
            fallback: None,
            context_tokens: None,
            context_seq: Seq::MAX,
            object: None,
            verdict: Default::default(),
        };
        let before = run.journal.len();
        assert!(run.play(Action::ModelReplied(reply)));
        let EventData::AssistantMsg(spoken) = &run.journal[before].data else { unreachable!() };
        names.extend(spoken.message.tool_calls.iter().map(|call| call.id.to_string()));
    }
    assert!(run.state.turn.is_none(), "the turn is over");
    names
}

fn empty() -> RandomRun {
    let scenario = Scenario::empty();
    RandomRun { state: State::default(), journal: Vec::new(), at: scenario.at }
}

/// A conversation that remembers as many ids as it can.
fn full() -> RandomRun {
    static FULL: LazyLock<State> = LazyLock::new(|| {
        let mut run = empty();
        let given: Vec<String> = (0..2_000).map(|n| format!("f{n}")).collect();
        turn(&mut run, &given.iter().map(String::as_str).collect::<Vec<_>>());
        run.state
    });
    RandomRun { state: FULL.clone(), ..empty() }
}

/// `reference/semantics.md#what-must-not-go-wrong` no. 11
#[test]
fn an_id_that_was_used_before_gets_a_number_in_every_later_turn() {
    let mut run = empty();
    assert_eq!(turn(&mut run, &["call_1"]), ["call_1"]);
    assert_eq!(turn(&mut run, &["call_1"]), ["call_1~2"]);
    assert_eq!(turn(&mut run, &["call_1", "call_2"]), ["call_1~3", "call_2"]);
}

/// `reference/semantics.md#what-must-not-go-wrong` no. 11
#[test]
fn of_two_equal_ids_in_one_message_one_is_renamed() {
    assert_eq!(turn(&mut empty(), &["a", "a", "b", "a"]), ["a", "a~2", "b", "a~3"]);
}

#[test]
fn a_provider_cannot_take_the_next_number_away() {
    let mut run = empty();
    assert_eq!(turn(&mut run, &["a~2", "a", "a"]), ["a~2", "a", "a~3"]);
    assert_eq!(turn(&mut run, &["a~2"]), ["a~2~2"]);
}

#[test]
fn an_id_in_a_later_step_of_the_same_turn_is_renamed_too() {
    let mut scenario = Scenario::with_calls(vec![server("a")]);
    scenario.then(returned("a", 1));
    scenario.reply(vec![server("a")]).unwrap();
    assert_eq!(scenario.wanted(), ["attempt 1 of a~2"]);
    assert_eq!(scenario.apply(returned("a", 1)), Err(Rejection::Stale));
}

/// `reference/semantics.md#what-must-not-go-wrong` no. 11: ids of another
/// conversation do not matter.
#[test]
fn two_conversations_may_use_the_same_id() {
    assert_eq!(turn(&mut empty(), &["call_1"]), turn(&mut empty(), &["call_1"]));
}

#[test]
fn a_hostile_id_becomes_one_that_a_header_and_a_url_can_carry() {
    let huge = "x".repeat(10_000_000);
    let given = ["", ".", "..", "a b\r\nX: 1", "\u{0}\u{7f}é\u{1F600}", huge.as_str()];
    let names = turn(&mut empty(), &given);
    assert_eq!(&names[..5], ["call", "call~2", "call~3", "a_b__X:_1", "____"]);
    assert_eq!(names[5], "x".repeat(128));
}

#[test]
fn when_the_memory_is_full_an_id_gets_its_turns_ordinal() {
    let mut run = full();
    assert_eq!(turn(&mut run, &["new", "new", "f0"]), ["new~t2", "new~t2~2", "f0~t2"]);
    assert_eq!(turn(&mut run, &["new", "new~t2"]), ["new~t3", "new~t2~t3"]);
}

#[test]
fn when_the_memory_is_full_a_turn_still_knows_the_ids_of_its_earlier_steps() {
    let names = steps(&mut full(), &[&["new"], &["new", "new~2"], &["new"]]);
    assert_eq!(names, ["new~t2", "new~t2~2", "new~2~t2", "new~t2~3"]);
}

#[test]
fn the_memory_fills_up_in_the_middle_of_a_message() {
    let mut run = empty();
    let given: Vec<String> = (0..2_002).map(|n| format!("f{n}")).collect();
    let names = turn(&mut run, &given.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(names[1_999..], ["f1999", "f2000~t1", "f2001~t1"]);
    assert_eq!(turn(&mut run, &["f2000"]), ["f2000~t2"]);
}

#[test]
fn what_is_remembered_of_used_ids_stays_small() {
    let mut run = full();
    let before = serde_json::to_vec(&run.state.used_ids).unwrap().len();
    for _ in 0..50 {
        turn(&mut run, &["a", "b"]);
    }
    assert_eq!(serde_json::to_vec(&run.state.used_ids).unwrap().len(), before);
    assert!(before < 24_000, "{before} bytes");
}

#[test]
fn thousands_of_equal_ids_in_one_message_are_named_in_linear_time() {
    for mut run in [empty(), full()] {
        let names = turn(&mut run, &["a"; 3_000]);
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), 3_000);
    }
}

fn hostile() -> impl Strategy<Value = String> {
    prop::string::string_regex("(a|f1|call|)(~t?[0-4]){0,3}").unwrap()
}

/// States have the hashes, and nodes of two builds read each other's states.
#[test]
fn the_hash_of_an_id_never_changes() {
    let mut used = UsedIds::default();
    for id in ["", "a", "call_1", "ünïcode"] {
        used.insert(&CallId::new(id));
    }
    assert_eq!(
        serde_json::to_value(&used).unwrap(),
        json!([694300864_u32, 1339080641_u32, 3384394800_u32, 3776090088_u32])
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn no_id_is_ever_given_twice(
        starts_full in any::<bool>(),
        turns in prop::collection::vec(prop::collection::vec(hostile(), 0..6), 1..25),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut run = if starts_full { full() } else { empty() };
        let mut seen: BTreeSet<String> = if starts_full {
            (0..2_000).map(|n| format!("f{n}")).collect()
        } else {
            BTreeSet::new()
        };
        for given in turns {
            let given: Vec<&str> = given.iter().map(String::as_str).collect();
            let (first, second) = given.split_at(cut.index(given.len() + 1));
            for name in steps(&mut run, &[first, second]) {
                prop_assert!(seen.insert(name.clone()), "{}", name);
            }
        }
    }
}
