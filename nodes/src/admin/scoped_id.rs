//! Ids in the paths of operators, who see those of all tenants.

use abide_conversation::{BlobId, ConversationId, Scoped};

use crate::access::Allowed;
use crate::access::permission::{DeleteBlobs, Operate, ReadAudit};
use crate::problem::Problem;

/// A conversation: `conv_1` of the tenant `default`, or `acme%2Fconv_1`. An id that no conversation can
/// have is not found.
pub(super) fn conversation(
    _: &Allowed<Operate>,
    id: &str,
) -> Result<Scoped<ConversationId>, Problem> {
    any_conversation(id)
}

/// A conversation of the caller's tenant; any where callers have none.
pub(super) fn audited_conversation(
    allowed: &Allowed<ReadAudit>,
    id: &str,
) -> Result<Scoped<ConversationId>, Problem> {
    match allowed.own_tenant() {
        Some(_) => allowed.named_conversation(id).ok_or_else(no_conversation),
        None => any_conversation(id),
    }
}

/// A blob of the caller's tenant. An operator without a tenant names any: `blob_…` of the tenant
/// `default`, or `acme%2Fblob_…`.
pub(super) fn blob(allowed: &Allowed<DeleteBlobs>, id: &str) -> Result<Scoped<BlobId>, Problem> {
    let blob = match allowed.own_tenant() {
        Some(_) => BlobId::parse(id).map(|id| allowed.scoped(&id)),
        None => Scoped::<BlobId>::parse(id)
            .ok()
            .filter(|id| BlobId::parse(id.local().as_str()).is_some()),
    };
    blob.ok_or_else(|| Problem::not_found("blob"))
}

fn any_conversation(id: &str) -> Result<Scoped<ConversationId>, Problem> {
    let parsed = Scoped::<ConversationId>::parse(id).ok();
    let parsed = parsed.filter(|id| ConversationId::parse(id.local().as_str()).is_some());
    parsed.ok_or_else(no_conversation)
}

fn no_conversation() -> Problem {
    Problem::not_found("conversation")
}
