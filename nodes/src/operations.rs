//! Carries out what operators and administrators do, with its entry in the operators' audit. What
//! cannot be written there is not done.

mod excerpt;

use std::sync::Arc;

use abide_actors::clock::Clock;
use abide_conversation::identity::{Identity, Tenant};
use abide_conversation::{Principal, Scoped};
use abide_registry::store::{
    AuditLevel, Effect, Operation, OperationLog, OperationOutcome, StoredKey,
};
use serde::Serialize;
use serde_json::Value;

use crate::access::Allowed;
use crate::access::permission::Permission;
use crate::problem::Problem;
use excerpt::excerpt;

/// Where operations are carried out.
#[derive(Clone)]
pub(crate) struct Operations {
    log: Arc<dyn OperationLog>,
    clock: Arc<dyn Clock>,
    level: AuditLevel,
}

/// What somebody is about to do.
#[derive(Debug)]
pub(crate) struct Act {
    by: Principal,
    identity: Option<Identity>,
    /// What it is called in the audit, such as `agent.put`.
    name: &'static str,
    tenant: Option<Tenant>,
    target: String,
    request: Option<Value>,
}

impl Act {
    /// What a caller of the public API does to something of their tenant.
    pub(crate) fn of_caller<P: Permission>(
        allowed: &Allowed<P>,
        name: &'static str,
        target: impl Into<String>,
    ) -> Self {
        let tenant = Some(allowed.tenant());
        Self { tenant, ..Self::new(allowed.principal(), allowed.identity(), name, target.into()) }
    }

    /// What a caller of the operators' API does to something of the cluster.
    pub(crate) fn of_operator<P: Permission>(
        allowed: &Allowed<P>,
        name: &'static str,
        target: impl Into<String>,
    ) -> Self {
        Self::new(allowed.operator(), allowed.identity(), name, target.into())
    }

    /// What a caller of the operators' API does to something of a tenant.
    pub(crate) fn on<P: Permission, N: AsRef<str> + for<'a> From<&'a str>>(
        allowed: &Allowed<P>,
        name: &'static str,
        target: &Scoped<N>,
    ) -> Self {
        let tenant = Some(target.tenant());
        Self { tenant, ..Self::of_operator(allowed, name, target.local().as_ref()) }
    }

    fn new(by: Principal, identity: Option<&Identity>, name: &'static str, target: String) -> Self {
        Self { by, identity: identity.cloned(), name, tenant: None, target, request: None }
    }

    /// With the body of the request, which the audit has if its level says so.
    pub(crate) fn with_request(self, request: &impl Serialize) -> Self {
        Self { request: serde_json::to_value(request).ok(), ..self }
    }
}

impl Operations {
    pub(crate) fn new(
        log: Arc<dyn OperationLog>,
        clock: Arc<dyn Clock>,
        level: AuditLevel,
    ) -> Self {
        Self { log, clock, level }
    }

    /// Writes the entry of something that the caller then does.
    pub(crate) async fn record(&self, act: Act) -> Result<(), Problem> {
        self.carry_out(act, Effect::Follows).await.map(drop)
    }

    /// Writes the entry and carries the effect out. Returns the answer of the effect.
    pub(crate) async fn carry_out(&self, act: Act, effect: Effect) -> Result<bool, Problem> {
        let Act { by, identity, name, tenant, target, request } = act;
        let request = match self.level {
            AuditLevel::Metadata => None,
            AuditLevel::Request => request.map(excerpt),
        };
        let operation = Operation {
            at: self.clock.now(),
            tenant,
            by,
            identity,
            operation: name.to_owned(),
            target,
            level: self.level,
            request,
        };
        let OperationOutcome { answer, entry } = self.log.operate(&operation, effect).await?;
        if let Some(entry) = entry {
            let Operation { by, operation, target, .. } = &operation;
            let (seq, text) = (entry.seq(), serde_json::to_string(&entry).unwrap_or_default());
            tracing::info!(
                target: "abide::operations",
                seq, %by, operation, on = target, entry = text, "operation recorded"
            );
        }
        Ok(answer)
    }
}

/// What the audit has of the request for a key: never its text, nor a digest of it.
pub(crate) fn key_request(key: &StoredKey) -> Value {
    let StoredKey { name, roles, expires_at, .. } = key;
    serde_json::json!({"name": name, "roles": roles, "expires_at": expires_at})
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use abide_actors::journal::StoreError;
    use abide_conversation::Timestamp;
    use abide_registry::store::ChainEntry;
    use abide_registry::store::memory::Memory;
    use async_trait::async_trait;
    use axum::response::IntoResponse;
    use serde_json::json;

    use super::*;

    struct FixedClock;

    impl Clock for FixedClock {
        fn now(&self) -> Timestamp {
            Timestamp::UNIX_EPOCH
        }

        fn id(&self, prefix: &str) -> String {
            prefix.to_owned()
        }

        fn chance(&self) -> f64 {
            0.5
        }
    }

    /// A log whose store is away.
    struct AwayLog;

    #[async_trait]
    impl OperationLog for AwayLog {
        async fn operate(&self, _: &Operation, _: Effect) -> Result<OperationOutcome, StoreError> {
            Err(StoreError::Unavailable("away".to_owned()))
        }

        async fn operations(
            &self,
            _: Option<&Tenant>,
            _: u64,
            _: usize,
        ) -> Result<Vec<ChainEntry>, StoreError> {
            Err(StoreError::Unavailable("away".to_owned()))
        }
    }

    fn act() -> Act {
        let act = Act::new(Principal::new("ops"), None, "agent.put", "demo".to_owned());
        act.with_request(&json!({"name": "demo", "api_key": "k"}))
    }

    #[tokio::test]
    async fn the_level_says_whether_an_entry_has_the_request() {
        for (level, request) in [
            (AuditLevel::Metadata, json!(null)),
            (AuditLevel::Request, json!(r#"{"api_key":"[redacted]","name":"demo"}"#)),
        ] {
            let log = Arc::new(Memory::default());
            let operations = Operations::new(log.clone(), Arc::new(FixedClock), level);
            operations.record(act()).await.unwrap();
            let entry = json!(log.operations(None, 0, 9).await.unwrap()[0]);
            assert_eq!(entry["request"], request);
            assert_eq!(entry["level"], json!(level));
            assert_eq!((&entry["by"], &entry["target"]), (&json!("ops"), &json!("demo")));
        }
    }

    #[tokio::test]
    async fn what_cannot_be_recorded_is_answered_with_503() {
        let operations =
            Operations::new(Arc::new(AwayLog), Arc::new(FixedClock), AuditLevel::Metadata);
        let problem = operations.record(act()).await.unwrap_err();
        assert_eq!(problem.into_response().status(), 503);
    }
}
