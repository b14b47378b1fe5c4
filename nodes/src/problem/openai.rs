//! Problems in the form that OpenAI's clients read: `reference/openai.md#errors`.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};

use super::{Kind, MAX_DETAIL_CHARS, Problem};

/// The paths whose errors have this form.
const PATHS: &str = "/openai/";
/// The member of a problem that names its code, if that is not the one of its kind.
const CODE: &str = "code";

/// What a response was made of, for [`translate`].
#[derive(Clone, Debug)]
pub(super) struct OpenAiError(Arc<(StatusCode, Value)>);

impl OpenAiError {
    pub(super) fn new(problem: &Problem) -> Self {
        Self(Arc::new((problem.openai_status(), problem.openai_error())))
    }
}

/// Whether errors about this path have OpenAI's form.
pub(crate) fn is_spoken_at(path: &str) -> bool {
    path.starts_with(PATHS)
}

/// The response, with OpenAI's form of its problem.
pub(crate) fn translate(mut response: Response) -> Response {
    let Some(OpenAiError(error)) = response.extensions_mut().remove::<OpenAiError>() else {
        return response;
    };
    let (status, body) = &*error;
    *response.status_mut() = *status;
    let headers = response.headers_mut();
    headers.remove(header::CONTENT_LENGTH);
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    *response.body_mut() = Body::from(body.to_string());
    response
}

impl Kind {
    /// The usual status in OpenAI's API, which has no 422.
    pub(crate) fn openai_status(self) -> StatusCode {
        match self {
            Self::InvalidRequest => StatusCode::BAD_REQUEST,
            Self::AgentMissing => StatusCode::NOT_FOUND,
            other => other.status(),
        }
    }
}

impl Problem {
    /// A problem that OpenAI's API has a code for: 400, unless its kind has another status.
    pub(crate) fn with_openai_code(self, code: &str) -> Self {
        self.with(CODE, code.into())
    }

    fn openai_status(&self) -> StatusCode {
        // A problem may have a status that is not the usual one of its kind.
        if self.status == self.kind.status() { self.kind.openai_status() } else { self.status }
    }

    /// The error as a document.
    pub(crate) fn openai_error(&self) -> Value {
        let (kind, code) = match self.kind {
            Kind::InvalidRequest => ("invalid_request_error", "invalid_request"),
            Kind::Unauthorized => ("authentication_error", "invalid_api_key"),
            Kind::Forbidden => ("permission_error", "forbidden"),
            Kind::ApprovalForbidden => ("permission_error", "approval_forbidden"),
            Kind::NotFound => ("invalid_request_error", "not_found"),
            Kind::ConversationExists => ("invalid_request_error", "conversation_exists"),
            Kind::TurnInFlight => ("invalid_request_error", "conversation_locked"),
            Kind::CallNotOpen | Kind::LeaseLost => ("invalid_request_error", "call_not_open"),
            Kind::ApprovalRequired => ("invalid_request_error", "approval_required"),
            Kind::AlreadyDelivered => ("invalid_request_error", "already_delivered"),
            Kind::AgentMissing => ("invalid_request_error", "model_not_found"),
            Kind::Conflict => ("invalid_request_error", "conflict"),
            Kind::PayloadTooLarge => ("invalid_request_error", "request_too_large"),
            Kind::Overloaded => ("rate_limit_error", "rate_limit_exceeded"),
            Kind::QuotaExceeded => ("rate_limit_error", "insufficient_quota"),
            Kind::Unavailable => ("server_error", "unavailable"),
            Kind::Internal => ("server_error", "internal_error"),
        };
        let code = self.extensions.get(CODE).and_then(Value::as_str).unwrap_or(code);
        let message: String = match self.kind {
            Kind::Internal => "an internal error".to_owned(),
            _ => self.detail.chars().take(MAX_DETAIL_CHARS).collect(),
        };
        json!({"error": {"message": message, "type": kind, "param": self.field_name(),
            "code": code}})
    }

    /// Whether something does not exist, as far as the caller may know.
    pub(crate) fn is_not_found(&self) -> bool {
        self.kind == Kind::NotFound
    }

    /// The field that the detail begins with.
    pub(crate) fn field_name(&self) -> Option<&str> {
        let (field, _) = self.detail.split_once(": ")?;
        let is_path = |c: char| c.is_ascii_alphanumeric() || "_.[]-".contains(c);
        (self.kind == Kind::InvalidRequest && field.chars().all(is_path)).then_some(field)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use axum::response::IntoResponse;

    use super::*;

    async fn translated(problem: Problem) -> (u16, Value) {
        let response = translate(problem.into_response());
        assert_eq!(response.headers()[header::CONTENT_TYPE], "application/json");
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
        (status, serde_json::from_slice::<Value>(&body).unwrap()["error"].clone())
    }

    #[tokio::test]
    async fn every_problem_has_a_code_and_a_type() {
        for kind in Kind::ALL {
            let (status, error) = translated(Problem::new(kind, "so it is")).await;
            assert!(status >= 400 && status != 422, "{kind:?}: {status}");
            for member in ["message", "type", "code"] {
                assert!(error[member].is_string(), "{kind:?}: {error}");
            }
        }
    }

    #[tokio::test]
    async fn a_wrong_field_is_the_param_and_a_code_may_be_another() {
        let (status, error) = translated(Problem::field("input[0].type", "is unknown")).await;
        assert_eq!((status, &error["param"]), (400, &json!("input[0].type")));
        let problem = Problem::new(Kind::InvalidRequest, "no such thing").with_openai_code("x");
        let (_, error) = translated(problem).await;
        assert_eq!((&error["code"], &error["param"]), (&json!("x"), &Value::Null));
    }

    #[tokio::test]
    async fn what_happened_inside_stays_inside() {
        let (_, error) = translated(Problem::new(Kind::Internal, "secret")).await;
        assert!(!error.to_string().contains("secret"), "{error}");
    }

    #[tokio::test]
    async fn an_unauthorized_response_keeps_its_challenge() {
        let response = translate(Problem::new(Kind::Unauthorized, "no").into_response());
        assert!(response.headers().contains_key(header::WWW_AUTHENTICATE));
        let response = translate(Problem::new(Kind::Unavailable, "no").into_response());
        assert!(response.headers().contains_key(header::RETRY_AFTER));
    }
}
