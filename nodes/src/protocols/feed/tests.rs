//! When a turn rests, and what becomes of pieces that were lost, repeated or void.

pub(in crate::protocols) mod live_and_journal;

use std::collections::BTreeSet;

use abide_actors::live::Delta;
use serde_json::json;

use super::sample_events::{called, ended, journal, message, resolved, result, started, suspended};
use super::*;

pub(super) fn delta(message: &str, step: u32, number: u64, text: &str) -> Signal {
    Signal::Text(Delta {
        turn: TurnId::new("t"),
        step: Step::new(step),
        message: MessageId::new(message),
        text: text.to_owned(),
        delta_seq: number,
    })
}

pub(super) fn feed() -> Feed {
    Feed::new(TurnId::new("t"), Seq::ZERO)
}

/// Takes all events, and returns the items.
fn take(feed: &mut Feed, events: &[Event]) -> Vec<Item> {
    events.iter().flat_map(|event| feed.event(event, &Answerable::All)).collect()
}

/// The calls on which the turn rests after these events, if that is news.
fn rest(feed: &mut Feed) -> Option<Vec<String>> {
    feed.catch_up(&Answerable::All).into_iter().find_map(|item| match item {
        Item::Rest(calls) => Some(calls.iter().map(SuspendedCall::id).collect()),
        _ => None,
    })
}

/// The texts of the pieces, with their places.
fn pieces(items: &[Item]) -> Vec<(usize, &str)> {
    fn piece(item: &Item) -> Option<(usize, &str)> {
        match item {
            Item::Text(piece) => Some((piece.place, &piece.text)),
            _ => None,
        }
    }
    items.iter().filter_map(piece).collect()
}

#[test]
fn a_turn_rests_while_each_call_is_pending_or_done() {
    let approval = |id| suspended(id, "approval", 1);
    let answer = |id| resolved(id, "approval", 1);
    let calls = || message("m", 1, "", &["a", "b"]);
    for (then, rests) in [
        (vec![approval("a")], None),
        (vec![approval("a"), approval("b")], Some(vec!["a/1", "b/1"])),
        (vec![approval("a"), called("b", "server", true)], None),
        (vec![approval("a"), called("b", "server", true), result("b")], Some(vec!["a/1"])),
        (vec![approval("a"), approval("b"), answer("a")], None),
        (vec![approval("a"), approval("b"), answer("a"), result("a")], Some(vec!["b/1"])),
        (vec![result("a"), result("b")], None),
        (vec![approval("a"), result("b"), ended()], None),
    ] {
        let mut feed = feed();
        let events: Vec<_> = [started(), calls()].into_iter().chain(then).collect();
        take(&mut feed, &journal(&events));
        let rests = rests.map(|calls| calls.into_iter().map(str::to_owned).collect());
        assert_eq!(rest(&mut feed), rests, "{events:?}");
        assert_eq!(rest(&mut feed), None, "it is told once");
    }
}

#[test]
fn a_gated_call_of_a_page_rests_twice_and_the_first_answer_clears_only_the_first() {
    let mut feed = feed();
    let events = journal(&[
        started(),
        message("m", 1, "", &["a"]),
        suspended("a", "approval", 1),
        resolved("a", "approval", 1),
        suspended("a", "client_exec", 2),
        // A journal has no second answer to a suspension; it would clear nothing.
        resolved("a", "approval", 1),
    ]);
    take(&mut feed, &events[..3]);
    assert_eq!(rest(&mut feed), Some(vec!["a/1".to_owned()]));
    take(&mut feed, &events[3..]);
    assert_eq!(rest(&mut feed), Some(vec!["a/2".to_owned()]));
}

#[test]
fn a_piece_that_was_lost_is_in_what_follows_once() {
    let mut feed = feed();
    let events = journal(&[started(), message("m", 1, "one two three four", &[])]);
    take(&mut feed, &events[..1]);
    assert_eq!(pieces(&feed.signal(&delta("m", 1, 1, "one "))), [(0, "one ")]);
    assert_eq!(feed.signal(&delta("m", 1, 3, "three ")), []);
    assert_eq!(feed.signal(&delta("m", 1, 4, "four")), []);
    let items = take(&mut feed, &events[1..]);
    assert_eq!(pieces(&items), [(4, "two three four")]);
}

#[test]
fn a_snapshot_continues_the_message_and_later_pieces_continue_the_snapshot() {
    let mut feed = feed();
    take(&mut feed, &journal(&[started()]));
    feed.signal(&delta("m", 1, 1, "one "));
    let now = StreamingMessage {
        id: MessageId::new("m"),
        text: "one two ".to_owned(),
        thinking: String::new(),
        delta_seq: 2,
        turn: TurnId::new(""),
        step: Step::ZERO,
    };
    assert_eq!(pieces(&feed.streaming_message(&now)), [(4, "two ")]);
    assert_eq!(feed.signal(&delta("m", 1, 2, "two ")), []);
    assert_eq!(pieces(&feed.signal(&delta("m", 1, 3, "three"))), [(8, "three")]);
}

#[test]
fn a_message_that_was_begun_anew_makes_void_what_was_told_of_the_first() {
    let mut feed = feed();
    let events = journal(&[started(), message("n", 1, "once more", &[]), ended()]);
    take(&mut feed, &events[..1]);
    feed.signal(&delta("m", 1, 1, "half"));
    let items = feed.signal(&delta("n", 1, 1, "once "));
    assert_eq!(items[0], Item::Restarted { message: MessageId::new("m") });
    assert_eq!(pieces(&items), [(0, "once ")]);
    assert_eq!(feed.signal(&delta("m", 1, 2, " a message")), [], "its node is dead");
    assert_eq!(pieces(&take(&mut feed, &events[1..])), [(5, "more")]);
}

#[test]
fn a_message_that_a_hook_has_changed_is_told_anew() {
    let mut feed = feed();
    let events = journal(&[started(), message("m", 1, "***", &[])]);
    take(&mut feed, &events[..1]);
    feed.signal(&delta("m", 1, 1, "secret"));
    let items = take(&mut feed, &events[1..]);
    assert_eq!(items[0], Item::Restarted { message: MessageId::new("m") });
    assert_eq!(pieces(&items), [(0, "***")]);
}

#[test]
fn what_the_caller_may_not_answer_is_told_as_such() {
    let mut feed = feed();
    let calls = message("m", 1, "", &["a", "b"]);
    let events = [started(), calls, suspended("a", "approval", 1), suspended("b", "approval", 1)];
    let only = Answerable::Only(BTreeSet::from([(CallId::new("b"), 1)]));
    let items: Vec<Item> =
        journal(&events).iter().flat_map(|event| feed.event(event, &only)).collect();
    let rest = feed.catch_up(&only);
    let may_answer = |item: &Item| match item {
        Item::Suspended(call) => vec![call.may_answer],
        Item::Rest(calls) => calls.iter().map(|call| call.may_answer).collect(),
        _ => Vec::new(),
    };
    let all: Vec<bool> = items.iter().chain(&rest).flat_map(may_answer).collect();
    assert_eq!(all, [false, true, false, true]);
}

#[test]
fn arguments_that_an_approver_edits_are_asked_about_anew() {
    let mut feed = feed();
    let by = json!({"iss": "i", "sub": "s", "roles": ["approver"], "auth": "key",
        "at": "2026-01-01T00:00:00.000Z"});
    let voted = json!({"call_id": "a", "suspension": 1, "by": by, "approved": true,
        "args_fingerprint": "f", "args": {"n": 2}});
    let asked = [started(), message("m", 1, "", &["a"]), suspended("a", "approval", 1)];
    let events = journal(&asked.into_iter().chain([("voted", voted)]).collect::<Vec<_>>());
    take(&mut feed, &events[..3]);
    let items = take(&mut feed, &events[3..]);
    let [Item::Suspended(call)] = items.as_slice() else { panic!("{items:?}") };
    assert_eq!((call.id(), &call.args), ("a/1".to_owned(), &json!({"n": 2}).into()));
}

#[test]
fn the_id_of_a_question_names_the_call_and_its_suspension() {
    for id in ["a/1", "a/b/2", "call~2/10"] {
        let (call, number) = parse_suspension_id(id).unwrap();
        assert_eq!(suspension_id(&call, number), id);
    }
    for wrong in ["", "a", "/1", "a/", "a/0", "a/-1", "a/x"] {
        assert_eq!(parse_suspension_id(wrong), None, "{wrong}");
    }
}
