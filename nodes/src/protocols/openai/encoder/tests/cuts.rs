//! A stream that is cut after any event, and continued from the journal.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

/// The pieces of one message, as they stream.
fn pieces() -> impl Strategy<Value = Vec<String>> {
    vec("[a-zé ]{1,5}", 0..5)
}

fn events(thought: &[String], texts: &[String], has_call: bool) -> Vec<Event> {
    let calls: &[&str] = if has_call { &["a"] } else { &[] };
    let (kind, mut data) = message("m", 1, &texts.concat(), calls);
    data["message"]["content"][0]["text"] = json!(thought.concat());
    let call = [called("a", "server", true), result("a"), message("n", 2, "Done.", &[])];
    let call = call.into_iter().filter(|_| has_call);
    journal(&[started(), (kind, data)].into_iter().chain(call).chain([ended()]).collect::<Vec<_>>())
}

/// What is told live: the message in its pieces.
fn live(thought: &[String], texts: &[String], events: &[Event]) -> Vec<Value> {
    write(Case::new(1, 0).live(&events[..1]), thought, texts).live(&events[1..]).events
}

/// The message `m` as it streams, in its pieces.
fn write(mut case: Case, thought: &[String], texts: &[String]) -> Case {
    for (number, piece) in (1..).zip(thought) {
        case = case.signal(&thinking("m", number, piece));
    }
    let first = u64::try_from(thought.len()).unwrap() + 1;
    for (number, piece) in (first..).zip(texts) {
        case = case.signal(&text("m", number, piece));
    }
    case
}

/// What is told live, if nodes die that have written messages with these pieces before.
fn live_after_deaths(
    void: &[Vec<String>],
    (thought, texts): (&[String], &[String]),
    events: &[Event],
) -> Vec<Value> {
    let mut case = Case::new(1, 0).live(&events[..1]);
    for (death, pieces) in void.iter().enumerate() {
        for (number, piece) in (1..).zip(pieces) {
            case = case.signal(&text(&format!("void{death}"), number, piece));
        }
    }
    write(case, thought, texts).live(&events[1..]).events
}

/// Events without the places of their items, which count void ones that a later stream does not tell.
fn without_places(mut events: Vec<Value>) -> Vec<Value> {
    for event in events.iter_mut().filter(|event| event["output_index"].is_u64()) {
        event["output_index"] = json!(0);
    }
    events
}

/// Events without their numbers, with the deltas of each item joined.
fn joined(events: &[Value]) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    for event in events {
        let mut event = event.clone();
        event["sequence_number"] = json!(0);
        let delta = event["delta"].take();
        match all.last_mut() {
            Some(last) if last["type"] == event["type"] && delta.is_string() => {
                let so_far = last["delta"].as_str().unwrap();
                last["delta"] = json!(format!("{so_far}{}", delta.as_str().unwrap()));
            }
            _ => {
                event["delta"] = delta;
                all.push(event);
            }
        }
    }
    all
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_follows_any_cut_and_what_came_before_are_the_whole(
        thought in pieces(),
        texts in pieces(),
        has_call in any::<bool>(),
    ) {
        let events = events(&thought, &texts, has_call);
        let whole = live(&thought, &texts, &events);
        let number = |event: &Value| event["sequence_number"].as_u64().unwrap();
        prop_assert!(whole.is_sorted_by_key(number));
        for cut in 0..whole.len() {
            let before = &whole[..=cut];
            let known = number(&before[cut]);
            let replayed = Case::new(1, known).live(&events).events;
            prop_assert!(replayed.iter().all(|event| number(event) > known));
            let both: Vec<Value> = before.iter().chain(&replayed).cloned().collect();
            prop_assert_eq!(joined(&both), joined(&whole), "cut after {}", known);
            let again = Case::new(1, number(whole.last().unwrap())).live(&events).events;
            prop_assert!(again.is_empty());
        }
    }

    #[test]
    fn nothing_of_a_message_that_was_begun_anew_is_lost_after_a_cut(
        void in vec(vec("[a-zé ]{1,5}", 1..5), 1..=5),
        thought in pieces(),
        texts in pieces(),
    ) {
        let events = events(&thought, &texts, false);
        let whole = live_after_deaths(&void, (&thought, &texts), &events);
        let number = |event: &Value| event["sequence_number"].as_u64().unwrap();
        prop_assert!(whole.is_sorted_by(|one, other| number(one) < number(other)));
        // The stream says that the last of them is void: what ends it is told once.
        let is_void = |event: &Value| event["item"]["status"] == "incomplete";
        let end_of_void = whole.iter().rposition(is_void).unwrap();
        for cut in end_of_void..whole.len() {
            let before = &whole[..=cut];
            let known = number(&before[cut]);
            let replayed = Case::new(1, known).live(&events).events;
            prop_assert!(replayed.iter().all(|event| number(event) > known));
            let both: Vec<Value> = before.iter().chain(&replayed).cloned().collect();
            let (both, whole) = (joined(&both), joined(&whole));
            prop_assert_eq!(without_places(both), without_places(whole), "cut after {}", known);
        }
    }

    #[test]
    fn what_follows_any_number_lacks_nothing_and_repeats_nothing(
        texts in pieces(),
        known in 0_u64..40,
    ) {
        let events = events(&[], &texts, false);
        let number = (1 << 20) + 1_024 + known;
        let replayed = Case::new(1, number).live(&events).events;
        let deltas = replayed.iter().filter(|it| it["type"] == "response.output_text.delta");
        let tail: String = deltas.map(|it| it["delta"].as_str().unwrap()).collect();
        let expected: String =
            texts.concat().chars().skip(usize::try_from(known).unwrap()).collect();
        prop_assert_eq!(tail, expected);
    }
}
