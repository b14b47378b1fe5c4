//! What the conversations, the background tasks and the two APIs of a node share.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use abide_actors::clock::Clock;
use abide_actors::definition::Definition;
use abide_actors::model::http::{HttpModel, HttpTimeouts};
use abide_actors::model::providers::ProviderSet;
use abide_actors::services::Executors;
use abide_actors::tools::Extensions;
use abide_actors::webhooks::NoticeSender;
use abide_actors::workspace::Workspaces;
use abide_registry::agent_catalog::AgentCatalog;
use abide_registry::blob_sweeper::BlobSweeper;
use abide_registry::erasures::Eraser;
use abide_registry::index_rebuilder::IndexRebuilder;
use abide_registry::membership::heartbeat::OnStoreTime;
use abide_registry::membership::{Member, Membership};
use abide_registry::notices::webhook_catalog::WebhookCatalog;
use abide_registry::peers::ClusterSecrets;
use abide_registry::retention::RetentionSweeper;
use abide_registry::runtime::{NodeRuntime, RuntimeDeps};
use abide_registry::store::Store;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

use super::stores::Stores;
use crate::access::{AccessControl, CallerConversations, ClientState, ReplyLinks};
use crate::admin::Admin;
use crate::config::Config;
use crate::departures::Departures;
use crate::ephemeral::EphemeralSweeper;
use crate::http::body_budget::BodyBudget;
use crate::http::host::AllowedHosts;
use crate::http::{self, Api, ApiDeps};
use crate::operations::Operations;
use crate::readiness::ReadinessNotes;
use crate::schedule_sender::ScheduleSender;
use crate::seed_agents;
use crate::start_error::StartError;
use crate::telemetry::RequestMetrics;

/// The lease of a node that has its store to itself.
const ENDLESS_LEASE: Duration = Duration::from_secs(100 * 365 * 86_400);

/// What the parts of a node share.
pub(super) struct Shared {
    pub(super) store: Arc<dyn Store>,
    pub(super) is_shared: bool,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) access: AccessControl,
    pub(super) client_state: ClientState,
    pub(super) catalog: Arc<AgentCatalog>,
    webhooks: Arc<WebhookCatalog>,
    notice_sender: Arc<NoticeSender>,
}

impl Shared {
    pub(super) fn new(
        access: AccessControl,
        secrets: &ClusterSecrets,
        opened: &Stores,
        extensions: &Arc<Extensions>,
    ) -> Result<Self, StartError> {
        let (store, clock) = (opened.store.clone(), opened.clock.clone());
        let catalog = AgentCatalog::new(store.clone(), extensions.clone(), clock.clone());
        let notice_sender = NoticeSender::new(clock.clone(), access.tenant_rules());
        Ok(Self {
            catalog: Arc::new(catalog.with_tenants(access.tenant_rules())),
            webhooks: Arc::new(WebhookCatalog::new(store.clone())),
            notice_sender: Arc::new(notice_sender.map_err(StartError::broken)?),
            client_state: ClientState::new(access.clone(), secrets.clone()),
            is_shared: opened.is_shared,
            store,
            clock,
            access,
        })
    }

    /// What the conversations of this node need.
    pub(super) fn runtime_deps(
        &self,
        config: &Config,
        me: Member,
        membership: Arc<dyn Membership>,
        on_time: OnStoreTime,
        executors: Executors,
    ) -> RuntimeDeps {
        let client = HttpModel::new(self.clock.clone(), HttpTimeouts::default(), |name: &str| {
            std::env::var(name).ok()
        });
        RuntimeDeps {
            me,
            lease: if self.is_shared { config.lease } else { ENDLESS_LEASE },
            store: self.store.clone(),
            membership,
            agents: self.catalog.clone(),
            model: Arc::new(ProviderSet::new(client)),
            executors,
            clock: self.clock.clone(),
            credentials: Arc::new(self.access.clone()),
            passivate_after: config.passivate_after,
            policy: config.placement,
            on_time,
            webhooks: self.webhooks.clone(),
            notice_sender: self.notice_sender.clone(),
            links: ReplyLinks::link_maker(&self.access, &self.store, config.public_url.as_ref()),
        }
    }

    /// Starts what a node does beside serving. Each task ends when its handle is dropped.
    pub(super) fn background_tasks(
        &self,
        runtime: &NodeRuntime,
        definitions: Vec<Definition>,
        store_clock: Arc<dyn Clock>,
    ) -> Vec<AbortOnDropHandle<()>> {
        let conversations = &runtime.conversations;
        let view = conversations.cluster().watch();
        self.access.share_quotas(view.clone());
        let Self { catalog, store, clock, .. } = self;
        let restore = seed_agents::restore_at_rejoin(
            catalog.clone(),
            store.clone(),
            clock.clone(),
            definitions,
            view,
        );
        let sweeper = EphemeralSweeper {
            conversations: conversations.clone(),
            store: store.clone(),
            clock: clock.clone(),
            access: self.access.clone(),
        };
        let retention = RetentionSweeper {
            conversations: conversations.clone(),
            store: store.clone(),
            clock: clock.clone(),
            rules: Arc::new(self.access.clone()),
        };
        let blob_sweeper = BlobSweeper {
            conversations: conversations.clone(),
            store: store.clone(),
            clock: clock.clone(),
            rules: Arc::new(self.access.clone()),
        };
        let eraser = Eraser {
            store: store.clone(),
            conversations: conversations.clone(),
            clock: clock.clone(),
        };
        let rebuilder =
            IndexRebuilder { store: store.clone(), agents: catalog.clone(), clock: clock.clone() };
        let sender =
            ScheduleSender { conversations: conversations.clone(), access: self.access.clone() };
        vec![
            AbortOnDropHandle::new(tokio::spawn(restore)),
            AbortOnDropHandle::new(tokio::spawn(sweeper.run())),
            AbortOnDropHandle::new(tokio::spawn(retention.run())),
            AbortOnDropHandle::new(tokio::spawn(blob_sweeper.run())),
            AbortOnDropHandle::new(tokio::spawn(eraser.run())),
            AbortOnDropHandle::new(tokio::spawn(rebuilder.run(conversations.cluster().clone()))),
            sender.run(store.clone(), store_clock),
        ]
    }

    /// The operators' API.
    pub(super) fn operators_api(
        &self,
        runtime: &NodeRuntime,
        operations: Operations,
        notes: ReadinessNotes,
        metrics: Option<PrometheusHandle>,
    ) -> Admin {
        Admin {
            conversations: runtime.conversations.clone(),
            store: self.store.clone(),
            operations,
            clock: self.clock.clone(),
            queues: runtime.queues.clone(),
            metrics,
            state: runtime.state.clone(),
            notes,
            access: self.access.clone(),
            bodies: BodyBudget::default(),
        }
    }

    /// The public API.
    pub(super) fn public_api(
        self,
        runtime: &NodeRuntime,
        operations: Operations,
        departures: Departures,
        workspaces: Arc<Workspaces>,
        allowed_hosts: AllowedHosts,
        has_reply_links: bool,
    ) -> Api {
        Api::new(ApiDeps {
            conversations: CallerConversations::new(runtime.conversations.clone()),
            catalog: self.catalog,
            store: self.store,
            operations,
            hub: runtime.hub.clone(),
            queues: runtime.queues.clone(),
            clock: self.clock,
            workspaces,
            allowed_hosts,
            access: self.access,
            client_state: self.client_state,
            requests_in_flight: AtomicUsize::new(0),
            metrics: RequestMetrics::default(),
            bodies: BodyBudget::default(),
            departures,
            encoding_streams: Arc::new(Semaphore::new(http::events::MAX_ENCODING_STREAMS)),
            waiting_requests: Arc::new(Semaphore::new(http::wait::MAX_WAITING_REQUESTS)),
            waiting_workers: Arc::new(Semaphore::new(http::queues::MAX_WAITING_WORKERS)),
            blobs_in_flight: Arc::new(Semaphore::new(http::blobs::MAX_BLOBS_IN_FLIGHT)),
            webhooks: self.webhooks,
            notice_sender: self.notice_sender,
            has_reply_links,
        })
    }
}
