//! A conversation under test: every command is folded, replayed and read back as it goes.

use serde_json::{Value, json};

use crate::approval::ApprovalPolicy;
use crate::command::*;
use crate::event::{
    AnswerFormat, CallKind, Event, EventData, Executor, Intent, OnInterrupt, ToolResult,
};
use crate::message::{Outcome, text_block};
use crate::parent::Parent;
use crate::permission::{Decision, Verdict};
use crate::usage::Usage;
use crate::{
    Activity, AgentName, Attempt, CallId, ConversationId, MessageId, Principal, Rejection,
    Revision, Seq, State, Step, Timestamp, TurnId, check_resolution, checked_fold, decide,
    from_json, replay, wanted,
};

/// How long suspensions wait in these tests.
pub(super) const TIMEOUT_MS: i64 = 60_000;
const MAX_STEPS: u32 = 5;

pub(super) struct Scenario {
    pub(super) state: State,
    pub(super) journal: Vec<Event>,
    pub(super) at: Timestamp,
}

pub(super) type Applied = Result<Vec<&'static str>, Rejection>;

impl Scenario {
    pub(super) fn empty() -> Self {
        let at = Timestamp::from_millisecond(1_800_000_000_000).unwrap();
        Self { state: State::default(), journal: Vec::new(), at }
    }

    /// A conversation whose first turn, `turn_1`, has just started.
    pub(super) fn with_turn() -> Self {
        let mut scenario = Self::empty();
        scenario.apply(send("turn_1")).unwrap();
        scenario
    }

    /// A conversation whose model has just made these calls.
    pub(super) fn with_calls(calls: Vec<PlannedCall>) -> Self {
        let mut scenario = Self::with_turn();
        scenario.reply(calls).unwrap();
        scenario
    }

    /// Decides a command, folds its events, and returns their types.
    ///
    /// Also asserts that every event is legal and reads back from JSON as it was, and that both a
    /// replay of the journal and the state's own JSON result in the same state. An answer is checked
    /// as it is decided.
    pub(super) fn apply(&mut self, action: Action) -> Applied {
        let checked = match &action {
            Action::Resolve(resolve) => Some(check_resolution(&self.state, self.at, resolve)),
            _ => None,
        };
        let decided = decide(&self.state, Command { at: self.at, action });
        if let Some(checked) = checked {
            assert_eq!(checked.as_ref().err(), decided.as_ref().err(), "check_resolution agrees");
        }
        let events = decided?;
        for event in &events {
            assert_eq!(event.seq, self.state.seq.next(), "seq has no gap");
            let json = serde_json::to_vec(event).unwrap();
            let read: Event = from_json(&json).unwrap();
            assert_eq!(read, *event, "an event reads back as it was");
            self.state = checked_fold(std::mem::take(&mut self.state), &read).unwrap();
        }
        let kinds = events.iter().map(kind).collect();
        self.journal.extend(events);
        assert_eq!(replay(State::default(), &self.journal), self.state);
        let cached: State = from_json(&serde_json::to_vec(&self.state).unwrap()).unwrap();
        assert_eq!(cached, self.state, "a cached state reads back as it was");
        Ok(kinds)
    }

    /// Applies a command that must be accepted.
    pub(super) fn then(&mut self, action: Action) -> &mut Self {
        self.apply(action).unwrap();
        self
    }

    pub(super) fn reply(&mut self, calls: Vec<PlannedCall>) -> Applied {
        let action = self.model_reply(calls);
        self.apply(action)
    }

    /// The model's reply to the next step.
    pub(super) fn model_reply(&self, calls: Vec<PlannedCall>) -> Action {
        let turn = self.state.turn.as_ref().unwrap();
        Action::ModelReplied(ModelReplied {
            turn: turn.id.clone(),
            step: turn.next_step(),
            id: MessageId::new(format!("msg_{}", self.state.seq)),
            content: vec![text_block("said")],
            calls,
            usage: None,
            stop: None,
            verbatim: None,
            fallback: None,
            context_tokens: None,
            context_seq: Seq::MAX,
            object: None,
            verdict: MessageVerdict::Accept,
        })
    }

    pub(super) fn advance(&mut self, ms: i64) -> &mut Self {
        self.at = self.after(ms);
        self
    }

    pub(super) fn after(&self, ms: i64) -> Timestamp {
        self.at.checked_add(jiff::SignedDuration::from_millis(ms)).unwrap()
    }

    pub(super) fn wanted(&self) -> Vec<String> {
        wanted(&self.state).iter().map(Activity::to_string).collect()
    }

    /// The results of a call; there must never be two.
    pub(super) fn result(&self, call: &str) -> Option<ToolResult> {
        let mut results = self.journal.iter().filter_map(|event| match &event.data {
            EventData::ToolResult(result) if result.call_id.as_str() == call => {
                Some(result.clone())
            }
            _ => None,
        });
        let first = results.next();
        assert_eq!(results.next(), None, "one result a call");
        first
    }

    /// A call's error and its type, as JSON writes them.
    pub(super) fn error(&self, call: &str) -> Value {
        let result = serde_json::to_value(self.result(call).unwrap()).unwrap();
        json!([result["error"], result["error_type"]])
    }

    pub(super) fn turn_ends(&self) -> Vec<(String, Option<String>)> {
        let ended = |event: &Event| match &event.data {
            EventData::TurnEnded(ended) => {
                let outcome = serde_json::to_value(ended.outcome).unwrap();
                Some((outcome.as_str().unwrap().to_owned(), ended.reason.clone()))
            }
            _ => None,
        };
        self.journal.iter().filter_map(ended).collect()
    }

    pub(super) fn phase(&self, call: &str) -> String {
        let call = self.state.call(&CallId::new(call)).unwrap();
        let phase = serde_json::to_value(&call.phase).unwrap();
        match phase {
            Value::String(name) => name,
            other => other.as_object().unwrap().keys().next().unwrap().clone(),
        }
    }
}

/// An event's type, as JSON writes it.
pub(super) fn kind(event: &Event) -> &'static str {
    match event.data {
        EventData::Created(_) => "created",
        EventData::UserMsg(_) => "user_msg",
        EventData::TurnStarted(_) => "turn_started",
        EventData::AssistantMsg(_) => "assistant_msg",
        EventData::ToolCall(_) => "tool_call",
        EventData::Suspension(_) => "suspension",
        EventData::Voted(_) => "voted",
        EventData::Resolution(_) => "resolution",
        EventData::ToolStarted(_) => "tool_started",
        EventData::InputRequired(_) => "input_required",
        EventData::ToolResult(_) => "tool_result",
        EventData::RepairRequested(_) => "repair_requested",
        EventData::ContextAdded(_) => "context_added",
        EventData::MessageRefused(_) => "message_refused",
        EventData::Forked(_) => "forked",
        EventData::ContextReduced(_) => "context_reduced",
        EventData::Summarized(_) => "summarized",
        EventData::SummaryFailed(_) => "summary_failed",
        EventData::TurnEnded(_) => "turn_ended",
        EventData::DispatchStarted(_) => "dispatch_started",
        EventData::DispatchFinished(_) => "dispatch",
        EventData::PhaseChanged(_) => "phase_changed",
        EventData::TodosChanged(_) => "todos_changed",
        EventData::WorkspaceOpened(_) => "workspace_opened",
        EventData::ChildStarted(_) => "child_started",
        EventData::ChildEnded(_) => "child_ended",
        EventData::ChildReleased(_) => "child_released",
        EventData::ParentNotified(_) => "told",
        EventData::Abandoned {} => "abandoned",
        EventData::DecisionRemembered(_) => "decision_remembered",
        EventData::DecisionPublished(_) => "decision_kept",
        EventData::DecisionRevoked(_) => "decision_revoked",
        EventData::Updated(_) => "updated",
        EventData::Operated(_) => "operated",
        EventData::ToolQueued(_) => "tool_queued",
        EventData::ToolLeased(_) => "tool_leased",
        EventData::CallbackAwaited(_) => "callback_awaited",
        EventData::MessageScheduled(_) => "message_scheduled",
        EventData::ScheduleEnded(_) => "schedule_ended",
        EventData::SuspensionExpiring(_) => "suspension_expiring",
        EventData::SuspensionExtended(_) => "suspension_extended",
        EventData::SuspensionEscalated(_) => "suspension_escalated",
        EventData::ToolAttemptFailed(_) => "tool_attempt_failed",
        EventData::StateChanged(_) => "state_changed",
        EventData::TurnWithdrawn(_) => "turn_withdrawn",
        EventData::Steered(_) => "steered",
        EventData::Rewound(_) => "rewound",
        EventData::Unknown(_) => "unknown",
    }
}

pub(super) fn create() -> Create {
    Create {
        agent: AgentName::new("demo"),
        assigns: Default::default(),
        metadata: Default::default(),
        tools: Vec::new(),
        parent: None,
        fork: None,
        title: None,
        expires_at: None,
        participants: Default::default(),
    }
}

/// The call `ask` of the conversation `boss`.
pub(super) fn parent() -> Parent {
    Parent {
        conversation_id: ConversationId::new("boss"),
        call_id: CallId::new("ask"),
        root_conversation_id: ConversationId::new("root"),
        depth: 2,
        ceiling: Default::default(),
        budget: Default::default(),
        storages: [("".to_owned(), "disk".to_owned())].into(),
        requesters: Default::default(),
        model: None,
    }
}

pub(super) fn verdict(decision: Decision) -> Verdict {
    Verdict {
        decision,
        rule: "auto".to_owned(),
        phase: Default::default(),
        fingerprint: "0123456789abcdef".to_owned(),
        by: None,
        approvals: Vec::new(),
    }
}

pub(super) fn turn_settings() -> TurnSettings {
    TurnSettings {
        revision: Revision::new("0123456789abcdef"),
        max_steps: MAX_STEPS,
        ..TurnSettings::without_steps(AgentName::new("demo"))
    }
}

pub(super) fn message(turn: &str, if_busy: IfBusy) -> Send {
    Send {
        create: Some(create()),
        settings: turn_settings(),
        turn_id: TurnId::new(turn),
        id: MessageId::new(format!("user_{turn}")),
        content: vec![text_block("hello")],
        message_id: None,
        principal: Principal::new("user"),
        identity: None,
        assigns: Default::default(),
        answer_format: AnswerFormat::Agent,
        tools: Default::default(),
        context: Vec::new(),
        if_busy,
        partial: None,
    }
}

pub(super) fn send(turn: &str) -> Action {
    Action::Send(message(turn, IfBusy::Reject))
}

pub(super) fn queued(turn: &str) -> Action {
    Action::Send(message(turn, IfBusy::Queue))
}

pub(super) fn start(turn: &str) -> Action {
    Action::Start(Start { turn: TurnId::new(turn), settings: Some(turn_settings()) })
}

pub(super) fn call(id: &str, executor: Executor, gate: bool) -> PlannedCall {
    let kind = match executor {
        Executor::Client => CallKind::Client { grace_ms: Some(5_000), default_result: None },
        Executor::Server | Executor::Human | Executor::Provider => executor.into(),
    };
    let message = "May it?".to_owned();
    let question = ApprovalQuestion { message, policy: None, answer_schema: None };
    let plan = CallPlan::Execute {
        kind,
        intent: Intent::Action,
        gate: gate.then_some(question),
        message: "Please answer.".to_owned(),
        answer_schema: None,
        timeout_ms: TIMEOUT_MS.unsigned_abs(),
        waiting_rules: None,
    };
    let verdict = Some(verdict(if gate { Decision::Ask } else { Decision::Allow }));
    PlannedCall {
        given_id: id.to_owned(),
        tool: "tool".to_owned(),
        args: json!({"n": 1}).into(),
        original_args: None,
        plan,
        verdict,
    }
}

pub(super) fn server(id: &str) -> PlannedCall {
    call(id, Executor::Server, false)
}

pub(super) fn gated(id: &str) -> PlannedCall {
    call(id, Executor::Server, true)
}

/// A server call that the child `kid_<name>` is to answer.
pub(super) fn with_child(id: &str, name: &str) -> PlannedCall {
    let mut planned = server(id);
    if let CallPlan::Execute { kind: CallKind::Server { child, .. }, .. } = &mut planned.plan {
        *child = Some(ConversationId::new(format!("kid_{name}")));
    }
    planned
}

pub(super) fn child_started(call: &str, attempt: u32) -> Action {
    let within_ms = TIMEOUT_MS.unsigned_abs();
    Action::ChildStarted(ChildStarted {
        call: CallId::new(call),
        attempt: Attempt::new(attempt),
        within_ms,
        effective_args: None,
    })
}

pub(super) fn child_ended(call: &str, child: &str) -> Action {
    Action::ChildEnded(ChildEnded {
        call: CallId::new(call),
        child: ConversationId::new(child),
        outcome: Outcome::Ok(json!("grown up")),
        ui: None,
        usage: Usage { input_tokens: 5, output_tokens: 2, ..Default::default() },
        storages: [("/kid".to_owned(), "tape".to_owned())].into(),
    })
}

pub(super) fn human(id: &str) -> PlannedCall {
    call(id, Executor::Human, false)
}

pub(super) fn client(id: &str) -> PlannedCall {
    call(id, Executor::Client, false)
}

pub(super) fn gated_client(id: &str) -> PlannedCall {
    call(id, Executor::Client, true)
}

/// The call, of a tool that must not run twice.
pub(super) fn run_once(mut planned: PlannedCall) -> PlannedCall {
    if let CallPlan::Execute { kind: CallKind::Server { on_interrupt, .. }, .. } = &mut planned.plan
    {
        *on_interrupt = OnInterrupt::Fail;
    }
    planned
}

/// The call, of a tool that asks in doubt.
pub(super) fn asking(mut planned: PlannedCall, policy: Option<ApprovalPolicy>) -> PlannedCall {
    if let CallPlan::Execute { kind: CallKind::Server { on_interrupt, answerers, .. }, .. } =
        &mut planned.plan
    {
        *on_interrupt = OnInterrupt::Ask;
        *answerers = policy.map(Box::new);
    }
    planned
}

pub(super) fn answered_call(id: &str, executor: Executor, outcome: Outcome) -> PlannedCall {
    let plan = CallPlan::Complete { executor, intent: Intent::Render, outcome };
    PlannedCall {
        given_id: id.to_owned(),
        tool: "tool".to_owned(),
        args: json!({}).into(),
        original_args: None,
        plan,
        verdict: Some(verdict(Decision::Allow)),
    }
}

fn resolve(call: &str, suspension: Option<u32>, answer: ResolutionAnswer) -> Action {
    let (call, by) = (CallId::new(call), Principal::new("boss"));
    Action::Resolve(Resolve {
        call,
        suspension,
        by,
        identity: None,
        mfa_at: None,
        answer,
        args_fingerprint: "0123456789abcdef".to_owned(),
        revoked: Default::default(),
        verdict: Some(verdict(Decision::Allow)),
        remember: None,
        halt: None,
    })
}

pub(super) fn approve(call: &str, suspension: Option<u32>) -> Action {
    resolve(
        call,
        suspension,
        ResolutionAnswer::Approval { approved: true, reason: None, args: None },
    )
}

pub(super) fn approve_with(call: &str, args: Value) -> Action {
    resolve(
        call,
        None,
        ResolutionAnswer::Approval { approved: true, reason: None, args: Some(args) },
    )
}

pub(super) fn deny(call: &str, reason: Option<&str>) -> Action {
    let reason = reason.map(str::to_owned);
    resolve(call, None, ResolutionAnswer::Approval { approved: false, reason, args: None })
}

pub(super) fn answer(call: &str, suspension: Option<u32>, value: Value) -> Action {
    resolve(call, suspension, ResolutionAnswer::Result(value))
}

pub(super) fn answer_error(call: &str, error: &str) -> Action {
    resolve(call, None, ResolutionAnswer::Error(error.to_owned()))
}

/// The answer that a call in doubt runs again.
pub(super) fn again(call: &str, suspension: Option<u32>) -> Action {
    resolve(call, suspension, ResolutionAnswer::Retry)
}

pub(super) fn returned(call: &str, attempt: u32) -> Action {
    let outcome = Outcome::Ok(json!("done"));
    let call = CallId::new(call);
    Action::ToolReturned(ToolReturned {
        call,
        attempt: Attempt::new(attempt),
        outcome,
        ui: None,
        halt: None,
        changes: Vec::new(),
        input_request: None,
        effective_args: None,
    })
}

pub(super) fn missing(call: &str, suspension: u32) -> Action {
    Action::ClientMissing(ClientMissing { call: CallId::new(call), suspension })
}

pub(super) fn fail(call: &str) -> Action {
    let (call, by) = (CallId::new(call), Principal::new("operator"));
    let (identity, error) = (None, "given up".to_owned());
    Action::FailCall(FailCall { call, by, identity, reason: None, error })
}

pub(super) fn cancel() -> Action {
    Action::Cancel(Cancel { partial: None })
}

pub(super) fn partial(step: Step) -> PartialMessage {
    PartialMessage { id: MessageId::new("msg_cut"), step, content: vec![text_block("half a")] }
}

pub(super) fn not_open(applied: Applied) -> bool {
    matches!(applied, Err(Rejection::CallNotOpen(_)))
}
