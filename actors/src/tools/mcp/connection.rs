//! One connection to a server: the handshake of either protocol version, and the server's
//! notifications.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use data_encoding::HEXLOWER;
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
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::sse_server::{SSE_ONLY, is_sse_only};
use super::stdio;
use super::transport::{BoundedTransport, MAX_MESSAGE_BYTES, NegotiatedVersion};
use super::unavailable::McpUnavailable;
use crate::definition::{McpServer, McpTransport};
use crate::environment::Env;
use crate::exec::{Server, Shell};
use crate::limits::encoded_len;
use crate::outbound::{ClientPair, OutboundError};

/// Progress reports that wait to be passed on. Progress is lossy: a server that reports faster
/// loses the rest.
const MAX_PENDING_PROGRESS: usize = 64;
/// Larger progress is dropped, since it is kept for clients that connect later.
const MAX_PROGRESS_BYTES: usize = 16 * 1024;

/// After ten seconds the library falls back by itself and takes the late answer for a wrong one.
const MAX_PROBE_TIMEOUT: Duration = Duration::from_secs(9);

/// Two servers of a node never share this many bytes of their digests.
const DIRECTORY_NAME_BYTES: usize = 16;

/// A connection, closed when its last owner drops it.
pub(super) struct Connection {
    service: RunningService<RoleClient, Handler>,
    opened_at: Instant,
}

/// Set when a server notifies us that its tools have changed.
#[derive(Clone)]
pub(super) struct ChangeFlag(pub(super) Arc<AtomicBool>);

impl ChangeFlag {
    fn set(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// What connections are made with.
pub(super) struct Connector {
    pub(super) clients: ClientPair,
    pub(super) env: Env,
    /// Starts the servers that are programs.
    pub(super) shell: Arc<Shell>,
    /// The directory of their directories.
    pub(super) directory: PathBuf,
}

impl Connector {
    /// Connects with protocol version 2026-07-28, or an older one if the server does not know it.
    pub(super) async fn open(
        &self,
        server: &McpServer,
        changed: ChangeFlag,
        version: &Arc<NegotiatedVersion>,
    ) -> Result<Connection, McpUnavailable> {
        let handler = Handler { changed, progress: Mutex::default() };
        let lifecycle = version.lifecycle();
        // An old server may not answer a probe that it does not know. The second half of the
        // timeout is left for the fallback.
        let probe = (server.timeout / 2).min(MAX_PROBE_TIMEOUT);
        let connected = match &server.transport {
            McpTransport::Http { url, headers, secret_headers } => {
                let refusal = |error: OutboundError| McpUnavailable::new(error.to_string());
                let client = self.clients.get(server.outbound.route(url).map_err(refusal)?);
                let mut headers = headers.clone();
                for (name, variable) in secret_headers {
                    headers.insert(name.clone(), secret_header(variable, &self.env)?);
                }
                let transport = http_transport(url.as_str(), headers.clone(), client.clone());
                let transport = BoundedTransport::new(transport, probe, Arc::clone(version));
                let connected = handler.serve_with_lifecycle(transport, lifecycle).await;
                if connected.is_err() && is_sse_only(client, url.as_str(), headers).await {
                    return Err(McpUnavailable::new(SSE_ONLY));
                }
                connected
            }
            McpTransport::Stdio { command, args, env, network } => {
                let get = |name: &String| Some((name.clone(), (self.env)(name)?));
                let program = Server {
                    program: command.clone(),
                    args: args.clone(),
                    environment: env.iter().filter_map(get).collect(),
                    directory: self.directory.join(directory_name(&server.key)),
                    network: network.clone(),
                };
                let transport = stdio::start(&server.name, program, &self.shell).await;
                let transport = transport.map_err(|error| {
                    McpUnavailable::new(format!("its program cannot start: {error}"))
                })?;
                handler
                    .serve_with_lifecycle(
                        BoundedTransport::new(transport, probe, Arc::clone(version)),
                        lifecycle,
                    )
                    .await
            }
        };
        let service = connected.map_err(|error| {
            McpUnavailable::with_detail("it cannot be connected to", &error.to_string())
        })?;
        // The session caches the listing, by its own rules.
        service.set_response_cache_config(ClientCacheConfig::disabled()).await;
        Ok(Connection { service, opened_at: Instant::now() })
    }
}

/// The name of a server's directory: as short as a path needs it, and the same whenever the server is
/// configured identically.
fn directory_name(key: &str) -> String {
    let digest = Sha256::digest(key.as_bytes());
    HEXLOWER.encode(&digest[..DIRECTORY_NAME_BYTES])
}

impl Connection {
    pub(super) fn peer(&self) -> &Peer<RoleClient> {
        self.service.peer()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.service.is_closed() || self.peer().is_transport_closed()
    }

    pub(super) fn age(&self) -> Duration {
        self.opened_at.elapsed()
    }

    /// The progress of a request, until the receiver is dropped.
    pub(super) fn progress(&self, token: ProgressToken) -> mpsc::Receiver<Value> {
        let (sender, receiver) = mpsc::channel(MAX_PENDING_PROGRESS);
        let mut progress = self.service.service().progress();
        progress.retain(|_, sender| !sender.is_closed());
        progress.insert(token, sender);
        receiver
    }

    /// Watches for changes of the tools for as long as the server sends them. Since 2026-07-28 a
    /// client has to subscribe to them.
    pub(super) fn watch_changes(&self) -> impl Future<Output = ()> + Send + use<> {
        let (peer, changes) = (self.peer().clone(), self.service.service().changed.clone());
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
                    changes.set();
                }
            }
            // Without a subscription a change is noticed when the listing expires.
            std::future::pending().await
        }
    }
}

fn http_transport(
    url: &str,
    headers: HeaderMap,
    client: Client,
) -> StreamableHttpClientTransport<Client> {
    let headers = headers.into_iter().filter_map(|(name, value)| Some((name?, value))).collect();
    let config = StreamableHttpClientTransportConfig::with_uri(url)
        .custom_headers(headers)
        .max_sse_event_size(MAX_MESSAGE_BYTES)
        // Reinitialising would repeat calls, too.
        .reinit_on_expired_session(false);
    StreamableHttpClientTransport::with_client(client, config)
}

/// A header value from a secret, marked so that it is never logged.
fn secret_header(variable: &str, env: &Env) -> Result<HeaderValue, McpUnavailable> {
    let unfit = |why: &str| McpUnavailable::new(format!("{variable} {why}"));
    let value = env(variable).ok_or_else(|| unfit("is not set"))?;
    let mut value =
        HeaderValue::from_str(&value).map_err(|_| unfit("does not fit into a header"))?;
    value.set_sensitive(true);
    Ok(value)
}

/// Handles the server's notifications. Requests of the server outside a call are declined.
pub(super) struct Handler {
    changed: ChangeFlag,
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
        notification: ProgressNotificationParam,
        _: NotificationContext<RoleClient>,
    ) {
        let mut payload = json!({"progress": notification.progress});
        if let Some(total) = notification.total {
            payload["total"] = json!(total);
        }
        if let Some(message) = notification.message {
            payload["message"] = message.into();
        }
        if encoded_len(&payload) > MAX_PROGRESS_BYTES {
            return;
        }
        if let Some(sender) = self.progress().get(&notification.progress_token) {
            let _ = sender.try_send(payload);
        }
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.changed.set();
    }
}
