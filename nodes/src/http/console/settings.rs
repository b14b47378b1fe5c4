//! What the page asks its node for before it draws anything: which views there are, and how to sign in.

use axum::Json;
use axum::http::header;
use axum::response::IntoResponse;
use serde_json::{Value, json};

use crate::access::AccessControl;

/// The views that every listener has, and those that need the operators' API.
const VIEWS: [&str; 6] = ["inbox", "conversations", "agents", "schedules", "webhooks", "erasures"];
const OPERATORS_VIEWS: [&str; 3] = ["queues", "cluster", "why"];

/// Which of the node's listeners a page came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Listener {
    Public,
    Admin,
}

/// The answer to `GET /console/config.json`.
pub(crate) fn settings(access: &AccessControl, listener: Listener) -> impl IntoResponse + use<> {
    let operators: &[&str] = match listener {
        Listener::Public => &[],
        Listener::Admin => &OPERATORS_VIEWS,
    };
    let sign_ins = access.sign_ins();
    let is_required = sign_ins.is_some();
    let issuers: Vec<Value> = sign_ins
        .unwrap_or_default()
        .into_iter()
        .map(|it| {
            json!({
                "issuer": it.issuer,
                "client_id": it.client_id,
                "scope": it.scope,
                "resource": it.resource,
                "token": it.token.member(),
            })
        })
        .collect();
    let views = [&VIEWS[..], operators].concat();
    let body = json!({
        "views": views,
        "sign_in": {"required": is_required, "issuers": issuers},
    });
    ([(header::CACHE_CONTROL, "no-cache")], Json(body))
}
