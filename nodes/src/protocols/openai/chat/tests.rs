//! What completions consist of.

use abide_actors::live::{Delta, Signal};
use abide_conversation::event::Event;
use abide_conversation::{MessageId, Step};

use super::*;
use crate::protocols::feed::sample_events::{ended, journal, message, started, suspended};
use crate::protocols::feed::{Answerable, Feed};

fn encoder(waits: bool) -> ChatEncoder {
    let head = ChatHead {
        turn: TurnId::new("t"),
        from: Seq::new(1),
        model: AgentName::new("a"),
        created_at: "2026-01-01T00:00:00.000Z".parse().unwrap(),
        tools: BTreeSet::from(["own".to_owned()]),
        inbox: "http://abide/console/".to_owned(),
        waits,
        with_usage: true,
        streams: true,
    };
    ChatEncoder::new(head, false)
}

/// Takes events that each are a commit, and returns the deltas.
fn deltas(encoder: &mut ChatEncoder, events: &[Event]) -> Vec<Value> {
    let mut feed = Feed::new(TurnId::new("t"), Seq::ZERO);
    let mut chunks = Vec::new();
    for event in events {
        let items = feed.event(event, &Answerable::All);
        let rest = feed.catch_up(&Answerable::All);
        for item in items.into_iter().chain(rest) {
            chunks.extend(encoder.item(Some(event.seq), &item));
        }
    }
    chunks.iter().map(|chunk| json!(chunk)["choices"][0]["delta"].clone()).collect()
}

#[test]
fn messages_of_later_steps_follow_a_blank_line() {
    let events = [started(), message("m", 1, "one", &["x"]), message("n", 2, "two", &[]), ended()];
    let mut encoder = encoder(false);
    let pieces = deltas(&mut encoder, &journal(&events));
    let text: String = pieces.iter().filter_map(|delta| delta["content"].as_str()).collect();
    let thinking: String =
        pieces.iter().filter_map(|delta| delta["reasoning_content"].as_str()).collect();
    assert_eq!((text.as_str(), thinking.as_str()), ("one\n\ntwo", "Hm.Hm."));
    let completion = encoder.completion();
    assert_eq!(completion["choices"][0]["message"]["content"], "one\n\ntwo");
    assert_eq!(completion["choices"][0]["finish_reason"], "stop");
    let last = json!(encoder.finish());
    assert_eq!((last.as_array().unwrap().len(), &last[1]["choices"]), (2, &json!([])));
}

/// The content of a completion in whose second step a node dies. It has written the message `n`, and the
/// next nodes write these, of which the last is journalled.
fn content_after_deaths(
    encoder: &mut ChatEncoder,
    text: &str,
    anew: &[(&'static str, &[&str])],
) -> String {
    let (last, pieces) = anew.last().unwrap();
    let whole = pieces.concat();
    let events =
        [started(), message("m", 1, "one", &["x"]), message(last, 2, &whole, &[]), ended()];
    let events = journal(&events);
    let mut feed = Feed::new(TurnId::new("t"), Seq::ZERO);
    let mut items: Vec<Item> = Vec::new();
    for event in &events[..2] {
        items.extend(feed.event(event, &Answerable::All));
    }
    items.extend(feed.catch_up(&Answerable::All));
    for (id, pieces) in [("n", &[text][..])].iter().chain(anew) {
        for (number, piece) in (1..).zip(*pieces) {
            let delta = Delta {
                turn: TurnId::new("t"),
                step: Step::new(2),
                message: MessageId::new(*id),
                text: (*piece).to_owned(),
                delta_seq: number,
            };
            items.extend(feed.signal(&Signal::Text(delta)));
        }
    }
    for event in &events[2..] {
        items.extend(feed.event(event, &Answerable::All));
    }
    let chunks = items.iter().flat_map(|item| encoder.item(None, item)).collect::<Vec<_>>();
    let content = |chunk: &ChatChunk| chunk.choices[0].delta.content.clone();
    chunks.iter().filter_map(content).collect()
}

#[test]
fn a_message_that_is_begun_anew_in_the_same_words_goes_on_where_it_was() {
    let same: [&[(&'static str, &[&str])]; 5] = [
        &[("o", &["two three four"])],
        &[("o", &["two", " th", "ree four"])],
        &[("o", &["two thr", "ee", " four"])],
        &[("o", &["two "]), ("p", &["two three four"])],
        &[("o", &["two three fo"]), ("p", &["two three four"])],
    ];
    for anew in same {
        let mut encoder = encoder(false);
        let content = content_after_deaths(&mut encoder, "two thr", anew);
        assert_eq!(content, "one\n\ntwo three four", "{anew:?}");
        assert_eq!(encoder.end(), Some(&ChatEnd::Finished), "{anew:?}");
    }
}

#[test]
fn a_stream_whose_text_became_void_ends_with_an_error() {
    let other: [&[(&'static str, &[&str])]; 4] = [
        &[("o", &["two four"])],
        &[("o", &["Three"])],
        // Shorter than what the client has.
        &[("o", &["two"])],
        &[("o", &["two three"]), ("p", &["two thousand"])],
    ];
    for anew in other {
        let mut encoder = encoder(false);
        content_after_deaths(&mut encoder, "two three", anew);
        let Some(ChatEnd::Failed { code, .. }) = encoder.end() else { panic!("{anew:?}") };
        assert_eq!(*code, "unavailable");
    }
}

#[test]
fn a_completion_that_is_no_stream_has_only_what_was_journalled() {
    let mut encoder = encoder(false);
    encoder.head.streams = false;
    content_after_deaths(&mut encoder, "two three", &[("o", &["two four"])]);
    assert_eq!(encoder.end(), Some(&ChatEnd::Finished));
    let completion = encoder.completion();
    assert_eq!(completion["choices"][0]["message"]["content"], "one\n\ntwo four");
}

#[test]
fn the_clients_own_calls_are_tool_calls_and_all_else_is_said() {
    let asks = |kind: &str, tools: &[&str]| {
        let mut events = vec![started(), message("m", 1, "", tools)];
        events.extend(tools.iter().map(|tool| suspended(tool, kind, 1)));
        journal(&events)
    };
    for (kind, tools, finish) in [
        ("client_exec", vec!["own"], "tool_calls"),
        ("client_exec", vec!["own", "other"], "tool_calls"),
        ("client_exec", vec!["other"], "stop"),
        // What a client executes must be approved before it is asked for.
        ("approval", vec!["own"], "stop"),
        ("elicitation", vec!["other"], "stop"),
    ] {
        let mut encoder = encoder(false);
        deltas(&mut encoder, &asks(kind, &tools));
        let choice = encoder.completion()["choices"][0].clone();
        assert_eq!(choice["finish_reason"], finish, "{kind} {tools:?}");
        let calls = choice["message"]["tool_calls"].as_array().map_or(0, Vec::len);
        assert_eq!(calls == 1, finish == "tool_calls", "{choice}");
        let is_said = choice["message"]["content"] == "[waiting] Well? (http://abide/console/)";
        assert_eq!(is_said, finish == "stop", "{choice}");
    }
    let mut waiting = encoder(true);
    deltas(&mut waiting, &asks("approval", &["own"]));
    assert_eq!(waiting.end(), None, "the request is held instead");
}

#[test]
fn a_turn_that_does_not_complete_is_a_failure() {
    for (outcome, code) in
        [("failed", "turn_failed"), ("halted", "turn_halted"), ("cancelled", "turn_cancelled")]
    {
        let mut encoder = encoder(false);
        let end = ("turn_ended", json!({"outcome": outcome, "reason": "so"}));
        deltas(&mut encoder, &journal(&[started(), end]));
        let failed = ChatEnd::Failed { code, reason: "so".to_owned() };
        assert_eq!(encoder.end(), Some(&failed));
    }
}
