//! What a commit adds to the metrics, and which spans end with it.
//!
//! Called where a commit was acknowledged and nowhere else: a replay counts nothing again. A commit
//! whose outcome stayed unknown is counted by nobody.

use abide_conversation::event::{
    Event, EventData, Executor, SuspensionKind, ToolResult, TurnEnded,
};
use abide_conversation::message::Usage;
use abide_conversation::state::{Call, CallPhase};
use abide_conversation::{AgentName, Revision, State, Timestamp};

use super::LiveConversation;
use crate::metric::{call_outcome, executor, message_status, suspension_kind, turn_outcome};
use crate::trace::{self, Span, SpanContext, SpanKind};

impl LiveConversation {
    /// Counts events that are journalled now.
    pub(super) fn count(&self, was: &State, events: &[Event]) {
        for event in events {
            match &event.data {
                EventData::TurnEnded(ended) => self.turn_ended(was, events, event, ended),
                EventData::AssistantMsg(said) => {
                    let outcome = message_status(said.status);
                    metrics::counter!("abide_steps_total", "outcome" => outcome).increment(1);
                }
                EventData::Suspension(open) => {
                    let kind = suspension_kind(open.kind);
                    metrics::counter!("abide_suspensions_total", "kind" => kind).increment(1);
                }
                EventData::Resolution(answered) => {
                    if let Some(call) = was.call(&answered.call_id) {
                        self.suspension_ended(was, call, "resolved", event.at);
                    }
                }
                EventData::ToolResult(done) => self.call_ended(was, events, done, event.at),
                EventData::Dispatch(done) => {
                    call_counted(Executor::Server, call_outcome(&done.result))
                }
                // The other events are parts of these.
                _ => {}
            }
        }
    }

    fn call_ended(&self, was: &State, events: &[Event], done: &ToolResult, at: Timestamp) {
        let outcome = call_outcome(&done.outcome);
        let Some(call) = was.call(&done.call_id) else {
            // Planned in this very commit, and over at once.
            let planned = events.iter().find_map(|event| match &event.data {
                EventData::ToolCall(call) if call.call_id == done.call_id => Some(call.executor),
                _ => None,
            });
            if let Some(executor) = planned {
                call_counted(executor, outcome);
            }
            return;
        };
        call_counted(call.executor, outcome);
        let since = match &call.phase {
            CallPhase::Running { since, .. } => Some(*since),
            CallPhase::Delegated { attempt, since, .. } => {
                self.delegated(was, call, *attempt, (*since, at), outcome);
                Some(*since)
            }
            CallPhase::Suspended(waiting) => {
                let answered = |event: &Event| matches!(&event.data, EventData::Resolution(one) if one.call_id == done.call_id);
                if !events.iter().any(answered) {
                    self.suspension_ended(was, call, outcome, at);
                }
                (waiting.kind != SuspensionKind::Approval).then_some(waiting.since)
            }
            CallPhase::Requested | CallPhase::Approved | CallPhase::Done => None,
        };
        if let Some(since) = since {
            let executor = executor(call.executor);
            metrics::histogram!("abide_call_seconds", "executor" => executor)
                .record(seconds(since, at));
        }
    }

    fn suspension_ended(&self, was: &State, call: &Call, outcome: &'static str, at: Timestamp) {
        let Some(waiting) = call.waiting() else { return };
        let kind = suspension_kind(waiting.kind);
        metrics::histogram!("abide_suspension_seconds", "kind" => kind, "outcome" => outcome)
            .record(seconds(waiting.since, at));
        let Some(turn) = &was.turn else { return };
        let root = || SpanContext::of_turn(&self.id, &turn.id);
        let Some((tracer, root)) = trace::wanted(root) else { return };
        tracer.end(Span {
            at: root.suspension(&call.id, waiting.suspension),
            parent: Some(root.span),
            name: format!("await_{kind} {}", call.tool),
            side: SpanKind::Internal,
            began: waiting.since,
            ended: at,
            attributes: vec![
                ("gen_ai.conversation.id", self.id.as_str().into()),
                ("gen_ai.tool.name", call.tool.as_str().into()),
                ("gen_ai.tool.call.id", call.id.as_str().into()),
                ("abide.turn.id", turn.id.as_str().into()),
                ("abide.suspension", waiting.suspension.into()),
                ("abide.outcome", outcome.into()),
                ("abide.epoch", self.held.epoch.into()),
            ],
            links: Vec::new(),
            error: None,
        });
    }

    /// A child conversation was the tool.
    fn delegated(
        &self,
        was: &State,
        call: &Call,
        attempt: u32,
        (began, ended): (Timestamp, Timestamp),
        outcome: &'static str,
    ) {
        let Some(turn) = &was.turn else { return };
        let root = || SpanContext::of_turn(&self.id, &turn.id);
        let Some((tracer, root)) = trace::wanted(root) else { return };
        let mut attributes = vec![
            ("gen_ai.operation.name", "execute_tool".into()),
            ("gen_ai.tool.name", call.tool.as_str().into()),
            ("gen_ai.tool.type", "function".into()),
            ("gen_ai.tool.call.id", call.id.as_str().into()),
            ("gen_ai.conversation.id", self.id.as_str().into()),
            ("abide.turn.id", turn.id.as_str().into()),
            ("abide.attempt", attempt.into()),
            ("abide.epoch", self.held.epoch.into()),
        ];
        if let Some(child) = &call.child {
            attributes.push(("abide.child.conversation.id", child.as_str().into()));
        }
        tracer.end(Span {
            at: root.attempt(&call.id, attempt),
            parent: Some(root.span),
            name: format!("execute_tool {}", call.tool),
            side: SpanKind::Internal,
            began,
            ended,
            attributes,
            links: waited(root, [call]),
            error: (outcome != "ok").then_some(outcome),
        });
    }

    fn turn_ended(&self, was: &State, events: &[Event], end: &Event, ended: &TurnEnded) {
        let outcome = turn_outcome(ended.outcome);
        metrics::counter!("abide_turns_total", "outcome" => outcome).increment(1);
        let Some(begun) = Begun::of(was, events, end) else { return };
        metrics::histogram!("abide_turn_seconds", "outcome" => outcome)
            .record(seconds(begun.at, end.at));
        let Some(turn) = &end.turn_id else { return };
        let root = || SpanContext::of_turn(&self.id, turn);
        let Some((tracer, root)) = trace::wanted(root) else { return };
        let mut attributes = vec![
            ("gen_ai.operation.name", "invoke_agent".into()),
            ("gen_ai.agent.name", begun.agent.as_str().into()),
            ("gen_ai.agent.version", begun.revision.as_str().into()),
            ("gen_ai.conversation.id", self.id.as_str().into()),
            ("gen_ai.usage.input_tokens", begun.usage.input_tokens.into()),
            ("gen_ai.usage.output_tokens", begun.usage.output_tokens.into()),
            ("abide.turn.id", turn.as_str().into()),
            ("abide.outcome", outcome.into()),
            ("abide.epoch", self.held.epoch.into()),
        ];
        if let Some(definition) = self.deps.agents.kept(begun.revision) {
            let model = &definition.model;
            attributes.push(("gen_ai.provider.name", model.provider.otel_name().into()));
            attributes.push(("gen_ai.request.model", model.name.as_str().into()));
        }
        if let Some(parent) = &was.parent {
            let (id, call) = (&parent.conversation_id, &parent.call_id);
            attributes.push(("abide.parent.conversation.id", id.as_str().into()));
            attributes.push(("abide.parent.call.id", call.as_str().into()));
        }
        tracer.end(Span {
            at: root,
            parent: None,
            name: format!("invoke_agent {}", begun.agent),
            side: SpanKind::Internal,
            began: begun.at,
            ended: end.at,
            attributes,
            links: Vec::new(),
            // The reason may repeat what a provider said of a prompt.
            error: (outcome == "failed").then_some(outcome),
        });
    }

    /// Says in the trace of the open turn that it goes on here, since `began`.
    pub(super) fn revived(&self, began: Timestamp) {
        let Some(turn) = &self.state.turn else { return };
        let root = || SpanContext::of_turn(&self.id, &turn.id);
        let Some((tracer, root)) = trace::wanted(root) else { return };
        tracer.end(Span {
            at: root.child(&["revival", &self.held.epoch.to_string()]),
            parent: Some(root.span),
            name: "revive".to_owned(),
            side: SpanKind::Internal,
            began,
            ended: self.deps.clock.now(),
            attributes: vec![
                ("gen_ai.conversation.id", self.id.as_str().into()),
                ("abide.turn.id", turn.id.as_str().into()),
                ("abide.seq", self.state.seq.into()),
                ("abide.epoch", self.held.epoch.into()),
            ],
            // Those that its calls waited in, whoever held it then.
            links: waited(root, &turn.calls),
            error: None,
        });
    }
}

/// The suspensions that are open, or were, of the calls of a step.
pub(crate) fn waited<'a>(
    root: SpanContext,
    calls: impl IntoIterator<Item = &'a Call>,
) -> Vec<SpanContext> {
    let last =
        |call: &Call| (call.suspensions > 0).then(|| root.suspension(&call.id, call.suspensions));
    calls.into_iter().filter_map(last).collect()
}

/// What is known of the turn that ends.
struct Begun<'a> {
    at: Timestamp,
    agent: &'a AgentName,
    revision: &'a Revision,
    usage: Usage,
}

impl<'a> Begun<'a> {
    fn of(was: &'a State, events: &'a [Event], end: &Event) -> Option<Self> {
        let open = was.turn.as_ref().filter(|turn| Some(&turn.id) == end.turn_id.as_ref());
        let mut begun = open.map(|turn| {
            let (at, agent, revision) = (turn.started_at, &turn.agent, &turn.revision);
            Self { at, agent, revision, usage: turn.usage }
        });
        for event in events.iter().filter(|event| event.turn_id == end.turn_id) {
            match (&event.data, &mut begun) {
                (EventData::TurnStarted(started), _) => {
                    let (at, usage) = (event.at, Usage::default());
                    let (agent, revision) = (&started.agent, &started.revision);
                    begun = Some(Self { at, agent, revision, usage });
                }
                (EventData::AssistantMsg(said), Some(begun)) => {
                    begun.usage += said.usage.unwrap_or_default();
                }
                _ => {}
            }
        }
        begun
    }
}

fn call_counted(by: Executor, outcome: &'static str) {
    let executor = executor(by);
    metrics::counter!("abide_calls_total", "executor" => executor, "outcome" => outcome)
        .increment(1);
}

/// Never less than nothing, whatever clocks said.
fn seconds(since: Timestamp, until: Timestamp) -> f64 {
    until.duration_since(since).as_secs_f64().max(0.0)
}
