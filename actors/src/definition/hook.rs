//! A hook as an agent declares it.

use std::fmt;
use std::time::Duration;

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::definition::Endpoint;
use crate::limits::one_line;

/// How large a compiled expression may be: names are short, and so is what matches them.
const REGEX: usize = 1024 * 1024;
/// How much of the compiler's complaint is told.
const COMPLAINT: usize = 200;

/// One entry of an agent's `hooks`.
#[derive(Clone, Debug)]
pub struct HookSpec {
    /// Unique in its agent.
    pub name: String,
    pub on: HookPoint,
    /// Of which tools; `None`: of all.
    pub matching: Option<Matcher>,
    pub target: HookTarget,
    /// How long one call of it may take.
    pub timeout: Duration,
    /// Of a `pre` hook: neighbours with the same text run at once, and may only add.
    pub parallel: Option<String>,
    /// Of a `pre` hook: what it adds is journalled.
    pub durable: bool,
    /// Of a `post` or `stream` hook: its failure ends the turn.
    pub fail_closed: bool,
}

/// Who is called.
#[derive(Clone, Debug)]
pub enum HookTarget {
    Http(Endpoint),
    /// The name in `Hooks`.
    Native(String),
}

/// When a hook is called. The first four are asked and waited for; the others are told, after the
/// commit of what they are told of (`PreCompact` has none), in the order of a conversation's events and at most once: a node
/// that dies, or whose queue is full, loses them. The journal is the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = HookMoment)]
pub enum HookPoint {
    /// Before every model call. A failure halts the turn.
    #[serde(rename = "pre")]
    Pre,
    /// After every message of the model. A failure is logged.
    #[serde(rename = "post")]
    Post,
    /// While the model speaks. One that fails is left out for the rest of the message.
    #[serde(rename = "stream")]
    Stream,
    /// After the gate, before a call is journalled. A failure denies the call.
    PreToolUse,
    PostToolUse,
    /// A call ended with an error, also one that never ran.
    PostToolUseFailure,
    SessionStart,
    /// The conversation was deleted.
    SessionEnd,
    UserPromptSubmit,
    /// A turn was completed, halted or cancelled.
    Stop,
    StopFailure,
    SubagentStart,
    SubagentStop,
    /// The oldest turns are about to be summarized; there is no event of that yet.
    PreCompact,
    /// They are.
    PostCompact,
    PermissionDenied,
    /// A call waits for a person or a page.
    Notification,
}

impl HookPoint {
    /// As definitions write them.
    pub(crate) const WORDS: &str = "pre, post, stream, PreToolUse, PostToolUse, \
        PostToolUseFailure, SessionStart, SessionEnd, UserPromptSubmit, Stop, StopFailure, \
        SubagentStart, SubagentStop, PreCompact, PostCompact, PermissionDenied, Notification";

    /// Whether it is about one call of a tool, so that `match` means something.
    pub fn is_about_a_tool(self) -> bool {
        match self {
            Self::PreToolUse
            | Self::PostToolUse
            | Self::PostToolUseFailure
            | Self::PermissionDenied
            | Self::Notification => true,
            Self::Pre
            | Self::Post
            | Self::Stream
            | Self::SessionStart
            | Self::SessionEnd
            | Self::UserPromptSubmit
            | Self::Stop
            | Self::StopFailure
            | Self::SubagentStart
            | Self::SubagentStop
            | Self::PreCompact
            | Self::PostCompact => false,
        }
    }

    /// Whether nobody waits for its reply.
    pub fn is_told(self) -> bool {
        !matches!(self, Self::Pre | Self::Post | Self::Stream | Self::PreToolUse)
    }
}

impl fmt::Display for HookPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl HookSpec {
    /// Whether it is called on that, for this tool if it is about one.
    pub(crate) fn concerns(&self, on: HookPoint, tool: Option<&str>) -> bool {
        let matches = |matching: &Matcher| tool.is_some_and(|tool| matching.matches(tool));
        self.on == on && self.matching.as_ref().is_none_or(matches)
    }
}

/// An expression that a whole name satisfies, in upper or lower case.
#[derive(Clone, Debug)]
pub struct Matcher(Regex);

impl Matcher {
    /// Compiles it; the error is for its author.
    pub(crate) fn compile(source: &str) -> Result<Self, String> {
        // Alone first: `a)|(b` must not become legal by what is put around it.
        let build = |source: &str| {
            let built = RegexBuilder::new(source).case_insensitive(true).size_limit(REGEX).build();
            built.map_err(|error| one_line(&error.to_string(), COMPLAINT))
        };
        build(source)?;
        build(&format!("^(?:{source})$")).map(Self)
    }

    /// Whether the whole name satisfies it.
    pub fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}
