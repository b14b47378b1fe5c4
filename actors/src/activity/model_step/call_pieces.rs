//! Publishes the arguments of calls while the model writes them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use abide_conversation::MessageId;
use abide_conversation::event::Executor;

use super::ModelStep;
use crate::definition::{Approval, HookPoint, Tool};
use crate::hooks::tool_use;
use crate::live::{CallDelta, Signal};
use crate::model::{CallPiece, CallPieceSink};

/// The bytes of arguments that are published of one message. Longer ones come whole, with it.
const MAX_PUBLISHED_BYTES: usize = 256 << 10;

/// The calls of a message, as far as they were published.
#[derive(Default)]
struct Published {
    /// Whether the call of an index is published; its first piece decides.
    calls: BTreeMap<usize, bool>,
    bytes: usize,
}

impl Published {
    /// Whether the piece is to be published.
    fn admits(&mut self, piece: &CallPiece, tools: &BTreeSet<String>) -> bool {
        if let Some(name) = &piece.name {
            self.calls.insert(piece.index, tools.contains(name));
        }
        self.bytes = self.bytes.saturating_add(piece.args_text.len());
        let is_shown = self.calls.get(&piece.index).copied().unwrap_or(false);
        is_shown && self.bytes <= MAX_PUBLISHED_BYTES
    }
}

impl ModelStep<'_> {
    /// Publishes what the model writes as arguments of the message's calls.
    ///
    /// Nothing is published that somebody may still change or hold back: no arguments at all if hooks
    /// filter the stream, and none of a call that hooks judge, or of a page's tool that a gate may
    /// stand before. A page must not mistake those for a call that it may execute.
    pub(super) fn call_pieces(&self, id: &MessageId) -> CallPieceSink {
        if self.has_hooks(HookPoint::Stream) {
            return CallPieceSink::default();
        }
        let shown = self.toolbox.tools().filter(|tool| self.is_shown_while_written(tool));
        let tools: BTreeSet<String> = shown.map(|tool| tool.name.clone()).collect();
        if tools.is_empty() {
            return CallPieceSink::default();
        }
        let published = Mutex::new(Published::default());
        let (services, conversation) = (self.ctx.services.clone(), self.ctx.id.clone());
        let (turn, message) = (self.turn.id.clone(), id.clone());
        let step = self.step;
        CallPieceSink::new(move |piece| {
            let mut published = published.lock().unwrap_or_else(PoisonError::into_inner);
            if !published.admits(&piece, &tools) {
                return;
            }
            drop(published);
            let CallPiece { index, name, args_text } = piece;
            let (turn, message) = (turn.clone(), message.clone());
            let delta = CallDelta { turn, step, message, index, name, args_text };
            services.live.publish(&conversation, Signal::CallArgs(delta.into()));
        })
    }

    fn is_shown_while_written(&self, tool: &Tool) -> bool {
        let gate = self.gate();
        let is_offered = tool.is_for_model() && gate.is_listed(tool);
        let is_free = match tool.executor() {
            Executor::Provider => false,
            Executor::Client => matches!(tool.approval, Approval::Auto) && gate.may_run(tool),
            Executor::Server | Executor::Human => true,
        };
        is_offered && is_free && !tool_use::is_judged(&self.definition.hooks, &tool.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(index: usize, name: Option<&str>, bytes: usize) -> CallPiece {
        CallPiece { index, name: name.map(str::to_owned), args_text: "x".repeat(bytes) }
    }

    #[test]
    fn only_calls_of_shown_tools_are_published_and_only_so_much() {
        let tools = BTreeSet::from(["shown".to_owned()]);
        let mut published = Published::default();
        assert!(!published.admits(&piece(0, None, 1), &tools), "the tool is not known");
        assert!(published.admits(&piece(0, Some("shown"), 1), &tools));
        assert!(!published.admits(&piece(1, Some("hidden"), 1), &tools));
        assert!(!published.admits(&piece(1, None, 1), &tools));
        assert!(published.admits(&piece(0, None, MAX_PUBLISHED_BYTES / 2), &tools));
        assert!(!published.admits(&piece(0, None, MAX_PUBLISHED_BYTES / 2), &tools));
        assert!(!published.admits(&piece(0, None, 1), &tools));
        assert!(!published.admits(&piece(0, Some("hidden"), 0), &tools), "begun anew");
    }
}
