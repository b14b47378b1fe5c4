//! Parameters that many operations share.

use utoipa::IntoParams;

/// The path of an agent.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct AgentPath {
    /// The agent's name.
    #[param(pattern = "^[a-z0-9][a-z0-9_-]{0,63}$", example = "support")]
    name: String,
}

/// The path of a chat.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct ChatPath {
    /// The agent's name.
    #[param(pattern = "^[a-z0-9][a-z0-9_-]{0,63}$", example = "support")]
    name: String,
    /// The chat's id, which is the conversation's.
    #[param(pattern = "^[A-Za-z0-9_.:-]{1,128}$", example = "conv_1")]
    chat: String,
}

/// The path of a thread of CopilotKit's runtime.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct RuntimeThreadPath {
    /// The agent's name.
    #[param(pattern = "^[a-z0-9][a-z0-9_-]{0,63}$", example = "support")]
    name: String,
    /// The thread's id, which is the conversation's.
    #[param(pattern = "^[A-Za-z0-9_.:-]{1,128}$", example = "conv_1")]
    thread: String,
}

/// The path of a decision of an agent.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct AgentDecisionPath {
    /// The agent's name.
    #[param(pattern = "^[a-z0-9][a-z0-9_-]{0,63}$", example = "support")]
    name: String,
    /// The decision's id.
    #[param(example = "dec_1")]
    decision_id: String,
}

/// The path of a decision of a conversation.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct DecisionPath {
    /// The conversation's id.
    #[param(pattern = "^[A-Za-z0-9_.:-]{1,128}$", example = "conv_1")]
    id: String,
    /// The decision's id.
    #[param(example = "dec_1")]
    decision_id: String,
}

/// The path of a schedule.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct SchedulePath {
    /// The schedule's name.
    #[param(pattern = "^[a-z0-9][a-z0-9_-]{0,63}$", example = "daily")]
    name: String,
}

/// The path of a scheduled message.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct ScheduledPath {
    /// The conversation's id.
    #[param(pattern = "^[A-Za-z0-9_.:-]{1,128}$", example = "conv_1")]
    id: String,
    /// The id that the message got when it was scheduled.
    #[param(example = "sch_1")]
    scheduled_id: String,
}

/// The path of a queued turn.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct QueuedTurnPath {
    /// The conversation's id.
    #[param(pattern = "^[A-Za-z0-9_.:-]{1,128}$", example = "conv_1")]
    id: String,
    /// The turn's id.
    #[param(example = "turn_2")]
    turn_id: String,
}

/// The path of a key of a conversation's state.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct StatePath {
    /// The conversation's id.
    #[param(pattern = "^[A-Za-z0-9_.:-]{1,128}$", example = "conv_1")]
    id: String,
    /// The key.
    #[param(pattern = "^[A-Za-z0-9_.:-]{1,128}$", example = "cart")]
    key: String,
}

/// The path of an erasure.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct ErasurePath {
    /// The erasure's id. For an id that no erasure can have, the response is 404.
    #[param(example = "er_01k9")]
    id: String,
}

/// The path of a conversation.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct ConversationPath {
    /// The conversation's id. For an id that no conversation can have, the response is 404.
    #[param(pattern = "^[A-Za-z0-9_.:-]{1,128}$", example = "conv_1")]
    id: String,
}

/// The path of an API key.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct KeyPath {
    /// The key's id.
    #[param(example = "3f1c9a0b7d2e4f6a85")]
    id: String,
}

/// The path of a blob.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct BlobPath {
    /// The blob's id. For an id that no blob can have, the response is 404.
    #[param(pattern = "^blob_[0-9a-f]{64}$")]
    id: String,
}

/// The path of a call.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct CallPath {
    /// The conversation's id.
    #[param(pattern = "^[A-Za-z0-9_.:-]{1,128}$", example = "conv_1")]
    id: String,
    /// The call's id, percent-encoded where necessary.
    #[param(example = "call_2")]
    call_id: String,
}

/// The path of a queue.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct QueuePath {
    /// The queue's name.
    #[param(pattern = "^[a-z0-9][a-z0-9_-]{0,63}$", example = "mail")]
    queue: String,
}

/// The path of a lease.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct LeasePath {
    /// The `lease_id` of the call, as the worker was given it.
    #[param(max_length = 1024)]
    lease_id: String,
}

/// The path of a callback.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct CallbackPath {
    /// The token of the callback, as the tool was given it.
    token: String,
}

/// The header that makes a request safe to repeat.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct IdempotencyKeyHeader {
    /// The client's name for this request, 1 to 255 visible characters. A repeat within a day gets the
    /// first response.
    #[param(rename = "Idempotency-Key", min_length = 1, max_length = 255)]
    key: Option<String>,
}

/// The header with the principal of a request.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct PrincipalHeader {
    /// The principal on whose behalf the request is made, 1 to 255 visible characters, set by a
    /// gateway; `anonymous` if absent, never `system`.
    #[param(rename = "Abide-Principal", min_length = 1, max_length = 255)]
    principal: Option<String>,
}

/// The header with which a client resumes a stream.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct LastEventId {
    /// The `id` of the last frame that the client read; every journalled frame after it is replayed.
    /// Wins over `after`. With `cursor=chars` it may be a place inside a message.
    #[param(rename = "Last-Event-ID", pattern = r"^[0-9]+(\.[0-9]+(\.[0-9]+\.[A-Za-z0-9_-]+)?)?$")]
    last: Option<String>,
}
