//! The messages of a conversation as clients of AG-UI hold them.

use std::collections::BTreeMap;

use abide_conversation::event::{Event, EventData, UserMsg};
use abide_conversation::message::{CallRef, Message, Outcome, Ui};
use abide_conversation::{CallId, MessageId, Seq, TurnId};
use serde_json::{Value, json};

use super::calls::{CallProgress, result_content, result_id, result_metadata};
use super::content;
use super::types::{Dialect, RunTools};
use crate::protocols::feed::{Answerable, Feed, Item, SteeringMessage};

/// The most bytes of the messages of one snapshot, in JSON: clients take events of up to 10 MB.
const MAX_BYTES: usize = 8 << 20;

/// The id of the message with the thinking of a model's message.
pub fn thinking_id(message: &MessageId) -> String {
    format!("{message}_thinking")
}

/// The id of the message with what a call shows to people.
pub fn ui_id(call: &CallId) -> String {
    format!("ui_{call}")
}

/// What a call shows to people, as the content of an activity, which is an object.
pub fn ui_content(ui: &Ui) -> Value {
    match &ui.payload {
        Value::Object(_) => ui.payload.clone(),
        other => json!({"value": other}),
    }
}

/// The messages of these events' turns, oldest first. Calls that need an approval and that the client
/// might execute are not there before they have a result. The oldest messages are left out if all were
/// too large together.
pub fn messages(events: &[Event], tools: &RunTools, dialect: Dialect) -> Vec<Value> {
    let mut questions: BTreeMap<&TurnId, &UserMsg> = BTreeMap::new();
    let mut queued: Vec<&TurnId> = Vec::new();
    let mut messages = Vec::new();
    for event in events {
        match (&event.data, &event.turn_id) {
            (EventData::UserMsg(user), Some(turn)) => {
                questions.insert(turn, user);
                queued.push(turn);
            }
            // What waited then does not wait any more.
            (EventData::Rewound(_), _) => queued.clear(),
            (EventData::TurnWithdrawn(_), Some(turn)) => queued.retain(|other| *other != turn),
            (EventData::TurnStarted(_), Some(turn)) => {
                let Some(user) = questions.get(turn) else { continue };
                queued.retain(|other| *other != turn);
                messages.push(question(user));
                messages.extend(Reply::new(dialect).of_turn(turn, event.seq, events, tools));
            }
            _ => {}
        }
    }
    messages
        .extend(queued.iter().filter_map(|turn| questions.get(turn)).map(|user| question(user)));
    newest(messages)
}

/// The newest messages, as many as are not too large together.
fn newest(mut messages: Vec<Value>) -> Vec<Value> {
    let mut bytes = 0;
    let fits = |message: &&Value| {
        bytes += message.to_string().len();
        bytes <= MAX_BYTES
    };
    let kept = messages.iter().rev().take_while(fits).count();
    messages.split_off(messages.len() - kept)
}

fn question(user: &UserMsg) -> Value {
    let id = user.message_id.clone().unwrap_or_else(|| user.message.id.to_string());
    user_message(&id, &user.message.content)
}

fn user_message(id: &str, content: &[Value]) -> Value {
    json!({"id": id, "role": "user", "content": content::content(content)})
}

/// The messages of the assistant in one turn, with the results of its calls.
struct Reply {
    dialect: Dialect,
    steps: Vec<Step>,
    /// The messages that were added to the turn, each with the number of steps before it.
    steering: Vec<(usize, SteeringMessage)>,
    calls: BTreeMap<CallId, CallProgress>,
}

/// A message of the model, and what its calls resulted in.
struct Step {
    message: Message,
    results: Vec<(CallId, Outcome)>,
    uis: Vec<(CallId, Ui)>,
}

impl Reply {
    fn new(dialect: Dialect) -> Self {
        Self { dialect, steps: Vec::new(), steering: Vec::new(), calls: BTreeMap::new() }
    }

    /// The messages of a turn that began with the event of this seq.
    fn of_turn(
        mut self,
        turn: &TurnId,
        began: Seq,
        events: &[Event],
        tools: &RunTools,
    ) -> Vec<Value> {
        let mut feed = Feed::new(turn.clone(), began);
        for event in events {
            for item in feed.event(event, &Answerable::All) {
                self.take(&item, tools);
            }
        }
        let mut messages = Vec::new();
        for number in 0..=self.steps.len() {
            let here = self.steering.iter().filter(|(steps, _)| *steps == number);
            messages.extend(here.map(|(_, added)| user_message(&added.id, &added.content)));
            messages.extend(self.steps.get(number).into_iter().flat_map(|it| self.messages(it)));
        }
        messages
    }

    fn take(&mut self, item: &Item, tools: &RunTools) {
        match item {
            Item::Message(item) => self.steps.push(Step {
                message: item.assistant.message.clone(),
                results: Vec::new(),
                uis: Vec::new(),
            }),
            Item::Steered(message) => {
                self.steering.push((self.steps.len(), (**message).clone()));
            }
            Item::CallStarted(start) => self.calls.entry(start.call.clone()).or_default().start(),
            Item::Suspended(suspended) => {
                let call = self.calls.entry(suspended.call.clone()).or_default();
                call.suspend(suspended, tools);
            }
            Item::Result { call, outcome } => {
                self.calls.entry(call.clone()).or_default().end();
                if let Some(step) = self.steps.last_mut() {
                    step.results.push((call.clone(), outcome.clone()));
                }
            }
            Item::Ui { call, ui } => {
                if let Some(step) = self.steps.last_mut() {
                    step.uis.push((call.clone(), ui.clone()));
                }
            }
            Item::Started { .. }
            | Item::Thinking(_)
            | Item::Text(_)
            | Item::Resolved(_)
            | Item::Progress { .. }
            | Item::Todos(_)
            | Item::Refused { .. }
            | Item::Restarted { .. }
            | Item::CaughtUp
            | Item::Rest(_)
            | Item::End(_) => {}
        }
    }

    fn messages(&self, step: &Step) -> Vec<Value> {
        let Step { message, results, uis } = step;
        let thinking = message.content.iter().filter(|block| block["type"] == "reasoning");
        let thinking: String = thinking.filter_map(|block| block["text"].as_str()).collect();
        let mut messages = Vec::new();
        if !thinking.is_empty() {
            let id = thinking_id(&message.id);
            messages.push(json!({"id": id, "role": "reasoning", "content": thinking}));
        }
        let is_visible =
            |call: &&CallRef| self.calls.get(&call.id).is_some_and(|call| call.is_in_snapshot());
        let call = |call: &CallRef| {
            let function = json!({"name": call.name, "arguments": call.args.to_string()});
            json!({"id": call.id, "type": "function", "function": function})
        };
        let calls: Vec<Value> = message.tool_calls.iter().filter(is_visible).map(call).collect();
        let mut assistant =
            json!({"id": message.id, "role": "assistant", "content": message.text()});
        if !calls.is_empty() {
            assistant["toolCalls"] = json!(calls);
        }
        messages.push(assistant);
        messages.extend(results.iter().map(|(call, outcome)| self.result(call, outcome)));
        messages.extend(uis.iter().map(|(call, ui)| {
            json!({"id": ui_id(call), "role": "activity", "activityType": ui.kind,
                "content": ui_content(ui)})
        }));
        messages
    }

    fn result(&self, call: &CallId, outcome: &Outcome) -> Value {
        let mut message = json!({"id": result_id(call), "role": "tool", "toolCallId": call,
            "content": result_content(outcome)});
        if let Outcome::Err(error, _) = outcome {
            message["error"] = json!(error);
        }
        if self.dialect == Dialect::V1 {
            message["metadata"] = result_metadata(outcome);
        }
        message
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::protocols::feed::sample_events::{
        ended, journal, message, result, started, steered,
    };

    #[test]
    fn a_message_that_steered_stands_where_it_came() {
        let asked = json!({"id": "q", "role": "user", "content": [{"type": "text", "text": "go"}]});
        let events = journal(&[
            ("user_msg", json!({"message": asked, "principal": "ada"})),
            started(),
            message("m1", 1, "", &["a"]),
            steered("s"),
            result("a"),
            message("m2", 2, "Done.", &[]),
            steered("late"),
            message("m3", 3, "Done, too.", &[]),
            ended(),
        ]);
        let messages = messages(&events, &RunTools::default(), Dialect::V1);
        let shown = messages.iter().filter(|message| message["role"] != "reasoning");
        let ids: Vec<&str> = shown.map(|message| message["id"].as_str().unwrap()).collect();
        let place = |id: &str| ids.iter().position(|other| *other == id).unwrap();
        assert_eq!(ids.first(), Some(&"q"));
        assert!(place("m1") < place("own_s") && place("own_s") < place("m2"), "{ids:?}");
        assert!(place("m2") < place("own_late") && place("own_late") < place("m3"), "{ids:?}");
    }
}
