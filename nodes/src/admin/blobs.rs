//! Deletes blobs; only operators may.

use axum::extract::State;
use axum::http::StatusCode;

use super::Admin;
use crate::access::Allowed;
use crate::access::permission::DeleteBlobs;
use crate::http::blobs::parse;
use crate::http::extract::Path;
use crate::problem::Problem;

/// Deletes a blob even if messages name it: in its place the model reads that it is no longer stored.
pub(super) async fn delete(
    _: Allowed<DeleteBlobs>,
    State(admin): State<Admin>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    if admin.store.delete_blob(&parse(&id)?).await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::not_found("blob"))
    }
}
