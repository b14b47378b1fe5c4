//! The span of one attempt of a server tool.

use abide_conversation::command::ToolReturned;
use abide_conversation::message::Outcome;
use abide_conversation::{Action, CallId, Timestamp};
use serde_json::Value;

use super::ActivityContext;
use crate::metric;
use crate::tools::limits::cut;
use crate::trace::{self, Span, SpanContext, SpanKind, Tracer};

/// How much of what a tool was given, and gave, a span shows, if it shows any.
const SHOWN: usize = 32 << 10;

/// An attempt that is under way, of which somebody wants the span. One that was cut off has none:
/// the next attempt has.
pub(super) struct ToolSpan {
    tracer: &'static dyn Tracer,
    span: Span,
}

impl ToolSpan {
    pub(super) fn begin(around: &ActivityContext, call: &CallId, attempt: u32) -> Option<Self> {
        let turn = around.state.turn.as_ref().filter(|_| around.state.call(call).is_some());
        // A user's own call is no part of a turn.
        let root = || match turn {
            Some(turn) => SpanContext::of_turn(&around.id, &turn.id),
            None => SpanContext::apart(&around.id, call.as_str()),
        };
        let (tracer, root) = trace::wanted(root)?;
        let planned = around.state.call(call);
        let own = around.state.dispatches.get(call);
        let (tool, args) = match (planned, own) {
            (Some(call), _) => (call.tool.as_str(), &call.args),
            (None, Some(run)) => (run.tool.as_str(), &run.input),
            (None, None) => return None,
        };
        let mut attributes = vec![
            ("gen_ai.operation.name", "execute_tool".into()),
            ("gen_ai.tool.name", tool.into()),
            ("gen_ai.tool.type", "function".into()),
            ("gen_ai.tool.call.id", call.as_str().into()),
            ("gen_ai.conversation.id", around.id.as_str().into()),
            ("abide.attempt", attempt.into()),
            ("abide.epoch", around.epoch.into()),
        ];
        if let Some(turn) = turn {
            attributes.push(("abide.turn.id", turn.id.as_str().into()));
        }
        if tracer.shows_content() {
            attributes.push(("gen_ai.tool.call.arguments", shown(args).into()));
        }
        let span = Span {
            at: root.attempt(call, attempt),
            parent: turn.map(|_| root.span),
            name: format!("execute_tool {tool}"),
            side: SpanKind::Internal,
            began: around.deps.clock.now(),
            ended: Timestamp::MAX,
            attributes,
            links: crate::conversation::waited(root, planned),
            error: None,
        };
        Some(Self { tracer, span })
    }

    pub(super) fn end(mut self, around: &ActivityContext, came: &Action) {
        // Anything else is done before the tool runs.
        let Action::ToolReturned(ToolReturned { outcome, .. }) = came else { return };
        self.span.ended = around.deps.clock.now();
        self.span.error = (!outcome.is_ok()).then(|| metric::call_outcome(outcome));
        if self.tracer.shows_content() {
            let result = match outcome {
                Outcome::Ok(result) => shown(result),
                Outcome::Err(message, _) => cut(message, SHOWN),
            };
            self.span.attributes.push(("gen_ai.tool.call.result", result.into()));
        }
        self.tracer.end(self.span);
    }
}

fn shown(value: &Value) -> String {
    cut(&value.to_string(), SHOWN)
}
