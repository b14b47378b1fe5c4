//! Traces as a port: spans of turns, finished here and exported by whoever was installed.
//!
//! A turn's trace has the same id on every node and in every process, since it is made of the turn's
//! own; so has the span that is its root, and that of a suspension or an attempt of a tool. Nothing
//! of a trace is ever stored: whoever finishes a part of a turn knows where it belongs.

use std::sync::OnceLock;

use abide_conversation::{CallId, ConversationId, Timestamp, TurnId};
use sha2::{Digest, Sha256};

/// Who takes the spans of this process. None may take long: conversations wait for it.
pub trait Tracer: Send + Sync {
    /// Whether spans of this trace are wanted at all.
    fn samples(&self, trace: u128) -> bool;

    /// Whether they may show what people, models and tools said.
    fn shows_content(&self) -> bool;

    /// Takes a span that is over.
    fn end(&self, span: Span);
}

static TRACER: OnceLock<Box<dyn Tracer>> = OnceLock::new();

/// Takes the spans of this process from here on, as logs and metrics are taken: by one. Returns
/// whether there was none before.
pub fn install(tracer: Box<dyn Tracer>) -> bool {
    TRACER.set(tracer).is_ok()
}

/// Who takes the spans of the trace with this root; `None` if nobody wants them. Where nobody takes
/// any, not even the root is asked for.
pub(crate) fn wanted(
    root: impl FnOnce() -> SpanContext,
) -> Option<(&'static dyn Tracer, SpanContext)> {
    let tracer = &**TRACER.get()?;
    let root = root();
    tracer.samples(root.trace).then_some((tracer, root))
}

/// Takes a span of a trace that is sampled already.
pub fn end(span: Span) {
    if let Some(tracer) = TRACER.get() {
        tracer.end(span);
    }
}

/// The header `traceparent` of a request that this attempt of a tool makes.
pub(crate) fn of_attempt(
    conversation: &ConversationId,
    turn: Option<&TurnId>,
    call: &CallId,
    attempt: u32,
) -> Option<String> {
    let root = || match turn {
        Some(turn) => SpanContext::of_turn(conversation, turn),
        // A user's own call is no part of a turn.
        None => SpanContext::apart(conversation, call.as_str()),
    };
    wanted(root).map(|(_, root)| root.attempt(call, attempt).traceparent())
}

/// A part of a turn, or of another trace, from its beginning to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub at: SpanContext,
    pub parent: Option<u64>,
    pub name: String,
    pub side: SpanKind,
    pub began: Timestamp,
    pub ended: Timestamp,
    pub attributes: Vec<(&'static str, Attribute)>,
    pub links: Vec<SpanContext>,
    /// The kind of the error that it ended with.
    pub error: Option<&'static str>,
}

/// On which side of a call it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Of none.
    Inside,
    /// It calls something else, over the network.
    Calls,
    /// It is called.
    Called,
}

/// Where a span is: its trace, and its own id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanContext {
    pub trace: u128,
    pub span: u64,
}

/// A value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    Text(String),
    Texts(Vec<String>),
    Whole(i64),
    Float(f64),
}

impl SpanContext {
    /// The root of a turn's trace.
    pub fn of_turn(conversation: &ConversationId, turn: &TurnId) -> Self {
        Self::of(&["turn", conversation.as_str(), turn.as_str()])
    }

    /// The root of what is no part of a turn, by a name that is its own.
    pub(crate) fn apart(conversation: &ConversationId, name: &str) -> Self {
        Self::of(&["apart", conversation.as_str(), name])
    }

    fn of(parts: &[&str]) -> Self {
        let digest = digest(parts);
        Self { trace: number(&digest[..16]), span: number(&digest[16..24]) as u64 }
    }

    /// Another span of the same trace.
    pub(crate) fn child(self, parts: &[&str]) -> Self {
        Self { span: number(&digest(parts)[..8]) as u64, ..self }
    }

    /// That of a suspension.
    pub(crate) fn suspension(self, call: &CallId, suspension: u32) -> Self {
        self.child(&["suspension", call.as_str(), &suspension.to_string()])
    }

    /// That of one attempt of a tool.
    pub(crate) fn attempt(self, call: &CallId, attempt: u32) -> Self {
        self.child(&["attempt", call.as_str(), &attempt.to_string()])
    }

    /// The header `traceparent` of a request that is made within.
    pub(crate) fn traceparent(self) -> String {
        format!("00-{:032x}-{:016x}-01", self.trace, self.span)
    }
}

impl From<&str> for Attribute {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Attribute {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<u64> for Attribute {
    fn from(whole: u64) -> Self {
        Self::Whole(i64::try_from(whole).unwrap_or(i64::MAX))
    }
}

impl From<u32> for Attribute {
    fn from(whole: u32) -> Self {
        Self::Whole(whole.into())
    }
}

/// Each part ends where it ends: no two lists of parts are the same bytes.
fn digest(parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// Never 0, which is no id.
fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |number, byte| (number << 8) | u128::from(*byte)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_has_the_same_trace_wherever_it_is() {
        let (conversation, turn) = (ConversationId::new("c"), TurnId::new("t"));
        let place = SpanContext::of_turn(&conversation, &turn);
        assert_eq!(place, SpanContext::of_turn(&conversation, &turn));
        assert_ne!(
            place.trace,
            SpanContext::of_turn(&ConversationId::new("ct"), &TurnId::new("")).trace
        );
        let call = CallId::new("call_1");
        let spans = [
            place,
            place.suspension(&call, 1),
            place.suspension(&call, 2),
            place.attempt(&call, 1),
        ];
        for (at, one) in spans.iter().enumerate() {
            assert_eq!(one.trace, place.trace);
            assert!(spans[..at].iter().all(|other| other.span != one.span));
        }
    }

    #[test]
    fn a_traceparent_is_written_as_w3c_says() {
        let place = SpanContext { trace: 0xab, span: 0x1 };
        let written = "00-000000000000000000000000000000ab-0000000000000001-01";
        assert_eq!(place.traceparent(), written);
    }
}
