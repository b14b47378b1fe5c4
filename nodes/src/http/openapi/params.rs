//! Parameters that many operations share.

use utoipa::IntoParams;

/// Which agent.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct AgentPath {
    /// The agent's name.
    #[param(pattern = "^[a-z0-9][a-z0-9_-]{0,63}$", example = "support")]
    name: String,
}

/// Which decision of which agent.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code, reason = "it is a description")]
pub(in crate::http) struct AgentDecisionPath {
    /// The agent's name.
    #[param(pattern = "^[a-z0-9][a-z0-9_-]{0,63}$", example = "support")]
    name: String,
    /// The decision's id.
    #[param(example = "dec_1")]
    decision_id: String,
}

/// Which decision of which conversation.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[allow(dead_code, reason = "it is a description")]
pub(in crate::http) struct DecisionPath {
    /// The conversation's id.
    #[param(pattern = "^[A-Za-z0-9_.:-]{1,128}$", example = "conv_1")]
    id: String,
    /// The decision's id.
    #[param(example = "dec_1")]
    decision_id: String,
}

/// Which conversation.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct ConversationPath {
    /// The conversation's id. One that cannot exist is answered like one that does not.
    #[param(pattern = "^[A-Za-z0-9_.:-]{1,128}$", example = "conv_1")]
    id: String,
}

/// Which blob.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct BlobPath {
    /// The blob's id. One that cannot exist is answered like one that does not.
    #[param(pattern = "^blob_[0-9a-f]{64}$")]
    id: String,
}

/// Which call.
#[derive(IntoParams)]
#[into_params(parameter_in = Path)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct CallPath {
    /// The conversation's id.
    #[param(pattern = "^[A-Za-z0-9_.:-]{1,128}$", example = "conv_1")]
    id: String,
    /// The call's id, percent-encoded where it must be.
    #[param(example = "call_2")]
    call_id: String,
}

/// What makes a repeat of a request recognisable.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct IdempotencyKeyHeader {
    /// A name of the client's for this request, 1 to 255 visible characters. A repeat within a day
    /// gets the first answer.
    #[param(rename = "Idempotency-Key", min_length = 1, max_length = 255)]
    key: Option<String>,
}

/// On whose behalf.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct PrincipalHeader {
    /// On whose behalf the request is made, 1 to 255 visible characters, set by a gateway;
    /// `anonymous` if absent, never `system`.
    #[param(rename = "Abide-Principal", min_length = 1, max_length = 255)]
    principal: Option<String>,
}

/// Where a stream goes on.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
#[expect(dead_code, reason = "only its schema is used")]
pub(in crate::http) struct LastEventId {
    /// The `id` of the last frame that was read; every journalled frame after it is replayed. Wins
    /// over `after`.
    #[param(rename = "Last-Event-ID")]
    last: Option<u64>,
}
