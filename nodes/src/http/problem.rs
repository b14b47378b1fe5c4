//! Every error as `application/problem+json` (RFC 9457). The only place that knows status codes.

use abide_actors::journal::StoreError;
use abide_actors::request::RequestError;
use abide_conversation::Rejection;
use abide_registry::router::MoveError;
use abide_registry::store::ListError;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// The longest detail in characters: a mistake is named, not sent back whole.
const DETAIL_CHARS: usize = 2_000;

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
    /// Of operators: things are not so that it could be done.
    Conflict,
    PayloadTooLarge,
    Overloaded,
    Unavailable,
    Internal,
}

impl Kind {
    pub(super) const ALL: [Self; 12] = [
        Kind::InvalidRequest,
        Kind::NotFound,
        Kind::ConversationExists,
        Kind::TurnInFlight,
        Kind::CallNotOpen,
        Kind::ApprovalRequired,
        Kind::AgentMissing,
        Kind::Conflict,
        Kind::PayloadTooLarge,
        Kind::Overloaded,
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
            Kind::NotFound => "not-found",
            Kind::ConversationExists => "conversation-exists",
            Kind::TurnInFlight => "turn-in-flight",
            Kind::CallNotOpen => "call-not-open",
            Kind::ApprovalRequired => "approval-required",
            Kind::AgentMissing => "agent-missing",
            Kind::Conflict => "conflict",
            Kind::PayloadTooLarge => "payload-too-large",
            Kind::Overloaded => "overloaded",
            Kind::Unavailable => "unavailable",
            Kind::Internal => "internal",
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Kind::InvalidRequest => "The request is not valid",
            Kind::NotFound => "There is no such thing",
            Kind::ConversationExists => "The conversation exists",
            Kind::TurnInFlight => "A turn is in flight",
            Kind::CallNotOpen => "The call is not open for this answer",
            Kind::ApprovalRequired => "The call needs an approval",
            Kind::AgentMissing => "The agent does not exist",
            Kind::Conflict => "It cannot be done as things are",
            Kind::PayloadTooLarge => "The request is too large",
            Kind::Overloaded => "Too many requests",
            Kind::Unavailable => "Not available now",
            Kind::Internal => "Something broke here",
        }
    }

    pub(super) fn status(self) -> StatusCode {
        match self {
            Kind::InvalidRequest => StatusCode::UNPROCESSABLE_ENTITY,
            Kind::NotFound => StatusCode::NOT_FOUND,
            Kind::ConversationExists
            | Kind::TurnInFlight
            | Kind::CallNotOpen
            | Kind::ApprovalRequired
            | Kind::AgentMissing
            | Kind::Conflict => StatusCode::CONFLICT,
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

impl From<RequestError> for Problem {
    fn from(failure: RequestError) -> Self {
        let detail = failure.to_string();
        let kind = match failure {
            RequestError::Rejected(rejection) => return rejection.into(),
            RequestError::Refused(refusal) => return refusal.into(),
            RequestError::AgentMissing(_) => Kind::AgentMissing,
            RequestError::Invalid { .. } | RequestError::KeyReused(_) => Kind::InvalidRequest,
            RequestError::ToolNotFound(_) => Kind::NotFound,
            RequestError::ApprovalRequired(_) => Kind::ApprovalRequired,
            RequestError::Lost => Kind::Unavailable,
            // The reason may be a panic's text: it is for operators, and they have it.
            RequestError::Quarantined(_) => {
                return Self::new(Kind::Unavailable, "the conversation waits for an operator");
            }
            RequestError::Overloaded => Kind::Overloaded,
        };
        Self::new(kind, detail)
    }
}

impl From<MoveError> for Problem {
    fn from(kept: MoveError) -> Self {
        let detail = kept.to_string();
        match kept {
            MoveError::NoSuchNode(_) => Self::new(Kind::NotFound, detail),
            MoveError::Draining(_)
            | MoveError::There(_)
            | MoveError::Alone
            | MoveError::Runs(_) => Self::new(Kind::Conflict, detail),
            MoveError::Failed(failure) => failure.into(),
        }
    }
}

impl From<Rejection> for Problem {
    fn from(rejection: Rejection) -> Self {
        let detail = rejection.to_string();
        let kind = match rejection {
            Rejection::NotFound | Rejection::DecisionNotFound => Kind::NotFound,
            Rejection::ConversationExists => Kind::ConversationExists,
            Rejection::AgentMismatch(_) => return Self::field("agent", detail),
            Rejection::TurnInFlight => Kind::TurnInFlight,
            Rejection::Forking => Kind::Unavailable,
            Rejection::QueueFull => Kind::Overloaded,
            Rejection::CallNotOpen(_) => Kind::CallNotOpen,
            Rejection::Stale => Kind::Internal,
        };
        Self::new(kind, detail)
    }
}

impl From<StoreError> for Problem {
    fn from(refusal: StoreError) -> Self {
        match &refusal {
            StoreError::Fenced | StoreError::Conflict => {
                Self::new(Kind::Unavailable, "the conversation is moving; try again")
            }
            StoreError::Unavailable(why) => {
                tracing::warn!(why, "the store is unavailable");
                Self::new(Kind::Unavailable, "the store is unavailable")
            }
        }
    }
}

impl From<ListError> for Problem {
    fn from(refusal: ListError) -> Self {
        match refusal {
            ListError::Cursor => Self::field("cursor", "is not one that this list gave"),
            ListError::Store(refusal) => refusal.into(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let instance = format!("urn:uuid:{}", Uuid::new_v4());
        if self.status.is_server_error() {
            // What broke inside may repeat what a client said.
            let inside = self.kind == Kind::Internal;
            let (detail, said) = match inside {
                true => (None, Some(&*self.detail)),
                false => (Some(&*self.detail), None),
            };
            tracing::warn!(instance, kind = self.kind.name(), detail, said, "a request failed");
        }
        let detail: String = match self.kind {
            Kind::Internal => "the log has more under this instance".to_owned(),
            _ => self.detail.chars().take(DETAIL_CHARS).collect(),
        };
        let mut body = self.more.clone();
        body.insert("type".to_owned(), json!(self.kind.uri()));
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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn told(problem: impl Into<Problem>) -> (u16, String) {
        let problem: Problem = problem.into();
        (problem.status.as_u16(), problem.kind.name().to_owned())
    }

    #[test]
    fn every_failure_has_the_status_of_the_contract() {
        let agent = || abide_conversation::AgentName::new("a");
        for (failure, status, name) in [
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
            (StoreError::Fenced.into(), 503, "unavailable"),
            (StoreError::Unavailable("disk".to_owned()).into(), 503, "unavailable"),
        ] {
            assert_eq!(told(failure), (status, name.to_owned()));
        }
        let runs = MoveError::Runs(vec![abide_conversation::CallId::new("c")]);
        for kept in [
            runs,
            MoveError::Alone,
            MoveError::There("n".to_owned()),
            MoveError::Draining("n".to_owned()),
        ] {
            assert_eq!(told(kept), (409, "conflict".to_owned()));
        }
        assert_eq!(told(MoveError::NoSuchNode("n".to_owned())), (404, "not-found".to_owned()));
        assert_eq!(
            told(MoveError::Failed(Rejection::NotFound.into())),
            (404, "not-found".to_owned())
        );
        assert_eq!(told(ListError::Cursor), (422, "invalid-request".to_owned()));
    }

    #[tokio::test]
    async fn what_broke_inside_is_not_told() {
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
    fn the_runbook_tells_what_to_do_about_every_problem() {
        let runbook =
            concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/docs/src/operations/runbook.md");
        let runbook = std::fs::read_to_string(runbook).unwrap();
        let (_, table) = runbook.split_once("<!-- problems -->").unwrap();
        let (table, _) = table.split_once("<!-- /problems -->").unwrap();
        let rows = table.lines().filter(|line| line.starts_with("| `/problems/"));
        let told: Vec<String> = rows.map(|row| row.split(" | ").take(2).collect()).collect();
        let row = |kind: Kind| format!("| `{}`{}", kind.uri(), kind.status().as_u16());
        assert_eq!(told, Kind::ALL.map(row));
    }

    #[test]
    fn who_should_try_again_is_told_when() {
        for kind in Kind::ALL {
            let response = Problem::new(kind, "so").into_response();
            let again = matches!(kind, Kind::Overloaded | Kind::Unavailable);
            assert_eq!(response.headers().contains_key(header::RETRY_AFTER), again, "{kind:?}");
        }
    }
}
