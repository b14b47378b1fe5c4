//! Every error as `application/problem+json` (RFC 9457). The only place that knows status codes.

pub(crate) mod a2a;
pub(crate) mod openai;

use abide_actors::journal::StoreError;
use abide_actors::request::RequestError;
use abide_conversation::Rejection;
use abide_conversation::limits::LimitError;
use abide_registry::router::MoveError;
use abide_registry::store::ListError;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// The longest detail: it names a mistake and does not send a large input back.
const MAX_DETAIL_CHARS: usize = 2_000;

/// What a client without a valid credential is asked for (RFC 6750).
const CHALLENGE: HeaderValue = HeaderValue::from_static("Bearer error=\"invalid_token\"");

/// An error for a client.
#[derive(Debug)]
pub struct Problem {
    kind: Kind,
    status: StatusCode,
    detail: String,
    extensions: Map<String, Value>,
}

/// The types of problems: `reference/problems.md#types`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    InvalidRequest,
    Unauthorized,
    Forbidden,
    ApprovalForbidden,
    NotFound,
    ConversationExists,
    TurnInFlight,
    CallNotOpen,
    /// A worker does not have the call, or not any more.
    LeaseLost,
    ApprovalRequired,
    AlreadyDelivered,
    AgentMissing,
    /// Operator requests only: not possible in the current state (for example, the target node is
    /// draining).
    Conflict,
    PayloadTooLarge,
    Overloaded,
    QuotaExceeded,
    Unavailable,
    Internal,
}

impl Kind {
    pub(super) const ALL: [Self; 18] = [
        Kind::InvalidRequest,
        Kind::Unauthorized,
        Kind::Forbidden,
        Kind::ApprovalForbidden,
        Kind::NotFound,
        Kind::ConversationExists,
        Kind::TurnInFlight,
        Kind::CallNotOpen,
        Kind::LeaseLost,
        Kind::ApprovalRequired,
        Kind::AlreadyDelivered,
        Kind::AgentMissing,
        Kind::Conflict,
        Kind::PayloadTooLarge,
        Kind::Overloaded,
        Kind::QuotaExceeded,
        Kind::Unavailable,
        Kind::Internal,
    ];

    /// The `type` of a problem.
    pub(super) fn uri(self) -> String {
        format!("/problems/{}", self.name())
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::InvalidRequest => "invalid-request",
            Kind::Unauthorized => "unauthorized",
            Kind::Forbidden => "forbidden",
            Kind::ApprovalForbidden => "approval-forbidden",
            Kind::NotFound => "not-found",
            Kind::ConversationExists => "conversation-exists",
            Kind::TurnInFlight => "turn-in-flight",
            Kind::CallNotOpen => "call-not-open",
            Kind::LeaseLost => "lease-lost",
            Kind::ApprovalRequired => "approval-required",
            Kind::AlreadyDelivered => "already-delivered",
            Kind::AgentMissing => "agent-missing",
            Kind::Conflict => "conflict",
            Kind::PayloadTooLarge => "payload-too-large",
            Kind::Overloaded => "overloaded",
            Kind::QuotaExceeded => "quota-exceeded",
            Kind::Unavailable => "unavailable",
            Kind::Internal => "internal",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Kind::InvalidRequest => "Invalid request",
            Kind::Unauthorized => "A valid credential is required",
            Kind::Forbidden => "Forbidden",
            Kind::ApprovalForbidden => "The answer to the approval does not count",
            Kind::NotFound => "Not found",
            Kind::ConversationExists => "Conversation already exists",
            Kind::TurnInFlight => "A turn is in flight",
            Kind::CallNotOpen => "Call not open for this resolution",
            Kind::LeaseLost => "The lease of the call is lost",
            Kind::ApprovalRequired => "Call requires approval",
            Kind::AlreadyDelivered => "The scheduled message was delivered",
            Kind::AgentMissing => "Agent does not exist",
            Kind::Conflict => "Conflicts with the current state",
            Kind::PayloadTooLarge => "Request too large",
            Kind::Overloaded => "Too many requests",
            Kind::QuotaExceeded => "A quota of the tenant is used up",
            Kind::Unavailable => "Temporarily unavailable",
            Kind::Internal => "Internal server error",
        }
    }

    pub(super) fn status(self) -> StatusCode {
        match self {
            Kind::InvalidRequest => StatusCode::UNPROCESSABLE_ENTITY,
            Kind::Unauthorized => StatusCode::UNAUTHORIZED,
            Kind::Forbidden | Kind::ApprovalForbidden => StatusCode::FORBIDDEN,
            Kind::NotFound => StatusCode::NOT_FOUND,
            Kind::ConversationExists
            | Kind::TurnInFlight
            | Kind::CallNotOpen
            | Kind::LeaseLost
            | Kind::ApprovalRequired
            | Kind::AlreadyDelivered
            | Kind::AgentMissing
            | Kind::Conflict => StatusCode::CONFLICT,
            Kind::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Kind::Overloaded | Kind::QuotaExceeded => StatusCode::TOO_MANY_REQUESTS,
            Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl Problem {
    /// A problem of this kind, with the usual status.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, status: kind.status(), detail: detail.into(), extensions: Map::new() }
    }

    /// A field with a wrong value: 422.
    pub fn field(field: &str, message: impl std::fmt::Display) -> Self {
        Self::new(Kind::InvalidRequest, format!("{field}: {message}"))
    }

    /// A request that cannot be read: 400.
    pub fn unreadable(detail: impl Into<String>) -> Self {
        let problem = Self::new(Kind::InvalidRequest, detail);
        Self { status: StatusCode::BAD_REQUEST, ..problem }
    }

    /// A method that the path does not support: 405.
    pub fn method_not_allowed() -> Self {
        let problem = Self::new(Kind::InvalidRequest, "the path does not support this method");
        Self { status: StatusCode::METHOD_NOT_ALLOWED, ..problem }
    }

    /// Headers above their limit: 431.
    pub fn headers_too_large() -> Self {
        let problem = Self::new(Kind::InvalidRequest, "the headers are too large");
        Self { status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, ..problem }
    }

    /// A request that the HTTP parser refused with this status.
    pub(crate) fn not_http(status: StatusCode) -> Self {
        match status {
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE | StatusCode::URI_TOO_LONG => {
                Self::headers_too_large()
            }
            _ => Self::unreadable("the request is not HTTP/1.1"),
        }
    }

    /// A thing that does not exist, such as "conversation".
    pub fn not_found(what: impl std::fmt::Display) -> Self {
        Self::new(Kind::NotFound, format!("{what} not found"))
    }

    /// A caller who is known and lacks this.
    pub(crate) fn forbidden(needs: &str) -> Self {
        let detail = format!("the credential does not permit this: it needs {needs}");
        Self::new(Kind::Forbidden, detail).with("needs", needs.into())
    }

    /// The problem of a field of an object that is at this place in the body.
    pub(crate) fn below(self, at: &str) -> Self {
        Self { detail: format!("{at}.{}", self.detail), ..self }
    }

    /// The problem of what is at this place in the body.
    pub(crate) fn at(self, place: &str) -> Self {
        Self { detail: format!("{place}: {}", self.detail), ..self }
    }

    /// The status of the response.
    pub(crate) fn status(&self) -> StatusCode {
        self.status
    }

    /// What is wrong, in words.
    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// Adds a member in addition to those that every problem has.
    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.extensions.insert(name.to_owned(), value);
        self
    }
}

impl From<RequestError> for Problem {
    fn from(error: RequestError) -> Self {
        let detail = error.to_string();
        let kind = match error {
            RequestError::Rejected(rejection) => return rejection.into(),
            RequestError::Store(error) => return error.into(),
            RequestError::AgentMissing(_) => Kind::AgentMissing,
            RequestError::Invalid { .. } | RequestError::KeyReused(_) => Kind::InvalidRequest,
            RequestError::ToolNotFound(_) => Kind::NotFound,
            RequestError::ApprovalRequired(_) => Kind::ApprovalRequired,
            RequestError::Lost | RequestError::ChildrenRemain | RequestError::Unavailable(_) => {
                Kind::Unavailable
            }
            // The reason may be the text of a panic: only operators may read it, in their API.
            RequestError::Quarantined(_) => {
                return Self::new(
                    Kind::Unavailable,
                    "the conversation is quarantined until an operator acts",
                );
            }
            RequestError::Overloaded => Kind::Overloaded,
            RequestError::Forbidden { needs } => return Self::forbidden(&needs),
        };
        Self::new(kind, detail)
    }
}

impl From<MoveError> for Problem {
    fn from(error: MoveError) -> Self {
        let detail = error.to_string();
        match error {
            MoveError::NoSuchNode(_) => Self::new(Kind::NotFound, detail),
            MoveError::Draining(_)
            | MoveError::There(_)
            | MoveError::Alone
            | MoveError::Runs(_) => Self::new(Kind::Conflict, detail),
            MoveError::Failed(error) => error.into(),
        }
    }
}

impl From<LimitError> for Problem {
    fn from(error: LimitError) -> Self {
        Self::field(&error.field, error.rule)
    }
}

impl From<Rejection> for Problem {
    fn from(rejection: Rejection) -> Self {
        let detail = rejection.to_string();
        let kind = match rejection {
            // The very body of a conversation that was looked for and not found.
            Rejection::NotFound => return Self::not_found("conversation"),
            Rejection::DecisionNotFound => Kind::NotFound,
            Rejection::ScheduledNotFound => return Self::not_found("scheduled message"),
            Rejection::TurnNotFound => return Self::not_found("queued turn"),
            Rejection::AlreadyDelivered => Kind::AlreadyDelivered,
            Rejection::Invalid { .. } => Kind::InvalidRequest,
            Rejection::State(_) => return Self::field("state", detail),
            Rejection::ConversationExists => Kind::ConversationExists,
            Rejection::AgentMismatch(_) => return Self::field("agent", detail),
            Rejection::TurnInFlight => Kind::TurnInFlight,
            Rejection::Forking => Kind::Unavailable,
            Rejection::QueueFull => Kind::Overloaded,
            Rejection::CallNotOpen(_) => Kind::CallNotOpen,
            Rejection::LeaseLost(_) => Kind::LeaseLost,
            Rejection::Stale => Kind::Internal,
            Rejection::VoteRefused(because) => {
                let problem = Self::new(Kind::ApprovalForbidden, detail);
                return problem.with("because", because.as_str().into());
            }
        };
        Self::new(kind, detail)
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        match &error {
            StoreError::Fenced | StoreError::Conflict => Self::new(
                Kind::Unavailable,
                "the conversation is moving to another node; try again",
            ),
            StoreError::Unavailable(reason) => {
                tracing::warn!(reason, "store unavailable");
                Self::new(Kind::Unavailable, "the store is unavailable")
            }
            StoreError::Unreadable(reason) => {
                tracing::error!(reason, "unreadable in the store");
                let detail = "what is stored of it cannot be read until an operator acts";
                Self::new(Kind::Unavailable, detail)
            }
        }
    }
}

impl From<ListError> for Problem {
    fn from(error: ListError) -> Self {
        match error {
            ListError::Cursor => Self::field("cursor", "was not returned by this listing"),
            ListError::Store(error) => error.into(),
        }
    }
}

impl Problem {
    /// The status and the document, as text. A server's error is logged.
    pub(crate) fn into_text(self) -> (StatusCode, String) {
        let (status, document) = self.into_document();
        (status, document.to_string())
    }

    /// The status and the document. A server's error is logged.
    pub(crate) fn into_document(self) -> (StatusCode, Value) {
        let instance = format!("urn:uuid:{}", Uuid::new_v4());
        if self.status.is_server_error() {
            // An internal error may repeat what a client sent.
            let is_internal = self.kind == Kind::Internal;
            let detail = (!is_internal).then_some(&*self.detail);
            let content = is_internal.then_some(&*self.detail);
            tracing::warn!(instance, kind = self.kind.name(), detail, content, "request failed");
        }
        let detail: String = match self.kind {
            Kind::Internal => "the node's log has the details under this instance".to_owned(),
            _ => self.detail.chars().take(MAX_DETAIL_CHARS).collect(),
        };
        let mut body = self.extensions.clone();
        body.insert("type".to_owned(), json!(self.kind.uri()));
        body.insert("title".to_owned(), json!(self.kind.title()));
        body.insert("status".to_owned(), json!(self.status.as_u16()));
        body.insert("detail".to_owned(), json!(detail));
        body.insert("instance".to_owned(), json!(instance));
        (self.status, Value::Object(body))
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let retry_after = match self.kind {
            Kind::Unavailable | Kind::Overloaded => Some(1),
            Kind::QuotaExceeded => self.extensions.get("retry_after").and_then(Value::as_u64),
            _ => None,
        };
        let is_unauthorized = self.kind == Kind::Unauthorized;
        let openai = openai::OpenAiError::new(&self);
        let a2a = a2a::A2aError::new(&self);
        let mut response = self.into_text().into_response();
        response.extensions_mut().insert(openai);
        response.extensions_mut().insert(a2a);
        let headers = response.headers_mut();
        let media = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, media);
        if is_unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, CHALLENGE);
        }
        if let Some(seconds) = retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use abide_actors::identity::NodeName;

    use super::*;

    fn status_and_name(problem: impl Into<Problem>) -> (u16, String) {
        let problem: Problem = problem.into();
        (problem.status.as_u16(), problem.kind.name().to_owned())
    }

    #[test]
    fn every_error_has_the_documented_status() {
        let agent = || abide_conversation::AgentName::new("a");
        for (error, status, name) in [
            (RequestError::from(Rejection::NotFound), 404, "not-found"),
            (Rejection::ConversationExists.into(), 409, "conversation-exists"),
            (Rejection::TurnInFlight.into(), 409, "turn-in-flight"),
            (Rejection::CallNotOpen("done".into()).into(), 409, "call-not-open"),
            (Rejection::QueueFull.into(), 429, "overloaded"),
            (RequestError::AgentMissing(agent()), 409, "agent-missing"),
            (RequestError::ApprovalRequired("t".to_owned()), 409, "approval-required"),
            (RequestError::ToolNotFound("t".to_owned()), 404, "not-found"),
            (RequestError::invalid("f", "is wrong"), 422, "invalid-request"),
            (RequestError::KeyReused("Idempotency-Key".into()), 422, "invalid-request"),
            (RequestError::Overloaded, 429, "overloaded"),
            (RequestError::Lost, 503, "unavailable"),
            (RequestError::Unavailable("node b".to_owned()), 503, "unavailable"),
            (StoreError::Fenced.into(), 503, "unavailable"),
            (StoreError::Unavailable("disk".to_owned()).into(), 503, "unavailable"),
        ] {
            assert_eq!(status_and_name(error), (status, name.to_owned()));
        }
        let runs = MoveError::Runs(vec![abide_conversation::CallId::new("c")]);
        for error in [
            runs,
            MoveError::Alone,
            MoveError::There(NodeName::new("n")),
            MoveError::Draining(NodeName::new("n")),
        ] {
            assert_eq!(status_and_name(error), (409, "conflict".to_owned()));
        }
        assert_eq!(
            status_and_name(MoveError::NoSuchNode(NodeName::new("n"))),
            (404, "not-found".to_owned())
        );
        assert_eq!(
            status_and_name(MoveError::Failed(Rejection::NotFound.into())),
            (404, "not-found".to_owned())
        );
        assert_eq!(status_and_name(ListError::Cursor), (422, "invalid-request".to_owned()));
    }

    #[tokio::test]
    async fn the_details_of_an_internal_error_stay_inside() {
        let secret = Problem::new(Kind::Internal, "secret").into_response();
        let body = axum::body::to_bytes(secret.into_body(), usize::MAX).await.unwrap();
        assert!(!std::str::from_utf8(&body).unwrap().contains("secret"));
        let store: Problem = StoreError::Unavailable("secret".to_owned()).into();
        let body = axum::body::to_bytes(store.into_response().into_body(), usize::MAX).await;
        assert!(!std::str::from_utf8(&body.unwrap()).unwrap().contains("secret"));
        let crash: Problem = RequestError::Quarantined("secret".to_owned()).into();
        assert_eq!(crash.status, StatusCode::SERVICE_UNAVAILABLE);
        let body = axum::body::to_bytes(crash.into_response().into_body(), usize::MAX).await;
        assert!(!std::str::from_utf8(&body.unwrap()).unwrap().contains("secret"));
    }

    #[test]
    fn the_runbook_says_what_to_do_about_every_problem() {
        let runbook =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/docs/src/operations/runbook.md");
        let runbook = std::fs::read_to_string(runbook).unwrap();
        let (_, table) = runbook.split_once("<!-- problems -->").unwrap();
        let (table, _) = table.split_once("<!-- /problems -->").unwrap();
        let rows = table.lines().filter(|line| line.starts_with("| `/problems/"));
        let documented: Vec<String> = rows.map(|row| row.split(" | ").take(2).collect()).collect();
        let row = |kind: Kind| format!("| `{}`{}", kind.uri(), kind.status().as_u16());
        assert_eq!(documented, Kind::ALL.map(row));
    }

    #[test]
    fn a_problem_that_passes_says_when_to_try_again() {
        for kind in Kind::ALL {
            let response = Problem::new(kind, "so").into_response();
            let passes = matches!(kind, Kind::Overloaded | Kind::Unavailable);
            assert_eq!(response.headers().contains_key(header::RETRY_AFTER), passes, "{kind:?}");
        }
    }
}
