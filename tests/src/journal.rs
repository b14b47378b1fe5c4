//! A journal as a client reads it, and the rules that every journal keeps.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

/// All events of one conversation.
#[derive(Clone, Debug, PartialEq)]
pub struct Journal(pub Vec<Value>);

impl Journal {
    /// The events of one type.
    pub fn of(&self, kind: &str) -> impl Iterator<Item = &Value> {
        self.0.iter().filter(move |event| event["type"] == kind)
    }

    /// The events of one type that are about one call.
    pub fn about(&self, kind: &str, call: &str) -> impl Iterator<Item = &Value> {
        self.of(kind).filter(move |event| event["data"]["call_id"] == call)
    }

    /// The data of a call's `tool_result`, or null.
    pub fn result(&self, call: &str) -> &Value {
        self.about("tool_result", call).next().map_or(&Value::Null, |event| &event["data"])
    }

    /// How the turns ended, in order.
    pub fn outcomes(&self) -> Vec<&str> {
        self.of("turn_ended").filter_map(|event| event["data"]["outcome"].as_str()).collect()
    }

    /// The text of the last message of the model.
    pub fn last_text(&self) -> String {
        let last = self.of("assistant_msg").last();
        let blocks = last.and_then(|event| event["data"]["message"]["content"].as_array());
        blocks.into_iter().flatten().filter_map(|block| block["text"].as_str()).collect()
    }

    /// The `seq` of every event that has a frame with an id in the event stream.
    pub fn mirrored(&self) -> Vec<u64> {
        let has_frames = |event: &&Value| match event["type"].as_str().unwrap_or_default() {
            "user_msg" | "turn_started" | "assistant_msg" | "tool_started" | "suspension"
            | "resolution" | "tool_result" | "turn_ended" | "todos_changed" | "phase_changed" => {
                true
            }
            "tool_call" => event["data"]["started"] == true,
            _ => false,
        };
        self.0.iter().filter(has_frames).filter_map(|event| event["seq"].as_u64()).collect()
    }

    /// Fails unless the journal keeps the rules that hold at any moment.
    pub fn assert_sound(&self) {
        let violations = self.violations();
        assert!(violations.is_empty(), "{violations:#?}\n{self:#?}");
    }

    /// Fails unless the journal is sound and nothing is open in it.
    pub fn assert_settled(&self) {
        self.assert_sound();
        let open = self.open();
        assert!(open.is_empty(), "open at the end: {open:?}\n{self:#?}");
    }

    /// The broken rules, one line each.
    pub fn violations(&self) -> Vec<String> {
        self.fold().1
    }

    /// What is open at the journal's end: calls, dispatches, the turn, messages whose turn has not
    /// started.
    pub fn open(&self) -> Vec<String> {
        let fold = self.fold().0;
        let calls = fold.open_calls.keys().map(|call| format!("call {call}"));
        let dispatches = fold.dispatches.keys().map(|call| format!("dispatch {call}"));
        let turns = fold.turn.iter().map(|turn| format!("turn {turn}"));
        let messages =
            fold.message_turns.difference(&fold.turns).map(|turn| format!("message of {turn}"));
        calls.chain(dispatches).chain(turns).chain(messages).collect()
    }

    fn fold(&self) -> (Fold, Vec<String>) {
        let mut fold = Fold::default();
        let mut violations = Vec::new();
        for (index, event) in self.0.iter().enumerate() {
            if event["seq"] != index as u64 + 1 {
                violations.push(format!("event {} has seq {}", index + 1, event["seq"]));
            }
            if let Err(why) = fold.apply(event) {
                violations.push(format!("seq {}: {why}", event["seq"]));
            }
        }
        (fold, violations)
    }
}

#[derive(Default)]
struct Fold {
    turn: Option<String>,
    turns: BTreeSet<String>,
    /// The turns that messages were appended for.
    message_turns: BTreeSet<String>,
    calls: BTreeSet<String>,
    open_calls: BTreeMap<String, OpenCall>,
    dispatches: BTreeMap<String, u64>,
    dispatched: BTreeSet<String>,
}

#[derive(Default)]
struct OpenCall {
    attempt: u64,
    suspensions: u64,
    /// Whether the last suspension is still open.
    is_suspended: bool,
    /// Whether a program outside carries the call out: a worker, or a tool that calls back.
    is_external: bool,
    /// The lease of the worker that has the call, and its attempt.
    lease: Option<(String, u64)>,
}

impl OpenCall {
    fn suspend(&mut self, suspension: &Value) -> Result<(), String> {
        ensure(!self.is_suspended, "a call has two open suspensions")?;
        ensure(
            suspension["suspension"] == self.suspensions + 1,
            "a suspension has the wrong number",
        )?;
        self.suspensions += 1;
        self.is_suspended = true;
        Ok(())
    }

    fn resolve(&mut self, resolution: &Value) -> Result<(), String> {
        let is_current = resolution["suspension"] == self.suspensions;
        ensure(self.is_suspended && is_current, "a resolution of a suspension that is not open")?;
        self.is_suspended = false;
        Ok(())
    }

    fn start(&mut self, started: &Value) -> Result<(), String> {
        let attempt = started["attempt"].as_u64().unwrap_or_default();
        ensure(!self.is_suspended, "a call starts while it is suspended")?;
        ensure(attempt > self.attempt, "an attempt that is not higher")?;
        self.attempt = attempt;
        Ok(())
    }

    /// An attempt waits in a queue: as it starts, or when a lease has run out.
    fn queue(&mut self, queued: &Value) -> Result<(), String> {
        let attempt = queued["attempt"].as_u64().unwrap_or_default();
        let was_leased = self.lease.take().is_some_and(|(_, leased)| attempt == leased + 1);
        ensure(!self.is_external || was_leased, "a queued call is queued again")?;
        self.attempt = attempt;
        self.is_external = true;
        Ok(())
    }

    fn lease(&mut self, leased: &Value) -> Result<(), String> {
        let lease = leased["lease"].as_str().unwrap_or_default();
        let is_free = self.lease.as_ref().is_none_or(|(held, _)| held == lease);
        ensure(self.is_external && is_free, "a call is leased to two workers at a time")?;
        ensure(leased["attempt"] == self.attempt, "a lease of another attempt")?;
        self.lease = Some((lease.to_owned(), self.attempt));
        Ok(())
    }

    fn end(self, result: &Value) -> Result<(), String> {
        let error = result["error_type"].as_str().unwrap_or_default();
        let closes = ["EXPIRED", "CANCELLED", "NO_CLIENT"].contains(&error);
        ensure(!self.is_suspended || closes, "a result while the call is suspended")?;
        ensure(
            self.is_suspended || self.is_external || error != "EXPIRED",
            "an expiry of a suspension that is not open",
        )
    }
}

impl Fold {
    fn apply(&mut self, event: &Value) -> Result<(), String> {
        let data = &event["data"];
        let turn = event["turn_id"].as_str().unwrap_or_default();
        let call = data["call_id"].as_str().unwrap_or_default();
        match event["type"].as_str().ok_or("no type")? {
            "user_msg" => {
                self.message_turns.insert(turn.to_owned());
            }
            "turn_started" => {
                ensure(self.turn.is_none(), "a turn starts within a turn")?;
                ensure(self.turns.insert(turn.to_owned()), "a turn starts twice")?;
                self.turn = Some(turn.to_owned());
            }
            "turn_ended" => {
                ensure(self.turn.take().as_deref() == Some(turn), "a turn ends that is not open")?;
                ensure(self.open_calls.is_empty(), "a turn ends before its calls")?;
            }
            "tool_call" => {
                ensure(self.turn.as_deref() == Some(turn), "a call outside its turn")?;
                ensure(self.calls.insert(call.to_owned()), "a call's id is used twice")?;
                self.open_calls.insert(call.to_owned(), OpenCall::default());
            }
            "suspension" => self.open(call)?.suspend(data)?,
            "resolution" => self.open(call)?.resolve(data)?,
            "tool_started" => self.open(call)?.start(data)?,
            "tool_queued" => self.open(call)?.queue(data)?,
            "tool_leased" => self.open(call)?.lease(data)?,
            "callback_awaited" => self.open(call)?.is_external = true,
            "tool_result" => {
                let open = self.open_calls.remove(call).ok_or("a result of a call not open")?;
                open.end(data)?;
            }
            "dispatch_started" => {
                let attempt = data["attempt"].as_u64().unwrap_or_default();
                ensure(!self.dispatched.contains(call), "a dispatch starts after its end")?;
                let before = self.dispatches.insert(call.to_owned(), attempt);
                ensure(before < Some(attempt), "an attempt that is not higher")?;
            }
            "dispatch" => {
                self.dispatches.remove(call);
                ensure(self.dispatched.insert(call.to_owned()), "a dispatch ends twice")?;
            }
            _ => {}
        }
        Ok(())
    }

    fn open(&mut self, call: &str) -> Result<&mut OpenCall, String> {
        self.open_calls.get_mut(call).ok_or_else(|| format!("{call} is not open"))
    }
}

fn ensure(holds: bool, otherwise: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise.to_owned()) }
}
