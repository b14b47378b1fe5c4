//! The quotas by name, and the refusal of what exceeds one.

use abide_conversation::Tenant;

use crate::problem::{Kind, Problem};

/// A quota of a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Quota {
    RequestsPerMinute,
    Bodies,
    OpenStreams,
    Conversations,
    BlobBytes,
    TokensPerDay,
}

impl Quota {
    /// The member of a tenant's `quotas`, and the value of the label `quota`.
    fn name(self) -> &'static str {
        match self {
            Self::RequestsPerMinute => "requests_per_minute",
            Self::Bodies => "bodies",
            Self::OpenStreams => "open_streams",
            Self::Conversations => "conversations",
            Self::BlobBytes => "blob_bytes",
            Self::TokensPerDay => "tokens_per_day",
        }
    }

    /// The refusal of what exceeds the quota; a client may try again after this many seconds.
    pub(super) fn exceeded(self, tenant: &Tenant, retry_after: u64) -> Problem {
        let quota = self.name();
        metrics::counter!("abide_quota_refusals_total", "quota" => quota).increment(1);
        tracing::info!(%tenant, quota, "quota exceeded");
        let detail = format!("the tenant's quota {quota} is used up");
        Problem::new(Kind::QuotaExceeded, detail)
            .with("quota", quota.into())
            .with("retry_after", retry_after.into())
    }
}
