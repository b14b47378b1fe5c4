//! Traces as a port: spans are completed here and exported by the installed tracer.
//!
//! The ids of a turn's trace, of its root span, and of the spans of its suspensions and tool
//! attempts are derived from the ids in the journal, so they are the same on every node and in
//! every process. Nothing of a trace is ever stored
//! (`architecture/decisions/0007-spans-from-events.md`).

use std::sync::OnceLock;

use abide_conversation::state::Call;
use abide_conversation::{Attempt, CallId, ConversationId, Scoped, Timestamp, TurnId};
use sha2::{Digest, Sha256};

/// Receives the spans of this process. Its methods must be quick: conversations wait for them.
pub trait Tracer: Send + Sync {
    /// Whether this trace is sampled.
    fn samples(&self, trace: u128) -> bool;

    /// Whether spans may show content: texts of people, models and tools.
    fn shows_content(&self) -> bool;

    /// Receives a completed span.
    fn end(&self, span: Span);
}

static TRACER: OnceLock<Box<dyn Tracer>> = OnceLock::new();

/// Installs the tracer of this process; there is one, as for logs and metrics. Returns whether none
/// was installed before.
pub fn install(tracer: Box<dyn Tracer>) -> bool {
    TRACER.set(tracer).is_ok()
}

/// The tracer and the root of a trace; `None` if the trace is not sampled. Without a tracer, `root`
/// is not even called.
pub(crate) fn sample(
    root: impl FnOnce() -> SpanContext,
) -> Option<(&'static dyn Tracer, SpanContext)> {
    let tracer = &**TRACER.get()?;
    let root = root();
    tracer.samples(root.trace).then_some((tracer, root))
}

/// The root of a turn's trace; `None` if nothing traces this process.
pub fn root_of(conversation: &Scoped<ConversationId>, turn: &TurnId) -> Option<SpanContext> {
    TRACER.get().map(|_| SpanContext::of_turn(conversation, turn))
}

/// Exports a span of a trace that is known to be sampled.
pub fn end(span: Span) {
    if let Some(tracer) = TRACER.get() {
        tracer.end(span);
    }
}

/// The `traceparent` header of a request that this attempt of a tool makes.
pub(crate) fn of_attempt(
    conversation: &Scoped<ConversationId>,
    turn: Option<&TurnId>,
    call: &CallId,
    attempt: Attempt,
) -> Option<String> {
    let root = || match turn {
        Some(turn) => SpanContext::of_turn(conversation, turn),
        // A user's own call is not part of a turn.
        None => SpanContext::outside_turns(conversation, call.as_str()),
    };
    sample(root).map(|(_, root)| root.attempt(call, attempt).traceparent())
}

/// The spans of the latest suspension of each call, open or closed.
pub(crate) fn suspensions<'a>(
    root: SpanContext,
    calls: impl IntoIterator<Item = &'a Call>,
) -> Vec<SpanContext> {
    let latest =
        |call: &Call| (call.suspensions > 0).then(|| root.suspension(&call.id, call.suspensions));
    calls.into_iter().filter_map(latest).collect()
}

/// A completed part of a turn, or of another trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Span {
    pub context: SpanContext,
    pub parent: Option<u64>,
    pub name: String,
    pub kind: SpanKind,
    pub started_at: Timestamp,
    pub ended_at: Timestamp,
    pub attributes: Vec<(&'static str, Attribute)>,
    pub links: Vec<SpanContext>,
    /// The type of the error that it ended with.
    pub error: Option<&'static str>,
}

/// The kind of a span, as OpenTelemetry defines it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKind {
    /// Work of this process.
    Internal,
    /// A request to something else, over the network.
    Client,
    /// The handling of a request.
    Server,
}

/// The ids of a span and of its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanContext {
    pub trace: u128,
    pub span: u64,
}

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
pub enum Attribute {
    Text(String),
    Texts(Vec<String>),
    Whole(i64),
    Float(f64),
}

impl SpanContext {
    /// The root of a turn's trace.
    pub(crate) fn of_turn(conversation: &Scoped<ConversationId>, turn: &TurnId) -> Self {
        Self::of(&["turn", conversation.as_str(), turn.as_str()])
    }

    /// The root of a trace outside of turns, by a unique name.
    pub(crate) fn outside_turns(conversation: &Scoped<ConversationId>, name: &str) -> Self {
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

    /// The span of a suspension.
    pub(crate) fn suspension(self, call: &CallId, suspension: u32) -> Self {
        self.child(&["suspension", call.as_str(), &suspension.to_string()])
    }

    /// The span of one attempt of a tool.
    pub(crate) fn attempt(self, call: &CallId, attempt: Attempt) -> Self {
        self.child(&["attempt", call.as_str(), &attempt.to_string()])
    }

    /// The `traceparent` header of a request that is made within this span.
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

/// Each part is prefixed by its length, so that different lists of parts never give the same bytes.
fn digest(parts: &[&str]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

/// Never 0, which is not a valid id.
fn number(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |number, byte| (number << 8) | u128::from(*byte)).max(1)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_has_the_same_trace_on_every_node() {
        let (conversation, turn) = (Scoped::parse("c").unwrap(), TurnId::new("t"));
        let root = SpanContext::of_turn(&conversation, &turn);
        assert_eq!(root, SpanContext::of_turn(&conversation, &turn));
        assert_ne!(
            root.trace,
            SpanContext::of_turn(&Scoped::parse("ct").unwrap(), &TurnId::new("")).trace
        );
        let call = CallId::new("call_1");
        let spans = [
            root,
            root.suspension(&call, 1),
            root.suspension(&call, 2),
            root.attempt(&call, Attempt::FIRST),
        ];
        for (index, one) in spans.iter().enumerate() {
            assert_eq!(one.trace, root.trace);
            assert!(spans[..index].iter().all(|other| other.span != one.span));
        }
    }

    #[test]
    fn a_traceparent_has_the_form_that_w3c_defines() {
        let root = SpanContext { trace: 0xab, span: 0x1 };
        let header = "00-000000000000000000000000000000ab-0000000000000001-01";
        assert_eq!(root.traceparent(), header);
    }
}
