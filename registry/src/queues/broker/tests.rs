//! Tests of which worker is offered which call.

use abide_conversation::Attempt;
use abide_conversation::ids::{CallId, QueueName};

use super::*;

fn entry(tool: &str, call: &str, second: i64) -> QueueEntry {
    QueueEntry {
        queue: QueueName::new("mail"),
        tool: tool.to_owned(),
        since: Timestamp::from_second(second).unwrap(),
        call: CallId::new(call),
        attempt: Attempt::FIRST,
    }
}

fn id(name: &str) -> Scoped<ConversationId> {
    Scoped::parse(name).unwrap()
}

fn take(id: &str, max: usize, tools: Option<&[&str]>, wait_ms: u64) -> TakeOffers {
    TakeOffers {
        queue: Scoped::parse("mail").unwrap(),
        id: id.to_owned(),
        tools: tools.map(|tools| tools.iter().map(|tool| (*tool).to_owned()).collect()),
        max,
        wait: Duration::from_millis(wait_ms),
        worker: id.to_owned(),
    }
}

fn ready() -> Broker<&'static str> {
    let mut broker = Broker::default();
    broker.learn_tools(&BTreeMap::new());
    broker
}

/// `worker: calls` of each answer.
fn answers(broker: &mut Broker<&'static str>, now: Instant) -> Vec<String> {
    let answers = broker.answer(now, |reply| *reply == "gone");
    let text = |answer: Answer<&str>| {
        let Some(offers) = answer.offers else { return format!("{} dismissed", answer.worker) };
        let calls: Vec<&str> = offers.iter().map(|offer| offer.call.as_str()).collect();
        format!("{}: {}", answer.worker, calls.join(" "))
    };
    answers.into_iter().map(text).collect()
}

#[tokio::test(start_paused = true)]
async fn the_calls_of_conversations_are_offered_in_turn() {
    let (mut broker, now) = (ready(), Instant::now());
    for (name, call, second) in
        [("a", "a1", 1), ("a", "a2", 1), ("a", "a3", 1), ("b", "b1", 2), ("c", "c1", 3)]
    {
        broker.add(id(name), entry("send", call, second));
    }
    broker.ask(take("w", 4, None, 0), "", now).unwrap();
    assert_eq!(answers(&mut broker, now), ["w: a1 b1 c1 a2"]);
}

#[tokio::test(start_paused = true)]
async fn a_call_is_offered_once_until_its_reservation_ends() {
    let (mut broker, now) = (ready(), Instant::now());
    broker.add(id("a"), entry("send", "a1", 1));
    broker.add(id("a"), entry("send", "a1", 1));
    broker.ask(take("v", 5, None, 0), "", now).unwrap();
    broker.ask(take("w", 5, None, 0), "", now).unwrap();
    assert_eq!(answers(&mut broker, now), ["v: a1", "w: "]);
    broker.add(id("a"), entry("send", "a1", 1));
    broker.ask(take("w", 5, None, 0), "", now).unwrap();
    assert_eq!(answers(&mut broker, now), ["w: "]);
    let later = now + RESERVATION;
    assert_eq!(answers(&mut broker, later), [""; 0]);
    broker.add(id("a"), entry("send", "a1", 1));
    broker.ask(take("w", 5, None, 0), "", later).unwrap();
    assert_eq!(answers(&mut broker, later), ["w: a1"]);
}

#[tokio::test(start_paused = true)]
async fn a_worker_waits_for_its_tools_and_those_that_have_gone_get_nothing() {
    let (mut broker, now) = (ready(), Instant::now());
    broker.ask(take("print", 1, Some(&["print"]), 1_000), "", now).unwrap();
    broker.ask(take("gone", 1, None, 1_000), "gone", now).unwrap();
    broker.ask(take("left", 1, None, 1_000), "", now).unwrap();
    broker.ask(take("any", 1, None, 1_000), "", now).unwrap();
    broker.withdraw("left");
    assert_eq!(answers(&mut broker, now), [""; 0]);
    broker.add(id("a"), entry("send", "a1", 1));
    assert_eq!(answers(&mut broker, now), ["any: a1"]);
    assert_eq!(broker.next_deadline(), Some(now + Duration::from_secs(1)));
    assert_eq!(answers(&mut broker, now + Duration::from_secs(1)), ["print: "]);
    assert!(!broker.has_waiting());
}

#[tokio::test(start_paused = true)]
async fn a_worker_that_lost_a_call_must_ask_again_before_it_is_offered_one() {
    let (mut broker, now) = (ready(), Instant::now());
    broker.add(id("a"), entry("send", "a1", 1));
    broker.ask(take("frozen", 1, None, 1_000), "", now).unwrap();
    assert_eq!(answers(&mut broker, now), ["frozen: a1"]);
    broker.ask(take("frozen", 1, None, 1_000), "", now).unwrap();
    broker.ask(take("other", 1, None, 1_000), "", now).unwrap();
    let second = Attempt::FIRST.next();
    broker.add(id("a"), QueueEntry { attempt: second, ..entry("send", "a1", 2) });
    assert_eq!(answers(&mut broker, now), ["frozen dismissed", "other: a1"]);
    // It lives: it is offered calls like any other.
    broker.add(id("a"), entry("send", "a2", 3));
    broker.ask(take("frozen", 1, None, 1_000), "", now).unwrap();
    assert_eq!(answers(&mut broker, now), ["frozen: a2"]);
}

#[tokio::test(start_paused = true)]
async fn nobody_is_sent_away_before_the_index_was_read() {
    let (mut broker, now) = (Broker::default(), Instant::now());
    broker.ask(take("w", 1, None, 0), "", now).unwrap();
    assert_eq!(answers(&mut broker, now), [""; 0]);
    assert!(broker.needs_more());
    broker.add(id("a"), entry("send", "a1", 1));
    broker.learn_tools(&BTreeMap::from([("send".to_owned(), false)]));
    assert_eq!(answers(&mut broker, now), ["w: a1"]);
    assert!(!broker.needs_more());
}

#[tokio::test(start_paused = true)]
async fn a_broker_remembers_so_many_calls_and_reads_the_others_later() {
    let (mut broker, now) = (ready(), Instant::now());
    for n in 0..=MAX_KNOWN {
        broker.add(id(&format!("c{n}")), entry("send", "a", 1));
    }
    assert_eq!(broker.len_of("send"), MAX_KNOWN);
    assert!(!broker.needs_more());
    broker.ask(take("w", MAX_KNOWN, None, 0), "", now).unwrap();
    assert_eq!(broker.answer(now, |_| false).len(), 1);
    assert!(broker.needs_more());
}
