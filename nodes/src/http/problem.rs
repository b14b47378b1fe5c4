//! Every error as `application/problem+json` (RFC 9457). The only place that knows status codes.

use abide_actors::journal::Refusal;
use abide_actors::request::Failure;
use abide_conversation::Rejection;
use abide_registry::store::ListRefusal;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// What went wrong, for a client.
#[derive(Debug)]
pub struct Problem {
    kind: Kind,
    status: StatusCode,
    detail: String,
    more: Map<String, Value>,
}

/// The types of problems, as the contract names them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    InvalidRequest,
    NotFound,
    ConversationExists,
    TurnInFlight,
    CallNotOpen,
    ApprovalRequired,
    AgentMissing,
    PayloadTooLarge,
    Overloaded,
    Unavailable,
    Internal,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Kind::InvalidRequest => "invalid-request",
            Kind::NotFound => "not-found",
            Kind::ConversationExists => "conversation-exists",
            Kind::TurnInFlight => "turn-in-flight",
            Kind::CallNotOpen => "call-not-open",
            Kind::ApprovalRequired => "approval-required",
            Kind::AgentMissing => "agent-missing",
            Kind::PayloadTooLarge => "payload-too-large",
            Kind::Overloaded => "overloaded",
            Kind::Unavailable => "unavailable",
            Kind::Internal => "internal",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Kind::InvalidRequest => "The request is not valid",
            Kind::NotFound => "There is no such thing",
            Kind::ConversationExists => "The conversation exists",
            Kind::TurnInFlight => "A turn is in flight",
            Kind::CallNotOpen => "The call is not open for this answer",
            Kind::ApprovalRequired => "The call needs an approval",
            Kind::AgentMissing => "The agent does not exist",
            Kind::PayloadTooLarge => "The request is too large",
            Kind::Overloaded => "Too many requests",
            Kind::Unavailable => "Not available now",
            Kind::Internal => "Something broke here",
        }
    }

    fn status(self) -> StatusCode {
        match self {
            Kind::InvalidRequest => StatusCode::UNPROCESSABLE_ENTITY,
            Kind::NotFound => StatusCode::NOT_FOUND,
            Kind::ConversationExists
            | Kind::TurnInFlight
            | Kind::CallNotOpen
            | Kind::ApprovalRequired
            | Kind::AgentMissing => StatusCode::CONFLICT,
            Kind::PayloadTooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Kind::Overloaded => StatusCode::TOO_MANY_REQUESTS,
            Kind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Kind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl Problem {
    /// A problem of a kind, with its usual status.
    pub fn new(kind: Kind, detail: impl Into<String>) -> Self {
        Self { kind, status: kind.status(), detail: detail.into(), more: Map::new() }
    }

    /// A field that is wrong: 422, or 400 when the request cannot even be read.
    pub fn field(field: &str, message: impl std::fmt::Display) -> Self {
        Self::new(Kind::InvalidRequest, format!("{field}: {message}"))
    }

    /// A request that cannot be read: 400.
    pub fn unreadable(detail: impl Into<String>) -> Self {
        let problem = Self::new(Kind::InvalidRequest, detail);
        Self { status: StatusCode::BAD_REQUEST, ..problem }
    }

    /// A method that the path does not know: 405.
    pub fn method() -> Self {
        let problem = Self::new(Kind::InvalidRequest, "the path does not know this method");
        Self { status: StatusCode::METHOD_NOT_ALLOWED, ..problem }
    }

    /// Headers past their bound: 431.
    pub fn headers() -> Self {
        let problem = Self::new(Kind::InvalidRequest, "the headers are too large");
        Self { status: StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, ..problem }
    }

    /// Nothing of that name.
    pub fn not_found(what: impl std::fmt::Display) -> Self {
        Self::new(Kind::NotFound, format!("there is no {what}"))
    }

    /// Adds a member of its own.
    pub fn with(mut self, name: &str, value: Value) -> Self {
        self.more.insert(name.to_owned(), value);
        self
    }
}

impl From<Failure> for Problem {
    fn from(failure: Failure) -> Self {
        let detail = failure.to_string();
        let kind = match failure {
            Failure::Rejected(rejection) => return rejection.into(),
            Failure::Refused(refusal) => return refusal.into(),
            Failure::AgentMissing(_) => Kind::AgentMissing,
            Failure::Invalid { .. } | Failure::KeyReused(_) => Kind::InvalidRequest,
            Failure::ToolNotFound(_) => Kind::NotFound,
            Failure::ApprovalRequired(_) => Kind::ApprovalRequired,
            Failure::Lost | Failure::Quarantined(_) => Kind::Unavailable,
            Failure::Overloaded => Kind::Overloaded,
        };
        Self::new(kind, detail)
    }
}

impl From<Rejection> for Problem {
    fn from(rejection: Rejection) -> Self {
        let detail = rejection.to_string();
        let kind = match rejection {
            Rejection::NotFound => Kind::NotFound,
            Rejection::ConversationExists => Kind::ConversationExists,
            Rejection::AgentMismatch(_) => return Self::field("agent", detail),
            Rejection::TurnInFlight => Kind::TurnInFlight,
            Rejection::QueueFull => Kind::Overloaded,
            Rejection::CallNotOpen(_) => Kind::CallNotOpen,
            Rejection::Stale => Kind::Internal,
        };
        Self::new(kind, detail)
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match &refusal {
            Refusal::Fenced | Refusal::Conflict => {
                Self::new(Kind::Unavailable, "the conversation is moving; try again")
            }
            Refusal::Unavailable(why) => {
                tracing::warn!(why, "the store is unavailable");
                Self::new(Kind::Unavailable, "the store is unavailable")
            }
        }
    }
}

impl From<ListRefusal> for Problem {
    fn from(refusal: ListRefusal) -> Self {
        match refusal {
            ListRefusal::Cursor => Self::field("cursor", "is not one that this list gave"),
            ListRefusal::Store(refusal) => refusal.into(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let instance = format!("urn:uuid:{}", Uuid::new_v4());
        if self.status.is_server_error() {
            let (kind, detail) = (self.kind.name(), &self.detail);
            tracing::warn!(instance, kind, detail, "a request failed");
        }
        let detail = match self.kind {
            Kind::Internal => "the log has more under this instance",
            _ => self.detail.as_str(),
        };
        let mut body = self.more.clone();
        body.insert("type".to_owned(), json!(format!("/problems/{}", self.kind.name())));
        body.insert("title".to_owned(), json!(self.kind.title()));
        body.insert("status".to_owned(), json!(self.status.as_u16()));
        body.insert("detail".to_owned(), json!(detail));
        body.insert("instance".to_owned(), json!(instance));
        let mut response = (self.status, Value::Object(body).to_string()).into_response();
        let headers = response.headers_mut();
        let media = HeaderValue::from_static("application/problem+json");
        headers.insert(header::CONTENT_TYPE, media);
        if matches!(self.kind, Kind::Unavailable | Kind::Overloaded) {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
