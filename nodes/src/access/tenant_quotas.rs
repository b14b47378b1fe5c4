//! The quotas that a caller's tenant has by the file that is in force at the moment of a request.

use std::sync::Arc;

use abide_conversation::{ConversationId, Scoped, Tenant};
use abide_registry::cluster_view::ClusterView;
use tokio::sync::watch;

use super::control::AccessControl;
use super::quotas::{BodyShare, StreamPermit};
use crate::problem::Problem;

impl AccessControl {
    /// Shares the quotas among the nodes of this view from now on.
    pub(crate) fn share_quotas(&self, view: watch::Receiver<Arc<ClusterView>>) {
        if let Some((quotas, _)) = self.quotas() {
            quotas.share_among(view);
        }
    }

    /// Counts a request of a tenant.
    pub(super) fn admit_request(&self, tenant: &Tenant) -> Result<(), Problem> {
        let Some((quotas, guard)) = self.quotas() else { return Ok(()) };
        quotas.admit_request(tenant, guard.quotas_of(tenant))
    }

    /// What the bodies of a tenant take together; `None` where it has the memory for itself.
    pub(super) fn body_share(&self, tenant: &Tenant) -> Option<BodyShare> {
        let (quotas, guard) = self.quotas()?;
        guard.has_several_tenants().then(|| quotas.bodies(tenant))
    }

    /// Counts an event stream of a tenant as long as the permit lives.
    pub(crate) fn open_stream(&self, tenant: &Tenant) -> Result<Option<StreamPermit>, Problem> {
        let Some((quotas, guard)) = self.quotas() else { return Ok(None) };
        quotas.open_stream(tenant, guard.quotas_of(tenant)).map(Some)
    }

    /// Makes room for a conversation that is created unless it exists.
    pub(crate) async fn admit_conversation(
        &self,
        id: &Scoped<ConversationId>,
    ) -> Result<(), Problem> {
        let Some((quotas, guard)) = self.quotas() else { return Ok(()) };
        quotas.admit_conversation(id, guard.quotas_of(&id.tenant())).await
    }

    /// Makes room for bytes that a tenant is about to store.
    pub(crate) async fn admit_blob(&self, tenant: &Tenant, bytes: u64) -> Result<(), Problem> {
        let Some((quotas, guard)) = self.quotas() else { return Ok(()) };
        quotas.admit_blob(tenant, guard.quotas_of(tenant), bytes).await
    }

    /// Whether a message of a tenant may start another turn.
    pub(crate) async fn admit_turn(&self, tenant: &Tenant) -> Result<(), Problem> {
        let Some((quotas, guard)) = self.quotas() else { return Ok(()) };
        quotas.admit_turn(tenant, guard.quotas_of(tenant)).await
    }

    /// Takes note that something of a tenant was deleted, which gives room back at once.
    pub(crate) fn deleted(&self, tenant: &Tenant) {
        if let Some((quotas, _)) = self.quotas() {
            quotas.deleted(tenant);
        }
    }
}
