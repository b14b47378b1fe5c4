//! A hook as an agent declares it.

use std::fmt;
use std::time::Duration;

use regex::{Regex, RegexBuilder};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::definition::Endpoint;
use crate::limits::one_line;

/// The size of a compiled expression: names are short, and so are the expressions that match them.
const MAX_REGEX_BYTES: usize = 1024 * 1024;
/// The part of the compiler's message that the author of the definition reads.
const MAX_MESSAGE_BYTES: usize = 200;

/// One entry of an agent's `hooks`.
#[derive(Clone, Debug)]
pub struct HookSpec {
    /// Unique in its agent.
    pub name: String,
    pub on: HookPoint,
    /// Selects the tools for whose calls the hook is called; `None` selects all.
    pub matching: Option<Matcher>,
    pub target: HookTarget,
    /// The time that one call of the hook may take.
    pub timeout: Duration,
    /// `pre` hooks only: neighbours of the same group run at once, and may only add.
    pub parallel: Option<String>,
    /// `pre` hooks only: whether its additions are journalled.
    pub durable: bool,
    /// `post` and `stream` hooks only: whether its failure ends the turn.
    pub fail_closed: bool,
}

/// The code or the server that is called.
#[derive(Clone, Debug)]
pub enum HookTarget {
    Http(Box<Endpoint>),
    /// The name in `Hooks`.
    Native(String),
}

/// When a hook is called (`reference/hooks.md`).
///
/// At the first four points the conversation waits for the reply. At the others the hook is
/// notified after the commit of the event (`PreCompact` has none), in the order of the
/// conversation's events and at most once: a node that dies, or whose queue is full, loses
/// notifications. The journal is the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = HookMoment)]
pub enum HookPoint {
    /// Before every model call. A failure halts the turn.
    #[serde(rename = "pre")]
    Pre,
    /// After every message of the model. A failure is logged.
    #[serde(rename = "post")]
    Post,
    /// While the model writes. A hook that fails is skipped for the rest of the message.
    #[serde(rename = "stream")]
    Stream,
    /// After the gate, before a call is journalled. A failure denies the call.
    PreToolUse,
    PostToolUse,
    /// A call ended with an error, whether it ran or not.
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
    /// The oldest turns are about to be summarized; no event says so yet.
    PreCompact,
    /// The oldest turns have been summarized.
    PostCompact,
    PermissionDenied,
    /// A call waits for a person or a client.
    Notification,
}

impl HookPoint {
    /// The names that definitions use.
    #[cfg(test)]
    pub(crate) const WORDS: &str = "pre, post, stream, PreToolUse, PostToolUse, \
        PostToolUseFailure, SessionStart, SessionEnd, UserPromptSubmit, Stop, StopFailure, \
        SubagentStart, SubagentStop, PreCompact, PostCompact, PermissionDenied, Notification";

    /// Whether the point concerns one call of a tool, so that `match` applies.
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

    /// Whether the hook is only notified, and nobody waits for its reply.
    pub fn is_notified(self) -> bool {
        !matches!(self, Self::Pre | Self::Post | Self::Stream | Self::PreToolUse)
    }
}

impl fmt::Display for HookPoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl HookSpec {
    /// Whether the hook is called at this point, for this tool if the point is about one.
    pub(crate) fn concerns(&self, on: HookPoint, tool: Option<&str>) -> bool {
        let matches = |matching: &Matcher| tool.is_some_and(|tool| matching.matches(tool));
        self.on == on && self.matching.as_ref().is_none_or(matches)
    }
}

/// A regular expression that must match a whole name, in upper or lower case.
#[derive(Clone, Debug)]
pub struct Matcher(Regex);

impl Matcher {
    /// Compiles the expression. The error is for the author of the definition.
    pub(crate) fn compile(source: &str) -> Result<Self, String> {
        // Compiled alone first: the parentheses below must not make `a)|(b` legal.
        let build = |source: &str| {
            let regex = RegexBuilder::new(source)
                .case_insensitive(true)
                .size_limit(MAX_REGEX_BYTES)
                .build();
            regex.map_err(|error| one_line(&error.to_string(), MAX_MESSAGE_BYTES))
        };
        build(source)?;
        build(&format!("^(?:{source})$")).map(Self)
    }

    /// Whether the expression matches the whole name.
    pub fn matches(&self, name: &str) -> bool {
        self.0.is_match(name)
    }
}
