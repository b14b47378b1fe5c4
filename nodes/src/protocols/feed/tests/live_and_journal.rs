//! What is told live equals what is told from the journal, wherever a stream is cut and whatever is lost.

use std::collections::BTreeMap;

use abide_actors::streaming::StreamingMessage;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::protocols::feed::sample_events::*;

/// A step of a turn: what streams, what is journalled of it, and what becomes of its calls.
#[derive(Clone, Debug)]
pub(in crate::protocols) struct StepPlan {
    /// What a node streamed before it died.
    died_after: Option<Vec<(bool, String)>>,
    /// Pieces; `true` for thinking.
    pieces: Vec<(bool, String)>,
    end: MessageEnd,
    calls: Vec<CallPlan>,
    /// The place among the pieces at which somebody steers.
    steered_at: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
enum MessageEnd {
    Complete,
    ChangedByHook,
    Refused,
}

#[derive(Clone, Copy, Debug)]
enum CallPlan {
    Server,
    Approved,
    GatedClient,
    Human,
    Unknown,
    /// Nobody answers it.
    Open,
}

/// What a conversation publishes, in order.
#[derive(Clone, Debug)]
pub(in crate::protocols) enum Published {
    Event(Box<Event>),
    Signal(Signal),
}

fn pieces_of_text() -> impl Strategy<Value = Vec<(bool, String)>> {
    vec((any::<bool>(), "[a-zé ]{1,4}"), 0..6)
}

pub(in crate::protocols) fn step() -> impl Strategy<Value = StepPlan> {
    let end = prop_oneof![
        4 => Just(MessageEnd::Complete),
        1 => Just(MessageEnd::ChangedByHook),
        1 => Just(MessageEnd::Refused),
    ];
    let call = prop_oneof![
        Just(CallPlan::Server),
        Just(CallPlan::Approved),
        Just(CallPlan::GatedClient),
        Just(CallPlan::Human),
        Just(CallPlan::Unknown),
        Just(CallPlan::Open),
    ];
    let steered_at = option::weighted(0.3, 0..7_usize);
    (option::weighted(0.3, pieces_of_text()), pieces_of_text(), end, vec(call, 0..4), steered_at)
        .prop_map(|(died_after, pieces, end, calls, steered_at)| StepPlan {
            died_after,
            pieces,
            end,
            calls,
            steered_at,
        })
}

/// The events of a turn without their places, and the signals between them.
#[derive(Default)]
struct Timeline {
    published: Vec<Published>,
    seq: u64,
}

impl Timeline {
    fn event(&mut self, (kind, data): (&str, Value)) {
        self.seq += 1;
        let event = json!({"seq": self.seq, "at": "2026-01-01T00:00:00.000Z", "turn_id": "t",
            "type": kind, "data": data});
        let event: Event = serde_json::from_value(event).unwrap();
        self.published.push(Published::Event(Box::new(event)));
    }

    fn stream(
        &mut self,
        message: &str,
        step: u32,
        pieces: &[(bool, String)],
        steered_at: Option<usize>,
    ) {
        for (number, (is_thinking, text)) in pieces.iter().enumerate() {
            if steered_at == Some(number) {
                self.event(steered(&format!("s{step}")));
            }
            let number = u64::try_from(number).unwrap() + 1;
            let Signal::Text(delta) = delta(message, step, number, text) else { unreachable!() };
            let signal = if *is_thinking { Signal::Thinking(delta) } else { Signal::Text(delta) };
            self.published.push(Published::Signal(signal));
        }
    }

    fn step(&mut self, number: u32, plan: &StepPlan) {
        if let Some(pieces) = &plan.died_after {
            self.stream(&format!("dead{number}"), number, pieces, None);
        }
        let id = format!("m{number}");
        self.stream(&id, number, &plan.pieces, plan.steered_at);
        let joined = |thinking: bool| -> String {
            let pieces = plan.pieces.iter().filter(|(is_thinking, _)| *is_thinking == thinking);
            pieces.map(|(_, text)| text.as_str()).collect()
        };
        let text = match plan.end {
            MessageEnd::Complete | MessageEnd::Refused => joined(false),
            MessageEnd::ChangedByHook => "changed".to_owned(),
        };
        let calls: Vec<String> =
            (0..plan.calls.len()).map(|index| format!("c{number}_{index}")).collect();
        let refs: Vec<Value> =
            calls.iter().map(|id| json!({"id": id, "name": id, "args": {}})).collect();
        let message = json!({"id": id, "role": "assistant", "tool_calls": refs, "content": [
            {"type": "reasoning", "text": joined(true)}, {"type": "text", "text": text}]});
        if matches!(plan.end, MessageEnd::Refused) {
            let refused = json!({"step": number, "hook": "h", "reason": "no", "message": message});
            return self.event(("message_refused", refused));
        }
        let data = json!({"message": message, "status": "complete", "step": number});
        self.event(("assistant_msg", data));
        for (id, call) in calls.iter().zip(&plan.calls) {
            self.call(id, *call);
        }
    }

    fn call(&mut self, id: &str, call: CallPlan) {
        match call {
            CallPlan::Server => {
                self.event(called(id, "server", true));
                let payload = json!(1);
                let progress = Signal::Progress { call: CallId::new(id), payload };
                self.published.push(Published::Signal(progress));
            }
            CallPlan::Approved | CallPlan::GatedClient => {
                self.event(called(id, "client", false));
                self.event(suspended(id, "approval", 1));
                self.event(resolved(id, "approval", 1));
                if matches!(call, CallPlan::GatedClient) {
                    self.event(suspended(id, "client_exec", 2));
                    self.event(resolved(id, "client_exec", 2));
                }
            }
            CallPlan::Human | CallPlan::Open => {
                self.event(called(id, "human", true));
                self.event(suspended(id, "elicitation", 1));
                if matches!(call, CallPlan::Open) {
                    return;
                }
                self.event(resolved(id, "elicitation", 1));
            }
            CallPlan::Unknown => self.event(called(id, "server", false)),
        }
        self.event(result(id));
    }
}

pub(in crate::protocols) fn timeline(steps: &[StepPlan], has_ended: bool) -> Vec<Published> {
    let mut timeline = Timeline::default();
    timeline.event(started());
    for (number, step) in (1..).zip(steps) {
        timeline.step(number, step);
    }
    if has_ended {
        timeline.event(ended());
    }
    timeline.published
}

pub(in crate::protocols) fn journalled(published: &[Published]) -> impl Iterator<Item = &Event> {
    published.iter().filter_map(|published| match published {
        Published::Event(event) => Some(&**event),
        Published::Signal(_) => None,
    })
}

/// The message that streams after these, as a snapshot has it.
fn snapshot(published: &[Published]) -> Option<StreamingMessage> {
    let mut now: Option<StreamingMessage> = None;
    for one in published {
        let (delta, is_thinking) = match one {
            Published::Signal(Signal::Text(delta)) => (delta, false),
            Published::Signal(Signal::Thinking(delta)) => (delta, true),
            Published::Signal(_) => continue,
            // What is being written goes on.
            Published::Event(event) if matches!(event.data, EventData::Steered(_)) => continue,
            Published::Event(_) => {
                now = None;
                continue;
            }
        };
        let message = now.take_if(|message| message.id == delta.message);
        let mut message = message.unwrap_or_else(|| StreamingMessage {
            id: delta.message.clone(),
            text: String::new(),
            thinking: String::new(),
            delta_seq: 0,
            turn: TurnId::new(""),
            step: Step::ZERO,
        });
        let so_far = if is_thinking { &mut message.thinking } else { &mut message.text };
        so_far.push_str(&delta.text);
        message.delta_seq = delta.delta_seq;
        now = Some(message);
    }
    now
}

/// The items without what is lost with the moment, and with the pieces of each message joined before it.
fn joined(items: &[Item]) -> Vec<Item> {
    let mut pieces: BTreeMap<MessageId, [String; 2]> = BTreeMap::new();
    let mut all = Vec::new();
    for item in items {
        let (piece, channel) = match item {
            Item::Thinking(piece) => (piece, 0),
            Item::Text(piece) => (piece, 1),
            Item::Restarted { message } => {
                pieces.remove(message);
                continue;
            }
            Item::Refused { message, .. } => {
                pieces.remove(message);
                all.push(item.clone());
                continue;
            }
            Item::Message(message) => {
                let id = message.assistant.message.id.clone();
                let texts = pieces.remove(&id).unwrap_or_default();
                let piece =
                    |text: &String| Piece { message: id.clone(), place: 0, text: text.clone() };
                all.push(Item::Thinking(piece(&texts[0])));
                all.push(Item::Text(piece(&texts[1])));
                all.push(item.clone());
                continue;
            }
            Item::Progress { .. } | Item::CaughtUp | Item::Rest(_) => continue,
            item => {
                all.push(item.clone());
                continue;
            }
        };
        let so_far = &mut pieces.entry(piece.message.clone()).or_default()[channel];
        assert_eq!(piece.place, so_far.chars().count(), "the place of a piece");
        so_far.push_str(&piece.text);
    }
    assert!(pieces.values().flatten().all(String::is_empty) || !ends(&all), "{pieces:?}");
    all
}

fn ends(items: &[Item]) -> bool {
    matches!(items.last(), Some(Item::End(_)))
}

/// What a stream tells that was opened after `cut` of these, and loses signals.
pub(in crate::protocols) fn live(
    published: &[Published],
    cut: usize,
    has_snapshot: bool,
    is_lost: &[bool],
) -> (Feed, Vec<Item>) {
    let mut feed = feed();
    let mut items: Vec<Item> = Vec::new();
    for event in journalled(&published[..cut]) {
        items.extend(feed.event(event, &Answerable::All));
    }
    if let Some(now) = snapshot(&published[..cut]).filter(|_| has_snapshot) {
        items.extend(feed.streaming_message(&now));
    }
    items.extend(feed.catch_up(&Answerable::All));
    // The subscription was opened before: what came since is taken again.
    let overlap = cut.saturating_sub(3);
    for (index, published) in published.iter().enumerate().skip(overlap) {
        match published {
            Published::Event(event) => items.extend(feed.event(event, &Answerable::All)),
            Published::Signal(_) if is_lost[index % is_lost.len()] => {}
            Published::Signal(signal) => items.extend(feed.signal(signal)),
        }
        items.extend(feed.catch_up(&Answerable::All));
    }
    (feed, items)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_is_told_live_equals_what_is_told_from_the_journal(
        steps in vec(step(), 0..4),
        has_ended in any::<bool>(),
        at in any::<prop::sample::Index>(),
        has_snapshot in any::<bool>(),
        is_lost in vec(proptest::bool::weighted(0.2), 1..8),
    ) {
        let published = timeline(&steps, has_ended);
        let mut from_journal = feed();
        let events = journalled(&published);
        let replayed: Vec<Item> =
            events.flat_map(|event| from_journal.event(event, &Answerable::All)).collect();
        let cut = at.index(published.len() + 1);
        let (feed, items) = live(&published, cut, has_snapshot, &is_lost);
        prop_assert_eq!(joined(&items), joined(&replayed));
        prop_assert_eq!(feed.rests(), from_journal.rests());
        prop_assert_eq!(feed.has_ended(), from_journal.has_ended());
    }
}
