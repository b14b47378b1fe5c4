//! `?cursor=chars`: streams that resume inside a message.

use serde_json::json;

use crate::api::Api;
use crate::stream::{Frame, Stream};

const EVENTS: &str = "/v1/conversations/c/events?cursor=chars";
const MESSAGES: &str = "/v1/conversations/c/messages";
const THINKING: &str = "Hüm. So.";
const TEXT: &str = "Grüße aus dem fernen Süden, und bis bald";

/// A node with the conversation `c`, whose model says the text word by word.
async fn speaking() -> Api {
    let api = Api::start().await;
    let agent = json!({"model": {"provider": "scripted",
        "script": [{"thinking": THINKING, "text": TEXT, "delay": "100ms"}]}});
    assert_eq!(api.put("/v1/agents/slow", agent).await.status, 201);
    let new = json!({"id": "c", "agent": "slow"});
    assert_eq!(api.post("/v1/conversations", new).await.status, 201);
    api
}

async fn say(api: &Api, if_busy: &str) {
    let message = json!({"text": "hi", "if_busy": if_busy});
    assert_eq!(api.post(MESSAGES, message).await.status, 202);
}

async fn resume(api: &Api, place: &str) -> Stream {
    Stream::open(api.request("GET", EVENTS).header("Last-Event-ID", place)).await
}

fn is_delta(frame: &Frame) -> bool {
    frame.event.ends_with("_delta")
}

/// The thinking and the text of the deltas among these frames, of the last message that they are of.
fn joined<'a>(frames: impl IntoIterator<Item = &'a Frame>) -> [String; 2] {
    let deltas: Vec<&Frame> = frames.into_iter().filter(|frame| is_delta(frame)).collect();
    let message = deltas.last().map(|last| &last.data["message_id"]);
    ["thinking_delta", "text_delta"].map(|event| {
        let own = |it: &&&Frame| it.event == event && Some(&it.data["message_id"]) == message;
        deltas.iter().filter(own).map(|it| it.data["text"].as_str().unwrap()).collect()
    })
}

/// The parts of an id: the seq, and the characters.
fn parts(frame: &Frame) -> (u64, usize) {
    let mut parts = frame.place.as_deref().unwrap().split('.');
    let mut part = || parts.next().unwrap();
    (part().parse().unwrap(), part().parse().unwrap())
}

#[tokio::test]
async fn a_stream_resumes_inside_a_message_while_it_streams_and_when_it_is_whole() {
    let api = speaking().await;
    let mut first = api.stream(EVENTS).await;
    say(&api, "reject").await;
    let mut seen: Vec<Frame> = Vec::new();
    let mut rests = Vec::new();
    while seen.last().is_none_or(|frame| frame.event != "message_completed") {
        seen.push(first.next().await.unwrap());
        let deltas = seen.iter().filter(|frame| is_delta(frame)).count();
        // In the middle of the message, an event of another kind.
        if is_delta(seen.last().unwrap()) && deltas == 4 {
            say(&api, "queue").await;
        }
        if deltas > 0 && seen.len() % 3 == 1 {
            let place = seen.iter().rev().find_map(|frame| frame.place.as_deref()).unwrap();
            rests.push((seen.clone(), resume(&api, place).await));
        }
    }
    assert_eq!(joined(&seen), [THINKING, TEXT]);
    let deltas: Vec<_> = seen.iter().filter(|frame| is_delta(frame)).map(parts).collect();
    assert!(deltas.is_sorted_by(|one, next| one.0 <= next.0 && one.1 < next.1), "{deltas:?}");
    assert_eq!(deltas.last().unwrap().1, TEXT.chars().count() + THINKING.chars().count());
    let queued = seen.iter().rfind(|frame| frame.event == "user_message").unwrap();
    assert!(parts(queued).1 > 0, "the id of an event inside a message has the place, too");
    assert!(rests.len() > 2);
    // Again, with the message whole.
    let begun = seen.iter().position(is_delta).unwrap();
    for at in begun..seen.len() - 1 {
        let place = seen[..=at].iter().rev().find_map(|frame| frame.place.as_deref()).unwrap();
        rests.push((seen[..=at].to_vec(), resume(&api, place).await));
    }
    for (before, mut stream) in rests {
        let rest = stream.all_until("message_completed").await;
        assert_eq!(joined(before.iter().chain(&rest)), [THINKING, TEXT], "{rest:#?}");
        assert_eq!(rest.last().unwrap().data["message"]["content"][1]["text"], TEXT);
    }
}

#[tokio::test]
async fn a_place_without_its_message_counts_in_the_next_one_and_a_plain_seq_tells_it_from_its_start()
 {
    let api = speaking().await;
    let mut first = api.stream(EVENTS).await;
    say(&api, "reject").await;
    let frames = first.all_until("text_delta").await;
    let (seq, chars) = parts(frames.last().unwrap());
    let rest = resume(&api, &format!("{seq}.{chars}")).await.all_until("message_completed").await;
    assert_eq!(joined(&rest)[1].chars().count() + chars, TEXT.chars().count() + 8);
    let again = resume(&api, &format!("{seq}.3")).await.all_until("message_completed").await;
    assert_eq!(joined(&again), [&THINKING["Hüm".len()..], TEXT]);
    api.stream("/v1/conversations/c/events?after=0").await.until("turn_completed").await;
    say(&api, "reject").await;
    let mut second = api.stream("/v1/conversations/c/events").await;
    second.until("thinking_delta").await;
    let journal = api.get("/v1/conversations/c/journal").await.body;
    let mut again = resume(&api, &journal["last_seq"].to_string()).await;
    assert_eq!(joined(&again.all_until("message_completed").await), [THINKING, TEXT]);
}

#[tokio::test]
async fn a_message_that_was_begun_anew_is_told_from_its_start() {
    let api = speaking().await;
    let mut first = api.stream(EVENTS).await;
    say(&api, "reject").await;
    let mut seen = first.all_until("text_delta").await;
    let former = seen.last().unwrap().clone();
    let kill = format!("http://{}/admin/actors/c/kill", api.node.admin);
    assert_eq!(reqwest::Client::new().post(kill).send().await.unwrap().status(), 202);
    seen.extend(first.all_until("message_completed").await);
    let message = &seen.last().unwrap().data["message"]["id"];
    assert_ne!(former.data["message_id"], *message);
    assert_eq!(joined(&seen), [THINKING, TEXT]);
    let mut rest = resume(&api, former.place.as_deref().unwrap()).await;
    let rest = rest.all_until("message_completed").await;
    assert_eq!(joined(&rest), [THINKING, TEXT], "the place is one of a message that is void");
}

#[tokio::test]
async fn a_place_outside_of_every_message_counts_as_its_seq() {
    let api = speaking().await;
    say(&api, "reject").await;
    api.stream("/v1/conversations/c/events?after=0").await.until("turn_completed").await;
    let journal = api.get("/v1/conversations/c/journal").await.body;
    let events = journal["events"].as_array().unwrap();
    let seq_of = |kind: &str| {
        events.iter().find(|event| event["type"] == kind).unwrap()["seq"].as_u64().unwrap()
    };
    let message = seq_of("assistant_msg");
    for place in [
        // Before its turn, after it, and past the journal.
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
    // Past the end of the message: from its start.
    let past = format!("{}.1000", message - 1);
    let frames = resume(&api, &past).await.all_until("message_completed").await;
    assert_eq!(joined(&frames), [THINKING, TEXT]);
}

#[tokio::test]
async fn a_place_that_cannot_be_read_is_refused() {
    let api = speaking().await;
    for place in ["3.", ".3", "3.x", "3.-1", "3.1.4", "3.1.4.msg", "x", "3,1"] {
        let request = api.request("GET", EVENTS).header("Last-Event-ID", place);
        api.send(request).await.names("Last-Event-ID");
    }
    let plain = api.request("GET", "/v1/conversations/c/events").header("Last-Event-ID", "3.1");
    api.send(plain).await.names("Last-Event-ID");
    for query in ["cursor=words", "cursor="] {
        api.get(&format!("/v1/conversations/c/events?{query}")).await.names("cursor");
    }
}
