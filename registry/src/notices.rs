//! Delivers what conversations owe to webhooks: by the node that looks after the partition.

mod courier;
mod delivery;
pub mod health;
mod lanes;
mod notice_metrics;
pub mod schedule;
mod sweep;
pub mod webhook_catalog;

use std::sync::Arc;

use abide_actors::clock::Clock;
use abide_actors::notices::NearNotices;
use abide_actors::webhooks::NoticeSender;
use async_trait::async_trait;
use serde_json::Value;

use crate::cluster_client::ClusterClient;
use crate::store::{NoticeQueue, Store, StoredNotice};
use health::HealthNotes;
use webhook_catalog::WebhookCatalog;

pub use courier::run;
pub(crate) use notice_metrics::run as count;

/// Makes the links of a notice by which its receiver's people answer a call.
#[async_trait]
pub trait LinkMaker: Send + Sync + 'static {
    /// The member `links` of the notice of a suspension; `None` if it has none.
    async fn links(
        &self,
        webhook: &abide_actors::notices::Webhook,
        queue: &NoticeQueue,
        notice: &StoredNotice,
    ) -> Option<Value>;
}

/// What the deliveries of a node work with. Cheap to clone.
#[derive(Clone)]
pub struct CourierDeps {
    pub store: Arc<dyn Store>,
    pub clock: Arc<dyn Clock>,
    pub catalog: Arc<WebhookCatalog>,
    pub sender: Arc<NoticeSender>,
    pub links: Option<Arc<dyn LinkMaker>>,
    pub near: NearNotices,
    pub cluster: ClusterClient,
    pub health: Arc<HealthNotes>,
}
