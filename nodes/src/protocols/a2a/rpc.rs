//! The envelope of JSON-RPC 2.0, and the errors of A2A.

use serde_json::{Value, json};

use super::proto_json::FieldError;

/// The version that the interface speaks.
pub const VERSION: &str = "1.0";

/// The domain of the reasons of errors.
const ERROR_DOMAIN: &str = "a2a-protocol.org";

/// The methods of A2A 1.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    SendMessage,
    SendStreamingMessage,
    GetTask,
    ListTasks,
    CancelTask,
    SubscribeToTask,
    /// Any of the four about push notifications.
    PushNotificationConfig,
    GetExtendedAgentCard,
}

impl Method {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "SendMessage" => Self::SendMessage,
            "SendStreamingMessage" => Self::SendStreamingMessage,
            "GetTask" => Self::GetTask,
            "ListTasks" => Self::ListTasks,
            "CancelTask" => Self::CancelTask,
            "SubscribeToTask" => Self::SubscribeToTask,
            "CreateTaskPushNotificationConfig"
            | "GetTaskPushNotificationConfig"
            | "ListTaskPushNotificationConfigs"
            | "DeleteTaskPushNotificationConfig" => Self::PushNotificationConfig,
            "GetExtendedAgentCard" => Self::GetExtendedAgentCard,
            _ => return None,
        })
    }
}

/// An error of JSON-RPC or of A2A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RpcError {
    Parse,
    InvalidRequest,
    MethodNotFound,
    InvalidParams,
    Internal,
    /// What has a status of HTTP and no code of A2A.
    Server,
    TaskNotFound,
    TaskNotCancelable,
    PushNotificationNotSupported,
    UnsupportedOperation,
    ExtendedCardNotConfigured,
    VersionNotSupported,
}

impl RpcError {
    pub const ALL: [Self; 12] = [
        Self::Parse,
        Self::InvalidRequest,
        Self::MethodNotFound,
        Self::InvalidParams,
        Self::Internal,
        Self::Server,
        Self::TaskNotFound,
        Self::TaskNotCancelable,
        Self::PushNotificationNotSupported,
        Self::UnsupportedOperation,
        Self::ExtendedCardNotConfigured,
        Self::VersionNotSupported,
    ];

    /// The code of the error.
    pub fn code(self) -> i32 {
        match self {
            Self::Parse => -32_700,
            Self::InvalidRequest => -32_600,
            Self::MethodNotFound => -32_601,
            Self::InvalidParams => -32_602,
            Self::Internal => -32_603,
            Self::Server => -32_000,
            Self::TaskNotFound => -32_001,
            Self::TaskNotCancelable => -32_002,
            Self::PushNotificationNotSupported => -32_003,
            Self::UnsupportedOperation => -32_004,
            Self::ExtendedCardNotConfigured => -32_007,
            Self::VersionNotSupported => -32_009,
        }
    }

    /// The reason in the error's details.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Parse => "JSON_PARSE_ERROR",
            Self::InvalidRequest => "INVALID_REQUEST",
            Self::MethodNotFound => "METHOD_NOT_FOUND",
            Self::InvalidParams => "INVALID_PARAMS",
            Self::Internal => "INTERNAL_ERROR",
            Self::Server => "SERVER_ERROR",
            Self::TaskNotFound => "TASK_NOT_FOUND",
            Self::TaskNotCancelable => "TASK_NOT_CANCELABLE",
            Self::PushNotificationNotSupported => "PUSH_NOTIFICATION_NOT_SUPPORTED",
            Self::UnsupportedOperation => "UNSUPPORTED_OPERATION",
            Self::ExtendedCardNotConfigured => "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
            Self::VersionNotSupported => "VERSION_NOT_SUPPORTED",
        }
    }

    /// The error as a document, with the type of the problem, and the field that is wrong.
    pub fn document(self, message: &str, problem: &str, field: Option<&str>) -> Value {
        let mut metadata = json!({"problem": problem});
        let mut details = Vec::new();
        if let Some(field) = field {
            metadata["field"] = json!(field);
            details.push(json!({"@type": "type.googleapis.com/google.rpc.BadRequest",
                "fieldViolations": [{"field": field, "description": message}]}));
        }
        let info = json!({"@type": "type.googleapis.com/google.rpc.ErrorInfo",
            "reason": self.reason(), "domain": ERROR_DOMAIN, "metadata": metadata});
        details.insert(0, info);
        json!({"code": self.code(), "message": message, "data": details})
    }
}

/// A call that is refused before its method is known to be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub error: RpcError,
    pub message: String,
}

/// A call: its method, and its parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub id: Value,
    pub method: Method,
    pub params: Value,
}

impl Call {
    /// The call that a body is.
    pub fn parse(body: &Value) -> Result<Self, Refusal> {
        let invalid = |message: &str| Refusal {
            error: RpcError::InvalidRequest,
            message: message.to_owned(),
        };
        if body.is_array() {
            return Err(invalid("the body must be one call: batches are not supported"));
        }
        if body["jsonrpc"] != "2.0" {
            return Err(invalid("jsonrpc: must be \"2.0\""));
        }
        let id = call_id(body);
        if id.is_null() {
            return Err(invalid("id: must be text or a whole number"));
        }
        let method = body["method"].as_str();
        let method = method.ok_or_else(|| invalid("method: must be text"))?;
        let unknown = || Refusal {
            error: RpcError::MethodNotFound,
            message: "method: is none of A2A 1.0".to_owned(),
        };
        let method = Method::parse(method).ok_or_else(unknown)?;
        let params = match body.get("params") {
            None | Some(Value::Null) => json!({}),
            Some(params) => params.clone(),
        };
        Ok(Self { id, method, params })
    }
}

/// The id of a call; null if it has none that may be one.
pub fn call_id(body: &Value) -> Value {
    let id = &body["id"];
    let may_be_one = id.is_string() || id.is_i64() || id.is_u64();
    if may_be_one { id.clone() } else { Value::Null }
}

/// The response to a call.
pub fn result(id: &Value, result: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": result})
}

/// The response to a call that has failed with this error.
pub fn error(id: &Value, error: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "error": error})
}

/// Checks the version that a request is of. One that says none is of 0.3.
pub fn check_version(version: Option<&str>) -> Result<(), FieldError> {
    let given = version.map(str::trim).unwrap_or_default();
    let is_ours = given == VERSION || given.starts_with("1.0.");
    let rule = "must be 1.0: a request without the header is one of 0.3";
    if is_ours { Ok(()) } else { Err(FieldError::new("A2A-Version", rule)) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_a_version_an_id_and_a_method() {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {"id": "t"}});
        let call = Call::parse(&body).unwrap();
        assert_eq!((call.method, call.id), (Method::GetTask, json!(1)));
        for (wrong, error) in [
            (json!([body.clone()]), RpcError::InvalidRequest),
            (json!({"id": 1, "method": "GetTask"}), RpcError::InvalidRequest),
            (json!({"jsonrpc": "2.0", "method": "GetTask"}), RpcError::InvalidRequest),
            (json!({"jsonrpc": "2.0", "id": true, "method": "GetTask"}), RpcError::InvalidRequest),
            (json!({"jsonrpc": "2.0", "id": 1.5, "method": "GetTask"}), RpcError::InvalidRequest),
            (json!({"jsonrpc": "2.0", "id": 1}), RpcError::InvalidRequest),
            (
                json!({"jsonrpc": "2.0", "id": 1, "method": "message/send"}),
                RpcError::MethodNotFound,
            ),
            (json!("x"), RpcError::InvalidRequest),
        ] {
            assert_eq!(Call::parse(&wrong).unwrap_err().error, error, "{wrong}");
        }
    }

    #[test]
    fn only_version_1_0_is_spoken() {
        for version in ["1.0", "1.0.1", " 1.0 "] {
            assert_eq!(check_version(Some(version)), Ok(()), "{version}");
        }
        for version in [None, Some(""), Some("0.3"), Some("1"), Some("1.1"), Some("2.0"), Some("x")]
        {
            assert!(check_version(version).is_err(), "{version:?}");
        }
    }

    #[test]
    fn each_error_has_a_code_and_a_reason_of_its_own() {
        let codes: std::collections::BTreeSet<i32> = RpcError::ALL.map(RpcError::code).into();
        let reasons: std::collections::BTreeSet<&str> = RpcError::ALL.map(RpcError::reason).into();
        assert_eq!((codes.len(), reasons.len()), (RpcError::ALL.len(), RpcError::ALL.len()));
    }
}
