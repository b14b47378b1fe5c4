//! Encryption at rest: data keys are wrapped anew after a rotation.

use abide_registry::store::Rewrapped;
use axum::Json;
use axum::extract::State;

use super::Admin;
use crate::access::Allowed;
use crate::access::permission::Operate;
use crate::operations::Act;
use crate::problem::{Kind, Problem};

/// Has all data keys of the store wrapped by the first key of this node's key file.
pub(super) async fn rewrap(
    allowed: Allowed<Operate>,
    State(admin): State<Admin>,
) -> Result<Json<Rewrapped>, Problem> {
    admin.operations.record(Act::of_operator(&allowed, "encryption.rewrap", "keys")).await?;
    match admin.store.rewrap().await? {
        Some(done) => Ok(Json(done)),
        None => Err(Problem::new(
            Kind::Conflict,
            "this node encrypts nothing: --encrypt-key-file is not given, or is plain",
        )),
    }
}
