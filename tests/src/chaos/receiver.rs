//! The receiver of all notices.

use std::time::Duration;

use reqwest::Method;
use serde_json::json;
use tokio::time::{Instant, sleep};

use crate::cluster::Cluster;
use crate::request_log::Request;
use crate::tool_server::ToolServer;

/// How long notices may be owed after the last fault: an attempt at a starved node may have failed
/// three times.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(240);
const POLL_INTERVAL: Duration = Duration::from_millis(500);
const PATH: &str = "/v1/webhooks/chaos";

/// A server that takes every notice of a run.
pub(super) struct Receiver(ToolServer);

impl Receiver {
    /// Starts it, and a webhook that tells it everything.
    pub(super) async fn start(cluster: &Cluster) -> Self {
        let server = ToolServer::start().await;
        let body = json!({"url": server.url("/answer"), "events": "all"});
        let stored = cluster.client(0).ask(Method::PUT, PATH, None, Some(&body)).await;
        stored.expect("the node answers").expect(201);
        Self(server)
    }

    /// What was told, once nothing is owed any more.
    pub(super) async fn notices(&self, cluster: &Cluster) -> Vec<Request> {
        let end = Instant::now() + DELIVERY_TIMEOUT;
        while Instant::now() < end {
            let status = cluster.client(0).ask(Method::GET, PATH, None, None).await;
            if status.is_some_and(|status| status.body["owed"] == 0) {
                break;
            }
            sleep(POLL_INTERVAL).await;
        }
        self.0.requests.all()
    }
}
