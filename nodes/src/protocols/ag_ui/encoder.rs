//! Encodes the items of a turn as the events of a run: a pure fold.

mod message;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;

use abide_conversation::AnswerSchema;
use abide_conversation::event::{AssistantMsg, SuspensionKind, Todo, TurnEnded, TurnOutcome};
use abide_conversation::usage::Usage;
use serde_json::{Value, json};

use super::calls::ToolCalls;
use super::history::{ui_content, ui_id};
use super::types::{Dialect, PROTOCOL_VERSION, RunTools};
use crate::protocols::feed::{Item, SuspendedCall};
use message::MessageEvents;

/// The events of one run, which tells a turn from some event on.
#[derive(Debug)]
pub struct RunEncoder {
    dialect: Dialect,
    thread: String,
    run: String,
    tools: RunTools,
    message: MessageEvents,
    calls: ToolCalls,
    /// The calls on which the turn rests, as far as the caller may not answer them.
    waits_for: Vec<SuspendedCall>,
    /// What only a snapshot can tell.
    demand: Option<Demand>,
    /// Whether another turn follows in the same run.
    is_followed: bool,
    events: Vec<Value>,
    is_over: bool,
}

/// What an encoder needs besides the items.
#[derive(Clone, Debug, PartialEq)]
pub enum Demand {
    /// The messages up to the last item, since what was told before is void, or is not all.
    Messages,
    /// The messages and the state, to end the run with these interrupts.
    Interrupt(Vec<SuspendedCall>),
}

impl RunEncoder {
    /// The encoder of a run of this client on this thread.
    pub fn new(dialect: Dialect, thread: &str, run: &str, tools: RunTools) -> Self {
        Self {
            dialect,
            thread: thread.to_owned(),
            run: run.to_owned(),
            tools,
            message: MessageEvents::default(),
            calls: ToolCalls::default(),
            waits_for: Vec::new(),
            demand: None,
            is_followed: false,
            events: Vec::new(),
            is_over: false,
        }
    }

    /// The dialect.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The tools that the client executes.
    pub fn tools(&self) -> &RunTools {
        &self.tools
    }

    /// The first event.
    pub fn begin(&self) -> Value {
        let mut event = json!({"type": "RUN_STARTED", "threadId": self.thread, "runId": self.run});
        if self.dialect == Dialect::V1 {
            event["protocolVersion"] = json!(PROTOCOL_VERSION);
        }
        event
    }

    /// Whether the run is complete.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// Whether another turn follows when the turn ends.
    pub fn is_followed(&self) -> bool {
        self.is_followed
    }

    /// Says whether another turn follows in the same run.
    pub fn set_followed(&mut self, is_followed: bool) {
        self.is_followed = is_followed;
    }

    /// Takes items that a snapshot tells, and so have no events; what follows continues them.
    pub fn prime(&mut self, items: &[Item]) {
        for item in items {
            match item {
                Item::Message(message) => {
                    let AssistantMsg { message, step, .. } = &message.assistant;
                    self.message.skip(*step);
                    self.calls.begin(&message.id, &message.tool_calls);
                }
                Item::CallStarted(start) => drop(self.calls.start(start)),
                Item::Suspended(call) => drop(self.calls.suspend(call, &self.tools)),
                Item::Result { call, outcome } => {
                    drop(self.calls.end(call, outcome, self.dialect));
                }
                Item::Refused { .. } => self.message.refuse(),
                Item::Started { .. }
                | Item::Steered(_)
                | Item::Thinking(_)
                | Item::Text(_)
                | Item::Resolved(_)
                | Item::Progress { .. }
                | Item::Ui { .. }
                | Item::Todos(_)
                | Item::Restarted { .. }
                | Item::CaughtUp
                | Item::Rest(_)
                | Item::End(_) => {}
            }
        }
    }

    /// The events of a snapshot with these messages, up to the last item.
    pub fn snapshot(&mut self, messages: Vec<Value>) -> Vec<Value> {
        let mut events = vec![json!({"type": "MESSAGES_SNAPSHOT", "messages": messages})];
        events.extend(self.calls.continue_snapshot());
        events
    }

    /// What the encoder needs for the items that it took. Nothing is needed that the client could not
    /// take now: while a message is open, a snapshot would remove it.
    pub fn take_demand(&mut self) -> Option<Demand> {
        let must_wait = self.is_over || self.message.is_open();
        self.demand.take_if(|_| !must_wait)
    }

    /// Demands the messages, again if they could not be told before.
    pub fn demand_messages(&mut self) {
        self.demand.get_or_insert(Demand::Messages);
    }

    /// The events of an item.
    pub fn item(&mut self, item: &Item) -> Vec<Value> {
        if !self.is_over {
            self.encode(item);
        }
        std::mem::take(&mut self.events)
    }

    fn encode(&mut self, item: &Item) {
        match item {
            Item::Started { .. } | Item::Resolved(_) | Item::CaughtUp => {}
            Item::Thinking(piece) => self.message.think(piece, &mut self.events),
            Item::Text(piece) => self.message.write(piece, &mut self.events),
            Item::Message(item) => {
                let AssistantMsg { message, step, .. } = &item.assistant;
                self.message.end(&message.id, *step, &mut self.events);
                self.calls.begin(&message.id, &message.tool_calls);
            }
            Item::CallStarted(start) => self.events.extend(self.calls.start(start)),
            Item::Suspended(call) => self.events.extend(self.calls.suspend(call, &self.tools)),
            Item::Progress { call, payload } => {
                self.custom("tool_progress", json!({"call_id": call, "payload": payload}));
            }
            Item::Ui { call, ui } => self.events.push(json!({
                "type": "ACTIVITY_SNAPSHOT", "messageId": ui_id(call),
                "activityType": ui.kind, "content": ui_content(ui)})),
            Item::Todos(todos) => self.todos(todos),
            // Messages of users are told in snapshots.
            Item::Steered(_) => self.demand_messages(),
            Item::Result { call, outcome } => match self.calls.end(call, outcome, self.dialect) {
                Some(events) => self.events.extend(events),
                None => self.demand_messages(),
            },
            Item::Refused { .. } => {
                self.message.refuse_told(&mut self.events);
                self.demand_messages();
            }
            Item::Restarted { .. } => {
                self.message.give_up(&mut self.events);
                self.demand_messages();
            }
            Item::Rest(pending) => self.rest(pending),
            Item::End(ended) => self.end(ended),
        }
    }

    fn custom(&mut self, name: &str, value: Value) {
        let name = format!("abide.{name}");
        self.events.push(json!({"type": "CUSTOM", "name": name, "value": value}));
    }

    fn todos(&mut self, todos: &[Todo]) {
        self.custom("todos", json!(todos));
    }

    /// Ends the run if the client is to execute calls, or somebody is to answer interrupts. An outcome
    /// has only one of both: interrupts are told when the client's calls have their results.
    fn rest(&mut self, pending: &[SuspendedCall]) {
        let (own, others): (Vec<_>, Vec<_>) =
            pending.iter().cloned().partition(|call| call.may_answer);
        let executes = own.iter().filter(|call| self.tools.executes(call));
        let executes: Vec<Value> = executes.map(|call| json!(call.call)).collect();
        self.waits_for = others;
        if !executes.is_empty() {
            let mut outcome = json!({"type": "success"});
            if self.dialect == Dialect::V1 {
                outcome["pendingToolCallIds"] = json!(executes);
            }
            self.finish(outcome);
        } else if !own.is_empty() {
            self.demand = Some(Demand::Interrupt(own));
        }
    }

    /// The events that end the run with these interrupts.
    pub fn interrupt(
        &mut self,
        interrupts: &[SuspendedCall],
        (state, messages): (Value, Vec<Value>),
    ) -> Vec<Value> {
        self.events.push(json!({"type": "STATE_SNAPSHOT", "snapshot": state}));
        self.events.push(json!({"type": "MESSAGES_SNAPSHOT", "messages": messages}));
        let interrupts: Vec<Value> = interrupts.iter().map(interrupt).collect();
        self.finish(json!({"type": "interrupt", "interrupts": interrupts}));
        std::mem::take(&mut self.events)
    }

    /// The events that end a run in which nothing more happens by itself, since it rests on calls that
    /// the caller may not answer, or since no turn is open.
    pub fn succeed(&mut self) -> Vec<Value> {
        if !self.is_over {
            let waits_for = std::mem::take(&mut self.waits_for);
            if !waits_for.is_empty() {
                let call = |call: &SuspendedCall| {
                    json!({"call_id": call.call, "tool": call.tool, "kind": call.kind,
                        "message": call.message, "suspension": call.suspension,
                        "expires_at": call.expires_at})
                };
                let calls: Vec<Value> = waits_for.iter().map(call).collect();
                self.custom("waiting", json!({"for": calls}));
            }
            self.message.give_up(&mut self.events);
            self.finish(json!({"type": "success"}));
        }
        std::mem::take(&mut self.events)
    }

    /// The events that end a run that cannot go on.
    pub fn fail(&mut self, code: &str, message: &str) -> Vec<Value> {
        if !self.is_over {
            self.message.give_up(&mut self.events);
            self.error(code, message);
        }
        std::mem::take(&mut self.events)
    }

    fn end(&mut self, ended: &TurnEnded) {
        self.message.give_up(&mut self.events);
        if self.is_followed {
            self.message = MessageEvents::default();
            self.calls = ToolCalls::default();
            return;
        }
        let stopped = |how: &str| match ended.reason.as_deref() {
            Some(reason) => format!("{how}: {reason}"),
            None => how.to_owned(),
        };
        match ended.outcome {
            TurnOutcome::Completed => {
                self.finish(json!({"type": "success"}));
                let usage = ended.usage.filter(|_| self.dialect == Dialect::V1);
                if let (Some(usage), Some(event)) = (usage, self.events.last_mut()) {
                    event["usage"] = json!([token_usage(&usage)]);
                }
            }
            TurnOutcome::Cancelled => match self.dialect {
                Dialect::V1 => self.finish(json!({"type": "cancelled"})),
                Dialect::V0 => self.error("cancelled", &stopped("cancelled")),
            },
            TurnOutcome::Halted => self.error("halted", &stopped("halted")),
            TurnOutcome::Failed => self.error("failed", &stopped("failed")),
        }
    }

    fn finish(&mut self, outcome: Value) {
        self.events.push(json!({"type": "RUN_FINISHED", "threadId": self.thread,
            "runId": self.run, "outcome": outcome}));
        self.is_over = true;
    }

    fn error(&mut self, code: &str, message: &str) {
        self.events.push(json!({"type": "RUN_ERROR", "message": message, "code": code}));
        self.is_over = true;
    }
}

fn token_usage(usage: &Usage) -> Value {
    let mut counts = json!({"inputTokens": usage.input_tokens,
        "outputTokens": usage.output_tokens, "totalTokens": usage.tokens()});
    for (name, tokens) in [
        ("cachedInputTokens", usage.cached_tokens),
        ("cacheWriteInputTokens", usage.cache_write_tokens),
    ] {
        if tokens > 0 {
            counts[name] = json!(tokens);
        }
    }
    counts
}

fn interrupt(call: &SuspendedCall) -> Value {
    let reason = match call.kind {
        SuspensionKind::Approval => "tool_call",
        SuspensionKind::Elicitation => "input_required",
        SuspensionKind::ClientExec => "abide:client_tool",
        SuspensionKind::InDoubt => "abide:in_doubt",
    };
    let mut interrupt = json!({"id": call.id(), "reason": reason, "toolCallId": call.call,
        "expiresAt": call.expires_at, "metadata": {"abide": {
            "kind": call.kind, "tool": call.tool, "args": call.args,
            "suspension": call.suspension, "intent": call.intent}}});
    if !call.message.is_empty() {
        interrupt["message"] = json!(call.message);
    }
    if let Some(schema) = response_schema(call) {
        interrupt["responseSchema"] = schema;
    }
    interrupt
}

/// The JSON Schema of an answer, if that is an object; arguments that an approver edits are `editedArgs`.
fn response_schema(call: &SuspendedCall) -> Option<Value> {
    let schema = call.answer_schema.as_ref().map(AnswerSchema::to_value).filter(Value::is_object);
    if call.kind != SuspensionKind::Approval {
        return schema;
    }
    let args = schema.map(|mut schema| schema["properties"]["args"].take());
    let args = args.filter(Value::is_object).unwrap_or_else(|| json!({"type": "object"}));
    Some(json!({"type": "object", "required": ["approved"], "properties": {
        "approved": {"type": "boolean"}, "reason": {"type": "string"}, "editedArgs": args}}))
}
