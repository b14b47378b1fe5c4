//! The span of one attempt of a server tool.

use abide_conversation::command::ToolReturned;
use abide_conversation::message::Outcome;
use abide_conversation::{Action, Attempt, CallId, Timestamp};
use serde_json::Value;

use super::ActivityContext;
use crate::limits::cut;
use crate::metric;
use crate::trace::{self, Span, SpanContext, SpanKind, Tracer};

/// The bytes of arguments and of a result that a span shows, if it shows content.
const MAX_CONTENT_BYTES: usize = 32 << 10;

/// The span of a running tool attempt. An interrupted attempt emits no span; its retry does.
pub(super) struct ToolSpan {
    tracer: &'static dyn Tracer,
    span: Span,
}

impl ToolSpan {
    pub(super) fn begin(ctx: &ActivityContext, call: &CallId, attempt: Attempt) -> Option<Self> {
        let turn = ctx.state.turn.as_ref().filter(|_| ctx.state.call(call).is_some());
        // A user's own call is not part of a turn.
        let root = || match turn {
            Some(turn) => SpanContext::of_turn(&ctx.id, &turn.id),
            None => SpanContext::outside_turns(&ctx.id, call.as_str()),
        };
        let (tracer, root) = trace::sample(root)?;
        let turn_call = ctx.state.call(call);
        let dispatch = ctx.state.dispatches.get(call);
        let (tool, args) = match (turn_call, dispatch) {
            (Some(call), _) => (call.tool.as_str(), &call.args),
            (None, Some(run)) => (run.tool.as_str(), &run.input),
            (None, None) => return None,
        };
        let mut attributes = vec![
            ("gen_ai.operation.name", "execute_tool".into()),
            ("gen_ai.tool.name", tool.into()),
            ("gen_ai.tool.type", "function".into()),
            ("gen_ai.tool.call.id", call.as_str().into()),
            ("gen_ai.conversation.id", ctx.id.as_str().into()),
            ("abide.attempt", attempt.get().into()),
            ("abide.epoch", ctx.epoch.get().into()),
        ];
        if let Some(turn) = turn {
            attributes.push(("abide.turn.id", turn.id.as_str().into()));
        }
        if tracer.shows_content() {
            attributes.push(("gen_ai.tool.call.arguments", content(args).into()));
        }
        let span = Span {
            context: root.attempt(call, attempt),
            parent: turn.map(|_| root.span),
            name: format!("execute_tool {tool}"),
            kind: SpanKind::Internal,
            started_at: ctx.services.clock.now(),
            ended_at: Timestamp::MAX,
            attributes,
            links: trace::suspensions(root, turn_call),
            error: None,
        };
        Some(Self { tracer, span })
    }

    pub(super) fn end(mut self, ctx: &ActivityContext, action: &Action) {
        // Any other action comes from before the tool runs.
        let Action::ToolReturned(ToolReturned { outcome, .. }) = action else { return };
        self.span.ended_at = ctx.services.clock.now();
        self.span.error = (!outcome.is_ok()).then(|| metric::call_outcome(outcome));
        if self.tracer.shows_content() {
            let result = match outcome {
                Outcome::Ok(result) => content(result),
                Outcome::Err(message, _) => cut(message, MAX_CONTENT_BYTES),
            };
            self.span.attributes.push(("gen_ai.tool.call.result", result.into()));
        }
        self.tracer.end(self.span);
    }
}

fn content(value: &Value) -> String {
    cut(&value.to_string(), MAX_CONTENT_BYTES)
}
