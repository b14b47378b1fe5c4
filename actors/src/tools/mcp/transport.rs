//! What a server may send: bounded in size, in pace, and in what it leaves unread.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};
use std::time::Duration;

use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, ErrorCode, ErrorData, ProtocolVersion, RequestId,
    ServerJsonRpcMessage,
};
use rmcp::service::{ClientLifecycleMode, RoleClient, RxJsonRpcMessage, TxJsonRpcMessage};
use rmcp::transport::Transport;
use tokio::time::{Instant, timeout_at};

/// A result of 1 MB may come twice, as text and as JSON, and with every quote escaped.
pub(super) const LARGEST_MESSAGE: usize = 4 * 1024 * 1024;
/// Notifications and requests that may come at once, and in a second from then on; the rest is
/// dropped. Progress is shown to people.
const BURST: f64 = 500.0;
const PER_SECOND: f64 = 100.0;
/// Our answers that the server does not read. One that leaves more is not let go on.
const MOST_UNREAD: usize = 64;

/// Which protocol the server speaks, as far as it is known from an answer that came too late.
#[derive(Debug, Default)]
pub(super) struct NegotiatedVersion(AtomicU8);

impl NegotiatedVersion {
    const NEWEST: u8 = 1;
    const OLDER: u8 = 2;

    /// How to connect.
    pub(super) fn lifecycle(&self) -> ClientLifecycleMode {
        let preferred_versions = vec![ProtocolVersion::V_2026_07_28];
        match self.0.load(Ordering::Relaxed) {
            Self::NEWEST => ClientLifecycleMode::Discover { preferred_versions },
            Self::OLDER => ClientLifecycleMode::Initialize,
            _ => ClientLifecycleMode::Auto { preferred_versions, legacy_version: None },
        }
    }

    /// Whether it is known.
    pub(super) fn is_known(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    fn learn(&self, answer: &ServerJsonRpcMessage) {
        let newest = matches!(answer, ServerJsonRpcMessage::Response(_));
        self.0.store(if newest { Self::NEWEST } else { Self::OLDER }, Ordering::Relaxed);
    }
}

/// A transport within bounds.
pub(super) struct BoundedTransport<T> {
    inner: T,
    left: f64,
    counted: Instant,
    unread: Arc<AtomicUsize>,
    probe: Probe,
    limit: Duration,
    era: Arc<NegotiatedVersion>,
}

/// The question whether the server knows the newest protocol.
enum Probe {
    NotAsked,
    Asked {
        id: RequestId,
        until: Instant,
    },
    /// Answered in the server's place; its own answer comes too late.
    GivenUp(RequestId),
}

impl<T> BoundedTransport<T> {
    /// `probe` is how long the server may be silent about the newest protocol, unless it is known
    /// to speak it.
    pub(super) fn new(inner: T, probe: Duration, era: Arc<NegotiatedVersion>) -> Self {
        Self {
            inner,
            left: BURST,
            counted: Instant::now(),
            unread: Arc::default(),
            probe: Probe::NotAsked,
            limit: probe,
            era,
        }
    }

    /// Whether something that was not asked for may come now.
    fn admits(&mut self) -> bool {
        let now = Instant::now();
        let since = now.duration_since(self.counted).as_secs_f64();
        self.left = (self.left + since * PER_SECOND).min(BURST);
        self.counted = now;
        let admits = self.left >= 1.0;
        if admits {
            self.left -= 1.0;
        }
        admits
    }

    /// What a server says that knows nothing of the newest protocol.
    fn give_up(&mut self, id: RequestId) -> ServerJsonRpcMessage {
        self.probe = Probe::GivenUp(id.clone());
        let unknown = ErrorData::new(ErrorCode::METHOD_NOT_FOUND, "no answer", None);
        ServerJsonRpcMessage::error(unknown, Some(id))
    }

    /// Whether the message is to be passed on.
    fn takes(&mut self, message: &ServerJsonRpcMessage) -> bool {
        match message {
            ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => {
                self.admits()
            }
            ServerJsonRpcMessage::Response(_) | ServerJsonRpcMessage::Error(_) => {
                if matches!(self.probe, Probe::Asked { .. }) {
                    self.probe = Probe::NotAsked;
                }
                true
            }
        }
    }

    /// Whether it is the answer to what was given up.
    fn is_late(&self, message: &ServerJsonRpcMessage) -> bool {
        let id = match message {
            ServerJsonRpcMessage::Request(_) | ServerJsonRpcMessage::Notification(_) => None,
            ServerJsonRpcMessage::Response(response) => Some(&response.id),
            ServerJsonRpcMessage::Error(error) => error.id.as_ref(),
        };
        matches!((&self.probe, id), (Probe::GivenUp(given), Some(id)) if given == id)
    }
}

impl<T: Transport<RoleClient>> Transport<RoleClient> for BoundedTransport<T> {
    type Error = T::Error;

    fn name() -> Cow<'static, str> {
        T::name()
    }

    fn send(
        &mut self,
        item: TxJsonRpcMessage<RoleClient>,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        if let ClientJsonRpcMessage::Request(request) = &item
            && matches!(request.request, ClientRequest::DiscoverRequest(_))
            && !self.era.is_known()
        {
            let until = Instant::now() + self.limit;
            self.probe = Probe::Asked { id: request.id.clone(), until };
        }
        let answers =
            matches!(item, ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_));
        let unread = answers.then(|| Unread::one(&self.unread));
        let sending = self.inner.send(item);
        async move {
            let sent = sending.await;
            drop(unread);
            sent
        }
    }

    async fn receive(&mut self) -> Option<RxJsonRpcMessage<RoleClient>> {
        loop {
            let message = match &self.probe {
                Probe::Asked { id, until } => {
                    let (id, until) = (id.clone(), *until);
                    match timeout_at(until, self.inner.receive()).await {
                        Ok(message) => message?,
                        Err(_) => return Some(self.give_up(id)),
                    }
                }
                Probe::NotAsked | Probe::GivenUp(_) => self.inner.receive().await?,
            };
            if self.unread.load(Ordering::Relaxed) > MOST_UNREAD {
                tracing::warn!("an MCP server asks without reading the answers");
                return None;
            }
            if self.is_late(&message) {
                // It was slow, not old. What it was told since is not what it expects now.
                self.era.learn(&message);
                return None;
            }
            if self.takes(&message) {
                return Some(message);
            }
        }
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.inner.close()
    }
}

/// An answer that is under way, counted until it is sent or dropped.
struct Unread(Arc<AtomicUsize>);

impl Unread {
    fn one(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Unread {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
