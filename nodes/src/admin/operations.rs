//! The operators' audit: who did what, oldest first.

use abide_conversation::identity::{Role, Tenant};
use axum::Json;
use axum::extract::State;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Admin;
use crate::access::Allowed;
use crate::access::permission::{Operate, Permission, ReadOperations};
use crate::http::extract::{Query, limit};
use crate::problem::Problem;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct OperationsQuery {
    after: Option<u64>,
    limit: Option<usize>,
    tenant: Option<String>,
}

/// Lists the entries of a chain: that of the cluster, which has all, or that of a tenant. `cursor` as
/// `after` asks for the later ones.
pub(super) async fn list(
    allowed: Allowed<ReadOperations>,
    State(admin): State<Admin>,
    Query(query): Query<OperationsQuery>,
) -> Result<Json<Value>, Problem> {
    let limit = limit(query.limit, 100, 1_000)?;
    let named = query.tenant.map(|name| {
        let parsed = Tenant::parse(&name);
        parsed.map_err(|_| Problem::field("tenant", "must be [a-z0-9][a-z0-9-]{0,31}"))
    });
    let tenant = chain(&allowed, named.transpose()?)?;
    let after = query.after.unwrap_or_default();
    let mut entries = admin.store.operations(tenant.as_ref(), after, limit + 1).await?;
    let more = entries.len() > limit;
    entries.truncate(limit);
    let cursor = entries.last().filter(|_| more).map(|entry| entry.seq());
    Ok(Json(json!({"operations": entries, "cursor": cursor})))
}

/// The tenant whose chain the caller reads; `None` for that of the cluster. An auditor has only that of
/// the own tenant.
fn chain(
    allowed: &Allowed<ReadOperations>,
    named: Option<Tenant>,
) -> Result<Option<Tenant>, Problem> {
    let own = allowed.own_tenant().filter(|_| !allowed.has_role(&[Role::Operator]));
    match own {
        None => Ok(named),
        Some(own) if named.as_ref().is_none_or(|named| named == own) => Ok(Some(own.clone())),
        Some(_) => Err(Problem::forbidden(Operate::NEEDS)),
    }
}
