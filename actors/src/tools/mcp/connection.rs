//! One connection to a server: the handshake of either protocol, and what the server says unasked.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reqwest::Client;
use reqwest::header::{HeaderMap, HeaderValue};
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitationCapability, FormElicitationCapability,
    Implementation, ProgressNotificationParam, ProgressToken, SubscriptionFilter,
};
use rmcp::service::{
    ClientCacheConfig, ClientServiceExt, NotificationContext, Peer, RunningService,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, RoleClient};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::stdio;
use super::transport::{BoundedTransport, LARGEST_MESSAGE, NegotiatedVersion};
use crate::definition::{McpServer, McpTransport};
use crate::environment::Env;
use crate::limits::encoded_len;

/// Progress that waits to be passed on; a server that reports faster loses the rest, as it may.
const PROGRESS_WAITING: usize = 64;
/// Progress is shown, and kept for whoever looks later.
const LARGEST_PROGRESS: usize = 16 * 1024;

/// After ten seconds the library would go on by itself, and take the late answer for a wrong one.
const LONGEST_PROBE: Duration = Duration::from_secs(9);

/// A connection, closed when the last who has it drops it.
pub(super) struct Connection {
    service: RunningService<RoleClient, Handler>,
    since: Instant,
}

/// Where a server's word that its tools have changed is noted.
#[derive(Clone)]
pub(super) struct Changes(pub(super) Arc<AtomicBool>);

impl Changes {
    fn note(&self) {
        self.0.store(true, Ordering::Release);
    }
}

impl Connection {
    /// Connects, with the protocol of 2026-07-28 or, if the server does not know it, an older one.
    pub(super) async fn open(
        server: &McpServer,
        client: Client,
        variables: &Env,
        changes: Changes,
        era: &Arc<NegotiatedVersion>,
    ) -> Result<Self, String> {
        let handler = Handler { changes, progress: Mutex::default() };
        let lifecycle = era.lifecycle();
        // An old server may be silent about what it does not know; it is to have as long again.
        let probe = (server.timeout / 2).min(LONGEST_PROBE);
        let connected = match &server.reach {
            McpTransport::Http { url, headers, secret_headers } => {
                let mut headers = headers.clone();
                for (name, variable) in secret_headers {
                    headers.insert(name.clone(), secret(variable, variables)?);
                }
                let transport = http(url.as_str(), headers, client);
                handler
                    .serve_with_lifecycle(
                        BoundedTransport::new(transport, probe, Arc::clone(era)),
                        lifecycle,
                    )
                    .await
            }
            McpTransport::Stdio { command, args, env } => {
                let transport = stdio::start(&server.name, command, args, env, variables)
                    .map_err(|error| format!("its program cannot be started: {error}"))?;
                handler
                    .serve_with_lifecycle(
                        BoundedTransport::new(transport, probe, Arc::clone(era)),
                        lifecycle,
                    )
                    .await
            }
        };
        let service = connected.map_err(|error| error.to_string())?;
        // The link keeps the listing, by its own rules.
        service.set_response_cache_config(ClientCacheConfig::disabled()).await;
        Ok(Self { service, since: Instant::now() })
    }

    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.service.is_closed() || self.peer().is_transport_closed()
    }

    pub(super) fn age(&self) -> Duration {
        self.since.elapsed()
    }

    /// What is reported of a request, until the receiver is dropped.
    pub(super) fn progress(&self, token: ProgressToken) -> mpsc::Receiver<Value> {
        let (sender, receiver) = mpsc::channel(PROGRESS_WAITING);
        let mut progress = self.service.service().progress();
        progress.retain(|_, sender| !sender.is_closed());
        progress.insert(token, sender);
        receiver
    }

    /// Notes changes of the tools for as long as the server tells them: since 2026-07-28 it has to
    /// be asked to.
    pub(super) fn changes(&self) -> impl Future<Output = ()> + Send + use<> {
        let (peer, changes) = (self.peer().clone(), self.service.service().changes.clone());
        async move {
            let info = peer.peer_info();
            let tells = info.is_some_and(|info| {
                let tools = info.capabilities.tools.as_ref();
                !info.protocol_version.has_initialize()
                    && tools.is_some_and(|tools| tools.list_changed == Some(true))
            });
            let filter = SubscriptionFilter::builder().tools_list_changed().build();
            if tells && let Ok(mut subscription) = peer.listen(filter).await {
                while let Ok(Some(_)) = subscription.next().await {
                    changes.note();
                }
            }
            // Whatever comes is then heard of when the listing is not fresh any more.
            std::future::pending().await
        }
    }
}

fn http(url: &str, headers: HeaderMap, client: Client) -> StreamableHttpClientTransport<Client> {
    let headers = headers.into_iter().filter_map(|(name, value)| Some((name?, value))).collect();
    let config = StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(headers)
        .max_sse_event_size(LARGEST_MESSAGE)
        // That would send calls again, too.
        .reinit_on_expired_session(false);
    StreamableHttpClientTransport::with_client(client, config)
}

/// A header's value that must not be shown.
fn secret(variable: &str, variables: &Env) -> Result<HeaderValue, String> {
    let value = variables(variable).ok_or_else(|| format!("{variable} is not set"))?;
    let mut value = HeaderValue::from_str(&value)
        .map_err(|_| format!("{variable} does not fit into a header"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Hears what the server says by itself. What it asks of us beside a call is declined.
pub(super) struct Handler {
    changes: Changes,
    progress: Mutex<HashMap<ProgressToken, mpsc::Sender<Value>>>,
}

impl Handler {
    fn progress(&self) -> MutexGuard<'_, HashMap<ProgressToken, mpsc::Sender<Value>>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientHandler for Handler {
    fn get_info(&self) -> ClientConfig {
        let mut capabilities = ClientCapabilities::default();
        let form = ElicitationCapability::new().with_form(FormElicitationCapability::default());
        capabilities.elicitation = Some(form);
        ClientConfig::new(capabilities, Implementation::new("abide", env!("CARGO_PKG_VERSION")))
    }

    async fn on_progress(
        &self,
        said: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let mut payload = json!({"progress": said.progress});
        if let Some(total) = said.total {
            payload["total"] = json!(total);
        }
        if let Some(message) = said.message {
            payload["message"] = message.into();
        }
        if encoded_len(&payload) > LARGEST_PROGRESS {
            return;
        }
        if let Some(sender) = self.progress().get(&said.progress_token) {
            let _ = sender.try_send(payload);
        }
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changes.note();
    }
}
