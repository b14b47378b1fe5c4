//! `?cursor=chars`: streams that resume inside a message.

use serde_json::{Value, json};

use crate::api::Api;
use crate::stream::{Frame, Stream};

const EVENTS: &str = "/v1/conversations/c/events?cursor=chars";
const TEXT: &str = "Grüße aus dem fernen Süden, und bis bald";

/// A node with the conversation `c`, whose model says the text word by word.
async fn speaking() -> Api {
    let api = Api::start().await;
    let agent = json!({"model": {"provider": "scripted",
        "script": [{"thinking": "Hüm. So.", "text": TEXT, "delay": "40ms"}]}});
    assert_eq!(api.put("/v1/agents/slow", agent).await.status, 201);
    let new = json!({"id": "c", "agent": "slow"});
    assert_eq!(api.post("/v1/conversations", new).await.status, 201);
    api
}

async fn say(api: &Api) {
    let sent = api.post("/v1/conversations/c/messages", json!({"text": "hi"})).await;
    assert_eq!(sent.status, 202);
}

async fn resume(api: &Api, place: &str) -> Stream {
    Stream::open(api.request("GET", EVENTS).header("Last-Event-ID", place)).await
}

fn is_delta(frame: &Frame) -> bool {
    frame.event.ends_with("_delta")
}

/// The thinking and the text of these deltas.
fn joined(frames: &[Frame]) -> [String; 2] {
    ["thinking_delta", "text_delta"].map(|event| {
        let of = frames.iter().filter(|frame| frame.event == event);
        of.map(|frame| frame.data["text"].as_str().unwrap()).collect()
    })
}

#[tokio::test]
async fn a_stream_resumes_inside_a_message_while_it_streams_and_when_it_is_whole() {
    let api = speaking().await;
    let mut first = api.stream(EVENTS).await;
    say(&api).await;
    let mut seen = Vec::new();
    let mut rests = Vec::new();
    loop {
        let frame = first.next().await.unwrap();
        let is_last = frame.event == "turn_completed";
        if is_delta(&frame) {
            seen.push(frame.clone());
            // Resumed in the middle: what follows, joined to what was seen, is the whole.
            if seen.len() % 3 == 1 {
                let place = frame.place.as_deref().unwrap();
                let rest = resume(&api, place).await.all_until("message_completed").await;
                rests.push((seen.clone(), rest));
            }
        }
        if is_last {
            break;
        }
    }
    assert_eq!(joined(&seen), ["Hüm. So.", TEXT]);
    let (seq, _) = seen[0].place.as_deref().unwrap().split_once('.').unwrap();
    let chars: Vec<usize> = seen
        .iter()
        .map(|frame| frame.place.as_deref().unwrap().split_once('.').unwrap())
        .map(|(at, chars)| {
            assert_eq!(at, seq, "no event comes in between");
            chars.parse().unwrap()
        })
        .collect();
    assert!(chars.is_sorted_by(|one, next| one < next), "{chars:?}");
    assert_eq!(*chars.last().unwrap(), TEXT.chars().count() + 8);
    assert!(rests.len() > 2);
    // Again, with the message whole.
    for at in 0..seen.len() {
        let place = seen[at].place.as_deref().unwrap();
        let rest = resume(&api, place).await.all_until("message_completed").await;
        rests.push((seen[..=at].to_vec(), rest));
    }
    for (before, rest) in rests {
        let deltas: Vec<Frame> =
            before.into_iter().chain(rest.iter().filter(|it| is_delta(it)).cloned()).collect();
        assert_eq!(joined(&deltas), ["Hüm. So.", TEXT], "{rest:#?}");
        assert_eq!(rest.last().unwrap().data["message"]["content"][1]["text"], TEXT);
    }
}

#[tokio::test]
async fn a_place_that_no_message_has_counts_as_its_seq() {
    let api = speaking().await;
    say(&api).await;
    api.stream("/v1/conversations/c/events?after=0").await.until("turn_completed").await;
    let journal = api.get("/v1/conversations/c/journal").await.body;
    let events = journal["events"].as_array().unwrap();
    let seq_of = |kind: &str| {
        events.iter().find(|event| event["type"] == kind).unwrap()["seq"].as_u64().unwrap()
    };
    let message = seq_of("assistant_msg");
    for place in [
        // Past the end of the message, before its turn, after it, and past the journal.
        format!("{}.1000", message - 1),
        format!("{}.3", seq_of("turn_started") - 1),
        format!("{}.3", seq_of("turn_ended")),
        format!("{}.3", seq_of("turn_ended") + 100),
    ] {
        let mut stream = resume(&api, &place).await;
        let (seq, _) = place.split_once('.').unwrap();
        let replayed =
            if seq.parse::<u64>().unwrap() < message { "turn_completed" } else { "state_changed" };
        let frames = stream.all_until(replayed).await;
        assert!(!frames.iter().any(is_delta), "{place}: {frames:#?}");
        let whole = frames.iter().filter(|frame| frame.event == "message_completed").count();
        assert_eq!(whole == 1, replayed == "turn_completed", "{place}");
    }
}

#[tokio::test]
async fn a_place_that_cannot_be_read_is_refused() {
    let api = speaking().await;
    for place in ["3.", ".3", "3.x", "3.-1", "3.1.4", "x", "3,1"] {
        let request = api.request("GET", EVENTS).header("Last-Event-ID", place);
        api.send(request).await.names("Last-Event-ID");
    }
    let plain = api.request("GET", "/v1/conversations/c/events").header("Last-Event-ID", "3.1");
    api.send(plain).await.names("Last-Event-ID: is not a seq");
    for query in ["cursor=words", "cursor="] {
        api.get(&format!("/v1/conversations/c/events?{query}")).await.names("cursor");
    }
    let _: Value = api.get("/v1/conversations/c").await.body;
}
