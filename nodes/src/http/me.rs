//! The caller, as the node knows it by the credential.

use std::collections::BTreeSet;

use abide_conversation::Timestamp;
use abide_conversation::identity::{AuthMethod, Role, Tenant};
use axum::Json;
use serde::Serialize;
use utoipa::ToSchema;

use crate::access::Allowed;
use crate::access::permission::Known;

/// The caller, as the node knows them.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Me)]
pub(super) struct Caller {
    /// Absent only for an operator, who belongs to none.
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<Tenant>,
    /// The owner of the conversations that the caller creates.
    subject: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    roles: BTreeSet<Role>,
    groups: Vec<String>,
    /// How the caller proved who they are; `none` if the node authenticates nobody.
    auth: AuthMethod,
    /// When the credential expires, if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
}

/// Reads who the caller is.
#[utoipa::path(get, path = "/v1/me", operation_id = "get_me", tag = "access",
    responses((status = 200, description = "The caller.", body = Caller)))]
pub(super) async fn get(allowed: Allowed<Known>) -> Json<Caller> {
    let Some(session) = allowed.session() else {
        return Json(Caller {
            tenant: Some(Tenant::default()),
            subject: allowed.principal().as_str().to_owned(),
            name: None,
            roles: Role::ALL.into(),
            groups: Vec::new(),
            auth: AuthMethod::None,
            expires_at: None,
        });
    };
    let credential = session.credential();
    let subject = credential.identity.acting().clone();
    Json(Caller {
        tenant: credential.identity.tenant.clone(),
        subject: subject.sub,
        name: subject.name,
        roles: subject.roles,
        groups: subject.groups,
        auth: credential.identity.auth,
        expires_at: credential.expires_at,
    })
}
