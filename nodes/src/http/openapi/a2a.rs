//! The errors of the operation that speaks JSON-RPC.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use serde_json::{Value, json};

use crate::problem::Kind;
pub(super) use crate::problem::a2a::schema as error;

/// The id of the operation.
pub(super) const OPERATION: &str = "a2a_call";

/// Adds the errors that the operation may answer with. Most have the status 200.
pub(super) fn describe<'a>(operation: &mut Value, kinds: impl Iterator<Item = &'a Kind>) {
    let mut statuses: BTreeSet<StatusCode> = kinds.map(|kind| kind.a2a_error().0).collect();
    statuses.remove(&StatusCode::OK);
    statuses.insert(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
    let schema = json!({"$ref": "#/components/schemas/A2aError"});
    for status in statuses {
        let description = status.canonical_reason().unwrap_or("An error");
        operation["responses"][status.as_str()] = json!({"description": description,
            "content": {"application/json": {"schema": schema}}});
    }
}
