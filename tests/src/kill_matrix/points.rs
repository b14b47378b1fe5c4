//! The await points of a turn.

use abide_conversation::activity::Activity;

/// An await point: a request of a node to somebody else, within a turn.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// A command to Redis by its script, or by its verb and the kind of its key; or a server.
    pub name: &'static str,
    /// What the node asks for.
    pub meaning: &'static str,
}

const fn point(name: &'static str, meaning: &'static str) -> Point {
    Point { name, meaning }
}

const HGET_A: Point = point("HGET a", "a response that is stored for the request's key");
const HMGET_C: Point = point("HMGET c", "who holds the conversation, and whether it exists");
const HMGET_NEWEST: Point = point("HMGET newest", "the agent's newest revision, and its rollout");
const HGET_REVISIONS: Point = point("HGET revisions", "the agent's definition");
const APPEND_MESSAGE: Point = point(
    "append: created, user_msg, turn_started",
    "the claim, with the message that begins the turn",
);
const HOOK: Point = point("hook", "the answer of the `pre` hook");
const MODEL: Point = point("model", "the first step of the model");
const HVALS_DECISIONS: Point = point("HVALS decisions", "the agent's remembered decisions");
const APPEND_STEP: Point = point(
    "append: assistant_msg, tool_call, suspension, tool_call",
    "the step: one call waits for an approval, the other for the child",
);
const CHILDS_HMGET_C: Point = point("child's HMGET c", "who holds the child");
const APPEND_CHILD: Point =
    point("child's append: created, user_msg, turn_started", "the child's claim, with its message");
const APPEND_CHILD_STARTED: Point =
    point("append: child_started", "the parent's note that the child has begun");
const APPEND_CHILDS_TURN: Point =
    point("child's append: assistant_msg, turn_ended", "the child's turn");
const CHILDS_LRANGE_J: Point = point("child's LRANGE j", "the child's answer");
const APPEND_RESOLUTION: Point = point(
    "append: resolution, decision_remembered, tool_started",
    "the approval; the call may run",
);
const APPEND_CHILDS_RESULT: Point =
    point("append: child_ended, tool_result", "the child's answer as the result of its call");
const APPEND_NOTIFIED: Point =
    point("child's append: told", "the child's note that its parent has the answer");
const DECISION: Point = point("decision", "the decision, at the agent");
const APPEND_DECISION: Point =
    point("append: decision_kept", "the note that the agent has the decision");
const TOOL: Point = point("tool", "the run of the tool");
const APPEND_TOOL_RESULT: Point = point("append: tool_result", "the result of the run");
const MODEL_WITH_RESULTS: Point = point("model with results", "the second step of the model");
const APPEND_END: Point = point("append: assistant_msg, turn_ended", "the end of the turn");
const RESERVE: Point = point("reserve", "the reservation of the fork's id for its key");
const FORKS_HMGET_C: Point = point("fork's HMGET c", "who holds the fork");
const FORKS_CLAIM_AND_LOAD: Point = point("fork's claim_and_load", "the fork's claim");
const FORKS_HGET_A: Point = point("fork's HGET a", "a response that is stored for the fork's key");
const LOAD: Point = point("load", "whether the parent waits for the new child");
const LRANGE_J: Point = point("LRANGE j", "a few events of the journal");
const JOURNAL_PAGE: Point = point("page", "a page of the journal that is copied");
const APPEND_FORK: Point = point("fork's append: created", "the fork, still without events");
const APPEND_COPY: Point = point("fork's append: user_msg … forked", "the copied events");

/// Every await point of the turn, in its order.
pub static POINTS: [Point; 32] = [
    HGET_A,
    HMGET_C,
    HMGET_NEWEST,
    HGET_REVISIONS,
    APPEND_MESSAGE,
    HOOK,
    MODEL,
    HVALS_DECISIONS,
    APPEND_STEP,
    CHILDS_HMGET_C,
    APPEND_CHILD,
    LOAD,
    APPEND_CHILD_STARTED,
    APPEND_CHILDS_TURN,
    CHILDS_LRANGE_J,
    APPEND_RESOLUTION,
    APPEND_CHILDS_RESULT,
    APPEND_NOTIFIED,
    DECISION,
    APPEND_DECISION,
    TOOL,
    APPEND_TOOL_RESULT,
    MODEL_WITH_RESULTS,
    APPEND_END,
    RESERVE,
    FORKS_HMGET_C,
    FORKS_CLAIM_AND_LOAD,
    FORKS_HGET_A,
    LRANGE_J,
    JOURNAL_PAGE,
    APPEND_FORK,
    APPEND_COPY,
];

/// The await points of an activity, or the tests that kill it instead.
#[derive(Clone, Copy, Debug)]
pub enum Coverage {
    Points(&'static [Point]),
    Tests(&'static str),
}

/// Where an activity is killed. A new activity does not compile without an entry.
pub fn points_of(activity: &Activity) -> Coverage {
    match activity {
        Activity::CallModel { .. } => {
            Coverage::Points(&[HOOK, MODEL, HVALS_DECISIONS, APPEND_STEP])
        }
        Activity::RunTool { .. } => {
            Coverage::Points(&[APPEND_CHILD, LOAD, TOOL, APPEND_TOOL_RESULT])
        }
        Activity::NotifyParent { .. } => {
            Coverage::Points(&[CHILDS_LRANGE_J, APPEND_CHILDS_RESULT, APPEND_NOTIFIED])
        }
        Activity::PublishDecision { .. } => Coverage::Points(&[DECISION, APPEND_DECISION]),
        Activity::CopyFork { .. } => Coverage::Points(&[LRANGE_J, JOURNAL_PAGE, APPEND_COPY]),
        Activity::StartTurn { .. } => Coverage::Tests("registry/tests/node/turns.rs"),
        Activity::StopChild { .. } => Coverage::Tests("registry/tests/node/child_deaths.rs"),
        Activity::AwaitClient { .. } => Coverage::Tests("tests/tests/cluster/kill_points.rs"),
        Activity::Summarize { .. } => Coverage::Tests("registry/tests/node/summaries.rs"),
    }
}
