//! Repeats of requests about one thing of a tenant, such as a webhook, get the first response.

use abide_actors::journal::{RESPONSE_TTL, ResponseScope, StoredResponse};
use abide_actors::request::IdempotencyKey;
use abide_conversation::Timestamp;
use abide_conversation::identity::Tenant;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Api;
use super::problem::{Kind, Problem};

/// The responses to requests about one thing.
pub(super) struct Repeats<'a> {
    api: &'a Api,
    scope: ResponseScope,
    /// What they are about, such as `webhook:ops`.
    about: String,
}

impl<'a> Repeats<'a> {
    /// Nothing else of the tenant has this name, and no key begins with it.
    pub(super) fn new(api: &'a Api, tenant: Tenant, about: String) -> Self {
        Self { api, scope: ResponseScope::Creations(tenant), about }
    }

    /// The response to the first request with these keys; `None` if this is the first.
    pub(super) async fn first<T: DeserializeOwned>(
        &self,
        keys: &[IdempotencyKey],
    ) -> Result<Option<T>, Problem> {
        let Self { api, scope, .. } = self;
        for key in keys {
            let name = self.name_of(key);
            if let Some(first) = api.store.stored_response(scope, &name, api.clock.now()).await? {
                let first = serde_json::from_value(of_same_request(key, first)?);
                return first.map(Some).map_err(unreadable);
            }
        }
        Ok(None)
    }

    /// Keeps the response for a day. Where this fails, a repeat does what was asked once more.
    pub(super) async fn keep(
        &self,
        keys: Vec<IdempotencyKey>,
        response: &impl Serialize,
    ) -> Result<(), Problem> {
        for key in keys {
            let name = self.name_of(&key);
            let response = stored(self.api, name, &key, json!(response));
            self.api.store.reserve(&self.scope, response, self.api.clock.now()).await?;
        }
        Ok(())
    }

    fn name_of(&self, key: &IdempotencyKey) -> String {
        format!("{}:{}", self.about, key.key)
    }
}

/// A response that is kept under this name for a day.
pub(super) fn stored(api: &Api, name: String, key: &IdempotencyKey, body: Value) -> StoredResponse {
    let expires_at = api.clock.now().checked_add(RESPONSE_TTL).unwrap_or(Timestamp::MAX);
    StoredResponse { key: name, fingerprint: key.fingerprint.clone(), body, expires_at }
}

/// What was kept under a key, if for the same request.
pub(super) fn of_same_request(
    key: &IdempotencyKey,
    first: StoredResponse,
) -> Result<Value, Problem> {
    if first.fingerprint == key.fingerprint { Ok(first.body) } else { Err(used_for_another(key)) }
}

/// What was kept is not of this version.
pub(super) fn unreadable(error: serde_json::Error) -> Problem {
    Problem::new(Kind::Internal, error.to_string())
}

pub(super) fn used_for_another(key: &IdempotencyKey) -> Problem {
    Problem::field(&key.field, "was used for another request")
}
