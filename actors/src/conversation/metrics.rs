//! Records the metrics of a commit, and the spans that end with it.
//!
//! Called only after a commit was acknowledged, so that a replay counts nothing twice. A commit
//! whose outcome stayed unknown is never counted.

use abide_conversation::event::{
    Event, EventData, Executor, SuspensionKind, ToolResult, TurnEnded,
};
use abide_conversation::state::{Call, CallPhase};
use abide_conversation::usage::Usage;
use abide_conversation::{AgentName, Attempt, Revision, State, Timestamp};

use super::LiveConversation;
use crate::metric::{call_outcome, executor, message_status, suspension_kind, turn_outcome};
use crate::trace::{self, Span, SpanContext, SpanKind};

impl LiveConversation {
    /// Records events that have been journalled. `before` is the state without them.
    pub(super) fn record_metrics(&self, before: &State, events: &[Event]) {
        for event in events {
            match &event.data {
                EventData::TurnEnded(ended) => self.record_turn_end(before, events, event, ended),
                EventData::AssistantMsg(message) => {
                    let outcome = message_status(message.status);
                    metrics::counter!("abide_steps_total", "outcome" => outcome).increment(1);
                }
                EventData::Suspension(open) => {
                    let kind = suspension_kind(open.kind);
                    metrics::counter!("abide_suspensions_total", "kind" => kind).increment(1);
                }
                EventData::Resolution(resolution) => {
                    if let Some(call) = before.call(&resolution.call_id) {
                        self.record_suspension_end(before, call, "resolved", event.at);
                    }
                }
                EventData::ToolResult(done) => self.record_call_end(before, events, done, event.at),
                // A call that waits in a queue again was taken by a worker that lost it.
                EventData::ToolQueued(queued)
                    if before
                        .call(&queued.call_id)
                        .is_some_and(|it| it.external_run().is_some()) =>
                {
                    metrics::counter!("abide_queue_leases_lost_total").increment(1);
                }
                EventData::DispatchFinished(done) => {
                    count_call(Executor::Server, call_outcome(&done.result))
                }
                // The other events happen within these.
                _ => {}
            }
        }
    }

    fn record_call_end(&self, before: &State, events: &[Event], done: &ToolResult, at: Timestamp) {
        let outcome = call_outcome(&done.outcome);
        let Some(call) = before.call(&done.call_id) else {
            // The call was planned and ended by the same commit.
            let planned = events.iter().find_map(|event| match &event.data {
                EventData::ToolCall(call) if call.call_id == done.call_id => {
                    Some(call.kind.executor())
                }
                _ => None,
            });
            if let Some(executor) = planned {
                count_call(executor, outcome);
            }
            return;
        };
        count_call(call.kind.executor(), outcome);
        let since = match &call.phase {
            CallPhase::Running { since, .. } => Some(*since),
            CallPhase::Delegated { attempt, since, .. } => {
                self.trace_delegation(before, call, *attempt, (*since, at), outcome);
                Some(*since)
            }
            CallPhase::Suspended(waiting) => {
                let is_resolution = |event: &Event| matches!(&event.data, EventData::Resolution(one) if one.call_id == done.call_id);
                if !events.iter().any(is_resolution) {
                    self.record_suspension_end(before, call, outcome, at);
                }
                (waiting.kind != SuspensionKind::Approval).then_some(waiting.since)
            }
            CallPhase::External(run) => Some(run.since),
            CallPhase::AwaitingRetry { since, .. } => Some(*since),
            CallPhase::Requested | CallPhase::Approved | CallPhase::Done => None,
        };
        if let Some(since) = since {
            let executor = executor(call.kind.executor());
            metrics::histogram!("abide_call_seconds", "executor" => executor)
                .record(seconds(since, at));
        }
    }

    fn record_suspension_end(
        &self,
        before: &State,
        call: &Call,
        outcome: &'static str,
        at: Timestamp,
    ) {
        let Some(waiting) = call.open_suspension() else { return };
        let kind = suspension_kind(waiting.kind);
        metrics::histogram!("abide_suspension_seconds", "kind" => kind, "outcome" => outcome)
            .record(seconds(waiting.since, at));
        let Some(turn) = &before.turn else { return };
        let root = || SpanContext::of_turn(&self.id, &turn.id);
        let Some((tracer, root)) = trace::sample(root) else { return };
        tracer.end(Span {
            context: root.suspension(&call.id, waiting.suspension),
            parent: Some(root.span),
            name: format!("await_{kind} {}", call.tool),
            kind: SpanKind::Internal,
            started_at: waiting.since,
            ended_at: at,
            attributes: vec![
                ("gen_ai.conversation.id", self.id.as_str().into()),
                ("gen_ai.tool.name", call.tool.as_str().into()),
                ("gen_ai.tool.call.id", call.id.as_str().into()),
                ("abide.turn.id", turn.id.as_str().into()),
                ("abide.suspension", waiting.suspension.into()),
                ("abide.outcome", outcome.into()),
                ("abide.epoch", self.claim.epoch.get().into()),
            ],
            links: Vec::new(),
            error: None,
        });
    }

    /// Ends the span of a call that a child conversation answered.
    fn trace_delegation(
        &self,
        before: &State,
        call: &Call,
        attempt: Attempt,
        (started_at, ended_at): (Timestamp, Timestamp),
        outcome: &'static str,
    ) {
        let Some(turn) = &before.turn else { return };
        let root = || SpanContext::of_turn(&self.id, &turn.id);
        let Some((tracer, root)) = trace::sample(root) else { return };
        let mut attributes = vec![
            ("gen_ai.operation.name", "execute_tool".into()),
            ("gen_ai.tool.name", call.tool.as_str().into()),
            ("gen_ai.tool.type", "function".into()),
            ("gen_ai.tool.call.id", call.id.as_str().into()),
            ("gen_ai.conversation.id", self.id.as_str().into()),
            ("abide.turn.id", turn.id.as_str().into()),
            ("abide.attempt", attempt.get().into()),
            ("abide.epoch", self.claim.epoch.get().into()),
        ];
        if let Some(child) = call.kind.child() {
            attributes.push(("abide.child.conversation.id", child.as_str().into()));
        }
        tracer.end(Span {
            context: root.attempt(&call.id, attempt),
            parent: Some(root.span),
            name: format!("execute_tool {}", call.tool),
            kind: SpanKind::Internal,
            started_at,
            ended_at,
            attributes,
            links: trace::suspensions(root, [call]),
            error: (outcome != "ok").then_some(outcome),
        });
    }

    fn record_turn_end(&self, before: &State, events: &[Event], end: &Event, ended: &TurnEnded) {
        let outcome = turn_outcome(ended.outcome);
        metrics::counter!("abide_turns_total", "outcome" => outcome).increment(1);
        let Some(ended_turn) = EndedTurn::of(before, events, end) else { return };
        metrics::histogram!("abide_turn_seconds", "outcome" => outcome)
            .record(seconds(ended_turn.at, end.at));
        let Some(turn) = &end.turn_id else { return };
        let root = || SpanContext::of_turn(&self.id, turn);
        let Some((tracer, root)) = trace::sample(root) else { return };
        let mut attributes = vec![
            ("gen_ai.operation.name", "invoke_agent".into()),
            ("gen_ai.agent.name", ended_turn.agent.as_str().into()),
            ("gen_ai.agent.version", ended_turn.revision.as_str().into()),
            ("gen_ai.conversation.id", self.id.as_str().into()),
            ("gen_ai.usage.input_tokens", ended_turn.usage.input_tokens.into()),
            ("gen_ai.usage.output_tokens", ended_turn.usage.output_tokens.into()),
            ("abide.turn.id", turn.as_str().into()),
            ("abide.outcome", outcome.into()),
            ("abide.epoch", self.claim.epoch.get().into()),
        ];
        if let Some(definition) = self.services.agents.cached(&self.id.sibling(ended_turn.revision))
        {
            let model = definition.model_of(before);
            attributes.push(("gen_ai.provider.name", model.provider.otel_name().into()));
            attributes.push(("gen_ai.request.model", model.name.into()));
        }
        if let Some(parent) = &before.parent {
            let (id, call) = (&parent.conversation_id, &parent.call_id);
            attributes.push(("abide.parent.conversation.id", id.as_str().into()));
            attributes.push(("abide.parent.call.id", call.as_str().into()));
        }
        tracer.end(Span {
            context: root,
            parent: None,
            name: format!("invoke_agent {}", ended_turn.agent),
            kind: SpanKind::Internal,
            started_at: ended_turn.at,
            ended_at: end.at,
            attributes,
            links: Vec::new(),
            // Not the reason: it may repeat a provider's remarks on a prompt, which are content.
            error: (outcome == "failed").then_some(outcome),
        });
    }

    /// Ends the span of a revival, in the trace of the open turn.
    pub(super) fn trace_revival(&self, started_at: Timestamp) {
        let Some(turn) = &self.state.turn else { return };
        let root = || SpanContext::of_turn(&self.id, &turn.id);
        let Some((tracer, root)) = trace::sample(root) else { return };
        tracer.end(Span {
            context: root.child(&["revival", &self.claim.epoch.to_string()]),
            parent: Some(root.span),
            name: "revive".to_owned(),
            kind: SpanKind::Internal,
            started_at,
            ended_at: self.services.clock.now(),
            attributes: vec![
                ("gen_ai.conversation.id", self.id.as_str().into()),
                ("abide.turn.id", turn.id.as_str().into()),
                ("abide.seq", self.state.seq.get().into()),
                ("abide.epoch", self.claim.epoch.get().into()),
            ],
            // The suspensions of its calls, whichever node held the conversation then.
            links: trace::suspensions(root, &turn.calls),
            error: None,
        });
    }
}

/// A turn that has ended, from the state before or from the events that began it.
struct EndedTurn<'a> {
    at: Timestamp,
    agent: &'a AgentName,
    revision: &'a Revision,
    usage: Usage,
}

impl<'a> EndedTurn<'a> {
    fn of(before: &'a State, events: &'a [Event], end: &Event) -> Option<Self> {
        let open = before.turn.as_ref().filter(|turn| Some(&turn.id) == end.turn_id.as_ref());
        let mut ended_turn = open.map(|turn| {
            let at = turn.started_at;
            let agent = &turn.agent;
            let revision = &turn.revision;
            Self { at, agent, revision, usage: turn.usage }
        });
        for event in events.iter().filter(|event| event.turn_id == end.turn_id) {
            match (&event.data, &mut ended_turn) {
                (EventData::TurnStarted(started), _) => {
                    let (at, usage) = (event.at, Usage::default());
                    let (agent, revision) = (&started.agent, &started.revision);
                    ended_turn = Some(Self { at, agent, revision, usage });
                }
                (EventData::AssistantMsg(message), Some(ended_turn)) => {
                    ended_turn.usage += message.usage.unwrap_or_default();
                }
                _ => {}
            }
        }
        ended_turn
    }
}

fn count_call(by: Executor, outcome: &'static str) {
    let executor = executor(by);
    metrics::counter!("abide_calls_total", "executor" => executor, "outcome" => outcome)
        .increment(1);
}

/// Never negative, even if the clocks of two nodes disagree.
fn seconds(since: Timestamp, until: Timestamp) -> f64 {
    until.duration_since(since).as_secs_f64().max(0.0)
}
