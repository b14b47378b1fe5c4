//! The one place where a request's tenant meets the names of things.

use abide_conversation::ConversationId;
use abide_conversation::identity::Tenant;

/// Whether this node serves a tenant. The stores hold the default tenant's things alone, and nothing
/// else may look as if they were shared.
pub(crate) fn is_served(tenant: Option<&Tenant>) -> bool {
    tenant.is_none_or(|tenant| *tenant == Tenant::default())
}

/// The conversation that a tenant calls this; `None` if no conversation can have the name.
pub(crate) fn conversation(tenant: &Tenant, id: &str) -> Option<ConversationId> {
    ConversationId::parse(id).filter(|_| is_served(Some(tenant)))
}
