//! Deletes blobs; only operators and a tenant's administrators may.

use abide_registry::store::Effect;
use axum::extract::State;
use axum::http::StatusCode;

use super::{Admin, scoped_id};
use crate::access::Allowed;
use crate::access::permission::DeleteBlobs;
use crate::http::extract::Path;
use crate::operations::Act;
use crate::problem::Problem;

/// Deletes a blob even if messages name it: in its place the model reads that it is no longer stored.
pub(super) async fn delete(
    allowed: Allowed<DeleteBlobs>,
    State(admin): State<Admin>,
    Path(id): Path<String>,
) -> Result<StatusCode, Problem> {
    let id = scoped_id::blob(&allowed, &id)?;
    let tenant = id.tenant();
    let act = Act::on(&allowed, "blob.delete", &id);
    if admin.operations.carry_out(act, Effect::DeleteBlob(id)).await? {
        admin.access.deleted(&tenant);
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(Problem::not_found("blob"))
    }
}
