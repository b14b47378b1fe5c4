//! Problems as errors of JSON-RPC, as A2A's clients read them: `reference/a2a.md#errors`.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};

use super::{Kind, MAX_DETAIL_CHARS, Problem};
use crate::protocols::a2a::proto_json::FieldError;
use crate::protocols::a2a::rpc::{self, Refusal, RpcError};

/// The paths whose errors have this form. The cards of agents are plain documents.
const PATHS: &str = "/a2a/";
/// The member of a problem that names its error, if that is not the one of its kind.
const REASON: &str = "reason";

/// What a response was made of, for [`translate`].
#[derive(Clone, Debug)]
pub(super) struct A2aError(Arc<(StatusCode, Value)>);

impl A2aError {
    pub(super) fn new(problem: &Problem) -> Self {
        Self(Arc::new((problem.a2a_status(), problem.a2a_error())))
    }
}

/// Whether errors about this request have this form.
pub(crate) fn is_spoken_by(request: &Request) -> bool {
    *request.method() == Method::POST && request.uri().path().starts_with(PATHS)
}

/// The response to the call with this id, with the form of JSON-RPC.
pub(crate) fn translate(mut response: Response, id: &Value) -> Response {
    let Some(A2aError(error)) = response.extensions_mut().remove::<A2aError>() else {
        return response;
    };
    let (status, error) = &*error;
    *response.status_mut() = *status;
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    *response.body_mut() = Body::from(rpc::error(id, error).to_string());
    response
}

impl Kind {
    /// The error of this kind, and its status: 200 where JSON-RPC has a code for it, and the status of
    /// HTTP where clients, proxies and people look at that.
    pub(crate) fn a2a_error(self) -> (StatusCode, RpcError) {
        let error = match self {
            Self::InvalidRequest => RpcError::InvalidParams,
            Self::NotFound | Self::AgentMissing => RpcError::TaskNotFound,
            Self::ConversationExists
            | Self::TurnInFlight
            | Self::CallNotOpen
            | Self::LeaseLost
            | Self::ApprovalRequired
            | Self::AlreadyDelivered
            | Self::Conflict => RpcError::UnsupportedOperation,
            Self::Internal => RpcError::Internal,
            Self::Unauthorized
            | Self::Forbidden
            | Self::ApprovalForbidden
            | Self::PayloadTooLarge
            | Self::Overloaded
            | Self::QuotaExceeded
            | Self::Unavailable => RpcError::Server,
        };
        let status = match error {
            RpcError::Server | RpcError::Internal => self.status(),
            _ if self == Self::AgentMissing => StatusCode::NOT_FOUND,
            _ => StatusCode::OK,
        };
        (status, error)
    }
}

impl Problem {
    /// A problem that A2A has an error for.
    pub(crate) fn a2a(error: RpcError, detail: impl Into<String>) -> Self {
        Self::new(Kind::InvalidRequest, detail).with(REASON, error.reason().into())
    }

    /// The problem with another name for what its detail begins with.
    pub(crate) fn renamed(self, from: &str, to: &str) -> Self {
        let detail = match self.detail.strip_prefix(from) {
            Some(rest) => format!("{to}{rest}"),
            None => self.detail,
        };
        Self { detail, ..self }
    }

    fn given_a2a_error(&self) -> Option<RpcError> {
        let reason = self.extensions.get(REASON)?.as_str()?;
        RpcError::ALL.into_iter().find(|error| error.reason() == reason)
    }

    fn a2a_status(&self) -> StatusCode {
        // A problem may have a status that is not the usual one of its kind.
        match self.status {
            StatusCode::BAD_REQUEST => StatusCode::OK,
            status if status != self.kind.status() => status,
            _ => self.kind.a2a_error().0,
        }
    }

    /// The error as a document.
    fn a2a_error(&self) -> Value {
        let message: String = match self.kind {
            Kind::Internal => "an internal error".to_owned(),
            _ => self.detail.chars().take(MAX_DETAIL_CHARS).collect(),
        };
        let of_kind = match (self.kind, self.field_name()) {
            (Kind::InvalidRequest, None) if self.status == StatusCode::BAD_REQUEST => {
                RpcError::Parse
            }
            (Kind::InvalidRequest, None) => RpcError::InvalidRequest,
            (kind, _) => kind.a2a_error().1,
        };
        let error = self.given_a2a_error().unwrap_or(of_kind);
        error.document(&message, self.kind.name(), self.field_name())
    }
}

impl From<FieldError> for Problem {
    fn from(error: FieldError) -> Self {
        Self::field(&error.field, error.message)
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        Self::a2a(refusal.error, refusal.message)
    }
}

/// What ends a stream that cannot go on.
pub(crate) fn broken(why: &str) -> Value {
    let (_, error) = Kind::Unavailable.a2a_error();
    error.document(why, Kind::Unavailable.name(), None)
}

/// The schema of an error.
pub(crate) fn schema() -> Value {
    let codes: Vec<i32> = RpcError::ALL.map(RpcError::code).into();
    json!({
        "type": "object",
        "description": "An error of JSON-RPC 2.0. Switch on `code`.",
        "required": ["jsonrpc", "id", "error"],
        "properties": {
            "jsonrpc": {"type": "string", "enum": ["2.0"]},
            "id": {"type": ["string", "integer", "null"]},
            "error": {
                "type": "object",
                "required": ["code", "message", "data"],
                "properties": {
                    "code": {"type": "integer", "format": "int32", "enum": codes},
                    "message": {"type": "string"},
                    "data": {"type": "array", "items": {"type": "object"}},
                },
            },
        },
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::response::IntoResponse;

    use super::*;

    async fn translated(problem: Problem) -> (u16, Value) {
        let response = translate(problem.into_response(), &json!(7));
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        let body: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!((&body["jsonrpc"], &body["id"]), (&json!("2.0"), &json!(7)));
        (status, body["error"].clone())
    }

    #[tokio::test]
    async fn every_problem_has_a_code_and_a_reason() {
        for kind in Kind::ALL {
            let (status, error) = translated(Problem::new(kind, "so it is")).await;
            assert!(error["code"].as_i64().unwrap() <= -32_000, "{kind:?}: {error}");
            assert!(error["data"][0]["reason"].is_string(), "{kind:?}: {error}");
            assert!(status == 200 || status == kind.status().as_u16() || status == 404, "{kind:?}");
        }
    }

    #[tokio::test]
    async fn a_wrong_field_is_named() {
        let (status, error) = translated(Problem::field("message.parts[0]", "is empty")).await;
        assert_eq!((status, &error["code"]), (200, &json!(-32_602)));
        assert_eq!(error["data"][0]["metadata"]["field"], "message.parts[0]");
        assert_eq!(error["data"][1]["fieldViolations"][0]["field"], "message.parts[0]");
        let (status, error) = translated(Problem::unreadable("not JSON")).await;
        assert_eq!((status, &error["code"]), (200, &json!(-32_700)));
    }

    #[tokio::test]
    async fn what_happened_inside_stays_inside() {
        let (status, error) = translated(Problem::new(Kind::Internal, "secret")).await;
        assert_eq!((status, error.to_string().contains("secret")), (500, false), "{error}");
    }

    #[tokio::test]
    async fn a_response_without_a_credential_keeps_its_challenge() {
        let problem = Problem::new(Kind::Unauthorized, "no");
        let response = translate(problem.into_response(), &Value::Null);
        assert_eq!(response.status(), 401);
        assert!(response.headers().contains_key(header::WWW_AUTHENTICATE));
    }
}
