//! Blobs are deleted by operators only.

use axum::extract::State;
use axum::http::StatusCode;

use super::Admin;
use crate::http::blobs::parse;
use crate::http::extract::Path;
use crate::http::problem::Problem;

/// Removes a blob, whoever names it: a model then reads that it is no longer stored.
pub(super) async fn delete(
    State(admin): State<Admin>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    match admin.store.delete_blob(&parse(&id)?).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::not_found("such blob")),
    }
}
